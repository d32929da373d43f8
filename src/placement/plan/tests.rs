//! Who gets which part, for every strategy.

mod groups;

use super::*;
use crate::{
    config::{Weight, Weights},
    placement::{
        capacity::Capacity,
        children::Orphans,
        companions::claims,
        divided::{Amount, Wholes},
        policy::{Policy, Rules, Terms},
        quota::Cap,
        resources::Resources,
        scheduling::{Misfit, PodRequirements},
    },
};
use kubefold_wire::matching::{Taint, Toleration};

/// A ready member that takes everything, and of which nobody knows what it can carry.
pub(crate) fn candidate(name: &str, weight: u32) -> Candidate {
    Candidate {
        name: MemberName::new(name).unwrap(),
        cluster_uid: Some(format!("c-{name}")),
        weight: Weight(weight),
        absent: false,
        allowed: true,
        standing: Standing::Ready,
        serves_kind: true,
        has_namespace: true,
        missing_owners: Vec::new(),
        missing_claims: Vec::new(),
        fits: Ok(()),
        capacity: None,
        quota: None,
    }
}

fn shape(plan: &Plan) -> Vec<(&str, u32)> {
    let made = plan.targets.iter().filter(|target| target.made);
    made.map(|target| (target.member.as_str(), target.share().unwrap_or_default())).collect()
}

fn order<'a>(policy: &'a Policy, wholes: &'a Wholes) -> Order<'a> {
    Order {
        uid: "u",
        policy,
        wholes,
        pod: None,
        sticky: None,
        drawn: None,
        orphans: None,
        claims: &[],
        companion: None,
        is_revision: false,
    }
}

