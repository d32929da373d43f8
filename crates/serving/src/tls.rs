//! TLS toward clients: always on, with HTTP/2 first, and a client certificate asked for but not demanded.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::HeaderMap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{
        NoServerSessionStorage, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::{
    authenticate::{Identity, common_name, of_cluster, of_people},
    caller::Caller,
    fingerprint::{self, Fingerprint},
    front_proxy::ProxyHeaders,
    peer::{Client, FrontProxy},
    replica::{ReplicaFiles, Replicas, serve_replicas},
};

/// Names of authorities that a client is told, in bytes: it takes a certificate of one of them. If there are more, it is told
/// none, and takes what it has. A TLS extension holds 64 KiB.
const HINT_BYTES_MAX: usize = 32 << 10;

/// What the listener needs for TLS, from the state directory or given by the operator.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM chain to serve with.
    pub certificate: String,
    /// PEM key of its first certificate.
    pub key: String,
    /// The authorities whose client certificates log in. Of those that are not a domain's, the first one that has signed a
    /// certificate says whose it is.
    pub client_authorities: Vec<ClientAuthority>,
    /// Who may say whose requests they send.
    pub front_proxies: Vec<FrontProxies>,
    /// Digests of certificates that count no more.
    pub revoked: BTreeSet<Fingerprint>,
    /// What makes the server one of several replicas; absent where it is the only one.
    pub replica: Option<ReplicaFiles>,
}

/// Front proxies of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxies {
    /// PEM bundle of the authority of their certificates.
    pub bundle: String,
    /// Their common names; empty for any.
    pub names: Vec<String>,
    /// The headers in which they name callers.
    pub headers: Arc<ProxyHeaders>,
    /// The cluster whose API server they are, by its name as a domain: see [`of_cluster`]. `None`: they name people only.
    pub cluster: Option<Arc<str>>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Believed {
    /// Every user and group.
    Everything,
    /// No user and no group of Kubernetes' own, `system:...`. The authority may be a cluster's, whose nodes would be nodes
    /// of every other cluster.
    ///
    /// `system:masters` is the exception: whoever holds the authority's key may make administrators.
    PeopleOnly,
    /// Every user and group, but in another server alone, which has this name.
    InDomain(Arc<str>),
    /// The people of the cluster of this name are this server's, and who is Kubernetes' own is somebody in that cluster
    /// alone: see [`of_cluster`].
    OfCluster(Arc<str>),
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
        Ok(Self { verifier: client_verifier(authority.bundle.as_bytes())?, believed: authority.believed.clone() })
    }

    /// Whose certificates they are; `None` if they are none of this authority.
    pub fn identity(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Option<Identity> {
        let leaf = verified(self.verifier.as_ref(), chain, now)?;
        let identity = Identity::of(leaf);
        Some(match &self.believed {
            Believed::Everything => identity,
            Believed::PeopleOnly => identity.of_whom(of_people),
            Believed::InDomain(domain) => {
                identity.of_whom(|caller| Some(Caller { domain: Some(domain.to_string()), ..caller }))
            }
            Believed::OfCluster(cluster) => identity.of_whom(|caller| of_cluster(caller, cluster)),
        })
    }

    fn is_of_domain(&self) -> bool {
        matches!(self.believed, Believed::InDomain(_))
    }
}

/// Judges the certificates of front proxies.
#[derive(Clone)]
pub struct ProxyJudge {
    verifier: Arc<dyn ClientCertVerifier>,
    proxies: FrontProxies,
}

impl ProxyJudge {
    /// Errors: as [`Judge::new`].
    fn new(proxies: &FrontProxies) -> Result<Self, TlsError> {
        Ok(Self { verifier: client_verifier(proxies.bundle.as_bytes())?, proxies: proxies.clone() })
    }

    /// Both count: who signed the certificate, and whose it is.
    fn front_proxy(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Option<FrontProxy> {
        let (name, not_after_s) = common_name(verified(self.verifier.as_ref(), chain, now)?)?;
        let FrontProxies { names, headers, cluster, .. } = &self.proxies;
        let is_one = names.is_empty() || names.contains(&name);
        is_one.then(|| FrontProxy { name, not_after_s, headers: Arc::clone(headers), cluster: cluster.clone() })
    }
}

/// The first of some certificates, if the authority signed it.
pub(crate) fn verified<'a, 'b>(
    verifier: &dyn ClientCertVerifier,
    chain: &'a [CertificateDer<'b>],
    now: UnixTime,
) -> Option<&'a CertificateDer<'b>> {
    let (leaf, intermediates) = chain.split_first()?;
    verifier.verify_client_cert(leaf, intermediates, now).is_ok().then_some(leaf)
}

