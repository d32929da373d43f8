//! How much a store holds of each member, counted as objects enter and leave it.

use std::collections::{BTreeMap, HashMap};

use crate::{
    config::MemberName,
    store::{entry::Entry, fleet_store::FleetStore},
};

/// What a store holds of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Visible objects that it holds; one of several members counts in each.
    pub objects: usize,
    /// What they cost to hold; of an object of several members each has its share. Units: bytes.
    pub bytes: usize,
}

/// What a store holds of each member.
#[derive(Debug, Default)]
pub(super) struct Tally(HashMap<MemberName, Held>);

impl Tally {
    /// Notes that `after` stands where `before` stood, each if there is one.
    pub(super) fn replace(&mut self, before: Option<&Entry>, after: Option<&Entry>) {
        let share = |entry: &Entry| entry.size() / entry.holders.len().max(1);
        if let (Some(before), Some(after)) = (before, after)
            && share(before) == share(after)
            && before.holders == after.holders
        {
            return;
        }
        if let Some(after) = after {
            for holder in &*after.holders {
                let held = self.0.entry(holder.clone()).or_default();
                held.objects += 1;
                held.bytes += share(after);
            }
        }
        let Some(before) = before else { return };
        for holder in &*before.holders {
            let Some(held) = self.0.get_mut(holder) else { continue };
            held.objects -= 1;
            held.bytes -= share(before);
            if held.objects == 0 {
                self.0.remove(holder);
            }
        }
    }
}

impl FleetStore {
    /// How much is held of each member. Of those of which nothing is, there is no entry.
    pub fn held_by_member(&self) -> BTreeMap<MemberName, Held> {
        self.peek(|inner| inner.tally.0.iter().map(|(member, held)| (member.clone(), *held)).collect())
    }
}
