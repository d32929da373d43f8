//! What of a custom resource is not as its schema wants it, in a kube-apiserver's words.
//!
//! Source: kubernetes/kube-openapi `pkg/validation/validate`; kubernetes/apiextensions-apiserver
//! `pkg/apiserver/validation/validation.go`, `pkg/apiserver/schema/listtype/validation.go`.

use serde_json::Value;

use crate::schema::{Checks, Shape, Topology, Type, formats::has_format};
use kubefold_wire::{golang, status::Cause};

mod lists;
mod numbers;

pub use numbers::bad_value;

/// What is wrong with a new object.
pub fn validate(typed: Type<'_>, object: &Value) -> Vec<Cause> {
    let mut causes = check(typed, object, None, "").errors;
    causes.extend(metadata(typed, object, None));
    causes.extend(lists::validate(typed, object));
    causes
}

/// What is wrong with a value that is no object of a kind, such as a default.
pub fn validate_part(typed: Type<'_>, value: &Value) -> Vec<Cause> {
    let mut causes = check(typed, value, None, "").errors;
    causes.extend(lists::validate(typed, value));
    causes
}

/// What is wrong with a changed object. What did not change is let pass.
pub fn validate_update(typed: Type<'_>, object: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = check(typed, object, Some(old), "").errors;
    causes.extend(metadata(typed, object, Some(old)));
    if lists::validate(typed, old).is_empty() {
        causes.extend(lists::validate(typed, object));
    }
    causes
}

fn metadata(typed: Type<'_>, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let node = typed.checks().and_then(|checks| checks.metadata);
    let typed = node.and_then(|node| typed.types().at(node));
    match (typed, object.get("metadata")) {
        (Some(typed), Some(metadata)) => {
            check(typed, metadata, old.and_then(|old| old.get("metadata")), "metadata").errors
        }
        _ => Vec::new(),
    }
}

/// What was found, and how much was right: of several schemas the errors of the best are shown.
#[derive(Default)]
struct Found {
    errors: Vec<Cause>,
    matches: usize,
}

impl Found {
    fn merge(&mut self, other: Self) {
        for error in other.errors {
            self.add(error);
        }
        self.matches += other.matches;
    }

