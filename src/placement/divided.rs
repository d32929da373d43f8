//! Which integers of which kinds are divided over the parts, and where they stand.
//!
//! A closed table. The fold shows their sums; a write that changes one divides the difference
//! ([`redivide`](crate::placement::division::redivide)).

use serde::{Deserialize, Serialize};

use kubefold_wire::locate::Paths;

/// One divided field of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where it stands.
    pub path: &'static [&'static str],
    /// The same as a JSON pointer (RFC 6901).
    pub pointer: &'static str,
    /// What Kubernetes makes of an unset one; `None`: it stays unset.
    pub unset: Option<u32>,
    /// Least value that a part may have.
    pub floor: u32,
}

const fn field(path: &'static [&'static str], pointer: &'static str, unset: Option<u32>, floor: u32) -> Field {
    Field { path, pointer, unset, floor }
}

impl Field {
    /// Its name in the object that holds it.
    pub fn name(&self) -> &'static str {
        self.path.last().copied().unwrap_or_default()
    }
}

/// `spec.replicas`.
pub const REPLICAS: Field = field(&["spec", "replicas"], "/spec/replicas", Some(1), 0);
/// `spec.completions` of a Job; the API's own default depends on `parallelism`.
pub const COMPLETIONS: Field = field(&["spec", "completions"], "/spec/completions", None, 0);
/// `spec.parallelism` of a Job.
pub const PARALLELISM: Field = field(&["spec", "parallelism"], "/spec/parallelism", Some(1), 0);
/// Least replicas of an autoscaler.
pub const MIN_REPLICAS: Field = field(&["spec", "minReplicas"], "/spec/minReplicas", Some(1), 1);
/// Most replicas of an autoscaler.
pub const MAX_REPLICAS: Field = field(&["spec", "maxReplicas"], "/spec/maxReplicas", None, 1);
/// Least pods that a budget leaves.
pub const MIN_AVAILABLE: Field = field(&["spec", "minAvailable"], "/spec/minAvailable", None, 0);
/// Most pods that a budget lets go at a time.
pub const MAX_UNAVAILABLE: Field = field(&["spec", "maxUnavailable"], "/spec/maxUnavailable", None, 0);

/// What is divided of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// `spec.replicas`; a share of 0 makes no part.
    Replicas,
    /// `spec.replicas`, and the ordinals of each part begin elsewhere.
    Ordinals,
    /// `spec.completions` and `spec.parallelism`; a share of 0 makes no part.
    Job,
    /// The bounds of a workload's replicas: a companion.
    Autoscaler,
    /// What a disruption budget leaves or lets go, with a part in every member: a companion. Without a part a member would
    /// evict at will.
    Budget,
}

impl Division {
    /// What is divided of that kind; `None`: nothing.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            ("apps", "Deployment" | "ReplicaSet") | ("", "ReplicationController") => Some(Self::Replicas),
            ("apps", "StatefulSet") => Some(Self::Ordinals),
            ("batch", "Job") => Some(Self::Job),
            ("autoscaling", "HorizontalPodAutoscaler") => Some(Self::Autoscaler),
            ("policy", "PodDisruptionBudget") => Some(Self::Budget),
            _ => None,
        }
    }

    /// The divided fields. The first that is set says how large a part is.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Self::Replicas | Self::Ordinals => &[REPLICAS],
            Self::Job => &[COMPLETIONS, PARALLELISM],
            Self::Autoscaler => &[MIN_REPLICAS, MAX_REPLICAS],
            Self::Budget => &[MIN_AVAILABLE, MAX_UNAVAILABLE],
        }
    }

    /// Says whether an object of the kind that exists can get a further part when its total grows. Ordinals and completions
    /// are given to the parts that there are.
    pub fn gains_parts(self) -> bool {
        self == Self::Replicas
    }

    /// Says whether the kind goes with others: it is divided as [`companions`](crate::placement::companions) says.
    pub fn goes_along(self) -> bool {
        matches!(self, Self::Autoscaler | Self::Budget)
    }
}

/// A number to be set in one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// JSON pointer (RFC 6901).
    pub pointer: String,
    /// The number.
    pub number: u32,
}

/// The divided fields of one object, as wholes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wholes {
    /// What is divided; `None`: the parts are all alike.
    pub division: Option<Division>,
    /// The fields that it has, with their totals.
    pub totals: Vec<(Field, u32)>,
    /// A Job whose pods have indexes, which no two parts may share.
    pub indexed: bool,
    /// The first ordinal of a StatefulSet.
    pub first_ordinal: u32,
}

/// A divided field that holds no number that Kubernetes would take. The text is the API's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: Invalid value: {raw}: must be a number, greater than or equal to 0")]
pub struct NotANumber {
    /// `spec.replicas`.
    pub field: String,
    /// What stands there.
    pub raw: String,
}

impl Wholes {
    /// Reads the divided fields of a body.
    ///
    /// Errors: one is negative, or no 32-bit integer. (Percentages of a disruption budget are not divided.)
    pub fn read(group: &str, kind: &str, body: &str) -> Result<Self, NotANumber> {
        let Some(division) = Division::of(group, kind) else { return Ok(Self::default()) };
        let raws = raws(division, body);
        let mut totals = Vec::new();
        for (field, raw) in division.fields().iter().zip(&raws) {
            let total = match *raw {
                None | Some("null") => field.unset,
                Some(raw) if division == Division::Budget && raw.starts_with('"') => None,
                Some(raw) => {
                    let number = raw.parse::<i32>().ok().and_then(|number| u32::try_from(number).ok());
                    let wrong = || NotANumber { field: field.path.join("."), raw: raw.to_owned() };
                    Some(number.ok_or_else(wrong)?)
                }
            };
            totals.extend(total.map(|total| (*field, total)));
        }
        let unset = |at: usize| raws.get(at).is_none_or(|raw| matches!(raw, None | Some("null")));
        // Source: kubernetes `pkg/apis/batch/v1/defaults.go`: both are 1 where neither is set.
        if division == Division::Job && unset(0) && unset(1) {
            totals.insert(0, (COMPLETIONS, 1));
        }
        let indexed = division == Division::Job && text_at(body, &["spec", "completionMode"]) == Some("\"Indexed\"");
        let ordinal = text_at(body, &["spec", "ordinals", "start"]).and_then(|raw| raw.parse().ok()).unwrap_or(0);
        Ok(Self { division: Some(division), totals, indexed, first_ordinal: ordinal })
    }

    /// Says whether parts would differ in numbers.
    pub fn are_divided(&self) -> bool {
        !self.totals.is_empty()
    }
}

fn raws(division: Division, body: &str) -> Vec<Option<&str>> {
    let paths = division.fields().iter().zip(0_u16..).map(|(field, id)| (id, field.path));
    let mut found = Vec::new();
    // A body that is no object is refused elsewhere.
    if Paths::new(paths).locate(body, &mut found).is_err() {
        found.clear();
    }
    let raw = |id: u16| found.iter().find(|place| place.id == id).and_then(|place| body.get(place.range.clone()));
    (0_u16..).take(division.fields().len()).map(raw).collect()
}

fn text_at<'b>(body: &'b str, path: &[&str]) -> Option<&'b str> {
    let mut found = Vec::new();
    Paths::new([(0, path)]).locate(body, &mut found).ok()?;
    body.get(found.first()?.range.clone())
}
