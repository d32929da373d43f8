//! A storage in etcd, as a kube-apiserver uses it: its keys, its transactions, its revisions, its compactions.
//!
//! Writes are etcd's own transactions on the revision of a key (`client`). A cache has all keys and values, and follows etcd by
//! one watch (`follow`). Each read first asks etcd for its newest revision and waits until the cache has that, so that it sees
//! what any process has written. A revision that the cache has forgotten is read from etcd.
//!
//! Objects lie where a kube-apiserver has them (`keys`), as JSON (`values`). Several servers may serve one etcd.

mod client;
mod compactor;
mod definition;
mod error;
mod follow;
mod keys;
mod load;
mod messages;
#[cfg(test)]
mod tests;
mod values;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use http::Uri;
use rustls::ClientConfig;
use tokio::time::timeout;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::{
    client::{Client, one},
    follow::{Follower, Shared},
    keys::{Keys, Span},
    messages::{Compare, Compared, DeleteRangeRequest, Operation, PutRequest, TxnRequest, revision_of, signed},
};
use crate::storage::{
    Bounds, Page, Range, Record, Stamp, Storage, StorageError, Usage, WatchItem, When,
    cache::Cache,
    change::{Write, judge},
    cursor,
};

pub use error::EtcdError;

use error::Failure;

/// The keys of a kube-apiserver. Source: kubernetes/apiserver `pkg/server/options/etcd.go`, `--etcd-prefix`.
const PREFIX: &str = "/registry";
/// Source: as above, `--etcd-compaction-interval`.
const COMPACTION_INTERVAL: Duration = Duration::from_mins(5);
/// For the watch to tell what etcd has.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);
/// For all of the changes that are remembered, at the start.
const REPLAY_TIMEOUT: Duration = Duration::from_mins(5);
/// After so long it is asked how far it is: what changed is not of these keys.
const PROGRESS_AFTER: Duration = Duration::from_millis(5);
/// Between two such questions.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

const CLOSED: &str = "it is closed";

/// Where etcd is, and what of it is used.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Its members, such as `https://10.0.0.1:2379`.
    pub members: Vec<Uri>,
    /// What all keys begin with.
    pub prefix: String,
    /// How the members' certificates are checked, and the certificate that is shown to them.
    pub tls: ClientConfig,
    /// How often revisions are forgotten that are older than this. `None`: others do that.
    pub compaction_interval: Option<Duration>,
}

impl EtcdOptions {
    /// As a kube-apiserver by default.
    pub fn new(members: Vec<Uri>, tls: ClientConfig) -> Self {
        Self { members, prefix: PREFIX.to_owned(), tls, compaction_interval: Some(COMPACTION_INTERVAL) }
    }
}

/// A storage in etcd. It has all keys and values in memory, too.
pub struct Etcd {
    client: Arc<Client>,
    keys: Keys,
    cache: Arc<Cache>,
    shared: Arc<Shared>,
    tasks: TaskTracker,
    closed: CancellationToken,
    _end: DropGuard,
}

impl Etcd {
    /// Connects, and reads all that is there, with the changes that etcd and `bounds` have it remember.
    ///
    /// Errors: see [`EtcdError`].
    pub async fn open(options: EtcdOptions, bounds: Bounds) -> Result<Self, EtcdError> {
        let EtcdOptions { members, prefix, tls, compaction_interval } = options;
        let (client, keys) = (Arc::new(Client::new(&members, tls)), Keys::below(&prefix));
        let newest = load::newest(&client, &keys).await?;
        let history = u64::try_from(bounds.log_changes_max).unwrap_or(u64::MAX);
        let (state, last) = loop {
            let oldest = load::oldest(&client, &keys, newest.saturating_sub(history).max(1)).await?;
            match follow::read(&client, &keys, oldest).await {
                // Somebody compacts.
                Err(Failure::Compacted) => {}
                read => break read?,
            }
        };
        let cache = Arc::new(Cache::new(state, bounds));
        let (shared, tasks, closed) = (Arc::<Shared>::default(), TaskTracker::new(), CancellationToken::new());
        let follower = Follower {
            client: Arc::clone(&client),
            keys: keys.clone(),
            cache: Arc::clone(&cache),
            shared: Arc::clone(&shared),
            last,
        };
        tasks.spawn(closed.clone().run_until_cancelled_owned(follower.run()));
        if let Some(interval) = compaction_interval {
            tasks.spawn(closed.clone().run_until_cancelled_owned(compactor::run(Arc::clone(&client), interval)));
        }
        let end = closed.clone().drop_guard();
        let storage = Self { client, keys, cache, shared, tasks, closed, _end: end };
        storage.reach(newest, REPLAY_TIMEOUT).await?;
        Ok(storage)
    }

