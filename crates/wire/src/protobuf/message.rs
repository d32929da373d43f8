//! Messages of objects, and what stands around them: the envelope, a list, an event of a watch.
//!
//! A message is the same bytes wherever it stands, so that it can be made once. Each thing around it begins with its length.

use super::encode::Encoder;
use super::envelope::PREFIX;
use super::error::EncodeError;
use super::leaf::{length_delimited, tag, varint};
use super::schema::{Messages, StructId};
use crate::locate::{TypeOf, type_of};

/// The end of a `runtime.Unknown`: no content encoding, and the content type that is its default.
const CLOSING: &[u8] = b"\x1a\0\x22\0";
/// The fields of every list: its metadata, and its items.
const LIST_METADATA: u32 = 1;
const LIST_ITEMS: u32 = 2;

/// The message type of a built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageType(StructId);

impl MessageType {
    /// That of a kind. `None`: it has none, as a custom resource, or is of a version that this build does not know.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        Messages::get().ok()?.kind(api_version, kind).map(Self)
    }

    /// Appends the message of an object, without an envelope.
    ///
    /// Errors: the object does not fit the type. Nothing is appended then.
    pub fn encode(self, json: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Encoder::new(Messages::get()?, out).object(self.0, json)
    }
}

/// Bytes of a record of `len` bytes in a field with a number below 16, as all around messages are.
pub fn record_len(len: usize) -> usize {
    let digits = (usize::BITS - (len | 1).leading_zeros()).div_ceil(7);
    1 + digits as usize + len
}

/// The envelope of a message up to the message.
pub(super) struct Opening {
    bytes: Vec<u8>,
    message_len: usize,
}

impl Opening {
    /// The envelope of a message of that many bytes.
    pub(super) fn new(of: TypeOf<'_>, message_len: usize) -> Self {
        let (api_version, kind) = (of.api_version.as_bytes(), of.kind.as_bytes());
        let mut bytes = Vec::with_capacity(api_version.len() + kind.len() + 32);
        bytes.extend_from_slice(PREFIX);
        tag(&mut bytes, 1, 2);
        varint(&mut bytes, (record_len(api_version.len()) + record_len(kind.len())) as u64);
        length_delimited(&mut bytes, 1, api_version);
        length_delimited(&mut bytes, 2, kind);
        tag(&mut bytes, 2, 2);
        varint(&mut bytes, message_len as u64);
        Self { bytes, message_len }
    }

    pub(super) fn total_len(&self) -> usize {
        self.bytes.len() + self.message_len + CLOSING.len()
    }

    pub(super) fn wrap(&self, out: &mut Vec<u8>, message: &[u8]) {
        out.extend_from_slice(&self.bytes);
        out.extend_from_slice(message);
        out.extend_from_slice(CLOSING);
    }
}

/// Appends a message in the envelope of its kind.
pub fn write_object(of: TypeOf<'_>, message: &[u8], out: &mut Vec<u8>) {
    let envelope = Opening::new(of, message.len());
    out.reserve(envelope.total_len());
    envelope.wrap(out, message);
}

/// Appends an event of a watch as a frame of a protobuf stream.
///
/// Shape: four bytes of length, most significant first, and the `WatchEvent` with the message in the envelope of its kind.
/// Source: kubernetes/apiserver `pkg/endpoints/handlers/watch.go`, apimachinery `pkg/util/framer`.
pub fn write_event(event_type: &str, of: TypeOf<'_>, message: &[u8], out: &mut Vec<u8>) {
    let envelope = Opening::new(of, message.len());
    let raw_len = record_len(envelope.total_len());
    let length = record_len(event_type.len()) + record_len(raw_len);
    out.reserve(4 + length);
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    length_delimited(out, 1, event_type.as_bytes());
    tag(out, 2, 2);
    varint(out, raw_len as u64);
    tag(out, 1, 2);
    varint(out, envelope.total_len() as u64);
    envelope.wrap(out, message);
}

/// The beginning of a list, up to its first item.
///
/// A list is what [`Self::open`] writes, [`Self::begin_item`] and the message of each item, and what [`Self::close`] writes.
#[derive(Debug)]
pub struct ListOpening {
    api_version: String,
    kind: String,
    metadata: Vec<u8>,
}

impl ListOpening {
    /// Reads it of the JSON of the list without its items.
    ///
    /// Errors: as [`MessageType::encode`].
    pub fn new(json: &str) -> Result<Self, EncodeError> {
        let of = type_of(json);
        let message_type = MessageType::of(of.api_version, of.kind).ok_or(EncodeError::UnknownKind)?;
        let messages = Messages::get()?;
        let fields = &messages.message(message_type.0)?.fields;
        let is_at = |name: &str, number| fields.iter().any(|field| field.name == name && field.number == Some(number));
        if fields.len() != 2 || !is_at("metadata", LIST_METADATA) || !is_at("items", LIST_ITEMS) {
            return Err(EncodeError::UnknownKind);
        }
        let mut metadata = Vec::new();
        message_type.encode(json, &mut metadata)?;
        Ok(Self { api_version: of.api_version.to_owned(), kind: of.kind.to_owned(), metadata })
    }

    /// Appends all that is before the first item. `items_len` is what the items' records come to ([`record_len`] of each).
    pub fn open(&self, items_len: usize, out: &mut Vec<u8>) {
        let of = TypeOf { kind: &self.kind, api_version: &self.api_version };
        out.extend_from_slice(&Opening::new(of, self.metadata.len() + items_len).bytes);
        out.extend_from_slice(&self.metadata);
    }

    /// Appends what is before the message of an item.
    pub fn begin_item(len: usize, out: &mut Vec<u8>) {
        tag(out, LIST_ITEMS, 2);
        varint(out, len as u64);
    }

    /// Appends what is behind the last item.
    pub fn close(out: &mut Vec<u8>) {
        out.extend_from_slice(CLOSING);
    }
}
