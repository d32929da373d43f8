//! A PropagationPolicy as policies of kubefold: one for each selector, so that one that selects more precisely counts first.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use crate::{
    config::{
        Bounds, CarriedKind, Chosen, Failover, Match, MemberName, MemberTerms, MemberToleration, PolicyConfig,
        Precision, Rebalance, Strategy, TaintEffect, Weight, Weights, unfit,
    },
    karmada::{
        Findings, Fleet,
        affinity::{matching, members},
        placing::{Placing, Scheduling, placing},
        propagation::{
            ActivationPreference, ClusterToleration, ConflictResolution, DEFAULT_SCHEDULER, Preemption, PropagationSpec,
        },
        selectors::{Metadata, ResourceSelector},
    },
};
use kubefold_wire::{
    invalid::Path,
    names::{label_value, qualified_name},
    resource::split_api_version,
};

/// How often it is looked whether a changed policy has objects to move. Karmada acts at once.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// What is measured changes without a change of the policy: less than this stays. Units: percent.
const MEASURED_THRESHOLD: u32 = 20;
/// Karmada's taints of clusters that do not answer.
const LOST: [&str; 2] = ["cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable"];
/// How long such a cluster is tolerated by itself. Units: seconds.
const LOST_SECONDS: i64 = 300;
/// The longest failover that kubefold has. Units: seconds.
const FAILOVER_SECONDS_MAX: i64 = 168 * 3600;

/// One policy of kubefold.
pub(super) struct Entry {
    /// The lowest counts first.
    pub(super) rank: Rank,
    pub(super) config: PolicyConfig,
}

/// Where a policy stands among others: namespaced ones first, then by priority, precision and name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    is_cluster: bool,
    priority: Reverse<i32>,
    precision: Reverse<Precision>,
    name: String,
}

/// How people call a policy.
pub(super) fn called(metadata: &Metadata) -> String {
    match metadata.namespace.as_str() {
        "" => format!("ClusterPropagationPolicy {}", metadata.name),
        namespace => format!("PropagationPolicy {namespace}/{}", metadata.name),
    }
}

/// Compiles a policy. What is found wrong means that the entries are not to be used.
pub(super) fn entries(
    metadata: &Metadata,
    spec: &PropagationSpec,
    fleet: Fleet<'_>,
    found: &mut Findings,
) -> Vec<Entry> {
    let root = Path::new("spec");
    unserved(spec, &root, found);
    let at = root.child("placement");
    let groups = groups(spec, &at, fleet, found);
    let placing = placing(&spec.placement, &at, fleet, found);
    let tolerations = tolerations(&spec.placement.cluster_tolerations, &at.child("clusterTolerations"), found);
    let failover = failover(spec, &tolerations, &root, found);
    if spec.resource_selectors.is_empty() {
        found.errors.required(&root.child("resourceSelectors"), "a policy without selectors selects nothing");
    }
    let mut entries = Vec::new();
    for (index, selector) in spec.resource_selectors.iter().enumerate() {
        let at = root.child("resourceSelectors").index(index);
        let matches = matching(selector, metadata, &at, found);
        let subject = Selected { selector, at: &at, groups: &groups, placing: &placing };
        everywhere(&subject, fleet, found);
        let Some(strategy) = strategy(&subject, fleet, found) else { continue };
        let rank = Rank {
            is_cluster: metadata.namespace.is_empty(),
            priority: Reverse(spec.priority),
            precision: Reverse(matches.precision()),
            name: metadata.name.clone(),
        };
        let place = Place { groups: &groups, placing: &placing, tolerations: &tolerations, failover };
        entries.push(Entry { rank, config: config(metadata, spec, place, matches, strategy) });
    }
    entries
}

/// What a selector selects, and where it goes.
struct Selected<'a> {
    selector: &'a ResourceSelector,
    at: &'a Path,
    groups: &'a [Vec<MemberName>],
    placing: &'a Placing,
}

impl Selected<'_> {
    /// Says whether an object is in one member at most.
    fn is_in_one(&self) -> bool {
        self.placing.picks_one() || self.groups.iter().all(|group| group.len() <= 1)
    }

    fn group(&self) -> &str {
        split_api_version(&self.selector.api_version).map_or("", |(group, _)| group)
    }
}

/// What all entries of a policy have in common.
struct Place<'a> {
    groups: &'a [Vec<MemberName>],
    placing: &'a Placing,
    tolerations: &'a [MemberToleration],
    failover: Option<Failover>,
}

