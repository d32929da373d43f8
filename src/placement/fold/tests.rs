use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::placement::divided::Kinds;
use kubefold_wire::{
    resource::{Gvk, Gvr},
    splice::splice,
};

const UID_MINTED: &str = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455";

fn folded(documents: &[&str], kind: FoldKind) -> String {
    let member = MemberName::new("east").unwrap();
    let parts: Vec<_> = documents.iter().map(|json| PartView { member: &member, json }).collect();
    let mut edits = fold(&parts, kind, UID_MINTED).unwrap();
    edits.sort_by_key(|edit| edit.at.start);
    assert!(edits.windows(2).all(|pair| pair[0].at.end <= pair[1].at.start), "{edits:?}");
    let mut out = Vec::new();
    splice(documents[0].as_bytes(), &mut edits, &mut out);
    let out = String::from_utf8(out).unwrap();
    serde_json::from_str::<Value>(&out).unwrap();
    out
}

#[test]
fn sums_replicas_generations_and_counters() {
    let east = r#"{"metadata":{"name":"web","uid":"e","generation":2,"labels":{"app":"web","kubefold.io/placement":"u"}},"spec":{"replicas":1},"status":{"observedGeneration":2,"replicas":1,"readyReplicas":1,"conditions":[{"type":"Available","status":"True"}]}}"#;
    let west = r#"{"status":{"conditions":[],"unavailableReplicas":2,"replicas":2,"observedGeneration":1},"spec":{"replicas":2},"metadata":{"generation":3}}"#;
    assert_eq!(
        folded(&[east, west], FoldKind::Deployment),
        r#"{"metadata":{"name":"web","uid":"6f1c2d5e-0b1a-4c3d-8e9f-001122334455","generation":5,"labels":{"app":"web"}},"spec":{"replicas":3},"status":{"unavailableReplicas":2,"observedGeneration":3,"replicas":3,"readyReplicas":1}}"#
    );
}