    fn add(&mut self, error: Cause) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

fn cause(reason: &str, message: String, path: &str) -> Cause {
    Cause::new(reason, path.strip_prefix('.').unwrap_or(path), message)
}

fn invalid(path: &str, value: &str, why: &str) -> Cause {
    cause("FieldValueInvalid", format!("Invalid value: {value}: {path} in body {why}"), path)
}

/// What no field is to blame for.
fn general(why: &str) -> Cause {
    cause("FieldValueInvalid", format!("Invalid value: \"\": {why}"), "<nil>")
}

fn wrong_type(path: &str, wanted: &str, found: &str) -> Cause {
    let found = golang::quoted(found);
    let message = format!("Invalid value: {found}: {path} in body must be of type {wanted}: {found}");
    cause("FieldValueTypeInvalid", message, path)
}

fn check(typed: Type<'_>, value: &Value, old: Option<&Value>, path: &str) -> Found {
    let mut found = Found::default();
    let Some(checks) = typed.checks() else { return found };
    if old == Some(value) {
        return found;
    }
    if value.is_null() {
        if !checks.types.is_empty() && !typed.is_nullable() {
            found.add(wrong_type(path, &checks.types.join(","), "null"));
        }
        enumeration(checks, value, path, &mut found);
        return found;
    }
    if !checks.types.is_empty() || checks.format.is_some() {
        found.merge(type_of(checks, value, path));
        found.matches += 1;
    }
    found.merge(junctions(typed, checks, value, old, path));
    found.matches += 1;
    match value {
        Value::String(text) => {
            strings(checks, text, path, &mut found);
            found.matches += 1;
        }
        Value::Number(number) => {
            found.merge(numbers::check(checks, number, path));
            found.matches += 1;
        }
        Value::Array(items) => {
            found.merge(list(typed, checks, items, old, path));
            found.matches += 1;
        }
        _ => {}
    }
    enumeration(checks, value, path, &mut found);
    found.matches += 1;
    if let Value::Object(object) = value {
        found.merge(entries(typed, checks, object, old, path));
        found.matches += 1;
    }
    found.matches += 1;
    found
}

/// The type of a value and what Go takes for its format.
fn kind(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn type_of(checks: &Checks, value: &Value, path: &str) -> Found {
    let has = |wanted: &str| checks.types.iter().any(|known| known == wanted);
    let (found, format) = kind(value);
    let is_whole = found == "number" && value.as_f64().is_some_and(|number| number.fract() == 0.0) && has("integer");
    let fits = has(found) || is_whole || found == "integer" && has("number");
    let is_text = matches!(found, "string" | "array");
    let error = match &checks.format {
        Some(wanted) if !is_text && !fits && wanted != format => Some(wrong_type(path, wanted, format)),
        // The format says the rest.
        Some(_) if is_text && !has("number") && !has("integer") => None,
        _ if !fits => Some(wrong_type(path, &checks.types.join(","), found)),
        _ => None,
    };
    match error {
        Some(error) => Found { errors: vec![error], matches: 0 },
        None => Found { errors: Vec::new(), matches: 1 },
    }
}

fn strings(checks: &Checks, text: &str, path: &str, found: &mut Found) {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(most) = checks.length_max.filter(|most| length > *most) {
        let bytes = if most == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {most} {bytes}");
        found.add(cause("FieldValueTooLong", message, path));
    } else if let Some(least) = checks.length_min.filter(|least| length < *least) {
        found.add(invalid(path, &golang::quoted(text), &format!("should be at least {least} chars long")));
    } else if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.regex().is_match(text)) {
        found.add(invalid(path, &golang::quoted(text), &format!("should match '{pattern}'")));
    }
    if let Some(format) = checks.format.as_ref().filter(|format| !has_format(format, text)) {
        found.add(wrong_type(path, format, text));
    }
}

fn enumeration(checks: &Checks, value: &Value, path: &str, found: &mut Found) {
    if checks.values.is_empty() || checks.values.iter().any(|known| !value.is_null() && numbers::is_same(known, value))
    {
        return;
    }
    let known = checks.values.iter().map(|value| match value {
        Value::String(text) => golang::quoted(text),
        other => golang::quoted(&other.to_string()),
    });
    let known = known.collect::<Vec<_>>().join(", ");
    let message = format!("Unsupported value: {}: supported values: {known}", bad_value(value));
    found.add(cause("FieldValueNotSupported", message, path));
}

fn junctions(typed: Type<'_>, checks: &Checks, value: &Value, old: Option<&Value>, path: &str) -> Found {
    let mut found = Found::default();
    let of = |node: &usize| typed.types().at(*node).map(|typed| check(typed, value, old, path)).unwrap_or_default();
    if !checks.any_of.is_empty() {
        let (valid, best, first) = best(checks.any_of.iter().map(of));
        if valid == 0 {
            found.add(general(&format!("{} must validate at least one schema (anyOf)", golang::quoted(path))));
        }
        found.merge(first.or(best).unwrap_or_default());
    }
    if !checks.one_of.is_empty() {
        let (valid, best, first) = best(checks.one_of.iter().map(of));
        if valid == 1 {
            found.merge(first.unwrap_or_default());
        } else {
            let how =
                if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
            found.add(general(&format!(
                "{} must validate one and only one schema (oneOf). {how}",
                golang::quoted(path)
            )));
            if valid == 0 {
                found.merge(best.unwrap_or_default());
            }
        }
    }
    if !checks.all_of.is_empty() {
        let results: Vec<_> = checks.all_of.iter().map(of).collect();
        let valid = results.iter().filter(|result| result.errors.is_empty()).count();
        results.into_iter().for_each(|result| found.merge(result));
        if valid != checks.all_of.len() {
            let more = if valid == 0 { ". None validated" } else { "" };
            found.add(general(&format!("{} must validate all the schemas (allOf){more}", golang::quoted(path))));
        }
    }
    if checks.not.as_ref().is_some_and(|node| of(node).errors.is_empty()) {
        found.add(general(&format!("{} must not validate the schema (not)", golang::quoted(path))));
    }
    found.matches += 1;
    found
}

/// How many fit, the best of those that do not, and the first that does.
fn best(results: impl Iterator<Item = Found>) -> (usize, Option<Found>, Option<Found>) {
    let (mut valid, mut best, mut first) = (0, None::<Found>, None);
    for result in results {
        if result.errors.is_empty() {
            valid += 1;
            first.get_or_insert(result);
        } else if best.as_ref().is_none_or(|best| result.matches > best.matches) {
            best = Some(result);
        }
    }
    (valid, best, first)
}

fn list(typed: Type<'_>, checks: &Checks, items: &[Value], old: Option<&Value>, path: &str) -> Found {
    let mut found = Found::default();
    if let Some(item) = typed.items() {
        for (index, value) in items.iter().enumerate() {
            let old = correlated(typed, value, old);
            found.merge(check(item, value, old, &format!("{path}[{index}]")));
        }
    }
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(least) = checks.items_min.filter(|least| size < *least) {
        found.add(invalid(path, &size.to_string(), &format!("should have at least {least} items")));
    }
    if let Some(most) = checks.items_max.filter(|most| size > *most) {
        found.add(too_many(size, most, path));
    }
    if checks.unique_items
        && items.iter().enumerate().any(|(index, item)| items.iter().skip(index + 1).any(|other| item == other))
    {
        found.add(invalid(path, "\"\"", "shouldn't contain duplicates"));
    }
    found.matches += 1;
    found
}

/// The item of a list as it was, if it can be told which that is.
fn correlated<'a>(typed: Type<'_>, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
    let Topology::Keyed(keys) = typed.topology() else { return None };
    let items = old?.as_array()?;
    items.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
}

