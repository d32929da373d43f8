//! Values as Go prints them, for messages and cells that clients compare.
//!
//! `golang/vectors.txt` is what Go printed; `tests/testbed/golang` writes it.
//!
//! - [`Quoted`], [`quoted`]: a text as `%q` prints it
//! - [`plain`], [`syntax`], [`type_name`]: a value as `%v`, `%#v` and `%T` print it
//! - [`json`], [`escape_json`], [`json_float`]: as `encoding/json` writes it
//!
//! Source: Go `strconv/quote.go`, `strconv/ftoa.go`, `fmt/print.go`, `encoding/json/encode.go`.

#[cfg(test)]
mod tests;

use std::{
    fmt::{self, Write as _},
    io::Write as _,
};

use serde_json::{Map, Number, Value};

/// A text that is displayed as `strconv.Quote` and `%q` print it.
///
/// Rust's table of characters is newer than Go's: those that Go's Unicode does not have yet are printed as they are.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<T>(pub T);

impl<T: AsRef<str>> fmt::Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.as_ref().chars() {
            match character {
                '"' => f.write_str("\\\""),
                '\\' => f.write_str("\\\\"),
                '\u{7}' => f.write_str("\\a"),
                '\u{8}' => f.write_str("\\b"),
                '\u{c}' => f.write_str("\\f"),
                '\n' => f.write_str("\\n"),
                '\r' => f.write_str("\\r"),
                '\t' => f.write_str("\\t"),
                '\u{b}' => f.write_str("\\v"),
                other if is_printable(other) => f.write_char(other),
                other => match u32::from(other) {
                    code @ (0..0x20 | 0x7f) => write!(f, "\\x{code:02x}"),
                    code @ ..0x10000 => write!(f, "\\u{code:04x}"),
                    code => write!(f, "\\U{code:08x}"),
                },
            }?;
        }
        f.write_char('"')
    }
}

/// A text as [`Quoted`] displays it.
pub fn quoted(text: &str) -> String {
    Quoted(text).to_string()
}

/// `strconv.IsPrint`: letters, marks, numbers, punctuation, symbols, and the space of ASCII.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Rust escapes the same in a text for debugging; its first character is another matter.
    let mut buffer = [b'a'; 5];
    let Some(space) = buffer.get_mut(1..) else { return true };
    let end = character.encode_utf8(space).len() + 1;
    let text = buffer.get(..end).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default();
    text.escape_debug().nth(1) == Some(character)
}

/// A value as `%v` prints it.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => plain_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(plain), " ")),
        Value::Object(fields) => {
            let fields = sorted(fields).into_iter().map(|(name, value)| format!("{name}:{}", plain(value)));
            format!("map[{}]", joined(fields, " "))
        }
    }
}

/// A value in a list, a map or a struct as `%#v` prints it.
pub fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => plain_number(number),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[]interface {{}}{{{}}}", joined(items.iter().map(syntax), ", ")),
        Value::Object(fields) => {
            let fields = sorted(fields).into_iter().map(|(name, value)| format!("{}:{}", quoted(name), syntax(value)));
            format!("map[string]interface {{}}{{{}}}", joined(fields, ", "))
        }
    }
}

/// The type that Kubernetes' decoder gives a value, as `%T` prints it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.as_i64().is_none() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as `encoding/json` writes it: keys sorted, what is special in HTML escaped.
pub fn json(value: &Value) -> String {
    let mut out = Vec::new();
    write_json(value, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

fn write_json(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
        Value::Number(number) => {
            let text =
                number.as_i64().map_or_else(|| json_float(number.as_f64().unwrap_or_default()), |n| n.to_string());
            out.extend_from_slice(text.as_bytes());
        }
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_json(item, out);
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            out.push(b'{');
            for (at, (name, value)) in sorted(fields).into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_text(name, out);
                out.push(b':');
                write_json(value, out);
            }
            out.push(b'}');
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escape_json(text, out);
    out.push(b'"');
}

/// Writes a text as `encoding/json` does between quotes: what is special in HTML is escaped.
pub fn escape_json(text: &str, out: &mut Vec<u8>) {
    let mut copied = 0;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let special = match byte {
            b'"' | b'\\' | b'<' | b'>' | b'&' | 0..=0x1f => true,
            // U+2028 and U+2029, which end lines in JavaScript.
            0xe2 => matches!(bytes.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])),
            _ => false,
        };
        if !special {
            continue;
        }
        out.extend_from_slice(bytes.get(copied..at).unwrap_or_default());
        copied = at + if *byte == 0xe2 { 3 } else { 1 };
        // Writing to memory has no way to fail.
        let _infallible = match byte {
            b'"' => out.write_all(b"\\\""),
            b'\\' => out.write_all(b"\\\\"),
            b'\n' => out.write_all(b"\\n"),
            b'\r' => out.write_all(b"\\r"),
            b'\t' => out.write_all(b"\\t"),
            0x08 => out.write_all(b"\\b"),
            0x0c => out.write_all(b"\\f"),
            0xe2 => write!(out, "\\u202{:x}", bytes.get(at + 2).copied().unwrap_or_default() & 0xf),
            other => write!(out, "\\u{other:04x}"),
        };
    }
    out.extend_from_slice(bytes.get(copied..).unwrap_or_default());
}

/// A finite number as `%v` prints a float64: the shortest digits, with an exponent for what is small or large.
pub fn float(number: f64) -> String {
    let (digits, exponent) = scientific(number);
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// A finite number as `encoding/json` writes a float64.
pub fn json_float(number: f64) -> String {
    let (digits, exponent) = scientific(number);
    if (-6..21).contains(&exponent) {
        return number.to_string();
    }
    format!("{digits}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// The shortest digits of a number, and its exponent.
fn scientific(number: f64) -> (String, i32) {
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or_default())
}

fn plain_number(number: &Number) -> String {
    // What does not fit an int64 is a float64 to Kubernetes' decoder.
    number.as_i64().map_or_else(|| float(number.as_f64().unwrap_or_default()), |whole| whole.to_string())
}

/// Go prints and writes maps by their keys' order.
fn sorted(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    fields
}

fn joined(parts: impl Iterator<Item = String>, between: &str) -> String {
    parts.collect::<Vec<_>>().join(between)
}
