//! What is carried along with a workload: the ConfigMaps and Secrets that its pods name.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    config::CarriedKind,
    placement::{marker::OWN_PREFIX, scheduling::pod_spec},
};
use kubefold_wire::resource::{Gvk, Gvr};

/// Every cluster makes one of its own in each namespace.
///
/// Source: kubernetes `pkg/controller/certificates/rootcacertpublisher`.
const ROOT_CA: &str = "kube-root-ca.crt";
/// Types of Secrets that are their cluster's own: the tokens of its accounts, the keys of its nodes, what Helm has installed.
const OF_ONE_CLUSTER: [&str; 3] =
    ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1"];

/// An object that pods name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its kind.
    pub kind: CarriedKind,
    /// Its name, in the namespace of the pods.
    pub name: String,
    /// The pods run without it, too.
    pub optional: bool,
}

impl CarriedKind {
    /// The resource.
    pub fn gvr(self) -> Gvr {
        Gvr::new("", "v1", if self == Self::Secret { "secrets" } else { "configmaps" })
    }

    /// The kind.
    pub fn gvk(self) -> Gvk {
        Gvk::new("", "v1", if self == Self::Secret { "Secret" } else { "ConfigMap" })
    }
}

/// What the pods of an object of a kind name, by kind and name. Empty of a kind that makes no pods.
pub fn named(group: &str, kind: &str, document: &Value) -> Vec<Named> {
    let Some(path) = pod_spec(group, kind) else { return Vec::new() };
    let Some(spec) = path.iter().try_fold(document, |value, field| value.get(field)) else { return Vec::new() };
    let mut found = Found::default();
    for volume in items(spec, "volumes") {
        found.volume(volume);
    }
    for container in ["containers", "initContainers", "ephemeralContainers"].iter().flat_map(|list| items(spec, list)) {
        found.container(container);
    }
    for secret in items(spec, "imagePullSecrets") {
        // The kubelet pulls without one that is missing, which works for images that need none.
        found.add(CarriedKind::Secret, secret, "name", Some(true));
    }
    found
        .0
        .into_iter()
        .map(|((is_secret, name), optional)| Named { kind: kind_of(is_secret), name, optional })
        .collect()
}

/// Why an object is never carried: it is its cluster's own, or another object's there. `None`: it may be.
pub fn never(kind: CarriedKind, name: &str, document: &Value) -> Option<String> {
    if is_made_by_every_cluster(kind, name) {
        return Some("every cluster makes its own".to_owned());
    }
    let owners = document.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    if owners.is_some_and(|owners| !owners.is_empty()) {
        return Some("it belongs to another object of its member".to_owned());
    }
    let of_type = document.get("type").and_then(Value::as_str).filter(|_| kind == CarriedKind::Secret);
    of_type
        .filter(|of_type| OF_ONE_CLUSTER.contains(of_type))
        .map(|of_type| format!("its type {of_type} is of one cluster alone"))
}

/// What is made of an object in another member, as far as whether it may be made there depends on it.
pub fn copy(document: &Value) -> Value {
    let mut copy = document.clone();
    let Some(fields) = copy.as_object_mut() else { return copy };
    fields.retain(|field, _| field != "status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&field.as_str()));
        for map in ["labels", "annotations"] {
            if let Some(map) = metadata.get_mut(map).and_then(Value::as_object_mut) {
                map.retain(|key, _| !key.starts_with(OWN_PREFIX));
            }
        }
    }
    copy
}

/// Says whether every cluster has an object of that name in each namespace.
pub fn is_made_by_every_cluster(kind: CarriedKind, name: &str) -> bool {
    kind == CarriedKind::ConfigMap && name == ROOT_CA
}

fn kind_of(is_secret: bool) -> CarriedKind {
    if is_secret { CarriedKind::Secret } else { CarriedKind::ConfigMap }
}

/// Whether it is a Secret, and its name; whether it is optional wherever it is named.
#[derive(Default)]
struct Found(BTreeMap<(bool, String), bool>);

impl Found {
    fn volume(&mut self, volume: &Value) {
        self.add_at(CarriedKind::ConfigMap, volume, "configMap", "name");
        self.add_at(CarriedKind::Secret, volume, "secret", "secretName");
        for source in volume.get("projected").into_iter().flat_map(|projected| items(projected, "sources")) {
            self.add_at(CarriedKind::ConfigMap, source, "configMap", "name");
            self.add_at(CarriedKind::Secret, source, "secret", "name");
        }
    }

    fn container(&mut self, container: &Value) {
        for source in items(container, "envFrom") {
            self.add_at(CarriedKind::ConfigMap, source, "configMapRef", "name");
            self.add_at(CarriedKind::Secret, source, "secretRef", "name");
        }
        for from in items(container, "env").filter_map(|variable| variable.get("valueFrom")) {
            self.add_at(CarriedKind::ConfigMap, from, "configMapKeyRef", "name");
            self.add_at(CarriedKind::Secret, from, "secretKeyRef", "name");
        }
    }

