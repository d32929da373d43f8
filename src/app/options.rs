//! What `kubefold serve` is told, and what `kubefold apiserver` is told, too.

use std::{net::SocketAddr, path::PathBuf};

use http::Uri;

use crate::{app::database::StateUrl, authn, read::Freshness, serve::AuditOptions};
use kubefold_serving::front_proxy::ProxyHeaders;

/// What `kubefold serve` is told on its command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// `clusters.yaml`.
    pub config: PathBuf,
    /// How clients reach it.
    pub serving: ServingOptions,
    /// Where records, own objects and the mirror stand. Absent: in the state directory.
    pub state: Option<StateSource>,
    /// The authority of the database's certificate. Absent: those that the machine trusts.
    pub state_ca: Option<PathBuf>,
    /// The key with which the journal is encrypted. Absent: a file of the state directory.
    pub state_key_file: Option<PathBuf>,
    /// How fresh reads are that name no revision.
    pub freshness: Freshness,
    /// The most that stores may hold before another kind is refused; made of the machine's memory where it is absent.
    pub store_bytes_max: Option<u64>,
}

/// Where the URL of a database for the state is.
#[derive(Clone, Debug)]
pub enum StateSource {
    /// It was given.
    Url(StateUrl),
    /// It is the text of a file.
    File(PathBuf),
}

/// How clients reach a server, how it knows them, and what it writes down of what they do.
#[derive(Clone, Debug)]
pub struct ServingOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where kubefold keeps what must outlive it.
    pub state_dir: PathBuf,
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
    /// Events of requests are written there.
    pub audit: Option<AuditOptions>,
    /// Where metrics and health are served without TLS and login.
    pub metrics_listen: Option<SocketAddr>,
}

impl ServingOptions {
    /// An address and a state directory, and nothing else that is not made.
    pub fn new(listen: SocketAddr, state_dir: PathBuf) -> Self {
        Self {
            listen,
            state_dir,
            serving_certificate: None,
            client_ca: None,
            front_proxy: None,
            tokens: authn::Sources::default(),
            names: Vec::new(),
            external_url: None,
            audit: None,
            metrics_listen: None,
        }
    }
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
            serving: ServingOptions::new(([127, 0, 0, 1], 0).into(), folder.join("state")),
            state: None,
            state_ca: None,
            state_key_file: None,
            freshness: Freshness::default(),
            store_bytes_max: None,
        }
    }
}
