//! Parts by shares.

use std::collections::BTreeMap;

use crate::{
    config::{MemberName, Weight},
    placement::{
        divided::{COMPLETIONS, Division, Field, PARALLELISM, Value},
        division::{Share, divide, fewest, redivide, tie},
        plan::{
            bound::{Bound, ORDINAL_STRIDE, bound},
            order::{Order, Plan, PlanError, Target},
            picked::picked,
            selection::chosen,
            taker::{Taker, sort},
        },
        quota::{room_for, too_little},
    },
};
use kubefold_wire::golang::Quoted;

/// Parts by shares. Where not all of it fits, as much as fits is placed only if that is `enough`.
pub(super) fn divided(
    order: &Order<'_>,
    takers: Vec<Taker<'_>>,
    enough: bool,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let Some((first, total)) = order.wholes.totals.first().copied() else { return Ok(()) };
    let takers = picked(order, takers, |taker| bound(order, taker).max.unwrap_or(total).min(total), plan)?;
    let bounded = takers.into_iter().map(|taker| {
        let bound = bound(order, &taker);
        (taker, bound)
    });
    let (mut takers, bounds): (Vec<_>, Vec<_>) = chosen(order, total, bounded.collect(), plan)?.into_iter().unzip();
    let mut shares: Vec<_> = takers.iter().zip(&bounds).map(|(taker, bound)| share(order, taker, bound)).collect();
    let left = left(order, &takers);
    // A Job's pods come one after the other.
    let is_at_once = order.wholes.division != Some(Division::Job);
    let mut capped = if is_at_once { capped(&takers, &left, &shares) } else { shares.clone() };
    if order.policy.fewest {
        fewest(total, &left, &mut capped, order.uid);
        fewest(total, &left, &mut shares, order.uid);
    }
    let mut sizes = redivide(total, &left, &capped, order.uid);
    let caps = takers.iter().map(|taker| taker.candidate.quota.as_ref().filter(|_| is_at_once));
    let in_quota = room_for(caps.zip(sizes.iter().copied()));
    if in_quota < total {
        // As in a single cluster, what the quotas have no room for is made, and its pods wait.
        sizes = redivide(total, &sizes, &shares, order.uid);
        plan.warnings.extend(waits(order, &takers, total.min(sizes.iter().sum()), in_quota));
    }
    let placed: u32 = sizes.iter().sum();
    if placed < total {
        let reasons = takers.iter().zip(&bounds).map(|(taker, bound)| (taker.name().clone(), bound.why.clone()));
        let reasons: Vec<_> = reasons.chain(plan.left_out.iter().cloned()).collect();
        let error = PlanError::NoRoom { total, fits: placed, reasons };
        if !enough || placed == 0 {
            return Err(error);
        }
        plan.warnings.push(error.to_string());
    }
    let second = order.wholes.totals.get(1).copied();
    let mut others = vec![None; takers.len()];
    if let Some((_, parallel)) = second.filter(|_| first == COMPLETIONS) {
        (sizes, others) = job(order.uid, placed, parallel, &shares, sizes);
    }
    drop(shares);
    let mut parts: BTreeMap<MemberName, (u32, Option<u32>)> = BTreeMap::new();
    for ((taker, size), other) in takers.iter().zip(sizes).zip(others) {
        parts.insert(taker.name().clone(), (size, other));
    }
    let part = |taker: &Taker<'_>| parts.get(taker.name()).copied().unwrap_or_default();
    sort(order, &mut takers, |taker| part(taker).0);
    if order.policy.fewest {
        // An empty part of the home would be one more.
        takers.sort_by_key(|taker| part(taker).0 == 0);
    }
    let carriers = parts.values().filter(|(size, _)| *size > 0).count();
    for (at, taker) in (0_u32..).zip(&takers) {
        let (size, other) = part(taker);
        let mut values = vec![value(&first, size)];
        values.extend(other.map(|number| value(&PARALLELISM, number)));
        if order.wholes.division == Some(Division::Ordinals) && at > 0 {
            let number = order.wholes.first_ordinal + at * ORDINAL_STRIDE;
            values.push(Value { pointer: "/spec/ordinals/start".to_owned(), number: number.into() });
        }
        let cap = taker.candidate.quota.as_ref().filter(|cap| size >= cap.pods && size < total);
        let why = match cap {
            Some(cap) => {
                Some(format!("resourcequota {} has room for {} of its pods there", Quoted(&cap.quota), cap.pods))
            }
            None => (order.policy.fewest && size == 0).then(|| fewer(order, carriers)),
        };
        plan.targets.push(Target { why, ..taker.target(values, size > 0 || at == 0) });
    }
    Ok(())
}

