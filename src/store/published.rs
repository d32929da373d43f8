//! What readers see of a store: a whole that the writer replaces after every change, so that no reader waits for a writer.
//!
//! One case waits. A reader that names a revision of another kind's later event must know that nothing below it is still on
//! its way in this kind. [`Settled`] says whether it is.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    config::MemberName,
    store::{dress::Dressing, entry::Entry, incoming::Incoming, naming::key, revision::Revision, snapshot::Snapshot},
};

/// What readers see.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) snapshot: Snapshot,
    pub(super) members: Arc<MemberViews>,
    /// Changes are logged: watches may begin.
    pub(super) opened: bool,
}

/// What is published of the members.
pub(super) type MemberViews = HashMap<MemberName, MemberView>;

/// What is published of a member. It changes with the member's lives, not with its objects.
#[derive(Clone, Debug)]
pub(super) struct MemberView {
    /// Which life of the member the store has.
    pub(super) incarnation: u32,
    /// The store has held the member's objects completely since it started.
    pub(super) filled: bool,
    /// What its documents are dressed with; the counters in it are those of the moment in which this was published.
    pub(super) dressing: Arc<Dressing>,
}

impl Published {
    pub(super) fn member(&self, name: &MemberName) -> Option<&MemberView> {
        self.members.get(name)
    }

    /// Says whether a member-local document brings nothing new, as far as can be seen. The writer judges again.
    pub(super) fn holds(&self, member: &MemberView, incoming: &Incoming<'_>, is_listed: bool) -> bool {
        let own_key = key(&incoming.facts.namespace, &incoming.facts.name);
        let mut key = String::with_capacity(own_key.len() + 32);
        let Dressing { naming, spec, member: name, .. } = &*member.dressing;
        naming.write_member_local(spec.is_event, &own_key, name, &mut key);
        let is_it = |entry: &&Arc<Entry>| !entry.folded && entry.holders.first() == Some(&member.dressing.member);
        let Some(entry) = self.snapshot.objects.get(key.as_str()).filter(is_it) else { return false };
        let (from, facts) = (&entry.provenance, &incoming.facts);
        let is_known = entry.uid() == facts.uid && from.incarnation() == member.incarnation;
        match from.member_rv().cmp(&facts.member_rv) {
            std::cmp::Ordering::Greater => is_known,
            std::cmp::Ordering::Equal => is_known && (!is_listed || entry.is_original(incoming.text, incoming.lead)),
            std::cmp::Ordering::Less => false,
        }
    }
}

/// A number that threads share. Implemented by the standard library's, and in a test by one whose every interleaving is tried.
pub(super) trait Shared64 {
    fn load(&self) -> u64;
    fn store(&self, value: u64);
}

impl Shared64 for AtomicU64 {
    fn load(&self) -> u64 {
        Self::load(self, Ordering::SeqCst)
    }

    fn store(&self, value: u64) {
        Self::store(self, value, Ordering::SeqCst);
    }
}

/// Up to which revision everything of a kind has been published.
///
/// The writer says before a change what the last revision is that anybody has, and after it that nothing is on its way.
/// Revisions that the change takes are above that one. So who has a revision and finds nothing on its way, or something
/// that began at that revision or later, knows all up to it.
#[derive(Debug)]
pub(super) struct Settled<N = AtomicU64> {
    /// The last revision that was given out when the present change began; `NOTHING` without one.
    begun_at: N,
}

const NOTHING: u64 = u64::MAX;

impl Default for Settled {
    fn default() -> Self {
        Self { begun_at: AtomicU64::new(NOTHING) }
    }
}

impl<N: Shared64> Settled<N> {
    /// A change begins, before it takes a revision. One at a time.
    pub(super) fn begin(&self, last: Revision) {
        self.begun_at.store(last.0);
    }

    /// The change has been published.
    pub(super) fn end(&self) {
        self.begun_at.store(NOTHING);
    }

    /// Says whether all that a kind has up to a revision, which was given out before, has been published.
    pub(super) fn is_settled(&self, revision: Revision) -> bool {
        self.begun_at.load() >= revision.0
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::{
        Arc as LoomArc, Mutex,
        atomic::{AtomicU64 as LoomU64, Ordering as LoomOrdering},
    };

    use super::*;

    impl Shared64 for LoomU64 {
        fn load(&self) -> u64 {
            Self::load(self, LoomOrdering::SeqCst)
        }

        fn store(&self, value: u64) {
            Self::store(self, value, LoomOrdering::SeqCst);
        }
    }

    /// A store as far as revisions go: a counter that all kinds share, and the newest event that readers see.
    struct Store {
        counter: LoomArc<LoomU64>,
        writer: Mutex<()>,
        settled: Settled<LoomU64>,
        published: LoomU64,
    }

    impl Store {
        /// An event of this kind.
        fn write(&self) -> u64 {
            let _one_at_a_time = self.writer.lock().unwrap();
            self.settled.begin(Revision(self.counter.load(LoomOrdering::Acquire)));
            let revision = self.counter.fetch_add(1, LoomOrdering::AcqRel) + 1;
            self.published.store(revision, LoomOrdering::Release);
            self.settled.end();
            revision
        }

        /// What a reader sees that must not miss anything up to a revision.
        fn read(&self, revision: u64) -> u64 {
            if !self.settled.is_settled(Revision(revision)) {
                drop(self.writer.lock().unwrap());
            }
            self.published.load(LoomOrdering::Acquire)
        }
    }

    #[test]
    fn a_reader_misses_nothing_up_to_the_revision_that_it_has() {
        loom::model(|| {
            let counter = LoomArc::new(LoomU64::new(1));
            let store = LoomArc::new(Store {
                counter: LoomArc::clone(&counter),
                writer: Mutex::new(()),
                settled: Settled { begun_at: LoomU64::new(NOTHING) },
                published: LoomU64::new(0),
            });
            let writing = LoomArc::clone(&store);
            let writer = loom::thread::spawn(move || [writing.write(), writing.write()]);
            // Another kind's event, whose revision a client has.
            let other = counter.fetch_add(1, LoomOrdering::AcqRel) + 1;
            let seen = store.read(other);
            let written = writer.join().unwrap();
            let newest = written.into_iter().filter(|revision| *revision < other).max().unwrap_or(0);
            assert!(seen >= newest, "{seen} was seen, and {newest} was written before {other}");
        });
    }
}
