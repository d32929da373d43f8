//! Strategic merge patch.
//!
//! Source: kubernetes/apimachinery `pkg/util/strategicpatch/patch.go`.

mod lists;

use serde_json::{Map, Value};

use kubefold_wire::{
    golang,
    patch::{decoded, not_an_object},
};

use super::PatchError;
use crate::schema::{Shape, Type};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// The object with what a strategic merge patch says. `of` is the type of the object, which is of a built-in kind:
/// others are refused before (415).
///
/// Errors: the patch is no JSON object, or a directive in it is none or does not fit.
pub fn strategic(live: &Value, patch: &[u8], of: Type<'_>) -> Result<Value, PatchError> {
    let patch = match decoded(patch, "")? {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        other => return Err(not_an_object(&other, "")),
    };
    let live = live.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge_objects(live, patch, Some(of))?))
}

fn merge_objects(
    mut live: Map<String, Value>,
    mut patch: Map<String, Value>,
    of: Option<Type<'_>>,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE).cloned() {
        return match directive.as_str() {
            Some("replace") => {
                patch.shift_remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(&directive, &patch)),
        };
    }
    retain_keys(&mut live, &mut patch)?;
    set_orders(&mut live, &mut patch, of)?;
    for (name, value) in patch {
        let (name, deletes) = match name.strip_prefix(DELETE_FROM_LIST) {
            Some(rest) => (listed(rest, "invalid patch format of primitive list")?, true),
            None => (name, false),
        };
        if value.is_null() {
            live.shift_remove(&name);
            continue;
        }
        let merged = match (live.get_mut(&name), value) {
            (None, _) if deletes => continue,
            (Some(Value::Object(present)), Value::Object(value)) => {
                let field = field(of, &name)?;
                let present = std::mem::take(present);
                Some(Value::Object(merge_objects(present, value, Some(field))?))
            }
            (Some(Value::Array(present)), Value::Array(value)) => {
                let list = lists::List::of(of, &name)?;
                let present = std::mem::take(present);
                Some(Value::Array(list.merge(present, value, deletes)?))
            }
            (Some(present), value) if deletes => {
                let same_kind = std::mem::discriminant(present) == std::mem::discriminant(&value);
                if same_kind { Some(value) } else { continue }
            }
            (_, mut value) => {
                drop_nulls(&mut value);
                without_directives(value)
            }
        };
        match merged {
            Some(value) => {
                live.insert(name, value);
            }
            None => {
                live.shift_remove(&name);
            }
        }
    }
    Ok(live)
}

/// The type of a field whose value is merged.
fn field<'a>(of: Option<Type<'a>>, name: &str) -> Result<Type<'a>, PatchError> {
    let unknown = || {
        let what = match of.map(Type::shape) {
            Some(Shape::Map(_)) => "merging an object in json but data type is not struct, instead is: map".to_owned(),
            _ => {
                let of = of.and_then(Type::go).and_then(|go| go.name.rsplit('.').next()).unwrap_or_default();
                format!("unable to find api field in struct {of} for the json field {}", golang::quoted(name))
            }
        };
        PatchError::unforeseen(what)
    };
    let of = of.filter(|of| !matches!(of.shape(), Shape::Map(_))).ok_or_else(unknown)?;
    of.field(name).ok_or_else(unknown)
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    let patch = golang::plain(&Value::Object(patch.clone()));
    // Go prints what is no text, where it expects one, as a complaint.
    let directive = match directive {
        Value::String(directive) => directive.clone(),
        other => format!("%!s({}={})", golang::type_name(other), golang::plain(other)),
    };
    PatchError::unforeseen(format!("unknown patch type: {directive} in map: {patch}"))
}

/// The name of the list that a directive is about.
fn listed(rest: &str, else_wrong: &str) -> Result<String, PatchError> {
    rest.strip_prefix('/').map(str::to_owned).ok_or_else(|| PatchError::bad_request(else_wrong))
}

/// `$retainKeys`: fields that it does not list go.
fn retain_keys(live: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(keys) = patch.shift_remove(RETAIN_KEYS) else { return Ok(()) };
    let wrong = || PatchError::bad_request("invalid patch format of retainKeys");
    let Value::Array(keys) = keys else { return Err(wrong()) };
    let retains = |name: &str| keys.iter().any(|key| key == name);
    let is_directive = |name: &str| name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !is_directive(name) && !retains(name)) {
        return Err(wrong());
    }
    live.retain(|name, _| retains(name));
    Ok(())
}

/// `$setElementOrder`: merges the lists that it is about, and orders them.
fn set_orders(
    live: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    of: Option<Type<'_>>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = patch.shift_remove(&directive).unwrap_or(Value::Null);
        let order = lists::array(order)?;
        let rest = directive.strip_prefix(SET_ORDER).unwrap_or_default();
        let name = listed(rest, "invalid patch format of setElementOrder list")?;
        let present = live.get(&name).cloned().map(lists::array).transpose()?;
        let wanted = patch.get(&name).cloned().map(lists::array).transpose()?;
        let list = lists::List::of(of, &name)?;
        list.check_order(wanted.as_deref(), &order)?;
        let merged = match (&present, &wanted) {
            (None, None) => continue,
            (Some(present), None) => present.clone(),
            (None, Some(wanted)) => match without_directives(Value::Array(wanted.clone())) {
                Some(Value::Array(wanted)) => wanted,
                _ => continue,
            },
            (Some(present), Some(wanted)) => list.merge(present.clone(), wanted.clone(), false)?,
        };
        let (present, wanted) = (present.unwrap_or_default(), wanted.unwrap_or_default());
        let ordered = list.ordered(merged, &order, &present, lists::are_objects([&present, &wanted])?)?;
        live.insert(name.clone(), Value::Array(ordered));
        patch.shift_remove(&name);
    }
    Ok(())
}

/// Nulls say that something is to go; where nothing is there, they say nothing.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// What is left of a value that is merged with nothing; `None`: it is a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = |(name, value)| Some((name, without_directives(value)?));
            Some(Value::Object(fields.into_iter().filter_map(kept).collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        value => Some(value),
    }
}
