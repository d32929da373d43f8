//! The fold: the edits that turn the home part's document into the logical object.
//!
//! The body is the home's. Divided fields, generations and status counters are sums over the parts; a condition is that of
//! the part that is least far; the UID is the minted one; the marker is hidden. Name, resource version, annotations and
//! owner references belong to the store, which edits them as it does for member-local objects: no edit made here overlaps them.

mod balancer;
mod counters;
mod endpoints;
mod hide;
mod kind;
mod quota;
mod status;
mod sums;
#[cfg(test)]
mod tests;
mod values;

use std::{ops::Range, sync::LazyLock};

use smallvec::SmallVec;

pub use counters::divided_counters;
pub use endpoints::united;
pub use kind::FoldKind;
pub use status::counter_paths;
pub use sums::Sums;

use crate::{
    config::MemberName,
    placement::{
        companions::Limits,
        divided::{Division, Path},
        marker::WHOLE_KEY,
        moved::Moved,
    },
};
use hide::{hide_fields, hide_label};
use kubefold_wire::{
    locate::{Member, NotAnObject, Paths, entries, validate},
    splice::{Edit, string},
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
/// Shape: the home's part first -> edits to the home's document, none overlapping.
///
/// Errors: a part's document is no object.
pub fn fold(parts: &[PartView<'_>], kind: FoldKind, uid: &str) -> Result<Vec<Edit<'static>>, NotAnObject> {
    let Some(home) = parts.first() else { return Ok(Vec::new()) };
    let summand = |part: &PartView<'_>| validate(part.json).and_then(|()| Summand::of(part.json, kind));
    let summands: Vec<Summand> = parts.iter().map(summand).collect::<Result<_, _>>()?;
    let mut edits = hide(home.json, uid)?;
    edits.extend(Sums::of(&summands).edits(home.json, &Numbers::of(home.json)?, &summands, kind, 0));
    Ok(edits)
}

/// The edits that hide in a home's document that it is a part: its own UID, and the marker.
///
/// Errors: it is no object.
pub fn hide(home: &str, uid: &str) -> Result<Vec<Edit<'static>>, NotAnObject> {
    let mut found = Vec::new();
    HIDDEN.locate_valid(home, &mut found)?;
    let mut edits = Vec::new();
    for place in &found {
        match place.id {
            UID => edits.push(Edit::new(place.range.clone(), string(uid))),
            LABELS => edits.extend(hide_label(home, place)?),
            FIELDS => edits.extend(hide_fields(home, place)?),
            _ => {}
        }
    }
    Ok(edits)
}

/// Where the values of a document lie that a fold adds up.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// `metadata.generation`.
    pub generation: Option<Range<usize>>,
    /// `spec`.
    pub spec: Option<Range<usize>>,
    /// `status`.
    pub status: Option<Range<usize>>,
}

impl Numbers {
    /// Finds them in a document, which a JSON parser has accepted.
    ///
    /// Errors: it is no object.
    pub fn of(json: &str) -> Result<Self, NotAnObject> {
        let mut found = Vec::new();
        NUMBERS.locate_valid(json, &mut found)?;
        let place = |id: u16| found.iter().find(|place| place.id == id).map(|place| place.range.clone());
        Ok(Self { generation: place(GENERATION), spec: place(SPEC), status: place(STATUS) })
    }
}

/// What a fold needs of one part, read once when the part comes in: an event of one part reads no other part's document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summand {
    generation: i64,
    /// The divided fields of the kind, in its order; `None` if the spec is no object.
    spec: Option<SmallVec<[Divided; 2]>>,
    /// `None` if the status is no object.
    status: Option<status::Summand>,
    /// The record of its placement adds generations: alone, too, it is not shown as its member has it.
    has_more: bool,
    /// Of a companion: what was written. It is shown in the place of sums.
    whole: Option<Box<Limits>>,
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
        Ok(Self::at(json, &Numbers::of(json)?, kind))
    }

    /// The same where it is known already where the values lie.
    pub fn at(json: &str, numbers: &Numbers, kind: FoldKind) -> Self {
        let value = |place: &Option<Range<usize>>| json.get(place.clone()?);
        let object = |place: &Option<Range<usize>>| entries(value(place).unwrap_or("{}")).ok();
        let divided = |spec: Vec<Member<'_>>| {
            let field = |path: &Path| match values::at(&spec, path) {
                None => Divided::Absent,
                Some(raw) => integer(raw).map_or(Divided::Other, Divided::Number),
            };
            kind.divided().iter().map(field).collect()
        };
        let spec = match kind.divided() {
            [] => Some(SmallVec::new()),
            _ => object(&numbers.spec).map(divided),
        };
        Self {
            has_more: false,
            generation: value(&numbers.generation).and_then(integer).unwrap_or(0),
            spec,
            status: object(&numbers.status).map(|status| status::Summand::of(&status, kind)),
            whole: kind.companion().and_then(|division| whole(json, division)).map(Box::new),
        }
    }

    /// Takes in what the record of a placement that has moved says of the part in a cluster.
    pub fn judge(&mut self, moved: &Moved, cluster_uid: &str) {
        if let (Some(ceiling), Some(spec)) = (moved.ceiling(cluster_uid), self.spec.as_mut())
            && let Some(Divided::Number(number)) = spec.first_mut()
        {
            *number = (*number).min(i64::from(ceiling));
        }
        if moved.leaving.contains(cluster_uid) {
            self.generation = 0;
            if let Some(status) = &mut self.status {
                status.forget_observed();
            }
            return;
        }
        if moved.generation > 0 && moved.is_first(cluster_uid) && self.generation > 0 {
            self.generation += moved.generation;
            self.has_more = true;
            if let Some(status) = &mut self.status {
                status.observe_more(moved.generation);
            }
        }
    }

    /// Says whether the part notes what was written as a whole.
    pub fn has_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// The part's `metadata.generation`, which a kube-apiserver raises with every change of what is not status or metadata; 0 if
    /// it has none.
    pub fn generation(&self) -> i64 {
        self.generation
    }
}

