//! Why a database is not served, or stores nothing.

use std::io;

use mysql_async::{DriverError, Error, IoError, ServerError};

use crate::storage::{Gap, StorageError};

/// Why a database cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MysqlError {
    /// The URL says nothing that can be reached.
    #[error(
        "it is no URL of MySQL ({0}); write mysql://USER:PASSWORD@HOST:3306/DATABASE, with percent codes for special characters"
    )]
    Url(String),
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

/// Why a statement failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct Failure {
    kind: Kind,
    why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The connection is lost, or there is none.
    Away,
    Tls,
    Access,
    NoDatabase,
    ReadOnly,
    Full,
    /// The server undid the transaction.
    Undone,
    Other,
}

impl Failure {
    /// The connection is lost, or there is none.
    pub(super) fn away(why: &str) -> Self {
        Self { kind: Kind::Away, why: why.to_owned() }
    }

    /// A stored value that is not what it should be.
    pub(super) fn of_value(why: &str) -> Self {
        Self { kind: Kind::Other, why: why.to_owned() }
    }

    /// Says whether nothing can be asked of the connection any more.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.kind, Kind::Away | Kind::Tls)
    }

    /// What a commit came to. An error of the server that does not undo the transaction says nothing about it.
    pub(super) fn of_commit(self) -> StorageError {
        match self.kind {
            Kind::Undone | Kind::ReadOnly => self.into(),
            _ => StorageError::Unknown(self.why),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            Error::Server(error) => Self { kind: kind_of(error), why: told(error) },
            Error::Io(IoError::Tls(error)) => Self { kind: Kind::Tls, why: error.to_string() },
            Error::Io(IoError::Io(error)) => {
                let of_tls = error.get_ref().is_some_and(|cause| cause.is::<rustls::Error>());
                Self { kind: if of_tls { Kind::Tls } else { Kind::Away }, why: error.to_string() }
            }
            Error::Driver(DriverError::NoClientSslFlagFromServer) => {
                Self { kind: Kind::Tls, why: "the server has none".to_owned() }
            }
            Error::Driver(
                DriverError::UnknownAuthPlugin { .. }
                | DriverError::MysqlOldPasswordDisabled
                | DriverError::CleartextPluginDisabled,
            ) => Self { kind: Kind::Access, why: error.to_string() },
            Error::Driver(DriverError::ConnectionClosed) => Self::away("the connection was lost"),
            // The server and the driver do not understand each other any more.
            Error::Driver(_) | Error::Other(_) | Error::Url(_) => Self::away(&error.to_string()),
        }
    }
}

/// Source: MySQL's and MariaDB's references of server errors.
fn kind_of(error: &ServerError) -> Kind {
    match error.code {
        // ER_CON_COUNT_ERROR, ER_SERVER_SHUTDOWN, ER_NORMAL_SHUTDOWN, ER_HOST_IS_BLOCKED, ER_NET_*, ER_TOO_MANY_USER_CONNECTIONS,
        // ER_USER_LIMIT_REACHED, ER_CONNECTION_KILLED (MariaDB), ER_CLIENT_INTERACTION_TIMEOUT.
        1040 | 1053 | 1077 | 1129 | 1156..=1161 | 1203 | 1226 | 1927 | 4031 => Kind::Away,
        // ER_ACCESS_DENIED, for a database, a table, a column, without a password, for a statement; ER_HOST_NOT_PRIVILEGED,
        // ER_MUST_CHANGE_PASSWORD, ER_ACCOUNT_HAS_BEEN_LOCKED of either.
        1044 | 1045 | 1130 | 1142 | 1143 | 1227 | 1698 | 1820 | 1862 | 3118 | 4151 => Kind::Access,
        1049 => Kind::NoDatabase,
        // ER_OPTION_PREVENTS_STATEMENT, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ER_READ_ONLY_MODE.
        1290 | 1792 | 1836 => Kind::ReadOnly,
        // ER_DISK_FULL, ER_RECORD_FILE_FULL, ER_NET_PACKET_TOO_LARGE.
        1021 | 1114 | 1153 => Kind::Full,
        // ER_GET_ERRNO with ENOSPC.
        1030 if error.message.contains("error 28 ") => Kind::Full,
        // ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK.
        1205 | 1213 => Kind::Undone,
        _ => Kind::Other,
    }
}

/// What a server said, in one line.
fn told(error: &ServerError) -> String {
    let why = error.message.split_whitespace().collect::<Vec<_>>().join(" ");
    match error.code {
        1153 => format!("{why} (its max_allowed_packet)"),
        code => format!("{why} (error {code})"),
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
            Kind::Undone | Kind::Other => Self::Sql(why),
        }
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
