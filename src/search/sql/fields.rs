//! Fields of documents: what a path leads to, as SQL.

use crate::search::{
    FieldOperator, FieldTerm,
    sql::{Dialect, text::Writer},
};
use kubefold_wire::selector::{FieldPath, Step};

/// What is asked of the value at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// It is there, and not null.
    Presence,
    /// As a field selector compares it: a text without its quotes, a number or boolean as it is written.
    Compared,
    /// The rank of its type in an order.
    Rank,
    /// A number, or a boolean as one; 0 for others.
    Number,
    /// A text; empty for others.
    Text,
}

/// A path, cut behind each step that leads to every element of an array.
struct Pieces<'p> {
    each: Vec<&'p [Step]>,
    last: &'p [Step],
}

impl<'p> Pieces<'p> {
    fn of(path: &'p FieldPath) -> Self {
        let mut each: Vec<&[Step]> = path.steps().split(|step| *step == Step::Each).collect();
        let last = each.pop().unwrap_or_default();
        Self { each, last }
    }
}

/// Appends whether a term holds.
pub(super) fn term(out: &mut Writer, term: &FieldTerm) {
    let (of, on_hit) = match term.operator {
        FieldOperator::In => (Of::Compared, true),
        FieldOperator::NotIn => (Of::Compared, false),
        FieldOperator::Exists => (Of::Presence, true),
        FieldOperator::NotExists => (Of::Presence, false),
    };
    let values: Vec<&str> = term.values.iter().map(String::as_str).collect();
    out.push(if on_hit { "EXISTS (SELECT 1" } else { "NOT EXISTS (SELECT 1" });
    let pieces = Pieces::of(&term.path);
    let joined = elements(out, &pieces);
    out.push(joined);
    value(out, &pieces, of);
    match of {
        Of::Compared => drop(out.among(&values)),
        _ => drop(out.push(" = 1")),
    }
    out.push(")");
}

/// Appends what rows are ordered by at a path: that of the first value which is neither null nor absent.
pub(super) fn ordered(out: &mut Writer, path: &FieldPath, of: Of) {
    let pieces = Pieces::of(path);
    let none = if of == Of::Text { "''" } else { "0" };
    if pieces.each.is_empty() {
        value(out, &pieces, of);
        return;
    }
    out.push("COALESCE((SELECT ");
    value(out, &pieces, of);
    let joined = elements(out, &pieces);
    out.push(joined);
    value(out, &pieces, Of::Rank);
    out.push(" > 0 ORDER BY ");
    let number = if out.dialect == Dialect::Postgres { ".n" } else { ".key" };
    for at in 0..pieces.each.len() {
        out.push(if at == 0 { "" } else { ", " }).push(&element(at)).push(number);
    }
    out.push(" LIMIT 1), ").push(none).push(")");
}

