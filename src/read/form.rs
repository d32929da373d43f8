//! What of an object is shown: all of it, its metadata alone, or a row of cells.
//!
//! A form says how an object, a list's head, an item and a bookmark are written; get, list and watch are the same for
//! all. Every form is made of an entry's final bytes.

use std::io::Write as _;

use http::StatusCode;

use crate::{
    read::{
        fields::{AS_FIELDS, without},
        table::{Table, Tables},
    },
    store::{Entry, KindSpec, Revision},
    wire::{
        accept::{
            PARTIAL_OBJECT, PARTIAL_OBJECT_LIST, PARTIAL_OBJECT_LIST_V1BETA1, PARTIAL_OBJECT_V1BETA1, TABLE_V1,
            TABLE_V1BETA1, Transform,
        },
        locate::Paths,
        media::is_built_in,
        status::{Reason, Status},
    },
};

/// The conversions that every endpoint of a resource takes, as a kube-apiserver: what does not fit the endpoint is
/// refused later, in other words.
pub(super) const OFFERS: &[Transform<'static>] = &[
    TABLE_V1,
    TABLE_V1BETA1,
    PARTIAL_OBJECT,
    PARTIAL_OBJECT_V1BETA1,
    PARTIAL_OBJECT_LIST,
    PARTIAL_OBJECT_LIST_V1BETA1,
];

/// How objects are written.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// As they are.
    Whole,
    /// `PartialObjectMetadata` alone.
    Metadata(Partial),
    /// As rows of a `Table`.
    Table(Box<Table>),
}

impl Form {
    /// The form of single objects: those of a get, of a write's answer, of a watch's events.
    ///
    /// Errors: 406 if it is one for lists; 400 for a parameter that is not understood.
    pub(super) fn of_object(
        transform: Option<Transform<'static>>,
        spec: &KindSpec,
        tables: &Tables,
    ) -> Result<Self, Status> {
        match transform {
            None => Ok(Self::Whole),
            Some(wanted) if wanted.kind == TABLE_V1.kind => Ok(Self::Table(tables.table(wanted.version, spec)?.into())),
            Some(wanted) if wanted.kind == PARTIAL_OBJECT.kind => Ok(Self::Metadata(Partial::of(wanted.version, spec))),
            Some(wanted) => Err(unfit(wanted, "not a list", go_type(spec, ""))),
        }
    }

    /// The form of a list.
    ///
    /// Errors: 406 if it is one for objects; 400 for a parameter that is not understood.
    pub(super) fn of_list(
        transform: Option<Transform<'static>>,
        spec: &KindSpec,
        tables: &Tables,
    ) -> Result<Self, Status> {
        match transform {
            None => Ok(Self::Whole),
            Some(wanted) if wanted.kind == TABLE_V1.kind => Ok(Self::Table(tables.table(wanted.version, spec)?.into())),
            Some(wanted) if wanted.kind == PARTIAL_OBJECT_LIST.kind => {
                Ok(Self::Metadata(Partial::of(wanted.version, spec)))
            }
            Some(wanted) => Err(unfit(wanted, "a list", go_type(spec, "List"))),
        }
    }

    /// Appends an object as of `revision`, under the name that the answer echoes, if it echoes one.
    pub(super) fn object(&self, entry: &Entry, echo: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
        match (self, echo) {
            (Self::Whole, None) => entry.write_at(revision, out),
            (Self::Whole, Some(name)) => entry.write_named(name, revision, out),
            (Self::Table(table), echo) => table.object(entry, echo, revision, out),
            (Self::Metadata(partial), None) => partial.entry(entry, revision, out),
            (Self::Metadata(partial), Some(name)) => {
                let mut whole = Vec::new();
                entry.write_named(name, revision, &mut whole);
                partial.document(&whole, out);
            }
        }
    }

    /// Appends an object as an item of a list.
    pub(super) fn item(&self, entry: &Entry, echo: Option<&str>, out: &mut Vec<u8>) {
        match (self, echo) {
            (Self::Whole, None) => entry.write_item(out),
            (Self::Table(table), echo) => table.row(entry, echo, entry.revision, out),
            _ => self.object(entry, echo, entry.revision, out),
        }
    }

    /// Appends a document that is no entry: a part of a placed object, the answer to a write.
    pub(super) fn document(&self, json: &[u8], spec: &KindSpec, out: &mut Vec<u8>) {
        match self {
            Self::Whole => out.extend_from_slice(json.trim_ascii_end()),
            Self::Table(_) if is_status(json) => out.extend_from_slice(json.trim_ascii_end()),
            Self::Table(table) => table.document(json.trim_ascii_end(), spec, out),
            Self::Metadata(partial) => partial.document(json, out),
        }
    }

    /// Appends `"kind":"PodList","apiVersion":"v1"`.
    pub(super) fn list_type(&self, spec: &KindSpec, out: &mut Vec<u8>) {
        self.type_meta(spec, "List", out);
    }

    /// Appends `"items":`, or what a Table has there.
    pub(super) fn begin_items(&self, out: &mut Vec<u8>) {
        match self {
            Self::Table(table) => table.begin_rows(out),
            Self::Whole | Self::Metadata(_) => out.extend_from_slice(b"\"items\":"),
        }
    }

