//! What an earlier process showed of a kind at last: docs/design/revisions.md#restarts.
//!
//! It is written down by a process that ends in order, and told to the standbys of one that may be killed: whole at first, then what
//! changes of it.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::digest::{Context, SHA256};

use crate::store::{entry::Entry, record::Record, revision::Revision, snapshot::Snapshot};
use kubefold_wire::watch::EventType;

/// What the encoded form begins with.
const FORMAT: u64 = 2;
const NUMBER_LEN: usize = size_of::<u64>();
/// For so long it is known which objects are gone: no mirror is so far behind what was shown that still is of use.
const GONE_KEPT_FOR: Duration = Duration::from_mins(1);

/// What a process showed of a kind at last. It has no object, and knows each again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The revision of the newest event.
    pub(super) head: Revision,
    /// The last revision that was given out for any kind. What is told of later ones is not known.
    pub(super) last: Revision,
    /// By a number that stands for the key.
    pub(super) objects: HashMap<u64, Known>,
    /// Numbers that stand for the UIDs of objects that are gone of late, and when they went. None of them comes back.
    pub(super) gone: VecDeque<(Revision, u64)>,
}

/// How one object was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// A number that stands for all of it but the revision.
    pub(super) form: u64,
    pub(super) revision: Revision,
    /// Since when its parts were as they were; 0 of an object without parts.
    pub(super) parts: Revision,
}

/// What has changed of an [`Earlier`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// The revision of the newest event.
    pub(super) head: Revision,
    /// What has become of objects, oldest first, by what stands for their keys.
    objects: Vec<(u64, Now)>,
}

/// What has become of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Shown(Known),
    Gone {
        /// A number that stands for its UID.
        uid: u64,
        at: Revision,
    },
}

impl Earlier {
    /// What a snapshot shows, where `last` is the last revision that was given out, and `deletions` are those of late.
    ///
    /// Shape: reads the bytes of all objects.
    pub(super) fn of(snapshot: &Snapshot, last: Revision, deletions: &[Arc<Record>]) -> Self {
        let known = |entry: &Arc<Entry>| (digest_of(entry.key()), Known::of(entry));
        let (head, last) = (snapshot.revision, last.max(snapshot.revision));
        let gone = deletions.iter().map(|record| (record.revision, digest_of(record.entry.uid().as_bytes())));
        Self { head, last, objects: snapshot.objects.values().map(known).collect(), gone: gone.collect() }
    }

    /// Takes in what has changed.
    pub fn change(&mut self, later: &Later) {
        self.head = self.head.max(later.head);
        self.last = self.last.max(later.head);
        for (key, now) in &later.objects {
            match now {
                Now::Shown(known) => drop(self.objects.insert(*key, *known)),
                Now::Gone { uid, at } => {
                    self.objects.remove(key);
                    self.gone.push_back((*at, *uid));
                }
            }
        }
        while self.gone.front().is_some_and(|(at, _)| at.until(later.head) > GONE_KEPT_FOR) {
            self.gone.pop_front();
        }
    }

    /// All has been told that came up to a revision, which was given out for any kind.
    pub fn reach(&mut self, last: Revision) {
        self.last = self.last.max(last);
    }

    /// The last revision that was given out for any kind.
    pub fn last(&self) -> Revision {
        self.last
    }

    /// The revision of the newest event.
    pub fn head(&self) -> Revision {
        self.head
    }

    /// As bytes. Shape: 32 for each object.
    pub fn encode(&self) -> Vec<u8> {
        let shown = self.objects.iter().map(|(key, known)| (*key, Now::Shown(*known)));
        let gone = self.gone.iter().map(|(at, uid)| (0, Now::Gone { uid: *uid, at: *at }));
        encoded(self.head, self.last, shown.chain(gone))
    }

    /// The same from bytes. `None`: they are none of this version's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, last, rows) = decoded(bytes)?;
        let mut this = Self { head, last, objects: HashMap::with_capacity(rows.len()), gone: VecDeque::new() };
        for (key, now) in rows {
            match now {
                Now::Shown(known) => drop(this.objects.insert(key, known)),
                Now::Gone { uid, at } => this.gone.push_back((at, uid)),
            }
        }
        Some(this)
    }
}

impl Known {
    /// Shape: reads the bytes of the object.
    fn of(entry: &Entry) -> Self {
        let parts = entry.parts.as_ref().map_or(Revision(0), |parts| parts.revision);
        Self { form: entry.form(), revision: entry.revision, parts }
    }
}

