//! What runs in a cluster: the usual system, and what people run.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    DAYS, NAMESPACES, Planner,
    pods::{Batch, Health, One, unassigned_words},
};
use crate::sim::{
    deployment::{DESIRED, HASH, MAX, REVISION},
    fields::{controller_reference, count, text},
    names::template_hash,
    replicaset::pod_of,
    statefulset,
};

/// What people run: names and images.
const APPS: [(&str, &str); 24] = [
    ("frontend", "shop/frontend:2.14.1"),
    ("cart", "shop/cart:1.9.0"),
    ("checkout", "shop/checkout:3.2.4"),
    ("catalog", "shop/catalog:5.0.2"),
    ("recommendations", "shop/recommendations:0.31.0"),
    ("api", "platform/api:4.7.3"),
    ("gateway", "platform/gateway:1.22.0"),
    ("worker", "platform/worker:4.7.3"),
    ("scheduler", "platform/scheduler:2.0.8"),
    ("ledger", "payments/ledger:6.1.0"),
    ("fraud-check", "payments/fraud-check:0.12.5"),
    ("invoices", "payments/invoices:2.3.1"),
    ("webhooks", "payments/webhooks:1.4.4"),
    ("indexer", "search/indexer:0.9.7"),
    ("query", "search/query:0.9.7"),
    ("thumbnails", "media/thumbnails:1.1.2"),
    ("transcoder", "media/transcoder:3.0.0"),
    ("login", "identity/login:7.5.1"),
    ("sessions", "identity/sessions:7.5.1"),
    ("ingest", "analytics/ingest:2.8.0"),
    ("reports", "analytics/reports:1.17.3"),
    ("routing", "logistics/routing:0.4.9"),
    ("tracking", "logistics/tracking:1.6.0"),
    ("notifications", "platform/notifications:2.2.2"),
];

/// A workload to be made.
struct Want<'w> {
    namespace: &'w str,
    name: &'w str,
    image: &'w str,
    pods: usize,
    port: u16,
    age: i64,
}

fn template(want: &Want<'_>) -> Value {
    let labels = json!({"app.kubernetes.io/name": want.name, "app.kubernetes.io/part-of": want.namespace});
    let container = json!({
        "name": want.name.split('-').next().unwrap_or("app"), "image": want.image,
        "ports": [{"name": "http", "containerPort": want.port}],
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
    });
    json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}})
}

