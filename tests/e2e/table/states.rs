//! Objects of every kind in many states: where they go, and what they are. A status is written through `/status`.

#![allow(clippy::too_many_lines, reason = "lists of data")]

use serde_json::{Value, json};

const OLD: &str = "2021-03-04T05:06:07Z";
const CSR: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn object(api_version: &str, kind: &str, name: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    for (key, value) in more.as_object().unwrap() {
        if key == "metadata" {
            value.as_object().unwrap().iter().for_each(|(key, value)| object["metadata"][key] = value.clone());
        } else {
            object[key] = value.clone();
        }
    }
    object
}

/// Every collection and one object for it.
pub(super) fn all() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (path, objects) in
        [pods(), workloads(), network(), storage(), access(), cluster(), autoscalers(), events(), devices()].concat()
    {
        all.extend(objects.into_iter().map(|object| (path.to_owned(), object)));
    }
    all
}

type Kinds = Vec<(&'static str, Vec<Value>)>;

fn pod(name: &str, spec: Value, status: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]});
    spec.as_object().unwrap().iter().for_each(|(key, value)| whole[key] = value.clone());
    object("v1", "Pod", name, json!({"spec": whole, "status": status}))
}

fn container(name: &str, restarts: u32, ready: bool, state: Value, last: Value) -> Value {
    json!({"name": name, "restartCount": restarts, "ready": ready, "image": "a:1", "imageID": "", "state": state, "lastState": last})
}

fn pods() -> Kinds {
    let running = json!({"running": {"startedAt": OLD}});
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let ended = |code: i32, signal: i32, reason: &str| json!({"terminated": {"exitCode": code, "signal": signal, "reason": reason, "finishedAt": OLD}});
    let ready = json!([{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}]);
    let main = |a: Value, b: Value| {
        json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "conditions": ready,
            "containerStatuses": [container("a", 3, true, a, ended(1, 0, "Error")), container("b", 0, true, b, json!({}))]})
    };
    let init = |state: Value| json!({"phase": "Pending", "initContainerStatuses": [container("i", 2, false, state, ended(1, 0, "Error"))]});
    let inits = json!({"initContainers": [{"name": "i", "image": "i:1"}, {"name": "s", "image": "s:1", "restartPolicy": "Always"}]});
    let sidecar = json!({"phase": "Running", "conditions": ready, "initContainerStatuses": [
            container("i", 5, true, ended(0, 0, "Completed"), json!({})),
            {"name": "s", "restartCount": 2, "ready": true, "started": true, "image": "s", "imageID": "", "state": running, "lastState": ended(2, 0, "Error")}],
        "containerStatuses": [container("a", 1, true, running.clone(), json!({})), container("b", 0, false, waiting("CrashLoopBackOff"), json!({}))]});
    let gates = json!({"readinessGates": [{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}]});
    let gated = json!({"phase": "Running", "conditions": [{"type": "example.com/a", "status": "True"}, {"type": "example.com/b", "status": "False"}],
        "nominatedNodeName": "node-9"});
    let doomed = |name: &str, status: Value| {
        let mut pod = pod(name, json!({}), status);
        pod["metadata"]["finalizers"] = json!(["example.com/keep"]);
        pod
    };
    let phase = |phase: &str, reason: &str| json!({"phase": phase, "reason": reason});
    vec![(
        "/api/v1/namespaces/shop/pods",
        vec![
            pod("new", json!({}), json!({})),
            pod("running", json!({"nodeName": "node-x"}), main(running.clone(), running.clone())),
            pod("crashing", json!({}), main(waiting("CrashLoopBackOff"), running.clone())),
            pod("pulling", json!({}), main(waiting("ImagePullBackOff"), waiting("ErrImagePull"))),
            pod("half", json!({}), main(ended(0, 0, "Completed"), running.clone())),
            pod("failed-half", json!({}), main(ended(0, 0, "Completed"), ended(3, 0, "Error"))),
            pod("signal", json!({}), main(ended(0, 9, ""), running)),
            pod("code", json!({}), main(ended(7, 0, ""), ended(8, 0, ""))),
            pod("init-waiting", inits.clone(), init(waiting("PodInitializing"))),
            pod("init-crashing", inits.clone(), init(waiting("CrashLoopBackOff"))),
            pod("init-failed", inits.clone(), init(ended(1, 0, "Error"))),
            pod("init-signal", inits.clone(), init(ended(1, 9, ""))),
            pod("init-code", inits.clone(), init(ended(4, 0, ""))),
            pod("sidecar", inits, sidecar),
            pod("gates", gates, gated),
            pod("done", json!({}), phase("Succeeded", "")),
            pod("evicted", json!({}), phase("Failed", "Evicted")),
            pod("scheduling-gated", json!({"schedulingGates": [{"name": "example.com/wait"}]}), json!({})),
            doomed("doom", phase("Running", "")),
            doomed("doomed-lost", phase("Running", "NodeLost")),
            doomed("doomed-done", phase("Succeeded", "")),
        ],
    )]
}

