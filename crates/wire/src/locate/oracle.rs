//! The walk as serde_json makes it: what [`Paths::locate`] is compared with.

use serde::de::{DeserializeSeed, IgnoredAny, SeqAccess};

use super::*;

/// Shape: what was found, also where the walk ended in an error.
pub(super) fn locate(paths: &Paths, json: &str) -> (Result<(), serde_json::Error>, Vec<Found>) {
    let mut found = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let walk = Walk { paths, at: 0, base: json.as_ptr() as usize, found: &mut found };
    let outcome = walk.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    (outcome, found)
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
