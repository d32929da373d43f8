//! The one schema of Kubernetes' built-in types: their fields as Go's structs have them, in JSON and in protobuf, and
//! what the OpenAPI documents say of them.
//!
//! `builtin.txt` explains its own format; `tests/testbed/types` writes it. Its lines are indexed once, by struct; the
//! fields of a struct are read when they are asked for, so that a program pays for the types that it uses.
//!
//! - [`Schema`]: the structs and kinds
//! - `read`: a struct's lines

mod read;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::LazyLock};

static TEXT: &str = include_str!("builtin.txt");

static SCHEMA: LazyLock<Result<Schema, SchemaError>> = LazyLock::new(|| Schema::index(TEXT));

/// The apiVersion of kinds that are found under any (`DeleteOptions`).
const ANY_API_VERSION: &str = "*";

/// What is wrong with `builtin.txt`; a test sees to it that this never ships.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A line that fits nothing.
    #[error("line {0} cannot be read")]
    Line(usize),
    /// A type that is named but not defined.
    #[error("the type {0} is not defined")]
    Undefined(String),
}

/// Every struct, and which of them are objects.
#[derive(Debug, Default)]
pub struct Schema {
    structs: Vec<Struct>,
    /// By the last two words of the package, and the struct's name.
    names: HashMap<(&'static str, &'static str), StructId>,
    /// By apiVersion and kind.
    kinds: HashMap<(&'static str, &'static str), StructId>,
}

/// The place of a struct in its [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StructId(usize);

impl StructId {
    /// A number from 0, below [`Schema::struct_count`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// A struct, whose fields are not read yet.
#[derive(Debug, Clone, Copy)]
pub struct Struct {
    /// The Go package as OpenAPI names it: `io.k8s.api.core.v1`.
    pub package: &'static str,
    /// Go's name of it.
    pub name: &'static str,
    /// How JSON prints it.
    pub style: Style,
    /// The last two words of the package.
    short: &'static str,
    attributes: &'static str,
    /// The lines of its fields, and the number of the first.
    text: &'static str,
    line: usize,
}

/// How JSON prints a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As an object.
    Object,
    /// As the value of its first field that is set.
    Either,
}

/// A field of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Protobuf's; absent if the field is not sent (`TypeMeta`, which the envelope carries).
    pub number: Option<u32>,
    /// In JSON; Go's where JSON prints none.
    pub name: &'static str,
    /// When and where JSON prints it.
    pub mark: Mark,
    /// How often its value occurs.
    pub shape: Shape,
    /// Go's name of its type, such as `v1.ResourceList`; without the pointer. Absent if its parts say it.
    pub go: Option<&'static str>,
    /// Go's name of the type of a list's items or a map's values. Absent if it is the value's own.
    pub item_go: Option<&'static str>,
    /// The type of its value, or of each of its values.
    pub value: Value,
    attributes: &'static str,
}

/// When and where JSON prints a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Under its name.
    Always,
    /// Under its name, unless empty by the rules of Go's `omitempty`.
    OmitEmpty,
    /// Under its name, unless it is the zero time.
    OmitZero,
    /// Without a name: the fields of the struct stand among those around it.
    InPlace,
    /// Never: the field left the API, and protobuf has at most its empty value.
    Retired,
}

/// How often a field's value occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Always there; its zero value when not sent.
    One,
    /// `null` when not sent.
    Pointer,
    /// Any number of times.
    Repeated,
    /// With string keys.
    Map,
}

/// The type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Go's own and say it all")]
pub enum Value {
    Bool,
    Int32,
    Int64,
    Double,
    String,
    Bytes,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// `runtime.RawExtension`: a message whose field 1 is JSON text, as are the next two.
    Raw,
    /// `JSON` of apiextensions.
    Json,
    /// `FieldsV1`.
    Fields,
    /// A list of strings; in protobuf a message whose field 1 is repeated.
    WrappedStrings,
    Struct(StructId),
}

/// What the OpenAPI documents say of a struct or field.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Whether it must be there.
    pub required: bool,
    /// JSON text of what it becomes if it is missing.
    pub default: Option<&'static str>,
    /// `x-kubernetes-list-type`.
    pub list: Option<ListType>,
    /// `x-kubernetes-map-type`.
    pub map: Option<MapType>,
    /// `x-kubernetes-patch-strategy` has `merge`; `x-kubernetes-patch-merge-key` if the items are objects.
    pub merge: Option<Option<&'static str>>,
    /// `x-kubernetes-patch-strategy` has `retainKeys`.
    pub retain_keys: bool,
}

/// What of a list has an owner of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// The list as one.
    Atomic,
    /// Each item, that is there once.
    Set,
    /// Each item, known by the values of these fields, which have commas between them.
    Map(&'static str),
}

/// What of an object has an owner of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapType {
    /// The object as one.
    Atomic,
    /// Each key.
    Granular,
}

impl Schema {
    /// Returns the schema, indexing it on the first call.
    ///
    /// Errors: the file is broken.
    pub fn get() -> Result<&'static Self, SchemaError> {
        SCHEMA.as_ref().map_err(Clone::clone)
    }

    /// The type of a kind.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<StructId> {
        self.kinds.get(&(api_version, kind)).or_else(|| self.kinds.get(&(ANY_API_VERSION, kind))).copied()
    }

    /// Every kind with its apiVersion, which is `*` for a kind that is found under any; in no order.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str, StructId)> {
        self.kinds.iter().map(|(&(api_version, kind), &id)| (api_version, kind, id))
    }

    /// A struct by the last two words of its package and its name: `meta.v1` and `Status`.
    pub fn named(&self, package: &str, name: &str) -> Option<StructId> {
        self.names.get(&(package, name)).copied()
    }

    /// How many structs there are.
    pub fn struct_count(&self) -> usize {
        self.structs.len()
    }

    /// The places of all structs.
    pub fn ids(&self) -> impl Iterator<Item = StructId> + use<> {
        (0..self.structs.len()).map(StructId)
    }

    /// A struct.
    ///
    /// Errors: the place is of another schema.
    pub fn at(&self, id: StructId) -> Result<&Struct, SchemaError> {
        self.structs.get(id.0).ok_or_else(|| SchemaError::Undefined(format!("{id:?}")))
    }

    /// Reads the fields of a struct, in the order in which JSON prints them.
    ///
    /// Errors: the file is broken.
    pub fn fields(&self, id: StructId) -> Result<Vec<Field>, SchemaError> {
        let of = self.at(id)?;
        let read = |(index, line)| read::field(self, of, line).map_err(|fault| fault.at(of.line + index));
        of.text.lines().enumerate().map(read).collect()
    }

    fn index(text: &'static str) -> Result<Self, SchemaError> {
        read::index(text)
    }
}

impl Struct {
    /// What OpenAPI says of it.
    ///
    /// Errors: the file is broken.
    pub fn attributes(&self) -> Result<Attributes, SchemaError> {
        read::attributes(self.attributes).ok_or_else(|| SchemaError::Line(self.line.saturating_sub(1)))
    }
}

impl Field {
    /// What OpenAPI says of it; absent if the file is broken.
    pub fn attributes(&self) -> Option<Attributes> {
        read::attributes(self.attributes)
    }
}
