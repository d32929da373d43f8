//! Group commit: one thread judges writes in order, stores them in batches, and answers once a batch is stored.
//!
//! Writes that wait while a batch is stored are the next one, so many writers share one `fsync`. The cache, and with it
//! every reader and watcher, has a change only after it is stored. A batch that is not stored leaves nothing.

use std::{io, mem, sync::Arc, thread};

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::storage::{
    Change, Record, StorageError, When,
    cache::{Cache, Raised},
    change::{Tip, Write, judge},
};

/// Writes that wait for the thread. Further ones wait for a place.
const QUEUE_MAX: usize = 1024;
/// Writes that are stored at once.
const BATCH_MAX: usize = 512;
/// Units: bytes. A batch takes no more writes once it has so many.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Stored changes that a batch removes, beside as many as it makes.
const DEAD_MAX: usize = 1024;

const CLOSED: &str = "it is closed";

/// Makes batches durable. What it has stored is there after any end of the process.
pub(super) trait Log: Send + 'static {
    /// Stores a batch whole, or nothing of it. Blocks.
    ///
    /// Errors: `Full` and `Unavailable`: nothing is stored. `Unknown`: it may be stored; see [`Self::settle`].
    fn store(&mut self, batch: Stored) -> Result<(), StorageError>;

    /// Says whether the batch before is stored, whose outcome was `Unknown`. Blocks. Nothing else is stored before that is
    /// known.
    ///
    /// Errors: it is still not known.
    fn settle(&mut self) -> Result<bool, StorageError>;

    /// Has the next batch begin after a revision, and forgets what was before it. Blocks.
    ///
    /// Errors: those of [`Self::store`]. After `Unknown` nothing more is stored.
    fn raise(&mut self, to: u64) -> Result<(), StorageError>;

    /// Tries whether something can be stored. Blocks.
    fn probe(&mut self) -> Result<(), StorageError>;
}

/// A log, and all that was read from it.
pub(super) struct Opened<L> {
    pub(super) log: L,
    pub(super) cache: Arc<Cache>,
    /// Revisions of stored changes that nobody needs.
    pub(super) dead: Vec<u64>,
}

/// What a [`Log`] stores in one transaction.
pub(super) struct Stored {
    /// In the order of their revisions, without gaps.
    pub(super) changes: Vec<Arc<Change>>,
    /// The oldest revision that is remembered.
    pub(super) floor: u64,
    /// Revisions whose changes nobody needs: later ones, of which none is newer than `floor`, took their place.
    pub(super) dead: Vec<u64>,
}

/// Hands writes to the thread.
pub(super) struct Writer {
    queue: mpsc::Sender<Request>,
    health: Arc<Health>,
}

/// Why the last write was not stored, unless it was or had no room.
#[derive(Default)]
struct Health(Mutex<Option<String>>);

type Answer<T> = oneshot::Sender<Result<T, StorageError>>;

enum Request {
    Write(Queued),
    Compact { before: u64, answer: Answer<()> },
    Raise { to: u64, answer: Answer<u64> },
    Probe { answer: Answer<()> },
    Close { closed: oneshot::Sender<()> },
}

struct Queued {
    key: String,
    value: Option<Bytes>,
    when: When,
    answer: Answer<u64>,
}

