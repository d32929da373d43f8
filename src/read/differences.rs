//! What has changed from one state of a kind to a later one, found by comparing the two in bounded steps.

use std::{cmp::Ordering, sync::Arc};

use crate::{
    read::filter::{Filter, Seen, makes_the_same},
    store::{Entry, Revision, Snapshot, Transition},
};

/// Objects that one step compares.
const STEP_ITEMS_MAX: usize = 2048;

/// One change.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    /// What it is to a client that has the earlier state.
    pub(super) transition: Transition,
    /// The object: that of the later state, or of the earlier one if it is gone.
    pub(super) entry: Arc<Entry>,
    /// A client that was told of everything up to here knows of the change.
    pub(super) revision: Revision,
}

/// A comparison.
pub(super) struct Differences {
    before: Snapshot,
    now: Snapshot,
    /// What the client saw of the earlier state, where it sees more by now.
    saw: Option<Box<Filter>>,
    /// Everything up to this key has been compared.
    after: Vec<u8>,
    found: Vec<Difference>,
}

impl Differences {
    /// Compares two states of one kind.
    pub(super) fn new(before: Snapshot, now: Snapshot) -> Self {
        Self { before, now, saw: None, after: Vec::new(), found: Vec::new() }
    }

    /// The same for a client that saw less of the earlier state: what `saw` selects.
    pub(super) fn of_more(before: Snapshot, now: Snapshot, saw: Filter) -> Self {
        Self { saw: Some(Box::new(saw)), ..Self::new(before, now) }
    }

    /// Compares a bounded number of objects. Says whether these were the last.
    pub(super) fn step(&mut self, filter: &Filter) -> bool {
        let Self { before, now, saw, after, found } = self;
        let namespace = filter.sought_namespace();
        let mut last = None;
        let mut is_done = false;
        let (mut old, mut new) = (before.range(namespace, after).peekable(), now.range(namespace, after).peekable());
        for _ in 0..STEP_ITEMS_MAX {
            let order = match (old.peek(), new.peek()) {
                (None, None) => {
                    is_done = true;
                    break;
                }
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.key().cmp(new.key()),
            };
            let was = old.next_if(|_| order.is_le());
            let is = new.next_if(|_| order.is_ge());
            let same = saw.is_none() && was.zip(is).is_some_and(|(was, is)| Arc::ptr_eq(was, is));
            if !same {
                let was = was.and_then(|entry| saw.as_deref().unwrap_or(filter).selected(entry));
                let is = is.and_then(|entry| filter.selected(entry));
                judge(was, is, now.revision, found);
            }
            last = is.or(was);
        }
        let last = last.map(|entry| entry.key().to_vec());
        if let Some(last) = last {
            *after = last;
        }
        is_done
    }

    /// What was found, oldest first, and the state that it leads to.
    pub(super) fn into_events(mut self) -> (Vec<Difference>, Snapshot) {
        self.found.sort_by_key(|difference| difference.revision);
        (self.found, self.now)
    }
}

fn judge(was: Option<Seen<'_>>, is: Option<Seen<'_>>, now: Revision, found: &mut Vec<Difference>) {
    let mut tell = |transition, entry: &Arc<Entry>, revision| {
        found.push(Difference { transition, entry: Arc::clone(entry), revision });
    };
    match (was, is) {
        (Some(was), Some(is)) if makes_the_same(&was, &is) => {}
        (Some(was), Some(is)) if was.uid() == is.uid() => tell(Transition::Modified, &is, is.revision),
        (Some(was), Some(is)) => {
            tell(Transition::Deleted, &was, Revision(is.revision.0.saturating_sub(1)));
            tell(Transition::Added, &is, is.revision);
        }
        (None, Some(is)) => tell(Transition::Added, &is, is.revision),
        (Some(was), None) => tell(Transition::Deleted, &was, now),
        (None, None) => {}
    }
}
