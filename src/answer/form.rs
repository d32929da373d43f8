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
use kubefold_table::{Object, Representation, TypeMeta};
use kubefold_wire::{
    accept::{PARTIAL_OBJECT, Transform},
    form::is_status,
    locate::TypeOf,
    media::Media,
    protobuf::{self, EncodeError, MessageType},
    status::Status,
    watch::EventType,
};

/// How objects are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form {
    shown: Representation,
    /// What they are written as in protobuf; absent in JSON.
    message: Option<Message>,
}

/// A type of messages, and how an envelope names it.
#[derive(Clone, Debug)]
struct Message {
    of: MessageType,
    api_version: String,
    kind: String,
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
        Representation::new(transform, kind, is_list, |version| tables.sheet(version, spec))
            .map(|shown| Self { shown, message: None })
    }

    /// The same in protobuf, where that has a message of it: not of Tables, and not of custom resources.
    pub(crate) fn in_protobuf(self, spec: &KindSpec) -> Self {
        let TypeMeta { kind, api_version } = match &self.shown {
            Representation::Whole => TypeMeta { kind: &spec.gvk.kind, api_version: &spec.gvr.api_version() },
            Representation::Metadata(partial) => {
                TypeMeta { kind: PARTIAL_OBJECT.kind, api_version: &partial.api_version() }
            }
            Representation::Table(_) => return self,
        };
        let message = MessageType::of(api_version, kind).map(|of| Message {
            of,
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        });
        Self { message, ..self }
    }

    /// Says whether objects are written as protobuf messages.
    pub(crate) fn is_protobuf(&self) -> bool {
        self.message.is_some()
    }

    /// In what objects are written.
    pub(crate) fn media(&self) -> Media {
        if self.is_protobuf() { Media::Protobuf } else { Media::Json }
    }

    /// The length of an object's message as an item of a list.
    ///
    /// Shape: `scratch` is memory to make it in.
    /// Errors: as [`Self::message`].
    pub(crate) fn message_len(
        &self,
        entry: &Entry,
        echo: Option<&str>,
        scratch: &mut Vec<u8>,
    ) -> Result<usize, EncodeError> {
        if let Some(len) = self.own_message(echo).and_then(|_| entry.message_len()) {
            return Ok(len);
        }
        scratch.clear();
        self.message(entry, echo, entry.revision, scratch)?;
        Ok(scratch.len())
    }

    /// Appends an object's message as of `revision`.
    ///
    /// Errors: the object has what its type has not. Nothing is appended then.
    pub(crate) fn message(
        &self,
        entry: &Entry,
        echo: Option<&str>,
        revision: Revision,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let message = self.message.as_ref().ok_or(EncodeError::UnknownKind)?;
        if let Some(of) = self.own_message(echo).filter(|_| revision == entry.revision) {
            return entry.write_message(of, out);
        }
        let mut json = Vec::with_capacity(entry.json().len());
        self.object(entry, echo, revision, &mut json);
        message.of.encode(std::str::from_utf8(&json).unwrap_or_default(), out)
    }

    /// The type of the messages that are the same for everyone: of whole objects, under their own names.
    pub(crate) fn own_message(&self, echo: Option<&str>) -> Option<MessageType> {
        self.message.as_ref().filter(|_| self.is_whole() && echo.is_none()).map(|message| message.of)
    }

    /// Puts a message of this form into its envelope.
    pub(crate) fn envelope(&self, message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(Message { api_version, kind, .. }) = &self.message {
            protobuf::write_object(TypeOf { kind, api_version }, message, &mut out);
        }
        out
    }

    /// Appends an event of a watch.
    ///
    /// Errors: as [`Self::message`], of an object in protobuf.
    pub(crate) fn event(
        &self,
        event_type: EventType,
        entry: &Entry,
        echo: Option<&str>,
        revision: Revision,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        if let Some(Message { api_version, kind, .. }) = &self.message {
            let mut message = Vec::with_capacity(entry.message_len().unwrap_or_else(|| entry.json().len()));
            self.message(entry, echo, revision, &mut message)?;
            protobuf::write_event(event_type.as_str(), TypeOf { kind, api_version }, &message, out);
            return Ok(());
        }
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(event_type.as_str().as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.object(entry, echo, revision, out);
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    /// An event of a watch that is about no object, a line of JSON, as this form writes it.
    pub(crate) fn line(&self, line: Vec<u8>) -> Vec<u8> {
        if !self.is_protobuf() {
            return line;
        }
        // Statuses and metadata have messages.
        protobuf::watch_frame(std::str::from_utf8(&line).unwrap_or_default()).unwrap_or_default()
    }

    /// How objects are written, where that is the same at every time and for every client. `None`: rows have ages.
    pub(crate) fn written(&self) -> Option<Written> {
        match &self.shown {
            Representation::Whole => Some(Written::Whole),
            Representation::Metadata(partial) => Some(Written::Metadata(*partial)),
            Representation::Table(_) => None,
        }
    }

    /// Says whether objects are written as they are.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.shown, Representation::Whole)
    }

    /// Appends an object as of `revision`, under the name that the answer echoes, if it echoes one.
    pub(crate) fn object(&self, entry: &Entry, echo: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
        match (&self.shown, echo) {
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
        match (&self.shown, echo) {
            (Representation::Whole, None) => entry.write_item(out),
            (Representation::Table(sheet), echo) => table::row(sheet, entry, echo, entry.revision, out),
            _ => self.object(entry, echo, entry.revision, out),
        }
    }

    /// Appends a document that is no entry: a part of a placed object, the answer to a write.
    pub(crate) fn document(&self, json: &[u8], spec: &KindSpec, out: &mut Vec<u8>) {
        match &self.shown {
            Representation::Whole => out.extend_from_slice(json.trim_ascii_end()),
            Representation::Table(_) if is_status(json) => out.extend_from_slice(json.trim_ascii_end()),
            Representation::Table(sheet) => table::document(sheet, json.trim_ascii_end(), spec, out),
            Representation::Metadata(partial) => partial.document(json, out),
        }
    }

    /// Appends a member's own document as an item of a list; a Table says whose it is.
    pub(crate) fn member_item(&self, json: &str, member: &str, out: &mut Vec<u8>) {
        match &self.shown {
            Representation::Whole => out.extend_from_slice(json.as_bytes()),
            Representation::Table(sheet) => {
                sheet.row(&Object::new(json).with_second_cell(member), table::now(), out);
            }
            Representation::Metadata(partial) => partial.document(json.as_bytes(), out),
        }
    }

    /// Appends a member's own document as one object, as of `revision`.
    pub(crate) fn member_object(&self, json: &str, member: &str, revision: Revision, out: &mut Vec<u8>) {
        let Representation::Table(sheet) = &self.shown else { return self.member_item(json, member, out) };
        sheet.begin_single(revision.0, out);
        self.member_item(json, member, out);
        out.extend_from_slice(b"]}");
    }

    /// The form of a list of several kinds: in a Table each row says of which kind it is.
    ///
    /// Errors: 406 if it is one for objects; 400 for a parameter that is not understood.
    pub(crate) fn of_kinds(
        transform: Option<Transform<'static>>,
        of_kind: (&str, &str),
        tables: &Tables,
    ) -> Result<Self, Status> {
        // A collection is one object to Clusterpedia, and a list to kubectl's table printer.
        let is_list = transform.is_none_or(|wanted| wanted.kind != PARTIAL_OBJECT.kind);
        Representation::new(transform, of_kind, is_list, |version| tables.sheet_of_kinds(version, of_kind))
            .map(|shown| Self { shown, message: None })
    }

    /// As [`Representation::list_type`].
    pub(crate) fn list_type(&self, spec: &KindSpec, out: &mut Vec<u8>) {
        let api_version = spec.gvr.api_version();
        self.shown.list_type(TypeMeta { kind: &spec.gvk.kind, api_version: &api_version }, out);
    }

    /// As [`Representation::begin_items`].
    pub(crate) fn begin_items(&self, out: &mut Vec<u8>) {
        self.shown.begin_items(out);
    }

    /// As [`Representation::end_items`].
    pub(crate) fn end_items(&self, is_empty: bool, out: &mut Vec<u8>) {
        self.shown.end_items(is_empty, out);
    }

    /// The type of an object of several kinds' objects.
    pub(crate) fn collection_type(&self, of: TypeMeta<'_>, out: &mut Vec<u8>) {
        match &self.shown {
            Representation::Whole => {
                for part in ["\"kind\":\"", of.kind, "\",\"apiVersion\":\"", of.api_version, "\""] {
                    out.extend_from_slice(part.as_bytes());
                }
            }
            shown => shown.list_type(of, out),
        }
    }

    /// As [`Representation::bookmark`], of such a type.
    pub(crate) fn collection_bookmark(&self, of: TypeMeta<'_>, metadata: &str, revision: Revision, out: &mut Vec<u8>) {
        self.shown.bookmark(of, metadata, revision.0, table::now(), out);
    }

    /// As [`Representation::bookmark`].
    pub(crate) fn bookmark(&self, spec: &KindSpec, metadata: &str, revision: Revision, out: &mut Vec<u8>) {
        let api_version = spec.gvr.api_version();
        let of = TypeMeta { kind: &spec.gvk.kind, api_version: &api_version };
        self.shown.bookmark(of, metadata, revision.0, table::now(), out);
    }

    /// As [`Representation::of_later_events`].
    pub(crate) fn of_later_events(self) -> Self {
        Self { shown: self.shown.of_later_events(), ..self }
    }

    /// Says whether the objects of a list are shown in another order than the store's: that of [`Self::sort`].
    pub(crate) fn is_sorted(&self, spec: &KindSpec) -> bool {
        matches!(self.shown, Representation::Table(_)) && table::is_sorted(spec)
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
            Form::of_list(Some(PARTIAL_OBJECT_LIST), &pods, &tables).unwrap().shown,
            Representation::Metadata(_)
        ));
        assert!(matches!(Form::of_object(Some(TABLE_V1), &pods, &tables).unwrap().shown, Representation::Table(_)));
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
