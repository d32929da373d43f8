//! What a part is made of in another member: an object as the fleet view shows it, without what one member has assigned.

use serde_json::Value;

use crate::{
    placement::noted::Note,
    write::{
        fleet::{Key, Part},
        update::body_of_missing,
    },
};
use kubefold_wire::patch::is_index;

/// What a kube-apiserver or a controller assigns, by group and resource. Another member assigns its own.
///
/// Source: kubernetes `pkg/registry/core/service/strategy.go`, `pkg/registry/batch/job/strategy.go` `generateSelector`,
/// `pkg/controller/volume/persistentvolume`.
const ASSIGNED: [(&str, &str, &[&[&str]]); 5] = [
    (
        "",
        "services",
        &[
            &["spec", "clusterIP"],
            &["spec", "clusterIPs"],
            &["spec", "ports", "*", "nodePort"],
            &["spec", "healthCheckNodePort"],
        ],
    ),
    ("", "serviceaccounts", &[&["secrets"]]),
    ("", "pods", &[&["spec", "nodeName"]]),
    (
        "",
        "persistentvolumeclaims",
        &[
            &["spec", "volumeName"],
            &["metadata", "annotations", "pv.kubernetes.io/bind-completed"],
            &["metadata", "annotations", "pv.kubernetes.io/bound-by-controller"],
            &["metadata", "annotations", "volume.kubernetes.io/selected-node"],
        ],
    ),
    (
        "batch",
        "jobs",
        &[
            &["spec", "selector"],
            &["metadata", "labels", "controller-uid"],
            &["metadata", "labels", "batch.kubernetes.io/controller-uid"],
            &["spec", "template", "metadata", "labels", "controller-uid"],
            &["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"],
        ],
    ),
];

/// The create body of a further part of a shown object that has these parts, the home first. It has nobody's overrides.
pub(super) fn body_of(key: &Key, shown: &[u8], parts: &[Part]) -> Option<String> {
    let shown: Value = serde_json::from_slice(shown).ok()?;
    let documents: Vec<Value> = parts.iter().filter_map(|part| serde_json::from_slice(&part.json).ok()).collect();
    let mut shown = match documents.split_first().and_then(|(home, others)| Some((Note::read(home)?, others))) {
        Some((noted, others)) => noted.said(&shown, &shown, &others.iter().collect::<Vec<_>>()),
        None => shown,
    };
    let keeps_own = shown.pointer("/spec/manualSelector") == Some(&Value::Bool(true))
        || shown.pointer("/spec/clusterIP").is_some_and(|ip| ip == "None");
    let of_kind =
        ASSIGNED.iter().filter(|(group, resource, _)| (*group, *resource) == (&*key.gvr.group, &*key.gvr.resource));
    for path in of_kind.flat_map(|(_, _, paths)| *paths) {
        // A headless Service has no address, and a Job may have a selector of its author's.
        let is_its_own = keeps_own && matches!(path, ["spec", "clusterIP" | "clusterIPs" | "selector"]);
        if !is_its_own {
            remove(&mut shown, path);
        }
    }
    Some(body_of_missing(shown))
}

fn remove(value: &mut Value, path: &[&str]) {
    match (path, value) {
        (["*", rest @ ..], Value::Array(items)) => items.iter_mut().for_each(|item| remove(item, rest)),
        ([last], Value::Object(object)) => drop(object.shift_remove(*last)),
        ([first, rest @ ..], Value::Object(object)) if !is_index(first) => {
            if let Some(next) = object.get_mut(*first) {
                remove(next, rest);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use kubefold_wire::resource::{Gvk, Gvr};

    #[test]
    fn another_member_assigns_its_own() {
        let key = Key {
            gvr: Gvr::new("", "v1", "services"),
            gvk: Gvk::new("", "v1", "Service"),
            namespace: "shop".into(),
            name: "web".into(),
        };
        let service = |ip: &str| {
            let shown = json!({"metadata": {"name": "web", "uid": "u", "resourceVersion": "7"}, "status": {},
                "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "nodePort": 30000}]}});
            let body = body_of(&key, shown.to_string().as_bytes(), &[]).unwrap();
            serde_json::from_str::<Value>(&body).unwrap()["spec"].clone()
        };
        assert_eq!(service("10.0.0.1"), json!({"ports": [{"port": 80}]}));
        assert_eq!(service("None"), json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}]}));
    }
}
