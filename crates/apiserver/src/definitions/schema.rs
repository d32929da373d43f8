//! What makes the schema of a definition no structural one.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/validation.go`,
//! `pkg/apis/apiextensions/validation/validation.go`.

use kubefold_wire::golang;
use serde_json::{Map, Value, json};

use crate::{
    patterns::Pattern,
    schema::{bad_value, is_known_format, prune, structural_part, validate_part},
};
use kubefold_wire::status::Cause as Fault;

/// What a kube-apiserver's structural schemas do not have.
const UNSUPPORTED: &[&str] = &["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// What no schema inside `allOf` and its like may say, with the words of the refusal.
const FORBIDDEN_INSIDE: &[(&str, &str)] = &[
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// What is wrong with a schema.
pub(super) fn faults(path: &str, schema: &Value) -> Vec<Fault> {
    let mut found = Vec::new();
    if is_set(schema, "nullable") {
        found.push(Fault::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    if is_supported(schema) {
        let mut structure = Vec::new();
        invariants(&mut structure, schema, Level::Root, path);
        structure.sort_by_key(Fault::text);
        if structure.is_empty() {
            defaults(&mut structure, schema, path);
        }
        found.append(&mut structure);
    }
    standard(&mut found, schema, path);
    found
}

/// The formats that say nothing to a kube-apiserver.
pub(super) fn unknown_formats(schema: &Value, found: &mut Vec<String>) {
    let kind = text(schema, "type");
    let format = text(schema, "format");
    if !format.is_empty() && !is_known_format(kind, format) {
        found.push(format.to_owned());
    }
    for (_, child) in children(schema) {
        unknown_formats(child, found);
    }
}

fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_set(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn items<'a>(schema: &'a Value, name: &str) -> &'a [Value] {
    schema.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// All schemas directly inside of one, with their paths.
fn children(schema: &Value) -> Vec<(String, &Value)> {
    let mut out = Vec::new();
    for name in ["additionalProperties", "items", "not"] {
        if let Some(child) = schema.get(name).filter(|child| child.is_object()) {
            out.push((format!(".{name}"), child));
        }
    }
    out.extend(fields(schema).map(|(name, child)| (format!(".properties[{name}]"), child)));
    for name in ["allOf", "oneOf", "anyOf"] {
        out.extend(items(schema, name).iter().enumerate().map(|(index, child)| (format!(".{name}[{index}]"), child)));
    }
    out
}

fn is_supported(schema: &Value) -> bool {
    let has = |name: &str| schema.get(name).is_some_and(|value| !value.is_null());
    !UNSUPPORTED.iter().any(|name| has(name))
        && schema.get("x-kubernetes-preserve-unknown-fields") != Some(&Value::Bool(false))
        && !schema.get("items").is_some_and(Value::is_array)
        && children(schema).iter().all(|(_, child)| is_supported(child))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

fn invariants(found: &mut Vec<Fault>, schema: &Value, level: Level, path: &str) {
    let kind = text(schema, "type");
    let (embedded, open) =
        (is_set(schema, "x-kubernetes-embedded-resource"), is_set(schema, "x-kubernetes-preserve-unknown-fields"));
    let either = is_set(schema, "x-kubernetes-int-or-string");
    match schema.get("items").filter(|items| items.is_object()) {
        Some(items) => invariants(found, items, Level::Item, &format!("{path}.items")),
        None if kind == "array" => found.push(Fault::required(format!("{path}.items"), "must be specified")),
        None => {}
    }
    for (name, child) in fields(schema) {
        invariants(found, child, Level::Field, &format!("{path}.properties[{name}]"));
    }
    if let Some(values) = schema.get("additionalProperties").filter(|values| !values.is_null()) {
        let at = format!("{path}.additionalProperties");
        if level == Level::Root {
            found.push(Fault::forbidden(at.clone(), "must not be used at the root"));
        }
        if embedded {
            let why = "must not be used if x-kubernetes-embedded-resource is set";
            found.push(Fault::forbidden(at.clone(), why));
        }
        if values.is_object() {
            invariants(found, values, Level::Field, &at);
        }
    }
    if either && open {
        let at = format!("{path}.x-kubernetes-preserve-unknown-fields");
        found.push(Fault::invalid(at, "true", "must be false if x-kubernetes-int-or-string is true"));
    }
    if either && embedded {
        let at = format!("{path}.x-kubernetes-embedded-resource");
        found.push(Fault::invalid(at, "true", "must be false if x-kubernetes-int-or-string is true"));
    }
    validations(found, schema, path);
    types(found, schema, level, path);
    if embedded && !open && fields(schema).next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        found.push(Fault::required(format!("{path}.properties"), why));
    }
}

fn types(found: &mut Vec<Fault>, schema: &Value, level: Level, path: &str) {
    let kind = text(schema, "type");
    let at = format!("{path}.type");
    let embedded = is_set(schema, "x-kubernetes-embedded-resource");
    let may_be_bare =
        is_set(schema, "x-kubernetes-int-or-string") || is_set(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        found.push(match kind {
            "" => Fault::required(at.clone(), why),
            other => Fault::invalid(at.clone(), &golang::quoted(other), why),
        });
    } else if kind.is_empty() && !may_be_bare {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        found.push(Fault::required(at.clone(), why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        found.push(Fault::invalid(at, &golang::quoted(kind), "must be object at the root"));
    }
    let envelope = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        if let Some((_, child)) = fields(schema).find(|(field, _)| envelope && *field == name)
            && text(child, "type") != "string"
        {
            let at = format!("{path}.properties[{name}].type");
            found.push(Fault::invalid(at, &golang::quoted(text(child, "type")), "must be string"));
        }
    }
    if let Some((_, metadata)) = fields(schema).find(|(field, _)| *field == "metadata") {
        let at = format!("{path}.properties[metadata]");
        if envelope && text(metadata, "type") != "object" {
            found.push(Fault::invalid(format!("{at}.type"), &golang::quoted(text(metadata, "type")), "must be object"));
        }
        if level == Level::Root && !names_only(metadata) {
            let why =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            found.push(Fault::forbidden(at, why));
        }
    }
}

fn names_only(metadata: &Value) -> bool {
    let keys = metadata.as_object().into_iter().flat_map(Map::keys);
    keys.into_iter().all(|key| matches!(key.as_str(), "type" | "properties" | "default"))
        && fields(metadata).all(|(name, _)| matches!(name.as_str(), "name" | "generateName"))
}

/// `allOf` and its like, and patterns.
fn validations(found: &mut Vec<Fault>, schema: &Value, path: &str) {
    let is_either = |schemas: &[Value]| schemas == [json!({"type": "integer"}), json!({"type": "string"})];
    if !is_either(items(schema, "anyOf")) {
        several(found, schema, "anyOf", path);
    }
    for (index, child) in items(schema, "allOf").iter().enumerate() {
        let mut child = child.clone();
        if index == 0 && is_either(items(&child, "anyOf")) {
            crate::kinds::put(&mut child, "anyOf", None);
        }
        nested(found, &child, &format!("{path}.allOf[{index}]"));
    }
    several(found, schema, "oneOf", path);
    if let Some(child) = schema.get("not").filter(|child| child.is_object()) {
        nested(found, child, &format!("{path}.not"));
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(why) = Pattern::new(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        found.push(Fault::invalid(format!("{path}.pattern"), &golang::quoted(pattern), &why));
    }
}

fn several(found: &mut Vec<Fault>, schema: &Value, name: &str, path: &str) {
    for (index, child) in items(schema, name).iter().enumerate() {
        nested(found, child, &format!("{path}.{name}[{index}]"));
    }
}

fn nested(found: &mut Vec<Fault>, schema: &Value, path: &str) {
    validations(found, schema, path);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        nested(found, items, &format!("{path}.items"));
    }
    for (name, child) in fields(schema) {
        let at = format!("{path}.properties[{name}]");
        if name == "metadata" {
            found.push(Fault::forbidden(at.clone(), "must not be specified in a nested context"));
        }
        nested(found, child, &at);
    }
    for (name, why) in FORBIDDEN_INSIDE {
        let said = schema.get(*name).filter(|value| !value.is_null() && **value != Value::Bool(false));
        if said.is_some_and(|value| value != "") {
            found.push(Fault::forbidden(format!("{path}.{name}"), why));
        }
    }
}

/// Defaults must fit their own schemas.
fn defaults(found: &mut Vec<Fault>, schema: &Value, path: &str) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        let at = format!("{path}.default");
        let types = structural_part(schema);
        let Some(typed) = types.named("") else { return };
        let mut pruned = default.clone();
        if prune(typed, &mut pruned).is_empty() {
            for mut fault in validate_part(typed, default) {
                let dot = if fault.field.is_empty() || fault.field.starts_with('[') { "" } else { "." };
                fault.field = if fault.field == "<nil>" { fault.field } else { format!("{at}{dot}{}", fault.field) };
                found.push(fault);
            }
        } else {
            found.push(Fault::invalid(at, &bad_value(default), "must not have unknown fields"));
        }
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        defaults(found, items, &format!("{path}.items"));
    }
    if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        defaults(found, values, &format!("{path}.additionalProperties"));
    }
    for (name, child) in fields(schema) {
        defaults(found, child, &format!("{path}.properties[{name}]"));
    }
}

/// What holds of every schema, structural or not.
fn standard(found: &mut Vec<Fault>, schema: &Value, path: &str) {
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        found.push(Fault::unsupported(format!("{path}.type"), kind, TYPES));
    }
    for name in UNSUPPORTED.iter().filter(|name| schema.get(**name).is_some_and(|value| !value.is_null())) {
        found.push(Fault::forbidden(format!("{path}.{name}"), &format!("{name} is not supported")));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        found.push(Fault::forbidden(format!("{path}.items"), "items must be a schema object and not an array"));
    }
    if is_set(schema, "uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.push(Fault::forbidden(format!("{path}.uniqueItems"), why));
    }
    let values = schema.get("additionalProperties").filter(|values| **values != Value::Bool(true));
    if values.is_some_and(|values| !values.is_null()) && fields(schema).next().is_some() {
        let why = "additionalProperties and properties are mutual exclusive";
        found.push(Fault::forbidden(format!("{path}.additionalProperties"), why));
    }
    for (at, child) in children(schema) {
        standard(found, child, &format!("{path}{at}"));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = format!("{path}.x-kubernetes-preserve-unknown-fields");
        found.push(Fault::invalid(at, "false", "must be true or undefined"));
    }
    topology(found, schema, path);
    for (index, rule) in items(schema, "x-kubernetes-validations").iter().enumerate() {
        if text(rule, "rule").trim().is_empty() {
            let at = format!("{path}.x-kubernetes-validations[{index}].rule");
            found.push(Fault::required(at, "rule is not specified"));
        }
    }
}

/// Types of lists and maps.
fn topology(found: &mut Vec<Fault>, schema: &Value, path: &str) {
    let kind = text(schema, "type");
    for (name, wanted, known) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"] as &[&str]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"]),
    ] {
        let Some(said) = schema.get(name).and_then(Value::as_str) else { continue };
        if kind != wanted {
            let why = format!("must be {wanted} if {name} is specified");
            found.push(match kind {
                "" => Fault::required(format!("{path}.type"), &why),
                other => Fault::invalid(format!("{path}.type"), &golang::quoted(other), &why),
            });
        }
        if !known.contains(&said) {
            found.push(Fault::unsupported(format!("{path}.{name}"), said, known));
        }
    }
    let list = text(schema, "x-kubernetes-list-type");
    let inside = schema.get("items").filter(|items| items.is_object());
    if list == "set"
        && let Some(items) = inside
    {
        let (name, said) = match text(items, "type") {
            "array" => ("x-kubernetes-list-type", items.get("x-kubernetes-list-type")),
            "object" => ("x-kubernetes-map-type", items.get("x-kubernetes-map-type")),
            _ => ("", None),
        };
        if !name.is_empty() && said.and_then(Value::as_str) != Some("atomic") {
            let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
            found.push(Fault::invalid(format!("{path}.items.{name}"), "null", why));
        }
    }
    keys(found, schema, list, inside, path);
}

