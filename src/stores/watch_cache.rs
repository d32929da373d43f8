//! The watch caches of a standby: kinds as the holder shows them, from which lists and watches are answered:
//! docs/design/members.md#watch-caches.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    store::{Change, Earlier, Entry, FleetStore, Revision, SLICE_ITEMS_MAX, Shared},
    stores::{
        IDLE_MAX,
        cache_frames::{Frame, Frames, WatchCacheAsked},
        told::Unreadable,
    },
};
use kubefold_wire::resource::Gvr;

/// All of them.
pub struct WatchCaches {
    shared: Shared,
    /// Begins no further one once all together hold so many bytes of objects.
    bytes_max: u64,
    kinds: Mutex<HashMap<Gvr, Arc<WatchCache>>>,
    until: CancellationToken,
}

/// The watch cache of one kind. It outlives the connection by which it is filled.
pub struct WatchCache {
    gvr: Gvr,
    /// None before it has all objects.
    shown: ArcSwapOption<Shown>,
    /// It has all up to there.
    reached: watch::Sender<Revision>,
    /// Of the holder of which it has that.
    epoch: AtomicI64,
    stale: Mutex<Vec<String>>,
    used: Mutex<Instant>,
    /// It is filled until then.
    until: CancellationToken,
}

/// What readers of a watch cache see.
pub struct Shown {
    /// All objects of the kind, and events.
    pub store: Arc<FleetStore>,
    /// A digest of the members that they are of: there are no others until this store has ended.
    pub members: u64,
}

impl std::fmt::Debug for WatchCaches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WatchCaches")
    }
}

impl WatchCaches {
    /// None yet.
    pub fn new(shared: Shared, bytes_max: Option<u64>, until: CancellationToken) -> Arc<Self> {
        Arc::new(Self { shared, bytes_max: bytes_max.unwrap_or(u64::MAX), kinds: Mutex::default(), until })
    }

    /// What all of them share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The one of a kind, which is in use now.
    pub fn of(&self, gvr: &Gvr) -> Option<Arc<WatchCache>> {
        let cache = Arc::clone(self.kinds.lock().get(gvr)?);
        *cache.used.lock() = Instant::now();
        Some(cache)
    }

    /// Begins one, which its caller has to fill. `None`: there is one, or there is no room.
    pub fn begin(&self, gvr: &Gvr) -> Option<Arc<WatchCache>> {
        let mut kinds = self.kinds.lock();
        self.forget_idle(&mut kinds);
        if kinds.contains_key(gvr) || kinds.values().map(|cache| cache.held().1).sum::<u64>() >= self.bytes_max {
            return None;
        }
        let cache = Arc::new(WatchCache {
            gvr: gvr.clone(),
            shown: ArcSwapOption::default(),
            reached: watch::Sender::new(Revision(0)),
            epoch: AtomicI64::new(0),
            stale: Mutex::default(),
            used: Mutex::new(Instant::now()),
            until: self.until.child_token(),
        });
        kinds.insert(gvr.clone(), Arc::clone(&cache));
        Some(cache)
    }

    /// Lets go of what nobody has used for long.
    pub fn sweep(&self) {
        self.forget_idle(&mut self.kinds.lock());
    }

    fn forget_idle(&self, kinds: &mut HashMap<Gvr, Arc<WatchCache>>) {
        kinds.retain(|_, cache| {
            let is_used = cache.used.lock().elapsed() < IDLE_MAX || cache.watchers() > 0;
            if !is_used {
                cache.until.cancel();
            }
            is_used
        });
    }

    /// Adds to what the holder of an epoch has told that it shows what it has shown to clients of these caches: events that it told of
    /// at once, and not yet there.
    pub fn complete(&self, told: &mut HashMap<Gvr, Earlier>, epoch: i64) {
        for cache in self.kinds.lock().values().filter(|cache| cache.epoch.load(Ordering::Acquire) == epoch) {
            let (Some(earlier), Some(shown)) = (told.get_mut(&cache.gvr), cache.shown.load_full()) else { continue };
            shown.store.complete(earlier);
        }
    }

    /// Registers their figures.
    pub fn register(self: &Arc<Self>, exported: &mut Registry) {
        exported.register_collector(Box::new(Figures(Arc::clone(self))));
    }
}

impl WatchCache {
    /// Its kind.
    pub fn gvr(&self) -> &Gvr {
        &self.gvr
    }

