//! A storage in a database of PostgreSQL, in the schema that is the first of the connection's search path.
//!
//! As `sqlite`, it has all keys and values in the cache, and the writer's thread stores batches, each in one transaction
//! (`session`). One server has the database at a time: it holds an advisory lock, and each transaction changes the row
//! that gives revisions out only while that row has this server's epoch. So a server that lost its connection and its
//! lock stores nothing any more.

mod error;
mod session;
#[cfg(test)]
mod tests;

use kubefold_sql::postgres::Dialer;
use rustls::ClientConfig;
use tokio::runtime::Handle;

use crate::storage::{Bounds, logged::Logged};

pub use error::PostgresError;

use session::Session;

/// A storage in a database of PostgreSQL. It has all keys and values in memory, too.
pub type Postgres = Logged<Session>;

impl Logged<Session> {
    /// Opens a database, or begins one, and reads all of it. It is the only server of the database until it is closed.
    ///
    /// `url` is a connection string of libpq; `tls` is used if the server has TLS and `sslmode` does not forbid it.
    ///
    /// Where the database is not the one that was served last (it was restored, or a standby took over), every revision
    /// of before is compacted.
    ///
    /// Errors: see [`PostgresError`].
    pub async fn open(url: &str, tls: ClientConfig, bounds: Bounds) -> Result<Self, PostgresError> {
        let dialer = Dialer::new(url, tls, None, Handle::current());
        let dialer = dialer.map_err(|error| PostgresError::Url(error.to_string()))?;
        Self::open_by(dialer, bounds).await
    }

    /// The same by connections that somebody else describes, in the schema that they begin in.
    ///
    /// Errors: see [`PostgresError`].
    pub async fn open_by(dialer: Dialer, bounds: Bounds) -> Result<Self, PostgresError> {
        Self::start(move || Session::open(dialer, bounds)).await
    }
}
