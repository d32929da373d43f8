//! `Object{}`, `Object.spec{}` and `JSONPatch{}`: the values with which an expression says how an object is changed.
//!
//! The interpreter makes values of declared types only, and each field of an object has a type of its own here. So what an
//! expression constructs is rewritten, before it runs, into a call that makes the value.
//!
//! Source: kubernetes/apiserver `pkg/cel/mutation/`, `pkg/admission/plugin/policy/mutating/patch/`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cel::{
    DeclarationError, Env, ExecutionError, add_overload,
    common::{
        ast::{CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr, MapExpr, StructExpr},
        types::{
            CelBool, CelBytes, CelDouble, CelDuration, CelInt, CelList, CelMap, CelMapKey, CelOptional, CelString,
            CelStruct, CelTimestamp, CelUInt, DYN_TYPE, NULL_TYPE,
        },
        value::{Builtin, CowVal, Val},
    },
};
use kubefold_wire::golang::Quoted;
use serde_json::{Map, Value};

/// The type of a whole object; those of its fields have its name and theirs.
pub(super) const OBJECT: &str = "Object";
/// The type of an operation of a JSON patch.
pub(super) const JSON_PATCH: &str = "JSONPatch";
/// The fields of an operation. All but the last are texts.
pub(super) const JSON_PATCH_FIELDS: [&str; 4] = ["op", "path", "from", "value"];
/// The function of expressions about patches.
pub(super) const ESCAPE_KEY: &str = "jsonpatch.escapeKey";

/// The function that makes a value. No expression can write its name.
const MAKE: &str = "@make";

/// Why the value of an expression changes no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchValueError {
    /// Fields have values of the types of other fields.
    #[error("type mismatch: {}", .0.join("\n"))]
    Names(Vec<String>),
    /// It is another value than an object.
    #[error("unsupported return type from ApplyConfiguration expression: {0}")]
    NoObject(String),
    /// It is no list.
    #[error("type mismatch: JSONPatchType.expression should evaluate to array")]
    NoList,
    /// It is a list with another value than an operation.
    #[error("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {0}")]
    NoOperation(String),
    /// It holds a value that JSON does not have.
    #[error("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {0}")]
    NoJson(String),
}

/// Says whether a type is one of those that are made here.
pub(super) fn is_patch_type(name: &str) -> bool {
    name == JSON_PATCH || name == OBJECT || name.strip_prefix(OBJECT).is_some_and(|field| field.starts_with('.'))
}

/// Adds what makes the values, and `jsonpatch.escapeKey`.
pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(MAKE, MAKE, vec![DYN_TYPE, DYN_TYPE], make)?;
    add_overload!(env, fn escape_key: (CelString<'_>) -> CelString<'_>, name = ESCAPE_KEY)
}

/// Source: kubernetes/apiserver `pkg/cel/library/jsonpatch.go`.
fn escape_key(key: &CelString<'_>) -> CelString<'static> {
    CelString::from(key.inner().replace('~', "~0").replace('/', "~1"))
}

/// Has a value that is constructed made by a call.
pub(super) fn rewrite(expression: &mut IdedExpr) {
    if !matches!(expression.expr, Expr::Struct(_)) {
        return;
    }
    let Expr::Struct(StructExpr { type_name, entries }) = std::mem::take(&mut expression.expr) else { return };
    let text = |text: String| IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::String(CelString::from(text))) };
    let field = |entry: IdedEntryExpr| {
        let expr = match entry.expr {
            EntryExpr::StructField(field) => EntryExpr::MapEntry(MapEntryExpr {
                key: text(field.field),
                value: field.value,
                optional: field.optional,
            }),
            entry @ EntryExpr::MapEntry(_) => entry,
        };
        IdedEntryExpr { id: entry.id, expr }
    };
    let fields = Expr::Map(MapExpr { entries: entries.into_iter().map(field).collect() });
    let args = vec![text(type_name), IdedExpr { id: 0, expr: fields }];
    expression.expr = Expr::Call(CallExpr { func_name: MAKE.to_owned(), target: None, args });
}

fn make<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let mut args = args.into_iter();
    let (Some(name), Some(fields)) = (args.next(), args.next()) else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let name = name.downcast_ref::<CelString<'_>>().map(|name| name.inner().to_owned()).unwrap_or_default();
    let Some(Builtin::Map(fields)) = fields.into_owned().into_builtin() else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let mut made = CelStruct::new(name);
    for (key, value) in fields.into_inner() {
        let key = key_of(&key);
        let is_text = made.name() == JSON_PATCH && key != "value";
        if is_text && value.downcast_ref::<CelString<'_>>().is_none() {
            let why = format!("unexpected type {} for JSONPatchType '{key}' field", value.get_type().name());
            return Err(ExecutionError::function_error(MAKE, why));
        }
        made.add_field_value(key, CowVal::Owned(value));
    }
    Ok(CowVal::owned(made))
}

/// The object that an expression gave, with its fields.
///
/// Errors: it is none, or a field has a value of another field's type.
pub(super) fn object(value: &dyn Val) -> Result<Value, PatchValueError> {
    let Some(made) = value.downcast_ref::<CelStruct<'_>>().filter(|made| made.name() == OBJECT) else {
        return Err(PatchValueError::NoObject(value.get_type().name().to_owned()));
    };
    checked(made)?;
    json(made)
}

