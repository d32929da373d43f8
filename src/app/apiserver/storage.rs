//! Where the objects of an API server are stored, as an operator writes it.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::etcd::{EtcdUrl, EtcdUrlError};
use crate::app::{
    carry::Place,
    database::{self, DatabaseFileError},
};
use kubefold_apiserver::storage::{Bounds, Memory, Postgres, PostgresError, Sqlite, SqliteError, Storage};
#[cfg(feature = "etcd")]
use kubefold_apiserver::storage::{Etcd, EtcdError, EtcdOptions};
#[cfg(feature = "mysql")]
use kubefold_apiserver::storage::{Mysql, MysqlError, MysqlIdentity, MysqlTls};

/// The database in its folder.
const FILE: &str = "objects.db";

/// Where objects are stored. It has no `Debug`: a URL may have a password.
#[derive(Clone, PartialEq, Eq)]
pub enum StorageUrl {
    /// In the process's memory, and gone with it.
    Memory,
    /// In a folder, by SQLite; `None`: the state directory.
    Sqlite(Option<PathBuf>),
    /// In a database of PostgreSQL, by its URL.
    Postgres(String),
    /// In a database of MySQL or MariaDB, by its URL.
    Mysql(String),
    /// In etcd.
    Etcd(EtcdUrl),
}

impl std::fmt::Debug for StorageUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.told())
    }
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum UrlError {
    #[error(
        "it has no scheme; write sqlite:DIR, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, etcd://HOST, or \
         memory:"
    )]
    NoScheme,
    #[error(
        "no storage has the scheme {0:?}; write sqlite:DIR, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, \
         etcd://HOST, or memory:"
    )]
    Scheme(String),
    #[error("memory: has nothing behind the colon; what is in memory ends with the process")]
    Memory,
    #[error("sqlite: names a folder of this machine; write sqlite:DIR or sqlite:///DIR")]
    Sqlite,
    #[error("a database of PostgreSQL has a host; write postgres://USER@HOST/DATABASE")]
    Postgres,
    #[error("a database of MySQL or MariaDB has a host; write mysql://USER@HOST/DATABASE")]
    Mysql,
    #[error(transparent)]
    Etcd(#[from] EtcdUrlError),
}

impl FromStr for StorageUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.trim().split_once(':').ok_or(UrlError::NoScheme)?;
        match (scheme, rest) {
            ("memory", "" | "//") => Ok(Self::Memory),
            ("memory", _) => Err(UrlError::Memory),
            ("sqlite", "") => Ok(Self::Sqlite(None)),
            ("sqlite", path) => match path.strip_prefix("//") {
                Some(path) if path.starts_with('/') => Ok(Self::Sqlite(Some(path.into()))),
                Some(_) => Err(UrlError::Sqlite),
                None => Ok(Self::Sqlite(Some(path.into()))),
            },
            ("postgres" | "postgresql", _) => {
                database::postgres_url(text).map(Self::Postgres).ok_or(UrlError::Postgres)
            }
            ("mysql" | "mariadb", _) => database::mysql_url(text).map(Self::Mysql).ok_or(UrlError::Mysql),
            ("etcd", _) => Ok(Self::Etcd(text.trim().parse()?)),
            (other, _) => Err(UrlError::Scheme(other.to_owned())),
        }
    }
}

impl StorageUrl {
    /// Says whether it names no place that outlives a process by itself.
    pub(super) fn is_nowhere(&self) -> bool {
        matches!(self, Self::Memory | Self::Sqlite(None))
    }

    /// As a log may say it: without user, password and parameters.
    fn told(&self) -> String {
        match self {
            Self::Memory => "memory:".to_owned(),
            Self::Sqlite(folder) => {
                format!("sqlite:{}", folder.as_ref().map(|folder| folder.display().to_string()).unwrap_or_default())
            }
            Self::Postgres(url) => database::told("postgres", url),
            Self::Mysql(url) => database::told("mysql", url),
            Self::Etcd(url) => url.to_string(),
        }
    }
}

