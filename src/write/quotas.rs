//! The quotas of a namespace, and what they let each member have of a workload.

use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    config::MemberName,
    placement::{
        companions::{Limit, Limits},
        divided::{Division, HARD, Value as Number},
        marker::WHOLE_KEY,
        quota::{Cap, PodUsage, Quota, Units, caps},
        scheduling::pod_spec,
    },
    write::{
        fleet::{Fleet, Key, Part},
        workloads::{QUOTA, documents},
    },
};
use kubefold_wire::{
    locate::value_at,
    resource::{Gvk, Gvr},
};

/// How many pods of a workload, by member.
pub(super) type Pods = BTreeMap<MemberName, u32>;

/// The quotas that count the pods of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Quotas {
    all: Vec<Quota>,
    pods: PodUsage,
}

/// The quotas of an object's namespace, those that its members have of their own included. None where it makes no pods.
///
/// Shape: `document` is asked for only where there are some.
pub(super) async fn of<'d, F: Fleet>(fleet: &F, key: &Key, document: impl FnOnce() -> Cow<'d, str>) -> Quotas {
    let Gvk { group, kind, .. } = &key.gvk;
    if pod_spec(group, kind).is_none() {
        return Quotas::default();
    }
    let (of_group, version, resource, _) = QUOTA;
    let listed = fleet.objects(&Gvr::new(of_group, version, resource), &key.namespace).await;
    if listed.is_empty() {
        return Quotas::default();
    }
    let Some(pods) = PodUsage::of(group, kind, &document()) else { return Quotas::default() };
    let up = fleet.up();
    let read = listed.iter().filter_map(|one| Quota::of(&one.name, documents(one), |member| up.contains(member)));
    Quotas { all: read.filter(|quota| quota.counts(&pods)).collect(), pods }
}

impl Quotas {
    /// What they let each member have. `own` are the pods that the workload has already.
    pub(super) fn caps(&self, own: &Pods) -> BTreeMap<MemberName, Cap> {
        caps(&self.all, &self.pods, own)
    }

    /// What so many pods of the workload count in them, by member, and the names of those in which a share is too small for it.
    pub(super) fn short(&self, asked: &Pods) -> (BTreeMap<MemberName, Units>, Vec<String>) {
        let asked: BTreeMap<MemberName, Units> =
            asked.iter().map(|(member, pods)| (member.clone(), self.pods.times(*pods))).collect();
        let is_short = |quota: &&Quota| asked.iter().any(|(member, asked)| quota.is_short(member, asked));
        let short = self.all.iter().filter(is_short).map(|quota| quota.name.clone()).collect();
        (asked, short)
    }
}

/// Says whether a part notes what was written: its quota is divided.
pub(super) fn is_noted(part: &[u8]) -> bool {
    whole_of(part).is_some()
}

/// The limits that a part of a quota gets in a member that joins, with what it notes of the whole. `None`: the quota is not
/// divided.
pub(super) fn without_share(part: &[u8]) -> Option<(Vec<Number>, String)> {
    let whole = whole_of(part)?;
    let Some(Limit::Amounts(hard)) = whole.get(&HARD) else { return Some((Vec::new(), whole.to_note())) };
    Some((hard.without_shares().values(&HARD), whole.to_note()))
}

fn whole_of(part: &[u8]) -> Option<Limits> {
    let note = value_at(std::str::from_utf8(part).ok()?, &["metadata", "annotations", WHOLE_KEY])?;
    Limits::noted(Division::Quota, &serde_json::from_str::<String>(note).ok()?)
}

/// The pods that the parts of a workload have made: those that wait for a quota are none yet.
pub(super) fn pods_of(parts: &[Part]) -> Pods {
    let made = |part: &Part| {
        let made = value_at(std::str::from_utf8(&part.json).ok()?, &["status", "replicas"])?;
        Some((part.member.clone(), made.parse().ok()?))
    };
    parts.iter().filter_map(made).collect()
}