fn config(
    metadata: &Metadata,
    spec: &PropagationSpec,
    place: Place<'_>,
    matches: Match,
    strategy: Strategy,
) -> PolicyConfig {
    let name = metadata.policy_name();
    let Place { groups, placing, tolerations, failover } = place;
    let is_divided = strategy == Strategy::Divide;
    let weights = if is_divided { placing.weights() } else { Weights::Static };
    let threshold = if weights.are_measured() { MEASURED_THRESHOLD } else { 0 };
    let is_lazy = spec.activation_preference == Some(ActivationPreference::Lazy);
    let terms = |weight: &Weight| MemberTerms { weight: Some(*weight), ..MemberTerms::default() };
    let per_member: BTreeMap<_, _> = match &placing.scheduling {
        Scheduling::Static(static_weights) if is_divided => {
            static_weights.iter().map(|(member, weight)| (member.clone(), terms(weight))).collect()
        }
        _ => BTreeMap::new(),
    };
    let carry = spec.propagate_deps.unwrap_or(false);
    PolicyConfig {
        name,
        matches: Some(matches),
        strategy: Some(strategy),
        groups: groups.iter().map(|group| Chosen::Named(group.clone())).collect(),
        overlapping: true,
        weights,
        each: Bounds::default(),
        per_member,
        spread: Vec::new(),
        picked: placing.picked.clone(),
        fewest: is_divided && placing.scheduling == Scheduling::Fewest,
        partial: false,
        carry: if carry { vec![CarriedKind::ConfigMap, CarriedKind::Secret] } else { Vec::new() },
        tolerations: tolerations.to_vec(),
        failover,
        rebalance: (!is_lazy).then_some(Rebalance { every: LOOK_EVERY, threshold }),
    }
}

/// Refuses what kubefold has not.
fn unserved(spec: &PropagationSpec, at: &Path, found: &mut Findings) {
    let mut refuse = |is_set: bool, field: &str, why: &str| {
        if is_set {
            found.errors.forbidden(&at.child(field), why);
        }
    };
    refuse(spec.association == Some(true), "association", "it is not served: use propagateDeps");
    refuse(
        spec.preemption == Preemption::Always,
        "preemption",
        "Always is not served: an object that exists keeps its policy; delete that policy, or change its selectors",
    );
    refuse(
        !spec.dependent_overrides.is_empty(),
        "dependentOverrides",
        "it is not served: create the override policies first, and leave it out",
    );
    let is_other = !["", DEFAULT_SCHEDULER].contains(&spec.scheduler_name.as_str());
    refuse(is_other, "schedulerName", "kubefold places objects itself: leave it out");
    refuse(
        spec.conflict_resolution == ConflictResolution::Overwrite,
        "conflictResolution",
        "Overwrite is not served: kubefold adopt takes over what a member has",
    );
    let suspends = spec.suspension.as_ref().is_some_and(|one| {
        one.dispatching == Some(true)
            || one.dispatching_on_clusters.as_ref().is_some_and(|clusters| !clusters.cluster_names.is_empty())
    });
    refuse(suspends, "suspension", "it is not served: a write reaches every part, or says which it does not reach");
    refuse(
        spec.preserve_resources_on_deletion == Some(true),
        "preserveResourcesOnDeletion",
        "it is not served: kubectl delete --cascade=orphan keeps what an object has made, and not the object",
    );
    refuse(spec.schedule_priority.is_some(), "schedulePriority", "it is not served: kubefold has no queue of objects");
    if spec.placement.workload_affinity.is_some() {
        let why = "it is not served: name the members, or pick one with spreadConstraints";
        found.errors.forbidden(&at.child("placement").child("workloadAffinity"), why);
    }
}

/// The groups of members, in the order of preference.
fn groups(spec: &PropagationSpec, at: &Path, fleet: Fleet<'_>, found: &mut Findings) -> Vec<Vec<MemberName>> {
    let placement = &spec.placement;
    if placement.cluster_affinities.is_empty() {
        return vec![members(placement.cluster_affinity.as_ref(), &at.child("clusterAffinity"), fleet, found)];
    }
    if placement.cluster_affinity.is_some() {
        found.errors.forbidden(&at.child("clusterAffinity"), "it cannot stand beside clusterAffinities");
    }
    let at = at.child("clusterAffinities");
    let mut groups = Vec::new();
    for (index, term) in placement.cluster_affinities.iter().enumerate() {
        let name = at.index(index).child("affinityName");
        found.errors.all_invalid(&name, &term.affinity_name, &qualified_name(&term.affinity_name));
        let before = placement.cluster_affinities.iter().take(index);
        if before.into_iter().any(|other| other.affinity_name == term.affinity_name) {
            found.errors.duplicate(&name, term.affinity_name.as_str());
        }
        groups.push(members(Some(&term.affinity), &at.index(index), fleet, found));
    }
    groups
}

/// Refuses a choice of members for what every member has.
fn everywhere(of: &Selected<'_>, fleet: Fleet<'_>, found: &mut Findings) {
    let plural = plural_of(&of.selector.kind);
    let is_shared = fleet.shared.iter().any(|rule| {
        rule.group == of.group() && rule.resource == plural && rule.namespace.is_none() && rule.name.is_none()
    });
    let is_everywhere = of.placing.picked.is_none() && of.groups.iter().any(|group| group.len() == fleet.members.len());
    if is_shared && !is_everywhere {
        let why = format!("every member has each {}: leave it out, or choose all members", of.selector.kind);
        found.errors.forbidden(of.at, &why);
    }
}

