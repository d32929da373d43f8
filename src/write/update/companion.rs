//! A write of a companion, and its placing anew: each part has its share of what is written, by the workload's own shares.

use serde_json::Value;

use crate::{
    config::MemberName,
    placement::{
        companions::{Limit, Limits, Scaled, Subject, autoscaler, budget},
        divided::{Division, Field},
        marker::{Marker, WHOLE_KEY},
        merge::{Change, Step, What},
        plan::too_much,
    },
    write::{
        fleet::Fleet,
        update::{
            part::{Held, How, note},
            shares::{DesiredReplicas, Missing, Shares, Total, change, takes},
            task::PartTask,
            work::Work,
        },
        workloads::shares,
    },
};

impl<F: Fleet> Work<'_, F> {
    /// What is divided of a companion; `None`: it is none, or one member alone may have it.
    pub(super) fn companion(&self) -> Option<(Division, &Marker)> {
        let division = self.division().filter(|division| division.goes_along())?;
        let marker = self.marker.as_ref()?;
        (marker.members.len() > 1 || note(&self.home.document).is_some()).then_some((division, marker))
    }

    /// The parts' shares of a companion that is to be `after`, whether its own numbers change or the workload's. `None`: it
    /// is none.
    pub(super) async fn companion_shares(&self, after: &Value, totals: &[Total]) -> Option<Shares> {
        let (division, marker) = self.companion()?;
        let with_parts = self.parts().count();
        if !self.subresource().is_empty() {
            return Some(Shares { tasks: vec![PartTask::default(); with_parts], ..Shares::default() });
        }
        let whole = self.whole(division, totals)?;
        if division == Division::Quota {
            return Some(self.quota_shares(&whole).await.0);
        }
        let subject = Subject::of(Some(division), &self.about(after).to_string())?;
        let by = shares(&self.writer.fleet, &self.key.namespace, &subject).await;
        let all: Vec<Held> = self.parts().cloned().chain(self.coming()).collect();
        let parts: Vec<&MemberName> = all.iter().map(|part| &part.member).collect();
        let uid = &self.visible.uid;
        let planned: Vec<(MemberName, Option<Limits>)> = match division {
            Division::Autoscaler => {
                let may = self.may_have_one(marker, &parts).await;
                let scaled: Vec<_> =
                    may.iter().map(|member| Scaled { member, has_part: parts.contains(&member) }).collect();
                let limits = autoscaler(&whole, &scaled, &by, uid);
                may.iter().cloned().zip(limits).collect()
            }
            _ => {
                let limits = budget(&whole, &parts, &by, uid).into_iter().map(Some);
                parts.iter().map(|member| (*member).clone()).zip(limits).collect()
            }
        };
        let made: Vec<(&MemberName, &Limits)> =
            planned.iter().filter_map(|(member, limits)| Some((member, limits.as_ref()?))).collect();
        let limits_of =
            |member: &MemberName| made.iter().find(|(name, _)| **name == *member).map(|(_, limits)| *limits);
        let task = |part: &Held| {
            let own = limits_of(&part.member).map(|limits| self.own_changes(division, part, limits, &whole));
            PartTask { own: own.unwrap_or_default(), ..PartTask::default() }
        };
        let mut tasks: Vec<PartTask> = all.iter().map(task).collect();
        let policy = self.policy();
        let missing = made.iter().filter(|(member, _)| !parts.contains(member)).filter_map(|(member, limits)| {
            let (_, cluster_uid) = marker.members.iter().find(|(name, _)| name == *member)?;
            let overrides = policy.map(|policy| policy.terms(member).overrides).unwrap_or_default();
            let (values, whole) = (limits.values(division), Some(whole.to_note()));
            Some(Missing { member: (*member).clone(), cluster_uid: cluster_uid.clone(), values, overrides, whole })
        });
        let missing: Vec<Missing> = missing.collect();
        let changes = !missing.is_empty() || tasks.iter().any(|task| !task.own.is_empty());
        let warning = too_much(division, &whole, &made, &by).filter(|_| changes);
        let coming = tasks.split_off(with_parts).into_iter().zip(all.iter().skip(with_parts));
        let coming = coming.map(|(task, part)| (part.member.to_string(), task.own)).collect();
        Some(Shares { tasks, coming, missing, warning, ..Shares::default() })
    }

    /// The divided fields as they are to be written. `None`: nothing can be made of what there is.
    pub(super) fn whole(&self, division: Division, totals: &[Total]) -> Option<Limits> {
        let noted = note(&self.home.document).and_then(|note| Limits::noted(division, note));
        let mut whole = noted.or_else(|| Limits::of(division, &self.shown))?;
        for total in totals {
            let asked = match &total.asked {
                DesiredReplicas::Number(number) => Some(Value::from(*number)),
                DesiredReplicas::Same(same) => same.clone(),
            };
            if division == Division::Quota && asked.as_ref().is_some_and(|asked| !asked.is_object()) {
                // The members refuse it in their own words.
                return None;
            }
            whole.set(&total.field, asked.as_ref().and_then(Limit::read));
        }
        Some(whole)
    }

    /// The document that says what the companion is for: an apply says it itself.
    fn about(&self, after: &Value) -> Value {
        let applied = (self.how() == How::Apply).then(|| serde_json::from_slice::<Value>(&self.request.body).ok());
        let spec = |document: &Value| {
            ["/spec/selector", "/spec/scaleTargetRef"].iter().any(|at| document.pointer(at).is_some())
        };
        applied.flatten().filter(spec).unwrap_or_else(|| after.clone())
    }

    /// The members that have a part of an autoscaler or may get one, the home first.
    async fn may_have_one(&self, marker: &Marker, parts: &[&MemberName]) -> Vec<MemberName> {
        let policy = self.policy();
        let candidates = self.candidates(policy, &self.shown).await;
        let is_able = |member: &MemberName, cluster_uid: &str| {
            let excluded = policy.is_some_and(|policy| policy.terms(member).excluded.is_some());
            let able = candidates.iter().any(|candidate| candidate.name == *member && takes(candidate));
            !excluded && able && self.writer.fleet.cluster_uid(member).as_deref() == Some(cluster_uid)
        };
        let listed = marker.members.iter().filter(|(name, uid)| !parts.contains(&name) && is_able(name, uid));
        parts.iter().map(|name| (*name).clone()).chain(listed.map(|(name, _)| name.clone())).collect()
    }

    /// What changes in a part: its own limits, and what it notes of the whole.
    fn own_changes(&self, division: Division, part: &Held, limits: &Limits, whole: &Limits) -> Vec<Change> {
        let awaited = self.awaited(part);
        let field = |field: &Field| {
            let now = awaited.pointer(field.pointer).filter(|value| !value.is_null()).cloned();
            change(*field, now, limits.get(field).map(Limit::to_json))
        };
        let mut own: Vec<Change> = division.fields().iter().filter_map(field).collect();
        own.extend(note_change(&awaited, whole));
        own
    }
}

/// What a part that is to be as `awaited` has to note of the whole.
pub(super) fn note_change(awaited: &Value, whole: &Limits) -> Option<Change> {
    let (old, new) = (note(awaited).map(Value::from), Some(Value::from(whole.to_note())));
    let at = ["metadata", "annotations", WHOLE_KEY].map(|name| Step::Field(name.to_owned())).to_vec();
    (old != new).then_some(Change { at, what: What::Value { old, new } })
}
