//! Server-side printing: columns and cells per kind, as a kube-apiserver prints them. Pure: the clock is a value.
//!
//! A caller may insert one column of its own behind the first: [`Printer::with_second_column`], [`Object::with_second_cell`].
//!
//! Source: kubernetes `pkg/printers/internalversion/printers.go`; apiextensions-apiserver
//! `pkg/registry/customresource/tableconvertor`; apiserver `pkg/registry/rest/table.go`.
//!
//! May name: `wire`.

mod cells;
mod columns;
mod custom;
mod duration;
mod form;
mod kinds;
mod object;
mod selector;
mod sheet;
#[cfg(test)]
mod tests;

pub use {
    cells::Now,
    custom::{DefinedColumn, Definition},
    duration::human,
    form::{Representation, TypeMeta},
    object::Object,
    sheet::Sheet,
};

use std::{borrow::Cow, io::Write as _, sync::Arc};

use cells::Cells;
use columns::{CREATED_AT, NAME, built_in};
use custom::Custom;
use kinds::Print;

/// How much of an object stands beside its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the parameter `includeObject`. `None`: it is not one of the three words.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// How the objects of one kind are printed.
#[derive(Clone, Debug)]
pub struct Printer {
    /// JSON objects.
    columns: Arc<[Cow<'static, str>]>,
    row: Row,
    /// Whether the second column is the caller's.
    has_second: bool,
}

#[derive(Clone, Debug)]
enum Row {
    /// A kind that a kube-apiserver has a printer for.
    BuiltIn(Print),
    /// A custom resource.
    Custom(Arc<Custom>),
    /// Its name, and when it was made.
    Plain,
}

impl Printer {
    /// The printer of a kind that a kube-apiserver brings itself; `None` for others.
    pub fn built_in(group: &str, kind: &str) -> Option<Self> {
        let found = built_in(group, kind)?;
        Some(match kinds::of(group, kind) {
            Some(print) => Self::new(found.into_iter().map(Cow::Borrowed), Row::BuiltIn(print)),
            None => Self::plain(),
        })
    }

    /// The printer of a custom resource.
    pub fn custom(definition: &Definition) -> Self {
        let (columns, custom) = Custom::new(definition);
        Self::new(columns.into_iter().map(Cow::Owned), Row::Custom(Arc::new(custom)))
    }

    /// The printer of any other kind.
    pub fn plain() -> Self {
        Self::new([NAME.as_str(), CREATED_AT.as_str()].map(Cow::Borrowed), Row::Plain)
    }

    fn new(columns: impl IntoIterator<Item = Cow<'static, str>>, row: Row) -> Self {
        Self { columns: columns.into_iter().collect(), row, has_second: false }
    }

    /// The same with a column behind the first, a JSON object, whose cells are [`Object::with_second_cell`].
    #[must_use]
    pub fn with_second_column(mut self, column: &'static str) -> Self {
        let mut columns = self.columns.to_vec();
        columns.insert(1.min(columns.len()), Cow::Borrowed(column));
        (self.columns, self.has_second) = (columns.into(), true);
        self
    }

    /// It is of a kind that nobody brings columns for.
    pub fn is_plain(&self) -> bool {
        matches!(self.row, Row::Plain)
    }

    /// The columns, as they stand between brackets.
    pub fn columns(&self) -> String {
        self.columns.join(",")
    }

    /// Appends `"cells":[...]`, and the row's conditions if it has any.
    pub fn write_cells(&self, object: &Object<'_>, now: Now, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"cells\":[");
        let start = out.len();
        let mut cells = Cells::new(object, now, self.has_second, out);
        let printed = match &self.row {
            Row::BuiltIn(print) => print(object, &mut cells),
            Row::Custom(custom) => {
                custom.print(object, &mut cells);
                Ok(())
            }
            Row::Plain => {
                cells.text(&object.name());
                let created = object.creation().unwrap_or("0001-01-01T00:00:00Z");
                cells.text(created);
                Ok(())
            }
        };
        // Of addresses a kube-apiserver has one cell more than columns.
        if printed.is_err() || cells.count() < self.columns.len() {
            // An object that is not what its kind says: a row has as many cells as there are columns all the same.
            cells.restart(start);
            cells.text(&object.name());
            while cells.count() < self.columns.len() {
                cells.null();
            }
        }
        let conditions = cells.conditions;
        out.push(b']');
        if let Some(conditions) = conditions {
            // Writing to memory has no way to fail.
            let _infallible = write!(out, ",\"conditions\":[{conditions}]");
        }
    }
}

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
