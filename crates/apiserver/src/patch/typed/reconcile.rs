//! A set of fields, once their types have changed between atomic and granular.

use super::{
    super::fields::{Element, Set},
    shape::{Atom, Shape},
};

/// The set as it would be by the present types: who owned parts of what is one value now, owns it as one.
pub(crate) fn reconcile(shape: Shape<'_>, set: &Set) -> Set {
    let (mut removed, mut added) = (Set::default(), Set::default());
    let at = At { shape, set: Some(set), is_atomic: false };
    walk(at, &mut Vec::new(), &mut removed, &mut added);
    if removed.is_empty() && added.is_empty() {
        return set.clone();
    }
    set.difference_below(&removed).union(&added)
}

#[derive(Clone, Copy)]
struct At<'a> {
    shape: Shape<'a>,
    set: Option<&'a Set>,
    /// The place is in the set, and nothing below it is.
    is_atomic: bool,
}

fn walk(at: At<'_>, path: &mut Vec<Element>, removed: &mut Set, added: &mut Set) {
    // What may be anything counts as an object first.
    let atomic = match at.shape.atom(None) {
        Atom::Scalar(_) => return,
        Atom::List(list) => list.items_by.is_none(),
        Atom::Map(map) if map.is_untyped() => return,
        Atom::Map(map) => {
            if map.atomic && !at.is_atomic && at.set.is_none_or(Set::is_empty) {
                return;
            }
            map.atomic
        }
    };
    if atomic && !at.is_atomic {
        removed.insert(path);
        added.insert(path);
        return;
    }
    let Some(set) = at.set else { return };
    for (step, is_member) in set.steps() {
        let below = match (at.shape.atom(None), step) {
            (Atom::Map(map), Element::Field(name)) => map.field(name),
            (Atom::List(list), _) => Some(list.items),
            _ => None,
        };
        let Some(shape) = below else { continue };
        let below = set.below(step);
        path.push(step.clone());
        walk(At { shape, set: below, is_atomic: is_member && below.is_none() }, path, removed, added);
        path.pop();
    }
}