impl Writer {
    /// Starts the thread. `open` runs in it; the thread ends when the writer is closed or dropped.
    ///
    /// Errors: there is no thread, or those of `open`.
    pub(super) async fn start<L: Log, E: From<io::Error> + Send + 'static>(
        open: impl FnOnce() -> Result<Opened<L>, E> + Send + 'static,
    ) -> Result<(Self, Arc<Cache>), E> {
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        let (opened, is_open) = oneshot::channel();
        let health = Arc::<Health>::default();
        let shared = Arc::clone(&health);
        let run = move || match open() {
            Err(error) => drop(opened.send(Err(error))),
            Ok(Opened { log, cache, dead }) => {
                if opened.send(Ok(Arc::clone(&cache))).is_ok() {
                    Thread { log, cache, health: shared, dead, doubtful: Vec::new() }.run(requests);
                }
            }
        };
        thread::Builder::new().name("storage".to_owned()).spawn(run)?;
        let cache = is_open.await.unwrap_or_else(|_| Err(io::Error::other("the thread has ended").into()))?;
        Ok((Self { queue, health }, cache))
    }

    /// Writes, and returns once that is stored. Answers the revision of the change.
    pub(super) async fn write(&self, key: &str, value: Option<Bytes>, when: When) -> Result<u64, StorageError> {
        let key = key.to_owned();
        self.ask(|answer| Request::Write(Queued { key, value, when, answer })).await
    }

    pub(super) async fn compact(&self, before: u64) -> Result<(), StorageError> {
        self.ask(|answer| Request::Compact { before, answer }).await
    }

    /// See [`Storage::raise`](crate::storage::Storage::raise).
    pub(super) async fn raise(&self, to: u64) -> Result<u64, StorageError> {
        self.ask(|answer| Request::Raise { to, answer }).await
    }

    /// Says whether something can be stored. Only after a failure that takes the log's time.
    pub(super) async fn ready(&self) -> Result<(), StorageError> {
        if self.queue.is_closed() {
            return Err(StorageError::Unavailable(CLOSED.to_owned()));
        }
        if self.health.0.lock().is_none() {
            return Ok(());
        }
        self.ask(|answer| Request::Probe { answer }).await
    }

    pub(super) async fn close(&self) {
        let (closed, is_closed) = oneshot::channel();
        // Either is an error where the thread has ended, as wanted.
        if self.queue.send(Request::Close { closed }).await.is_ok() {
            let _ended = is_closed.await;
        }
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, StorageError> {
        let (answer, answered) = oneshot::channel();
        let queued = self.queue.send(request(answer)).await;
        queued.map_err(|_| StorageError::Unavailable(CLOSED.to_owned()))?;
        answered.await.unwrap_or_else(|_| Err(StorageError::Unknown("its thread has ended".to_owned())))
    }
}

struct Thread<L> {
    log: L,
    cache: Arc<Cache>,
    health: Arc<Health>,
    /// Revisions of stored changes that nobody needs, and that are to be removed.
    dead: Vec<u64>,
    /// Of a batch whose outcome is not known.
    doubtful: Vec<Arc<Change>>,
}

