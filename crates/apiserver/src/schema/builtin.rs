//! The types of the built-in kinds that a server has, out of the one schema of built-in types.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use kubefold_wire::types::{
    self, Attributes, ListType, MapType, Mark, Schema, SchemaError, Shape as Repeats, StructId, Style, Value,
};

use crate::schema::{Field, Go, GoKind, Merge, Node, Omit, Shape, Topology, Types};

/// The group versions whose kinds a server has.
const SERVED: [&str; 21] = [
    "v1",
    "apps/v1",
    "batch/v1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "events.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
    "storage.k8s.io/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "networking.k8s.io/v1",
    "policy/v1",
    "scheduling.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "apiregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "certificates.k8s.io/v1",
    "node.k8s.io/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1",
];

/// Types of `meta/v1` that a server uses for all groups, and that are no kind of one of [`SERVED`].
const META: [&str; 4] = ["DeleteOptions", "WatchEvent", "PartialObjectMetadata", "PartialObjectMetadataList"];

static BUILTIN: LazyLock<Builtin> = LazyLock::new(Builtin::new);

#[derive(Default)]
struct Builtin {
    types: Arc<Types>,
    /// Names of types by group, version and kind.
    kinds: HashMap<String, String>,
}

/// The types of all built-in kinds.
pub fn builtin() -> Arc<Types> {
    Arc::clone(&BUILTIN.types)
}

/// The name of a built-in kind's type: `io.k8s.api.core.v1.Pod` of `""`, `v1` and `Pod`.
pub fn builtin_kind(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    BUILTIN.kinds.get(&format!("{group}/{version}/{kind}")).map(String::as_str)
}

impl Builtin {
    fn new() -> Self {
        let mut reader = Reader::default();
        let read = reader.read();
        debug_assert!(read.is_ok(), "the schema of built-in types is broken: {read:?}");
        Self { types: Arc::new(reader.types), kinds: reader.kinds }
    }
}

#[derive(Default)]
struct Reader {
    types: Types,
    kinds: HashMap<String, String>,
    /// The nodes of structs that are reached.
    places: HashMap<StructId, usize>,
    /// Those whose fields are not read yet.
    pending: Vec<(StructId, usize)>,
}

impl Reader {
    fn read(&mut self) -> Result<(), SchemaError> {
        let schema = Schema::get()?;
        for (api_version, kind, id) in schema.kinds() {
            // Options are read from queries, not from bodies.
            if SERVED.contains(&api_version) && !kind.ends_with("Options") {
                self.reach(schema, id)?;
                let slash = if api_version.contains('/') { "" } else { "/" };
                self.kinds.insert(format!("{slash}{api_version}/{kind}"), full_name(schema.at(id)?));
            }
        }
        for name in META {
            let id = schema.named("meta.v1", name).ok_or_else(|| SchemaError::Undefined(name.to_owned()))?;
            self.reach(schema, id)?;
        }
        while let Some((id, node)) = self.pending.pop() {
            self.structure(schema, id, node)?;
        }
        Ok(())
    }

    /// The node of a struct. Structs refer to each other, so the node is there before its fields.
    fn reach(&mut self, schema: &Schema, id: StructId) -> Result<usize, SchemaError> {
        if let Some(&node) = self.places.get(&id) {
            return Ok(node);
        }
        let of = schema.at(id)?;
        let go = go(GoKind::Struct, go_name(of));
        let merge = merge(&of.attributes()?);
        let name = Some(full_name(of));
        let node = Node { name, shape: Shape::Object(Vec::new()), go: Some(go), merge, ..Node::default() };
        let node = self.types.add(node);
        self.types.names.insert(full_name(of), node);
        self.places.insert(id, node);
        self.pending.push((id, node));
        Ok(node)
    }

