//! Names: minted from `generateName`, pins taken off, and nodes' own ones put in.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    config::MemberName,
    placement::nodes::{Elsewhere, NodeNames},
    respond::InvalidField,
    write::fleet::{Fleet, Key},
};
use kubefold_wire::{
    scan::string_end,
    splice::{Edit, splice, string},
};

/// Kubernetes' alphabet for generated names: without vowels and look-alikes.
///
/// Source: kubernetes/apimachinery `pkg/util/rand/rand.go`.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Source: kubernetes/apiserver `pkg/storage/names/generate.go`.
const RANDOM_LEN: usize = 5;
const NAME_LEN_MAX: usize = 63;

/// Mints a name from a base, as a kube-apiserver does.
pub(super) fn mint(base: &str) -> String {
    // A version 4 UUID is random in its low 62 bits (RFC 9562, section 5.4).
    let mut number = uuid::Uuid::new_v4().as_u128() & ((1 << 62) - 1);
    let mut cut = base.len().min(NAME_LEN_MAX - RANDOM_LEN);
    while !base.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut name = base.get(..cut).unwrap_or_default().to_owned();
    for _ in 0..RANDOM_LEN {
        let at = usize::try_from(number % 27).unwrap_or(0);
        name.push(ALPHABET.get(at).copied().map_or('b', char::from));
        number /= 27;
    }
    name
}

/// Puts the own names of nodes in the place of visible ones, in the body of an object of one member. Bytes stay where it has none.
///
/// Errors: it names nodes of other members alone.
pub(super) fn with_own_nodes<F: Fleet>(
    fleet: &F,
    key: &Key,
    member: &MemberName,
    body: Bytes,
) -> Result<Bytes, InvalidField> {
    let rules = fleet.rules();
    let nodes = NodeNames::of(&key.gvk, rules.names());
    if memchr::memchr(b'@', &body).is_none() {
        return Ok(body);
    }
    // What is no object the member refuses in its own words.
    let Ok(mut object) = serde_json::from_slice::<Value>(&body) else { return Ok(body) };
    if nodes.named(&object).is_empty() {
        return Ok(body);
    }
    match nodes.localize(&mut object, member) {
        Ok(()) => Ok(object.to_string().into()),
        Err(Elsewhere { field, nodes }) => Err(InvalidField::NodesElsewhere { field, nodes, member: member.clone() }),
    }
}

/// Replaces every string value that is exactly `pinned` by `plain`. Keys stay. `json` is valid JSON.
///
/// kubectl copies a name into labels and container names, where `@` is never legal: there the pin can only mean the name.
pub(super) fn unpin(json: &str, pinned: &str, plain: &str) -> Vec<u8> {
    let bytes = json.as_bytes();
    let mut edits = Vec::new();
    let mut at = 0;
    while let Some(open) = memchr::memchr(b'"', bytes.get(at..).unwrap_or_default()).map(|found| at + found) {
        let end = string_end(bytes, open).unwrap_or(bytes.len());
        let is_key = bytes.get(end..).unwrap_or_default().trim_ascii_start().first() == Some(&b':');
        let raw = json.get(open..end).unwrap_or_default();
        if !is_key && says(raw, pinned) {
            edits.push(Edit::new(open..end, string(plain)));
        }
        at = end;
    }
    let mut out = Vec::with_capacity(json.len());
    splice(bytes, &mut edits, &mut out);
    out
}

fn says(raw: &str, text: &str) -> bool {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    inner == text || (inner.contains('\\') && serde_json::from_str::<String>(raw).is_ok_and(|decoded| decoded == text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minted_names_are_kubernetes() {
        let name = mint("web-");
        assert_eq!(name.len(), 9);
        assert!(name[4..].bytes().all(|byte| ALPHABET.contains(&byte)), "{name}");
        assert_eq!(mint(&"x".repeat(100)).len(), 63);
        let distinct: std::collections::BTreeSet<_> = (0..100).map(|_| mint("a-")).collect();
        assert!(distinct.len() > 95);
    }

    #[test]
    fn a_pin_is_taken_off_values_alone() {
        let json = r#"{"metadata":{"name": "x@east","labels":{"app":"x@east","x@east" : "y"}},"list":["x@east","\u0078@east","a\"x@east","x@east\"",
            "see x@east"],"note":"{\"name\":\"x@east\"}"}"#;
        let want = r#"{"metadata":{"name": "x","labels":{"app":"x","x@east" : "y"}},"list":["x","x","a\"x@east","x@east\"",
            "see x@east"],"note":"{\"name\":\"x@east\"}"}"#;
        assert_eq!(String::from_utf8(unpin(json, "x@east", "x")).unwrap(), want);
    }
}
