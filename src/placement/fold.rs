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

use serde::de::Error as _;

pub use kind::FoldKind;

use crate::config::MemberName;
use hide::{hide_fields, hide_label};
use kubefold_wire::{
    locate::{Found, Member, NotAnObject, Paths, entries, validate},
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

/// The logical object of parts whose documents are at hand, none of which is behind.
///
/// Errors: as [`Summand::fold`], and a part's document is no object.
pub fn fold(parts: &[PartView<'_>], kind: FoldKind, uid: &str) -> Result<Vec<Edit<'static>>, NotAnObject> {
    let Some(home) = parts.first() else { return Ok(Vec::new()) };
    let summand = |part: &PartView<'_>| validate(part.json).and_then(|()| Summand::of(part.json, kind));
    let summands: Vec<Summand> = parts.iter().map(summand).collect::<Result<_, _>>()?;
    Summand::fold(home.json, &summands.iter().collect::<Vec<_>>(), kind, uid, 0)
}

/// What a fold needs of one part, read once when the part comes in: an event of one part reads no other part's document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summand {
    generation: i64,
    /// The divided fields of the kind, in its order; `None` if the spec is no object.
    spec: Option<Vec<Divided>>,
    /// `None` if the status is no object.
    status: Option<status::Summand>,
}

/// A divided field in one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Divided {
    Absent,
    Number(i64),
    /// It is no whole number, for example a percentage.
    Other,
}

impl Summand {
    /// Reads a part's document, which a JSON parser has accepted.
    ///
    /// Errors: it is no object.
    pub fn of(json: &str, kind: FoldKind) -> Result<Self, NotAnObject> {
        let mut found = Vec::new();
        NUMBERS.locate_valid(json, &mut found)?;
        let value = |id: u16| {
            let place = found.iter().find(|place| place.id == id)?;
            json.get(place.range.clone())
        };
        let spec = entries(value(SPEC).unwrap_or("{}"));
        let divided = |spec: Vec<Member<'_>>| {
            let field = |key: &&str| match spec.iter().find(|entry| entry.name == **key) {
                None => Divided::Absent,
                Some(entry) => integer(entry.raw).map_or(Divided::Other, Divided::Number),
            };
            kind.divided().iter().map(field).collect()
        };
        Ok(Self {
            generation: value(GENERATION).and_then(integer).unwrap_or(0),
            spec: spec.ok().map(divided),
            status: status::Summand::of(value(STATUS).unwrap_or("{}"), kind).ok(),
        })
    }

    /// The part's `metadata.generation`, which a kube-apiserver raises with every change of what is not status or metadata; 0 if
    /// it has none.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// The edits to the home's document that make it the logical object. Each of `behind` parts that an unfinished write has
    /// not reached counts one in `generation`, so that caught up is exactly equal.
    ///
    /// Shape: the parts' summands, the home's first -> edits to one document, none overlapping. It costs one reading of the
    /// home's document, which its summand was read from, and additions.
    ///
    /// Errors: a document, a spec or a status is no object.
    pub fn fold(
        home: &str,
        parts: &[&Self],
        kind: FoldKind,
        uid: &str,
        behind: usize,
    ) -> Result<Vec<Edit<'static>>, NotAnObject> {
        let mut found = Vec::new();
        HOME.locate_valid(home, &mut found)?;
        let mut edits = Vec::new();
        for place in &found {
            match place.id {
                UID => edits.push(Edit::new(place.range.clone(), string(uid))),
                LABELS => edits.extend(hide_label(home, place)?),
                FIELDS => edits.extend(hide_fields(home, place)?),
                _ => {}
            }
        }
        if parts.len() < 2 && behind == 0 {
            return Ok(edits);
        }
        for place in &found {
            let text = home.get(place.range.clone()).unwrap_or_default();
            match place.id {
                GENERATION => {
                    let sum: i64 = parts.iter().fold(0, |sum, part| sum.saturating_add(part.generation));
                    let sum = sum.saturating_add(i64::try_from(behind).unwrap_or(i64::MAX));
                    edits.extend(number_edit(place, text, sum));
                }
                SPEC => edits.extend(sum_spec(text, place, kind, parts)?),
                STATUS => {
                    let statuses: Option<Vec<&status::Summand>> =
                        parts.iter().map(|part| part.status.as_ref()).collect();
                    let mut object = ObjectEdits::new(text, place.range.start)?;
                    status::fold(&mut object, &statuses.ok_or_else(not_an_object)?, kind);
                    edits.extend(object.finish());
                }
                _ => {}
            }
        }
        Ok(edits)
    }
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

static NUMBERS: LazyLock<Paths> = LazyLock::new(|| {
    Paths::new([(GENERATION, ["metadata", "generation"].as_slice()), (SPEC, &["spec"]), (STATUS, &["status"])])
});

fn not_an_object() -> NotAnObject {
    serde_json::Error::custom("the spec or the status of a part is no object").into()
}

fn integer(raw: &str) -> Option<i64> {
    raw.parse().ok()
}

fn number_edit(place: &Found, now: &str, sum: i64) -> Option<Edit<'static>> {
    let wanted = sum.to_string();
    (now != wanted).then(|| Edit::new(place.range.clone(), wanted.into_bytes()))
}

/// The sums of the divided fields. One that is not a whole number everywhere (a percentage) is each part's own.
fn sum_spec(home: &str, place: &Found, kind: FoldKind, parts: &[&Summand]) -> Result<Vec<Edit<'static>>, NotAnObject> {
    if kind.divided().is_empty() {
        return Ok(Vec::new());
    }
    let mut spec = ObjectEdits::new(home, place.range.start)?;
    let all: Vec<&Vec<Divided>> =
        parts.iter().map(|part| part.spec.as_ref()).collect::<Option<_>>().ok_or_else(not_an_object)?;
    for (at, key) in kind.divided().iter().enumerate() {
        let Some(now) = spec.member(key).map(|member| member.raw.to_owned()) else { continue };
        let sum = all.iter().try_fold(0_i64, |sum, part| match part.get(at) {
            None | Some(Divided::Absent) => Some(sum),
            Some(Divided::Number(number)) => Some(sum.saturating_add(*number)),
            Some(Divided::Other) => None,
        });
        if let Some(sum) = sum.map(|sum| sum.to_string()).filter(|sum| *sum != now) {
            spec.set(key, sum.into_bytes());
        }
    }
    Ok(spec.finish())
}