impl Later {
    /// What these events say, oldest first, the newest of which was at `head`.
    ///
    /// Shape: reads the bytes of their objects.
    pub(super) fn of(head: Revision, records: &[Arc<Record>]) -> Self {
        let change = |record: &Arc<Record>| {
            let entry = &record.entry;
            let now = match record.event_type {
                EventType::Deleted => Now::Gone { uid: digest_of(entry.uid().as_bytes()), at: record.revision },
                _ => Now::Shown(Known::of(entry)),
            };
            (digest_of(entry.key()), now)
        };
        Self { head, objects: records.iter().map(change).collect() }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The revision of the newest event.
    pub fn head(&self) -> Revision {
        self.head
    }

    /// As bytes. Shape: 32 for each event.
    pub fn encode(&self) -> Vec<u8> {
        encoded(self.head, self.head, self.objects.iter().copied())
    }

    /// The same from bytes. `None`: they are none of this version's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, _, objects) = decoded(bytes)?;
        Some(Self { head, objects: objects.collect() })
    }
}

/// Two revisions and objects as bytes. The revision of one that is gone is 0.
fn encoded(head: Revision, last: Revision, objects: impl Iterator<Item = (u64, Now)>) -> Vec<u8> {
    let mut out = Vec::with_capacity((3 + 4 * objects.size_hint().0) * NUMBER_LEN);
    let mut put = |number: u64| out.extend_from_slice(&number.to_le_bytes());
    [FORMAT, head.0, last.0].into_iter().for_each(&mut put);
    for (key, now) in objects {
        let row = match now {
            Now::Shown(Known { form, revision, parts }) => [key, form, revision.0, parts.0],
            Now::Gone { uid, at } => [key, uid, 0, at.0],
        };
        row.into_iter().for_each(&mut put);
    }
    out
}

/// The same from bytes. `None`: they are none of this version's.
fn decoded(bytes: &[u8]) -> Option<(Revision, Revision, impl ExactSizeIterator<Item = (u64, Now)>)> {
    let (numbers, rest) = bytes.as_chunks::<NUMBER_LEN>();
    let (head, rows) = numbers.split_first_chunk::<3>()?;
    let [FORMAT, head, last] = head.map(u64::from_le_bytes) else { return None };
    let (rows, too_few) = rows.as_chunks::<4>();
    let object = |row: &[[u8; NUMBER_LEN]; 4]| match row.map(u64::from_le_bytes) {
        [key, uid, 0, at] => (key, Now::Gone { uid, at: Revision(at) }),
        [key, form, revision, parts] => {
            (key, Now::Shown(Known { form, revision: Revision(revision), parts: Revision(parts) }))
        }
    };
    (rest.is_empty() && too_few.is_empty()).then(|| (Revision(head), Revision(last), rows.iter().map(object)))
}

impl Entry {
    /// A number that stands for all of it but its revision: the document, the revision that it has in its member, and whose parts it
    /// is made of. So one that was changed there and back is another.
    pub(super) fn form(&self) -> u64 {
        let (before, behind) = self.around_revision();
        let mut context = Context::new(&SHA256);
        [before, behind].into_iter().flatten().for_each(|piece| context.update(piece));
        context.update(&self.provenance.member_rv().to_le_bytes());
        for part in self.parts.iter().flat_map(|parts| parts.list.iter()) {
            context.update(part.member.as_str().as_bytes());
            context.update(part.uid.as_bytes());
            context.update(&part.member_rv.to_le_bytes());
        }
        first_of(context)
    }

    /// Makes this the state of `revision`, whose parts have been as they are since `parts`. Says whether that could be done, as
    /// [`Self::stamp`] does.
    pub(super) fn stamp_all(&mut self, revision: Revision, parts: Revision) -> bool {
        let is_stamped = self.stamp(revision);
        if let Some(of) = self.parts.as_mut().and_then(Arc::get_mut).filter(|_| is_stamped) {
            of.revision = parts;
        }
        is_stamped
    }
}

/// A number that stands for some bytes, in any process.
pub fn digest_of(bytes: &[u8]) -> u64 {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    first_of(context)
}

fn first_of(context: Context) -> u64 {
    u64::from_le_bytes(context.finish().as_ref().first_chunk().copied().unwrap_or_default())
}
