//! The forms of an object that a client may ask for: metadata alone, rows of a Table; and how they are refused.

use std::io::Write as _;

use http::StatusCode;

use crate::{
    accept::{
        PARTIAL_OBJECT, PARTIAL_OBJECT_LIST, PARTIAL_OBJECT_LIST_V1BETA1, PARTIAL_OBJECT_V1BETA1, TABLE_V1,
        TABLE_V1BETA1, Transform,
    },
    fields::{AS_FIELDS, Row, without},
    golang,
    locate::Paths,
    media::is_built_in,
    status::{Reason, Status},
};

/// The conversions that every endpoint of a resource takes, as a kube-apiserver: what does not fit the endpoint is
/// refused later, in other words.
pub const OFFERS: &[Transform<'static>] = &[
    TABLE_V1,
    TABLE_V1BETA1,
    PARTIAL_OBJECT,
    PARTIAL_OBJECT_V1BETA1,
    PARTIAL_OBJECT_LIST,
    PARTIAL_OBJECT_LIST_V1BETA1,
];

/// The conversions of what has no columns.
const WITHOUT_TABLE: &[Transform<'static>] =
    &[PARTIAL_OBJECT, PARTIAL_OBJECT_V1BETA1, PARTIAL_OBJECT_LIST, PARTIAL_OBJECT_LIST_V1BETA1];

/// The groups of reviews.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];
/// Subresources for which a kube-apiserver has no columns.
const WITHOUT_COLUMNS: [&str; 7] =
    ["approval", "binding", "ephemeralcontainers", "eviction", "finalize", "resize", "token"];

/// The conversions that an endpoint takes. Reviews, bindings and some subresources cannot be had as a Table.
///
/// Source: kubernetes/apiserver `pkg/endpoints/handlers/rest.go`, `AllowsMediaTypeTransform`; which of kubernetes/kubernetes `pkg/registry`
/// have no `ConvertToTable`.
pub fn offers(group: &str, resource: &str, subresource: &str) -> &'static [Transform<'static>] {
    let has_no_columns = match subresource {
        "" => REVIEWS.contains(&group) || (group.is_empty() && resource == "bindings"),
        subresource => is_built_in(group) && WITHOUT_COLUMNS.contains(&subresource),
    };
    if has_no_columns { WITHOUT_TABLE } else { OFFERS }
}

/// How metadata is written alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partial {
    /// Of `meta.k8s.io`.
    version: &'static str,
    /// The annotations that are left out.
    left_out: &'static [&'static str],
}

impl Partial {
    /// That of a kind.
    pub fn of(version: &'static str, group: &str, kind: &str) -> Self {
        let of_kind = |row: &&Row| row.0 == group && row.1 == kind;
        let left_out = AS_FIELDS.iter().find(of_kind).map_or(&[][..], |row| row.2);
        Self { version, left_out }
    }

    /// Appends the metadata of a document; of a `Status`, and of what has none, the document as it is.
    pub fn document(&self, json: &[u8], out: &mut Vec<u8>) {
        let json = json.trim_ascii_end();
        if is_status(json) {
            return out.extend_from_slice(json);
        }
        let mut found = Vec::new();
        let text = std::str::from_utf8(json).unwrap_or_default();
        let located = Paths::new([(0, ["metadata"].as_slice())]).locate(text, &mut found).is_ok();
        match found.first().and_then(|at| json.get(at.range.clone())).filter(|_| located) {
            Some(metadata) => self.metadata(metadata, out),
            None => out.extend_from_slice(json),
        }
    }

    /// Appends this metadata.
    pub fn metadata(&self, metadata: &[u8], out: &mut Vec<u8>) {
        self.begin(out);
        without(self.left_out, metadata, out);
        out.push(b'}');
    }

    /// `meta.k8s.io/v1`
    pub fn api_version(&self) -> String {
        format!("meta.k8s.io/{}", self.version)
    }

    /// Says whether metadata stands in it as it is.
    pub fn is_whole(&self) -> bool {
        self.left_out.is_empty()
    }

    /// `"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"`, of itself or, with a suffix, of a list.
    pub fn type_meta(&self, suffix: &str, out: &mut Vec<u8>) {
        for part in ["\"kind\":\"PartialObjectMetadata", suffix, "\",\"apiVersion\":\"meta.k8s.io/", self.version, "\""]
        {
            out.extend_from_slice(part.as_bytes());
        }
    }

