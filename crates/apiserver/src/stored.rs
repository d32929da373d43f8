//! Objects as they are stored: compact JSON without a revision, behind the place where the revision stands in it.

use bytes::{Buf as _, Bytes};
#[cfg(feature = "etcd")]
use kubefold_wire::{locate, scan::Scanner};
use serde_json::{Map, Value};

/// The order in which Kubernetes writes metadata.
const METADATA: [&str; 14] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
/// The revision stands behind the first of those that many.
const BEFORE_REVISION: usize = 5;
/// A stored value begins with the place of the revision in its JSON.
pub(crate) const HEAD_BYTES: usize = 4;

/// The place of the revision, and the JSON.
pub(crate) fn split(mut value: Bytes) -> (usize, Bytes) {
    let place = value.first_chunk::<HEAD_BYTES>().map_or(0, |head| u32::from_le_bytes(*head));
    value.advance(HEAD_BYTES.min(value.len()));
    (usize::try_from(place).unwrap_or_default().min(value.len()), value)
}

/// An object's bytes for the storage: type, metadata and the rest, in the order in which Kubernetes writes them.
pub(crate) fn encode(object: &Value) -> Bytes {
    let mut out = vec![0; HEAD_BYTES];
    let mut place = 0_u32;
    out.push(b'{');
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    for name in ["kind", "apiVersion"] {
        if let Some(value) = fields.get(name) {
            write_field(name, value, &mut out);
        }
    }
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    write_name("metadata", &mut out);
    out.push(b'{');
    for (index, name) in METADATA.iter().enumerate() {
        if let Some(value) = metadata.get(*name) {
            write_field(name, value, &mut out);
        }
        if index + 1 == BEFORE_REVISION {
            place = u32::try_from(out.len() - HEAD_BYTES).unwrap_or_default();
        }
    }
    let known = |name: &str| METADATA.contains(&name) || name == "resourceVersion";
    for (name, value) in metadata.iter().filter(|(name, _)| !known(name)) {
        write_field(name, value, &mut out);
    }
    out.push(b'}');
    let rest = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion" | "metadata"));
    for (name, value) in rest {
        write_field(name, value, &mut out);
    }
    out.push(b'}');
    if let Some(head) = out.first_chunk_mut::<HEAD_BYTES>() {
        *head = place.to_le_bytes();
    }
    // No byte more than it is long: it stays.
    out.shrink_to_fit();
    out.into()
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    // Writing to memory has no way to fail.
    let _infallible = serde_json::to_writer(&mut *out, name);
    out.push(b':');
}

fn write_field(name: &str, value: &Value, out: &mut Vec<u8>) {
    write_name(name, out);
    let _infallible = serde_json::to_writer(out, value);
}

/// The place of the revision in JSON that [`encode`] wrote. `None`: something else wrote it.
#[cfg(feature = "etcd")]
pub(crate) fn place_in(json: &str) -> Option<u32> {
    if !json.starts_with("{\"kind\":\"") || locate::validate(json).is_err() {
        return None;
    }
    let mut scanner = Scanner::new(json);
    scanner.eat(b'{');
    for name in ["\"kind\"", "\"apiVersion\""] {
        if scanner.key().ok()? != name {
            return None;
        }
        scanner.value().ok()?;
        if !scanner.goes_on(b'}').ok()? {
            return None;
        }
    }
    if scanner.key().ok()? != "\"metadata\"" || !scanner.eat(b'{') {
        return None;
    }
    let (mut rest, mut place) = (METADATA.iter().enumerate(), scanner.at());
    loop {
        let key = scanner.key().ok()?;
        let name = key.strip_prefix('"')?.strip_suffix('"')?;
        let (index, _) = rest.find(|(_, known)| **known == name)?;
        scanner.value().ok()?;
        if index < BEFORE_REVISION {
            place = scanner.at();
        }
        if !scanner.goes_on(b'}').ok()? {
            return u32::try_from(place).ok();
        }
    }
}
