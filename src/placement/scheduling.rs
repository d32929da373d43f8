//! Whether a pod template could ever be scheduled in a member: node name, node selector, required affinity, taints.
//!
//! Source: kubernetes/component-helpers `scheduling/corev1/nodeaffinity`, kubernetes/api `core/v1` `ToleratesTaint`.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Deserializer};

use crate::placement::capacity::Resources;
use kubefold_wire::locate::{NotAnObject, Paths};

/// What a pod template asks of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRequirements {
    /// Passes the scheduler by.
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    /// Labels that a node must have.
    #[serde(deserialize_with = "nullable")]
    pub node_selector: BTreeMap<String, String>,
    /// Only `nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution` is read.
    #[serde(deserialize_with = "nullable")]
    pub affinity: Affinity,
    /// Taints that the pod bears.
    #[serde(deserialize_with = "nullable")]
    pub tolerations: Vec<Toleration>,
    /// What one pod requests.
    #[serde(skip)]
    pub requested: Resources,
}

/// `affinity`, as far as it is required of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// `nodeAffinity`.
    #[serde(deserialize_with = "nullable")]
    pub node_affinity: NodeAffinity,
}

/// `nodeAffinity`, as far as it is required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// What must match for the pod to be scheduled.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
}

/// Terms of which one must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// One of these must match.
    #[serde(deserialize_with = "nullable")]
    pub node_selector_terms: Vec<Term>,
}

/// Requirements that all must match. Without any it matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Term {
    /// On labels.
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<Requirement>,
    /// On fields; Kubernetes knows `metadata.name` alone.
    #[serde(deserialize_with = "nullable")]
    pub match_fields: Vec<Requirement>,
}

/// One requirement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// Label or field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`.
    pub operator: String,
    /// What it compares with.
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

/// One toleration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// Taint key; empty with `Exists` is every key.
    pub key: String,
    /// `Exists` or `Equal`; empty is `Equal`.
    pub operator: String,
    /// Taint value.
    pub value: String,
    /// Taint effect; empty is every effect.
    pub effect: String,
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

/// One taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule`, `NoExecute`.
    pub effect: String,
}

impl Toleration {
    /// Says whether it bears a taint.
    pub fn bears(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let exists = self.operator == "Exists";
        let key = self.key == taint.key || (exists && self.key.is_empty());
        effect && key && (exists || self.value == taint.value)
    }
}

impl Taint {
    /// As kubectl writes it: `key=value`.
    pub fn text(&self) -> String {
        if self.value.is_empty() { self.key.clone() } else { format!("{}={}", self.key, self.value) }
    }
}

