//! The fold: the edits that turn the home part's document into the logical object.
//!
//! The body is the home's. Divided fields, generations and status counters are sums over the parts; a condition is that of
//! the part that is least far; the UID is the minted one; the marker is hidden. Name, resource version, annotations and
//! owner references belong to the store, which edits them as it does for member-local objects: no edit made here overlaps them.

mod hide;
mod kind;
mod quota;
mod status;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

pub use kind::FoldKind;

use crate::config::MemberName;
use hide::{hide_fields, hide_label};
use kubefold_wire::{
    locate::{Found, NotAnObject, Paths, entries},
    splice::{Edit, ObjectEdits, string},
};

/// One part's document, as its member sent it.
#[derive(Clone, Copy, Debug)]
pub struct PartView<'a> {
    /// The member that holds the part.
    pub member: &'a MemberName,
    /// The document.
    pub json: &'a str,
}

/// [`fold_behind`] of an object that no part is behind of.
///
/// Errors: as [`fold_behind`].
pub fn fold(parts: &[PartView<'_>], kind: FoldKind, uid: &str) -> Result<Vec<Edit<'static>>, NotAnObject> {
    fold_behind(parts, kind, uid, 0)
}

/// The edits to the first part's document, the home's, that make it the logical object. Each of `behind` parts that an
/// unfinished write has not reached counts one in `generation`, so that caught up is exactly equal.
///
/// Shape: N parts -> edits to one document, none overlapping. No parts make no edits.
///
/// Errors: a part's document is not an object.
pub fn fold_behind(
    parts: &[PartView<'_>],
    kind: FoldKind,
    uid: &str,
    behind: usize,
) -> Result<Vec<Edit<'static>>, NotAnObject> {
    let Some((home, others)) = parts.split_first() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    HOME.locate(home.json, &mut found)?;
    let mut edits = Vec::new();
    for place in &found {
        match place.id {
            UID => edits.push(Edit::new(place.range.clone(), string(uid))),
            LABELS => edits.extend(hide_label(home.json, place)?),
            FIELDS => edits.extend(hide_fields(home.json, place)?),
            _ => {}
        }
    }
    if others.is_empty() && behind == 0 {
        return Ok(edits);
    }
    let mut numbers = vec![Numbers::of(home.json, &found)];
    for part in others {
        let mut found = Vec::new();
        OTHER.locate(part.json, &mut found)?;
        numbers.push(Numbers::of(part.json, &found));
    }
    for place in &found {
        let text = home.json.get(place.range.clone()).unwrap_or_default();
        match place.id {
            GENERATION => {
                let sum: i64 = numbers.iter().fold(0, |sum, part| sum.saturating_add(part.generation));
                let sum = sum.saturating_add(i64::try_from(behind).unwrap_or(i64::MAX));
                edits.extend(number_edit(place, text, sum));
            }
            SPEC => edits.extend(sum_spec(place, kind, &numbers)?),
            STATUS => {
                let statuses: Vec<&str> = numbers.iter().map(|part| part.status).collect();
                let mut object = ObjectEdits::new(text, place.range.start)?;
                status::fold(&mut object, &statuses, kind)?;
                edits.extend(object.finish());
            }
            _ => {}
        }
    }
    Ok(edits)
}

const UID: u16 = 0;
const LABELS: u16 = 1;
const FIELDS: u16 = 2;
const GENERATION: u16 = 3;
const SPEC: u16 = 4;
const STATUS: u16 = 5;

static HOME: LazyLock<Paths> = LazyLock::new(|| {
    Paths::new([
        (UID, ["metadata", "uid"].as_slice()),
        (LABELS, &["metadata", "labels"]),
        (FIELDS, &["metadata", "managedFields", "*", "fieldsV1"]),
        (GENERATION, &["metadata", "generation"]),
        (SPEC, &["spec"]),
        (STATUS, &["status"]),
    ])
});

static OTHER: LazyLock<Paths> = LazyLock::new(|| {
    Paths::new([(GENERATION, ["metadata", "generation"].as_slice()), (SPEC, &["spec"]), (STATUS, &["status"])])
});

/// What is folded of one part.
struct Numbers<'a> {
    generation: i64,
    spec: &'a str,
    status: &'a str,
}

impl<'a> Numbers<'a> {
    fn of(json: &'a str, found: &[Found]) -> Self {
        let value = |id: u16| {
            let place = found.iter().find(|place| place.id == id)?;
            json.get(place.range.clone())
        };
        Self {
            generation: value(GENERATION).and_then(integer).unwrap_or(0),
            spec: value(SPEC).unwrap_or("{}"),
            status: value(STATUS).unwrap_or("{}"),
        }
    }
}

fn integer(raw: &str) -> Option<i64> {
    raw.parse().ok()
}

fn number_edit(place: &Found, now: &str, sum: i64) -> Option<Edit<'static>> {
    let wanted = sum.to_string();
    (now != wanted).then(|| Edit::new(place.range.clone(), wanted.into_bytes()))
}

/// The sums of the divided fields. One that is not a whole number everywhere (a percentage) is each part's own.
fn sum_spec(place: &Found, kind: FoldKind, parts: &[Numbers<'_>]) -> Result<Vec<Edit<'static>>, NotAnObject> {
    let (Some(home), false) = (parts.first(), kind.divided().is_empty()) else { return Ok(Vec::new()) };
    let mut spec = ObjectEdits::new(home.spec, place.range.start)?;
    let others: Vec<_> = parts.iter().skip(1).map(|part| entries(part.spec)).collect::<Result<_, _>>()?;
    for key in kind.divided() {
        let Some(now) = spec.member(key).map(|member| member.raw.to_owned()) else { continue };
        let theirs = others.iter().filter_map(|spec| spec.iter().find(|entry| entry.name == *key));
        let values = theirs.map(|entry| integer(entry.raw)).chain([integer(&now)]);
        let sum = values.into_iter().try_fold(0_i64, |sum, value| Some(sum.saturating_add(value?)));
        if let Some(sum) = sum.map(|sum| sum.to_string()).filter(|sum| *sum != now) {
            spec.set(key, sum.into_bytes());
        }
    }
    Ok(spec.finish())
}
