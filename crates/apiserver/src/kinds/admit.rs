//! What the admission plugins that every kube-apiserver has switched on make of a new object.
//!
//! Source: kubernetes `plugin/pkg/admission/{serviceaccount,priority,defaulttolerationseconds,storage,limitranger}`.

use serde_json::{Value, json};

use super::{
    Context, Dependency,
    doc::{Doc, fill, inner, items_mut},
    forbidden::forbidden,
    put,
};
use kubefold_wire::status::Status;

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) fn pod_wants(pod: &Value) -> Vec<Dependency> {
    let namespace = pod.text("metadata.namespace").to_owned();
    let account = match pod.text("spec.serviceAccountName") {
        "" => "default",
        name => name,
    };
    let account = Dependency {
        group: "",
        plural: "serviceaccounts",
        namespace: namespace.clone(),
        name: Some(account.to_owned()),
    };
    let limits = Dependency { group: "", plural: "limitranges", namespace, name: None };
    let class = pod.text("spec.priorityClassName");
    let name = (!class.is_empty()).then(|| class.to_owned());
    let priorities =
        Dependency { group: "scheduling.k8s.io", plural: "priorityclasses", namespace: String::new(), name };
    vec![limits, account, priorities]
}

pub(super) fn pod(pod: &mut Value, context: Context<'_>) -> Result<(), Box<Status>> {
    super::limits::default(pod, context);
    let mirrors = pod.at("metadata.annotations").is_some_and(|annotations| annotations.get(MIRROR).is_some());
    if !mirrors {
        account(pod, context)?;
    }
    priority(pod, context)?;
    if let Some(spec) = inner(pod, "spec") {
        super::prepare::add_tolerations(spec);
        super::prepare::pod_spec_aliases(spec);
    }
    super::limits::check(pod, context)
}

fn account(pod: &mut Value, context: Context<'_>) -> Result<(), Box<Status>> {
    let name = match pod.text("spec.serviceAccountName") {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    let namespace = pod.text("metadata.namespace").to_owned();
    let Some(account) = context.other("ServiceAccount", &name) else {
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
        return Err(forbidden("", "pods", pod, &why));
    };
    let told = pod.at("spec.automountServiceAccountToken").or_else(|| account.at("automountServiceAccountToken"));
    let mounts = told.and_then(Value::as_bool).unwrap_or(true);
    let Some(spec) = inner(pod, "spec") else { return Ok(()) };
    put(spec, "serviceAccountName", Some(name.into()));
    if mounts {
        mount_token(spec, context.suffix);
    }
    if spec.items("imagePullSecrets").is_empty() {
        let secrets = account.items("imagePullSecrets").to_vec();
        put(spec, "imagePullSecrets", (!secrets.is_empty()).then(|| secrets.into()));
    }
    Ok(())
}

fn mount_token(spec: &mut Value, suffix: &str) {
    let there = spec.items("volumes").iter().map(|volume| volume.text("name"));
    let there = there.into_iter().find(|name| name.starts_with(TOKEN_VOLUME)).map(str::to_owned);
    let volume = there.clone().unwrap_or_else(|| format!("{TOKEN_VOLUME}{suffix}"));
    let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            let mut mounts = container.items("volumeMounts").to_vec();
            if mounts.iter().any(|mount| mount.text("mountPath") == TOKEN_PATH) {
                continue;
            }
            mounts.push(mount.clone());
            put(container, "volumeMounts", Some(mounts.into()));
            needed = true;
        }
    }
    if needed && there.is_none() {
        let namespace =
            json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ]);
        let mut volumes = spec.items("volumes").to_vec();
        volumes.push(json!({"name": volume, "projected": {"sources": sources, "defaultMode": 420}}));
        put(spec, "volumes", Some(volumes.into()));
    }
}

