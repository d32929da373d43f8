//! Types as OpenAPI says them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Served, Spec, descriptions::Descriptions};
use crate::schema::{GoKind, Shape, Topology, Type, Types, builtin};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

/// Types whose `apiVersion`, `kind` and `metadata` are described as those of every kind and of every list are.
const LIKE_ANY: &str = "io.k8s.api.core.v1.Secret";
const LIKE_ANY_LIST: &str = "io.k8s.api.core.v1.SecretList";
const CONVENTIONS: &str =
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// Keywords that OpenAPI 2 does not have, or has otherwise.
const NOT_IN_V2: &[&str] = &["allOf", "anyOf", "not", "nullable", "oneOf", "x-kubernetes-validations"];

/// The schemas of all kinds and of what they refer to, by name.
pub(super) fn schemas(spec: Spec, served: &[Served<'_>], words: &Descriptions<'_>) -> Value {
    let mut writer = Writer { spec, words, done: BTreeMap::new() };
    let common = builtin();
    // Of a watch, only the documents of Kubernetes' own kinds tell.
    let watched = served.iter().any(|one| one.schema.is_none()).then_some("WatchEvent");
    for name in ["DeleteOptions", "Status"].into_iter().chain(watched) {
        writer.named(&common, &format!("{META}{name}"));
    }
    writer.done.insert(format!("{META}Patch"), json!({"type": "object"}));
    for one in served {
        match one.schema {
            Some(schema) => writer.custom(&common, one, schema),
            None => writer.named(one.types, one.type_name),
        }
        if one.verbs.iter().any(|verb| verb == "list") {
            writer.list(&common, one);
        }
        let kind = one.kind_value();
        let list = json!({"group": one.group, "kind": format!("{}List", one.kind), "version": one.version});
        writer.mark(one.type_name, kind);
        writer.mark(&one.list_name(), list);
        for part in one.subresources.iter().filter(|part| part.type_name != one.type_name) {
            writer.named(&common, part.type_name);
            writer.mark(part.type_name, part.kind_value());
        }
    }
    let described = writer.done.into_iter().map(|(name, mut schema)| {
        words.add(spec, &name, &mut schema);
        (name, schema)
    });
    Value::Object(described.collect())
}

struct Writer<'w> {
    spec: Spec,
    words: &'w Descriptions<'w>,
    done: BTreeMap<String, Value>,
}

