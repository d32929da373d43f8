//! A process that would have a database, and waits until it may.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use tokio::{runtime::Builder, time::Instant};

use super::{
    RemoteState, TAKE_WAIT,
    lease::{self, Looked, Watched, answered, prompt},
    mark::Mark,
    replicas::ANNOUNCE_EVERY,
};
use crate::{
    SqlError,
    backend::{Announcement, Holder, Keeper, RemoteError},
    blocking::block,
    server::Server,
};

/// How long a start waits for a server that cannot be reached.
const START_WAIT: Duration = Duration::from_secs(30);
/// Between two tries of that.
const START_PAUSE: Duration = Duration::from_secs(1);
/// How often to look. See [`Candidate::look`].
pub const LOOK_EVERY: Duration = lease::LOOK_EVERY;

/// A process that would have a database, and has nothing of it yet.
pub struct Candidate {
    server: Server,
    mark: Mark,
    /// `None` once it is the holder's.
    runtime: Option<tokio::runtime::Runtime>,
    keeper: Option<Box<dyn Keeper>>,
    watched: Option<Watched>,
    announcement: Option<Announcement>,
    announced: Option<Instant>,
    waits: Waits,
}

/// What a candidate waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Who has the database, as far as was seen.
    pub holder: Option<Holder>,
    /// Which of its times it is: another one begins with another number.
    pub epoch: i64,
    /// Where the holder can be reached, `host:port`; absent while it has not said so.
    pub address: Option<String>,
    /// Why the database could not be asked the last time.
    pub error: Option<String>,
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate").field("waits", &self.waits).finish_non_exhaustive()
    }
}

