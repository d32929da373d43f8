//! The types of what schemas describe.
//!
//! Source: kubernetes/apiserver `pkg/cel/common/schemas.go`, `pkg/cel/types.go`.

use kubefold_wire::access::text;
use serde_json::Value;

use super::{
    types::{Fields, Type},
    values::escaped,
};

/// In a schema whose properties have their own names in expressions, `namespace` too.
pub(super) const PLAIN_NAMES: &str = "x-plain-names";
/// The name of the type of a schema; those without one are named by where they stand.
pub(super) const TYPE_NAME: &str = "x-type-name";
/// The type of a schema of anything.
pub(super) const DYN: &str = "dyn";
/// The type of `self`. A kube-apiserver gives it another name each time.
const SELF: &str = "selfType";

/// The type of `self` at a place of a schema; of any type where the schema does not say one.
pub(super) fn type_of_self(schema: &Value, is_root: bool) -> Type<'_> {
    type_of(schema, SELF, is_root).unwrap_or(Type::Dyn)
}

/// The type of a schema; `None`: expressions do not see its values.
pub(super) fn type_of<'a>(schema: &'a Value, name: &str, is_root: bool) -> Option<Type<'a>> {
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return Some(Type::Dyn);
    }
    let inside = |of: &'a Value, place: &str| type_of(of, &format!("{name}.{place}"), false);
    let is_root = is_whole(schema, is_root);
    Some(match text(schema, "/type") {
        "array" => Type::list(inside(schema.get("items")?, "@idx")?),
        "object" => match schema.get("additionalProperties").filter(|values| values.is_object()) {
            Some(values) => Type::map(Type::Text, inside(values, "@elem")?),
            None => {
                let name = schema.get(TYPE_NAME).and_then(Value::as_str).unwrap_or(name);
                Type::object(name, Fields::Schema { schema, is_root })
            }
        },
        "string" => match text(schema, "/format") {
            "byte" => Type::Bytes,
            "duration" => Type::Duration,
            "date" | "date-time" => Type::Timestamp,
            _ => Type::Text,
        },
        "boolean" => Type::Bool,
        "number" => Type::Double,
        "integer" => Type::Int,
        DYN => Type::Dyn,
        _ => return None,
    })
}

/// Whether a schema is that of an object with a kind and a name.
pub(super) fn is_whole(schema: &Value, is_root: bool) -> bool {
    is_root || schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true))
}

/// The type of a field of an object of a type of this name; `None`: there is no such field.
pub(super) fn field<'a>(schema: &'a Value, is_root: bool, name: &str, field: &str) -> Option<Type<'a>> {
    type_of(property(schema, is_root, field)?, &format!("{name}.{field}"), false)
}

/// The schema of a field by its name in expressions; `None`: there is no such field.
pub(super) fn property<'a>(schema: &'a Value, is_root: bool, field: &str) -> Option<&'a Value> {
    if let Some(of) = whole_property(is_whole(schema, is_root), field) {
        return Some(of);
    }
    let is_plain = schema.get(PLAIN_NAMES).is_some();
    let is_named = |property: &str| match is_plain {
        true => property == field,
        false => escaped(property).is_some_and(|known| known == field),
    };
    let mut properties = schema.get("properties")?.as_object()?.iter();
    properties.find(|(property, _)| is_named(property)).map(|(_, of)| of)
}

/// The schema of a field that every whole object has; `None`: it is none of those.
pub(super) fn whole_property(is_whole: bool, name: &str) -> Option<&'static Value> {
    static TEXT: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| serde_json::json!({"type": "string"}));
    match name {
        "apiVersion" | "kind" if is_whole => Some(&TEXT),
        "metadata" if is_whole => Some(metadata()),
        _ => None,
    }
}

/// What rules see of the metadata of a whole object.
fn metadata() -> &'static Value {
    static METADATA: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| {
        let text = serde_json::json!({"type": "string"});
        serde_json::json!({"type": "object", "properties": {"name": text, "generateName": text}})
    });
    &METADATA
}
