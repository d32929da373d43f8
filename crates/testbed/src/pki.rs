//! Certificates: one authority per member.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

/// A certificate authority and its key.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub struct Identity {
    pub cert_pem: String,
    pub key_pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    pub fn cert_pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A serving certificate for names and addresses.
    pub(crate) fn server(&self, names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = distinguished("server", None);
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client certificate: Kubernetes takes the common name for the user and the organization for a group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(user, group);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Identity {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Identity { cert_pem: cert.pem(), key_pem: key.serialize_pem() }
    }
}

/// A client certificate of any authority whose key is at hand.
pub(crate) fn client_of(ca_pem: &str, ca_key_pem: &str, user: &str, group: Option<&str>) -> Identity {
    let issuer = Issuer::from_ca_cert_pem(ca_pem, KeyPair::from_pem(ca_key_pem).unwrap()).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished(user, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    Identity { cert_pem: params.signed_by(&key, &issuer).unwrap().pem(), key_pem: key.serialize_pem() }
}

/// rcgen holds one value of each kind, so one organization is all that a certificate can have here.
fn distinguished(name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        distinguished.push(DnType::OrganizationName, organization);
    }
    distinguished
}
