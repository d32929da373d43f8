//! YAML, as Kubernetes writes it.
//!
//! Byte for byte what `sigs.k8s.io/yaml` makes of the same JSON, so that an answer can be compared with a
//! kube-apiserver's and a file in a repository does not change. No library writes Go's style: order of keys, quotes and
//! folding are those of `go.yaml.in/yaml/v2` (`encode.go`, `sorter.go`, `resolve.go`, `emitterc.go`).

mod emit;
mod scalar;

use std::cmp::Ordering;

use serde_json::Value;

use self::emit::Emitter;

/// Makes YAML of JSON.
///
/// Errors: it is not JSON, or nested deeper than any object is.
pub fn from_json(json: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let value: Value = serde_json::from_slice(json)?;
    let mut emitter = Emitter::with_capacity(json.len());
    node(&value, Place::Root, &mut emitter);
    Ok(emitter.finish())
}

/// Where a node stands: a sequence that is a mapping's value is not indented.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Item,
    Value,
}

/// Recurses as deep as the document, which the parser bounds.
fn node(value: &Value, place: Place, out: &mut Emitter) {
    match value {
        Value::Null => out.plain("null"),
        Value::Bool(yes) => out.plain(if *yes { "true" } else { "false" }),
        Value::Number(number) => out.plain(&scalar::number(number)),
        Value::String(text) => out.string(text),
        Value::Array(items) if items.is_empty() => out.plain("[]"),
        Value::Object(members) if members.is_empty() => out.plain("{}"),
        Value::Array(items) => {
            let indent = out.indent(place == Place::Value);
            for item in items {
                out.item();
                node(item, Place::Item, out);
            }
            out.dedent(indent);
        }
        Value::Object(members) => {
            let indent = out.indent(false);
            for (key, value) in sorted(members.iter().collect()) {
                out.key(key);
                node(value, Place::Value, out);
            }
            out.dedent(indent);
        }
    }
}

type Member<'a> = (&'a String, &'a Value);

/// A merge sort of our own: Go's order of keys is none that a library's sort would have to take.
fn sorted(mut members: Vec<Member<'_>>) -> Vec<Member<'_>> {
    if members.len() < 2 {
        return members;
    }
    let behind = sorted(members.split_off(members.len() / 2));
    let (mut left, mut right) = (sorted(members).into_iter().peekable(), behind.into_iter().peekable());
    let mut out = Vec::with_capacity(left.len() + right.len());
    while let (Some((a, _)), Some((b, _))) = (left.peek(), right.peek()) {
        out.extend(if before(b, a) { right.next() } else { left.next() });
    }
    out.extend(left.chain(right));
    out
}

/// `keyList.Less`: digits count as numbers, letters come behind everything else.
fn before(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) else { return a.len() < b.len() };
    let (Some(&x), Some(&y)) = (a.get(at), b.get(at)) else { return false };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x < y,
        (false, false) => {}
        (_, letter_behind) => return letter_behind,
    }
    let digits_before = a.get(..at).unwrap_or_default().iter().rev().take_while(|c| c.is_ascii_digit());
    let zeros_lead = !(x == '0' || y == '0') || digits_before.clone().all(|c| *c == '0');
    let number = |text: &[char]| {
        let digits = text.get(at..).unwrap_or_default().iter().map_while(|c| c.to_digit(10));
        let begin = u64::from(!zeros_lead);
        digits.fold((begin, 0_usize), |(number, len), digit| {
            (number.wrapping_mul(10).wrapping_add(u64::from(digit)), len + 1)
        })
    };
    match number(&a).cmp(&number(&b)) {
        Ordering::Equal => x < y,
        order => order == Ordering::Less,
    }
}

#[cfg(test)]
mod tests;
