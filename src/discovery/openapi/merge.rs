//! Several members' OpenAPI documents as one: pure.
//!
//! The first document stays as it is, and gains the paths and types that only later ones have. Types that differ under one
//! name are the first document's, like the rest of it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use kubefold_wire::{
    locate::{NotAnObject, entries},
    protobuf::{MalformedRecord, Payload, Records, push_nested},
    splice::push_string,
};

/// The encodings that documents are served in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

/// Which specification a document follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spec {
    V2,
    V3,
}

/// Why documents cannot be made one.
#[derive(Debug, thiserror::Error)]
pub(super) enum MergeError {
    #[error(transparent)]
    Json(#[from] NotAnObject),
    #[error("a document is not UTF-8: {0}")]
    Text(#[from] std::str::Utf8Error),
    #[error(transparent)]
    Protobuf(#[from] MalformedRecord),
    #[error("a part of a document has another shape than OpenAPI gives it")]
    Shape,
}

/// Makes one document of several, in configuration order of their members.
///
/// Shape: N documents -> the first one's bytes with what the others have beside.
pub(super) fn merge(spec: Spec, encoding: Encoding, documents: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
    match encoding {
        Encoding::Json => merge_json(spec, documents),
        Encoding::Protobuf => merge_protobuf(spec, documents),
    }
}

/// Maps from names to things, at the top of a document and one level below.
///
/// Source: <https://spec.openapis.org/oas/v2.0>, <https://spec.openapis.org/oas/v3.0.0>.
const MAPS_V2: &[&str] = &["paths", "definitions", "parameters", "responses", "securityDefinitions"];
const MAPS_V3: &[&str] = &["paths"];
const MAPS_OF_MAPS_V3: &[&str] = &["components"];

fn merge_json(spec: Spec, documents: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
    let texts = documents.iter().map(|one| std::str::from_utf8(one)).collect::<Result<Vec<_>, _>>()?;
    let depth = |key: &str| match spec {
        Spec::V2 if MAPS_V2.contains(&key) => 1,
        Spec::V3 if MAPS_V3.contains(&key) => 1,
        Spec::V3 if MAPS_OF_MAPS_V3.contains(&key) => 2,
        Spec::V2 | Spec::V3 => 0,
    };
    let tops = texts.iter().map(|text| entries(text)).collect::<Result<Vec<_>, _>>()?;
    // The order of the first document, whose head clients show.
    let mut seen = HashSet::new();
    let mut out = vec![b'{'];
    for member in tops.iter().flatten().filter(|member| seen.insert(member.name.clone())) {
        let values: Vec<&str> =
            tops.iter().filter_map(|top| top.iter().find(|one| one.name == member.name)).map(|one| one.raw).collect();
        push_entry(&member.name, &union(&values, depth(&member.name))?, &mut out);
    }
    out.push(b'}');
    Ok(out)
}

/// One object with the entries of all; below `depth`, the first one's value counts.
fn union<'a>(values: &[&'a str], depth: usize) -> Result<Cow<'a, str>, MergeError> {
    let first = *values.first().ok_or(MergeError::Shape)?;
    if depth == 0 || values.iter().all(|value| *value == first) {
        return Ok(Cow::Borrowed(first));
    }
    // In the order of names, as Go writes its maps.
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for value in values {
        for member in entries(value)? {
            all.entry(member.name).or_default().push(member.raw);
        }
    }
    let mut out = vec![b'{'];
    for (name, values) in all {
        push_entry(&name, &union(&values, depth - 1)?, &mut out);
    }
    out.push(b'}');
    String::from_utf8(out).map(Cow::Owned).map_err(|error| error.utf8_error().into())
}

fn push_entry(name: &str, value: &str, out: &mut Vec<u8>) {
    if out.len() > 1 {
        out.push(b',');
    }
    push_string(name, out);
    out.push(b':');
    out.extend_from_slice(value.as_bytes());
}

/// Where the named entries of a document lie: field numbers from the document down. A named entry has its name in field 1.
///
/// Source: google/gnostic-models `openapiv2/OpenAPIv2.proto`, `openapiv3/OpenAPIv3.proto`.
const NAMED_V2: &[&[u32]] = &[
    &[8, 2],  // paths.path
    &[9, 1],  // definitions.additional_properties
    &[10, 1], // parameters
    &[11, 1], // responses
    &[13, 1], // security_definitions
];
const NAMED_V3: &[&[u32]] = &[
    &[4, 1],    // paths.path
    &[5, 1, 1], // components.schemas.additional_properties
    &[5, 7, 1], // components.security_schemes
];

/// Appends to the first document what only others name: a message field that comes again is merged into the one before it,
/// and its repeated fields go on (protobuf's encoding page, "Last One Wins").
fn merge_protobuf(spec: Spec, documents: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
    let (first, rest) = documents.split_first().ok_or(MergeError::Shape)?;
    let mut out = first.to_vec();
    for path in if spec == Spec::V2 { NAMED_V2 } else { NAMED_V3 } {
        let mut seen = HashSet::new();
        for entry in at(first, path)? {
            seen.insert(name(entry)?);
        }
        for document in rest {
            for entry in at(document, path)? {
                if seen.insert(name(entry)?) {
                    push_nested(path, entry, &mut out);
                }
            }
        }
    }
    Ok(out)
}