/// Where the URL is.
#[derive(Clone, Debug)]
pub enum StorageSource {
    /// It was given.
    Url(StorageUrl),
    /// It is the text of a file.
    File(PathBuf),
}

impl Default for StorageSource {
    fn default() -> Self {
        Self::Url(StorageUrl::Sqlite(None))
    }
}

/// Why there is no storage.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum StorageOpenError {
    #[error("--storage-url-file {0}")]
    UrlFile(DatabaseFileError),
    #[error("--storage-url-file {}: {source}", .path.display())]
    Url { path: PathBuf, source: UrlError },
    #[error("--storage-ca-file, --storage-cert-file or --storage-key-file: {0}")]
    Tls(DatabaseFileError),
    #[error(
        "storage {storage}: cannot make the folder ({source}); check that the path is right and that this user may write there"
    )]
    Folder { storage: String, source: io::Error },
    #[error("storage {storage}: {source}")]
    Sqlite { storage: String, source: SqliteError },
    #[error("storage {storage}: {source}")]
    Postgres { storage: String, source: PostgresError },
    #[cfg(feature = "mysql")]
    #[error("storage {storage}: {source}")]
    Mysql { storage: String, source: MysqlError },
    #[cfg(not(feature = "mysql"))]
    #[error("storage {storage}: this kubefold is built without MySQL; take one that is built with the feature mysql")]
    Mysql { storage: String },
    #[error(
        "storage {storage}: kubefold logs in to etcd by a certificate (--storage-cert-file, --storage-key-file), with no user in the URL"
    )]
    EtcdUser { storage: String },
    #[cfg(feature = "etcd")]
    #[error("storage {storage}: {source}")]
    Etcd { storage: String, source: EtcdError },
    #[cfg(not(feature = "etcd"))]
    #[error("storage {storage}: this kubefold is built without etcd; take one that is built with the feature etcd")]
    Etcd { storage: String },
}

impl StorageOpenError {
    /// Whether what was given is wrong, wherever and whenever it is used.
    pub fn is_given(&self) -> bool {
        match self {
            Self::Postgres { source, .. } => matches!(source, PostgresError::Url(_)),
            #[cfg(feature = "mysql")]
            Self::Mysql { source, .. } => matches!(source, MysqlError::Url(_)),
            #[cfg(not(feature = "mysql"))]
            Self::Mysql { .. } => false,
            Self::Folder { .. } | Self::Sqlite { .. } | Self::Etcd { .. } => false,
            Self::UrlFile(_) | Self::Url { .. } | Self::Tls(_) | Self::EtcdUser { .. } => true,
        }
    }
}

/// How a storage with TLS is believed, and what is shown to it.
#[derive(Clone, Debug, Default)]
pub struct StorageTls {
    /// The authority of its certificate; `None`: those of the machine.
    pub authority: Option<PathBuf>,
    /// What this server shows.
    pub identity: Option<ClientIdentity>,
}

/// A certificate of this server for a database, and its key.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    /// PEM, with those of authorities between.
    pub certificate: PathBuf,
    /// PEM.
    pub key: PathBuf,
}

