//! JSON patches (RFC 6902) in a member's words: an operation names a place, so that what stands there is known by its path.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, value::RawValue};

use crate::{
    placement::marker::OWN_PREFIX,
    respond::WriteError,
    write::{
        fleet::Fleet,
        forward::{inward::spliced, to::To},
    },
};
use kubefold_wire::{
    locate::{Member, entries},
    patch::{is_index, steps},
    splice::{ObjectEdits, string},
};

/// One operation as it came.
struct Operation<'a> {
    raw: Cow<'a, str>,
    op: String,
    /// The segments of its path, decoded.
    at: Vec<String>,
    value: Option<&'a str>,
}

impl<'a> Operation<'a> {
    /// `None`: a member refuses it, in words of its own.
    fn read(raw: &'a str) -> Option<Self> {
        let all = entries(raw).ok()?;
        // As in Go, the last of equal keys counts. A member gets that one alone.
        let last = |name: &str| all.iter().rposition(|entry| entry.name == name);
        let once: Vec<&Member<'_>> = all
            .iter()
            .enumerate()
            .filter(|(at, entry)| last(&entry.name) == Some(*at))
            .map(|(_, entry)| entry)
            .collect();
        let field = |name: &str| once.iter().find(|entry| entry.name == name);
        let text = |name: &str| field(name).and_then(|entry| entry.text());
        let path = text("path")?;
        if !path.is_empty() && !path.contains('/') {
            return None;
        }
        let (op, at, value) = (text("op")?, steps(&path), field("value").map(|entry| entry.raw));
        let raw = if once.len() == all.len() { Cow::Borrowed(raw) } else { Cow::Owned(written(&once)) };
        Some(Self { raw, op, at, value })
    }

    fn is(&self, ops: &[&str]) -> bool {
        ops.contains(&self.op.as_str())
    }

    /// The operation with another `op` and value.
    fn with(&self, op: &str, value: &str) -> String {
        let Ok(mut object) = ObjectEdits::new(&self.raw, 0) else { return self.raw.to_string() };
        if op != self.op {
            object.set("op", string(op));
        }
        if self.value != Some(value) {
            object.set("value", value.as_bytes().to_vec());
        }
        String::from_utf8(spliced(&self.raw, object.finish())).unwrap_or_default()
    }
}