/// The shares, none above what the quotas of the namespace have room for. `left` counts in them already.
fn capped<'a>(takers: &[Taker<'_>], left: &[u32], shares: &[Share<'a>]) -> Vec<Share<'a>> {
    let capped = |((taker, left), share): ((&Taker<'_>, &u32), &Share<'a>)| {
        let room = taker.candidate.quota.as_ref().map(|cap| cap.pods.saturating_add(*left));
        Share { max: share.max.into_iter().chain(room).min(), ..*share }
    };
    takers.iter().zip(left).zip(shares).map(capped).collect()
}

/// What the client should know where the quotas have room for `fits` of `placed`.
fn waits(order: &Order<'_>, takers: &[Taker<'_>], placed: u32, fits: u32) -> Option<String> {
    order.pod?;
    let caps = takers.iter().filter_map(|taker| Some((taker.name(), taker.candidate.quota.as_ref()?)));
    too_little(&caps.collect::<Vec<_>>(), placed, fits)
}

/// Why a member has no share of what goes to the fewest.
fn fewer(order: &Order<'_>, carriers: usize) -> String {
    let policy = order.policy.name.as_deref().unwrap_or_default();
    format!("policy {policy} prefers the fewest members, and {carriers} can carry it")
}

/// How many replicas an earlier workload of the name left in each of these.
fn left(order: &Order<'_>, takers: &[Taker<'_>]) -> Vec<u32> {
    let of = |taker: &Taker<'_>| order.orphans?.shares.get(&taker.candidate.name).copied();
    takers.iter().map(|taker| of(taker).unwrap_or(0)).collect()
}

fn value(field: &Field, number: u32) -> Value {
    Value { pointer: field.pointer.to_owned(), number: number.into() }
}

/// The completions and parallelisms of a Job's parts: no part may have the one without the other.
fn job(
    uid: &str,
    completions: u32,
    parallel: u32,
    shares: &[Share<'_>],
    mut sizes: Vec<u32>,
) -> (Vec<u32>, Vec<Option<u32>>) {
    let parts = sizes.iter().filter(|size| **size > 0).count();
    let parallel_parts = usize::try_from(parallel).unwrap_or(usize::MAX);
    let mut kept: Vec<usize> = (0..sizes.len()).collect();
    if parallel > 0 && parts > parallel_parts {
        kept.sort_by_key(|at| {
            let member = shares.get(*at).map(|share| tie(uid, share.member));
            std::cmp::Reverse((sizes.get(*at).copied(), member))
        });
        kept.truncate(parallel_parts);
        kept.sort_unstable();
        let fewer: Vec<_> = kept.iter().filter_map(|at| shares.get(*at).copied()).collect();
        let again = divide(completions, &fewer, uid);
        sizes.iter_mut().for_each(|size| *size = 0);
        for (at, size) in kept.iter().zip(again) {
            if let Some(slot) = sizes.get_mut(*at) {
                *slot = size;
            }
        }
    }
    let by_size = shares.iter().zip(&sizes).map(|(share, size)| Share {
        min: u32::from(*size > 0 && parallel > 0),
        max: if *size == 0 { Some(0) } else { None },
        ..Share::by_weight(share.member, Weight(*size))
    });
    let numbers = divide(parallel, &by_size.collect::<Vec<_>>(), uid);
    (sizes, numbers.into_iter().map(Some).collect())
}

fn share<'a>(order: &Order<'_>, taker: &'a Taker<'_>, bound: &Bound) -> Share<'a> {
    Share {
        member: &taker.candidate.name,
        weight: bound.weight,
        // What came before it needs it there.
        min: taker.terms.min.max(u32::from(order.drawn == Some(&taker.candidate.name))),
        max: bound.max,
        domains: &taker.terms.domains,
    }
}
