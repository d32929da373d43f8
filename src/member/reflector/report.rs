//! What a reflector says about itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{member::reflector::progress::Progress, upstream::cause::Cause};
use kubefold_wire::warning::warning_text;

/// What an item of a list is taken to have before the first was seen. Units: bytes.
const ITEM_BYTES: usize = 4 << 10;

/// Warnings of a member that are kept, and how long each may be. Units: characters.
const WARNINGS_MAX: usize = 8;
const WARNING_CHARS_MAX: usize = 256;

/// Why a reflector does not follow its member now.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// For operators.
    pub cause: Arc<str>,
    /// Since when.
    pub since: Instant,
}

/// What is shown of a member is what an earlier process was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromMirror {
    /// How old that was when it was read.
    age: Duration,
    /// When it was read.
    pub(crate) since: Instant,
}

impl FromMirror {
    /// How long ago the member was followed.
    pub(crate) fn age(&self) -> Duration {
        self.age + self.since.elapsed()
    }
}

/// What a reflector says about itself.
#[derive(Debug, Default)]
pub(crate) struct ReflectorState {
    trouble: Mutex<Option<Trouble>>,
    /// Present until the member has told what is new.
    mirrored: Mutex<Option<FromMirror>>,
    /// A current revision of the member, as it was found before the last watch.
    pub(super) current: AtomicU64,
    /// How far its list is; absent when it has one to the end.
    progress: Mutex<Option<Progress>>,
    /// Causes that the log has since the member was last followed for long: retries say nothing.
    told: Mutex<Vec<Cause>>,
    /// A watch has stood before.
    pub(super) watched: AtomicBool,
    /// The member's revisions of this kind are no decimal numbers.
    unordered: AtomicBool,
    /// Counts what changes here, and in the other reflectors of the store.
    news: Arc<AtomicU64>,
    /// Bytes of an item in the last page; 0 before the first.
    item_bytes: AtomicUsize,
    /// What the member warned of when it was last asked for the kind: that the version is deprecated.
    warnings: Mutex<Vec<Arc<str>>>,
    /// The generation of the definition by which its objects were listed; 0 where it has none.
    pub(super) definition: AtomicU64,
}

impl ReflectorState {
    /// One that counts its changes where those of its store's other reflectors are counted.
    pub(crate) fn counted_in(news: Arc<AtomicU64>) -> Self {
        Self { news, ..Self::default() }
    }

    /// Why it does not follow its member now; `None` while it does.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().clone()
    }

    /// Says whether what is shown of the member is what an earlier process was told, and how old.
    pub(crate) fn mirrored(&self) -> Option<FromMirror> {
        *self.mirrored.lock()
    }

    pub(super) fn is_restored(&self) -> bool {
        self.mirrored.lock().is_some()
    }

    /// Notes that the member's objects are those that an earlier process was told so long ago.
    pub(super) fn restore(&self, age: Duration) {
        *self.mirrored.lock() = Some(FromMirror { age, since: Instant::now() });
        self.news.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the member has told what is new; true if that was to come.
    pub(super) fn resume(&self) -> bool {
        let was_restored = self.mirrored.lock().take().is_some();
        if was_restored {
            self.news.fetch_add(1, Ordering::AcqRel);
        }
        was_restored
    }

    /// Says whether no store can hold what the member has of this kind: nothing orders it.
    pub(crate) fn is_unordered(&self) -> bool {
        self.unordered.load(Ordering::Relaxed)
    }

    /// What the member warns of whoever reads the kind.
    pub(crate) fn warnings(&self) -> Vec<Arc<str>> {
        self.warnings.lock().clone()
    }

    /// Notes what the member warned of in an answer.
    pub(super) fn hear(&self, headers: &HeaderMap) {
        let texts = headers.get_all(header::WARNING).iter().filter_map(|value| value.to_str().ok()).map(warning_text);
        let texts = texts.map(|text| text.chars().take(WARNING_CHARS_MAX).collect::<String>().into());
        let heard: Vec<Arc<str>> = texts.take(WARNINGS_MAX).collect();
        let mut warnings = self.warnings.lock();
        if *warnings != heard {
            *warnings = heard;
            self.news.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How far its list is, or was when it failed. Absent before the first, and after one that came to its end.
    pub(crate) fn progress(&self) -> Option<Progress> {
        *self.progress.lock()
    }

    /// A list begins.
    pub(crate) fn begin_list(&self) {
        let mut progress = self.progress.lock();
        *progress = Some(Progress::begin(*progress));
    }

    /// Something came of the list that was begun.
    pub(crate) fn note_progress(&self, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = &mut *self.progress.lock() {
            change(progress);
        }
    }

    /// The list came to its end.
    pub(super) fn end_list(&self) {
        *self.progress.lock() = None;
    }

    /// Notes how large a page of so many items was.
    pub(super) fn measure(&self, bytes: usize, items: usize) {
        if let Some(item_bytes) = bytes.checked_div(items) {
            self.item_bytes.store(item_bytes, Ordering::Relaxed);
        }
    }

    /// About how large a page of so many items will be. Units: bytes.
    pub(super) fn bytes_of(&self, items: usize) -> usize {
        match self.item_bytes.load(Ordering::Relaxed) {
            0 => items * ITEM_BYTES,
            item_bytes => items.saturating_mul(item_bytes),
        }
    }

    pub(super) fn fail(&self, cause: &str) {
        let mut trouble = self.trouble.lock();
        let since = trouble.as_ref().map_or_else(Instant::now, |trouble| trouble.since);
        *trouble = Some(Trouble { cause: cause.into(), since });
        drop(trouble);
        self.news.fetch_add(1, Ordering::AcqRel);
    }

    /// The member's revisions turn out to be no decimal numbers; true if that is new.
    pub(super) fn find_unordered(&self) -> bool {
        let is_new = !self.unordered.swap(true, Ordering::Relaxed);
        self.news.fetch_add(1, Ordering::AcqRel);
        is_new
    }

    pub(super) fn heal(&self) {
        *self.trouble.lock() = None;
        self.unordered.store(false, Ordering::Relaxed);
        self.news.fetch_add(1, Ordering::AcqRel);
    }

    /// True if the log should have a line about this cause.
    pub(super) fn tell(&self, cause: Cause) -> bool {
        let mut told = self.told.lock();
        let is_new = !told.contains(&cause);
        if is_new {
            told.push(cause);
        }
        is_new
    }

    /// Forgets what was told; true if anything was.
    pub(super) fn settle(&self) -> bool {
        !std::mem::take(&mut *self.told.lock()).is_empty()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.told.lock().is_empty()
    }
}
