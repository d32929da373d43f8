//! The quotas of a namespace: what they let each member have of a workload, and shares that follow it.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::Method;

use crate::{
    config::MemberName,
    placement::{
        companions::{Limit, Limits},
        divided::{Division, HARD, Value as Number},
        marker::WHOLE_KEY,
        quota::{Cap, Extent, PodUsage, Quota, caps},
    },
    write::{
        Writer,
        fleet::{Fleet, Key, Part},
        request::{OWN_MANAGER, Request},
        steps::mover,
        update::{Aim, MERGE_PATCH, is_quota, redivide},
        workloads::{QUOTA, documents},
    },
};
use kubefold_wire::{
    golang::Quoted,
    locate::value_at,
    resource::{Gvk, Gvr},
    status::Failure,
    warning::Warnings,
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
pub(super) async fn of<F: Fleet>(fleet: &F, key: &Key, document: &str) -> Quotas {
    let Some(pods) = PodUsage::of(&key.gvk.group, &key.gvk.kind, document) else { return Quotas::default() };
    let (group, version, resource, _) = QUOTA;
    let listed = fleet.objects(&Gvr::new(group, version, resource), &key.namespace).await;
    if listed.is_empty() {
        return Quotas::default();
    }
    let up = fleet.up();
    let read = listed.iter().filter_map(|one| Quota::of(&one.name, documents(one), |member| up.contains(member)));
    Quotas { all: read.filter(|quota| quota.counts(&pods)).collect(), pods }
}

impl Quotas {
    /// What they let each member have. `own` are the pods that the workload has already.
    pub(super) fn caps(&self, own: &Pods) -> BTreeMap<MemberName, Cap> {
        caps(&self.all, &self.pods, own)
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

impl<F: Fleet> Writer<F> {
    /// Has the shares of quotas follow what a workload is about to ask of the members, as far as the wholes allow.
    pub(super) async fn make_room(
        self: &Arc<Self>,
        namespace: &str,
        quotas: &Quotas,
        asked: &Pods,
        warnings: &mut Warnings,
    ) {
        let asked: BTreeMap<_, _> =
            asked.iter().map(|(member, pods)| (member.clone(), quotas.pods.times(*pods))).collect();
        let is_short = |quota: &&Quota| asked.iter().any(|(member, asked)| quota.is_short(member, asked));
        for quota in quotas.all.iter().filter(is_short) {
            let aim = Aim { extent: Extent::Difference, asked: asked.clone() };
            let request = of_quota(namespace, &quota.name);
            let Some(reply) = Box::pin(redivide(self, &request, &aim)).await else { continue };
            if let Some(failure) = Failure::of(&reply.body).filter(|_| !reply.code.is_success()) {
                warnings.add(&format!(
                    "resourcequota {} is not divided anew, and some of the pods may wait: {}",
                    Quoted(&quota.name),
                    failure.message
                ));
            }
        }
    }
}

/// Divides a quota as if nobody had a share, but for what is used. Nobody waits to be told.
pub(super) async fn divide_anew<F: Fleet>(writer: &Arc<Writer<F>>, key: &Key) {
    let aim = Aim { extent: Extent::Anew, asked: BTreeMap::new() };
    let told = Box::pin(redivide(writer, &of_quota(&key.namespace, &key.name), &aim)).await;
    if let Some(reply) = told.filter(|reply| !reply.code.is_success()) {
        let why = Failure::of(&reply.body).map(|failure| failure.message).unwrap_or_default();
        tracing::warn!(object = %key, %why, "a quota is not divided anew");
    }
}

/// Divides all quotas anew that are wanted.
pub(super) async fn divide_all_anew<F: Fleet>(writer: &Arc<Writer<F>>, is_wanted: impl Fn(&Key) -> bool + Send) {
    for placed in writer.fleet.placed().await {
        if is_quota(&placed.key) && is_wanted(&placed.key) {
            divide_anew(writer, &placed.key).await;
        }
    }
}

/// The mover's write that has a quota's shares made anew: a patch of nothing.
fn of_quota(namespace: &str, name: &str) -> Request {
    let (group, version, resource, kind) = QUOTA;
    Request {
        caller: mover(),
        method: Method::PATCH,
        gvr: Gvr::new(group, version, resource),
        gvk: Gvk::new(group, version, kind),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
        query: format!("fieldManager={OWN_MANAGER}"),
        content_type: MERGE_PATCH.to_owned(),
        user_agent: None,
        refusing: Vec::new(),
        body: Bytes::from_static(b"{}"),
    }
}
