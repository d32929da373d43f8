//! Replaces ranges of a document and leaves every other byte as it was.

use std::{borrow::Cow, ops::Range};

use crate::locate::{Member, NotAnObject, entries};

/// Puts `with` where `at` lies. An empty range inserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// In bytes of the document as it was.
    pub at: Range<usize>,
    /// What comes there.
    pub with: Cow<'a, [u8]>,
}

impl<'a> Edit<'a> {
    /// Makes an edit.
    pub fn new(at: Range<usize>, with: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { at, with: with.into() }
    }
}

/// Appends `json` with all edits made to `out`. Edits are sorted here; they must not overlap (one that does is dropped,
/// as a half-applied edit would tear the document).
pub fn splice(json: &[u8], edits: &mut [Edit<'_>], out: &mut Vec<u8>) {
    edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
    let mut copied = 0;
    for edit in edits.iter() {
        let Some(kept) = json.get(copied..edit.at.start) else { continue };
        out.extend_from_slice(kept);
        out.extend_from_slice(&edit.with);
        copied = edit.at.end;
    }
    out.extend_from_slice(json.get(copied..).unwrap_or_default());
}

/// Appends `text` as a JSON string, with quotes.
pub fn push_string(text: &str, out: &mut Vec<u8>) {
    // Writing a string to memory has no way to fail.
    let _infallible = serde_json::to_writer(out, text);
}

/// `text` as a JSON string, with quotes.
pub fn string(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    push_string(text, &mut out);
    out
}

/// Edits to one JSON object inside a document: set and remove entries, keep the rest.
///
/// `set` on a key that is there replaces its value in place; a new one is inserted at the front.
#[derive(Debug)]
pub struct ObjectEdits<'a> {
    json: &'a str,
    members: Vec<Member<'a>>,
    removed: Vec<bool>,
    replaced: Vec<Option<Vec<u8>>>,
    inserted: Vec<(String, Vec<u8>)>,
    start: usize,
    null: bool,
}

impl<'a> ObjectEdits<'a> {
    /// Begins edits of the object `json`, which starts at byte `start` of its document, space before it included. `null`
    /// counts as `{}`.
    ///
    /// Errors: it is neither an object nor `null`.
    pub fn new(json: &'a str, start: usize) -> Result<Self, NotAnObject> {
        let spaced = json.len();
        let json = json.trim_ascii_start();
        let start = start + (spaced - json.len());
        let members = entries(json)?;
        let count = members.len();
        Ok(Self {
            json,
            members,
            removed: vec![false; count],
            replaced: vec![None; count],
            inserted: Vec::new(),
            start,
            null: json.starts_with('n'),
        })
    }

    /// The object's own entries.
    pub fn members(&self) -> &[Member<'a>] {
        &self.members
    }

    /// The entry of that key.
    pub fn member(&self, name: &str) -> Option<&Member<'a>> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Sets a key to a JSON value.
    pub fn set(&mut self, name: &str, value: Vec<u8>) {
        match self.members.iter().position(|member| member.name == name) {
            Some(at) => {
                if let (Some(removed), Some(replaced)) = (self.removed.get_mut(at), self.replaced.get_mut(at)) {
                    *removed = false;
                    *replaced = Some(value);
                }
            }
            None => {
                self.inserted.retain(|(known, _)| known != name);
                self.inserted.push((name.to_owned(), value));
            }
        }
    }

    /// Removes the keys that `which` says yes to, also those that were set before.
    pub fn remove(&mut self, which: impl Fn(&str) -> bool) {
        self.inserted.retain(|(name, _)| !which(name));
        for (member, removed) in self.members.iter().zip(&mut self.removed) {
            *removed |= which(&member.name);
        }
    }

    /// Says whether nothing would change.
    pub fn is_unchanged(&self) -> bool {
        self.inserted.is_empty() && !self.removed.contains(&true) && self.replaced.iter().all(Option::is_none)
    }

    /// Says whether nothing would be left in the object.
    pub fn is_empty(&self) -> bool {
        self.inserted.is_empty() && !self.removed.contains(&false)
    }

