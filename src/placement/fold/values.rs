//! Values of an object that lie in it at some depth.

use std::collections::BTreeMap;

use crate::placement::fold::hide::spliced;
use kubefold_wire::{
    locate::{Member, entries},
    splice::ObjectEdits,
};

/// What stands at a path.
pub(super) fn at<'a>(object: &[Member<'a>], path: &[&str]) -> Option<&'a str> {
    let (name, rest) = path.split_first()?;
    let raw = object.iter().find(|entry| entry.name == *name)?.raw;
    if rest.is_empty() { Some(raw) } else { at(&entries(raw).ok()?, rest) }
}

/// A path, and the JSON that is to stand there.
pub(super) type Wanted<'p> = (&'p [&'p str], Vec<u8>);

/// Sets values at paths, none of which lies within another. What is in the way of one and is no object stays.
pub(super) fn set(object: &mut ObjectEdits<'_>, values: Vec<Wanted<'_>>) {
    let mut deeper: BTreeMap<&str, Vec<Wanted<'_>>> = BTreeMap::new();
    for (path, value) in values {
        match path {
            [] => {}
            [name] => object.set(name, value),
            [name, rest @ ..] => deeper.entry(name).or_default().push((rest, value)),
        }
    }
    for (name, values) in deeper {
        let now = object.member(name).map_or("{}", |member| member.raw).to_owned();
        let Ok(mut inner) = ObjectEdits::new(&now, 0) else { continue };
        set(&mut inner, values);
        object.set(name, spliced(&now, inner));
    }
}
