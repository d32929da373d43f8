//! An applied object laid over the present one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    super::fields::Element,
    Faults,
    compare::differ_in_kind,
    fault,
    shape::{Atom, List, Map, Shape, fields, items},
    within,
};

/// The present object with what the applied one has. Items of lists come in the order of the applied ones, those
/// that only the present one has between them.
///
/// Errors: what of either does not fit the type.
pub(crate) fn merge(shape: Shape<'_>, live: &Value, applied: &Value) -> Result<Value, Faults> {
    Ok(both(shape, Some(live), Some(applied))?.unwrap_or(Value::Null))
}

fn both(shape: Shape<'_>, live: Option<&Value>, applied: Option<&Value>) -> Result<Option<Value>, Faults> {
    if differ_in_kind(shape, live, applied) {
        by(shape.atom(live), live, applied)?;
    }
    by(shape.atom(applied.or(live)), live, applied)
}

fn by(atom: Atom<'_>, live: Option<&Value>, applied: Option<&Value>) -> Result<Option<Value>, Faults> {
    let leaf = || applied.or(live).cloned();
    match atom {
        Atom::Scalar(scalar) => match scalar.check_both(live, applied) {
            faults if faults.is_empty() => Ok(leaf()),
            faults => Err(faults),
        },
        Atom::List(list) => {
            let (lives, applieds) = (items(live), items(applied));
            let both_empty = lives.is_none_or(Vec::is_empty) && applieds.is_none_or(Vec::is_empty);
            if list.items_by.is_none() || both_empty {
                return Ok(leaf());
            }
            let out = merge_items(list, lives, applieds)?;
            Ok((!out.is_empty()).then_some(Value::Array(out)))
        }
        Atom::Map(map) => {
            let (lives, applieds) = (fields(live), fields(applied));
            let empty = |fields: Option<&serde_json::Map<String, Value>>| fields.is_none_or(|all| all.is_empty());
            if map.atomic || (empty(lives) && empty(applieds)) {
                return Ok(leaf());
            }
            let out = merge_fields(map, lives, applieds)?;
            Ok((!out.is_empty()).then_some(Value::Object(out)))
        }
    }
}

fn merge_fields(
    map: Map<'_>,
    live: Option<&serde_json::Map<String, Value>>,
    applied: Option<&serde_json::Map<String, Value>>,
) -> Result<serde_json::Map<String, Value>, Faults> {
    let (mut out, mut faults) = (serde_json::Map::new(), Vec::new());
    let only_applied =
        applied.into_iter().flatten().filter(|(name, _)| !live.is_some_and(|live| live.contains_key(*name)));
    let names = live.into_iter().flatten().chain(only_applied).map(|(name, _)| name);
    for name in names {
        let Some(shape) = map.field(name) else { continue };
        let live = live.and_then(|live| live.get(name));
        let applied = applied.and_then(|applied| applied.get(name));
        match both(shape, live, applied) {
            Ok(Some(value)) => {
                out.insert(name.clone(), value);
            }
            Ok(None) => {}
            Err(more) => faults.extend(within(&Element::Field(name.clone()), more)),
        }
    }
    if faults.is_empty() { Ok(out) } else { Err(faults) }
}

/// Items with how they are known, in their order.
struct Indexed<'v> {
    steps: Vec<(Element, &'v Value)>,
    by_step: BTreeMap<Element, &'v Value>,
}

/// What stands for an item that is there twice: it is not merged.
const TWICE: &Value = &Value::Null;

fn index<'v>(list: List<'_>, items: Option<&'v Vec<Value>>, twice: bool, faults: &mut Faults) -> Indexed<'v> {
    let mut indexed = Indexed { steps: Vec::new(), by_step: BTreeMap::new() };
    for (index, item) in items.into_iter().flatten().enumerate() {
        let step = match list.step(item) {
            Ok(step) => step,
            Err(why) => {
                faults.push(fault(format!("element {index}: {why}")));
                continue;
            }
        };
        let found = indexed.by_step.contains_key(&step);
        if found && !twice {
            faults.push(fault(format!("duplicate entries for key {step}")));
            continue;
        }
        indexed.by_step.insert(step.clone(), if found { TWICE } else { item });
        indexed.steps.push((step, item));
    }
    indexed
}

fn merge_items(list: List<'_>, live: Option<&Vec<Value>>, applied: Option<&Vec<Value>>) -> Result<Vec<Value>, Faults> {
    let mut faults = Vec::new();
    let applied = index(list, applied, false, &mut faults);
    let live = index(list, live, true, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut out = Vec::new();
    // An item that does not fit is left out: so does the original, that loses the error on its way.
    let mut take = |live: Option<&Value>, applied: Option<&Value>| {
        out.extend(both(list.items, live, applied).ok().flatten());
    };
    let mut shared = applied.steps.iter().map(|(step, _)| step).filter(|step| live.by_step.contains_key(*step));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&Element> = BTreeSet::new();
    let (mut lives, mut applieds) = (live.steps.iter().peekable(), applied.steps.iter().peekable());
    while lives.peek().is_some() || applieds.peek().is_some() {
        if let (Some((mine, _)), Some((theirs, value))) = (lives.peek(), applieds.peek()) {
            if mine == theirs {
                merged.insert(mine);
                take(live.by_step.get(mine).copied(), Some(value));
                lives.next();
                applieds.next();
                next_shared = shared.next();
                continue;
            }
            let is_other = next_shared.is_some_and(|next| next != mine);
            if applied.by_step.contains_key(mine) && is_other {
                lives.next();
                continue;
            }
        }
        if let Some((mine, value)) = lives.peek() {
            if !applied.by_step.contains_key(mine) {
                take(Some(value), None);
                lives.next();
                continue;
            }
            if merged.contains(mine) {
                lives.next();
            }
        }
        if let Some((theirs, value)) = applieds.next() {
            merged.insert(theirs);
            take(live.by_step.get(theirs).copied(), Some(value));
            if next_shared == Some(theirs) {
                next_shared = shared.next();
            }
        }
    }
    Ok(out)
}
