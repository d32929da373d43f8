//! What of a part's document is its author's, condensed, so that parts can be compared at little cost.
//!
//! Two parts *differ* when somebody edited or restored one of them in its member. What each server assigns, defaults or
//! writes down by itself is no difference, nor is what kubefold divides or a policy overrides; a false alarm would teach
//! people to ignore the true ones, so what may be a member's own doing counts as such.

use std::{
    collections::BTreeSet,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::{
    config::{Alteration, Component, Config},
    placement::{
        divided::Division,
        fold::FoldKind,
        marker::{OWN_PREFIX, WHOLE_KEY},
        noted::Note,
    },
};
use kubefold_wire::{
    patch::{JsonPatch, is_index, steps},
    resource::Gvr,
};

/// A part's print. Parts of one object that nobody touched have equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Labels and everything beside metadata and status.
    body: u64,
    /// Hashes of each annotation's key and value, by key.
    annotations: Vec<(u64, u64)>,
}

/// What the overrides of policies make different between parts, whichever objects they hold for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// The fields that patches touch.
    paths: BTreeSet<Vec<String>>,
    /// Images come from other registries.
    registries: bool,
    /// Fields of containers that are edited, wherever they stand.
    fields: BTreeSet<&'static str>,
}

impl Mask {
    /// Takes what the configuration says.
    pub fn of(config: &Config) -> Self {
        let mut mask = Self::default();
        let terms = config.policies.iter().flat_map(|policy| policy.per_member.values());
        for overrides in terms.map(|terms| &terms.overrides) {
            mask.registries |= overrides.registry.is_some();
            overrides.patch.iter().for_each(|patch| mask.patch(patch));
        }
        let rules = config.overrides.iter().flat_map(|overriding| &overriding.rules);
        rules.flat_map(|rule| &rule.alterations).for_each(|alteration| mask.alteration(alteration));
        mask
    }

    fn patch(&mut self, patch: &JsonPatch) {
        let patch = serde_json::to_value(patch).ok();
        for operation in patch.iter().filter_map(Value::as_array).flatten() {
            let pointers = ["path", "from"].into_iter().filter_map(|key| operation.get(key)?.as_str());
            self.paths.extend(pointers.map(path_of));
        }
    }

    fn alteration(&mut self, alteration: &Alteration) {
        match alteration {
            Alteration::Image { at: Some(at), .. } | Alteration::Document { at, .. } => {
                self.paths.insert(path_of(at));
            }
            Alteration::Image { at: None, component: Component::Registry, .. } => self.registries = true,
            Alteration::Image { at: None, .. } => {
                self.fields.insert("image");
            }
            Alteration::Words { texts, .. } => {
                self.fields.insert(texts.field());
            }
            Alteration::Keys { map, values, .. } => {
                let path = |key: &String| vec!["metadata".to_owned(), map.field().to_owned(), key.clone()];
                self.paths.extend(values.keys().map(path));
            }
            Alteration::Patch(patch) => self.patch(patch),
        }
    }

    fn apply(&self, document: &mut Value) {
        for path in &self.paths {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            remove(document, &path);
        }
        if self.registries {
            without_registries(document);
        }
        if !self.fields.is_empty() {
            without_fields(document, &self.fields);
        }
    }
}

/// A JSON pointer's way. An element of a list counts as the whole list: what comes behind it moves.
fn path_of(pointer: &str) -> Vec<String> {
    let mut path = steps(pointer);
    while path.last().is_some_and(|last| is_index(last)) {
        path.pop();
    }
    path
}

