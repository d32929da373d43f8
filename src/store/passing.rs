//! What members tell of a kind that no memory holds, on its way to the tables that have it.
//!
//! The store of such a kind has no objects. It knows where each member stands, and has what was told and is not written yet, in
//! the order in which it was told, and bounded.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::config::MemberName;

/// What is written at once. Units: bytes of documents.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// One thing that a member told.
#[derive(Debug)]
pub enum Report {
    /// A full list begins. What it does not have is gone when it ends.
    ListBegan,
    /// An object as it is now.
    Object(ReportedObject),
    /// There is nothing under a key any more.
    Gone {
        /// Its key in its member.
        key: String,
        /// The member's revision of the deletion.
        revision: u64,
    },
    /// All up to this revision of the member was told.
    At(u64),
    /// The full list that was begun is complete.
    ListEnded {
        /// The UID of the member's cluster.
        cluster_uid: Arc<str>,
        /// The member's revision at which it was read.
        revision: u64,
        /// The generation of the definition by which the objects were read; 0 where the kind has none.
        definition: u64,
    },
}

/// An object that a member told of.
#[derive(Debug)]
pub struct ReportedObject {
    /// Its key in its member.
    pub key: String,
    /// Its UID.
    pub uid: String,
    /// Its revision in its member.
    pub revision: u64,
    /// As the member gave it, with `kind` and `apiVersion`.
    pub document: String,
}

impl Report {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Object(object) => object.document.len(),
            _ => 0,
        }
    }
}

/// What each member had told at a moment: how many reports.
#[derive(Clone, Debug)]
pub struct ReportNumbers(pub(super) Vec<(MemberName, u64)>);

/// The next of a member's reports.
#[derive(Clone, Debug)]
pub struct Batch {
    /// In the order in which they were told.
    pub reports: Arc<[Report]>,
    pub(super) bytes: usize,
}

/// What is on its way.
#[derive(Debug, Default)]
pub(super) struct Passing {
    pub(super) waiting: Mutex<Waiting>,
    /// Rises with what has been written.
    pub(super) written: watch::Sender<u64>,
    /// There is something to write.
    pub(super) news: Notify,
    /// A member's objects are to be listed again.
    pub(super) lost: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) queues: HashMap<MemberName, Queue>,
    /// Members whose rows are not there any more.
    pub(super) lost: HashSet<MemberName>,
    pub(super) bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) reports: VecDeque<Report>,
    /// How many there have been.
    pub(super) told: u64,
    /// How many of them have been written, or are not to be any more.
    pub(super) written: u64,
}

impl Queue {
    pub(super) fn next(&mut self) -> Option<Batch> {
        let (mut reports, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES_MAX
            && let Some(report) = self.reports.pop_front()
        {
            bytes += report.bytes();
            reports.push(report);
        }
        (!reports.is_empty()).then(|| Batch { reports: reports.into(), bytes })
    }
}

impl Waiting {
    pub(super) fn push(&mut self, member: &MemberName, report: Report) {
        self.bytes += report.bytes();
        let queue = self.queues.entry(member.clone()).or_default();
        queue.told += 1;
        queue.reports.push_back(report);
    }
}
