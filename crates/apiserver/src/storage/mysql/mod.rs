//! A storage in a database of MySQL or MariaDB, in tables of InnoDB.
//!
//! As `sqlite`, it has all keys and values in the cache, and the writer's thread stores batches, each in one transaction
//! (`session`), by a connection whose calls block. One server has the database at a time: it holds a user-level
//! lock, and each transaction changes the row that gives revisions out only while that row has this server's epoch. So a
//! server that lost its connection and its lock stores nothing any more.

mod error;
mod session;
#[cfg(test)]
mod tests;

use kubefold_sql::mysql::{Dialer, Target};

use crate::storage::{Bounds, logged::Logged};

pub use error::MysqlError;
pub use kubefold_sql::mysql::{MysqlIdentity, MysqlTls};

use session::Session;

/// A storage in a database of MySQL or MariaDB. It has all keys and values in memory, too.
pub type Mysql = Logged<Session>;

impl Logged<Session> {
    /// Opens a database, or begins one, and reads all of it. It is the only server of the database until it is closed.
    ///
    /// `url` is `mysql://USER:PASSWORD@HOST:PORT/DATABASE`. Its parameter `ssl-mode` is `PREFERRED` (the default: TLS if the
    /// server has it), `REQUIRED` or `DISABLED`; wherever TLS is used, the certificate and its name are verified by `tls`.
    /// `socket` is the path of a Unix socket, which takes the place of host and port, and has no TLS.
    ///
    /// Where the database is not the one that was served last (a dump was loaded, or another server took over), every
    /// revision of before is compacted.
    ///
    /// Errors: see [`MysqlError`].
    pub async fn open(url: &str, tls: MysqlTls, bounds: Bounds) -> Result<Self, MysqlError> {
        Self::open_by(Dialer::alone(Target::new(url, tls)?)?, bounds).await
    }

    /// The same by connections that are known already.
    ///
    /// Errors: see [`MysqlError`].
    pub async fn open_by(dialer: Dialer, bounds: Bounds) -> Result<Self, MysqlError> {
        Self::start(move || Session::open(dialer, bounds)).await
    }
}
