//! What an earlier process showed of a kind at last: docs/design/revisions.md#restarts.
//!
//! It is written down by a process that ends in order, and told to the standbys of one that may be killed: whole at first, then what
//! changes of it.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::store::{
    digest::{Digest, digest_of},
    entry::Entry,
    missing::{Event, Missing},
    record::Record,
    revision::Revision,
    snapshot::Snapshot,
};
use kubefold_wire::watch::EventType;

/// What the encoded form begins with.
const FORMAT: u64 = 2;
const NUMBER_LEN: usize = size_of::<u64>();
/// For so long it is known what was told. No mirror that is of use is further behind, and most clients have heard of it.
const EVENTS_KEPT_FOR: Duration = Duration::from_mins(1);
/// But no more of them than these.
const EVENTS_MAX: usize = 1 << 16;

/// What a process showed of a kind at last. It has no object, and knows each again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The revision of the newest event.
    pub(super) head: Revision,
    /// The last revision that was given out for any kind. What is told of later ones is not known.
    pub(super) last: Revision,
    /// By a number that stands for the key.
    pub(super) objects: HashMap<u64, Known>,
    /// Events of late, oldest first.
    pub(super) events: VecDeque<Event>,
    /// All of them after this revision.
    pub(super) since: Revision,
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
    /// What has become of objects, oldest first, by what stands for their keys. `None`: it is gone.
    objects: Vec<(u64, Option<Known>)>,
    /// The events that did that.
    events: Vec<Event>,
}

impl Earlier {
    /// What a snapshot shows, where `last` is the last revision that was given out, and `events` are all after `since`.
    ///
    /// Shape: reads the bytes of all objects.
    pub(super) fn of(snapshot: &Snapshot, last: Revision, events: &[Arc<Record>], since: Revision) -> Self {
        let known = |entry: &Arc<Entry>| (digest_of(entry.key()), Known::of(entry));
        let (head, last) = (snapshot.revision, last.max(snapshot.revision));
        let events = events.iter().map(|record| Event::of(record)).collect();
        let mut this = Self { head, last, objects: snapshot.objects.values().map(known).collect(), events, since };
        this.forget_events();
        this
    }

    /// Takes in what has changed.
    pub fn change(&mut self, later: &Later) {
        self.head = self.head.max(later.head);
        self.last = self.last.max(later.head);
        for (key, known) in &later.objects {
            match known {
                Some(known) => drop(self.objects.insert(*key, *known)),
                None => drop(self.objects.remove(key)),
            }
        }
        self.events.extend(&later.events);
        self.forget_events();
    }

    fn forget_events(&mut self) {
        let is_old =
            |this: &Self, event: &Event| event.at.until(this.head) > EVENTS_KEPT_FOR || this.events.len() > EVENTS_MAX;
        while let Some(oldest) = self.events.front().copied().filter(|event| is_old(self, event)) {
            self.events.pop_front();
            self.since = oldest.at;
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

    /// What a log has not that goes on from here.
    pub(super) fn missing(&self) -> Missing {
        Missing { since: self.since, head: self.head, events: self.events.iter().copied().collect() }
    }

    /// As bytes. Shape: 32 for each object and event.
    pub fn encode(&self) -> Vec<u8> {
        let objects = self.objects.iter().map(|(key, known)| (*key, Some(*known)));
        encoded([self.head, self.last, self.since], objects, self.events.iter())
    }

    /// The same from bytes. `None`: they are none of this version's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let ([head, last, since], objects, events) = decoded(bytes)?;
        let objects: Option<_> = objects.iter().map(object).map(|(key, known)| Some((key, known?))).collect();
        Some(Self { head, last, objects: objects?, events: events.iter().map(event).collect(), since })
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
            let is_gone = record.event_type == EventType::Deleted;
            (digest_of(record.entry.key()), (!is_gone).then(|| Known::of(&record.entry)))
        };
        let (objects, events) = records.iter().map(|record| (change(record), Event::of(record))).unzip();
        Self { head, objects, events }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The revision of the newest event.
    pub fn head(&self) -> Revision {
        self.head
    }

    /// As bytes. Shape: 64 for each event.
    pub fn encode(&self) -> Vec<u8> {
        encoded([self.head; 3], self.objects.iter().copied(), self.events.iter())
    }

    /// The same from bytes. `None`: they are none of this version's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let ([head, ..], objects, events) = decoded(bytes)?;
        Some(Self { head, objects: objects.iter().map(object).collect(), events: events.iter().map(event).collect() })
    }
}

/// Three revisions, objects and events as bytes. The revision of an object that is gone is 0.
fn encoded<'a>(
    revisions: [Revision; 3],
    objects: impl ExactSizeIterator<Item = (u64, Option<Known>)>,
    events: impl ExactSizeIterator<Item = &'a Event>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity((5 + 4 * (objects.len() + events.len())) * NUMBER_LEN);
    let mut put = |number: u64| out.extend_from_slice(&number.to_le_bytes());
    let [head, last, since] = revisions.map(|revision| revision.0);
    [FORMAT, head, last, since, objects.len() as u64].into_iter().for_each(&mut put);
    for (key, known) in objects {
        let Known { form, revision, parts } =
            known.unwrap_or(Known { form: 0, revision: Revision(0), parts: Revision(0) });
        [key, form, revision.0, parts.0].into_iter().for_each(&mut put);
    }
    for Event { at, key, namespace, gone } in events {
        [at.0, *key, *namespace, *gone].into_iter().for_each(&mut put);
    }
    out
}

type Row = [[u8; NUMBER_LEN]; 4];

/// The revisions of what [`encoded`] gives, and the rows of objects and events. `None`: it is none of this version's.
fn decoded(bytes: &[u8]) -> Option<([Revision; 3], &[Row], &[Row])> {
    let (numbers, rest) = bytes.as_chunks::<NUMBER_LEN>();
    let (head, rows) = numbers.split_first_chunk::<5>()?;
    let [FORMAT, head, last, since, objects] = head.map(u64::from_le_bytes) else { return None };
    let (rows, too_few) = rows.as_chunks::<4>();
    let (objects, events) = rows.split_at_checked(usize::try_from(objects).ok()?)?;
    (rest.is_empty() && too_few.is_empty()).then_some(([head, last, since].map(Revision), objects, events))
}

fn object(row: &Row) -> (u64, Option<Known>) {
    let [key, form, revision, parts] = row.map(u64::from_le_bytes);
    let known = Known { form, revision: Revision(revision), parts: Revision(parts) };
    (key, Some(known).filter(|_| revision > 0))
}

fn event(row: &Row) -> Event {
    let [at, key, namespace, gone] = row.map(u64::from_le_bytes);
    Event { at: Revision(at), key, namespace, gone }
}

impl Entry {
    /// A number that stands for all of it but its revision: the document, the revision that it has in its member, and whose parts it
    /// is made of. So one that was changed there and back is another.
    pub(super) fn form(&self) -> u64 {
        let (before, behind) = self.around_revision();
        let mut digest = Digest::new();
        [before, behind].into_iter().flatten().for_each(|piece| digest.update(piece));
        digest.update(&self.provenance.member_rv().to_le_bytes());
        for part in self.parts.iter().flat_map(|parts| parts.list.iter()) {
            digest.update(part.member.as_str().as_bytes());
            digest.update(part.uid.as_bytes());
            digest.update(&part.member_rv.to_le_bytes());
        }
        digest.first()
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
