//! One kind's store as others use it: a lock around the sequencer, snapshots, cursors and holds.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch, time::Instant};

use crate::{
    config::MemberName,
    store::{
        dress::{Class, Dressed, Prepared},
        entry::Entry,
        frames::Selectors,
        held::{LockHolds, Writing},
        identities::{GroupKind, Referent},
        incoming::{Incoming, Scratch},
        kind::KindSpec,
        log::{Log, ReadAfter},
        naming::key,
        notices::Notices,
        part::Part,
        passing::Passing,
        places::Places,
        published::{MemberView, Published, Settled},
        references::{References, ReferredKinds},
        retained::Retained,
        revision::{Revision, Revisions},
        rewrite::{BadObject, Facts},
        sequencer::{Ingested, Sequencer, Shared, Source},
        snapshot::Snapshot,
    },
};
use kubefold_wire::{
    locate::validate,
    watch::{Event, EventType},
};

/// Objects that enter or leave under one lock, so that readers and watchers get their turn in between.
pub const SLICE_ITEMS_MAX: usize = 256;
/// Bytes of documents that enter under one lock.
const SLICE_BYTES_MAX: usize = 1 << 20;
/// Folded objects that are shown for the first time under one lock.
const FOLDS_SHOWN_MAX: usize = 16;
/// Buffers that are kept to be used again.
const SCRATCHES_MAX: usize = 8;
/// Events that are taken back at most to have an earlier state again.
pub const UNDONE_MAX: usize = 1 << 16;
/// Called with identities that changed.
type OnIdentities = Box<dyn Fn(&[Referent]) + Send + Sync>;

/// One kind's store.
pub struct FleetStore {
    spec: Arc<KindSpec>,
    pub(super) inner: RwLock<Sequencer>,
    holds: Arc<LockHolds>,
    /// What readers see.
    published: ArcSwap<Published>,
    settled: Settled,
    pub(super) log: Arc<Log>,
    pub(super) revisions: Arc<Revisions>,
    kinds: Arc<ReferredKinds>,
    /// Memory of those who prepared documents, to be used again.
    scratches: Mutex<Vec<Scratch>>,
    /// Rises whenever something changed: an event, a member filled, an end.
    pub(super) changed: watch::Sender<u64>,
    pub(super) places: Places,
    pub(super) selectors: Selectors,
    retained: Mutex<Retained>,
    /// Bytes that had been logged by the oldest retained snapshot; `u64::MAX` without one.
    retained_since: AtomicU64,
    /// No member serves the kind any more: watches end.
    ended: AtomicBool,
    /// Watches that were told 410.
    pub(super) expired: AtomicU64,
    /// Answers that were not given in protobuf, as an object has what its type has not.
    pub(super) unfit: AtomicU64,
    /// Hears of identities that changed, so that other stores are rewritten.
    on_identities: OnIdentities,
    /// What is on its way to the tables, where those have the objects.
    pub(super) passing: Option<Passing>,
}

impl std::fmt::Debug for FleetStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetStore").field("kind", &self.spec.label()).finish_non_exhaustive()
    }
}

impl FleetStore {
    /// Makes an empty store. `on_identities` is called without any lock of this store.
    pub fn new(
        spec: Arc<KindSpec>,
        shared: Shared,
        on_identities: impl Fn(&[Referent]) + Send + Sync + 'static,
    ) -> Self {
        let mut sequencer = Sequencer::new(Arc::clone(&spec), shared);
        Self {
            published: ArcSwap::from_pointee(sequencer.publish()),
            settled: Settled::default(),
            log: Arc::clone(&sequencer.log),
            revisions: Arc::clone(&sequencer.shared.revisions),
            kinds: Arc::clone(&sequencer.kinds),
            scratches: Mutex::default(),
            holds: Arc::default(),
            inner: RwLock::new(sequencer),
            spec,
            changed: watch::Sender::new(0),
            places: Places::default(),
            selectors: Selectors::default(),
            retained: Mutex::default(),
            retained_since: AtomicU64::new(u64::MAX),
            ended: AtomicBool::new(false),
            expired: AtomicU64::new(0),
            unfit: AtomicU64::new(0),
            on_identities: Box::new(on_identities),
            passing: None,
        }
    }