fn too_many(size: i64, most: i64, path: &str) -> Cause {
    let items = if most == 1 { "item" } else { "items" };
    cause("FieldValueTooMany", format!("Too many: {size}: must have at most {most} {items}"), path)
}

fn entries(
    typed: Type<'_>,
    checks: &Checks,
    object: &serde_json::Map<String, Value>,
    old: Option<&Value>,
    path: &str,
) -> Found {
    let mut found = Found::default();
    let size = i64::try_from(object.len()).unwrap_or(i64::MAX);
    if let Some(least) = checks.properties_min.filter(|least| size < *least) {
        found.add(invalid(path, &size.to_string(), &format!("should have at least {least} properties")));
    }
    if let Some(most) = checks.properties_max.filter(|most| size > *most) {
        found.add(too_many(size, most, path));
    }
    let at = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match typed.shape() {
        Shape::Map(_) => {
            for (key, value) in object {
                if let Some(typed) = typed.field(key) {
                    found.merge(check(typed, value, old.and_then(|old| old.get(key)), &at(key)));
                }
            }
        }
        _ => {
            for (field, typed) in typed.fields() {
                if let Some(value) = object.get(&field.name) {
                    let old = old.and_then(|old| old.get(&field.name));
                    found.merge(check(typed, value, old, &at(&field.name)));
                }
            }
        }
    }
    for name in typed.required().iter().filter(|name| !object.contains_key(*name)) {
        found.add(cause("FieldValueRequired", "Required value".to_owned(), &at(name)));
    }
    if typed.is_embedded() && !path.is_empty() {
        for name in ["apiVersion", "kind"].into_iter().filter(|name| !object.contains_key(*name)) {
            found.add(cause("FieldValueRequired", "Required value".to_owned(), &at(name)));
        }
    }
    found
}

#[cfg(test)]
mod tests;
