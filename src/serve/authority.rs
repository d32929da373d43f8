//! kubefold's own certificate authority: made on first start, so that TLS is never off and one command logs in.
//!
//! Given certificates take the place of these (see `tls`).

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem, pem::PemObject},
    sign::CertifiedKey,
};
use x509_parser::{
    error::{PEMError, X509Error},
    extensions::GeneralName,
    nom,
};

use kubefold_serving::{
    fingerprint::{self, Fingerprint},
    replica::{self, ReplicaFiles},
    tls::{TlsError, client_verifier},
};

use crate::serve::state::{StateDir, StateError};
use kubefold_wire::names::is_dns_subdomain;

const DAY: Duration = Duration::from_secs(24 * 3600);
const CA_LIFE: Duration = DAY.saturating_mul(3650);
const LEAF_LIFE: Duration = DAY.saturating_mul(730);
/// A leaf with less life than this is made anew at start.
const RENEW_BEFORE: Duration = DAY.saturating_mul(180);
/// Clocks differ: a certificate is good a little before it was made.
const BACKDATE: Duration = Duration::from_secs(3600);
/// The user of the admin certificate. Its group is what kube-apiserver's own admin certificate has.
pub const ADMIN_USER: &str = "kubefold-admin";
/// The group that may do everything.
pub const ADMIN_GROUP: &str = "system:masters";

/// What the state directory holds after [`ensure`], as PEM.
#[derive(Clone)]
pub struct Credentials {
    /// The authority's certificate.
    pub ca_certificate: String,
    /// Certificate that kubefold serves with.
    pub serving_certificate: String,
    /// Its key.
    pub serving_key: String,
}

/// Why the authority cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum AuthorityError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(
        "{dir} has ca.crt but no ca.key, so no certificate can be issued; restore ca.key from a backup, or remove ca.crt and hand out new kubeconfigs"
    )]
    KeyLost { dir: String },
    #[error(
        "{dir}: ca.crt and ca.key cannot be used together ({cause}); restore the pair from a backup, or remove both and hand out new kubeconfigs"
    )]
    Broken { dir: String, cause: String },
    #[error("cannot make a certificate ({0}); check every --tls-san: it is a DNS name or an IP address")]
    Issue(#[from] rcgen::Error),
}

