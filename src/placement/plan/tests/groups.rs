//! Groups of members: in order, to spread over, and as few members as can be.

use super::*;
use crate::config::SpreadLevel;

/// A policy `web` with these terms, by capacity.
fn web_by_capacity(terms: [(&str, Terms); 3]) -> Policy {
    let terms = terms.map(|(member, terms)| (name(member), terms)).into();
    Policy { name: Some("web".into()), weights: Weights::Capacity, terms, ..Policy::plain(Strategy::Divide) }
}

fn has_room(replicas: [u32; 3]) -> Vec<Candidate> {
    let mut all = three();
    all.iter_mut().zip(replicas).for_each(|(candidate, replicas)| candidate.capacity = free(1, replicas));
    all
}

fn why<'p>(plan: &'p Plan, member: &str) -> &'p str {
    plan.left_out.iter().find(|(left, _)| left.as_str() == member).map_or("", |(_, why)| why)
}

#[test]
fn the_first_group_that_carries_the_whole_has_it() {
    let group = |rank: usize| Terms { ranks: vec![rank], ..Terms::default() };
    let terms = [("east", group(0)), ("west", group(1)), ("north", group(1))];
    let mut policy = Policy { groups: 2, ..web_by_capacity(terms) };
    let divided = |policy: &Policy, replicas: [u32; 3], total: u32| {
        by(policy, (DEPLOYMENT.0, DEPLOYMENT.1, &web(total)), &has_room(replicas), None)
    };
    let first = divided(&policy, [4, 9, 9], 4).unwrap();
    assert_eq!(shape(&first), [("east", 4)]);
    assert_eq!(first.targets.len(), 1, "what exists grows within its group");
    assert_eq!(why(&first, "west"), "group 1 of policy web can take it, and this is group 2");
    let second = divided(&policy, [4, 3, 3], 5).unwrap();
    assert_eq!(shape(&second).iter().map(|(_, share)| share).sum::<u32>(), 5);
    assert_eq!(why(&second, "east"), "group 1 of policy web cannot take it: only 4 of 5 fit, here 4 fit on its nodes");
    let neither = divided(&policy, [4, 3, 4], 8).unwrap_err().to_string();
    assert!(
        neither.starts_with(
            "no group of policy web can take it: group 1: only 4 of 8 fit: east: 4 fit on its nodes; ask for less"
        ) && neither.contains("group 2: only 7 of 8 fit: west: 3 fit on its nodes; north: 4 fit on its nodes;"),
        "{neither}"
    );
    policy.partial = true;
    let most = divided(&policy, [4, 3, 4], 8).unwrap();
    assert_eq!(shape(&most).iter().map(|(_, share)| share).sum::<u32>(), 7);
    assert!(most.warnings[0].starts_with("only 7 of 8 fit"), "{:?}", most.warnings);
    assert_eq!(shape(&divided(&policy, [4, 2, 2], 8).unwrap()), [("east", 4)], "of equals the first");
}

#[test]
fn a_group_without_candidates_is_passed_over_by_everything_that_runs_pods() {
    let group = |rank: usize| Terms { ranks: vec![rank], ..Terms::default() };
    let mut policy = Policy { name: Some("web".into()), groups: 2, ..Policy::plain(Strategy::One) };
    policy.terms =
        [("east", group(1)), ("west", group(0)), ("north", group(1))].map(|(at, terms)| (name(at), terms)).into();
    let (mut all, pod) = (three(), ("", "Pod", "{}"));
    assert_eq!(by(&policy, pod, &all, None).unwrap().targets[0].member, name("west"));
    let map = ("", "ConfigMap", "{}");
    policy.strategy = Strategy::Duplicate;
    assert_eq!(by(&policy, map, &all, None).unwrap().targets.len(), 3, "its workloads may be in any group");
    assert_eq!(by(&policy, ("apps", "DaemonSet", "{}"), &all, None).unwrap().targets.len(), 1);
    all[1].standing = Standing::Down("cut off".into());
    let daemons = by(&policy, ("apps", "DaemonSet", "{}"), &all, None).unwrap();
    assert_eq!(daemons.targets.len(), 2);
    assert_eq!(why(&daemons, "west"), "group 1 of policy web cannot take it: it is down: cut off");
    policy.strategy = Strategy::One;
    let one = by(&policy, pod, &all, None).unwrap();
    assert_ne!(one.targets[0].member, name("west"));
    // What came before it and belongs to it is in the second group.
    all[1].standing = Standing::Ready;
    let (north, wholes, asks) = (name("north"), Wholes::default(), PodRequirements::default());
    let drawn = Order { drawn: Some(&north), pod: Some(&asks), ..order(&policy, &wholes) };
    assert_eq!(plan(&drawn, &all).unwrap().targets[0].member, north);
}

