//! Types out of the schema of a custom resource definition.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/structural.go`, `convert.go`.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    patterns::Pattern,
    schema::{Checks, Field, Merge, Node, Omit, Shape, Topology, Types, builtin, formats::is_known_format},
};

const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The types of a custom resource; its own has the name. Without a schema everything stays as it is.
///
/// The schema is one that has been found structural. What it says of `metadata` is checked beside its own type.
pub fn structural(name: &str, schema: Option<&Value>) -> Types {
    let mut builder = Builder { types: Types::default() };
    let mut root = match schema {
        Some(schema) => builder.node(schema),
        None => Node { shape: Shape::Object(Vec::new()), open: true, ..Node::default() },
    };
    let metadata = builder.import(METADATA);
    let text = builder.types.add(Node { shape: Shape::Text, ..Node::default() });
    let mut fields = match root.shape {
        Shape::Object(fields) => fields,
        _ => Vec::new(),
    };
    if let Some(said) = fields.iter().find(|field| field.name == "metadata") {
        root.checks.get_or_insert_default().metadata = Some(said.node);
    }
    fields.retain(|field| !matches!(field.name.as_str(), "apiVersion" | "kind" | "metadata"));
    for (name, node) in [("apiVersion", text), ("kind", text), ("metadata", metadata)] {
        fields.push(field(name, node));
    }
    root.shape = Shape::Object(fields);
    root.embedded = true;
    let root = builder.types.add(root);
    builder.types.names.insert(name.to_owned(), root);
    builder.types
}

/// The types of a schema that is a part of another's; its own has the empty name.
pub fn structural_part(schema: &Value) -> Types {
    let mut builder = Builder { types: Types::default() };
    let root = builder.add(schema);
    builder.types.names.insert(String::new(), root);
    builder.types
}

struct Builder {
    types: Types,
}

fn field(name: &str, node: usize) -> Field {
    Field { name: name.to_owned(), node, omit: Omit::Empty, within: String::new() }
}

impl Builder {
    fn add(&mut self, schema: &Value) -> usize {
        let node = self.node(schema);
        self.types.add(node)
    }

    fn node(&mut self, schema: &Value) -> Node {
        let truth = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let required = strings(schema.get("required"));
        Node {
            name: None,
            shape: self.shape(schema),
            default: schema.get("default").cloned(),
            nullable: truth("nullable"),
            open: truth("x-kubernetes-preserve-unknown-fields"),
            embedded: truth("x-kubernetes-embedded-resource"),
            required,
            merge: Merge { topology: topology(schema), ..Merge::default() },
            go: None,
            checks: Some(Box::new(self.checks(schema))),
        }
    }

    fn shape(&mut self, schema: &Value) -> Shape {
        let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if schema.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true) {
            return Shape::IntegerOrText;
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            return Shape::List(self.add(items));
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| *values != &Value::Bool(false)) {
            return Shape::Map(self.add(values));
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            return Shape::Object(properties.iter().map(|(name, schema)| field(name, self.add(schema))).collect());
        }
        match kind {
            "string" => Shape::Text,
            "integer" => Shape::Integer,
            "number" => Shape::Number,
            "boolean" => Shape::Truth,
            "object" => Shape::Object(Vec::new()),
            "array" => Shape::List(self.types.add(Node { open: true, ..Node::default() })),
            _ => Shape::Any,
        }
    }

    fn checks(&mut self, schema: &Value) -> Checks {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let whole = |name: &str| schema.get(name).and_then(Value::as_i64);
        let truth = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let text = |name: &str| schema.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let types: Vec<String> = if truth("x-kubernetes-int-or-string") {
            vec!["integer".to_owned(), "string".to_owned()]
        } else {
            text("type").map(str::to_owned).into_iter().collect()
        };
        let kind = if types.len() == 1 { types.first().map(String::as_str) } else { None };
        Checks {
            format: text("format")
                .filter(|format| is_known_format(kind.unwrap_or_default(), format))
                .map(str::to_owned),
            types,
            maximum: number("maximum"),
            exclusive_maximum: truth("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: truth("exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            length_max: whole("maxLength"),
            length_min: whole("minLength"),
            pattern: text("pattern").and_then(|pattern| Pattern::new(pattern).ok()),
            items_max: whole("maxItems"),
            items_min: whole("minItems"),
            unique_items: truth("uniqueItems"),
            properties_max: whole("maxProperties"),
            properties_min: whole("minProperties"),
            values: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            all_of: self.several(schema, "allOf"),
            any_of: self.several(schema, "anyOf"),
            one_of: self.several(schema, "oneOf"),
            not: schema.get("not").map(|schema| self.add(schema)),
            metadata: None,
        }
    }

    fn several(&mut self, schema: &Value, name: &str) -> Vec<usize> {
        let schemas = schema.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        schemas.iter().map(|schema| self.add(schema)).collect()
    }

    /// Copies a built-in type with all that it refers to.
    fn import(&mut self, name: &str) -> usize {
        let from = builtin();
        let mut known = HashMap::new();
        match from.names.get(name) {
            Some(index) => self.copy(&from, *index, &mut known),
            None => self.types.add(Node::default()),
        }
    }

    fn copy(&mut self, from: &Types, index: usize, known: &mut HashMap<usize, usize>) -> usize {
        if let Some(copied) = known.get(&index) {
            return *copied;
        }
        let Some(mut node) = from.nodes.get(index).cloned() else { return self.types.add(Node::default()) };
        let copied = self.types.add(Node::default());
        known.insert(index, copied);
        node.shape = match node.shape {
            Shape::List(items) => Shape::List(self.copy(from, items, known)),
            Shape::Map(values) => Shape::Map(self.copy(from, values, known)),
            Shape::Named(target) => Shape::Named(self.copy(from, target, known)),
            Shape::Object(mut fields) => {
                for field in &mut fields {
                    field.node = self.copy(from, field.node, known);
                }
                Shape::Object(fields)
            }
            other => other,
        };
        if let Some(name) = from.names.iter().find_map(|(name, named)| (*named == index).then_some(name)) {
            self.types.names.insert(name.clone(), copied);
        }
        if let Some(place) = self.types.nodes.get_mut(copied) {
            *place = node;
        }
        copied
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn topology(schema: &Value) -> Topology {
    let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("x-kubernetes-list-type"), text("x-kubernetes-map-type")) {
        ("atomic", _) | (_, "atomic") => Topology::Atomic,
        ("set", _) => Topology::Set,
        ("map", _) => Topology::Keyed(strings(schema.get("x-kubernetes-list-map-keys"))),
        (_, "granular") => Topology::Granular,
        _ => Topology::Unsaid,
    }
}
