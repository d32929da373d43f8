//! An unfinished update, as the journal has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    config::MemberName,
    placement::merge::Change,
    write::{
        journal::{Entry, Step},
        update::part::{Held, Manner, Ownership},
    },
};
use kubefold_wire::options::query_value;

/// What is to become of the parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Task {
    /// How members are asked.
    pub(super) manner: Manner,
    /// What changes in the home.
    pub(super) home: PartTask,
    /// What the home holds at each of these when it is done: a member writes some values in another way than they came.
    pub(super) holds: Vec<Option<Value>>,
    /// The same changes as the fleet view shows them: in what a part is made of that is missing still.
    #[serde(default)]
    pub(super) shown: Vec<Change>,
    /// What changes in the other parts, in the order of the entry's targets.
    pub(super) others: Vec<PartTask>,
    /// The shares of parts that earlier writes have still to make, by the member's name.
    #[serde(default)]
    pub(super) coming: Vec<(String, Vec<Change>)>,
    /// The create of parts whose share was 0: the targets that have no own UID.
    pub(super) making: Option<Box<Entry>>,
}

/// What changes in one part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PartTask {
    /// Each stands for the home's change at the same place in the list, in the words of this member.
    pub(super) shared: Vec<Change>,
    /// Its share of what is divided.
    pub(super) own: Vec<Change>,
    /// Of an apply.
    #[serde(flatten)]
    pub(super) ownership: Ownership,
    /// What its member is to apply, in a server-side apply: the changes only say what comes of that.
    pub(super) apply: Option<Value>,
}

impl Task {
    /// Reads an entry's task. `None`: it is of another kind, or of a kubefold that wrote others.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        serde_json::from_str(&entry.body).ok()
    }

    /// What the object as it is shown took of it and its home still holds.
    pub(super) fn live(&self, home: &Value) -> Vec<Change> {
        let held = self.home.shared.iter().zip(&self.holds).map(|(change, holds)| change.value_in(home) == *holds);
        self.shown.iter().zip(held).filter(|(_, held)| *held).map(|(change, _)| change.clone()).collect()
    }

    /// The task as the journal has it.
    pub(super) fn to_body(&self) -> String {
        // Strings, numbers and maps of strings: serialization has no way to fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The task of an entry with other names of members; `None`: it is of another kind.
pub(in crate::write) fn renamed_task(entry: &Entry, names: &BTreeMap<String, MemberName>) -> Option<String> {
    let mut task = Task::of(entry)?;
    for (member, _) in &mut task.coming {
        if let Some(now) = names.get(member) {
            *member = now.to_string();
        }
    }
    if let Some(making) = &mut task.making {
        making.rename(names);
    }
    Some(task.to_body())
}

/// Says whether a server-side apply is still to be made in a member that is not the home.
pub(super) fn applies_in(entry: &Entry, member: &MemberName) -> bool {
    let at = entry.targets.iter().skip(1).position(|target| target.member == *member);
    let part = at.zip(Task::of(entry)).and_then(|(at, task)| task.others.into_iter().nth(at));
    part.is_some_and(|part| part.apply.is_some())
}

/// The field manager that a query names.
pub(super) fn manager(query: &str) -> Option<String> {
    query_value(query, "fieldManager").filter(|manager| !manager.is_empty())
}

/// Says whether a write waits for an earlier apply in a member: each value is the latest writer's only if they are brought in
/// their order. A later apply of the same manager takes the place of the earlier one; `query` is that of an apply, and
/// `None` of any other write.
pub(super) fn waits_for(earlier: &Entry, member: &MemberName, query: Option<&str>) -> bool {
    let is_replaced = query.and_then(manager).is_some_and(|own| manager(&earlier.query) == Some(own));
    applies_in(earlier, member) && !is_replaced
}

/// What is still to be done in one part, by one update or several of them, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending(Vec<Waiting>);

#[derive(Clone, Debug)]
struct Waiting {
    home: Vec<Change>,
    holds: Vec<Option<Value>>,
    part: PartTask,
}

impl Pending {
    /// What these entries have still to do in a member that is not their home.
    pub(super) fn of(entries: &[Entry], member: &MemberName) -> Self {
        let of = |entry: &Entry| {
            let at = entry.targets.iter().skip(1).position(|target| target.member == *member)?;
            let task = Task::of(entry)?;
            Some(Waiting { home: task.home.shared, holds: task.holds, part: task.others.into_iter().nth(at)? })
        };
        Self(entries.iter().filter_map(of).collect())
    }

    /// Adds a later update.
    pub(super) fn then(mut self, home: &[Change], holds: &[Option<Value>], part: PartTask) -> Self {
        self.0.push(Waiting { home: home.to_vec(), holds: holds.to_vec(), part });
        self
    }

    /// The changes to make, in order: those whose values the home still holds, and those that such a one came after.
    pub(super) fn live(&self, home: &Value) -> Vec<Change> {
        self.live_of_first(self.0.len(), home)
    }

    /// The same, of the first so many updates alone; the later ones are made another time.
    pub(super) fn live_of_first(&self, count: usize, home: &Value) -> Vec<Change> {
        let (mut live, mut later): (Vec<Change>, Vec<Change>) = Default::default();
        for (number, waiting) in self.0.iter().enumerate().rev() {
            // An apply is brought as one; what it says only tells that an earlier value was wanted before it.
            let is_apply = waiting.part.apply.is_some();
            let mut batch = if is_apply { Vec::new() } else { waiting.part.own.clone() };
            for (at, change) in waiting.part.shared.iter().enumerate() {
                let (Some(of_home), Some(holds)) = (waiting.home.get(at), waiting.holds.get(at)) else { continue };
                if change.is_nothing() {
                    continue;
                }
                let mut after = live.iter().chain(&later);
                if of_home.value_in(home) == *holds || after.any(|later| later.follows(change, holds.as_ref())) {
                    batch.push(change.clone());
                }
            }
            let all = if number < count && !is_apply { &mut live } else { &mut later };
            batch.append(all);
            *all = batch;
        }
        live
    }

    /// The shares that wait to be set.
    pub(super) fn shares(&self) -> Vec<Change> {
        self.0.iter().flat_map(|waiting| waiting.part.own.iter().cloned()).collect()
    }
}

/// Says whether a home has made its changes: one of the values that came with them is there. An update that changes
/// nothing in its home was decided when it was entered.
pub(super) fn holds(task: &Task, now: &Value) -> bool {
    let shared = task.home.shared.iter().zip(&task.holds).map(|(change, holds)| (change, holds.clone()));
    let own = task.home.own.iter().map(|change| (change, change.wanted()));
    let mut told = shared.chain(own).filter(|(change, holds)| change.before() != *holds).peekable();
    told.peek().is_none() || told.any(|(change, holds)| change.value_in(now) == holds)
}

/// The updates that their home has made, as far as its document tells.
pub(super) fn landed(mut updates: Vec<Entry>, home: &Held) -> Vec<Entry> {
    let done = |entry: &Entry| entry.targets.first().is_some_and(|target| matches!(target.step, Step::Done { .. }));
    updates.retain(|entry| done(entry) || Task::of(entry).is_some_and(|task| holds(&task, &home.document)));
    updates
}
