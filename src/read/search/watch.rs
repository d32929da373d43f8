//! A watch of a search: the changes of several kinds in one stream, in the order of their revisions.
//!
//! All kinds take their revisions from one counter. Before anything is told, each store has published all that is below the last
//! revision that was given out: so what is told up to there is complete, and a client goes on at any revision that it was told.
//!
//! The kinds of owners are followed as those that are searched. At each revision the owners change first, and whatever that
//! brings or takes is told as of it.

use std::{cmp::Reverse, collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::select_all;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    access::{Renewal, Renewed},
    read::{
        answer::watch_response,
        search::{
            COLLECTION_TYPE, Searched, Source,
            body::Written,
            find::{Controllers, Hit, Search, Stored},
            lineage::{Change, Lineage},
        },
        watcher::error_frame,
    },
    respond::ReadError,
    search::{OwnerBy, Query},
    store::{Cursor, Expired, FleetStore, Interest, ReadAfter, Record, Revision, Row, Shared},
    view::ListOptions,
};
use kubefold_wire::{
    body::{Body, BodyError, full},
    media::Media,
    options::At,
    watch::EventType,
};

/// Records of one kind that wait for those of others.
const PENDING_MAX: usize = 1024;
/// Records read from a log at once, and bytes of their objects.
const RECORDS_MAX: usize = 256;
const RECORDS_BYTES_MAX: usize = 1 << 20;
/// About each minute, as a kube-apiserver.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// How often a watch looks whether its caller still has the rights.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A watch without a deadline of its own ends after half an hour.
const DEADLINE_SECONDS: u64 = 1800;
/// None is longer than a week.
const DEADLINE_SECONDS_MAX: u64 = 7 * 24 * 3600;
/// Bytes of one chunk, unless one event has more.
const CHUNK_BYTES: usize = 128 << 10;

/// What surrounds a watch.
pub(super) struct Around {
    pub(super) shared: Arc<Shared>,
    /// Ends it cleanly: kubefold is going.
    pub(super) drain: CancellationToken,
}

/// Where a watch begins.
struct Begun {
    /// Of each source, then of each kind of owners.
    followed: Vec<Followed>,
    lineage: Option<Lineage>,
    controllers: Option<Controllers>,
}

/// One kind that is followed.
struct Followed {
    cursor: Cursor,
    changes: watch::Receiver<u64>,
    /// Read, and not told.
    pending: VecDeque<Arc<Record>>,
}

/// An event on its way out.
struct Told {
    event_type: EventType,
    row: Row,
    revision: Revision,
}

struct Watcher {
    sources: Vec<Source>,
    /// Of each source, then of each kind of owners.
    followed: Vec<Followed>,
    query: Query,
    /// Whom what is told of has above it; absent where nobody is asked for.
    lineage: Option<Lineage>,
    /// Who has to control what is told of.
    controllers: Option<Controllers>,
    is_of_fleet: bool,
    is_collection: bool,
    written: Written,
    renewals: Vec<Renewal>,
    around: Around,
    /// The objects of the beginning; the flag says that a bookmark ends them.
    beginning: Option<bool>,
    initial: std::vec::IntoIter<Hit>,
    ends_initial: bool,
    bookmarks: bool,
    deadline: Instant,
    next_bookmark: Instant,
    next_look: Instant,
    /// All up to here was told.
    told: Revision,
    has_told: bool,
    over: bool,
}

/// Answers a watch. One that cannot begin where it wants to is told so in the stream.
pub(super) async fn watch(
    searched: Searched<'_>,
    written: Written,
    options: &ListOptions,
    around: Around,
) -> Response<Body> {
    let initial = options.send_initial_events == Some(true);
    let Searched { mut sources, owners, query, is_of_fleet, collection, renewals, .. } = searched;
    let last = around.shared.revisions.last();
    let from = Beginning { at: options.at, initial, last };
    let Begun { followed, lineage, controllers } = match begin(&mut sources, owners, &query, from, &around.shared).await
    {
        Ok(begun) => begun,
        Err(Expired { floor }) => {
            let asked = if let At::Revision(asked) = options.at { Revision(asked) } else { last };
            let error = ReadError::WatchTooOld { asked, known: floor };
            return watch_response(Media::Json, full(error_frame(error)));
        }
    };
    let seconds =
        options.timeout_seconds.map_or(DEADLINE_SECONDS, |seconds| u64::try_from(seconds).unwrap_or_default());
    let now = Instant::now();
    let watcher = Watcher {
        told: from.revision(),
        sources,
        followed,
        lineage,
        controllers,
        query,
        is_of_fleet,
        is_collection: collection.is_some(),
        written,
        renewals,
        around,
        beginning: initial.then_some(options.bookmarks),
        initial: Vec::new().into_iter(),
        ends_initial: false,
        bookmarks: options.bookmarks,
        deadline: now + Duration::from_secs(seconds.min(DEADLINE_SECONDS_MAX)),
        next_bookmark: now + BOOKMARK_EVERY,
        next_look: now + LOOK_EVERY,
        has_told: false,
        over: false,
    };
    let chunks = futures::stream::unfold(watcher, async |mut watcher| {
        let chunk = watcher.next_chunk().await?;
        Some((Ok::<_, BodyError>(Frame::data(chunk)), watcher))
    });
    watch_response(Media::Json, StreamBody::new(chunks).boxed_unsync())
}

