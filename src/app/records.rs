//! Where records, own objects and the mirror stand: in the state directory, or in PostgreSQL.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::Context;
use kubefold_sql::{Announcement, Candidate, Postgres, PostgresError};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Registry as Exported,
};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::{
    database::{self, DatabaseFileError, StateUrlError},
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

/// In the state directory: what of the database was seen last. Where it is, the state is in PostgreSQL.
pub const STATE_MARK: &str = "postgres-mark";
/// The files of a kubefold that had its state in the directory.
const FILES: [&str; 2] = ["state.db", "own.db"];

/// Why the state in PostgreSQL cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum StateOpenError {
    #[error("--state-url-file {0}")]
    UrlFile(DatabaseFileError),
    #[error("--state-url-file {}: {source}", .path.display())]
    Url { path: std::path::PathBuf, source: StateUrlError },
    #[error("--state-ca-file {0}")]
    Authority(DatabaseFileError),
    #[error("state {place}: {source}")]
    Postgres { place: String, source: PostgresError },
    #[error(
        "state {place}: {source}. With the --state-key-file of that process this one waits, and takes over when it ends"
    )]
    InUse { place: String, source: PostgresError },
    #[error(
        "the state directory {directory} has {file} of a kubefold that ran without --state, and what is in it is not taken over; \
         move {file} and what is beside it away to begin without it"
    )]
    Other { directory: String, file: &'static str },
    #[error("the state in PostgreSQL was not opened: {0}")]
    Ended(#[from] tokio::task::JoinError),
}

impl StateOpenError {
    /// Whether what was given is wrong, wherever and whenever it is used.
    pub fn is_given(&self) -> bool {
        match self {
            Self::UrlFile(_) | Self::Url { .. } | Self::Authority(_) | Self::Other { .. } => true,
            Self::Postgres { source, .. } => matches!(source, PostgresError::Url(_)),
            Self::InUse { .. } | Self::Ended(_) => false,
        }
    }
}

/// What `kubefold_state_held` says.
pub(super) const HELD: &str = "Whether this process has the state in PostgreSQL: 1, or 0 while it waits for it";

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
    Postgres(Arc<Postgres>),
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
        let url = match &options.state {
            None => return Ok(Opening::Here(Self::Directory)),
            Some(StateSource::Url(url)) => url.clone(),
            Some(StateSource::File(path)) => {
                let text = database::read_url(path).map_err(StateOpenError::UrlFile)?;
                text.parse().map_err(|source| StateOpenError::Url { path: path.clone(), source })?
            }
        };
        let tls = database::tls(options.state_ca.as_deref()).map_err(StateOpenError::Authority)?;
        if let Some(file) = FILES.into_iter().find(|file| state.path().join(file).exists()) {
            return Err(StateOpenError::Other { directory: state.path().display().to_string(), file });
        }
        let place = format!("{url:?}");
        let schemas = [journal::SCHEMA, mirror::SCHEMA, own::SCHEMA];
        let mark = state.path().join(STATE_MARK);
        let waits = options.state_key_file.is_some();
        let open = move || {
            let mut candidate = Candidate::new(url.text(), tls, &schemas, mark)?;
            if !waits {
                return candidate.take().map(|state| Opening::Here(Self::taken(state)));
            }
            Ok(match candidate.look() {
                Some(state) => Opening::Here(Self::taken(state)),
                None => Opening::Waits(Box::new(candidate)),
            })
        };
        spawn_blocking(open).await?.map_err(|source| match source {
            PostgresError::InUse(_) => StateOpenError::InUse { place, source },
            source => StateOpenError::Postgres { place, source },
        })
    }

    /// In a database that is this process's.
    pub(super) fn taken(state: Arc<Postgres>) -> Self {
        let place = state.place();
        if state.is_restored() {
            tracing::warn!(
                place,
                "the state in PostgreSQL is older than it was, or another database: it was restored from a backup; what was \
                 unfinished then is finished again, and members are asked what they have"
            );
        }
        tracing::info!(place, "the state is in PostgreSQL");
        Self::Postgres(state)
    }

    /// The database.
    pub(super) fn postgres(&self) -> Option<&Arc<Postgres>> {
        match self {
            Self::Directory => None,
            Self::Postgres(state) => Some(state),
        }
    }

    /// Has the files that all replicas need alike stand in the database, too, if a key was named that they may have.
    ///
    /// Errors: the key; the database, or what is in it, does not go with the state directory.
    pub(super) async fn share(&self, options: &Options, state: &Arc<StateDir>) -> anyhow::Result<()> {
        let (Some(postgres), Some(_)) = (self.postgres(), &options.state_key_file) else { return Ok(()) };
        let key = KeyFile::new(options.state_key_file.clone(), state.path()).key(true)?;
        let (shared, state) = (Shared::new(Arc::clone(postgres), key), Arc::clone(state));
        Ok(spawn_blocking(move || state.share(shared)).await??)
    }

    /// Tells other replicas where this process is, which has not done so as a standby.
    pub(super) fn announce(&self, options: &Options, address: SocketAddr) {
        if let Self::Postgres(of) = self
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
            Self::Postgres(state) => Journal::open_in(state, key).context("cannot open the journal in PostgreSQL"),
        }
    }

    /// The storage of kubefold's own objects.
    pub(super) async fn own(&self, directory: &Path) -> Result<Arc<dyn Storage>, own::OwnStartError> {
        match self {
            Self::Directory => own::open(directory).await,
            Self::Postgres(state) => own::open_in(state.dialer(own::SCHEMA)).await,
        }
    }

    /// What an earlier process knew of the members' objects.
    pub(super) fn mirror(&self, options: &Options, config: &Config, state: &StateDir) -> Arc<Mirror> {
        let key = options.state_key_file.clone().map(|file| KeyFile::new(Some(file), state.path()));
        match self {
            Self::Directory => Mirror::open(state.path(), config, key),
            Self::Postgres(of) => Mirror::open_in(of, state.path(), config, key),
        }
    }

    /// A database that cannot be reached makes kubefold no less ready: reads go on. One that another process has does.
    pub(super) fn check(&self) -> Option<Check> {
        let Self::Postgres(of) = self else { return None };
        let figures = of.figures();
        Some(Check { name: "state".to_owned(), ready: !figures.is_lost, note: figures.error.unwrap_or_default() })
    }

    /// Registers what is counted about the database.
    pub(super) fn register(&self, exported: &mut Exported) {
        if let Self::Postgres(of) = self {
            exported.register_collector(Box::new(OfState(Arc::clone(of))));
        }
    }
}

