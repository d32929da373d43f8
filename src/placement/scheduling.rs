//! Whether a pod template could ever be scheduled in a member: node name, node selector, required affinity, taints.
//!
//! Source: kubernetes/component-helpers `scheduling/corev1/nodeaffinity`, kubernetes/api `core/v1` `ToleratesTaint`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::placement::resources::Resources;
use kubefold_wire::{
    golang::Quoted,
    locate::{NotAnObject, Paths},
    matching::{NodeRequirements, Taint, nullable},
};

/// What a pod template asks of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRequirements {
    /// The node that the pod runs on without being scheduled; empty if the scheduler is to choose.
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    /// The RuntimeClass that adds to it in each member; empty if there is none.
    #[serde(deserialize_with = "nullable")]
    pub runtime_class_name: String,
    /// Node selector, affinity, tolerations.
    #[serde(flatten)]
    pub nodes: NodeRequirements,
    /// What one pod requests.
    #[serde(skip)]
    pub requested: Resources,
}

/// What is known of one node of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its plain name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
}

/// Where the pod spec stands in objects of a kind; `None`: it makes no pods.
pub fn pod_spec(group: &str, kind: &str) -> Option<&'static [&'static str]> {
    match (group, kind) {
        ("", "Pod") => Some(&["spec"]),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("", "ReplicationController")
        | ("batch", "Job") => Some(&["spec", "template", "spec"]),
        ("", "PodTemplate") => Some(&["template", "spec"]),
        ("batch", "CronJob") => Some(&["spec", "jobTemplate", "spec", "template", "spec"]),
        _ => None,
    }
}

impl PodRequirements {
    /// The nodes that it names: its own, and those of its affinity's fields.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        let own = (!self.node_name.is_empty()).then_some(&self.node_name);
        let terms =
            self.nodes.affinity.node_affinity.required.iter().flat_map(|selector| &selector.node_selector_terms);
        let values = terms.flat_map(|term| &term.match_fields).filter(|wanted| wanted.operator == "In");
        own.into_iter().chain(values.flat_map(|wanted| &wanted.values)).map(String::as_str)
    }

    /// What the pods ask once a kube-apiserver has added what their RuntimeClass says, which is JSON.
    ///
    /// Source: kubernetes `plugin/pkg/admission/runtimeclass/admission.go`, `setScheduling`.
    pub fn with_runtime_class(&self, class: &str) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct RuntimeClass {
            #[serde(deserialize_with = "nullable")]
            scheduling: NodeRequirements,
        }
        let RuntimeClass { scheduling } = serde_json::from_str(class).unwrap_or_default();
        let mut asked = self.clone();
        asked.nodes.node_selector.extend(scheduling.node_selector);
        asked.nodes.tolerations.extend(scheduling.tolerations);
        asked
    }

    /// Reads the pod spec of an object; `None` of a kind that makes no pods. One that is absent or malformed asks nothing:
    /// its member refuses it.
    ///
    /// Errors: the body is not a JSON object.
    pub fn of(group: &str, kind: &str, body: &str) -> Result<Option<Self>, NotAnObject> {
        let Some(path) = pod_spec(group, kind) else { return Ok(None) };
        let mut found = Vec::new();
        Paths::new([(0, path)]).locate(body, &mut found)?;
        let spec = found.first().and_then(|place| body.get(place.range.clone()));
        let asked: Self = spec.and_then(|spec| serde_json::from_str(spec).ok()).unwrap_or_default();
        Ok(Some(Self { requested: Resources::of_pod(spec.unwrap_or_default()), ..asked }))
    }
}

/// Why no node of a member could ever run a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The pod names a node that the member does not have, or that its own selector excludes.
    #[error("it has no node {quoted} that the pod may run on", quoted = Quoted(.0))]
    NoNode(String),
    /// A taint, by its key, repels the pod from each node that matches.
    #[error("every node that matches has a taint the pod does not tolerate, such as {0}")]
    Tainted(String),
    /// Node selector and affinity take no node.
    #[error("none of its nodes matches the node selector and affinity")]
    NoMatch,
    /// The pod names objects of other members.
    #[error("it does not hold {}", .0.join(", "))]
    NotHeld(Vec<String>),
}

/// Says whether a node of `nodes` could ever run the pod, or why none could.
///
/// A member without nodes fits: its autoscaler may have none at the moment.
pub fn fits(pod: &PodRequirements, nodes: &[NodeFacts]) -> Result<(), Misfit> {
    if nodes.is_empty() {
        return Ok(());
    }
    if !pod.node_name.is_empty() {
        let there = nodes.iter().any(|node| node.name == pod.node_name && selects(pod, node));
        return there.then_some(()).ok_or_else(|| Misfit::NoNode(pod.node_name.clone()));
    }
    let mut refusal = Misfit::NoMatch;
    for node in nodes {
        if !selects(pod, node) {
            continue;
        }
        match node.taints.iter().find(|taint| forbids(pod, taint)) {
            None => return Ok(()),
            Some(taint) if refusal == Misfit::NoMatch => refusal = Misfit::Tainted(taint.key.clone()),
            Some(_) => {}
        }
    }
    Err(refusal)
}

/// Says whether a node would take the pod now, ill or cordoned as it may be.
pub(super) fn admits(pod: &PodRequirements, node: &NodeFacts) -> bool {
    if !pod.node_name.is_empty() {
        return pod.node_name == node.name && selects(pod, node);
    }
    selects(pod, node) && node.taints.iter().filter(|taint| taint.is_hard()).all(|taint| pod.nodes.tolerate(taint))
}

