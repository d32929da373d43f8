//! The difference between two versions of an object, and how a third, alike but not the same, takes it.
//!
//! An update changes the home part; the others take the difference, each value only where they still hold the old one. So
//! what a member assigned itself stays its own. Lists whose items have a key are compared item by item, as Kubernetes
//! merges them.

use std::mem;

use kubefold_wire::golang::Quoted;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One step into a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A field of an object.
    Field(String),
    /// The item of a list that has these values of its keys.
    Item(Vec<(String, Value)>),
    /// This text in a list that is a set.
    Text(String),
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The path of the changed field.
    pub at: Vec<Step>,
    /// The old and the new value.
    pub what: What,
}

/// What differs at one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// A value, that is or was not there where it is `None`.
    Value {
        /// Before.
        old: Option<Value>,
        /// After.
        new: Option<Value>,
    },
    /// The order of a list whose items have keys: those of each item, in the order after.
    Order(Vec<Vec<(String, Value)>>),
}

impl Change {
    /// The fields of the path down to its first list item.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.at.iter().map_while(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Item(_) | Step::Text(_) => None,
        })
    }

    /// The fields of the whole path.
    pub fn fields_anywhere(&self) -> impl Iterator<Item = &str> {
        self.at.iter().filter_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Item(_) | Step::Text(_) => None,
        })
    }

    /// Says whether it lies at, or below, a path of fields.
    pub fn is_within(&self, path: &[&str]) -> bool {
        let mut fields = self.fields();
        path.iter().all(|wanted| fields.next() == Some(*wanted))
    }

    /// Says whether this change begins where an earlier one ended, that left `held` at its place.
    pub fn follows(&self, earlier: &Self, held: Option<&Value>) -> bool {
        let before = self.before();
        match (self.at.strip_prefix(earlier.at.as_slice()), earlier.at.strip_prefix(self.at.as_slice())) {
            (Some([]), _) => before.as_ref() == held || before == earlier.wanted(),
            (Some(below), _) => match held {
                Some(held) => has_room(held, below) && look(held, below) == before,
                None => before.is_none(),
            },
            (_, Some(below)) => before.and_then(|before| look(&before, below)).as_ref() == held,
            (None, None) => false,
        }
    }

    /// Says whether one of the two lies at, or below, the place of the other.
    pub fn touches(&self, at: &[Step]) -> bool {
        self.at.starts_with(at) || at.starts_with(&self.at)
    }

    /// Says whether a body says anything of its place: the value there, or one above it that has no parts.
    pub fn is_said_by(&self, body: &Value) -> bool {
        let mut place = body;
        for step in &self.at {
            let below = match (step, place) {
                (Step::Field(name), Value::Object(fields)) => fields.get(name),
                (Step::Item(key), Value::Array(items)) => items.iter().find(|item| has_key(item, key)),
                (Step::Text(text), Value::Array(items)) => items.iter().find(|item| item.as_str() == Some(text)),
                _ => return true,
            };
            match below {
                Some(below) => place = below,
                None => return false,
            }
        }
        true
    }

    /// Leaves a change of nothing at its place: lists whose changes belong together by their places stay as long as they are.
    pub fn clear(&mut self) {
        self.what = What::Value { old: None, new: None };
    }

    /// Says whether nothing is, was or is to be at its place.
    pub fn is_nothing(&self) -> bool {
        matches!(self.what, What::Value { old: None, new: None })
    }

    /// Says whether its place holds again what it held, after others had changed it in between.
    pub fn is_level(&self) -> bool {
        matches!(&self.what, What::Value { old: Some(old), new: Some(new) } if old == new)
    }

    /// What was there before; of an order, nothing is known.
    pub fn before(&self) -> Option<Value> {
        match &self.what {
            What::Value { old, .. } => old.clone(),
            What::Order(_) => None,
        }
    }

    /// What is to be there.
    pub fn wanted(&self) -> Option<Value> {
        match &self.what {
            What::Value { new, .. } => new.clone(),
            What::Order(order) => serde_json::to_value(order).ok(),
        }
    }

    /// What a document holds at this place.
    pub fn value_in(&self, document: &Value) -> Option<Value> {
        match &self.what {
            What::Value { .. } => look(document, &self.at).filter(|value| !value.is_null()),
            What::Order(order) => {
                let list = look(document, &self.at)?;
                let keys = order.first()?.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>();
                let held = list.as_array()?.iter().filter_map(|item| key_of(item, &keys));
                serde_json::to_value(held.filter(|key| order.contains(key)).collect::<Vec<_>>()).ok()
            }
        }
    }

    /// The path as a person writes it: `.spec.template.spec.containers[name="web"].image`.
    pub fn path(&self) -> String {
        let mut out = String::new();
        for step in &self.at {
            match step {
                Step::Field(name) => {
                    out.push('.');
                    out.push_str(name);
                }
                Step::Item(keys) => {
                    let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    out.push_str(&format!("[{}]", keys.join(",")));
                }
                Step::Text(text) => out.push_str(&format!("[{text}]", text = Quoted(text))),
            }
        }
        out
    }
}

