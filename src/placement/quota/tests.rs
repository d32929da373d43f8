use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::placement::marker::WHOLE_KEY;

fn names(count: usize) -> Vec<MemberName> {
    (0..count).map(|at| MemberName::new(&format!("m{at}")).unwrap()).collect()
}

fn hard(value: Value) -> Hard {
    Hard::read(value.as_object().unwrap())
}

fn of(name: &str, amount: u64) -> Units {
    [(name.to_owned(), amount)].into()
}

/// A member that has and uses so many pods.
fn holder(member: &MemberName, pods: u64, used: u64) -> Holder<'_> {
    let (hard, given, used) = (of("pods", pods), of("pods", pods), of("pods", used));
    Holder { hard, given, used, ..Holder::new(member, Weighting::Static(1)) }
}

fn pods(parts: &Parts) -> Vec<u64> {
    parts.hard.iter().map(|part| units("pods", part.get("pods").unwrap()).unwrap()).collect()
}

#[test]
fn a_new_quota_is_divided_in_equal_parts_that_add_up() {
    let names = names(3);
    let holders: Vec<_> = names.iter().map(|member| Holder::new(member, Weighting::Static(1))).collect();
    let whole = hard(
        json!({"pods": "10", "requests.cpu": "1", "requests.memory": "10Gi", "configmaps": 5, "limits.cpu": "2500m"}),
    );
    let parts = step(&whole, &holders, Extent::Anew, "uid");
    assert!(parts.is_whole);
    for name in ["pods", "requests.cpu", "requests.memory", "limits.cpu"] {
        let shares = parts.hard.iter().map(|part| units(name, part.get(name).unwrap()).unwrap());
        assert_eq!(shares.sum::<u64>(), units(name, whole.get(name).unwrap()).unwrap(), "{name}");
    }
    assert!(parts.hard.iter().all(|part| part.get("configmaps") == Some("5")), "every member has the same ones");
    let mut milli: Vec<_> = parts.hard.iter().map(|part| part.get("requests.cpu").unwrap()).collect();
    milli.sort_unstable();
    assert_eq!(milli, ["333m", "333m", "334m"]);
}

#[test]
fn amounts_are_written_as_the_api_does() {
    let written = |name: &str, amount: u64, like: &str| text(name, amount, like);
    assert_eq!(written("cpu", 1500, "2"), "1500m");
    assert_eq!(written("cpu", 2000, "2500m"), "2");
    assert_eq!(written("memory", 3 << 30, "9Gi"), "3Gi");
    assert_eq!(written("memory", (3 << 30) + 1, "9Gi"), "3221225473");
    assert_eq!(written("memory", 0, "9Gi"), "0");
    assert_eq!(written("pods", 4000, "12k"), "4k");
    assert!(hard(json!({"pods": "4k"})).is("pods", Some(&json!("4000"))));
    assert!(!hard(json!({"pods": "4"})).is("pods", None));
    assert_eq!(hard(json!({"cpu": "1000m", "pods": 10})).to_json(), json!({"cpu": "1", "pods": "10"}), "canonical");
    assert_eq!(units("memory", "1500m"), Some(1), "no byte more than was written");
    assert_eq!(units("cpu", "-1"), None);
    assert_eq!(hard(json!({"pods": true})).get("pods"), Some("true"), "for its member to refuse");
    assert_eq!(hard(json!({"pods": "4", "secrets": "3"})).without_shares(), hard(json!({"pods": "0", "secrets": "3"})));
}

#[test]
fn what_is_asked_shrinks_others_first() {
    let names = names(3);
    let whole = hard(json!({"pods": "10"}));
    let mut holders = vec![holder(&names[0], 4, 3), holder(&names[1], 3, 0), holder(&names[2], 3, 1)];
    holders[0].asked = of("pods", 5);
    let first = step(&whole, &holders, Extent::Difference, "uid");
    assert_eq!((pods(&first), first.is_whole), (vec![4, 1, 1], false), "nobody has let anything go yet");
    for (holder, share) in holders.iter_mut().zip(pods(&first)) {
        holder.hard = of("pods", share);
    }
    // The controllers have not taken it in.
    assert_eq!(pods(&step(&whole, &holders, Extent::Difference, "uid")), [4, 1, 1]);
    for holder in &mut holders {
        holder.given.clone_from(&holder.hard);
    }
    let second = step(&whole, &holders, Extent::Difference, "uid");
    assert_eq!((pods(&second), second.is_whole), (vec![8, 1, 1], true));
}

