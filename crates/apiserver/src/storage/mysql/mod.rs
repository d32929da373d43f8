//! A storage in a database of MySQL or MariaDB, in tables of InnoDB.
//!
//! As `sqlite`, it has all keys and values in the cache, and the writer's thread stores batches, each in one transaction
//! (`session`), by a connection whose calls block (`link`). One server has the database at a time: it holds a user-level
//! lock, and each transaction changes the row that gives revisions out only while that row has this server's epoch. So a
//! server that lost its connection and its lock stores nothing any more.
//!
//! The driver is `mysql_async`: it speaks to both with `caching_sha2_password` and `mysql_native_password`, and its TLS is
//! rustls with aws-lc-rs. `sqlx` brings a pool and macros that nothing here needs, and the driver `mysql` blocks without a
//! bound.

mod error;
mod link;
mod session;
mod target;
#[cfg(test)]
mod tests;

use crate::storage::{Bounds, logged::Logged};

pub use error::MysqlError;
pub use target::{MysqlIdentity, MysqlTls};

use session::Session;
use target::Target;

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
        let target = Target::new(url, tls)?;
        Self::start(move || Session::open(target, bounds)).await
    }
}
