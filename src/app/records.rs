//! Where records, own objects and the mirror stand: in the state directory, or on a server of databases.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
#[cfg(feature = "mysql")]
use kubefold_sql::mysql::MysqlTls;
use kubefold_sql::{Announcement, Candidate, RemoteError, RemoteState, Server};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Registry as Exported,
};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::{
    carry::{Place, check_whole},
    database::{self, DatabaseFileError, StateUrl, StateUrlError},
    options::{Options, StateSource},
};
use crate::{
    config::Config,
    mirror::{self, Mirror},
    own,
    serve::{Shared, StateDir},
    write::journal::{self, Journal, KeyFile},
};
use kubefold_apiserver::storage::Storage;
use kubefold_serving::health::Check;

/// In the state directory: what of the database was seen last. Where one is, the state is in a database.
pub const STATE_MARKS: [&str; 2] = ["postgres-mark", "mysql-mark"];
/// The files of a kubefold that had its state in the directory.
pub(super) const FILES: [&str; 2] = [journal::FILE, own::FILE];

/// Why the state in a database cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum StateOpenError {
    #[error("--state-url-file {0}")]
    UrlFile(DatabaseFileError),
    #[error("--state-url-file {}: {source}", .path.display())]
    Url { path: PathBuf, source: StateUrlError },
    #[error("--state-ca-file {0}")]
    Authority(DatabaseFileError),
    #[error("state {place}: {source}")]
    Remote { place: String, source: RemoteError },
    #[error("state {place}: this kubefold is built without MySQL; take one that is built with the feature mysql")]
    NoMysql { place: String },
    #[error(
        "state {place}: {source}. With the --state-key-file of that process this one waits, and takes over when it ends"
    )]
    InUse { place: String, source: RemoteError },
    #[error(
        "the state directory {directory} has {file} of a kubefold that ran without --state; bring what is in it into the database \
         with kubefold state move, or move {file} and what is beside it away to begin without it"
    )]
    Other { directory: String, file: &'static str },
    #[error("the state was not opened: {0}")]
    Ended(#[from] tokio::task::JoinError),
}

impl StateOpenError {
    /// Whether what was given is wrong, wherever and whenever it is used.
    pub fn is_given(&self) -> bool {
        match self {
            Self::UrlFile(_) | Self::Url { .. } | Self::Authority(_) | Self::Other { .. } | Self::NoMysql { .. } => {
                true
            }
            Self::Remote { source, .. } => matches!(source, RemoteError::Url(_)),
            Self::InUse { .. } | Self::Ended(_) => false,
        }
    }
}

/// What `kubefold_state_held` says.
pub(super) const HELD: &str = "Whether this process has the state in the database: 1, or 0 while it waits for it";

/// What this process, which listens at an address, says of itself to other replicas.
pub(super) fn announcement(options: &Options, address: SocketAddr) -> Announcement {
    let (id, version) = (Uuid::new_v4().to_string(), env!("CARGO_PKG_VERSION").to_owned());
    Announcement { id, address: options.advertised(address), version }
}

/// Where records stand.
pub(super) enum Records {
    /// In files of the state directory.
    Directory,
    /// In a database.
    Remote(Arc<RemoteState>),
}

/// A database as an operator names it.
struct Named {
    /// As a log may say it.
    place: String,
    server: Server,
    mark: PathBuf,
}

impl Named {
    fn of(source: &StateSource, authority: Option<&Path>, directory: &Path) -> Result<Self, StateOpenError> {
        let url = match source {
            StateSource::Url(url) => url.clone(),
            StateSource::File(path) => {
                let text = database::read_url(path).map_err(StateOpenError::UrlFile)?;
                text.parse().map_err(|source| StateOpenError::Url { path: path.clone(), source })?
            }
        };
        let place = format!("{url:?}");
        let remote = |source| StateOpenError::Remote { place: place.clone(), source };
        let (server, mark) = match &url {
            StateUrl::Postgres(url) => {
                let tls = database::tls(authority).map_err(StateOpenError::Authority)?;
                (Server::postgres(url, tls).map_err(remote)?, STATE_MARKS[0])
            }
            #[cfg(feature = "mysql")]
            StateUrl::Mysql(url) => {
                let authorities = database::authorities(authority).map_err(StateOpenError::Authority)?;
                let tls = MysqlTls { authorities, identity: None };
                (Server::mysql(url, tls).map_err(remote)?, STATE_MARKS[1])
            }
            #[cfg(not(feature = "mysql"))]
            StateUrl::Mysql(_) => return Err(StateOpenError::NoMysql { place }),
        };
        Ok(Self { place, server, mark: directory.join(mark) })
    }

    /// Connects, and does something with the connection, which may block.
    async fn open<T: Send + 'static>(
        self,
        open: impl FnOnce(Candidate) -> Result<T, RemoteError> + Send + 'static,
    ) -> Result<T, StateOpenError> {
        let Self { place, server, mark } = self;
        let schemas = [journal::SCHEMA, mirror::SCHEMA, own::SCHEMA];
        let opened = spawn_blocking(move || open(Candidate::new(server, &schemas, mark)?)).await?;
        opened.map_err(|source| match source {
            RemoteError::InUse(_) => StateOpenError::InUse { place, source },
            source => StateOpenError::Remote { place, source },
        })
    }
}

