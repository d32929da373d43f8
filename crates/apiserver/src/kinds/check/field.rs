//! Values as errors show them.

use serde_json::Value;

/// A value as Go's internal type of it has it, which has no names for JSON: fields begin with a capital, and all of
/// them are shown. (`fields` are those, in order, with what an unset one is.)
pub(in crate::kinds) fn internal(value: &Value, fields: &[(&str, &str, Value)]) -> Value {
    let field = |(shown, name, unset): &(&str, &str, Value)| {
        let given = value.get(*name).filter(|given| !given.is_null());
        ((*shown).to_owned(), given.unwrap_or(unset).clone())
    };
    fields.iter().map(field).collect::<serde_json::Map<_, _>>().into()
}
