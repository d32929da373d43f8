//! Lists in a strategic merge patch.

use kubefold_wire::golang;
use serde_json::Value;

use super::{
    super::{PatchError, fields::same},
    DIRECTIVE, SET_ORDER, field, merge_objects,
};
use crate::schema::{Shape, Type};

/// A list of an object, by its type.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    /// The type of its items.
    items: Option<Type<'a>>,
    /// Whether its items are merged; else the list is one value.
    merges: bool,
    /// What its items are known by; `None`: by their values.
    key: Option<&'a str>,
}

impl<'a> List<'a> {
    /// The list in a field.
    pub(super) fn of(of: Option<Type<'a>>, name: &str) -> Result<Self, PatchError> {
        let field = field(of, name)?;
        if !matches!(field.shape(), Shape::List(_) | Shape::Any) {
            return Err(PatchError::unforeseen("expected slice or array type, but got: struct"));
        }
        Ok(Self { items: field.items(), merges: field.merges().is_some(), key: field.merges().flatten() })
    }

    /// The list with what a patch says of it.
    pub(super) fn merge(self, live: Vec<Value>, patch: Vec<Value>, deletes: bool) -> Result<Vec<Value>, PatchError> {
        if !self.merges && !deletes {
            return Ok(patch);
        }
        if live.is_empty() && patch.is_empty() {
            return Ok(live);
        }
        let are_objects = are_objects([&live, &patch])?;
        if !are_objects && deletes {
            return Ok(live.into_iter().filter(|item| !patch.iter().any(|gone| same(gone, item))).collect());
        }
        let (merged, live, patch) = if are_objects {
            let Some(key) = self.key else {
                return Err(PatchError::unforeseen("cannot merge lists without merge key for struct"));
            };
            let (live, patch) = special_items(live, patch, key)?;
            (self.merge_by_key(live.clone(), &patch, key)?, live, patch)
        } else {
            let both = live.iter().chain(&patch).cloned().collect();
            (without_duplicates(both), live, patch)
        };
        self.ordered(merged, &patch, &live, are_objects)
    }

    fn merge_by_key(self, mut live: Vec<Value>, patch: &[Value], key: &str) -> Result<Vec<Value>, PatchError> {
        for item in patch {
            let value = key_of(item, key)?;
            match position(&live, key, value)? {
                Some(at) => {
                    if let (Some(place), Value::Object(item)) = (live.get_mut(at), item) {
                        let present = place.as_object().cloned().unwrap_or_default();
                        *place = Value::Object(merge_objects(present, item.clone(), self.items)?);
                    }
                }
                None => live.push(item.clone()),
            }
        }
        Ok(live)
    }

    /// Orders a merged list: what the patch names in the patch's order, the rest in the present one.
    pub(super) fn ordered(
        self,
        merged: Vec<Value>,
        order: &[Value],
        live: &[Value],
        are_objects: bool,
    ) -> Result<Vec<Value>, PatchError> {
        let key = self.key;
        let (mut named, mut rest) = (Vec::new(), Vec::new());
        for item in merged {
            let is_named = match key {
                None => order.iter().any(|other| same(other, &item)),
                Some(key) => position(order, key, key_of(&item, key)?)?.is_some(),
            };
            if is_named { named.push(item) } else { rest.push(item) }
        }
        let key = if are_objects { key.or(Some("")) } else { None };
        if let Some(key) = key {
            for item in named.iter().chain(order).chain(&rest).chain(live) {
                key_of(item, key)?;
            }
        }
        sort(&mut named, order, key);
        sort(&mut rest, live, key);
        Ok(interleaved(rest, named, live, key))
    }