    /// It is filled until this is cancelled.
    pub fn until(&self) -> &CancellationToken {
        &self.until
    }

    /// What is to be asked for to fill it.
    pub fn asks(&self) -> WatchCacheAsked {
        let after = self.shown.load().as_ref().map(|shown| (*self.reached.borrow(), shown.members));
        WatchCacheAsked { gvr: self.gvr.clone(), after }
    }

    /// Says whether it has been filled once.
    pub fn is_filled(&self) -> bool {
        self.shown.load().is_some()
    }

    /// The store, once it has all up to a revision; `None` if it has not within `wait_max`.
    pub async fn at(&self, revision: Revision, wait_max: Duration) -> Option<Arc<Shown>> {
        let mut reached = self.reached.subscribe();
        let is_there = reached.wait_for(|reached| *reached >= revision);
        timeout(wait_max, is_there).await.ok()?.ok()?;
        self.shown.load_full()
    }

    /// Members of which it shows the last known state.
    pub fn stale(&self) -> Vec<String> {
        self.stale.lock().clone()
    }

    fn watchers(&self) -> usize {
        self.shown.load().as_ref().map_or(0, |shown| shown.store.watchers())
    }

    /// Objects, and their bytes.
    fn held(&self) -> (u64, u64) {
        let held = self.shown.load().as_ref().map(|shown| (shown.store.snapshot().count(""), shown.store.bytes()));
        held.unwrap_or_default()
    }
}

/// Fills a watch cache from one connection.
pub struct CacheFilling<'a> {
    cache: &'a WatchCache,
    shared: &'a Shared,
    epoch: i64,
    frames: Frames,
    /// That is not shown yet, and a digest of its members.
    next: Option<(FleetStore, u64)>,
    objects: Vec<Entry>,
    has_begun: bool,
}

impl<'a> CacheFilling<'a> {
    /// Nothing has come yet from the holder of that epoch.
    pub fn of(cache: &'a WatchCache, caches: &'a WatchCaches, epoch: i64) -> Self {
        let frames = Frames::of(cache.gvr.clone());
        Self { cache, shared: &caches.shared, epoch, frames, next: None, objects: Vec::new(), has_begun: false }
    }

    /// Takes in what has come.
    ///
    /// Errors: it is not what this version knows.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Unreadable> {
        self.frames.push(bytes);
        let mut changes = Vec::new();
        while let Some(frame) = self.frames.next()? {
            match frame {
                Frame::Begins { spec, is_whole: true, members } => {
                    let store = FleetStore::new(Arc::new(spec), self.shared.clone(), |_| {});
                    self.next = Some((store, members));
                    self.has_begun = true;
                }
                Frame::Begins { .. } => {
                    self.has_begun = self.cache.is_filled();
                    self.cache.epoch.store(self.epoch, Ordering::Release);
                }
                _ if !self.has_begun => return Err(Unreadable),
                Frame::Object(entry) => self.object(*entry),
                Frame::Filled(revision) => self.filled(revision)?,
                Frame::Changed(change) => changes.push(change),
                Frame::Stale(members) => *self.cache.stale.lock() = members,
                Frame::Ended => self.cache.shown.swap(None).iter().for_each(|shown| shown.store.end()),
            }
        }
        self.apply(changes);
        Ok(())
    }

    fn object(&mut self, entry: Entry) {
        self.objects.push(entry);
        if self.objects.len() >= SLICE_ITEMS_MAX {
            self.fill();
        }
    }

    fn fill(&mut self) {
        if let Some((store, _)) = &self.next {
            store.fill(std::mem::take(&mut self.objects));
        }
    }

    /// All objects have come: readers see them from now on. Watches of what was there before end, and their clients begin new ones.
    fn filled(&mut self, revision: Revision) -> Result<(), Unreadable> {
        self.fill();
        let (store, members) = self.next.take().ok_or(Unreadable)?;
        store.filled_as_of(revision);
        let before = self.cache.shown.swap(Some(Arc::new(Shown { store: Arc::new(store), members })));
        self.cache.epoch.store(self.epoch, Ordering::Release);
        before.iter().for_each(|before| before.store.end());
        self.shared.revisions.reach(revision);
        self.cache.reached.send_replace(revision);
        Ok(())
    }

    fn apply(&self, changes: Vec<Change>) {
        let (Some(reached), Some(shown)) = (changes.last().map(Change::revision), self.cache.shown.load_full()) else {
            return;
        };
        shown.store.apply(changes);
        self.shared.revisions.reach(reached);
        self.cache.reached.send_replace(reached);
    }
}

