//! Finds the few values of a JSON document that kubefold reads or replaces, in one validating pass.
//!
//! A document is never turned into a tree: every other value is skipped. Key order is never assumed (custom resources
//! print their keys sorted, built-in kinds in declaration order), and escaped keys are unescaped before they are compared.

use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

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
#[derive(Clone, Debug, Default)]
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
    /// Compiles paths; each found value bears the number of its path.
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

    /// Makes the walk say, by an empty range, where it enters an object: what follows until the next mark is inside it.
    pub fn mark(&mut self, id: u16, path: &[&str]) {
        let at = self.at(path);
        if let Some(node) = self.nodes.get_mut(at) {
            node.mark = Some(id);
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

    /// Walks `json` once and appends what it finds to `found`, in document order.
    ///
    /// Errors: anything that is not exactly one JSON object, or a path met by a value of another shape (`null` is none).
    pub fn locate(&self, json: &str, found: &mut Vec<Found>) -> Result<(), NotAnObject> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let walk = Walk { paths: self, at: 0, base: json.as_ptr() as usize, found };
        walk.deserialize(&mut deserializer)?;
        Ok(deserializer.end()?)
    }
}

struct Walk<'p, 'f> {
    paths: &'p Paths,
    at: usize,
    base: usize,
    found: &'f mut Vec<Found>,
}

impl<'p> Walk<'p, '_> {
    fn node(&self) -> Option<&'p Node> {
        self.paths.nodes.get(self.at)
    }

    fn step(&mut self, at: usize) -> Walk<'p, '_> {
        Walk { paths: self.paths, at, base: self.base, found: self.found }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Some(node) = self.node() else { return Ok(()) };
        if let Some(id) = node.id {
            let raw: &'de RawValue = serde::Deserialize::deserialize(deserializer)?;
            let start = (raw.get().as_ptr() as usize).wrapping_sub(self.base);
            self.found.push(Found { id, range: start..start + raw.get().len() });
            return Ok(());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.node().is_some_and(|node| node.elements.is_some()) { "an array" } else { "an object" })
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let Some(node) = self.node() else { return Ok(()) };
        if node.elements.is_some() {
            return Err(A::Error::custom("an object where an array belongs"));
        }
        if let Some(id) = node.mark {
            self.found.push(Found { id, range: 0..0 });
        }
        while let Some(child) = map.next_key_seed(Key { node })? {
            match child {
                Some(at) => map.next_value_seed(self.step(at))?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let Some(at) = self.node().and_then(|node| node.elements) else {
            return Err(A::Error::custom("an array where an object belongs"));
        };
        while seq.next_element_seed(self.step(at))?.is_some() {}
        Ok(())
    }
}

/// Compares a key with a node's children without owning it.
struct Key<'p> {
    node: &'p Node,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.node.children.iter().find(|(name, _)| &**name == key).map(|(_, at)| *at))
    }
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
mod tests {
    use super::*;

    fn find(paths: &[(u16, &[&str])], json: &str) -> Vec<(u16, String)> {
        let mut found = Vec::new();
        Paths::new(paths.iter().map(|(id, path)| (*id, *path))).locate(json, &mut found).unwrap();
        found.into_iter().map(|f| (f.id, json[f.range].to_owned())).collect()
    }

    #[test]
    fn finds_values_whatever_the_order_of_keys() {
        let paths: &[(u16, &[&str])] =
            &[(1, &["metadata", "name"]), (2, &["metadata", "labels"]), (3, &["ends", "*", "nodeName"])];
        let json = r#" {"ends":[{"nodeName":"a"},{"x":[1,{"nodeName":0}]},{"nodeName":"b"}],"spec":{"name":"no"},
            "metadata":{"labels":{"a":"}"},"n\u0061me":"we\"b"}}"#;
        assert_eq!(
            find(paths, json),
            [(3, "\"a\"".into()), (3, "\"b\"".into()), (2, r#"{"a":"}"}"#.into()), (1, r#""we\"b""#.into())]
        );
    }

    #[test]
    fn null_is_nothing_and_other_shapes_are_refused() {
        let paths: &[(u16, &[&str])] = &[(1, &["metadata", "name"])];
        assert!(find(paths, r#"{"metadata":null}"#).is_empty());
        let compiled = Paths::new([(1, ["metadata", "name"].as_slice())]);
        for bad in ["[]", "{", r#"{"metadata":[]}"#, r#"{"metadata":{}} x"#, r#"{"metadata":3}"#, ""] {
            assert!(compiled.locate(bad, &mut Vec::new()).is_err(), "{bad}");
        }
    }

    #[test]
    fn entries_give_keys_and_places() {
        let json = r#"{"a": "x\ny", "b\"": {"c":[]}}"#;
        let all = entries(json).unwrap();
        assert_eq!(all[0].text().as_deref(), Some("x\ny"));
        assert_eq!((all[1].name.as_str(), &json[all[1].value.clone()]), ("b\"", r#"{"c":[]}"#));
    }
}
