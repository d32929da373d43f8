//! JSON patch (RFC 6902), as the library of a kube-apiserver understands it.
//!
//! It differs from the RFC, and so does this:
//! - `replace` of a key that is not there adds it,
//! - `test` takes a key that is not there for null,
//! - negative indexes count from the end,
//! - what stands before the first `/` of a path is ignored,
//! - a whole number and one with a fraction differ: `1.0` is not `1`,
//! - all copies of a patch together have a limit.
//!
//! That library compares texts by their bytes, so that there `"<"` and `"\u003c"` differ; here they are the same.
//!
//! Source: gopkg.in/evanphx/json-patch.v4 `patch.go`; `vectors.json` holds what it answers.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeMap};
use serde_json::{Map, Value};

use super::{PatchError, decoded, go_kind};
use crate::golang::Quoted;

/// Source: kubernetes/apiserver `pkg/endpoints/handlers/patch.go`, `maxJSONPatchOperations`.
const OPERATIONS_MAX: usize = 10_000;
/// Bytes that the copies of one patch may have together.
///
/// Source: kubernetes/apiserver `pkg/server/config.go`, `JSONPatchMaxCopyBytes`.
const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The object after the operations of a JSON patch.
///
/// Errors: the patch is none, it has too many operations, or one does not apply.
pub fn json(live: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let operations = operations(decoded(patch, "error decoding patch: ")?)?;
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::too_large(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    // A kube-apiserver does not say which operation failed, or why.
    let patch = JsonPatch::read(operations).map_err(|_| PatchError::unprocessable())?;
    patch.apply(live.clone()).map_err(|_| PatchError::unprocessable())
}

fn operations(patch: Value) -> Result<Vec<Map<String, Value>>, PatchError> {
    let refused = |what: &str, into: &str| {
        let message = format!("error decoding patch: json: cannot unmarshal {what} into Go {into}");
        PatchError::bad_request(message)
    };
    let items = match patch {
        Value::Array(items) => items,
        Value::Null => Vec::new(),
        other => return Err(refused(go_kind(&other), "value of type []handlers.jsonPatchOp")),
    };
    let operation = |item: Value| match item {
        Value::Object(operation) => {
            for name in ["op", "path", "from"] {
                if let Some(value) = operation.get(name).filter(|value| !value.is_string() && !value.is_null()) {
                    let into = format!("struct field jsonPatchOp.{name} of type string");
                    return Err(refused(go_kind(value), &into));
                }
            }
            Ok(operation)
        }
        Value::Null => Ok(Map::new()),
        other => Err(refused(go_kind(&other), "value of type handlers.jsonPatchOp")),
    };
    items.into_iter().map(operation).collect()
}

/// The operations of a JSON patch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JsonPatch(pub Vec<Operation>);

impl JsonPatch {
    /// Reads operations as a kube-apiserver does, which is less strict than deserializing them: see [`Operation`].
    ///
    /// Errors: the first operation that is none.
    pub fn read(operations: Vec<Map<String, Value>>) -> Result<Self, Why> {
        operations.into_iter().map(Operation::read).collect::<Result<_, _>>().map(Self)
    }

    /// Gives the object after all operations.
    ///
    /// Errors: the first operation that does not apply.
    pub fn apply(&self, mut object: Value) -> Result<Value, Inapplicable> {
        let mut copied = 0;
        for (at, operation) in self.0.iter().enumerate() {
            operation.apply(&mut object, &mut copied).map_err(|why| Inapplicable { at, why })?;
        }
        Ok(object)
    }
}

/// An operation that does not apply to an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {at}: {why}")]
pub struct Inapplicable {
    /// The place of the operation in the patch; the first is 0.
    pub at: usize,
    /// The cause.
    pub why: Why,
}

/// Why an operation does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The `op` is none of the six.
    #[error("{quoted} is no operation", quoted = Quoted(.0))]
    Unknown(String),
    /// A member of the operation is missing.
    #[error("it has no {quoted}", quoted = Quoted(.0))]
    Missing(&'static str),
    /// The object has nothing at the path.
    #[error("there is nothing at {quoted}", quoted = Quoted(.0))]
    Absent(String),
    /// A `test` found another value.
    #[error("{quoted} has another value", quoted = Quoted(.0))]
    Differs(String),
    /// A scalar in place of the whole object.
    #[error("only an object or a list can take the place of the whole")]
    Scalar,
    /// The copies of the patch have more than 3 MiB together.
    #[error("the copies have more than {COPY_BYTES_MAX} bytes")]
    CopiesTooLarge,
}

/// One operation of a JSON patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Where.
    pub path: String,
    /// What.
    pub action: Action,
}

