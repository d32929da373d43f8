//! Watches: a cursor in a store's log, and a body that follows it.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    answer::form::Form,
    read::{
        answer::json_response,
        filter::Filter,
        list::{CHUNK_BYTES, has_room},
        walk::{Step, Walk},
    },
    respond::ReadError,
    store::{Cursor, Entry, FleetStore, ReadAfter, Record, Revision, Snapshot},
    view::ListOptions,
};
use kubefold_wire::{
    body::{Body, BodyError},
    options::At,
    status::Status,
    watch::EventType,
};

/// Records read from the log at once.
const RECORDS_MAX: usize = 256;
/// About each minute, as a kube-apiserver.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// So long before its deadline a watch says how far it came. Source: kubernetes/apiserver `cacher/cache_watcher.go`.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A watch without a deadline of its own ends after half an hour and, so that not all end at once, up to as long again.
const DEADLINE_MIN_SECONDS: u64 = 1800;
/// How often a watch of the strict view looks whether every member is current.
const STRICT_EVERY: Duration = Duration::from_secs(1);

/// Names the members that are down now, for bookmarks.
pub(super) type Stale = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// What surrounds a watch.
pub(super) struct Surroundings {
    /// The latest revision given out, for any kind.
    pub(super) last: Revision,
    /// An object that the client knows by another version of the kind: its existence is not an event.
    pub(super) known: Option<Arc<Entry>>,
    pub(super) stale: Stale,
    /// Ends the watch when a member is not current any more.
    pub(super) is_strict: bool,
    /// Ends every watch cleanly: kubefold is going.
    pub(super) drain: CancellationToken,
    /// How objects are written; `None` if it cannot be: a kube-apiserver ends such a watch at its first event.
    pub(super) form: Option<Form>,
}

/// Answers a watch. One that cannot begin where it wants to is told so in the stream: on an HTTP 410 clients would try
/// the same revision for ever (client-go `tools/watch/retrywatcher.go`).
pub(super) fn watch(
    store: &Arc<FleetStore>,
    options: &ListOptions,
    filter: Filter,
    around: Surroundings,
) -> Response<Body> {
    let Surroundings { last, known, stale, is_strict, drain, form } = around;
    let (initial, cursor) = match begin(store, options, last) {
        Ok(begun) => begun,
        Err(error) => return error_response(error),
    };
    let now = Instant::now();
    let seconds = match options.timeout_seconds {
        Some(seconds) => u64::try_from(seconds).unwrap_or_default().min(7 * 24 * 3600),
        None => DEADLINE_MIN_SECONDS + last.0 % DEADLINE_MIN_SECONDS,
    };
    let deadline = now + Duration::from_secs(seconds);
    let initial = initial.map(|snapshot| Walk::new(snapshot, filter.clone(), ""));
    let watcher = Watcher {
        changed: store.subscribe(),
        store: Arc::clone(store),
        cursor,
        filter,
        form: form.clone().unwrap_or_default(),
        initial,
        end_bookmark: options.send_initial_events == Some(true) && options.bookmarks,
        next_bookmark: next_bookmark(options.bookmarks, now, deadline),
        deadline,
        known,
        stale,
        is_strict,
        next_look: now + STRICT_EVERY,
        drain,
        records: Vec::new(),
        has_told: false,
        over: seconds == 0,
    };
    let fits = form.is_some();
    let chunks = futures::stream::unfold(watcher, move |mut watcher| async move {
        let chunk = watcher.next_chunk().await.filter(|_| fits)?;
        Some((Ok::<_, BodyError>(Frame::data(chunk)), watcher))
    });
    json_response(StreamBody::new(chunks).boxed_unsync())
}

