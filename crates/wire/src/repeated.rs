//! Fields that stand twice in one object of a JSON document.
//!
//! Source: sigs.k8s.io/json `internal/golang/encoding/json/kubernetes_patch.go`; its sentences are kept.

use std::{collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::golang::Quoted;

/// Sentences at most.
const FOUND_MAX: usize = 100;

/// Finds the fields that are repeated, each once: `duplicate field "spec.containers[0].name"`. Empty of what is no JSON, too.
///
/// Shape: linear in the document.
pub fn fields(json: &[u8]) -> Vec<String> {
    let (mut path, mut found) = (String::new(), Vec::new());
    let place = Place { path: &mut path, found: &mut found };
    match place.deserialize(&mut serde_json::Deserializer::from_slice(json)) {
        Ok(()) => found,
        Err(_) => Vec::new(),
    }
}

/// Where the walk is, and what it has found.
struct Place<'a> {
    path: &'a mut String,
    found: &'a mut Vec<String>,
}

impl Place<'_> {
    /// Looks below, where the path has this more.
    fn below<E>(&mut self, step: &str, walk: impl FnOnce(Place<'_>) -> Result<(), E>) -> Result<(), E> {
        let length = self.path.len();
        self.path.push_str(step);
        let walked = walk(Place { path: self.path, found: self.found });
        self.path.truncate(length);
        walked
    }

    fn note(&mut self, step: &str) {
        let sentence = format!("duplicate field {}", Quoted(&format!("{}{step}", self.path)));
        if self.found.len() < FOUND_MAX && !self.found.contains(&sentence) {
            self.found.push(sentence);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        for at in 0.. {
            let mut ended = false;
            self.below(&format!("[{at}]"), |place| {
                ended = items.next_element_seed(place)?.is_none();
                Ok(())
            })?;
            if ended {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            let step = if self.path.is_empty() { key.clone() } else { format!(".{key}") };
            if !keys.insert(key) {
                self.note(&step);
            }
            self.below(&step, |place| entries.next_value_seed(place))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_twice_is_found_where_it_stands() {
        let found = |json: &str| fields(json.as_bytes()).join("; ");
        for (json, wanted) in [
            ("{}", ""),
            (r#"{"a":1,"b":{"a":1}}"#, ""),
            (r#"{"a":1,"a":null,"a":"x"}"#, r#"duplicate field "a""#),
            (
                r#"{"spec":{"containers":[{"name":"x"},{"name":"x","name":true}],"n":1.5,"n":-1}}"#,
                r#"duplicate field "spec.containers[1].name"; duplicate field "spec.n""#,
            ),
            (r#"{"a":{"x":1,"x":2},"a":{"x":1,"x":2}}"#, r#"duplicate field "a.x"; duplicate field "a""#),
            ("[", ""),
            ("1", ""),
        ] {
            assert_eq!(found(json), wanted, "{json}");
        }
    }
}
