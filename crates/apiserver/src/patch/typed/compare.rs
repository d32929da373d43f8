//! What is different between two objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    super::fields::{Element, Set, same},
    Faults, fault,
    shape::{Atom, List, Map, Shape, fields, items},
    within,
};

/// What is different between two objects. No field is in two of the sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    /// In the old one only.
    pub(crate) removed: Set,
    /// In both, with other values.
    pub(crate) modified: Set,
    /// In the new one only.
    pub(crate) added: Set,
}

impl Comparison {
    /// The same without some fields and what is below them.
    pub(crate) fn without(self, fields: &Set) -> Self {
        Self {
            removed: self.removed.difference_below(fields),
            modified: self.modified.difference_below(fields),
            added: self.added.difference_below(fields),
        }
    }
}

/// Compares an old object with a new one of the same type.
///
/// Errors: what of either does not fit the type.
pub(crate) fn compare(shape: Shape<'_>, old: &Value, new: &Value) -> Result<Comparison, Faults> {
    let mut walk = Walk::default();
    let faults = walk.compare(shape, Some(old), Some(new));
    if faults.is_empty() { Ok(walk.found) } else { Err(faults) }
}

#[derive(Default)]
struct Walk {
    path: Vec<Element>,
    found: Comparison,
}

impl Walk {
    fn compare(&mut self, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Faults {
        let mut faults = Vec::new();
        if differ_in_kind(shape, old, new) {
            faults.extend(self.by(shape.atom(old), old, new).1);
        }
        let (is_leaf, more) = self.by(shape.atom(new.or(old)), old, new);
        faults.extend(more);
        if !is_leaf {
            match (old, new) {
                (None, _) => self.found.added.insert(&self.path),
                (_, None) => self.found.removed.insert(&self.path),
                _ => {}
            }
        }
        faults
    }

    /// Answers whether it was a leaf.
    fn by(&mut self, atom: Atom<'_>, old: Option<&Value>, new: Option<&Value>) -> (bool, Faults) {
        match atom {
            Atom::Scalar(scalar) => {
                let faults = scalar.check_both(old, new);
                let fits = faults.is_empty();
                if fits {
                    self.leaf(old, new);
                }
                (fits, faults)
            }
            Atom::List(list) => {
                let (olds, news) = (items(old), items(new));
                let both_empty = olds.is_none_or(Vec::is_empty) && news.is_none_or(Vec::is_empty);
                if list.items_by.is_none() || both_empty {
                    self.leaf(old, new);
                    return (true, Vec::new());
                }
                (false, self.items(list, olds, news))
            }
            Atom::Map(map) => {
                let (olds, news) = (fields(old), fields(new));
                let empty = |fields: Option<&serde_json::Map<String, Value>>| fields.is_none_or(|all| all.is_empty());
                if map.atomic || (empty(olds) && empty(news)) {
                    self.leaf(old, new);
                    return (true, Vec::new());
                }
                (false, self.fields(map, olds, news))
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            (Some(old), Some(new)) if !same(old, new) => self.found.modified.insert(&self.path),
            _ => {}
        }
    }

    fn fields(
        &mut self,
        map: Map<'_>,
        old: Option<&serde_json::Map<String, Value>>,
        new: Option<&serde_json::Map<String, Value>>,
    ) -> Faults {
        let mut faults = Vec::new();
        let only_new = new.into_iter().flatten().filter(|(name, _)| !old.is_some_and(|old| old.contains_key(*name)));
        let names = old.into_iter().flatten().chain(only_new).map(|(name, _)| name);
        for name in names {
            let Some(shape) = map.field(name) else { continue };
            let step = Element::Field(name.clone());
            let (old, new) = (old.and_then(|old| old.get(name)), new.and_then(|new| new.get(name)));
            faults.extend(self.step(&step, shape, old, new));
        }
        faults
    }

    fn step(&mut self, step: &Element, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Faults {
        self.path.push(step.clone());
        let faults = within(step, self.compare(shape, old, new));
        self.path.pop();
        faults
    }

    fn items(&mut self, list: List<'_>, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>) -> Faults {
        let mut faults = Vec::new();
        let mut found: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (items, is_new) in [(old, false), (new, true)] {
            for (index, item) in items.into_iter().flatten().enumerate() {
                match list.step(item) {
                    Ok(step) => {
                        let entry = found.entry(step).or_default();
                        let side = if is_new { &mut entry.1 } else { &mut entry.0 };
                        side.push(item);
                    }
                    Err(why) => faults.push(fault(format!("element {index}: {why}"))),
                }
            }
        }
        for (step, (old, new)) in found {
            match (&*old, &*new) {
                ([] | [_], [] | [_]) => {
                    faults.extend(self.step(&step, list.items, old.first().copied(), new.first().copied()));
                }
                ([_, _, ..], [_, _, ..]) => {
                    let equal = old.len() == new.len() && old.iter().zip(&new).all(|(old, new)| same(old, new));
                    if !equal {
                        self.mark(&step, |found| &mut found.modified);
                    }
                }
                // What was there twice has no parts of its own; what is left of it is new.
                ([_, _, ..], rest) => {
                    if let [first] = rest {
                        faults.extend(self.step(&step, list.items, None, Some(*first)));
                    }
                    self.mark(&step, |found| &mut found.removed);
                }
                (rest, _) => {
                    if let [first] = rest {
                        faults.extend(self.step(&step, list.items, Some(*first), None));
                    }
                    self.mark(&step, |found| &mut found.added);
                }
            }
        }
        faults
    }

    fn mark(&mut self, step: &Element, set: impl Fn(&mut Comparison) -> &mut Set) {
        self.path.push(step.clone());
        set(&mut self.found).insert(&self.path);
        self.path.pop();
    }
}

/// Says whether, of a value of any type, the old and the new one are of different kinds.
pub(super) fn differ_in_kind(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
    let kind = |value: &Value| match value {
        Value::Null => 0,
        Value::Array(_) => 1,
        Value::Object(_) => 2,
        _ => 3,
    };
    matches!((old, new), (Some(old), Some(new)) if shape.is_any() && kind(old) != kind(new))
}
