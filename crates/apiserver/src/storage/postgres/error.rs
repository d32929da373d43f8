//! Why a database is not served, or stores nothing.

use std::io;

use kubefold_sql::SqlError;

use crate::storage::Gap;

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
    pub(super) fn of(error: &SqlError) -> Self {
        match error.is_locked() {
            true => Self::InUse,
            false => Self::Sql(error.to_string()),
        }
    }
}
