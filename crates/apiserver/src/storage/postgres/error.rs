//! Why a database is not served, or stores nothing.

use std::{error::Error as _, io};

use postgres::error::{Error, SqlState};

use crate::storage::{Gap, StorageError};

/// Why a database cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The URL says nothing that can be reached.
    #[error("it is no connection string of PostgreSQL ({0}); write postgres://USER:PASSWORD@HOST:5432/DATABASE")]
    Url(String),
    /// It cannot be reached, or does not do what it is asked to.
    #[error(
        "the database does not answer as it should: {0}; check that it runs, the host, user, password and database of its URL, and who signed its certificate"
    )]
    Sql(String),
    /// Another process has it.
    #[error("another process serves the database; stop that process, or give this one another database or schema")]
    InUse,
    /// A newer version of the program wrote it.
    #[error("the database has format {format}, which a newer version wrote; this version knows formats up to {known}")]
    Newer {
        /// What it has.
        format: i32,
        /// What this program knows.
        known: i32,
    },
    /// What it has does not fit together.
    #[error("the database is damaged: {0}; restore a backup")]
    Damaged(#[from] Gap),
    /// There is no thread for it.
    #[error("no thread can be started for a storage: {0}")]
    Thread(#[from] io::Error),
}

impl PostgresError {
    pub(super) fn of(error: &Error) -> Self {
        match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::InUse,
            _ => Self::Sql(why(error)),
        }
    }
}

/// What a failure before a commit is: nothing is stored.
pub(super) fn of_statement(error: &Error) -> StorageError {
    match error.code() {
        Some(&SqlState::DISK_FULL) => StorageError::Full(why(error)),
        _ => StorageError::Unavailable(why(error)),
    }
}

/// What a failed commit is. A connection that is lost, or ended by an administrator, may have had it stored before.
pub(super) fn of_commit(error: &Error) -> StorageError {
    let certain = [SqlState::DISK_FULL, SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
    match error.code() {
        Some(code) if certain.contains(code) => of_statement(error),
        _ => StorageError::Unknown(why(error)),
    }
}

pub(super) fn why(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(error), _) => error.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
