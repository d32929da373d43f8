//! YAML bodies as JSON, and the keys that stand in them twice.
//!
//! Source: kubernetes/apimachinery `pkg/runtime/serializer/json/json.go`; go.yaml.in/yaml/v2 `decode.go`, `setMapIndex`, whose sentences are kept.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use kubefold_wire::{findings::repeated, golang::Quoted};

/// Nesting of a YAML body, and how often its aliases may be used: an object has no use for either.
const DEPTH_MAX: usize = 128;
const ALIASES_MAX: usize = 16;
/// Nesting, and length of keys, up to which a body that is JSON is read as that. Units of the length: bytes.
const JSON_DEPTH_MAX: usize = 64;
const KEY_MAX: usize = 256;
/// Repeated keys that are told of at most.
const REPEATED_MAX: usize = 100;

/// A body as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadBody {
    /// Whatever it came as. Of a key of YAML that stands twice the last counts.
    pub json: Bytes,
    /// The keys of YAML that stand twice, in order: `line 5: key "a" already set in map`.
    pub repeated: Vec<String>,
}

impl From<Bytes> for ReadBody {
    fn from(json: Bytes) -> Self {
        Self { json, repeated: Vec::new() }
    }
}

/// Why YAML is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum YamlError {
    #[error("yaml: {0}")]
    Encoding(#[from] std::str::Utf8Error),
    #[error("yaml: {0}")]
    Syntax(#[from] serde_saphyr::Error),
    #[error("{0}")]
    Value(#[from] serde_json::Error),
}

/// Reads YAML. Of a key that stands twice the last counts, as in Go.
pub(super) fn to_json(body: &[u8]) -> Result<ReadBody, YamlError> {
    let text = std::str::from_utf8(body)?;
    if let Some(value) = json(text) {
        return Ok(ReadBody { json: Bytes::from(serde_json::to_vec(&value)?), repeated: Vec::new() });
    }
    let (value, repeated) = match serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::Error)) {
        Ok(value) => (value, Vec::new()),
        Err(error) => match serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::LastWins)) {
            Ok(Node { value, repeated }) if !repeated.is_empty() => {
                (value, repeated.iter().map(|one| one.told(text)).collect())
            }
            Ok(_) | Err(_) => return Err(error.into()),
        },
    };
    Ok(ReadBody { json: Bytes::from(serde_json::to_vec::<Value>(&value)?), repeated })
}

/// Reads YAML that is JSON, as clients write it: that costs a tenth. `None`: it is not, or YAML may read it otherwise.
fn json(text: &str) -> Option<Value> {
    let is_alike = text.starts_with('{') && !text.contains("<<") && has_plain_text(text.as_bytes());
    let value = is_alike.then(|| serde_json::from_str(text).ok()).flatten()?;
    (is_shallow(&value, JSON_DEPTH_MAX) && repeated(text.as_bytes()).is_empty()).then_some(value)
}

/// Says whether there are no bytes in a text, and no escapes, that YAML may refuse or read otherwise.
fn has_plain_text(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let is_plain = match byte {
            b'\\' => matches!(bytes.next(), Some(b'"' | b'\\' | b'n' | b't')),
            byte => matches!(byte, b' '..=b'~' | b'\n'),
        };
        if !is_plain {
            return false;
        }
    }
    true
}

/// Says whether a value is no deeper, has no key that is too long for one of YAML, and no number but integers.
fn is_shallow(value: &Value, depth: usize) -> bool {
    let is_below = |value: &Value| depth > 0 && is_shallow(value, depth - 1);
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => items.iter().all(is_below),
        Value::Object(fields) => fields.iter().all(|(key, value)| key.len() <= KEY_MAX && is_below(value)),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX, max_aliases: ALIASES_MAX },
        duplicate_keys: duplicate_keys,
        with_snippet: false,
    }
}

/// A value, and the keys in it that stand there twice.
struct Node {
    value: Value,
    repeated: Vec<Repeated>,
}

/// A key that stands twice.
struct Repeated {
    key: String,
    /// Where its later value begins, from 1.
    line: u64,
    /// It is a text.
    is_text: bool,
}

impl Repeated {
    /// In Go's sentence. To Go a text in a block begins at its `|` or `>`, and not with its first line.
    fn told(&self, text: &str) -> String {
        let above = usize::try_from(self.line).ok().and_then(|line| text.lines().nth(line.checked_sub(2)?));
        let is_block = self.is_text && above.is_some_and(heads_a_block);
        let line = self.line - u64::from(is_block);
        format!("line {line}: key {} already set in map", Quoted(&self.key))
    }
}

