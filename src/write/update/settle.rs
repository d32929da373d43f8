//! An update that is not finished everywhere: what the home holds goes to the parts that are behind.

use std::sync::Arc;

use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use crate::{
    config::MemberName,
    placement::merge::{Change, Take, take},
    write::{
        LANDS_WITHIN, Writer,
        fleet::Fleet,
        journal::{Entry, EntryTarget, Step},
        steps::{Found, Outcome, Settled, Silent},
        update::{
            amend::Amendment,
            part::{Asking, Held, document},
            task::{Pending, Task, applies_in, apply_in, has_landed, holds, is_made, is_passed, waits_for},
            turns::{Applying, Turn, turns},
        },
    },
};
use kubefold_wire::warning::Warnings;

/// What the home says of an update.
enum Home {
    /// It made it: this is what it holds now.
    Landed(Value),
    /// It did not in the time in which a member does what it was sent.
    NotMade,
    /// It is not there any more: nothing is to be done.
    Over,
    /// It cannot be asked.
    Unreachable,
}

impl<F: Fleet> Writer<F> {
    /// Finishes an update as far as members answer. Under the key's hold.
    pub(in crate::write) async fn settle_update(&self, entry: &Entry, last_byte: Instant, wake: &Notify) -> Settled {
        let (Some(task), Some((home, others))) = (Task::of(entry), entry.targets.split_first()) else {
            return Settled::Closed;
        };
        let now = match self.ask_landed(entry, home, last_byte + LANDS_WITHIN, wake).await {
            Home::Landed(now) => now,
            Home::NotMade => return Settled::GivenUp,
            Home::Over => return Settled::Closed,
            Home::Unreachable => return Settled::Open,
        };
        // kubefold may have been killed before it noted this.
        self.amend(Amendment { update: entry, changes: &task.live(&now), coming: &task.coming }).await;
        let mut open = false;
        for target in others.iter().filter(|target| target.step.is_open()) {
            open |= match (&target.own_uid, &task.making) {
                (None, Some(making)) => !self.settle_missing(entry, making, target).await,
                _ => !self.settle_part(entry, &task, target, &now).await,
            };
        }
        if open { Settled::Open } else { Settled::Closed }
    }

    /// Says whether the home has an update that it did not have when that was given up.
    pub(in crate::write) async fn is_made(&self, entry: &Entry, home: &EntryTarget) -> bool {
        let body = self.look(&entry.key, &held(home)).await;
        matches!(body, Ok(Some(body)) if Self::is_made_in(entry, &body))
    }

    /// Says whether a document has an update.
    pub(in crate::write) fn is_made_in(entry: &Entry, json: &[u8]) -> bool {
        let now = serde_json::from_slice(json);
        Task::of(entry).zip(now.ok()).is_some_and(|(task, now)| holds(&task, &now))
    }

    /// What an update came to whose home is declared absent: what the first other part holds that has it.
    async fn ask_absent(&self, entry: &Entry, home: &EntryTarget) -> Home {
        let has_it = |target: &&EntryTarget| matches!(target.step, Step::Done { .. }) && target.own_uid.is_some();
        let other = entry.targets.iter().skip(1).find(has_it).filter(|_| has_it(&home));
        let Some(other) = other else {
            tracing::warn!(object = %entry.key, member = %home.member, "an unfinished update is given up: \
                its home is declared absent, and no other part is known to have it");
            return Home::Over;
        };
        match self.look(&entry.key, &held(other)).await {
            Ok(Some(body)) => document(&entry.key, &body).map_or(Home::Over, Home::Landed),
            Ok(None) => Home::Over,
            Err(Silent(_)) => Home::Unreachable,
        }
    }

