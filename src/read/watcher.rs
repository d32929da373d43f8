//! The body of a watch: the objects of its beginning, then what happens to them.

use std::{
    borrow::Cow, collections::VecDeque, future::poll_fn, ops::ControlFlow, pin::Pin, sync::Arc, task::Poll,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::watch,
    time::{Instant, Sleep, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{
    access::{Following, Renewed},
    answer::form::Form,
    read::{
        answer::CHUNK_BYTES,
        differences::{Difference, Differences},
        filter::Filter,
        list::has_room,
        turns::Pace,
        walk::Walk,
    },
    respond::ReadError,
    store::{
        Audience, Cursor, Entry, FleetStore, FrameKey, Interest, LAST_EVENT_WITHIN, LAST_EVENTS_WITHIN, RETAINED_FOR,
        ReadAfter, Record, Revision, Selector, Snapshot, Transition,
    },
    stores::MAY_TELL_AGAIN,
};
use kubefold_serving::{
    audit::{self, Notes},
    packed::Step,
};
use kubefold_sql::MayTell;
use kubefold_wire::{status::Status, watch::EventType};

/// Records read from the log at once.
const RECORDS_MAX: usize = 256;
/// Bytes of their objects.
const RECORDS_BYTES_MAX: usize = 1 << 20;
/// What of a frame surrounds the object.
const FRAME_BYTES: usize = 64;
/// About each minute, as a kube-apiserver.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// So long before its deadline a watch says how far it came. Source: kubernetes/apiserver `cacher/cache_watcher.go`.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How often a watch looks whether every member is current, and again for what it could not take in.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// In this time a client has taken the objects of a watch's beginning: they are held for it. As long as a continue token
/// lives.
pub(super) const BEGUN_WITHIN: Duration = RETAINED_FOR;

/// Whether anything may be told.
#[derive(Clone)]
pub(super) struct Telling {
    /// Ends every watch cleanly: kubefold is going.
    pub(super) drain: CancellationToken,
    /// Another process may have taken this one's place.
    pub(super) may_tell: Arc<dyn Fn() -> MayTell + Send + Sync>,
}

/// Names the members that are down now, for bookmarks.
pub(super) type Stale = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// What a watch is to give, and until when.
pub(super) struct Watched {
    pub(super) filter: Filter,
    pub(super) interest: Interest,
    pub(super) form: Form,
    /// The client takes bookmarks.
    pub(super) bookmarks: bool,
    /// It waits for one behind the objects of the beginning.
    pub(super) end_bookmark: bool,
    pub(super) deadline: Instant,
    /// The objects of the beginning are to be given until then.
    pub(super) begun_by: Instant,
    /// An object that the client knows by another version of the kind: its existence is not an event.
    pub(super) known: Option<Arc<Entry>>,
    pub(super) stale: Stale,
    /// Ends the watch when a member is not current any more.
    pub(super) is_strict: bool,
    /// What becomes of the caller's rights; absent where none are asked for.
    pub(super) rights: Option<Following>,
    /// In whose turns it gives the objects of its beginning.
    pub(super) pace: Pace,
    pub(super) telling: Telling,
}

/// A watch as it goes out.
pub(super) struct Watcher {
    store: Arc<FleetStore>,
    watched: Watched,
    selector: Option<Selector>,
    cursor: Cursor,
    changes: watch::Receiver<u64>,
    phase: Phase,
    next_bookmark: Option<Instant>,
    next_look: Option<Instant>,
    /// Events that were read and have not been told.
    unsent: VecDeque<Arc<Record>>,
    /// For the next event in time, of whatever kind it is. Kept, as making one takes a lock that all share.
    alarm: Pin<Box<Sleep>>,
    drained: Pin<Box<WaitForCancellationFutureOwned>>,
    /// While kubefold ends: all events of the kind, and until when they are waited for.
    last: Option<(watch::Receiver<u64>, Instant)>,
    /// An event went out.
    has_told: bool,
    over: bool,
    /// Of its request's audit event.
    notes: Option<Notes>,
}

/// How far a watch is.
enum Phase {
    /// It gives the objects of its beginning.
    Beginning(Box<Walk>),
    /// That took longer than the log reaches: it looks for what has changed since, by comparing.
    Comparing(Differences),
    /// And gives it.
    CatchingUp(Events, Snapshot),
    /// It follows the log.
    Following,
}

/// What has changed, oldest first.
type Events = std::vec::IntoIter<Difference>;

/// What became of reading the log.
enum Read {
    Chunk(Bytes),
    /// Events there were, but none for this watcher.
    Skipped,
    Nothing,
}

impl Watcher {
    /// A watch that begins with the objects of `walk`, if there is one, and follows the log from where `cursor` is.
    pub(super) fn new(store: &Arc<FleetStore>, watched: Watched, cursor: Cursor, walk: Option<Walk>) -> Self {
        let now = Instant::now();
        let filter = &watched.filter;
        Self {
            selector: (!filter.is_namespace_only()).then(|| store.selector(&format!("{filter:?}"))),
            changes: store.changes(&cursor),
            cursor,
            phase: walk.map_or(Phase::Following, |walk| Phase::Beginning(Box::new(walk))),
            next_bookmark: next_bookmark(watched.bookmarks, now, watched.deadline),
            next_look: watched.is_strict.then_some(now + LOOK_EVERY),
            unsent: VecDeque::new(),
            alarm: Box::pin(sleep_until(watched.deadline)),
            drained: Box::pin(watched.telling.drain.clone().cancelled_owned()),
            last: None,
            has_told: false,
            over: watched.deadline <= now,
            notes: audit::notes(),
            store: Arc::clone(store),
            watched,
        }
    }

    /// The next bytes; `None` is a clean end.
    pub(super) async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut held = None;
        loop {
            if self.over {
                return None;
            }
            match (self.watched.telling.may_tell)() {
                MayTell::Yes => {}
                MayTell::Unclear => {
                    sleep(MAY_TELL_AGAIN).await;
                    continue;
                }
                // What it would tell is not what the other one does. Its client goes on there.
                MayTell::No => return None,
            }
            if let Some(end) = self.look() {
                return Some(end);
            }
            if !matches!(self.phase, Phase::Following) {
                // A right may be gone once the turn has come: that is looked at again.
                if held.is_none() {
                    held = Some(poll_fn(|cx| self.watched.pace.poll_turn(cx)).await);
                    continue;
                }
                let chunk = self.begin();
                drop(held.take());
                if chunk.is_some() {
                    return chunk;
                }
                tokio::task::yield_now().await;
                continue;
            }
            if Instant::now() >= self.watched.deadline {
                // However much there is to tell.
                return None;
            }
            self.changes.borrow_and_update();
            match self.read() {
                Read::Chunk(chunk) => return Some(chunk),
                Read::Skipped => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Read::Nothing => {}
            }
            if self.store.is_ended() {
                return None;
            }
            if self.next_bookmark.is_some_and(|at| at <= Instant::now()) {
                self.next_bookmark = next_bookmark(true, Instant::now(), self.watched.deadline);
                return Some(self.bookmark(false).into());
            }
            if !self.watched.telling.drain.is_cancelled() {
                self.wait().await;
            } else if !self.hears_more().await {
                self.over = true;
                if self.next_bookmark.is_some() {
                    return Some(self.bookmark(false).into());
                }
            }
        }
    }

    /// Ends the watch once a member is not current, in the strict view, or once a right was withdrawn.
    fn look(&mut self) -> Option<Bytes> {
        let is_time = self.next_look.is_some_and(|at| at <= Instant::now());
        if is_time {
            self.next_look = self.watched.is_strict.then(|| Instant::now() + LOOK_EVERY);
        }
        if is_time && self.watched.is_strict {
            let stale = (self.watched.stale)();
            self.over = !stale.is_empty();
            if self.over {
                return Some(self.error(ReadError::NotCurrent { stale }));
            }
        }
        let rights = self.watched.rights.as_mut().filter(|rights| is_time || rights.has_news())?;
        match rights.look(self.watched.filter.audience()) {
            Renewed::Same => {}
            Renewed::More(audience) => self.sees_more(audience),
            // Whatever waits to be told is not.
            Renewed::Ended(error) => {
                self.over = true;
                if let Some(notes) = &self.notes {
                    notes.annotate("kubefold.io/ended", error.to_string());
                }
                return Some(self.error(*error));
            }
        }
        None
    }

    /// The objects of further members are there from now on. While the watch begins, it looks again later.
    fn sees_more(&mut self, audience: Audience) {
        let is_busy = !matches!(self.phase, Phase::Following) || !self.unsent.is_empty();
        let before = if is_busy { None } else { self.store.snapshot_at(self.cursor.revision) };
        let Some(before) = before else {
            self.next_look.get_or_insert_with(|| Instant::now() + LOOK_EVERY);
            return;
        };
        let mut filter = self.watched.filter.clone();
        if let Some(limit) = &mut filter.limit {
            limit.audience = audience;
        }
        self.selector = Some(self.store.selector(&format!("{filter:?}")));
        let saw = std::mem::replace(&mut self.watched.filter, filter);
        let (now, cursor) = self.store.snapshot_and_cursor(Revision(0), &self.watched.interest);
        self.changes = self.store.changes(&cursor);
        self.cursor = cursor;
        self.watched.begun_by = Instant::now() + BEGUN_WITHIN;
        self.watched.end_bookmark = false;
        // Their revisions are old ones: a bookmark says how far the client is.
        self.next_bookmark = self.next_bookmark.map(|_| Instant::now());
        self.phase = Phase::Comparing(Differences::of_more(before, now, saw));
    }

    /// Waits until there may be something to do.
    async fn wait(&mut self) {
        let times = [self.next_bookmark, self.next_look].into_iter().flatten();
        let next = times.fold(self.watched.deadline, Instant::min);
        if self.alarm.deadline() != next {
            self.alarm.as_mut().reset(next);
        }
        let rights = &self.watched.rights;
        let news = poll_fn(|cx| rights.as_ref().map_or(Poll::Pending, |rights| rights.poll_news(cx)));
        tokio::select! {
            changed = self.changes.changed() => self.over |= changed.is_err(),
            () = news => {}
            () = self.alarm.as_mut() => {}
            () = self.drained.as_mut() => {}
        }
    }

    /// While kubefold ends, waits for the last events of the kind: what was on its way when members were left, and what answers to
    /// writes bring. The next process begins behind all of them, whomever they concern. Says whether there was one.
    async fn hears_more(&mut self) -> bool {
        let now = Instant::now();
        let Some((changes, until)) = &mut self.last else {
            // What came before is read once more.
            self.last = Some((self.store.subscribe(), now + LAST_EVENTS_WITHIN));
            return true;
        };
        let heard = timeout_at((*until).min(now + LAST_EVENT_WITHIN), changes.changed()).await;
        matches!(heard, Ok(Ok(())))
    }

    /// One step of what comes before the log. `None`: there is nothing to give yet, and others get their turn first.
    fn begin(&mut self) -> Option<Bytes> {
        if Instant::now() >= self.watched.begun_by {
            // It holds on to objects that may be gone.
            self.over = true;
            return Some(self.expired());
        }
        self.cursor.moves();
        match std::mem::replace(&mut self.phase, Phase::Following) {
            Phase::Beginning(walk) => self.objects(walk),
            Phase::Comparing(mut differences) => {
                self.phase = if differences.step(&self.watched.filter) {
                    let (events, now) = differences.into_events();
                    Phase::CatchingUp(events.into_iter(), now)
                } else {
                    Phase::Comparing(differences)
                };
                None
            }
            Phase::CatchingUp(events, now) => self.changed(events, now),
            Phase::Following => None,
        }
    }

    /// Objects of the beginning as ADDED.
    fn objects(&mut self, mut walk: Box<Walk>) -> Option<Bytes> {
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        let step = walk.step(|entry| {
            if !has_room(&out, entry) {
                return ControlFlow::Break(());
            }
            if !self.frame(Transition::Added, entry, entry.revision, &mut out) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        match step {
            Step::Stopped | Step::Paused => self.phase = Phase::Beginning(walk),
            Step::Done => self.has_begun(walk.into_snapshot(), &mut out),
        }
        (!out.is_empty()).then(|| out.into())
    }

    /// What has changed since the beginning.
    fn changed(&mut self, mut events: Events, now: Snapshot) -> Option<Bytes> {
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        while let Some(event) = events.as_slice().first() {
            if !has_room(&out, &event.entry) {
                self.phase = Phase::CatchingUp(events, now);
                return Some(out.into());
            }
            if !self.frame(event.transition, &event.entry, event.revision, &mut out) {
                return (!out.is_empty()).then(|| out.into());
            }
            events.next();
        }
        self.has_begun(now, &mut out);
        (!out.is_empty()).then(|| out.into())
    }

    /// The client has the objects of a snapshot. The log goes on from there, with the bookmark that a WatchList waits for
    /// before it, unless it does not reach so far back any more.
    fn has_begun(&mut self, snapshot: Snapshot, out: &mut Vec<u8>) {
        if self.store.has_lost(&self.cursor) {
            let (now, cursor) = self.store.snapshot_and_cursor(Revision(0), &self.watched.interest);
            self.changes = self.store.changes(&cursor);
            self.cursor = cursor;
            self.phase = Phase::Comparing(Differences::new(snapshot, now));
        } else if self.watched.end_bookmark {
            out.extend_from_slice(&self.bookmark(true));
        }
    }

    /// What the log has for this watcher now.
    fn read(&mut self) -> Read {
        if self.unsent.is_empty() {
            let mut records = Vec::from(std::mem::take(&mut self.unsent));
            let outcome = self.store.read(&mut self.cursor, RECORDS_MAX, RECORDS_BYTES_MAX, &mut records);
            if outcome == ReadAfter::Expired {
                self.over = true;
                return Read::Chunk(self.expired());
            }
            self.unsent = records.into();
            if self.unsent.is_empty() {
                return Read::Nothing;
            }
        }
        let mut out = Vec::new();
        while let Some(record) = self.unsent.pop_front() {
            let Some(transition) = self.judge(&record) else { continue };
            let told = match transition {
                Transition::Left => record.previous.as_ref().unwrap_or(&record.entry),
                Transition::Added | Transition::Modified | Transition::Deleted => &record.entry,
            };
            let Some(seen) = self.watched.filter.seen(told) else { continue };
            let audience = match &seen {
                Cow::Borrowed(_) => Audience::Everyone,
                Cow::Owned(_) => self.watched.filter.audience().clone(),
            };
            let entry: &Entry = &seen;
            if out.is_empty() {
                // Most often it is one event: the same bytes for all who are told of it.
                if self.unsent.is_empty() {
                    let frame = self.shared_frame(transition, &record, entry, audience);
                    // One that could not be made, for whoever was the first to need it.
                    self.over |= frame.is_empty();
                    return if frame.is_empty() { Read::Skipped } else { Read::Chunk(frame) };
                }
                out.reserve(CHUNK_BYTES);
            } else if !has_room(&out, entry) {
                self.unsent.push_front(record);
                break;
            }
            if !self.frame(transition, entry, record.revision, &mut out) {
                break;
            }
        }
        if out.is_empty() { Read::Skipped } else { Read::Chunk(out.into()) }
    }

    /// What an event is to this watcher, if anything.
    fn judge(&self, record: &Record) -> Option<Transition> {
        if record.event_type == EventType::Added && self.is_known(&record.entry) {
            return None;
        }
        if record.is_of_parts() && self.watched.filter.limit.is_none() {
            return None;
        }
        let judge = || self.watched.filter.judge(record);
        match &self.selector {
            Some(selector) => record.verdict(selector.id(), judge),
            None => judge(),
        }
    }

    fn is_known(&self, entry: &Entry) -> bool {
        self.watched.known.as_ref().is_some_and(|known| known.key() == entry.key() && known.uid() == entry.uid())
    }

    /// The frame of an event that all have who are told of it in this form and see as much of the object.
    fn shared_frame(
        &mut self,
        transition: Transition,
        record: &Arc<Record>,
        entry: &Entry,
        audience: Audience,
    ) -> Bytes {
        let make = |watcher: &mut Self| {
            let mut out = Vec::with_capacity(entry.json().len() + FRAME_BYTES);
            watcher.frame(transition, entry, record.revision, &mut out);
            Bytes::from(out)
        };
        match self.watched.form.written().filter(|_| self.watched.filter.echo.is_none()) {
            None => make(self),
            Some(written) => {
                let store = Arc::clone(&self.store);
                let media = self.watched.form.media();
                store.frame(record, FrameKey { written, media, transition, audience }, || make(self))
            }
        }
    }

    /// Appends the frame of an event. Says whether that could be done: the watch is over once an object has no form in protobuf,
    /// and the client's next one is in JSON.
    fn frame(&mut self, transition: Transition, entry: &Entry, revision: Revision, out: &mut Vec<u8>) -> bool {
        let event_type = match transition {
            Transition::Added => EventType::Added,
            Transition::Modified => EventType::Modified,
            Transition::Deleted | Transition::Left => EventType::Deleted,
        };
        let echo = self.watched.filter.echo.as_deref();
        if self.watched.form.event(event_type, entry, echo, revision, out).is_err() {
            self.store.count_unfit();
            self.over = true;
            return false;
        }
        self.told_one();
        true
    }

    /// Only the first event of a watch tells what is the same for all.
    fn told_one(&mut self) {
        if !std::mem::replace(&mut self.has_told, true) {
            self.watched.form = std::mem::take(&mut self.watched.form).of_later_events();
        }
    }

    fn expired(&self) -> Bytes {
        let (asked, known) = (self.cursor.revision, self.store.snapshot().revision);
        self.error(ReadError::WatchTooOld { asked, known })
    }

    /// An event that ends the watch.
    fn error(&self, error: impl Into<Status>) -> Bytes {
        self.watched.form.line(error_frame(error)).into()
    }

    /// An empty object of the watched kind: reflectors look at the kind before the event's type.
    fn bookmark(&mut self, initial_events_end: bool) -> Vec<u8> {
        let spec = self.store.spec();
        let stale = (self.watched.stale)();
        let mut annotations = Vec::new();
        if initial_events_end {
            annotations.push("\"k8s.io/initial-events-end\":\"true\"".to_owned());
        }
        if !stale.is_empty() {
            annotations.push(format!("\"kubefold.io/stale\":\"{}\"", stale.join(",")));
        }
        let annotations = if annotations.is_empty() {
            String::new()
        } else {
            format!(",\"annotations\":{{{}}}", annotations.join(","))
        };
        let mut out = b"{\"type\":\"BOOKMARK\",\"object\":".to_vec();
        let metadata = format!("{{\"resourceVersion\":\"{}\"{annotations}}}", self.cursor.revision);
        self.watched.form.bookmark(spec, &metadata, self.cursor.revision, &mut out);
        out.extend_from_slice(b"}\n");
        let out = self.watched.form.line(out);
        self.told_one();
        out
    }
}

/// About each minute, and shortly before the end. Source: kubernetes/apiserver `cacher/cache_watcher.go`,
/// `nextBookmarkTime`.
fn next_bookmark(wanted: bool, now: Instant, deadline: Instant) -> Option<Instant> {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END)?;
    Some(last.min(now + BOOKMARK_EVERY)).filter(|at| wanted && *at > now)
}

/// An event that ends a watch.
pub(super) fn error_frame(error: impl Into<Status>) -> Vec<u8> {
    [b"{\"type\":\"ERROR\",\"object\":".as_slice(), &error.into().to_json(), b"}\n"].concat()
}

#[cfg(test)]
mod tests;
