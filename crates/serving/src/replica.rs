//! Requests that another replica of the same server hands on: who may do that, and what it says of the client.
//!
//! A replica shows a certificate that the servers' own authority made for replicas alone. Only on its connections the headers
//! count in which it passes on what its client has shown; from everybody else they are removed.
//!
//! Source: RFC 9440, for the client's certificates.

use std::{fmt, net::SocketAddr, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{ClientHello, ResolvesServerCert, danger::ClientCertVerifier},
    sign::CertifiedKey,
};

use crate::{
    authenticate::common_name,
    headers::HOP_BY_HOP,
    listener::PeerAddress,
    peer::Peer,
    tls::{TlsError, client_verifier, verified},
};

/// The common name of the certificate of a replica. Only the servers' own authority may name a user that begins so.
pub const USER: &str = "kubefold:replica";
/// The name for which a replica's certificate serves other replicas, whatever its address is.
pub const SERVER_NAME: &str = "replica.kubefold.internal";

const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
/// Where the request was sent from.
const CLIENT_ADDRESS: HeaderName = HeaderName::from_static("kubefold-client-address");
/// The `Connection` of the request as it came: what it names is judged where the request is answered.
const CLIENT_CONNECTION: HeaderName = HeaderName::from_static("kubefold-client-connection");
/// In an answer: who asked, so that the replica knows whose connection it has.
const CALLER: HeaderName = HeaderName::from_static("kubefold-caller");
/// All of a request's.
const PASSED_ON: [HeaderName; 4] = [CLIENT_CERT, CLIENT_CERT_CHAIN, CLIENT_ADDRESS, CLIENT_CONNECTION];
/// Certificates of one chain. Source: kube-apiserver has no limit but that of a TLS handshake.
const CHAIN_MAX: usize = 16;

/// What makes a server one of several replicas, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ReplicaFiles {
    /// The servers' own authority.
    pub authority: String,
    /// This replica's certificate, for clients and servers.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// How replicas know one another.
#[derive(Clone)]
pub struct Replicas {
    verifier: Arc<dyn ClientCertVerifier>,
    client: Arc<ClientConfig>,
    serving: Arc<CertifiedKey>,
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replicas")
    }
}

impl Replicas {
    /// Errors: certificates that are none, or do not belong together.
    pub(crate) fn new(files: &ReplicaFiles) -> Result<Self, TlsError> {
        let unfit = |error: &dyn fmt::Display| TlsError::Replica(error.to_string());
        let certificates = |pem: &str| {
            let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
            all.map_err(|error| unfit(&error))
        };
        let key = || PrivateKeyDer::from_pem_slice(files.key.as_bytes()).map_err(|error| unfit(&error));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates(&files.certificate)?;
        let serving = CertifiedKey::from_der(chain.clone(), key()?, &provider).map_err(|error| unfit(&error))?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.authority)? {
            roots.add(certificate).map_err(|error| unfit(&error))?;
        }
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unfit(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key()?)
            .map_err(|error| unfit(&error))?;
        let verifier = client_verifier(files.authority.as_bytes())?;
        Ok(Self { verifier, client: Arc::new(client), serving: Arc::new(serving) })
    }

    /// How another replica is reached: it is asked for [`SERVER_NAME`], and shown this one's certificate.
    pub fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    /// The end of a replica's certificate, in Unix seconds; `None` if it is none.
    pub(crate) fn judge(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Option<u64> {
        let (name, not_after_s) = common_name(verified(self.verifier.as_ref(), chain, now)?)?;
        (name == USER).then_some(not_after_s)
    }
}

/// Serves other replicas with the certificate that they know, and everybody else with the server's own.
#[derive(Debug)]
struct ByName {
    own: Arc<CertifiedKey>,
    of_replica: Arc<CertifiedKey>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_replica = hello.server_name() == Some(SERVER_NAME);
        Some(Arc::clone(if is_replica { &self.of_replica } else { &self.own }))
    }
}

/// Adds to a server that other replicas find a certificate that they know.
///
/// Errors: the server's own certificate and its key do not belong together.
pub(crate) fn serve_replicas(config: &mut ServerConfig, own: CertifiedKey, replicas: &Replicas) {
    config.cert_resolver = Arc::new(ByName { own: Arc::new(own), of_replica: Arc::clone(&replicas.serving) });
}

