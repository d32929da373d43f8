//! What a write means for each part: the same changes in each member's words, and each one's share of what is divided.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    placement::{
        fold::FoldKind,
        merge::{Change, Step, Take, What, difference, take},
    },
    write::{
        fleet::{Fleet, Key},
        update::{
            part::{Held, changed},
            shares::{self, Total, divided},
            task::{PartTask, Pending},
            wanted::{Wanted, meant},
            work::Work,
        },
    },
};

/// What a write means for each part.
pub(super) struct Plan {
    /// The home's document, with all changes made.
    pub(super) document: Value,
    /// The home's changes.
    pub(super) home: PartTask,
    /// The other parts', in their order.
    pub(super) others: Vec<PartTask>,
    /// The client named the revision that it changes.
    pub(super) guarded: bool,
}

impl<F: Fleet> Work<'_, F> {
    /// Plans a write; `patch` is the one of which the home told what it makes of it.
    pub(super) fn draft(&self, wanted: &Wanted, patch: Option<&Value>, totals: &[Total]) -> Plan {
        let mut tasks: Vec<PartTask> = self.shares(totals);
        for (task, part) in tasks.iter_mut().zip(self.parts()) {
            task.shared = self.changes_of(part, wanted, patch, totals);
        }
        let mut tasks = tasks.into_iter();
        let mut home = tasks.next().unwrap_or_default();
        let mut others: Vec<PartTask> = tasks.collect();
        for (at, change) in home.shared.iter_mut().enumerate() {
            if !counts(self.key, change) {
                continue;
            }
            shift(change, &self.home.document);
            // A change stands at the same place in all lists: elsewhere this one says nothing.
            for change in others.iter_mut().filter_map(|other| other.shared.get_mut(at)) {
                change.what = What::Value { old: None, new: None };
            }
        }
        let document = with_all(&self.home.document, &home);
        Plan { document, home, others, guarded: wanted.guarded }
    }

    fn changes_of(&self, part: &Held, wanted: &Wanted, patch: Option<&Value>, totals: &[Total]) -> Vec<Change> {
        let local = |document: &Value| -> Value {
            let local = self.writer.fleet.localize(self.key, &part.member, &Bytes::from(document.to_string()));
            serde_json::from_slice(&local).unwrap_or_else(|_| document.clone())
        };
        let (before, after) = (local(&wanted.before), local(&wanted.after));
        let mut changes = match patch {
            Some(patch) => meant(self.key, patch, &before, &after),
            None => difference(&before, &after),
        };
        let is_divided = |change: &Change| match patch {
            Some(_) => divided(self.key).iter().any(|field| change.is_within(field.path)),
            None => totals.iter().any(|total| change.is_within(total.field.path)),
        };
        let is_not_its = |change: &Change| self.without_status && change.is_within(&["status"]);
        changes.retain(|change| !is_not_its(change) && !is_divided(change));
        changes
    }

    /// The parts' shares of new totals.
    fn shares(&self, totals: &[Total]) -> Vec<PartTask> {
        let mut tasks: Vec<PartTask> = self.parts().map(|_| PartTask::default()).collect();
        for total in totals {
            let now = self.parts().map(|part| {
                let mut document = part.document.clone();
                // What a part is behind with counts as if it were so.
                let waiting = Pending::of(&self.earlier_in(&part.member), &part.member).shares();
                take(&waiting, Take::WhereOld, &mut document);
                let share = shares::total(&document, total.field).unwrap_or(0);
                (&part.member, self.writer.fleet.weight(&part.member), share)
            });
            let now: Vec<_> = now.collect();
            for (task, change) in tasks.iter_mut().zip(shares::changes(*total, &now, &self.visible.uid)) {
                task.own.extend(change);
            }
        }
        tasks
    }
}

/// A document with a task's changes made, whatever it holds.
pub(super) fn with_all(document: &Value, task: &PartTask) -> Value {
    let all: Vec<Change> = task.shared.iter().chain(&task.own).cloned().collect();
    changed(document, &all, Take::Always).0
}

/// Says whether a change is one of a number in the status that the fold sums over the parts.
fn counts(key: &Key, change: &Change) -> bool {
    let [Step::Field(status), Step::Field(name)] = change.at.as_slice() else { return false };
    let What::Value { old, new } = &change.what else { return false };
    let summed = FoldKind::of(&key.gvr.group, &key.gvr.resource) != FoldKind::Other || name == "observedGeneration";
    status == "status" && summed && [old, new].into_iter().flatten().all(Value::is_i64)
}

/// Has the home take what a sum becomes by the difference.
fn shift(change: &mut Change, home: &Value) {
    let held = change.value_in(home);
    let What::Value { old, new } = &mut change.what else { return };
    let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_i64).unwrap_or(0);
    let shifted = number(&held).saturating_add(number(new)).saturating_sub(number(old));
    *new = Some(shifted.into());
    *old = held;
}