/// Figures of all watch caches.
#[derive(Debug)]
struct Figures(Arc<WatchCaches>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let all: Vec<Arc<WatchCache>> = self.0.kinds.lock().values().cloned().collect();
        let (objects, bytes) = all
            .iter()
            .map(|cache| cache.held())
            .fold((0, 0), |(objects, bytes), (more, long)| (objects + more, bytes + long));
        let filled = all.iter().filter(|cache| cache.is_filled()).count() as u64;
        let watchers = all.iter().map(|cache| cache.watchers() as u64).sum();
        let figures = [
            ("cached_kinds", "Kinds whose lists and watches this standby answers from its own memory", filled),
            ("cached_objects", "Objects that this standby has in its own memory", objects),
            ("cached_bytes", "Bytes of the objects that this standby has in its own memory", bytes),
            ("cached_watchers", "Watches that this standby answers from its own memory", watchers),
        ];
        for (name, help, value) in figures {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Config, MemberName},
        store::{KindSpec, LogLimits, Naming, Revisions, unstored},
        stores::cache_frames::{WATCH_CACHE_PATH, Written},
    };
    use kubefold_wire::resource::Gvk;

    fn caches() -> Arc<WatchCaches> {
        let shared = Shared {
            naming: Arc::new(Naming::new(&Config::of(Vec::new()))),
            identities: Arc::default(),
            revisions: Arc::new(Revisions::volatile()),
            log_limits: LogLimits::default(),
        };
        WatchCaches::new(shared, Some(1), CancellationToken::new())
    }

    fn maps() -> Gvr {
        Gvr::new("", "v1", "configmaps")
    }

    fn spec() -> KindSpec {
        KindSpec::new(maps(), Gvk::new("", "v1", "ConfigMap"), true)
    }

    fn entry(caches: &WatchCaches, name: &str) -> Entry {
        let object = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"u","resourceVersion":"1"}}}}"#
        );
        Arc::into_inner(unstored(&spec(), &caches.shared, &MemberName::new("east").unwrap(), &object).unwrap()).unwrap()
    }

    /// The keys that readers see, and as of which revision.
    fn seen(cache: &WatchCache) -> Option<(Vec<String>, u64)> {
        let snapshot = cache.shown.load_full()?.store.snapshot();
        Some((snapshot.objects.keys().map(ToString::to_string).collect(), snapshot.revision.0))
    }

    #[tokio::test(start_paused = true)]
    async fn a_cache_is_seen_once_it_is_whole_and_goes_on_by_another_connection() {
        let caches = caches();
        for piece in [1, 7, 100_000] {
            let cache = caches.begin(&maps()).unwrap();
            assert!(caches.begin(&maps()).is_none(), "there is one");
            let asked = |cache: &WatchCache| {
                let target = cache.asks().to_target();
                let (path, query) = target.split_once('?').unwrap();
                WatchCacheAsked::of(path, query).unwrap()
            };
            assert_eq!(asked(&cache), WatchCacheAsked { gvr: maps(), after: None });
            let mut first = CacheFilling::of(&cache, &caches, 1);
            let mut comes = |written: Written| written.0.chunks(piece).try_for_each(|piece| first.push(piece));
            let mut out = Written::default();
            out.begins(&spec(), true, 77);
            out.object(&entry(&caches, "x"));
            comes(out).unwrap();
            assert!(!cache.is_filled() && cache.at(Revision(1), Duration::from_secs(1)).await.is_none());
            let mut out = Written::default();
            out.object(&entry(&caches, "y"));
            out.filled(Revision(10));
            out.stale(&["west".to_owned(), "north".to_owned()]);
            comes(out).unwrap();
            assert_eq!(seen(&cache), Some((vec!["a/x@east".to_owned(), "a/y@east".to_owned()], 10)));
            assert_eq!(cache.stale(), ["west", "north"]);
            assert_eq!(cache.at(Revision(10), Duration::ZERO).await.unwrap().members, 77);
            let before = cache.shown.load_full().unwrap().store.clone();

            // Another connection, maybe to another holder.
            assert_eq!(asked(&cache).after, Some((Revision(10), 77)));
            let mut second = CacheFilling::of(&cache, &caches, 1);
            let mut comes = |written: Written| written.0.chunks(piece).try_for_each(|piece| second.push(piece));
            let mut out = Written::default();
            out.begins(&spec(), false, 77);
            out.removed(b"a/x@east", Revision(12));
            out.reached(Revision(13));
            out.stale(&[]);
            comes(out).unwrap();
            assert_eq!(seen(&cache), Some((vec!["a/y@east".to_owned()], 13)));
            assert!(cache.stale().is_empty() && !before.is_ended());
            let mut out = Written::default();
            out.begins(&spec(), true, 78);
            out.filled(Revision(20));
            comes(out).unwrap();
            assert_eq!(seen(&cache), Some((Vec::new(), 20)));
            assert!(before.is_ended(), "its watches begin anew");
            let mut out = Written::default();
            out.ended();
            comes(out).unwrap();
            assert!(seen(&cache).is_none() && asked(&cache).after.is_none());

            tokio::time::advance(IDLE_MAX).await;
            assert!(caches.of(&maps()).is_some());
            caches.sweep();
            assert!(caches.of(&maps()).is_some() && !cache.until().is_cancelled(), "it was in use");
            tokio::time::advance(IDLE_MAX).await;
            caches.sweep();
            assert!(caches.of(&maps()).is_none() && cache.until().is_cancelled());
        }
    }

    #[test]
    fn what_clients_of_a_cache_have_been_told_is_known_if_it_was_told_by_the_same_holder() {
        let caches = caches();
        let cache = caches.begin(&maps()).unwrap();
        let mut filling = CacheFilling::of(&cache, &caches, 7);
        let mut out = Written::default();
        out.begins(&spec(), true, 1);
        out.object(&entry(&caches, "x"));
        out.filled(Revision(10));
        filling.push(&out.0).unwrap();
        let shown = |revision| cache.shown.load_full().unwrap().store.shown(Revision(revision)).unwrap();
        let before = shown(10);
        let mut out = Written::default();
        out.removed(b"a/x@east", Revision(12));
        filling.push(&out.0).unwrap();
        for (epoch, known) in [(8, before.clone()), (7, shown(12))] {
            let mut told = HashMap::from([(maps(), before.clone())]);
            caches.complete(&mut told, epoch);
            let told = told.remove(&maps()).unwrap();
            assert_eq!((told.head(), told.last()), (known.head(), known.last()));
            assert_eq!(told, known);
        }
    }

    #[test]
    fn no_further_cache_begins_where_there_is_no_room() {
        let caches = caches();
        let cache = caches.begin(&maps()).unwrap();
        assert!(caches.begin(&Gvr::new("", "v1", "pods")).is_some(), "nothing is held yet");
        let mut out = Written::default();
        out.begins(&spec(), true, 1);
        out.object(&entry(&caches, "x"));
        out.filled(Revision(10));
        CacheFilling::of(&cache, &caches, 1).push(&out.0).unwrap();
        assert!(caches.begin(&Gvr::new("", "v1", "secrets")).is_none());
    }

    #[test]
    fn what_cannot_be_read_ends_the_connection() {
        let caches = caches();
        let cache = caches.begin(&maps()).unwrap();
        let (mut begins, mut goes_on, mut filled) = (Written::default(), Written::default(), Written::default());
        begins.begins(&spec(), true, 1);
        goes_on.begins(&spec(), false, 1);
        filled.filled(Revision(1));
        let frame = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
        let behind = |first: &Written, rest: &[u8]| [&first.0[..], rest].concat();
        for bad in [
            filled.0.clone(),
            behind(&goes_on, &filled.0),
            behind(&begins, &frame(b"?")),
            behind(&begins, &frame(b"o123")),
            behind(&begins, &frame(b"f123")),
            behind(&begins, &frame(b"d1234567\xff\xff")),
            frame(b"b1"),
            frame(b""),
            u32::MAX.to_le_bytes().to_vec(),
        ] {
            assert!(CacheFilling::of(&cache, &caches, 1).push(&bad).is_err(), "{bad:?}");
            assert!(!cache.is_filled());
        }
        for (path, query) in [
            ("/kubefold/v1/shown", "format=1&resource=/v1/pods"),
            (WATCH_CACHE_PATH, "format=2&resource=/v1/pods"),
            (WATCH_CACHE_PATH, "format=1&resource=pods"),
            (WATCH_CACHE_PATH, ""),
        ] {
            assert_eq!(WatchCacheAsked::of(path, query), None, "{query}");
        }
    }
}
