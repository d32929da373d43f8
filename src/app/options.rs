//! What `kubefold serve` is told, and what `kubefold apiserver` is told, too.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use http::{Uri, uri::Authority};

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
    /// Where other replicas reach this one. Absent: where it listens.
    pub advertise: Option<Advertised>,
    /// How fresh reads are that name no revision.
    pub freshness: Freshness,
    /// The most that stores may hold before another kind is refused; made of the machine's memory where it is absent.
    pub store_bytes_max: Option<u64>,
}

/// Where a replica is reached: `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised(String);

/// Why nobody could reach a replica there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum AdvertiseError {
    #[error("write HOST:PORT, such as 10.1.2.3:6443")]
    Form,
    #[error("no other process can reach all addresses, or port 0; write the HOST:PORT of this one")]
    Nowhere,
    #[error(
        "the other replicas cannot reach this one at {listen}, which stands for all addresses; give --advertise HOST:PORT, at which \
         they reach it, or --listen with one address"
    )]
    Wildcard { listen: SocketAddr },
}

impl FromStr for Advertised {
    type Err = AdvertiseError;

    fn from_str(text: &str) -> Result<Self, AdvertiseError> {
        let (host, port) = text.rsplit_once(':').ok_or(AdvertiseError::Form)?;
        let port: u16 = port.parse().map_err(|_| AdvertiseError::Form)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if port == 0 || bare.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
            return Err(AdvertiseError::Nowhere);
        }
        // A pod has its address without brackets.
        let host = if bare.parse::<Ipv6Addr>().is_ok() { format!("[{bare}]") } else { host.to_owned() };
        let address = format!("{host}:{port}");
        let is_sound = !host.is_empty() && !host.contains('@') && address.parse::<Authority>().is_ok();
        if is_sound { Ok(Self(address)) } else { Err(AdvertiseError::Form) }
    }
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Options {
    /// Holds that other replicas can reach this one, where there may be some.
    pub(super) fn check_advertised(&self) -> Result<(), AdvertiseError> {
        let listen = self.serving.listen;
        let is_nowhere = self.serving.has_replicas && self.advertise.is_none() && listen.ip().is_unspecified();
        if is_nowhere { Err(AdvertiseError::Wildcard { listen }) } else { Ok(()) }
    }

    /// Where other replicas reach this one, which listens at an address.
    pub(super) fn advertised(&self, address: SocketAddr) -> String {
        self.advertise.as_ref().map_or_else(|| address.to_string(), ToString::to_string)
    }
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
    /// Other processes may serve the same state, and hand requests on to the one that has it.
    pub has_replicas: bool,
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
            has_replicas: false,
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
            advertise: None,
            freshness: Freshness::default(),
            store_bytes_max: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertised_address_is_one_that_another_process_can_reach() {
        for (text, written) in [
            ("10.1.2.3:6443", "10.1.2.3:6443"),
            ("fd00::1:6443", "[fd00::1]:6443"),
            ("[fd00::1]:6443", "[fd00::1]:6443"),
            ("kubefold-0.kubefold.fleet.svc:6443", "kubefold-0.kubefold.fleet.svc:6443"),
        ] {
            assert_eq!(text.parse::<Advertised>().map(|advertised| advertised.to_string()), Ok(written.to_owned()));
        }
        for text in ["", "host", "host:", "host:x", ":6443", "jane@host:1", "a b:1", "https://host:1", "[fd00::1]"] {
            assert_eq!(text.parse::<Advertised>(), Err(AdvertiseError::Form), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", ":::1", "host:0"] {
            assert_eq!(text.parse::<Advertised>(), Err(AdvertiseError::Nowhere), "{text}");
        }
    }

    #[test]
    fn a_replica_that_listens_everywhere_says_where_it_is() {
        let mut options = Options::of_tests(std::path::Path::new("/nowhere"));
        options.serving.listen = ([0, 0, 0, 0], 6443).into();
        assert_eq!(options.check_advertised(), Ok(()), "there is no other one");
        options.serving.has_replicas = true;
        let error = options.check_advertised().unwrap_err().to_string();
        assert!(error.contains("at 0.0.0.0:6443") && error.contains("give --advertise HOST:PORT"), "{error}");
        options.advertise = Some("10.1.2.3:6443".parse().unwrap());
        assert_eq!(options.check_advertised(), Ok(()));
        assert_eq!(options.advertised(options.serving.listen), "10.1.2.3:6443");
        options.advertise = None;
        options.serving.listen = ([127, 0, 0, 1], 0).into();
        assert_eq!(options.check_advertised(), Ok(()));
        assert_eq!(options.advertised(([127, 0, 0, 1], 7).into()), "127.0.0.1:7");
    }
}
