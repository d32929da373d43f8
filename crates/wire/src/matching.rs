//! What objects say of other objects: label selectors (`matchLabels`, `matchExpressions`), node selector terms, taints and
//! tolerations.
//!
//! What a kube-apiserver would refuse matches nothing, as in Kubernetes' own controllers.
//!
//! Source: kubernetes/apimachinery `pkg/apis/meta/v1/helpers.go`, `pkg/labels/selector.go`; component-helpers
//! `scheduling/corev1/nodeaffinity/nodeaffinity.go`; api `core/v1/toleration.go`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::{
    names::{label_value, qualified_name},
    selector::Operator,
};

/// The one field of nodes that their selectors may name.
const NODE_NAME: &str = "metadata.name";

/// Reads `null` as what is absent.
pub fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A requirement of a selector: a key, an operator, values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Expression {
    /// A label, or a field.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`; of nodes also `Gt` and `Lt`.
    #[serde(deserialize_with = "nullable")]
    pub operator: String,
    /// What the operator compares with.
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

impl Expression {
    /// Says whether Kubernetes makes a requirement of labels of it.
    ///
    /// Source: `labels.NewRequirement`.
    fn is_valid(&self) -> bool {
        let counted = match self.operator.as_str() {
            "In" | "NotIn" => !self.values.is_empty(),
            "Exists" | "DoesNotExist" => self.values.is_empty(),
            "Gt" | "Lt" => matches!(self.values.as_slice(), [one] if one.parse::<i64>().is_ok()),
            _ => false,
        };
        counted && qualified_name(&self.key).is_empty() && self.values.iter().all(|value| label_value(value).is_empty())
    }

    /// Says whether a label of this value, or none, meets a valid requirement.
    fn is_met(&self, value: Option<&str>) -> bool {
        Operator::named(&self.operator).is_some_and(|operator| operator.is_met(value, &self.values))
    }

    /// Says whether a node's name meets a requirement of fields.
    ///
    /// Source: `nodeSelectorRequirementsAsFieldSelector`: one value each; another field is empty.
    fn is_met_by_node(&self, node: &str) -> bool {
        let field = if self.key == NODE_NAME { node } else { "" };
        match (self.operator.as_str(), self.values.as_slice()) {
            ("In", [one]) => field == one,
            ("NotIn", [one]) => field != one,
            _ => false,
        }
    }
}

/// `metav1.LabelSelector`. One without requirements selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectSelector {
    /// Labels of equal value.
    #[serde(deserialize_with = "nullable")]
    pub match_labels: BTreeMap<String, String>,
    /// All must be met.
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<Expression>,
}

impl ObjectSelector {
    /// Reads a selector; `None` if it is malformed. `null` is one without requirements.
    pub fn of(selector: &serde_json::Value) -> Option<Self> {
        nullable(selector).ok()
    }

    /// Says whether the selector has no requirements.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Says whether the selector takes an object, by its labels. An invalid one takes none.
    ///
    /// Source: `LabelSelectorAsSelector`.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(|one| {
                !matches!(one.operator.as_str(), "Gt" | "Lt") && one.is_valid() && one.is_met(label(&one.key))
            })
    }
}

/// One of `matchExpressions`, to be printed.
#[derive(Clone, Debug)]
pub struct Printed<'a> {
    /// A label.
    pub key: &'a str,
    /// As [`Expression::operator`].
    pub operator: &'a str,
    /// What the operator compares with.
    pub values: Vec<&'a str>,
}

/// A `metav1.LabelSelector` as the label selector of a query; one without requirements is empty.
///
/// Source: `LabelSelectorAsSelector`; apimachinery `pkg/labels/selector.go`, `ByKey`, `Requirement.String`.
pub fn selector_text<'a>(
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    expressions: impl IntoIterator<Item = Printed<'a>>,
) -> String {
    let mut terms: Vec<(&str, String)> =
        labels.into_iter().map(|(key, value)| (key, format!("{key}={value}"))).collect();
    terms.extend(expressions.into_iter().map(|expression| (expression.key, expression.text())));
    terms.sort_by_key(|(key, _)| *key);
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

impl Printed<'_> {
    fn text(mut self) -> String {
        self.values.sort_unstable();
        let (key, values) = (self.key, self.values.join(","));
        match self.operator {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        }
    }
}