fn keys(found: &mut Vec<Fault>, schema: &Value, list: &str, inside: Option<&Value>, path: &str) {
    let at = format!("{path}.x-kubernetes-list-map-keys");
    let keys: Vec<&str> = items(schema, "x-kubernetes-list-map-keys").iter().filter_map(Value::as_str).collect();
    if !keys.is_empty() && list != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        let place = format!("{path}.x-kubernetes-list-type");
        found.push(if list.is_empty() {
            Fault::required(place, why)
        } else {
            Fault::invalid(place, &golang::quoted(list), why)
        });
    }
    if list != "map" {
        return;
    }
    if keys.is_empty() {
        found.push(Fault::required(at.clone(), "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(inside) = inside else {
        let why = "must have a schema if x-kubernetes-list-type is map";
        found.push(Fault::required(format!("{path}.items"), why));
        return;
    };
    if text(inside, "type") != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        found.push(Fault::invalid(format!("{path}.items.type"), &golang::quoted(text(inside, "type")), why));
    }
    let shown = bad_value(&json!(keys));
    for (index, key) in keys.iter().enumerate() {
        let Some((_, field)) = fields(inside).find(|(name, _)| name == key) else {
            found.push(Fault::invalid(at.clone(), &shown, "entries must all be names of item properties"));
            continue;
        };
        if keys.iter().take(index).any(|before| before == key) {
            found.push(Fault::invalid(at.clone(), &shown, "must not contain duplicate entries"));
        }
        if matches!(text(field, "type"), "array" | "object") {
            let place = format!("{path}.items.properties[{key}].type");
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            found.push(Fault::invalid(place, &golang::quoted(text(inside, "type")), why));
        }
        let needed = items(inside, "required").iter().any(|name| name == key);
        let place = format!("{path}.items.properties[{key}]");
        if !needed && field.get("default").is_none_or(Value::is_null) {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            found.push(Fault::required(format!("{place}.default"), why));
        }
        if is_set(field, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            found.push(Fault::forbidden(format!("{place}.nullable"), why));
        }
    }
}
