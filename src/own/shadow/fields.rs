//! Columns and labels by configuration: what is shown of the items of a ShadowResource beside the items themselves.
//!
//! Columns are found at each read, in what the caller may read, and are stored nowhere; a digest of them is stored, so that a change
//! is an event. Labels are stored, since selectors are judged by what is stored: they are kubefold's own view of the items.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    object::{COLUMNS, Reference},
    world::Seen,
};
use crate::config::{ItemPath, KindPattern, ShadowFields};
use kubefold_table::{DefinedColumn, Definition, Printer};
use kubefold_wire::{jsonpath::JsonPath, names::label_value};

/// In the status: what the columns show. Never stored.
const SHOWN: &str = "columns";
/// In what is stored of the status: the labels that were computed.
const LABELS: &str = "labels";
/// In what is stored of the status: what tells that a column shows something else.
const DIGEST: &str = "columnsDigest";

/// Bytes of a digest in a state: it tells two versions of an item apart, and keeps nobody from making one up.
const DIGEST_BYTES: usize = 12;

/// Columns and labels, ready for use.
#[derive(Debug, Default)]
pub(super) struct Fields {
    config: ShadowFields,
    columns: Vec<Field>,
    labels: Vec<Field>,
    printer: Option<Printer>,
}

/// A column or a label.
#[derive(Debug)]
struct Field {
    /// What stands above the column, or the key of the label.
    name: String,
    finder: Finder,
}

/// Where a value is.
#[derive(Debug)]
struct Finder {
    kinds: Vec<KindPattern>,
    path: JsonPath,
    is_for_secrets: bool,
}

/// An item, and what is known of it.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) reference: &'a Reference,
    pub(super) seen: &'a Seen,
}

/// What is found in the items.
enum Found<'a> {
    Value(&'a Value),
    Nothing,
    /// Nobody can say what the first item is that it may be in.
    Unknown,
}

impl Finder {
    /// `None`: never, since paths were read when they were configured.
    fn of(at: &ItemPath, is_for_secrets: bool) -> Option<Self> {
        Some(Self { kinds: at.kinds.clone(), path: JsonPath::parse(&at.path)?, is_for_secrets })
    }

    fn is_about(&self, item: &Reference) -> bool {
        let (group, kind) = (item.group_version().0, &*item.kind);
        if !self.is_for_secrets && (group, kind) == ("", "Secret") {
            return false;
        }
        self.kinds.is_empty() || self.kinds.iter().any(|pattern| pattern.matches(group, kind))
    }

    fn find<'a>(&'a self, items: &'a [Item<'_>]) -> Found<'a> {
        for item in items.iter().filter(|item| self.is_about(item.reference)) {
            match item.seen {
                Seen::There(object) => {
                    if let Some(value) = self.path.first_in(object).filter(|value| !value.is_null()) {
                        return Found::Value(value);
                    }
                }
                Seen::Absent | Seen::Hidden => {}
                Seen::Unknown(_) => return Found::Unknown,
            }
        }
        Found::Nothing
    }
}

impl Fields {
    /// Those of a configuration.
    pub(super) fn of(config: &ShadowFields) -> Self {
        let columns = config
            .columns
            .iter()
            .filter_map(|column| Some(Field { name: column.name.clone(), finder: Finder::of(&column.value, true)? }));
        let labels = config
            .labels
            .iter()
            .filter_map(|label| Some(Field { name: label.key.clone(), finder: Finder::of(&label.value, false)? }));
        let (columns, labels) = (columns.collect(), labels.collect());
        Self { columns, labels, printer: printer(config), config: config.clone() }
    }

    /// Says whether they are those of a configuration.
    pub(super) fn are(&self, config: &ShadowFields) -> bool {
        self.config == *config
    }

    /// How ShadowResources are printed; `None`: as their kind says.
    pub(super) fn printer(&self) -> Option<Printer> {
        self.printer.clone()
    }

