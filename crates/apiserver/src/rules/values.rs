//! Values of an object as CEL sees them.
//!
//! Source: kubernetes/apiserver `pkg/cel/common/values.go`, `pkg/cel/escaping.go`.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use cel::{
    Env, ExecutionError,
    common::{
        traits::Indexer,
        types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, NULL_TYPE, Type},
        value::{CowVal, Val},
    },
};
use kubefold_wire::access::text;
use serde_json::Value;

/// Source: kubernetes/apiserver `pkg/cel/escaping.go`.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Says whether CEL has another use for a name.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The name of a property in CEL; `None`: it has none.
pub(super) fn escaped(name: &str) -> Option<Cow<'_, str>> {
    if is_reserved(name) {
        return Some(format!("__{name}__").into());
    }
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || "_.-/".contains(letter);
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) || !name.chars().all(is_known) {
        return None;
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return Some(name.into());
    }
    let name = name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__");
    Some(name.replace('/', "__slash__").into())
}

/// A value, typed by its schema. Texts are borrowed.
pub(super) fn value<'v>(env: &Env, schema: &Value, value: &'v Value) -> Box<dyn Val + 'v> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(truth) => Box::new(CelBool::from(*truth)),
        Value::Number(number) => match number.as_i64().filter(|_| text(schema, "/type") != "number") {
            Some(whole) => Box::new(CelInt::from(whole)),
            None => Box::new(CelDouble::from(number.as_f64().unwrap_or_default())),
        },
        Value::String(said) => formatted(env, schema, said),
        Value::Array(items) => {
            let of = schema.get("items").unwrap_or(&Value::Null);
            let items: Vec<Box<dyn Val + 'v>> = items.iter().map(|item| self::value(env, of, item)).collect();
            Box::new(CelList::from(items))
        }
        Value::Object(fields) => {
            let values = schema.get("additionalProperties").filter(|values| values.is_object());
            let mut map: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = HashMap::with_capacity(fields.len());
            for (name, field) in fields {
                let (key, of) = match values {
                    Some(of) => (Some(Cow::Borrowed(name.as_str())), Some(of)),
                    None => (escaped(name), schema.get("properties").and_then(|all| all.get(name))),
                };
                let key = match key {
                    Some(Cow::Borrowed(key)) => CelMapKey::from(key),
                    Some(Cow::Owned(key)) => CelMapKey::from(key),
                    None => continue,
                };
                map.insert(key, self::value(env, of.unwrap_or(&Value::Null), field));
            }
            Box::new(CelMap::from(map))
        }
    }
}

/// A value of which no schema says anything, with its fields under their own names. Texts are borrowed.
///
/// Source: kubernetes/apiserver `pkg/admission/plugin/cel/activation.go`, where objects are trees of maps.
pub(super) fn raw(value: &Value) -> Box<dyn Val + '_> {
    match value {
        Value::Null => Box::new(Nil),
        Value::Bool(truth) => Box::new(CelBool::from(*truth)),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Box::new(CelInt::from(whole)),
            None => Box::new(CelDouble::from(number.as_f64().unwrap_or_default())),
        },
        Value::String(said) => Box::new(CelString::from(said.as_str())),
        Value::Array(items) => Box::new(CelList::from(items.iter().map(raw).collect::<Vec<_>>())),
        Value::Object(fields) => {
            let entries = fields.iter().map(|(name, field)| (CelMapKey::from(name.as_str()), raw(field)));
            Box::new(CelMap::from(entries.collect::<HashMap<_, _>>()))
        }
    }
}

/// Null, of which cel-go says that it lacks the field that is selected, where this interpreter says that it has no fields.
#[derive(Clone, Copy, Debug)]
struct Nil;

impl Val for Nil {
    fn get_type(&self) -> &Type {
        &NULL_TYPE
    }

    fn cel_type() -> &'static Type {
        &NULL_TYPE
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.get_type().name() == NULL_TYPE.name()
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(*self)
    }
}

impl Indexer for Nil {
    fn get<'b, 'w>(&'b self, field: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let field = field.downcast_ref::<CelString<'_>>().map(|field| field.inner().to_owned()).unwrap_or_default();
        Err(ExecutionError::NoSuchKey(Arc::new(field)))
    }

    fn steal<'w>(self: Box<Self>, field: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(field).map(CowVal::into_owned)
    }
}

/// A text, or what its format makes of it.
fn formatted<'v>(env: &Env, schema: &Value, said: &'v str) -> Box<dyn Val + 'v> {
    let of = |function: &str, said: Cow<'v, str>| {
        let text = match said {
            Cow::Borrowed(said) => CelString::from(said),
            Cow::Owned(said) => CelString::from(said),
        };
        let args: Vec<CowVal<'_, 'v>> = vec![CowVal::owned(text)];
        env.find_overload(function, &args).and_then(|make| make(args).ok()).map(CowVal::into_owned)
    };
    let made = match (text(schema, "/type"), text(schema, "/format")) {
        ("string", "date-time") => of("timestamp", said.into()),
        ("string", "date") => of("timestamp", format!("{said}T00:00:00Z").into()),
        ("string", "duration") => of("duration", said.into()),
        ("string", "byte") => of("base64.decode", said.into()),
        _ => None,
    };
    made.unwrap_or_else(|| Box::new(CelString::from(said)))
}