fn level(label: &str, min: u32, max: Option<u32>) -> SpreadLevel {
    SpreadLevel { label: label.into(), min, max }
}

#[test]
fn a_spread_takes_as_many_groups_as_it_is_told() {
    let at =
        |domains: &[&str]| Terms { domains: domains.iter().map(|one| (*one).into()).collect(), ..Terms::default() };
    let terms = [("east", at(&["eu", "east"])), ("west", at(&["eu", "west"])), ("north", at(&["us", "north"]))];
    let mut policy = web_by_capacity(terms);
    let divided = |policy: &Policy, replicas: [u32; 3], total: u32| {
        by(policy, (DEPLOYMENT.0, DEPLOYMENT.1, &web(total)), &has_room(replicas), None)
    };
    policy.spread = vec![level("region", 2, None), level("kubefold.io/cluster", 0, Some(1))];
    let plan = divided(&policy, [3, 9, 9], 6).unwrap();
    assert_eq!(numbers(&plan), [("north", vec![3]), ("west", vec![3])], "one in each region, with most room");
    assert_eq!(
        why(&plan, "east"),
        "policy web spreads it over at most 1 groups of the member label kubefold.io/cluster, and others come first"
    );
    let refused = divided(&policy, [3, 9, 0], 6).unwrap_err().to_string();
    assert_eq!(refused, "policy web spreads it over at least 2 groups of the member label region, and 1 can take it");
    policy.spread = vec![level("region", 0, Some(1)), level("kubefold.io/cluster", 2, None)];
    assert_eq!(numbers(&divided(&policy, [3, 3, 9], 6).unwrap()), [("east", vec![3]), ("west", vec![3])]);
    let refused = divided(&policy, [3, 0, 9], 6).unwrap_err().to_string();
    assert!(refused.contains("at least 2 groups of the member label kubefold.io/cluster within"), "{refused}");
    // An object of nothing has its groups, too.
    assert_eq!(divided(&policy, [3, 3, 9], 0).unwrap().targets.len(), 2);
    policy.terms.get_mut(&name("north")).unwrap().excluded = Some("it has no label region".into());
    policy.spread = vec![level("region", 2, None)];
    let refused = divided(&policy, [9, 9, 9], 6).unwrap_err().to_string();
    assert!(refused.ends_with("and 1 can take it: north: it has no label region"), "{refused}");
}

#[test]
fn the_fewest_members_that_carry_it_have_it() {
    let none = Terms::default;
    let mut policy = web_by_capacity([("east", none()), ("west", none()), ("north", none())]);
    policy.fewest = true;
    let divided = |policy: &Policy, replicas: [u32; 3], total: u32| {
        by(policy, (DEPLOYMENT.0, DEPLOYMENT.1, &web(total)), &has_room(replicas), None)
    };
    let one = divided(&policy, [4, 9, 6], 5).unwrap();
    assert_eq!(numbers(&one), [("east", vec![0]), ("north", vec![0]), ("west", vec![5])]);
    let other = one.targets.iter().find(|target| !target.made).unwrap();
    assert_eq!(other.why.as_deref(), Some("policy web prefers the fewest members, and 1 can carry it"));
    let two = divided(&policy, [4, 9, 6], 14).unwrap();
    assert_eq!(numbers(&two)[0], ("east", vec![0]));
    assert_eq!(
        numbers(&divided(&policy, [4, 9, 6], 19).unwrap()),
        [("east", vec![4]), ("north", vec![6]), ("west", vec![9])]
    );
    assert!(matches!(divided(&policy, [4, 9, 6], 20), Err(PlanError::NoRoom { fits: 19, .. })));
    policy.terms.get_mut(&name("west")).unwrap().max = Some(3);
    assert_eq!(
        numbers(&divided(&policy, [4, 9, 6], 5).unwrap()),
        [("east", vec![0]), ("north", vec![5]), ("west", vec![0])]
    );
}
