//! Labels and label selectors as Kubernetes prints them.
//!
//! Source: kubernetes/apimachinery `pkg/labels/labels.go`, `pkg/labels/selector.go`, `pkg/apis/meta/v1/helpers.go`.

use serde::Deserialize;

use crate::object::{List, Map, Text};

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
        let mut terms: Vec<(&str, String)> =
            self.match_labels.0.iter().map(|(key, value)| (key.as_str(), format!("{}={}", key.0, value.0))).collect();
        terms.extend(self.match_expressions.iter().map(|term| (term.key.as_str(), term.text())));
        terms.sort_by_key(|(key, _)| *key);
        terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
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
    fn text(&self) -> String {
        let key = &self.key.0;
        let mut values: Vec<&str> = self.values.iter().map(Text::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        match self.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_string(),
        }
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