    /// Waits until the cache has all that etcd has now. Answers etcd's revision.
    async fn fresh(&self) -> Result<u64, StorageError> {
        self.check_open()?;
        let before = self.cache.read().head();
        let newest = load::newest(&self.client, &self.keys).await.map_err(Failure::of_read)?;
        if newest < before.revision {
            // It was restored. What it has is in the cache after the next restart of the watch, which has ended.
            let mut heads = self.cache.heads();
            let restored = timeout(REACH_TIMEOUT, heads.wait_for(|head| head.era != before.era)).await;
            if restored.is_err() {
                return Err(self.not_reached(newest).of_read());
            }
        }
        self.reach(newest, REACH_TIMEOUT).await.map_err(Failure::of_read)?;
        Ok(newest)
    }

    /// Waits until the cache is at a revision.
    async fn reach(&self, revision: u64, within: Duration) -> Result<(), Failure> {
        let mut heads = self.cache.heads();
        let reached = async {
            let mut pause = PROGRESS_AFTER;
            while timeout(pause, heads.wait_for(|head| head.revision >= revision)).await.is_err() {
                // Nobody but an operator ends that.
                if let Some(failure @ Failure::Unreadable { .. }) = &*self.shared.fault.lock() {
                    return Err(failure.clone());
                }
                self.shared.wanted.notify_one();
                pause = PROGRESS_INTERVAL;
            }
            Ok(())
        };
        tokio::select! {
            reached = timeout(within, reached) => reached.unwrap_or_else(|_| Err(self.not_reached(revision))),
            () = self.closed.cancelled() => Err(Failure::Refused(CLOSED.to_owned())),
        }
    }

    fn not_reached(&self, revision: u64) -> Failure {
        let fault = self.shared.fault.lock().clone().map(Failure::why).unwrap_or_default();
        Failure::Lost(format!("its watch does not come to revision {revision}: {fault}"))
    }

    fn check_open(&self) -> Result<(), StorageError> {
        if self.closed.is_cancelled() { Err(StorageError::Unavailable(CLOSED.to_owned())) } else { Ok(()) }
    }

    /// Changes a key that is as a writer has it.
    async fn write(&self, key: &str, value: Option<Bytes>, when: When) -> Result<u64, StorageError> {
        self.check_open()?;
        self.check_room(key, value.as_ref(), when)?;
        let place = self.keys.place_of(key);
        let revision = match when {
            When::Absent => 0,
            When::At(revision) => signed(revision),
        };
        let change = match value {
            Some(value) => Operation::Put(PutRequest { key: place.clone(), value: values::outward(value) }),
            None => Operation::DeleteRange(DeleteRangeRequest { key: place.clone() }),
        };
        let txn = TxnRequest {
            compare: vec![Compare::new(place.clone(), Compared::ModRevision(revision))],
            success: vec![change.into()],
            failure: vec![Operation::Range(one(place, 0)).into()],
        };
        let answer = self.client.txn(txn).await.map_err(Failure::of_write)?;
        if !answer.succeeded {
            let there = answer.found().map(|kv| load::record(&self.keys, &kv)).transpose();
            return Err(StorageError::Unmet(there.map_err(Failure::of_read)?.flatten()));
        }
        let revision = revision_of(answer.header.as_ref());
        // It is made, whatever the cache knows of it: who reads it waits for the cache.
        let _is_told = self.reach(revision, REACH_TIMEOUT).await;
        Ok(revision)
    }

