//! How a placement divides replicas, and how many members it picks.

use crate::{
    config::{MemberName, Picked, SpreadLevel, Weight, Weights},
    karmada::{
        Findings, Fleet,
        affinity::members,
        propagation::{
            DivisionPreference, Placement, ReplicaScheduling, SchedulingType, SpreadConstraint, SpreadField,
        },
    },
    view::CLUSTER_LABEL,
};
use kubefold_wire::{invalid::Path, names::qualified_name};

const WEIGHT_MAX: i64 = 1_000_000;

/// What a placement says beside which members may be chosen.
pub(super) struct Placing {
    pub(super) scheduling: Scheduling,
    pub(super) picked: Option<Picked>,
}

/// How the replicas of workloads are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scheduling {
    /// Each member gets all.
    Duplicated,
    /// By these weights.
    Static(Vec<(MemberName, Weight)>),
    /// By how many fit.
    Available,
    /// To the fewest members that have room.
    Fewest,
}

impl Placing {
    pub(super) fn weights(&self) -> Weights {
        match self.scheduling {
            Scheduling::Available | Scheduling::Fewest => Weights::Capacity,
            Scheduling::Duplicated | Scheduling::Static(_) => Weights::Static,
        }
    }

    /// Says whether one member at most gets a part.
    pub(super) fn picks_one(&self) -> bool {
        let picked = self.picked.as_ref().filter(|picked| picked.max == Some(1));
        picked.is_some_and(|picked| picked.groups.as_ref().is_none_or(|level| level.max == Some(1)))
    }
}

/// Reads a placement.
pub(super) fn placing(placement: &Placement, at: &Path, fleet: Fleet<'_>, found: &mut Findings) -> Placing {
    let scheduling = match &placement.replica_scheduling {
        None => Scheduling::Duplicated,
        Some(wanted) => scheduling(wanted, &at.child("replicaScheduling"), fleet, found),
    };
    let at = at.child("spreadConstraints");
    let picked = picked(&placement.spread_constraints, &at, found);
    let picked = match &scheduling {
        Scheduling::Static(_) if picked.is_some() => {
            found.warnings.push("spec.placement.spreadConstraints has no effect with static weights".to_owned());
            None
        }
        Scheduling::Fewest if picked.is_some() => {
            let why = "it cannot stand beside Aggregated, which chooses the fewest members by itself";
            found.errors.forbidden(&at, why);
            None
        }
        _ => picked,
    };
    Placing { scheduling, picked }
}

fn scheduling(wanted: &ReplicaScheduling, at: &Path, fleet: Fleet<'_>, found: &mut Findings) -> Scheduling {
    if wanted.replica_scheduling_type == SchedulingType::Duplicated {
        return Scheduling::Duplicated;
    }
    let weights = wanted.weight_preference.as_ref();
    if wanted.replica_division_preference == Some(DivisionPreference::Aggregated) {
        if weights.is_some() {
            found.errors.forbidden(&at.child("weightPreference"), "it has no meaning with Aggregated: leave it out");
        }
        return Scheduling::Fewest;
    }
    let equal = || fleet.members.iter().map(|member| (member.name.clone(), Weight(1))).collect();
    let Some(weights) = weights else { return Scheduling::Static(equal()) };
    if weights.dynamic_weight.is_some() {
        return Scheduling::Available;
    }
    if weights.static_weight_list.is_empty() {
        return Scheduling::Static(equal());
    }
    let mut all: Vec<(MemberName, Weight)> =
        fleet.members.iter().map(|member| (member.name.clone(), Weight(0))).collect();
    for (index, rule) in weights.static_weight_list.iter().enumerate() {
        let at = at.child("weightPreference").child("staticWeightList").index(index);
        let weight = u32::try_from(rule.weight).ok().filter(|_| (1..=WEIGHT_MAX).contains(&rule.weight));
        let Some(weight) = weight else {
            let why = format!("must be between 1 and {WEIGHT_MAX}, inclusive");
            found.errors.invalid(&at.child("weight"), rule.weight, &why);
            continue;
        };
        let meant = members(Some(&rule.target_cluster), &at.child("targetCluster"), fleet, found);
        for (_, own) in all.iter_mut().filter(|(member, _)| meant.contains(member)) {
            *own = Weight(weight).max(*own);
        }
    }
    Scheduling::Static(all)
}

/// How many members are picked; `None`: all.
fn picked(constraints: &[SpreadConstraint], at: &Path, found: &mut Findings) -> Option<Picked> {
    let mut levels: Vec<SpreadLevel> = Vec::new();
    let mut is_by_field = false;
    for (index, one) in constraints.iter().enumerate() {
        let at = at.index(index);
        is_by_field |= one.spread_by_field.is_some();
        let Some(level) = level(one, &at, found) else { continue };
        if levels.iter().any(|other| other.label == level.label) {
            found.errors.duplicate(&at, level.label);
        } else {
            levels.push(level);
        }
    }
    let (own, mut groups): (Vec<SpreadLevel>, Vec<SpreadLevel>) =
        levels.into_iter().partition(|level| level.label == CLUSTER_LABEL);
    if is_by_field && own.is_empty() {
        let why = "a constraint with spreadByField: cluster says how many clusters are picked in all";
        found.errors.required(at, why);
    }
    if groups.len() > 1 {
        found.errors.forbidden(at, "one constraint beside that of clusters is served");
    }
    let (min, max) = own.first().map_or((0, None), |level| (level.min, level.max));
    let groups = groups.pop();
    (groups.is_some() || min > 1 || max.is_some()).then_some(Picked { groups, min, max })
}

fn level(one: &SpreadConstraint, at: &Path, found: &mut Findings) -> Option<SpreadLevel> {
    let by_label = one.spread_by_label.as_ref().filter(|label| !label.is_empty());
    let label = match (one.spread_by_field, by_label) {
        (Some(_), Some(_)) => {
            found.errors.forbidden(&at.child("spreadByLabel"), "it cannot stand beside spreadByField");
            return None;
        }
        (None, Some(label)) => {
            found.errors.all_invalid(&at.child("spreadByLabel"), label, &qualified_name(label));
            label.clone()
        }
        (None | Some(SpreadField::Cluster), None) => CLUSTER_LABEL.to_owned(),
        (Some(SpreadField::Region), None) => "region".to_owned(),
        (Some(SpreadField::Zone), None) => "zone".to_owned(),
        (Some(SpreadField::Provider), None) => "provider".to_owned(),
    };
    let mut number = |field: &str, number: Option<i32>| {
        let number = number.unwrap_or(0);
        u32::try_from(number).unwrap_or_else(|_| {
            found.errors.invalid(&at.child(field), number, "must be greater than or equal to 0");
            0
        })
    };
    let (min, max) = (number("minGroups", one.min_groups), number("maxGroups", one.max_groups));
    if max > 0 && max < min {
        found.errors.invalid(&at.child("maxGroups"), max, "must not be below minGroups");
    }
    Some(SpreadLevel { label, min: min.max(1), max: (max > 0).then_some(max) })
}