impl Writer<'_> {
    /// Writes a type with a name, and what it refers to.
    fn named(&mut self, types: &Types, name: &str) {
        if self.done.contains_key(name) {
            return;
        }
        let Some(typed) = types.named(name) else { return };
        // Types refer to themselves.
        self.done.insert(name.to_owned(), Value::Null);
        let schema = self.inline(types, typed);
        self.done.insert(name.to_owned(), Value::Object(schema));
    }

    fn mark(&mut self, name: &str, kind: Value) {
        if let Some(Value::Object(schema)) = self.done.get_mut(name) {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), Value::Array(vec![kind]));
        }
    }

    fn reference(&mut self, types: &Types, name: &str) -> Map<String, Value> {
        self.named(types, name);
        if let Some(special) = self.special(name) {
            self.done.entry(name.to_owned()).or_insert(special);
        }
        Map::from_iter([("$ref".to_owned(), self.spec.reference(name).into())])
    }

    /// Types that read themselves.
    fn special(&self, name: &str) -> Option<Value> {
        let v3 = self.spec == Spec::V3;
        Some(match name.rsplit('.').next()? {
            "Time" | "MicroTime" => json!({"type": "string", "format": "date-time"}),
            "Duration" => json!({"type": "string"}),
            "Quantity" if v3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            "Quantity" => json!({"type": "string"}),
            "IntOrString" if v3 => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            "IntOrString" => json!({"type": "string", "format": "int-or-string"}),
            "RawExtension" | "FieldsV1" => json!({"type": "object"}),
            "JSON" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray" => json!({}),
            _ => return None,
        })
    }

    /// A type where it stands: by its name if it has one.
    fn place(&mut self, types: &Types, typed: Type<'_>) -> Map<String, Value> {
        match name_of(types, typed) {
            Some(name) => self.reference(types, &name),
            None => self.inline(types, typed),
        }
    }

    fn inline(&mut self, types: &Types, typed: Type<'_>) -> Map<String, Value> {
        let mut out = Map::new();
        let mut set = |name: &str, value: Value| out.insert(name.to_owned(), value);
        match typed.shape() {
            Shape::Object(_) => {
                let mut properties = BTreeMap::new();
                for (field, typed) in typed.fields() {
                    properties.insert(field.name.clone(), Value::Object(self.property(types, typed)));
                }
                set("type", "object".into());
                if !properties.is_empty() {
                    set("properties", Value::Object(properties.into_iter().collect()));
                }
                if !typed.required().is_empty() {
                    set("required", typed.required().to_vec().into());
                }
            }
            Shape::Map(_) => {
                set("type", "object".into());
                if let Some(values) = typed.values() {
                    set("additionalProperties", Value::Object(self.element(types, values)));
                }
            }
            Shape::List(_) => {
                set("type", "array".into());
                if let Some(items) = typed.items() {
                    set("items", Value::Object(self.element(types, items)));
                }
            }
            Shape::Truth => drop(set("type", "boolean".into())),
            Shape::Text => {
                set("type", "string".into());
                if typed.go().is_some_and(|go| go.kind == GoKind::Bytes) {
                    set("format", "byte".into());
                }
            }
            Shape::Integer => {
                set("type", "integer".into());
                let wide = typed.go().is_some_and(|go| go.kind == GoKind::Int64);
                set("format", if wide { "int64" } else { "int32" }.into());
            }
            Shape::Number => {
                set("type", "number".into());
                set("format", "double".into());
            }
            Shape::Any | Shape::IntegerOrText | Shape::Named(_) => {}
        }
        topology(typed.own_topology(), &mut out);
        out
    }

    /// An item of a list or a value of a map: none is missing, so that it has a default.
    fn element(&mut self, types: &Types, typed: Type<'_>) -> Map<String, Value> {
        let mut out = self.place(types, typed);
        let zero = match typed.go().filter(|go| !go.pointer).map(|go| go.kind) {
            Some(GoKind::Struct) => json!({}),
            Some(GoKind::Text) => json!(""),
            Some(GoKind::Int32 | GoKind::Int64 | GoKind::Double) => json!(0),
            Some(GoKind::Bool) => json!(false),
            _ => return out,
        };
        out = self.spec.beside(out);
        out.insert("default".to_owned(), zero);
        out
    }

    fn property(&mut self, types: &Types, typed: Type<'_>) -> Map<String, Value> {
        let mut said = Map::new();
        if let Some(default) = typed.default() {
            said.insert("default".to_owned(), default.clone());
        }
        let mut strategies = Vec::new();
        if let Some(key) = typed.merges() {
            strategies.push("merge");
            if let Some(key) = key {
                said.insert("x-kubernetes-patch-merge-key".to_owned(), key.into());
            }
        }
        if typed.retains_keys() {
            strategies.insert(0, "retainKeys");
            if typed.merges().is_some() {
                strategies.swap(0, 1);
            }
        }
        if !strategies.is_empty() {
            said.insert("x-kubernetes-patch-strategy".to_owned(), strategies.join(",").into());
        }
        let mut out = self.place(types, typed);
        if name_of(types, typed).is_some() {
            topology(typed.own_topology(), &mut said);
        }
        if !said.is_empty() {
            out = self.spec.beside(out);
            out.extend(said);
        }
        out
    }

    fn custom(&mut self, common: &Types, served: &Served<'_>, schema: &Value) {
        let mut schema = schema.as_object().cloned().unwrap_or_default();
        let mut properties = match schema.shift_remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        for name in ["apiVersion", "kind"] {
            properties.insert(name.to_owned(), self.text(name));
        }
        properties.insert("metadata".to_owned(), self.metadata(common, "ObjectMeta", LIKE_ANY));
        let sorted: BTreeMap<_, _> = properties.into_iter().collect();
        schema.insert("properties".to_owned(), Value::Object(sorted.into_iter().collect()));
        schema.entry("type").or_insert_with(|| "object".into());
        if self.spec == Spec::V2 && schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
            // kubectl refuses every field that it is not told of, once it is told of one.
            schema = Map::from_iter([("type".to_owned(), "object".into())]);
        }
        selectable(served, &mut schema);
        let mut schema = Value::Object(schema);
        either(&mut schema);
        self.embedded(common, &mut schema);
        if self.spec == Spec::V2 {
            as_v2(&mut schema);
        }
        self.done.insert(served.type_name.to_owned(), schema);
    }

    /// `apiVersion` or `kind`.
    fn text(&self, field: &str) -> Value {
        described(Map::from_iter([("type".to_owned(), "string".into())]), self.words.field(LIKE_ANY, field))
    }

    fn metadata(&mut self, common: &Types, name: &str, like: &str) -> Value {
        let reference = self.reference(common, &format!("{META}{name}"));
        described(self.spec.beside(reference), self.words.field(like, "metadata"))
    }

    /// Adds to schemas of whole objects what every object has.
    fn embedded(&mut self, common: &Types, schema: &mut Value) {
        let Some(fields) = schema.as_object_mut() else { return };
        for_children(fields, &mut |child| self.embedded(common, child));
        let is_set = |key: &str| fields.get(key) == Some(&Value::Bool(true));
        let is_open = self.spec == Spec::V2 && is_set("x-kubernetes-preserve-unknown-fields");
        if !is_set("x-kubernetes-embedded-resource") || is_open {
            return;
        }
        let of_version = "apiVersion defines the versioned schema of this representation of an object.";
        let of_kind = "kind is a string value representing the type of this object. In CamelCase.";
        let added = [
            ("apiVersion", json!({"type": "string", "description": format!("{of_version} {CONVENTIONS}#resources")})),
            ("kind", json!({"type": "string", "description": format!("{of_kind} {CONVENTIONS}#types-kinds")})),
            ("metadata", self.metadata(common, "ObjectMeta", LIKE_ANY)),
        ];
        if let Value::Object(properties) = fields.entry("properties").or_insert_with(|| json!({})) {
            properties.extend(added.map(|(name, schema)| (name.to_owned(), schema)));
        }
        if let Value::Array(required) = fields.entry("required").or_insert_with(|| json!([])) {
            for name in ["kind", "apiVersion"] {
                if !required.iter().any(|one| one == name) {
                    required.push(name.into());
                }
            }
        }
    }

    /// The kind of lists, if the types do not have it.
    fn list(&mut self, common: &Types, served: &Served<'_>) {
        self.named(served.types, &served.list_name());
        if self.done.contains_key(&served.list_name()) {
            return;
        }
        let item = Map::from_iter([("$ref".to_owned(), self.spec.reference(served.type_name).into())]);
        let mut schema = json!({
            "type": "object",
            "description": format!("{0}List is a list of {0}", served.kind),
            "required": ["items"],
            "properties": {
                "apiVersion": self.text("apiVersion"),
                "items": {
                    "type": "array", "items": item, "description": format!("List of {}. {CONVENTIONS}", served.plural),
                },
                "kind": self.text("kind"),
                "metadata": self.metadata(common, "ListMeta", LIKE_ANY_LIST),
            },
        });
        if let Some(fields) = schema.as_object_mut() {
            selectable(served, fields);
        }
        self.done.insert(served.list_name(), schema);
    }
}