impl<L: Log> Thread<L> {
    fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut next = requests.blocking_recv();
        while let Some(request) = next.take() {
            match request {
                Request::Write(first) => next = self.batch(first, &mut requests),
                Request::Compact { before, answer } => {
                    let dead = self.cache.compact(before);
                    self.dead.extend(dead);
                    let _unwanted = answer.send(self.store_all_dead());
                }
                Request::Raise { to, answer } => {
                    let raised = self.raise(to);
                    let _unwanted = answer.send(raised);
                }
                Request::Probe { answer } => {
                    let probed = self.settle().and_then(|()| self.log.probe());
                    self.note(&probed);
                    let _unwanted = answer.send(probed);
                }
                Request::Close { closed } => {
                    requests.close();
                    refuse(requests);
                    drop(self.log);
                    let _unwanted = closed.send(());
                    return;
                }
            }
            if next.is_none() {
                next = requests.blocking_recv();
            }
        }
    }

    /// Stores a write with those that wait. Answers what waits behind them.
    fn batch(&mut self, first: Queued, requests: &mut mpsc::Receiver<Request>) -> Option<Request> {
        if let Err(error) = self.settle() {
            self.note(&Err(error.clone()));
            let _unwanted = first.answer.send(Err(StorageError::Unavailable(error.to_string())));
            return None;
        }
        let mut batch = Batch::new(Arc::clone(&self.cache));
        batch.add(first);
        let next = loop {
            if batch.answers.len() >= BATCH_MAX || batch.bytes >= BATCH_BYTES_MAX {
                break None;
            }
            match requests.try_recv() {
                Ok(Request::Write(queued)) => batch.add(queued),
                Ok(other) => break Some(other),
                Err(_) => break None,
            }
        };
        let stored = match batch.changes.len() {
            // Nothing held, and what is there instead is committed.
            0 => Ok(()),
            count => self.store(batch.changes, count + DEAD_MAX),
        };
        for (answer, judged) in batch.answers {
            // Whatever it was judged by is not there.
            let told = stored.clone().and(judged);
            let _unwanted = answer.send(told);
        }
        next
    }

    /// Finds out what became of a batch whose outcome was not known, and shows it to readers if it is stored.
    fn settle(&mut self) -> Result<(), StorageError> {
        if !self.doubtful.is_empty() {
            let is_stored = self.log.settle()?;
            let changes = mem::take(&mut self.doubtful);
            if is_stored {
                let dead = self.cache.commit(changes);
                self.dead.extend(dead);
            }
        }
        Ok(())
    }

    /// Stores changes, removes up to so many that are dead, and shows the changes to readers.
    fn store(&mut self, changes: Vec<Arc<Change>>, dead_max: usize) -> Result<(), StorageError> {
        let dead = self.dead.split_off(self.dead.len().saturating_sub(dead_max));
        let batch = Stored { changes: changes.clone(), floor: self.cache.read().floor(), dead: dead.clone() };
        let stored = self.log.store(batch);
        self.note(&stored);
        if let Err(error) = stored {
            self.dead.extend(dead);
            if matches!(error, StorageError::Unknown(_)) {
                self.doubtful = changes;
            }
            return Err(error);
        }
        if !changes.is_empty() {
            let dead = self.cache.commit(changes);
            self.dead.extend(dead);
        }
        Ok(())
    }

    fn raise(&mut self, to: u64) -> Result<u64, StorageError> {
        self.settle()?;
        if to > self.cache.read().tip().revision {
            let raised = self.log.raise(to);
            self.note(&raised);
            raised?;
        }
        let Raised { revision, dead } = self.cache.raise(to);
        self.dead.extend(dead);
        self.store_all_dead().map(|()| revision)
    }

    /// Remembers the floor, and removes all that is dead.
    fn store_all_dead(&mut self) -> Result<(), StorageError> {
        self.settle()?;
        loop {
            self.store(Vec::new(), DEAD_MAX)?;
            if self.dead.is_empty() {
                return Ok(());
            }
        }
    }

    fn note(&self, stored: &Result<(), StorageError>) {
        let failed = match stored {
            // A disk that is full serves reads, and may have room for the next write.
            Ok(()) | Err(StorageError::Full(_)) => None,
            Err(error) => Some(error.to_string()),
        };
        let before = mem::replace(&mut *self.health.0.lock(), failed.clone());
        match (before, failed) {
            (None, Some(error)) => tracing::error!(error, "the storage stores nothing"),
            (Some(_), None) => tracing::info!("the storage stores again"),
            _ => {}
        }
    }
}

/// Tells what still waits that nothing of it was done.
fn refuse(mut requests: mpsc::Receiver<Request>) {
    let closed = || StorageError::Unavailable(CLOSED.to_owned());
    while let Ok(request) = requests.try_recv() {
        match request {
            Request::Write(queued) => drop(queued.answer.send(Err(closed()))),
            Request::Compact { answer, .. } | Request::Probe { answer } => drop(answer.send(Err(closed()))),
            Request::Raise { answer, .. } => drop(answer.send(Err(closed()))),
            Request::Close { closed } => drop(closed.send(())),
        }
    }
}

/// Writes that are stored together.
struct Batch {
    cache: Arc<Cache>,
    tip: Tip,
    changes: Vec<Arc<Change>>,
    /// What the changes leave of the keys that they are about.
    newest: HashMap<Arc<str>, Option<Record>>,
    answers: Vec<(Answer<u64>, Result<u64, StorageError>)>,
    /// Of the values.
    bytes: usize,
}

impl Batch {
    fn new(cache: Arc<Cache>) -> Self {
        let tip = cache.read().tip();
        Self { cache, tip, changes: Vec::new(), newest: HashMap::new(), answers: Vec::new(), bytes: 0 }
    }

    /// Judges a write by what those before it leave.
    fn add(&mut self, queued: Queued) {
        let Queued { key, value, when, answer } = queued;
        let before = match self.newest.get(key.as_str()) {
            Some(newest) => newest.clone(),
            None => self.cache.read().record(&key),
        };
        self.bytes += value.as_ref().map_or(0, Bytes::len);
        let judged = judge(&self.tip, before, Write { key: &key, value, when }, self.cache.bounds());
        let judged = judged.map(|change| {
            let change = Arc::new(change);
            self.tip = self.tip.after(&change);
            self.newest.insert(change.key().into(), change.after.clone());
            self.changes.push(Arc::clone(&change));
            change.revision
        });
        self.answers.push((answer, judged));
    }
}