/// Where a client wants a watch to begin.
#[derive(Clone, Copy)]
struct Beginning {
    at: At,
    /// With the objects that exist.
    initial: bool,
    /// The last revision that was given out.
    last: Revision,
}

impl Beginning {
    /// All up to here the client knows, or is told of first.
    fn revision(self) -> Revision {
        match self.at {
            At::Revision(asked) if !self.initial => Revision(asked),
            _ => self.last,
        }
    }
}

/// A place in each kind's log: behind the objects that the watch begins with, or behind a revision. With an owner that is one
/// revision for all kinds, since it says who controls what.
async fn begin(
    sources: &mut [Source],
    mut owners: Vec<Source>,
    query: &Query,
    from: Beginning,
    shared: &Shared,
) -> Result<Begun, Expired> {
    let Some(owner) = query.owner.clone() else {
        let followed = sources.iter_mut().map(|source| begin_alone(source, from)).collect::<Result<_, _>>()?;
        return Ok(Begun { followed, lineage: None, controllers: None });
    };
    let mut followed = Vec::with_capacity(sources.len() + owners.len());
    for source in sources.iter_mut().chain(&mut owners) {
        let store = source.ready.store();
        followed.push(Followed::new(store, store.cursor(from.revision(), &Interest::Everything)?));
        source.move_to(from.revision())?;
    }
    let controllers = match &owner.by {
        // It is so whether it exists or not, and whatever happens.
        OwnerBy::Uid(uid) if owner.seniority == 0 && owners.is_empty() => {
            Some(Controllers { uids: [uid.clone()].into(), entries: None })
        }
        _ => None,
    };
    if controllers.is_some() {
        return Ok(Begun { followed, lineage: None, controllers });
    }
    let lineage = Lineage::begin(owner, query, owners, Arc::clone(&shared.naming)).await?;
    let controllers = Some(lineage.controllers(sources)?);
    Ok(Begun { followed, lineage: Some(lineage), controllers })
}

fn begin_alone(source: &mut Source, from: Beginning) -> Result<Followed, Expired> {
    let store = source.ready.store();
    let cursor = match from.at {
        At::Revision(asked) if !from.initial => store.cursor(Revision(asked), &Interest::Everything)?,
        _ => {
            let (snapshot, cursor) = store.snapshot_and_cursor(from.last, &Interest::Everything);
            source.snapshot = snapshot;
            cursor
        }
    };
    Ok(Followed::new(source.ready.store(), cursor))
}

