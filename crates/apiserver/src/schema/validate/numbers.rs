//! Numbers, and values as Kubernetes prints them in errors.

use kubefold_wire::golang;
use serde_json::{Number, Value};

use super::{Found, cause, general, invalid};
use crate::schema::Checks;

pub(super) fn check(checks: &Checks, number: &Number, path: &str) -> Found {
    let mut found = Found::default();
    let whole = number.as_i64();
    let value = number.as_f64().unwrap_or(f64::MAX);
    if let Some(error) = beyond(checks, whole, value, path) {
        found.add(general(&error));
    }
    let shown = bad_value(&Value::Number(number.clone()));
    if let Some(factor) = checks.multiple_of {
        multiple(whole, value, factor, path, &shown, &mut found);
    }
    // A whole number is held to the whole part of a bound.
    let bound = |bound: f64| if whole.is_some() { bound.trunc() } else { bound };
    let printed = |bound: f64| if whole.is_some() { format!("{bound:.0}") } else { golang::float(bound) };
    if let Some(least) = checks.minimum.map(bound) {
        let (fails, words) = if checks.exclusive_minimum {
            (value <= least, "greater than")
        } else {
            (value < least, "greater than or equal to")
        };
        if fails {
            found.add(invalid(path, &shown, &format!("should be {words} {}", printed(least))));
        }
    }
    if let Some(most) = checks.maximum.map(bound) {
        let (fails, words) = if checks.exclusive_maximum {
            (value >= most, "less than")
        } else {
            (value > most, "less than or equal to")
        };
        if fails {
            found.add(invalid(path, &shown, &format!("should be {words} {}", printed(most))));
        }
    }
    found.matches += 1;
    found
}

/// Whether a number is no such number as its type and format hold.
fn beyond(checks: &Checks, whole: Option<i64>, value: f64, path: &str) -> Option<String> {
    let [kind] = checks.types.as_slice() else { return None };
    let format = checks.format.as_deref();
    let whole = whole.or_else(|| (value.fract() == 0.0 && value.abs() < 9.2e18).then_some(value as i64));
    let fits = match (kind.as_str(), format) {
        ("integer", Some("int32")) => whole.is_some_and(|whole| i32::try_from(whole).is_ok()),
        ("integer", _) => whole.is_some(),
        ("number", Some("float")) => value.abs() <= f64::from(f32::MAX),
        _ => true,
    };
    if fits {
        return None;
    }
    let format = format.map_or_else(|| "(default format)".to_owned(), |format| format!("with format {format}"));
    Some(format!("Checked value must be of type {kind} {format} in {path}"))
}

fn multiple(whole: Option<i64>, value: f64, factor: f64, path: &str, shown: &str, found: &mut Found) {
    // A whole number is held to the whole part of the factor, which may be nothing.
    let factor = if whole.is_some() { factor.trunc() } else { factor };
    if factor <= 0.0 {
        let words = format!("factor MultipleOf declared for {path} must be positive: {}", golang::float(factor));
        found.add(cause("FieldValueInvalid", format!("Invalid value: {}: {words}", golang::float(factor)), path));
        return;
    }
    let times = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
    let is_whole = (times - times.round()).abs() <= 1e-9 * times.abs().max(1.0);
    if !is_whole {
        found.add(invalid(path, shown, &format!("should be a multiple of {}", golang::float(factor))));
    }
}

/// A value as Kubernetes prints it in the error of a field.
///
/// Source: kubernetes/apimachinery `pkg/util/validation/field/errors.go`.
pub fn bad_value(value: &Value) -> String {
    match value {
        Value::String(text) => golang::quoted(text),
        Value::Number(number) if number.is_f64() => golang::float(number.as_f64().unwrap_or_default()),
        Value::Object(_) | Value::Array(_) => golang::json(value),
        other => other.to_string(),
    }
}

/// Equal, whatever form numbers have.
pub(super) fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (left, right) => left == right,
    }
}