    /// Looks at the home until what is there proves something: while the mutation may still land, what it finds undone
    /// does not.
    async fn ask_landed(&self, entry: &Entry, home: &EntryTarget, landed: Instant, wake: &Notify) -> Home {
        if self.fleet.is_absent(&home.member) {
            return self.ask_absent(entry, home).await;
        }
        let part = held(home);
        loop {
            let may_still_land = Instant::now() < landed;
            match self.look(&entry.key, &part).await {
                Ok(Some(body)) => {
                    let Some(now) = document(&entry.key, &body) else { return Home::Over };
                    let open = self.journal.open_updates(&entry.key, &entry.uid);
                    if has_landed(entry, &open, &now) {
                        self.fleet.ingest(&entry.key, &home.member, &body).await;
                        self.journal.step(entry.id, &home.member, Step::Done { uid: home.own_uid.clone() }).await;
                        return Home::Landed(now);
                    }
                    if !may_still_land || is_passed(entry, &open) {
                        return Home::NotMade;
                    }
                }
                Ok(None) => {
                    tracing::warn!(object = %entry.key, member = %home.member, "an unfinished update is given up: \
                        the home's part was deleted; differences between the other parts stay");
                    return Home::Over;
                }
                Err(Silent(cause)) if !may_still_land => {
                    tracing::debug!(object = %entry.key, member = %home.member, cause, "an unfinished update waits for its home");
                    return Home::Unreachable;
                }
                Err(_) => {}
            }
            let _either = tokio::time::timeout_at(landed, wake.notified()).await;
        }
    }

    /// Makes a part that is missing still. Says whether nothing is left to do there.
    async fn settle_missing(&self, entry: &Entry, making: &Entry, target: &EntryTarget) -> bool {
        let step = match self.find(making, target).await {
            Found::Part { uid, body, .. } => {
                self.fleet.ingest(&making.key, &target.member, &body).await;
                let brought = self.bring_late(making, entry.amended.as_deref(), target, &body).await;
                brought.map_or_else(|Silent(cause)| Step::Failed(cause), |()| Step::Done { uid: Some(uid) })
            }
            Found::Stranger { deleting } => self.meet(making, target, deleting).1,
            Found::Elsewhere => Step::Undone,
            Found::Unreachable(cause) => Step::Failed(cause),
            Found::Absent => {
                let outcome = self.make(making, target, false, &mut Warnings::default()).await;
                if let Outcome::Done { body, .. } = &outcome {
                    self.fleet.ingest(&making.key, &target.member, body).await;
                }
                outcome.step()
            }
        };
        let done = !step.is_open();
        self.journal.step(entry.id, &target.member, step).await;
        done
    }

    /// Brings one part up. Says whether nothing is left to do there.
    async fn settle_part(&self, entry: &Entry, task: &Task, target: &EntryTarget, home: &Value) -> bool {
        // Earlier and later updates of the same version wait for the same member.
        let mut waiting = self.journal.open_updates(&entry.key, &entry.uid);
        waiting.retain(|other| {
            let mut unfinished = other.unfinished();
            other.key.gvr == entry.key.gvr && unfinished.any(|member| member == target.member)
        });
        // What is later tells which values are wanted of what is brought now.
        let lists = Pending::of(&waiting, &target.member).live_of_each(home);
        // What may still come to nothing in the home is not brought.
        let known = waiting.into_iter().zip(lists).filter(|(other, _)| other.id == entry.id || is_made(other));
        let (waiting, lists): (Vec<Entry>, Vec<Vec<Change>>) = known.unzip();
        let Some(waiting) = in_order(waiting, entry, &target.member) else { return false };
        let mut part = held(target);
        let steps = match self.read_part(&entry.key, &part).await {
            Ok(Some(now)) => {
                part.document = now.into();
                self.catch_up(&mut part, &turns(&waiting, &lists, &target.member), entry, task, home).await
            }
            Ok(None) => waiting.iter().map(|update| (update.id, Step::Done { uid: None })).collect(),
            Err(Silent(cause)) => vec![(entry.id, Step::Failed(cause))],
        };
        let done = |step: &Step| matches!(step, Step::Done { .. });
        let is_done = steps.iter().any(|(id, step)| *id == entry.id && done(step));
        let replaced = waiting.iter().filter(|other| is_done && !steps.iter().any(|(id, _)| *id == other.id));
        let replaced: Vec<_> = replaced.map(|other| (other.id, Step::Done { uid: None })).collect();
        let is_any_done = steps.iter().any(|(_, step)| done(step));
        self.note_steps(&target.member, entry.id, steps.into_iter().chain(replaced)).await;
        if is_any_done {
            // What waited for it.
            self.journal.open_updates(&entry.key, &entry.uid).iter().for_each(|other| self.wake(other.id));
        }
        is_done
    }