/// What an operation does at its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Inserts into a list, or sets a key.
    Add(Value),
    /// Removes.
    Remove,
    /// Sets.
    Replace(Value),
    /// Removes from another path and adds.
    Move {
        /// The other path.
        from: String,
    },
    /// Adds what stands at another path.
    Copy {
        /// The other path.
        from: String,
    },
    /// Compares.
    Test(Value),
}

impl Operation {
    /// Reads an operation. A `value` that is not there is null.
    fn read(mut operation: Map<String, Value>) -> Result<Self, Why> {
        let mut text = |name: &'static str| match operation.get_mut(name) {
            Some(Value::String(text)) => Ok(std::mem::take(text)),
            _ => Err(Why::Missing(name)),
        };
        let (op, path) = (text("op")?, text("path"));
        let action = match op.as_str() {
            "move" => Action::Move { from: text("from")? },
            "copy" => Action::Copy { from: text("from")? },
            "remove" => Action::Remove,
            op => {
                let value = operation.shift_remove("value").unwrap_or_default();
                match op {
                    "add" => Action::Add(value),
                    "replace" => Action::Replace(value),
                    "test" => Action::Test(value),
                    other => return Err(Why::Unknown(other.to_owned())),
                }
            }
        };
        Ok(Self { path: path?, action })
    }

    fn apply(&self, object: &mut Value, copied: &mut usize) -> Result<(), Why> {
        let absent = |path: &str| Why::Absent(path.to_owned());
        let path = self.path.as_str();
        let applies = match &self.action {
            Action::Add(value) => add(object, path, value.clone()),
            Action::Remove => remove(object, path).map(drop),
            Action::Replace(value) if path.is_empty() => {
                if !value.is_object() && !value.is_array() {
                    return Err(Why::Scalar);
                }
                *object = value.clone();
                Some(())
            }
            Action::Replace(value) => replace(object, path, value.clone()),
            Action::Move { from } => {
                let value = remove(object, from).ok_or_else(|| absent(from))?;
                add(object, path, value)
            }
            Action::Copy { from } => {
                let value = get(object, from).ok_or_else(|| absent(from))?.clone();
                *copied = copied.saturating_add(go_len(&value));
                if *copied > COPY_BYTES_MAX {
                    return Err(Why::CopiesTooLarge);
                }
                add(object, path, value)
            }
            Action::Test(value) => {
                let present = if path.is_empty() { Some(&*object) } else { get(object, path) };
                if !same(present.ok_or_else(|| absent(path))?, value) {
                    return Err(Why::Differs(path.to_owned()));
                }
                Some(())
            }
        };
        applies.ok_or_else(|| absent(path))
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (op, from, value) = match &self.action {
            Action::Add(value) => ("add", None, Some(value)),
            Action::Remove => ("remove", None, None),
            Action::Replace(value) => ("replace", None, Some(value)),
            Action::Move { from } => ("move", Some(from), None),
            Action::Copy { from } => ("copy", Some(from), None),
            Action::Test(value) => ("test", None, Some(value)),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("op", op)?;
        if let Some(from) = from {
            map.serialize_entry("from", from)?;
        }
        map.serialize_entry("path", &self.path)?;
        if let Some(value) = value {
            map.serialize_entry("value", value)?;
        }
        map.end()
    }
}