fn priority(pod: &mut Value, context: Context<'_>) -> Result<(), Box<Status>> {
    let asked = pod.text("spec.priorityClassName").to_owned();
    let class = if asked.is_empty() {
        let all = context.others.iter().filter(|other| other.text("kind") == "PriorityClass");
        all.filter(|class| class.truth("globalDefault")).min_by_key(|class| class.number("value"))
    } else {
        let class = context.other("PriorityClass", &asked);
        let built_in = matches!(&*asked, "system-cluster-critical" | "system-node-critical");
        if class.is_none() && !built_in {
            return Err(forbidden("", "pods", pod, &format!("no PriorityClass with name {asked} was found")));
        }
        class
    };
    let value = match (class, &*asked) {
        (Some(class), _) => class.number("value").unwrap_or(0),
        (None, "system-cluster-critical") => 2_000_000_000,
        (None, "system-node-critical") => 2_000_001_000,
        (None, _) => 0,
    };
    if let Some(given) = pod.number("spec.priority").filter(|given| *given != value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(forbidden("", "pods", pod, &why));
    }
    let policy = class.map_or("PreemptLowerPriority", |class| match class.text("preemptionPolicy") {
        "" => "PreemptLowerPriority",
        policy => policy,
    });
    let given = pod.text("spec.preemptionPolicy");
    if !given.is_empty() && given != policy {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden("", "pods", pod, &why));
    }
    let name = class.map(|class| class.text("metadata.name")).filter(|name| !name.is_empty());
    let Some(spec) = inner(pod, "spec") else { return Ok(()) };
    if let Some(name) = name {
        put(spec, "priorityClassName", Some(name.into()));
    }
    put(spec, "priority", Some(value.into()));
    fill(spec, "preemptionPolicy", policy);
    Ok(())
}

pub(super) fn claim_wants(claim: &Value) -> Vec<Dependency> {
    let namespace = claim.text("metadata.namespace").to_owned();
    let limits = Dependency { group: "", plural: "limitranges", namespace, name: None };
    let classes =
        Dependency { group: "storage.k8s.io", plural: "storageclasses", namespace: String::new(), name: None };
    if claim.has("spec.storageClassName") { vec![limits] } else { vec![limits, classes] }
}

/// The newest of the default classes.
pub(super) fn claim(claim: &mut Value, context: Context<'_>) -> Result<(), Box<Status>> {
    if !claim.has("spec.storageClassName")
        && let Some(class) = default_class(context, "StorageClass", "storageclass.kubernetes.io/is-default-class")
        && let Some(spec) = inner(claim, "spec")
    {
        put(spec, "storageClassName", Some(class.into()));
    }
    super::limits::check_claim(claim, context)
}

pub(super) fn ingress_wants(ingress: &Value) -> Vec<Dependency> {
    if ingress.has("spec.ingressClassName") {
        return Vec::new();
    }
    vec![Dependency { group: "networking.k8s.io", plural: "ingressclasses", namespace: String::new(), name: None }]
}

pub(super) fn ingress(ingress: &mut Value, context: Context<'_>) -> Result<(), Box<Status>> {
    let annotations = ingress.at("metadata.annotations");
    let old_way = annotations.is_some_and(|annotations| annotations.get("kubernetes.io/ingress.class").is_some());
    if !old_way
        && !ingress.has("spec.ingressClassName")
        && let Some(class) = default_class(context, "IngressClass", "ingressclass.kubernetes.io/is-default-class")
        && let Some(spec) = inner(ingress, "spec")
    {
        put(spec, "ingressClassName", Some(class.into()));
    }
    Ok(())
}

fn default_class<'a>(context: Context<'a>, kind: &str, annotation: &str) -> Option<&'a str> {
    let marked = |other: &&Value| {
        other.text("kind") == kind
            && other.at("metadata.annotations").and_then(|all| all.get(annotation)).is_some_and(|value| value == "true")
    };
    let mut classes: Vec<&Value> = context.others.iter().filter(marked).collect();
    // The newest first, and by name among those of one second.
    classes.sort_by(|left, right| {
        let age = |class: &Value| class.text("metadata.creationTimestamp").to_owned();
        age(right).cmp(&age(left)).then_with(|| left.text("metadata.name").cmp(right.text("metadata.name")))
    });
    classes.first().map(|class| class.text("metadata.name"))
}
