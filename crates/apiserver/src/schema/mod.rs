//! The types of an object's fields, as a structural schema says them.
//!
//! One arena holds the types of all kinds of one source (the built-in kinds, or one custom resource definition), since
//! types refer to each other, and to themselves. A [`Type`] is a place in it: cheap to copy, walked along a document.
//!
//! - [`builtin`]: the types of the built-in kinds
//! - [`read_body`]: an object out of a request's body, and what is wrong with it in a kube-apiserver's words
//! - [`decode`]: reads an object of a built-in kind, as Go does; what is unknown or there twice is told
//! - [`structural()`]: types out of the schema of a custom resource definition
//! - [`conform()`]: a custom resource with its metadata read, unknown fields pruned and defaults filled in
//! - [`validate()`]: what of a custom resource is not as its schema wants it
//! - [`openapi`]: documents of what is served
//! - [`arrange()`]: an object as Go prints it
//! - [`visit()`]: the structs in an object
//!
//! Pure: serde_json in, serde_json out.
//!
//! One cycle of files is meant: an object of a custom resource may stand inside one of a built-in kind, and the metadata of
//! a custom resource is of a built-in type, so that `decode` and `conform` call each other.

use std::collections::BTreeMap;

use serde_json::Value;

mod arrange;
mod body;
mod builtin;
mod checks;
mod conform;
mod decode;
mod error;
mod formats;
pub mod openapi;
mod structural;
mod time;
mod validate;
mod visit;

pub use arrange::{arrange, arrange_stored};
pub use body::{Expected, FieldValidation, read_body};
pub use builtin::{builtin, builtin_kind};
pub use checks::Checks;
pub use conform::{conform, fill_defaults, prune};
pub use decode::{Decoded, decode};
pub use error::{BodyError, DecodeError, StrictError, Unhandled, Unrecognized};
pub(crate) use formats::has_format;
pub use formats::is_known_format;
pub use kubefold_wire::text::Text;
pub use structural::{structural, structural_part};
pub use time::{canonical_micro_time, canonical_time};
pub use validate::{bad_value, validate, validate_part, validate_update};
pub use visit::visit;

/// The types of many fields, that refer to each other.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// In no order.
    pub nodes: Vec<Node>,
    /// Types with names, such as `io.k8s.api.core.v1.Pod`.
    pub names: BTreeMap<String, usize>,
}