/// The name under which a type stands in a document.
fn name_of(types: &Types, typed: Type<'_>) -> Option<String> {
    if let Some(name) = types.name_of(typed) {
        return Some(name.to_owned());
    }
    let go = typed.go()?;
    Some(match (go.kind, go.name.as_str()) {
        (GoKind::Time, _) => format!("{META}Time"),
        (GoKind::MicroTime, _) => format!("{META}MicroTime"),
        (GoKind::Duration, _) => format!("{META}Duration"),
        (GoKind::Quantity, _) => "io.k8s.apimachinery.pkg.api.resource.Quantity".to_owned(),
        (GoKind::IntOrString, _) => "io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned(),
        (GoKind::Raw, "runtime.RawExtension") => "io.k8s.apimachinery.pkg.runtime.RawExtension".to_owned(),
        (GoKind::Raw, "v1.FieldsV1") => format!("{META}FieldsV1"),
        (GoKind::Raw | GoKind::SchemaOr, name) => format!("{EXTENSIONS}{}", name.strip_prefix("v1.").unwrap_or(name)),
        _ => return None,
    })
}

fn topology(topology: &Topology, out: &mut Map<String, Value>) {
    let says = |name: &str, what: &str| out.get(name).and_then(Value::as_str) == Some(what);
    let is_list = says("type", "array") || says("format", "byte");
    let (name, value) = match topology {
        Topology::Unsaid => return,
        Topology::Atomic if is_list => ("x-kubernetes-list-type", "atomic"),
        Topology::Atomic => ("x-kubernetes-map-type", "atomic"),
        Topology::Granular => ("x-kubernetes-map-type", "granular"),
        Topology::Set => ("x-kubernetes-list-type", "set"),
        Topology::Keyed(keys) => {
            out.insert("x-kubernetes-list-map-keys".to_owned(), keys.clone().into());
            ("x-kubernetes-list-type", "map")
        }
    };
    out.insert(name.to_owned(), value.into());
}

