//! The message types of the Kubernetes API, parsed once from `schema.txt`.
//!
//! The text explains its own format; `tests/testbed/protobuf-schema` writes it.

use std::collections::HashMap;
use std::sync::LazyLock;

static TEXT: &str = include_str!("schema.txt");

static SCHEMA: LazyLock<Result<Schema, SchemaError>> = LazyLock::new(|| Schema::parse(TEXT));

/// The apiVersion of kinds that are found under any (`DeleteOptions`).
const ANY_API_VERSION: &str = "*";

/// What is wrong with `schema.txt`; a test sees to it that this never ships.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A line that fits nothing.
    #[error("line {0} cannot be read")]
    Line(usize),
    /// A type that is named but not defined.
    #[error("the message {0} is not defined")]
    Undefined(String),
}

/// Every message, and which of them are objects.
#[derive(Debug)]
pub(super) struct Schema {
    messages: Vec<Message>,
    kinds: HashMap<(&'static str, &'static str), MessageId>,
}

/// The place of a message in its [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageId(usize);

/// One message type.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) style: Style,
    /// In the order that JSON prints them.
    pub(super) fields: Vec<Field>,
    /// Field number to position in `fields`, sorted by number.
    positions: Vec<(u32, usize)>,
}

/// How JSON prints a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// As an object.
    Object,
    /// As the value of its first field that is set.
    Either,
}

/// One field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) mark: Mark,
    pub(super) shape: Shape,
    pub(super) value: Value,
}

/// When and where JSON prints a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Under its name.
    Always,
    /// Under its name, unless empty by the rules of Go's `omitempty`.
    OmitEmpty,
    /// Under its name, unless it is the zero time.
    OmitZero,
    /// Without a name: the fields of the message stand among those around it.
    InPlace,
    /// Never: the field left the API, and only its empty value is accepted.
    Retired,
}

/// How often a field's value occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Always there; its zero value when not sent.
    One,
    /// `null` when not sent.
    Pointer,
    Repeated,
    /// With string keys.
    Map,
}

/// The type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
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
    /// A message whose field 1 is JSON text.
    Json,
    /// A message whose field 1 is a repeated string, printed as the array.
    WrappedStrings,
    Message(MessageId),
}

impl Schema {
    /// Returns the schema, parsing it on the first call.
    pub(super) fn get() -> Result<&'static Self, SchemaError> {
        SCHEMA.as_ref().map_err(Clone::clone)
    }

    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        self.kinds.get(&(api_version, kind)).or_else(|| self.kinds.get(&(ANY_API_VERSION, kind))).copied()
    }

    pub(super) fn message(&self, id: MessageId) -> Result<&Message, SchemaError> {
        self.messages.get(id.0).ok_or_else(|| SchemaError::Undefined(format!("{id:?}")))
    }

    fn parse(text: &'static str) -> Result<Self, SchemaError> {
        let mut parser = Parser::default();
        for (index, line) in text.lines().enumerate() {
            parser.line(line).ok_or(SchemaError::Line(index + 1))?;
        }
        parser.finish()
    }
}

#[cfg(test)]
impl Schema {
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.kinds.keys().copied()
    }
}

impl Message {
    /// Finds a field by its number.
    pub(super) fn position(&self, number: u32) -> Option<usize> {
        let found = self.positions.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        self.positions.get(found).map(|&(_, position)| position)
    }
}

/// Collects messages line by line; a message may be named before it is defined.
#[derive(Default)]
struct Parser {
    package: &'static str,
    api_version: &'static str,
    ids: HashMap<String, MessageId>,
    messages: Vec<Option<Message>>,
    current: Option<MessageId>,
    kinds: HashMap<(&'static str, &'static str), MessageId>,
}

impl Parser {
    fn line(&mut self, line: &'static str) -> Option<()> {
        if line.is_empty() || line.starts_with('#') {
            return Some(());
        }
        let mut words = line.split(' ');
        match words.next()? {
            "package" => {
                self.package = words.next()?;
                self.api_version = words.next().unwrap_or_default();
            }
            "kind" => {
                let name = words.next()?;
                let id = self.define(name, Style::Object);
                self.kinds.insert((self.api_version, name), id);
            }
            "message" => {
                self.define(words.next()?, Style::Object);
            }
            "either" => {
                self.define(words.next()?, Style::Either);
            }
            "also" => {
                let key = (words.next()?, words.next()?);
                let id = self.named(words.next()?);
                self.kinds.insert(key, id);
            }
            number => self.field(number.parse().ok()?, words.next()?, words.next()?)?,
        }
        words.next().is_none().then_some(())
    }

    fn define(&mut self, name: &str, style: Style) -> MessageId {
        let id = self.named(name);
        if let Some(slot) = self.messages.get_mut(id.0) {
            *slot = Some(Message { style, fields: Vec::new(), positions: Vec::new() });
        }
        self.current = Some(id);
        id
    }

    /// Returns the id of `PACKAGE.NAME`, or of `NAME` in the current package.
    fn named(&mut self, name: &str) -> MessageId {
        let full = if name.contains('.') { name.to_owned() } else { format!("{}.{name}", self.package) };
        let next = MessageId(self.messages.len());
        let id = *self.ids.entry(full).or_insert(next);
        if id == next {
            self.messages.push(None);
        }
        id
    }

    fn field(&mut self, number: u32, name: &'static str, type_name: &'static str) -> Option<()> {
        let (name, mark) = match name.split_at_checked(name.len().checked_sub(1)?)? {
            (name, "?") => (name, Mark::OmitEmpty),
            (name, "!") => (name, Mark::OmitZero),
            (name, "^") => (name, Mark::InPlace),
            (name, "~") => (name, Mark::Retired),
            _ => (name, Mark::Always),
        };
        let (shape, value) = if let Some(value) = type_name.strip_prefix('*') {
            (Shape::Pointer, value)
        } else if let Some(value) = type_name.strip_prefix("[]") {
            (Shape::Repeated, value)
        } else if let Some(value) = type_name.strip_prefix("map[string]") {
            (Shape::Map, value)
        } else {
            (Shape::One, type_name)
        };
        let value = self.value(value);
        let message = self.messages.get_mut(self.current?.0)?.as_mut()?;
        let slot = message.positions.partition_point(|&(other, _)| other < number);
        message.positions.insert(slot, (number, message.fields.len()));
        message.fields.push(Field { number, name, mark, shape, value });
        Some(())
    }

    fn value(&mut self, name: &str) -> Value {
        match name {
            "bool" => Value::Bool,
            "int32" => Value::Int32,
            "int64" => Value::Int64,
            "double" => Value::Double,
            "string" => Value::String,
            "bytes" => Value::Bytes,
            "time" => Value::Time,
            "micro-time" => Value::MicroTime,
            "duration" => Value::Duration,
            "quantity" => Value::Quantity,
            "int-or-string" => Value::IntOrString,
            "json" => Value::Json,
            "wrapped[]string" => Value::WrappedStrings,
            message => Value::Message(self.named(message)),
        }
    }

    fn finish(self) -> Result<Schema, SchemaError> {
        let undefined = |id: usize| {
            let name = self.ids.iter().find(|(_, other)| other.0 == id).map(|(name, _)| name.clone());
            SchemaError::Undefined(name.unwrap_or_default())
        };
        let messages = self
            .messages
            .into_iter()
            .enumerate()
            .map(|(id, message)| message.ok_or_else(|| undefined(id)))
            .collect::<Result<_, _>>()?;
        Ok(Schema { messages, kinds: self.kinds })
    }
}
