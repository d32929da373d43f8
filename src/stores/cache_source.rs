//! Fills the watch caches of standbys: all objects of a kind, then each event as it happens.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::MemberName,
    store::{Audience, Cursor, Entry, Interest, LAST_EVENT_WITHIN, LAST_EVENTS_WITHIN, ReadAfter, Revision, Snapshot},
    stores::{
        MAY_TELL_AGAIN, Running, Stores,
        cache_frames::{WatchCacheAsked, Written},
    },
};
use kubefold_sql::MayTell;
use kubefold_wire::{
    body::{Body, BodyError},
    watch::EventType,
};

/// Records read from the log at once, and bytes of their objects.
const RECORDS_MAX: usize = 1024;
const RECORDS_BYTES_MAX: usize = 1 << 20;
/// Bytes of objects after which others get their turn.
const CHUNK_BYTES: usize = 256 << 10;
/// How often it is looked whose last known state is shown.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What one watch cache is filled from.
struct Source {
    stores: Weak<Stores>,
    running: Arc<Running>,
    /// The members that there were when it began. With others it begins anew: somebody may see those alone.
    members: HashSet<MemberName>,
    cursor: Cursor,
    changes: watch::Receiver<u64>,
    /// Objects that it has not got, of a snapshot and behind a key.
    unsent: Option<(Snapshot, Vec<u8>)>,
    out: Written,
    /// It knows all up to there.
    reached: Revision,
    stale: Vec<String>,
    look_at: Instant,
    /// This process ends.
    ending: CancellationToken,
    /// Then the last events are waited for until then.
    last_by: Option<Instant>,
    is_over: bool,
}

impl Stores {
    /// What fills a watch cache, for as long as it is read. It ends at once where the kind cannot be read here.
    pub fn watch_cache_source(&self, asked: WatchCacheAsked) -> Body {
        let stores = self.this.clone();
        let begun = stream::once(async move { Source::begin(stores, asked).await });
        let frames = begun.filter_map(async |source| source).flat_map(|source| {
            stream::unfold(source, |source| async {
                let (chunk, source) = source.next().await?;
                Some((Ok::<_, BodyError>(Frame::data(chunk)), source))
            })
        });
        StreamBody::new(Box::pin(frames)).boxed_unsync()
    }
}

impl Source {
    /// What is asked for, or all objects first where that is no longer in the log.
    async fn begin(stores: Weak<Stores>, asked: WatchCacheAsked) -> Option<Self> {
        let stores = stores.upgrade()?;
        let running = Box::pin(stores.ready(&asked.gvr, None)).await.ok()?.running;
        // Before the objects: who joins later is not among these members.
        let members: HashSet<MemberName> = stores.shared().naming.members().iter().cloned().collect();
        let digest = Audience::of(members.iter().cloned()).digest().unwrap_or_default();
        let after = asked.after.filter(|(_, known)| *known == digest);
        let after = after.filter(|(after, _)| running.store.begins(*after, &Interest::Everything));
        let cursor = after.and_then(|(after, _)| running.store.cursor(after, &Interest::Everything).ok());
        let (unsent, cursor) = match cursor {
            Some(cursor) => (None, cursor),
            None => {
                let (snapshot, cursor) = running.store.snapshot_and_cursor(Revision(0), &Interest::Everything);
                (Some((snapshot, Vec::new())), cursor)
            }
        };
        let mut out = Written::default();
        out.begins(running.store.spec(), unsent.is_some(), digest);
        Some(Self {
            changes: running.store.changes(&cursor),
            reached: cursor.revision,
            ending: stores.cancel.clone(),
            stores: Arc::downgrade(&stores),
            running,
            members,
            cursor,
            unsent,
            out,
            stale: Vec::new(),
            look_at: Instant::now(),
            last_by: None,
            is_over: false,
        })
    }

    /// The next frames. `None`: it cannot go on.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        while !self.is_over {
            match self.stores.upgrade()?.may_tell() {
                MayTell::Yes => {}
                MayTell::Unclear => {
                    sleep(MAY_TELL_AGAIN).await;
                    continue;
                }
                MayTell::No => break,
            }
            if self.unsent.is_some() {
                self.fill()?;
            } else {
                self.changes.borrow_and_update();
                self.read()?;
                self.look()?;
            }
            if self.running.store.is_ended() {
                self.out.ended();
                self.is_over = true;
            }
            if !self.out.0.is_empty() {
                return Some((std::mem::take(&mut self.out.0).into(), self));
            }
            if !self.wait().await {
                break;
            }
        }
        None
    }

    /// Waits until there may be something to tell. Says whether more may come: while this process ends the last events do, as to its
    /// own watches.
    async fn wait(&mut self) -> bool {
        let now = Instant::now();
        match self.last_by {
            None => {
                tokio::select! {
                    _ = self.changes.changed() => {}
                    () = sleep_until(self.look_at) => {}
                    () = self.ending.cancelled() => self.last_by = Some(now + LAST_EVENTS_WITHIN),
                }
                true
            }
            Some(last_by) => timeout_at(last_by.min(now + LAST_EVENT_WITHIN), self.changes.changed()).await.is_ok(),
        }
    }

    /// Some objects more.
    fn fill(&mut self) -> Option<()> {
        let Some((snapshot, after)) = &mut self.unsent else { return Some(()) };
        self.cursor.moves();
        let mut last = None;
        for entry in snapshot.range("", after) {
            if !knows(&self.members, entry) {
                return None;
            }
            self.out.object(entry);
            if self.out.0.len() >= CHUNK_BYTES {
                last = Some(entry.key().to_vec());
                break;
            }
        }
        match last {
            Some(last) => *after = last,
            None => {
                self.out.filled(snapshot.revision);
                self.unsent = None;
            }
        }
        Some(())
    }

    /// What has happened.
    fn read(&mut self) -> Option<()> {
        let mut records = Vec::new();
        let read = self.running.store.read(&mut self.cursor, RECORDS_MAX, RECORDS_BYTES_MAX, &mut records);
        if read == ReadAfter::Expired {
            return None;
        }
        // What only those are told of who see some parts of an object: nobody is answered so from a watch cache.
        for record in records.iter().filter(|record| !record.is_of_parts()) {
            self.reached = record.revision;
            match record.event_type {
                EventType::Deleted => self.out.removed(record.entry.key(), record.revision),
                _ if !knows(&self.members, &record.entry) => return None,
                _ => self.out.put(&record.entry),
            }
        }
        if self.cursor.revision > self.reached {
            self.reached = self.cursor.revision;
            self.out.reached(self.reached);
        }
        Some(())
    }

    /// Whose last known state is shown, if that is time.
    fn look(&mut self) -> Option<()> {
        if Instant::now() < self.look_at {
            return Some(());
        }
        self.look_at = Instant::now() + LOOK_EVERY;
        let stores = self.stores.upgrade()?;
        let naming = Arc::clone(&stores.shared().naming);
        let now = naming.members();
        if now.len() != self.members.len() || !now.iter().all(|member| self.members.contains(member)) {
            return None;
        }
        let now = stores.stale(&self.running);
        let now: Vec<String> = now.iter().map(ToString::to_string).collect();
        if now != self.stale {
            self.out.stale(&now);
            self.stale = now;
        }
        Some(())
    }
}

/// Says whether an object is of these members alone.
fn knows(members: &HashSet<MemberName>, entry: &Entry) -> bool {
    entry.holders.iter().all(|holder| members.contains(holder))
}