/// Appends ` FROM` the elements that a path goes over, with what has to hold of them. Gives what stands before a further
/// condition.
fn elements(out: &mut Writer, pieces: &Pieces<'_>) -> &'static str {
    for (at, steps) in pieces.each.iter().enumerate() {
        out.push(if at == 0 { " FROM " } else { ", " });
        match out.dialect {
            Dialect::Sqlite | Dialect::Mysql => {
                let document = out.dialect.document();
                out.push("json_each(").push(document).push(", ");
                sqlite_path(out, at, steps);
                out.push(") ").push(&element(at));
            }
            Dialect::Postgres => {
                out.push("LATERAL json_array_elements(CASE json_typeof(");
                postgres_value(out, at, steps);
                out.push(") WHEN 'array' THEN ");
                postgres_value(out, at, steps);
                out.push(" END) WITH ORDINALITY AS ").push(&element(at)).push("(v, n)");
            }
        }
    }
    " WHERE "
}

fn element(at: usize) -> String {
    format!("e{at}")
}

/// Appends the value at the end of a path, as it is asked for.
fn value(out: &mut Writer, pieces: &Pieces<'_>, of: Of) {
    let [begin, end] = match out.dialect {
        Dialect::Sqlite | Dialect::Mysql => ["CASE json_type(", ")"],
        Dialect::Postgres => ["CASE json_typeof(", ")"],
    };
    out.push(begin);
    located(out, pieces, ", ");
    out.push(end);
    for (of_type, then) in out.dialect.cases(of) {
        out.push(" WHEN '").push(of_type).push("' THEN ");
        match then {
            Then::Constant(constant) => drop(out.push(constant)),
            Then::Value([begin, operator, end]) => {
                out.push(begin);
                located(out, pieces, operator);
                out.push(end);
            }
        }
    }
    out.push(match of {
        Of::Compared => " END",
        Of::Text => " ELSE '' END",
        Of::Presence | Of::Rank | Of::Number => " ELSE 0 END",
    });
    if of == Of::Text {
        let by_bytes = out.dialect.by_bytes();
        out.push(by_bytes);
    }
}

/// What is made of a value of one type.
enum Then {
    Constant(&'static str),
    /// Around it, and between a document and a path where the dialect has both.
    Value([&'static str; 3]),
}

/// A number in PostgreSQL, as [`crate::search::Value::of_json`] reads it: a whole number of 64 bits by its digits, and any other
/// as the nearest of double precision. What that is comes from its shortest decimal form, which is not exact where it is a large
/// whole number: `2^62` would be 4611686018427388000.
const POSTGRES_NUMBER: [&str; 3] = [
    "(SELECT CASE \
     WHEN t ~ '^-?[0-9]+$' AND t::numeric BETWEEN -9223372036854775808 AND 9223372036854775807 THEN t::numeric \
     WHEN t::float8 = trunc(t::float8) AND t::float8 >= -9223372036854775808 AND t::float8 < 9223372036854775808 \
     THEN t::float8::bigint::numeric \
     ELSE t::float8::text::numeric END FROM (SELECT (",
    "",
    ") #>> '{}' AS t) AS written)",
];

impl Dialect {
    /// What is made of a value, type by type. What has no case is none of it.
    fn cases(self, of: Of) -> Vec<(&'static str, Then)> {
        use Then::{Constant, Value};
        let (text, written) = match self {
            Self::Sqlite | Self::Mysql => (["", " ->> ", ""], ["", " -> ", ""]),
            Self::Postgres => (["(", "", ") #>> '{}'"], ["(", "", ") #>> '{}'"]),
        };
        let types: &[&str] = match self {
            Self::Sqlite | Self::Mysql => &["true", "false", "integer", "real", "text"],
            Self::Postgres => &["boolean", "number", "string"],
        };
        let scalars = types.iter().copied();
        match of {
            Of::Presence => scalars.chain(["object", "array"]).map(|of_type| (of_type, Constant("1"))).collect(),
            Of::Compared => {
                scalars.map(|of_type| (of_type, Value(if of_type == "text" { text } else { written }))).collect()
            }
            Of::Rank => {
                let rank = |of_type: &str| match of_type {
                    "true" | "false" | "boolean" => "1",
                    "integer" | "real" | "number" => "2",
                    _ => "3",
                };
                scalars.map(|of_type| (of_type, Constant(rank(of_type)))).collect()
            }
            Of::Number => match self {
                Self::Sqlite | Self::Mysql => {
                    vec![("true", Constant("1")), ("integer", Value(text)), ("real", Value(text))]
                }
                Self::Postgres => vec![
                    ("boolean", Value(["((", "", ") #>> '{}')::boolean::integer::numeric"])),
                    ("number", Value(POSTGRES_NUMBER)),
                ],
            },
            Of::Text => vec![(if self == Self::Postgres { "string" } else { "text" }, Value(text))],
        }
    }
}

/// Appends where the value is: in SQLite the document, what stands between, and the path.
fn located(out: &mut Writer, pieces: &Pieces<'_>, between: &str) {
    match out.dialect {
        Dialect::Sqlite | Dialect::Mysql => {
            let document = out.dialect.document();
            out.push(document).push(between).push("(");
            sqlite_path(out, pieces.each.len(), pieces.last);
            out.push(")");
        }
        Dialect::Postgres => postgres_value(out, pieces.each.len(), pieces.last),
    }
}

/// Appends a path in SQLite's words, behind the first `depth` elements that are gone over.
fn sqlite_path(out: &mut Writer, depth: usize, steps: &[Step]) {
    match depth.checked_sub(1) {
        None => drop(out.bind_text(&format!("${}", sqlite_steps(steps)))),
        Some(inside) => {
            // Of an object `json_each` has the fields, whose keys are texts, and of a scalar the scalar: neither is an element.
            let element = element(inside);
            out.push("CASE typeof(").push(&element).push(".key) WHEN 'integer' THEN ");
            out.push(&element).push(".root || '[' || ").push(&element).push(".key || ']'");
            if !steps.is_empty() {
                out.push(" || ").bind_text(&sqlite_steps(steps));
            }
            out.push(" END");
        }
    }
}

/// Source: SQLite's documentation of JSON, "PATH arguments"; a label in quotes is read as a JSON text.
fn sqlite_steps(steps: &[Step]) -> String {
    let each = steps.iter().map(|step| match step {
        Step::Key(key) => format!(".{}", serde_json::Value::from(key.as_str())),
        Step::Index(at) => format!("[{at}]"),
        Step::Each => String::new(),
    });
    each.collect()
}

/// Appends a value of PostgreSQL, behind the first `depth` elements that are gone over.
fn postgres_value(out: &mut Writer, depth: usize, steps: &[Step]) {
    let document = out.dialect.document();
    match depth.checked_sub(1) {
        None => drop(out.push("(").push(document).push(")")),
        Some(inside) => drop(out.push(&element(inside)).push(".v")),
    }
    for step in steps {
        match step {
            Step::Key(key) => drop(out.push(" -> ").bind_text(key)),
            // A number: of the program's own making, and no more than an array may have.
            Step::Index(at) => drop(out.push(&format!(" -> {}", (*at).min(i32::MAX as usize)))),
            Step::Each => {}
        }
    }
}