    /// The same for a store that is read by nobody: it keeps of the parts who they are, and of member-local objects nothing.
    pub fn of_parts(
        spec: Arc<KindSpec>,
        shared: Shared,
        on_identities: impl Fn(&[Referent]) + Send + Sync + 'static,
    ) -> Self {
        let mut store = Self::new(spec, shared, on_identities);
        let sequencer = store.inner.get_mut();
        sequencer.parts_only = true;
        store.published = ArcSwap::from_pointee(sequencer.publish());
        store
    }

    /// What kind it holds.
    pub fn spec(&self) -> &KindSpec {
        &self.spec
    }

    /// The same, to make another store of the kind.
    pub fn spec_arc(&self) -> Arc<KindSpec> {
        Arc::clone(&self.spec)
    }

    /// Tells of every change: wait on it, then look.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Has whoever waits for a change look again.
    pub fn wake(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// Has the holds of its lock counted with those of other stores.
    pub fn timed(self, holds: Arc<LockHolds>) -> Self {
        Self { holds, ..self }
    }

    pub(super) fn lock(&self) -> Writing<'_> {
        Writing::begun(self.inner.write(), &self.holds)
    }

    fn write<T>(&self, change: impl FnOnce(&mut Sequencer) -> T) -> T {
        let mut inner = self.lock();
        self.settled.begin(inner.shared.revisions.last());
        let outcome = change(&mut inner);
        self.published.store(Arc::new(inner.publish()));
        self.settled.end();
        let identities = std::mem::take(&mut inner.changed);
        let news = std::mem::take(&mut inner.news);
        let offset = inner.log.offset();
        drop(inner);
        if news && self.retained_since.load(Ordering::Acquire) < u64::MAX {
            self.prune(&mut self.retained.lock(), offset);
        }
        if !identities.is_empty() {
            (self.on_identities)(&identities);
        }
        if news {
            self.changed.send_modify(|version| *version += 1);
            self.log.take_touched().iter().for_each(|stream| stream.wake());
        }
        outcome
    }

    /// The latest revision that was given out, for any kind.
    pub(super) fn last(&self) -> Revision {
        self.revisions.last()
    }

