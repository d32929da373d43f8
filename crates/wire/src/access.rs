//! What stands at a JSON pointer of a document, for code that takes a missing field for an empty one.

use serde_json::Value;

/// The text at a JSON pointer; empty if there is none.
pub fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a JSON pointer; `None`: there is none.
pub fn number(document: &Value, pointer: &str) -> Option<i64> {
    document.pointer(pointer).and_then(Value::as_i64)
}

/// Says whether `true` stands at a JSON pointer.
pub fn is_true(document: &Value, pointer: &str) -> bool {
    document.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// The items of the list at a JSON pointer; none if there is no list.
pub fn items<'a>(document: &'a Value, pointer: &str) -> &'a [Value] {
    document.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The texts of the list at a JSON pointer.
pub fn texts<'a>(document: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    items(document, pointer).iter().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_or_of_another_type_is_empty() {
        let document = json!({"a": {"text": "x", "number": 7, "on": true, "list": ["y", 1]}});
        assert_eq!(
            (text(&document, "/a/text"), text(&document, "/a/number"), text(&document, "/b/text")),
            ("x", "", "")
        );
        assert_eq!((number(&document, "/a/number"), number(&document, "/a/text")), (Some(7), None));
        assert_eq!((is_true(&document, "/a/on"), is_true(&document, "/a/text")), (true, false));
        assert_eq!((items(&document, "/a/list").len(), items(&document, "/a").len()), (2, 0));
        assert_eq!(texts(&document, "/a/list").collect::<Vec<_>>(), ["y"]);
    }
}
