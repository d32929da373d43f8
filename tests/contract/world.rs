//! The clusters, what they hold, and who is asked.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::target::Target;
use testbed::{
    Api, FleetFile, Kubefold, Member, MemberOptions, Testbed, eventually,
    samples::{config_map, controlled_pod, create_all, deployment, namespace},
};

const SOON: Duration = Duration::from_secs(30);

/// Everything that runs while the contract is checked.
pub(crate) struct World {
    pub(crate) bed: Testbed,
    /// (a): each member by itself.
    pub(crate) members: Vec<Target>,
    /// (b): kubefold over the first of them, `names: plain`.
    pub(crate) plain: Target,
    /// (b'): the same with the names that it gives.
    pub(crate) suffixed: Target,
    /// (c): kubefold over all.
    pub(crate) several: Target,
    _kubefolds: [Kubefold; 3],
}

impl World {
    pub(crate) async fn start() -> Self {
        let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
        let hold = async |member: &Member| {
            fill(member).await;
            let target = Target::new(member.name(), member.api().await, "").await;
            // A name with a member in it is none of another member's.
            let at = if member.name() == "east" { String::new() } else { "-of-another".to_owned() };
            Target { at, ..target }
        };
        let members = join_all(bed.members().iter().map(hold)).await;
        let east = FleetFile::default().member(&bed["east"], 1);
        let all = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
        let plain = east.clone().settings("names: plain");
        let (plain, suffixed, several) =
            tokio::join!(Kubefold::start(&plain), Kubefold::start(&east), Kubefold::start(&all),);
        Self {
            members,
            plain: Target::new("one member, plain names", plain.api().await, "").await,
            suffixed: Target::new("one member", suffixed.api().await, "@east").await,
            several: Target::new("three members", several.api().await, "@east").await,
            bed,
            _kubefolds: [plain, suffixed, several],
        }
    }
}

/// Texts that a parser in between would write otherwise.
fn awkward() -> Value {
    json!({
        "html": "<a href=\"x\">&amp;</a>", "line": "a\u{2028}b\u{2029}c", "tab": "a\tb\\c/d", "emoji": "\u{1f600}",
        "empty": "", "null-ish": "\u{7f}\u{0}", "email": "joe@example.com",
    })
}

fn object(api_version: &str, kind: &str, name: &str, labels: Value, more: Value) -> Value {
    let metadata = json!({"name": name, "labels": labels, "annotations": {"note": "<&>"}});
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    more.as_object().unwrap().iter().for_each(|(key, value)| object[key] = value.clone());
    object
}

/// A CRD with two served versions and one that is not, `/status`, `/scale` and a selectable field.
fn gadgets() -> Value {
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"color": {"type": "string"}, "replicas": {"type": "integer"}}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"replicas": {"type": "integer"}}},
        },
    }});
    let version = |name: &str, served: bool, storage: bool| {
        json!({
            "name": name, "served": served, "storage": storage, "schema": schema,
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        })
    };
    let names = json!({"kind": "Gadget", "listKind": "GadgetList", "singular": "gadget", "plural": "gadgets", "shortNames": ["gg"]});
    let mut versions = [version("v1", true, true), version("v1beta1", true, false), version("v1alpha1", false, false)];
    versions[1]["deprecated"] = true.into();
    versions[1]["deprecationWarning"] = "gadgets of v1beta1 are \"old\"; use v1".into();
    let spec = json!({"group": "e2e.kubefold.io", "scope": "Namespaced", "names": names, "versions": versions});
    object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "gadgets.e2e.kubefold.io",
        json!({}),
        json!({"spec": spec}),
    )
}

/// A cluster-scoped CRD without subresources.
fn planets() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let names = json!({"kind": "Planet", "plural": "planets"});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    let spec = json!({"group": "e2e.kubefold.io", "scope": "Cluster", "names": names, "versions": versions});
    object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "planets.e2e.kubefold.io",
        json!({}),
        json!({"spec": spec}),
    )
}