/// Writes into a request that is handed on what its client has shown, and takes out what is of the client's connection, or what
/// the client would say in this replica's name.
pub fn pass_on(headers: &mut HeaderMap, peer: &Peer, from: Option<SocketAddr>) {
    PASSED_ON.iter().for_each(|name| drop(headers.remove(name)));
    let connection: Vec<HeaderValue> = headers.get_all(header::CONNECTION).iter().cloned().collect();
    HOP_BY_HOP.iter().chain(&[header::EXPECT]).for_each(|name| drop(headers.remove(name)));
    for value in connection {
        headers.append(CLIENT_CONNECTION, value);
    }
    let shown = peer.shown();
    if let Some((leaf, others)) = shown.split_first() {
        headers.extend(bytes_item(leaf).map(|value| (CLIENT_CERT, value)));
        for other in others {
            headers.extend(bytes_item(other).map(|value| (CLIENT_CERT_CHAIN, value)));
        }
    }
    let from = from.and_then(|from| HeaderValue::try_from(from.to_string()).ok());
    headers.extend(from.map(|from| (CLIENT_ADDRESS, from)));
}

/// A byte sequence of structured fields (RFC 8941 section 3.3.5).
fn bytes_item(certificate: &CertificateDer<'_>) -> Option<HeaderValue> {
    HeaderValue::try_from(format!(":{}:", STANDARD.encode(certificate))).ok()
}

/// Whether a request on a replica's connection is its own, and not one that it hands on.
pub fn is_own(headers: &HeaderMap) -> bool {
    !PASSED_ON.iter().any(|name| headers.contains_key(name))
}

/// Takes out of a request what only a replica may say. On a replica's connection it counts: the client that comes back is the one
/// that the replica has, and the request has its address and its `Connection`.
pub fn passed_on<B>(request: &mut Request<B>, peer: &Arc<Peer>) -> Option<Arc<Peer>> {
    let is_replica = peer.is_replica_at(UnixTime::now());
    let headers = request.headers_mut();
    let [leaf, chain, address, connection] = PASSED_ON.map(|name| -> Vec<HeaderValue> {
        match headers.entry(name) {
            header::Entry::Occupied(said) => said.remove_entry_mult().1.collect(),
            header::Entry::Vacant(_) => Vec::new(),
        }
    });
    if !is_replica {
        return None;
    }
    headers.remove(header::CONNECTION);
    for value in connection {
        headers.append(header::CONNECTION, value);
    }
    let said = leaf.iter().chain(&chain).flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    // What cannot be read shows nothing: the client is nobody then.
    let shown: Option<Vec<_>> = said.map(certificate).collect();
    let shown = shown.filter(|shown| shown.len() <= CHAIN_MAX && leaf.len() <= 1).unwrap_or_default();
    match address.first().and_then(|address| address.to_str().ok()?.parse().ok()) {
        Some(address) => drop(request.extensions_mut().insert(PeerAddress(address))),
        None => drop(request.extensions_mut().remove::<PeerAddress>()),
    }
    Some(Arc::new(peer.instead(shown)))
}

fn certificate(item: &[u8]) -> Option<CertificateDer<'static>> {
    let encoded = item.trim_ascii().strip_prefix(b":")?.strip_suffix(b":")?;
    STANDARD.decode(encoded).ok().map(CertificateDer::from)
}

/// Tells the replica that handed a request on who asked, whatever the answer says of that by now: it may be another server's.
pub fn name_caller(headers: &mut HeaderMap, user: &str) {
    let user = HeaderValue::try_from(utf8_percent_encode(user, NON_ALPHANUMERIC).to_string());
    headers.remove(CALLER);
    headers.extend(user.ok().map(|user| (CALLER, user)));
}

/// Takes out of another replica's answer who asked; `None`: nobody.
pub fn take_caller(headers: &mut HeaderMap) -> Option<String> {
    let user = headers.remove(CALLER)?;
    let user = percent_decode_str(user.to_str().ok()?).decode_utf8().ok()?;
    Some(user.into_owned()).filter(|user| !user.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: a server behind the holder answers in its words.
    #[test]
    fn only_the_holder_says_who_asked() {
        let mut headers = HeaderMap::new();
        headers.append(CALLER, HeaderValue::from_static("victim"));
        name_caller(&mut headers, "jos\u{e9} <a@b>");
        assert_eq!(take_caller(&mut headers).as_deref(), Some("jos\u{e9} <a@b>"));
        assert!(headers.is_empty());
        assert_eq!(take_caller(&mut headers), None);
    }
}
