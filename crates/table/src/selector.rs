//! Labels and label selectors as Kubernetes prints them.
//!
//! Source: kubernetes/apimachinery `pkg/labels/labels.go`, `pkg/labels/selector.go`, `pkg/apis/meta/v1/helpers.go`.

use serde::Deserialize;

use crate::object::{List, Map, Text};
use kubefold_wire::matching::{Printed, selector_text};

/// `metav1.LabelSelector`
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Selector<'a> {
    match_labels: Map<'a>,
    match_expressions: List<Requirement<'a>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Requirement<'a> {
    key: Text<'a>,
    operator: Text<'a>,
    values: List<Text<'a>>,
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(map: &Map<'_>) -> String {
    let mut pairs: Vec<String> = map.0.iter().map(|(key, value)| format!("{}={}", key.0, value.0)).collect();
    pairs.sort();
    none_if_empty(pairs.join(","))
}

/// A selector, or `<none>` if there is none or it selects everything.
pub(super) fn selector(selector: Option<&Selector<'_>>) -> String {
    none_if_empty(selector.map(Selector::text).unwrap_or_default())
}

fn none_if_empty(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

impl Selector<'_> {
    /// As a label selector of a query.
    pub(super) fn text(&self) -> String {
        let labels = self.match_labels.0.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        selector_text(labels, self.match_expressions.iter().map(Requirement::printed))
    }

    /// As Go's generated `String` writes the struct.
    pub(super) fn go_text(&self) -> String {
        let mut pairs: Vec<(&str, &str)> =
            self.match_labels.0.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        pairs.sort_unstable();
        let labels: String = pairs.iter().map(|(key, value)| format!("{key}: {value},")).collect();
        let terms: String = self.match_expressions.iter().map(|term| format!("{},", term.go_text())).collect();
        format!(
            "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
        )
    }
}

impl Requirement<'_> {
    fn printed(&self) -> Printed<'_> {
        let values = self.values.iter().map(Text::as_str).collect();
        Printed { key: self.key.as_str(), operator: self.operator.as_str(), values }
    }

    fn go_text(&self) -> String {
        let values: Vec<&str> = self.values.iter().map(Text::as_str).collect();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}}",
            self.key.0,
            self.operator.0,
            values.join(" ")
        )
    }
}