/// Plans a Deployment without a policy.
fn plan_of(replicas: u32, candidates: &[Candidate], sticky: Option<&MemberName>) -> Result<Plan, PlanError> {
    let body = format!(r#"{{"spec":{{"replicas":{replicas}}}}}"#);
    let wholes = Wholes::read(Division::of("apps", "Deployment"), &body).unwrap();
    let (policy, pod) = (Policy::plain(Strategy::Divide), PodRequirements::default());
    plan(&Order { pod: Some(&pod), sticky, ..order(&policy, &wholes) }, candidates)
}

#[test]
fn the_largest_share_comes_first() {
    let all = [candidate("east", 1), candidate("west", 2)];
    assert_eq!(shape(&plan_of(3, &all, None).unwrap()), [("west", 2), ("east", 1)]);
    let sticky = MemberName::new("east").unwrap();
    assert_eq!(shape(&plan_of(3, &all, Some(&sticky)).unwrap()), [("east", 1), ("west", 2)]);
}

#[test]
fn a_share_of_0_makes_no_part_but_the_home_exists() {
    let all = [candidate("east", 1), candidate("west", 2)];
    let one = plan_of(1, &all, None).unwrap();
    assert_eq!(shape(&one), [("west", 1)]);
    let listed = one.targets.iter().map(|target| (target.member.as_str(), target.made));
    assert_eq!(listed.collect::<Vec<_>>(), [("west", true), ("east", false)], "a scale-up may make it");
    assert_eq!(shape(&plan_of(0, &all, None).unwrap()), [("west", 0)]);
    assert_eq!(shape(&plan_of(4, &[candidate("east", 0), candidate("west", 1)], None).unwrap()), [("west", 4)]);
}

#[test]
fn a_namespace_that_is_nowhere_is_not_found() {
    let mut all = [candidate("a", 1), candidate("b", 1), candidate("c", 1)];
    all.iter_mut().for_each(|candidate| candidate.has_namespace = false);
    all[2].serves_kind = false;
    assert_eq!(plan_of(1, &all, None), Err(PlanError::NoNamespace));
    all[1].standing = Standing::Down("cut off".into());
    assert!(matches!(plan_of(1, &all, None), Err(PlanError::AllDown(_))), "it may hold it");
}

#[test]
fn divide_leaves_a_down_member_out_and_each_reason_is_said() {
    let mut all = vec![candidate("a", 1), candidate("b", 1), candidate("c", 1), candidate("d", 1), candidate("e", 1)];
    all[0].standing = Standing::Down("connection refused for 3 s".into());
    all[1].has_namespace = false;
    all[2].missing_owners = vec!["Thing x".into()];
    all[3].fits = Err(Misfit::NoMatch);
    let p = plan_of(4, &all, None).unwrap();
    assert_eq!(shape(&p), [("e", 4)]);
    assert_eq!(p.left_out.len(), 4);
    all[4].serves_kind = false;
    assert!(matches!(plan_of(4, &all, None), Err(PlanError::AllDown(_))), "one is only down");
    all[0].absent = true;
    let error = plan_of(4, &all, None).unwrap_err();
    assert!(matches!(error, PlanError::NoCandidate(_)));
    assert_eq!(
        error.to_string(),
        "no member can take it: a: it is declared absent; \
         b: it does not hold the namespace; c: it does not hold the owner Thing x; d: none of its nodes matches the node selector and affinity; \
         e: it does not serve the kind"
    );
}

#[test]
fn an_unknown_member_refuses_unless_it_is_declared_absent() {
    let mut all = vec![candidate("east", 1), candidate("west", 1)];
    all[1].standing = Standing::Unknown("never reached".into());
    let error = plan_of(3, &all, None).unwrap_err();
    assert!(matches!(error, PlanError::Unknown(_)));
    assert!(error.to_string().contains("west: never reached"), "{error}");
    all[1].absent = true;
    assert_eq!(shape(&plan_of(3, &all, None).unwrap()), [("east", 3)]);
}

fn name(text: &str) -> MemberName {
    MemberName::new(text).unwrap()
}

fn three() -> Vec<Candidate> {
    vec![candidate("east", 1), candidate("west", 2), candidate("north", 1)]
}

/// Plans any body by a policy.
fn by(
    policy: &Policy,
    (group, kind, body): (&str, &str, &str),
    candidates: &[Candidate],
    shares: Option<&Shares>,
) -> Result<Plan, PlanError> {
    let wholes = Wholes::read(Division::of(group, kind), body).unwrap();
    let pod = PodRequirements::of(group, kind, body).unwrap();
    let none = Shares::new();
    let document = serde_json::from_str(body).unwrap();
    let whole = wholes.division.filter(|division| division.goes_along()).and_then(|of| Limits::of(of, &document));
    let companion = whole.as_ref().map(|whole| Companion { whole, shares: shares.unwrap_or(&none) });
    let claims = claims(group, kind, body);
    plan(&Order { pod: pod.as_ref(), claims: &claims, companion, ..order(policy, &wholes) }, candidates)
}

fn number(amount: &Amount) -> u32 {
    let Amount::Number(number) = amount else { panic!("{amount}") };
    *number
}

fn numbers(plan: &Plan) -> Vec<(&str, Vec<u32>)> {
    let target = |target: &'_ Target| target.values.iter().map(|value| number(&value.number)).collect();
    let mut all: Vec<(&str, Vec<u32>)> = plan.targets.iter().map(|one| (one.member.as_str(), target(one))).collect();
    all.sort_unstable();
    all
}

fn free(cpu_milli: u64, replicas: u32) -> Option<Capacity> {
    Some(Capacity { replicas, free: Resources { cpu_milli, memory_bytes: 1, pods: 1 }, unused: None })
}

const DEPLOYMENT: (&str, &str) = ("apps", "Deployment");

fn web(replicas: u32) -> String {
    format!(r#"{{"spec":{{"replicas":{replicas}}}}}"#)
}

#[test]
fn duplicates_go_everywhere_and_a_down_member_is_behind() {
    let mut all = three();
    all[1].standing = Standing::Down("cut off".into());
    let map = ("", "ConfigMap", "{}");
    let plan = by(&Policy::plain(Strategy::Duplicate), map, &all, None).unwrap();
    let of = |target: &Target| (target.member.to_string(), target.made, target.behind.clone());
    let behind = Some("it is down: cut off".to_owned());
    assert_eq!(
        plan.targets.iter().map(of).next_back(),
        Some(("west".into(), true, behind)),
        "the home is one that is up"
    );
    assert_eq!(plan.targets.len(), 3);
    assert!(plan.targets.iter().all(|target| target.values.is_empty()));
    all.iter_mut().for_each(|one| one.standing = Standing::Down("cut off".into()));
    assert!(matches!(by(&Policy::plain(Strategy::Duplicate), map, &all, None), Err(PlanError::AllDown(_))));
    all[1].has_namespace = false;
    all[0].standing = Standing::Ready;
    let plan = by(&Policy::plain(Strategy::Duplicate), map, &all, None).unwrap();
    assert_eq!(plan.left_out, [(name("west"), "it is down: cut off".into())], "it may never have held the namespace");
}

#[test]
fn one_is_where_the_namespace_is_then_where_most_is_free() {
    let mut all = three();
    let pod = ("", "Pod", "{}");
    let policy = Policy::plain(Strategy::One);
    all[0].capacity = free(100, 1);
    all[2].capacity = free(500, 5);
    let plan_one = |all: &[Candidate], sticky: Option<&MemberName>| {
        let pod = PodRequirements::default();
        let wholes = Wholes::default();
        plan(&Order { pod: Some(&pod), sticky, ..order(&policy, &wholes) }, all)
            .map(|plan| plan.targets.iter().map(|target| target.member.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(plan_one(&all, None), Ok(vec!["north".into()]));
    assert_eq!(plan_one(&all, Some(&name("east"))), Ok(vec!["east".into()]));
    all[0].fits = Err(Misfit::NoMatch);
    assert_eq!(plan_one(&all, Some(&name("east"))), Ok(vec!["north".into()]), "while they fit");
    all[2].weight = Weight(0);
    all[1].capacity = free(1, 0);
    assert_eq!(plan_one(&all, None), Ok(vec!["west".into()]), "a weight of 0 is the last resort");
    all[1].standing = Standing::Down("cut off".into());
    assert_eq!(plan_one(&all, None), Ok(vec!["north".into()]));
    let told = by(&policy, pod, &three(), None).unwrap();
    assert!(told.left_out.iter().all(|(_, why)| why.starts_with("it goes to one member: ")), "{:?}", told.left_out);
    assert_eq!(told.left_out.len(), 2);
}

#[test]
fn capacity_weighs_and_caps() {
    let mut all = three();
    (all[0].capacity, all[1].capacity, all[2].capacity) = (free(1, 4), free(1, 2), free(1, 0));
    let mut policy =
        Policy { weights: Weights::Capacity, name: Some("shop".into()), ..Policy::plain(Strategy::Divide) };
    let divided = |policy: &Policy, all: &[Candidate], n| by(policy, (DEPLOYMENT.0, DEPLOYMENT.1, &web(n)), all, None);
    let plan = divided(&policy, &all, 3).unwrap();
    assert_eq!(numbers(&plan), [("east", vec![2]), ("north", vec![0]), ("west", vec![1])]);
    let made: Vec<_> = plan.targets.iter().filter(|target| target.made).map(|target| target.member.as_str()).collect();
    assert_eq!(made, ["east", "west"]);
    let error = divided(&policy, &all, 7).unwrap_err();
    assert_eq!(
        error.to_string(),
        "only 6 of 7 fit: east: 4 fit on its nodes; west: 2 fit on its nodes; north: 0 fit on its nodes; ask for less, \
         or let the policy say `partial: true`"
    );
    assert!(matches!(error, PlanError::NoRoom { total: 7, fits: 6, .. }));
    policy.partial = true;
    let plan = divided(&policy, &all, 7).unwrap();
    assert_eq!(numbers(&plan), [("east", vec![4]), ("north", vec![0]), ("west", vec![2])]);
    assert!(plan.warnings[0].starts_with("only 6 of 7 fit"), "{:?}", plan.warnings);
    all[1].capacity = None;
    let plan = divided(&policy, &all, 2).unwrap();
    assert_eq!(plan.left_out, [(name("west"), "its free capacity is not known".into())]);
}

#[test]
fn a_stateful_set_has_ordinals_of_its_own_in_every_member() {
    let body = r#"{"spec":{"replicas":5,"ordinals":{"start":3}}}"#;
    let plan = by(&Policy::plain(Strategy::Divide), ("apps", "StatefulSet", body), &three(), None).unwrap();
    let values: Vec<_> = plan.targets.iter().map(|target| target.values.clone()).collect();
    assert_eq!(values[0].len(), 1, "the home's begin where the body says");
    let start =
        |at: usize| values[at].iter().find(|value| value.pointer == "/spec/ordinals/start").unwrap().number.clone();
    assert_eq!((start(1), start(2)), (1003.into(), 2003.into()));
    let error = by(&Policy::plain(Strategy::Divide), ("apps", "StatefulSet", &web(3001)), &three(), None).unwrap_err();
    assert!(error.to_string().contains("a part of a StatefulSet has at most 1000 replicas"), "{error}");
}

#[test]
fn a_job_is_divided_in_both_numbers_or_not_at_all() {
    let job = |spec: &str| {
        let body = format!(r#"{{"spec":{spec}}}"#);
        let mut plan = by(&Policy::plain(Strategy::Divide), ("batch", "Job", &body), &three(), None).unwrap();
        plan.targets.retain(|target| target.made);
        (
            plan.strategy,
            numbers(&plan).into_iter().map(|(member, values)| (member.to_owned(), values)).collect::<Vec<_>>(),
        )
    };
    let of = |member: &str, values: &[u32]| (member.to_owned(), values.to_vec());
    assert_eq!(
        job(r#"{"completions":8,"parallelism":4}"#).1,
        [of("east", &[2, 1]), of("north", &[2, 1]), of("west", &[4, 2])]
    );
    // Two can work at once, so two members have it.
    let (_, two) = job(r#"{"completions":9,"parallelism":2}"#);
    assert_eq!((two.len(), two.iter().map(|(_, values)| values[0]).sum::<u32>()), (2, 9));
    assert!(two.iter().all(|(_, values)| values[1] == 1));
    assert_eq!(job("{}").1, [of("west", &[1, 1])]);
    assert_eq!(job(r#"{"parallelism":4}"#).1, [of("east", &[1]), of("north", &[1]), of("west", &[2])]);
    let (_, paused) = job(r#"{"completions":4,"parallelism":0}"#);
    assert_eq!(paused, [of("east", &[1, 0]), of("north", &[1, 0]), of("west", &[2, 0])]);
    let (strategy, whole) = job(r#"{"completions":8,"parallelism":4,"completionMode":"Indexed"}"#);
    assert_eq!((strategy, whole.len(), whole[0].1.len()), (Strategy::One, 1, 0));
}

fn shares(of: &[(&str, u32)]) -> Shares {
    of.iter().map(|(member, share)| (name(member), *share)).collect()
}

#[test]
fn autoscalers_and_budgets_go_along() {
    let hpa = |policy: &Policy, spec: &str, of: &Shares| {
        let body = format!(r#"{{"spec":{spec}}}"#);
        by(policy, ("autoscaling", "HorizontalPodAutoscaler", &body), &three(), Some(of)).unwrap()
    };
    let policy = Policy::plain(Strategy::Divide);
    let even = shares(&[("east", 1), ("west", 2), ("north", 1)]);
    let plan = hpa(&policy, r#"{"minReplicas":4,"maxReplicas":12}"#, &even);
    assert_eq!(numbers(&plan), [("east", vec![1, 3]), ("north", vec![1, 3]), ("west", vec![2, 6])]);
    assert!(plan.targets.iter().all(|target| target.whole.as_deref() == Some(r#"{"maxReplicas":12,"minReplicas":4}"#)));
    // One part, where the target is; the others are listed, for later.
    let one = hpa(&policy, r#"{"maxReplicas":10}"#, &shares(&[("north", 1)]));
    let listed: Vec<_> = one.targets.iter().map(|target| (target.member.as_str(), target.made)).collect();
    assert_eq!(listed, [("north", true), ("west", false), ("east", false)]);
    assert_eq!(one.targets[0].values.iter().map(|value| number(&value.number)).collect::<Vec<_>>(), [1, 10]);
    let before = hpa(&policy, r#"{"maxReplicas":10}"#, &Shares::new());
    assert_eq!(before.targets.iter().filter(|target| target.made).count(), 1);

    let pdb = ("policy", "PodDisruptionBudget");
    let mut all = three();
    all[0].standing = Standing::Down("cut off".into());
    let plan = by(&policy, (pdb.0, pdb.1, r#"{"spec":{"maxUnavailable":1}}"#), &all, Some(&even)).unwrap();
    assert_eq!(numbers(&plan), [("east", vec![1]), ("north", vec![1]), ("west", vec![1])]);
    assert!(plan.warnings[0].contains("lets 1 pods go at a time; its parts let 3 go"), "{:?}", plan.warnings);
    assert!(plan.targets.iter().all(|target| target.made), "without one a member would evict at will");
    assert!(plan.targets.iter().any(|target| target.behind.is_some()));
    let percent = by(&policy, (pdb.0, pdb.1, r#"{"spec":{"maxUnavailable":"25%"}}"#), &all, None).unwrap();
    assert_eq!((percent.strategy, percent.targets.len()), (Strategy::Divide, 3));
    assert_eq!(percent.targets[0].whole.as_deref(), Some(r#"{"maxUnavailable":"25%"}"#));
}

#[test]
fn what_mounts_a_claim_is_one_and_goes_where_the_claim_is() {
    let body =
        r#"{"spec":{"replicas":3,"template":{"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"data"}}]}}}}"#;
    let mounting = (DEPLOYMENT.0, DEPLOYMENT.1, body);
    let (default, mut all) = (Policy::plain(Strategy::Divide), three());
    let none_yet = by(&default, mounting, &all, None).unwrap();
    assert_eq!((none_yet.strategy, numbers(&none_yet).len()), (Strategy::One, 1));
    for other in [0, 1] {
        all[other].missing_claims = vec!["data".into()];
    }
    let there = by(&default, mounting, &all, None).unwrap();
    assert_eq!(numbers(&there), [("north", vec![])]);
    assert_eq!(there.left_out[0].1, r#"it does not hold the claim "data", which its pods mount"#);
    all[2].fits = Err(Misfit::NoMatch);
    let refused = by(&default, mounting, &all, None).unwrap_err().to_string();
    assert!(refused.contains(r#"east: it does not hold the claim "data""#), "{refused}");
    // Who says otherwise gets it, and is told.
    all[2].fits = Ok(());
    let said = Policy { name: Some("spread".into()), names_strategy: true, ..default };
    let spread = by(&said, mounting, &all, None).unwrap();
    assert_eq!(numbers(&spread).len(), 3);
    assert!(spread.warnings[0].starts_with("policy spread places it in several members"), "{:?}", spread.warnings);
}

#[test]
fn a_workload_goes_where_what_came_before_it_is() {
    let wholes = Wholes::read(Division::of("apps", "Deployment"), r#"{"spec":{"replicas":1}}"#).unwrap();
    let (policy, all) = (Policy::plain(Strategy::Divide), three());
    for member in ["east", "west", "north"].map(name) {
        let drawn = plan(&Order { drawn: Some(&member), ..order(&policy, &wholes) }, &all).unwrap();
        assert_eq!(shape(&drawn), [(member.as_str(), 1)]);
    }
}

#[test]
fn a_workload_takes_over_what_an_earlier_one_left_in_its_shares() {
    let (policy, all) = (Policy::plain(Strategy::Divide), three());
    let shares = [("east", 4), ("north", 1), ("gone", 9)].map(|(member, share)| (name(member), share));
    let orphans = Orphans { family: "first".into(), shares: shares.into_iter().collect() };
    let planned = |body: &str| {
        let wholes = Wholes::read(Division::of("apps", "Deployment"), body).unwrap();
        plan(&Order { orphans: Some(&orphans), ..order(&policy, &wholes) }, &all).unwrap()
    };
    let same = planned(r#"{"spec":{"replicas":5}}"#);
    assert_eq!(shape(&same), [("east", 4), ("north", 1)]);
    assert_eq!(same.adopts.as_deref(), Some("first"));
    let more = planned(r#"{"spec":{"replicas":6}}"#);
    assert_eq!(shape(&more), [("east", 4), ("west", 1), ("north", 1)]);
    let fewer: u32 = shape(&planned(r#"{"spec":{"replicas":2}}"#)).iter().map(|(_, share)| share).sum();
    assert_eq!(fewer, 2);
    let single = Policy::plain(Strategy::One);
    let wholes = Wholes::read(Division::of("apps", "StatefulSet"), r#"{"spec":{"replicas":2}}"#).unwrap();
    let held = Orphans { family: "first".into(), shares: [(name("north"), 0)].into() };
    let one = plan(&Order { orphans: Some(&held), ..order(&single, &wholes) }, &all).unwrap();
    assert_eq!(one.targets[0].member, name("north"));
}

#[test]
fn a_revision_goes_wherever_its_owner_is() {
    let (policy, wholes, mut all) = (Policy::plain(Strategy::One), Wholes::default(), three());
    all[1].missing_owners = vec!["DaemonSet \"agent\"".into()];
    let revision = Order { is_revision: true, ..order(&policy, &wholes) };
    let made = plan(&revision, &all).unwrap();
    assert_eq!((made.strategy, made.targets.len()), (Strategy::Duplicate, 2));
    let said = Policy { name: Some("one".into()), names_strategy: true, ..policy.clone() };
    assert_eq!(plan(&Order { policy: &said, ..revision }, &all).unwrap().strategy, Strategy::One);
}

#[test]
fn taints_of_members_repel_what_does_not_bear_them() {
    let config = crate::config::Config {
        members: Vec::new(),
        names: crate::config::Names::Suffixed,
        shared: Vec::new(),
        policies: Vec::new(),
        overrides: Vec::new(),
        unmatched: Default::default(),
        kinds: Vec::new(),
        subjects: Vec::new(),
        client_authorities: Vec::new(),
        aliases: Vec::new(),
        mirror: Default::default(),
        own: Default::default(),
        aggregation: None,
    };
    assert_eq!(Rules::new(&config), Rules::default());
    let taint = Taint { key: "gpu".into(), value: "a100".into(), effect: "NoSchedule".into() };
    let mut policy = Policy::plain(Strategy::Divide);
    policy.terms.insert(name("east"), Terms { taints: vec![taint], ..Terms::default() });
    let members = |policy: &Policy, what: (&str, &str, &str)| by(policy, what, &three(), None).unwrap().targets.len();
    let borne = r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"gpu","operator":"Exists"}]}}}}"#;
    assert_eq!(members(&policy, (DEPLOYMENT.0, DEPLOYMENT.1, "{}")), 2);
    assert_eq!(members(&policy, (DEPLOYMENT.0, DEPLOYMENT.1, borne)), 3);
    let told = by(&policy, (DEPLOYMENT.0, DEPLOYMENT.1, "{}"), &three(), None).unwrap().left_out;
    assert_eq!(told, [(name("east"), "it has the taint gpu=a100, which nothing tolerates".into())]);
    let duplicate = Policy { strategy: Strategy::Duplicate, ..policy.clone() };
    assert_eq!(members(&duplicate, ("", "ConfigMap", "{}")), 3, "it runs no pods");
    assert_eq!(members(&duplicate, ("apps", "DaemonSet", "{}")), 2);
    let tolerated = Toleration { key: "gpu".into(), value: "a100".into(), ..Toleration::default() };
    policy.tolerations.push(tolerated);
    assert_eq!(members(&policy, (DEPLOYMENT.0, DEPLOYMENT.1, "{}")), 3);
}

#[test]
fn bounds_spread_and_exclusions_of_a_policy() {
    let terms =
        |min: u32, max: Option<u32>, group: &str| Terms { min, max, domains: vec![group.into()], ..Terms::default() };
    let mut policy = Policy { name: Some("shop".into()), ..Policy::plain(Strategy::Divide) };
    policy.terms = [("east", terms(0, None, "eu")), ("west", terms(0, None, "eu")), ("north", terms(0, None, "us"))]
        .map(|(member, terms)| (name(member), terms))
        .into();
    let divided = |policy: &Policy, n| by(policy, (DEPLOYMENT.0, DEPLOYMENT.1, &web(n)), &three(), None);
    assert_eq!(numbers(&divided(&policy, 6).unwrap()), [("east", vec![1]), ("north", vec![3]), ("west", vec![2])]);
    policy.terms.insert(name("north"), terms(0, Some(1), "us"));
    policy.terms.insert(name("east"), terms(3, Some(3), "eu"));
    assert_eq!(numbers(&divided(&policy, 6).unwrap()), [("east", vec![3]), ("north", vec![1]), ("west", vec![2])]);
    policy
        .terms
        .insert(name("west"), Terms { excluded: Some("policy shop does not place there".into()), ..Terms::default() });
    let error = divided(&policy, 6).unwrap_err().to_string();
    assert_eq!(
        error,
        "only 4 of 6 fit: east: policy shop places at most 3 there; north: policy shop places at most 1 there; \
         west: policy shop does not place there; ask for less, or let the policy say `partial: true`"
    );
}

#[test]
fn what_the_configuration_declares_is_divided_by_its_own_path() {
    let config = crate::config::KindConfig {
        group: "example.com".into(),
        kind: "Widget".into(),
        replicas: ["spec", "pool", "size"].map(str::to_owned).into(),
        counters: Vec::new(),
    };
    let kinds = crate::placement::divided::Kinds::declaring(&[config]);
    let widget = kinds.division(&kubefold_wire::resource::Gvk::new("example.com", "v2", "Widget"));
    assert_eq!(kinds.division(&kubefold_wire::resource::Gvk::new("other.com", "v2", "Widget")), None);
    let policy = Policy::plain(Strategy::Divide);
    let planned = |body: &str| {
        let wholes = Wholes::read(widget, body).unwrap();
        plan(&order(&policy, &wholes), &three()).unwrap()
    };
    let divided = planned(r#"{"spec":{"replicas":9,"pool":{"size":4}}}"#);
    assert_eq!(numbers(&divided), [("east", vec![1]), ("north", vec![1]), ("west", vec![2])]);
    assert_eq!(divided.targets[0].values[0].pointer, "/spec/pool/size");
    let unset = planned(r#"{"spec":{"replicas":9}}"#);
    assert_eq!((unset.strategy, unset.targets.len()), (Strategy::One, 1), "its operator knows the default");
    assert!(
        Wholes::read(widget, r#"{"spec":{"pool":{"size":-1}}}"#)
            .unwrap_err()
            .to_string()
            .starts_with("spec.pool.size: ")
    );
}

#[test]
fn quotas_cap_what_members_get_and_refuse_nothing() {
    let deployment = |replicas: u32| {
        format!(r#"{{"spec":{{"replicas":{replicas},"template":{{"spec":{{"containers":[{{"name":"web"}}]}}}}}}}}"#)
    };
    let cap = |pods: u32, together: Option<u32>| Some(Cap { pods, together, quota: "team".to_owned() });
    let mut all = three();
    all[1].quota = cap(1, None);
    let policy = Policy::plain(Strategy::Divide);
    let planned = |all: &[Candidate], replicas: u32| {
        by(&policy, (DEPLOYMENT.0, DEPLOYMENT.1, &deployment(replicas)), all, None).unwrap()
    };
    let plan = planned(&all, 7);
    assert_eq!(numbers(&plan), [("east", vec![3]), ("north", vec![3]), ("west", vec![1])]);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    let why = plan.targets.iter().find(|target| target.member.as_str() == "west").unwrap().why.as_deref();
    assert_eq!(why, Some(r#"resourcequota "team" has room for 1 of its pods there"#));
    all.iter_mut().for_each(|one| one.quota = cap(2, None));
    let plan = planned(&all, 8);
    assert_eq!(numbers(&plan).iter().map(|(_, number)| number[0]).sum::<u32>(), 8);
    assert!(
        plan.warnings[0].starts_with(r#"resourcequota "team" has room for 6 of its 8 pods"#),
        "{:?}",
        plan.warnings
    );
    all.iter_mut().for_each(|one| one.quota = cap(2, Some(2)));
    let plan = planned(&all, 4);
    assert!(plan.warnings[0].contains("room for 2 of its 4 pods"), "{:?}", plan.warnings);
    // A whole workload goes where its quota has room.
    let one = Policy::plain(Strategy::One);
    let mut all = three();
    (all[0].quota, all[1].quota) = (cap(2, None), cap(2, None));
    let plan = by(&one, (DEPLOYMENT.0, DEPLOYMENT.1, &deployment(3)), &all, None).unwrap();
    assert_eq!(plan.targets[0].member.as_str(), "north");
}