fn selects(pod: &PodRequirements, node: &NodeFacts) -> bool {
    pod.nodes.select(&node.name, |key| node.labels.get(key).map(String::as_str))
}

/// Says whether a taint keeps the pod away for good. Kubernetes' own `node.kubernetes.io/*` come and go with a node's
/// health, and `node.cloudprovider.kubernetes.io/*` with its start.
fn forbids(pod: &PodRequirements, taint: &Taint) -> bool {
    let passing =
        taint.key.starts_with("node.kubernetes.io/") || taint.key.starts_with("node.cloudprovider.kubernetes.io/");
    taint.is_hard() && !passing && !pod.nodes.tolerate(taint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: &str) -> PodRequirements {
        let body = format!(r#"{{"spec":{{"template":{{"spec":{spec}}}}}}}"#);
        PodRequirements::of("apps", "Deployment", &body).unwrap().unwrap()
    }

    fn node(name: &str, labels: &[(&str, &str)], taints: &[(&str, &str, &str)]) -> NodeFacts {
        NodeFacts {
            name: name.into(),
            labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            taints: taints
                .iter()
                .map(|(key, value, effect)| Taint {
                    key: (*key).into(),
                    value: (*value).into(),
                    effect: (*effect).into(),
                })
                .collect(),
        }
    }

    #[test]
    fn a_plain_pod_fits_and_so_does_a_member_without_nodes() {
        assert_eq!(fits(&pod("{}"), &[node("n", &[], &[])]), Ok(()));
        assert_eq!(fits(&pod(r#"{"nodeSelector":{"disk":"ssd"},"tolerations":null}"#), &[]), Ok(()));
        assert_eq!(
            fits(&PodRequirements::of("apps", "Deployment", "{}").unwrap().unwrap(), &[node("n", &[], &[])]),
            Ok(())
        );
    }

    #[test]
    fn selectors_and_affinity() {
        let nodes = [node("a", &[("disk", "hdd"), ("cpu", "8")], &[]), node("b", &[("zone", "x")], &[])];
        let affinity = |terms: &str| {
            pod(&format!(
                r#"{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":{terms}}}}}}}}}"#
            ))
        };
        let term = |key: &str, operator: &str, values: &str| {
            affinity(&format!(
                r#"[{{"matchExpressions":[{{"key":"{key}","operator":"{operator}","values":{values}}}]}}]"#
            ))
        };
        assert!(fits(&pod(r#"{"nodeSelector":{"disk":"hdd"}}"#), &nodes).is_ok());
        assert!(fits(&pod(r#"{"nodeSelector":{"disk":"hdd","zone":"x"}}"#), &nodes).is_err());
        assert!(fits(&term("disk", "In", r#"["ssd","hdd"]"#), &nodes).is_ok());
        assert!(fits(&term("disk", "In", r#"["ssd"]"#), &nodes).is_err());
        assert!(fits(&term("disk", "NotIn", r#"["hdd"]"#), &nodes).is_ok(), "b has none");
        assert!(fits(&term("gpu", "Exists", "null"), &nodes).is_err());
        assert!(fits(&term("gpu", "DoesNotExist", "[]"), &nodes).is_ok());
        assert!(fits(&term("cpu", "Gt", r#"["7"]"#), &nodes).is_ok());
        assert!(fits(&term("cpu", "Lt", r#"["8"]"#), &nodes).is_err());
        assert!(fits(&affinity("[{}]"), &nodes).is_err(), "an empty term matches nothing");
        let named = r#"[{"matchFields":[{"key":"metadata.name","operator":"In","values":["b"]}]}]"#;
        assert!(fits(&affinity(named), &nodes).is_ok());
    }

    #[test]
    fn a_runtime_class_adds_its_selector_and_tolerations() {
        let nodes = [node("a", &[], &[]), node("b", &[("kata", "yes")], &[("kata", "", "NoSchedule")])];
        let asked = pod(r#"{"runtimeClassName":"kata","nodeSelector":null}"#);
        assert_eq!(asked.runtime_class_name, "kata");
        let class = r#"{"handler":"kata","scheduling":{"nodeSelector":{"kata":"yes"},"tolerations":[{"key":"kata","operator":"Exists"}]}}"#;
        assert_eq!(fits(&asked.with_runtime_class(class), &nodes), Ok(()));
        assert_eq!(fits(&asked.with_runtime_class(class), &nodes[..1]), Err(Misfit::NoMatch));
        assert_eq!(asked.with_runtime_class(r#"{"handler":"kata"}"#), asked);
    }

    #[test]
    fn node_names_and_taints() {
        let nodes = [node("a", &[], &[("dedicated", "gpu", "NoSchedule")])];
        assert!(fits(&pod(r#"{"nodeName":"a"}"#), &nodes).is_ok());
        assert!(fits(&pod(r#"{"nodeName":"b"}"#), &nodes).is_err());
        assert!(fits(&pod("{}"), &nodes).unwrap_err() == Misfit::Tainted("dedicated".into()));
        assert!(fits(&pod(r#"{"tolerations":[{"operator":"Exists"}]}"#), &nodes).is_ok());
        assert!(fits(&pod(r#"{"tolerations":[{"key":"dedicated","value":"gpu"}]}"#), &nodes).is_ok());
        assert!(fits(&pod(r#"{"tolerations":[{"key":"dedicated","value":"cpu"}]}"#), &nodes).is_err());
        let ill =
            [node("a", &[], &[("node.kubernetes.io/not-ready", "", "NoSchedule"), ("x", "", "PreferNoSchedule")])];
        assert!(fits(&pod("{}"), &ill).is_ok(), "it may be ready in a minute");
    }
}
