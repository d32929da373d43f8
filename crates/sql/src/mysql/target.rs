//! Where a database is and how it is spoken to, from its URL.

use std::{collections::HashSet, sync::Arc, time::Duration};

use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

/// The network forgets connections that say nothing for long.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long an opener waits for another process that ends.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// How the certificate of a server is verified, and what is shown to the server.
#[derive(Clone, Default)]
pub struct MysqlTls {
    /// The authorities of its certificate, in DER. Each must be one that rustls can read.
    pub authorities: Vec<CertificateDer<'static>>,
    /// By what this program logs in, beside its user and password.
    pub identity: Option<MysqlIdentity>,
}

/// A certificate, and its key.
#[derive(Clone)]
pub struct MysqlIdentity {
    /// PEM, with those of authorities between.
    pub certificate: Vec<u8>,
    /// PEM.
    pub key: Vec<u8>,
}

/// A URL that says nothing that can be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is no URL of MySQL ({0}); write mysql://USER:PASSWORD@HOST:3306/DATABASE, with percent codes for special characters"
)]
pub struct UrlError(String);

/// How to connect.
#[derive(Clone)]
pub struct Target {
    pub(super) opts: Opts,
    /// Where the server has no TLS, and that is allowed.
    pub(super) plain: Option<Opts>,
    /// Units: whole seconds.
    pub(super) lock_wait: Duration,
    /// Whose connections these are, for the state.
    pub(super) epoch: Option<Arc<Epoch>>,
}

/// The connections of an epoch's process.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) number: i64,
    /// The server's numbers of those that it has. Others of the epoch it has lost, and the server has not noticed.
    pub(super) live: Mutex<HashSet<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SslMode {
    Disabled,
    Preferred,
    Required,
}

impl Target {
    /// Reads `mysql://USER:PASSWORD@HOST:PORT/DATABASE`. Its parameter `ssl-mode` is `PREFERRED` (the default: TLS if the server has
    /// it), `REQUIRED` or `DISABLED`; wherever TLS is used, the certificate and its name are verified by `tls`. `socket` is the path
    /// of a Unix socket, which takes the place of host and port, and has no TLS.
    ///
    /// Errors: there is something else. They have nothing of the password.
    pub fn new(url: &str, tls: MysqlTls) -> Result<Self, UrlError> {
        let wrong = |why: &str| UrlError(why.to_owned());
        let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
        let (_, rest) = place.split_once("://").ok_or_else(|| wrong("it has no host"))?;
        let named = Opts::from_url(&format!("mysql://{rest}"));
        let named = named.map_err(|error| UrlError(error.to_string()))?;
        if named.user().is_none() {
            return Err(wrong("it names no user"));
        }
        if named.db_name().is_none() {
            return Err(wrong("it names no database"));
        }
        let (mut mode, mut socket) = (SslMode::Preferred, None);
        for (name, value) in form_urlencoded::parse(parameters.as_bytes()) {
            match &*name {
                "socket" => socket = Some(value.into_owned()),
                "ssl-mode" => {
                    mode = ssl_mode(&value).ok_or_else(|| wrong("ssl-mode is DISABLED, PREFERRED or REQUIRED"))?
                }
                _ => return Err(wrong("its parameters are ssl-mode and socket")),
            }
        }
        let host = named.ip_or_hostname().trim_matches(['[', ']']).to_owned();
        let mut opts = OptsBuilder::from_opts(named)
            // An IPv6 address without its brackets.
            .ip_or_hostname(host)
            // Counts of rows are of those that a statement found, also where it changed nothing of them.
            .client_found_rows(true)
            .connect_attribute("program_name", "kubefold")
            .prefer_socket(false)
            .tcp_keepalive(Some(KEEPALIVE));
        if socket.is_some() {
            mode = SslMode::Disabled;
            opts = opts.socket(socket);
        }
        let plain: Opts = opts.clone().into();
        let (opts, plain) = match mode {
            SslMode::Disabled => (plain, None),
            SslMode::Preferred => (opts.ssl_opts(ssl(tls)).into(), Some(plain)),
            SslMode::Required => (opts.ssl_opts(ssl(tls)).into(), None),
        };
        Ok(Self { opts, plain, lock_wait: LOCK_WAIT, epoch: None })
    }

