//! A member's document as a search gives it: with the member's name, and with the fleet's revision, at which a watch goes on.

use std::sync::LazyLock;

use crate::store::Revision;
use kubefold_wire::{
    locate::{Found, Paths},
    splice::{Edit, splice, string},
};

/// Where Clusterpedia names the cluster of an object.
pub(super) const CLUSTER_ANNOTATION: &str = "shadow.clusterpedia.io/cluster-name";

const KIND: u16 = 0;
const API_VERSION: u16 = 1;
const METADATA: u16 = 2;
const ANNOTATIONS: u16 = 3;
const RESOURCE_VERSION: u16 = 4;

/// When an object was deleted, as far as kubefold has heard.
pub(super) const DELETED_ANNOTATION: &str = "kubefold.io/deleted-at";

/// An annotation that a document is given.
#[derive(Clone, Copy)]
pub(super) struct Annotation<'a> {
    pub(super) name: &'static str,
    pub(super) value: &'a str,
}

/// The document of a member's object.
pub(super) fn shadow(json: &str, given: &[Annotation<'_>], revision: Revision) -> String {
    let found = located(json);
    let at = |id: u16| found.iter().find(|found| found.id == id).map(|found| found.range.clone());
    let annotation = || {
        let mut out = Vec::new();
        for Annotation { name, value } in given {
            out.extend_from_slice(if out.is_empty() { b"\"" } else { b",\"" });
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            out.extend_from_slice(&string(value));
        }
        out
    };
    let mut edits: Vec<Edit<'_>> = Vec::with_capacity(2);
    if let Some(at) = at(RESOURCE_VERSION) {
        edits.push(Edit::new(at, format!("\"{revision}\"").into_bytes()));
    }
    match (at(ANNOTATIONS), at(METADATA)) {
        // At the end: of two values of one name readers take the last.
        (Some(at), _) if json.get(at.clone()).is_some_and(|text| text.starts_with('{')) => {
            let is_empty = json.get(at.start + 1..at.end - 1).is_some_and(|inner| inner.trim().is_empty());
            let mut out = if is_empty { Vec::new() } else { b",".to_vec() };
            out.append(&mut annotation());
            edits.push(Edit::new(at.end - 1..at.end - 1, out));
        }
        (Some(at), _) => edits.push(Edit::new(at, [b"{".as_slice(), &annotation(), b"}"].concat())),
        (None, Some(at)) => {
            let out = [b"\"annotations\":{".as_slice(), &annotation(), b"},"].concat();
            edits.push(Edit::new(at.start + 1..at.start + 1, out));
        }
        (None, None) => {}
    }
    let mut out = Vec::with_capacity(json.len() + 128);
    splice(json.as_bytes(), &mut edits, &mut out);
    // Texts were put between the characters of a text.
    String::from_utf8(out).unwrap_or_default()
}

/// Kind and metadata of a document, alone.
pub(super) fn metadata_of(json: &str) -> String {
    let found = located(json);
    let text = |id: u16| found.iter().find(|found| found.id == id).and_then(|found| json.get(found.range.clone()));
    let parts = [("kind", KIND), ("apiVersion", API_VERSION), ("metadata", METADATA)];
    let each = parts.iter().filter_map(|(name, id)| Some(format!("\"{name}\":{}", text(*id)?)));
    format!("{{{}}}", each.collect::<Vec<_>>().join(","))
}

fn located(json: &str) -> Vec<Found> {
    static PATHS: LazyLock<Paths> = LazyLock::new(|| {
        let mut paths = Paths::new([
            (KIND, ["kind"].as_slice()),
            (API_VERSION, &["apiVersion"]),
            (ANNOTATIONS, &["metadata", "annotations"]),
            (RESOURCE_VERSION, &["metadata", "resourceVersion"]),
        ]);
        paths.mark(METADATA, &["metadata"]);
        paths
    });
    let mut found = Vec::new();
    // Of what is no object nothing is found.
    let _nothing_more = PATHS.locate_valid(json, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_its_member_and_the_fleets_revision() {
        let named = r#""shadow.clusterpedia.io/cluster-name":"east""#;
        for (before, after) in [
            (
                r#"{"metadata":{"name":"a","resourceVersion":"5"}}"#,
                format!(r#"{{"metadata":{{"annotations":{{{named}}},"name":"a","resourceVersion":"7"}}}}"#),
            ),
            (
                r#"{"metadata":{"annotations":{},"name":"a"}}"#,
                format!(r#"{{"metadata":{{"annotations":{{{named}}},"name":"a"}}}}"#),
            ),
            (r#"{"metadata":{"annotations":null}}"#, format!(r#"{{"metadata":{{"annotations":{{{named}}}}}}}"#)),
            (
                r#"{"metadata":{"annotations":{"a":"b"}}}"#,
                format!(r#"{{"metadata":{{"annotations":{{"a":"b",{named}}}}}}}"#),
            ),
        ] {
            let given = [Annotation { name: CLUSTER_ANNOTATION, value: "east" }];
            assert_eq!(shadow(before, &given, Revision(7)), after);
        }
        let given = [
            Annotation { name: CLUSTER_ANNOTATION, value: "east" },
            Annotation { name: DELETED_ANNOTATION, value: "2026-03-14T08:00:00Z" },
        ];
        let both =
            format!(r#"{{"metadata":{{"annotations":{{{named},"kubefold.io/deleted-at":"2026-03-14T08:00:00Z"}}}}}}"#);
        assert_eq!(shadow(r#"{"metadata":{"annotations":{}}}"#, &given, Revision(7)), both);
    }

    #[test]
    fn metadata_alone_keeps_the_kind() {
        let pod = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"x":1}}"#;
        assert_eq!(metadata_of(pod), r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#);
    }
}
