//! How large the values of a schema may be.
//!
//! Source: kubernetes/apiserver `pkg/cel/common/schemas.go`, `pkg/cel/limits.go`.

use kubefold_wire::access::{items, text, texts};
use serde_json::Value;

use super::schemas;

/// The largest request. Units: bytes. Source: kubernetes/apiserver `pkg/apis/cel/config.go` `MaxRequestSizeBytes`.
const REQUEST_MAX: u64 = 3 * 1024 * 1024;
/// A date with its quotes. Units: bytes.
const DATE_MAX: u64 = 12;
/// A time or a duration with its quotes. Units: bytes.
const TIME_MAX: u64 = 32;

/// The schema of `self`, by which the sizes of values are estimated.
#[derive(Clone, Copy)]
pub(super) struct Sizes<'a> {
    pub(super) schema: &'a Value,
    /// Whether it is that of a whole object.
    pub(super) is_root: bool,
}

impl Sizes<'_> {
    /// The most letters, items or fields of a value at a path within the schema; `None`: there is no such place.
    pub(super) fn elements_max(self, path: &[String]) -> Option<u64> {
        let Self { schema, is_root } = self;
        let Some((first, rest)) = path.split_first() else { return Some(elements(schema)) };
        if is_int_or_string(schema) {
            return None;
        }
        let values = schema.get("additionalProperties").filter(|values| values.is_object());
        let inside = match (first.as_str(), text(schema, "/type")) {
            ("@items" | "@values", "array") => schema.get("items")?,
            ("@items" | "@values", "object") => values?,
            // The keys are texts of no size.
            ("@keys", "object") if values.is_some() => return rest.is_empty().then_some(0),
            (name, "object") if values.is_none() => schemas::property(schema, is_root, name)?,
            _ => return None,
        };
        let is_seen = schemas::type_of(inside, "", false).is_some();
        Sizes { schema: inside, is_root: false }.elements_max(rest).filter(|_| is_seen)
    }

    /// How often a value of this schema may be in one request.
    pub(super) fn count_max(self) -> u64 {
        REQUEST_MAX / (bytes_min(self.schema, self.is_root) + 1)
    }
}

fn is_int_or_string(schema: &Value) -> bool {
    schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
}

/// A limit that a schema sets, such as `maxItems`.
pub(super) fn limit(schema: &Value, name: &str) -> Option<u64> {
    schema.get(name).and_then(Value::as_i64).map(|number| u64::try_from(number).unwrap_or(0))
}

fn elements(schema: &Value) -> u64 {
    // A letter may have four bytes.
    let letters = || limit(schema, "maxLength").map(|max| max.saturating_mul(4));
    if is_int_or_string(schema) {
        return letters().unwrap_or(REQUEST_MAX - 2);
    }
    match (text(schema, "/type"), text(schema, "/format")) {
        ("array", _) => limit(schema, "maxItems").unwrap_or_else(|| {
            let item = schema.get("items").map_or(0, |items| bytes_min(items, false));
            (REQUEST_MAX - 2) / (item + 1)
        }),
        ("object", _) => match schema.get("additionalProperties").filter(|values| values.is_object()) {
            Some(values) => {
                limit(schema, "maxProperties").unwrap_or_else(|| (REQUEST_MAX - 2) / (bytes_min(values, false) + 6))
            }
            None => 0,
        },
        ("string", "byte") => limit(schema, "maxLength").unwrap_or(REQUEST_MAX - 2),
        ("string", "date") => DATE_MAX,
        ("string", "duration" | "date-time") => TIME_MAX,
        ("string", _) => letters().unwrap_or_else(|| match items(schema, "/enum") {
            [] => REQUEST_MAX - 2,
            all => all.iter().filter_map(Value::as_str).map(str::len).max().unwrap_or(0) as u64,
        }),
        _ => 0,
    }
}

/// The fewest bytes of a value in JSON.
fn bytes_min(schema: &Value, is_root: bool) -> u64 {
    if is_int_or_string(schema) {
        return 1;
    }
    let is_root = schemas::is_whole(schema, is_root);
    match (text(schema, "/type"), text(schema, "/format")) {
        ("object", _) if schema.get("additionalProperties").is_some_and(Value::is_object) => 2,
        ("object", _) => {
            let required = texts(schema, "/required").filter_map(|name| {
                let of = schemas::whole_property(is_root, name).or_else(|| schema.get("properties")?.get(name))?;
                let is_seen = schemas::type_of(of, "", false).is_some() && of.get("default").is_none();
                is_seen.then(|| name.len() as u64 + bytes_min(of, false) + 4)
            });
            2 + required.sum::<u64>()
        }
        ("string", "duration") => 3,
        ("string", "date") => DATE_MAX,
        ("string", "date-time") => 21,
        ("boolean", _) => 4,
        ("number" | "integer", _) => 1,
        _ => 2,
    }
}