/// TLS as configured, and the judge of client certificates.
#[derive(Clone)]
pub struct Tls {
    /// For the handshake.
    pub config: Arc<ServerConfig>,
    /// Judge client certificates after the handshake; without any they count for nothing.
    pub judges: Vec<Judge>,
    /// Judge those of front proxies.
    pub front_proxies: Vec<ProxyJudge>,
    /// Digests of certificates that count no more.
    pub revoked: Arc<BTreeSet<Fingerprint>>,
    /// How other replicas are known, if there may be some.
    pub replicas: Option<Replicas>,
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
    #[error(
        "the certificate by which replicas know one another cannot be used ({0}); remove replica.crt and replica.key from the state directory"
    )]
    Replica(String),
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
        let front_proxies = files.front_proxies.iter().map(ProxyJudge::new).collect::<Result<_, _>>()?;
        let bundles = files.client_authorities.iter().map(|authority| authority.bundle.as_str());
        let bundles = bundles.chain(files.front_proxies.iter().map(|proxies| proxies.bundle.as_str()));
        let of_all = client_verifier(bundles.collect::<Vec<_>>().join("\n").as_bytes())?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| serving(&error))?
            .with_client_cert_verifier(Arc::new(AskOnly(of_all)))
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| serving(&error))?;
        let replicas = files.replica.as_ref().map(Replicas::new).transpose()?;
        if let Some(replicas) = &replicas {
            let own = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
            serve_replicas(&mut config, own.map_err(|error| serving(&error))?, replicas);
        }
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A resumed session would bring back a certificate without the proof that its key is still held.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let revoked = Arc::new(files.revoked.clone());
        Ok(Self { config: Arc::new(config), judges, front_proxies, revoked, replicas })
    }

    /// TLS of a server to which no certificate says who asks.
    pub fn without_certificates(config: Arc<ServerConfig>) -> Self {
        Self { config, judges: Vec::new(), front_proxies: Vec::new(), revoked: Arc::default(), replicas: None }
    }

    /// What a connection proved about its client by the certificates that it showed.
    pub fn client(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Client {
        if chain.is_empty() {
            return Client::NOBODY;
        }
        if self.is_revoked(chain) {
            tracing::info!("a client showed a certificate that is revoked");
            return Client::NOBODY;
        }
        let replica_until_s = self.replicas.as_ref().and_then(|replicas| replicas.judge(chain, now));
        if replica_until_s.is_some() {
            return Client { replica_until_s, ..Client::NOBODY };
        }
        let front_proxy = self.front_proxies.iter().find_map(|judge| judge.front_proxy(chain, now));
        Client { identity: Self::identity(&self.judges, chain, now), front_proxy, replica_until_s: None }
    }

    /// Says whether one of these certificates was revoked.
    pub(crate) fn is_revoked(&self, chain: &[CertificateDer<'_>]) -> bool {
        let is_revoked = |certificate: &CertificateDer<'_>| {
            fingerprint::all(certificate).iter().any(|digest| self.revoked.contains(digest))
        };
        !self.revoked.is_empty() && chain.iter().any(is_revoked)
    }

    /// Removes the headers in which front proxies name callers, whoever sent them.
    pub fn strip_proxy_headers(&self, headers: &mut HeaderMap) {
        self.front_proxies.iter().for_each(|judge| judge.proxies.headers.strip(headers));
    }

    /// Whose certificates they are. The word of the first authority that is of no domain counts; of those of domains, only
    /// one may have signed them.
    pub(crate) fn identity(judges: &[Judge], chain: &[CertificateDer<'_>], now: UnixTime) -> Identity {
        let (of_domains, own): (Vec<&Judge>, Vec<&Judge>) = judges.iter().partition(|judge| judge.is_of_domain());
        if let Some(identity) = own.iter().find_map(|judge| judge.identity(chain, now)) {
            return identity;
        }
        let mut signers = of_domains.iter().filter_map(|judge| judge.identity(chain, now));
        match (signers.next(), signers.next()) {
            (Some(identity), None) => identity,
            (Some(_), Some(_)) => {
                tracing::debug!("authorities of several members have signed a client certificate: it is nobody's");
                Identity::Anonymous
            }
            (None, _) => {
                tracing::debug!("no authority that counts has signed a client certificate");
                Identity::Anonymous
            }
        }
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
        let hints = self.0.root_hint_subjects();
        // Each with its length.
        let bytes: usize = hints.iter().map(|name| name.as_ref().len() + 2).sum();
        if bytes <= HINT_BYTES_MAX { hints } else { &[] }
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
