//! A connection whose calls block, each for a bounded time.

use std::{io, sync::Arc, time::Duration};

use mysql_async::{
    Conn, DriverError, Error, Opts, Params, Row,
    prelude::{FromValue, Queryable},
};
use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, timeout},
};

use crate::storage::mysql::{error::Failure, target::Target};

/// For a connection to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Until an answer begins, and between two of its rows.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// For a word of farewell.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection that was silent for longer is asked whether it stands, before something depends on it.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// What a session has on its own: nothing is stored in part or in another engine, a wait for a lock ends before
/// [`ANSWER_TIMEOUT`], silence and long reads end nothing, and a transaction that was left open ends. What only MariaDB or only
/// MySQL knows is in the comments that it executes.
const SESSION: &str = "
SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, wait_timeout = 31536000,
    innodb_lock_wait_timeout = 10, lock_wait_timeout = 10
    /*M!100300 , max_statement_time = 0, idle_transaction_timeout = 30 */ /*!80000 , max_execution_time = 0 */";

/// Connects again and again to one database. It has the runtime that drives its connections: that of the storage's owner may
/// end before.
pub(super) struct Dialer {
    target: Target,
    runtime: Arc<Runtime>,
}

impl Dialer {
    /// Errors: there is no runtime.
    pub(super) fn new(target: Target) -> io::Result<Self> {
        let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
        Ok(Self { target, runtime })
    }

    /// How long an opener waits for another process that ends.
    pub(super) fn lock_wait(&self) -> Duration {
        self.target.lock_wait
    }

    /// Connects, with TLS if there is to be any. Blocks.
    pub(super) fn connect(&self) -> Result<Link, Failure> {
        let mut connected = self.dial(&self.target.opts);
        if matches!(connected, Ok(Err(Error::Driver(DriverError::NoClientSslFlagFromServer))))
            && let Some(plain) = &self.target.plain
        {
            connected = self.dial(plain);
        }
        let conn = connected??;
        let mut link = Link { conn, runtime: Arc::clone(&self.runtime), is_lost: false, used: Instant::now() };
        link.execute(SESSION)?;
        Ok(link)
    }

    fn dial(&self, opts: &Opts) -> Result<mysql_async::Result<Conn>, Failure> {
        let mut connecting = Conn::new(opts.clone());
        let connected = self.runtime.block_on(async { timeout(CONNECT_TIMEOUT, &mut connecting).await });
        // What is given up ends here. Within the runtime it would live on, to take its leave of a server that does not answer.
        drop(connecting);
        connected.map_err(|_| silent(CONNECT_TIMEOUT))
    }
}

/// A connection. It sends a statement once the one before is answered.
pub(super) struct Link {
    conn: Conn,
    runtime: Arc<Runtime>,
    /// It did not answer: what it has done since is not known.
    is_lost: bool,
    used: Instant,
}

impl Link {
    /// Says whether nothing can be asked of it any more. Blocks if it was silent for a while.
    pub(super) fn is_lost(&mut self) -> bool {
        if !self.is_lost && self.used.elapsed() > SILENT_MAX {
            let _answer = self.call(async |conn| answered(conn.ping()).await);
        }
        self.is_lost
    }

    /// Executes a statement. Answers how many rows it found.
    pub(super) fn execute(&mut self, statement: &str) -> Result<u64, Failure> {
        self.call(async |conn| {
            answered(conn.query_drop(statement)).await?;
            Ok(conn.affected_rows())
        })
    }

    /// The same with values in the places of its question marks. It stays prepared.
    pub(super) fn execute_with(&mut self, statement: &str, values: Params) -> Result<u64, Failure> {
        self.call(async |conn| {
            answered(conn.exec_drop(statement, values)).await?;
            Ok(conn.affected_rows())
        })
    }

    /// The first row of an answer.
    pub(super) fn row(&mut self, statement: &str) -> Result<Option<Found>, Failure> {
        let row: Option<Row> = self.call(async |conn| answered(conn.query_first(statement)).await)?;
        Ok(row.map(Found))
    }

    /// Reads an answer row by row.
    pub(super) fn each(
        &mut self,
        statement: &str,
        mut take: impl FnMut(Found) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.call(async |conn| {
            let mut rows = answered(conn.exec_iter(statement, ())).await?;
            while let Some(row) = answered(rows.next()).await? {
                take(Found(row))?;
            }
            Ok(())
        })
    }

    /// Takes its leave, so that the server frees its locks at once. Blocks.
    pub(super) fn end(self) {
        let Self { conn, runtime, is_lost, .. } = self;
        if !is_lost {
            // The server frees them anyway, once it notices.
            let _ended = runtime.block_on(async { timeout(END_TIMEOUT, conn.disconnect()).await });
        }
    }

    fn call<T>(&mut self, work: impl AsyncFnOnce(&mut Conn) -> Result<T, Failure>) -> Result<T, Failure> {
        if self.is_lost {
            return Err(Failure::away("the connection was lost"));
        }
        let called = self.runtime.block_on(work(&mut self.conn));
        self.is_lost = called.as_ref().is_err_and(Failure::is_away);
        self.used = Instant::now();
        called
    }
}

/// Waits for an answer, but not for ever.
async fn answered<T>(work: impl Future<Output = mysql_async::Result<T>>) -> Result<T, Failure> {
    match timeout(ANSWER_TIMEOUT, work).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(silent(ANSWER_TIMEOUT)),
    }
}

fn silent(after: Duration) -> Failure {
    Failure::away(&format!("the database has not answered for {} seconds", after.as_secs()))
}

/// A row of an answer.
pub(super) struct Found(Row);

impl Found {
    /// Takes the value of a column out.
    ///
    /// Errors: it is none of this type.
    pub(super) fn take<T: FromValue>(&mut self, column: usize) -> Result<T, Failure> {
        match self.0.take_opt(column) {
            Some(Ok(value)) => Ok(value),
            Some(Err(_)) | None => {
                Err(Failure::of_value(&format!("column {} of an answer has another type", column + 1)))
            }
        }
    }
}
