//! How it goes with the database, for all who use it.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::mark::{Mark, Seen};
use crate::error::SqlError;

/// The process that has a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name of its machine, in Kubernetes its pod.
    pub host: String,
    /// Its number there.
    pub pid: i64,
    /// Since when, in UTC.
    pub since: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, pid, since } = self;
        write!(f, "another kubefold (host {host}, process {pid}, since {since})")
    }
}

/// How it goes with a database.
#[derive(Clone, Debug, Default)]
pub struct PostgresFigures {
    /// How long it cannot be reached; absent while it can.
    pub away: Option<Duration>,
    /// Why it cannot be reached, or why this process may not write any more.
    pub error: Option<String>,
    /// This process may not write any more.
    pub is_lost: bool,
    /// Connections and statements that failed since the start.
    pub failures: u64,
}

/// Whether it answers, and whether it is this process's.
#[derive(Debug)]
pub(super) struct Standing {
    place: String,
    /// As it was last seen in the row of the holder.
    beat: AtomicI64,
    mark: Mark,
    away: Mutex<Option<Away>>,
    failures: AtomicU64,
    /// Why this process may not write any more.
    lost: OnceLock<String>,
}

#[derive(Debug)]
struct Away {
    since: Instant,
    why: String,
}

impl Standing {
    pub(super) fn new(place: String, beat: i64, mark: Mark) -> Self {
        let (away, failures) = (Mutex::default(), AtomicU64::default());
        Self { place, beat: AtomicI64::new(beat), mark, away, failures, lost: OnceLock::new() }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn beat(&self) -> i64 {
        self.beat.load(Ordering::Acquire)
    }

    /// Notes how far the database was seen.
    pub(super) fn saw(&self, seen: &Seen) {
        self.beat.store(seen.beat, Ordering::Release);
        self.mark.write(seen);
    }

    /// It answers.
    pub(super) fn answers(&self) {
        let before = self.away.lock().take();
        if let Some(before) = before {
            let seconds = before.since.elapsed().as_secs();
            tracing::info!(place = self.place, seconds, "PostgreSQL can be reached again");
        }
    }

    /// It does not. Gives the error as whoever asked is told it.
    pub(super) fn fails(&self, error: &SqlError) -> SqlError {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let why = format!("PostgreSQL ({}) cannot be reached: {error}", self.place);
        let mut away = self.away.lock();
        match &mut *away {
            Some(away) => away.why.clone_from(&why),
            None => {
                tracing::error!("{why}");
                *away = Some(Away { since: Instant::now(), why: why.clone() });
            }
        }
        SqlError::away(why)
    }

    /// This process may not write any more.
    pub(super) fn lose(&self, holder: &Found, epoch: i64) -> SqlError {
        let why = self.lost.get_or_init(|| {
            let why = match holder.epoch > epoch {
                true => {
                    format!("{} has the state in PostgreSQL since; this process writes nothing more", holder.holder)
                }
                false => "the state in PostgreSQL was restored from a backup; start kubefold again".to_owned(),
            };
            tracing::error!(place = self.place, "{why}");
            why
        });
        SqlError::lost(why.clone())
    }

    pub(super) fn lost(&self) -> Option<SqlError> {
        self.lost.get().map(|why| SqlError::lost(why.clone()))
    }

    pub(super) fn figures(&self) -> PostgresFigures {
        let away = self.away.lock();
        let why = self.lost.get().or_else(|| away.as_ref().map(|away| &away.why));
        PostgresFigures {
            away: away.as_ref().map(|away| away.since.elapsed()),
            error: why.cloned(),
            is_lost: self.lost.get().is_some(),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

/// Who has the database, as its row says.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) epoch: i64,
    pub(super) beat: i64,
    pub(super) holder: Holder,
}

/// Of the row of the holder.
pub(super) const FOUND: &str = "SELECT epoch, beat, host, pid,
    to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') FROM kubefold.holder";

impl Found {
    pub(super) fn of(row: &tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
        let holder = Holder { host: row.try_get(2)?, pid: row.try_get(3)?, since: row.try_get(4)? };
        Ok(Self { epoch: row.try_get(0)?, beat: row.try_get(1)?, holder })
    }
}