/// Reads `null` as what is not there.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
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
        let terms = self.affinity.node_affinity.required.iter().flat_map(|selector| &selector.node_selector_terms);
        let values = terms.flat_map(|term| &term.match_fields).filter(|wanted| wanted.operator == "In");
        own.into_iter().chain(values.flat_map(|wanted| &wanted.values)).map(String::as_str)
    }

    /// Changes the names of nodes in it.
    pub fn rename_nodes(&mut self, rename: impl Fn(&str) -> Option<String>) {
        let terms =
            self.affinity.node_affinity.required.iter_mut().flat_map(|selector| &mut selector.node_selector_terms);
        let values = terms.flat_map(|term| &mut term.match_fields).flat_map(|wanted| &mut wanted.values);
        for name in values.chain([&mut self.node_name]) {
            if let Some(renamed) = rename(name) {
                *name = renamed;
            }
        }
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

/// Says whether a node of `nodes` could ever run the pod, or why none could.
///
/// A member without nodes fits: its autoscaler may have none at the moment.
pub fn fits(pod: &PodRequirements, nodes: &[NodeFacts]) -> Result<(), String> {
    if nodes.is_empty() {
        return Ok(());
    }
    if !pod.node_name.is_empty() {
        let there = nodes.iter().any(|node| node.name == pod.node_name && selects(pod, node));
        return there
            .then_some(())
            .ok_or_else(|| format!("it has no node {:?} that the pod may run on", pod.node_name));
    }
    let mut refusal: Option<Cow<'_, str>> = None;
    for node in nodes {
        if !selects(pod, node) {
            continue;
        }
        match node.taints.iter().find(|taint| forbids(pod, taint)) {
            None => return Ok(()),
            Some(taint) => {
                let taint =
                    format!("every node that matches has a taint the pod does not tolerate, such as {}", taint.key);
                refusal.get_or_insert(Cow::Owned(taint));
            }
        }
    }
    Err(refusal.unwrap_or(Cow::Borrowed("none of its nodes matches the node selector and affinity")).into_owned())
}

/// Says whether a node would take the pod now, ill or cordoned as it may be.
pub(super) fn admits(pod: &PodRequirements, node: &NodeFacts) -> bool {
    if !pod.node_name.is_empty() {
        return pod.node_name == node.name && selects(pod, node);
    }
    let hard = |taint: &&Taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    let borne = |taint: &Taint| pod.tolerations.iter().any(|toleration| toleration.bears(taint));
    selects(pod, node) && node.taints.iter().filter(hard).all(borne)
}

fn selects(pod: &PodRequirements, node: &NodeFacts) -> bool {
    let labels = pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    labels
        && pod.affinity.node_affinity.required.as_ref().is_none_or(|selector| {
            selector.node_selector_terms.iter().any(|term| {
                let some = !term.match_expressions.is_empty() || !term.match_fields.is_empty();
                let field =
                    |wanted: &Requirement| matches(wanted, (wanted.key == "metadata.name").then_some(&node.name));
                some && term.match_expressions.iter().all(|wanted| matches(wanted, node.labels.get(&wanted.key)))
                    && term.match_fields.iter().all(field)
            })
        })
}

fn matches(wanted: &Requirement, value: Option<&String>) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    let compare = |holds: fn(i64, i64) -> bool| {
        let pair = value.and_then(number).zip(wanted.values.first().and_then(number));
        pair.is_some_and(|(mine, bound)| holds(mine, bound))
    };
    match wanted.operator.as_str() {
        "In" => value.is_some_and(|value| wanted.values.contains(value)),
        "NotIn" => value.is_none_or(|value| !wanted.values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|mine, bound| mine > bound),
        "Lt" => compare(|mine, bound| mine < bound),
        // The member's own validation refuses any other.
        _ => true,
    }
}

/// Says whether a taint keeps the pod away for good. Kubernetes' own `node.kubernetes.io/*` come and go with a node's
/// health, and `node.cloudprovider.kubernetes.io/*` with its start.
fn forbids(pod: &PodRequirements, taint: &Taint) -> bool {
    let passing =
        taint.key.starts_with("node.kubernetes.io/") || taint.key.starts_with("node.cloudprovider.kubernetes.io/");
    let hard = taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    hard && !passing && !pod.tolerations.iter().any(|toleration| toleration.bears(taint))
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
    fn node_names_and_taints() {
        let nodes = [node("a", &[], &[("dedicated", "gpu", "NoSchedule")])];
        assert!(fits(&pod(r#"{"nodeName":"a"}"#), &nodes).is_ok());
        assert!(fits(&pod(r#"{"nodeName":"b"}"#), &nodes).is_err());
        assert!(fits(&pod("{}"), &nodes).unwrap_err().contains("dedicated"));
        assert!(fits(&pod(r#"{"tolerations":[{"operator":"Exists"}]}"#), &nodes).is_ok());
        assert!(fits(&pod(r#"{"tolerations":[{"key":"dedicated","value":"gpu"}]}"#), &nodes).is_ok());
        assert!(fits(&pod(r#"{"tolerations":[{"key":"dedicated","value":"cpu"}]}"#), &nodes).is_err());
        let ill =
            [node("a", &[], &[("node.kubernetes.io/not-ready", "", "NoSchedule"), ("x", "", "PreferNoSchedule")])];
        assert!(fits(&pod("{}"), &ill).is_ok(), "it may be ready in a minute");
    }
}
