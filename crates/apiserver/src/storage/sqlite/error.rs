//! Why a file is not served.

use std::{io, path::PathBuf};

use kubefold_sql::{OpenError, SqlError};

use crate::storage::{StorageError, replay::Gap};

/// Why a file cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// It cannot be used, is no database, or is of a newer version.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another process has it.
    #[error("another process serves {0}; stop that process, or give this one another file")]
    InUse(PathBuf),
    /// The mark beside it cannot be used.
    #[error("{path} cannot be read and written: {cause}")]
    Mark {
        /// The mark.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// What it has does not fit together.
    #[error("{path} is damaged: {damage}; put a backup in its place")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        damage: Damage,
    },
    /// It could not be told that a backup was put in its place.
    #[error("{path} takes no writes: {cause}")]
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: StorageError,
    },
    /// There is no thread for it.
    #[error("no thread can be started for a storage: {0}")]
    Thread(#[from] io::Error),
}

/// What does not fit together in a file.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It cannot be read.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// Its changes do not fit together.
    #[error(transparent)]
    Gap(#[from] Gap),
}
