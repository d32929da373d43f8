//! Objects as a Table: what `kubectl get` prints. Computed at each answer, since ages are.

use std::{io::Write as _, sync::Arc};

use crate::{
    member::stores::Stores,
    read::{Asked, form::Partial},
    store::{Entry, KindSpec, Revision, unix_micros},
    table::{Include, Now, Object, Printer},
    wire::{
        accept::{TABLE_V1, Transform},
        media::is_built_in,
        options::query_value,
        resource::Gvr,
        status::Status,
    },
};

/// What a Table needs to be known beforehand.
#[derive(Default)]
pub(super) struct Tables {
    /// The parameter `includeObject`.
    include: String,
    /// Of a custom resource.
    printer: Option<Printer>,
}

impl Tables {
    /// Says whether a client asks for one.
    pub(super) fn are_wanted(transform: Option<Transform<'_>>) -> bool {
        transform.is_some_and(|wanted| wanted.kind == TABLE_V1.kind)
    }

    /// Looks up what the answer needs, if it is to be a Table.
    pub(super) async fn of(stores: &Stores, gvr: &Gvr, transform: Option<Transform<'_>>, asked: Asked<'_>) -> Self {
        if !Self::are_wanted(transform) {
            return Self::default();
        }
        let include = query_value(asked.query, "includeObject").unwrap_or_default();
        if is_built_in(&gvr.group) {
            return Self { include, printer: None };
        }
        // The future of a read must stay small.
        Self { include, printer: Box::pin(stores.printer_of(gvr)).await }
    }

    /// The table of a kind.
    ///
    /// Errors: 400, for a parameter that is not understood.
    pub(super) fn table(&self, version: &'static str, spec: &KindSpec) -> Result<Table, Status> {
        let built_in = || Printer::built_in(&spec.gvk.group, &spec.gvk.kind).unwrap_or_else(Printer::plain);
        let printer = self.printer.clone().unwrap_or_else(built_in);
        Ok(Table {
            version,
            include: self.included()?,
            partial: Partial::of(version, spec),
            printer,
            has_columns: true,
        })
    }

    /// How much of an object stands in its row.
    ///
    /// Errors: as [`Self::table`].
    pub(super) fn included(&self) -> Result<Include, Status> {
        Include::parse(&self.include).ok_or_else(|| {
            Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {:?}: must be 'Metadata', \
                 'Object', 'None', or empty",
                self.include
            ))
        })
    }
}

/// How a Table is written.
#[derive(Clone, Debug)]
pub(super) struct Table {
    version: &'static str,
    include: Include,
    /// How metadata stands in a row.
    partial: Partial,
    printer: Printer,
    has_columns: bool,
}

impl Table {
    /// The same without columns: a watch tells them with its first event only.
    pub(super) fn without_columns(mut self) -> Self {
        self.has_columns = false;
        self
    }

    /// `"kind":"Table","apiVersion":"meta.k8s.io/v1"`
    pub(super) fn type_meta(&self, out: &mut Vec<u8>) {
        // Writing to memory has no way to fail.
        let _infallible = write!(out, "\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{}\"", self.version);
    }

    /// `"columnDefinitions":[...],"rows":`
    pub(super) fn begin_rows(&self, out: &mut Vec<u8>) {
        let columns = if self.has_columns { self.printer.columns() } else { "" };
        let [open, close] = if self.has_columns { ["[", "]"] } else { ["null", ""] };
        let _infallible = write!(out, "\"columnDefinitions\":{open}{columns}{close},\"rows\":");
    }

    /// One object as a Table of one row.
    pub(super) fn object(&self, entry: &Entry, echo: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
        self.begin_single(revision, out);
        self.row(entry, echo, revision, out);
        out.extend_from_slice(b"]}");
    }

    /// An empty object of the kind, with these words as its metadata.
    pub(super) fn bookmark(&self, metadata: &str, revision: Revision, out: &mut Vec<u8>) {
        self.begin_single(revision, out);
        let json = format!("{{\"metadata\":{metadata}}}");
        let of_end = Self { include: Include::Metadata, ..self.clone() };
        // The annotation by which a client knows the end of the beginning stands in the object.
        let form = if metadata.contains("k8s.io/initial-events-end") { &of_end } else { self };
        form.document_row(&Object::new(&json), out);
        out.extend_from_slice(b"]}");
    }