/// Where it is created, and what.
fn member_locals() -> Vec<(&'static str, Value)> {
    let web = || json!({"app": "web"});
    let rule = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let port = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "volumeName": "disk", "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}});
    let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    let about = json!({"kind": "Pod", "namespace": "shop", "name": "web-0"});
    let event = json!({"involvedObject": about, "reason": "Tested", "type": "Warning", "message": "a \"b\""});
    let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-0"}}]});
    let numbers = json!({"color": "red", "replicas": 3, "whole": 1, "float": 1.5, "big": 9_007_199_254_740_993_u64, "exp": 1e30, "neg": -0.25, "deep": [[], {}, [null]]});
    let pod = json!({"containers": [{"name": "main", "image": "main:1"}], "restartPolicy": "Never"});
    let job = json!({"template": {"spec": pod}});
    let daemon = json!({"selector": {"matchLabels": web()}, "template": {"metadata": {"labels": web()},
        "spec": {"containers": [{"name": "main", "image": "main:1"}]}}});
    // Of all this `autoscaling/v1` has fields for the least.
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}}});
    let scaler = json!({"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 5,
        "metrics": [memory], "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}});
    let shop = "/api/v1/namespaces/shop";
    let core = |resource: &str| -> &'static str { format!("{shop}/{resource}").leak() };
    vec![
        (core("configmaps"), config_map("a", json!({"app": "web", "tier": "front"}))),
        (core("configmaps"), config_map("a-b", json!({"app": "web"}))),
        (core("configmaps"), config_map("a.b", json!({"app": "api", "tier": ""}))),
        (core("configmaps"), object("v1", "ConfigMap", "texts", json!({}), json!({"data": awkward()}))),
        ("/api/v1/namespaces/shop-2/configmaps", config_map("a", json!({"app": "web"}))),
        (core("secrets"), object("v1", "Secret", "hidden", web(), json!({"data": {"k": "AAEC"}}))),
        (core("secrets"), object("v1", "Secret", "typed", web(), json!({"type": "e2e/x"}))),
        (core("services"), object("v1", "Service", "web", web(), json!({"spec": port}))),
        (core("pods"), controlled_pod("web-0", "web")),
        (core("pods"), object("v1", "Pod", "alone", web(), json!({"spec": pod}))),
        (core("persistentvolumeclaims"), object("v1", "PersistentVolumeClaim", "disk", web(), json!({"spec": claim}))),
        (core("events"), object("v1", "Event", "web-0.1", web(), event)),
        ("/api/v1/persistentvolumes", object("v1", "PersistentVolume", "disk", web(), json!({"spec": volume}))),
        ("/api/v1/nodes", object("v1", "Node", "node-x", web(), json!({}))),
        ("/apis/apps/v1/namespaces/shop/deployments", deployment("web", 2)),
        (
            "/apis/apps/v1/namespaces/shop/daemonsets",
            object("apps/v1", "DaemonSet", "agent", web(), json!({"spec": daemon})),
        ),
        (
            "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers",
            object("autoscaling/v2", "HorizontalPodAutoscaler", "web", web(), json!({"spec": scaler})),
        ),
        ("/apis/batch/v1/namespaces/shop/jobs", object("batch/v1", "Job", "once", web(), json!({"spec": job}))),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            object("rbac.authorization.k8s.io/v1", "ClusterRole", "joe@example.com", web(), json!({"rules": rule})),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices",
            object("discovery.k8s.io/v1", "EndpointSlice", "web-1", web(), slice),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/shop/leases",
            object("coordination.k8s.io/v1", "Lease", "lock", web(), json!({"spec": {"holderIdentity": "me"}})),
        ),
        (
            "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets",
            object("e2e.kubefold.io/v1", "Gadget", "cog", web(), json!({"spec": numbers, "note": awkward()})),
        ),
        (
            "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets",
            object("e2e.kubefold.io/v1", "Gadget", "wheel", json!({}), json!({"spec": {"color": "blue"}})),
        ),
        ("/apis/e2e.kubefold.io/v1/planets", object("e2e.kubefold.io/v1", "Planet", "mars", web(), json!({}))),
    ]
}

/// Every object of [`member_locals`]: its collection and its name.
pub(crate) fn objects() -> Vec<(&'static str, String)> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    member_locals().iter().map(|(path, object)| (*path, name(object))).collect()
}

/// Makes in a member all that the checks read.
async fn fill(member: &Member) {
    for name in ["shop", "shop-2", "empty", "changing"] {
        namespace(member, name).await;
    }
    let api = member.api().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create_all(&api, crds, &[gadgets(), planets()]).await;
    for path in ["/apis/e2e.kubefold.io/v1/gadgets", "/apis/e2e.kubefold.io/v1/planets"] {
        served(&api, path).await;
    }
    for (path, object) in member_locals() {
        create_all(&api, path, &[object]).await;
    }
    create_all(&api, "/api/v1/namespaces/default/events", &[of_a_shared_object(&api).await]).await;
}

/// An event about an object that every member has, and the fleet once.
async fn of_a_shared_object(api: &Api) -> Value {
    let service = api.request(http::Method::GET, "/api/v1/namespaces/default/services/kubernetes", "").await;
    let uid = &service.json()["metadata"]["uid"];
    let about = json!({"kind": "Service", "namespace": "default", "name": "kubernetes", "uid": uid});
    let event = json!({"involvedObject": about, "reason": "Tested", "type": "Warning", "message": "shared"});
    let mut event = object("v1", "Event", "kubernetes.1", json!({}), event);
    event["metadata"]["namespace"] = json!("default");
    event
}

async fn served(api: &Api, path: &str) {
    eventually(SOON, async || {
        let answer = api.request(http::Method::GET, path, "").await;
        if answer.status.is_success() { Ok(()) } else { Err(answer) }
    })
    .await;
}
