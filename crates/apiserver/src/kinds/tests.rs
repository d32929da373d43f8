use std::sync::LazyLock;

use serde_json::{Value, json};

use super::*;
use crate::schema::builtin;

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| built_in(&builtin()));

fn kind(group: &str, version: &str, name: &str) -> &'static Kind {
    let same = |kind: &&Kind| (&*kind.group, &*kind.version, &*kind.kind) == (group, version, name);
    KINDS.iter().find(same).unwrap_or_else(|| panic!("{group}/{version} {name}"))
}

static NOBODY: LazyLock<Caller> = LazyLock::new(Caller::default);
static ADDRESSES: LazyLock<Allocator> = LazyLock::new(|| Allocator::new(std::net::Ipv4Addr::new(10, 96, 0, 0), 16));

fn context<'a>(allocator: &'a Allocator, others: &'a [Value]) -> Context<'a> {
    Context { caller: &NOBODY, now: "2026-01-01T00:00:00Z", suffix: "abcde", allocator, others }
}

fn service(name: &str, spec: &Value) -> Value {
    let mut object = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    let strategy = &kind("", "v1", "Service").strategy;
    strategy.default(&mut object);
    strategy.prepare_for_create(&mut object, context(&ADDRESSES, &[]));
    object
}

#[test]
fn every_kind_has_a_type_and_a_place_in_storage() {
    let types = builtin();
    for kind in KINDS.iter() {
        assert!(types.named(&kind.type_name).is_some(), "{}", kind.kind);
        assert!(kind.verbs.contains(&"watch".to_owned()), "{}", kind.kind);
    }
    assert_eq!(kind("events.k8s.io", "v1", "Event").stored_group(), "");
    let scaled: Vec<&str> = KINDS.iter().filter(|kind| kind.scale.is_some()).map(|kind| &*kind.kind).collect();
    assert_eq!(scaled, ["ReplicationController", "Deployment", "ReplicaSet", "StatefulSet"]);
}

#[test]
fn what_a_service_holds_is_free_again_when_it_is_gone() {
    let allocator = Allocator::default();
    let strategy = &kind("", "v1", "Service").strategy;
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}], "clusterIP": "10.96.3.4"});
    let mut first = service("first", &spec);
    assert_eq!(strategy.allocate(&mut first, None, context(&allocator, &[])), Ok(()));
    let mut second = service("second", &spec);
    let causes = strategy.allocate(&mut second, None, context(&allocator, &[])).unwrap_err();
    assert!(
        causes[0].message.ends_with("failed to allocate IP 10.96.3.4: provided IP is already allocated"),
        "{causes:?}"
    );
    // What is refused for its port has taken no address.
    let mut third = service(
        "third",
        &json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}], "clusterIP": "10.96.3.5"}),
    );
    let causes = strategy.allocate(&mut third, None, context(&allocator, &[])).unwrap_err();
    assert_eq!(
        (&*causes[0].field, &*causes[0].message),
        ("spec.ports[0].nodePort", "Invalid value: 30080: provided port is already allocated")
    );
    assert_eq!(allocator.take_address("10.96.3.5".parse().unwrap()), Ok(()));
    strategy.release(&first, None, &allocator);
    assert_eq!(strategy.allocate(&mut second, None, context(&allocator, &[])), Ok(()));
}

#[test]
fn a_service_that_turns_inward_keeps_its_address_and_gives_up_its_port() {
    let allocator = Allocator::default();
    let strategy = &kind("", "v1", "Service").strategy;
    let mut old = service("web", &json!({"type": "NodePort", "ports": [{"port": 80}]}));
    strategy.allocate(&mut old, None, context(&allocator, &[])).unwrap();
    assert_eq!(old["spec"]["ports"][0]["nodePort"], 30000);
    let mut new = old.clone();
    new["spec"]["type"] = "ClusterIP".into();
    strategy.default(&mut new);
    strategy.prepare_for_update(&mut new, &old, context(&ADDRESSES, &[]));
    strategy.allocate(&mut new, Some(&old), context(&allocator, &[])).unwrap();
    assert_eq!(new["spec"]["clusterIP"], old["spec"]["clusterIP"]);
    assert_eq!(new["spec"]["ports"][0].get("nodePort"), None);
    strategy.release(&old, Some(&new), &allocator);
    assert_eq!(allocator.any_port(), Ok(30000));
    let held = new["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    assert_eq!(allocator.take_address(held), Err(Refusal::Taken));
}

#[test]
fn an_autoscaler_is_the_same_through_both_versions() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let metric = |kind: &str, field: &str, source: Value| json!({"type": kind, field: source});
    let stored = json!({
        "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5,
            "metrics": [
                metric("Pods", "pods", json!({"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}})),
                metric("Object", "object", json!({
                    "describedObject": target, "target": {"type": "Value", "value": "7"}, "metric": {"name": "o"},
                })),
                metric("External", "external", json!({"metric": {"name": "e"}, "target": {"type": "Value", "value": "9"}})),
                metric("Resource", "resource", json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}})),
            ],
            "behavior": {"scaleDown": {
                "stabilizationWindowSeconds": 60, "selectPolicy": "Max",
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
            }},
        },
        "status": {"currentReplicas": 1, "desiredReplicas": 2, "currentMetrics": [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "10m", "averageUtilization": 5}}},
        ], "conditions": [{"type": "AbleToScale", "status": "True"}]},
    });
    let (v1, v2) =
        (kind("autoscaling", "v1", "HorizontalPodAutoscaler"), kind("autoscaling", "v2", "HorizontalPodAutoscaler"));
    let old = v1.strategy.from_storage(stored.clone()).unwrap();
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(old["status"]["currentCPUUtilizationPercentage"], 5);
    assert_eq!(old["spec"].get("metrics"), None);
    let back = v1.strategy.to_storage(old).unwrap();
    let canonical = |mut object: Value| {
        v2.strategy.canonicalize(&mut object);
        object
    };
    let (mut back, mut stored) = (canonical(back), canonical(stored));
    back["metadata"] = json!({});
    stored["metadata"] = json!({});
    assert_eq!(back, stored);
}