/// Where a watch begins: at the objects of now, or in the log.
fn begin(store: &FleetStore, options: &ListOptions, last: Revision) -> Result<(Option<Snapshot>, Cursor), ReadError> {
    let initial = options.send_initial_events == Some(true);
    match options.at {
        At::Revision(asked) if asked > last.0 && initial => Err(ReadError::TooLarge { asked, current: last.0 }),
        At::Revision(asked) if asked > last.0 => Err(ReadError::WatchTooOld { asked: Revision(asked), known: last }),
        At::Revision(asked) if !initial => {
            let asked = Revision(asked);
            store
                .cursor(asked)
                .map(|cursor| (None, cursor))
                .map_err(|expired| ReadError::WatchTooOld { asked, known: expired.floor })
        }
        at => {
            let (snapshot, mut cursor) = store.snapshot_and_cursor();
            if let At::Revision(asked) = at {
                cursor.revision = cursor.revision.max(Revision(asked));
            }
            Ok((initial.then_some(snapshot), cursor))
        }
    }
}

/// About each minute, and shortly before the end. Source: kubernetes/apiserver `cacher/cache_watcher.go`,
/// `nextBookmarkTime`.
fn next_bookmark(wanted: bool, now: Instant, deadline: Instant) -> Option<Instant> {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END)?;
    Some(last.min(now + BOOKMARK_EVERY)).filter(|at| wanted && *at > now)
}

fn error_response(error: ReadError) -> Response<Body> {
    json_response(kubefold_wire::body::full(error_frame(error)))
}

fn error_frame(error: ReadError) -> Vec<u8> {
    [b"{\"type\":\"ERROR\",\"object\":".as_slice(), &Status::from(error).to_json(), b"}\n"].concat()
}

struct Watcher {
    store: Arc<FleetStore>,
    changed: watch::Receiver<u64>,
    cursor: Cursor,
    filter: Filter,
    form: Form,
    /// Objects of the beginning that are still to be given.
    initial: Option<Walk>,
    end_bookmark: bool,
    next_bookmark: Option<Instant>,
    deadline: Instant,
    known: Option<Arc<Entry>>,
    stale: Stale,
    is_strict: bool,
    next_look: Instant,
    drain: CancellationToken,
    records: Vec<Arc<Record>>,
    /// An event went out.
    has_told: bool,
    over: bool,
}

/// What woke a watcher.
enum Woken {
    Changed,
    Bookmark,
    Look,
    Deadline,
    Drain,
}

