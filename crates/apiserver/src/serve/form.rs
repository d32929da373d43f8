//! What of an object is shown: all of it, its metadata alone, or a row of cells.

use std::io::Write as _;

use crate::{kinds::Kind, registry::Object};
use kubefold_table::{Include, Now, Object as Row, Printer, Sheet};
use kubefold_wire::{
    accept::{PARTIAL_OBJECT, PARTIAL_OBJECT_LIST, TABLE_V1, Transform},
    form::{Partial, is_status, list_metadata, no_include, unfit},
    media::is_built_in,
    resource::api_version,
    status::Status,
};

/// How objects of a kind are written.
#[derive(Clone, Debug)]
pub(super) struct Form {
    shape: Shape,
    kind: String,
    api_version: String,
    /// Items of a list do not say their type: the list does.
    bare_items: bool,
    now: Now,
}

#[derive(Clone, Debug)]
enum Shape {
    Whole,
    Metadata(Partial),
    Table(Box<Sheet>),
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
        let partial = if is_list { PARTIAL_OBJECT_LIST.kind } else { PARTIAL_OBJECT.kind };
        let shape = match transform {
            None => Shape::Whole,
            Some(wanted) if wanted.kind == TABLE_V1.kind => {
                let include = Include::parse(include).ok_or_else(|| no_include(include))?;
                let printer = printer.or_else(|| Printer::built_in(&kind.group, &kind.kind));
                let printer = printer.unwrap_or_else(Printer::plain);
                Shape::Table(Box::new(Sheet::new(wanted.version, include, (&kind.group, &kind.kind), printer)))
            }
            Some(wanted) if wanted.kind == partial => {
                Shape::Metadata(Partial::of(wanted.version, &kind.group, &kind.kind))
            }
            Some(wanted) => return Err(unfit(wanted, is_list, &kind.group, &kind.kind)),
        };
        Ok(Self {
            shape,
            kind: kind.kind.clone(),
            api_version: api_version(&kind.group, &kind.version),
            bare_items: is_built_in(&kind.group),
            now,
        })
    }

    /// Appends an object.
    pub(super) fn object(&self, object: &Object, out: &mut Vec<u8>) {
        match &self.shape {
            Shape::Whole => object.write_to(out),
            _ => self.document(&object.json(), object.revision(), out),
        }
    }

    /// Appends a document that may be no object of the kind: a `Status`, a `Scale`.
    pub(super) fn document(&self, json: &[u8], revision: u64, out: &mut Vec<u8>) {
        match &self.shape {
            Shape::Whole => out.extend_from_slice(json),
            Shape::Metadata(partial) => partial.document(json, out),
            Shape::Table(_) if is_status(json) => out.extend_from_slice(json),
            Shape::Table(sheet) => {
                sheet.begin_single(revision, out);
                sheet.row(&Row::new(std::str::from_utf8(json).unwrap_or_default()), self.now, out);
                out.extend_from_slice(b"]}");
            }
        }
    }

    /// Appends an object as an item of a list.
    pub(super) fn item(&self, object: &Object, out: &mut Vec<u8>) {
        match &self.shape {
            Shape::Whole if self.bare_items => {
                let start = out.len();
                object.write_to(out);
                // `"kind":"Pod","apiVersion":"v1",` and its quotes.
                let type_meta = self.kind.len() + self.api_version.len() + r#""kind":"","apiVersion":"","#.len();
                if out.len() > start + 1 + type_meta {
                    out.drain(start + 1..start + 1 + type_meta);
                }
            }
            Shape::Table(sheet) => {
                let json = object.json();
                sheet.row(&Row::new(std::str::from_utf8(&json).unwrap_or_default()), self.now, out);
            }
            _ => self.object(object, out),
        }
    }

    /// Appends the beginning of a list; every item has a `[` or a `,` before it.
    pub(super) fn begin_list(&self, revision: u64, next: Option<&str>, remaining: Option<u64>, out: &mut Vec<u8>) {
        out.push(b'{');
        self.type_meta("List", out);
        out.push(b',');
        list_metadata(revision, next, remaining, out);
        out.push(b',');
        match &self.shape {
            Shape::Table(sheet) => sheet.begin_rows(out),
            _ => out.extend_from_slice(b"\"items\":"),
        }
    }

    /// Appends the end of a list. Where a kube-apiserver says `null`, so does this.
    pub(super) fn end_list(&self, is_empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(match &self.shape {
            Shape::Table(sheet) if is_empty && sheet.has_no_rows_of_none() => b"null}\n",
            Shape::Metadata(_) if is_empty => b"null}\n",
            _ if is_empty => b"[]}\n",
            _ => b"]}\n",
        });
    }

    /// Appends an empty object of the kind, as of a revision.
    pub(super) fn bookmark(&self, revision: u64, is_end_of_beginning: bool, out: &mut Vec<u8>) {
        let annotations =
            if is_end_of_beginning { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
        let metadata = format!("{{\"resourceVersion\":\"{revision}\"{annotations}}}");
        if let Shape::Table(sheet) = &self.shape {
            return sheet.bookmark(&metadata, revision, self.now, out);
        }
        out.push(b'{');
        self.type_meta("", out);
        out.extend_from_slice(b",\"metadata\":");
        out.extend_from_slice(metadata.as_bytes());
        out.push(b'}');
    }

    /// The form of what follows the first event of a watch.
    pub(super) fn of_later_events(&mut self) {
        if let Shape::Table(sheet) = &self.shape {
            self.shape = Shape::Table(Box::new(sheet.as_ref().clone().without_columns()));
        }
    }

    fn type_meta(&self, suffix: &str, out: &mut Vec<u8>) {
        // Writing to memory has no way to fail.
        let _infallible = match &self.shape {
            Shape::Whole => {
                write!(out, "\"kind\":\"{}{suffix}\",\"apiVersion\":\"{}\"", self.kind, self.api_version)
            }
            Shape::Table(sheet) => {
                sheet.type_meta(out);
                Ok(())
            }
            Shape::Metadata(partial) => {
                partial.type_meta(suffix, out);
                Ok(())
            }
        };
    }
}
