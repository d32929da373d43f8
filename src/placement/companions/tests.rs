use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::placement::divided::{MAX_REPLICAS, MAX_UNAVAILABLE, MIN_AVAILABLE, MIN_REPLICAS, REPLICAS};

fn names() -> Vec<MemberName> {
    ["east", "west", "north"].iter().map(|name| MemberName::new(name).unwrap()).collect()
}

/// Of a member with no part nothing is known.
fn shares(of: [Option<u32>; 3]) -> Shares {
    names().into_iter().zip(of).filter_map(|(name, share)| Some((name, share?))).collect()
}

fn limits(division: Division, spec: Value) -> Limits {
    Limits::of(division, &json!({"spec": spec})).unwrap()
}

fn of_budget(spec: &Value) -> Limits {
    limits(Division::Budget, spec.clone())
}

/// What each part of a budget says.
fn parts(spec: &Value, of: [Option<u32>; 3]) -> Vec<Value> {
    let (names, whole) = (names(), of_budget(spec));
    let members: Vec<&MemberName> = names.iter().collect();
    let parts = budget(&whole, &members, &shares(of), "u");
    let field = |part: &Limits| part.get(&MIN_AVAILABLE).or_else(|| part.get(&MAX_UNAVAILABLE)).map(Limit::to_json);
    parts.iter().map(|part| field(part).unwrap()).collect()
}

#[test]
fn a_budgets_parts_go_by_the_pods_that_are_there() {
    let one_each = [Some(1); 3];
    for (spec, of, wanted) in [
        (json!({"maxUnavailable": 1}), one_each, json!([1, 1, 1])),
        (json!({"maxUnavailable": 0}), one_each, json!([0, 0, 0])),
        (json!({"maxUnavailable": 3}), [Some(1), Some(2), Some(3)], json!([1, 1, 1])),
        (json!({"maxUnavailable": 6}), [Some(1), Some(2), Some(3)], json!([1, 2, 3])),
        (json!({"maxUnavailable": "50%"}), one_each, json!(["50%", "50%", "50%"])),
        // A quorum in one member stays whole there, and the others hold back what may come.
        (json!({"minAvailable": 2}), [Some(3), None, None], json!([2, 2, 2])),
        (json!({"minAvailable": 2}), [Some(3), Some(0), None], json!([2, 2, 2])),
        (json!({"minAvailable": 2}), one_each, json!([0, 0, 0])),
        (json!({"minAvailable": 3}), one_each, json!([1, 1, 1])),
        (json!({"minAvailable": 6}), one_each, json!([2, 2, 2])),
        (json!({"minAvailable": 6}), [Some(3); 3], json!([2, 2, 2])),
        (json!({"minAvailable": "50%"}), [Some(1), Some(3), Some(2)], json!([0, "50%", "50%"])),
        (json!({"minAvailable": "100%"}), one_each, json!(["100%", "100%", "100%"])),
        // Before its pods.
        (json!({"minAvailable": 2}), [None; 3], json!([2, 2, 2])),
        (json!({"maxUnavailable": 1}), [Some(0); 3], json!([1, 1, 1])),
    ] {
        assert_eq!(Value::from(parts(&spec, of)), wanted, "{spec} {of:?}");
    }
}

#[test]
fn what_the_parts_allow_together_is_told_where_it_is_more() {
    let names = names();
    let members: Vec<&MemberName> = names.iter().collect();
    let told = |spec: Value, of: [Option<u32>; 3]| {
        let (whole, shares) = (of_budget(&spec), shares(of));
        let parts = budget(&whole, &members, &shares, "u");
        let parts: Vec<_> = members.iter().copied().zip(&parts).collect();
        allowed(&whole, &parts, &shares).map(|Allowed { parts, whole }| (parts, whole))
    };
    assert_eq!(told(json!({"maxUnavailable": 1}), [Some(1); 3]), Some((3, 1)));
    assert_eq!(told(json!({"maxUnavailable": 9}), [Some(1); 3]), Some((3, 3)));
    assert_eq!(told(json!({"minAvailable": 2}), [Some(3), None, None]), Some((1, 1)));
    assert_eq!(told(json!({"minAvailable": 2}), [None; 3]), None);
    assert_eq!(told(json!({}), [Some(1); 3]), None);
}

