//! Objects as a Table: what `kubectl get` prints. Computed at each answer, since ages are.

use std::{borrow::Cow, sync::Arc};

use crate::{
    answer::partial::partial_entry,
    config::MemberName,
    store::{Entry, KindSpec, Revision, unix_micros},
    stores::Stores,
};
use kubefold_table::{DefinedColumn, Definition, Include, Now, Object, Printer, Sheet};
use kubefold_wire::{
    accept::{TABLE_V1, Transform},
    form::no_include,
    media::is_built_in,
    options::query_value,
    resource::Gvr,
    status::Status,
};

/// Says which members hold the object.
const CLUSTER_COLUMN: &str = "{\"name\":\"Cluster\",\"type\":\"string\",\"format\":\"\",\"description\":\"The members of \
     the fleet that hold the object.\",\"priority\":0}";

/// What a Table needs to be known beforehand.
#[derive(Default)]
pub(crate) struct Tables {
    /// The parameter `includeObject`.
    include: String,
    /// Of a custom resource.
    printer: Option<Printer>,
}

impl Tables {
    /// Says whether a client asks for one.
    pub(crate) fn are_wanted(transform: Option<Transform<'_>>) -> bool {
        transform.is_some_and(|wanted| wanted.kind == TABLE_V1.kind)
    }

    /// Looks up what the answer needs, if it is to be a Table.
    pub(crate) async fn of(stores: &Stores, gvr: &Gvr, transform: Option<Transform<'_>>, query: &str) -> Self {
        if !Self::are_wanted(transform) {
            return Self::default();
        }
        let include = query_value(query, "includeObject").unwrap_or_default();
        if is_built_in(&gvr.group) {
            return Self { include, printer: None };
        }
        // The future of a read must stay small.
        Self { include, printer: Box::pin(stores.printer_of(gvr)).await }
    }

    /// The table of a kind.
    ///
    /// Errors: 400, for a parameter that is not understood.
    pub(super) fn sheet(&self, version: &'static str, spec: &KindSpec) -> Result<Sheet, Status> {
        let printer = self.printer.clone().unwrap_or_else(|| built_in(&spec.gvk.group, &spec.gvk.kind));
        let printer = printer.with_second_column(CLUSTER_COLUMN);
        Ok(Sheet::new(version, self.included()?, (&spec.gvk.group, &spec.gvk.kind), printer))
    }

    /// The table of objects of several kinds.
    ///
    /// Errors: 400, for a parameter that is not understood.
    pub(super) fn sheet_of_kinds(&self, version: &'static str, of_kind: (&str, &str)) -> Result<Sheet, Status> {
        let column = |name: &str, type_: &str, path: &str| DefinedColumn {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: path.to_owned(),
            ..DefinedColumn::default()
        };
        let columns = Definition(vec![
            column("Kind", "string", ".kind"),
            column("API Version", "string", ".apiVersion"),
            column("Namespace", "string", ".metadata.namespace"),
            column("Age", "date", ".metadata.creationTimestamp"),
        ]);
        let printer = Printer::custom(&columns).with_second_column(CLUSTER_COLUMN);
        Ok(Sheet::new(version, self.included()?, of_kind, printer))
    }

    /// How much of an object stands in its row.
    ///
    /// Errors: as [`Self::sheet`].
    pub(crate) fn included(&self) -> Result<Include, Status> {
        Include::parse(&self.include).ok_or_else(|| no_include(&self.include))
    }
}

fn built_in(group: &str, kind: &str) -> Printer {
    Printer::built_in(group, kind).unwrap_or_else(Printer::plain)
}

/// Appends one object as a Table of one row.
pub(super) fn object(sheet: &Sheet, entry: &Entry, echo: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
    sheet.begin_single(revision.0, out);
    row(sheet, entry, echo, revision, out);
    out.extend_from_slice(b"]}");
}

/// Appends a document that is no entry. It may be of another kind than the resource: a scale.
pub(super) fn document(sheet: &Sheet, json: &[u8], spec: &KindSpec, out: &mut Vec<u8>) {
    let text = std::str::from_utf8(json).unwrap_or_default();
    let found = Found::read(text);
    let mut sheet = sheet.clone();
    if let Some(kind) = found.kind.as_deref().filter(|kind| *kind != &*spec.gvk.kind) {
        let group = found.api_version.as_deref().and_then(|text| text.split_once('/')).map_or("", |(group, _)| group);
        sheet = sheet.printed_by(built_in(group, kind).with_second_column(CLUSTER_COLUMN));
    }
    let metadata = found.metadata.unwrap_or_default();
    let revision = metadata.resource_version.and_then(|text| text.parse().ok());
    let annotations = metadata.annotations.unwrap_or_default();
    let clusters = annotations.clusters.or(annotations.cluster).unwrap_or_default();
    sheet.begin_single(revision.unwrap_or_default(), out);
    sheet.row(&Object::new(text).with_second_cell(&clusters), now(), out);
    out.extend_from_slice(b"]}");
}

/// Appends one row.
pub(super) fn row(sheet: &Sheet, entry: &Entry, echo: Option<&str>, revision: Revision, out: &mut Vec<u8>) {
    let clusters = clusters_of(entry);
    if let Some(name) = echo.filter(|name| *name != entry.name()) {
        let mut whole = Vec::new();
        entry.write_named(name, revision, &mut whole);
        let text = std::str::from_utf8(&whole).unwrap_or_default();
        return sheet.row(&Object::new(text).with_second_cell(&clusters), now(), out);
    }
    let (json, metadata) = entry.text_and_metadata();
    let object = Object::known(json, metadata, entry.name(), entry.deleting).with_second_cell(&clusters);
    sheet.begin_row(&object, now(), out);
    match sheet.include() {
        Include::None => out.extend_from_slice(b"null"),
        Include::Metadata => partial_entry(sheet.partial(), entry, revision, out),
        Include::Object => entry.write_at(revision, out),
    }
    out.push(b'}');
}

/// Says whether the rows of a list stand in another order than the objects.
pub(super) fn is_sorted(spec: &KindSpec) -> bool {
    &*spec.gvk.group == "flowcontrol.apiserver.k8s.io" && &*spec.gvk.kind == "FlowSchema"
}

/// Puts flow schemas in the order in which they are matched.
pub(super) fn sort(entries: &mut [Arc<Entry>]) {
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

/// The cell of an object's members. Allocates only if it has several.
fn clusters_of(entry: &Entry) -> Cow<'_, str> {
    match &entry.holders[..] {
        [] => Cow::Borrowed(""),
        [one] => Cow::Borrowed(one.as_str()),
        several => Cow::Owned(several.iter().map(MemberName::as_str).collect::<Vec<_>>().join(",")),
    }
}

/// When the rows are printed.
pub(super) fn now() -> Now {
    Now(i64::try_from(unix_micros()).unwrap_or(i64::MAX))
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
    annotations: Option<FoundAnnotations>,
}

/// Which members hold the object, as the fleet view annotates it.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct FoundAnnotations {
    #[serde(rename = "kubefold.io/clusters")]
    clusters: Option<String>,
    #[serde(rename = "kubefold.io/cluster")]
    cluster: Option<String>,
}

impl Found {
    fn read(json: &str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }
}
