//! Objects that are carried along with a workload: they become placed ones, and get parts where the workload gets some.

use std::{slice, sync::Arc};

use serde_json::Value;

use super::{
    part::Stays,
    plan::{extended, goal},
};
use crate::{
    config::MemberName,
    write::{
        Writer,
        carry::{carried_kinds, key_of},
        fleet::{Ask, Fleet, Key, Measure, Part},
        journal::{Goal, Placement},
        steps::{MOVER, Seen},
    },
};
use kubefold_serving::caller::Caller;

impl<F: Fleet> Writer<F> {
    /// Makes a member's own object the placed object of its name. Nothing is made anew.
    ///
    /// Errors: why it cannot be.
    pub(in crate::write) async fn adopt_carried(&self, key: &Key, member: &MemberName) -> Result<(), Stays> {
        let Some(hold) = self.fleet.hold(key).await else { return Err("another write to it takes long".into()) };
        let adopted = self.adopt_held(key, slice::from_ref(member), false).await;
        self.fleet.release(hold).await;
        adopted.map(drop)
    }

    /// Has a placed object get parts in these members, as `caller` or as the mover. `None`: it has them; else why it does not yet.
    ///
    /// Errors: it does not get them: why.
    pub(in crate::write) async fn extend_carried(
        self: &Arc<Self>,
        key: &Key,
        members: &[MemberName],
        caller: Option<&Caller>,
    ) -> Result<Option<String>, Stays> {
        let object = self.object(key).ok_or("it is gone")?;
        let has = |member: &MemberName| object.parts.iter().any(|part| part.member == *member);
        let missing: Vec<&MemberName> = members.iter().filter(|member| !has(member)).collect();
        if missing.is_empty() {
            return Ok(None);
        }
        let known = self.journal.placement(&object.marker.uid).and_then(|known| known.goal);
        if let Some(goal) = known {
            return Ok(Some(goal.problem.unwrap_or_else(|| format!("it is moving ({})", goal.why))));
        }
        let (plan, _) = self.fresh(&object, None).await?;
        let is_missing = |member: &MemberName| missing.contains(&member);
        let Some((parts, leaving)) = extended(&object, &plan, is_missing) else {
            return Err("its own placement does not reach there".into());
        };
        let by = caller.map_or(MOVER, |caller| &caller.user);
        let goal = Goal { caller: caller.cloned(), ..goal("carry", by, parts, leaving) };
        let placement = Placement { carried: true, ..self.placement_of(&object, goal)? };
        self.begin_move(placement).await.map_err(|error| error.to_string())?;
        Ok(Some("it is on its way".to_owned()))
    }

    /// Has members that are to get a part of a workload get first what its pods name. Of that only what was carried before, with
    /// somebody's rights: kubefold acts for itself here. Says what is on its way.
    pub(super) async fn carried_first(
        self: &Arc<Self>,
        placement: &Placement,
        shown: &[u8],
        parts: &[Part],
    ) -> Option<String> {
        let key = &placement.key;
        let has = |cluster: &str| parts.iter().any(|part| part.cluster_uid == cluster);
        let wanted = placement.goal.iter().flat_map(|goal| &goal.parts).filter(|wanted| !has(&wanted.cluster_uid));
        let newcomers: Vec<MemberName> = wanted.map(|wanted| wanted.member.clone()).collect();
        if newcomers.is_empty() {
            return None;
        }
        let shown: Value = serde_json::from_slice(shown).ok()?;
        let marker = Seen::of(&parts.first()?.json).marker;
        let named = marker.as_ref().and_then(|marker| marker.policy.as_deref());
        let policy = self.policy_of(key, &shown, marker.is_none(), named);
        for named in carried_kinds(key, &shown, policy.as_ref()) {
            let carried = key_of(key, &named);
            let ask = Ask { key: &carried, owners: &[], pods: None, claims: &[], measure: Measure::Nothing };
            drop(self.fleet.facts(ask).await);
            let uid = self.object(&carried).map(|object| object.marker.uid);
            if !uid.and_then(|uid| self.journal.placement(&uid)).is_some_and(|known| known.carried) {
                continue;
            }
            let lacks = |member: &&MemberName| self.fleet.member_local(&carried, member).is_none();
            let to: Vec<MemberName> = newcomers.iter().filter(lacks).cloned().collect();
            match self.extend_carried(&carried, &to, None).await {
                Ok(None) => {}
                Ok(Some(why)) => return Some(format!("its pods name {carried}, which comes first: {why}")),
                // Its pods wait there until somebody brings it, and nothing that runs is taken away before.
                Err(why) => tracing::warn!(object = %key, %carried, %why, "it is not carried along"),
            }
        }
        None
    }
}
