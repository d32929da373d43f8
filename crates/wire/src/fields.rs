//! Annotations that stand for fields.
//!
//! A kube-apiserver reads some annotations into fields of the objects that it works with, and writes them as annotations
//! only where it writes an object of a version. What it makes of the object before that has them not: rows of a Table and
//! metadata alone.
//!
//! Source: kubernetes `pkg/apis/{apps/v1,autoscaling/v1,flowcontrol/v1beta3}/conversion.go`; apiserver
//! `pkg/endpoints/handlers/response.go`, `asTable`.

use crate::locate::{Paths, entries};

/// Of one kind: group, kind, the annotations.
pub type Row = (&'static str, &'static str, &'static [&'static str]);

/// All that there are.
pub const AS_FIELDS: &[Row] = &[
    ("apps", "DaemonSet", &["deprecated.daemonset.template.generation"]),
    ("apps", "Deployment", &["deprecated.deployment.rollback.to"]),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        &[
            "autoscaling.alpha.kubernetes.io/behavior",
            "autoscaling.alpha.kubernetes.io/conditions",
            "autoscaling.alpha.kubernetes.io/current-metrics",
            "autoscaling.alpha.kubernetes.io/metrics",
            "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
            "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
        ],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        &["flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"],
    ),
];

/// Appends metadata without these annotations; what cannot be read as it is.
pub fn without(keys: &[&str], metadata: &[u8], out: &mut Vec<u8>) {
    match kept(keys, metadata) {
        Some((before, annotations, after)) => {
            out.extend_from_slice(before);
            out.extend_from_slice(&annotations);
            out.extend_from_slice(after);
        }
        None => out.extend_from_slice(metadata),
    }
}

/// What stands before and behind the annotations, and what is left of them; `None` where none is left out.
fn kept<'a>(keys: &[&str], metadata: &'a [u8]) -> Option<(&'a [u8], Vec<u8>, &'a [u8])> {
    if keys.is_empty() {
        return None;
    }
    let text = std::str::from_utf8(metadata).ok()?;
    let mut found = Vec::new();
    Paths::new([(0, ["annotations"].as_slice())]).locate(text, &mut found).ok()?;
    let at = found.first()?.range.clone();
    let all = text.get(at.clone())?;
    let annotations = entries(all).ok()?;
    let kept = annotations.iter().filter(|one| !keys.contains(&one.name.as_str()));
    let kept: Vec<&str> = kept.filter_map(|one| all.get(one.key.start..one.value.end)).collect();
    if kept.len() == annotations.len() {
        return None;
    }
    Some((metadata.get(..at.start)?, format!("{{{}}}", kept.join(",")).into_bytes(), metadata.get(at.end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_for_a_field_is_left_out() {
        let (_, _, keys) = AS_FIELDS[0];
        let say = |metadata: &str| {
            let mut out = Vec::new();
            without(keys, metadata.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        let both = r#"{"name":"a","annotations":{"a":"b","deprecated.daemonset.template.generation":"1","kubefold.io/cluster":"east"},"x":1}"#;
        assert_eq!(say(both), r#"{"name":"a","annotations":{"a":"b","kubefold.io/cluster":"east"},"x":1}"#);
        for same in [
            r#"{"name":"a","annotations":{ "a" : "deprecated.daemonset.template.generation" },"x":1}"#,
            r#"{"name":"a"}"#,
            r#"{"annotations":null}"#,
            "null",
            "",
        ] {
            assert_eq!(say(same), same);
        }
    }
}