/// Source: kubernetes/apimachinery `pkg/api/meta/restmapper.go`, `UnsafeGuessKindToResource`.
fn plural_of(kind: &str) -> String {
    let singular = kind.to_lowercase();
    match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if singular.ends_with('s') => format!("{singular}es"),
        None => format!("{singular}s"),
    }
}

/// How parts of the selected objects are made. `None`: not as the policy asks.
fn strategy(of: &Selected<'_>, fleet: Fleet<'_>, found: &mut Findings) -> Option<Strategy> {
    let (group, kind) = (of.group(), of.selector.kind.as_str());
    let is_declared = fleet.kinds.iter().any(|known| known.group == group && known.kind == kind);
    let fits = |strategy: Strategy| unfit(strategy, Some(group), kind, is_declared);
    let is_quota = (group, kind) == ("", "ResourceQuota");
    let goes_along = [("autoscaling", "HorizontalPodAutoscaler"), ("policy", "PodDisruptionBudget")];
    let has_replicas = fits(Strategy::Divide).is_none() && !is_quota && !goes_along.contains(&(group, kind));
    let is_divided = of.placing.scheduling != Scheduling::Duplicated;
    if has_replicas && (is_divided || of.is_in_one()) {
        return Some(Strategy::Divide);
    }
    // It has one replica.
    if is_divided && (group, kind) == ("", "Pod") {
        return Some(Strategy::One);
    }
    match fits(Strategy::Duplicate) {
        None => Some(Strategy::Duplicate),
        Some(_) if of.is_in_one() => Some(Strategy::One),
        Some(why) => {
            let at = Path::new("spec.placement.replicaScheduling");
            let instead = if has_replicas { "say replicaSchedulingType: Divided, or choose" } else { "choose" };
            let why = format!("{why}; {instead} one cluster (spec.placement.clusterAffinity) for {}", of.selector.kind);
            found.errors.forbidden(&at, &why);
            None
        }
    }
}

fn tolerations(all: &[ClusterToleration], at: &Path, found: &mut Findings) -> Vec<MemberToleration> {
    let mut read = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let at = at.index(index);
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (key, operator, value) = (text(&one.key), text(&one.operator), text(&one.value));
        let effect = text(&one.effect).map(|effect| (TaintEffect::named(&effect), effect));
        if let Some((None, effect)) = &effect {
            found.errors.unsupported(&at.child("effect"), effect.as_str(), &["NoSchedule", "NoExecute"]);
        }
        let effect = effect.and_then(|(effect, _)| effect);
        let exists = match operator.as_deref() {
            None | Some("Equal") => false,
            Some("Exists") => true,
            Some(other) => {
                found.errors.unsupported(&at.child("operator"), other, &["Equal", "Exists"]);
                false
            }
        };
        if let Some(key) = &key {
            found.errors.all_invalid(&at.child("key"), key, &qualified_name(key));
        }
        if key.is_none() && !exists {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            found.errors.invalid(&at.child("operator"), operator.as_deref().unwrap_or_default(), why);
        }
        match &value {
            Some(value) if exists => {
                let why = "value must be empty when `operator` is 'Exists'";
                found.errors.invalid(&at.child("value"), value.as_str(), why);
            }
            Some(value) => found.errors.all_invalid(&at.child("value"), value, &label_value(value)),
            None => {}
        }
        if one.toleration_seconds.is_some() && effect != Some(TaintEffect::NoExecute) {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            found.errors.invalid(&at.child("effect"), one.effect.as_deref().unwrap_or_default(), why);
        }
        let value = (!exists).then(|| value.unwrap_or_default());
        read.push(MemberToleration { key, value, effect, seconds: one.toleration_seconds });
    }
    read
}

/// When objects leave a member that does not answer.
fn failover(
    spec: &PropagationSpec,
    tolerations: &[MemberToleration],
    at: &Path,
    found: &mut Findings,
) -> Option<Failover> {
    let (failover, at) = (spec.failover.as_ref()?, at.child("failover"));
    if failover.application.is_some() {
        let why =
            "it is not served: kubefold does not judge applications; `cluster` leaves a member that does not answer";
        found.errors.forbidden(&at.child("application"), why);
    }
    let (cluster, at) = (failover.cluster.as_ref()?, at.child("cluster"));
    // Earlier versions of Karmada spell it the other way.
    if let Some(mode) =
        cluster.purge_mode.as_ref().filter(|mode| !["Gracefully", "Graciously"].contains(&mode.as_str()))
    {
        found.errors.unsupported(&at.child("purgeMode"), mode.as_str(), &["Gracefully"]);
    }
    if cluster.state_preservation.is_some() {
        found.errors.forbidden(&at.child("statePreservation"), "it is not served");
    }
    let is_lost = |one: &&MemberToleration| one.key.as_deref().is_some_and(|key| LOST.contains(&key));
    let seconds = tolerations.iter().filter(is_lost).filter_map(|one| one.seconds).min().unwrap_or(LOST_SECONDS);
    let seconds = u64::try_from(seconds.clamp(1, FAILOVER_SECONDS_MAX)).unwrap_or(1);
    Some(Failover { after: Duration::from_secs(seconds), force: false })
}
