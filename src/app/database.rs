//! How a database is named and believed, as an operator writes it.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use kube::client::ConfigExt;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

/// What a file with a URL is read to at most.
const URL_BYTES_MAX: usize = 4096;

/// Why a file that names a database, or its authority, cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum DatabaseFileError {
    #[error("{}: cannot be read ({source}); check the path and its permissions", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: it has no certificate in PEM", .0.display())]
    NoAuthority(PathBuf),
    #[error("{}: it has no {what} in PEM", .path.display())]
    NoIdentity { path: PathBuf, what: &'static str },
    #[error("cannot set TLS up for the database ({0})")]
    Tls(#[from] rustls::Error),
}

/// The URL of a database for the state. It has no password in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub enum StateUrl {
    /// Of PostgreSQL.
    Postgres(String),
    /// Of MySQL or MariaDB.
    Mysql(String),
}

/// A URL that names no database for the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it names no database of PostgreSQL or MySQL; write postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"
)]
pub struct StateUrlError;

impl FromStr for StateUrl {
    type Err = StateUrlError;

    fn from_str(text: &str) -> Result<Self, StateUrlError> {
        let of_mysql = || mysql_url(text).map(Self::Mysql);
        postgres_url(text).map(Self::Postgres).or_else(of_mysql).ok_or(StateUrlError)
    }
}

impl fmt::Debug for StateUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Postgres(url) => told("postgres", url),
            Self::Mysql(url) => told("mysql", url),
        })
    }
}

/// Reads a URL from a file.
pub(super) fn read_url(path: &Path) -> Result<String, DatabaseFileError> {
    fs::read_to_string(path)
        .and_then(|text| if text.len() > URL_BYTES_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) })
        .map_err(|source| DatabaseFileError::Unreadable { path: path.to_owned(), source })
}

/// The URL without spaces around it, if it names a host.
pub(super) fn postgres_url(text: &str) -> Option<String> {
    let (scheme, rest) = text.trim().split_once("://")?;
    (matches!(scheme, "postgres" | "postgresql") && !rest.is_empty()).then(|| text.trim().to_owned())
}

/// The same of MySQL or MariaDB.
pub(super) fn mysql_url(text: &str) -> Option<String> {
    let (scheme, rest) = text.trim().split_once("://")?;
    (matches!(scheme, "mysql" | "mariadb") && !rest.is_empty()).then(|| text.trim().to_owned())
}

/// A URL as a log may say it: without user, password and parameters.
pub(super) fn told(scheme: &str, url: &str) -> String {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    // Then what looks like a host can be a part of a password.
    let place = if parameters.contains('@') { "" } else { place };
    format!("{scheme}://{}", place.rsplit_once('@').map_or(place, |(_, place)| place))
}

/// The authorities by which a database's certificate is verified, for a driver that takes no configuration of rustls: this one,
/// or those of the machine, without those that rustls cannot read.
#[cfg(feature = "mysql")]
pub(super) fn authorities(authority: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, DatabaseFileError> {
    let Some(path) = authority else {
        let found = rustls_native_certs::load_native_certs().certs;
        return Ok(found.into_iter().filter(|one| RootCertStore::empty().add(one.clone()).is_ok()).collect());
    };
    let pem = fs::read(path).map_err(|source| DatabaseFileError::Unreadable { path: path.to_owned(), source })?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem).flatten().collect();
    if certificates.is_empty() {
        return Err(DatabaseFileError::NoAuthority(path.to_owned()));
    }
    Ok(certificates)
}

/// How a database with TLS is believed: by this authority, or by those of the machine. A machine without any (an image of one
/// file) believes none: its database has no TLS, or an authority is given.
pub(super) fn tls(authority: Option<&Path>) -> Result<ClientConfig, DatabaseFileError> {
    let mut config = kube::Config::new(http::Uri::from_static("https://localhost"));
    if let Some(path) = authority {
        let pem = fs::read(path).map_err(|source| DatabaseFileError::Unreadable { path: path.to_owned(), source })?;
        let certificates: Vec<Vec<u8>> =
            CertificateDer::pem_slice_iter(&pem).flatten().map(|certificate| certificate.to_vec()).collect();
        if certificates.is_empty() {
            return Err(DatabaseFileError::NoAuthority(path.to_owned()));
        }
        config.root_cert = Some(certificates);
    }
    if let Ok(config) = config.rustls_client_config() {
        return Ok(config);
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_database_and_tells_no_password() {
        let url: StateUrl = " postgres://jane:s3cr@t@db.example.com:5432/fleet?sslmode=require\n".parse().unwrap();
        assert_eq!(format!("{url:?}"), "postgres://db.example.com:5432/fleet");
        let url: StateUrl = "postgres://jane:s3c?r@t@db.example.com/fleet".parse().unwrap();
        assert_eq!(format!("{url:?}"), "postgres://");
        for (text, told) in [
            ("mysql://jane:s3cr@t@db.example.com/fleet?ssl-mode=REQUIRED", "mysql://db.example.com/fleet"),
            ("mariadb://jane:s3c?r@t@db.example.com/fleet", "mysql://"),
        ] {
            let url: StateUrl = text.parse().unwrap();
            assert_eq!(format!("{url:?}"), told);
        }
        for wrong in ["", "mysql:", "postgres:", "postgres://", "sqlite:x", "/var/lib/x"] {
            assert_eq!(wrong.parse::<StateUrl>(), Err(StateUrlError), "{wrong}");
        }
    }
}
