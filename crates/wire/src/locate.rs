//! Finds a few values of a JSON document in one pass.
//!
//! A document is never turned into a tree: every other value is skipped. Key order is never assumed (custom resources
//! print their keys sorted, built-in kinds in declaration order), and escaped keys are unescaped before they are compared.
//! What comes from outside is parsed once, to validate it; what was parsed before is not parsed again.

use std::{ops::Range, sync::LazyLock};

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::scan::{Fault, Scanner};

/// Where a value lies in its document, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number that the path was given.
    pub id: u16,
    /// The value with its quotes or braces.
    pub range: Range<usize>,
}

/// A set of paths, compiled to a tree that documents are walked along.
///
/// A path is a list of keys; the key `*` stands for every element of an array.
#[derive(Clone, Debug)]
pub struct Paths {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    children: Vec<(Box<str>, usize)>,
    elements: Option<usize>,
    id: Option<u16>,
    mark: Option<u16>,
}

/// The document is not JSON, or not of the shape that a path needs.
#[derive(Debug, thiserror::Error)]
#[error("not a JSON object as Kubernetes writes it: {0}")]
pub struct NotAnObject(#[from] serde_json::Error);

impl Paths {
    /// Compiles paths; each found value has the number of its path.
    pub fn new<'a>(paths: impl IntoIterator<Item = (u16, &'a [&'a str])>) -> Self {
        let mut this = Self { nodes: vec![Node::default()] };
        for (id, path) in paths {
            this.add(id, path);
        }
        this
    }

    /// Adds one path.
    pub fn add(&mut self, id: u16, path: &[&str]) {
        let at = self.at(path);
        if let Some(node) = self.nodes.get_mut(at) {
            node.id = Some(id);
        }
    }

    /// Makes the walk say where an object lies that it also looks into: it is found before what lies inside it.
    pub fn mark(&mut self, id: u16, path: &[&str]) {
        let at = self.at(path);
        if let Some(node) = self.nodes.get_mut(at) {
            node.mark = Some(id);
        }
    }

    /// Finds the value of a path whether or not the walk also looks into it. Paths that lead into it come first.
    pub fn note(&mut self, id: u16, path: &[&str]) {
        let at = self.at(path);
        if let Some(node) = self.nodes.get_mut(at) {
            let is_looked_into = !node.children.is_empty() || node.elements.is_some();
            *(if is_looked_into { &mut node.mark } else { &mut node.id }) = Some(id);
        }
    }

    fn at(&mut self, path: &[&str]) -> usize {
        let mut at = 0;
        for key in path {
            at = self.child(at, key);
        }
        at
    }

    fn child(&mut self, at: usize, key: &str) -> usize {
        let next = self.nodes.len();
        let Some(node) = self.nodes.get_mut(at) else { return at };
        if key == "*" {
            if let Some(known) = node.elements {
                return known;
            }
            node.elements = Some(next);
        } else {
            if let Some((_, known)) = node.children.iter().find(|(name, _)| &**name == key) {
                return *known;
            }
            node.children.push((key.into(), next));
        }
        self.nodes.push(Node::default());
        next
    }

    /// Walks `json` and appends what it finds to `found`, in document order.
    ///
    /// Errors: anything that is not exactly one JSON object, or a path met by a value of another shape (`null` is none).
    pub fn locate(&self, json: &str, found: &mut Vec<Found>) -> Result<(), NotAnObject> {
        validate(json)?;
        self.locate_valid(json, found)
    }

    /// [`Self::locate`] for text that a JSON parser has accepted: an item of a list, the object of a watch event.
    ///
    /// It does not look into what it steps over, and allocates for nothing but `found`.
    ///
    /// Errors: as [`Self::locate`] for JSON. Of other text it may take any, and the ranges found mean nothing then; they
    /// still lie inside the text and on character boundaries.
    pub fn locate_valid(&self, json: &str, found: &mut Vec<Found>) -> Result<(), NotAnObject> {
        let mut walk = Walk { paths: self, scanner: Scanner::new(json), found };
        walk.document().map_err(|what| {
            let at = walk.scanner.at();
            serde_json::Error::custom(format_args!("{what}, at byte {at}")).into()
        })
    }
}

/// Says whether text from outside may go where [`Paths::locate_valid`] is called.
///
/// Errors: it is not exactly one JSON value.
pub fn validate(json: &str) -> Result<(), NotAnObject> {
    let _valid: &RawValue = serde_json::from_str(json)?;
    Ok(())
}

/// Recurses along the paths alone, never along the document, so the longest path bounds its depth.
struct Walk<'p, 'f, 'a> {
    paths: &'p Paths,
    scanner: Scanner<'a>,
    found: &'f mut Vec<Found>,
}

impl<'p> Walk<'p, '_, '_> {
    fn document(&mut self) -> Result<(), Fault> {
        if self.scanner.peek() != Some(b'{') {
            return Err("no object");
        }
        self.value(self.paths.nodes.first())?;
        if self.scanner.peek().is_some() { Err("more than one value") } else { Ok(()) }
    }

