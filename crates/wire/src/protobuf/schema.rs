//! The message types of the Kubernetes API: the structs of the one schema, with their fields by number.

use std::{
    collections::HashMap,
    sync::{LazyLock, OnceLock},
};

use smallvec::SmallVec;

pub(super) use crate::types::{Field, Mark, Shape, StructId, Style, Value};
use crate::types::{Schema, SchemaError};

static MESSAGES: LazyLock<Result<Messages, SchemaError>> = LazyLock::new(|| {
    let schema = Schema::get()?;
    Ok(Messages { schema, read: (0..schema.struct_count()).map(|_| OnceLock::new()).collect() })
});

/// Every message, read when it is first asked for.
#[derive(Debug)]
pub(super) struct Messages {
    schema: &'static Schema,
    read: Vec<OnceLock<Message>>,
}

/// The places of the fields that lead to one: more than one where a struct's fields stand among those around it.
pub(super) type FieldPath = SmallVec<[usize; 2]>;

/// What the encoder knows of a message, worked out when it is first written.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// By the name that JSON has.
    pub(super) names: OnceLock<HashMap<&'static str, FieldPath>>,
    /// The message when nothing is set.
    pub(super) zero: OnceLock<Vec<u8>>,
}

/// One message type.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) style: Style,
    /// In the order that JSON prints them.
    pub(super) fields: Vec<Field>,
    /// Field number to position in `fields`, sorted by number.
    positions: Vec<(u32, usize)>,
    /// What the encoder knows of it.
    pub(super) writing: Writing,
}

impl Messages {
    pub(super) fn get() -> Result<&'static Self, SchemaError> {
        MESSAGES.as_ref().map_err(Clone::clone)
    }

    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<StructId> {
        self.schema.kind(api_version, kind)
    }

    pub(super) fn message(&self, id: StructId) -> Result<&Message, SchemaError> {
        let slot = self.read.get(id.index()).ok_or_else(|| SchemaError::Undefined(format!("{id:?}")))?;
        if let Some(message) = slot.get() {
            return Ok(message);
        }
        let message = Message::new(self.schema.at(id)?.style, self.schema.fields(id)?);
        Ok(slot.get_or_init(|| message))
    }
}

impl Message {
    fn new(style: Style, mut fields: Vec<Field>) -> Self {
        // The envelope carries the type.
        fields.retain(|field| field.number.is_some());
        let numbered = fields.iter().enumerate().filter_map(|(position, field)| Some((field.number?, position)));
        let mut positions: Vec<_> = numbered.collect();
        positions.sort_unstable();
        Self { style, fields, positions, writing: Writing::default() }
    }

    /// The numbers of the fields, in order, with their positions in `fields`.
    pub(super) fn by_number(&self) -> &[(u32, usize)] {
        &self.positions
    }

    /// Finds a field by its number.
    pub(super) fn position(&self, number: u32) -> Option<usize> {
        let found = self.positions.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        self.positions.get(found).map(|&(_, position)| position)
    }
}
