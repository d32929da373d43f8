//! What every cluster has: namespaces, nodes, roles, classes, the service of its API.

use serde_json::{Value, json};

use super::{DAYS, PODS_PER_NODE, Planner};
use crate::sim::{
    fields::{count, text},
    node::node_info,
};

const RBAC: &str = "rbac.authorization.k8s.io";
/// Verbs of those who only look.
const READ: [&str; 3] = ["get", "list", "watch"];

impl Planner<'_> {
    pub(super) fn base(&mut self) {
        let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];
        let namespaces: Vec<Value> = namespaces.into_iter().map(|name| self.namespace(name, DAYS * 86_400)).collect();
        self.add("", "Namespace", namespaces);
        self.nodes();
        self.roles();
        self.classes();
        self.kubernetes();
    }

    pub(super) fn namespace(&mut self, name: &str, age: i64) -> Value {
        let mut metadata = self.metadata("", name, age);
        metadata["labels"] = json!({"kubernetes.io/metadata.name": name});
        json!({"metadata": metadata, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    }

    fn nodes(&mut self) {
        let places = std::sync::Arc::clone(&self.places);
        let room = PODS_PER_NODE.max(2 * self.seed.pods / places.len().max(1));
        let nodes = places.iter().enumerate().map(|(place, of)| {
            let mut metadata = self.metadata("", &of.name, DAYS * 86_400 - 60);
            let zone = ["a", "b", "c"][place % 3];
            metadata["labels"] = json!({
                "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": of.name, "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "standard-16",
                "topology.kubernetes.io/region": self.seed.region,
                "topology.kubernetes.io/zone": format!("{}{zone}", self.seed.region),
            });
            metadata["annotations"] = json!({"node.alpha.kubernetes.io/ttl": "0"});
            let since = self.ago(DAYS * 86_400 - 90);
            let beat = self.ago(i64::try_from(place % 280).unwrap_or(0));
            let conditions: Vec<Value> = crate::sim::node::CONDITIONS
                .iter()
                .map(|(kind, status, reason, message)| {
                    json!({
                        "type": kind, "status": status, "lastHeartbeatTime": beat, "lastTransitionTime": since,
                        "reason": reason, "message": message,
                    })
                })
                .collect();
            let amounts = json!({
                "cpu": "16", "ephemeral-storage": "203056560Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
                "memory": "65843636Ki", "pods": room.to_string(),
            });
            json!({
                "metadata": metadata,
                "spec": {"podCIDR": format!("10.{}.{}.0/24", 244 + place / 256 % 8, place % 256)},
                "status": {
                    "capacity": amounts, "allocatable": amounts, "conditions": conditions,
                    "addresses": [
                        {"type": "InternalIP", "address": of.address}, {"type": "Hostname", "address": of.name},
                    ],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                    "nodeInfo": node_info(&of.name, &self.seed.version),
                },
            })
        });
        let nodes: Vec<Value> = nodes.collect();
        self.add("", "Node", nodes);
    }

    /// The roles that people look at. Source: kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`.
    fn roles(&mut self) {
        let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
        let write = ["create", "delete", "deletecollection", "patch", "update", "get", "list", "watch"];
        let namespaced = |verbs: &[&str]| {
            json!([
                {"apiGroups": [""], "resources": ["configmaps", "endpoints", "persistentvolumeclaims", "pods", "pods/log", "replicationcontrollers", "services"], "verbs": verbs},
                {"apiGroups": ["apps"], "resources": ["daemonsets", "deployments", "replicasets", "statefulsets"], "verbs": verbs},
                {"apiGroups": ["batch"], "resources": ["cronjobs", "jobs"], "verbs": verbs},
                {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "networkpolicies"], "verbs": verbs},
            ])
        };
        let discovery = json!([{"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"], "verbs": ["get"]}]);
        let nodes =
            json!([{"apiGroups": [""], "resources": ["nodes", "pods", "services", "endpoints"], "verbs": READ}]);
        let roles = [
            ("admin", namespaced(&write)),
            ("cluster-admin", all),
            ("edit", namespaced(&write)),
            (
                "system:basic-user",
                json!([{"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]}]),
            ),
            ("system:discovery", discovery),
            ("system:kube-controller-manager", nodes.clone()),
            ("system:kube-dns", nodes.clone()),
            ("system:kube-scheduler", nodes.clone()),
            ("system:node", nodes),
            ("view", namespaced(&READ)),
        ];
        let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
        let bootstrap = |planner: &mut Self, name: &str| {
            let mut metadata = planner.metadata("", name, DAYS * 86_400);
            metadata["labels"] = labels.clone();
            metadata["annotations"] = annotations.clone();
            metadata
        };
        let made: Vec<Value> =
            roles.into_iter().map(|(name, rules)| json!({"metadata": bootstrap(self, name), "rules": rules})).collect();
        self.add(RBAC, "ClusterRole", made);
        let bindings = [
            ("cluster-admin", "Group", "system:masters"),
            ("system:basic-user", "Group", "system:authenticated"),
            ("system:discovery", "Group", "system:authenticated"),
            ("system:kube-controller-manager", "User", "system:kube-controller-manager"),
            ("system:kube-scheduler", "User", "system:kube-scheduler"),
        ];
        let made = bindings.into_iter().map(|(role, kind, subject)| {
            json!({
                "metadata": bootstrap(self, role),
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": RBAC, "kind": kind, "name": subject}],
            })
        });
        let made: Vec<Value> = made.collect();
        self.add(RBAC, "ClusterRoleBinding", made);
    }

    fn classes(&mut self) {
        let priorities = [
            (
                "system-cluster-critical",
                2_000_000_000_i64,
                "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
            ),
            (
                "system-node-critical",
                2_000_001_000,
                "Used for system critical pods that must not be moved from their current node.",
            ),
        ];
        let made = priorities.into_iter().map(|(name, value, description)| {
            json!({
                "metadata": self.metadata("", name, DAYS * 86_400), "value": value, "description": description,
                "preemptionPolicy": "PreemptLowerPriority",
            })
        });
        let made: Vec<Value> = made.collect();
        self.add("scheduling.k8s.io", "PriorityClass", made);
        let mut metadata = self.metadata("", "standard", DAYS * 86_400);
        metadata["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        let class = json!({
            "metadata": metadata, "provisioner": "kubefold.io/provisioner", "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
        });
        self.add("storage.k8s.io", "StorageClass", vec![class]);
    }

    /// The service of the API itself, with its endpoints: no pods stand behind it.
    fn kubernetes(&mut self) {
        let labels = json!({"component": "apiserver", "provider": "kubernetes"});
        let ports = json!([{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]);
        let service = self.service("default", "kubernetes", labels, Value::Null, ports, "10.96.0.1", DAYS * 86_400);
        self.add("", "Service", vec![service]);
        let age = DAYS * 86_400;
        let mut metadata = self.metadata("default", "kubernetes", age);
        metadata["labels"] = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
        let port = json!([{"name": "https", "port": 6443, "protocol": "TCP"}]);
        let endpoints =
            json!({"metadata": metadata, "subsets": [{"addresses": [{"ip": "172.18.0.1"}], "ports": port}]});
        self.add("", "Endpoints", vec![endpoints]);
        let mut metadata = self.metadata("default", "kubernetes", age);
        metadata["labels"] = json!({"kubernetes.io/service-name": "kubernetes"});
        let slice = json!({
            "metadata": metadata, "addressType": "IPv4", "ports": port,
            "endpoints": [{"addresses": ["172.18.0.1"], "conditions": {"ready": true}}],
        });
        self.add("discovery.k8s.io", "EndpointSlice", vec![slice]);
    }

    #[allow(clippy::too_many_arguments, reason = "what a service consists of")]
    pub(super) fn service(
        &mut self,
        namespace: &str,
        name: &str,
        labels: Value,
        selector: Value,
        ports: Value,
        address: &str,
        age: i64,
    ) -> Value {
        if let Ok(address) = address.parse() {
            // One that is taken is that of the service that the server began with, which stays.
            let _taken = self.registry.allocator().take_address(address);
        }
        let mut metadata = self.metadata(namespace, name, age);
        metadata["labels"] = labels;
        let mut spec = json!({"clusterIP": address, "clusterIPs": [address], "type": "ClusterIP", "ports": ports});
        if selector.is_object() {
            spec["selector"] = selector;
        }
        let service = json!({"metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}});
        self.defaulted("", "Service", service)
    }

    /// An event of some time ago.
    pub(super) fn event(
        &mut self,
        about: &Value,
        warning: bool,
        reason: &'static str,
        message: &str,
        by: &'static str,
    ) -> Value {
        let age = self.dice.between(20, 3300);
        let namespace = text(about, "/metadata/namespace").to_owned();
        let at = crate::sim::fields::seconds_later(self.now, -age);
        let nanos = at.as_nanosecond() + i128::from(self.dice.between(0, 1_000_000_000));
        let name = format!("{}.{nanos:x}", text(about, "/metadata/name"));
        let involved = json!({
            "kind": about["kind"], "namespace": namespace, "name": about["metadata"]["name"],
            "uid": about["metadata"]["uid"], "apiVersion": about["apiVersion"],
        });
        let host = text(about, "/spec/nodeName").to_owned();
        let host = if by == "kubelet" { host } else { String::new() };
        let event = crate::sim::action::Event {
            about: crate::sim::world::Key {
                resource: crate::sim::resource::PODS,
                namespace: namespace.as_str().into(),
                name: "".into(),
            },
            field: String::new(),
            warning,
            reason,
            message: message.to_owned(),
            by,
            host,
        };
        let mut event = crate::sim::event::object(&name, &namespace, &involved, &event, at);
        event["metadata"]["uid"] = self.dice.uid().into();
        event["metadata"]["creationTimestamp"] = self.ago(age).into();
        if warning && count(&event, "/count") > 0 {
            let count = self.dice.between(2, 60);
            event["count"] = count.into();
            event["lastTimestamp"] = self.ago(age.min(240)).into();
        }
        event
    }
}
