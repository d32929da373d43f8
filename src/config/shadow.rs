//! `shadowResources` of `clusters.yaml`: columns and labels of ShadowResources that are read from their items.

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::config::{
    KindPattern, PolicyProblem, Problem, ShadowProblem,
    checked::{Checked, fault, kind_name, label_key},
};
use kubefold_wire::jsonpath::JsonPath;

/// More columns than this no terminal shows.
const COLUMNS_MAX: usize = 32;
/// More labels than this nobody selects by.
const LABELS_MAX: usize = 32;
/// A name of a column has at most so many bytes.
const NAME_MAX: usize = 63;
/// Those that every ShadowResource has.
const OWN_COLUMNS: [&str; 4] = ["NAME", "READY", "STATUS", "AGE"];
/// The types of columns, as a CustomResourceDefinition has them.
const TYPES: [&str; 5] = ["string", "integer", "number", "boolean", "date"];

/// What ShadowResources show of their items (docs/shadow-resources.md).
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawShadowResources {
    /// Columns of `kubectl get shadow`, between STATUS and AGE.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawColumn>"))]
    columns: Vec<Spanned<RawColumn>>,
    /// Labels that ShadowResources have by what their items are, so that lists and watches can select by them. What a client
    /// writes to such a label has no effect.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawLabel>"))]
    labels: Vec<Spanned<RawLabel>>,
}

/// A column of ShadowResources. It shows the first value that `path` finds in an item of one of the `kinds`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawColumn {
    /// What stands above it: `VERSION`.
    #[cfg_attr(test, schemars(with = "String"))]
    name: Spanned<String>,
    /// The JSONPath of the value in an item, as in `additionalPrinterColumns` of a CustomResourceDefinition: `.spec.version`.
    #[cfg_attr(test, schemars(with = "String"))]
    path: Spanned<String>,
    /// The kinds of items in which it is looked for: `Redis.example.com`, or `Deployment`. Default: all.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    kinds: Vec<Spanned<String>>,
    /// `string` (the default), `integer`, `number`, `boolean` or `date`. A value of another type is shown as nothing.
    #[serde(rename = "type")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    type_: Option<Spanned<String>>,
    /// Above 0: the column is in `kubectl get -o wide` only. Default: 0.
    #[serde(default)]
    priority: u8,
    /// What the column means.
    #[serde(default)]
    description: String,
}

/// A label of ShadowResources. Its value is the first that `path` finds in an item of one of the `kinds`; a ShadowResource in which there
/// is none, or one that cannot be the value of a label, does not have the label.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLabel {
    /// The key: `store.example.com/engine`.
    #[cfg_attr(test, schemars(with = "String"))]
    key: Spanned<String>,
    /// The JSONPath of the value in an item: `.kind`. Whoever may read the ShadowResource sees the value, whether or not he may read
    /// the item.
    #[cfg_attr(test, schemars(with = "String"))]
    path: Spanned<String>,
    /// The kinds of items in which it is looked for. Default: all but Secrets.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    kinds: Vec<Spanned<String>>,
}

/// What ShadowResources show of their items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowFields {
    /// In their order.
    pub columns: Vec<ItemColumn>,
    /// In their order.
    pub labels: Vec<ItemLabel>,
}

/// A column of ShadowResources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemColumn {
    /// What stands above it.
    pub name: String,
    /// Such as `string`.
    pub type_: String,
    /// Above 0: for `-o wide` only.
    pub priority: u8,
    /// Empty where nothing is said.
    pub description: String,
    /// Where the value is.
    pub value: ItemPath,
}

/// A label of ShadowResources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemLabel {
    /// Its key.
    pub key: String,
    /// Where the value is.
    pub value: ItemPath,
}

/// Where a value is in items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemPath {
    /// In which items; empty: in all.
    pub kinds: Vec<KindPattern>,
    /// A JSONPath that [`JsonPath::parse`] takes.
    pub path: String,
}

/// Reads all of it.
pub(super) fn shadow_fields(raw: &RawShadowResources) -> Checked<ShadowFields> {
    let mut fields = ShadowFields::default();
    for at in &raw.columns {
        let column = column(at)?;
        let is_taken = |name: &str| name.eq_ignore_ascii_case(&column.name);
        if OWN_COLUMNS.into_iter().chain(fields.columns.iter().map(|other| &*other.name)).any(is_taken) {
            return refuse(&at.value.name, ShadowProblem::NameTaken { name: column.name });
        }
        fields.columns.push(column);
        if fields.columns.len() > COLUMNS_MAX {
            return refuse(at, ShadowProblem::TooMany { what: "columns", max: COLUMNS_MAX });
        }
    }
    for at in &raw.labels {
        let label = label(at)?;
        if fields.labels.iter().any(|other| other.key == label.key) {
            return refuse(&at.value.key, ShadowProblem::KeyTaken { key: label.key });
        }
        fields.labels.push(label);
        if fields.labels.len() > LABELS_MAX {
            return refuse(at, ShadowProblem::TooMany { what: "labels", max: LABELS_MAX });
        }
    }
    Ok(fields)
}

fn refuse<T, V>(at: &Spanned<V>, problem: ShadowProblem) -> Checked<T> {
    fault(at, Problem::Shadow(problem))
}

fn column(at: &Spanned<RawColumn>) -> Checked<ItemColumn> {
    let RawColumn { name, path, kinds, type_, priority, description } = &at.value;
    // It stands between quotes in a JSONPath.
    let is_named = |c: char| c.is_alphanumeric() || " -_/%.".contains(c);
    if name.value.trim().is_empty() || name.value.len() > NAME_MAX || !name.value.chars().all(is_named) {
        return refuse(name, ShadowProblem::Name { name: name.value.clone(), max: NAME_MAX });
    }
    if let Some(unknown) = type_.as_ref().filter(|type_| !TYPES.contains(&&*type_.value)) {
        return refuse(unknown, ShadowProblem::Type { type_: unknown.value.clone() });
    }
    Ok(ItemColumn {
        name: name.value.clone(),
        type_: type_.as_ref().map_or("string", |type_| &type_.value).to_owned(),
        priority: *priority,
        description: description.clone(),
        value: item_path(path, kinds)?,
    })
}

fn label(at: &Spanned<RawLabel>) -> Checked<ItemLabel> {
    let RawLabel { key, path, kinds } = &at.value;
    label_key(key, &key.value)?;
    if let Some(secret) = kinds.iter().find(|kind| kind.value == "Secret") {
        return refuse(secret, ShadowProblem::LabelOfSecret);
    }
    Ok(ItemLabel { key: key.value.clone(), value: item_path(path, kinds)? })
}

fn item_path(path: &Spanned<String>, kinds: &[Spanned<String>]) -> Checked<ItemPath> {
    // A word that no dot or bracket leads is a word of templates, with which nothing is found.
    let is_path = path.value.starts_with(['.', '[']) && JsonPath::parse(&path.value).is_some();
    if !is_path {
        return refuse(path, ShadowProblem::Path { path: path.value.clone() });
    }
    let pattern = |at: &Spanned<String>| match kind_name(&at.value) {
        Some((kind, group)) => Ok(KindPattern { kind: kind.to_owned(), group: group.map(str::to_owned) }),
        None => fault(at, Problem::Policy(PolicyProblem::Kind { kind: at.value.clone() })),
    };
    Ok(ItemPath { kinds: kinds.iter().map(pattern).collect::<Checked<_>>()?, path: path.value.clone() })
}
