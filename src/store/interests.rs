//! Watchers of a part of a kind: of one namespace, one object, or the pods of one node. They are woken for its events alone,
//! and read these without the others in between.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::{entry::Entry, record::Record, revision::Revision};

/// What a watcher may see at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Interest {
    /// All objects of the kind.
    #[default]
    Everything,
    /// Those of a namespace.
    Namespace(Arc<str>),
    /// The one of that key.
    Object(Arc<str>),
    /// Pods that a node of that visible name runs.
    Node(Arc<str>),
}

impl Interest {
    fn parts(&self) -> Option<(Facet, &Arc<str>)> {
        match self {
            Self::Everything => None,
            Self::Namespace(name) => Some((Facet::Namespace, name)),
            Self::Object(key) => Some((Facet::Object, key)),
            Self::Node(name) => Some((Facet::Node, name)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Facet {
    Namespace,
    Object,
    Node,
}

/// The events of one part of a kind, from when somebody began to watch it.
#[derive(Debug)]
pub(super) struct Stream {
    /// Everything above this revision is here.
    since: Revision,
    /// Bytes that had been logged then.
    since_offset: u64,
    /// Bytes that had been logged with its newest event.
    newest_offset: AtomicU64,
    events: Mutex<Events>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Events {
    /// The log holds the events: what it lets go is gone here too.
    records: VecDeque<(Revision, Weak<Record>)>,
    /// The newest one that is gone.
    lost: Revision,
}

impl Stream {
    /// Says whether all above a revision is, or was, in this stream.
    pub(super) fn covers(&self, after: Revision) -> bool {
        after >= self.since
    }

    /// Appends up to `max` records above `after`, and no further one once their objects are `max_bytes` long.
    ///
    /// Errors: one of them is gone.
    pub(super) fn read_after(
        &self,
        after: Revision,
        max: usize,
        max_bytes: usize,
        out: &mut Vec<Arc<Record>>,
    ) -> Result<(), Gone> {
        let events = self.events.lock();
        if after < events.lost {
            return Err(Gone);
        }
        let first = events.records.partition_point(|(revision, _)| *revision <= after);
        let mut bytes = 0;
        for (_, record) in events.records.range(first..).take(max) {
            if bytes >= max_bytes {
                break;
            }
            let record = record.upgrade().ok_or(Gone)?;
            bytes += record.entry.json().len();
            out.push(record);
        }
        Ok(())
    }

    /// Says whether one of the events above `after` is gone.
    pub(super) fn has_lost(&self, after: Revision) -> bool {
        let events = self.events.lock();
        let first = events.records.partition_point(|(revision, _)| *revision <= after);
        after < events.lost || events.records.get(first).is_some_and(|(_, record)| record.strong_count() == 0)
    }

    /// Bytes of the log in which a watcher that has read so many may still find something.
    pub(super) fn unread(&self, offset: u64, head: u64) -> u64 {
        let last = if offset < self.since_offset { head } else { self.newest_offset.load(Ordering::Acquire) };
        last.saturating_sub(offset)
    }

    /// Tells of its changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Has its watchers look.
    pub(super) fn wake(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    fn push(&self, record: &Arc<Record>) {
        let mut events = self.events.lock();
        while let Some((revision, oldest)) = events.records.front()
            && oldest.strong_count() == 0
        {
            events.lost = *revision;
            events.records.pop_front();
        }
        events.records.push_back((record.revision, Arc::downgrade(record)));
        drop(events);
        self.newest_offset.store(record.offset, Ordering::Release);
    }
}

/// An event that a watcher has not read is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// The streams that somebody watches, by what they are about.
#[derive(Debug, Default)]
pub(super) struct Interests {
    namespaces: Streams,
    objects: Streams,
    nodes: Streams,
    /// Streams with events that their watchers have not been woken for.
    touched: Vec<Arc<Stream>>,
}

#[derive(Debug, Default)]
struct Streams {
    by_name: HashMap<Arc<str>, Weak<Stream>>,
    /// With so many those go that nobody watches any more.
    sweep_at: usize,
}

impl Streams {
    fn get(&self, name: &str) -> Option<Arc<Stream>> {
        if self.by_name.is_empty() { None } else { self.by_name.get(name)?.upgrade() }
    }

    fn insert(&mut self, name: &Arc<str>, stream: &Arc<Stream>) {
        if self.by_name.len() >= self.sweep_at.max(16) {
            self.by_name.retain(|_, stream| stream.strong_count() > 0);
            self.sweep_at = 2 * self.by_name.len();
        }
        self.by_name.insert(Arc::clone(name), Arc::downgrade(stream));
    }
}

impl Interests {
    fn of(&mut self, facet: Facet) -> &mut Streams {
        match facet {
            Facet::Namespace => &mut self.namespaces,
            Facet::Object => &mut self.objects,
            Facet::Node => &mut self.nodes,
        }
    }

    /// The stream of an interest; a new one begins above `head`, when `offset` bytes have been logged.
    pub(super) fn stream(&mut self, interest: &Interest, head: Revision, offset: u64) -> Option<Arc<Stream>> {
        let (facet, name) = interest.parts()?;
        let streams = self.of(facet);
        if let Some(known) = streams.get(name) {
            return Some(known);
        }
        let stream = Arc::new(Stream {
            since: head,
            since_offset: offset,
            newest_offset: AtomicU64::new(0),
            events: Mutex::default(),
            changed: watch::Sender::new(0),
        });
        streams.insert(name, &stream);
        Some(stream)
    }

    /// Notes an event in the streams that it concerns.
    pub(super) fn note(&mut self, record: &Arc<Record>) {
        let key = record.entry.shared_key();
        let mut concerned: Vec<Arc<Stream>> = Vec::new();
        concerned.extend(self.namespaces.get(record.entry.namespace()));
        concerned.extend(self.objects.get(key));
        if !self.nodes.by_name.is_empty() {
            let states = [Some(&record.entry), record.previous.as_ref()];
            self.note_node(states.into_iter().flatten(), &mut concerned);
        }
        for stream in concerned {
            stream.push(record);
            self.touched.push(stream);
        }
    }

    fn note_node<'a>(&self, states: impl Iterator<Item = &'a Arc<Entry>>, concerned: &mut Vec<Arc<Stream>>) {
        let mut before = None;
        for state in states {
            match state.node() {
                node if before == node => {}
                Some(node) => concerned.extend(self.nodes.get(node)),
                None => {}
            }
            before = state.node();
        }
    }

    /// The streams that changed since this was asked for last.
    pub(super) fn take_touched(&mut self) -> Vec<Arc<Stream>> {
        std::mem::take(&mut self.touched)
    }

    /// All streams.
    pub(super) fn all(&self) -> Vec<Arc<Stream>> {
        let all = [&self.namespaces, &self.objects, &self.nodes];
        all.into_iter().flat_map(|streams| streams.by_name.values()).filter_map(Weak::upgrade).collect()
    }
}
