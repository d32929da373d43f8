//! Small lists in protobuf, made of the messages of their objects.
//!
//! Messages that were made are kept within a bound: clients that list again, or list the same, find them. Large lists are made of
//! blocks: see `blocks`.

use bytes::Bytes;
use hashbrown::HashMap;
use http::Response;
use parking_lot::Mutex;

use crate::{
    registry::{List, Object},
    serve::{
        protobuf_response,
        writing::{OUTSIDE_BYTES, Writing},
    },
};
use kubefold_wire::{
    body::{Body, full},
    protobuf::{EncodeError, ListOpening, MessageType, record_len},
};

/// Messages that are kept, with the JSON that they were made of. Units: bytes.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The messages that were made last.
#[derive(Default)]
pub(super) struct Messages {
    kept: Mutex<Kept>,
}

/// In two halves: when the young one is full, the old one is forgotten.
#[derive(Default)]
struct Kept {
    young: HashMap<Key, Message>,
    young_bytes: usize,
    old: HashMap<Key, Message>,
}

/// An object by where its bytes are. They stay there as long as its message is kept, which holds them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    place: usize,
    revision: u64,
    of: MessageType,
}

#[derive(Clone)]
struct Message {
    json: Bytes,
    bytes: Bytes,
}

impl Messages {
    /// A list as an answer.
    ///
    /// Errors: an object has what its type has not.
    pub(super) fn respond(&self, list: &List, how: &Writing<'_>) -> Result<Response<Body>, EncodeError> {
        let of = how.of.ok_or(EncodeError::UnknownKind)?;
        let head = how.head(list);
        let opening = ListOpening::new(std::str::from_utf8(&head).unwrap_or_default())?;
        let messages = list.objects.iter().map(|object| self.message(object, of)).collect::<Result<Vec<_>, _>>()?;
        let items_len = messages.iter().map(|message| record_len(message.len())).sum();
        let mut out = Vec::with_capacity(items_len + OUTSIDE_BYTES);
        opening.open(items_len, &mut out);
        for message in messages {
            ListOpening::begin_item(message.len(), &mut out);
            out.extend_from_slice(&message);
        }
        ListOpening::close(&mut out);
        Ok(protobuf_response(full(out)))
    }

    /// The message of an object.
    ///
    /// Errors: it has what its type has not.
    fn message(&self, object: &Object, of: MessageType) -> Result<Bytes, EncodeError> {
        let json = object.shared();
        let key = Key { place: json.as_ptr() as usize, revision: object.revision(), of };
        if let Some(kept) = self.kept.lock().get(&key) {
            return Ok(kept.bytes);
        }
        let mut bytes = Vec::with_capacity(json.len());
        encode(object, of, &mut bytes)?;
        // As long as it is.
        let message = Message { json: json.clone(), bytes: Bytes::from(bytes.into_boxed_slice()) };
        self.kept.lock().put(key, message.clone());
        Ok(message.bytes)
    }
}

impl Kept {
    fn get(&mut self, key: &Key) -> Option<Message> {
        if let Some(message) = self.young.get(key) {
            return Some(message.clone());
        }
        let message = self.old.remove(key)?;
        self.put(*key, message.clone());
        Some(message)
    }

    fn put(&mut self, key: Key, message: Message) {
        let bytes = message.json.len() + message.bytes.len() + size_of::<Key>() + size_of::<Message>();
        if self.young_bytes + bytes > KEPT_BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(key, message).is_none() {
            self.young_bytes += bytes;
        }
    }
}

/// Appends the message of an object.
///
/// Errors: it has what its type has not.
pub(super) fn encode(object: &Object, of: MessageType, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let json = object.json();
    of.encode(std::str::from_utf8(&json).unwrap_or_default(), out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(count: usize, data: &str) -> Vec<Object> {
        let map =
            |name| json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": data}});
        let object = |number| Object::of_value("configmaps/default/a", &map(format!("a{number}")), number as u64 + 1);
        (0..count).map(object).collect()
    }

    #[test]
    fn a_message_is_made_once_and_the_bound_holds() {
        let (messages, of) = (Messages::default(), MessageType::of("v1", "ConfigMap").unwrap());
        let few = objects(3, "x");
        let first = few.iter().map(|one| messages.message(one, of).unwrap().as_ptr()).collect::<Vec<_>>();
        let again = few.iter().map(|one| messages.message(one, of).unwrap().as_ptr()).collect::<Vec<_>>();
        assert_eq!(first, again);
        // The same bytes at another revision are another object.
        let other = Object::of_value("configmaps/default/a", &few[0].value(), 9);
        assert_ne!(messages.message(&other, of).unwrap(), messages.message(&few[0], of).unwrap());
        for object in objects(200, &"x".repeat(1 << 20)) {
            messages.message(&object, of).unwrap();
        }
        let kept = messages.kept.lock();
        let held = kept.young.values().chain(kept.old.values()).map(|one| one.json.len() + one.bytes.len());
        let held: usize = held.sum();
        assert!((KEPT_BYTES_MAX / 3..=KEPT_BYTES_MAX).contains(&held), "{held}");
    }
}
