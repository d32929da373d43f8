//! Why state cannot be opened, read or written.

use std::{error::Error as StdError, io, path::PathBuf, sync::Arc};

use rusqlite::{ErrorCode, ffi};
use tokio_postgres::error::SqlState;

use crate::{
    failure::{Failure, FailureKind},
    key::{KeyError, SealedError},
};

/// Why a database of state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refuses.
    #[error("{path} cannot be read and written: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is damaged, of another program, or refuses a statement.
    #[error("{place} is no database that this program can use: {cause}")]
    Sql {
        /// The file, or the URL without user and password.
        place: String,
        /// Why.
        cause: SqlError,
    },
    /// A newer version of the program wrote it.
    #[error("{place} has format {format}, which a newer version wrote; this version knows formats up to {known}")]
    Newer {
        /// The file, or the URL without user and password.
        place: String,
        /// The number of migrations that it has.
        format: usize,
        /// The number of migrations that this program has.
        known: usize,
    },
}

/// Why a statement or a commit failed. Nothing of the write that it was in can be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{cause}")]
pub struct SqlError {
    cause: Arc<Cause>,
    is_commit: bool,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Sqlite(rusqlite::Error),
    #[error("{}", why(.0))]
    Postgres(tokio_postgres::Error),
    #[error(transparent)]
    Server(Failure),
    #[error("{0}")]
    Away(String),
    #[error("{0}")]
    Lost(String),
    #[error("{0}")]
    Value(Box<dyn StdError + Send + Sync>),
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self::of(Cause::Sqlite(error))
    }
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::of(Cause::Postgres(error))
    }
}

impl From<Failure> for SqlError {
    fn from(failure: Failure) -> Self {
        Self::of(Cause::Server(failure))
    }
}

impl From<KeyError> for SqlError {
    fn from(error: KeyError) -> Self {
        Self::of_value(error)
    }
}

impl From<SealedError> for SqlError {
    fn from(error: SealedError) -> Self {
        Self::of_value(error)
    }
}

impl SqlError {
    fn of(cause: Cause) -> Self {
        Self { cause: Arc::new(cause), is_commit: false }
    }

    /// A stored value that is not what it should be, or one that cannot be stored.
    pub fn of_value(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of(Cause::Value(cause.into()))
    }

    /// The server cannot be reached, and may be again.
    pub(crate) fn away(why: String) -> Self {
        Self::of(Cause::Away(why))
    }

    /// This process may not write any more.
    pub(crate) fn lost(why: String) -> Self {
        Self::of(Cause::Lost(why))
    }

    /// A statement that fails may end the transaction, and with it what others wrote. Source: SQLite's documentation of
    /// transactions, "Response To Errors Within A Transaction".
    pub(crate) fn ended() -> Self {
        let why = "another write of the same commit failed, and ended its transaction";
        rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ABORT_ROLLBACK), Some(why.to_owned())).into()
    }

    pub(crate) fn in_commit(self) -> Self {
        Self { is_commit: true, ..self }
    }

    /// Says whether the disk, or what the database may have of it, is full.
    pub fn is_full(&self) -> bool {
        match &*self.cause {
            Cause::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::DiskFull),
            Cause::Postgres(error) => error.code() == Some(&SqlState::DISK_FULL),
            Cause::Server(failure) => failure.kind == FailureKind::Full,
            Cause::Away(_) | Cause::Lost(_) | Cause::Value(_) => false,
        }
    }

    /// Says whether the write may be there later. In SQLite: after the process has ended, unless a later one is stored before,
    /// since the disk failed after it had taken the whole commit, such as while it synced it. On a server: the connection was
    /// lost before it said whether it had committed.
    ///
    /// Source: SQLite's `sqlite3WalFrames`. The frames of a commit are all written before they are synced, and the next
    /// commit is written over one that failed.
    pub fn is_outcome_unknown(&self) -> bool {
        self.is_commit
            && match &*self.cause {
                Cause::Sqlite(error) => {
                    use ErrorCode::{ConstraintViolation, DatabaseBusy, DiskFull};
                    !matches!(error.sqlite_error_code(), Some(DiskFull | DatabaseBusy | ConstraintViolation))
                }
                Cause::Postgres(error) => {
                    let certain =
                        [SqlState::DISK_FULL, SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
                    !error.code().is_some_and(|code| certain.contains(code))
                }
                Cause::Server(failure) => !failure.is_certain(),
                Cause::Away(_) => true,
                Cause::Lost(_) | Cause::Value(_) => false,
            }
    }

    /// Says whether the database is none any more, as far as could be seen.
    pub fn is_damaged(&self) -> bool {
        match &*self.cause {
            Cause::Sqlite(error) => {
                matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
            }
            Cause::Postgres(error) => {
                error.code().is_some_and(|code| [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code))
            }
            Cause::Server(failure) => failure.kind == FailureKind::Damaged,
            Cause::Away(_) | Cause::Lost(_) | Cause::Value(_) => false,
        }
    }

    /// Says whether the disk or the server refuses, whatever the database has in it: a new one would be refused, too.
    pub fn is_of_place(&self) -> bool {
        use ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure,
        };
        let of_disk = [CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure];
        match &*self.cause {
            Cause::Sqlite(error) => error.sqlite_error_code().is_some_and(|code| of_disk.contains(&code)),
            Cause::Postgres(_) | Cause::Server(_) => !self.is_damaged(),
            Cause::Away(_) | Cause::Lost(_) => true,
            Cause::Value(_) => false,
        }
    }

    /// Says whether the server cannot be reached, does not answer, or ends: it may be there again later.
    pub fn is_away(&self) -> bool {
        match &*self.cause {
            Cause::Away(_) => true,
            Cause::Postgres(error) => is_connection(error),
            Cause::Server(failure) => failure.is_away(),
            Cause::Sqlite(_) | Cause::Lost(_) | Cause::Value(_) => false,
        }
    }

    /// Says whether this process may not write any more: another one has the state since, or it was restored from a backup.
    pub fn is_lost(&self) -> bool {
        matches!(&*self.cause, Cause::Lost(_))
    }

    /// Says whether somebody else holds a lock of PostgreSQL that was waited for.
    pub fn is_locked(&self) -> bool {
        self.postgres().and_then(tokio_postgres::Error::code) == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Says whether the user may not do this.
    #[cfg(feature = "mysql")]
    pub(crate) fn is_access(&self) -> bool {
        matches!(&*self.cause, Cause::Server(failure) if failure.kind == FailureKind::Access)
    }

    /// Says whether the connection ended, rather than that nothing was answered for long.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_away() && matches!(&*self.cause, Cause::Postgres(_) | Cause::Server(_))
    }

    /// What PostgreSQL said.
    fn postgres(&self) -> Option<&tokio_postgres::Error> {
        match &*self.cause {
            Cause::Postgres(error) => Some(error),
            _ => None,
        }
    }
}

/// An error of PostgreSQL in one sentence.
pub(crate) fn why(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(error), _) => error.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// Says whether an error is about the connection, or about a server that starts, ends or has no connection to spare.
fn is_connection(error: &tokio_postgres::Error) -> bool {
    let ends = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::CONNECTION_FAILURE,
        SqlState::CONNECTION_EXCEPTION,
        SqlState::CONNECTION_DOES_NOT_EXIST,
    ];
    match error.code() {
        Some(code) => ends.contains(code),
        None => error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>()) || is_timeout(error),
    }
}

/// The one kind of error that has neither a code nor a source.
fn is_timeout(error: &tokio_postgres::Error) -> bool {
    error.source().is_none() && error.to_string().contains("timeout")
}