    /// The same for the rest of the room.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Sequencer) -> T) -> T {
        self.write(change)
    }

    /// Looks, under the lock that readers share.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&Sequencer) -> T) -> T {
        look(&self.inner.read())
    }

    /// Begins another life of a member (another cluster, or a restored one): the next full list decides what lives.
    pub fn reset(&self, member: &MemberName) {
        self.write(|inner| inner.reset(member));
    }

    /// The member's life, for [`Self::ingest_live`].
    pub fn incarnation(&self, member: &MemberName) -> u32 {
        self.published.load().member(member).map_or(0, |view| view.incarnation)
    }

    /// The member's position.
    pub fn position(&self, member: &MemberName) -> u64 {
        self.inner.read().member(member).map_or(0, |state| state.position)
    }

    /// Says whether the member's objects have been held completely since the store started.
    pub fn is_filled(&self, member: &MemberName) -> bool {
        self.published.load().member(member).is_some_and(|view| view.filled)
    }

    /// Begins a full list of a member.
    pub fn begin_list(&self, member: &MemberName) {
        if self.passes() {
            self.report_list(member);
        }
        self.write(|inner| inner.begin_list(member));
    }

    /// Takes a slice of a full list in, at most [`SLICE_ITEMS_MAX`] items that [`split`](kubefold_wire::list::split) gave.
    /// A bad object is left out and told of.
    pub fn list_slice(&self, member: &MemberName, items: &[&str]) -> Vec<BadObject> {
        if self.passes() {
            return self.report_slice(member, items);
        }
        let Some(preparing) = self.preparing(member) else { return Vec::new() };
        let mut references = References::new(&self.kinds, member);
        let (mut bad, mut prepared, mut bytes) = (Vec::new(), Vec::with_capacity(items.len()), 0);
        self.with_scratch(|scratch| {
            for item in items {
                match preparing.prepare(self, item, Source::List, &mut references, scratch) {
                    Ok(one) => prepared.push(one),
                    Err(error) => bad.push(error),
                }
                bytes += item.len();
                if bytes >= SLICE_BYTES_MAX {
                    self.commit(member, &mut prepared);
                    bytes = 0;
                }
            }
        });
        self.commit(member, &mut prepared);
        bad
    }

    fn commit(&self, member: &MemberName, prepared: &mut Vec<Prepared<'_>>) {
        self.write(|inner| {
            for one in prepared.drain(..) {
                let _visible = inner.commit(member, one, Source::List);
            }
        });
    }

    /// What a member's documents are prepared with. `None`: the member is unknown.
    pub(super) fn preparing(&self, member: &MemberName) -> Option<Preparing> {
        let published = self.published.load_full();
        let view = published.member(member)?.clone();
        let dressing = Arc::new(view.dressing.now());
        Some(Preparing { published, view: MemberView { dressing, ..view } })
    }

    /// Takes one event of the member's watch in, as [`Event::parse`] gave it. `Error` is the reflector's to handle.
    ///
    /// Errors: a document that is no object.
    pub fn watch_event(&self, member: &MemberName, event: &Event<'_>) -> Result<(), BadObject> {
        if self.passes() {
            return self.report_event(member, event);
        }
        match event.event_type {
            EventType::Added | EventType::Modified => {
                self.ingest(member, event.object, Source::Watch, |_| true).map(|_| ())
            }
            EventType::Deleted => self.with_scratch(|scratch| {
                let facts = Facts::read(&self.spec, event.object, &mut scratch.found)?;
                self.write(|inner| inner.deleted(member, &facts));
                Ok(())
            }),
            EventType::Bookmark | EventType::Error => Ok(()),
        }
    }

    /// Notes the revision of a member's bookmark.
    pub fn bookmark(&self, member: &MemberName, revision: u64) {
        if self.passes() {
            self.report_at(member, revision);
        }
        self.lock().bookmark(member, revision);
    }

    /// Takes the object of a live answer in, if the member still is in the life in which the request began.
    ///
    /// Errors: a document that is no object.
    pub fn ingest_live(
        &self,
        member: &MemberName,
        incarnation: u32,
        document: &str,
    ) -> Result<Option<Ingested>, BadObject> {
        validate(document)?;
        if self.passes() {
            return Ok(None);
        }
        let is_of_that_life = |inner: &Sequencer| {
            inner.member(member).is_some_and(|state| state.incarnation == incarnation && !state.left)
        };
        self.ingest(member, document, Source::Live, is_of_that_life)
    }

    /// Dresses one document, and takes it in if that is allowed then.
    fn ingest(
        &self,
        member: &MemberName,
        document: &str,
        source: Source,
        is_allowed: impl FnOnce(&Sequencer) -> bool,
    ) -> Result<Option<Ingested>, BadObject> {
        let Some(preparing) = self.preparing(member) else { return Ok(None) };
        let prepared = self.prepare_one(&preparing, document, source)?;
        if source == Source::Live {
            self.check_kind(&prepared)?;
        }
        Ok(self.write(|inner| is_allowed(inner).then(|| inner.commit(member, prepared, source)).flatten()))
    }

    /// A live answer was asked for by a path, and a path can lead elsewhere.
    ///
    /// Errors: it is of another kind.
    fn check_kind(&self, prepared: &Prepared<'_>) -> Result<(), BadObject> {
        let wanted = &self.spec.gvk.kind;
        match &prepared.incoming.facts.kind {
            Some(found) if *found != **wanted => {
                Err(BadObject::Kind { found: found.to_string(), wanted: wanted.to_string() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Dresses one document.
    ///
    /// Errors: it is no object.
    pub(super) fn prepare_one<'t>(
        &self,
        preparing: &'t Preparing,
        document: &'t str,
        source: Source,
    ) -> Result<Prepared<'t>, BadObject> {
        let mut references = References::new(&self.kinds, &preparing.view.dressing.member);
        self.with_scratch(|scratch| preparing.prepare(self, document, source, &mut references, scratch))
    }

    /// Gives memory that is used again.
    fn with_scratch<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = self.scratches.lock().pop().unwrap_or_default();
        let outcome = work(&mut scratch);
        let mut scratches = self.scratches.lock();
        if scratches.len() < SCRATCHES_MAX {
            scratches.push(scratch);
        }
        outcome
    }

    /// Rewrites what refers to these anew.
    pub fn rewrite_dependents(&self, changed: &[Referent]) {
        let keys = self.peek(|inner| inner.dependents.of(changed));
        for slice in keys.chunks(SLICE_ITEMS_MAX) {
            self.write(|inner| inner.rewrite(slice));
        }
    }

    /// The kinds that the documents of this store have referred to.
    pub fn refers_to(&self) -> BTreeSet<GroupKind> {
        self.kinds.all()
    }

    /// Lets watches and paged lists begin. From here on every change is logged.
    pub fn open(&self) {
        if !self.is_open() {
            self.show_all();
            self.write(Sequencer::open);
        }
    }

    /// Says whether every change is logged.
    pub fn is_open(&self) -> bool {
        self.published.load().opened
    }

    /// Shows what came in while nobody looked, and not all of it under one lock.
    pub(super) fn show_all(&self) {
        while self.write(|inner| inner.show_unshown(FOLDS_SHOWN_MAX)) {}
    }

    /// Ends every watch cleanly: no member serves the kind any more.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.changed.send_modify(|version| *version += 1);
        self.log.streams().iter().for_each(|stream| stream.wake());
    }

    /// Says whether the store has ended.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The objects now.
    pub fn snapshot(&self) -> Snapshot {
        self.published.load().snapshot.clone()
    }

    /// What has been published, with everything up to a revision that was given out.
    pub(super) fn published_at(&self, revision: Revision) -> Arc<Published> {
        if !self.settled.is_settled(revision) {
            // The change that is under way may be below it.
            drop(self.inner.read());
        }
        self.published.load_full()
    }

    /// The objects now, as of a revision that may be that of another kind's later event.
    pub fn snapshot_from(&self, at_least: Revision) -> Snapshot {
        let mut snapshot = self.published_at(at_least).snapshot.clone();
        snapshot.revision = snapshot.revision.max(at_least);
        snapshot
    }

    /// The objects at a revision that has been given out: kept for a paged list, or had again by taking back what was
    /// logged since. `None`: the log does not reach so far, or it would be more than [`UNDONE_MAX`] events.
    ///
    /// Shape: costs O(events since).
    pub fn snapshot_at(&self, revision: Revision) -> Option<Snapshot> {
        if let Some(kept) = self.retained.lock().get(revision) {
            return Some(kept);
        }
        let mut since = Vec::new();
        let mut snapshot = self.published_at(revision).snapshot.clone();
        let offset = self.log.offset_at(revision);
        let reached = self.log.read_after(revision, UNDONE_MAX + 1, usize::MAX, &mut since) == ReadAfter::Read;
        if !reached || since.len() > UNDONE_MAX {
            return None;
        }
        // What was logged after the snapshot is not in it.
        since.retain(|record| record.revision <= snapshot.revision);
        snapshot.undo(&since);
        snapshot.revision = revision;
        snapshot.offset = offset;
        Some(snapshot)
    }

    /// The object of that key now.
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.published.load().snapshot.objects.get(key).cloned()
    }

    /// The parts under a plain key, in configuration order.
    pub fn parts(&self, key: &str) -> Vec<Arc<Part>> {
        self.inner.read().folds.get(key).map(|fold| fold.parts().to_vec()).unwrap_or_default()
    }

    /// The parts that make the visible object under a plain key: of a placed object its home first, then in the marker's
    /// order.
    pub fn shown_parts(&self, key: &str) -> Vec<Arc<Part>> {
        let inner = self.inner.read();
        inner.folds.get(key).map(|fold| fold.chosen().into_iter().cloned().collect()).unwrap_or_default()
    }

    /// Says that the object of that UID under a plain key is behind in these members; of none, that it has caught up. What
    /// that changes is one event, after the hold if the key is held.
    pub fn set_behind(&self, key: &str, uid: &str, members: &[MemberName]) {
        self.write(|inner| {
            let before = match members {
                [] => inner.behind.remove(key),
                members => inner.behind.insert(key.to_owned(), (uid.to_owned(), members.to_vec())),
            };
            let (known, before) = before.unwrap_or_default();
            if before != members || (known != uid && !members.is_empty()) {
                inner.refold(key);
            }
        });
    }

    /// What is to be said of the folded object under a plain key.
    pub fn notices(&self, key: &str) -> Notices {
        self.inner.read().notices(key)
    }

    /// Says whether a member's object of that own UID is still held under a plain key, as a part or as a member-local object.
    pub fn holds(&self, key: &str, member: &MemberName, uid: &str) -> bool {
        self.parts(key).iter().any(|part| part.member == *member && part.uid == uid)
            || self.member_locals(key).iter().any(|entry| entry.holders.first() == Some(member) && entry.uid() == uid)
    }

    /// The member-local objects of a plain key, whichever members hold one.
    pub fn member_locals(&self, key: &str) -> Vec<Arc<Entry>> {
        let inner = self.inner.read();
        let member_local = |state: &super::sequencer::MemberState| {
            let entry = inner.objects.get(inner.member_local_key(key, &state.name).as_str())?;
            (!entry.folded && entry.holders.first() == Some(&state.name)).then(|| Arc::clone(entry))
        };
        inner.members.iter().filter_map(member_local).collect()
    }

    /// Keeps a snapshot for the later pages of a list.
    pub fn retain(&self, snapshot: &Snapshot) {
        let offset = self.log.offset();
        let mut retained = self.retained.lock();
        retained.keep(snapshot, Instant::now());
        self.prune(&mut retained, offset);
    }

    fn prune(&self, retained: &mut Retained, offset: u64) {
        let oldest = retained.prune(offset, Instant::now());
        self.retained_since.store(oldest.unwrap_or(u64::MAX), Ordering::Release);
    }

    /// The objects at the revision that a continue token names, if that is promised still.
    pub fn retained(&self, revision: Revision) -> Option<Snapshot> {
        // A page that an earlier process gave may be followed by this one's.
        let promised = self.retained.lock().is_promised(revision, Instant::now()) || self.log.is_of_earlier(revision);
        promised.then(|| self.snapshot_at(revision)).flatten()
    }
}

