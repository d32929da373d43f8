//! What a later update says of a place takes the place of what earlier ones said of it, so that a long outage of a member
//! costs as much as there are places that changed, and not as there were writes.
//!
//! The later change begins then where the earliest began: at the value that the part still holds. That is only so where no
//! try of the earlier one may have been done, and where nothing in between has to do with the place.

use serde_json::Value;

use crate::{
    config::MemberName,
    placement::merge::{Change, Step as Place, What},
    write::{
        Writer,
        fleet::Fleet,
        journal::{Entry, Step},
        update::task::{PartTask, Task, applies_in, apply_in, is_forced, is_made, replaces},
    },
};
/// An earlier update of the same object that is not finished.
struct Earlier<'a> {
    entry: &'a Entry,
    task: Task,
    /// What it says may go to a later one: it waits for the same members, and none of them may have it.
    gives: bool,
    /// It waits for the same members.
    waits_alike: bool,
    is_changed: bool,
}

impl<F: Fleet> Writer<F> {
    /// Has an update that is behind in some members take over what earlier ones have still to do there. Under the key's hold.
    pub(super) async fn supersede(&self, id: u64) {
        let Some((mut update, _)) = self.journal.open_entry(id) else { return };
        let Some(mut task) = Task::of(&update) else { return };
        let members: Vec<MemberName> = update.unfinished().collect();
        let Some(waiting) = waiting(&update, &members) else { return };
        let open = self.journal.open_updates(&update.key, &update.uid);
        let mut earlier: Vec<Earlier<'_>> = Vec::new();
        for entry in open.iter().filter(|entry| entry.id < id) {
            match Earlier::of(entry, &update, &members) {
                Some(known) => earlier.push(known),
                // What it says is in other words: nothing of before it is known to be the same.
                None => earlier.clear(),
            }
        }
        let replaced = replaced(&earlier, &update, &members);
        take_over(&mut earlier, &mut task, &waiting);
        let mut amended = Vec::new();
        if earlier.iter().any(|known| known.is_changed) {
            update.body = task.to_body();
            amended.push(update.clone());
        }
        let mut over = Vec::new();
        for known in earlier {
            let is_over = known.is_changed && waiting.iter().all(|at| is_empty(known.task.others.get(*at)));
            if is_over || replaced.contains(&known.entry.id) {
                over.push(known.entry.id);
            } else if known.is_changed {
                amended.push(Entry { body: known.task.to_body(), ..known.entry.clone() });
            }
        }
        if amended.is_empty() {
            over.into_iter().for_each(|id| self.journal.finish(id));
        } else {
            // In one step: two entries that begin at the same value would keep each other from a part.
            self.journal.supersede(amended, over).await;
        }
        // What has nothing to change there, or is back to where it was before the member was lost.
        if task.manner.managed_fields.is_none() {
            self.end_where_level(&update, &task, &members, &waiting).await;
        }
    }

    async fn end_where_level(&self, update: &Entry, task: &Task, members: &[MemberName], waiting: &[usize]) {
        for (member, _) in members.iter().zip(waiting).filter(|(_, at)| is_empty(task.others.get(**at))) {
            self.journal.step(update.id, member, Step::Done { uid: None }).await;
        }
        let now = self.journal.open_entry(update.id);
        if now.is_some_and(|(entry, _)| entry.unfinished().next().is_none()) {
            self.journal.finish(update.id);
        }
    }
}

impl<'a> Earlier<'a> {
    /// `None`: nothing of it can be compared with what the update says.
    fn of(entry: &'a Entry, update: &Entry, members: &[MemberName]) -> Option<Self> {
        let task = Task::of(entry)?;
        let targets = |entry: &Entry| -> Vec<_> {
            entry.targets.iter().map(|target| (target.member.clone(), target.own_uid.clone())).collect()
        };
        if entry.key.gvr != update.key.gvr || targets(entry) != targets(update) {
            return None;
        }
        let waits_alike = is_made(entry) && entry.unfinished().eq(members.iter().cloned());
        let waits_for = |member: &MemberName| members.contains(member);
        let is_certain = !entry.targets.iter().any(|target| target.uncertain && waits_for(&target.member));
        let gives = waits_alike && is_certain && is_plain(&task);
        Some(Self { entry, task, gives, waits_alike, is_changed: false })
    }

    fn is_forced_apply(&self) -> bool {
        self.task.home.apply.is_some() && is_forced(self.entry)
    }

    /// Says whether anything that it says lies at a place, above or below it.
    fn touches(&self, at: &[Place]) -> bool {
        let parts = || [&self.task.home].into_iter().chain(&self.task.others);
        let mut changes = parts().flat_map(|part| part.shared.iter().chain(&part.own));
        // An apply says what is so already, too.
        changes.any(|change| !change.is_nothing() && change.touches(at))
            || parts().filter_map(|part| part.apply.as_ref()).any(|body| names(body, at))
    }
}

/// Says whether a body says anything at a place, above or below it.
fn names(body: &Value, at: &[Place]) -> bool {
    match (at.split_first(), body) {
        (Some((Place::Field(name), below)), Value::Object(fields)) => {
            fields.get(name).is_some_and(|field| names(field, below))
        }
        // Lists are compared as wholes.
        _ => true,
    }
}

/// Where the parts of these members are among the other parts; `None`: one of them is still to be made.
fn waiting(update: &Entry, members: &[MemberName]) -> Option<Vec<usize>> {
    let others = || update.targets.iter().skip(1);
    let place = |member: &MemberName| others().position(|target| target.member == *member && target.own_uid.is_some());
    members.iter().map(place).collect()
}

