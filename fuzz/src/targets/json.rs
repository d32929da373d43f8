//! Decoders of whole documents. The oracle is serde_json.

use std::{collections::HashSet, ops::Range};

use serde_json::{Map, Value, value::RawValue};

use kubefold_wire::{
    list::{ListMeta, split},
    locate::{Found, NotAnObject, Paths, entries, validate},
    protobuf::{JSON_BYTES_MAX, to_json},
    splice::{Edit, ObjectEdits, splice},
};

/// Splits a list: the items are those that a parser sees, and what is no list is refused.
pub fn list(data: &[u8]) {
    let ours = split(data);
    let theirs = as_list(data);
    match &ours {
        Ok((_, items)) => {
            let mut end = 0;
            for item in items {
                let at = place(data, item);
                assert!(at.start >= end && at.end <= data.len(), "items in order, inside the body");
                end = at.end;
                assert!(serde_json::from_str::<&RawValue>(item).is_ok(), "an item is one value");
            }
            assert!(serde_json::from_slice::<&RawValue>(data).is_ok(), "what is not JSON is refused");
        }
        Err(error) => assert!(theirs.is_none(), "{error}"),
    }
    if let (Ok((meta, items)), Some((wanted_meta, wanted))) = (ours, theirs) {
        assert_eq!(meta, wanted_meta);
        let items: Vec<Value> = items.iter().filter_map(|item| serde_json::from_str(item).ok()).collect();
        assert_eq!(items, wanted);
    }
}

/// A list without a doubt: no key twice, nothing of another shape.
fn as_list(data: &[u8]) -> Option<(ListMeta, Vec<Value>)> {
    let text = std::str::from_utf8(data).ok()?;
    let value: Value = serde_json::from_str(text).ok()?;
    let object = unambiguous(text, &value)?;
    let mut meta = ListMeta::default();
    match object.get("metadata") {
        None | Some(Value::Null) => {}
        Some(Value::Object(_)) => {
            let raw = entries(text).ok()?.into_iter().find(|entry| entry.name == "metadata")?;
            let fields = unambiguous(raw.raw, object.get("metadata")?)?;
            let text = |key: &str| match fields.get(key) {
                None => Some(String::new()),
                Some(value) => value.as_str().map(str::to_owned),
            };
            let remaining_item_count = match fields.get("remainingItemCount") {
                None | Some(Value::Null) => None,
                Some(count) => Some(count.as_i64()?),
            };
            let (resource_version, continue_token) = (text("resourceVersion")?, text("continue")?);
            meta = ListMeta { resource_version, continue_token, remaining_item_count };
        }
        Some(_) => return None,
    }
    match object.get("items")? {
        Value::Array(items) => Some((meta, items.clone())),
        Value::Null => Some((meta, Vec::new())),
        _ => None,
    }
}

/// The object that `text` is, where it has no key twice.
fn unambiguous<'v>(text: &str, value: &'v Value) -> Option<&'v Map<String, Value>> {
    let object = value.as_object()?;
    let all = entries(text).ok()?;
    let names: HashSet<&str> = all.iter().map(|entry| entry.name.as_str()).collect();
    (names.len() == all.len()).then_some(object)
}

fn place(data: &[u8], part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
    start..start + part.len()
}

const PATHS: &[(u16, &[&str])] = &[
    (0, &["kind"]),
    (1, &["metadata", "name"]),
    (2, &["metadata", "ownerReferences"]),
    (3, &["metadata", "labels"]),
    (4, &["spec", "nodeName"]),
    (5, &["endpoints", "*", "nodeName"]),
    (6, &["subsets", "*", "addresses", "*", "targetRef"]),
    (7, &["é", "\""]),
];

/// Locates paths in a document: what is found is what a walk over the parsed document finds.
pub fn locate(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let paths = Paths::new(PATHS.iter().copied());
    let (mut found, mut trusting) = (Vec::new(), Vec::new());
    let outcome = paths.locate(text, &mut found);
    let trusted = paths.locate_valid(text, &mut trusting);
    assert!(trusting.iter().all(|one| text.get(one.range.clone()).is_some()), "ranges lie inside the text");
    if validate(text).is_err() || !text.trim_ascii_start().starts_with('{') {
        assert!(outcome.is_err() && found.is_empty());
        return;
    }
    assert_eq!((outcome.is_ok(), &found), (trusted.is_ok(), &trusting));
    let mut wanted = Vec::new();
    match walk(text, text, PATHS.iter().map(|(id, path)| (*id, *path)).collect(), &mut wanted) {
        Ok(()) => assert_eq!((outcome.is_ok(), found), (true, wanted)),
        Err(Unlike::Shape) => assert!(outcome.is_err()),
        Err(Unlike::Key) => {}
    }
}