#[test]
fn what_was_used_meanwhile_is_not_given_to_another() {
    let names = names(2);
    let whole = hard(json!({"pods": "8"}));
    // Pods were admitted in the first while it shrank to 3.
    let mut holders = vec![holder(&names[0], 3, 4), holder(&names[1], 4, 4)];
    holders[1].asked = of("pods", 2);
    assert_eq!(pods(&step(&whole, &holders, Extent::Difference, "uid")), [4, 4], "the one that is free is in use");
}

#[test]
fn a_member_that_is_down_keeps_its_share() {
    let names = names(3);
    let mut holders = vec![holder(&names[0], 4, 1), holder(&names[1], 3, 3), holder(&names[2], 3, 3)];
    holders[0].answers = false;
    holders[1].asked = of("pods", 5);
    let whole = hard(json!({"pods": "10"}));
    assert_eq!(pods(&step(&whole, &holders, Extent::Anew, "uid")), [4, 3, 3]);
    assert_eq!(pods(&step(&hard(json!({"pods": "12"})), &holders, Extent::Difference, "uid")), [4, 5, 3]);
    assert_eq!(pods(&step(&hard(json!({"pods": "2"})), &holders, Extent::Difference, "uid")).iter().sum::<u64>(), 2);
}

#[test]
fn the_same_again_changes_nothing() {
    let names = names(2);
    let whole = hard(json!({"pods": "10"}));
    let holders = [holder(&names[0], 9, 2), holder(&names[1], 1, 1)];
    assert_eq!(pods(&step(&whole, &holders, Extent::Difference, "uid")), [9, 1]);
    assert_ne!(pods(&step(&whole, &holders, Extent::Anew, "uid")), [9, 1]);
}

/// Quota documents by member.
fn quota(parts: &[(&str, Value)]) -> Quota {
    let parts: Vec<_> = parts.iter().map(|(name, part)| (MemberName::new(name).unwrap(), part.to_string())).collect();
    Quota::of("q", parts.iter().map(|(member, json)| (member, json.as_str())), |member| member.as_str() != "down")
        .unwrap()
}

fn pod(spec: &Value) -> PodUsage {
    PodUsage::of("apps", "Deployment", &json!({"spec": {"template": {"spec": spec}}}).to_string()).unwrap()
}

fn rooms(quota: &Quota, pod: &PodUsage, own: &[(&str, u32)]) -> Vec<(String, u32)> {
    let own = own.iter().map(|(name, pods)| (MemberName::new(name).unwrap(), *pods)).collect();
    caps(std::slice::from_ref(quota), pod, &own)
        .into_iter()
        .map(|(member, cap)| (member.to_string(), cap.pods))
        .collect()
}

#[test]
fn a_quota_caps_the_pods_of_its_member() {
    let part = |hard: Value, used: Value| json!({"spec": {"hard": hard}, "status": {"used": used}});
    let small =
        pod(&json!({"containers": [{"resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}}]}));
    let own =
        quota(&[("a", part(json!({"pods": "10", "requests.cpu": "2"}), json!({"pods": "1", "requests.cpu": "500m"})))]);
    assert_eq!(rooms(&own, &small, &[]), [("a".to_owned(), 3)]);
    assert_eq!(rooms(&own, &small, &[("a", 1)]), [("a".to_owned(), 4)], "its own pods are counted already");
    assert_eq!(rooms(&own, &pod(&json!({"containers": [{}]})), &[]), [("a".to_owned(), 9)]);
    let limits = quota(&[("a", part(json!({"limits.memory": "2560Mi"}), json!({})))]);
    assert_eq!(rooms(&limits, &small, &[]), [("a".to_owned(), 2)]);
    assert!(rooms(&quota(&[("a", part(json!({"secrets": "1"}), json!({"secrets": "1"})))]), &small, &[]).is_empty());
}

#[test]
fn of_a_quota_that_is_divided_the_room_is_the_wholes() {
    let whole = json!({"annotations": {WHOLE_KEY: r#"{"hard":{"pods":"10"}}"#}});
    let part = |hard: &str, used: &str| json!({"metadata": whole, "spec": {"hard": {"pods": hard}}, "status": {"used": {"pods": used}}});
    let pod = pod(&json!({"containers": [{}]}));
    let divided = quota(&[("a", part("4", "1")), ("down", part("3", "1")), ("c", part("3", "2"))]);
    let room = |name: &str, pods: u32| (name.to_owned(), pods);
    assert_eq!(rooms(&divided, &pod, &[]), [room("a", 4), room("c", 4), room("down", 4)], "10 less 1, 3 and 2");
    let a = MemberName::new("a").unwrap();
    assert!(divided.is_short(&a, &pod.times(4)) && !divided.is_short(&a, &pod.times(3)));
}

#[test]
fn all_members_together_get_no_more_than_the_whole_has_room_for() {
    let cap = |pods: u32, together: Option<u32>| Cap { pods, together, quota: "q".to_owned() };
    let (two, own) = (cap(2, Some(2)), cap(3, None));
    assert_eq!(room_for([(Some(&two), 2), (Some(&two), 1), (Some(&two), 1)]), 2);
    assert_eq!(room_for([(Some(&own), 5), (None, 4)]), 7);
}

#[test]
fn scopes_say_which_pods_count() {
    let scoped = |scopes: Value| quota(&[("a", json!({"spec": scopes}))]);
    let (best, sure) = (
        pod(&json!({"containers": [{}]})),
        pod(&json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}], "priorityClassName": "high"})),
    );
    let of = |scopes: Value| (scoped(scopes.clone()).counts(&best), scoped(scopes).counts(&sure));
    assert_eq!(of(json!({})), (true, true));
    assert_eq!(of(json!({"scopes": ["BestEffort"]})), (true, false));
    assert_eq!(of(json!({"scopes": ["NotBestEffort", "NotTerminating"]})), (false, true));
    assert_eq!(of(json!({"scopes": ["Terminating"]})), (false, false));
    let class = |operator: &str| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}]}});
    assert_eq!(
        (of(class("In")), of(class("NotIn")), of(class("Exists"))),
        ((false, true), (true, false), (false, true))
    );
}