/// Takes these fields away, wherever they stand.
fn without_fields(value: &mut Value, fields: &BTreeSet<&'static str>) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(|element| without_fields(element, fields)),
        Value::Object(object) => {
            object.retain(|key, _| !fields.contains(key.as_str()));
            object.values_mut().for_each(|value| without_fields(value, fields));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Leaves of every image what follows the last slash.
fn without_registries(value: &mut Value) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(without_registries),
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                match value {
                    Value::String(image) if key == "image" => {
                        *image = image.rsplit('/').next().unwrap_or_default().to_owned();
                    }
                    value => without_registries(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl Fingerprint {
    /// Takes the print of a document. `None` if it is no object.
    pub fn of(json: &str, gvr: &Gvr, kind: FoldKind, mask: &Mask) -> Option<Self> {
        let Compared(mut document) = serde_json::from_str(json).ok()?;
        // Overrides that a part has still, though no policy has them any more, are nobody's edit.
        if let Some(note) = Note::read(&document) {
            document = note.said(&document, &document, &[]);
        }
        mask.apply(&mut document);
        let Value::Object(mut document) = document else { return None };
        let metadata = document.remove("metadata").unwrap_or_default();
        let mut document = Value::Object(document);
        without_assigned(&mut document, gvr);
        // Of a quota that is divided the limits are each part's own.
        let is_noted = || metadata.pointer("/annotations").is_some_and(|map| map.get(WHOLE_KEY).is_some());
        let hard = kind.companion().filter(|division| *division == Division::Quota && is_noted());
        hard.iter().flat_map(|division| division.fields()).for_each(|field| remove(&mut document, field.path));
        for path in kind.divided() {
            let path: Vec<&str> = ["spec"].into_iter().chain(path.iter().copied()).collect();
            remove(&mut document, &path);
        }
        let texts = |key: &str| metadata.get(key).and_then(Value::as_object).into_iter().flatten();
        let labels = texts("labels").filter(|(key, _)| !is_assigned_label(key));
        let labels = labels.map(|(key, value)| hash_of(&(key, hash(value)))).fold(0, u64::wrapping_add);
        let mut annotations: Vec<(u64, u64)> = texts("annotations")
            .filter(|(key, _)| !is_assigned_annotation(key))
            .map(|(key, value)| (hash_of(key), hash(value)))
            .collect();
        annotations.sort_unstable();
        Some(Self { body: hash_of(&(labels, hash(&document))), annotations })
    }

    /// Says whether somebody touched one of the two. An annotation that only one has is its member's own: cloud
    /// controllers leave notes.
    pub fn differs(&self, other: &Self) -> bool {
        let theirs = |key: u64| {
            let at = other.annotations.binary_search_by_key(&key, |(key, _)| *key).ok()?;
            other.annotations.get(at).map(|(_, value)| *value)
        };
        self.body != other.body
            || self.annotations.iter().any(|(key, value)| theirs(*key).is_some_and(|theirs| theirs != *value))
    }
}

/// A document without what no print is of: what servers write beside it, which is most of its text.
struct Compared(Value);

/// Fields that no print is of.
const UNCOMPARED: [&str; 3] = ["kind", "apiVersion", "status"];
/// The fields of `metadata` that a print is of.
const COMPARED_METADATA: [&str; 2] = ["labels", "annotations"];

impl<'de> Deserialize<'de> for Compared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_compared = |name: &str| !UNCOMPARED.contains(&name);
        let document = deserializer.deserialize_map(Fields { is_compared, of_metadata: true })?;
        Ok(Self(document.into()))
    }
}

/// Reads an object, and of its fields those alone that are compared.
struct Fields<C> {
    is_compared: C,
    /// `metadata` is read in the same way.
    of_metadata: bool,
}

impl<'de, C: Fn(&str) -> bool> Visitor<'de> for Fields<C> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if self.of_metadata && name == "metadata" {
                let Metadata(metadata) = fields.next_value()?;
                read.insert(name, metadata);
            } else if (self.is_compared)(&name) {
                read.insert(name, fields.next_value()?);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(read)
    }
}

/// `metadata`, as far as it is compared.
struct Metadata(Value);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_compared = |name: &str| COMPARED_METADATA.contains(&name);
        deserializer.deserialize_map(Fields { is_compared, of_metadata: false }).map(|fields| Self(fields.into()))
    }
}

