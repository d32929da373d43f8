//! Which of the members that could take a part get one, where a policy picks a number of them.

use std::cmp::Reverse;

use crate::{
    config::{Picked, SpreadLevel},
    placement::plan::{
        order::{Order, Plan, PlanError, TooFewGroups},
        taker::{Taker, draws_not},
    },
};

/// Those that get a part. The others are left out of the plan, with the reason. Who has `room` for the most comes first, and of
/// equals the first by name, so that objects of one policy that all have room are together.
///
/// Errors: there are fewer members, or groups of them, than the policy asks for.
pub(super) fn picked<'a>(
    order: &Order<'_>,
    mut takers: Vec<Taker<'a>>,
    room: impl Fn(&Taker<'a>) -> u32,
    plan: &mut Plan,
) -> Result<Vec<Taker<'a>>, PlanError> {
    let Some(wanted) = &order.policy.picked else { return Ok(takers) };
    takers.sort_by_cached_key(|taker| {
        let rank = (taker.behind.is_some(), draws_not(order, taker.name()), Reverse(room(taker)));
        (rank, taker.name().clone())
    });
    let policy = || order.policy.name.clone().unwrap_or_default();
    let others = || plan.left_out.clone();
    let groups = match &wanted.groups {
        None => Vec::new(),
        Some(level) => {
            let groups = by_group(&takers, &room);
            let (found, label) = (groups.len(), level.label.clone());
            if found < count(level.min) {
                let (min, within) = (level.min, None);
                let too_few = TooFewGroups { policy: policy(), label, min, found, within, others: others() };
                return Err(PlanError::TooFewGroups(Box::new(too_few)));
            }
            fewest_groups(groups, wanted, level)
        }
    };
    let (mut kept, mut rest, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    // The first of each group, then the best of the others.
    let mut begun: Vec<String> = Vec::new();
    for taker in takers {
        match &taker.terms.group {
            Some(group) if wanted.groups.is_some() && !groups.contains(group) => dropped.push(taker),
            Some(group) if wanted.groups.is_some() && !begun.contains(group) => {
                begun.push(group.clone());
                kept.push(taker);
            }
            _ => rest.push(taker),
        }
    }
    let most = wanted.max.map_or(usize::MAX, count).saturating_sub(kept.len());
    dropped.extend(rest.split_off(most.min(rest.len())));
    kept.extend(rest);
    if kept.len() < count(wanted.min) {
        return Err(PlanError::TooFewMembers {
            policy: policy(),
            min: wanted.min,
            found: kept.len(),
            others: others(),
        });
    }
    let why = format!("policy {} picks {} members, and others come first", policy(), kept.len());
    plan.left_out.extend(dropped.into_iter().map(|taker| (taker.name().clone(), why.clone())));
    Ok(kept)
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Members with one value of the label.
struct Group<'t> {
    name: &'t str,
    members: usize,
    /// How much they take together.
    room: u64,
}

/// The group of the first member comes first.
fn by_group<'t, 'a>(takers: &'t [Taker<'a>], room: &impl Fn(&Taker<'a>) -> u32) -> Vec<Group<'t>> {
    let mut groups: Vec<Group<'t>> = Vec::new();
    for taker in takers {
        let name = taker.terms.group.as_deref().unwrap_or_default();
        let at = groups.iter().position(|group| group.name == name).unwrap_or(groups.len());
        if at == groups.len() {
            groups.push(Group { name, members: 0, room: 0 });
        }
        if let Some(group) = groups.get_mut(at) {
            (group.members, group.room) = (group.members + 1, group.room + u64::from(room(taker)));
        }
    }
    groups
}

/// The fewest groups that have enough members; of those the ones with room for the most.
fn fewest_groups(mut groups: Vec<Group<'_>>, wanted: &Picked, level: &SpreadLevel) -> Vec<String> {
    let most = level.max.map_or(usize::MAX, count).min(groups.len());
    let least = count(level.min).clamp(1, most.max(1));
    let names = |of: &[Group<'_>]| of.iter().map(|group| group.name.to_owned()).collect::<Vec<_>>();
    let are_enough = |of: &&[Group<'_>]| of.iter().map(|group| group.members).sum::<usize>() >= count(wanted.min);
    let ways = (least..=most).flat_map(|size| [(size, false), (size, true)]);
    for (size, by_members) in ways {
        groups.sort_by_key(|group| Reverse(if by_members { group.members as u64 } else { group.room }));
        if let Some(enough) = groups.get(..size).filter(are_enough) {
            return names(enough);
        }
    }
    names(groups.get(..most).unwrap_or_default())
}