impl Candidate {
    /// Connects, and makes these schemas where they are not there; the first has what says who has the database.
    ///
    /// `mark` is a file outside of the database, which tells a database that was restored from a backup.
    ///
    /// Blocks: 30 s at most while the server cannot be reached. Errors: see [`RemoteError`].
    pub fn new(server: Server, schemas: &[&str], mark: PathBuf) -> Result<Self, RemoteError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("sql-remote").enable_all().build()?;
        let mark = Mark::new(mark);
        let mut this = Self {
            server,
            mark,
            runtime: Some(runtime),
            keeper: None,
            watched: None,
            announcement: None,
            announced: None,
            waits: Waits::default(),
        };
        let (began, mut is_told) = (Instant::now(), false);
        loop {
            match this.prepare(schemas) {
                Err(RemoteError::Sql(error)) if error.is_away() && began.elapsed() < START_WAIT => {
                    if !std::mem::replace(&mut is_told, true) {
                        let (place, engine) = (this.server.place(), this.server.engine());
                        tracing::warn!(place, %error, "{engine} cannot be reached; trying for {START_WAIT:?}");
                    }
                    std::thread::sleep(START_PAUSE);
                }
                prepared => return prepared.map(|()| this),
            }
        }
    }

    fn prepare(&mut self, schemas: &[&str]) -> Result<(), RemoteError> {
        let Self { server, runtime, .. } = &*self;
        let runtime = runtime.as_ref().ok_or_else(SqlError::ended)?;
        let prepared = block(runtime.handle(), async {
            let keeper = answered(server.keeper()).await?;
            keeper.prepare(schemas).await?;
            Ok::<_, RemoteError>(keeper)
        });
        self.keeper = Some(prepared?);
        Ok(())
    }

    /// Takes the database, unless another process has it and lives.
    ///
    /// Blocks: 5 s at most. Errors: the server cannot be reached, or that process has it.
    pub fn take(mut self) -> Result<Arc<RemoteState>, RemoteError> {
        let began = Instant::now();
        loop {
            if let Some(taken) = self.look() {
                return Ok(taken);
            }
            if began.elapsed() >= TAKE_WAIT {
                return Err(match self.waits {
                    Waits { holder: Some(ref holder), error: None, .. } => RemoteError::InUse(holder.clone()),
                    Waits { ref error, .. } => SqlError::away(error.clone().unwrap_or_default()).into(),
                });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Looks whether nobody has the database, and takes it then. To be called again and again, [`LOOK_EVERY`]: the time between
    /// two looks that were both answered is what a holder that does not answer is judged by.
    ///
    /// Blocks: a few seconds at most.
    pub fn look(&mut self) -> Option<Arc<RemoteState>> {
        match self.try_look() {
            Ok(Looked::Taken(held)) => {
                let runtime = self.runtime.take()?;
                let taken = RemoteState::of(*held, &self.server, self.mark.clone(), runtime);
                self.announcement.take().into_iter().for_each(|of| taken.announce(of));
                return Some(taken);
            }
            Ok(Looked::Held(found, watched)) => {
                self.watched = Some(watched);
                let address = self.exchange().unwrap_or_else(|error| {
                    // A connection that is lost is found to be so by the next look.
                    tracing::debug!(%error, "it is not known where the process is that has the state");
                    let is_same = self.waits.epoch == found.epoch;
                    self.waits.address.take().filter(|_| is_same)
                });
                self.waits = Waits { holder: Some(found.holder), epoch: found.epoch, address, error: None };
            }
            Err(error) => {
                // The holder may not reach it either.
                (self.watched, self.keeper) = (None, None);
                self.waits.error = Some(error.to_string());
            }
        }
        None
    }

    fn try_look(&mut self) -> Result<Looked, SqlError> {
        let Self { server, mark, runtime, keeper, watched, .. } = self;
        let runtime = runtime.as_ref().ok_or_else(SqlError::ended)?;
        block(runtime.handle(), async {
            if keeper.as_ref().is_none_or(|keeper| keeper.is_closed()) {
                *keeper = Some(prompt(server.keeper()).await?);
                *watched = None;
            }
            lease::look(keeper, *watched, mark).await
        })
    }

    /// Tells the other processes where this one can be reached, from the next look on, and once it has the database.
    pub fn announce(&mut self, of: Announcement) {
        (self.announcement, self.announced) = (Some(of), None);
    }

    /// Says that this process is there, and asks where the holder is.
    fn exchange(&mut self) -> Result<Option<String>, SqlError> {
        let Self { runtime, keeper, announcement, announced, .. } = self;
        let runtime = runtime.as_ref().ok_or_else(SqlError::ended)?;
        let keeper = keeper.as_ref().ok_or_else(SqlError::ended)?;
        let (all, renewed) = block(
            runtime.handle(),
            prompt(async {
                let is_due = announced.is_none_or(|at| at.elapsed() >= ANNOUNCE_EVERY);
                if let Some(of) = announcement.as_ref().filter(|_| is_due) {
                    keeper.announce(of, 0).await?;
                }
                Ok((keeper.replicas().await?, is_due))
            }),
        )?;
        if renewed {
            *announced = Some(Instant::now());
        }
        Ok(all.into_iter().find(|replica| replica.is_holder).map(|holder| holder.address))
    }

    /// What it waits for.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// As a log may say it: without user, password and parameters.
    pub fn place(&self) -> String {
        self.server.place()
    }

    /// The files that all processes share, by name.
    ///
    /// Blocks. Errors: the database cannot be read.
    pub fn files(&mut self) -> Result<BTreeMap<String, Vec<u8>>, SqlError> {
        let Self { server, runtime, keeper, .. } = self;
        let runtime = runtime.as_ref().ok_or_else(SqlError::ended)?;
        block(runtime.handle(), async {
            if keeper.as_ref().is_none_or(|keeper| keeper.is_closed()) {
                *keeper = Some(prompt(server.keeper()).await?);
            }
            answered(keeper.as_ref().ok_or_else(SqlError::ended)?.files()).await
        })
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting for it is not allowed where a future is dropped.
            runtime.shutdown_background();
        }
    }
}