type Path = &'static [&'static str];

/// What servers and controllers assign beside metadata and status, by group and resource; `*` is every element.
///
/// Source: kubernetes/kubernetes v1.36 `pkg/registry/*/*/strategy.go` and `pkg/apis/*/*/defaults.go`; admission
/// plugins `DefaultStorageClass` and `DefaultIngressClass`; fields that later versions default and earlier ones lack.
const ASSIGNED: &[(&str, &str, &[Path])] = &[
    (
        "",
        "services",
        &[
            &["spec", "clusterIP"],
            &["spec", "clusterIPs"],
            &["spec", "ipFamilies"],
            &["spec", "ipFamilyPolicy"],
            &["spec", "healthCheckNodePort"],
            &["spec", "loadBalancerClass"],
            &["spec", "ports", "*", "nodePort"],
        ],
    ),
    ("", "serviceaccounts", &[&["secrets"], &["imagePullSecrets"]]),
    (
        "",
        "persistentvolumeclaims",
        &[&["spec", "volumeName"], &["spec", "storageClassName"], &["spec", "volumeMode"], &["spec", "resources"]],
    ),
    ("", "persistentvolumes", &[&["spec", "claimRef"]]),
    ("", "pods", &[&["spec"]]),
    ("", "namespaces", &[&["spec", "finalizers"]]),
    (
        "batch",
        "jobs",
        &[
            &["spec", "selector"],
            &["spec", "suspend"],
            &["spec", "podReplacementPolicy"],
            &["spec", "template", "metadata", "labels", "controller-uid"],
            &["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"],
            &["spec", "template", "metadata", "labels", "job-name"],
            &["spec", "template", "metadata", "labels", "batch.kubernetes.io/job-name"],
        ],
    ),
    (
        "apps",
        "statefulsets",
        &[
            &["spec", "ordinals"],
            &["spec", "persistentVolumeClaimRetentionPolicy"],
            &["spec", "volumeClaimTemplates", "*", "status"],
            &["spec", "volumeClaimTemplates", "*", "spec", "storageClassName"],
            &["spec", "volumeClaimTemplates", "*", "spec", "volumeMode"],
        ],
    ),
    ("networking.k8s.io", "ingresses", &[&["spec", "ingressClassName"]]),
    ("coordination.k8s.io", "leases", &[&["spec"]]),
    ("apiregistration.k8s.io", "apiservices", &[&["spec", "caBundle"]]),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &[&["spec", "conversion", "webhook", "clientConfig", "caBundle"]],
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        &[&["webhooks", "*", "clientConfig", "caBundle"]],
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        &[&["webhooks", "*", "clientConfig", "caBundle"]],
    ),
];

/// Labels that name something of one member's.
const LABELS: &[&str] = &["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Annotations that servers and controllers write, by prefix.
const ANNOTATIONS: &[&str] = &[
    OWN_PREFIX,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
    "autoscaling.alpha.kubernetes.io/",
    "batch.kubernetes.io/",
    "control-plane.alpha.kubernetes.io/",
    "endpoints.kubernetes.io/",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "kubernetes.io/service-account.",
];

/// Takes out of a document what servers and controllers assign beside metadata and status.
pub fn without_assigned(document: &mut Value, gvr: &Gvr) {
    let (group, resource) = (&*gvr.group, &*gvr.resource);
    let assigned = ASSIGNED.iter().filter(|(of, name, _)| (*of, *name) == (group, resource));
    for (_, _, paths) in assigned {
        paths.iter().for_each(|path| remove(document, path));
    }
    depends(document, group, resource);
}

/// Says whether a label is kubefold's own, or names something of one member's.
pub fn is_assigned_label(key: &str) -> bool {
    key.starts_with(OWN_PREFIX) || LABELS.contains(&key)
}

/// Says whether kubefold, a server or a controller writes an annotation.
pub fn is_assigned_annotation(key: &str) -> bool {
    ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix))
}