/// Stricter than what a client may send: paths begin with `/` or are empty, and a value is there.
impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let operation = Map::deserialize(deserializer)?;
        let has_value = operation.contains_key("value");
        let operation = Self::read(operation).map_err(D::Error::custom)?;
        let from = match &operation.action {
            Action::Move { from } | Action::Copy { from } => from.as_str(),
            Action::Remove => "",
            Action::Add(_) | Action::Replace(_) | Action::Test(_) if has_value => "",
            Action::Add(_) | Action::Replace(_) | Action::Test(_) => {
                return Err(D::Error::custom(Why::Missing("value")));
            }
        };
        let paths = [operation.path.as_str(), from];
        if let Some(path) = paths.into_iter().find(|path| !path.is_empty() && !path.starts_with('/')) {
            return Err(D::Error::custom(format!("the path {path} does not begin with '/'", path = Quoted(path))));
        }
        Ok(operation)
    }
}

/// The steps of a path, without their escapes; none: it is the whole.
pub fn steps(path: &str) -> Vec<String> {
    path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

/// The path of steps, with their escapes.
pub fn path_of<'s>(steps: impl IntoIterator<Item = &'s String>) -> String {
    steps.into_iter().fold(String::new(), |path, step| path + "/" + &step.replace('~', "~0").replace('/', "~1"))
}

/// Says whether a step of a path can be a place in a list.
pub fn is_index(step: &str) -> bool {
    step == "-" || step.parse::<i64>().is_ok()
}

/// The value that holds the last step of a path, and that step.
fn find<'v>(object: &'v mut Value, path: &str) -> Option<(&'v mut Value, String)> {
    let mut steps = steps(path);
    let last = steps.pop()?;
    let mut container = object;
    for step in steps {
        container = match container {
            Value::Object(fields) => fields.get_mut(&step)?,
            Value::Array(items) => {
                let index = index(&step, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    Some((container, last))
}

/// A place in a list of so many items; negative ones count from the end. It may lie behind the end.
pub fn index(step: &str, len: usize) -> Option<usize> {
    let index: i64 = step.parse().ok()?;
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index.checked_add(len)? } else { index };
    usize::try_from(index).ok()
}

const NOTHING: &Value = &Value::Null;

/// A field that is not there is null; an item that is not there is an error.
fn get<'v>(object: &'v mut Value, path: &str) -> Option<&'v Value> {
    match find(object, path)? {
        (Value::Object(fields), key) => Some(fields.get(&key).unwrap_or(NOTHING)),
        (Value::Array(items), key) => items.get(index(&key, items.len())?),
        _ => None,
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    match find(object, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value);
        }
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            let index = index(&key, items.len() + 1).filter(|index| *index <= items.len())?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    match find(object, path)? {
        (Value::Object(fields), key) => fields.shift_remove(&key),
        (Value::Array(items), key) => {
            let index = index(&key, items.len()).filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

fn replace(object: &mut Value, path: &str, value: Value) -> Option<()> {
    match find(object, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value);
        }
        (Value::Array(items), key) => {
            let index = index(&key, items.len())?;
            *items.get_mut(index)? = value;
        }
        _ => return None,
    }
    Some(())
}

/// Says whether a test finds the value that it asks for. Go writes a whole number of an object without a fraction.
fn same(present: &Value, asked: &Value) -> bool {
    match (present, asked) {
        (Value::Number(present), Value::Number(asked)) if present.is_f64() && !asked.is_f64() => {
            present.as_f64() == asked.as_f64()
        }
        (Value::Array(present), Value::Array(asked)) => {
            present.len() == asked.len() && present.iter().zip(asked).all(|(present, asked)| same(present, asked))
        }
        (Value::Object(present), Value::Object(asked)) => {
            let has = |(name, present): (&String, &Value)| asked.get(name).is_some_and(|asked| same(present, asked));
            present.len() == asked.len() && present.iter().all(has)
        }
        (present, asked) => present == asked,
    }
}

/// The bytes that a value has as Go writes it, which escapes what HTML could be.
fn go_len(value: &Value) -> usize {
    if value.is_null() {
        return 0;
    }
    let text = value.to_string();
    let longer = |character: char| match character {
        '<' | '>' | '&' => 5,
        '\u{2028}' | '\u{2029}' => 3,
        _ => 0,
    };
    text.len() + text.chars().map(longer).sum::<usize>()
}