/// When a change is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Whatever the document holds.
    Always,
    /// Where the document still holds the old value.
    WhereOld,
}

/// What has to change in `before` to make `after`. `null` is nothing.
///
/// Shape: the changes are in an order in which they can be taken.
pub fn difference(before: &Value, after: &Value) -> Vec<Change> {
    let mut out = Vec::new();
    compare(&mut Vec::new(), Some(before), Some(after), &mut out);
    out
}

/// Makes changes in a document. Gives those that it did not take, because it holds another value.
pub fn take<'c>(changes: &'c [Change], how: Take, document: &mut Value) -> Vec<&'c Change> {
    changes.iter().filter(|change| !take_at(document, &change.at, &change.what, how)).collect()
}

/// The JSON merge patch (RFC 7386) that makes `after` of `before`.
pub fn merge_patch(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, new) in after {
        match before.get(name) {
            Some(old) if old == new => {}
            Some(old @ Value::Object(_)) if new.is_object() => {
                patch.insert(name.clone(), merge_patch(old, new));
            }
            Some(_) | None => {
                patch.insert(name.clone(), new.clone());
            }
        }
    }
    Value::Object(patch)
}

/// The keys of lists by the name of their field, as Kubernetes merges them; the first whose keys every item has and no two
/// share. Everything else is one value.
///
/// Source: `x-kubernetes-patch-merge-key` and `x-kubernetes-list-map-keys` in the OpenAPI document of Kubernetes 1.36, to
/// which `tests/e2e/write/denied.rs` compares them.
pub const LISTS: &[(&str, &[&[&str]])] = &[
    ("addresses", &[&["type"]]),
    ("claims", &[&["name"]]),
    ("conditions", &[&["type"]]),
    ("containers", &[&["name"]]),
    ("env", &[&["name"]]),
    ("ephemeralContainers", &[&["name"]]),
    ("hostAliases", &[&["ip"]]),
    ("imagePullSecrets", &[&["name"]]),
    ("initContainers", &[&["name"]]),
    ("matchConditions", &[&["name"]]),
    ("ownerReferences", &[&["uid"]]),
    ("podGroupTemplates", &[&["name"]]),
    ("ports", &[&["containerPort", "protocol"], &["containerPort"], &["port", "protocol"], &["port"]]),
    ("resourceClaims", &[&["name"]]),
    ("schedulingGates", &[&["name"]]),
    ("secrets", &[&["name"]]),
    ("taints", &[&["key", "effect"], &["key"]]),
    ("topologySpreadConstraints", &[&["topologyKey", "whenUnsatisfiable"]]),
    ("variables", &[&["name"]]),
    ("volumeDevices", &[&["devicePath"]]),
    ("volumeMounts", &[&["mountPath"]]),
    ("volumes", &[&["name"]]),
    ("webhooks", &[&["name"]]),
];

/// Where a list of that field has the item that is the same as this one. `None` where the list's items have no keys, too.
pub fn position_of(field: &str, item: &Value, list: &[Value]) -> Option<usize> {
    let (_, choices) = LISTS.iter().find(|(name, _)| *name == field)?;
    let key = choices.iter().find_map(|keys| key_of(item, keys))?;
    list.iter().position(|item| has_key(item, &key))
}

/// Says whether the items of that field's lists have keys.
pub fn is_keyed(field: &str) -> bool {
    LISTS.iter().any(|(name, _)| *name == field)
}

/// Lists of texts in which order means nothing.
const SETS: &[&str] = &["finalizers"];

fn compare(at: &mut Vec<Step>, before: Option<&Value>, after: Option<&Value>, out: &mut Vec<Change>) {
    let (before, after) = (before.filter(|value| !value.is_null()), after.filter(|value| !value.is_null()));
    if before == after {
        return;
    }
    match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
            for name in names {
                at.push(Step::Field(name.clone()));
                compare(at, old.get(name), new.get(name), out);
                at.pop();
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => compare_lists(at, old, new, out),
        (old, new) => out.push(value_change(at, old, new)),
    }
}

