//! The structural schema of a Rust type: what schemars derives, in the form that a `CustomResourceDefinition` has.
//!
//! kube's derive does the same with `StructuralSchemaRewriter`, which comes with kube and a version of k8s-openapi; a server
//! of somebody's own kinds needs neither.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.

use schemars::{
    JsonSchema, Schema,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

const OPEN: &str = "x-kubernetes-preserve-unknown-fields";
const EITHER: &str = "x-kubernetes-int-or-string";
/// What the server says by itself of every object.
const ENVELOPE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The schema of a whole object. Doc comments are descriptions.
pub(super) fn structural<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let generator = settings.with_transform(Structural).into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    if let Some(fields) = schema.as_object_mut() {
        fields.shift_remove("title");
        if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| !ENVELOPE.contains(&name.as_str()));
        }
        if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| !ENVELOPE.iter().any(|own| name == own));
        }
        if fields.get("required") == Some(&json!([])) {
            fields.shift_remove("required");
        }
    }
    schema
}

/// Rewrites what a structural schema says otherwise.
#[derive(Clone, Copy)]
struct Structural;

impl Transform for Structural {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(fields) = schema.as_object_mut() else { return };
        fields.shift_remove("title");
        for name in ["oneOf", "anyOf"] {
            if let Some(Value::Array(variants)) = fields.shift_remove(name) {
                alternatives(fields, name, variants);
            }
        }
        if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
            fields.shift_remove("uniqueItems");
            fields.insert("x-kubernetes-list-type".to_owned(), "set".into());
        }
        for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
            if let Some(value) = fields.get(exclusive).filter(|value| value.is_number()).cloned() {
                fields.insert(bound.to_owned(), value);
                fields.insert(exclusive.to_owned(), true.into());
            }
        }
        match fields.get("additionalProperties") {
            // Unknown fields are dropped or refused, as the client wishes.
            Some(Value::Bool(false)) => drop(fields.shift_remove("additionalProperties")),
            Some(_) if fields.contains_key("properties") => {
                fields.shift_remove("additionalProperties");
                fields.insert(OPEN.to_owned(), true.into());
            }
            Some(Value::Bool(true)) => {
                fields.insert("additionalProperties".to_owned(), json!({OPEN: true}));
            }
            _ => {}
        }
        let says = ["type", "enum", "$ref", "allOf", "oneOf", "anyOf", EITHER, "required"];
        if !says.iter().any(|name| fields.contains_key(*name)) {
            fields.insert(OPEN.to_owned(), true.into());
        }
    }
}

/// Makes one schema of several alternatives: an enum of all values, one object with the fields of all, or anything.
fn alternatives(fields: &mut Map<String, Value>, name: &str, mut variants: Vec<Value>) {
    variants.retain(|variant| {
        let is_null = variant.get("enum") == Some(&json!([null]));
        if is_null {
            fields.insert("nullable".to_owned(), true.into());
        }
        !is_null
    });
    let types: Vec<&str> =
        variants.iter().map(|variant| variant.get("type").and_then(Value::as_str).unwrap_or("")).collect();
    if let [Value::Object(only)] = variants.as_slice() {
        for (key, value) in only {
            fields.entry(key.clone()).or_insert_with(|| value.clone());
        }
    } else if variants.iter().all(|variant| variant.get("enum").is_some_and(Value::is_array)) {
        fields.insert("type".to_owned(), types.first().copied().unwrap_or("string").into());
        values(fields, &variants);
    } else if types.iter().all(|kind| *kind == "object") {
        fields.insert("type".to_owned(), "object".into());
        objects(fields, name, variants);
    } else if types.iter().all(|kind| matches!(*kind, "integer" | "string")) {
        fields.insert(EITHER.to_owned(), true.into());
    } else {
        fields.insert(OPEN.to_owned(), true.into());
    }
}

fn values(fields: &mut Map<String, Value>, variants: &[Value]) {
    let mut all = Vec::new();
    let mut description = fields.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    for variant in variants {
        let values = variant.get("enum").and_then(Value::as_array).cloned().unwrap_or_default();
        if let (Some(said), Some(value)) = (variant.get("description").and_then(Value::as_str), values.first()) {
            let gap = if description.is_empty() { "" } else { "\n" };
            description = format!("{description}{gap}{}: {said}", value.as_str().unwrap_or_default());
        }
        all.extend(values);
    }
    fields.insert("enum".to_owned(), all.into());
    if !description.is_empty() {
        fields.insert("description".to_owned(), description.into());
    }
}

