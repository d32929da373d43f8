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

/// The certificate that a client has shown.
pub const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
/// Where the request was sent from.
const CLIENT_ADDRESS: HeaderName = HeaderName::from_static("kubefold-client-address");
/// The `Connection` of the request as it came: what it names is judged where the request is answered.
const CLIENT_CONNECTION: HeaderName = HeaderName::from_static("kubefold-client-connection");
/// In an answer: who asked, so that the replica knows whose connection it has.
const CALLER: HeaderName = HeaderName::from_static("kubefold-caller");
/// In a request what the replica would answer itself, and in an answer whether it may.
const WATCH_CACHE: HeaderName = HeaderName::from_static("kubefold-watch-cache");
/// All of a request's.
const PASSED_ON: [HeaderName; 5] = [CLIENT_CERT, CLIENT_CERT_CHAIN, CLIENT_ADDRESS, CLIENT_CONNECTION, WATCH_CACHE];
/// Certificates of one chain. Source: kube-apiserver has no limit but that of a TLS handshake.
const CHAIN_MAX: usize = 16;

/// What a replica would do with a list or watch that it hands on. In the extensions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheAsked {
    /// It has no watch cache of the kind, and would fill one if it could answer such requests from it.
    Eligible,
    /// It would answer from its watch cache.
    Begins,
    /// It has answered a watch from its watch cache, and would go on.
    GoesOn,
}

/// What a replica may do. In the extensions of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheAnswer {
    /// This is the answer. Such requests could be answered from a watch cache.
    Eligible,
    /// Answer it from a watch cache.
    At {
        /// It has to have all up to this revision.
        head: u64,
        /// The latest revision of any kind.
        last: u64,
        /// A digest of the members whose objects the caller may see; `None`: those of all members, whichever there are.
        members: Option<u64>,
    },
}

const ELIGIBLE: &str = "eligible";
const BEGINS: &str = "begins";
const GOES_ON: &str = "goes-on";

impl CacheAsked {
    fn as_str(self) -> &'static str {
        match self {
            Self::Eligible => ELIGIBLE,
            Self::Begins => BEGINS,
            Self::GoesOn => GOES_ON,
        }
    }

    fn of(value: &HeaderValue) -> Option<Self> {
        [Self::Eligible, Self::Begins, Self::GoesOn].into_iter().find(|asked| value == asked.as_str())
    }
}

impl CacheAnswer {
    fn of(value: &HeaderValue) -> Option<Self> {
        let value = value.to_str().ok()?;
        if value == ELIGIBLE {
            return Some(Self::Eligible);
        }
        let numbers: Vec<u64> = value.split('-').map(str::parse).collect::<Result<_, _>>().ok()?;
        match *numbers.as_slice() {
            [head, last] => Some(Self::At { head, last, members: None }),
            [head, last, members] => Some(Self::At { head, last, members: Some(members) }),
            _ => None,
        }
    }
}

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

/// Writes into a request that is handed on what this replica would do with it. After [`pass_on`].
pub fn ask_of_cache(headers: &mut HeaderMap, asked: CacheAsked) {
    headers.insert(WATCH_CACHE, HeaderValue::from_static(asked.as_str()));
}

/// Tells the replica what it may do, whatever the answer says of that by now: it may be another server's.
pub fn tell_of_cache(headers: &mut HeaderMap, answer: Option<CacheAnswer>) {
    headers.remove(WATCH_CACHE);
    let value = match answer {
        None => return,
        Some(CacheAnswer::Eligible) => Ok(HeaderValue::from_static(ELIGIBLE)),
        Some(CacheAnswer::At { head, last, members: None }) => HeaderValue::try_from(format!("{head}-{last}")),
        Some(CacheAnswer::At { head, last, members: Some(members) }) => {
            HeaderValue::try_from(format!("{head}-{last}-{members}"))
        }
    };
    headers.extend(value.ok().map(|value| (WATCH_CACHE, value)));
}

/// Takes out of another replica's answer what this one may do.
pub fn take_cache_answer(headers: &mut HeaderMap) -> Option<CacheAnswer> {
    headers.remove(WATCH_CACHE).as_ref().and_then(CacheAnswer::of)
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
    let [leaf, chain, address, connection, cache] = PASSED_ON.map(|name| -> Vec<HeaderValue> {
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
    if let Some(asked) = cache.first().and_then(CacheAsked::of) {
        request.extensions_mut().insert(asked);
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

    #[test]
    fn only_the_holder_says_what_may_be_answered_from_a_watch_cache() {
        let at = |members| Some(CacheAnswer::At { head: 7, last: u64::MAX, members });
        for answer in [None, Some(CacheAnswer::Eligible), at(None), at(Some(u64::MAX))] {
            let mut headers = HeaderMap::new();
            headers.append(WATCH_CACHE, HeaderValue::from_static("1-2"));
            tell_of_cache(&mut headers, answer);
            assert_eq!(take_cache_answer(&mut headers), answer);
            assert!(headers.is_empty());
        }
        for bad in ["", "1", "1-", "-1", "1-2-3-4", "begins"] {
            assert_eq!(CacheAnswer::of(&HeaderValue::from_static(bad)), None, "{bad}");
        }
        for asked in [CacheAsked::Eligible, CacheAsked::Begins, CacheAsked::GoesOn] {
            assert_eq!(CacheAsked::of(&HeaderValue::from_static(asked.as_str())), Some(asked));
        }
    }
}
