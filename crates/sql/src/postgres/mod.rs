//! State in PostgreSQL: one process has it at a time, and what another process may not write is not written.
//!
//! A process holds an advisory lock, on a connection of its own (`lease`), and an epoch in the row of the holder. Each
//! transaction begins by looking for that epoch (`session`), and locks the row against the next holder until it ends. So a
//! process that lost its lock, without knowing it yet, stores nothing any more.

mod error;
mod lease;
mod link;
mod mark;
mod session;
mod standing;

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use rustls::ClientConfig;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_postgres::Config;

use self::{lease::Held, link::block, mark::Mark, standing::Standing};
use crate::error::why;

pub(crate) use self::session::Session;
pub use self::standing::{Holder, PostgresFigures};
pub use self::{
    error::{PostgresError, identity_of},
    link::{Dialer, Link},
};

/// How long a start waits for a server that cannot be reached.
const START_WAIT: Duration = Duration::from_secs(30);
/// Between two tries of that.
const START_PAUSE: Duration = Duration::from_secs(1);

/// State in a database of PostgreSQL, which this process alone writes.
pub struct Postgres {
    config: Config,
    tls: ClientConfig,
    standing: Arc<Standing>,
    epoch: i64,
    is_restored: bool,
    /// Holds the lock.
    _guard: JoinSet<()>,
    /// What drives the connections. `None` while this is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("standing", &self.standing).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Takes a database, and makes these schemas where they are not there; the first has what says who has it.
    ///
    /// `url` is a connection string of libpq; `tls` is used if the server has TLS and `sslmode` does not forbid it. `mark` is a
    /// file outside of the database, which tells a database that was restored from a backup.
    ///
    /// Blocks: 30 s at most while the server cannot be reached, and 5 s while another process has the database. Errors: see
    /// [`PostgresError`].
    pub fn open(url: &str, tls: ClientConfig, schemas: &[&str], mark: PathBuf) -> Result<Arc<Self>, PostgresError> {
        let config = Config::from_str(url).map_err(|error| PostgresError::Url(why(&error)))?;
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("sql-postgres").enable_all().build()?;
        let handle = runtime.handle().clone();
        let mark = Mark::new(mark);
        let taken = block(&handle, take(&config, &tls, schemas, &mark));
        let held = match taken {
            Ok(held) => held,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let (epoch, is_restored) = (held.epoch, held.is_restored);
        let standing = Arc::new(Standing::new(told(&config), held.beat, mark));
        let mut guard = JoinSet::new();
        guard.spawn_on(lease::keep(held, config.clone(), tls.clone(), Arc::clone(&standing)), &handle);
        let runtime = Some(runtime);
        Ok(Arc::new(Self { config, tls, standing, epoch, is_restored, _guard: guard, runtime, handle }))
    }

    /// As a log may say it: without user, password and parameters.
    pub fn place(&self) -> &str {
        self.standing.place()
    }

    /// Says whether the database is older than what this process's predecessor had, or another one: it was restored from a
    /// backup.
    pub fn is_restored(&self) -> bool {
        self.is_restored
    }

    /// How it goes with the database.
    pub fn figures(&self) -> PostgresFigures {
        self.standing.figures()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting for it is not allowed where a future is dropped.
            runtime.shutdown_background();
        }
    }
}

/// Takes the database, and waits a while for a server that cannot be reached.
async fn take(config: &Config, tls: &ClientConfig, schemas: &[&str], mark: &Mark) -> Result<Held, PostgresError> {
    let began = Instant::now();
    loop {
        match lease::take(config, tls, schemas, mark).await {
            Err(PostgresError::Sql(error)) if error.is_away() && began.elapsed() < START_WAIT => {
                tracing::warn!(place = told(config), %error, "PostgreSQL cannot be reached; trying again");
                sleep(START_PAUSE).await;
            }
            taken => return taken,
        }
    }
}

/// A database as a log may say it.
fn told(config: &Config) -> String {
    let host = config.get_hosts().first().map_or_else(String::new, |host| match host {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
    });
    let port = config.get_ports().first().map(|port| format!(":{port}")).unwrap_or_default();
    format!("postgres://{host}{port}/{}", config.get_dbname().or_else(|| config.get_user()).unwrap_or_default())
}