/// Takes a database for this process alone. The state directory is the one of the kubefold whose state it has, or will have.
///
/// Errors: it cannot be used, or another process has it.
pub(super) async fn take(
    source: &StateSource,
    authority: Option<&Path>,
    directory: &Path,
) -> Result<Arc<RemoteState>, StateOpenError> {
    Named::of(source, authority, directory)?.open(Candidate::take).await
}

/// What a start comes to.
pub(super) enum Opening {
    /// This process has the state.
    Here(Records),
    /// Another one has it.
    Waits(Box<Candidate>),
}

impl Records {
    /// Takes the database that the options name, for this process alone. With a key file that others may have, too, this process
    /// may wait until another one has it no more.
    ///
    /// Errors: it cannot be used, or another process has it and this one cannot wait.
    pub(super) async fn open(options: &Options, state: &StateDir) -> Result<Opening, StateOpenError> {
        let Some(source) = &options.state else { return Ok(Opening::Here(Self::Directory)) };
        let named = Named::of(source, options.state_ca.as_deref(), state.path())?;
        if let Some(file) = FILES.into_iter().find(|file| state.path().join(file).exists()) {
            return Err(StateOpenError::Other { directory: state.path().display().to_string(), file });
        }
        let waits = options.state_key_file.is_some();
        let open = move |mut candidate: Candidate| {
            if !waits {
                return candidate.take().map(|state| Opening::Here(Self::taken(state)));
            }
            Ok(match candidate.look() {
                Some(state) => Opening::Here(Self::taken(state)),
                None => Opening::Waits(Box::new(candidate)),
            })
        };
        named.open(open).await
    }

    /// In a database that is this process's.
    pub(super) fn taken(state: Arc<RemoteState>) -> Self {
        let place = state.place();
        if state.is_restored() {
            tracing::warn!(
                place,
                "the state in the database is older than it was, or another database: it was restored from a backup; what was \
                 unfinished then is finished again, and members are asked what they have"
            );
        }
        tracing::info!(place, "the state is in the database");
        Self::Remote(state)
    }

    /// The database.
    pub(super) fn remote(&self) -> Option<&Arc<RemoteState>> {
        match self {
            Self::Directory => None,
            Self::Remote(state) => Some(state),
        }
    }

    /// Has the files that all replicas need alike stand in the database, too, if a key was named that they may have.
    ///
    /// Errors: the key; the database, or what is in it, does not go with the state directory.
    pub(super) async fn share(&self, options: &Options, state: &Arc<StateDir>) -> anyhow::Result<()> {
        let (Some(remote), Some(_)) = (self.remote(), &options.state_key_file) else { return Ok(()) };
        let key = KeyFile::new(options.state_key_file.clone(), state.path()).key(true)?;
        let (shared, state) = (Shared::new(Arc::clone(remote), key), Arc::clone(state));
        Ok(spawn_blocking(move || state.share(shared)).await??)
    }

    /// Tells other replicas where this process is, which has not done so as a standby.
    pub(super) fn announce(&self, options: &Options, address: SocketAddr) {
        if let Self::Remote(of) = self
            && options.serving.has_replicas
            && !of.has_announced()
        {
            of.announce(announcement(options, address));
        }
    }

