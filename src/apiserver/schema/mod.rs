//! The types of an object's fields, as a structural schema says them.
//!
//! One arena holds the types of all kinds of one source (the built-in kinds, or one custom resource definition), since
//! types refer to each other, and to themselves. A [`Type`] is a place in it: cheap to copy, walked along a document.
//!
//! Pure: serde_json in, serde_json out.

use std::collections::BTreeMap;

use serde_json::Value;

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
    Object(Vec<(String, usize)>),
    /// An object with any keys, whose values are of one type.
    Map(usize),
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
    node: &'a Node,
}

impl Types {
    /// The type of a name.
    pub fn named(&self, name: &str) -> Option<Type<'_>> {
        self.at(*self.names.get(name)?)
    }

    fn at(&self, index: usize) -> Option<Type<'_>> {
        Some(Type { types: self, node: self.nodes.get(index)? })
    }
}

impl<'a> Type<'a> {
    /// What is said of it.
    pub fn node(self) -> &'a Node {
        self.node
    }

    /// The type of a field or key of an object; `None` if it has no such field, or its type is not known.
    pub fn field(self, name: &str) -> Option<Self> {
        match &self.node.shape {
            Shape::Object(fields) => {
                let (_, index) = fields.iter().find(|(field, _)| field == name)?;
                self.types.at(*index)
            }
            Shape::Map(values) => self.types.at(*values),
            _ => None,
        }
    }

    /// The type of a list's items.
    pub fn items(self) -> Option<Self> {
        match self.node.shape {
            Shape::List(items) => self.types.at(items),
            _ => None,
        }
    }

    /// What of it has an owner of its own.
    pub fn topology(self) -> &'a Topology {
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
        self.node.open || matches!(self.node.shape, Shape::Any)
    }
}