/// Says which fields a selector may name, beside those of the metadata.
fn selectable(served: &Served<'_>, schema: &mut Map<String, Value>) {
    if !served.selectable_fields.is_empty() {
        let fields = served.selectable_fields.iter().map(|path| json!({"fieldPath": path}));
        schema.insert("x-kubernetes-selectable-fields".to_owned(), fields.collect());
    }
}

/// Says in other words, too, that a number or a text may stand somewhere, for clients that do not know Kubernetes' own.
fn either(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        let types = json!([{"type": "integer"}, {"type": "string"}]);
        fields.entry("anyOf").or_insert(types);
    }
    for_children(fields, &mut either);
}

fn described(mut schema: Map<String, Value>, text: Option<String>) -> Value {
    schema.extend(text.map(|text| ("description".to_owned(), text.into())));
    Value::Object(schema)
}

/// Calls with the schemas of fields, items and values.
fn for_children(fields: &mut Map<String, Value>, see: &mut impl FnMut(&mut Value)) {
    for (key, value) in fields.iter_mut() {
        match (key.as_str(), value) {
            // Here keys are names of fields.
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(&mut *see),
            ("items" | "additionalProperties", value) => see(value),
            _ => {}
        }
    }
}

/// Takes out what OpenAPI 2 does not have, and what kubectl would take for a rule against fields that may be there.
///
/// Source: kubernetes/apiextensions-apiserver `pkg/controller/openapi/v2/conversion.go`.
fn as_v2(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    let is_set = |object: &Map<String, Value>, key: &str| object.get(key) == Some(&Value::Bool(true));
    let may_be_null = |schema: &Value| schema["nullable"] == true;
    let properties = object.get("properties").and_then(Value::as_object);
    let nullable: Vec<String> =
        properties.into_iter().flatten().filter(|(_, one)| may_be_null(one)).map(|(name, _)| name.clone()).collect();
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.retain(|name| !nullable.iter().any(|one| name == one.as_str()));
    }
    if object.get("additionalProperties").is_some_and(may_be_null) || object.get("required") == Some(&json!([])) {
        object.shift_remove("required");
    }
    if is_set(object, "nullable") || is_set(object, "x-kubernetes-preserve-unknown-fields") {
        for key in ["type", "items", "properties"] {
            object.shift_remove(key);
        }
    }
    object.retain(|key, _| !NOT_IN_V2.contains(&key.as_str()));
    for_children(object, &mut as_v2);
}
