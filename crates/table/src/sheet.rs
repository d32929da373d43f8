//! Tables as JSON: their heads, columns and rows, of objects that are nothing but text.

use std::io::Write as _;

use crate::{Include, Now, Object, Printer};
use kubefold_wire::form::Partial;

/// How a Table is written.
#[derive(Clone, Debug)]
pub struct Sheet {
    version: &'static str,
    include: Include,
    /// How metadata stands in a row.
    partial: Partial,
    printer: Printer,
    has_columns: bool,
}

impl Sheet {
    /// A table of this version of `meta.k8s.io`, of objects of this kind.
    pub fn new(version: &'static str, include: Include, of_kind: (&str, &str), printer: Printer) -> Self {
        let (group, kind) = of_kind;
        Self { version, include, partial: Partial::of(version, group, kind), printer, has_columns: true }
    }

    /// How metadata stands in a row.
    pub fn partial(&self) -> Partial {
        self.partial
    }

    /// A kind without a printer of its own has `rows: null` where it has no objects.
    ///
    /// Source: kubernetes/apiserver `pkg/registry/rest/table.go`.
    pub fn has_no_rows_of_none(&self) -> bool {
        self.printer.is_plain()
    }

    /// The same without columns: a watch tells them with its first event only.
    #[must_use]
    pub fn without_columns(mut self) -> Self {
        self.has_columns = false;
        self
    }

    /// The same with another printer: of a row that is of another kind.
    #[must_use]
    pub fn printed_by(mut self, printer: Printer) -> Self {
        self.printer = printer;
        self
    }

    /// How much of an object stands beside its cells.
    pub fn include(&self) -> Include {
        self.include
    }

    /// `"kind":"Table","apiVersion":"meta.k8s.io/v1"`
    pub fn type_meta(&self, out: &mut Vec<u8>) {
        // Writing to memory has no way to fail.
        let _infallible = write!(out, "\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{}\"", self.version);
    }

    /// `"columnDefinitions":[...],"rows":`
    pub fn begin_rows(&self, out: &mut Vec<u8>) {
        let columns = if self.has_columns { self.printer.columns() } else { String::new() };
        let [open, close] = if self.has_columns { ["[", "]"] } else { ["null", ""] };
        let _infallible = write!(out, "\"columnDefinitions\":{open}{columns}{close},\"rows\":");
    }

    /// A Table of one row, up to the row; `]}` ends it.
    pub fn begin_single(&self, revision: u64, out: &mut Vec<u8>) {
        out.push(b'{');
        self.type_meta(out);
        let _infallible = write!(out, ",\"metadata\":{{\"resourceVersion\":\"{revision}\"}},");
        self.begin_rows(out);
        out.push(b'[');
    }

    /// An empty object of the kind, with these words as its metadata.
    pub fn bookmark(&self, metadata: &str, revision: u64, now: Now, out: &mut Vec<u8>) {
        self.begin_single(revision, out);
        let json = format!("{{\"metadata\":{metadata}}}");
        let of_end = Self { include: Include::Metadata, ..self.clone() };
        // The annotation by which a client knows the end of the beginning stands in the object.
        let form = if metadata.contains("k8s.io/initial-events-end") { &of_end } else { self };
        form.row(&Object::new(&json), now, out);
        out.extend_from_slice(b"]}");
    }

    /// One row.
    pub fn row(&self, object: &Object<'_>, now: Now, out: &mut Vec<u8>) {
        self.begin_row(object, now, out);
        match self.include {
            Include::None => out.extend_from_slice(b"null}"),
            Include::Metadata => {
                self.partial.metadata(object.metadata_json().as_bytes(), out);
                out.push(b'}');
            }
            Include::Object => {
                out.extend_from_slice(object.json().as_bytes());
                out.push(b'}');
            }
        }
    }

    /// A row up to its object.
    pub fn begin_row(&self, object: &Object<'_>, now: Now, out: &mut Vec<u8>) {
        out.push(b'{');
        self.printer.write_cells(object, now, out);
        out.extend_from_slice(b",\"object\":");
    }
}