/// Why a key and a certificate do not go together.
#[derive(Debug, thiserror::Error)]
enum PairError {
    #[error("certificate: {0}")]
    Certificate(#[source] pem::Error),
    #[error("key: {0}")]
    Key(#[source] pem::Error),
    #[error(transparent)]
    Mismatch(#[from] rustls::Error),
}

/// Why a stored certificate does not serve.
#[derive(Debug, thiserror::Error)]
enum LeafError {
    #[error("it is close to its end")]
    Ending,
    #[error("its names are others")]
    Names,
    #[error("another authority issued it")]
    Issuer,
    #[error("it is revoked")]
    Revoked,
    #[error(transparent)]
    Pair(#[from] PairError),
    #[error(transparent)]
    Form(#[from] nom::Err<X509Error>),
    #[error(transparent)]
    Authority(#[from] nom::Err<PEMError>),
    #[error(transparent)]
    Verifier(#[from] TlsError),
    #[error(transparent)]
    Refused(#[from] rustls::Error),
}

/// Reads the authority and its certificates, and makes what is missing, broken, nearly expired, revoked or for other names.
///
/// The authority itself is never replaced while it is usable: every kubeconfig out there trusts it.
pub fn ensure(
    state: &StateDir,
    names: &BTreeSet<String>,
    revoked: &BTreeSet<Fingerprint>,
    now: SystemTime,
) -> Result<Credentials, AuthorityError> {
    let (ca_certificate, ca_key) = ensure_ca(state, now)?;
    let issuer = issuer(state, &ca_certificate, &ca_key)?;
    let serving = Leaf {
        name: "serving",
        usages: vec![ExtendedKeyUsagePurpose::ServerAuth],
        subject: "kubefold",
        group: None,
        names: names.clone(),
        revoked,
    };
    let admin = Leaf {
        name: "admin",
        usages: vec![ExtendedKeyUsagePurpose::ClientAuth],
        subject: ADMIN_USER,
        group: Some(ADMIN_GROUP),
        names: BTreeSet::new(),
        revoked,
    };
    let (serving_certificate, serving_key) = serving.ensure(state, &issuer, &ca_certificate, now)?;
    admin.ensure(state, &issuer, &ca_certificate, now)?;
    Ok(Credentials { ca_certificate, serving_certificate, serving_key })
}

/// The same for the certificate by which replicas of one state know one another. No other one has its name.
pub fn ensure_replica(
    state: &StateDir,
    revoked: &BTreeSet<Fingerprint>,
    now: SystemTime,
) -> Result<ReplicaFiles, AuthorityError> {
    let (authority, ca_key) = ensure_ca(state, now)?;
    let replica = Leaf {
        name: "replica",
        usages: vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        subject: replica::USER,
        group: None,
        names: [replica::SERVER_NAME.to_owned()].into(),
        revoked,
    };
    let (certificate, key) = replica.ensure(state, &issuer(state, &authority, &ca_key)?, &authority, now)?;
    Ok(ReplicaFiles { authority, certificate, key })
}

fn issuer(state: &StateDir, certificate: &str, key: &str) -> Result<Issuer<'static, KeyPair>, AuthorityError> {
    let broken = |cause: String| AuthorityError::Broken { dir: state.path().display().to_string(), cause };
    let key = KeyPair::from_pem(key).map_err(|error| broken(error.to_string()))?;
    Issuer::from_ca_cert_pem(certificate, key).map_err(|error| broken(error.to_string()))
}

/// The names that a serving certificate has: the local ones, the address listened on, and the operator's.
pub fn serving_names(listen: IpAddr, extra: &[String]) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    if let Ok(host) = rustix::system::uname().nodename().to_str()
        && is_dns_subdomain(&host.to_ascii_lowercase())
    {
        names.insert(host.to_ascii_lowercase());
    }
    if !listen.is_unspecified() {
        names.insert(listen.to_string());
    }
    // One spelling per address, so that what is compared with a stored certificate is what it was made from.
    let canonical = |name: &String| name.parse::<IpAddr>().map_or_else(|_| name.clone(), |address| address.to_string());
    names.extend(extra.iter().map(canonical));
    names
}

fn ensure_ca(state: &StateDir, now: SystemTime) -> Result<(String, String), AuthorityError> {
    let dir = || state.path().display().to_string();
    match (state.read("ca.crt")?, state.read("ca.key")?) {
        (Some(certificate), Some(key)) => {
            let broken = |error: PairError| AuthorityError::Broken { dir: dir(), cause: error.to_string() };
            pair(&certificate, &key).map_err(broken)?;
            Ok((certificate, key))
        }
        (Some(_), None) => Err(AuthorityError::KeyLost { dir: dir() }),
        // A key alone was written just before a crash: nothing trusts it yet.
        (None, _) => {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let mut params = params("kubefold-ca", CA_LIFE, now);
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages =
                vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
            let (certificate, key) = (params.self_signed(&key)?.pem(), key.serialize_pem());
            state.write("ca.key", &key, false)?;
            state.write("ca.crt", &certificate, true)?;
            tracing::info!(dir = dir(), "made a certificate authority");
            Ok((certificate, key))
        }
    }
}

/// A certificate that the authority issues, and what makes a stored one good.
struct Leaf<'a> {
    name: &'static str,
    usages: Vec<ExtendedKeyUsagePurpose>,
    subject: &'static str,
    group: Option<&'static str>,
    names: BTreeSet<String>,
    revoked: &'a BTreeSet<Fingerprint>,
}

impl Leaf<'_> {
    fn ensure(
        &self,
        state: &StateDir,
        issuer: &Issuer<'_, KeyPair>,
        ca: &str,
        now: SystemTime,
    ) -> Result<(String, String), AuthorityError> {
        let (certificate_file, key_file) = (format!("{}.crt", self.name), format!("{}.key", self.name));
        if let (Some(certificate), Some(key)) = (state.read(&certificate_file)?, state.read(&key_file)?) {
            match self.judge(&certificate, &key, ca, now) {
                Ok(()) => return Ok((certificate, key)),
                Err(cause) => tracing::info!(certificate = self.name, %cause, "making the certificate anew"),
            }
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params(self.subject, LEAF_LIFE, now);
        if let Some(group) = self.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = self.usages.clone();
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = self.names.iter().map(|name| alt_name(name)).collect::<Result<_, _>>()?;
        let (certificate, key) = (params.signed_by(&key, issuer)?.pem(), key.serialize_pem());
        // A crash between the two leaves a pair that does not match, which the next start makes anew.
        state.write(&key_file, &key, false)?;
        state.write(&certificate_file, &certificate, true)?;
        Ok((certificate, key))
    }

    /// Whether a stored certificate serves; if not, why.
    fn judge(&self, certificate: &str, key: &str, ca: &str, now: SystemTime) -> Result<(), LeafError> {
        let leaf = pair(certificate, key)?;
        if fingerprint::all(&leaf).iter().any(|digest| self.revoked.contains(digest)) {
            return Err(LeafError::Revoked);
        }
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf)?;
        let late = i64::try_from(unix(now + RENEW_BEFORE)).unwrap_or(i64::MAX);
        if parsed.validity().not_after.timestamp() < late {
            return Err(LeafError::Ending);
        }
        let names = parsed.subject_alternative_name().ok().flatten();
        let names: BTreeSet<String> =
            names.iter().flat_map(|extension| extension.value.general_names.iter()).filter_map(shown_name).collect();
        if names != self.names {
            return Err(LeafError::Names);
        }
        if self.usages.contains(&ExtendedKeyUsagePurpose::ClientAuth) {
            let at = UnixTime::since_unix_epoch(Duration::from_secs(unix(now)));
            let verifier = client_verifier(ca.as_bytes())?;
            verifier.verify_client_cert(&leaf, &[], at)?;
            return Ok(());
        }
        let (_, ca) = x509_parser::pem::parse_x509_pem(ca.as_bytes())?;
        let ca = ca.parse_x509()?;
        let same = parsed.issuer() == ca.subject() && authority_key(&parsed) == subject_key(&ca);
        same.then_some(()).ok_or(LeafError::Issuer)
    }
}

fn authority_key<'a>(certificate: &'a x509_parser::certificate::X509Certificate<'_>) -> Option<&'a [u8]> {
    use x509_parser::extensions::ParsedExtension;
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(identifier) => identifier.key_identifier.as_ref().map(|key| key.0),
        _ => None,
    })
}

fn subject_key<'a>(certificate: &'a x509_parser::certificate::X509Certificate<'_>) -> Option<&'a [u8]> {
    use x509_parser::extensions::ParsedExtension;
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0),
        _ => None,
    })
}

