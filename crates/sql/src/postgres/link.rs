//! A connection to PostgreSQL whose calls block.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    mem,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use rustls::ClientConfig;
use tokio::{runtime::Handle, task::JoinSet, time::timeout};
use tokio_postgres::{
    Client, Config, NoTls, Row, Statement,
    config::{Host, SslMode},
    types::BorrowToSql,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{blocking::block, error::SqlError, postgres::value::numbered, value::Value};

/// For a connection to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that is gone without a word is given up after so long.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);
/// Until an answer begins, and between two of its rows. The server ends a statement before, which is an answer, too.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// What a session has on its own: the server ends a statement, a wait for a lock, and a transaction that was left open.
const SESSION: &str = "
SET statement_timeout = '10s';
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '30s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local');
";
/// Statements that stay prepared.
const PREPARED_MAX: usize = 256;
/// Statements that are sent before the first of them is answered.
const PIPELINED_MAX: usize = 64;

/// How a database is reached, for who holds a connection of its own.
#[derive(Clone, Debug)]
pub struct Dialer {
    config: Config,
    tls: ClientConfig,
    schema: Option<String>,
    runtime: Handle,
}

impl Dialer {
    /// A database by a connection string of libpq, and a schema in the place of its search path. `tls` is used if the server
    /// has TLS and `sslmode` does not forbid it; `runtime` drives the connections.
    ///
    /// Errors: the URL says nothing that can be reached.
    pub fn new(url: &str, tls: ClientConfig, schema: Option<&str>, runtime: Handle) -> Result<Self, SqlError> {
        Ok(Self { config: url.parse()?, tls, schema: schema.map(str::to_owned), runtime })
    }

    pub(crate) fn of(config: Config, tls: ClientConfig, schema: &str, runtime: Handle) -> Self {
        Self { config, tls, schema: Some(schema.to_owned()), runtime }
    }

    /// Connects. A statement, and a wait for a lock, end after 10 s.
    ///
    /// Blocks. Errors: nobody listens, or the server refuses.
    pub fn connect(&self) -> Result<Link, SqlError> {
        let Self { config, tls, schema, runtime } = self;
        let connecting = async {
            let driven = connect(config, tls).await?;
            if let Some(schema) = schema {
                let path = format!("SET search_path TO {schema}");
                answered(async { Ok(driven.client.batch_execute(&path).await?) }).await?;
            }
            Ok::<_, SqlError>(driven)
        };
        let driven = block(runtime, connecting)?;
        let (prepared, lead, is_lost) = (RefCell::default(), RefCell::default(), Cell::default());
        Ok(Link { driven, runtime: runtime.clone(), prepared, lead, is_lost })
    }
}

/// A connection, and what drives it. It ends with this.
pub(crate) struct Driven {
    pub(crate) client: Client,
    driver: JoinSet<()>,
}

/// Connects, with TLS unless that is forbidden or the socket is this machine's. Called where a runtime is.
///
/// Errors: nobody listens, or the server refuses.
pub(crate) async fn connect(config: &Config, tls: &ClientConfig) -> Result<Driven, SqlError> {
    let mut config = config.clone();
    config.connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(GONE_TIMEOUT);
    let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    let connecting = async {
        let connected: (Client, BoxFuture<'static, _>) = if is_local || config.get_ssl_mode() == SslMode::Disable {
            let (client, connection) = config.connect(NoTls).await?;
            (client, Box::pin(connection))
        } else {
            let (client, connection) = config.connect(MakeRustlsConnect::new(tls.clone())).await?;
            (client, Box::pin(connection))
        };
        Ok(connected)
    };
    let (client, connection) = answered(Box::pin(connecting)).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL has ended");
        }
    });
    answered(async { Ok(client.batch_execute(SESSION).await?) }).await?;
    Ok(Driven { client, driver })
}

/// Waits for an answer, but not for ever.
pub(crate) async fn answered<T>(work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
    match timeout(ANSWER_TIMEOUT, work).await {
        Ok(answer) => answer,
        Err(_) => Err(SqlError::away(format!("PostgreSQL has not answered for {} seconds", ANSWER_TIMEOUT.as_secs()))),
    }
}

/// A connection whose calls block. Statements have SQLite's numbered parameters, and stay prepared.
pub struct Link {
    driven: Driven,
    runtime: Handle,
    prepared: RefCell<HashMap<Box<str>, Statement>>,
    /// What is sent before the next statement, without a wait of its own.
    lead: RefCell<String>,
    /// It did not answer: what it has done since is not known.
    is_lost: Cell<bool>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("is_lost", &self.is_lost()).finish_non_exhaustive()
    }
}