/// An object of these entries.
fn written(entries: &[&Member<'_>]) -> String {
    let entries = entries.iter().map(|entry| format!("{}:{}", Value::from(entry.name.as_str()), entry.raw));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
}

impl<F: Fleet> To<'_, F> {
    /// A JSON patch as the member gets it. In the fleet every object has annotations; where the member's has none, a map for
    /// them is made first.
    pub(super) fn json_patch(&self, text: &str) -> Result<Bytes, WriteError> {
        let Ok(operations) = serde_json::from_str::<Vec<&RawValue>>(text) else {
            return Ok(Bytes::copy_from_slice(text.as_bytes()));
        };
        let mut has_map = self.member_local.is_none() || self.member_local_map("annotations").is_some();
        let mut out = Vec::new();
        for raw in operations {
            match Operation::read(raw.get()) {
                Some(operation) => self.operation(&operation, &mut has_map, &mut out)?,
                None => out.push(raw.get().to_owned()),
            }
        }
        Ok(format!("[{}]", out.join(",")).into())
    }

    fn operation(&self, one: &Operation<'_>, has_map: &mut bool, out: &mut Vec<String>) -> Result<(), WriteError> {
        let at: Vec<&str> = one.at.iter().map(String::as_str).collect();
        match at.as_slice() {
            ["metadata", "labels" | "annotations", key] if key.starts_with(OWN_PREFIX) => {
                // What the fleet view shows there its members do not hold; a test of it is decided here.
                let shown = string(self.member.as_str());
                let holds = one.value.is_some_and(|value| value.as_bytes() == shown) && *key == "kubefold.io/cluster";
                if one.op == "test" && !holds {
                    out.push(one.raw.to_string());
                }
            }
            ["metadata", "annotations"] => self.annotations(one, has_map, out),
            ["metadata", "labels"] if one.is(&["remove"]) && !self.own_keys("labels").is_empty() => {
                out.push(one.with("replace", &self.with_own("labels", "{}")));
            }
            ["metadata", "annotations", _] if one.is(&["add"]) && !*has_map => {
                // Should the member's object have some by now, the patch is refused and not a single one lost.
                out.push(r#"{"op":"test","path":"/metadata/annotations","value":null}"#.to_owned());
                out.push(r#"{"op":"add","path":"/metadata/annotations","value":{}}"#.to_owned());
                *has_map = true;
                out.push(one.raw.to_string());
            }
            _ => out.push(match one.value {
                Some(value) => one.with(&one.op, &self.value(&at, value)?),
                None => one.raw.to_string(),
            }),
        }
        Ok(())
    }

    /// An operation on all annotations at once.
    fn annotations(&self, one: &Operation<'_>, has_map: &mut bool, out: &mut Vec<String>) {
        let Some(value) = one.value else {
            if one.is(&["remove"]) && !self.own_keys("annotations").is_empty() {
                return out.push(one.with("replace", &self.with_own("annotations", "{}")));
            }
            if !one.is(&["remove"]) || *has_map {
                out.push(one.raw.to_string());
            }
            *has_map = !one.is(&["remove"]);
            return;
        };
        let cleaned = self.with_own("annotations", value);
        match one.op.as_str() {
            // A map that holds kubefold's own alone is none in the member.
            "test" if cleaned == "{}" && !*has_map => out.push(one.with("test", "null")),
            "replace" if !*has_map => out.push(one.with("add", &cleaned)),
            op => out.push(one.with(op, &cleaned)),
        }
        *has_map |= one.is(&["add", "replace"]);
    }

    /// A map of `metadata` with what the member's object has under kubefold's prefix, and no other of that.
    fn with_own(&self, field: &str, value: &str) -> String {
        let Ok(mut map) = ObjectEdits::new(value, 0) else { return value.to_owned() };
        map.remove(|key| key.starts_with(OWN_PREFIX));
        self.own_keys(field).into_iter().for_each(|(key, value)| map.set(&key, value.into_bytes()));
        String::from_utf8(spliced(value, map.finish())).unwrap_or_default()
    }

    /// A value in the member's words, known by its place.
    fn value(&self, at: &[&str], value: &str) -> Result<String, WriteError> {
        let text = |raw: &str| serde_json::from_str::<String>(raw).ok();
        let quoted = |text: String| String::from_utf8(string(&text)).unwrap_or_default();
        let own = match at {
            [] => return Ok(String::from_utf8(self.whole(value)?).unwrap_or_default()),
            ["metadata", "name"] => text(value).map(|name| self.own_name(&name)).transpose()?.flatten().map(quoted),
            ["metadata", "resourceVersion"] => text(value).and_then(|said| self.own_revision(&said)).map(quoted),
            ["metadata", "uid"] => text(value).and_then(|uid| self.uid_of_part(&uid).map(str::to_owned)).map(quoted),
            ["metadata", "ownerReferences", _, "uid"] => text(value).and_then(|uid| self.own_uid(&uid)).map(quoted),
            ["metadata", "labels"] => Some(self.with_own("labels", value)),
            ["metadata"] => {
                let local = self.at_its_place(at, value);
                let edits = self.metadata(&local, 0)?;
                Some(String::from_utf8(spliced(&local, edits)).unwrap_or_default())
            }
            ["metadata", "ownerReferences"] => {
                let local = self.at_its_place(at, value);
                Some(self.owners(&local)?.unwrap_or(local))
            }
            ["metadata", "ownerReferences", _] => {
                let local = self.at_its_place(at, value);
                let owners = self.owners(&format!("[{local}]"))?;
                Some(owners.map_or(local, |list| list.trim_matches(['[', ']']).to_owned()))
            }
            _ => Some(self.at_its_place(at, value)),
        };
        Ok(own.unwrap_or_else(|| value.to_owned()))
    }

    /// A value localized in a document that holds nothing else.
    fn at_its_place(&self, at: &[&str], value: &str) -> String {
        let (mut lead, mut tail) = (String::new(), String::new());
        for segment in at {
            if is_index(segment) {
                lead.push('[');
                tail.insert(0, ']');
            } else {
                lead.push('{');
                lead.push_str(&String::from_utf8(string(segment)).unwrap_or_default());
                lead.push(':');
                tail.insert(0, '}');
            }
        }
        let local = self.localized(&[&lead, value, &tail].concat());
        local.get(lead.len()..local.len().saturating_sub(tail.len())).unwrap_or(value).to_owned()
    }
}