/// One type. What is not said is what OpenAPI takes for granted.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The full name of a struct of a built-in kind, such as `io.k8s.api.core.v1.Pod`.
    pub name: Option<String>,
    /// What a value looks like.
    pub shape: Shape,
    /// What a missing field becomes.
    pub default: Option<Value>,
    /// Whether `null` is a value.
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`: fields that are not named stay.
    pub open: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// Names of the fields that must be there.
    pub required: Vec<String>,
    /// How versions of it become one.
    pub merge: Merge,
    /// What Go reads it into. Built-in kinds only.
    pub go: Option<Go>,
    /// What must hold of its values. Custom resources only.
    pub checks: Option<Box<Checks>>,
}

/// What a value looks like.
#[derive(Clone, Debug, Default)]
pub enum Shape {
    /// Anything.
    #[default]
    Any,
    /// Text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Truth,
    /// A whole number or a text: `IntOrString`, `Quantity`.
    IntegerOrText,
    /// A list of items of one type.
    List(usize),
    /// An object with these fields.
    Object(Vec<Field>),
    /// An object with any keys, whose values are of one type.
    Map(usize),
    /// As another node, which has a name. What this node says of its own goes first.
    Named(usize),
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in JSON.
    pub name: String,
    /// Its type's node.
    pub node: usize,
    /// When it is not printed.
    pub omit: Omit,
    /// The Go names of the structs that hold it within this one, each with a dot behind.
    pub within: String,
}

/// When a field is not printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Omit {
    /// A field that is missing is printed as its type's zero value.
    Never,
    /// When it is empty, as Go's `omitempty` sees it.
    #[default]
    Empty,
    /// When it is zero, as Go's `omitzero` sees it.
    Zero,
}

/// What Go reads a value into.
#[derive(Clone, Debug)]
pub struct Go {
    /// What it is.
    pub kind: GoKind,
    /// As Go prints the type, such as `[]v1.Container`.
    pub name: String,
    /// Whether it is a pointer, so that zero is not nothing.
    pub pointer: bool,
}

/// What Go reads a value into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Go's own and say it all")]
pub enum GoKind {
    Bool,
    Int32,
    Int64,
    Double,
    Text,
    Bytes,
    List,
    Map,
    Struct,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// `RawExtension`, `JSON`, `FieldsV1`: kept as it is.
    Raw,
    /// `JSONSchemaPropsOrBool` and its like: a schema in an object or list is read, the rest kept as it is.
    SchemaOr,
}

/// How two versions of a list or an object become one.
#[derive(Clone, Debug, Default)]
pub struct Merge {
    /// `x-kubernetes-list-type`, `x-kubernetes-map-type`, `x-kubernetes-list-map-keys`.
    pub topology: Topology,
    /// `x-kubernetes-patch-strategy` has `merge`; `x-kubernetes-patch-merge-key` if the items are objects.
    pub strategic: Option<Option<String>>,
    /// `x-kubernetes-patch-strategy` has `retainKeys`.
    pub retain_keys: bool,
}

/// What of a list or an object has an owner of its own (server-side apply).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// As the type's shape has it: fields and keys of objects, whole lists.
    #[default]
    Unsaid,
    /// The value as one.
    Atomic,
    /// Each item of a list, that holds none twice.
    Set,
    /// Each item of a list, known by the values of these fields.
    Keyed(Vec<String>),
    /// Each field or key.
    Granular,
}

/// One type of an arena.
#[derive(Clone, Copy, Debug)]
pub struct Type<'a> {
    types: &'a Types,
    /// What the place says of its own.
    node: &'a Node,
    /// The named node that it refers to; else the same.
    target: &'a Node,
}

impl Types {
    /// The type of a name.
    pub fn named(&self, name: &str) -> Option<Type<'_>> {
        self.at(*self.names.get(name)?)
    }

    /// The type of a node.
    pub fn at(&self, index: usize) -> Option<Type<'_>> {
        let node = self.nodes.get(index)?;
        let target = match node.shape {
            Shape::Named(target) => self.nodes.get(target)?,
            _ => node,
        };
        Some(Type { types: self, node, target })
    }

    /// The name of a type that a place refers to.
    pub fn name_of(&self, typed: Type<'_>) -> Option<&str> {
        let Shape::Named(target) = typed.node.shape else { return None };
        self.names.iter().find_map(|(name, index)| (*index == target).then_some(name.as_str()))
    }

    /// Adds a node.
    pub fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }
}

impl<'a> Type<'a> {
    /// What is said of it.
    pub fn node(self) -> &'a Node {
        self.node
    }

    /// The type of a field or key of an object; `None` if it has no such field, or its type is not known.
    pub fn field(self, name: &str) -> Option<Self> {
        match self.shape() {
            Shape::Object(fields) => self.types.at(fields.iter().find(|field| field.name == name)?.node),
            Shape::Map(values) => self.types.at(*values),
            _ => None,
        }
    }

    /// The fields that have names, in the order in which they are printed.
    pub fn fields(self) -> impl Iterator<Item = (&'a Field, Self)> {
        let fields = match self.shape() {
            Shape::Object(fields) => fields.as_slice(),
            _ => &[],
        };
        fields.iter().filter_map(move |field| Some((field, self.types.at(field.node)?)))
    }

    /// The type of a list's items.
    pub fn items(self) -> Option<Self> {
        match self.shape() {
            Shape::List(items) => self.types.at(*items),
            _ => None,
        }
    }

    /// The type of the values of an object with any keys.
    pub fn values(self) -> Option<Self> {
        match self.shape() {
            Shape::Map(values) => self.types.at(*values),
            _ => None,
        }
    }

    /// The full name of a struct of a built-in kind.
    pub fn name(self) -> Option<&'a str> {
        self.target.name.as_deref()
    }

    /// What a value looks like; never [`Shape::Named`].
    pub fn shape(self) -> &'a Shape {
        &self.target.shape
    }

    /// What of it has an owner of its own.
    pub fn topology(self) -> &'a Topology {
        match &self.node.merge.topology {
            Topology::Unsaid => &self.target.merge.topology,
            said => said,
        }
    }

    /// What the place itself says of that.
    pub fn own_topology(self) -> &'a Topology {
        &self.node.merge.topology
    }

    /// Says whether a strategic merge patch merges this list, and by which key of its items (`None`: by their values).
    pub fn merges(self) -> Option<Option<&'a str>> {
        self.node.merge.strategic.as_ref().map(Option::as_deref)
    }

    /// Says whether a strategic merge patch of it must list the keys that stay (`$retainKeys`).
    pub fn retains_keys(self) -> bool {
        self.node.merge.retain_keys
    }

    /// What a missing value becomes.
    pub fn default(self) -> Option<&'a Value> {
        self.node.default.as_ref()
    }

    /// Says whether fields that have no type stay.
    pub fn is_open(self) -> bool {
        self.node.open || self.target.open || matches!(self.target.shape, Shape::Any)
    }

    /// Names of the fields that must be there.
    pub fn required(self) -> &'a [String] {
        &self.target.required
    }

    /// Whether `null` is a value.
    pub fn is_nullable(self) -> bool {
        self.node.nullable
    }

    /// Whether it is a whole object of some kind: its `apiVersion`, `kind` and `metadata` always stay.
    pub fn is_embedded(self) -> bool {
        self.node.embedded
    }

    /// What must hold of its values.
    pub fn checks(self) -> Option<&'a Checks> {
        self.target.checks.as_deref()
    }

    /// The arena that it is of.
    pub fn types(self) -> &'a Types {
        self.types
    }

    /// What Go reads it into, of a built-in kind.
    pub fn go(self) -> Option<&'a Go> {
        self.node.go.as_ref()
    }
}
