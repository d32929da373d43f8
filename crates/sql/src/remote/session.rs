//! The connection of one group of tables: it connects again after it was lost, and begins what is fenced.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::RemoteState;
use crate::{backend::Link, error::SqlError, server::Dialer};

/// Between two tries to connect, at first and at most. Meanwhile everything is refused at once.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A connection of one group of tables.
pub(crate) struct Session {
    state: Arc<RemoteState>,
    dialer: Dialer,
    tables: Arc<[String]>,
    link: Option<Box<dyn Link>>,
    /// A transaction was begun.
    is_open: bool,
    rest: Option<Rest>,
}

/// No connection is tried before this ends.
#[derive(Debug)]
struct Rest {
    until: Instant,
    pause: Duration,
    error: SqlError,
}

impl Session {
    /// `tables` are those of the group.
    pub(crate) fn new(state: Arc<RemoteState>, schema: &str, tables: Arc<[String]>) -> Self {
        let dialer = state.dialer(schema);
        Self { state, dialer, tables, link: None, is_open: false, rest: None }
    }

    /// Says whether definitions of tables are part of a transaction.
    pub(crate) fn is_transactional(&self) -> bool {
        self.state.server().is_transactional()
    }

    pub(crate) fn place(&self) -> &str {
        self.state.place()
    }

    /// The connection, made again where it was lost.
    pub(crate) fn link(&mut self) -> Result<&dyn Link, SqlError> {
        if let Some(lost) = self.state.standing.lost() {
            return Err(lost);
        }
        if self.link.as_ref().is_none_or(|link| link.is_lost()) {
            self.link = None;
            if let Some(rest) = self.rest.as_ref().filter(|rest| Instant::now() < rest.until) {
                return Err(rest.error.clone());
            }
            let link = self.connect().map_err(|error| if error.is_lost() { error } else { self.rest(&error) })?;
            self.rest = None;
            self.link = Some(link);
        }
        self.link.as_deref().ok_or_else(SqlError::ended)
    }

    fn connect(&self) -> Result<Box<dyn Link>, SqlError> {
        let RemoteState { standing, epoch, .. } = &*self.state;
        let least = standing.beat();
        let link = self.dialer.link(&self.tables)?;
        let found = link.found()?;
        match found.epoch == *epoch && found.beat >= least {
            true => Ok(link),
            false => Err(standing.lose(&found, *epoch)),
        }
    }

    fn rest(&mut self, error: &SqlError) -> SqlError {
        let pause = self.rest.as_ref().map_or(PAUSE, |rest| (rest.pause * 2).min(PAUSE_MAX));
        let error = self.state.standing.fails(error);
        self.rest = Some(Rest { until: Instant::now() + pause, pause, error: error.clone() });
        error
    }

    /// Begins a transaction. Errors: nothing was begun.
    pub(crate) fn begin(&mut self) -> Result<&dyn Link, SqlError> {
        self.is_open = false;
        let is_old = self.link.is_some();
        let mut begun = self.try_begin();
        if is_old && begun.as_ref().is_err_and(|error| error.is_cut()) {
            // It was lost while nobody asked anything of it. A server that does not answer is not asked twice.
            self.link = None;
            begun = self.try_begin();
        }
        match begun {
            Ok(()) => self.is_open = true,
            Err(error) => {
                self.link = None;
                let is_new = error.is_away() && self.rest.is_none();
                return Err(if is_new { self.rest(&error) } else { error });
            }
        }
        self.link.as_deref().ok_or_else(SqlError::ended)
    }

    /// Reads in a transaction of its own, which sees one moment and writes nothing.
    pub(crate) fn read<T>(&mut self, work: impl FnOnce(&dyn Link) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let link = self.link()?;
        link.begin_read()?;
        let done = work(link);
        // After a statement that failed this undoes, without an error.
        let ended = link.batch("COMMIT");
        if ended.is_err() {
            self.link = None;
        }
        let done = done?;
        ended?;
        Ok(done)
    }

    fn try_begin(&mut self) -> Result<(), SqlError> {
        let epoch = self.state.epoch;
        let link = self.link()?;
        let begun = link.begin(epoch);
        match begun {
            Ok(true) => Ok(()),
            Ok(false) => {
                let found = link.found()?;
                Err(self.state.standing.lose(&found, epoch))
            }
            Err(error) => Err(error),
        }
    }

    /// The connection with an open transaction.
    pub(crate) fn transaction(&self) -> Option<&dyn Link> {
        self.link.as_deref().filter(|link| self.is_open && !link.is_lost())
    }

    /// Commits. Errors: nothing is stored, unless the outcome is unknown.
    pub(crate) fn commit(&mut self) -> Result<(), SqlError> {
        let link = self.transaction().ok_or_else(SqlError::ended)?;
        let committed = link.commit();
        self.is_open = false;
        match &committed {
            Ok(()) => self.state.standing.answers(),
            Err(error) => {
                if error.is_away() {
                    self.state.standing.fails(error);
                }
                self.link = None;
            }
        }
        committed
    }
}
