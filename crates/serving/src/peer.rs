//! The client at the other end of a connection, as the authorities of now judge the certificates that it showed.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use rustls::pki_types::{CertificateDer, UnixTime};

use crate::{
    authenticate::{Identity, of_cluster, of_people},
    caller::Caller,
    front_proxy::ProxyHeaders,
    replica::USER,
    tls::Tls,
};

/// What a connection proved about its client, by the authorities of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Whose certificate it is.
    pub identity: Identity,
    /// That of a front proxy, which may say by itself who asks.
    pub front_proxy: Option<FrontProxy>,
    /// That of another replica of this server, which passes on what its clients show: the end of its certificate, in Unix
    /// seconds. It is nobody itself.
    pub replica_until_s: Option<u64>,
}

/// A client that may say who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxy {
    /// The common name of its certificate.
    pub name: String,
    /// Its certificate's end, in Unix seconds.
    pub not_after_s: u64,
    /// The headers in which it says so.
    pub headers: Arc<ProxyHeaders>,
    /// The cluster whose API server it is, by its name as a domain.
    pub cluster: Option<Arc<str>>,
}

impl FrontProxy {
    /// Whom it names; `None` if nobody, or somebody whom it may not name.
    pub fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let caller = self.headers.caller(headers)?;
        match &self.cluster {
            Some(cluster) => of_cluster(caller, cluster),
            None => of_people(caller),
        }
    }
}

impl Client {
    /// Nobody.
    pub const NOBODY: Self = Self { identity: Identity::Anonymous, front_proxy: None, replica_until_s: None };

    /// The front proxy, while its certificate is good.
    pub fn front_proxy_at(&self, now: UnixTime) -> Option<&FrontProxy> {
        self.front_proxy.as_ref().filter(|proxy| now.as_secs() <= proxy.not_after_s)
    }

    /// Whether it is another replica, while its certificate is good.
    fn is_replica_at(&self, now: UnixTime) -> bool {
        self.replica_until_s.is_some_and(|until_s| now.as_secs() <= until_s)
    }

    /// Whose connection it is, if that is known.
    pub(crate) fn name_at(&self, now: UnixTime) -> Option<&str> {
        if self.is_replica_at(now) {
            return Some(USER);
        }
        let of_proxy = self.front_proxy_at(now).map(|proxy| proxy.name.as_str());
        of_proxy.or_else(|| self.identity.caller_at(now).map(|caller| caller.user.as_str()))
    }
}

/// The client of a connection. It is judged anew when other authorities are in force.
pub struct Peer {
    chain: Vec<CertificateDer<'static>>,
    tls: Arc<ArcSwap<Tls>>,
    last: ArcSwap<(Arc<Tls>, Arc<Client>)>,
}

impl Peer {
    /// Judges the certificates that a client has shown. The handshake proved that it holds the first one's key.
    pub(crate) fn new(chain: Option<&[CertificateDer<'_>]>, tls: &Arc<ArcSwap<Tls>>) -> Self {
        let chain: Vec<_> =
            chain.unwrap_or_default().iter().map(|certificate| certificate.clone().into_owned()).collect();
        Self::of(chain, tls)
    }

    fn of(chain: Vec<CertificateDer<'static>>, tls: &Arc<ArcSwap<Tls>>) -> Self {
        let now = tls.load_full();
        let client = Arc::new(now.client(&chain, UnixTime::now()));
        Self { chain, tls: Arc::clone(tls), last: ArcSwap::from_pointee((now, client)) }
    }

    /// What it has proved, by the authorities of now: one that is trusted no longer logs nobody in, and a certificate that
    /// was revoked is nobody's, on connections that are open, too.
    pub fn client(&self) -> Arc<Client> {
        let (last, tls) = (self.last.load(), self.tls.load_full());
        if Arc::ptr_eq(&last.0, &tls) {
            return Arc::clone(&last.1);
        }
        let client = Arc::new(tls.client(&self.chain, UnixTime::now()));
        self.last.store(Arc::new((tls, Arc::clone(&client))));
        client
    }

    /// Whether it is another replica of this server, by the authorities of now.
    pub fn is_replica_at(&self, now: UnixTime) -> bool {
        self.client().is_replica_at(now)
    }

    /// The certificates that it has shown, none of which is known here to be revoked.
    pub(crate) fn shown(&self) -> &[CertificateDer<'static>] {
        if self.tls.load().is_revoked(&self.chain) { &[] } else { &self.chain }
    }

    /// The client of this peer, a replica, which has shown it these certificates.
    pub(crate) fn instead(&self, chain: Vec<CertificateDer<'static>>) -> Self {
        Self::of(chain, &self.tls)
    }

    /// Removes the headers in which front proxies name callers, whoever sent them: behind this server they would name
    /// somebody, too.
    pub fn strip_proxy_headers(&self, headers: &mut HeaderMap) {
        self.tls.load().strip_proxy_headers(headers);
    }
}
