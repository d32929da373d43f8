//! Which integers of which kinds are divided over the parts, and where they stand.
//!
//! A table of Kubernetes' own kinds, and what the configuration declares of others. The fold shows their sums; a write that changes one divides the difference
//! ([`redivide`](crate::placement::division::redivide)).

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::config::{Config, KindConfig};
use kubefold_wire::{locate::Paths, resource::Gvk};

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
/// Hard limits of a quota, by the resource's name.
pub const HARD: Field = field(&["spec", "hard"], "/spec/hard", None, 0);

/// The names of the fields that lead to a value.
pub type Path = &'static [&'static str];

/// A kind that the configuration declares as one that can be divided. It lives as long as the process, as Kubernetes' own kinds do:
/// every part refers to it.
#[derive(Debug, PartialEq, Eq)]
pub struct Declared {
    group: String,
    kind: String,
    field: [Field; 1],
    /// Below `spec`.
    divided: [Path; 1],
    /// Below `status`.
    counters: Vec<Path>,
}

/// All that were ever declared. The same declaration is one, however often the configuration is read.
static DECLARED: Mutex<Vec<&'static Declared>> = Mutex::new(Vec::new());

impl Declared {
    fn of(config: &KindConfig) -> &'static Self {
        let path = |names: &[String]| -> Path {
            let names: Vec<&'static str> = names.iter().map(|name| &*name.clone().leak()).collect();
            names.leak()
        };
        let is_it = |known: &&&'static Self| {
            let same = |path: Path, names: &[String]| path.iter().eq(names.iter());
            known.group == config.group
                && known.kind == config.kind
                && known.field.iter().all(|field| same(field.path, &config.replicas))
                && known.counters.len() == config.counters.len()
                && known.counters.iter().zip(&config.counters).all(|(path, names)| same(path, names))
        };
        let mut all = DECLARED.lock();
        if let Some(known) = all.iter().find(is_it) {
            return known;
        }
        let replicas = path(&config.replicas);
        let pointer = format!("/{}", config.replicas.join("/")).leak();
        let new = Self {
            group: config.group.clone(),
            kind: config.kind.clone(),
            field: [field(replicas, pointer, None, 0)],
            divided: [replicas.get(1..).unwrap_or_default()],
            counters: config.counters.iter().map(|names| path(names)).collect(),
        };
        let new: &'static Self = Box::leak(Box::new(new));
        all.push(new);
        new
    }

    /// Where the divided number stands below `spec`.
    pub fn divided(&self) -> &[Path] {
        &self.divided
    }

    /// Where below `status` it stands how many replicas can be used, by the field's usual names; `None`: nowhere.
    pub fn available(&self) -> Option<Path> {
        let named = |name: &str| self.counters.iter().find(|path| path.last() == Some(&name)).copied();
        named("availableReplicas").or_else(|| named("readyReplicas"))
    }

    /// Where the counters stand below `status`.
    pub fn counters(&self) -> &[Path] {
        &self.counters
    }
}

/// What is divided of which kinds: Kubernetes' own, and those that the configuration declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds(Vec<&'static Declared>);

impl Kinds {
    /// Takes what the configuration declares.
    pub fn of(config: &Config) -> Self {
        Self::declaring(&config.kinds)
    }

    /// The same of these.
    pub fn declaring(kinds: &[KindConfig]) -> Self {
        Self(kinds.iter().map(Declared::of).collect())
    }

    /// What is declared of a kind.
    pub fn declared(&self, gvk: &Gvk) -> Option<&'static Declared> {
        self.0.iter().find(|known| *known.group == *gvk.group && *known.kind == *gvk.kind).copied()
    }

    /// What is divided of a kind; `None`: nothing.
    pub fn division(&self, gvk: &Gvk) -> Option<Division> {
        Division::of(&gvk.group, &gvk.kind).or_else(|| self.declared(gvk).map(Division::Declared))
    }
}

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
    /// The number that the configuration names; a share of 0 makes no part.
    Declared(&'static Declared),
    /// What a disruption budget leaves or lets go, with a part in every member: a companion. Without a part a member would
    /// evict at will.
    Budget,
    /// The hard limits of a quota that a policy divides, with a part in every member. No kind is divided so: an object is, by
    /// [`by_policy`](Self::by_policy).
    Quota,
}

impl Division {
    /// What is divided of one of Kubernetes' own kinds; `None`: nothing.
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

    /// What is divided of an object of that kind if a policy has it divided, where the kind alone does not say so.
    pub fn by_policy(group: &str, kind: &str) -> Option<Self> {
        ((group, kind) == ("", "ResourceQuota")).then_some(Self::Quota)
    }

    /// The divided fields. The first that is set says how large a part is.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Self::Replicas | Self::Ordinals => &[REPLICAS],
            Self::Job => &[COMPLETIONS, PARALLELISM],
            Self::Autoscaler => &[MIN_REPLICAS, MAX_REPLICAS],
            Self::Budget => &[MIN_AVAILABLE, MAX_UNAVAILABLE],
            Self::Quota => &[HARD],
            Self::Declared(declared) => &declared.field,
        }
    }

    /// Says whether an object of the kind that exists can get a further part when its total grows. Ordinals and completions
    /// are given to the parts that there are.
    pub fn gains_parts(self) -> bool {
        matches!(self, Self::Replicas | Self::Declared(_))
    }

    /// The field that `/scale` is about, if the kind has it.
    pub fn scaled(self) -> Option<Field> {
        match self {
            Self::Replicas | Self::Ordinals => Some(REPLICAS),
            Self::Declared(declared) => declared.field.first().copied(),
            Self::Job | Self::Autoscaler | Self::Budget | Self::Quota => None,
        }
    }

    /// Says whether the kind goes with others: it is divided as [`companions`](crate::placement::companions) says.
    pub fn goes_along(self) -> bool {
        matches!(self, Self::Autoscaler | Self::Budget | Self::Quota)
    }
}

/// What is to be set in one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// JSON pointer (RFC 6901).
    pub pointer: String,
    /// The share.
    pub number: Amount,
}

/// A share: a number, or of a quota a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// A count.
    Number(u32),
    /// As the API writes it: `500m`.
    Quantity(String),
}

impl From<u32> for Amount {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl Amount {
    /// As a document has it.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Number(number) => (*number).into(),
            Self::Quantity(text) => text.as_str().into(),
        }
    }

    /// Reads a document's value; `None`: it is no share.
    pub fn read(value: &serde_json::Value) -> Option<Self> {
        match value {
            serde_json::Value::String(text) => Some(Self::Quantity(text.clone())),
            other => other.as_u64().and_then(|number| u32::try_from(number).ok()).map(Self::Number),
        }
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Quantity(text) => f.write_str(text),
        }
    }
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
    /// Errors: one is negative, or no 32-bit integer. (Percentages of a disruption budget are not divided; amounts of a quota are read elsewhere.)
    pub fn read(division: Option<Division>, body: &str) -> Result<Self, NotANumber> {
        let Some(division) = division else { return Ok(Self::default()) };
        if division == Division::Quota {
            return Ok(Self { division: Some(division), ..Self::default() });
        }
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

    /// How many pods there are at once: of what says no number one, as of a Pod.
    pub fn pods_at_once(&self) -> u32 {
        let total = |field: Field| self.totals.iter().find(|(of, _)| *of == field).map(|(_, total)| *total);
        total(PARALLELISM).or_else(|| total(REPLICAS)).unwrap_or(1)
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