    /// Appends what ends a list whose every item had a `[` or a `,` before it, and the document. Where a kube-apiserver says
    /// `null`, so does kubefold.
    pub(super) fn end_items(&self, is_empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Table(table) if is_empty && table.has_no_rows_of_none() => b"null}\n",
            Self::Metadata(_) if is_empty => b"null}\n",
            _ if is_empty => b"[]}\n",
            _ => b"]}\n",
        });
    }

    /// Appends an empty object with this metadata.
    pub(super) fn bookmark(&self, spec: &KindSpec, metadata: &str, revision: Revision, out: &mut Vec<u8>) {
        if let Self::Table(table) = self {
            return table.bookmark(metadata, revision, out);
        }
        out.push(b'{');
        self.type_meta(spec, "", out);
        out.extend_from_slice(b",\"metadata\":");
        out.extend_from_slice(metadata.as_bytes());
        out.push(b'}');
    }

    /// The form of what follows the first event of a watch.
    pub(super) fn of_later_events(self) -> Self {
        match self {
            Self::Table(table) => Self::Table(Box::new(table.without_columns())),
            other => other,
        }
    }

    /// Puts the objects of a list in the order in which they are shown, if that is not the store's.
    pub(super) fn order(&self, spec: &KindSpec) -> Option<&Table> {
        match self {
            Self::Table(table) if table.is_sorted(spec) => Some(table),
            _ => None,
        }
    }

    fn type_meta(&self, spec: &KindSpec, suffix: &str, out: &mut Vec<u8>) {
        // Writing to memory has no way to fail.
        let _infallible = match self {
            Self::Whole => {
                let (kind, api_version) = (&spec.gvk.kind, spec.gvr.api_version());
                write!(out, "\"kind\":\"{kind}{suffix}\",\"apiVersion\":\"{api_version}\"")
            }
            Self::Table(table) => {
                table.type_meta(out);
                Ok(())
            }
            Self::Metadata(Partial { version, .. }) => {
                write!(out, "\"kind\":\"PartialObjectMetadata{suffix}\",\"apiVersion\":\"meta.k8s.io/{version}\"")
            }
        };
    }
}

/// How metadata is written alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partial {
    /// Of `meta.k8s.io`.
    version: &'static str,
    /// The annotations that are left out.
    left_out: &'static [&'static str],
}

impl Partial {
    /// That of a kind.
    pub(super) fn of(version: &'static str, spec: &KindSpec) -> Self {
        let of_kind = |row: &&(&str, &str, _)| row.0 == &*spec.gvk.group && row.1 == &*spec.gvk.kind;
        let left_out = AS_FIELDS.iter().find(of_kind).map_or(&[][..], |row| row.2);
        Self { version, left_out }
    }

    /// Appends an entry's.
    pub(super) fn entry(&self, entry: &Entry, revision: Revision, out: &mut Vec<u8>) {
        self.begin(out);
        if self.left_out.is_empty() {
            entry.write_metadata_at(revision, out);
        } else {
            let mut metadata = Vec::new();
            entry.write_metadata_at(revision, &mut metadata);
            without(self.left_out, &metadata, out);
        }
        out.push(b'}');
    }

    /// Appends the metadata of a document; of a `Status`, and of what has none, the document as it is.
    pub(super) fn document(&self, json: &[u8], out: &mut Vec<u8>) {
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
    pub(super) fn metadata(&self, metadata: &[u8], out: &mut Vec<u8>) {
        self.begin(out);
        without(self.left_out, metadata, out);
        out.push(b'}');
    }

    fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
        out.extend_from_slice(self.version.as_bytes());
        out.extend_from_slice(b"\",\"metadata\":");
    }
}

/// A `Status` is shown as it is in every form.
fn is_status(json: &[u8]) -> bool {
    json.starts_with(b"{\"kind\":\"Status\",\"apiVersion\":\"v1\",")
}

/// 406 in the words of a kube-apiserver, which names the type of its own code.
fn unfit(wanted: Transform<'_>, what: &str, go_type: String) -> Status {
    let message = format!("you requested {}, but the requested object is {what} ({go_type})", wanted.kind);
    Status::new(StatusCode::NOT_ACCEPTABLE, Reason::NotAcceptable, message)
}

fn go_type(spec: &KindSpec, suffix: &str) -> String {
    if !is_built_in(&spec.gvr.group) {
        return format!("*unstructured.Unstructured{suffix}");
    }
    let package = match &*spec.gvr.group {
        // Events are one type in both of their groups.
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or_default(),
    };
    format!("*{package}.{}{suffix}", spec.gvk.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::resource::{Gvk, Gvr};

    fn spec(group: &str, resource: &str, kind: &str) -> KindSpec {
        KindSpec::new(Gvr::new(group, "v1", resource), Gvk::new(group, "v1", kind), true)
    }

    #[test]
    fn a_form_that_does_not_fit_is_refused_as_a_kube_apiserver_refuses_it() {
        let pods = spec("", "pods", "Pod");
        let tables = Tables::default();
        assert!(matches!(Form::of_list(None, &pods, &tables), Ok(Form::Whole)));
        assert!(matches!(Form::of_list(Some(PARTIAL_OBJECT_LIST), &pods, &tables), Ok(Form::Metadata(_))));
        assert!(matches!(Form::of_object(Some(TABLE_V1), &pods, &tables), Ok(Form::Table(_))));
        assert_eq!(
            Form::of_list(Some(PARTIAL_OBJECT), &pods, &tables).unwrap_err().message,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)"
        );
        let roles = spec("rbac.authorization.k8s.io", "roles", "Role");
        assert_eq!(
            Form::of_object(Some(PARTIAL_OBJECT_LIST), &roles, &tables).unwrap_err().message,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*rbac.Role)"
        );
        assert_eq!(go_type(&spec("example.com", "as", "A"), "List"), "*unstructured.UnstructuredList");
    }

    #[test]
    fn metadata_is_cut_out_of_any_document() {
        let mut out = Vec::new();
        let partial = Partial::of("v1", &spec("", "pods", "Pod"));
        partial.document(br#"{"spec":{"metadata":1},"metadata":{"name":"a"}}"#, &mut out);
        let wanted = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
