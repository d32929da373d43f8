//! Values as Go prints them, for messages that clients compare.

use serde_json::{Number, Value};

/// JSON as Go's encoder writes it: without what HTML could be, and whole floats without a fraction.
pub(super) fn json(value: &Value) -> String {
    let text = match value {
        Value::Number(number) => return self::number(number),
        value => value.to_string(),
    };
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let escapes =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    escapes.into_iter().fold(text, |text, (plain, escaped)| text.replace(plain, escaped))
}

/// A number as Go's encoder writes it.
fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e21 => format!("{float:.0}"),
        _ => number.to_string(),
    }
}

/// `%v`.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// `%#v`.
pub(super) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let each = |(name, value): &(&String, &Value)| format!("{}:{}", quoted(name), syntax(value));
            let fields: Vec<String> = fields.iter().map(each).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        Value::String(text) => quoted(text),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => self::number(number),
    }
}

/// `%q`, of texts without what Go would escape in its own way.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
