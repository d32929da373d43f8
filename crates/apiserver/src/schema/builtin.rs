//! The types of the built-in kinds, parsed once from `builtin.txt`.
//!
//! The text explains its own format; `tests/testbed/field-types` writes it.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use crate::schema::{Field, Go, GoKind, Merge, Node, Omit, Shape, Topology, Types};

static TEXT: &str = include_str!("builtin.txt");

static BUILTIN: LazyLock<Builtin> = LazyLock::new(|| Builtin::parse(TEXT));

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
    fn parse(text: &str) -> Self {
        let mut reader = Reader::default();
        reader.names(text);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if reader.line(line).is_none() {
                reader.broken.push(line.to_owned());
            }
        }
        debug_assert!(reader.broken.is_empty(), "builtin.txt is broken: {:?}", reader.broken);
        Self { types: Arc::new(reader.types), kinds: reader.kinds }
    }
}

#[derive(Default)]
struct Reader {
    types: Types,
    kinds: HashMap<String, String>,
    package: String,
    /// The node whose fields follow.
    current: usize,
    broken: Vec<String>,
}

impl Reader {
    /// Gives each struct its place, since fields refer to structs that come later.
    fn names(&mut self, text: &str) {
        let mut package = "";
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("package ") {
                package = name;
            } else if let Some(rest) = line.strip_prefix("struct ") {
                let name = rest.split(' ').next().unwrap_or(rest);
                let go = go(GoKind::Struct, format!("{}.{name}", package.rsplit('.').next().unwrap_or(package)));
                let node = Node { shape: Shape::Object(Vec::new()), go: Some(go), ..Node::default() };
                let index = self.types.add(node);
                self.types.names.insert(format!("{package}.{name}"), index);
            }
        }
    }

    fn line(&mut self, line: &str) -> Option<()> {
        if line.is_empty() {
            return Some(());
        }
        if let Some(name) = line.strip_prefix("package ") {
            name.clone_into(&mut self.package);
            return Some(());
        }
        if let Some(rest) = line.strip_prefix("struct ") {
            return self.structure(rest);
        }
        let mut words = line.splitn(3, ' ');
        let (name, typed) = (words.next()?, words.next()?);
        let said = Said::of(words.next().unwrap_or_default())?;
        let (within, name) = name.rsplit_once('^').map_or(("", name), |(within, name)| (within, name));
        let (name, omit) = match name.strip_suffix('?') {
            Some(name) => (name, Omit::Empty),
            None => name.strip_suffix('!').map_or((name, Omit::Never), |name| (name, Omit::Zero)),
        };
        let mut node = self.typed(typed)?;
        node.default = said.default;
        node.merge = said.merge;
        let node = self.types.add(node);
        let within = if within.is_empty() { String::new() } else { within.replace('^', ".") + "." };
        let owner = self.types.nodes.get_mut(self.current)?;
        if said.required {
            owner.required.push(name.to_owned());
        }
        let Shape::Object(fields) = &mut owner.shape else { return None };
        fields.push(Field { name: name.to_owned(), node, omit, within });
        Some(())
    }

    fn structure(&mut self, rest: &str) -> Option<()> {
        let (name, said) = rest.split_once(' ').unwrap_or((rest, ""));
        let said = Said::of(said)?;
        let full = format!("{}.{name}", self.package);
        self.current = *self.types.names.get(&full)?;
        self.types.nodes.get_mut(self.current)?.merge = said.merge;
        if let Some(version) = said.kind {
            self.kinds.insert(format!("{version}/{name}"), full);
        }
        Some(())
    }

    fn typed(&mut self, text: &str) -> Option<Node> {
        if let Some(text) = text.strip_prefix('*') {
            let mut node = self.typed(text)?;
            node.go.as_mut()?.pointer = true;
            return Some(node);
        }
        if let Some((called, text)) = text.split_once('=').filter(|(called, _)| !called.contains('[')) {
            let mut node = self.typed(text)?;
            called.clone_into(&mut node.go.as_mut()?.name);
            return Some(node);
        }
        if let Some(text) = text.strip_prefix("[]") {
            let items = self.typed(text)?;
            let go = go(GoKind::List, format!("[]{}", printed(&items)));
            return Some(Node { shape: Shape::List(self.types.add(items)), go: Some(go), ..Node::default() });
        }
        if let Some(text) = text.strip_prefix("map[string]") {
            let values = self.typed(text)?;
            let go = go(GoKind::Map, format!("map[string]{}", printed(&values)));
            return Some(Node { shape: Shape::Map(self.types.add(values)), go: Some(go), ..Node::default() });
        }
        if let Some((shape, kind, name)) = scalar(text) {
            return Some(Node { shape, go: Some(go(kind, name.to_owned())), ..Node::default() });
        }
        let full = if text.contains('.') { text.to_owned() } else { format!("{}.{text}", self.package) };
        let index = *self.types.names.get(&full)?;
        let go = self.types.nodes.get(index)?.go.clone();
        Some(Node { shape: Shape::Named(index), go, ..Node::default() })
    }
}

