//! The shares of a quota that is divided: each write is one step, that grows no part by what another may still hold.

use serde_json::Value;

use crate::{
    config::MemberName,
    placement::{
        companions::{Limit, Limits},
        divided::{Division, HARD},
        merge::{Change, Step, What},
        plan::{Candidate, Standing},
        policy::Policy,
        quota::{Hard, Holder, Weighting, given, step, units_of},
    },
    write::{
        fleet::{Fleet, Key},
        update::{
            companion::note_change, own::has_other_owner, part::Held, shares::Shares, task::PartTask, work::Work,
        },
    },
};

impl<F: Fleet> Work<'_, F> {
    /// What the next step changes, and whether it is the last. `None`: it is no quota that is divided.
    pub(super) async fn quota_step(&self) -> Option<(Shares, bool)> {
        let (division, _) = self.companion().filter(|(division, _)| *division == Division::Quota)?;
        let whole = self.whole(division, &[])?;
        Some(self.quota_shares(&whole).await)
    }

    /// The parts' shares of a quota after one step, and whether they come to the whole then.
    pub(super) async fn quota_shares(&self, whole: &Limits) -> (Shares, bool) {
        let none = Hard::default();
        let hard = match whole.get(&HARD) {
            Some(Limit::Amounts(hard)) => hard,
            _ => &none,
        };
        let policy = self.policy();
        let candidates = self.candidates(policy, &self.shown).await;
        let with_parts = self.parts().count();
        let all: Vec<Held> = self.parts().cloned().chain(self.coming()).collect();
        let holder = |(at, part): (usize, &'_ Held)| {
            let awaited = self.awaited(part);
            let candidate = candidates.iter().find(|candidate| candidate.name == part.member);
            let is_ready = candidate.is_some_and(|candidate| candidate.standing == Standing::Ready);
            (
                units_of(awaited.pointer(HARD.pointer)),
                given(&part.document, &awaited),
                units_of(part.document.pointer("/status/used")),
                weighting(&part.member, candidate, policy),
                // What is still to be made may have been sent with the share that it has.
                is_ready && at < with_parts,
            )
        };
        let told: Vec<_> = all.iter().enumerate().map(holder).collect();
        let holders = all.iter().zip(told).map(|(part, (hard, given, used, weighting, answers))| Holder {
            hard,
            given,
            used,
            answers,
            asked: self.aim.asked.get(&part.member).cloned().unwrap_or_default(),
            ..Holder::new(&part.member, weighting)
        });
        let next = step(hard, &holders.collect::<Vec<_>>(), self.aim.extent, &self.visible.uid);
        let task =
            |(part, hard): (&Held, &Hard)| PartTask { own: self.limits(part, hard, whole), ..PartTask::default() };
        let mut tasks: Vec<PartTask> = all.iter().zip(&next.hard).map(task).collect();
        let coming = tasks.split_off(with_parts).into_iter().zip(all.iter().skip(with_parts));
        let coming = coming.map(|(task, part)| (part.member.to_string(), task.own)).collect();
        (Shares { tasks, coming, ..Shares::default() }, next.is_whole)
    }

    /// What changes in a part: each limit that is not as it is to be, and what it notes of the whole.
    fn limits(&self, part: &Held, hard: &Hard, whole: &Limits) -> Vec<Change> {
        let awaited = self.awaited(part);
        let now = awaited.pointer(HARD.pointer).and_then(Value::as_object);
        let gone = now.into_iter().flat_map(|now| now.keys()).map(String::as_str);
        let gone = gone.filter(|name| hard.get(name).is_none());
        let change = |name: &str| {
            let old = now.and_then(|now| now.get(name)).cloned();
            let at = HARD.path.iter().copied().chain([name]).map(|name| Step::Field(name.to_owned())).collect();
            let new = hard.get(name).map(Value::from);
            (!hard.is(name, old.as_ref())).then_some(Change { at, what: What::Value { old, new } })
        };
        let mut own: Vec<Change> = hard.names().chain(gone).filter_map(change).collect();
        own.extend(note_change(&awaited, whole));
        own
    }

    /// What a quota is to be limited to as a whole when a manager applies that: what it leaves out and nobody else has goes.
    ///
    /// A limit whose share kubefold has changed is kubefold's in the member's words: whoever wrote it has it all the same.
    pub(super) fn applied_hard(&self, said: &Value, manager: &str) -> Value {
        let mut hard = self.shown.pointer(HARD.pointer).and_then(Value::as_object).cloned().unwrap_or_default();
        let said = said.as_object();
        hard.retain(|name, _| {
            let path: Vec<&str> = HARD.path.iter().copied().chain([name.as_str()]).collect();
            has_other_owner(&self.home.document, manager, &path)
        });
        hard.extend(said.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        hard.into()
    }
}

/// What a member's share goes by.
fn weighting(member: &MemberName, candidate: Option<&Candidate>, policy: Option<&Policy>) -> Weighting {
    let is_measured = policy.is_some_and(|policy| policy.weights.are_measured());
    if let Some(capacity) = candidate.and_then(|candidate| candidate.capacity).filter(|_| is_measured) {
        return Weighting::Free(capacity.free);
    }
    let own = policy.and_then(|policy| policy.terms(member).weight);
    Weighting::Static(own.or_else(|| candidate.map(|candidate| candidate.weight)).map_or(1, |weight| weight.0))
}

/// Says whether an object is of a kind that a policy may have divided as a quota.
pub(in crate::write) fn is_quota(key: &Key) -> bool {
    Division::by_policy(&key.gvk.group, &key.gvk.kind) == Some(Division::Quota)
}
