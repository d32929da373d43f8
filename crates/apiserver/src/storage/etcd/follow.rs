//! The cache follows etcd: by one watch over all keys, which goes on where it was after a connection is lost.
//!
//! An etcd that was restored from a snapshot says nothing of it. Its revisions go back, and what is in the cache and not in the
//! snapshot never was. So before each watch the last change of the cache is looked up: what etcd has otherwise is read anew,
//! and every watch and revision of before is compacted.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};

use crate::storage::{
    Change,
    cache::{Cache, State, Told},
    change::Tip,
    etcd::{
        client::{Client, Watch, one},
        error::Failure,
        keys::Keys,
        load,
        messages::{Event, RangeRequest, revision_of, unsigned},
    },
};

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What those who read share with who follows.
#[derive(Default)]
pub(super) struct Shared {
    /// Somebody waits for a revision that the watch has not told.
    pub(super) wanted: Notify,
    /// Why the cache does not follow now.
    pub(super) fault: Mutex<Option<Failure>>,
}

pub(super) struct Follower {
    pub(super) client: Arc<Client>,
    pub(super) keys: Keys,
    pub(super) cache: Arc<Cache>,
    pub(super) shared: Arc<Shared>,
    /// The newest change that the cache has.
    pub(super) last: Option<Last>,
}

/// A change that etcd has, unless it was restored from a snapshot of before.
#[derive(Clone, Debug, Default)]
pub(super) struct Last {
    place: Bytes,
    revision: u64,
    /// `None`: the key is gone.
    value: Option<Bytes>,
}

/// All keys at a revision.
pub(super) async fn read(client: &Client, keys: &Keys, revision: u64) -> Result<(State, Option<Last>), Failure> {
    let (mut state, mut last) = (State::empty(), None::<Last>);
    let take = |record: crate::storage::Record, kv: &super::messages::KeyValue| {
        if last.as_ref().is_none_or(|last| last.revision < record.revision) {
            last = Some(Last { place: kv.key.clone(), revision: record.revision, value: Some(kv.value.clone()) });
        }
        state.absorb(&Change { revision: record.revision, before: None, after: Some(record) });
    };
    load::each(client, keys, revision, take).await?;
    state.begin_log(revision);
    Ok((state, last))
}

impl Follower {
    /// Follows until it is dropped.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE;
        loop {
            let before = self.cache.read().head();
            let failure = match self.follow().await {
                Failure::Compacted => match self.begin_anew().await {
                    Ok(()) => continue,
                    Err(failure) => failure,
                },
                failure => failure,
            };
            if self.shared.fault.lock().replace(failure.clone()).is_none() {
                tracing::error!(error = failure.why(), "the storage's watch has ended; it is begun again");
            }
            pause = if self.cache.read().head() == before { (pause * 2).min(PAUSE_MAX) } else { PAUSE };
            sleep(pause).await;
        }
    }

    /// Follows until the watch ends, and says why it did. `Compacted`: the cache has to be read anew.
    async fn follow(&mut self) -> Failure {
        match self.is_same().await {
            Ok(true) => {}
            Ok(false) => return Failure::Compacted,
            Err(failure) => return failure,
        }
        let next = self.cache.read().tip().revision + 1;
        let mut watch = match self.client.watch(self.keys.all(), next).await {
            Ok(watch) => watch,
            Err(failure) => return failure,
        };
        loop {
            let told = self.told(&mut watch).await;
            if let Err(failure) = told {
                return failure;
            }
        }
    }

    async fn told(&mut self, watch: &mut Watch) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        let told = tokio::select! {
            told = watch.next() => told?,
            () = shared.wanted.notified() => {
                watch.ask_progress();
                return Ok(());
            }
        };
        if told.canceled {
            return Err(match told.compact_revision {
                0 => Failure::Lost(format!("the watch was canceled: {}", told.cancel_reason)),
                _ => Failure::Compacted,
            });
        }
        if told.created {
            watch.ask_progress();
            return Ok(());
        }
        let newest = match told.events.last().and_then(|event| event.kv.as_ref()) {
            Some(last) => unsigned(last.mod_revision),
            // How far it is.
            None => revision_of(told.header.as_ref()),
        };
        let changes =
            told.events.iter().filter_map(|event| self.change(event).transpose()).collect::<Result<_, _>>()?;
        self.cache.follow(changes, newest);
        if self.shared.fault.lock().take().is_some() {
            tracing::info!("the storage is followed again");
        }
        if let Some(last) = told.events.into_iter().rev().find(|event| self.is_of_object(event)) {
            self.last = last.kv.map(|kv| Last {
                place: kv.key,
                revision: unsigned(kv.mod_revision),
                value: (last.kind == 0).then_some(kv.value),
            });
        }
        Ok(())
    }

    fn is_of_object(&self, event: &Event) -> bool {
        event.kv.as_ref().is_some_and(|kv| self.keys.key_at(&kv.key).is_some())
    }

    fn change(&self, event: &Event) -> Result<Option<Told>, Failure> {
        let Some(kv) = &event.kv else { return Ok(None) };
        let Some(key) = self.keys.key_at(&kv.key) else { return Ok(None) };
        let value = if event.kind == 0 { Some(load::value(&kv.key, &kv.value)?) } else { None };
        Ok(Some(Told { key, value, revision: unsigned(kv.mod_revision) }))
    }

    /// Says whether etcd has the cache's last change.
    async fn is_same(&self) -> Result<bool, Failure> {
        let tip = self.cache.read().tip().revision;
        let newest = load::newest(&self.client, &self.keys).await?;
        let Some(Last { place, revision, value }) = &self.last else { return Ok(newest >= tip) };
        let there = match self.client.range(one(place.clone(), *revision)).await {
            Err(Failure::Future) => return Ok(false),
            // It is told by what is there now, if nothing changed the key since.
            Err(Failure::Compacted) => self.client.range(one(place.clone(), 0)).await?,
            there => there?,
        };
        let is_there = match (value, there.kvs.first()) {
            (Some(value), Some(kv)) => unsigned(kv.mod_revision) == *revision && kv.value == *value,
            (None, None) => self.was_there(place, *revision - 1).await?,
            _ => false,
        };
        Ok(is_there && newest >= tip)
    }

    /// Says whether a key was there at a revision, as far as etcd still knows.
    async fn was_there(&self, place: &Bytes, revision: u64) -> Result<bool, Failure> {
        let range = RangeRequest { count_only: true, ..one(place.clone(), revision) };
        match self.client.range(range).await {
            Err(Failure::Compacted) => Ok(true),
            there => Ok(there?.count > 0),
        }
    }

    /// Reads all that is there. Watches of before end.
    async fn begin_anew(&mut self) -> Result<(), Failure> {
        let newest = load::newest(&self.client, &self.keys).await?;
        let (state, last) = read(&self.client, &self.keys, newest).await?;
        tracing::warn!(
            revision = newest,
            "etcd was restored, or has forgotten what changed while it was not reached: every revision of before is compacted"
        );
        let tip = Tip { revision: newest, ..state.tip() };
        self.cache.replace(state.map().clone(), tip);
        self.last = last;
        Ok(())
    }
}