fn workloads() -> Kinds {
    let expressions = json!([{"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "x", "operator": "Exists"},
        {"key": "y", "operator": "DoesNotExist"}, {"key": "z", "operator": "NotIn", "values": ["q"]}]);
    let labels = json!({"app": "web", "tier": "a", "x": "1"});
    let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": expressions});
    let template = |more: Value| {
        let mut spec = json!({"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:2"}]});
        more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
        json!({"metadata": {"labels": labels}, "spec": spec})
    };
    let plain = template(json!({}));
    let numbers = json!({"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2});
    let once = template(json!({"restartPolicy": "Never"}));
    let job = |name: &str, mut spec: Value, status: Value| {
        spec["template"] = once.clone();
        object("batch/v1", "Job", name, json!({"spec": spec, "status": status}))
    };
    let cron = |name: &str, mut spec: Value, status: Value| {
        spec["jobTemplate"] = json!({"spec": {"template": once}});
        object("batch/v1", "CronJob", name, json!({"spec": spec, "status": status}))
    };
    let condition = |type_: &str| json!({"conditions": [{"type": type_, "status": "True"}], "startTime": OLD});
    vec![
        (
            "/apis/apps/v1/namespaces/shop/deployments",
            vec![
                object(
                    "apps/v1",
                    "Deployment",
                    "web",
                    json!({"spec": {"replicas": 3, "selector": selector, "template": plain}, "status": numbers}),
                ),
                object(
                    "apps/v1",
                    "Deployment",
                    "idle",
                    json!({"spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": plain}}),
                ),
            ],
        ),
        (
            "/apis/apps/v1/namespaces/shop/replicasets",
            vec![object(
                "apps/v1",
                "ReplicaSet",
                "web-1",
                json!({"spec": {"replicas": 3, "selector": selector, "template": plain}, "status": numbers}),
            )],
        ),
        (
            "/apis/apps/v1/namespaces/shop/statefulsets",
            vec![object(
                "apps/v1",
                "StatefulSet",
                "db",
                json!({"spec": {"replicas": 3, "serviceName": "db", "selector": selector, "template": plain}, "status": numbers}),
            )],
        ),
        (
            "/apis/apps/v1/namespaces/shop/daemonsets",
            vec![
                object(
                    "apps/v1",
                    "DaemonSet",
                    "agent",
                    json!({"spec": {"selector": selector, "template": template(json!({"nodeSelector": {"b": "1", "a": "2"}}))},
                "status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2, "numberAvailable": 1, "numberMisscheduled": 0}}),
                ),
                object(
                    "apps/v1",
                    "DaemonSet",
                    "none",
                    json!({"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": plain}}),
                ),
            ],
        ),
        (
            "/apis/apps/v1/namespaces/shop/controllerrevisions",
            vec![
                object(
                    "apps/v1",
                    "ControllerRevision",
                    "r1",
                    json!({"revision": 7, "data": {}, "metadata": {"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "11111111-2222-3333-4444-555555555555", "controller": true}]}}),
                ),
                object("apps/v1", "ControllerRevision", "r2", json!({"revision": 8, "data": {}})),
            ],
        ),
        (
            "/api/v1/namespaces/shop/replicationcontrollers",
            vec![object(
                "v1",
                "ReplicationController",
                "old",
                json!({"spec": {"replicas": 2, "selector": {"app": "web", "a": "b"}, "template":
                {"metadata": {"labels": {"app": "web", "a": "b"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}, "status": {"replicas": 1}}),
            )],
        ),
        ("/api/v1/namespaces/shop/podtemplates", vec![object("v1", "PodTemplate", "form", json!({"template": plain}))]),
        (
            "/apis/batch/v1/namespaces/shop/jobs",
            vec![
                job("new", json!({}), json!({})),
                job("many", json!({"completions": 5, "parallelism": 2}), json!({"succeeded": 2, "startTime": OLD})),
                job("pool", json!({"parallelism": 3}), json!({"succeeded": 1, "startTime": OLD})),
                job(
                    "done",
                    json!({}),
                    json!({"succeeded": 1, "startTime": OLD, "completionTime": "2021-03-04T06:07:07Z", "ready": 0,
                "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]}),
                ),
                job(
                    "suspended",
                    json!({"suspend": true}),
                    json!({"conditions": [{"type": "Suspended", "status": "True"}]}),
                ),
                job("failing", json!({}), condition("FailureTarget")),
            ],
        ),
        (
            "/apis/batch/v1/namespaces/shop/cronjobs",
            vec![
                cron(
                    "hourly",
                    json!({"schedule": "0 * * * *", "timeZone": "Europe/Berlin", "suspend": true}),
                    json!({"lastScheduleTime": OLD, "active": [{"kind": "Job", "name": "x"}]}),
                ),
                cron("daily", json!({"schedule": "@daily"}), json!({})),
            ],
        ),
        (
            "/apis/policy/v1/namespaces/shop/poddisruptionbudgets",
            vec![
                object(
                    "policy/v1",
                    "PodDisruptionBudget",
                    "min",
                    json!({"spec": {"minAvailable": 2, "selector": {}}, "status":
                {"disruptionsAllowed": 3, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}}),
                ),
                object(
                    "policy/v1",
                    "PodDisruptionBudget",
                    "max",
                    json!({"spec": {"maxUnavailable": "30%", "selector": {}}}),
                ),
            ],
        ),
    ]
}

fn network() -> Kinds {
    let service =
        |name: &str, spec: Value, status: Value| object("v1", "Service", name, json!({"spec": spec, "status": status}));
    let ports = json!([{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    let balanced = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}, {"hostname": "b.example.com"}, {"ip": "203.0.113.10"}]}});
    let ingress = |name: &str, hosts: &[&str], more: Value| {
        let rules: Vec<Value> = hosts
            .iter()
            .map(|host| {
                json!({"host": host, "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}})
            })
            .collect();
        let mut spec = json!({"rules": rules});
        more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
        object("networking.k8s.io/v1", "Ingress", name, json!({"spec": spec, "status": balanced}))
    };
    let addresses = |count: u8| (1..=count).map(|at| json!({"ip": format!("10.1.0.{at}")})).collect::<Vec<_>>();
    let slice = |name: &str, count: u8, ports: Value| {
        let endpoints: Vec<Value> = (1..=count).map(|at| json!({"addresses": [format!("10.1.0.{at}")]})).collect();
        object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            name,
            json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports}),
        )
    };
    vec![
        (
            "/api/v1/namespaces/shop/services",
            vec![
                service("plain", json!({"ports": ports, "selector": {"b": "1", "a": "2"}}), json!({})),
                service("headless", json!({"clusterIP": "None", "selector": {"a": "b"}}), json!({})),
                service("external", json!({"ports": ports, "externalIPs": ["192.0.2.1", "192.0.2.2"]}), json!({})),
                service("node", json!({"type": "NodePort", "ports": ports}), json!({})),
                service("pending", json!({"type": "LoadBalancer", "ports": ports}), json!({})),
                service("balanced", json!({"type": "LoadBalancer", "ports": ports}), balanced.clone()),
                service(
                    "both",
                    json!({"type": "LoadBalancer", "ports": ports, "externalIPs": ["192.0.2.1"]}),
                    balanced.clone(),
                ),
                service("name", json!({"type": "ExternalName", "externalName": "example.com"}), json!({})),
            ],
        ),
        (
            "/api/v1/namespaces/shop/endpoints",
            vec![
                object("v1", "Endpoints", "none", json!({})),
                object(
                    "v1",
                    "Endpoints",
                    "many",
                    json!({"subsets": [{"addresses": addresses(2), "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}, {"addresses": addresses(2)}]}),
                ),
                object(
                    "v1",
                    "Endpoints",
                    "six",
                    json!({"subsets": [{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 443}]}]}),
                ),
                object(
                    "v1",
                    "Endpoints",
                    "away",
                    json!({"subsets": [{"notReadyAddresses": addresses(1), "ports": [{"port": 443}]}]}),
                ),
            ],
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices",
            vec![
                slice("none", 0, json!([])),
                slice("any", 2, Value::Null),
                slice(
                    "many",
                    5,
                    json!([{"name": "a", "port": 1}, {"name": "b"}, {"name": "c", "port": 3}, {"name": "d", "port": 4}]),
                ),
            ],
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/shop/ingresses",
            vec![
                ingress("plain", &["", "a.example.com"], json!({})),
                ingress("any", &[""], json!({"ingressClassName": "nginx"})),
                ingress(
                    "many",
                    &["a.example.com", "b.example.com", "c.example.com", "d.example.com", "e.example.com"],
                    json!({"tls": [{"hosts": ["a.example.com"]}]}),
                ),
            ],
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses",
            vec![
                object(
                    "networking.k8s.io/v1",
                    "IngressClass",
                    "nginx",
                    json!({"metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}, "spec": {"controller": "example.com/nginx"}}),
                ),
                object(
                    "networking.k8s.io/v1",
                    "IngressClass",
                    "other",
                    json!({"spec": {"controller": "example.com/x", "parameters": {"apiGroup": "example.com", "kind": "Set", "name": "x"}}}),
                ),
            ],
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies",
            vec![
                object("networking.k8s.io/v1", "NetworkPolicy", "all", json!({"spec": {"podSelector": {}}})),
                object(
                    "networking.k8s.io/v1",
                    "NetworkPolicy",
                    "some",
                    json!({"spec": {"podSelector": {"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["x"]}]}}}),
                ),
            ],
        ),
    ]
}

fn storage() -> Kinds {
    let claim = |name: &str, mut spec: Value, status: Value| {
        spec["resources"] = json!({"requests": {"storage": "1Gi"}});
        object("v1", "PersistentVolumeClaim", name, json!({"spec": spec, "status": status}))
    };
    let volume = |name: &str, mut spec: Value, status: Value| {
        spec["capacity"] = json!({"storage": "1536Mi"});
        spec["hostPath"] = json!({"path": "/x"});
        object("v1", "PersistentVolume", name, json!({"spec": spec, "status": status}))
    };
    let class = |name: &str, more: Value| {
        let mut class = object("storage.k8s.io/v1", "StorageClass", name, more);
        class["provisioner"] = json!("example.com/disk");
        class
    };
    vec![
        (
            "/api/v1/persistentvolumes",
            vec![
                volume(
                    "disk",
                    json!({"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "claimRef": {"namespace": "shop", "name": "disk"}, "storageClassName": "fast"}),
                    json!({"phase": "Bound", "reason": "x"}),
                ),
                volume(
                    "free",
                    json!({"accessModes": ["ReadWriteOncePod"], "persistentVolumeReclaimPolicy": "Recycle", "volumeMode": "Block"}),
                    json!({"phase": "Available"}),
                ),
            ],
        ),
        (
            "/api/v1/namespaces/shop/persistentvolumeclaims",
            vec![
                claim("new", json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}), json!({})),
                claim(
                    "disk",
                    json!({"accessModes": ["ReadWriteOnce"], "volumeName": "disk", "storageClassName": ""}),
                    json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1536Mi"}}),
                ),
            ],
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            vec![
                class(
                    "fast",
                    json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "allowVolumeExpansion": true}),
                ),
                class("slow", json!({"reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"})),
            ],
        ),
        (
            "/apis/storage.k8s.io/v1/csidrivers",
            vec![
                object("storage.k8s.io/v1", "CSIDriver", "a.example.com", json!({"spec": {}})),
                object(
                    "storage.k8s.io/v1",
                    "CSIDriver",
                    "b.example.com",
                    json!({"spec": {"attachRequired": false, "podInfoOnMount": true, "storageCapacity": true, "requiresRepublish": true,
                "tokenRequests": [{"audience": "x"}, {"audience": "y"}], "volumeLifecycleModes": ["Persistent", "Ephemeral"]}}),
                ),
            ],
        ),
        (
            "/apis/storage.k8s.io/v1/csinodes",
            vec![object(
                "storage.k8s.io/v1",
                "CSINode",
                "node-x",
                json!({"spec": {"drivers": [{"name": "a.example.com", "nodeID": "x", "topologyKeys": null}]}}),
            )],
        ),
        (
            "/apis/storage.k8s.io/v1/namespaces/shop/csistoragecapacities",
            vec![object(
                "storage.k8s.io/v1",
                "CSIStorageCapacity",
                "c",
                json!({"storageClassName": "fast", "capacity": "1Gi"}),
            )],
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            vec![object(
                "storage.k8s.io/v1",
                "VolumeAttachment",
                "a",
                json!({"spec": {"attacher": "a.example.com", "nodeName": "node-x", "source": {"persistentVolumeName": "disk"}}, "status": {"attached": true}}),
            )],
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattributesclasses",
            vec![object(
                "storage.k8s.io/v1",
                "VolumeAttributesClass",
                "gold",
                json!({"driverName": "a.example.com", "parameters": {"a": "b"}}),
            )],
        ),
    ]
}

fn access() -> Kinds {
    let subjects = json!([{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"},
        {"kind": "Group", "name": "dev", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount", "name": "x", "namespace": "shop"}]);
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let rbac = "rbac.authorization.k8s.io/v1";
    let admission = "admissionregistration.k8s.io/v1";
    let hook = |name: &str| {
        json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "failurePolicy": "Ignore", "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["nothings"], "operations": ["CREATE"]}]})
    };
    let constraints = json!({"resourceRules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["nothings"], "operations": ["CREATE"]}]});
    let binding = |name: &str, param: Value| {
        object(
            admission,
            "ValidatingAdmissionPolicyBinding",
            name,
            json!({"spec": {"policyName": "p", "validationActions": ["Deny"], "paramRef": param}}),
        )
    };
    vec![
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings",
            vec![
                object(rbac, "RoleBinding", "all", json!({"roleRef": role, "subjects": subjects})),
                object(rbac, "RoleBinding", "none", json!({"roleRef": role})),
            ],
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            vec![object(rbac, "ClusterRoleBinding", "all", json!({"roleRef": role, "subjects": subjects}))],
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles",
            vec![object(rbac, "Role", "r", json!({"rules": rules}))],
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            vec![object(rbac, "ClusterRole", "r", json!({"rules": rules}))],
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            vec![object(
                admission,
                "ValidatingWebhookConfiguration",
                "two",
                json!({"webhooks": [hook("a.example.com"), hook("b.example.com")]}),
            )],
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            vec![
                object(admission, "MutatingWebhookConfiguration", "one", json!({"webhooks": [hook("a.example.com")]})),
                object(admission, "MutatingWebhookConfiguration", "none", json!({})),
            ],
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            vec![
                object(
                    admission,
                    "ValidatingAdmissionPolicy",
                    "p",
                    json!({"spec": {"matchConstraints": constraints, "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "true"}, {"expression": "1 < 2"}]}}),
                ),
                object(
                    admission,
                    "ValidatingAdmissionPolicy",
                    "q",
                    json!({"spec": {"matchConstraints": constraints, "validations": [{"expression": "true"}]}}),
                ),
            ],
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
            vec![
                binding("named", json!({"name": "x", "namespace": "shop", "parameterNotFoundAction": "Deny"})),
                binding("anywhere", json!({"name": "x", "parameterNotFoundAction": "Deny"})),
                binding(
                    "selected",
                    json!({"selector": {"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["x", "y"]}]}, "parameterNotFoundAction": "Deny"}),
                ),
                binding("none", Value::Null),
            ],
        ),
        (CSR, super::requests()),
    ]
}

fn cluster() -> Kinds {
    let node = |name: &str, labels: Value, spec: Value, status: Value| {
        object("v1", "Node", name, json!({"metadata": {"labels": labels}, "spec": spec, "status": status}))
    };
    let info = json!({"kubeletVersion": "v1.36.3", "osImage": "Debian", "kernelVersion": "6.1", "containerRuntimeVersion": "containerd://2", "architecture": "arm64",
        "bootID": "", "machineID": "", "systemUUID": "", "operatingSystem": "linux", "kubeProxyVersion": ""});
    let addresses = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "203.0.113.1"}, {"type": "InternalIP", "address": "10.0.0.2"}]);
    let flow = |name: &str, precedence: u32, more: Value| {
        let mut spec =
            json!({"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": "global-default"}});
        more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
        object("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", name, json!({"spec": spec}))
    };
    vec![
        (
            "/api/v1/nodes",
            vec![
                node("bare", json!({}), json!({}), json!({})),
                node(
                    "ready",
                    json!({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "edge"}),
                    json!({"unschedulable": true}),
                    json!({"conditions": [{"type": "Ready", "status": "True"}], "addresses": addresses, "nodeInfo": info}),
                ),
                node(
                    "away",
                    json!({}),
                    json!({}),
                    json!({"conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "Unknown"}]}),
                ),
            ],
        ),
        (
            "/api/v1/namespaces/shop/configmaps",
            vec![
                object(
                    "v1",
                    "ConfigMap",
                    "three",
                    json!({"data": {"a": "1", "b": "<&>"}, "binaryData": {"c": "AA=="}}),
                ),
                object("v1", "ConfigMap", "none", json!({})),
            ],
        ),
        (
            "/api/v1/namespaces/shop/secrets",
            vec![
                object("v1", "Secret", "one", json!({"data": {"a": "AA=="}})),
                object("v1", "Secret", "tls", json!({"type": "example.com/x", "stringData": {"a": "1", "b": "2"}})),
            ],
        ),
        ("/api/v1/namespaces/shop/serviceaccounts", vec![object("v1", "ServiceAccount", "robot", json!({}))]),
        (
            "/api/v1/namespaces/shop/limitranges",
            vec![object("v1", "LimitRange", "l", json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}}))],
        ),
        (
            "/api/v1/namespaces/calm/resourcequotas",
            vec![
                object(
                    "v1",
                    "ResourceQuota",
                    "some",
                    json!({"spec": {"hard": {"pods": "10", "limits.cpu": "4", "requests.cpu": "2"}},
                "status": {"hard": {"pods": "10", "limits.cpu": "4", "limits.memory": "2Gi", "requests.cpu": "2", "cpu": "1500m"}, "used": {"pods": "3", "limits.cpu": "500m"}}}),
                ),
                object("v1", "ResourceQuota", "new", json!({"spec": {"hard": {"pods": "10"}}})),
            ],
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/shop/leases",
            vec![
                object("coordination.k8s.io/v1", "Lease", "held", json!({"spec": {"holderIdentity": "me"}})),
                object("coordination.k8s.io/v1", "Lease", "free", json!({"spec": {}})),
            ],
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            vec![
                object(
                    "scheduling.k8s.io/v1",
                    "PriorityClass",
                    "high",
                    json!({"value": 1000, "globalDefault": true, "preemptionPolicy": "Never"}),
                ),
                object("scheduling.k8s.io/v1", "PriorityClass", "low", json!({"value": -5})),
            ],
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses",
            vec![object("node.k8s.io/v1", "RuntimeClass", "gvisor", json!({"handler": "runsc"}))],
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            vec![
                flow("z-first", 5, json!({"distinguisherMethod": {"type": "ByUser"}})),
                flow("a-last", 9999, json!({})),
            ],
        ),
        (
            "/apis/apiregistration.k8s.io/v1/apiservices",
            vec![object(
                "apiregistration.k8s.io/v1",
                "APIService",
                "v1.away.example.com",
                json!({"spec": {"group": "away.example.com", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10,
                "insecureSkipTLSVerify": true, "service": {"namespace": "shop", "name": "none"}}}),
            )],
        ),
    ]
}

fn autoscalers() -> Kinds {
    let scaler = |name: &str, min: Value, metrics: Value, current: Value| {
        object(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            name,
            json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": min, "maxReplicas": 9, "metrics": metrics},
            "status": {"currentReplicas": 3, "desiredReplicas": 4, "currentMetrics": current}}),
        )
    };
    let metric = json!({"name": "hits"});
    let object_of = json!({"apiVersion": "v1", "kind": "Service", "name": "web"});
    vec![(
        "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers",
        vec![
            scaler("plain", Value::Null, Value::Null, json!([])),
            scaler(
                "cpu",
                json!(2),
                json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}]),
                json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 55, "averageValue": "550m"}}}]),
            ),
            scaler(
                "memory",
                json!(2),
                json!([{"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "100Mi"}}}]),
                json!([{"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "64Mi"}}}]),
            ),
            scaler(
                "pods",
                json!(1),
                json!([{"type": "Pods", "pods": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1500m"}}},
            {"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "30"}}}]),
                json!([{"type": "Pods", "pods": {"metric": metric, "current": {"averageValue": "2"}}}, {"type": "External", "external": {"metric": metric, "current": {"value": "12"}}}]),
            ),
            scaler(
                "many",
                json!(1),
                json!([
            {"type": "Object", "object": {"describedObject": object_of, "metric": metric, "target": {"type": "Value", "value": "2k"}}},
            {"type": "External", "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "30"}}},
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "a", "target": {"type": "Utilization", "averageUtilization": 60}}}]),
                json!([{"type": "Object", "object": {"describedObject": object_of, "metric": metric, "current": {"value": "1k"}}}]),
            ),
            scaler(
                "container",
                json!(1),
                json!([{"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "a", "target": {"type": "Utilization", "averageUtilization": 60}}},
            {"type": "Object", "object": {"describedObject": object_of, "metric": metric, "target": {"type": "AverageValue", "averageValue": "10"}}}]),
                json!([]),
            ),
        ],
    )]
}

fn events() -> Kinds {
    let event = |name: &str, more: Value| {
        let mut event = object(
            "v1",
            "Event",
            name,
            json!({"involvedObject": {"kind": "Pod", "namespace": "shop", "name": "running", "fieldPath": "spec.containers{a}"},
            "reason": "Pulled", "message": "  pulled \"a:1\" <in> 3s \n", "type": "Normal"}),
        );
        more.as_object().unwrap().iter().for_each(|(key, value)| event[key] = value.clone());
        event
    };
    let later = "2022-01-01T00:00:00.123456Z";
    vec![(
        "/api/v1/namespaces/shop/events",
        vec![
            event(
                "old",
                json!({"firstTimestamp": OLD, "lastTimestamp": "2022-05-05T05:05:05Z", "count": 4, "source": {"component": "kubelet", "host": "node-x"}}),
            ),
            event("single", json!({"firstTimestamp": OLD, "source": {"component": "kubelet"}})),
            event(
                "series",
                json!({"eventTime": later, "series": {"count": 9, "lastObservedTime": "2023-01-01T00:00:00.000000Z"}, "reportingComponent": "example.com/x", "reportingInstance": "x-0", "action": "Do"}),
            ),
            event("timeless", json!({})),
            event("kind-only", json!({"involvedObject": {"kind": "Node", "namespace": "shop"}, "firstTimestamp": OLD})),
        ],
    )]
}

fn devices() -> Kinds {
    let requests = json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}});
    vec![
        (
            "/apis/resource.k8s.io/v1/deviceclasses",
            vec![object("resource.k8s.io/v1", "DeviceClass", "gpu", json!({"spec": {}}))],
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims",
            vec![
                object("resource.k8s.io/v1", "ResourceClaim", "new", json!({"spec": requests})),
                object(
                    "resource.k8s.io/v1",
                    "ResourceClaim",
                    "held",
                    json!({"spec": requests, "status": {"allocation": {"devices": {"results": [{"request": "gpu", "driver": "a.example.com", "pool": "p", "device": "d"}]}},
                "reservedFor": [{"resource": "pods", "name": "running", "uid": "11111111-2222-3333-4444-555555555555"}]}}),
                ),
            ],
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaimtemplates",
            vec![object("resource.k8s.io/v1", "ResourceClaimTemplate", "t", json!({"spec": {"spec": requests}}))],
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            vec![object(
                "resource.k8s.io/v1",
                "ResourceSlice",
                "s",
                json!({"spec": {"driver": "a.example.com", "nodeName": "node-x",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d"}]}}),
            )],
        ),
    ]
}