impl Planner<'_> {
    pub(super) fn workloads(&mut self) {
        self.system();
        let wanted = self.seed.pods.saturating_sub(self.count);
        let count = match self.seed.namespaces {
            0 => (wanted / 150 + 2).clamp(2, 60),
            count => count,
        };
        let names: Vec<String> = (0..count).map(namespace_name).collect();
        let age = DAYS * 86_400 - 3600;
        let namespaces: Vec<Value> = names.iter().map(|name| self.namespace(name, age)).collect();
        self.add("", "Namespace", namespaces);
        self.extras(&names);
        // Larger clusters have larger workloads.
        let typical = (wanted / (count * 12)).max(2);
        let mut round = 0;
        while self.count < self.seed.pods && round < 10_000 {
            for (place, namespace) in names.iter().enumerate() {
                let left = self.seed.pods.saturating_sub(self.count);
                if left == 0 {
                    break;
                }
                let (app, image) = APPS[(round * 5 + place * 7 + round / 24) % APPS.len()];
                let name = if round < 5 { app.to_owned() } else { format!("{app}-{}", round / 5) };
                let most = i64::try_from(2 * typical).unwrap_or(4);
                let pods = usize::try_from(self.dice.between(1, most + 1)).unwrap_or(1).min(left);
                let age = self.age();
                let want = Want { namespace, name: &name, image, pods, port: 8080, age };
                if round % 7 == 3 {
                    self.stateful_set(&want);
                } else {
                    self.deployment(&want);
                }
            }
            round += 1;
        }
    }

    fn system(&mut self) {
        let nodes = self.places.len();
        let age = DAYS * 86_400 - 120;
        let proxy = format!("kube-proxy:{}", self.seed.version);
        let of = |name, image, pods, port| Want { namespace: "kube-system", name, image, pods, port, age };
        self.daemon_set(&of("kube-proxy", &proxy, nodes, 10256));
        self.deployment(&of("coredns", "coredns/coredns:1.13.1", 2, 9153));
        if self.seed.pods > 30 {
            self.deployment(&of("metrics-server", "metrics-server:0.8.0", 1, 10250));
        }
        if self.seed.pods > 6 * nodes {
            let want = Want { namespace: "kube-system", ..of("cni", "cni/agent:1.18.2", nodes, 9090) };
            self.daemon_set(&want);
        }
    }

    /// What a few namespaces have beside: a database, reports each night, an ingress, a pod that waits.
    fn extras(&mut self, names: &[String]) {
        let Some(first) = names.first().map(String::as_str) else { return };
        let age = self.age();
        let of = |name, image, pods| Want { namespace: first, name, image, pods, port: 6379, age };
        self.stateful_set(&of("redis", "redis:8.2", 3));
        self.cron_job(&of("nightly-report", "analytics/reports:1.17.3", 3));
        if self.seed.pods >= 30 {
            self.waiting(&of("gpu-batch", "analytics/train:0.3.0", 1));
        }
        let rule = json!({"host": format!("{first}.example.com"), "http": {"paths": [{
            "path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": "redis", "port": {"number": 80}}},
        }]}});
        let metadata = self.metadata(first, first, age);
        let ingress = json!({
            "metadata": metadata, "spec": {"ingressClassName": "nginx", "rules": [rule]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}},
        });
        let ingress = self.defaulted("networking.k8s.io", "Ingress", ingress);
        self.add("networking.k8s.io", "Ingress", vec![ingress]);
    }

    fn health(&mut self) -> Health {
        match self.dice.below(160) {
            0 | 1 => Health::Crashing,
            2 => Health::NoImage,
            _ => Health::Running,
        }
    }

    fn one(&mut self, name: String, age: i64, health: Health) -> One {
        let (place, address) = (self.next_place, self.next_address);
        self.next_place += 1;
        self.next_address += 1;
        self.count += 1;
        One { name, uid: self.dice.uid(), place, address, age, health, set: Vec::new() }
    }

    /// The pod of a template, with what a server and its admission fill in.
    fn model(&self, owner: &Value, template: &Value, name: Value) -> Value {
        let mut pod = self.defaulted("", "Pod", pod_of(owner, template, name));
        let spec = &mut pod["spec"];
        for (field, value) in [
            ("serviceAccountName", json!("default")),
            ("serviceAccount", json!("default")),
            ("priority", json!(0)),
            ("preemptionPolicy", json!("PreemptLowerPriority")),
        ] {
            if spec[field].is_null() {
                spec[field] = value;
            }
        }
        let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
        tolerations.extend(["not-ready", "unreachable"].map(|why| {
            let key = format!("node.kubernetes.io/{why}");
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        }));
        spec["tolerations"] = tolerations.into();
        pod
    }

    fn batch(&mut self, model: Value, pods: Vec<One>) {
        let batch = Batch { model, pods, places: Arc::clone(&self.places), now: self.now };
        let mut events = Vec::new();
        for one in &batch.pods {
            let fresh = one.health == Health::Running && self.dice.below(60) == 0;
            if one.health == Health::Running && !fresh {
                continue;
            }
            let pod = batch.pod(one);
            let container = text(&pod, "/spec/containers/0/name").to_owned();
            let image = text(&pod, "/spec/containers/0/image").to_owned();
            let (warning, reason, message, by) = match one.health {
                Health::Crashing => {
                    let full = format!("{}_{}({})", one.name, text(&pod, "/metadata/namespace"), one.uid);
                    (
                        true,
                        "BackOff",
                        format!("Back-off restarting failed container {container} in pod {full}"),
                        "kubelet",
                    )
                }
                Health::NoImage => (false, "BackOff", format!("Back-off pulling image \"{image}\""), "kubelet"),
                Health::Unassigned => {
                    (true, "FailedScheduling", unassigned_words(self.places.len()), "default-scheduler")
                }
                _ => (
                    true,
                    "Unhealthy",
                    "Readiness probe failed: HTTP probe failed with statuscode: 503".to_owned(),
                    "kubelet",
                ),
            };
            events.push(self.event(&pod, warning, reason, &message, by));
        }
        self.add("", "Event", events);
        self.batches.push(batch);
    }

    fn deployment(&mut self, want: &Want<'_>) {
        let (namespace, name) = (want.namespace, want.name);
        let labels = json!({"app.kubernetes.io/name": name});
        let mut metadata = self.metadata(namespace, name, want.age);
        let revision = self.dice.between(1, 6);
        metadata["labels"] = labels.clone();
        metadata["annotations"] = json!({REVISION: revision.to_string()});
        let spec = json!({"replicas": want.pods, "selector": {"matchLabels": labels}, "template": template(want)});
        let mut object = self.defaulted("apps", "Deployment", json!({"metadata": metadata, "spec": spec}));
        let hash = template_hash(&object["spec"]["template"], None);
        let rolled = self.dice.between(600, want.age.max(601));
        let mut sets = Vec::new();
        if revision > 1 {
            sets.push(self.old_set(&object, want, revision - 1));
        }
        let set = self.replica_set(&object, &hash, revision, want.pods, rolled);
        let generate = format!("{}-", text(&set, "/metadata/name"));
        let mut model = self.model(&set, &set["spec"]["template"].clone(), json!({"generateName": generate}));
        crate::kinds::put(&mut model["metadata"], "name", None);
        let mut pods = Vec::new();
        for _ in 0..want.pods {
            let (letters, age, health) = (self.dice.letters(5), self.dice.between(300, rolled.max(301)), self.health());
            pods.push(self.one(format!("{generate}{letters}"), age, health));
        }
        let ready = pods.iter().filter(|one| one.health.is_ready()).count();
        sets.push(with_set_status(set, want.pods, ready));
        self.deployment_status(&mut object, want, &hash, ready, rolled);
        self.batch(model, pods);
        self.add("apps", "ReplicaSet", sets);
        self.add("apps", "Deployment", vec![object]);
        self.beside(want);
    }

    fn replica_set(&mut self, deployment: &Value, hash: &str, revision: i64, size: usize, age: i64) -> Value {
        let namespace = text(deployment, "/metadata/namespace").to_owned();
        let name = format!("{}-{hash}", text(deployment, "/metadata/name"));
        let mut metadata = self.metadata(&namespace, &name, age);
        let mut template = deployment["spec"]["template"].clone();
        template["metadata"]["labels"][HASH] = hash.into();
        let mut selector = deployment["spec"]["selector"].clone();
        selector["matchLabels"][HASH] = hash.into();
        let wanted = count(deployment, "/spec/replicas");
        metadata["labels"] = template["metadata"]["labels"].clone();
        metadata["annotations"] = json!({
            REVISION: revision.to_string(), DESIRED: wanted.to_string(), MAX: (wanted + (wanted + 3) / 4).to_string(),
        });
        metadata["ownerReferences"] = json!([controller_reference(deployment)]);
        let spec = json!({"replicas": size, "selector": selector, "template": template});
        self.defaulted("apps", "ReplicaSet", json!({"metadata": metadata, "spec": spec}))
    }

    /// What ran before the last rollout.
    fn old_set(&mut self, deployment: &Value, want: &Want<'_>, revision: i64) -> Value {
        let mut before = deployment.clone();
        before["spec"]["template"]["spec"]["containers"][0]["image"] = format!("{}-rc1", want.image).into();
        let hash = template_hash(&before["spec"]["template"], None);
        let set = self.replica_set(&before, &hash, revision, 0, want.age);
        with_set_status(set, 0, 0)
    }

    fn deployment_status(&self, object: &mut Value, want: &Want<'_>, hash: &str, ready: usize, rolled: i64) {
        let (made, done) = (self.ago(want.age), self.ago(rolled.min(want.age) - 20));
        let wanted = want.pods;
        let enough = ready + wanted / 4 >= wanted;
        let set = format!("{}-{hash}", want.name);
        let (status, reason, message) = if enough {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        let mut told = json!({
            "observedGeneration": object["metadata"]["generation"], "replicas": wanted, "updatedReplicas": wanted,
            "terminatingReplicas": 0,
        });
        let counts = [("readyReplicas", ready), ("availableReplicas", ready), ("unavailableReplicas", wanted - ready)];
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            told[name] = count.into();
        }
        told["conditions"] = json!([
            {
                "type": "Progressing", "status": "True", "lastUpdateTime": done, "lastTransitionTime": made,
                "reason": "NewReplicaSetAvailable", "message": format!("ReplicaSet \"{set}\" has successfully progressed."),
            },
            {
                "type": "Available", "status": status, "lastUpdateTime": done, "lastTransitionTime": done,
                "reason": reason, "message": message,
            },
        ]);
        object["status"] = told;
    }

    fn stateful_set(&mut self, want: &Want<'_>) {
        let (namespace, name) = (want.namespace, want.name);
        let labels = json!({"app.kubernetes.io/name": name});
        let mut metadata = self.metadata(namespace, name, want.age);
        metadata["labels"] = labels.clone();
        let spec = json!({
            "replicas": want.pods, "serviceName": name, "selector": {"matchLabels": labels}, "template": template(want),
            "podManagementPolicy": "Parallel",
        });
        let mut object = self.defaulted("apps", "StatefulSet", json!({"metadata": metadata, "spec": spec}));
        let hash = template_hash(&object["spec"]["template"], None);
        let revision = format!("{name}-{hash}");
        self.revision(&object, &hash, "controller.kubernetes.io/hash", want.age);
        let mut model = self.model(&object, &object["spec"]["template"].clone(), json!({"name": name}));
        model["spec"]["subdomain"] = name.into();
        let mut pods = Vec::new();
        for ordinal in 0..want.pods {
            let pod = format!("{name}-{ordinal}");
            let health = self.health();
            let mut one = self.one(pod.clone(), want.age - 30, health);
            let mut labels = model["metadata"]["labels"].clone();
            labels["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
            labels[statefulset::HASH] = revision.as_str().into();
            labels["statefulset.kubernetes.io/pod-name"] = pod.as_str().into();
            one.set = vec![("/metadata/labels", labels), ("/spec/hostname", pod.into())];
            pods.push(one);
        }
        let ready = pods.iter().filter(|one| one.health.is_ready()).count();
        let mut status = json!({
            "observedGeneration": object["metadata"]["generation"], "replicas": want.pods,
            "currentRevision": revision, "updateRevision": revision, "collisionCount": 0, "availableReplicas": ready,
            "currentReplicas": want.pods, "updatedReplicas": want.pods,
        });
        if ready > 0 {
            status["readyReplicas"] = ready.into();
        }
        object["status"] = status;
        self.batch(model, pods);
        self.add("apps", "StatefulSet", vec![object]);
        self.beside(want);
    }

    fn revision(&mut self, owner: &Value, hash: &str, label: &str, age: i64) {
        let namespace = text(owner, "/metadata/namespace").to_owned();
        let name = format!("{}-{hash}", text(owner, "/metadata/name"));
        let mut metadata = self.metadata(&namespace, &name, age);
        metadata["labels"] = owner["spec"]["template"]["metadata"]["labels"].clone();
        metadata["labels"][label] = hash.into();
        metadata["ownerReferences"] = json!([controller_reference(owner)]);
        let mut template = owner["spec"]["template"].clone();
        template["$patch"] = "replace".into();
        let revision = json!({"metadata": metadata, "data": {"spec": {"template": template}}, "revision": 1});
        let revision = self.defaulted("apps", "ControllerRevision", revision);
        self.add("apps", "ControllerRevision", vec![revision]);
    }

    fn daemon_set(&mut self, want: &Want<'_>) {
        let labels = json!({"app.kubernetes.io/name": want.name});
        let mut metadata = self.metadata(want.namespace, want.name, want.age);
        metadata["labels"] = labels.clone();
        let mut template = template(want);
        template["spec"]["hostNetwork"] = true.into();
        template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        template["spec"]["priorityClassName"] = "system-node-critical".into();
        let spec = json!({"selector": {"matchLabels": labels}, "template": template});
        let mut object = self.defaulted("apps", "DaemonSet", json!({"metadata": metadata, "spec": spec}));
        let hash = template_hash(&object["spec"]["template"], None);
        self.revision(&object, &hash, statefulset::HASH, want.age);
        let template = crate::sim::daemonset::dressed(&object["spec"]["template"], &hash);
        let generate = format!("{}-", want.name);
        let mut model = self.model(&object, &template, json!({"generateName": generate}));
        model["spec"]["priority"] = 2_000_001_000_i64.into();
        let first = self.next_place;
        let mut pods = Vec::new();
        for place in 0..self.places.len() {
            let letters = self.dice.letters(5);
            let mut one = self.one(format!("{generate}{letters}"), want.age - 60, Health::Running);
            one.place = place;
            let terms = json!([{"matchFields": [{
                "key": "metadata.name", "operator": "In", "values": [self.places[place].name],
            }]}]);
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            one.set = vec![("/spec/affinity", json!({"nodeAffinity": required}))];
            pods.push(one);
        }
        self.next_place = first;
        let nodes = self.places.len();
        object["status"] = json!({
            "currentNumberScheduled": nodes, "numberMisscheduled": 0, "desiredNumberScheduled": nodes,
            "numberReady": nodes, "observedGeneration": object["metadata"]["generation"],
            "updatedNumberScheduled": nodes, "numberAvailable": nodes,
        });
        self.batch(model, pods);
        self.add("apps", "DaemonSet", vec![object]);
    }

    /// A pod that wants a node that nobody has.
    fn waiting(&mut self, want: &Want<'_>) {
        let mut template = template(want);
        template["spec"]["nodeSelector"] = json!({"example.com/gpu": "true"});
        let pod = json!({"metadata": {"namespace": want.namespace}});
        let mut model = self.model(&pod, &template, json!({"name": want.name}));
        crate::kinds::put(&mut model["metadata"], "ownerReferences", None);
        let age = self.dice.between(600, 40_000);
        let one = self.one(want.name.to_owned(), age, Health::Unassigned);
        self.batch(model, vec![one]);
    }

    /// A cron job with its last jobs, each night one.
    fn cron_job(&mut self, want: &Want<'_>) {
        let night = self.now.as_second().rem_euclid(86_400);
        let mut template = template(want);
        template["spec"]["restartPolicy"] = "OnFailure".into();
        let spec = json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": template}}});
        let metadata = self.metadata(want.namespace, want.name, want.age.max(5 * 86_400));
        let mut object = self.defaulted("batch", "CronJob", json!({"metadata": metadata, "spec": spec}));
        let mut jobs = Vec::new();
        for day in (0..i64::try_from(want.pods).unwrap_or(3)).rev() {
            let age = night + day * 86_400;
            let due = crate::sim::fields::seconds_later(self.now, -age);
            let name = format!("{}-{}", want.name, due.as_second() / 60);
            let mut job = crate::sim::cron::job_of(&object, &name, due);
            let metadata = self.metadata(want.namespace, &name, age);
            for field in ["uid", "creationTimestamp"] {
                job["metadata"][field] = metadata[field].clone();
            }
            let uid = job["metadata"]["uid"].clone();
            let labels = json!({
                "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
                "controller-uid": uid, "job-name": name,
            });
            for (label, value) in labels.as_object().into_iter().flatten() {
                job["spec"]["template"]["metadata"]["labels"][label] = value.clone();
            }
            job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
            let mut job = self.defaulted("batch", "Job", job);
            let (begun, done) = (self.ago(age), self.ago(age - 40));
            let condition = |kind: &str| {
                json!({
                    "type": kind, "status": "True", "lastProbeTime": done, "lastTransitionTime": done,
                    "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods",
                })
            };
            job["status"] = json!({
                "conditions": [condition("SuccessCriteriaMet"), condition("Complete")], "startTime": begun,
                "completionTime": done, "succeeded": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
            });
            let model = self.model(&job, &job["spec"]["template"].clone(), json!({"generateName": format!("{name}-")}));
            let pod = format!("{name}-{}", self.dice.letters(5));
            let one = self.one(pod, age, Health::Succeeded);
            self.batch(model, vec![one]);
            object["status"] = json!({"lastScheduleTime": begun, "lastSuccessfulTime": done});
            jobs.push(job);
        }
        self.add("batch", "Job", jobs);
        self.add("batch", "CronJob", vec![object]);
    }

    /// What lies beside a workload: its service, its settings, its secret.
    fn beside(&mut self, want: &Want<'_>) {
        let (namespace, name) = (want.namespace, want.name);
        let labels = json!({"app.kubernetes.io/name": name});
        let address = crate::sim::fields::address([10, 96, 1, 1], self.next_service);
        self.next_service += 1;
        let ports = json!([{"name": "http", "port": 80, "targetPort": want.port, "protocol": "TCP"}]);
        let service =
            self.service(namespace, name, labels.clone(), labels.clone(), ports, &address.to_string(), want.age);
        self.add("", "Service", vec![service]);
        let mut metadata = self.metadata(namespace, &format!("{name}-config"), want.age);
        metadata["labels"] = labels.clone();
        let config = json!({"metadata": metadata, "data": {"LOG_LEVEL": "info", "UPSTREAM": format!("http://{name}")}});
        self.add("", "ConfigMap", vec![config]);
        let mut metadata = self.metadata(namespace, &format!("{name}-credentials"), want.age);
        metadata["labels"] = labels;
        let secret = json!({"metadata": metadata, "type": "Opaque", "data": {"password": "Y2hhbmdlLW1l"}});
        self.add("", "Secret", vec![secret]);
    }
}

fn namespace_name(place: usize) -> String {
    NAMESPACES.get(place).map_or_else(|| format!("team-{:02}", place + 1 - NAMESPACES.len()), |name| (*name).to_owned())
}

fn with_set_status(mut set: Value, pods: usize, ready: usize) -> Value {
    let mut status = json!({"replicas": pods});
    let counts = [("fullyLabeledReplicas", pods), ("readyReplicas", ready), ("availableReplicas", ready)];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status[name] = count.into();
    }
    status["terminatingReplicas"] = 0.into();
    status["observedGeneration"] = set["metadata"]["generation"].clone();
    set["status"] = status;
    set
}
