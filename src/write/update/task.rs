//! An unfinished update, as the journal has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    config::MemberName,
    placement::merge::Change,
    write::{
        journal::{Entry, Step},
        update::part::{Manner, Ownership},
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

    /// What changes in the part of a member that is not the home.
    pub(super) fn in_part(&self, entry: &Entry, member: &MemberName) -> Option<&PartTask> {
        let at = entry.targets.iter().skip(1).position(|target| target.member == *member)?;
        self.others.get(at)
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
    apply_in(entry, member).is_some()
}

/// What a member that is not the home is still to apply.
pub(super) fn apply_in(entry: &Entry, member: &MemberName) -> Option<Value> {
    Task::of(entry)?.in_part(entry, member)?.apply.clone()
}

/// The field manager that a query names.
pub(super) fn manager(query: &str) -> Option<String> {
    query_value(query, "fieldManager").filter(|manager| !manager.is_empty())
}

/// Says whether an update is of this field manager.
pub(super) fn is_by(entry: &Entry, own: &str) -> bool {
    manager(&entry.query).is_some_and(|manager| manager == own)
}

/// Says whether an apply takes fields from other managers.
pub(super) fn is_forced(entry: &Entry) -> bool {
    forces(&entry.query)
}

fn forces(query: &str) -> bool {
    query_value(query, "force").is_some_and(|force| force == "true")
}

/// Says whether a write waits for an earlier update in a member: for an apply, so that each value is the latest writer's. A later
/// apply may take the place of the earlier one; `later` is the query and the body of an apply, and `None` of any other write.
pub(super) fn waits_for(earlier: &Entry, member: &MemberName, later: Option<(&str, &Value)>) -> bool {
    applies_in(earlier, member) && !later.is_some_and(|(query, body)| replaces(query, body, earlier, member))
}

/// Says whether an apply takes the place of an earlier one in a member: it is of the same manager, no less forced, and says
/// whatever the earlier one has changed. What it leaves out, the earlier one may have taken from others, so that it goes now.
pub(super) fn replaces(query: &str, body: &Value, earlier: &Entry, member: &MemberName) -> bool {
    let own = manager(query);
    let is_his = own.is_some() && own == manager(&earlier.query);
    let Some(task) = Task::of(earlier).filter(|_| is_his && (forces(query) || !is_forced(earlier))) else {
        return false;
    };
    let own = task.in_part(earlier, member).map(|part| part.own.as_slice()).unwrap_or_default();
    let mut changes = task.home.shared.iter().chain(own);
    changes.all(|change| change.before().is_none() || change.is_said_by(body))
}

/// What is still to be done in one part, by one update or several of them, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending(Vec<Waiting>);

/// Of an update in other words there is nothing.
#[derive(Clone, Debug, Default)]
struct Waiting {
    home: Vec<Change>,
    holds: Vec<Option<Value>>,
    part: PartTask,
}

impl Pending {
    /// What these entries have still to do in a member that is not their home.
    pub(super) fn of(entries: &[Entry], member: &MemberName) -> Self {
        let of = |entry: &Entry| {
            let task = Task::of(entry)?;
            let part = task.in_part(entry, member)?.clone();
            Some(Waiting { home: task.home.shared, holds: task.holds, part })
        };
        Self(entries.iter().map(|entry| of(entry).unwrap_or_default()).collect())
    }

    /// Adds a later update.
    pub(super) fn then(mut self, home: &[Change], holds: &[Option<Value>], part: PartTask) -> Self {
        self.0.push(Waiting { home: home.to_vec(), holds: holds.to_vec(), part });
        self
    }

    /// The changes to make, in order: those whose values the home still holds, and those that such a one came after.
    pub(super) fn live(&self, home: &Value) -> Vec<Change> {
        self.live_of_each(home).into_iter().flatten().collect()
    }

    /// The same, of each update. An apply has none: it is brought as one, and only says that an earlier value was wanted before it.
    pub(super) fn live_of_each(&self, home: &Value) -> Vec<Vec<Change>> {
        let mut lists = vec![Vec::new(); self.0.len()];
        // What comes after, the latest first.
        let mut later: Vec<&Change> = Vec::new();
        for (waiting, list) in self.0.iter().zip(&mut lists).rev() {
            let mut shared = Vec::new();
            for (at, change) in waiting.part.shared.iter().enumerate() {
                let (Some(of_home), Some(holds)) = (waiting.home.get(at), waiting.holds.get(at)) else { continue };
                if change.is_nothing() {
                    continue;
                }
                if of_home.value_in(home) == *holds || later.iter().any(|later| later.follows(change, holds.as_ref())) {
                    shared.push(change);
                }
            }
            let is_apply = waiting.part.apply.is_some();
            if !is_apply {
                later.extend(&waiting.part.own);
                list.extend(waiting.part.own.iter().chain(shared.iter().copied()).cloned());
            }
            later.extend(shared);
        }
        lists
    }

    /// The shares that wait to be set.
    pub(super) fn shares(&self) -> Vec<Change> {
        self.0.iter().flat_map(|waiting| waiting.part.own.iter().cloned()).collect()
    }
}

/// Says whether a home holds what an update brought it: one of the values that came with it is there.
pub(super) fn holds(task: &Task, now: &Value) -> bool {
    let mut told = told(task).peekable();
    told.peek().is_none() || told.any(|(change, holds)| change.value_in(now) == holds)
}

/// What tells in a home's document whether it has made an update: changes, and the values that came with them. An update that
/// changes nothing in its home was decided when it was entered.
fn told(task: &Task) -> impl Iterator<Item = (&Change, Option<Value>)> {
    let shared = task.home.shared.iter().zip(&task.holds).map(|(change, holds)| (change, holds.clone()));
    let own = task.home.own.iter().map(|change| (change, change.wanted()));
    shared.chain(own).filter(|(change, holds)| change.before() != *holds)
}

/// Says whether the home becomes another one by an update.
pub(super) fn changes_home(task: &Task) -> bool {
    told(task).next().is_some()
}

/// Says whether the home may still make an update. Shape: `open` are the object's open updates.
pub(super) fn may_land(update: &Entry, open: &[Entry], home: &Value) -> bool {
    !has_landed(update, open, home) && !is_passed(update, open)
}

/// Says whether it is known that the home has made an update.
pub(super) fn is_made(update: &Entry) -> bool {
    update.targets.first().is_some_and(|home| matches!(home.step, Step::Done { .. }))
}

/// Says whether the home of an update has made it, as far as its document tells. Shape: `open` are the object's open updates.
pub(super) fn has_landed(update: &Entry, open: &[Entry], home: &Value) -> bool {
    if is_made(update) {
        return true;
    }
    let Some(task) = Task::of(update) else { return false };
    if !changes_home(&task) {
        return true;
    }
    if is_passed(update, open) {
        return false;
    }
    // Where another one may have been made in its place, a value that both of them bring tells nothing.
    let is_alone = !open.iter().any(|other| other.id != update.id && !is_made(other));
    if is_alone { holds(&task, home) } else { told(&task).all(|(change, holds)| change.value_in(home) == holds) }
}

/// Says whether the home has changed by a later update, which notes what it found there. Each names the revision that it was made of:
/// the home had not made the earlier one by then, and refuses it now.
pub(super) fn is_passed(update: &Entry, open: &[Entry]) -> bool {
    let changes = |later: &Entry| Task::of(later).is_some_and(|task| changes_home(&task));
    !is_made(update) && open.iter().any(|later| later.id > update.id && is_made(later) && changes(later))
}

/// The updates that their home has made, as far as its document tells. Shape: `open` are the object's open updates.
pub(super) fn landed(open: Vec<Entry>, home: &Value) -> Vec<Entry> {
    let landed: Vec<bool> = open.iter().map(|update| has_landed(update, &open, home)).collect();
    open.into_iter().zip(landed).filter(|(_, landed)| *landed).map(|(update, _)| update).collect()
}