    fn value(&mut self, node: Option<&'p Node>) -> Result<(), Fault> {
        let Some(node) = node else { return self.scanner.value().map(|_| ()) };
        if let Some(id) = node.id {
            let range = self.scanner.value()?;
            self.found.push(Found { id, range });
            return Ok(());
        }
        match (self.scanner.peek(), node.elements) {
            (Some(b'{'), None) => self.object(node),
            (Some(b'['), Some(elements)) => self.array(self.paths.nodes.get(elements)),
            (Some(b'{'), Some(_)) => Err("an object where an array belongs"),
            (Some(b'['), None) => Err("an array where an object belongs"),
            (Some(b'n'), _) => self.scanner.value().map(|_| ()),
            _ => Err("neither an object nor an array where one belongs"),
        }
    }

    fn object(&mut self, node: &'p Node) -> Result<(), Fault> {
        let Some(id) = node.mark else { return self.fields(node) };
        let (mark, start) = (self.found.len(), self.scanner.at());
        self.found.push(Found { id, range: start..start });
        self.fields(node)?;
        if let Some(found) = self.found.get_mut(mark) {
            found.range.end = self.scanner.at();
        }
        Ok(())
    }

    fn fields(&mut self, node: &'p Node) -> Result<(), Fault> {
        self.scanner.eat(b'{');
        if self.scanner.eat(b'}') {
            return Ok(());
        }
        loop {
            let key = self.scanner.key()?;
            let child = node.child(key)?;
            self.value(child.and_then(|at| self.paths.nodes.get(at)))?;
            if !self.scanner.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    fn array(&mut self, element: Option<&'p Node>) -> Result<(), Fault> {
        self.scanner.eat(b'[');
        if self.scanner.eat(b']') {
            return Ok(());
        }
        loop {
            self.value(element)?;
            if !self.scanner.goes_on(b']')? {
                return Ok(());
            }
        }
    }
}

impl Node {
    /// Finds the child of a key as it is written. Only a key with an escape is decoded, which allocates.
    fn child(&self, key: &str) -> Result<Option<usize>, Fault> {
        let of = |key: &str| self.children.iter().find(|(name, _)| &**name == key).map(|(_, at)| *at);
        if memchr::memchr(b'\\', key.as_bytes()).is_some() {
            // An escaped half of a surrogate pair is JSON, and no text.
            let key: String = serde_json::from_str(key).map_err(|_| "a key that is no text")?;
            return Ok(of(&key));
        }
        Ok(of(key.get(1..key.len().saturating_sub(1)).unwrap_or_default()))
    }
}

/// The text of the value at a path of field names; `None`: there is none, or the text is not a JSON object.
pub fn value_at<'j>(json: &'j str, path: &[&str]) -> Option<&'j str> {
    let mut found = Vec::new();
    Paths::new([(0, path)]).locate(json, &mut found).ok()?;
    json.get(found.first()?.range.clone())
}

/// The `kind` and `apiVersion` of an object, as they are written, without their quotes. Empty where there is none.
///
/// For text that a JSON parser has accepted, or will: as [`Paths::locate_valid`].
pub fn type_of(json: &str) -> TypeOf<'_> {
    static TYPE: LazyLock<Paths> = LazyLock::new(|| Paths::new([(0, ["kind"].as_slice()), (1, &["apiVersion"])]));
    let mut found = Vec::new();
    let located = TYPE.locate_valid(json, &mut found).is_ok();
    let text = |id: u16| {
        let raw = json.get(found.iter().find(|at| at.id == id && located)?.range.clone())?;
        raw.strip_prefix('"')?.strip_suffix('"')
    };
    TypeOf { kind: text(0).unwrap_or_default(), api_version: text(1).unwrap_or_default() }
}

/// What an object says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub struct TypeOf<'a> {
    pub kind: &'a str,
    pub api_version: &'a str,
}

/// The entries of a JSON object: each key, unescaped, and where key and value lie in `json`.
///
/// For the small objects that are read as a whole: labels, annotations, one reference, a status.
///
/// Errors: `json` is not one object.
pub fn entries(json: &str) -> Result<Vec<Member<'_>>, NotAnObject> {
    struct Entries(usize);
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<Member<'de>>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut out = Vec::new();
            while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                let name = serde_json::from_str::<String>(key.get()).map_err(A::Error::custom)?;
                let at = |raw: &RawValue| {
                    let start = (raw.get().as_ptr() as usize).wrapping_sub(self.0);
                    start..start + raw.get().len()
                };
                out.push(Member { name, key: at(key), value: at(value), raw: value.get() });
            }
            Ok(out)
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let out = deserializer.deserialize_any(Entries(json.as_ptr() as usize))?;
    deserializer.end()?;
    Ok(out)
}

/// One `"key": value` of an object.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The key, unescaped.
    pub name: String,
    /// Where the key lies, with its quotes.
    pub key: Range<usize>,
    /// Where the value lies.
    pub value: Range<usize>,
    /// The value's text.
    pub raw: &'a str,
}

impl Member<'_> {
    /// The value as text, if it is a string.
    pub fn text(&self) -> Option<String> {
        serde_json::from_str(self.raw).ok()
    }
}

#[cfg(test)]
mod tests;
