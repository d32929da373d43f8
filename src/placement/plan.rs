//! Plans a create: which members get a part, how large, and which part comes first.

mod bound;
mod order;
mod parts;
mod picked;
mod selection;
mod taker;

use std::collections::BTreeMap;

use crate::{
    config::MemberName,
    placement::{
        companions::{Allowed, Limit, Limits, Scaled, Shares, allowed, autoscaler, budget},
        divided::{Division, HARD, MIN_REPLICAS},
        division::tie,
        policy::Strategy,
        quota::{Extent, Hard, Holder, Weighting, step},
    },
};
use kubefold_wire::golang::Quoted;

pub use order::{Candidate, Companion, Order, Plan, PlanError, Standing, Target};

use parts::divided;
use picked::picked;
use taker::{NOT_ALLOWED, Taker, draws_not, sort, taker};

/// Plans the parts of one object.
///
/// The sticky member comes first while it is a candidate; else the largest share does, ties falling by UID.
///
/// Errors: no member can take it, not all of it fits, or a member is unknown for the kind.
pub fn plan(order: &Order<'_>, candidates: &[Candidate]) -> Result<Plan, PlanError> {
    let unknown: Vec<_> = candidates.iter().filter_map(unknown).collect();
    if !unknown.is_empty() {
        return Err(PlanError::Unknown(unknown));
    }
    let strategy = strategy(order);
    let goes_along = order.wholes.division.is_some_and(Division::goes_along);
    // Without a part there, such an object would be missing: it is made when the member returns.
    let later = strategy == Strategy::Duplicate || goes_along && strategy == Strategy::Divide;
    let (mut takers, mut left_out, mut down) = (Vec::new(), Vec::new(), false);
    for candidate in candidates {
        match taker(order, strategy, later, candidate) {
            Ok(taker) => takers.push(taker),
            Err(refusal) => {
                down |= refusal.down;
                left_out.push((candidate.name.clone(), refusal.why));
            }
        }
    }
    if takers.iter().all(|taker| taker.behind.is_some()) {
        let behind = takers.into_iter().map(|taker| (taker.candidate.name.clone(), taker.behind.unwrap_or_default()));
        let behind: Vec<_> = behind.collect();
        let mut able = candidates.iter().filter(|candidate| !candidate.absent && candidate.serves_kind).peekable();
        let nowhere = able.peek().is_some() && able.all(|candidate| !candidate.has_namespace);
        return Err(match () {
            () if down || !behind.is_empty() => PlanError::AllDown(behind.into_iter().chain(left_out).collect()),
            () if nowhere => PlanError::NoNamespace,
            () => PlanError::NoCandidate(left_out),
        });
    }
    let refusing = left_out.iter().filter(|(_, why)| strategy == Strategy::Duplicate && why == NOT_ALLOWED);
    let warnings = refusing.map(|(name, _)| format!("member {name} has no part: {NOT_ALLOWED}")).collect();
    let mut warnings: Vec<String> = warnings;
    if strategy != Strategy::One && !order.claims.is_empty() {
        let claims: Vec<String> = order.claims.iter().map(|claim| Quoted(claim).to_string()).collect();
        warnings.push(format!(
            "policy {} places it in several members, and its pods mount the claim {}, which is in one: elsewhere they wait",
            order.policy.name.as_deref().unwrap_or_default(),
            claims.join(", ")
        ));
    }
    let mut plan = Plan {
        uid: order.uid.to_owned(),
        policy: order.policy.name.clone(),
        adopts: order.orphans.map(|orphans| orphans.family.clone()),
        strategy,
        targets: Vec::new(),
        left_out,
        warnings,
    };
    if is_ordered(order, strategy) {
        in_order(order, takers, &mut plan)?;
    } else {
        parts(order, takers, order.policy.partial, &mut plan)?;
    }
    Ok(plan)
}

/// Says whether the first of the policy's groups of members that can take an object has all of it. What belongs to
/// workloads is in all groups, since these may be in any.
fn is_ordered(order: &Order<'_>, strategy: Strategy) -> bool {
    let goes_along = order.wholes.division.is_some_and(Division::goes_along);
    order.policy.groups > 1 && !goes_along && (order.pod.is_some() || strategy != Strategy::Duplicate)
}

/// The parts among these members. As much as fits is placed where not all does, if that is `enough`.
fn parts(order: &Order<'_>, takers: Vec<Taker<'_>>, enough: bool, plan: &mut Plan) -> Result<(), PlanError> {
    let goes_along = order.wholes.division.is_some_and(Division::goes_along);
    match plan.strategy {
        Strategy::One => one(order, picked(order, takers, |_| 0, plan)?, plan),
        Strategy::Duplicate => duplicate(order, takers, plan)?,
        Strategy::Divide if goes_along => along(order, takers, plan),
        Strategy::Divide => divided(order, takers, enough, plan)?,
    }
    Ok(())
}