/// Holds that key and certificate belong together, and gives the certificate.
fn pair(certificate: &str, key: &str) -> Result<CertificateDer<'static>, PairError> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(PairError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(PairError::Key)?;
    CertifiedKey::from_der(vec![certificate.clone()], key, &aws_lc_rs::default_provider())?;
    Ok(certificate)
}

fn params(common_name: &str, life: Duration, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(unix(now - BACKDATE));
    params.not_after = epoch + Duration::from_secs(unix(now + life));
    params
}

fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn alt_name(name: &str) -> Result<SanType, rcgen::Error> {
    match name.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ok(SanType::DnsName(name.try_into()?)),
    }
}

fn shown_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(v4) => Some(IpAddr::from(v4).to_string()),
            Err(_) => <[u8; 16]>::try_from(*bytes).ok().map(|v6| IpAddr::from(v6).to_string()),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(extra: &str) -> BTreeSet<String> {
        serving_names(IpAddr::from([10, 1, 2, 3]), &[extra.to_owned()])
    }

    fn state() -> (tempfile::TempDir, StateDir) {
        let parent = tempfile::tempdir().unwrap();
        let state = StateDir::open(&parent.path().join("state")).unwrap();
        (parent, state)
    }

    #[test]
    fn a_second_start_finds_everything_as_it_was() {
        let (_parent, state) = state();
        let now = SystemTime::now();
        let first = ensure(&state, &names("a.example"), &BTreeSet::new(), now).unwrap();
        let admin = state.read("admin.crt").unwrap();
        let second = ensure(&state, &names("a.example"), &BTreeSet::new(), now + DAY).unwrap();
        assert_eq!(first.ca_certificate, second.ca_certificate);
        assert_eq!(first.serving_certificate, second.serving_certificate);
        assert_eq!(admin, state.read("admin.crt").unwrap());
    }

    #[test]
    fn other_names_or_age_make_a_new_leaf_of_the_same_authority() {
        let (_parent, state) = state();
        let now = SystemTime::now();
        let first = ensure(&state, &names("a.example"), &BTreeSet::new(), now).unwrap();
        let renamed = ensure(&state, &names("b.example"), &BTreeSet::new(), now).unwrap();
        assert_ne!(first.serving_certificate, renamed.serving_certificate);
        let aged = ensure(&state, &names("b.example"), &BTreeSet::new(), now + LEAF_LIFE - RENEW_BEFORE + DAY).unwrap();
        assert_ne!(renamed.serving_certificate, aged.serving_certificate);
        assert_eq!(first.ca_certificate, aged.ca_certificate);
    }

    #[test]
    fn a_login_that_is_revoked_is_made_anew() {
        let (_parent, state) = state();
        let now = SystemTime::now();
        let first = ensure(&state, &names("a.example"), &BTreeSet::new(), now).unwrap();
        let admin = state.read("admin.crt").unwrap().unwrap();
        let revoked = [fingerprint::fingerprint(&CertificateDer::from_pem_slice(admin.as_bytes()).unwrap())].into();
        let second = ensure(&state, &names("a.example"), &revoked, now).unwrap();
        assert_ne!(Some(admin), state.read("admin.crt").unwrap());
        assert_eq!(first.serving_certificate, second.serving_certificate);
    }

    #[test]
    fn half_a_state_is_repaired_where_nobody_relies_on_it_and_refused_otherwise() {
        let (_parent, state) = state();
        let now = SystemTime::now();
        state.write("ca.key", "half", false).unwrap();
        let made = ensure(&state, &names("a.example"), &BTreeSet::new(), now).unwrap();

        state.write("serving.key", "half", false).unwrap();
        std::fs::remove_file(state.path().join("admin.key")).unwrap();
        let repaired = ensure(&state, &names("a.example"), &BTreeSet::new(), now).unwrap();
        assert_eq!(made.ca_certificate, repaired.ca_certificate);
        assert_ne!(made.serving_certificate, repaired.serving_certificate);
        assert!(state.read("admin.key").unwrap().is_some());

        let key = state.read("ca.key").unwrap().unwrap();
        state.write("ca.key", &repaired.serving_key, false).unwrap();
        let Err(error) = ensure(&state, &names("a.example"), &BTreeSet::new(), now) else { panic!("a foreign key") };
        assert!(matches!(error, AuthorityError::Broken { .. }), "{error}");
        std::fs::remove_file(state.path().join("ca.key")).unwrap();
        let Err(error) = ensure(&state, &names("a.example"), &BTreeSet::new(), now) else { panic!("no key") };
        assert!(error.to_string().contains("has ca.crt but no ca.key"), "{error}");
        state.write("ca.key", &key, false).unwrap();
        ensure(&state, &names("a.example"), &BTreeSet::new(), now).unwrap();
    }

    #[test]
    fn another_authority_reissues_its_leaves() {
        let (_parent, state) = state();
        let now = SystemTime::now();
        let first = ensure(&state, &names("a.example"), &BTreeSet::new(), now).unwrap();
        for file in ["ca.crt", "ca.key"] {
            std::fs::remove_file(state.path().join(file)).unwrap();
        }
        let admin = state.read("admin.crt").unwrap();
        let second = ensure(&state, &names("a.example"), &BTreeSet::new(), now).unwrap();
        assert_ne!(first.serving_certificate, second.serving_certificate);
        assert_ne!(admin, state.read("admin.crt").unwrap());
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let (_parent, state) = state();
        let Err(error) = ensure(&state, &names("n\u{f6}"), &BTreeSet::new(), SystemTime::now()) else {
            panic!("a bad name")
        };
        assert!(error.to_string().contains("--tls-san"), "{error}");
    }
}
