//! Versions of objects for calculations that do not wait.

use parking_lot::Mutex;
use serde_json::Value;

use crate::kinds::put;

/// Versions of objects that one calculation asks for. It is made again once those are there that were not.
#[derive(Default)]
pub(super) struct Conversions(Mutex<Known>);

#[derive(Default)]
struct Known {
    made: Vec<Made>,
    /// What is to be made before the calculation says anything.
    missing: Option<Missing>,
}

struct Made {
    of: Missing,
    object: Value,
}

/// An object, and the version that is wanted of it.
pub(super) struct Missing {
    pub(super) object: Value,
    pub(super) api_version: String,
}

impl Conversions {
    /// An object in another version; `None`: it is not there yet, and what is calculated now counts for nothing.
    pub(super) fn of(&self, object: &Value, asked: &str) -> Option<Value> {
        let mut known = self.0.lock();
        let is_empty = object.as_object().is_none_or(|fields| fields.keys().all(|name| is_type(name)));
        if is_empty || object.get("apiVersion").and_then(Value::as_str) == Some(asked) {
            let mut same = object.clone();
            put(&mut same, "apiVersion", Some(asked.into()));
            return Some(same);
        }
        let made = known.made.iter().find(|made| made.of.api_version == asked && made.of.object == *object);
        if let Some(made) = made {
            return Some(made.object.clone());
        }
        // One after another: what is calculated without the first may be nothing that can be converted.
        known.missing.get_or_insert_with(|| Missing { object: object.clone(), api_version: asked.to_owned() });
        None
    }

    /// The first version that was asked for and is not there.
    pub(super) fn take_missing(&self) -> Option<Missing> {
        self.0.lock().missing.take()
    }

    pub(super) fn add(&self, of: Missing, object: Value) {
        self.0.lock().made.push(Made { of, object });
    }
}

/// An object without anything else is the same in all versions.
///
/// Source: `webhook_converter.go` `isEmptyUnstructuredObject`.
fn is_type(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_version_after_another_is_missing() {
        let conversions = Conversions::default();
        let first = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"a": 1}});
        let second = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"a": 2}});
        assert_eq!(conversions.of(&first, "example.com/v1"), Some(first.clone()));
        assert_eq!(conversions.of(&first, "example.com/v2"), None);
        assert_eq!(conversions.of(&second, "example.com/v2"), None);
        let missing = conversions.take_missing().unwrap();
        assert_eq!(missing.object, first);
        conversions.add(missing, json!({"apiVersion": "example.com/v2", "spec": {"b": 1}}));
        assert_eq!(conversions.of(&first, "example.com/v2").unwrap()["spec"], json!({"b": 1}));
        assert!(conversions.take_missing().is_none());
    }

    #[test]
    fn what_is_empty_needs_no_conversion() {
        let empty = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
        let conversions = Conversions::default();
        let other = conversions.of(&empty, "example.com/v2").unwrap();
        assert_eq!(other, json!({"apiVersion": "example.com/v2", "kind": "Widget"}));
        assert!(conversions.take_missing().is_none());
    }
}
