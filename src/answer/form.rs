//! What of an object is shown: all of it, its metadata alone, or a row of cells.
//!
//! A form says how an object, a list's head, an item and a bookmark are written; get, list and watch are the same for
//! all. Every form is made of an entry's final bytes.

use std::io::Write as _;

use crate::{
    answer::{
        partial::partial_entry,
        table::{Table, Tables},
    },
    store::{Entry, KindSpec, Revision},
};
use kubefold_wire::{
    accept::{PARTIAL_OBJECT, PARTIAL_OBJECT_LIST, TABLE_V1, Transform},
    form::{Partial, is_status, unfit},
    status::Status,
};

/// How objects are written.
#[derive(Clone, Debug)]
pub(crate) enum Form {
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
    pub(crate) fn of_object(
        transform: Option<Transform<'static>>,
        spec: &KindSpec,
        tables: &Tables,
    ) -> Result<Self, Status> {
        Self::of(transform, spec, tables, PARTIAL_OBJECT, false)
    }

    /// The form of a list.
    ///
    /// Errors: 406 if it is one for objects; 400 for a parameter that is not understood.
    pub(crate) fn of_list(
        transform: Option<Transform<'static>>,
        spec: &KindSpec,
        tables: &Tables,
    ) -> Result<Self, Status> {
        Self::of(transform, spec, tables, PARTIAL_OBJECT_LIST, true)
    }

    fn of(
        transform: Option<Transform<'static>>,
        spec: &KindSpec,
        tables: &Tables,
        partial: Transform<'static>,
        is_list: bool,
    ) -> Result<Self, Status> {
        let (group, kind) = (&*spec.gvk.group, &*spec.gvk.kind);
        match transform {
            None => Ok(Self::Whole),
            Some(wanted) if wanted.kind == TABLE_V1.kind => Ok(Self::Table(tables.table(wanted.version, spec)?.into())),
            Some(wanted) if wanted.kind == partial.kind => Ok(Self::Metadata(Partial::of(wanted.version, group, kind))),
            Some(wanted) => Err(unfit(wanted, is_list, group, kind)),
        }
    }

    /// Appends an object as of `revision`, under the name that the answer echoes, if it echoes one.
    pub(crate) fn object(&self, entry: &Entry, echo: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
        match (self, echo) {
            (Self::Whole, None) => entry.write_at(revision, out),
            (Self::Whole, Some(name)) => entry.write_named(name, revision, out),
            (Self::Table(table), echo) => table.object(entry, echo, revision, out),
            (Self::Metadata(partial), None) => partial_entry(*partial, entry, revision, out),
            (Self::Metadata(partial), Some(name)) => {
                let mut whole = Vec::new();
                entry.write_named(name, revision, &mut whole);
                partial.document(&whole, out);
            }
        }
    }

    /// Appends an object as an item of a list.
    pub(crate) fn item(&self, entry: &Entry, echo: Option<&str>, out: &mut Vec<u8>) {
        match (self, echo) {
            (Self::Whole, None) => entry.write_item(out),
            (Self::Table(table), echo) => table.row(entry, echo, entry.revision, out),
            _ => self.object(entry, echo, entry.revision, out),
        }
    }

    /// Appends a document that is no entry: a part of a placed object, the answer to a write.
    pub(crate) fn document(&self, json: &[u8], spec: &KindSpec, out: &mut Vec<u8>) {
        match self {
            Self::Whole => out.extend_from_slice(json.trim_ascii_end()),
            Self::Table(_) if is_status(json) => out.extend_from_slice(json.trim_ascii_end()),
            Self::Table(table) => table.document(json.trim_ascii_end(), spec, out),
            Self::Metadata(partial) => partial.document(json, out),
        }
    }

    /// Appends `"kind":"PodList","apiVersion":"v1"`.
    pub(crate) fn list_type(&self, spec: &KindSpec, out: &mut Vec<u8>) {
        self.type_meta(spec, "List", out);
    }

    /// Appends `"items":`, or what a Table has there.
    pub(crate) fn begin_items(&self, out: &mut Vec<u8>) {
        match self {
            Self::Table(table) => table.begin_rows(out),
            Self::Whole | Self::Metadata(_) => out.extend_from_slice(b"\"items\":"),
        }
    }

    /// Appends what ends a list whose every item had a `[` or a `,` before it, and the document. Where a kube-apiserver says
    /// `null`, so does kubefold.
    pub(crate) fn end_items(&self, is_empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Table(table) if is_empty && table.has_no_rows_of_none() => b"null}\n",
            Self::Metadata(_) if is_empty => b"null}\n",
            _ if is_empty => b"[]}\n",
            _ => b"]}\n",
        });
    }

    /// Appends an empty object with this metadata.
    pub(crate) fn bookmark(&self, spec: &KindSpec, metadata: &str, revision: Revision, out: &mut Vec<u8>) {
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
    pub(crate) fn of_later_events(self) -> Self {
        match self {
            Self::Table(table) => Self::Table(Box::new(table.without_columns())),
            other => other,
        }
    }

    /// Puts the objects of a list in the order in which they are shown, if that is not the store's.
    pub(crate) fn order(&self, spec: &KindSpec) -> Option<&Table> {
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
            Self::Metadata(partial) => {
                partial.type_meta(suffix, out);
                Ok(())
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubefold_wire::resource::{Gvk, Gvr};

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
    }
}