    fn add_at(&mut self, kind: CarriedKind, of: &Value, field: &str, name: &str) {
        if let Some(reference) = of.get(field) {
            self.add(kind, reference, name, None);
        }
    }

    /// `optional`: whatever the reference says.
    fn add(&mut self, kind: CarriedKind, reference: &Value, name: &str, optional: Option<bool>) {
        let Some(name) = reference.get(name).and_then(Value::as_str).filter(|name| !name.is_empty()) else { return };
        let optional = optional.unwrap_or_else(|| reference.get("optional") == Some(&Value::Bool(true)));
        let known = self.0.entry((kind == CarriedKind::Secret, name.to_owned())).or_insert(true);
        *known &= optional;
    }
}

fn items<'v>(of: &'v Value, list: &str) -> impl Iterator<Item = &'v Value> {
    of.get(list).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> Value {
        json!({
            "imagePullSecrets": [{"name": "pull"}, {}],
            "volumes": [
                {"name": "a", "configMap": {"name": "files"}},
                {"name": "b", "secret": {"secretName": "tls", "optional": true}},
                {"name": "c", "projected": {"sources": [
                    {"configMap": {"name": "kube-root-ca.crt"}}, {"secret": {"name": "key"}}, {"serviceAccountToken": {}}]}},
                {"name": "d", "emptyDir": {}},
            ],
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "init"}}]}],
            "containers": [{"name": "c",
                "envFrom": [{"configMapRef": {"name": "env", "optional": true}}, {"prefix": "X"}],
                "env": [
                    {"name": "A", "value": "x"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "tls", "key": "a"}}},
                    {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "a", "optional": true}}},
                    {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ]}],
        })
    }

    fn words(named: Vec<Named>) -> Vec<String> {
        let word = |Named { kind, name, optional }: Named| {
            format!("{kind:?} {name}{}", if optional { " optional" } else { "" })
        };
        named.into_iter().map(word).collect()
    }

    #[test]
    fn a_template_names_what_its_pods_read_and_what_one_place_needs_is_needed() {
        let expected = [
            "ConfigMap env optional",
            "ConfigMap files",
            "ConfigMap kube-root-ca.crt",
            "Secret init",
            "Secret key",
            "Secret pull optional",
            "Secret tls",
        ];
        let template = json!({"spec": {"template": {"spec": spec()}}});
        for kind in ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"] {
            assert_eq!(words(named("apps", kind, &template)), expected, "{kind}");
        }
        assert_eq!(words(named("batch", "Job", &template)), expected);
        assert_eq!(words(named("", "ReplicationController", &template)), expected);
        assert_eq!(words(named("", "Pod", &json!({"spec": spec()}))), expected);
        assert_eq!(words(named("batch", "CronJob", &json!({"spec": {"jobTemplate": template}}))), expected);
        assert_eq!(words(named("", "Service", &template)), [""; 0]);
        assert_eq!(words(named("apps", "Deployment", &json!({"spec": {"template": {}}}))), [""; 0]);
    }

    #[test]
    fn a_copy_has_nothing_that_its_member_or_kubefold_wrote() {
        let of = json!({"kind": "Secret", "type": "Opaque", "data": {"a": "Yg=="}, "metadata": {
            "name": "x", "uid": "u", "resourceVersion": "7", "managedFields": [], "ownerReferences": [],
            "labels": {"kubefold.io/placement": "u", "team": "blue"}, "annotations": {"kubefold.io/placement": "m"}}});
        let expected = json!({"kind": "Secret", "type": "Opaque", "data": {"a": "Yg=="}, "metadata": {
            "name": "x", "labels": {"team": "blue"}, "annotations": {}}});
        assert_eq!(copy(&of), expected);
    }

    #[test]
    fn what_is_one_clusters_own_is_never_carried() {
        let reason = |kind, name: &str, of_type: &str| never(kind, name, &json!({"type": of_type}));
        for of_type in OF_ONE_CLUSTER {
            assert!(reason(CarriedKind::Secret, "x", of_type).is_some_and(|why| why.contains(of_type)));
            assert_eq!(reason(CarriedKind::ConfigMap, "x", of_type), None);
        }
        let owned = json!({"metadata": {"ownerReferences": [{"kind": "Certificate", "name": "x"}]}});
        assert!(never(CarriedKind::Secret, "x", &owned).is_some_and(|why| why.contains("belongs to another object")));
        assert_eq!(reason(CarriedKind::Secret, "kube-root-ca.crt", "Opaque"), None);
        assert!(reason(CarriedKind::ConfigMap, "kube-root-ca.crt", "").is_some());
    }
}