/// The summands of all parts of an object, the home's first.
pub trait Summands {
    /// How many parts there are.
    fn count(&self) -> usize;

    /// That of one of them; `None`: it has none.
    fn get(&self, at: usize) -> Option<&Summand>;
}

impl Summands for Vec<Summand> {
    fn count(&self) -> usize {
        self.len()
    }

    fn get(&self, at: usize) -> Option<&Summand> {
        self.as_slice().get(at)
    }
}

const UID: u16 = 0;
const LABELS: u16 = 1;
const FIELDS: u16 = 2;
const GENERATION: u16 = 3;
const SPEC: u16 = 4;
const STATUS: u16 = 5;

static HIDDEN: LazyLock<Paths> = LazyLock::new(|| {
    Paths::new([
        (UID, ["metadata", "uid"].as_slice()),
        (LABELS, &["metadata", "labels"]),
        (FIELDS, &["metadata", "managedFields"]),
    ])
});

static NUMBERS: LazyLock<Paths> = LazyLock::new(|| {
    Paths::new([(GENERATION, ["metadata", "generation"].as_slice()), (SPEC, &["spec"]), (STATUS, &["status"])])
});

static WHOLES: LazyLock<Paths> = LazyLock::new(|| Paths::new([(0, ["metadata", "annotations", WHOLE_KEY].as_slice())]));

/// What the divided fields of a companion are as they were written.
fn whole(json: &str, division: Division) -> Option<Limits> {
    let mut found = Vec::new();
    WHOLES.locate_valid(json, &mut found).ok()?;
    let note: String = serde_json::from_str(json.get(found.first()?.range.clone())?).ok()?;
    Limits::noted(division, &note)
}

fn integer(raw: &str) -> Option<i64> {
    raw.parse().ok()
}
