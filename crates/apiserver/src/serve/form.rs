//! What of an object is shown: all of it, its metadata alone, or a row of cells.

use crate::{kinds::Kind, registry::Object};
use kubefold_table::{Include, Now, Object as Row, Printer, Representation, Sheet, TypeMeta};
use kubefold_wire::{
    accept::Transform,
    form::{is_status, list_metadata, no_include},
    media::is_built_in,
    protobuf::MessageType,
    resource::api_version,
    status::Status,
};

/// How objects of a kind are written.
#[derive(Clone, Debug)]
pub(super) struct Form {
    representation: Representation,
    kind: String,
    api_version: String,
    /// Items of a list do not say their type: the list does.
    bare_items: bool,
    now: Now,
}

impl Form {
    /// The form of an answer: of a list, or of single objects.
    ///
    /// Errors: 406 if it does not fit; 400 for a parameter that is not understood.
    pub(super) fn new(
        transform: Option<Transform<'static>>,
        kind: &Kind,
        printer: Option<Printer>,
        include: &str,
        is_list: bool,
        now: Now,
    ) -> Result<Self, Status> {
        let of_kind = (kind.group.as_str(), kind.kind.as_str());
        let sheet = |version| {
            let include = Include::parse(include).ok_or_else(|| no_include(include))?;
            let printer = printer.or_else(|| Printer::built_in(&kind.group, &kind.kind));
            Ok(Sheet::new(version, include, of_kind, printer.unwrap_or_else(Printer::plain)))
        };
        let representation = Representation::new(transform, of_kind, is_list, sheet)?;
        Ok(Self {
            representation,
            kind: kind.kind.clone(),
            api_version: api_version(&kind.group, &kind.version),
            bare_items: is_built_in(&kind.group),
            now,
        })
    }

    /// The message type of whole objects, if the kind has one.
    pub(super) fn message(&self) -> Option<MessageType> {
        (self.bare_items && self.is_whole()).then(|| MessageType::of(&self.api_version, &self.kind)).flatten()
    }

    /// Says whether objects are written as they are.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.representation, Representation::Whole)
    }

    /// Appends an object.
    pub(super) fn object(&self, object: &Object, out: &mut Vec<u8>) {
        match &self.representation {
            Representation::Whole => object.write_to(out),
            _ => self.document(&object.json(), object.revision(), out),
        }
    }

    /// Appends a document that may be no object of the kind: a `Status`, a `Scale`.
    pub(super) fn document(&self, json: &[u8], revision: u64, out: &mut Vec<u8>) {
        match &self.representation {
            Representation::Whole => out.extend_from_slice(json),
            Representation::Metadata(partial) => partial.document(json, out),
            Representation::Table(_) if is_status(json) => out.extend_from_slice(json),
            Representation::Table(sheet) => {
                sheet.begin_single(revision, out);
                sheet.row(&Row::new(std::str::from_utf8(json).unwrap_or_default()), self.now, out);
                out.extend_from_slice(b"]}");
            }
        }
    }

    /// Appends an object as an item of a list.
    pub(super) fn item(&self, object: &Object, out: &mut Vec<u8>) {
        match &self.representation {
            Representation::Whole if self.bare_items => {
                // `{"kind":"Pod","apiVersion":"v1",` and its quotes.
                let type_meta = self.kind.len() + self.api_version.len() + r#"{"kind":"","apiVersion":"","#.len();
                out.push(b'{');
                object.write_behind(type_meta, out);
            }
            Representation::Table(sheet) => {
                let json = object.json();
                sheet.row(&Row::new(std::str::from_utf8(&json).unwrap_or_default()), self.now, out);
            }
            _ => self.object(object, out),
        }
    }

    /// Appends the beginning of a list; every item has a `[` or a `,` before it.
    pub(super) fn begin_list(&self, revision: u64, next: Option<&str>, remaining: Option<u64>, out: &mut Vec<u8>) {
        out.push(b'{');
        self.representation.list_type(self.type_meta(), out);
        out.push(b',');
        list_metadata(revision, next, remaining, out);
        out.push(b',');
        self.representation.begin_items(out);
    }

    /// Appends the end of a list.
    pub(super) fn end_list(&self, is_empty: bool, out: &mut Vec<u8>) {
        self.representation.end_items(is_empty, out);
    }

    /// Appends an empty object of the kind, as of a revision.
    pub(super) fn bookmark(&self, revision: u64, is_end_of_beginning: bool, out: &mut Vec<u8>) {
        let annotations =
            if is_end_of_beginning { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
        let metadata = format!("{{\"resourceVersion\":\"{revision}\"{annotations}}}");
        self.representation.bookmark(self.type_meta(), &metadata, revision, self.now, out);
    }

    /// The form of what follows the first event of a watch.
    pub(super) fn of_later_events(&mut self) {
        self.representation = std::mem::take(&mut self.representation).of_later_events();
    }

    fn type_meta(&self) -> TypeMeta<'_> {
        TypeMeta { kind: &self.kind, api_version: &self.api_version }
    }
}
