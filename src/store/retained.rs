//! What paged lists go on with: revisions that were promised to them, and the snapshots that are kept for that.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::store::{revision::Revision, snapshot::Snapshot};

/// Snapshots that paged lists hold on to. More than these are had from the log, where it reaches.
pub const SNAPSHOTS_MAX: usize = 128;
/// Bytes of objects that live in those snapshots alone. Counted by what was replaced or deleted since the oldest of them,
/// which is more: of an object that changed twice, the state in between too.
pub const SNAPSHOT_BYTES_MAX: u64 = 128 << 20;
/// Revisions that are promised at a time.
const PROMISES_MAX: usize = 4096;
/// How long a continue token lives. Source: etcd's default compaction, five minutes.
pub const RETAINED_FOR: Duration = Duration::from_mins(5);

/// Both queues have the oldest first.
#[derive(Debug, Default)]
pub(super) struct Retained {
    promises: VecDeque<(Revision, Instant)>,
    snapshots: VecDeque<(Snapshot, Instant)>,
}

impl Retained {
    /// Promises a revision to the pages that follow.
    pub(super) fn keep(&mut self, snapshot: &Snapshot, now: Instant) {
        let revision = snapshot.revision;
        self.promises.retain(|(known, _)| *known != revision);
        self.promises.push_back((revision, now));
        if self.promises.len() > PROMISES_MAX {
            self.promises.pop_front();
        }
        self.snapshots.retain(|(known, _)| known.revision != revision);
        self.snapshots.push_back((snapshot.clone(), now));
    }

    /// Lets go of what is too old or too much, now that `offset` bytes have been logged. Gives the offset of the oldest
    /// snapshot that is left.
    pub(super) fn prune(&mut self, offset: u64, now: Instant) -> Option<u64> {
        let is_old = |since: Instant| now.duration_since(since) >= RETAINED_FOR;
        while self.promises.front().is_some_and(|(_, since)| is_old(*since)) {
            self.promises.pop_front();
        }
        while self.snapshots.len() > SNAPSHOTS_MAX || self.snapshots.front().is_some_and(|(_, since)| is_old(*since)) {
            self.snapshots.pop_front();
        }
        self.snapshots.retain(|(kept, _)| offset.saturating_sub(kept.offset) <= SNAPSHOT_BYTES_MAX);
        self.snapshots.iter().map(|(kept, _)| kept.offset).min()
    }

    /// Says whether that revision is promised still.
    pub(super) fn is_promised(&self, revision: Revision, now: Instant) -> bool {
        self.promises.iter().any(|(known, since)| *known == revision && now.duration_since(*since) < RETAINED_FOR)
    }

    /// The snapshot of that revision, if it is kept.
    pub(super) fn get(&self, revision: Revision) -> Option<Snapshot> {
        self.snapshots.iter().find(|(kept, _)| kept.revision == revision).map(|(kept, _)| kept.clone())
    }
}
