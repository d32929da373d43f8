//! Why a database is not served, or stores nothing.

use std::io;

use kubefold_sql::{Failure, FailureKind as Kind, mysql::UrlError};

use crate::storage::{Gap, StorageError};

/// Why a database cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MysqlError {
    /// The URL says nothing that can be reached.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// It cannot be reached.
    #[error("the database cannot be reached: {0}; check that it runs, and the host and port of its URL")]
    Away(String),
    /// There is no TLS, or none that can be trusted.
    #[error(
        "no TLS with the database: {0}; check that it has TLS, who signed its certificate, and that this names the host of the URL"
    )]
    Tls(String),
    /// The user may not log in, or not do what is necessary.
    #[error(
        "the database refuses the user: {0}; check the user and the password of its URL, and that the user has all rights on the database"
    )]
    Access(String),
    /// There is no such database.
    #[error("there is no such database: {0}; make it with CREATE DATABASE, or name another one in the URL")]
    NoDatabase(String),
    /// It is a replica, or an administrator forbids changes.
    #[error("the database takes no changes: {0}; name the primary server in the URL")]
    ReadOnly(String),
    /// There is no room.
    #[error("the database has no room: {0}; give its disk more")]
    Full(String),
    /// A value could be too long for it.
    #[error(
        "the database takes packets of up to {has} bytes, and a value can need {needs}; set its max_allowed_packet higher, such as to 16M"
    )]
    Packet {
        /// Its `max_allowed_packet`.
        has: usize,
        /// What a value of the bounds' size can need.
        needs: usize,
    },
    /// It does not do what it is asked to.
    #[error("the database does not answer as it should: {0}")]
    Sql(String),
    /// Another process has it.
    #[error("another process serves the database; stop that process, or give this one another database")]
    InUse,
    /// A newer version of the program wrote it.
    #[error("the database has format {format}, which a newer version wrote; this version knows formats up to {known}")]
    Newer {
        /// What it has.
        format: u32,
        /// What this program knows.
        known: u32,
    },
    /// What it has does not fit together.
    #[error("the database is damaged: {0}; restore a backup")]
    Damaged(#[from] Gap),
    /// There is no thread for it.
    #[error("no thread can be started for a storage: {0}")]
    Thread(#[from] io::Error),
}

/// What a commit came to. An error of the server that does not undo the transaction says nothing about it.
pub(super) fn of_commit(failure: Failure) -> StorageError {
    match failure.is_certain() {
        true => failure.into(),
        false => StorageError::Unknown(failure.why),
    }
}

/// A failure before the commit has stored nothing.
impl From<Failure> for StorageError {
    fn from(Failure { kind, why }: Failure) -> Self {
        match kind {
            Kind::Full => Self::Full(why),
            _ => Self::Unavailable(why),
        }
    }
}

impl From<Failure> for MysqlError {
    fn from(Failure { kind, why }: Failure) -> Self {
        match kind {
            Kind::Away => Self::Away(why),
            Kind::Tls => Self::Tls(why),
            Kind::Access => Self::Access(why),
            Kind::NoDatabase => Self::NoDatabase(why),
            Kind::ReadOnly => Self::ReadOnly(why),
            Kind::Full => Self::Full(why),
            Kind::Undone | Kind::Damaged | Kind::Other => Self::Sql(why),
        }
    }
}