impl StorageTls {
    fn config(&self) -> Result<ClientConfig, DatabaseFileError> {
        let mut config = database::tls(self.authority.as_deref())?;
        if let Some(ClientIdentity { certificate, key }) = &self.identity {
            let missing = |path: &Path, what| DatabaseFileError::NoIdentity { path: path.to_owned(), what };
            let chain: Vec<_> = CertificateDer::pem_slice_iter(&read_file(certificate)?).flatten().collect();
            if chain.is_empty() {
                return Err(missing(certificate, "certificate"));
            }
            let key = PrivateKeyDer::from_pem_slice(&read_file(key)?).map_err(|_| missing(key, "key"))?;
            let identity = CertifiedKey::from_der(chain, key, config.crypto_provider())?;
            config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(identity));
        }
        Ok(config)
    }

    #[cfg(feature = "mysql")]
    fn mysql(&self) -> Result<MysqlTls, DatabaseFileError> {
        // What is wrong with a file is said here.
        self.config()?;
        let authorities = database::authorities(self.authority.as_deref())?;
        let identity = match &self.identity {
            Some(ClientIdentity { certificate, key }) => {
                Some(MysqlIdentity { certificate: read_file(certificate)?, key: read_file(key)? })
            }
            None => None,
        };
        Ok(MysqlTls { authorities, identity })
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, DatabaseFileError> {
    fs::read(path).map_err(|source| DatabaseFileError::Unreadable { path: path.to_owned(), source })
}

/// Opens a storage. Says what it is called, too.
///
/// Errors: it is wrong, cannot be reached or written, is damaged, or another process has it.
pub(super) async fn open(source: &StorageSource, tls: &StorageTls, state: &Path) -> Result<Place, StorageOpenError> {
    let url = match read(source)? {
        StorageUrl::Sqlite(None) => StorageUrl::Sqlite(Some(state.to_owned())),
        url => url,
    };
    let name = url.told();
    let storage: Arc<dyn Storage> = match url {
        StorageUrl::Memory => Arc::new(Memory::default()),
        StorageUrl::Sqlite(folder) => {
            let folder = folder.unwrap_or_default();
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(|source| StorageOpenError::Folder { storage: name.clone(), source })?;
            let opened = Sqlite::open(&folder.join(FILE), Bounds::default()).await;
            Arc::new(opened.map_err(|source| StorageOpenError::Sqlite { storage: name.clone(), source })?)
        }
        StorageUrl::Postgres(url) => {
            let opened = Postgres::open(&url, tls.config().map_err(StorageOpenError::Tls)?, Bounds::default()).await;
            Arc::new(opened.map_err(|source| StorageOpenError::Postgres { storage: name.clone(), source })?)
        }
        #[cfg(feature = "mysql")]
        StorageUrl::Mysql(url) => {
            let opened = Mysql::open(&url, tls.mysql().map_err(StorageOpenError::Tls)?, Bounds::default()).await;
            Arc::new(opened.map_err(|source| StorageOpenError::Mysql { storage: name.clone(), source })?)
        }
        #[cfg(not(feature = "mysql"))]
        StorageUrl::Mysql(_) => return Err(StorageOpenError::Mysql { storage: name }),
        StorageUrl::Etcd(url) if url.has_user => return Err(StorageOpenError::EtcdUser { storage: name }),
        #[cfg(feature = "etcd")]
        StorageUrl::Etcd(url) => {
            let opened = Etcd::open(etcd(url, tls)?, Bounds::default()).await;
            Arc::new(opened.map_err(|source| StorageOpenError::Etcd { storage: name.clone(), source })?)
        }
        #[cfg(not(feature = "etcd"))]
        StorageUrl::Etcd(_) => return Err(StorageOpenError::Etcd { storage: name }),
    };
    Ok(Place { storage, name })
}

/// Where etcd is. It speaks TLS if it is asked for, or if a file for it is given.
#[cfg(feature = "etcd")]
fn etcd(url: EtcdUrl, tls: &StorageTls) -> Result<EtcdOptions, StorageOpenError> {
    let scheme = if url.tls || tls.authority.is_some() || tls.identity.is_some() { "https" } else { "http" };
    // Each was read as an authority.
    let members = url.members.iter().filter_map(|member| format!("{scheme}://{member}").parse().ok()).collect();
    let mut options = EtcdOptions::new(members, tls.config().map_err(StorageOpenError::Tls)?);
    if let Some(prefix) = url.prefix {
        options.prefix = prefix;
    }
    if let Some(interval) = url.compaction_interval {
        options.compaction_interval = Some(interval).filter(|interval| !interval.is_zero());
    }
    Ok(options)
}

pub(super) fn read(source: &StorageSource) -> Result<StorageUrl, StorageOpenError> {
    let path = match source {
        StorageSource::Url(url) => return Ok(url.clone()),
        StorageSource::File(path) => path,
    };
    let text = database::read_url(path).map_err(StorageOpenError::UrlFile)?;
    text.parse().map_err(|source| StorageOpenError::Url { path: path.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_what_is_wrong_with_it() {
        let sqlite = |path: &str| Ok(StorageUrl::Sqlite(Some(path.into())));
        let postgres = |url: &str| Ok(StorageUrl::Postgres(url.to_owned()));
        let mysql = |url: &str| Ok(StorageUrl::Mysql(url.to_owned()));
        for (text, read) in [
            ("memory:", Ok(StorageUrl::Memory)),
            ("sqlite:", Ok(StorageUrl::Sqlite(None))),
            ("sqlite:data", sqlite("data")),
            ("sqlite:/var/lib/x", sqlite("/var/lib/x")),
            ("sqlite:///var/lib/x\n", sqlite("/var/lib/x")),
            ("postgres://a:b@c/d", postgres("postgres://a:b@c/d")),
            ("postgresql://c", postgres("postgresql://c")),
            ("mysql://a:b@c/d\n", mysql("mysql://a:b@c/d")),
            ("mariadb://c/d", mysql("mariadb://c/d")),
            ("", Err(UrlError::NoScheme)),
            ("/var/lib/x", Err(UrlError::NoScheme)),
            ("memory:x", Err(UrlError::Memory)),
            ("sqlite://x", Err(UrlError::Sqlite)),
            ("postgres:x", Err(UrlError::Postgres)),
            ("postgres://", Err(UrlError::Postgres)),
            ("mysql:x", Err(UrlError::Mysql)),
            ("mysql://", Err(UrlError::Mysql)),
            ("etcd://x", Ok(StorageUrl::Etcd("etcd://x".parse().unwrap()))),
            ("etcd:x", Err(UrlError::Etcd(EtcdUrlError::Members))),
            ("redis://x", Err(UrlError::Scheme("redis".to_owned()))),
        ] {
            assert_eq!(text.parse::<StorageUrl>(), read, "{text}");
        }
    }

    #[test]
    fn nobody_is_told_a_password() {
        let url: StorageUrl = "postgres://jane:s3cr@t@db.example.com:5432/objects?password=t".parse().unwrap();
        assert_eq!(format!("{url:?}"), "postgres://db.example.com:5432/objects");
        let url: StorageUrl = "mysql://jane:s3cr@t@db.example.com/objects?ssl-mode=REQUIRED".parse().unwrap();
        assert_eq!(format!("{url:?}"), "mysql://db.example.com/objects");
        let url: StorageUrl = "mysql://jane:s3c?r@t@db.example.com/objects".parse().unwrap();
        assert_eq!(format!("{url:?}"), "mysql://");
    }

    #[tokio::test]
    async fn what_was_given_wrong_is_told_from_what_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        let of =
            async |source: &StorageSource| open(source, &StorageTls::default(), folder.path()).await.err().unwrap();
        let missing = of(&StorageSource::File(file.clone())).await;
        assert!(missing.is_given() && missing.to_string().contains("cannot be read"), "{missing}");
        fs::write(&file, "redis://x\n").unwrap();
        let wrong = of(&StorageSource::File(file.clone())).await;
        assert!(wrong.is_given() && wrong.to_string().contains("no storage has the scheme \"redis\""), "{wrong}");
        let url = |text: &str| StorageSource::Url(text.parse().unwrap());
        let wrong = of(&url("postgres://u:hidden@h:x/d")).await;
        assert!(wrong.is_given() && !wrong.to_string().contains("hidden"), "{wrong}");
        let away = of(&url("postgres://u:hidden@127.0.0.1:1/d")).await;
        assert!(!away.is_given() && away.to_string().starts_with("storage postgres://127.0.0.1:1/d: "), "{away}");
        #[cfg(feature = "mysql")]
        {
            let wrong = of(&url("mysql://u:hidden@h:x/d")).await;
            assert!(wrong.is_given() && !wrong.to_string().contains("hidden"), "{wrong}");
            let away = of(&url("mysql://u:hidden@127.0.0.1:1/d")).await;
            assert!(!away.is_given() && away.to_string().starts_with("storage mysql://127.0.0.1:1/d: "), "{away}");
        }
        let taken = of(&url(&format!("sqlite:{}", file.display()))).await;
        assert!(!taken.is_given() && taken.to_string().contains("cannot make the folder"), "{taken}");
    }
}