    /// A document that is no entry. It may be of another kind than the resource: a scale.
    pub(super) fn document(&self, json: &[u8], spec: &KindSpec, out: &mut Vec<u8>) {
        let text = std::str::from_utf8(json).unwrap_or_default();
        let found = Found::read(text);
        let mut table = self.clone();
        if let Some(kind) = found.kind.as_deref().filter(|kind| *kind != &*spec.gvk.kind) {
            let group =
                found.api_version.as_deref().and_then(|text| text.split_once('/')).map_or("", |(group, _)| group);
            table.printer = Printer::built_in(group, kind).unwrap_or_else(Printer::plain);
        }
        let revision = found.metadata.and_then(|metadata| metadata.resource_version?.parse().ok());
        table.begin_single(Revision(revision.unwrap_or_default()), out);
        table.document_row(&Object::new(text).in_annotated_clusters(), out);
        out.extend_from_slice(b"]}");
    }

    fn begin_single(&self, revision: Revision, out: &mut Vec<u8>) {
        out.push(b'{');
        self.type_meta(out);
        let _infallible = write!(out, ",\"metadata\":{{\"resourceVersion\":\"{revision}\"}},");
        self.begin_rows(out);
        out.push(b'[');
    }

    /// A kind without a printer of its own has `rows: null` where it has no objects.
    ///
    /// Source: kubernetes/apiserver `pkg/registry/rest/table.go`.
    pub(super) fn has_no_rows_of_none(&self) -> bool {
        self.printer.is_plain()
    }

    /// One row.
    pub(super) fn row(&self, entry: &Entry, echo: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
        let clusters = || entry.holders.iter().map(|member| member.as_str());
        if let Some(name) = echo.filter(|name| *name != entry.name()) {
            let mut whole = Vec::new();
            entry.write_named(name, revision, &mut whole);
            let text = std::str::from_utf8(&whole).unwrap_or_default();
            return self.document_row(&Object::new(text).in_clusters(clusters()), out);
        }
        let (json, metadata) = entry.text_and_metadata();
        let object = Object::known(json, metadata, entry.name(), entry.deleting).in_clusters(clusters());
        self.cells(&object, out);
        match self.include {
            Include::None => out.extend_from_slice(b"null}"),
            Include::Metadata => {
                self.partial.entry(entry, revision, out);
                out.push(b'}');
            }
            Include::Object => {
                entry.write_at(revision, out);
                out.push(b'}');
            }
        }
    }

    fn document_row(&self, object: &Object<'_>, out: &mut Vec<u8>) {
        self.cells(object, out);
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

    fn cells(&self, object: &Object<'_>, out: &mut Vec<u8>) {
        let now = Now(i64::try_from(unix_micros()).unwrap_or(i64::MAX));
        out.push(b'{');
        self.printer.write_cells(object, now, out);
        out.extend_from_slice(b",\"object\":");
    }

    /// Says whether the rows of a list stand in another order than the objects.
    pub(super) fn is_sorted(&self, spec: &KindSpec) -> bool {
        &*spec.gvk.group == "flowcontrol.apiserver.k8s.io" && &*spec.gvk.kind == "FlowSchema"
    }

    /// Puts flow schemas in the order in which they are matched.
    pub(super) fn sort(&self, entries: &mut [Arc<Entry>]) {
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct Schema {
            spec: Spec,
        }
        #[derive(Default, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Spec {
            matching_precedence: i64,
        }
        let precedence = |entry: &Arc<Entry>| {
            let schema: Schema = serde_json::from_slice(entry.json()).unwrap_or_default();
            (schema.spec.matching_precedence, entry.name().to_owned())
        };
        entries.sort_by_cached_key(precedence);
    }
}

/// What a document says of itself.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Found {
    kind: Option<String>,
    api_version: Option<String>,
    metadata: Option<FoundMetadata>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FoundMetadata {
    resource_version: Option<String>,
}

impl Found {
    fn read(json: &str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }
}