#[derive(Debug)]
struct OfState(Arc<Postgres>);

impl Collector for OfState {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let figures = self.0.figures();
        let is_up = figures.away.is_none() && !figures.is_lost;
        let help =
            "Whether state can be written to PostgreSQL: 1, or 0 while it cannot be reached or another process has it";
        encoder.encode_descriptor("up", help, None, MetricType::Gauge)?.encode_gauge(&i64::from(is_up))?;
        encoder.encode_descriptor("held", HELD, None, MetricType::Gauge)?.encode_gauge(&i64::from(figures.is_held))?;
        let help = "Connections to PostgreSQL, and statements, that failed";
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
        assert!(wrong.is_given() && wrong.to_string().contains("names no database of PostgreSQL"), "{wrong}");
        fs::write(&file, "postgres://u:hidden@h:x/d\n").unwrap();
        let wrong = of(&from_file).await;
        assert!(wrong.is_given() && !wrong.to_string().contains("hidden"), "{wrong}");
        let authority = of(&Options { state_ca: Some(file.clone()), ..from_file.clone() }).await;
        assert!(authority.is_given() && authority.to_string().contains("no certificate in PEM"), "{authority}");
        fs::write(state.path().join("own.db"), "").unwrap();
        let other = of(&from_file).await;
        assert!(other.is_given() && other.to_string().contains("has own.db of a kubefold that ran without"), "{other}");
    }
}