/// The parts in the first group of members that can take the object.
fn in_order(order: &Order<'_>, takers: Vec<Taker<'_>>, plan: &mut Plan) -> Result<(), PlanError> {
    let mut groups: BTreeMap<usize, Vec<Taker<'_>>> = BTreeMap::new();
    for taker in takers {
        for rank in &taker.terms.ranks {
            groups.entry(*rank).or_default().push(taker.clone());
        }
    }
    let mut groups: Vec<(usize, Vec<Taker<'_>>)> = groups.into_iter().collect();
    // What came before it and belongs to it draws it there.
    groups.sort_by_key(|(rank, of)| (of.iter().all(|taker| draws_not(order, taker.name())), *rank));
    let (mut taken, mut failed) = (None, Vec::new());
    for (rank, of) in &groups {
        match in_group(order, *rank, of.clone(), false, plan) {
            Ok(attempt) => {
                taken = Some((*rank, attempt));
                break;
            }
            Err(error) => failed.push((rank + 1, error)),
        }
    }
    if taken.is_none() && order.policy.partial {
        // Of groups in which as much fits, the first.
        let most = failed.iter().zip(&groups).rev().max_by_key(|((_, error), _)| error.fits());
        if let Some((_, (rank, of))) = most {
            taken = in_group(order, *rank, of.clone(), true, plan).ok().map(|attempt| (*rank, attempt));
        }
    }
    let policy = order.policy.name.clone().unwrap_or_default();
    let Some((taking, attempt)) = taken else { return Err(PlanError::NoGroup { policy, groups: failed }) };
    *plan = attempt;
    for (rank, of) in groups.iter().filter(|(rank, _)| *rank != taking) {
        let error = failed.iter().find(|(at, _)| *at == rank + 1).map(|(_, error)| error);
        for name in of.iter().map(Taker::name) {
            // It may be in a group that took it, too.
            if plan.targets.iter().any(|target| target.member == *name) {
                continue;
            }
            let why = match error {
                Some(error) => format!("group {} of policy {policy} cannot take it: {}", rank + 1, error.of(name)),
                None => format!("group {} of policy {policy} can take it, and this is group {}", taking + 1, rank + 1),
            };
            plan.left_out.push((name.clone(), why));
        }
    }
    Ok(())
}

/// The plan with the parts in one group of members.
fn in_group(
    order: &Order<'_>,
    rank: usize,
    takers: Vec<Taker<'_>>,
    enough: bool,
    plan: &Plan,
) -> Result<Plan, PlanError> {
    if takers.iter().all(|taker| taker.behind.is_some()) {
        let down = takers.into_iter().map(|taker| (taker.candidate.name.clone(), taker.behind.unwrap_or_default()));
        return Err(PlanError::AllDown(down.collect()));
    }
    // What is wrong with a group is what is wrong with its members.
    let (own, others): (Vec<_>, Vec<_>) =
        plan.left_out.iter().cloned().partition(|(member, _)| order.policy.terms(member).ranks.contains(&rank));
    let mut attempt = Plan { left_out: own, ..plan.clone() };
    parts(order, takers, enough, &mut attempt)?;
    attempt.left_out.extend(others);
    Ok(attempt)
}

/// What the policy's strategy comes to with this object.
fn strategy(order: &Order<'_>) -> Strategy {
    match order.policy.strategy {
        // Two parts would have pods of one index.
        Strategy::Divide if order.wholes.indexed => Strategy::One,
        // The claim is in one member, and so are the pods that can mount it.
        Strategy::Divide | Strategy::Duplicate if !order.claims.is_empty() && !order.policy.names_strategy => {
            Strategy::One
        }
        Strategy::One if order.is_revision && !order.policy.names_strategy => Strategy::Duplicate,
        // What the number becomes if it is not written, its operator alone knows.
        Strategy::Divide
            if matches!(order.wholes.division, Some(Division::Declared(_))) && !order.wholes.are_divided() =>
        {
            Strategy::One
        }
        Strategy::Divide if !order.wholes.are_divided() && order.companion.is_none() => Strategy::Duplicate,
        other => other,
    }
}

/// One part, in the sticky member or where most is free.
fn one(order: &Order<'_>, mut takers: Vec<Taker<'_>>, plan: &mut Plan) {
    takers.sort_by_key(|taker| {
        let name = &taker.candidate.name;
        let free = taker.candidate.capacity.unwrap_or_default();
        let room = (taker.weight().0 > 0, free, tie(order.uid, name));
        let pods = order.wholes.pods_at_once();
        let is_short = taker.candidate.quota.as_ref().is_some_and(|cap| cap.pods < pods);
        (draws_not(order, name), is_short, order.sticky != Some(name), std::cmp::Reverse(room))
    });
    let mut takers = takers.into_iter();
    let Some(chosen) = takers.next() else { return };
    plan.targets.push(chosen.target(Vec::new(), true));
    let why = |other: Taker<'_>| {
        let name = &chosen.candidate.name;
        (other.candidate.name.clone(), format!("it goes to one member: {name}"))
    };
    plan.left_out.extend(takers.map(why));
}