fn value_change(at: &[Step], old: Option<&Value>, new: Option<&Value>) -> Change {
    Change { at: at.to_vec(), what: What::Value { old: old.cloned(), new: new.cloned() } }
}

fn compare_lists(at: &mut Vec<Step>, old: &[Value], new: &[Value], out: &mut Vec<Change>) {
    if is_set(at) && old.iter().chain(new).all(Value::is_string) {
        let texts = |list: &[Value], other: &[Value]| -> Vec<Value> {
            list.iter().filter(|item| !other.contains(item)).cloned().collect()
        };
        for (gone, came) in texts(old, new)
            .iter()
            .map(|one| (Some(one), None))
            .chain(texts(new, old).iter().map(|one| (None, Some(one))))
        {
            let text = gone.or(came).and_then(Value::as_str).unwrap_or_default();
            at.push(Step::Text(text.to_owned()));
            out.push(value_change(at, gone, came));
            at.pop();
        }
        return;
    }
    let Some(keys) = keys_of(at, old, new) else {
        out.push(Change {
            at: at.clone(),
            what: What::Value { old: Some(old.to_vec().into()), new: Some(new.to_vec().into()) },
        });
        return;
    };
    let keyed =
        |list: &[Value]| -> Vec<Vec<(String, Value)>> { list.iter().filter_map(|item| key_of(item, keys)).collect() };
    let (was, is) = (keyed(old), keyed(new));
    let find = |list: &'_ [Value], key: &Vec<(String, Value)>| list.iter().position(|item| has_key(item, key));
    for key in was.iter().chain(is.iter().filter(|key| !was.contains(key))) {
        at.push(Step::Item(key.clone()));
        let item = |list: &[Value]| find(list, key).and_then(|index| list.get(index).cloned());
        let (mine, theirs) = (item(old), item(new));
        compare(at, mine.as_ref(), theirs.as_ref(), out);
        at.pop();
    }
    let kept = was.iter().filter(|key| is.contains(key));
    let plain: Vec<_> = kept.chain(is.iter().filter(|key| !was.contains(key))).collect();
    if plain.iter().zip(&is).any(|(plain, is)| **plain != *is) {
        out.push(Change { at: at.clone(), what: What::Order(is) });
    }
}

fn is_set(at: &[Step]) -> bool {
    matches!(at.last(), Some(Step::Field(name)) if SETS.contains(&name.as_str()))
}

fn keys_of(at: &[Step], old: &[Value], new: &[Value]) -> Option<&'static [&'static str]> {
    let Some(Step::Field(name)) = at.last() else { return None };
    let (_, choices) = LISTS.iter().find(|(field, _)| field == name)?;
    let distinct = |list: &[Value], keys: &[&str]| {
        let found: Option<Vec<_>> = list.iter().map(|item| key_of(item, keys)).collect();
        found
            .is_some_and(|found| found.iter().enumerate().all(|(at, key)| !found.iter().take(at).any(|one| one == key)))
    };
    choices.iter().copied().find(|keys| distinct(old, keys) && distinct(new, keys))
}

fn key_of(item: &Value, keys: &[&str]) -> Option<Vec<(String, Value)>> {
    keys.iter().map(|key| Some(((*key).to_owned(), item.get(key).filter(|value| !value.is_null())?.clone()))).collect()
}

fn has_key(item: &Value, key: &[(String, Value)]) -> bool {
    key.iter().all(|(name, value)| item.get(name) == Some(value))
}

fn look(document: &Value, at: &[Step]) -> Option<Value> {
    let mut place = document;
    for step in at {
        place = match step {
            Step::Field(name) => place.get(name)?,
            Step::Item(key) => place.as_array()?.iter().find(|item| has_key(item, key))?,
            Step::Text(text) => place.as_array()?.iter().find(|item| item.as_str() == Some(text))?,
        };
    }
    Some(place.clone())
}

/// Says whether something is, or could be added, at a place: nothing can lie below a text or a number.
fn has_room(document: &Value, at: &[Step]) -> bool {
    let Some((step, below)) = at.split_first() else { return true };
    match (step, document) {
        (Step::Field(name), Value::Object(fields)) => fields.get(name).is_none_or(|value| has_room(value, below)),
        (Step::Item(key), Value::Array(items)) => {
            items.iter().find(|item| has_key(item, key)).is_none_or(|item| has_room(item, below))
        }
        (Step::Text(_), Value::Array(_)) => true,
        _ => document.is_null(),
    }
}

