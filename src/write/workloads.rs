//! What is known of workloads in a namespace: the shares of their parts, and who mounts or scales what.

use futures::future::join_all;

use crate::{
    config::MemberName,
    placement::{
        companions::{Shares, Subject, claims, is_counted_elsewhere, pod_labels, replicas},
        divided::{Division, REPLICAS},
    },
    write::fleet::{Fleet, Key, Listed},
};
use kubefold_wire::{
    media::is_built_in,
    resource::{Gvk, Gvr, split_api_version},
};

/// Who makes the pods that budgets select, in the version that is read here.
pub(super) const WORKLOADS: [(&str, &str, &str, &str); 4] = [
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "statefulsets", "StatefulSet"),
    ("apps", "v1", "replicasets", "ReplicaSet"),
    ("", "v1", "replicationcontrollers", "ReplicationController"),
];

/// A pod that no workload makes, which is placed by itself.
pub(super) const POD: (&str, &str, &str, &str) = ("", "v1", "pods", "Pod");

/// Who else has a pod template, or is a pod: all that may mount claims.
const OTHERS_WITH_PODS: [(&str, &str, &str, &str); 4] = [
    ("apps", "v1", "daemonsets", "DaemonSet"),
    ("batch", "v1", "jobs", "Job"),
    ("batch", "v1", "cronjobs", "CronJob"),
    POD,
];

/// A quota of a namespace.
pub(super) const QUOTA: (&str, &str, &str, &str) = ("", "v1", "resourcequotas", "ResourceQuota");

/// Kinds of companions.
pub(super) const COMPANIONS: [(&str, &str, &str, &str); 2] = [
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
];

/// The shares of what a companion is for. Empty while there is none.
pub(super) async fn shares<F: Fleet>(fleet: &F, namespace: &str, subject: &Subject) -> Shares {
    let mut shares = Shares::new();
    match subject {
        Subject::Pods(_) => {
            let mut all = of_kinds(fleet, namespace, &WORKLOADS).await;
            let (group, version, resource, kind) = POD;
            all.push(((group, kind), fleet.placed_of(&Gvr::new(group, version, resource), namespace).await));
            let deployments: Vec<&str> =
                all.first().iter().flat_map(|(_, listed)| listed).map(|one| &*one.name).collect();
            for ((group, kind), listed) in &all {
                for (member, document) in listed.iter().flat_map(documents) {
                    let is_of_budget = pod_labels(group, kind, document).is_some_and(|labels| subject.selects(labels));
                    // A Deployment has the marker itself, of which others have copies.
                    let is_elsewhere = *kind != "Deployment" && is_counted_elsewhere(document, &deployments);
                    if is_of_budget && !is_elsewhere {
                        let share: &mut u32 = shares.entry(member.clone()).or_default();
                        *share = share.saturating_add(replicas(document, REPLICAS.path));
                    }
                }
            }
        }
        Subject::Target(Some(target)) => {
            let Some(gvr) = fleet.resource(&target.api_version, &target.kind) else { return shares };
            let listed = fleet.objects(&gvr, namespace).await;
            let found = listed.iter().find(|one| one.name == target.name);
            let (group, version) = split_api_version(&target.api_version).unwrap_or_default();
            let division = fleet.rules().kinds().division(&Gvk::new(group, version, &target.kind));
            let path = division.and_then(Division::scaled).unwrap_or(REPLICAS).path;
            let share = |(member, json): (&MemberName, &str)| (member.clone(), replicas(json, path));
            shares.extend(found.into_iter().flat_map(documents).map(share));
        }
        Subject::Target(None) | Subject::Namespace => {}
    }
    shares
}

/// The member of what came before an object and belongs to it: the pods of a claim, the autoscaler of a workload.
pub(super) async fn drawn<F: Fleet>(fleet: &F, key: &Key, division: Option<Division>) -> Option<MemberName> {
    let (group, kind) = (&*key.gvk.group, &*key.gvk.kind);
    if (group, kind) == ("", "PersistentVolumeClaim") {
        let kinds: Vec<_> = WORKLOADS.into_iter().chain(OTHERS_WITH_PODS).collect();
        let all = of_kinds(fleet, &key.namespace, &kinds).await;
        let mounts = |(group, kind): (&str, &str), listed: &Listed| {
            documents(listed)
                .find(|(_, json)| claims(group, kind, json).contains(&key.name))
                .map(|(name, _)| name.clone())
        };
        return all.iter().find_map(|(kind, listed)| listed.iter().find_map(|one| mounts(*kind, one)));
    }
    let scales = matches!(division, Some(Division::Replicas | Division::Ordinals));
    if !scales && (is_built_in(group) || key.namespace.is_empty()) {
        return None;
    }
    let [_, autoscalers] = COMPANIONS;
    let all = of_kinds(fleet, &key.namespace, &[autoscalers]).await;
    let is_its = |(_, json): &(&MemberName, &str)| {
        Subject::of(Some(Division::Autoscaler), json).is_some_and(|subject| subject.scales(group, kind, &key.name))
    };
    let homes = all.iter().flat_map(|(_, listed)| listed).filter_map(|one| documents(one).next());
    homes.into_iter().find(is_its).map(|(member, _)| member.clone())
}

/// The objects of these kinds, in their order, with group and kind.
pub(super) async fn of_kinds<'k, F: Fleet>(
    fleet: &F,
    namespace: &str,
    kinds: &[(&'k str, &'k str, &'k str, &'k str)],
) -> Vec<((&'k str, &'k str), Vec<Listed>)> {
    let all = join_all(kinds.iter().map(|(group, version, resource, kind)| async move {
        ((*group, *kind), fleet.objects(&Gvr::new(group, version, resource), namespace).await)
    }));
    all.await
}

pub(super) fn documents(of: &Listed) -> impl Iterator<Item = (&MemberName, &str)> {
    of.parts.iter().filter_map(|(member, json)| Some((member, std::str::from_utf8(json).ok()?)))
}