/// The operations of a JSON patch that an expression gave.
///
/// Errors: it is none, or a value is none of JSON's.
pub(super) fn operations(value: &dyn Val) -> Result<Vec<Map<String, Value>>, PatchValueError> {
    let list = value.downcast_ref::<CelList<'_>>().ok_or(PatchValueError::NoList)?;
    list.inner().iter().map(|item| operation(item.as_ref())).collect()
}

fn operation(item: &dyn Val) -> Result<Map<String, Value>, PatchValueError> {
    let made = item.downcast_ref::<CelStruct<'_>>().filter(|made| made.name() == JSON_PATCH);
    let made = made.ok_or_else(|| PatchValueError::NoOperation(item.get_type().name().to_owned()))?;
    let text = |name: &str| {
        let text = made.field_value(name).and_then(|text| text.downcast_ref::<CelString<'_>>());
        text.map(|text| text.inner().to_owned()).unwrap_or_default()
    };
    let mut operation = Map::new();
    operation.insert("op".to_owned(), text("op").into());
    operation.insert("path".to_owned(), text("path").into());
    let from = text("from");
    if !from.is_empty() {
        operation.insert("from".to_owned(), from.into());
    }
    if let Some(value) = made.field_value("value") {
        if let Some(made) = value.downcast_ref::<CelStruct<'_>>() {
            checked(made)?;
        }
        operation.insert("value".to_owned(), json(value)?);
    }
    Ok(operation)
}

/// Checks that each field has a value of its own type, or of none.
///
/// Errors: all that do not.
fn checked(made: &CelStruct<'_>) -> Result<(), PatchValueError> {
    let mut wrong = Vec::new();
    check_names(made, made.name(), &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(PatchValueError::Names(wrong)) }
}

/// Lists and maps have no names: what they hold is of the field that has them.
fn check_names(value: &dyn Val, expected: &str, wrong: &mut Vec<String>) {
    if let Some(made) = value.downcast_ref::<CelStruct<'_>>() {
        if made.name() != expected {
            let (got, expected) = (Quoted(made.name()), Quoted(expected));
            wrong.push(format!(
                "unexpected type name {got}, expected {expected}, which matches field name path from root Object type"
            ));
        }
        for (name, value) in made.field_values() {
            check_names(value.as_ref(), &format!("{expected}.{name}"), wrong);
        }
    } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        list.inner().iter().for_each(|item| check_names(item.as_ref(), expected, wrong));
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        map.inner().values().for_each(|value| check_names(value.as_ref(), expected, wrong));
    }
}

/// A value as JSON. Fields and keys come in the order of their names.
///
/// Errors: JSON does not have it.
fn json(value: &dyn Val) -> Result<Value, PatchValueError> {
    if let Some(made) = value.downcast_ref::<CelStruct<'_>>() {
        let fields = made.field_values();
        let fields = fields.iter().map(|(name, value)| Ok((name.clone(), json(value.as_ref())?)));
        return fields.collect::<Result<Map<_, _>, _>>().map(Value::Object);
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        let mut fields: Vec<(String, &dyn Val)> =
            map.inner().iter().map(|(key, value)| (key_of(key), value.as_ref())).collect();
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        let fields = fields.into_iter().map(|(name, value)| Ok((name, json(value)?)));
        return fields.collect::<Result<Map<_, _>, _>>().map(Value::Object);
    }
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        return list.inner().iter().map(|item| json(item.as_ref())).collect::<Result<Vec<_>, _>>().map(Value::Array);
    }
    if let Some(optional) = value.downcast_ref::<CelOptional<'_>>() {
        return optional.inner().map_or(Ok(Value::Null), json);
    }
    scalar(value).ok_or_else(|| PatchValueError::NoJson(value.get_type().name().to_owned()))
}

fn scalar(value: &dyn Val) -> Option<Value> {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return Some(text.inner().into());
    }
    if let Some(truth) = value.downcast_ref::<CelBool>() {
        return Some((*truth.inner()).into());
    }
    if let Some(number) = value.downcast_ref::<CelInt>() {
        return Some((*number.inner()).into());
    }
    if let Some(number) = value.downcast_ref::<CelUInt>() {
        return Some((*number.inner()).into());
    }
    if let Some(number) = value.downcast_ref::<CelDouble>() {
        return Some((*number.inner()).into());
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return Some(STANDARD.encode(bytes.inner()).into());
    }
    if let Some(time) = value.downcast_ref::<CelTimestamp>() {
        return Some(time.inner().to_utc().format("%Y-%m-%dT%H:%M:%S%.fZ").to_string().into());
    }
    if let Some(duration) = value.downcast_ref::<CelDuration>() {
        let (seconds, nanos) = (duration.inner().num_seconds(), duration.inner().subsec_nanos().unsigned_abs());
        let fraction = if nanos == 0 { String::new() } else { format!(".{nanos:09}") };
        return Some(format!("{seconds}{fraction}s").into());
    }
    (value.get_type().name() == NULL_TYPE.name()).then_some(Value::Null)
}

fn key_of(key: &CelMapKey<'_>) -> String {
    let key = key.inner();
    match scalar(key) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    }
}