fn counts(of: &[[i64; 4]]) -> Vec<Counts> {
    let count = |[expected, healthy, desired, allowed]: &[i64; 4]| Counts {
        expected: *expected,
        healthy: *healthy,
        desired: *desired,
        allowed: *allowed,
    };
    of.iter().map(count).collect()
}

#[test]
fn an_eviction_keeps_to_the_whole() {
    let now = |spec: Value, of: &[[i64; 4]]| {
        let Eviction { allowed, desired, healthy } = evicts(&of_budget(&spec), counts(of).into_iter());
        (allowed, desired, healthy)
    };
    let all_well = [[1, 1, 0, 1]; 3];
    assert_eq!(now(json!({"maxUnavailable": 1}), &all_well), (1, 2, 3));
    // One was evicted a moment ago, of which its controller does not know yet; then it does.
    assert_eq!(now(json!({"maxUnavailable": 1}), &[[1, 1, 0, 0], [1, 1, 0, 1], [1, 1, 0, 1]]), (0, 2, 2));
    assert_eq!(now(json!({"maxUnavailable": 1}), &[[1, 0, 0, 0], [1, 1, 0, 1], [1, 1, 0, 1]]), (0, 2, 2));
    // A member without pods has the whole, and counts for nothing.
    assert_eq!(now(json!({"minAvailable": 2}), &[[3, 3, 2, 1], [0, 0, 2, 0], [0, 0, 2, 0]]), (1, 2, 3));
    assert_eq!(now(json!({"minAvailable": "50%"}), &all_well), (1, 2, 3));
    assert_eq!(now(json!({"minAvailable": 2}), &[[0, 0, 2, 0]; 3]), (0, 2, 0));
}

/// The bounds of each part.
fn bounds(spec: Value, of: [Option<u32>; 3], standing: [bool; 3]) -> Vec<Option<(u32, u32)>> {
    let (names, whole) = (names(), limits(Division::Autoscaler, spec));
    let members: Vec<_> = names.iter().zip(standing).map(|(member, has_part)| Scaled { member, has_part }).collect();
    let number = |part: &Limits, field: &Field| part.number(field).unwrap();
    let both = |part: Limits| (number(&part, &MIN_REPLICAS), number(&part, &MAX_REPLICAS));
    autoscaler(&whole, &members, &shares(of), "u").into_iter().map(|part| part.map(both)).collect()
}

#[test]
fn an_autoscaler_is_where_its_share_of_the_minimum_is() {
    let (none, first) = ([false; 3], [true, false, false]);
    let common = json!({"maxReplicas": 10});
    assert_eq!(bounds(common.clone(), [None, Some(1), None], none), [None, Some((1, 10)), None]);
    assert_eq!(bounds(common.clone(), [Some(0), Some(1), None], none), [None, Some((1, 10)), None]);
    // Of the most they leave what nobody scales.
    assert_eq!(bounds(common.clone(), [Some(1); 3], first), [Some((1, 8)), None, None]);
    assert_eq!(bounds(json!({"minReplicas": 3, "maxReplicas": 9}), [Some(1); 3], none), [Some((1, 3)); 3]);
    assert_eq!(bounds(json!({"minReplicas": 3, "maxReplicas": 9}), [Some(1); 3], first), [Some((1, 3)); 3]);
    // Before its target it is in one member, and stays there.
    assert_eq!(bounds(common.clone(), [None; 3], none), [Some((1, 10)), None, None]);
    assert_eq!(bounds(common.clone(), [None; 3], first), [Some((1, 10)), None, None]);
    // A part stays, with the least that there is.
    assert_eq!(bounds(common, [Some(1); 3], [true; 3]).iter().flatten().map(|(least, _)| least).sum::<u32>(), 3);
    // What is none the home refuses in its own words.
    assert_eq!(bounds(json!({"minReplicas": 5, "maxReplicas": 2}), [Some(1); 3], [true; 3]), [Some((5, 2)); 3]);
}