impl Link {
    /// Says whether nothing can be asked of it any more.
    pub fn is_lost(&self) -> bool {
        self.is_lost.get() || self.driven.client.is_closed()
    }

    /// Closes it, and waits until it is closed: the next one finds its locks free. Blocks; what drives it has to run elsewhere.
    pub fn end(mut self) {
        block(&self.runtime.clone(), self.driven.driver.shutdown());
    }

    /// Has a statement go before the next one.
    pub fn lead(&self, statement: &str) {
        let mut lead = self.lead.borrow_mut();
        lead.push_str(statement);
        lead.push(';');
    }

    /// Waits for an answer, behind that of what leads.
    fn call<T>(&self, work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
        if self.is_lost() {
            return Err(SqlError::away("the connection to PostgreSQL was lost".to_owned()));
        }
        let lead = mem::take(&mut *self.lead.borrow_mut());
        let client = &self.driven.client;
        let called = block(&self.runtime, async {
            if lead.is_empty() {
                return work.await;
            }
            // Both are sent at once, in this order.
            let leading = answered(async { Ok(client.batch_execute(&lead).await?) });
            let (led, done) = futures::join!(leading, work);
            led.and(done)
        });
        if called.as_ref().is_err_and(SqlError::is_away) {
            self.is_lost.set(true);
        }
        called
    }

    /// Prepares a statement.
    pub fn prepare(&self, statement: &str) -> Result<Statement, SqlError> {
        if let Some(prepared) = self.prepared.borrow().get(statement) {
            return Ok(prepared.clone());
        }
        let text = numbered(statement);
        let prepared = self.call(answered(async { Ok(self.driven.client.prepare(&text).await?) }))?;
        let mut all = self.prepared.borrow_mut();
        if all.len() >= PREPARED_MAX {
            all.clear();
        }
        all.insert(statement.into(), prepared.clone());
        Ok(prepared)
    }

    /// Executes a statement, and says how many rows it changed.
    pub fn execute<I>(&self, statement: &Statement, values: I) -> Result<usize, SqlError>
    where
        I: IntoIterator<Item: BorrowToSql, IntoIter: ExactSizeIterator>,
    {
        let executed = async { Ok(self.driven.client.execute_raw(statement, values).await?) };
        let changed = self.call(answered(executed))?;
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    /// Executes it for the parameters of many rows: the next ones are sent before the first is answered.
    pub(crate) fn execute_all<'v>(
        &self,
        statement: &Statement,
        rows: impl Iterator<Item = Vec<Value<'v>>>,
    ) -> Result<(), SqlError> {
        let client = &self.driven.client;
        let sent = stream::iter(rows)
            .map(|row| answered(async move { Ok(client.execute_raw(statement, row).await?) }))
            .buffered(PIPELINED_MAX);
        self.call(sent.try_for_each(|_| futures::future::ready(Ok(()))))
    }

    /// Reads an answer row by row. `take` asks nothing of the connection.
    pub fn each(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
        mut take: impl FnMut(&Row) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.call(async {
            let asked = self.driven.client.query_raw(statement, values.iter().copied());
            let mut rows = Box::pin(answered(async { Ok(asked.await?) }).await?);
            while let Some(row) = answered(async { Ok(rows.try_next().await?) }).await? {
                take(&row)?;
            }
            Ok(())
        })
    }

    /// Executes statements that have no parameters.
    pub fn batch(&self, statements: &str) -> Result<(), SqlError> {
        self.call(answered(async { Ok(self.driven.client.batch_execute(statements).await?) }))
    }

    /// Forgets what was to go before the next statement.
    pub(crate) fn clear(&self) {
        self.lead.borrow_mut().clear();
    }

    /// Commits. Errors: nothing is stored, unless the outcome is unknown.
    pub fn commit(&self) -> Result<(), SqlError> {
        let lead = mem::take(&mut *self.lead.borrow_mut());
        let client = &self.driven.client;
        let mut is_refused = false;
        let committed = self.call(async {
            let leading = answered(async { Ok(client.batch_execute(&lead).await?) });
            let committing = answered(async { Ok(client.batch_execute("COMMIT").await?) });
            let (led, committed) = futures::join!(leading, committing);
            // A commit after a statement that failed undoes everything, without an error.
            is_refused = led.as_ref().is_err_and(|error| !error.is_away());
            led.and(committed)
        });
        committed.map_err(|error| if is_refused { error } else { error.in_commit() })
    }
}
