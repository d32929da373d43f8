//! TLS toward clients: always on, with HTTP/2 first, and a client certificate asked for but not demanded.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{
        NoServerSessionStorage, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::authenticate::Identity;

/// What the listener needs for TLS, from the state directory or given by the operator.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM chain to serve with.
    pub certificate: String,
    /// PEM key of its first certificate.
    pub key: String,
    /// The authorities whose client certificates log in.
    pub client_authorities: Vec<ClientAuthority>,
}

/// An authority whose client certificates log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthority {
    /// PEM bundle.
    pub bundle: String,
    /// What is believed of them.
    pub believed: Believed,
}

/// What is believed of an authority's certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Believed {
    /// Every user and group.
    Everything,
    /// No user and no group of Kubernetes' own, `system:...`. The authority may be a cluster's, whose nodes would be nodes
    /// of every other cluster.
    ///
    /// `system:masters` is the exception: whoever holds the authority's key may make administrators.
    PeopleOnly,
}

/// Judges the certificates of one authority.
#[derive(Clone)]
pub struct Judge {
    verifier: Arc<dyn ClientCertVerifier>,
    believed: Believed,
}

impl Judge {
    /// Errors: a bundle that holds no certificate, or a broken one.
    pub fn new(authority: &ClientAuthority) -> Result<Self, TlsError> {
        Ok(Self { verifier: client_verifier(authority.bundle.as_bytes())?, believed: authority.believed })
    }

    /// Whose certificates they are.
    pub fn identity(&self, chain: Option<&[CertificateDer<'_>]>, now: UnixTime) -> Identity {
        let identity = Identity::of(chain, self.verifier.as_ref(), now);
        match self.believed {
            Believed::Everything => identity,
            Believed::PeopleOnly => identity.of_people(),
        }
    }
}

/// TLS as configured, and the judge of client certificates.
#[derive(Clone)]
pub struct Tls {
    /// For the handshake.
    pub config: Arc<ServerConfig>,
    /// Judge client certificates after the handshake; without any they count for nothing.
    pub judges: Vec<Judge>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum TlsError {
    #[error("{flag} {}: cannot be read ({source}); check the path and its permissions", .path.display())]
    Unreadable { flag: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the serving certificate cannot be used ({0}); give a PEM chain and the key of its first certificate")]
    Serving(String),
    #[error("the client authority cannot be used ({0}); give a PEM bundle with at least one CA certificate")]
    ClientAuthority(String),
}

/// Reads a file that a flag names.
pub fn read_given(flag: &'static str, path: &Path) -> Result<String, TlsError> {
    std::fs::read_to_string(path).map_err(|source| TlsError::Unreadable { flag, path: path.to_path_buf(), source })
}

impl Tls {
    /// Sets TLS up.
    ///
    /// Errors: certificates that are none, or do not belong together.
    pub fn new(files: &TlsFiles) -> Result<Self, TlsError> {
        let serving = |error: &dyn std::fmt::Display| TlsError::Serving(error.to_string());
        let chain: Vec<_> = CertificateDer::pem_slice_iter(files.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| serving(&error))?;
        if chain.is_empty() {
            return Err(TlsError::Serving("it holds no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(files.key.as_bytes()).map_err(|error| serving(&error))?;
        let judges: Vec<Judge> = files.client_authorities.iter().map(Judge::new).collect::<Result<_, _>>()?;
        let bundles: Vec<&str> = files.client_authorities.iter().map(|authority| authority.bundle.as_str()).collect();
        let of_all = client_verifier(bundles.join("\n").as_bytes())?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| serving(&error))?
            .with_client_cert_verifier(Arc::new(AskOnly(of_all)))
            .with_single_cert(chain, key)
            .map_err(|error| serving(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A resumed session would bring back a certificate without the proof that its key is still held.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), judges })
    }

    /// What a connection proved about its client by the certificates that it showed.
    pub fn identity(&self, chain: Option<&[CertificateDer<'_>]>, now: UnixTime) -> Identity {
        let mut judged = self.judges.iter().map(|judge| judge.identity(chain, now));
        judged.find(|identity| *identity != Identity::Anonymous).unwrap_or(Identity::Anonymous)
    }
}

/// A verifier of client certificates that accepts this bundle's authorities, and connections without a certificate.
///
/// Errors: a bundle that holds no certificate, or a broken one.
pub fn client_verifier(ca: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        let certificate = certificate.map_err(|error| TlsError::ClientAuthority(error.to_string()))?;
        roots.add(certificate).map_err(|error| TlsError::ClientAuthority(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(aws_lc_rs::default_provider()))
        .allow_unauthenticated()
        .build()
        .map_err(|error| TlsError::ClientAuthority(error.to_string()))
}

/// Asks for a certificate and checks that the client holds its key, but leaves its judgement to HTTP, where the
/// answer can be a 401 that says so: as kube-apiserver does (Go's `tls.RequestClientCert`).
#[derive(Debug)]
struct AskOnly(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AskOnly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