    /// Opened before anything is served: a wrong key ends kubefold, and what an earlier process left half-made is not to be shown.
    pub(super) fn journal(&self, key: &KeyFile, state: &StateDir) -> anyhow::Result<Journal> {
        match self {
            Self::Directory => {
                Journal::open(state.path(), key).context("cannot open the journal in the state directory")
            }
            Self::Remote(state) => Journal::open_in(state, key).context("cannot open the journal in the database"),
        }
    }

    /// The storage of kubefold's own objects.
    ///
    /// Errors: it cannot be opened, or has a part only, from a move that was interrupted.
    pub(super) async fn own(&self, directory: &Path) -> anyhow::Result<Arc<dyn Storage>> {
        let state = match self {
            Self::Directory => return Ok(own::open(directory).await?),
            Self::Remote(state) => state,
        };
        let storage = own::open_in(state.dialer(own::SCHEMA)).await?;
        let place = Place { storage, name: state.place().to_owned() };
        check_whole(&place).await?;
        Ok(place.storage)
    }

    /// What an earlier process knew of the members' objects.
    pub(super) fn mirror(&self, options: &Options, config: &Config, state: &StateDir) -> Arc<Mirror> {
        let key = options.state_key_file.clone().map(|file| KeyFile::new(Some(file), state.path()));
        match self {
            Self::Directory => Mirror::open(state.path(), config, key),
            Self::Remote(of) => Mirror::open_in(of, state.path(), config, key),
        }
    }

    /// A database that cannot be reached makes kubefold no less ready: reads go on. One that another process has does.
    pub(super) fn check(&self) -> Option<Check> {
        let Self::Remote(of) = self else { return None };
        let figures = of.figures();
        Some(Check::of("state", !figures.is_lost, figures.error.unwrap_or_default()))
    }

    /// Registers what is counted about the database.
    pub(super) fn register(&self, exported: &mut Exported) {
        if let Self::Remote(of) = self {
            exported.register_collector(Box::new(OfState(Arc::clone(of))));
        }
    }
}

#[derive(Debug)]
struct OfState(Arc<RemoteState>);

impl Collector for OfState {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let figures = self.0.figures();
        let is_up = figures.away.is_none() && !figures.is_lost;
        let help = "Whether state can be written to the database: 1, or 0 while it cannot be reached or another process has it";
        encoder.encode_descriptor("up", help, None, MetricType::Gauge)?.encode_gauge(&i64::from(is_up))?;
        encoder.encode_descriptor("held", HELD, None, MetricType::Gauge)?.encode_gauge(&i64::from(figures.is_held))?;
        let help = "Connections to the database, and statements, that failed";
        let mut failures = encoder.encode_descriptor("failures", help, None, MetricType::Counter)?;
        failures.encode_counter::<NoLabelSet, _, u64>(&figures.failures, None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn what_was_given_wrong_is_told_from_what_fails() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::of_tests(folder.path());
        let state = StateDir::open(&options.serving.state_dir).unwrap();
        assert!(matches!(Records::open(&options, &state).await.unwrap(), Opening::Here(Records::Directory)));
        let file = folder.path().join("url");
        let of = async |options: &Options| Records::open(options, &state).await.err().unwrap();
        let from_file = Options { state: Some(StateSource::File(file.clone())), ..options.clone() };
        let missing = of(&from_file).await;
        assert!(missing.is_given() && missing.to_string().contains("cannot be read"), "{missing}");
        fs::write(&file, "sqlite:x\n").unwrap();
        let wrong = of(&from_file).await;
        assert!(wrong.is_given() && wrong.to_string().contains("names no database of PostgreSQL or MySQL"), "{wrong}");
        fs::write(&file, "postgres://u:hidden@h:x/d\n").unwrap();
        let wrong = of(&from_file).await;
        assert!(wrong.is_given() && !wrong.to_string().contains("hidden"), "{wrong}");
        fs::write(&file, "postgres://u:hidden@h/d\n").unwrap();
        let authority = of(&Options { state_ca: Some(file.clone()), ..from_file.clone() }).await;
        assert!(authority.is_given() && authority.to_string().contains("no certificate in PEM"), "{authority}");
        fs::write(state.path().join("own.db"), "").unwrap();
        let other = of(&from_file).await;
        assert!(other.is_given() && other.to_string().contains("has own.db of a kubefold that ran without"), "{other}");
    }
}