#[test]
fn the_whole_reads_back_as_it_is_written() {
    for (division, spec) in [
        (Division::Budget, json!({"minAvailable": "50%"})),
        (Division::Budget, json!({"maxUnavailable": 0})),
        (Division::Budget, json!({})),
        (Division::Autoscaler, json!({"minReplicas": 1, "maxReplicas": 10})),
    ] {
        let whole = limits(division, spec.clone());
        assert_eq!(
            whole.to_note(),
            spec.to_string().replace(r#"{"minReplicas":1,"maxReplicas":10}"#, r#"{"maxReplicas":10,"minReplicas":1}"#)
        );
        assert_eq!(Limits::noted(division, &whole.to_note()), Some(whole));
    }
    assert_eq!(limits(Division::Autoscaler, json!({"maxReplicas": 10})).get(&MIN_REPLICAS), Some(&Limit::Number(1)));
    for bad in [json!({"minAvailable": -1}), json!({"minAvailable": "half"}), json!({"minAvailable": 1.5})] {
        assert_eq!(Limits::of(Division::Budget, &json!({"spec": bad})), None);
    }
    assert_eq!(Limits::noted(Division::Budget, r#"{"maxReplicas":1}"#), None);
}

#[test]
fn companions_know_their_workload() {
    let pdb = r#"{"spec":{"selector":{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"Exists"}]}}}"#;
    let pdb = Subject::of(Some(Division::Budget), pdb).unwrap();
    assert!(pdb.selects(r#"{"app":"web","tier":"edge"}"#));
    assert!(!pdb.selects(r#"{"app":"web"}"#) && !pdb.scales("apps", "Deployment", "web"));
    let all = Subject::of(Some(Division::Budget), r#"{"spec":{"selector":{}}}"#).unwrap();
    assert!(all.selects("{}"), "policy/v1: an empty selector takes all pods of the namespace");
    assert!(!Subject::of(Some(Division::Budget), r#"{"spec":{}}"#).unwrap().selects("{}"), "none takes nothing");
    let hpa = r#"{"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}}"#;
    let hpa = Subject::of(Some(Division::Autoscaler), hpa).unwrap();
    assert!(hpa.scales("apps", "Deployment", "web") && !hpa.scales("", "Deployment", "web"));
    assert_eq!(Subject::of(Some(Division::Replicas), "{}"), None);

    let pods = r#"{"metadata":{"labels":{"a":"b"}},"spec":{"volumes":[{"name":"x","persistentVolumeClaim":{"claimName":"data"}},{"name":"y","emptyDir":{}}]}}"#;
    assert_eq!(claims("", "Pod", pods), ["data"]);
    assert_eq!(pod_labels("", "Pod", pods), Some(r#"{"a":"b"}"#));
    let job = format!(r#"{{"spec":{{"jobTemplate":{{"spec":{{"template":{pods}}}}}}}}}"#);
    assert_eq!((claims("batch", "CronJob", &job), claims("", "Service", pods)), (vec!["data".to_owned()], Vec::new()));
    let set = format!(r#"{{"metadata":{{"ownerReferences":[{{"kind":"Deployment"}}]}},"spec":{{"template":{pods}}}}}"#);
    assert_eq!(pod_labels("apps", "ReplicaSet", &set), Some(r#"{"a":"b"}"#));
    assert!(is_counted_elsewhere(&set, &[]) && !is_counted_elsewhere(pods, &[]));
    // What an earlier Deployment left is the next one's.
    let note = r#"{"uid":"u","group":"apps","kind":"Deployment","namespace":"a","name":"web","member":"east","members":[["east","c"]]}"#;
    let orphan = serde_json::json!({"metadata": {"annotations": {"kubefold.io/placement": note}}}).to_string();
    assert!(is_counted_elsewhere(&orphan, &["db", "web"]) && !is_counted_elsewhere(&orphan, &["db"]));
    assert_eq!((replicas(&set, REPLICAS.path), replicas(r#"{"spec":{"replicas":0}}"#, REPLICAS.path)), (1, 0));
}

fn share() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![Just(None), (0_u32..9).prop_map(Some)]
}

fn limit() -> impl Strategy<Value = Value> {
    prop_oneof![(0_u32..12).prop_map(|number| json!(number)), (0_u32..=100).prop_map(|of| json!(format!("{of}%")))]
}

proptest! {
    /// Where the whole lets a pod go, each part with pods does; where it lets none go, no part does. Together they let no
    /// fewer go than the whole.
    #[test]
    fn no_part_blocks_what_the_whole_allows(
        of in prop::array::uniform3(share()),
        limit in limit(),
        least in any::<bool>(),
    ) {
        let field = if least { "minAvailable" } else { "maxUnavailable" };
        let (names, whole, shares) = (names(), of_budget(&json!({field: limit})), shares(of));
        let members: Vec<&MemberName> = names.iter().collect();
        let parts = budget(&whole, &members, &shares, "u");
        let pods: u32 = shares.values().sum();
        let Some(together) = allowed(&whole, &members.iter().copied().zip(&parts).collect::<Vec<_>>(), &shares) else {
            prop_assert!(parts.iter().all(|part| *part == whole));
            return Ok(());
        };
        for (member, part) in members.iter().zip(&parts) {
            let own = shares.get(*member).copied().unwrap_or(0);
            let alone = allowed(part, &[(*member, part)], &[((*member).clone(), own)].into()).map(|own| own.whole);
            match own {
                0 => prop_assert_eq!(part, &whole),
                _ => prop_assert_eq!(alone.unwrap() > 0, together.whole > 0),
            }
        }
        prop_assert!(together.whole <= pods);
        if !matches!(whole.get(&MIN_AVAILABLE), Some(Limit::Percent(_))) {
            prop_assert!(together.parts >= together.whole);
        }
    }

    /// The least is above the most nowhere; a part is where its target is, or where it stands; the sums are the whole's as
    /// far as each part's own 1 lets them.
    #[test]
    fn an_autoscalers_parts_come_to_its_whole(
        of in prop::array::uniform3(share()),
        standing in prop::array::uniform3(any::<bool>()),
        least in 1_u32..9,
        more in 0_u32..9,
    ) {
        let parts = bounds(json!({"minReplicas": least, "maxReplicas": least + more}), of, standing);
        prop_assert!(parts.iter().flatten().all(|(least, most)| (1..=*most).contains(least)));
        let is_somewhere = of.iter().flatten().any(|share| *share > 0);
        for ((part, share), stands) in parts.iter().zip(of).zip(standing) {
            if stands {
                prop_assert!(part.is_some());
            } else if is_somewhere && share.unwrap_or(0) == 0 {
                prop_assert!(part.is_none());
            }
        }
        let count = u32::try_from(parts.iter().flatten().count()).unwrap();
        let leasts: u32 = parts.iter().flatten().map(|(least, _)| least).sum();
        prop_assert_eq!(leasts >= least && leasts <= least.max(least + count), true);
        let fixed: u32 = parts.iter().zip(of).filter(|(part, _)| part.is_none()).filter_map(|(_, share)| share).sum();
        let mosts: u32 = parts.iter().flatten().map(|(_, most)| most).sum();
        prop_assert_eq!(mosts, (least + more).saturating_sub(fixed).max(leasts));
    }
}