#[test]
fn an_event_is_the_same_through_both_groups() {
    let strategy = &kind("events.k8s.io", "v1", "Event").strategy;
    let stored = json!({
        "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "message": "m",
        "source": {"component": "c"}, "count": 3, "reportingComponent": "r",
    });
    let seen = strategy.from_storage(stored.clone()).unwrap();
    assert_eq!(
        (&seen["note"], &seen["regarding"]["kind"], &seen["deprecatedCount"]),
        (&"m".into(), &"Pod".into(), &3.into())
    );
    assert_eq!((&seen["apiVersion"], &seen["reportingController"]), (&"events.k8s.io/v1".into(), &"r".into()));
    assert_eq!(strategy.to_storage(seen).unwrap(), stored);
}

#[test]
fn a_pod_needs_its_service_account() {
    let strategy = &kind("", "v1", "Pod").strategy;
    let mut pod = json!({
        "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    strategy.default(&mut pod);
    let allocator = Allocator::default();
    let wanted = strategy.wants(&pod);
    assert!(
        wanted.iter().any(|wanted| wanted.plural == "serviceaccounts" && wanted.name.as_deref() == Some("default"))
    );
    let status = strategy.admit(&mut pod, context(&allocator, &[])).unwrap_err();
    assert_eq!(
        status.message,
        "pods \"web\" is forbidden: error looking up service account shop/default: serviceaccount \"default\" not found"
    );
    let account = [json!({"kind": "ServiceAccount", "metadata": {"name": "default"}})];
    assert!(strategy.admit(&mut pod, context(&allocator, &account)).is_ok());
    assert_eq!(pod["spec"]["volumes"][0]["name"], "kube-api-access-abcde");
}

#[test]
fn a_status_changes_by_its_own_path_alone() {
    let strategy = &kind("apps", "v1", "Deployment").strategy;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut old = json!({
        "kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web", "labels": {"x": "y"}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    strategy.default(&mut old);
    strategy.prepare_for_create(&mut old, context(&ADDRESSES, &[]));
    strategy.canonicalize(&mut old);
    assert_eq!(old["metadata"]["generation"], 1);
    let mut asked = old.clone();
    asked["spec"]["replicas"] = 7.into();
    asked["metadata"]["labels"] = json!({"z": "z"});
    asked["metadata"]["annotations"] = json!({"note": "n"});
    asked["status"] = json!({"replicas": 3});
    let mut by_status = asked.clone();
    strategy.prepare_for_status_update(&mut by_status, &old);
    assert_eq!(by_status["spec"], old["spec"]);
    assert_eq!(
        (&by_status["metadata"]["labels"], &by_status["metadata"]["annotations"]["note"]),
        (&json!({"x": "y"}), &"n".into())
    );
    assert_eq!((&by_status["status"]["replicas"], &by_status["metadata"]["generation"]), (&3.into(), &1.into()));
    strategy.prepare_for_update(&mut asked, &old, context(&ADDRESSES, &[]));
    assert_eq!(asked["status"], old["status"]);
    assert_eq!((&asked["spec"]["replicas"], &asked["metadata"]["generation"]), (&7.into(), &2.into()));
}

#[test]
fn a_pod_on_a_node_is_given_time_to_end() {
    let strategy = &kind("", "v1", "Pod").strategy;
    let pod = |node: &str, phase: &str| json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 30}, "status": {"phase": phase}});
    assert_eq!(strategy.grace_seconds(&pod("n", "Running"), None), Some(30));
    assert_eq!(strategy.grace_seconds(&pod("n", "Running"), Some(5)), Some(5));
    assert_eq!(strategy.grace_seconds(&pod("n", "Running"), Some(0)), Some(0));
    assert_eq!(strategy.grace_seconds(&pod("", "Pending"), None), Some(0));
    assert_eq!(strategy.grace_seconds(&pod("n", "Succeeded"), None), Some(0));
}