    /// Checks that items of the patch are in the order that it says.
    pub(super) fn check_order(self, patch: Option<&[Value]>, order: &[Value]) -> Result<(), PatchError> {
        let wrong = || PatchError::bad_request("invalid patch format of setElementOrder list");
        // A patch without the list is not a list: so says the original, of a nil.
        let Some(patch) = patch.or(Some(&[])) else { return Err(wrong()) };
        if order.is_empty() || patch.is_empty() {
            return Ok(());
        }
        let is_directive = |item: &Value| item.get(DIRECTIVE).is_some();
        let mut places = order.iter();
        for item in patch.iter().filter(|item| !is_directive(item)) {
            loop {
                let Some(place) = places.next() else {
                    let (patch, order) = (Value::from(patch.to_vec()), Value::from(order.to_vec()));
                    return Err(PatchError::unforeseen(format!(
                        "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                        golang::plain(&patch),
                        golang::plain(&order)
                    )));
                };
                let equal = match self.key {
                    None => same(item, place),
                    Some(key) => same(key_of(item, key)?, key_of(place, key)?),
                };
                if equal {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A value that must be a list.
pub(super) fn array(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => {
            let message = format!("expected a []interface {{}}, but received a {}", golang::type_name(&other));
            Err(PatchError::unforeseen(message))
        }
    }
}

fn key_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, PatchError> {
    let Value::Object(fields) = item else {
        let kind = golang::type_name(item);
        return Err(PatchError::unforeseen(format!("expected a map[string]interface {{}}, but received a {kind}")));
    };
    fields.get(key).ok_or_else(|| {
        let item = golang::plain(item);
        PatchError::unforeseen(format!("map: {item} does not contain declared merge key: {key}"))
    })
}

fn position(items: &[Value], key: &str, value: &Value) -> Result<Option<usize>, PatchError> {
    for (index, item) in items.iter().enumerate() {
        if !item.is_object() {
            return Err(PatchError::unforeseen(format!("value for key {index} is not a map")));
        }
        if item.get(key).is_some_and(|other| same(other, value)) {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Says whether the items are objects. They must all be of one kind.
pub(super) fn are_objects(lists: [&[Value]; 2]) -> Result<bool, PatchError> {
    let mut items = lists.into_iter().flatten();
    let Some(first) = items.next() else {
        return Err(PatchError::unforeseen("no elements in any of the given slices"));
    };
    if first.is_array() {
        return Err(PatchError::unprocessable());
    }
    if items.any(|item| std::mem::discriminant(item) != std::mem::discriminant(first)) {
        let lists: Vec<String> = lists.iter().map(|list| golang::plain(&Value::from(list.to_vec()))).collect();
        let lists = lists.join(" ");
        return Err(PatchError::unforeseen(format!("list element types are not identical: [{lists}]")));
    }
    Ok(first.is_object())
}

/// Items that say what is to become of the list: `$patch: delete` and `$patch: replace`.
fn special_items(mut live: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let (mut plain, mut replaces) = (Vec::new(), false);
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE).cloned() else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = key_of(&item, key)?;
                while let Some(at) = position(&live, key, value)? {
                    live.remove(at);
                }
            }
            Some("replace") => replaces = true,
            Some("merge") => {
                return Err(PatchError::unforeseen("merging lists cannot yet be specified in the patch"));
            }
            _ => {
                let item = item.as_object().cloned().unwrap_or_default();
                return Err(super::unknown_directive(&directive, &item));
            }
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (live, plain) })
}

/// The items, each once. The last one takes the place of one that goes, as in the original.
fn without_duplicates(mut items: Vec<Value>) -> Vec<Value> {
    let mut at = 0;
    while at + 1 < items.len() {
        let mut other = at + 1;
        while other < items.len() {
            let equal = matches!((items.get(at), items.get(other)), (Some(left), Some(right)) if same(left, right));
            if equal {
                items.swap_remove(other);
            } else {
                other += 1;
            }
        }
        at += 1;
    }
    items
}

fn place(items: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    items.iter().position(|other| match key {
        None => same(other, item),
        Some(key) => match (other.get(key), item.get(key)) {
            (Some(left), Some(right)) => same(left, right),
            (left, right) => left.is_none() && right.is_none(),
        },
    })
}

fn sort(items: &mut [Value], order: &[Value], key: Option<&str>) {
    items.sort_by_cached_key(|item| place(order, item, key).unwrap_or(usize::MAX));
}

/// Two lists as one: each keeps its order; where both have a place in the present list, that decides.
fn interleaved(left: Vec<Value>, right: Vec<Value>, live: &[Value], key: Option<&str>) -> Vec<Value> {
    let mut all = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(mine), Some(theirs)) = (left.peek(), right.peek()) {
        let before = match (place(live, mine, key), place(live, theirs, key)) {
            (Some(mine), Some(theirs)) => mine < theirs,
            _ => false,
        };
        all.extend(if before { left.next() } else { right.next() });
    }
    all.extend(left);
    all.extend(right);
    all
}
