//! A connection whose calls block, each for a bounded time.

use std::{io, sync::Arc, thread, time::Duration};

use mysql_async::{
    Conn, DriverError, Error, Opts, Params, Row,
    prelude::{FromValue, Queryable},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::{Instant, timeout},
};

use crate::{
    blocking::block,
    failure::Failure,
    mysql::target::{Epoch, Target},
};

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

/// What drives connections.
#[derive(Clone)]
pub(super) enum Driver {
    /// A runtime of their own, on whatever thread asks something.
    Own(Arc<Runtime>),
    /// One that runs elsewhere.
    Of(Handle),
}

/// Connects again and again to one database.
#[derive(Clone)]
pub struct Dialer {
    pub(super) target: Arc<Target>,
    driver: Driver,
    /// What the names of its tables begin with, for the state.
    pub(super) prefix: String,
}

impl Dialer {
    /// Connections that a runtime drives, on whose threads none of them is used.
    pub(crate) fn new(target: Arc<Target>, runtime: Handle) -> Self {
        Self { target, driver: Driver::Of(runtime), prefix: String::new() }
    }

    /// Connections that are driven by whoever uses them, on threads that may wait: the runtime of their owner may end before.
    ///
    /// Errors: there is no runtime.
    pub fn alone(target: Target) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { target: Arc::new(target), driver: Driver::Own(Arc::new(runtime)), prefix: String::new() })
    }

    /// The same for a group of tables.
    pub(crate) fn of_schema(mut self, schema: &str) -> Self {
        self.prefix = format!("{schema}_");
        self
    }

    /// How long an opener waits for another process that ends.
    pub fn lock_wait(&self) -> Duration {
        self.target.lock_wait
    }

    /// Connects, with TLS if there is to be any. Blocks.
    ///
    /// Errors: nobody listens, or the server refuses.
    pub fn connect(&self) -> Result<Link, Failure> {
        let mut connected = self.dial(&self.target.opts);
        if matches!(connected, Ok(Err(Error::Driver(DriverError::NoClientSslFlagFromServer))))
            && let Some(plain) = &self.target.plain
        {
            connected = self.dial(plain);
        }
        let conn = Ending(Some(connected??));
        let mut link = Link { conn, driver: self.driver.clone(), is_lost: false, used: Instant::now(), live: None };
        link.execute(SESSION)?;
        if let Some(epoch) = &self.target.epoch {
            link.known_as(epoch)?;
        }
        Ok(link)
    }

    fn dial(&self, opts: &Opts) -> Result<mysql_async::Result<Conn>, Failure> {
        let mut connecting = Conn::new(opts.clone());
        let connected = self.driver.block_on(async { timeout(CONNECT_TIMEOUT, &mut connecting).await });
        end(connecting);
        connected.map_err(|_| silent(CONNECT_TIMEOUT))
    }
}

impl Driver {
    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        match self {
            Self::Own(runtime) => runtime.block_on(work),
            Self::Of(handle) => block(handle, work),
        }
    }
}

/// Has what is given up of a connection end. Where there is a runtime it would live on, to take its leave of a server that may not
/// answer.
fn end<T: Send + 'static>(of: T) {
    match Handle::try_current() {
        // Where there is no thread it takes its leave.
        Ok(_) => drop(thread::Builder::new().name("sql-mysql-end".to_owned()).spawn(move || drop(of))),
        Err(_) => drop(of),
    }
}

/// A connection that ends where this is dropped.
struct Ending(Option<Conn>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(end);
    }
}

/// A connection. It sends a statement once the one before is answered.
pub struct Link {
    conn: Ending,
    driver: Driver,
    /// It did not answer: what it has done since is not known.
    is_lost: bool,
    used: Instant,
    /// Of whose connections it is one.
    live: Option<Live>,
}

/// One of the connections of an epoch's process, while this is there.
struct Live {
    epoch: Arc<Epoch>,
    id: u64,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.epoch.live.lock().remove(&self.id);
    }
}

/// What a server is, and how it is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Of the connection that asked.
    pub connection_id: u64,
    /// Units: bytes. Its `max_allowed_packet`.
    pub packet_bytes_max: i64,
}

/// The name of a lock that one connection of an epoch's process has, as an expression. The names of these locks are those of the
/// whole server, and have up to 64 characters.
fn epoch_lock(epoch: i64, number: u32) -> String {
    format!("CONCAT('kubefold/', LEFT(SHA1(DATABASE()), 24), '/{epoch}/{number}')")
}

impl Link {
    /// Connections of one epoch's process. There are about ten, and those that it lost and the server has not noticed.
    const NAMED_MAX: u32 = 64;

    /// Says whether nothing can be asked of it any more. Blocks if it was silent for a while.
    pub fn is_lost(&mut self) -> bool {
        if !self.is_lost && self.used.elapsed() > SILENT_MAX {
            let _answer = self.call(async |conn| answered(conn.ping()).await);
        }
        self.is_lost
    }

    /// Executes a statement. Answers how many rows it found.
    pub fn execute(&mut self, statement: &str) -> Result<u64, Failure> {
        self.call(async |conn| {
            answered(conn.query_drop(statement)).await?;
            Ok(conn.affected_rows())
        })
    }

    /// The same with values in the places of its question marks. It stays prepared.
    pub fn execute_with(&mut self, statement: &str, values: Params) -> Result<u64, Failure> {
        self.call(async |conn| {
            answered(conn.exec_drop(statement, values)).await?;
            Ok(conn.affected_rows())
        })
    }

    /// The first row of an answer.
    pub fn row(&mut self, statement: &str) -> Result<Option<Found>, Failure> {
        let row: Option<Row> = self.call(async |conn| answered(conn.query_first(statement)).await)?;
        Ok(row.map(Found))
    }

