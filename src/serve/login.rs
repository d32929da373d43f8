//! Logins for people: certificates of the own authority that name a user and its groups.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use p256::{
    ecdsa::{DerSignature, SigningKey},
    pkcs8::DecodePrivateKey,
};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use x509_cert::{
    TbsCertificate,
    attr::AttributeTypeAndValue,
    builder::{self, Builder, CertificateBuilder, profile::BuilderProfile},
    certificate::Certificate,
    der::{
        self, Any, DateTime, Decode, DecodePem, Encode, EncodePem, Tag,
        asn1::{ObjectIdentifier, SetOfVec},
        pem::LineEnding,
    },
    ext::{
        Extension, ToExtension,
        pkix::{ExtendedKeyUsage, KeyUsage, KeyUsages},
    },
    name::{Name, RdnSequence, RelativeDistinguishedName},
    serial_number::SerialNumber,
    spki::{SubjectPublicKeyInfo, SubjectPublicKeyInfoRef},
    time::{Time, Validity},
};

use crate::serve::published::Login;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");
/// Clocks differ: a certificate is good a little before it was made.
const BACKDATE: Duration = Duration::from_hours(1);

/// Who is to log in, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLogin {
    /// The user's name.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// How long the certificate is good.
    pub life: Duration,
}

/// Why there is no login.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum LoginError {
    #[error("state directory {}: cannot read {file} ({source}); give the --state-dir of kubefold serve, and run this as its user", .dir.display())]
    Unreadable { dir: PathBuf, file: &'static str, source: io::Error },
    #[error("the key of the certificate authority cannot be used ({0}); restore the state directory from a backup")]
    Key(#[from] p256::pkcs8::Error),
    #[error("cannot make a certificate ({0})")]
    Certificate(#[from] builder::Error),
    #[error("cannot make a key ({0})")]
    NewKey(#[from] rcgen::Error),
    #[error("cannot make a certificate ({0})")]
    Form(#[from] der::Error),
}

/// Makes a login of anybody. `kubefold serve` need not run.
///
/// Errors: the state directory has no authority, or may not be read; a user or group that no certificate can name.
pub fn issue(dir: &Path, login: &NewLogin, now: SystemTime) -> Result<Login, LoginError> {
    let read = |file: &'static str| {
        let text = fs::read_to_string(dir.join(file));
        text.map_err(|source| LoginError::Unreadable { dir: dir.to_path_buf(), file, source })
    };
    let authority = Certificate::from_pem(read("ca.crt")?)?;
    let signer = SigningKey::from_pkcs8_pem(&read("ca.key")?)?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let profile =
        Person { issuer: authority.tbs_certificate().subject().clone(), subject: subject(&login.user, &login.groups)? };
    let validity = Validity::new(time(now - BACKDATE)?, time(now + login.life)?);
    let serial = SerialNumber::new(uuid::Uuid::new_v4().as_bytes())?;
    let public = SubjectPublicKeyInfo::from_der(&key.subject_public_key_info())?;
    let certificate = CertificateBuilder::new(profile, serial, validity, public)?.build::<_, DerSignature>(&signer)?;
    Ok(Login { certificate: certificate.to_pem(LineEnding::LF)?, key: key.serialize_pem() })
}

/// A certificate for a client.
struct Person {
    issuer: Name,
    subject: Name,
}

impl BuilderProfile for Person {
    fn get_issuer(&self, _: &Name) -> Name {
        self.issuer.clone()
    }

    fn get_subject(&self) -> Name {
        self.subject.clone()
    }

    fn build_extensions(
        &self,
        _: SubjectPublicKeyInfoRef<'_>,
        _: SubjectPublicKeyInfoRef<'_>,
        tbs: &TbsCertificate,
    ) -> builder::Result<Vec<Extension>> {
        let usage = KeyUsage(KeyUsages::DigitalSignature.into()).to_extension(tbs.subject(), &[])?;
        let extended = ExtendedKeyUsage(vec![CLIENT_AUTH]).to_extension(tbs.subject(), &[])?;
        Ok(vec![usage, extended])
    }
}

/// As a kube-apiserver reads it: the common name is the user, each organization a group.
fn subject(user: &str, groups: &[String]) -> der::Result<Name> {
    let named = |oid: ObjectIdentifier, text: &str| {
        let value = Any::new(Tag::Utf8String, text.as_bytes())?;
        let set = SetOfVec::try_from(vec![AttributeTypeAndValue { oid, value }])?;
        Ok::<_, der::Error>(RelativeDistinguishedName::from(set))
    };
    let groups = groups.iter().map(|group| named(ORGANIZATION, group));
    let names = groups.chain([named(COMMON_NAME, user)]).collect::<Result<Vec<_>, _>>()?;
    Name::from_der(&RdnSequence::from(names).to_der()?)
}

fn time(at: SystemTime) -> der::Result<Time> {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    // In whole seconds: a certificate has no others.
    Ok(Time::from(DateTime::from_unix_duration(Duration::from_secs(since.as_secs()))?))
}
