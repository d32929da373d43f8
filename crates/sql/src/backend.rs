//! What a server of databases has to do for the state that stands in it, whoever made it.

use std::{collections::BTreeMap, fmt, io, time::Duration};

use futures::future::BoxFuture;

use crate::{
    error::SqlError,
    value::{Row, Value},
};

/// Why state on a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The URL says nothing that can be reached.
    #[error("{0}")]
    Url(String),
    /// It cannot be reached, or does not do what it is asked to.
    #[error(
        "the database does not answer as it should: {0}; check that it runs, the host, user, password and database of its URL, and who signed its certificate"
    )]
    Sql(SqlError),
    /// The user may not make what it needs.
    #[error("the user {user} may not make {what}; run as the owner of the database: {grant}")]
    Rights {
        /// The user of the URL.
        user: String,
        /// What it may not make.
        what: String,
        /// The statement that gives the right.
        grant: String,
    },
    /// Another process has it.
    #[error("{0} has this state; stop that process, or give this one another database")]
    InUse(Holder),
    /// There is no thread for it.
    #[error("no thread can be started for the state: {0}")]
    Thread(#[from] io::Error),
}

impl From<SqlError> for RemoteError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

/// Whose words a statement has to be in, where they cannot be the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// SQLite's.
    Sqlite,
    /// PostgreSQL's.
    Postgres,
    /// MySQL's.
    Mysql,
}

/// The name of the connections of one epoch's process.
pub(crate) fn application(epoch: i64) -> String {
    format!("kubefold {epoch}")
}

/// A connection whose calls block, for the tables of one group. Statements are those that [`crate::Sql`] takes.
pub(crate) trait Link: Send {
    /// Says whether nothing can be asked of it any more.
    fn is_lost(&self) -> bool;

    /// Whose words it takes.
    fn words(&self) -> Words;

    /// Has a statement without an answer go before the next one.
    fn lead(&self, statement: &str);

    /// Executes a statement, and says how many rows it changed.
    fn execute(&self, statement: &str, values: &[Value<'_>]) -> Result<usize, SqlError>;

    /// Executes it for the parameters of many rows.
    fn execute_all<'v>(&self, statement: &str, rows: &mut dyn Iterator<Item = Vec<Value<'v>>>) -> Result<(), SqlError>;

    /// Reads an answer row by row. `take` asks nothing of the connection.
    fn each(
        &self,
        statement: &str,
        values: &[Value<'_>],
        take: &mut dyn FnMut(Row<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError>;

    /// Executes statements that have no parameters.
    fn batch(&self, statements: &str) -> Result<(), SqlError>;

    /// Begins a transaction that is there only while an epoch is. Until it ends, no other epoch begins.
    ///
    /// `false`: there is another epoch.
    fn begin(&self, epoch: i64) -> Result<bool, SqlError>;

    /// Begins a transaction that sees one moment and writes nothing.
    fn begin_read(&self) -> Result<(), SqlError>;

    /// Commits. Errors: nothing is stored, unless the outcome is unknown.
    fn commit(&self) -> Result<(), SqlError>;

    /// Who has the database.
    fn found(&self) -> Result<Found, SqlError>;
}

/// What is asked of the tables that say who has a database. Each call is one that the server has answered, however late: its caller
/// bounds the time.
pub(crate) trait Keeper: Send + Sync {
    /// Says whether nothing can be asked of it any more.
    fn is_closed(&self) -> bool;

    /// Makes these groups of tables, and those that say who has the database, where they are not there. What is there is left as it
    /// is, also while a holder hangs in a transaction.
    fn prepare<'a>(&'a self, schemas: &'a [&'a str]) -> BoxFuture<'a, Result<(), RemoteError>>;

    /// Who has the database.
    fn found(&self) -> BoxFuture<'_, Result<Found, SqlError>>;

    /// Which data it is: another one after a backup was loaded, or another server took over.
    fn identity(&self) -> BoxFuture<'_, Result<String, SqlError>>;

    /// Ends the connections of an epoch's process.
    fn end_others(&self, epoch: i64) -> BoxFuture<'_, Result<(), SqlError>>;

    /// Begins a transaction in which nobody else can take the database, and says who has it. It waits for the transactions of
    /// whoever had it.
    fn lock(&self) -> BoxFuture<'_, Result<Found, SqlError>>;

    /// Undoes that transaction.
    fn undo(&self) -> BoxFuture<'_, Result<(), SqlError>>;

    /// In that transaction, has this process begin an epoch above this one and every earlier one, with a beat above this one and the
    /// one before. Commits.
    fn take(&self, epoch: i64, beat: i64) -> BoxFuture<'_, Result<Taken, SqlError>>;

    /// Changes the row of the holder, and has the number in it be at least this one. Gives its beat and number. `None`: the epoch is
    /// another, or has ended.
    fn beat(&self, epoch: i64, number: i64) -> BoxFuture<'_, Result<Option<(i64, i64)>, SqlError>>;

    /// Says that nobody has the database, if an epoch is that of now.
    fn release(&self, epoch: i64) -> BoxFuture<'_, Result<(), SqlError>>;

    /// Renews the row of this process, which has an epoch, or waits for one (0).
    fn announce<'a>(&'a self, of: &'a Announcement, epoch: i64) -> BoxFuture<'a, Result<(), SqlError>>;

    /// Forgets the row of a process, and rows that were not renewed for an hour.
    fn forget<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<(), SqlError>>;

    /// The rows of processes that were renewed a moment ago, by the clock of the server alone.
    fn replicas(&self) -> BoxFuture<'_, Result<Vec<Replica>, SqlError>>;

    /// The files that all processes share, by name.
    fn files(&self) -> BoxFuture<'_, Result<BTreeMap<String, Vec<u8>>, SqlError>>;
}

/// An epoch that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) epoch: i64,
    pub(crate) beat: i64,
    /// The highest number that earlier holders reserved.
    pub(crate) number: i64,
}

/// Who has the database, as its row says.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) epoch: i64,
    pub(crate) beat: i64,
    /// Nobody has it.
    pub(crate) is_released: bool,
    pub(crate) holder: Holder,
}

