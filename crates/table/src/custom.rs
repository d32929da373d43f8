//! Custom resources, by the columns that their definition names.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/registry/customresource/tableconvertor/tableconvertor.go`.

use kubefold_wire::{golang, jsonpath::JsonPath};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cells::Cells,
    columns::{AGE, NAME},
    duration::parse_time,
    object::Object,
};

/// The columns of one version of a custom resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition(pub Vec<DefinedColumn>);

/// One of `additionalPrinterColumns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DefinedColumn {
    /// What stands above it.
    pub name: String,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub type_: String,
    /// As OpenAPI formats.
    pub format: String,
    /// What it means.
    pub description: String,
    /// Above 0: for `-o wide` only.
    pub priority: i64,
    /// Where it is.
    pub json_path: String,
}

impl Definition {
    /// Reads a `CustomResourceDefinition`. `None`: it has no such version.
    pub fn of_version(definition: &str, version: &str) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Whole {
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            versions: Vec<Version>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Version {
            name: String,
            additional_printer_columns: Vec<DefinedColumn>,
        }
        let whole: Whole = serde_json::from_str(definition).ok()?;
        let found = whole.spec.versions.into_iter().find(|one| one.name == version)?;
        Some(Self(found.additional_printer_columns))
    }
}

/// Where the cells behind the name come from.
#[derive(Debug)]
pub(super) struct Custom {
    cells: Vec<(Type, JsonPath)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Integer,
    Number,
    String,
    Boolean,
    Date,
    Unknown,
}

impl Custom {
    /// The columns' JSON, and the cells behind the name. From the first path on that is not understood there are none.
    pub(super) fn new(definition: &Definition) -> (Vec<String>, Self) {
        let mut columns = vec![NAME.clone()];
        let mut cells = Vec::new();
        for column in &definition.0 {
            let Some(path) = JsonPath::parse(&column.json_path) else { break };
            let type_ = match column.type_.as_str() {
                "integer" => Type::Integer,
                "number" => Type::Number,
                "string" => Type::String,
                "boolean" => Type::Boolean,
                "date" => Type::Date,
                _ => Type::Unknown,
            };
            columns.push(column.json());
            cells.push((type_, path));
        }
        if definition.0.is_empty() {
            columns.push(AGE.replacen("\"type\":\"string\"", "\"type\":\"date\"", 1));
            cells.extend(JsonPath::parse(".metadata.creationTimestamp").map(|path| (Type::Date, path)));
        }
        (columns, Self { cells })
    }

    pub(super) fn print(&self, object: &Object<'_>, cells: &mut Cells<'_>) {
        cells.name();
        let mut whole = None;
        for (type_, path) in &self.cells {
            match path.first(object.json(), &mut whole) {
                Some(value) => print(*type_, &value, cells),
                None => cells.null(),
            }
        }
    }
}

/// `cellForJSONValue`
fn print(type_: Type, value: &Value, cells: &mut Cells<'_>) {
    match (type_, value) {
        (Type::String, Value::String(text)) => cells.text(text),
        (Type::String, Value::Null) => cells.text("<no value>"),
        (Type::String, Value::Number(number)) => match number.as_i64() {
            Some(number) => cells.print(format_args!("{number}")),
            None => cells.text(&golang::float(number.as_f64().unwrap_or_default())),
        },
        (Type::String, Value::Bool(value)) => cells.print(format_args!("{value}")),
        (Type::String, Value::Array(_) | Value::Object(_)) => cells.text(&golang::json(value)),
        (Type::Integer, Value::Number(number)) => match number.as_i64() {
            Some(number) => cells.number(number),
            None => {
                // As Go converts a float to an integer: the fraction is cut off.
                #[allow(clippy::cast_possible_truncation, reason = "it saturates")]
                cells.number(number.as_f64().unwrap_or_default() as i64);
            }
        },
        (Type::Number, Value::Number(number)) => cells.json(&golang::json_float(number.as_f64().unwrap_or_default())),
        (Type::Boolean, Value::Bool(value)) => cells.bool(*value),
        (Type::Date, Value::String(text)) => match (text.as_str(), parse_time(text)) {
            ("" | "null", _) => cells.text("<unknown>"),
            (_, None) => cells.text("<invalid>"),
            (_, time) => cells.since(time),
        },
        _ => cells.null(),
    }
}

impl DefinedColumn {
    fn json(&self) -> String {
        let mut description = self.description.clone();
        if description.is_empty() {
            description = format!("Custom resource definition column (in JSONPath format): {}", self.json_path);
        }
        let text = |text: &str| golang::json(&Value::String(text.to_owned()));
        format!(
            "{{\"name\":{},\"type\":{},\"format\":{},\"description\":{},\"priority\":{}}}",
            text(&self.name),
            text(&self.type_),
            text(&self.format),
            text(&description),
            self.priority
        )
    }
}