    /// The edits, in places of the whole document.
    pub fn finish(self) -> Vec<Edit<'static>> {
        if self.is_unchanged() {
            return Vec::new();
        }
        if self.null || self.removed.contains(&true) {
            // Commas move when entries go: the object is written anew from its own bytes.
            return vec![Edit::new(self.start..self.start + self.json.len(), self.rewritten())];
        }
        let mut edits = Vec::new();
        let mut front = Vec::new();
        for (at, (name, value)) in self.inserted.iter().enumerate() {
            if at > 0 {
                front.push(b',');
            }
            push_string(name, &mut front);
            front.push(b':');
            front.extend_from_slice(value);
        }
        if !front.is_empty() {
            if !self.members.is_empty() {
                front.push(b',');
            }
            edits.push(Edit::new(self.start + 1..self.start + 1, front));
        }
        for (member, value) in self.members.iter().zip(self.replaced) {
            if let Some(value) = value {
                edits.push(Edit::new(self.start + member.value.start..self.start + member.value.end, value));
            }
        }
        edits
    }

    fn rewritten(&self) -> Vec<u8> {
        let mut out = vec![b'{'];
        let comma = |out: &mut Vec<u8>| {
            if out.len() > 1 {
                out.push(b',');
            }
        };
        for (name, value) in &self.inserted {
            comma(&mut out);
            push_string(name, &mut out);
            out.push(b':');
            out.extend_from_slice(value);
        }
        for ((member, removed), replaced) in self.members.iter().zip(&self.removed).zip(&self.replaced) {
            if *removed {
                continue;
            }
            comma(&mut out);
            out.extend_from_slice(self.json.get(member.key.clone()).unwrap_or_default().as_bytes());
            out.push(b':');
            out.extend_from_slice(replaced.as_deref().unwrap_or(member.raw.as_bytes()));
        }
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(json: &str, change: impl Fn(&mut ObjectEdits<'_>)) -> String {
        let document = format!("[{json}]");
        let mut edits = ObjectEdits::new(json, 1).unwrap();
        change(&mut edits);
        let mut out = Vec::new();
        splice(document.as_bytes(), &mut edits.finish(), &mut out);
        let text = String::from_utf8(out).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        text[1..text.len() - 1].to_owned()
    }

    #[test]
    fn sets_removes_and_keeps_the_rest() {
        assert_eq!(edited(r#"{"a": 1.0,"b":"\u003c"}"#, |o| o.set("a", b"2".to_vec())), r#"{"a": 2,"b":"\u003c"}"#);
        assert_eq!(edited(r#"{"a":1}"#, |o| o.set("c", b"2".to_vec())), r#"{"c":2,"a":1}"#);
        assert_eq!(edited("{}", |o| o.set("c", b"2".to_vec())), r#"{"c":2}"#);
        assert_eq!(edited(" {}", |o| o.set("c", b"2".to_vec())), r#" {"c":2}"#);
        assert_eq!(edited("\n{\"a\":1}\t", |o| o.set("a", b"2".to_vec())), "\n{\"a\":2}\t");
        assert_eq!(edited("null", |o| o.set("c", b"2".to_vec())), r#"{"c":2}"#);
        assert_eq!(edited(r#"{"a":1, "b":"\u003c"}"#, |o| o.remove(|k| k == "a")), r#"{"b":"\u003c"}"#);
        assert_eq!(
            edited(r#"{"a":1,"b":2}"#, |o| {
                o.remove(|k| k == "a");
                o.set("a", b"3".to_vec());
                o.set("z", b"4".to_vec());
            }),
            r#"{"z":4,"a":3,"b":2}"#
        );
        let set_and_removed = |o: &mut ObjectEdits<'_>| {
            o.set("a", b"3".to_vec());
            o.set("z", b"4".to_vec());
            o.remove(|_| true);
        };
        assert_eq!(edited(r#"{"a":1}"#, set_and_removed), "{}");
        assert_eq!(edited(r#"{ "a" : 1 }"#, |_| ()), r#"{ "a" : 1 }"#);
        // Go writes `<` as an escape; a key that stays keeps its bytes.
        assert_eq!(edited(r#"{"a":1,"b\u003cc":2}"#, |o| o.remove(|k| k == "a")), r#"{"b\u003cc":2}"#);
    }
}