/// What one member holds, may be held to, uses and is asked; whether it answers, and its weight.
type State = (u64, u64, u64, u64, bool, u32);

fn states() -> impl Strategy<Value = Vec<State>> {
    let state = (0..30_u64, 0..5_u64, 0..30_u64, 0..9_u64, prop::bool::weighted(0.8), 0..4_u32);
    prop::collection::vec(state, 1..6)
}

proptest! {
    #[test]
    fn no_step_lets_the_sum_above_the_whole(
        total in 0..80_u64, states in states(), anew in any::<bool>(), landed in prop::collection::vec(any::<bool>(), 6),
    ) {
        let names = names(states.len());
        let whole = hard(json!({"pods": total.to_string()}));
        let mut holders: Vec<Holder<'_>> = names.iter().zip(&states).map(|(member, (pods, more, used, asked, answers, weight))| Holder {
            given: of("pods", pods + more),
            asked: of("pods", *asked),
            answers: *answers,
            weighting: Weighting::Static(*weight),
            ..holder(member, *pods, *used)
        }).collect();
        let extent = if anew { Extent::Anew } else { Extent::Difference };
        let sum = |of: &dyn Fn(&Holder<'_>) -> u64| holders.iter().map(of).sum::<u64>();
        let pods_of = |units: &Units| units["pods"];
        let (given, held) = (sum(&|one| pods_of(&one.given)), sum(&|one| pods_of(&one.given).max(pods_of(&one.used))));
        let next = pods(&step(&whole, &holders, extent, "uid"));
        // Whichever part of a step lands, and in whatever order.
        let some = |used: bool| -> u64 {
            holders.iter().zip(&next).zip(&landed).map(|((one, share), landed)| {
                let held = if used { pods_of(&one.given).max(pods_of(&one.used)) } else { pods_of(&one.given) };
                if *landed { held.max(*share) } else { held }
            }).sum()
        };
        prop_assert!(some(false) <= total.max(given) && some(true) <= total.max(held), "{next:?}");
        // Steps that land, and are taken in, come to an end at which the shares come to the whole.
        for _ in 0..3 {
            let next = pods(&step(&whole, &holders, extent, "uid"));
            for (one, share) in holders.iter_mut().zip(next) {
                (one.hard, one.given) = (of("pods", share), of("pods", share));
            }
        }
        let end = step(&whole, &holders, extent, "uid");
        let (shares, used) = (pods(&end), holders.iter().map(|one| one.used["pods"]).sum::<u64>());
        prop_assert!(shares.iter().sum::<u64>() <= total);
        if used <= total && holders.iter().all(|one| one.answers) {
            prop_assert!(end.is_whole && shares.iter().sum::<u64>() == total, "{shares:?}");
            prop_assert!(shares.iter().zip(&holders).all(|(share, one)| *share >= one.used["pods"]), "{shares:?}");
        }
    }
}