    /// Brings a part what waits for it. Gives what came of each update.
    async fn catch_up(
        &self,
        part: &mut Held,
        turns: &[Turn<'_>],
        entry: &Entry,
        task: &Task,
        home: &Value,
    ) -> Vec<(u64, Step)> {
        let its = task.in_part(entry, &part.member);
        let its =
            its.and_then(|its| Some((self.still_applied(entry, task, &part.member, its.apply.as_ref()?, home), its)));
        let applying = its.as_ref().map(|(body, its)| {
            let Entry { id, key, caller, user_agent, query, .. } = entry;
            let asking = Asking { key, caller, user_agent: user_agent.as_deref(), query, manner: &task.manner };
            Applying { id: *id, asking, body, ownership: &its.ownership }
        });
        let came = self.bring_turns(part, turns, applying, home, &mut Warnings::default()).await;
        if came.latest.is_some()
            && let Ok(Some(body)) = self.look(&entry.key, part).await
        {
            self.fleet.ingest(&entry.key, &part.member, &body).await;
        }
        came.steps
    }

    /// What of an apply is brought to a part: a value that the home no longer holds is not, unless what replaced it there waits,
    /// too, and looks for it or takes it from its manager.
    fn still_applied(&self, entry: &Entry, task: &Task, member: &MemberName, body: &Value, home: &Value) -> Value {
        let mut body = body.clone();
        let mut later = self.journal.open_updates(&entry.key, &entry.uid);
        later.retain(|other| {
            let is_later = other.id > entry.id && other.key.gvr == entry.key.gvr;
            is_later && other.unfinished().any(|waits| waits == *member)
        });
        let changes = Pending::of(&later, member).live(home);
        let applied: Vec<Value> = later.iter().filter_map(|later| apply_in(later, member)).collect();
        for (change, holds) in task.home.shared.iter().zip(&task.holds) {
            let is_followed = || {
                changes.iter().any(|later| later.follows(change, holds.as_ref()))
                    || applied.iter().any(|body| change.is_said_by(body))
            };
            if change.value_in(home) != *holds && !is_followed() {
                let mut gone = change.clone();
                gone.clear();
                take(&[gone], Take::Always, &mut body);
            }
        }
        body
    }

    /// Notes what came of updates in a member, and finishes those that nothing is left of. `own` is finished by who has it in hand.
    pub(super) async fn note_steps(&self, member: &MemberName, own: u64, steps: impl IntoIterator<Item = (u64, Step)>) {
        for (id, step) in steps {
            self.journal.step(id, member, step).await;
            let now = self.journal.open_entry(id).filter(|_| id != own);
            if now.is_some_and(|(entry, _)| entry.unfinished().next().is_none()) {
                self.journal.finish(id);
            }
        }
    }
}

/// Those of the updates that wait for a member that are brought with this one: all between two applies are one step, and
/// an apply is one with those before it. `None`: an earlier apply comes first.
fn in_order(waiting: Vec<Entry>, entry: &Entry, member: &MemberName) -> Option<Vec<Entry>> {
    let applies: Vec<u64> = waiting.iter().filter(|one| applies_in(one, member)).map(|one| one.id).collect();
    let is_apply = applies.contains(&entry.id);
    let body = apply_in(entry, member);
    let later = body.as_ref().map(|body| (entry.query.as_str(), body));
    if waiting.iter().any(|one| one.id < entry.id && waits_for(one, member, later)) {
        return None;
    }
    let next = applies.into_iter().filter(|id| *id > entry.id).min().unwrap_or(u64::MAX);
    let end = if is_apply { entry.id + 1 } else { next };
    Some(waiting.into_iter().filter(|one| one.id < end).collect())
}

fn held(target: &EntryTarget) -> Held {
    Held {
        member: target.member.clone(),
        cluster_uid: target.cluster_uid.clone(),
        uid: target.own_uid.clone().unwrap_or_default(),
        document: Arc::default(),
    }
}