impl Found {
    /// Of a row with the epoch, the beat, the host, the process, since when, and whether nobody has it.
    pub(crate) fn of(row: Row<'_>) -> Result<Self, SqlError> {
        let holder = Holder { host: row.get(2)?, pid: row.get(3)?, since: row.get(4)? };
        Ok(Self { epoch: row.get(0)?, beat: row.get(1)?, is_released: row.get(5)?, holder })
    }
}

/// The process that has a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The name of its machine, in Kubernetes its pod.
    pub host: String,
    /// Its number there.
    pub pid: i64,
    /// Since when, in UTC.
    pub since: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, pid, since } = self;
        write!(f, "another kubefold (host {host}, process {pid}, since {since})")
    }
}

/// What a process says of itself to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Which process it is; no other one has it.
    pub id: String,
    /// Where the others reach it: `host:port`.
    pub address: String,
    /// Its version.
    pub version: String,
}

/// A process that uses the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Which process it is.
    pub id: String,
    /// Where the others reach it: `host:port`.
    pub address: String,
    /// The name of its machine, in Kubernetes its pod.
    pub host: String,
    /// Its number there.
    pub pid: i64,
    /// Its version.
    pub version: String,
    /// It has the database.
    pub is_holder: bool,
    /// How long ago it renewed its row.
    pub seen_ago: Duration,
}

impl Replica {
    /// Of a row with the identifier, the address, the host, the process, the version, whether it is the holder, and how many seconds
    /// ago it was renewed.
    pub(crate) fn of(row: Row<'_>) -> Result<Self, SqlError> {
        Ok(Self {
            id: row.get(0)?,
            address: row.get(1)?,
            host: row.get(2)?,
            pid: row.get(3)?,
            version: row.get(4)?,
            is_holder: row.get(5)?,
            seen_ago: Duration::try_from_secs_f64(row.get(6)?).unwrap_or_default(),
        })
    }
}

/// The name of this machine, in Kubernetes of the pod.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