fn go(kind: GoKind, name: String) -> Go {
    Go { kind, name, pointer: false }
}

fn printed(node: &Node) -> String {
    node.go.as_ref().map(|go| format!("{}{}", if go.pointer { "*" } else { "" }, go.name)).unwrap_or_default()
}

fn scalar(text: &str) -> Option<(Shape, GoKind, &'static str)> {
    Some(match text {
        "bool" => (Shape::Truth, GoKind::Bool, "bool"),
        "int32" => (Shape::Integer, GoKind::Int32, "int32"),
        "int64" => (Shape::Integer, GoKind::Int64, "int64"),
        "float64" => (Shape::Number, GoKind::Double, "float64"),
        "string" => (Shape::Text, GoKind::Text, "string"),
        "bytes" => (Shape::Text, GoKind::Bytes, "[]uint8"),
        "time" => (Shape::Text, GoKind::Time, "v1.Time"),
        "micro-time" => (Shape::Text, GoKind::MicroTime, "v1.MicroTime"),
        "duration" => (Shape::Text, GoKind::Duration, "v1.Duration"),
        "quantity" => (Shape::IntegerOrText, GoKind::Quantity, "resource.Quantity"),
        "int-or-string" => (Shape::IntegerOrText, GoKind::IntOrString, "intstr.IntOrString"),
        "raw" => (Shape::Any, GoKind::Raw, "runtime.RawExtension"),
        "json" => (Shape::Any, GoKind::Raw, "v1.JSON"),
        "fields" => (Shape::Any, GoKind::Raw, "v1.FieldsV1"),
        "schema-or-bool" => (Shape::Any, GoKind::SchemaOr, "v1.JSONSchemaPropsOrBool"),
        "schema-or-list" => (Shape::Any, GoKind::SchemaOr, "v1.JSONSchemaPropsOrArray"),
        "schema-or-strings" => (Shape::Any, GoKind::SchemaOr, "v1.JSONSchemaPropsOrStringArray"),
        _ => return None,
    })
}

/// The attributes behind a field or struct.
#[derive(Default)]
struct Said {
    kind: Option<String>,
    required: bool,
    merge: Merge,
    default: Option<serde_json::Value>,
}

impl Said {
    fn of(text: &str) -> Option<Self> {
        let mut said = Self::default();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match word.split_once('=').unwrap_or((word, "")) {
                ("kind", version) => said.kind = Some(version.to_owned()),
                ("required", _) => said.required = true,
                // What happens without a word.
                ("replace", _) => {}
                ("retainKeys", _) => said.merge.retain_keys = true,
                ("merge", key) => said.merge.strategic = Some((!key.is_empty()).then(|| key.to_owned())),
                ("default", json) => said.default = Some(serde_json::from_str(json).ok()?),
                ("list", "atomic") | ("map", "atomic") => said.merge.topology = Topology::Atomic,
                ("list", "set") => said.merge.topology = Topology::Set,
                ("map", "granular") => said.merge.topology = Topology::Granular,
                ("list", keyed) => {
                    let keys = keyed.strip_prefix("map:")?.split(',').map(str::to_owned).collect();
                    said.merge.topology = Topology::Keyed(keys);
                }
                _ => return None,
            }
        }
        Some(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        let mut reader = Reader::default();
        reader.names(TEXT);
        for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
            assert!(reader.line(line).is_some(), "{line}");
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