/// Says whether the changes of a task are all that it is about.
fn is_plain(task: &Task) -> bool {
    let applies = task.others.iter().chain([&task.home]).any(|part| part.apply.is_some());
    !applies && task.making.is_none() && task.coming.is_empty() && task.manner.managed_fields.is_none()
}

/// The applies that this one takes the place of, unless something since had to do with what they said. Where all of it is forced,
/// what they said is taken from whoever has it: then each manager's last is what counts.
fn replaced(earlier: &[Earlier<'_>], update: &Entry, members: &[MemberName]) -> Vec<u64> {
    let bodies: Option<Vec<_>> = members.iter().map(|member| Some((member, apply_in(update, member)?))).collect();
    let Some(bodies) = bodies else { return Vec::new() };
    let is_replaced = |at: usize, known: &Earlier<'_>| {
        let said = || known.task.home.shared.iter().filter(|change| !change.is_nothing());
        let since = || earlier.iter().skip(at + 1).filter(|later| !(is_forced(update) && later.is_forced_apply()));
        let mut parts = bodies.iter();
        known.waits_alike
            && known.task.making.is_none()
            && parts.all(|(member, body)| {
                applies_in(known.entry, member) && replaces(&update.query, body, known.entry, member)
            })
            && !said().any(|change| since().any(|later| later.touches(&change.at)))
    };
    earlier.iter().enumerate().filter(|(at, known)| is_replaced(*at, known)).map(|(_, known)| known.entry.id).collect()
}

/// Moves what earlier updates say of a place to the later one. `waiting` are the places of the parts that it is about.
fn take_over(earlier: &mut [Earlier<'_>], later: &mut Task, waiting: &[usize]) {
    if !is_plain(later) {
        return;
    }
    for at in 0..later.home.shared.len() {
        take_shared(earlier, later, at, waiting);
    }
    for part in waiting {
        let Some(own) = later.others.get_mut(*part).map(|part| &mut part.own) else { continue };
        own.iter_mut().for_each(|change| take_own(earlier, *part, change));
        own.retain(|change| change.before() != change.wanted());
    }
}

fn take_shared(earlier: &mut [Earlier<'_>], later: &mut Task, at: usize, waiting: &[usize]) {
    let Some(place) = later.home.shared.get(at).filter(|change| is_value(change)).map(|change| change.at.clone())
    else {
        return;
    };
    for known in earlier.iter_mut().rev() {
        if !known.touches(&place) {
            continue;
        }
        let said = known.task.home.shared.iter().position(|change| is_value(change) && change.at == place);
        let Some(said) = said.filter(|_| known.gives) else { return };
        let others = known.task.home.shared.iter().enumerate();
        let is_alone =
            !others.into_iter().any(|(other, change)| other != said && !change.is_nothing() && change.touches(&place));
        if !is_alone || !goes_on(&known.task, said, later, at, waiting) {
            return;
        }
        known.is_changed = true;
        for (from, to) in lists(&mut known.task).into_iter().zip(lists(later)) {
            let (Some(from), Some(to)) = (from.get_mut(said), to.get_mut(at)) else { continue };
            let old = from.before();
            from.clear();
            if let What::Value { old: begins, .. } = &mut to.what {
                *begins = old;
            }
        }
        if let Some(holds) = known.task.holds.get_mut(said) {
            *holds = None;
        }
    }
}

/// Says whether a change begins, in the home and in the parts that wait, where an earlier one ended.
fn goes_on(known: &Task, said: usize, later: &Task, at: usize, waiting: &[usize]) -> bool {
    let begins = |part: &PartTask| part.shared.get(at).map(Change::before);
    let in_home = begins(&later.home).is_some_and(|begins| known.holds.get(said) == Some(&begins));
    let all_have_it = known.others.iter().all(|part| part.shared.get(said).is_some())
        && known.shown.get(said).is_some()
        && later.others.iter().all(|part| part.shared.get(at).is_some())
        && later.shown.get(at).is_some();
    let in_part = |part: &usize| {
        let ended = known.others.get(*part).and_then(|part| part.shared.get(said)).filter(|change| is_value(change));
        let change = later.others.get(*part).and_then(|part| part.shared.get(at)).filter(|change| is_value(change));
        ended.zip(change).is_some_and(|(ended, change)| ended.wanted() == change.before() && ended.at == change.at)
    };
    in_home && all_have_it && waiting.iter().all(in_part)
}

/// All lists of a task in which a change stands at the same place, the home's first.
fn lists(task: &mut Task) -> Vec<&mut Vec<Change>> {
    let Task { home, shown, others, .. } = task;
    [&mut home.shared, shown].into_iter().chain(others.iter_mut().map(|part| &mut part.shared)).collect()
}

fn take_own(earlier: &mut [Earlier<'_>], part: usize, change: &mut Change) {
    for known in earlier.iter_mut().rev() {
        if !known.touches(&change.at) {
            continue;
        }
        let own = known.task.others.get_mut(part).filter(|_| known.gives).map(|part| &mut part.own);
        let Some(own) = own else { return };
        let said = own.iter().position(|said| said.at == change.at && said.wanted() == change.before());
        let (Some(said), What::Value { old, .. }) = (said, &mut change.what) else { return };
        *old = own.remove(said).before();
        known.is_changed = true;
    }
}

/// Says whether nothing is to be done in a part.
fn is_empty(part: Option<&PartTask>) -> bool {
    part.is_none_or(|part| part.apply.is_none() && part.own.is_empty() && part.shared.iter().all(Change::is_nothing))
}

fn is_value(change: &Change) -> bool {
    matches!(change.what, What::Value { .. }) && !change.is_nothing()
}
