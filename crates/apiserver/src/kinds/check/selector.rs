//! Label selectors.
//!
//! Source: kubernetes/apimachinery `pkg/apis/meta/v1/validation/validation.go`, `pkg/apis/meta/v1/helpers.go`.

use serde_json::Value;

use super::{Errors, Path, metadata};
use crate::kinds::doc::Doc;
use kubefold_wire::{
    matching::ObjectSelector,
    names::{label_value, qualified_name},
};

/// A `LabelSelector`.
pub(in crate::kinds) fn check(selector: Option<&Value>, at: &Path, errors: &mut Errors) {
    let Some(selector) = selector else { return };
    metadata::labels(selector.at("matchLabels"), &at.child("matchLabels"), errors);
    let there = at.child("matchExpressions");
    for (index, requirement) in selector.items("matchExpressions").iter().enumerate() {
        check_requirement(requirement, &there.index(index), errors);
    }
}

fn check_requirement(requirement: &Value, at: &Path, errors: &mut Errors) {
    let values = requirement.items("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(&at.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(&at.child("operator"), other, "not a valid selector operator"),
    }
    let key = requirement.text("key");
    errors.all_invalid(&at.child("key"), key, &qualified_name(key));
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or("");
        errors.all_invalid(&at.child("values").index(index), value, &label_value(value));
    }
}

/// Says whether it selects by nothing.
pub(in crate::kinds) fn is_empty(selector: &Value) -> bool {
    ObjectSelector::of(selector).is_some_and(|selector| selector.is_empty())
}

/// Says whether it can be understood at all.
pub(in crate::kinds) fn parses(selector: &Value) -> bool {
    let mut errors = Errors::default();
    check(Some(selector), &Path::new(""), &mut errors);
    errors.is_empty()
}

/// Says whether it selects an object with these labels.
pub(in crate::kinds) fn matches(selector: &Value, labels: Option<&Value>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    ObjectSelector::of(selector).is_some_and(|selector| selector.matches(label))
}