#[test]
fn one_part_only_hides_the_marker() {
    for (labels, want) in [
        (r#""uid":"e","labels":{"kubefold.io/placement":"u"}"#, r#""uid":"U""#),
        (r#""labels" : {"kubefold.io/placement":"u"} , "uid":"e""#, r#" "uid":"U""#),
        (r#""uid":"e" , "labels": {"kubefold.io/placement":"u"},"x":{"y":1}"#, r#""uid":"U" , "x":{"y":1}"#),
        (r#""uid":"e","labels":{"b":"1","kubefold.io/placement":"u"}"#, r#""uid":"U","labels":{"b":"1"}"#),
        (r#""uid":"e","labels":{}"#, r#""uid":"U","labels":{}"#),
    ] {
        let tail = r#"},"spec": {"replicas":0},"status":{"replicas":0}}"#;
        let out = folded(&[&format!("{{\"metadata\":{{{labels}{tail}")], FoldKind::Deployment);
        assert_eq!(out, format!("{{\"metadata\":{{{want}{tail}").replace("\"U\"", &format!("\"{UID_MINTED}\"")));
    }
}

#[test]
fn a_sum_of_nothing_is_omitted_where_go_omits_it() {
    let east = r#"{"metadata":{"uid":"U"},"spec":{"replicas":0},"status":{"replicas":0}}"#;
    let out = folded(&[east, east], FoldKind::Deployment);
    assert!(out.ends_with(r#""status":{"replicas":0}}"#), "{out}");
    let bare = r#"{"metadata":{"uid":"U"},"spec":{"replicas":1},"status":{}}"#;
    let ready = r#"{"metadata":{"uid":"V"},"spec":{"replicas":1},"status":{"readyReplicas":1}}"#;
    assert!(folded(&[bare, ready], FoldKind::Deployment).ends_with(r#""status":{"readyReplicas":1}}"#));
    assert!(folded(&[bare, ready], FoldKind::Other).ends_with(r#""spec":{"replicas":1},"status":{}}"#));
}

#[test]
fn managed_fields_do_not_show_the_marker() {
    let doc = |fields: &str| {
        format!(
            r#"{{"metadata":{{"uid":"e","managedFields":[{{"manager":"a","fieldsV1":{fields}}},{{"fieldsV1":{{"f:status":{{}}}}}}]}}}}"#
        )
    };
    for (fields, want) in [
        (
            r#"{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:kubefold.io/placement":{}},"f:annotations":{".":{},"f:kubefold.io/placement":{}}},"f:spec":{"f:replicas":{}}}"#,
            r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:replicas":{}}}"#,
        ),
        (r#"{"f:metadata":{"f:labels":{".":{},"f:kubefold.io/placement":{}}},"f:spec":{}}"#, r#"{"f:spec":{}}"#),
        (r#"{"f:metadata":{"f:labels":{".":{}}}}"#, r#"{"f:metadata":{"f:labels":{".":{}}}}"#),
    ] {
        assert_eq!(
            folded(&[&doc(fields)], FoldKind::Deployment),
            doc(want).replace("\"e\"", &format!("\"{UID_MINTED}\""))
        );
    }
    // A manager that has the marker alone is not shown, wherever it stands.
    let own = r#"{"manager":"kubefold","fieldsV1":{"f:metadata":{"f:annotations":{"f:kubefold.io/placement":{}}}}}"#;
    let other = r#"{"manager":"a","fieldsV1":{"f:spec":{}}}"#;
    let doc = |managers: &[&str]| format!(r#"{{"metadata":{{"uid":"e","managedFields":[{}]}}}}"#, managers.join(","));
    for (managers, want) in [
        (vec![own, own, other], vec![other]),
        (vec![other, own, own], vec![other]),
        (vec![other, own, other], vec![other, other]),
        (vec![own], vec![]),
    ] {
        let shown = doc(&want).replace("\"e\"", &format!("\"{UID_MINTED}\""));
        assert_eq!(folded(&[&doc(&managers)], FoldKind::Deployment), shown);
    }
}

#[test]
fn every_summed_kind_is_known_by_its_resource() {
    assert_eq!(FoldKind::of("apps", "deployments"), FoldKind::Deployment);
    assert_eq!(FoldKind::of("", "replicationcontrollers"), FoldKind::ReplicationController);
    assert_eq!(FoldKind::of("example.com", "deployments"), FoldKind::Other);
    let pdb = r#"{"metadata":{"uid":"e"},"status":{"disruptionsAllowed":1,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2}}"#;
    assert!(
        folded(&[pdb, pdb], FoldKind::PodDisruptionBudget)
            .ends_with(r#"{"disruptionsAllowed":2,"currentHealthy":4,"desiredHealthy":2,"expectedPods":4}}"#)
    );
}

#[test]
fn a_part_that_is_no_object_is_an_error() {
    let member = MemberName::new("east").unwrap();
    assert!(fold(&[PartView { member: &member, json: "[]" }], FoldKind::Other, "u").is_err());
    assert!(fold(&[], FoldKind::Other, "u").unwrap().is_empty());
}

/// The fold of these, as a value.
fn shown(documents: &[Value], kind: FoldKind) -> Value {
    let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
    serde_json::from_str(&folded(&texts.iter().map(String::as_str).collect::<Vec<_>>(), kind)).unwrap()
}

fn object(spec: Value, status: Value) -> Value {
    json!({"metadata": {"uid": "e", "generation": 1}, "spec": spec, "status": status})
}

#[test]
fn a_part_that_is_behind_counts_one_generation_until_it_has_caught_up() {
    let east = r#"{"metadata":{"uid":"e","generation":2},"status":{"observedGeneration":2}}"#;
    let parts = vec![Summand::of(east, FoldKind::Deployment).unwrap()];
    let edits = Sums::of(&parts).edits(east, &Numbers::of(east).unwrap(), &parts, FoldKind::Deployment, 1);
    assert!(edits.iter().any(|edit| edit.with.as_ref() == b"3"), "{edits:?}");
    let west = east.replace("eneration\":2", "eneration\":1");
    let caught_up =
        shown(&[serde_json::from_str(east).unwrap(), serde_json::from_str(&west).unwrap()], FoldKind::Deployment);
    assert_eq!(
        (&caught_up["metadata"]["generation"], &caught_up["status"]["observedGeneration"]),
        (&json!(3), &json!(3))
    );
}

#[test]
fn divided_fields_are_summed_and_percentages_are_not() {
    let spec =
        |kind, one: Value, two: Value| shown(&[object(one, json!({})), object(two, json!({}))], kind)["spec"].clone();
    let hpa = spec(
        FoldKind::HorizontalPodAutoscaler,
        json!({"minReplicas": 1, "maxReplicas": 4, "x": 1}),
        json!({"minReplicas": 2, "maxReplicas": 6, "x": 1}),
    );
    assert_eq!(hpa, json!({"minReplicas": 3, "maxReplicas": 10, "x": 1}));
    let pdb = |value: Value| {
        spec(FoldKind::PodDisruptionBudget, json!({"minAvailable": value}), json!({"minAvailable": value}))
    };
    assert_eq!((pdb(json!(2)), pdb(json!("50%"))), (json!({"minAvailable": 4}), json!({"minAvailable": "50%"})));
    let job = spec(FoldKind::Job, json!({"parallelism": 1}), json!({"parallelism": 2, "completions": 5}));
    assert_eq!(job, json!({"parallelism": 3}));
}

#[test]
fn a_companion_reads_back_as_it_is_written() {
    let noted = |whole: &str, spec: Value, status: Value| {
        let mut part = object(spec, status);
        part["metadata"]["annotations"] = json!({"kubefold.io/whole": whole});
        part
    };
    let budget = |healthy: i64, allowed: i64| {
        let condition = json!({"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"});
        let counts = json!({"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 0, "expectedPods": 1, "conditions": [condition]});
        noted(r#"{"minAvailable":2}"#, json!({"minAvailable": 0, "x": 1}), counts)
    };
    let all_well = shown(&[budget(1, 1), budget(1, 1), budget(1, 1)], FoldKind::PodDisruptionBudget);
    assert_eq!(all_well["spec"], json!({"minAvailable": 2, "x": 1}));
    let numbers = |of: &Value| {
        let status = &of["status"];
        ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]
            .map(|at| status[at].as_i64().unwrap())
    };
    assert_eq!(numbers(&all_well), [1, 3, 2, 3]);
    let one_gone = shown(&[budget(1, 1), budget(0, 0), budget(1, 1)], FoldKind::PodDisruptionBudget);
    assert_eq!(numbers(&one_gone), [0, 2, 2, 3]);
    let condition = &one_gone["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("InsufficientPods")));
    assert_eq!(all_well["status"]["conditions"][0]["status"], "True");

    let evicting = |pod: &str| {
        let mut part = budget(1, 1);
        part["status"]["disruptedPods"] = json!({pod: "2026-01-01T00:00:00Z"});
        part
    };
    let evicted = shown(&[budget(1, 1), evicting("b"), evicting("a")], FoldKind::PodDisruptionBudget);
    let since = "2026-01-01T00:00:00Z";
    assert_eq!(evicted["status"]["disruptedPods"], json!({"b": since, "a": since}));
    assert_eq!(all_well["status"].get("disruptedPods"), None);

    // The only part of an autoscaler need not say it either.
    let hpa = noted(r#"{"maxReplicas":10,"minReplicas":1}"#, json!({"minReplicas": 1, "maxReplicas": 8}), json!({}));
    assert_eq!(shown(&[hpa], FoldKind::HorizontalPodAutoscaler)["spec"], json!({"minReplicas": 1, "maxReplicas": 10}));
    // What is none of the whole's goes; a note that is none counts for nothing.
    let swapped = noted(r#"{"maxUnavailable":"30%"}"#, json!({"minAvailable": 1}), json!({}));
    assert_eq!(shown(&[swapped], FoldKind::PodDisruptionBudget)["spec"], json!({"maxUnavailable": "30%"}));
    let broken = noted("no", json!({"minAvailable": 1}), json!({}));
    assert_eq!(shown(&[broken.clone(), broken], FoldKind::PodDisruptionBudget)["spec"], json!({"minAvailable": 2}));
}

#[test]
fn a_condition_holds_of_all_when_it_holds_of_each() {
    let available = |status: &str| json!([{"type": "Available", "status": status, "reason": status}]);
    let fold = |home: Value, other: Value| {
        let parts = [home, other].map(|conditions| object(json!({}), json!({"conditions": conditions})));
        shown(&parts, FoldKind::Deployment)["status"]["conditions"].clone()
    };
    assert_eq!(fold(available("True"), available("True")), available("True"));
    assert_eq!(fold(available("True"), available("False")), available("False"), "what kubectl wait reads");
    assert_eq!(fold(available("True"), available("Unknown")), available("Unknown"));
    assert_eq!(fold(available("True"), json!([])), Value::Null, "a part that has not said it yet");
    assert_eq!(fold(available("False"), json!([])), available("False"));
    let progressing = |reason: &str, status: &str| json!([{"type": "Progressing", "status": status, "reason": reason}]);
    let late = progressing("ProgressDeadlineExceeded", "False");
    assert_eq!(fold(progressing("NewReplicaSetAvailable", "True"), late.clone()), late, "rollout status gives up");
    let going = progressing("ReplicaSetUpdated", "True");
    assert_eq!(fold(progressing("NewReplicaSetAvailable", "True"), going.clone()), going);
    let failure = json!([{"type": "ReplicaFailure", "status": "True", "message": "quota"}]);
    assert_eq!(fold(json!([]), failure.clone()), failure, "what fails somewhere is told");
    assert_eq!(fold(failure.clone(), json!([])), failure);
    let foreign = json!([{"type": "Mine", "status": "True"}]);
    assert_eq!(fold(foreign.clone(), json!([])), foreign, "of others' conditions the home's stand");
}

#[test]
fn a_condition_of_a_generation_is_of_the_sum() {
    let part = |observed: i64| {
        object(json!({}), json!({"conditions": [{"type": "Ready", "status": "True", "observedGeneration": observed}]}))
    };
    let both = shown(&[part(1), part(1)], FoldKind::Other);
    assert_eq!(both["metadata"]["generation"], both["status"]["conditions"][0]["observedGeneration"]);
    let one = shown(&[part(1), part(0)], FoldKind::Other);
    assert_eq!(one["status"]["conditions"][0]["observedGeneration"], 1);
}

#[test]
fn a_job_is_complete_when_its_last_part_is() {
    let done = |end: &str, pod: &str| {
        object(
            json!({}),
            json!({
                "startTime": "2026-01-01T00:00:00Z", "completionTime": end, "succeeded": 2,
                "uncountedTerminatedPods": {"succeeded": [pod]}, "conditions": [{"type": "Complete", "status": "True"}],
            }),
        )
    };
    let running = object(json!({}), json!({"startTime": "2025-12-31T00:00:00Z", "active": 1, "ready": 1}));
    let both = shown(&[done("2026-01-01T00:01:00Z", "a"), done("2026-01-01T00:02:00Z", "b")], FoldKind::Job);
    assert_eq!(both["status"]["completionTime"], "2026-01-01T00:02:00Z");
    assert_eq!(both["status"]["succeeded"], 4);
    assert_eq!(both["status"]["uncountedTerminatedPods"], json!({"succeeded": ["a", "b"]}));
    assert_eq!(both["status"]["conditions"][0]["type"], "Complete");
    let half = &shown(&[done("2026-01-01T00:01:00Z", "a"), running], FoldKind::Job)["status"];
    assert_eq!(
        (&half["completionTime"], &half["conditions"], &half["active"]),
        (&Value::Null, &Value::Null, &json!(1))
    );
    assert_eq!(half["startTime"], "2025-12-31T00:00:00Z");
    let failed = object(json!({}), json!({"failed": 1, "conditions": [{"type": "Failed", "status": "True"}]}));
    let one_failed = shown(&[done("2026-01-01T00:01:00Z", "a"), failed], FoldKind::Job);
    assert_eq!(one_failed["status"]["conditions"], json!([{"type": "Failed", "status": "True"}]));
}

#[test]
fn a_stateful_set_is_rolled_out_when_every_part_is() {
    let at =
        |current: &str, update: &str| object(json!({}), json!({"currentRevision": current, "updateRevision": update}));
    let fold = |home: Value, other: Value| {
        let status = shown(&[home, other], FoldKind::StatefulSet)["status"].clone();
        [status["currentRevision"].clone(), status["updateRevision"].clone()]
    };
    assert_eq!(fold(at("w-2", "w-2"), at("w-1", "w-2")), ["w-1", "w-2"]);
    assert_eq!(fold(at("w-1", "w-2"), at("w-2", "w-2")), ["w-1", "w-2"]);
    assert_eq!(fold(at("w-2", "w-2"), at("x-2", "x-2")), ["w-2", "w-2"]);
}

#[test]
fn a_quotas_usage_is_the_largest_of_what_every_member_has_and_the_sum_of_the_rest() {
    let part = |used: Value| object(json!({"hard": {"pods": "10"}}), json!({"hard": {"pods": "10"}, "used": used}));
    let both = shown(
        &[
            part(json!({"pods": "2", "requests.cpu": "500m", "configmaps": "3", "count/jobs.batch": "1"})),
            part(json!({"pods": "3", "requests.cpu": "1", "configmaps": "2", "requests.memory": "1Gi"})),
        ],
        FoldKind::ResourceQuota,
    );
    let used = json!({
        "pods": "5", "requests.cpu": "1500m", "configmaps": "3", "count/jobs.batch": "1", "requests.memory": "1Gi"
    });
    assert_eq!((&both["status"]["used"], &both["status"]["hard"]), (&used, &json!({"pods": "10"})));
}

#[test]
fn the_whole_has_the_addresses_of_all_parts() {
    let part = |ingress: Value| object(json!({}), json!({"loadBalancer": ingress, "conditions": []}));
    let fold = |parts: &[Value], kind| shown(parts, kind)["status"]["loadBalancer"].clone();
    let east = part(json!({"ingress": [{"ip": "203.0.113.1", "ipMode": "VIP"}, {"hostname": "b.example.com"}]}));
    let west = part(json!({"ingress": [{"ip": "203.0.113.2"}, {"ip": "203.0.113.1", "ipMode": "Proxy"}]}));
    let none = part(json!({}));
    for kind in [FoldKind::Service, FoldKind::Ingress] {
        let both = json!({"ingress": [
            {"ip": "203.0.113.1", "ipMode": "VIP"}, {"hostname": "b.example.com"}, {"ip": "203.0.113.2"}
        ]});
        assert_eq!(fold(&[east.clone(), none.clone(), west.clone()], kind), both, "the home's first");
        let of_west = json!({"ingress": [{"ip": "203.0.113.2"}, {"ip": "203.0.113.1", "ipMode": "Proxy"}]});
        assert_eq!(fold(&[none.clone(), west.clone()], kind), of_west, "the home has none yet");
        assert_eq!(fold(&[east.clone(), east.clone()], kind), east["status"]["loadBalancer"]);
        assert_eq!(fold(&[none.clone(), none.clone()], kind), json!({}), "nothing is written where there is none");
        assert_eq!(fold(&[object(json!({}), json!({})), west.clone()], kind), of_west, "a status without the field");
        assert_eq!(fold(&[part(json!({"ingress": null})), west.clone()], kind), of_west);
        assert_eq!(fold(&[east.clone(), part(json!("nonsense"))], kind), east["status"]["loadBalancer"]);
    }
    assert_eq!(fold(&[none, west], FoldKind::Other), json!({}));
}

/// Some addresses, of which parts may have the same.
fn any_balanced() -> impl Strategy<Value = Value> {
    prop::collection::vec(0..6_u8, 0..4).prop_map(|addresses| {
        let ingress: Vec<Value> = addresses.iter().map(|at| json!({"ip": format!("192.0.2.{at}")})).collect();
        let balancer = if ingress.is_empty() { json!({}) } else { json!({ "ingress": ingress }) };
        object(json!({}), json!({"loadBalancer": balancer}))
    })
}

/// Parts as their controllers write them: what is 0 is left out.
fn any_part() -> impl Strategy<Value = Value> {
    let status = ["True", "False", "Unknown", ""];
    (0..9_i64, 0..9_i64, prop::collection::vec(0..5_i64, 6), 0..4_usize, 0..4_usize).prop_map(
        move |(generation, observed, counts, available, failing)| {
            let mut out = serde_json::Map::new();
            for (path, count) in counter_paths(FoldKind::Deployment).zip(counts.iter().chain([&observed])) {
                if *count != 0 {
                    out.insert(path.concat(), json!(count));
                }
            }
            let said = [("Available", status[available]), ("ReplicaFailure", status[failing])];
            let said = said.iter().filter(|(_, status)| !status.is_empty());
            out.insert(
                "conditions".into(),
                said.map(|(name, status)| json!({"type": name, "status": status})).collect(),
            );
            json!({
                "metadata": {"uid": "e", "generation": generation},
                "spec": {"replicas": counts[0]},
                "status": out,
            })
        },
    )
}

proptest! {
    /// Parts that change one after the other come to what they come to from scratch: every address that some part has.
    #[test]
    fn addresses_that_change_are_those_from_scratch(
        parts in prop::collection::vec(any_balanced(), 2..5),
        changes in prop::collection::vec((0..5_usize, any_balanced()), 0..6),
    ) {
        let kind = FoldKind::Service;
        let mut parts = parts;
        let of = |part: &Value| Summand::of(&part.to_string(), kind).unwrap();
        let mut summands: Vec<Summand> = parts.iter().map(of).collect();
        let mut sums = Sums::of(&summands);
        for (at, part) in changes {
            let at = at % parts.len();
            let before = std::mem::replace(&mut summands[at], of(&part));
            sums.put(at, Some(&before), Some(&summands[at]));
            parts[at] = part;
        }
        let home = parts[0].to_string();
        let mut edits = sums.edits(&home, &Numbers::of(&home).unwrap(), &summands, kind, 0);
        let mut out = Vec::new();
        splice(home.as_bytes(), &mut edits, &mut out);
        let kept: Value = serde_json::from_slice(&out).unwrap();
        let ingress = |part: &Value| part["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(ingress(&kept), ingress(&shown(&parts, kind)));
        let mut all: Vec<Value> = Vec::new();
        for part in &parts {
            let before = all.clone();
            all.extend(ingress(part).into_iter().filter(|address| !before.contains(address)));
        }
        prop_assert_eq!(ingress(&kept), all);
    }

    /// Every number is the sum over the parts, and nothing depends on the order in which the others stand.
    #[test]
    fn the_whole_is_the_sum_of_its_parts(parts in prop::collection::vec(any_part(), 1..5), turn in 0..4_usize) {
        let whole = shown(&parts, FoldKind::Deployment);
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let sum = |pointer: &str| parts.iter().map(|part| part.pointer(pointer).map_or(0, number)).sum::<i64>();
        let status = counter_paths(FoldKind::Deployment).map(|path| format!("/status/{}", path.concat()));
        for pointer in status.chain(["/metadata/generation".to_owned(), "/spec/replicas".to_owned()]) {
            prop_assert_eq!(whole.pointer(&pointer).map_or(0, number), sum(&pointer), "{}", pointer);
        }
        let holds = |value: &Value, name: &str| {
            let conditions = value["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["type"] == name && condition["status"] == "True")
        };
        prop_assert_eq!(holds(&whole, "Available"), parts.iter().all(|part| holds(part, "Available")));
        prop_assert_eq!(holds(&whole, "ReplicaFailure"), parts.iter().any(|part| holds(part, "ReplicaFailure")));
        let mut turned = parts.clone();
        let others = turned.len() - 1;
        if others > 0 {
            turned[1..].rotate_left(turn % others);
        }
        prop_assert_eq!(shown(&turned, FoldKind::Deployment), whole);
    }
}

#[test]
fn a_declared_kind_sums_by_its_paths_however_deep() {
    let names = |path: &str| path.split('.').map(str::to_owned).collect::<Vec<_>>();
    let config = crate::config::KindConfig {
        group: "example.com".into(),
        kind: "Widget".into(),
        replicas: names("spec.pool.size"),
        counters: vec![names("pool.ready"), names("pool.total"), names("seen")],
    };
    let (gvr, gvk) = (Gvr::new("example.com", "v1", "widgets"), Gvk::new("example.com", "v1", "Widget"));
    let kind = FoldKind::known(&Kinds::declaring(std::slice::from_ref(&config)), &gvr, &gvk);
    assert_eq!(FoldKind::known(&Kinds::default(), &gvr, &gvk), FoldKind::Other);
    assert_eq!(kind, FoldKind::known(&Kinds::declaring(&[config]), &gvr, &gvk), "the same declaration is one");
    let east =
        object(json!({"pool": {"size": 2, "flavor": "a"}, "replicas": 7}), json!({"pool": {"ready": 1}, "seen": 2}));
    let west = object(json!({"pool": {"size": 4}}), json!({"pool": {"ready": 3, "total": 4}, "observedGeneration": 1}));
    let shown = shown(&[east, west], kind);
    assert_eq!(shown["spec"], json!({"pool": {"size": 6, "flavor": "a"}, "replicas": 7}));
    assert_eq!(shown["status"], json!({"pool": {"ready": 4, "total": 4}, "seen": 2, "observedGeneration": 1}));
}

#[test]
fn what_is_in_the_way_of_a_path_stays() {
    let mut object = kubefold_wire::splice::ObjectEdits::new(r#"{"a":1,"b":{"c":2}}"#, 0).unwrap();
    let all: [&[&str]; 4] = [&["a", "x"], &["b", "c"], &["b", "d"], &["e", "f", "g"]];
    values::set(&mut object, all.map(|path| (path, b"5".to_vec())).into());
    let mut out = Vec::new();
    splice(br#"{"a":1,"b":{"c":2}}"#, &mut object.finish(), &mut out);
    let set: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(set, json!({"a": 1, "b": {"c": 5, "d": 5}, "e": {"f": {"g": 5}}}));
}