enum Unlike {
    Shape,
    /// A key that is no text: refused only where a path leads by.
    Key,
}

impl From<NotAnObject> for Unlike {
    fn from(_: NotAnObject) -> Self {
        Self::Key
    }
}

type Rest<'p> = Vec<(u16, &'p [&'p str])>;

fn walk(document: &str, json: &str, paths: Rest<'_>, found: &mut Vec<Found>) -> Result<(), Unlike> {
    if let Some((id, _)) = paths.iter().find(|(_, path)| path.is_empty()) {
        found.push(Found { id: *id, range: place(document.as_bytes(), json) });
        return Ok(());
    }
    if json == "null" || paths.is_empty() {
        return Ok(());
    }
    let many = paths.iter().any(|(_, path)| path.first() == Some(&"*"));
    let step = |key: &str| -> Rest<'_> {
        let takes = |path: &&[&str]| path.first() == Some(&key);
        paths.iter().filter(|(_, path)| takes(path)).map(|(id, path)| (*id, &path[1..])).collect()
    };
    match (json.trim_ascii_start().as_bytes().first(), many) {
        (Some(b'{'), false) => {
            for entry in entries(json)? {
                walk(document, entry.raw, step(&entry.name), found)?;
            }
        }
        (Some(b'['), true) => {
            let items: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| Unlike::Shape)?;
            for item in items {
                walk(document, item.get(), step("*"), found)?;
            }
        }
        _ => return Err(Unlike::Shape),
    }
    Ok(())
}

/// Edits an object inside a document, by a script in the first line: the outcome is that of the same edits to a map, and
/// edits of any other places never tear anything.
pub fn edits(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let (script, json) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut wild: Vec<Edit<'_>> = script
        .chunks_exact(2)
        .map(|pair| Edit::new(usize::from(pair[0])..usize::from(pair[0]) + usize::from(pair[1] % 8), &b"x"[..]))
        .collect();
    splice(json, &mut wild, &mut Vec::new());

    let Ok(json) = std::str::from_utf8(json) else { return };
    let Ok(value) = serde_json::from_str::<Value>(json) else { return };
    let Ok(mut object) = ObjectEdits::new(json, 5) else {
        // A key that is half a surrogate pair fails both.
        assert!(!value.is_object() && !value.is_null());
        return;
    };
    let mut wanted = match &value {
        Value::Null => Map::new(),
        value => match unambiguous(json, value) {
            Some(map) => map.clone(),
            None => return,
        },
    };
    let mut touched = false;
    for pair in script.chunks_exact(2) {
        let name = format!("{}", pair[1] as char);
        touched = true;
        if pair[0] % 2 == 0 {
            object.set(&name, br#"{"new":true}"#.to_vec());
            wanted.insert(name, serde_json::json!({"new": true}));
        } else {
            object.remove(|key| key == name);
            wanted.remove(&name);
        }
    }
    let document = format!(r#"{{"a":{json},"b":0}}"#);
    assert!(touched || object.is_unchanged());
    let mut out = Vec::new();
    splice(document.as_bytes(), &mut object.finish(), &mut out);
    let outcome: Value = serde_json::from_slice(&out).expect("edits leave JSON");
    let whole = match (&value, wanted.is_empty() && document.as_bytes() == out) {
        (Value::Null, true) => Value::Null,
        _ => Value::Object(wanted),
    };
    assert_eq!(outcome, serde_json::json!({"a": whole, "b": 0}));
}

/// Reads a protobuf body: JSON within its bound, or an error.
pub fn protobuf(data: &[u8]) {
    if let Ok(json) = to_json(data) {
        assert!(json.len() <= JSON_BYTES_MAX.max(data.len()));
        assert!(serde_json::from_slice::<&RawValue>(&json).is_ok(), "what is printed is JSON");
    }
}