/// A whole part in every member, or in those that the policy picks.
fn duplicate(order: &Order<'_>, takers: Vec<Taker<'_>>, plan: &mut Plan) -> Result<(), PlanError> {
    let mut takers = picked(order, takers, |_| 0, plan)?;
    sort(order, &mut takers, |_| 0);
    plan.targets.extend(takers.iter().map(|taker| taker.target(Vec::new(), true)));
    Ok(())
}

/// The parts of a companion.
fn along(order: &Order<'_>, mut takers: Vec<Taker<'_>>, plan: &mut Plan) {
    let (Some(division), Some(Companion { whole, shares })) = (order.wholes.division, order.companion) else { return };
    let share = |taker: &Taker<'_>| shares.get(&taker.candidate.name).copied().unwrap_or(0);
    sort(order, &mut takers, share);
    let names: Vec<&MemberName> = takers.iter().map(|taker| &taker.candidate.name).collect();
    let parts: Vec<Option<Limits>> = match division {
        Division::Quota => quota(order, &takers, whole),
        Division::Autoscaler => {
            let members: Vec<_> = names.iter().map(|member| Scaled { member, has_part: false }).collect();
            autoscaler(whole, &members, shares, order.uid)
        }
        _ => budget(whole, &names, shares, order.uid).into_iter().map(Some).collect(),
    };
    let made: Vec<(&MemberName, &Limits)> =
        names.iter().zip(&parts).filter_map(|(name, part)| Some((*name, part.as_ref()?))).collect();
    plan.warnings.extend(too_much(division, whole, &made, shares));
    let mut targets: Vec<Target> = Vec::new();
    for (taker, part) in takers.iter().zip(parts) {
        let values = part.iter().flat_map(|part| part.values(division)).collect();
        targets.push(Target { whole: Some(whole.to_note()), ..taker.target(values, part.is_some()) });
    }
    // The home has a part.
    targets.sort_by_key(|target| (!target.made, target.behind.is_some()));
    plan.targets.extend(targets);
}

/// The parts of a quota, of which nothing is used yet.
fn quota(order: &Order<'_>, takers: &[Taker<'_>], whole: &Limits) -> Vec<Option<Limits>> {
    let Some(Limit::Amounts(hard)) = whole.get(&HARD) else { return vec![Some(whole.clone()); takers.len()] };
    let weighting = |taker: &Taker<'_>| match taker.candidate.capacity {
        Some(capacity) if order.policy.weights.are_measured() => Weighting::Free(capacity.free),
        _ => Weighting::Static(taker.weight().0),
    };
    let holders = takers.iter().map(|taker| Holder::new(taker.name(), weighting(taker)));
    let parts = step(hard, &holders.collect::<Vec<_>>(), Extent::Anew, order.uid).hard;
    let part = |hard: Hard| {
        let mut part = whole.clone();
        part.set(&HARD, Some(Limit::Amounts(hard)));
        Some(part)
    };
    parts.into_iter().map(part).collect()
}

/// What a client should know where the parts of a companion come to more than the whole.
pub fn too_much(
    division: Division,
    whole: &Limits,
    parts: &[(&MemberName, &Limits)],
    shares: &Shares,
) -> Option<String> {
    if division == Division::Quota {
        return None;
    }
    if division == Division::Autoscaler {
        let count = |limits: &Limits| limits.number(&MIN_REPLICAS).unwrap_or(0);
        let sum = parts.iter().map(|(_, part)| count(part)).fold(0_u32, u32::saturating_add);
        let (least, members) = (count(whole), parts.len());
        return (sum > least && members > 1).then(|| {
            format!("spec.minReplicas is {least}, its parts in {members} members have {sum}: each has at least 1")
        });
    }
    let Allowed { parts, whole } = allowed(whole, parts, shares)?;
    (parts > whole).then(|| {
        format!(
            "it lets {whole} pods go at a time; its parts let {parts} go, each its own: an eviction through the fleet keeps \
             to the whole, one inside a member to its part"
        )
    })
}

fn unknown(candidate: &Candidate) -> Option<(MemberName, String)> {
    match &candidate.standing {
        Standing::Unknown(why) if !candidate.absent => Some((candidate.name.clone(), why.clone())),
        Standing::Unknown(_) | Standing::Ready | Standing::Down(_) => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