    /// Puts what the columns show into a ShadowResource that is shown.
    pub(super) fn show(&self, shown: &mut Value, items: &[Item<'_>]) {
        let Some(status) = shown.get_mut("status").and_then(Value::as_object_mut) else { return };
        for stored in [LABELS, DIGEST] {
            status.shift_remove(stored);
        }
        let columns: Vec<Value> = self.columns.iter().filter_map(|column| cell(column, items)).collect();
        put(status, SHOWN, (!columns.is_empty()).then(|| columns.into()));
    }

    /// Puts labels, and what tells that a column shows something else, into a ShadowResource that is stored.
    pub(super) fn note(&self, stored: &mut Value, items: &[Item<'_>]) {
        let before = stored.pointer(&format!("/status/{LABELS}")).and_then(Value::as_object).cloned();
        let before = before.unwrap_or_default();
        let mut labels = Map::new();
        for Field { name: key, finder } in &self.labels {
            let value = match finder.find(items) {
                Found::Value(value) => as_label(value),
                Found::Nothing => None,
                Found::Unknown => before.get(key).and_then(Value::as_str).map(str::to_owned),
            };
            labels.extend(value.map(|value| (key.clone(), Value::from(value))));
        }
        let computed = before.keys().map(String::as_str).chain(self.labels.iter().map(|label| &*label.name));
        set_labels(stored, computed, &labels);
        let digest = self.digest(items);
        let Some(status) = stored.get_mut("status").and_then(Value::as_object_mut) else { return };
        put(status, SHOWN, None);
        put(status, LABELS, (!labels.is_empty()).then_some(Value::Object(labels)));
        if let Some(digest) = digest {
            put(status, DIGEST, Some(digest).filter(|digest| !digest.is_empty()).map(Value::from));
        }
    }

    /// `None`: it is as it was, as far as anybody can say. Empty: there are no columns.
    fn digest(&self, items: &[Item<'_>]) -> Option<String> {
        if self.columns.is_empty() {
            return Some(String::new());
        }
        let mut values = Vec::new();
        for Field { name, finder } in &self.columns {
            match finder.find(items) {
                Found::Value(value) => values.push(json!([name, value])),
                Found::Nothing => {}
                Found::Unknown => return None,
            }
        }
        let mut values = Value::Array(values);
        values.sort_all_objects();
        Some(digest_of(&values))
    }
}

/// What is stored of computed fields does not come from a client, and goes from one state of an object to the next.
pub(super) fn carry_over(object: &mut Value, stored: Option<&Value>) {
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    put(status, SHOWN, None);
    for field in [LABELS, DIGEST] {
        put(status, field, stored.and_then(|stored| stored.pointer(&format!("/status/{field}"))).cloned());
    }
}

/// What tells two values apart.
pub(super) fn digest_of(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string());
    digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

fn cell(column: &Field, items: &[Item<'_>]) -> Option<Value> {
    match column.finder.find(items) {
        Found::Value(value) => Some(json!({"name": column.name, "value": value})),
        Found::Nothing | Found::Unknown => None,
    }
}

fn put(fields: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(fields.insert(field.to_owned(), value)),
        None => drop(fields.shift_remove(field)),
    }
}

/// Has an object these of the computed labels, and none of the others.
fn set_labels<'a>(object: &mut Value, computed: impl Iterator<Item = &'a str>, labels: &Map<String, Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let mut all = metadata.get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
    for key in computed.filter(|key| !labels.contains_key(*key)) {
        all.shift_remove(key);
    }
    all.extend(labels.clone());
    put(metadata, "labels", (!all.is_empty()).then_some(Value::Object(all)));
}

/// A value as a label; `None`: it cannot be one.
fn as_label(value: &Value) -> Option<String> {
    let said = match value {
        Value::String(said) => said.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    label_value(&said).is_empty().then_some(said).filter(|said| !said.is_empty())
}

/// The columns of every ShadowResource, with those of the configuration before the age.
fn printer(config: &ShadowFields) -> Option<Printer> {
    if config.columns.is_empty() {
        return None;
    }
    let own = |[name, type_, path]: &[&str; 3]| DefinedColumn {
        name: (*name).to_owned(),
        type_: (*type_).to_owned(),
        json_path: (*path).to_owned(),
        ..DefinedColumn::default()
    };
    let mut columns: Vec<DefinedColumn> = COLUMNS.iter().map(own).collect();
    let age = columns.pop();
    columns.extend(config.columns.iter().map(|column| DefinedColumn {
        name: column.name.clone(),
        type_: column.type_.clone(),
        priority: column.priority.into(),
        description: match &*column.description {
            "" => format!("The value at {} of an item.", column.value.path),
            said => said.to_owned(),
        },
        json_path: format!(".status.{SHOWN}[?(@.name==\"{}\")].value", column.name),
        ..DefinedColumn::default()
    }));
    columns.extend(age);
    Some(Printer::custom(&Definition(columns)))
}
