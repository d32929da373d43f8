//! Why a file is not served.

use std::{io, path::PathBuf};

use kubefold_sql::{OpenError, SqlError};

use crate::storage::StorageError;

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
    /// A change that is remembered is not there.
    #[error("the change of revision {0} is missing")]
    Missing(u64),
    /// There is a change that was never counted.
    #[error("the newest revision is {newest}, but there is a change of revision {found}")]
    Uncounted {
        /// As the head has it.
        newest: u64,
        /// As the change has it.
        found: u64,
    },
}
