//! Reads the lines of `builtin.txt`.

use std::collections::HashMap;

use super::{Attributes, Field, ListType, MapType, Mark, Schema, SchemaError, Shape, Struct, StructId, Style, Value};

/// About how many structs there are, so that the maps need not grow.
const STRUCTS: usize = 1200;

/// What is wrong with a line.
pub(super) enum Fault {
    Line,
    Undefined(String),
}

impl Fault {
    pub(super) fn at(self, line: usize) -> SchemaError {
        match self {
            Self::Line => SchemaError::Line(line),
            Self::Undefined(name) => SchemaError::Undefined(name),
        }
    }
}

/// Finds the structs and kinds, and leaves the lines of fields unread.
pub(super) fn index(text: &'static str) -> Result<Schema, SchemaError> {
    let mut schema = Schema {
        structs: Vec::with_capacity(STRUCTS),
        names: HashMap::with_capacity(STRUCTS),
        kinds: HashMap::with_capacity(STRUCTS / 2),
    };
    let (mut package, mut short, mut api_version, mut also) = ("", "", "", Vec::new());
    let (mut rest, mut number) = (text, 0);
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = after;
        number += 1;
        let (word, said) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" | "#" => {}
            "package" => {
                (package, api_version) = said.split_once(' ').unwrap_or((said, ""));
                short = last_two(package);
            }
            "also" => also.push((number, said)),
            "kind" | "struct" | "either" => {
                let (name, attributes) = said.split_once(' ').unwrap_or((said, ""));
                let (fields, after, lines) = fields_of(rest);
                let id = StructId(schema.structs.len());
                let style = if word == "either" { Style::Either } else { Style::Object };
                let line = number + 1;
                schema.structs.push(Struct { package, name, style, short, attributes, text: fields, line });
                schema.names.insert((short, name), id);
                if word == "kind" {
                    schema.kinds.insert((api_version, name), id);
                }
                rest = after;
                number += lines;
            }
            _ => return Err(SchemaError::Line(number)),
        }
    }
    for (number, said) in also {
        let mut words = said.splitn(3, ' ');
        let (Some(api_version), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
            return Err(SchemaError::Line(number));
        };
        let id = named(&schema, "", name).ok_or_else(|| SchemaError::Undefined(name.to_owned()))?;
        schema.kinds.insert((api_version, kind), id);
    }
    Ok(schema)
}

/// Splits off the lines of fields, which begin with a number or `-`, and counts them.
fn fields_of(text: &'static str) -> (&'static str, &'static str, usize) {
    let (mut end, mut lines) = (0, 0);
    for line in text.split_inclusive('\n') {
        if !line.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            break;
        }
        end += line.len();
        lines += 1;
    }
    let (fields, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    (fields, rest, lines)
}

fn last_two(package: &str) -> &str {
    let mut dots = package.rmatch_indices('.').map(|(at, _)| at + 1);
    let _last = dots.next();
    dots.next().and_then(|start| package.get(start..)).unwrap_or(package)
}

/// A struct as another of the package `short` names it.
fn named(schema: &Schema, short: &str, name: &str) -> Option<StructId> {
    let (short, name) = name.rsplit_once('.').unwrap_or((short, name));
    schema.named(short, name)
}

pub(super) fn field(schema: &Schema, of: &Struct, line: &'static str) -> Result<Field, Fault> {
    let mut words = line.splitn(4, ' ');
    let (Some(number), Some(name), Some(typed)) = (words.next(), words.next(), words.next()) else {
        return Err(Fault::Line);
    };
    let number = match number {
        "-" => None,
        number => Some(number.parse().map_err(|_| Fault::Line)?),
    };
    let marks = [('?', Mark::OmitEmpty), ('!', Mark::OmitZero), ('^', Mark::InPlace), ('~', Mark::Retired)];
    let marked = marks.iter().find_map(|&(end, mark)| Some((name.strip_suffix(end)?, mark)));
    let (name, mark) = marked.unwrap_or((name, Mark::Always));
    // The name of a pointer's type stands behind its star, that of a list's before the brackets.
    let (is_pointer, typed) = typed.strip_prefix('*').map_or((false, typed), |typed| (true, typed));
    let (go, typed) = called(typed);
    let (shape, item) = if is_pointer {
        (Shape::Pointer, typed)
    } else if let Some(item) = typed.strip_prefix("[]") {
        (Shape::Repeated, item)
    } else if let Some(item) = typed.strip_prefix("map[string]") {
        (Shape::Map, item)
    } else {
        (Shape::One, typed)
    };
    let (item_go, item) = called(item);
    let value = value(schema, of, item).ok_or_else(|| Fault::Undefined(item.to_owned()))?;
    Ok(Field { number, name, mark, shape, go, item_go, value, attributes: words.next().unwrap_or_default() })
}

/// Splits Go's name off a type.
fn called(typed: &'static str) -> (Option<&'static str>, &'static str) {
    match typed.split_once('=') {
        Some((go, typed)) if !go.contains(']') => (Some(go), typed),
        _ => (None, typed),
    }
}

fn value(schema: &Schema, of: &Struct, name: &str) -> Option<Value> {
    Some(match name {
        "bool" => Value::Bool,
        "int32" => Value::Int32,
        "int64" => Value::Int64,
        "float64" => Value::Double,
        "string" => Value::String,
        "bytes" => Value::Bytes,
        "time" => Value::Time,
        "micro-time" => Value::MicroTime,
        "duration" => Value::Duration,
        "quantity" => Value::Quantity,
        "int-or-string" => Value::IntOrString,
        "raw" => Value::Raw,
        "json" => Value::Json,
        "fields" => Value::Fields,
        "wrapped[]string" => Value::WrappedStrings,
        name => Value::Struct(named(schema, of.short, name)?),
    })
}

pub(super) fn attributes(text: &'static str) -> Option<Attributes> {
    let mut said = Attributes::default();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match word.split_once('=').unwrap_or((word, "")) {
            ("required", "") => said.required = true,
            ("retainKeys", "") => said.retain_keys = true,
            ("merge", key) => said.merge = Some((!key.is_empty()).then_some(key)),
            ("default", json) => said.default = Some(json),
            ("list", "atomic") => said.list = Some(ListType::Atomic),
            ("list", "set") => said.list = Some(ListType::Set),
            ("list", keyed) => said.list = Some(ListType::Map(keyed.strip_prefix("map:")?)),
            ("map", "atomic") => said.map = Some(MapType::Atomic),
            ("map", "granular") => said.map = Some(MapType::Granular),
            _ => return None,
        }
    }
    Some(said)
}
