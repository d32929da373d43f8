//! Which of the members that could take a part get one, where a policy spreads over a number of groups of them.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    config::MemberName,
    placement::{
        division::tie_of,
        plan::{
            bound::Bound,
            order::{Order, Plan, PlanError, TooFewGroups},
            taker::{Taker, draws_not},
        },
    },
};

/// Those that get a part. The others are left out of the plan, with the reason.
///
/// Errors: there are fewer groups than the policy asks for.
pub(super) fn chosen<'a>(
    order: &Order<'_>,
    total: u32,
    takers: Vec<(Taker<'a>, Bound)>,
    plan: &mut Plan,
) -> Result<Vec<(Taker<'a>, Bound)>, PlanError> {
    let all_zero = takers.iter().all(|(_, bound)| bound.weight.0 == 0);
    // Where it has nothing yet it may have one some time.
    let total = total.max(1);
    let selection = Selection { order, total, all_zero, takers: &takers, left_out: &plan.left_out };
    let chosen = selection.level(0, (0..takers.len()).collect(), None)?;
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for (at, taker) in takers.into_iter().enumerate() {
        if chosen.contains(&at) { kept.push(taker) } else { dropped.push(taker) }
    }
    let policy = order.policy.name.as_deref().unwrap_or_default();
    let why = |(taker, _): (Taker<'a>, Bound)| {
        let levels = order.policy.spread.iter().filter_map(|level| Some((level, level.max?)));
        let levels = levels.map(|(level, max)| format!("{max} groups of the member label {}", level.label));
        let at_most = levels.collect::<Vec<_>>().join(" and ");
        (taker.name().clone(), format!("policy {policy} spreads it over at most {at_most}, and others come first"))
    };
    plan.left_out.extend(dropped.into_iter().map(why));
    Ok(kept)
}

struct Selection<'s, 'a> {
    order: &'s Order<'s>,
    total: u32,
    /// All weights are 0, which makes them equal.
    all_zero: bool,
    takers: &'s [(Taker<'a>, Bound)],
    left_out: &'s [(MemberName, String)],
}

impl Selection<'_, '_> {
    /// Of members with the same values at the levels before, those that are taken; by their places.
    fn level(&self, at: usize, of: Vec<usize>, within: Option<&str>) -> Result<Vec<usize>, PlanError> {
        let Some(level) = self.order.policy.spread.get(at) else { return Ok(of) };
        let mut domains: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for place in of {
            let value = self.takers.get(place).and_then(|(taker, _)| taker.terms.domains.get(at));
            domains.entry(value.map_or("", String::as_str)).or_default().push(place);
        }
        let (mut able, mut idle, mut failed) = (Vec::new(), Vec::new(), None);
        for (value, of) in domains {
            match self.level(at + 1, of, Some(value)) {
                Ok(of) if self.room(&of) > 0 => able.push((value, of)),
                Ok(of) => idle.push((value, of)),
                Err(error) => failed = Some(error),
            }
        }
        if able.is_empty()
            && let Some(error) = failed
        {
            return Err(error);
        }
        if able.len() < usize::try_from(level.min).unwrap_or(usize::MAX) {
            return Err(PlanError::TooFewGroups(Box::new(TooFewGroups {
                policy: self.order.policy.name.clone().unwrap_or_default(),
                label: level.label.clone(),
                min: level.min,
                found: able.len(),
                within: within.map(str::to_owned),
                others: self.left_out.to_vec(),
            })));
        }
        able.sort_by_cached_key(|(value, of)| self.rank(value, of));
        let max = level.max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        // Those that have no room now may have some when the object grows.
        Ok(able.into_iter().chain(idle).take(max).flat_map(|(_, of)| of).collect())
    }

    /// What these members take together, at most all of it.
    fn room(&self, of: &[usize]) -> u32 {
        let room = |place: &usize| match self.takers.get(*place) {
            Some((_, bound)) if bound.weight.0 > 0 || self.all_zero => bound.max.unwrap_or(self.total).min(self.total),
            _ => 0,
        };
        of.iter().map(room).fold(0_u32, u32::saturating_add).min(self.total)
    }

    /// Who comes first: who has what came before it, then who has room for the most, then who weighs most.
    fn rank(&self, value: &str, of: &[usize]) -> (bool, Reverse<(u32, u64, u64)>) {
        let members = || of.iter().filter_map(|place| self.takers.get(*place));
        let draws = members().any(|(taker, _)| !draws_not(self.order, taker.name()));
        let weight: u64 = members().map(|(_, bound)| u64::from(bound.weight.0)).sum();
        (!draws, Reverse((self.room(of), weight, tie_of(self.order.uid, value))))
    }
}