    fn structure(&mut self, schema: &Schema, id: StructId, node: usize) -> Result<(), SchemaError> {
        let (mut fields, mut required) = (Vec::new(), Vec::new());
        self.fields(schema, id, "", &mut fields, &mut required)?;
        if let Some(node) = self.types.nodes.get_mut(node) {
            node.shape = Shape::Object(fields);
            node.required = required;
        }
        Ok(())
    }

    /// Reads the fields of a struct that is `within` others, and of those that it embeds.
    fn fields(
        &mut self,
        schema: &Schema,
        id: StructId,
        within: &str,
        fields: &mut Vec<Field>,
        required: &mut Vec<String>,
    ) -> Result<(), SchemaError> {
        for field in schema.fields(id)? {
            let omit = match (field.mark, field.value) {
                (Mark::Retired, _) => continue,
                (Mark::InPlace, Value::Struct(inner)) => {
                    self.fields(schema, inner, &format!("{within}{}.", field.name), fields, required)?;
                    continue;
                }
                (Mark::InPlace | Mark::Always, _) => Omit::Never,
                (Mark::OmitEmpty, _) => Omit::Empty,
                (Mark::OmitZero, _) => Omit::Zero,
            };
            let broken = || SchemaError::Undefined(field.name.to_owned());
            let said = field.attributes().ok_or_else(broken)?;
            let mut node = self.typed(schema, &field)?;
            node.default = said.default.map(serde_json::from_str).transpose().map_err(|_| broken())?;
            node.merge = merge(&said);
            if said.required {
                required.push(field.name.to_owned());
            }
            let node = self.types.add(node);
            fields.push(Field { name: field.name.to_owned(), node, omit, within: within.to_owned() });
        }
        Ok(())
    }

    /// The node of a field's type, without what is said of the field.
    fn typed(&mut self, schema: &Schema, field: &types::Field) -> Result<Node, SchemaError> {
        let mut item = self.value(schema, field.value)?;
        if let (Some(name), Some(go)) = (field.item_go, &mut item.go) {
            name.clone_into(&mut go.name);
        }
        let item_go = item.go.as_ref().map(|go| go.name.as_str()).unwrap_or_default();
        let (kind, name) = match field.shape {
            Repeats::One | Repeats::Pointer => {
                if let Some(go) = &mut item.go {
                    go.pointer = field.shape == Repeats::Pointer;
                    if let Some(name) = field.go {
                        name.clone_into(&mut go.name);
                    }
                }
                return Ok(item);
            }
            Repeats::Repeated => (GoKind::List, format!("[]{item_go}")),
            Repeats::Map => (GoKind::Map, format!("map[string]{item_go}")),
        };
        let go = go(kind, field.go.map_or(name, str::to_owned));
        let item = self.types.add(item);
        let shape = if kind == GoKind::List { Shape::List(item) } else { Shape::Map(item) };
        Ok(Node { shape, go: Some(go), ..Node::default() })
    }

    fn value(&mut self, schema: &Schema, value: Value) -> Result<Node, SchemaError> {
        let (shape, go) = match value {
            Value::Struct(id) => {
                let of = schema.at(id)?;
                match of.style {
                    Style::Either => (Shape::Any, go(GoKind::SchemaOr, go_name(of))),
                    Style::Object => (Shape::Named(self.reach(schema, id)?), go(GoKind::Struct, go_name(of))),
                }
            }
            Value::WrappedStrings => {
                let items = Node { go: Some(go(GoKind::Text, "string".to_owned())), ..Node::default() };
                let items = self.types.add(Node { shape: Shape::Text, ..items });
                (Shape::List(items), go(GoKind::List, "[]string".to_owned()))
            }
            scalar => {
                let (shape, kind, name) = self::scalar(scalar);
                (shape, go(kind, name.to_owned()))
            }
        };
        Ok(Node { shape, go: Some(go), ..Node::default() })
    }
}

fn full_name(of: &types::Struct) -> String {
    format!("{}.{}", of.package, of.name)
}