impl Watcher {
    /// The next bytes; `None` is a clean end.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if self.over || Instant::now() >= self.deadline {
                return None;
            }
            if let Some(end) = self.look() {
                return Some(end);
            }
            if let Some(bookmarked) = self.beginning.take() {
                self.initial = self.search(self.controllers.as_ref()).find(Stored::default()).await.hits.into_iter();
                self.ends_initial = bookmarked;
            }
            if let Some(controllers) = &mut self.controllers {
                controllers.entries = None;
            }
            if let Some(chunk) = self.objects() {
                return Some(chunk);
            }
            self.followed.iter_mut().for_each(|followed| drop(followed.changes.borrow_and_update()));
            match self.events() {
                Ok(Some(chunk)) => return Some(chunk),
                Ok(None) => {}
                Err(error) => {
                    self.over = true;
                    return Some(error_frame(error).into());
                }
            }
            if self.all_sources().any(|source| source.ready.store().is_ended()) {
                return None;
            }
            if self.bookmarks && self.next_bookmark <= Instant::now() {
                self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                return Some(self.bookmark(false).into());
            }
            self.wait().await;
        }
    }

    /// The search where these control what is found.
    fn search<'a>(&'a self, owners: Option<&'a Controllers>) -> Search<'a> {
        let naming = &self.around.shared.naming;
        Search { sources: &self.sources, query: &self.query, owners, naming, is_of_fleet: self.is_of_fleet }
    }

    /// The kinds that are searched, then those of owners.
    fn all_sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().chain(self.lineage.iter().flat_map(Lineage::kinds))
    }

    /// Ends the watch once a right was withdrawn; once there is another, its client has to list anew.
    fn look(&mut self) -> Option<Bytes> {
        if self.renewals.is_empty() || Instant::now() < self.next_look {
            return None;
        }
        self.next_look = Instant::now() + LOOK_EVERY;
        let looked = self
            .renewals
            .iter()
            .zip(self.all_sources())
            .map(|(renewal, source)| renewal.look(&source.audience))
            .collect::<Vec<_>>();
        for renewed in looked {
            self.over = !matches!(renewed, Renewed::Same);
            match renewed {
                Renewed::Same => {}
                Renewed::More(_) => {
                    let error = ReadError::WatchTooOld { asked: self.told, known: self.around.shared.revisions.last() };
                    return Some(error_frame(error).into());
                }
                Renewed::Ended(error) => return Some(error_frame(*error).into()),
            }
        }
        None
    }

    /// Objects of the beginning as ADDED.
    fn objects(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while let Some(hit) = self.initial.next() {
            let revision = hit.row.revision();
            self.tell(&Told { event_type: EventType::Added, row: hit.row, revision }, &mut out);
            if out.len() >= CHUNK_BYTES {
                return Some(out.into());
            }
        }
        if std::mem::take(&mut self.ends_initial) {
            out.extend(self.bookmark(true));
        }
        (!out.is_empty()).then(|| out.into())
    }

    /// What all logs have up to one revision, in order.
    fn events(&mut self) -> Result<Option<Bytes>, ReadError> {
        let last = self.around.shared.revisions.last();
        let mut horizon = last;
        let owners = self.lineage.iter().flat_map(Lineage::kinds);
        for (followed, source) in self.followed.iter_mut().zip(self.sources.iter().chain(owners)) {
            let store = source.ready.store();
            // What was given a revision and is not published yet is waited for.
            drop(store.snapshot_from(last));
            let complete = followed.read(store).map_err(|()| ReadError::WatchTooOld {
                asked: followed.cursor.revision,
                known: store.snapshot().revision,
            })?;
            if let Some(newest) = followed.pending.back().filter(|_| !complete) {
                horizon = horizon.min(newest.revision);
            }
        }
        let mut events = Vec::new();
        for (of, followed) in self.followed.iter_mut().enumerate() {
            while followed.pending.front().is_some_and(|record| record.revision <= horizon) {
                events.extend(followed.pending.pop_front().map(|record| Event { of, record }));
            }
        }
        // An event of a kind of owners comes before the same event of a kind that is searched.
        events.sort_by_key(|event| (event.record.revision, Reverse(event.of)));
        self.told = self.told.max(horizon);
        let mut out = Vec::new();
        for of_revision in events.chunk_by(|one, next| one.record.revision == next.record.revision) {
            for told in self.judge(of_revision)? {
                self.tell(&told, &mut out);
            }
        }
        Ok((!out.is_empty()).then(|| out.into()))
    }

    /// What the events of one revision are to this watch.
    fn judge(&mut self, events: &[Event]) -> Result<Vec<Told>, ReadError> {
        let mut told = Vec::new();
        let mut before = None;
        for Event { of, record } in events {
            let Some(kind) = of.checked_sub(self.sources.len()) else {
                let owners = before.as_ref().or(self.controllers.as_ref());
                self.judge_one(*of, record, owners, &mut told);
                continue;
            };
            let Some(lineage) = &mut self.lineage else { continue };
            let too_old = |Expired { floor }| ReadError::WatchTooOld { asked: record.revision, known: floor };
            if let Some(change) = lineage.follow(kind, record).map_err(too_old)? {
                let now = Controllers { uids: lineage.uids(), entries: None };
                before = self.controllers.replace(now);
                self.judge_owned(&change, record, before.as_ref(), &mut told).map_err(too_old)?;
            }
        }
        // Who goes on at the revision of one of several gets all of them again, and loses none.
        let but_the_last = told.len().saturating_sub(1);
        told.iter_mut().take(but_the_last).for_each(|told| told.revision = Revision(told.revision.0 - 1));
        Ok(told)
    }

    /// What an event is where these were the owners before: of an object of several members, something for each whose row has
    /// changed.
    fn judge_one(&self, at: usize, record: &Record, owners: Option<&Controllers>, told: &mut Vec<Told>) {
        let Some(source) = self.sources.get(at) else { return };
        let was = record.before().map(|entry| self.search(owners).rows_of(source, entry)).unwrap_or_default();
        let is = match record.event_type {
            EventType::Deleted => Vec::new(),
            _ => self.search(self.controllers.as_ref()).rows_of(source, &record.entry),
        };
        self.compare(&was, is, record.revision, told);
    }

    /// What is told of the objects of those owners that came or went with an event. These were the owners before.
    ///
    /// Errors: a log does not reach back to the event.
    fn judge_owned(
        &self,
        change: &Change,
        record: &Record,
        before: Option<&Controllers>,
        told: &mut Vec<Told>,
    ) -> Result<(), Expired> {
        for source in &self.sources {
            for entry in source.ready.store().referring_at(record.revision, &change.referents)? {
                // The object that the event is about is judged with its own state before.
                if !Arc::ptr_eq(&entry, &record.entry) {
                    let was = self.search(before).rows_of(source, &entry);
                    let is = self.search(self.controllers.as_ref()).rows_of(source, &entry);
                    self.compare(&was, is, record.revision, told);
                }
            }
        }
        Ok(())
    }

    /// Tells what became of rows.
    fn compare(&self, was: &[Row], is: Vec<Row>, revision: Revision, told: &mut Vec<Told>) {
        let same = |one: &Row, other: &Row| self.is_of_fleet || one.member() == other.member();
        for row in was {
            if !is.iter().any(|other| same(row, other)) {
                told.push(Told { event_type: EventType::Deleted, row: row.clone(), revision });
            }
        }
        for row in is {
            let event_type = match was.iter().find(|other| same(&row, other)) {
                None => EventType::Added,
                Some(other) if self.is_of_fleet && other.entry().is_same_but_for_revision(row.entry()) => continue,
                Some(other) if !self.is_of_fleet && other.document() == row.document() => continue,
                Some(_) => EventType::Modified,
            };
            told.push(Told { event_type, row, revision });
        }
    }

    fn tell(&mut self, told: &Told, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(told.event_type.as_str().as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.written.object(&told.row, told.revision, out);
        out.extend_from_slice(b"}\n");
        self.told_one();
    }

    /// Only the first event of a watch tells what is the same for all.
    fn told_one(&mut self) {
        if !std::mem::replace(&mut self.has_told, true) {
            self.written.form = std::mem::take(&mut self.written.form).of_later_events();
        }
    }

    fn bookmark(&mut self, initial_events_end: bool) -> Vec<u8> {
        let end = if initial_events_end { ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" } else { "" };
        let metadata = format!("{{\"resourceVersion\":\"{}\"{end}}}", self.told);
        let mut out = b"{\"type\":\"BOOKMARK\",\"object\":".to_vec();
        let form = &self.written.form;
        match self.sources.first().filter(|_| !self.is_collection) {
            Some(source) => form.bookmark(source.ready.store().spec(), &metadata, self.told, &mut out),
            None => form.collection_bookmark(COLLECTION_TYPE, &metadata, self.told, &mut out),
        }
        out.extend_from_slice(b"}\n");
        self.told_one();
        out
    }

    /// Waits until there may be something to do.
    async fn wait(&mut self) {
        let look = (!self.renewals.is_empty()).then_some(self.next_look);
        let bookmark = self.bookmarks.then_some(self.next_bookmark);
        let next = [look, bookmark].into_iter().flatten().fold(self.deadline, Instant::min);
        let changed = self.followed.iter_mut().map(|followed| -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
            Box::pin(async { followed.changes.changed().await.is_err() })
        });
        tokio::select! {
            (is_over, _, _) = select_all(changed) => self.over |= is_over,
            () = sleep_until(next) => {}
            () = self.around.drain.cancelled() => self.over = true,
        }
    }
}

/// An event of the kind that is followed under that number.
struct Event {
    of: usize,
    record: Arc<Record>,
}

impl Followed {
    fn new(store: &FleetStore, cursor: Cursor) -> Self {
        Self { changes: store.changes(&cursor), cursor, pending: VecDeque::new() }
    }

    /// Reads what the log has. Says whether that is all.
    ///
    /// Errors: the log does not reach so far back any more.
    fn read(&mut self, store: &FleetStore) -> Result<bool, ()> {
        while self.pending.len() < PENDING_MAX {
            let mut records = Vec::new();
            if store.read(&mut self.cursor, RECORDS_MAX, RECORDS_BYTES_MAX, &mut records) == ReadAfter::Expired {
                return Err(());
            }
            if records.is_empty() {
                return Ok(true);
            }
            self.pending.extend(records);
        }
        Ok(false)
    }
}