/// How documents of one member are prepared.
pub(super) struct Preparing {
    published: Arc<Published>,
    view: MemberView,
}

impl Preparing {
    fn prepare<'t>(
        &'t self,
        store: &FleetStore,
        text: &'t str,
        source: Source,
        references: &mut References<'_>,
        scratch: &mut Scratch,
    ) -> Result<Prepared<'t>, BadObject> {
        let is_listed = source == Source::List;
        let held_part = |incoming: &Incoming<'_>| {
            let own_key = key(&incoming.facts.namespace, &incoming.facts.name);
            // A restored member may give a generation again that it gave to another spec.
            let part = store.part(&own_key, &self.view.dressing.member);
            part.filter(|part| part.incarnation == self.view.incarnation)
        };
        let is_held = |incoming: &Incoming<'_>, class: &Class| match class {
            Class::MemberLocal => self.published.holds(&self.view, incoming, is_listed),
            // The watch brings once more what the answer to a write brought.
            Class::Folded(_) => {
                let facts = &incoming.facts;
                let is_it = |part: &Arc<Part>| part.uid == facts.uid && part.member_rv == facts.member_rv;
                !is_listed && held_part(incoming).is_some_and(|part| is_it(&part))
            }
        };
        let mut prepared = self.view.dressing.prepare(text, references, scratch, held_part, is_held)?;
        if let Dressed::Part(part) = &mut prepared.dressed {
            let facts = &prepared.incoming.facts;
            let own_key = key(&facts.namespace, &facts.name);
            let base = store.peek(|inner| inner.folds.get(own_key.as_str())?.base_for(&part.member).cloned());
            if let Some(base) = base {
                part.document = part.document.clone().beside(&base);
            }
        }
        Ok(prepared)
    }
}