/// Every record at a path of field numbers.
fn at<'a>(message: &'a [u8], path: &[u32]) -> Result<Vec<&'a [u8]>, MergeError> {
    let Some((number, below)) = path.split_first() else { return Ok(vec![message]) };
    let mut found = Vec::new();
    for record in Records::new(message) {
        match record? {
            (this, Payload::Bytes(bytes)) if this == *number => found.extend(at(bytes, below)?),
            (this, _) if this == *number => return Err(MergeError::Shape),
            _ => {}
        }
    }
    Ok(found)
}

fn name(entry: &[u8]) -> Result<&[u8], MergeError> {
    at(entry, &[1])?.first().copied().ok_or(MergeError::Shape)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(spec: Spec, documents: &[&str]) -> String {
        let documents: Vec<&[u8]> = documents.iter().map(|one| one.as_bytes()).collect();
        String::from_utf8(merge(spec, Encoding::Json, &documents).unwrap()).unwrap()
    }

    #[test]
    fn paths_and_types_are_united_and_the_first_document_wins() {
        let east = r#"{"openapi":"3.0.0","info":{"version":"east"},"paths":{"/b":1},"components":{"schemas":{"B":{"d":"east"}}}}"#;
        let west = r#"{"openapi":"3.0.0","info":{"version":"west"},"paths":{"/a":2,"/b":3},"components":{"schemas":{"A":2,"B":{"d":"west"}},"securitySchemes":{"T":1}}}"#;
        assert_eq!(
            json(Spec::V3, &[east, west]),
            r#"{"openapi":"3.0.0","info":{"version":"east"},"paths":{"/a":2,"/b":1},"components":{"schemas":{"A":2,"B":{"d":"east"}},"securitySchemes":{"T":1}}}"#
        );
        assert_eq!(json(Spec::V3, &[east]), east);
    }

    #[test]
    fn swagger_has_its_own_maps() {
        let east = r#"{"swagger":"2.0","paths":{"/a":1},"definitions":{"A":1},"security":[1]}"#;
        let west =
            r#"{"swagger":"2.0","paths":{"/b":1},"definitions":{"A":2,"B":2},"security":[2],"parameters":{"p":1}}"#;
        assert_eq!(
            json(Spec::V2, &[east, west]),
            r#"{"swagger":"2.0","paths":{"/a":1,"/b":1},"definitions":{"A":1,"B":2},"security":[1],"parameters":{"p":1}}"#
        );
    }

    #[test]
    fn what_is_no_document_is_no_part_of_one() {
        for bad in ["", "[]", "<html>", r#"{"paths":[]}"#] {
            assert!(merge(Spec::V3, Encoding::Json, &[br#"{"paths":{}}"#, bad.as_bytes()]).is_err(), "{bad}");
        }
        for bad in [b"\x22\x05\x0a".as_slice(), b"\x20\x01", b"\x22\x02\x0a\x00"] {
            assert!(merge(Spec::V3, Encoding::Protobuf, &[b"", bad]).is_err(), "{bad:?}");
        }
    }

    /// A document in protobuf: names and values at one path.
    fn message(path: &[u32], names: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in names {
            let mut entry = Vec::new();
            push_nested(&[1], name.as_bytes(), &mut entry);
            push_nested(&[2], value.as_bytes(), &mut entry);
            push_nested(path, &entry, &mut out);
        }
        out
    }

    fn read(document: &[u8], path: &[u32]) -> Vec<(String, String)> {
        let text = |entry: &[u8], number| String::from_utf8(at(entry, &[number]).unwrap()[0].to_vec()).unwrap();
        at(document, path).unwrap().into_iter().map(|entry| (text(entry, 1), text(entry, 2))).collect()
    }

    #[test]
    fn protobuf_keeps_the_first_document_and_appends_what_it_lacks() {
        for (spec, path) in NAMED_V2.iter().map(|p| (Spec::V2, p)).chain(NAMED_V3.iter().map(|p| (Spec::V3, p))) {
            let (east, west) = (message(path, &[("B", "east")]), message(path, &[("A", "west"), ("B", "west")]));
            let both = merge(spec, Encoding::Protobuf, &[&east, &west]).unwrap();
            assert!(both.starts_with(&east));
            assert_eq!(read(&both, path), [("B", "east"), ("A", "west")].map(|(a, b)| (a.into(), b.into())));
        }
    }

    proptest! {
        #[test]
        fn every_name_is_there_once(lists in proptest::collection::vec(proptest::collection::vec("[a-e]", 0..5), 1..4)) {
            let objects: Vec<String> = lists.iter().enumerate().map(|(at, names)| {
                let names: std::collections::BTreeSet<_> = names.iter().collect();
                let inner: Vec<String> = names.iter().map(|name| format!("\"{name}\":{at}")).collect();
                format!("{{\"paths\":{{{}}}}}", inner.join(","))
            }).collect();
            let merged = json(Spec::V3, &objects.iter().map(String::as_str).collect::<Vec<_>>());
            let merged: serde_json::Value = serde_json::from_str(&merged).unwrap();
            for (at, names) in lists.iter().enumerate() {
                for name in names {
                    let first = lists.iter().position(|list| list.contains(name)).unwrap();
                    prop_assert!(first <= at);
                    prop_assert_eq!(&merged["paths"][name], first);
                }
            }
            let count = lists.iter().flatten().collect::<std::collections::BTreeSet<_>>().len();
            prop_assert_eq!(merged["paths"].as_object().unwrap().len(), count);
        }
    }
}