    /// Errors: a bound is reached. Conditions are etcd's to judge.
    fn check_room(&self, key: &str, value: Option<&Bytes>, when: When) -> Result<(), StorageError> {
        let state = self.cache.read();
        let write = Write { key, value: value.cloned(), when };
        match judge(&state.tip(), state.record(key), write, self.cache.bounds()) {
            Err(full @ StorageError::Full(_)) => Err(full),
            _ => Ok(()),
        }
    }

    /// Keys as they were at a revision that the cache has forgotten.
    async fn range_in_etcd(&self, range: &Range<'_>) -> Result<Page, StorageError> {
        let failed = |failure| match failure {
            Failure::Compacted => StorageError::Compacted { asked: range.at, oldest: self.cache.read().floor() },
            other => Failure::of_read(other),
        };
        let after = range.after.filter(|after| *after >= range.prefix);
        let (records, count) = match self.keys.span_of(range.prefix) {
            Some(span) => {
                let span = match after {
                    Some(after) if after.starts_with(range.prefix) => {
                        Span { from: load::after(&self.keys.place_of(after)), end: span.end }
                    }
                    // It is behind all of them.
                    Some(_) => Span { from: span.end.clone(), end: load::after(&span.end) },
                    None => span,
                };
                load::page(&self.client, &self.keys, span, range.at, range.limit).await.map_err(failed)?
            }
            None => {
                let mut records = Vec::<Record>::new();
                let is_wanted = |key: &str| key.starts_with(range.prefix) && after.is_none_or(|after| key > after);
                let take = |record: Record, _: &_| records.extend(is_wanted(&record.key).then_some(record));
                load::each(&self.client, &self.keys, range.at, take).await.map_err(failed)?;
                records.sort_unstable_by(|one, other| one.key.cmp(&other.key));
                let count = records.len() as u64;
                records.truncate(if range.limit == 0 { usize::MAX } else { range.limit });
                (records, count)
            }
        };
        let remaining = count.saturating_sub(records.len() as u64);
        Ok(Page { records, revision: range.at, more: remaining > 0, remaining: range.count.then_some(remaining) })
    }
}

impl Storage for Etcd {
    fn revision(&self) -> BoxFuture<'_, Result<u64, StorageError>> {
        Box::pin(self.fresh())
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(Option<Record>, u64), StorageError>> {
        Box::pin(async move {
            self.fresh().await?;
            Ok(self.cache.get(key))
        })
    }

    fn range<'a>(&'a self, range: Range<'a>) -> BoxFuture<'a, Result<Page, StorageError>> {
        Box::pin(async move {
            if range.at == 0 || range.at > self.cache.read().tip().revision {
                self.fresh().await?;
            }
            match self.cache.range(&range) {
                Err(StorageError::Compacted { .. }) => self.range_in_etcd(&range).await,
                read => read,
            }
        })
    }

    fn stamp<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Option<Stamp>, StorageError>> {
        Box::pin(async move {
            self.fresh().await?;
            Ok(Some(self.cache.stamp(prefix)))
        })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, when: When) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(self.write(key, Some(value), when))
    }

    fn delete<'a>(&'a self, key: &'a str, at: u64) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(self.write(key, None, When::At(at)))
    }

    fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem, StorageError>>, StorageError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            if after > self.cache.read().tip().revision {
                self.fresh().await?;
            }
            cursor::watch(&self.cache, &prefix, after)
        })
    }

    fn compact(&self, before: u64) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move {
            let revision = before.min(self.fresh().await?);
            match self.client.compact(revision).await {
                Ok(()) | Err(Failure::Compacted) => {}
                Err(failure) => return Err(failure.of_write()),
            }
            self.cache.compact(revision);
            Ok(())
        })
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async { self.fresh().await.map(drop) })
    }

    fn usage(&self) -> Option<Usage> {
        Some(self.cache.read().tip().into())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.closed.cancel();
            self.tasks.close();
            self.tasks.wait().await;
        })
    }
}
