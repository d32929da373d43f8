//! What an earlier process told, and the log of this one has not: docs/design/revisions.md#restarts.
//!
//! Of these events nothing is known but whom they concerned. A watch from before them goes on all the same if they were none of its
//! watcher's.

use crate::store::{digest::digest_of, interests::Interest, record::Record, revision::Revision};
use kubefold_wire::watch::EventType;

/// An event of which the object is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: Revision,
    /// A number that stands for the object's key.
    pub(super) key: u64,
    /// One that stands for its namespace.
    pub(super) namespace: u64,
    /// One that stands for its UID, if it was deleted; otherwise 0.
    pub(super) gone: u64,
}

impl Event {
    pub(super) fn of(record: &Record) -> Self {
        let entry = &record.entry;
        let gone = match record.event_type {
            EventType::Deleted => digest_of(entry.uid().as_bytes()),
            _ => 0,
        };
        let [key, namespace] = [entry.key(), entry.namespace().as_bytes()].map(digest_of);
        Self { at: record.revision, key, namespace, gone }
    }
}

/// All events after a revision, up to which the log goes on.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) since: Revision,
    /// The revision of the newest one. The log has what came after.
    pub(super) head: Revision,
    /// Oldest first.
    pub(super) events: Vec<Event>,
}

impl Missing {
    /// Says whether none of them that came after a revision was for a watcher.
    pub(super) fn concerns_nobody_in(&self, interest: &Interest, after: Revision) -> bool {
        if after < self.since {
            return false;
        }
        let first = self.events.partition_point(|event| event.at <= after);
        let mut later = self.events.get(first..).unwrap_or_default().iter();
        match interest {
            Interest::Namespace(name) => {
                let namespace = digest_of(name.as_bytes());
                later.all(|event| event.namespace != namespace)
            }
            Interest::Object(key) => {
                let key = digest_of(key.as_bytes());
                later.all(|event| event.key != key)
            }
            // On which node a pod was is not known.
            Interest::Everything | Interest::Node(_) => later.next().is_none(),
        }
    }
}
