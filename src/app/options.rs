//! What `kubefold serve` is told.

use std::{net::SocketAddr, path::PathBuf};

use http::Uri;

use crate::{authn, read::Freshness, serve::AuditOptions};
use kubefold_serving::front_proxy::ProxyHeaders;

/// What `kubefold serve` is told on its command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// `clusters.yaml`.
    pub config: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where kubefold keeps what must outlive it.
    pub state_dir: PathBuf,
    /// The key with which the journal is encrypted. Absent: a file of the state directory.
    pub state_key_file: Option<PathBuf>,
    /// Serving certificate and key in place of the own.
    pub serving_certificate: Option<(PathBuf, PathBuf)>,
    /// More authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// Who may say whose requests it sends.
    pub front_proxy: Option<FrontProxy>,
    /// Files that say whose bearer tokens count.
    pub tokens: authn::Sources,
    /// More names for the own serving certificate.
    pub names: Vec<String>,
    /// What clients call it, where that is not the address listened on.
    pub external_url: Option<Uri>,
    /// How fresh reads are that name no revision.
    pub freshness: Freshness,
    /// Events of requests are written there.
    pub audit: Option<AuditOptions>,
    /// Where metrics and health are served without TLS and login.
    pub metrics_listen: Option<SocketAddr>,
    /// The most that stores may hold before another kind is refused; made of the machine's memory where it is absent.
    pub store_bytes_max: Option<u64>,
}

/// A front proxy, by its certificate, and the headers in which it names callers.
#[derive(Clone, Debug)]
pub struct FrontProxy {
    /// The authority of its certificate.
    pub ca: PathBuf,
    /// The common names that the certificate may have.
    pub names: Vec<String>,
    /// Its headers.
    pub headers: ProxyHeaders,
}

#[cfg(test)]
impl Options {
    /// A free port of this machine, with everything in one folder.
    pub(super) fn of_tests(folder: &std::path::Path) -> Self {
        Self {
            config: folder.join("clusters.yaml"),
            listen: ([127, 0, 0, 1], 0).into(),
            state_dir: folder.join("state"),
            state_key_file: None,
            serving_certificate: None,
            client_ca: None,
            front_proxy: None,
            tokens: authn::Sources::default(),
            names: Vec::new(),
            external_url: None,
            freshness: Freshness::default(),
            audit: None,
            metrics_listen: None,
            store_bytes_max: None,
        }
    }
}