/// What is assigned only where something else says so.
fn depends(document: &mut Value, group: &str, resource: &str) {
    let is_token = || document.get("type").is_some_and(|kind| kind == "kubernetes.io/service-account-token");
    match (group, resource) {
        ("", "secrets") if is_token() => remove(document, &["data"]),
        // The controller of aggregated roles fills the rules in.
        ("rbac.authorization.k8s.io", "clusterroles") if !document["aggregationRule"].is_null() => {
            remove(document, &["rules"]);
        }
        _ => {}
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    let Some((key, rest)) = path.split_first() else { return };
    match value {
        Value::Array(elements) if *key == "*" || is_index(key) => {
            elements.iter_mut().for_each(|element| remove(element, rest))
        }
        Value::Object(object) if rest.is_empty() => {
            object.remove(*key);
        }
        Value::Object(object) => {
            if let Some(next) = object.get_mut(*key) {
                remove(next, rest);
            }
        }
        _ => {}
    }
}

fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whatever the order of keys; a key that is `null` or holds nothing counts as one that is not there.
fn hash(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        Value::Bool(value) => hash_of(&(1, value)),
        Value::Number(value) => hash_of(&(2, value.to_string())),
        Value::String(value) => hash_of(&(3, value)),
        Value::Array(elements) => {
            let elements: Vec<u64> = elements.iter().map(hash).collect();
            hash_of(&(4, elements))
        }
        Value::Object(object) => {
            let entries = object.iter().filter(|(_, value)| !is_nothing(value));
            let entries = entries.map(|(key, value)| hash_of(&(key, hash(value)))).fold(0, u64::wrapping_add);
            hash_of(&(5, entries))
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn print_of(object: &Value, group: &str, resource: &str, mask: &Mask) -> Fingerprint {
        let gvr = Gvr::new(group, "v1", resource);
        Fingerprint::of(&object.to_string(), &gvr, FoldKind::of(group, resource), mask).unwrap()
    }

    fn differ(group: &str, resource: &str, one: &Value, two: &Value) -> bool {
        let print = |value: &Value| print_of(value, group, resource, &Mask::default());
        assert_eq!(print(one).differs(&print(two)), print(two).differs(&print(one)));
        print(one).differs(&print(two))
    }

    fn with(object: &Value, pointer: &str, value: Value) -> Value {
        let mut object = object.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value;
        object
    }

    #[test]
    fn what_servers_assign_is_no_difference() {
        let deployment = json!({
            "kind": "Deployment",
            "metadata": {
                "name": "web", "uid": "e", "resourceVersion": "7", "generation": 1, "labels": {"app": "web"},
                "annotations": {"note": "a", "deployment.kubernetes.io/revision": "1"}, "managedFields": [],
            },
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
            "status": {"replicas": 1},
        });
        for (pointer, value) in [
            ("/metadata/uid", json!("w")),
            ("/metadata/resourceVersion", json!("9")),
            ("/metadata/generation", json!(4)),
            ("/metadata/labels/kubefold.io~1placement", json!("u")),
            ("/metadata/annotations/deployment.kubernetes.io~1revision", json!("3")),
            ("/metadata/annotations/cloud.example.com~1note", json!("its own")),
            ("/metadata/finalizers", json!(["x"])),
            ("/metadata/managedFields", json!([{"manager": "x"}])),
            ("/metadata/ownerReferences", json!([{"uid": "w"}])),
            ("/spec/replicas", json!(5)),
            ("/spec/paused", Value::Null),
            ("/status/replicas", json!(9)),
        ] {
            assert!(!differ("apps", "deployments", &deployment, &with(&deployment, pointer, value)), "{pointer}");
        }
        for (pointer, value) in [
            ("/metadata/labels/app", json!("other")),
            ("/metadata/labels/more", json!("x")),
            ("/metadata/annotations/note", json!("b")),
            ("/spec/paused", json!(true)),
            ("/spec/template/spec/containers/0/image", json!("web:2")),
            ("/spec/template/spec/nodeSelector", json!({"disk": "ssd"})),
        ] {
            assert!(differ("apps", "deployments", &deployment, &with(&deployment, pointer, value)), "{pointer}");
        }
    }

    #[test]
    fn each_kind_has_its_own() {
        let service =
            json!({"metadata": {}, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30000}]}});
        let other =
            json!({"metadata": {}, "spec": {"clusterIP": "10.1.0.1", "ports": [{"nodePort": 31000, "port": 80}]}});
        assert!(!differ("", "services", &service, &other));
        assert!(differ("", "services", &service, &with(&other, "/spec/ports/0/port", json!(81))));
        assert!(differ("example.com", "services", &service, &other));
        let job = |uid: &str| {
            let labels = json!({"controller-uid": uid, "app": "x"});
            json!({
                "metadata": {"labels": labels}, "spec": {
                    "completions": 1, "selector": {"matchLabels": {"controller-uid": uid}},
                    "template": {"metadata": {"labels": labels}}
                }
            })
        };
        assert!(!differ("batch", "jobs", &job("a"), &job("b")));
        let token = |data: &str| json!({"metadata": {}, "type": "kubernetes.io/service-account-token", "data": {"token": data}});
        assert!(!differ("", "secrets", &token("a"), &token("b")));
        let opaque = |data: &str| json!({"metadata": {}, "type": "Opaque", "data": {"token": data}});
        assert!(differ("", "secrets", &opaque("a"), &opaque("b")));
        let role = |rules: Value| json!({"metadata": {}, "aggregationRule": {"x": 1}, "rules": rules});
        assert!(!differ("rbac.authorization.k8s.io", "clusterroles", &role(json!([1])), &role(json!([]))));
    }

    #[test]
    fn what_policies_override_is_no_difference() {
        let pointers = ["/spec/template/spec/containers/0/env/-", "/spec/tier", "/metadata/labels/a~1b"];
        let mask = Mask { paths: pointers.map(path_of).into(), registries: true, ..Mask::default() };
        let part = |registry: &str, tag: &str, env: Value, tier: &str| {
            let image = format!("{registry}web:{tag}");
            let object = json!({
                "metadata": {"labels": {"app": "web", "a/b": tier}},
                "spec": {"tier": tier, "template": {"spec": {"containers": [{"image": image, "env": env}]}}},
            });
            print_of(&object, "apps", "deployments", &mask)
        };
        let east = part("", "1", json!([]), "gold");
        assert!(!east.differs(&part("mirror.example:5000/library/", "1", json!([{"name": "A"}]), "tin")));
        assert!(east.differs(&part("", "2", json!([]), "gold")));
    }

    #[test]
    fn what_a_part_notes_of_earlier_overrides_is_no_difference() {
        let part = |tier: &str, annotations: Value| {
            let object =
                json!({"metadata": {"annotations": annotations}, "spec": {"tier": tier, "paused": tier == "tin"}});
            print_of(&object, "apps", "deployments", &Mask::default())
        };
        let noted = |at: &str| json!({"kubefold.io/overrides": json!({"of": "x", "was": [at]}).to_string()});
        let east = part("gold", json!({}));
        let places = r#"{"of":"x","was":[{"at":["spec","tier"],"was":"gold"},{"at":["spec","paused"],"was":false}]}"#;
        assert!(!east.differs(&part("tin", json!({"kubefold.io/overrides": places}))));
        let places = r#"{"of":"x","was":[{"at":["spec","tier"],"was":"gold"}]}"#;
        assert!(east.differs(&part("tin", json!({"kubefold.io/overrides": places}))), "the other was edited");
        assert!(east.differs(&part("tin", noted("malformed"))));
    }
}
