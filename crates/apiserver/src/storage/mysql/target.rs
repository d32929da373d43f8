//! Where a database is and how it is spoken to, from its URL.

use std::time::Duration;

use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};
use rustls::pki_types::CertificateDer;

use crate::storage::mysql::error::MysqlError;

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

/// How to connect.
pub(super) struct Target {
    pub(super) opts: Opts,
    /// Where the server has no TLS, and that is allowed.
    pub(super) plain: Option<Opts>,
    /// Units: whole seconds.
    pub(super) lock_wait: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SslMode {
    Disabled,
    Preferred,
    Required,
}

impl Target {
    /// Reads a URL.
    ///
    /// Errors: `MysqlError::Url`. They have nothing of the password.
    pub(super) fn new(url: &str, tls: MysqlTls) -> Result<Self, MysqlError> {
        let wrong = |why: &str| MysqlError::Url(why.to_owned());
        let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
        let (_, rest) = place.split_once("://").ok_or_else(|| wrong("it has no host"))?;
        let named = Opts::from_url(&format!("mysql://{rest}"));
        let named = named.map_err(|error| MysqlError::Url(error.to_string()))?;
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
        Ok(Self { opts, plain, lock_wait: LOCK_WAIT })
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