/// Says whether a line ends in the head of a block: `key: |`, `- key: >-2`.
fn heads_a_block(line: &str) -> bool {
    let line = line.split_once(" #").map_or(line, |(line, _)| line).trim_end();
    let line = line.trim_end_matches(|c: char| c.is_ascii_digit() || c == '+' || c == '-');
    line.ends_with(": |") || line.ends_with(": >")
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { value, repeated: Vec::new() }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number).into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Value::Null.into())
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Value::Null.into())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let (mut list, mut repeated) = (Vec::new(), Vec::new());
        while let Some(item) = items.next_element::<Node>()? {
            list.push(item.value);
            repeated.extend(item.repeated);
        }
        repeated.truncate(REPEATED_MAX);
        Ok(Node { value: Value::Array(list), repeated })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let (mut map, mut repeated) = (Map::new(), Vec::new());
        while let Some(key) = entries.next_key::<String>()? {
            let Spanned { value: node, referenced, .. } = entries.next_value::<Spanned<Node>>()?;
            repeated.extend(node.repeated);
            if map.contains_key(&key) {
                let (key, line, is_text) = (key.clone(), referenced.line(), node.value.is_string());
                repeated.push(Repeated { key, line, is_text });
            }
            map.insert(key, node.value);
        }
        repeated.truncate(REPEATED_MAX);
        Ok(Node { value: Value::Object(map), repeated })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\n\t]{0,12}".prop_map(Value::from),
            prop::sample::select(vec!["yes", "~", "1", "0x10", "- a", "#", "a: b", "<<", "&a", "*a", "!!int", "---"])
                .prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{0,6}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// As clients write it, in one line or indented.
        #[test]
        fn json_is_read_as_yaml_reads_it(value in tree(), indented in any::<bool>()) {
            let value = serde_json::json!({ "a": value });
            let text = if indented { format!("{value:#}") } else { value.to_string() };
            let by_yaml: Result<Node, _> =
                serde_saphyr::from_str_with_options(&text, options(DuplicateKeyPolicy::LastWins));
            if let Some(read) = json(&text) {
                prop_assert_eq!(serde_json::to_vec(&read).unwrap(), serde_json::to_vec(&by_yaml.unwrap().value).unwrap());
                prop_assert_eq!(read, value);
            } else {
                prop_assert!(text.contains("<<"), "{text}");
            }
        }
    }

    #[test]
    fn what_yaml_may_read_otherwise_is_left_to_it() {
        let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(99), "]".repeat(99));
        let long = format!(r#"{{"{}":1}}"#, "k".repeat(2000));
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":"\u00e4"}"#,
            r#"{"a":"\/"}"#,
            r#"{"a":"ä"}"#,
            "{\"a\":\t1}",
            r#"{"a":1.0}"#,
            r#"{"a":-0}"#,
            r#"{"<<":{"b":1}}"#,
            "{a: 1}",
            "a: 1",
            "[1]",
            &deep,
            &long,
        ] {
            assert_eq!(json(text), None, "{text}");
        }
        assert_eq!(json("{\"a\": [\"b\\n\"]}"), Some(serde_json::json!({"a": ["b\n"]})));
    }

    #[test]
    fn yaml_becomes_json() {
        let json = |yaml: &str| to_json(yaml.as_bytes()).map(|read| String::from_utf8(read.json.to_vec()).unwrap());
        for (yaml, wanted) in [
            ("a: 1\nb: [x, {c: null}]\n", r#"{"a":1,"b":["x",{"c":null}]}"#),
            ("a: yes\nb: \"yes\"\nc: off\nd: true", r#"{"a":true,"b":"yes","c":false,"d":true}"#),
            (
                "a: ~\nb: 1.5\nc: 0x10\nd: 2001-01-01\ne: 1e3",
                r#"{"a":null,"b":1.5,"c":16,"d":"2001-01-01","e":1000.0}"#,
            ),
            ("a: |\n  x\n  y\nb: 'it''s'", r#"{"a":"x\ny\n","b":"it's"}"#),
            ("a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2", r#"{"a":{"b":1},"c":{"b":1},"d":{"e":2,"b":1}}"#),
            (r#"{"kind":"ConfigMap"}"#, r#"{"kind":"ConfigMap"}"#),
        ] {
            assert_eq!(json(yaml).unwrap(), wanted, "{yaml}");
        }
        assert!(json("a: [").is_err() && json("a: b: c").is_err());
        assert!(json(&"[".repeat(1000)).is_err());
    }

    #[test]
    fn a_repeated_key_is_told_by_its_line_and_the_last_counts() {
        let read =
            to_json(b"kind: ConfigMap\ndata:\n  a: \"1\"\n  b: yes\n  a: 2\nlist:\n- x: 1\n  x:\n    y: ~\n  z: 1\n  z: |-\n    text\n").unwrap();
        let wanted = r#"{"kind":"ConfigMap","data":{"a":2,"b":true},"list":[{"x":{"y":null},"z":"text"}]}"#;
        assert_eq!(String::from_utf8_lossy(&read.json), wanted);
        let wanted = ["line 5: key \"a\"", "line 9: key \"x\"", "line 11: key \"z\""];
        let wanted = wanted.map(|one| format!("{one} already set in map"));
        assert_eq!(read.repeated, wanted);
        assert!(to_json(b"a: 1\na: [").is_err());
        assert!(to_json(b"a: 1\nb: 2").unwrap().repeated.is_empty());
    }
}