/// Structs of an enum: their fields stand together, and each alternative says which of them it needs.
fn objects(fields: &mut Map<String, Value>, name: &str, variants: Vec<Value>) {
    let mut properties = match fields.shift_remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let mut needed = Vec::new();
    for variant in variants {
        let Value::Object(mut variant) = variant else { continue };
        let description = variant.shift_remove("description");
        let Some(Value::Object(own)) = variant.shift_remove("properties") else { continue };
        let is_only = own.len() == 1;
        for (field, mut schema) in own {
            if let (true, Some(said), Some(schema)) = (is_only, &description, schema.as_object_mut()) {
                schema.entry("description").or_insert_with(|| said.clone());
            }
            match properties.get_mut(&field) {
                None => drop(properties.insert(field, schema)),
                Some(there) => unite(there, schema),
            }
        }
        let required = variant.shift_remove("required").unwrap_or_else(|| json!([]));
        needed.push(json!({"required": required}));
    }
    fields.insert("properties".to_owned(), Value::Object(properties));
    // What is equal for two alternatives cannot tell which of them it is.
    let all_differ = needed.iter().enumerate().all(|(at, one)| !needed.iter().take(at).any(|other| other == one));
    if all_differ && needed.len() > 1 {
        fields.insert(name.to_owned(), needed.into());
    }
}

/// A field of two alternatives: the tag has the values of both, anything else may be anything.
fn unite(there: &mut Value, other: Value) {
    if *there == other {
        return;
    }
    let values = |schema: &Value| schema.get("enum").and_then(Value::as_array).cloned();
    match (values(there), values(&other)) {
        (Some(mut all), Some(more)) => {
            all.extend(more.into_iter().filter(|value| !values(there).unwrap_or_default().contains(value)));
            crate::kinds::put(there, "enum", Some(all.into()));
        }
        _ => *there = json!({OPEN: true}),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde::{Deserialize, Serialize};

    use super::*;

    /// An article.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Post {
        metadata: Value,
        /// What it says.
        spec: Spec,
        status: Option<Status>,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Spec {
        title: String,
        #[schemars(range(min = 1))]
        stars: Option<u8>,
        mood: Option<Mood>,
        from: Source,
        tags: BTreeSet<String>,
        notes: BTreeMap<String, String>,
        anything: Value,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    enum Mood {
        /// Nothing is wrong.
        Good,
        Bad,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    #[allow(dead_code, reason = "only its schema is looked at")]
    enum Source {
        /// A person.
        Person {
            name: String,
        },
        Feed {
            url: String,
        },
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Status {
        views: i64,
    }

    #[test]
    fn what_schemars_derives_becomes_structural() {
        let schema = structural::<Post>();
        let spec = &schema["properties"]["spec"]["properties"];
        assert_eq!((&schema["description"], &schema["required"]), (&json!("An article."), &json!(["spec"])));
        assert_eq!(
            (schema["properties"].get("metadata"), &schema["properties"]["status"]["nullable"]),
            (None, &json!(true))
        );
        assert_eq!(spec["mood"]["enum"], json!(["Bad", "Good"]));
        assert_eq!((&spec["mood"]["type"], &spec["mood"]["nullable"]), (&json!("string"), &json!(true)));
        assert_eq!(spec["mood"]["description"], "Good: Nothing is wrong.");
        let from = &spec["from"];
        assert_eq!(from["oneOf"], json!([{"required": ["person"]}, {"required": ["feed"]}]));
        assert_eq!(from["properties"]["person"]["description"], "A person.");
        assert_eq!(from["properties"]["feed"]["properties"]["url"], json!({"type": "string"}));
        assert_eq!(spec["tags"]["x-kubernetes-list-type"], "set");
        assert_eq!(spec["notes"]["additionalProperties"], json!({"type": "string"}));
        assert_eq!(spec["anything"], json!({OPEN: true}));
        assert_eq!(schema.to_string().matches("anyOf").count(), 0, "{schema:#}");
    }
}
