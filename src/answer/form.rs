//! What of an object is shown: all of it, its metadata alone, or a row of cells.
//!
//! A form says how an object, a list's head, an item and a bookmark are written; get, list and watch are the same for
//! all. Every form is made of an entry's final bytes.

use std::sync::Arc;

use crate::{
    answer::{
        partial::partial_entry,
        table::{self, Tables},
    },
    store::{Entry, KindSpec, Revision, Written},
};
use kubefold_table::{Representation, TypeMeta};
use kubefold_wire::{accept::Transform, form::is_status, status::Status};

/// How objects are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form(Representation);

impl Form {
    /// The form of single objects: those of a get, of a write's answer, of a watch's events.
    ///
    /// Errors: 406 if it is one for lists; 400 for a parameter that is not understood.
    pub(crate) fn of_object(
        transform: Option<Transform<'static>>,
        spec: &KindSpec,
        tables: &Tables,
    ) -> Result<Self, Status> {
        Self::of(transform, spec, tables, false)
    }

    /// The form of a list.
    ///
    /// Errors: 406 if it is one for objects; 400 for a parameter that is not understood.
    pub(crate) fn of_list(
        transform: Option<Transform<'static>>,
        spec: &KindSpec,
        tables: &Tables,
    ) -> Result<Self, Status> {
        Self::of(transform, spec, tables, true)
    }

    fn of(
        transform: Option<Transform<'static>>,
        spec: &KindSpec,
        tables: &Tables,
        is_list: bool,
    ) -> Result<Self, Status> {
        let kind = (&*spec.gvk.group, &*spec.gvk.kind);
        Representation::new(transform, kind, is_list, |version| tables.sheet(version, spec)).map(Self)
    }

    /// How objects are written, where that is the same at every time and for every client. `None`: rows have ages.
    pub(crate) fn written(&self) -> Option<Written> {
        match &self.0 {
            Representation::Whole => Some(Written::Whole),
            Representation::Metadata(partial) => Some(Written::Metadata(*partial)),
            Representation::Table(_) => None,
        }
    }

    /// Says whether objects are written as they are.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.0, Representation::Whole)
    }

    /// Appends an object as of `revision`, under the name that the answer echoes, if it echoes one.
    pub(crate) fn object(&self, entry: &Entry, echo: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
        match (&self.0, echo) {
            (Representation::Whole, None) => entry.write_at(revision, out),
            (Representation::Whole, Some(name)) => entry.write_named(name, revision, out),
            (Representation::Table(sheet), echo) => table::object(sheet, entry, echo, revision, out),
            (Representation::Metadata(partial), None) => partial_entry(*partial, entry, revision, out),
            (Representation::Metadata(partial), Some(name)) => {
                let mut whole = Vec::new();
                entry.write_named(name, revision, &mut whole);
                partial.document(&whole, out);
            }
        }
    }

    /// Appends an object as an item of a list.
    pub(crate) fn item(&self, entry: &Entry, echo: Option<&str>, out: &mut Vec<u8>) {
        match (&self.0, echo) {
            (Representation::Whole, None) => entry.write_item(out),
            (Representation::Table(sheet), echo) => table::row(sheet, entry, echo, entry.revision, out),
            _ => self.object(entry, echo, entry.revision, out),
        }
    }

    /// Appends a document that is no entry: a part of a placed object, the answer to a write.
    pub(crate) fn document(&self, json: &[u8], spec: &KindSpec, out: &mut Vec<u8>) {
        match &self.0 {
            Representation::Whole => out.extend_from_slice(json.trim_ascii_end()),
            Representation::Table(_) if is_status(json) => out.extend_from_slice(json.trim_ascii_end()),
            Representation::Table(sheet) => table::document(sheet, json.trim_ascii_end(), spec, out),
            Representation::Metadata(partial) => partial.document(json, out),
        }
    }

    /// As [`Representation::list_type`].
    pub(crate) fn list_type(&self, spec: &KindSpec, out: &mut Vec<u8>) {
        let api_version = spec.gvr.api_version();
        self.0.list_type(TypeMeta { kind: &spec.gvk.kind, api_version: &api_version }, out);
    }

    /// As [`Representation::begin_items`].
    pub(crate) fn begin_items(&self, out: &mut Vec<u8>) {
        self.0.begin_items(out);
    }

    /// As [`Representation::end_items`].
    pub(crate) fn end_items(&self, is_empty: bool, out: &mut Vec<u8>) {
        self.0.end_items(is_empty, out);
    }

    /// As [`Representation::bookmark`].
    pub(crate) fn bookmark(&self, spec: &KindSpec, metadata: &str, revision: Revision, out: &mut Vec<u8>) {
        let api_version = spec.gvr.api_version();
        let of = TypeMeta { kind: &spec.gvk.kind, api_version: &api_version };
        self.0.bookmark(of, metadata, revision.0, table::now(), out);
    }

    /// As [`Representation::of_later_events`].
    pub(crate) fn of_later_events(self) -> Self {
        Self(self.0.of_later_events())
    }

    /// Says whether the objects of a list are shown in another order than the store's: that of [`Self::sort`].
    pub(crate) fn is_sorted(&self, spec: &KindSpec) -> bool {
        matches!(self.0, Representation::Table(_)) && table::is_sorted(spec)
    }

    /// Puts the objects of a list in the order in which they are shown.
    pub(crate) fn sort(&self, spec: &KindSpec, entries: &mut [Arc<Entry>]) {
        if self.is_sorted(spec) {
            table::sort(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubefold_wire::{
        accept::{PARTIAL_OBJECT, PARTIAL_OBJECT_LIST, TABLE_V1},
        resource::{Gvk, Gvr},
    };

    fn spec(group: &str, resource: &str, kind: &str) -> KindSpec {
        KindSpec::new(Gvr::new(group, "v1", resource), Gvk::new(group, "v1", kind), true)
    }

    #[test]
    fn a_form_that_does_not_fit_is_refused_as_a_kube_apiserver_refuses_it() {
        let pods = spec("", "pods", "Pod");
        let tables = Tables::default();
        assert!(Form::of_list(None, &pods, &tables).unwrap().is_whole());
        assert!(matches!(
            Form::of_list(Some(PARTIAL_OBJECT_LIST), &pods, &tables).unwrap().0,
            Representation::Metadata(_)
        ));
        assert!(matches!(Form::of_object(Some(TABLE_V1), &pods, &tables).unwrap().0, Representation::Table(_)));
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