/// What a pod asks of the node that it is to run on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeRequirements {
    /// Labels that a node must have.
    #[serde(deserialize_with = "nullable")]
    pub node_selector: BTreeMap<String, String>,
    /// Only `nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution` is read.
    #[serde(deserialize_with = "nullable")]
    pub affinity: Affinity,
    /// Taints that the pod tolerates.
    #[serde(deserialize_with = "nullable")]
    pub tolerations: Vec<Toleration>,
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
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that all must be met. Without any the term matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// On labels.
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<Expression>,
    /// On fields; Kubernetes knows `metadata.name` alone.
    #[serde(deserialize_with = "nullable")]
    pub match_fields: Vec<Expression>,
}

impl NodeRequirements {
    /// Reads a pod's spec. A malformed one asks nothing.
    pub fn of(spec: &serde_json::Value) -> Self {
        nullable(spec).unwrap_or_default()
    }

    /// Says whether node selector and affinity take a node, by its name and labels.
    ///
    /// Source: `RequiredNodeAffinity.Match`.
    pub fn select<'a>(&self, node: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.node_selector.iter().all(|(key, value)| label(key) == Some(value))
            && self.affinity.node_affinity.required.as_ref().is_none_or(|required| required.matches(node, &label))
    }

    /// Says whether the pod tolerates a taint.
    pub fn tolerate(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    }
}

impl NodeSelector {
    /// Says whether a term takes a node.
    ///
    /// Source: `LazyErrorNodeSelector.Match`.
    fn matches<'a>(&self, node: &str, label: &impl Fn(&str) -> Option<&'a str>) -> bool {
        self.node_selector_terms.iter().any(|term| {
            let some = !term.match_expressions.is_empty() || !term.match_fields.is_empty();
            some && term.match_expressions.iter().all(|one| one.is_valid() && one.is_met(label(&one.key)))
                && term.match_fields.iter().all(|one| one.is_met_by_node(node))
        })
    }
}

/// A toleration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// The taint's key; empty is every key.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// `Exists` or `Equal`; empty is `Equal`.
    #[serde(deserialize_with = "nullable")]
    pub operator: String,
    /// The taint's value.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    /// The taint's effect; empty is every effect.
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
    /// How long a `NoExecute` taint is tolerated; `None` is for ever. Units: seconds.
    #[serde(rename = "tolerationSeconds")]
    pub seconds: Option<i64>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Names the taint.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// Empty if the taint has none.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule`, `NoExecute`.
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
}

impl Toleration {
    /// Says whether a pod with this toleration tolerates a taint. The operators `Gt` and `Lt` are behind a feature gate that
    /// is off by default, and then tolerate nothing.
    ///
    /// Source: `Toleration.ToleratesTaint`.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() || self.key == taint.key;
        let value = match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        };
        effect && key && value
    }
}

impl Taint {
    /// Says whether the taint keeps pods off a node that do not tolerate it.
    pub fn is_hard(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }

    /// As kubectl writes it: `key=value`.
    pub fn text(&self) -> String {
        if self.value.is_empty() { self.key.clone() } else { format!("{}={}", self.key, self.value) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn labelled<'a>(labels: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<&'a str> {
        |key| labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    fn selects(terms: Value, node: &str, labels: &[(&str, &str)]) -> bool {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        NodeRequirements::of(&json!({"affinity": {"nodeAffinity": required}})).select(node, labelled(labels))
    }

    fn one(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": operator, "values": values})
    }

    /// Source: component-helpers `nodeaffinity_test.go`, `TestNodeSelectorMatch`,
    /// `TestPodMatchesNodeSelectorAndAffinityTerms`.
    #[test]
    fn node_selector_terms_as_upstream() {
        let (label, field) = (one("label_1", "In", &["label_1_val"]), one("metadata.name", "In", &["host_1"]));
        let both = json!([{"matchExpressions": [label], "matchFields": [field]}]);
        let either = json!([{"matchExpressions": [label]}, {"matchFields": [field]}]);
        assert!(!selects(both.clone(), "host_1", &[]), "matches field selector, but not labels");
        assert!(selects(both, "host_1", &[("label_1", "label_1_val")]));
        assert!(selects(either, "host_1", &[]), "second term matches");
        let by = |expressions: Value| json!([{"matchExpressions": expressions}]);
        for (terms, labels, taken) in [
            (by(json!([one("foo", "In", &["bar", "value2"])])), [("foo", "bar")], true),
            (by(json!([one("kernel-version", "Gt", &["0204"])])), [("kernel-version", "0206")], true),
            (by(json!([one("mem-type", "NotIn", &["DDR", "DDR2"])])), [("mem-type", "DDR3")], true),
            (by(json!([one("GPU", "Exists", &[])])), [("GPU", "NVIDIA-GRID-K1")], true),
            (by(json!([one("foo", "In", &["value1", "value2"])])), [("foo", "bar")], false),
            (Value::Null, [("foo", "bar")], false),
            (json!([]), [("foo", "bar")], false),
            (json!([{}]), [("foo", "bar")], false),
            (
                by(json!([one("GPU", "Exists", &[]), one("GPU", "NotIn", &["AMD", "INTER"])])),
                [("GPU", "NVIDIA-GRID-K1")],
                true,
            ),
            (
                by(json!([one("GPU", "Exists", &[]), one("GPU", "In", &["AMD", "INTER"])])),
                [("GPU", "NVIDIA-GRID-K1")],
                false,
            ),
            (
                json!([{"matchExpressions": [one("foo", "In", &["bar"])]}, {"matchExpressions": [one("diffkey", "In", &["x"])]}]),
                [("foo", "bar")],
                true,
            ),
            (by(json!([one("foo", "NotIn", &["invalid value: ___@#$%^"])])), [("foo", "bar")], false),
            // What makes no requirement: `TestNodeSelectorRequirementsAsSelector`.
            (by(json!([one("foo", "Exists", &["bar", "baz"])])), [("foo", "bar")], false),
            (by(json!([one("baz", "invalid", &["5"])])), [("baz", "5")], false),
            (by(json!([one("invalid key", "NotIn", &["5"])])), [("foo", "bar")], false),
            (by(json!([one("foo", "Lt", &["7", "8"])])), [("foo", "1")], false),
            (json!([{"matchFields": [one("metadata.name", "In", &["host_1", "host_2"])]}]), [("foo", "bar")], false),
            (json!([{"matchFields": [one("metadata.name", "NotIn", &["host_2"])]}]), [("foo", "bar")], true),
            (json!([{"matchFields": [one("metadata.other", "In", &["host_1"])]}]), [("foo", "bar")], false),
            (json!([{"matchFields": [one("metadata.name", "Exists", &[])]}]), [("foo", "bar")], false),
        ] {
            assert_eq!(selects(terms.clone(), "host_1", &labels), taken, "{terms}");
        }
        let plain = |selector: Value| NodeRequirements::of(&json!({"nodeSelector": selector}));
        assert!(
            plain(Value::Null).select("n", labelled(&[]))
                && plain(json!({"foo": "bar"})).select("n", labelled(&[("foo", "bar"), ("baz", "blah")]))
        );
        assert!(!plain(json!({"foo": "bar"})).select("n", labelled(&[])));
    }

    /// Source: api `core/v1/toleration_test.go`, `TestTolerationToleratesTaint`.
    #[test]
    fn tolerations_as_upstream() {
        for (toleration, taint, tolerated) in [
            (["foo", "Exists", "", "NoSchedule"], ["foo", "", "NoSchedule"], true),
            (["foo", "Exists", "", "NoSchedule"], ["foo", "bar", "NoSchedule"], true),
            (["", "Exists", "", "NoSchedule"], ["foo", "bar", "NoSchedule"], true),
            (["foo", "Equal", "bar", "NoSchedule"], ["foo", "bar", "NoSchedule"], true),
            (["foo", "Equal", "value1", "NoSchedule"], ["foo", "value2", "NoSchedule"], false),
            (["foo", "Equal", "bar", "NoSchedule"], ["foo", "bar", "NoExecute"], false),
            (["foo", "", "bar", ""], ["foo", "bar", "NoExecute"], true),
            // Where copies differed: an empty key is every key, an unknown operator tolerates nothing, and so do comparisons
            // while their feature gate is off.
            (["", "", "bar", ""], ["foo", "bar", "NoExecute"], true),
            (["foo", "Any", "bar", ""], ["foo", "bar", "NoExecute"], false),
            (["sla", "Gt", "750", "NoSchedule"], ["sla", "950", "NoSchedule"], false),
        ] {
            let [key, operator, value, effect] = toleration.map(str::to_owned);
            let [taint_key, taint_value, taint_effect] = taint.map(str::to_owned);
            let taint = Taint { key: taint_key, value: taint_value, effect: taint_effect };
            assert_eq!(
                Toleration { key, operator, value, effect, seconds: None }.tolerates(&taint),
                tolerated,
                "{toleration:?} {taint:?}"
            );
        }
    }

    /// Where copies differed: terms stand by their keys, so that `a-b=1` and `!a` do not stand before `a`.
    #[test]
    fn a_selector_is_printed_by_its_keys() {
        let printed = |key, operator, values: &[&'static str]| Printed { key, operator, values: values.to_vec() };
        let expressions =
            [printed("z", "DoesNotExist", &[]), printed("b", "In", &["y", "x"]), printed("c", "Exists", &[])];
        assert_eq!(selector_text([("a-b", "1"), ("a", "2")], expressions), "a=2,a-b=1,b in (x,y),c,!z");
        assert_eq!(selector_text([], [printed("b", "NotIn", &["x"])]), "b notin (x)");
        assert_eq!(selector_text([], []), "");
    }

    /// Source: apimachinery `pkg/apis/meta/v1/helpers_test.go`, `TestLabelSelectorAsSelector`.
    #[test]
    fn label_selectors_as_upstream() {
        let takes =
            |selector: Value, labels: &[(&str, &str)]| ObjectSelector::of(&selector).unwrap().matches(labelled(labels));
        assert!(takes(Value::Null, &[]) && takes(json!({}), &[("a", "b")]), "no requirements select everything");
        assert!(takes(json!({"matchLabels": {"foo": "bar"}}), &[("foo", "bar"), ("x", "y")]));
        assert!(!takes(json!({"matchLabels": {"foo": "bar"}}), &[("foo", "baz")]));
        let by = |expression: Value| json!({"matchLabels": null, "matchExpressions": [expression]});
        for (expression, labels, taken) in [
            (one("baz", "In", &["qux", "norf"]), [("baz", "norf")], true),
            (one("baz", "NotIn", &["qux", "norf"]), [("baz", "norf")], false),
            (one("baz", "NotIn", &["qux", "norf"]), [("other", "norf")], true),
            (one("baz", "Exists", &[]), [("baz", "")], true),
            (one("baz", "DoesNotExist", &[]), [("baz", "")], false),
            (one("baz", "Exists", &["qux", "norf"]), [("baz", "qux")], false),
            (one("baz", "In", &[]), [("baz", "")], false),
            (one("baz", "Gt", &["1"]), [("baz", "2")], false),
            (one("baz", "", &[]), [("other", "2")], false),
        ] {
            assert_eq!(takes(by(expression.clone()), &labels), taken, "{expression}");
        }
    }
}
