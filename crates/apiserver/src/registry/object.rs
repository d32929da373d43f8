//! Objects as they are stored: compact JSON without its revision, which is the storage's to say.

use std::{io::Write as _, sync::Arc};

use bytes::Bytes;
use serde_json::Value;

use crate::{
    kinds::Kind,
    storage::Record,
    stored::{self, HEAD_BYTES, encode},
};

/// `,"resourceVersion":""` and the longest number.
const REVISION_BYTES_MAX: usize = 41;

/// One object as it was at one revision. Cheap to clone: its bytes are the storage's own.
#[derive(Clone, Debug)]
pub struct Object {
    key: Arc<str>,
    json: Bytes,
    /// Where the revision stands.
    place: usize,
    /// Its bytes are the storage's, rather than of one answer.
    is_stored: bool,
    revision: u64,
}

impl Object {
    /// The object of a record.
    pub fn of_record(record: &Record) -> Self {
        Self::at(record.clone(), record.revision)
    }

    /// The object of a record, as of another revision: that of its deletion.
    pub(super) fn at(record: Record, revision: u64) -> Self {
        let Record { key, value, .. } = record;
        let (place, json) = stored::split(value);
        Self { key, json, place, is_stored: true, revision }
    }

    /// An object that is not stored: the answer to a dry run.
    pub fn of_value(key: &str, value: &Value, revision: u64) -> Self {
        Self::at(Record { key: key.into(), value: encode(value), revision }, revision).made()
    }

    /// The same, as bytes of one answer.
    pub(super) fn made(self) -> Self {
        Self { is_stored: false, ..self }
    }

    /// Says whether its bytes are the storage's own, which has them as long as the object stays as it is.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// The revision of its last change; 0 if it is not stored.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Its key in the storage.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// Its namespace; empty if it lies in none.
    pub fn namespace(&self) -> &str {
        let mut parts = self.key.rsplit('/');
        let (_name, namespace) = (parts.next(), parts.next());
        // `pods/default/web` has a namespace, `nodes/n1` has none.
        parts.next().and(namespace).unwrap_or_default()
    }

    /// Its JSON without the revision.
    pub fn bare(&self) -> &str {
        std::str::from_utf8(&self.json).unwrap_or_default()
    }

    /// Its JSON without the revision, shared with the storage.
    pub fn shared(&self) -> &Bytes {
        &self.json
    }

    /// About how long its JSON is: never shorter than it is.
    pub(crate) fn len(&self) -> usize {
        self.json.len() + REVISION_BYTES_MAX
    }

    /// Appends its JSON.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        self.write_behind(0, out);
    }

    /// Appends its JSON without so many of its first bytes, which are before the revision.
    pub(crate) fn write_behind(&self, first: usize, out: &mut Vec<u8>) {
        let (before, after) = self.json.split_at(self.place.min(self.json.len()));
        out.reserve(self.len());
        out.extend_from_slice(before.get(first..).unwrap_or_default());
        if self.revision > 0 {
            // Writing to memory has no way to fail.
            let _infallible = write!(out, ",\"resourceVersion\":\"{}\"", self.revision);
        }
        out.extend_from_slice(after);
    }

    /// Its JSON.
    pub fn json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out);
        out
    }

    /// The object as a tree, revision included.
    pub fn value(&self) -> Value {
        let mut value = self.stored();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| self.revision > 0) {
            metadata.insert("resourceVersion".into(), self.revision.to_string().into());
        }
        value
    }

    /// The object as a tree, without its revision.
    pub(super) fn stored(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// Says whether other bytes of the storage are in the version in which it is stored.
    pub(super) fn is_as_stored(&self, value: &Bytes) -> bool {
        let head = |json: &[u8]| json.windows(11).position(|part| part == b"\"metadata\":");
        let other = value.get(HEAD_BYTES..).unwrap_or_default();
        head(&self.json).and_then(|end| self.json.get(..end)) == head(other).and_then(|end| other.get(..end))
    }

    /// Says whether it is stored in this version of its kind.
    pub(super) fn is_of(&self, kind: &Kind) -> bool {
        let said = self.json.strip_prefix(b"{\"kind\":\"").and_then(|rest| rest.strip_prefix(kind.kind.as_bytes()));
        let said = said.and_then(|rest| rest.strip_prefix(b"\",\"apiVersion\":\""));
        let version = match &*kind.group {
            "" => said,
            group => said.and_then(|rest| rest.strip_prefix(group.as_bytes())?.strip_prefix(b"/")),
        };
        version.and_then(|rest| rest.strip_prefix(kind.version.as_bytes())).is_some_and(|rest| rest.starts_with(b"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_revision_stands_where_kubernetes_has_it() {
        let value = json!({
            "spec": {"x": 1},
            "metadata": {"labels": {"a": "b"}, "uid": "u", "name": "web", "namespace": "default", "resourceVersion": "3"},
            "apiVersion": "v1",
            "kind": "Pod",
        });
        let object = Object::of_value("pods/default/web", &value, 7);
        assert_eq!(
            String::from_utf8(object.json()).unwrap(),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"default","uid":"u","resourceVersion":"7","labels":{"a":"b"}},"spec":{"x":1}}"#
        );
        assert_eq!((object.namespace(), object.name()), ("default", "web"));
        assert_eq!(object.value()["metadata"]["resourceVersion"], "7");
        let node = Object::of_value("nodes/n1", &json!({"metadata": {"name": "n1"}}), 0);
        assert_eq!((node.namespace(), node.name()), ("", "n1"));
        assert_eq!(String::from_utf8(node.json()).unwrap(), r#"{"metadata":{"name":"n1"}}"#);
    }
}