    /// Appends the beginning, up to the metadata; a `}` ends it.
    pub fn begin(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.type_meta("", out);
        out.extend_from_slice(b",\"metadata\":");
    }
}

/// Appends `"metadata":{...}` of a list: its revision and, where it goes on, the token of the next page and how many
/// objects follow, if that is known.
pub fn list_metadata(revision: u64, next: Option<&str>, remaining: Option<u64>, out: &mut Vec<u8>) {
    // Writing to memory has no way to fail.
    let _infallible = write!(out, "\"metadata\":{{\"resourceVersion\":\"{revision}\"");
    if let Some(next) = next {
        let _infallible = write!(out, ",\"continue\":\"{next}\"");
        if let Some(remaining) = remaining.filter(|remaining| *remaining > 0) {
            let _infallible = write!(out, ",\"remainingItemCount\":{remaining}");
        }
    }
    out.push(b'}');
}

/// A `Status` is shown as it is in every form.
pub fn is_status(json: &[u8]) -> bool {
    json.starts_with(b"{\"kind\":\"Status\",\"apiVersion\":\"v1\",")
}

/// 406 in the words of a kube-apiserver, which names the type of its own code.
pub fn unfit(wanted: Transform<'_>, is_list: bool, group: &str, kind: &str) -> Status {
    let (what, suffix) = if is_list { ("a list", "List") } else { ("not a list", "") };
    let go_type = go_type(group, kind, suffix);
    let message = format!("you requested {}, but the requested object is {what} ({go_type})", wanted.kind);
    Status::new(StatusCode::NOT_ACCEPTABLE, Reason::NotAcceptable, message)
}

/// 400 for a word that says not how much of an object stands in its row.
pub fn no_include(word: &str) -> Status {
    Status::bad_request(format!(
        "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', \
         'None', or empty",
        golang::quoted(word)
    ))
}

fn go_type(group: &str, kind: &str, suffix: &str) -> String {
    if !is_built_in(group) {
        return format!("*unstructured.Unstructured{suffix}");
    }
    let package = match group {
        // Events are one type in both of their groups.
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or_default(),
    };
    format!("*{package}.{kind}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_does_not_fit_is_refused_as_a_kube_apiserver_refuses_it() {
        assert_eq!(
            unfit(PARTIAL_OBJECT, true, "", "Pod").message,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)"
        );
        assert_eq!(
            unfit(PARTIAL_OBJECT_LIST, false, "rbac.authorization.k8s.io", "Role").message,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*rbac.Role)"
        );
        assert_eq!(go_type("example.com", "A", "List"), "*unstructured.UnstructuredList");
    }

    #[test]
    fn what_has_no_columns_is_no_table() {
        for (group, resource, subresource, has) in [
            ("", "pods", "", true),
            ("", "pods", "status", true),
            ("", "pods", "eviction", false),
            ("", "bindings", "", false),
            ("authorization.k8s.io", "subjectaccessreviews", "", false),
            ("example.com", "bindings", "", true),
            ("example.com", "things", "approval", true),
        ] {
            let offered = offers(group, resource, subresource);
            assert_eq!(offered.contains(&TABLE_V1), has, "{resource}/{subresource}");
            assert!(offered.contains(&PARTIAL_OBJECT));
        }
    }

    #[test]
    fn a_list_says_what_follows_only_where_something_does() {
        let metadata = |next, remaining| {
            let mut out = Vec::new();
            list_metadata(7, next, remaining, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(metadata(None, Some(3)), r#""metadata":{"resourceVersion":"7"}"#);
        assert_eq!(metadata(Some("t"), Some(0)), r#""metadata":{"resourceVersion":"7","continue":"t"}"#);
        let both = r#""metadata":{"resourceVersion":"7","continue":"t","remainingItemCount":3}"#;
        assert_eq!(metadata(Some("t"), Some(3)), both);
    }

    #[test]
    fn metadata_is_cut_out_of_any_document() {
        let mut out = Vec::new();
        Partial::of("v1", "", "Pod").document(br#"{"spec":{"metadata":1},"metadata":{"name":"a"}}"#, &mut out);
        let wanted = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