    /// Reads an answer row by row.
    pub fn each(&mut self, statement: &str, mut take: impl FnMut(Found) -> Result<(), Failure>) -> Result<(), Failure> {
        self.call(async |conn| {
            let mut rows = answered(conn.exec_iter(statement, ())).await?;
            while let Some(row) = answered(rows.next()).await? {
                take(Found(row))?;
            }
            Ok(())
        })
    }

    /// Takes its leave, so that the server frees its locks at once. Blocks.
    pub fn end(self) {
        let Self { mut conn, driver, is_lost, .. } = self;
        if let Some(conn) = conn.0.take().filter(|_| !is_lost) {
            // The server frees them anyway, once it notices.
            let _ended = driver.block_on(async { timeout(END_TIMEOUT, conn.disconnect()).await });
        }
    }

    /// Says whether nothing can be asked of it any more, without asking it.
    pub(super) fn is_ended(&self) -> bool {
        self.is_lost
    }

    /// Has the connection be known as one of an epoch's process: it has one of so many locks of the server until it ends. MySQL has
    /// no name of a connection that every user may read.
    ///
    /// `false`: so many connections of the epoch are there already.
    pub(super) fn name(&mut self, epoch: i64) -> Result<bool, Failure> {
        for number in 0..Self::NAMED_MAX {
            if self.number(&format!("SELECT GET_LOCK({}, 0)", epoch_lock(epoch, number)))? == Some(1) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same for one that this process uses. Connections of the epoch that it does not use are ended where there is no room: their
    /// network has gone, and the server waits for hours.
    fn known_as(&mut self, epoch: &Arc<Epoch>) -> Result<(), Failure> {
        let id =
            self.number("SELECT CONNECTION_ID()")?.ok_or_else(|| Failure::of_value("a connection has no number"))?;
        epoch.live.lock().insert(id);
        self.live = Some(Live { epoch: Arc::clone(epoch), id });
        if self.name(epoch.number)? {
            return Ok(());
        }
        self.end_others(epoch.number, |id| !epoch.live.lock().contains(&id))?;
        match self.name(epoch.number)? {
            true => Ok(()),
            false => Err(Failure::away("too many connections of this process are there")),
        }
    }

    /// Ends connections of an epoch's process.
    pub(super) fn end_others(&mut self, epoch: i64, is_gone: impl Fn(u64) -> bool) -> Result<(), Failure> {
        for number in 0..Self::NAMED_MAX {
            let holder = self.number(&format!("SELECT IS_USED_LOCK({})", epoch_lock(epoch, number)))?;
            if let Some(id) = holder.filter(|id| is_gone(*id)) {
                // It may end by itself meanwhile.
                let ended = self.execute(&format!("KILL CONNECTION {id}"));
                tracing::debug!(connection = id, was_there = ended.is_ok(), "ended a connection of an earlier time");
            }
        }
        Ok(())
    }

    fn number(&mut self, statement: &str) -> Result<Option<u64>, Failure> {
        Ok(self.row(statement)?.map(|mut row| row.take::<Option<u64>>(0)).transpose()?.flatten())
    }

    /// What a server is, and how it is set up. Says so in the log where a loss of power could take what is committed.
    pub fn settings(&mut self) -> Result<Settings, Failure> {
        let settings =
            "SELECT CONNECTION_ID(), @@max_allowed_packet, @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog";
        let mut row = self.row(settings)?.ok_or_else(|| Failure::of_value("the server has no settings"))?;
        let flush: u64 = row.take(2)?;
        let (has_binlog, sync_binlog): (u64, u64) = (row.take(3)?, row.take(4)?);
        if flush != 1 || (has_binlog != 0 && sync_binlog != 1) {
            tracing::warn!(
                innodb_flush_log_at_trx_commit = flush,
                log_bin = has_binlog != 0,
                sync_binlog,
                "the database can lose acknowledged writes when its machine fails: set innodb_flush_log_at_trx_commit, and \
                 sync_binlog where it has a binary log, to 1"
            );
        }
        Ok(Settings { connection_id: row.take(0)?, packet_bytes_max: row.take(1)? })
    }

    /// Has nothing asked of it any more.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
    }

    pub(super) fn call<T>(&mut self, work: impl AsyncFnOnce(&mut Conn) -> Result<T, Failure>) -> Result<T, Failure> {
        if self.is_lost {
            return Err(Failure::away("the connection was lost"));
        }
        let conn = self.conn.0.as_mut().ok_or_else(|| Failure::away("the connection has ended"))?;
        let called = self.driver.block_on(work(conn));
        self.is_lost = called.as_ref().is_err_and(Failure::is_away);
        self.used = Instant::now();
        called
    }
}

/// Waits for an answer, but not for ever.
pub(super) async fn answered<T>(work: impl Future<Output = mysql_async::Result<T>>) -> Result<T, Failure> {
    match timeout(ANSWER_TIMEOUT, work).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(silent(ANSWER_TIMEOUT)),
    }
}

fn silent(after: Duration) -> Failure {
    Failure::away(&format!("the database has not answered for {} seconds", after.as_secs()))
}

/// A row of an answer.
pub struct Found(Row);

impl Found {
    /// Takes the value of a column out.
    ///
    /// Errors: it is none of this type.
    pub fn take<T: FromValue>(&mut self, column: usize) -> Result<T, Failure> {
        match self.0.take_opt(column) {
            Some(Ok(value)) => Ok(value),
            Some(Err(_)) | None => {
                Err(Failure::of_value(&format!("column {} of an answer has another type", column + 1)))
            }
        }
    }
}
