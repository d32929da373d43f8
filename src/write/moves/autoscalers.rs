//! Autoscalers follow a workload that has moved: one whose target left a member has no part there any more.

use std::sync::Arc;

use super::{
    object::Object,
    part::Stays,
    plan::{goal, superseded, wanted_as_is, wanted_of},
};
use crate::{
    placement::{companions::Subject, divided::Division, plan::Target},
    write::{
        Writer,
        fleet::{Fleet, Key, Part},
        journal::Goal,
        steps::MOVER,
        workloads::{COMPANIONS, documents, of_kinds},
    },
};
use kubefold_wire::resource::{Gvk, Gvr};

impl<F: Fleet> Writer<F> {
    /// Moves the autoscalers of a workload that have a part where the workload has none.
    pub(super) async fn move_autoscalers(self: &Arc<Self>, workload: &Key) {
        let parts = self.fleet.parts(workload);
        let is_there = |part: &Part| parts.iter().any(|own| own.member == part.member);
        let [_, autoscalers] = COMPANIONS;
        let (group, version, resource, kind) = autoscalers;
        let (gvr, gvk) = (Gvr::new(group, version, resource), Gvk::new(group, version, kind));
        let all = of_kinds(&self.fleet, &workload.namespace, &[autoscalers]).await;
        for one in all.iter().flat_map(|(_, listed)| listed).filter(|one| one.folded) {
            let subject = documents(one).next().and_then(|(_, json)| Subject::of(Some(Division::Autoscaler), json));
            let (target_group, target_kind) = (&workload.gvk.group, &workload.gvk.kind);
            let is_its = subject.is_some_and(|subject| subject.scales(target_group, target_kind, &workload.name));
            let key = &Key {
                gvr: gvr.clone(),
                gvk: gvk.clone(),
                namespace: workload.namespace.clone(),
                name: one.name.clone(),
            };
            let Some(object) = self.object(key).filter(|_| is_its) else { continue };
            if object.parts.iter().all(is_there) {
                continue;
            }
            match self.autoscaler_goal(&object, is_there).await {
                Ok(goal) => {
                    let Ok(placement) = self.placement_of(&object, goal) else { continue };
                    if let Err(error) = self.begin_move(placement).await {
                        tracing::warn!(object = %key, %error, "an autoscaler does not follow its target");
                    }
                }
                Err(why) => tracing::warn!(object = %key, %why, "an autoscaler does not follow its target"),
            }
        }
    }

    /// Errors: no member can have it.
    async fn autoscaler_goal(&self, object: &Object, is_there: impl Fn(&Part) -> bool) -> Result<Goal, Stays> {
        let (plan, _) = self.fresh(object, None).await?;
        let standing = object.parts.iter().filter(|part| is_there(part)).map(|part| wanted_as_is(part, None));
        let has = |target: &&Target| object.parts.iter().any(|part| part.cluster_uid == target.cluster_uid);
        let missing = plan.targets.iter().filter(|target| target.made && !has(target));
        let parts: Vec<_> = standing.chain(missing.map(|target| wanted_of(target, None))).collect();
        if parts.is_empty() {
            return Err("no member that runs its target can have it".into());
        }
        let leaving = object.parts.iter().filter(|part| !is_there(part)).map(superseded).collect();
        Ok(goal("follow its target", MOVER, parts, leaving))
    }
}