/// As Go prints the type: `v1.Container`.
fn go_name(of: &types::Struct) -> String {
    format!("{}.{}", of.package.rsplit('.').next().unwrap_or(of.package), of.name)
}

fn go(kind: GoKind, name: String) -> Go {
    Go { kind, name, pointer: false }
}

fn scalar(value: Value) -> (Shape, GoKind, &'static str) {
    match value {
        Value::Bool => (Shape::Truth, GoKind::Bool, "bool"),
        Value::Int32 => (Shape::Integer, GoKind::Int32, "int32"),
        Value::Int64 => (Shape::Integer, GoKind::Int64, "int64"),
        Value::Double => (Shape::Number, GoKind::Double, "float64"),
        Value::String => (Shape::Text, GoKind::Text, "string"),
        Value::Bytes => (Shape::Text, GoKind::Bytes, "[]uint8"),
        Value::Time => (Shape::Text, GoKind::Time, "v1.Time"),
        Value::MicroTime => (Shape::Text, GoKind::MicroTime, "v1.MicroTime"),
        Value::Duration => (Shape::Text, GoKind::Duration, "v1.Duration"),
        Value::Quantity => (Shape::IntegerOrText, GoKind::Quantity, "resource.Quantity"),
        Value::IntOrString => (Shape::IntegerOrText, GoKind::IntOrString, "intstr.IntOrString"),
        Value::Raw => (Shape::Any, GoKind::Raw, "runtime.RawExtension"),
        Value::Fields => (Shape::Any, GoKind::Raw, "v1.FieldsV1"),
        Value::Json | Value::WrappedStrings | Value::Struct(_) => (Shape::Any, GoKind::Raw, "v1.JSON"),
    }
}

fn merge(said: &Attributes) -> Merge {
    let topology = match (said.list, said.map) {
        (Some(ListType::Atomic), _) | (_, Some(MapType::Atomic)) => Topology::Atomic,
        (Some(ListType::Set), _) => Topology::Set,
        (Some(ListType::Map(keys)), _) => Topology::Keyed(keys.split(',').map(str::to_owned).collect()),
        (None, Some(MapType::Granular)) => Topology::Granular,
        (None, None) => Topology::Unsaid,
    };
    let strategic = said.merge.map(|key| key.map(str::to_owned));
    Merge { topology, strategic, retain_keys: said.retain_keys }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_schema_is_read() {
        let mut reader = Reader::default();
        reader.read().unwrap();
        assert!(reader.types.names.len() > 500, "only {} types", reader.types.names.len());
        for group_version in SERVED {
            assert!(reader.kinds.iter().any(|(kind, _)| kind.rsplit_once('/').unwrap().0.ends_with(group_version)));
        }
    }

    #[test]
    fn knows_kinds_and_how_their_lists_merge() {
        let types = builtin();
        let name = builtin_kind("apps", "v1", "Deployment").unwrap();
        assert_eq!(name, "io.k8s.api.apps.v1.Deployment");
        let spec = types.named(name).unwrap().field("spec").unwrap();
        assert!(spec.field("strategy").unwrap().retains_keys());
        let pod = spec.field("template").unwrap().field("spec").unwrap();
        let containers = pod.field("containers").unwrap();
        assert_eq!(containers.merges(), Some(Some("name")));
        let ports = containers.items().unwrap().field("ports").unwrap();
        assert_eq!(ports.topology(), &Topology::Keyed(vec!["containerPort".to_owned(), "protocol".to_owned()]));
        assert_eq!(ports.items().unwrap().field("protocol").unwrap().default().unwrap(), "TCP");
        assert_eq!(spec.field("selector").unwrap().topology(), &Topology::Atomic);
        assert!(spec.field("nothing").is_none());
        let limits = containers.items().unwrap().field("resources").unwrap().field("limits").unwrap();
        assert!(matches!(limits.field("cpu").unwrap().shape(), Shape::IntegerOrText));
    }
}
