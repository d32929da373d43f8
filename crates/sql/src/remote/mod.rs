//! State on a server of databases: one process has it at a time, and what another process may not write is not written.
//!
//! A process has a lease (`lease`): a row that it changes every moment, with an epoch. Each transaction begins by looking for
//! that epoch (`session`), and locks the row against the next holder until it ends. So a process that lost its lease, without
//! knowing it yet, stores nothing any more; what it does elsewhere it does while [`Postgres::check`] says so. Others are a
//! [`Candidate`] until the row is free, or does not change.

mod announcing;
mod candidate;
mod files;
mod lease;
mod mark;
mod replicas;
mod session;
mod standing;

use std::{fmt, mem, path::PathBuf, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{Handle, Runtime},
    task::JoinSet,
    time::timeout,
};

use self::{
    mark::Mark,
    standing::{Held, Standing},
};
use crate::{
    SqlError,
    backend::{Announcement, RemoteError, Replica},
    server::{Dialer, Server},
};

pub(crate) use self::session::Session;
pub use self::{
    candidate::{Candidate, LOOK_EVERY, Waits},
    files::SharedFiles,
    standing::{MayTell, RemoteFigures},
};

/// How long a start waits for another process that may be gone.
const TAKE_WAIT: Duration = Duration::from_secs(5);
/// How long a process that ends waits until it has said so.
const RELEASE_WAIT: Duration = Duration::from_secs(3);

/// State in a database on a server, which this process alone writes.
pub struct RemoteState {
    server: Server,
    standing: Arc<Standing>,
    epoch: i64,
    is_restored: bool,
    /// The highest number that earlier processes reserved.
    number: i64,
    /// Keeps the lease.
    guard: JoinSet<()>,
    /// What drives the connections. `None` while this is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl fmt::Debug for RemoteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteState")
            .field("standing", &self.standing)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl RemoteState {
    /// Takes a database, and makes these schemas where they are not there; the first has what says who has it. A process that
    /// would wait for another one is a [`Candidate`].
    ///
    /// `mark` is a file outside of the database, which tells a database that was restored from a backup.
    ///
    /// Blocks: 30 s at most while the server cannot be reached, and 5 s while another process has the database. Errors: see
    /// [`RemoteError`].
    pub fn open(server: Server, schemas: &[&str], mark: PathBuf) -> Result<Arc<Self>, RemoteError> {
        Candidate::new(server, schemas, mark)?.take()
    }

    /// A database that was taken. `runtime` drives the connections.
    fn of(held: Held, server: &Server, mark: Mark, runtime: Runtime) -> Arc<Self> {
        let (epoch, is_restored, number) = (held.epoch, held.is_restored, held.number);
        // Whoever takes it next ends the connections of the epoch.
        let server = server.of_epoch(epoch);
        let standing = Arc::new(Standing::new(&server, &held, mark));
        let handle = runtime.handle().clone();
        let keeping = lease::keep(held, server.clone(), Arc::clone(&standing));
        let announcing = announcing::keep(epoch, server.clone(), Arc::clone(&standing));
        let left = Arc::clone(&standing);
        let mut guard = JoinSet::new();
        guard.spawn_on(
            async move {
                futures::join!(keeping, announcing);
                left.leave();
            },
            &handle,
        );
        let runtime = Some(runtime);
        Arc::new(Self { server, standing, epoch, number, is_restored, guard, runtime, handle })
    }

    /// Connections to a schema of it, by which the next process knows whose they are.
    pub fn dialer(&self, schema: &str) -> Dialer {
        self.server.dialer(schema, self.handle.clone())
    }

    /// Says whether this process may act as the one that has the database, by its own clock: the lease was renewed a moment ago.
    /// Costs nothing.
    ///
    /// Errors: why it may not, now or ever again.
    pub fn check(&self) -> Result<(), SqlError> {
        self.standing.check()
    }

    /// Says whether this process may tell what it knows. Costs little.
    pub fn may_tell(&self) -> MayTell {
        self.standing.may_tell()
    }

    /// Waits until this process may not write any more, and says why.
    ///
    /// Cancel: safe.
    pub async fn lost(&self) -> String {
        self.standing.is_over().await
    }

    /// Has this process write nothing more, and the next one begin without waiting. A process that drops this does the same,
    /// without a word about when.
    ///
    /// Cancel: the next one begins a few seconds later.
    pub async fn release(&self) {
        self.standing.release();
        if timeout(RELEASE_WAIT, self.standing.is_left()).await.is_err() {
            tracing::warn!(
                place = self.place(),
                "the state could not be left to another process: it waits for a moment"
            );
        }
    }

    /// The highest number that processes reserved before this one.
    pub fn number(&self) -> u64 {
        u64::try_from(self.number).unwrap_or_default()
    }

    /// Asks that later holders are told of a number: that theirs has to be above it. Gives the one of which they would be told by
    /// now; what was asked for is kept a moment later.
    pub fn reserve(&self, number: u64) -> u64 {
        let kept = self.standing.reserve(i64::try_from(number).unwrap_or(i64::MAX));
        u64::try_from(kept).unwrap_or_default()
    }

    /// The same, and waits until it is kept.
    ///
    /// Cancel: safe.
    pub async fn reserved(&self, number: u64) {
        self.standing.reserved(i64::try_from(number).unwrap_or(i64::MAX)).await;
    }

    /// Tells the other processes that use the database where this one can be reached, from now on.
    pub fn announce(&self, of: Announcement) {
        self.standing.announce(of);
    }

    /// Whether this process has said that.
    pub fn has_announced(&self) -> bool {
        self.standing.announced().is_some()
    }

    /// The processes that use the database and say so, as of a few seconds ago. Costs nothing.
    pub fn replicas(&self) -> Vec<Replica> {
        self.standing.replicas()
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// What the server is called: `PostgreSQL`.
    pub fn engine(&self) -> &'static str {
        self.server.engine()
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
    pub fn figures(&self) -> RemoteFigures {
        self.standing.figures()
    }
}

impl Drop for RemoteState {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.standing.release();
        let standing = Arc::clone(&self.standing);
        let mut guard = mem::take(&mut self.guard);
        // Waiting for it is not allowed where a future is dropped.
        let leaving = thread::Builder::new().name("sql-remote-end".to_owned()).spawn(move || {
            runtime.block_on(async { drop(timeout(RELEASE_WAIT, standing.is_left()).await) });
            guard.abort_all();
            runtime.shutdown_background();
        });
        if let Err(error) = leaving {
            tracing::warn!(%error, "the state is not left to another process: it waits for a moment");
        }
    }
}