impl Watcher {
    /// The next bytes; `None` is a clean end.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if self.over {
                return None;
            }
            if let Some(end) = self.look() {
                return Some(end);
            }
            if self.initial.is_some() {
                if let Some(chunk) = self.initial_chunk() {
                    return Some(chunk);
                }
                tokio::task::yield_now().await;
                continue;
            }
            if Instant::now() >= self.deadline {
                // However much there is to tell.
                return None;
            }
            self.changed.borrow_and_update();
            if let Some(chunk) = self.read() {
                return Some(chunk);
            }
            if !self.records.is_empty() {
                // Events there were, but none for this watcher.
                continue;
            }
            if self.store.is_ended() {
                return None;
            }
            match self.wait().await {
                Woken::Changed => {}
                Woken::Bookmark => {
                    self.next_bookmark = next_bookmark(true, Instant::now(), self.deadline);
                    return Some(self.bookmark(false).into());
                }
                Woken::Look => {}
                Woken::Deadline => return None,
                Woken::Drain => {
                    self.over = true;
                    if self.next_bookmark.is_some() {
                        return Some(self.bookmark(false).into());
                    }
                }
            }
        }
    }

    /// In the strict view: ends the watch once a member is not current.
    fn look(&mut self) -> Option<Bytes> {
        if !self.is_strict || Instant::now() < self.next_look {
            return None;
        }
        self.next_look = Instant::now() + STRICT_EVERY;
        let stale = (self.stale)();
        self.over = !stale.is_empty();
        self.over.then(|| error_frame(ReadError::NotCurrent { stale }).into())
    }

    async fn wait(&mut self) -> Woken {
        let bookmark = self.next_bookmark.unwrap_or(self.deadline);
        tokio::select! {
            changed = self.changed.changed() => {
                if changed.is_err() { Woken::Deadline } else { Woken::Changed }
            }
            () = sleep_until(bookmark), if self.next_bookmark.is_some() => Woken::Bookmark,
            () = sleep_until(self.next_look), if self.is_strict => Woken::Look,
            () = sleep_until(self.deadline) => Woken::Deadline,
            () = self.drain.cancelled() => Woken::Drain,
        }
    }

    /// Objects of the beginning as ADDED, and behind the last of them the bookmark that a WatchList waits for. `None`: others
    /// get their turn first.
    fn initial_chunk(&mut self) -> Option<Bytes> {
        let mut walk = self.initial.take()?;
        self.store.moves(&self.cursor);
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        let step = walk.step(|entry| {
            if !has_room(&out, entry) {
                return ControlFlow::Break(());
            }
            self.frame(EventType::Added, entry, entry.revision, &mut out);
            ControlFlow::Continue(())
        });
        match step {
            Step::Stopped | Step::Paused => self.initial = Some(walk),
            Step::Done if self.end_bookmark => out.extend_from_slice(&self.bookmark(true)),
            Step::Done => {}
        }
        (!out.is_empty()).then(|| out.into())
    }

    /// What the log has for this watcher now.
    fn read(&mut self) -> Option<Bytes> {
        self.records.clear();
        let outcome = self.store.read(&mut self.cursor, RECORDS_MAX, &mut self.records);
        if outcome == ReadAfter::Expired {
            self.over = true;
            let (asked, known) = (self.cursor.revision, self.store.snapshot().revision);
            return Some(error_frame(ReadError::WatchTooOld { asked, known }).into());
        }
        let mut out = Vec::new();
        let records = std::mem::take(&mut self.records);
        for record in &records {
            if let Some((event_type, entry)) = self.judge(record) {
                self.frame(event_type, entry, record.revision, &mut out);
            }
        }
        self.records = records;
        (!out.is_empty()).then(|| out.into())
    }

    /// Entering a selector is ADDED, leaving it DELETED with the state before.
    fn judge<'a>(&self, record: &'a Record) -> Option<(EventType, &'a Entry)> {
        let now = self.filter.matches(&record.entry);
        let before = record.previous.as_deref().filter(|previous| self.filter.matches(previous));
        match record.event_type {
            EventType::Modified => match (before, now) {
                (Some(_), true) => Some((EventType::Modified, &record.entry)),
                (None, true) => Some((EventType::Added, &record.entry)),
                (Some(previous), false) => Some((EventType::Deleted, previous)),
                (None, false) => None,
            },
            EventType::Added if self.is_known(&record.entry) => None,
            other => now.then_some((other, &*record.entry)),
        }
    }

    fn is_known(&self, entry: &Entry) -> bool {
        self.known.as_ref().is_some_and(|known| known.key() == entry.key() && known.uid() == entry.uid())
    }

    fn frame(&mut self, event_type: EventType, entry: &Entry, revision: Revision, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(event_type.as_str().as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.form.object(entry, self.filter.echo.as_deref(), revision, out);
        out.extend_from_slice(b"}\n");
        self.told_one();
    }

    /// Only the first event of a watch tells what is the same for all.
    fn told_one(&mut self) {
        if !std::mem::replace(&mut self.has_told, true) {
            self.form = std::mem::take(&mut self.form).of_later_events();
        }
    }

    /// An empty object of the watched kind: reflectors look at the kind before the event's type.
    fn bookmark(&mut self, initial_events_end: bool) -> Vec<u8> {
        let spec = self.store.spec();
        let stale = (self.stale)();
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
        self.form.bookmark(spec, &metadata, self.cursor.revision, &mut out);
        out.extend_from_slice(b"}\n");
        self.told_one();
        out
    }
}
