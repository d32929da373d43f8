//! Connections for reads that may take long, beside the one that writes: no write waits for a read on one of them.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::{
    engine::Engine,
    error::SqlError,
    remote::{RemoteState, Session},
    statement::Sql,
};

/// Connections of one database. Each is opened when it is needed first.
const READERS_MAX: usize = 2;
/// Reads that wait for one of them, each with a thread of its own. Further ones are refused.
const WAITING_MAX: usize = 32;
/// How long one waits.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A bounded pool of connections.
pub(crate) struct Readers {
    open: Open,
    places: Mutex<Places>,
    freed: Condvar,
}

type Open = Box<dyn Fn() -> Result<Engine, SqlError> + Send + Sync>;

#[derive(Debug)]
struct Places {
    /// Connections that nobody uses.
    idle: Vec<Engine>,
    /// How many more may be used.
    free: usize,
    waiting: usize,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("places", &self.places).finish_non_exhaustive()
    }
}

impl Readers {
    pub(crate) fn of_file(path: &Path) -> Self {
        let path = path.to_owned();
        Self::new(Box::new(move || Engine::open_to_read(&path)))
    }

    pub(crate) fn of_schema(state: &Arc<RemoteState>, schema: &str, tables: Arc<[String]>) -> Self {
        let (state, schema) = (Arc::clone(state), schema.to_owned());
        let session = move || Session::new(Arc::clone(&state), &schema, Arc::clone(&tables));
        Self::new(Box::new(move || Ok(Engine::Remote(Box::new(session())))))
    }

    fn new(open: Open) -> Self {
        let places = Places { idle: Vec::new(), free: READERS_MAX, waiting: 0 };
        Self { open, places: Mutex::new(places), freed: Condvar::new() }
    }

    /// Reads as of one moment.
    ///
    /// Blocks. Errors: a statement failed, or the server cannot be reached; too many read, or wait to.
    pub(crate) fn read<T>(&self, work: impl FnOnce(Sql<'_>) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let mut taken = self.take()?;
        let mut engine = taken.engine.take().map_or_else(&self.open, Ok)?;
        let done = engine.read(work);
        taken.engine = Some(engine);
        done
    }

    fn take(&self) -> Result<Taken<'_>, SqlError> {
        let mut places = self.places.lock();
        if places.free == 0 {
            if places.waiting >= WAITING_MAX {
                return Err(SqlError::away(format!("{WAITING_MAX} searches wait for the database already")));
            }
            places.waiting += 1;
            let waited = self.freed.wait_while_for(&mut places, |places| places.free == 0, WAIT_MAX);
            places.waiting -= 1;
            if waited.timed_out() && places.free == 0 {
                let seconds = WAIT_MAX.as_secs();
                return Err(SqlError::away(format!(
                    "{READERS_MAX} other searches keep the database busy for {seconds} s"
                )));
            }
        }
        places.free -= 1;
        let engine = places.idle.pop();
        Ok(Taken { readers: self, engine })
    }
}

/// One of the places, until this is dropped.
struct Taken<'a> {
    readers: &'a Readers,
    engine: Option<Engine>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut places = self.readers.places.lock();
        places.idle.extend(self.engine.take());
        places.free += 1;
        drop(places);
        self.readers.freed.notify_one();
    }
}