/// Says whether the change is made, or was made before.
fn take_at(place: &mut Value, at: &[Step], what: &What, how: Take) -> bool {
    let Some((step, rest)) = at.split_first() else {
        return match what {
            What::Order(order) => reorder(place, order),
            What::Value { .. } => false,
        };
    };
    let adds = matches!(what, What::Value { new: Some(_), .. });
    match step {
        Step::Field(name) => {
            if place.is_null() && adds {
                *place = Value::Object(Map::new());
            }
            let Some(fields) = place.as_object_mut() else { return !adds };
            if let (true, What::Value { old, new }) = (rest.is_empty(), what) {
                let mut held = fields.get_mut(name).map(mem::take);
                let taken = replace(&mut held, old.as_ref(), new.as_ref(), how);
                match held {
                    Some(value) => {
                        fields.insert(name.clone(), value);
                    }
                    None => {
                        fields.shift_remove(name);
                    }
                }
                return taken;
            }
            if !fields.contains_key(name) {
                if !adds {
                    return true;
                }
                let list = matches!(rest.first(), Some(Step::Item(_) | Step::Text(_)));
                let empty = if list { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
                let mut made = empty;
                let taken = take_at(&mut made, rest, what, how);
                if taken {
                    fields.insert(name.clone(), made);
                }
                return taken;
            }
            fields.get_mut(name).is_some_and(|inner| take_at(inner, rest, what, how))
        }
        Step::Item(key) => in_list(place, rest, what, how, |item| has_key(item, key)),
        Step::Text(text) => in_list(place, rest, what, how, |item| item.as_str() == Some(text)),
    }
}

fn in_list(place: &mut Value, rest: &[Step], what: &What, how: Take, is_it: impl Fn(&Value) -> bool) -> bool {
    let adds = matches!(what, What::Value { new: Some(_), .. });
    if place.is_null() && adds {
        *place = Value::Array(Vec::new());
    }
    let Some(list) = place.as_array_mut() else { return !adds };
    let index = list.iter().position(is_it);
    let What::Value { old, new } = what else {
        return index.and_then(|index| list.get_mut(index)).is_some_and(|item| take_at(item, rest, what, how));
    };
    match (index, rest.is_empty()) {
        (Some(index), false) => list.get_mut(index).is_some_and(|item| take_at(item, rest, what, how)),
        // Of an item that is gone nothing can be changed.
        (None, false) => !adds,
        (index, true) => {
            let mut held = index.and_then(|index| list.get_mut(index)).map(mem::take);
            let taken = replace(&mut held, old.as_ref(), new.as_ref(), how);
            match (index, held) {
                (Some(index), Some(value)) => {
                    if let Some(slot) = list.get_mut(index) {
                        *slot = value;
                    }
                }
                (Some(index), None) => {
                    list.remove(index);
                }
                (None, Some(value)) => list.push(value),
                (None, None) => {}
            }
            taken
        }
    }
}

/// Puts `new` in the place of `old`. Of an object that is new or goes as a whole, but is another here, the fields come and
/// go.
fn replace(held: &mut Option<Value>, old: Option<&Value>, new: Option<&Value>, how: Take) -> bool {
    let is = held.as_ref().filter(|value| !value.is_null());
    if is == new {
        return true;
    }
    match (is, old, new) {
        _ if how == Take::Always || is == old => {
            *held = new.cloned();
            true
        }
        (Some(Value::Object(_)), None, Some(Value::Object(_)))
        | (Some(Value::Object(_)), Some(Value::Object(_)), None) => {
            let empty = Value::Object(Map::new());
            let changes = difference(old.unwrap_or(&empty), new.unwrap_or(&empty));
            let Some(document) = held else { return false };
            let all = take(&changes, how, document).is_empty();
            if new.is_none() && *document == empty {
                *held = None;
            }
            all
        }
        // It went already.
        (None, Some(_), None) => true,
        _ => false,
    }
}

/// Puts the items with these keys in this order, into the places that they have.
fn reorder(list: &mut Value, order: &[Vec<(String, Value)>]) -> bool {
    let Some(items) = list.as_array_mut() else { return false };
    let rank = |item: &Value| order.iter().position(|key| has_key(item, key));
    let places: Vec<usize> =
        (0..items.len()).filter(|at| items.get(*at).is_some_and(|item| rank(item).is_some())).collect();
    let mut ranked: Vec<Value> = places.iter().filter_map(|at| items.get_mut(*at).map(mem::take)).collect();
    ranked.sort_by_key(rank);
    for (at, item) in places.into_iter().zip(ranked) {
        if let Some(slot) = items.get_mut(at) {
            *slot = item;
        }
    }
    true
}

#[cfg(test)]
mod tests;