    /// The same, where an opener waits for another process for so long. Units: whole seconds.
    #[must_use]
    pub fn waiting(self, lock_wait: Duration) -> Self {
        Self { lock_wait, ..self }
    }

    /// The same for the connections of an epoch's process.
    pub(crate) fn of_epoch(&self, epoch: i64) -> Self {
        let epoch = Epoch { number: epoch, live: Mutex::default() };
        Self { epoch: Some(Arc::new(epoch)), ..self.clone() }
    }

    /// As a log may say it: without user, password and parameters.
    pub(crate) fn place(&self) -> String {
        let database = self.opts.db_name().unwrap_or_default();
        match self.opts.socket() {
            Some(path) => format!("mysql://{path}/{database}"),
            None => format!("mysql://{}:{}/{database}", self.opts.ip_or_hostname(), self.opts.tcp_port()),
        }
    }
}

/// Source: MySQL's `--ssl-mode`. A certificate is always verified, so `VERIFY_CA` and `VERIFY_IDENTITY` ask for nothing else
/// than `REQUIRED`.
fn ssl_mode(text: &str) -> Option<SslMode> {
    match text.to_ascii_uppercase().as_str() {
        "DISABLED" => Some(SslMode::Disabled),
        "PREFERRED" => Some(SslMode::Preferred),
        "REQUIRED" | "VERIFY_CA" | "VERIFY_IDENTITY" => Some(SslMode::Required),
        _ => None,
    }
}

fn ssl(tls: MysqlTls) -> SslOpts {
    let MysqlTls { authorities, identity } = tls;
    let identity = identity.map(|identity| ClientIdentity::new(identity.certificate.into(), identity.key.into()));
    SslOpts::default()
        .with_disable_built_in_roots(true)
        .with_root_certs(authorities.into_iter().map(|authority| authority.to_vec().into()).collect())
        .with_client_identity(identity)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_url_says_what_is_wrong_with_it() {
        let read = |url: &str| Target::new(url, MysqlTls::default());
        for (url, part) in [
            ("mysql:x", "it has no host"),
            ("mysql://u:s3cret@h:x/d", "invalid port number"),
            ("mysql://h/d", "it names no user"),
            ("mysql://u:s3cret@h", "it names no database"),
            ("mysql://u:s3cret@h/", "it names no database"),
            ("mysql://u:s3cret@h/d?ssl-mode=some", "ssl-mode is DISABLED, PREFERRED or REQUIRED"),
            ("mysql://u:s3cret@h/d?sslmode=require", "its parameters are ssl-mode and socket"),
        ] {
            let error = read(url).err().unwrap().to_string();
            assert!(error.contains(part) && !error.contains("s3cret"), "{url}: {error}");
        }
        let target = read("mariadb://jane:p%40ss@[::1]/objects").unwrap();
        assert_eq!(
            (target.opts.user(), target.opts.pass(), target.opts.db_name()),
            (Some("jane"), Some("p@ss"), Some("objects"))
        );
        assert_eq!(target.opts.tcp_port(), 3306);
        assert_eq!(target.opts.ip_or_hostname(), "::1");
        assert!(target.opts.ssl_opts().is_some() && target.plain.is_some());
        let target = read("mysql://u@h:3307/d?ssl-mode=required").unwrap();
        assert!(target.opts.ssl_opts().is_some() && target.plain.is_none());
        let target = read("mysql://u@localhost/d?socket=%2Frun%2Fmysqld.sock").unwrap();
        assert_eq!(target.opts.socket().map(Path::new), Some(Path::new("/run/mysqld.sock")));
        assert!(target.opts.ssl_opts().is_none());
    }
}
