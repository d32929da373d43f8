//! The order of rows, and a place in it, as SQL.

use std::cmp::Ordering;

use crate::search::{
    Order, OrderBy, OrderField, Position, Value,
    order::compare_numbers,
    sql::{
        Dialect, Parameter,
        fields::{Of, ordered},
        text::Writer,
    },
};
use kubefold_wire::selector::FieldPath;

/// One expression of an `ORDER BY`. None of them is ever null.
enum Part<'o> {
    /// A column.
    Column(&'static str),
    /// A column of texts.
    Text(&'static str),
    /// What a document has at a path.
    Path(&'o FieldPath, Of),
}

/// What rows are ordered by in one field, and what a place has there.
struct Compared<'o> {
    parts: Vec<Part<'o>>,
    descending: bool,
}

const CREATED_RANK: &str = "CASE WHEN o.created_us IS NULL THEN 0 ELSE 2 END";
const CREATED: &str = "COALESCE(o.created_us, 0)";

/// Each field of an order; `None` where all rows of one kind are equal.
fn fields(order: &Order) -> impl Iterator<Item = Option<Compared<'_>>> {
    order.fields().iter().map(|by| {
        let parts = match &by.field {
            OrderField::Cluster => vec![Part::Text("f.member")],
            OrderField::Namespace => vec![Part::Text("o.namespace")],
            OrderField::Name => vec![Part::Text("o.name")],
            OrderField::Uid => vec![Part::Text("o.uid")],
            OrderField::Deleted => vec![Part::Column("o.deleted_us")],
            OrderField::Revision => vec![Part::Column("o.revision")],
            OrderField::Created => vec![Part::Column(CREATED_RANK), Part::Column(CREATED)],
            OrderField::Path(path) => [Of::Rank, Of::Number, Of::Text].map(|of| Part::Path(path, of)).into(),
            OrderField::Kind => return None,
        };
        Some(Compared { parts, descending: by.descending })
    })
}

impl Part<'_> {
    fn push(&self, out: &mut Writer) {
        match self {
            Self::Column(name) => drop(out.push(name)),
            Self::Text(name) => drop({
                let by_bytes = out.dialect.by_bytes();
                out.push(name).push(by_bytes)
            }),
            Self::Path(path, of) => ordered(out, path, *of),
        }
    }
}

/// Appends what follows `ORDER BY`.
pub(super) fn order_by(out: &mut Writer, order: &Order) {
    let mut is_first = true;
    for Compared { parts, descending } in fields(order).flatten() {
        for part in parts {
            out.push(if std::mem::take(&mut is_first) { "" } else { ", " });
            part.push(out);
            out.push(if descending { " DESC" } else { "" });
        }
    }
}

/// Appends a condition that every row behind a place meets, and that an index begins with, where the order begins with namespace
/// and name.
pub(super) fn from(out: &mut Writer, order: &Order, place: &Position) {
    let ([first, second, ..], [Value::Text(namespace), Value::Text(name), ..]) = (order.fields(), place.key()) else {
        return;
    };
    let is_up = |by: &OrderBy, field: OrderField| by.field == field && !by.descending;
    if is_up(first, OrderField::Namespace) && is_up(second, OrderField::Name) {
        out.push(" AND (o.namespace, o.name) >= (").bind_text(namespace).push(", ").bind_text(name).push(")");
    }
}

/// Appends whether a row of that kind stands behind a place: it does so in the first field in which it is another.
pub(super) fn behind(out: &mut Writer, order: &Order, place: &Position, kind: &Value) {
    let mut open = 0;
    let mut decided = false;
    for ((field, by), value) in fields(order).zip(order.fields()).zip(place.key()) {
        // Of texts and numbers the place may have another type, by whoever wrote it.
        let fixed = match (&by.field, value) {
            (OrderField::Kind, value) => Some(kind.compare(value)),
            (OrderField::Created | OrderField::Path(_), _)
            | (OrderField::Revision | OrderField::Deleted, Value::Integer(_) | Value::Number(_)) => None,
            (OrderField::Revision | OrderField::Deleted, value) => Some(Value::Integer(0).compare(value)),
            (_, Value::Text(_)) => None,
            (_, value) => Some(Value::Text(String::new()).compare(value)),
        };
        if let Some(fixed) = fixed {
            let ordering = if by.descending { fixed.reverse() } else { fixed };
            if ordering == Ordering::Equal {
                continue;
            }
            decided = ordering == Ordering::Greater;
            break;
        }
        let Some(Compared { parts, descending }) = field else { continue };
        for (part, bound) in parts.iter().zip(bounds(&parts, value)) {
            out.push("(");
            part.push(out);
            out.push(if descending { " < " } else { " > " });
            bind(out, &bound);
            out.push(" OR (");
            part.push(out);
            out.push(" = ");
            bind(out, &bound);
            out.push(" AND ");
            open += 1;
        }
    }
    out.push(if decided { "1 = 1" } else { "1 = 0" });
    out.push(&"))".repeat(open));
}

/// What a place has for each part.
fn bounds(parts: &[Part<'_>], value: &Value) -> Vec<Parameter> {
    let number = match value {
        Value::Bool(flag) => Parameter::Integer((*flag).into()),
        Value::Integer(whole) => Parameter::Integer(*whole),
        Value::Number(number) => whole(*number).map_or(Parameter::Number(*number), Parameter::Integer),
        Value::Absent | Value::Text(_) => Parameter::Integer(0),
    };
    let text = match value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    };
    match parts {
        [Part::Text(_)] => vec![Parameter::Text(text)],
        [Part::Column(_)] => vec![number],
        _ => vec![Parameter::Integer(value.rank().into()), number, Parameter::Text(text)],
    }
}

/// The whole number that this one is; `None` where it is none of 64 bits.
fn whole(number: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "what is not the same afterwards is none")]
    let whole = number as i64;
    (compare_numbers(whole, number) == Ordering::Equal).then_some(whole)
}

fn bind(out: &mut Writer, bound: &Parameter) {
    out.bind(bound.clone());
    if let (Dialect::Postgres, Parameter::Text(_)) = (out.dialect, bound) {
        out.push(" COLLATE \"C\"");
    }
}
