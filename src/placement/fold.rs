//! The fold: the edits that turn the home part's document into the logical object.
//!
//! The body is the home's. Replicas, generations and status counters are sums over the parts; the UID is the minted one;
//! the marker is hidden. Name, resource version, annotations and owner references belong to the store, which edits them
//! as it does for natives: no edit made here overlaps them.

use std::{ops::Range, sync::LazyLock};

use crate::{
    config::MemberName,
    placement::marker::{MARKER_KEY, OWN_PREFIX},
    wire::{
        locate::{Found, NotAnObject, Paths, entries},
        splice::{Edit, ObjectEdits, splice, string},
    },
};

/// One part's document, as its member sent it.
#[derive(Clone, Copy, Debug)]
pub struct PartView<'a> {
    /// The member that holds the part.
    pub member: &'a MemberName,
    /// The document.
    pub json: &'a str,
}

/// What a kind sums. `Other` sums generations only; every status is the home's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum FoldKind {
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    DaemonSet,
    Job,
    PodDisruptionBudget,
    HorizontalPodAutoscaler,
    Other,
}

impl FoldKind {
    /// Knows a kind by its group and plural resource.
    pub fn of(group: &str, resource: &str) -> Self {
        match (group, resource) {
            ("apps", "deployments") => Self::Deployment,
            ("apps", "replicasets") => Self::ReplicaSet,
            ("", "replicationcontrollers") => Self::ReplicationController,
            ("apps", "statefulsets") => Self::StatefulSet,
            ("apps", "daemonsets") => Self::DaemonSet,
            ("batch", "jobs") => Self::Job,
            ("policy", "poddisruptionbudgets") => Self::PodDisruptionBudget,
            ("autoscaling", "horizontalpodautoscalers") => Self::HorizontalPodAutoscaler,
            _ => Self::Other,
        }
    }

    /// Says whether `spec.replicas` is the sum of the parts'.
    fn sums_replicas(self) -> bool {
        matches!(self, Self::Deployment | Self::ReplicaSet | Self::ReplicationController | Self::StatefulSet)
    }

    /// The counters in `status`, `observedGeneration` apart.
    ///
    /// Source: kubernetes/api `apps/v1`, `core/v1`, `batch/v1`, `policy/v1`, `autoscaling/v2` `types.go`.
    fn counters(self) -> &'static [&'static str] {
        match self {
            Self::Deployment => &[
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
            ],
            Self::ReplicaSet => {
                &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"]
            }
            Self::ReplicationController => &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
            Self::StatefulSet => {
                &["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"]
            }
            Self::DaemonSet => &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
            ],
            Self::Job => &["active", "succeeded", "failed", "terminating", "ready"],
            Self::PodDisruptionBudget => &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"],
            Self::HorizontalPodAutoscaler => &["currentReplicas", "desiredReplicas"],
            Self::Other => &[],
        }
    }
}

/// The edits to the first part's document, the home's, that make it the logical object.
///
/// Shape: N parts -> edits to one document, none overlapping. No parts make no edits.
///
/// Errors: a part's document is not an object.
pub fn fold(parts: &[PartView<'_>], kind: FoldKind, uid: &str) -> Result<Vec<Edit<'static>>, NotAnObject> {
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
    if !others.is_empty() {
        let mut sums = Sums::of(home.json, &found, kind)?;
        for part in others {
            let mut found = Vec::new();
            OTHER.locate(part.json, &mut found)?;
            sums.add(&Sums::of(part.json, &found, kind)?);
        }
        edits.extend(sums.edits(home.json, &found, kind)?);
    }
    Ok(edits)
}

const UID: u16 = 0;
const LABELS: u16 = 1;
const FIELDS: u16 = 2;
const GENERATION: u16 = 3;
const REPLICAS: u16 = 4;
const STATUS: u16 = 5;

static HOME: LazyLock<Paths> = LazyLock::new(|| {
    Paths::new([
        (UID, ["metadata", "uid"].as_slice()),
        (LABELS, &["metadata", "labels"]),
        (FIELDS, &["metadata", "managedFields", "*", "fieldsV1"]),
        (GENERATION, &["metadata", "generation"]),
        (REPLICAS, &["spec", "replicas"]),
        (STATUS, &["status"]),
    ])
});

static OTHER: LazyLock<Paths> = LazyLock::new(|| {
    Paths::new([
        (GENERATION, ["metadata", "generation"].as_slice()),
        (REPLICAS, &["spec", "replicas"]),
        (STATUS, &["status"]),
    ])
});

/// What is summed over parts. The last counter is `observedGeneration`.
struct Sums {
    generation: i64,
    replicas: i64,
    counters: Vec<i64>,
}

/// The summed keys of `status`.
fn status_keys(kind: FoldKind) -> impl Iterator<Item = &'static str> {
    kind.counters().iter().copied().chain(["observedGeneration"])
}

impl Sums {
    fn of(json: &str, found: &[Found], kind: FoldKind) -> Result<Self, NotAnObject> {
        let number = |raw: &str| raw.parse::<i64>().unwrap_or(0);
        let value = |id: u16| {
            let place = found.iter().find(|place| place.id == id)?;
            json.get(place.range.clone())
        };
        let status = match value(STATUS) {
            Some(status) => entries(status)?,
            None => Vec::new(),
        };
        let counter = |key: &str| status.iter().find(|entry| entry.name == key).map_or(0, |entry| number(entry.raw));
        Ok(Self {
            generation: value(GENERATION).map_or(0, number),
            replicas: value(REPLICAS).map_or(0, number),
            counters: status_keys(kind).map(counter).collect(),
        })
    }

    fn add(&mut self, other: &Self) {
        self.generation = self.generation.saturating_add(other.generation);
        self.replicas = self.replicas.saturating_add(other.replicas);
        for (mine, theirs) in self.counters.iter_mut().zip(&other.counters) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    fn edits(&self, home: &str, found: &[Found], kind: FoldKind) -> Result<Vec<Edit<'static>>, NotAnObject> {
        let mut edits = Vec::new();
        let mut status = None;
        for place in found {
            let text = home.get(place.range.clone()).unwrap_or_default();
            match place.id {
                GENERATION => edits.extend(number_edit(place, text, self.generation)),
                REPLICAS if kind.sums_replicas() => edits.extend(number_edit(place, text, self.replicas)),
                STATUS => status = Some(ObjectEdits::new(text, place.range.start)?),
                _ => {}
            }
        }
        // A kind has a status before its controllers have written one: `{}`; one without any is left without.
        let Some(mut status) = status else { return Ok(edits) };
        for (key, sum) in status_keys(kind).zip(&self.counters) {
            let now = status.member(key).map(|member| member.raw);
            let wanted = sum.to_string();
            // Go omits most of these when they are 0; where the home shows a 0 it stays.
            if now.map_or(*sum != 0, |now| now != wanted) {
                status.set(key, wanted.into_bytes());
            }
        }
        edits.extend(status.finish());
        Ok(edits)
    }
}

fn number_edit(place: &Found, now: &str, sum: i64) -> Option<Edit<'static>> {
    let wanted = sum.to_string();
    (now != wanted).then(|| Edit::new(place.range.clone(), wanted.into_bytes()))
}

/// Takes the marker's label away, and `labels` with it if nothing else was in it.
fn hide_label(json: &str, place: &Found) -> Result<Vec<Edit<'static>>, NotAnObject> {
    let mut labels = ObjectEdits::new(json.get(place.range.clone()).unwrap_or_default(), place.range.start)?;
    labels.remove(|key| key == MARKER_KEY);
    if !labels.is_unchanged() && labels.is_empty() {
        return Ok(vec![Edit::new(whole_entry(json.as_bytes(), &place.range), Vec::new())]);
    }
    Ok(labels.finish())
}

/// From the range of a value to that of its entry: key, colon, value and one comma.
///
/// The key holds no escaped quote, as it was compared with a known one.
fn whole_entry(json: &[u8], value: &Range<usize>) -> Range<usize> {
    let before = |at: usize| json.get(..at).unwrap_or_default().trim_ascii_end();
    let colon = before(value.start);
    let quote = before(colon.len().saturating_sub(1)).len().saturating_sub(1);
    let start = memchr::memrchr(b'"', json.get(..quote).unwrap_or_default()).unwrap_or(value.start);
    let after = json.get(value.end..).unwrap_or_default();
    let rest = after.trim_ascii_start();
    if rest.first() == Some(&b',') {
        return start..value.end + (after.len() - rest.len()) + 1;
    }
    match before(start) {
        [kept @ .., b','] => kept.len()..value.end,
        _ => start..value.end,
    }
}

/// Takes kubefold's own leaves out of one `fieldsV1`, and parents that held nothing else.
fn hide_fields(json: &str, place: &Found) -> Result<Vec<Edit<'static>>, NotAnObject> {
    let text = json.get(place.range.clone()).unwrap_or_default();
    let leaf = format!("f:{OWN_PREFIX}");
    if memchr::memmem::find(text.as_bytes(), leaf.as_bytes()).is_none() {
        return Ok(Vec::new());
    }
    let mut fields = ObjectEdits::new(text, place.range.start)?;
    let Some(metadata) = fields.member("f:metadata").map(|member| member.raw) else { return Ok(Vec::new()) };
    let mut kept = ObjectEdits::new(metadata, 0)?;
    for parent in ["f:labels", "f:annotations"] {
        let Some(raw) = kept.member(parent).map(|member| member.raw) else { continue };
        let mut map = ObjectEdits::new(raw, 0)?;
        map.remove(|key| key.starts_with(&leaf));
        if map.is_unchanged() {
            continue;
        }
        // `.` says who made the map. One that was made for the marker alone is not shown either.
        let alone = map.members().iter().all(|member| member.name == "." || member.name.starts_with(&leaf));
        if alone {
            kept.remove(|key| key == parent);
        } else {
            kept.set(parent, spliced(raw, map));
        }
    }
    if kept.is_unchanged() {
        return Ok(Vec::new());
    }
    if kept.is_empty() {
        fields.remove(|key| key == "f:metadata");
    } else {
        fields.set("f:metadata", spliced(metadata, kept));
    }
    Ok(fields.finish())
}

fn spliced(json: &str, edits: ObjectEdits<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    splice(json.as_bytes(), &mut edits.finish(), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID_MINTED: &str = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455";

    fn folded(documents: &[&str], kind: FoldKind) -> String {
        let member = MemberName::new("east").unwrap();
        let parts: Vec<_> = documents.iter().map(|json| PartView { member: &member, json }).collect();
        let mut edits = fold(&parts, kind, UID_MINTED).unwrap();
        edits.sort_by_key(|edit| edit.at.start);
        assert!(edits.windows(2).all(|pair| pair[0].at.end <= pair[1].at.start), "{edits:?}");
        let mut out = Vec::new();
        splice(documents[0].as_bytes(), &mut edits, &mut out);
        let out = String::from_utf8(out).unwrap();
        serde_json::from_str::<serde_json::Value>(&out).unwrap();
        out
    }

    #[test]
    fn sums_replicas_generations_and_counters() {
        let east = r#"{"metadata":{"name":"web","uid":"e","generation":2,"labels":{"app":"web","kubefold.io/placement":"u"}},"spec":{"replicas":1},"status":{"observedGeneration":2,"replicas":1,"readyReplicas":1,"conditions":[{"type":"Available"}]}}"#;
        let west = r#"{"status":{"conditions":[],"unavailableReplicas":2,"replicas":2,"observedGeneration":1},"spec":{"replicas":2},"metadata":{"generation":3}}"#;
        assert_eq!(
            folded(&[east, west], FoldKind::Deployment),
            r#"{"metadata":{"name":"web","uid":"6f1c2d5e-0b1a-4c3d-8e9f-001122334455","generation":5,"labels":{"app":"web"}},"spec":{"replicas":3},"status":{"unavailableReplicas":2,"observedGeneration":3,"replicas":3,"readyReplicas":1,"conditions":[{"type":"Available"}]}}"#
        );
    }

    #[test]
    fn one_part_only_hides_the_marker() {
        for (labels, want) in [
            (r#""uid":"e","labels":{"kubefold.io/placement":"u"}"#, r#""uid":"U""#),
            (r#""labels" : {"kubefold.io/placement":"u"} , "uid":"e""#, r#" "uid":"U""#),
            (r#""uid":"e" , "labels": {"kubefold.io/placement":"u"},"x":{"y":1}"#, r#""uid":"U" , "x":{"y":1}"#),
            (r#""uid":"e","labels":{"b":"1","kubefold.io/placement":"u"}"#, r#""uid":"U","labels":{"b":"1"}"#),
            (r#""uid":"e","labels":{}"#, r#""uid":"U","labels":{}"#),
        ] {
            let tail = r#"},"spec": {"replicas":0},"status":{"replicas":0}}"#;
            let out = folded(&[&format!("{{\"metadata\":{{{labels}{tail}")], FoldKind::Deployment);
            assert_eq!(out, format!("{{\"metadata\":{{{want}{tail}").replace("\"U\"", &format!("\"{UID_MINTED}\"")));
        }
    }

    #[test]
    fn a_sum_of_nothing_is_omitted_where_go_omits_it() {
        let east = r#"{"metadata":{"uid":"U"},"spec":{"replicas":0},"status":{"replicas":0}}"#;
        let out = folded(&[east, east], FoldKind::Deployment);
        assert!(out.ends_with(r#""status":{"replicas":0}}"#), "{out}");
        let bare = r#"{"metadata":{"uid":"U"},"spec":{"replicas":1},"status":{}}"#;
        let ready = r#"{"metadata":{"uid":"V"},"spec":{"replicas":1},"status":{"readyReplicas":1}}"#;
        assert!(folded(&[bare, ready], FoldKind::Deployment).ends_with(r#""status":{"readyReplicas":1}}"#));
        assert!(folded(&[bare, ready], FoldKind::Other).ends_with(r#""spec":{"replicas":1},"status":{}}"#));
    }

    #[test]
    fn managed_fields_do_not_show_the_marker() {
        let doc = |fields: &str| {
            format!(
                r#"{{"metadata":{{"uid":"e","managedFields":[{{"manager":"a","fieldsV1":{fields}}},{{"fieldsV1":{{"f:status":{{}}}}}}]}}}}"#
            )
        };
        for (fields, want) in [
            (
                r#"{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:kubefold.io/placement":{}},"f:annotations":{".":{},"f:kubefold.io/placement":{}}},"f:spec":{"f:replicas":{}}}"#,
                r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:replicas":{}}}"#,
            ),
            (r#"{"f:metadata":{"f:labels":{".":{},"f:kubefold.io/placement":{}}},"f:spec":{}}"#, r#"{"f:spec":{}}"#),
            (r#"{"f:metadata":{"f:labels":{".":{}}}}"#, r#"{"f:metadata":{"f:labels":{".":{}}}}"#),
        ] {
            assert_eq!(
                folded(&[&doc(fields)], FoldKind::Deployment),
                doc(want).replace("\"e\"", &format!("\"{UID_MINTED}\""))
            );
        }
    }

    #[test]
    fn every_summed_kind_is_known_by_its_resource() {
        assert_eq!(FoldKind::of("apps", "deployments"), FoldKind::Deployment);
        assert_eq!(FoldKind::of("", "replicationcontrollers"), FoldKind::ReplicationController);
        assert_eq!(FoldKind::of("example.com", "deployments"), FoldKind::Other);
        let pdb = r#"{"metadata":{"uid":"e"},"status":{"disruptionsAllowed":1,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2}}"#;
        assert!(
            folded(&[pdb, pdb], FoldKind::PodDisruptionBudget)
                .ends_with(r#"{"disruptionsAllowed":2,"currentHealthy":4,"desiredHealthy":2,"expectedPods":4}}"#)
        );
    }

    #[test]
    fn a_part_that_is_no_object_is_an_error() {
        let member = MemberName::new("east").unwrap();
        assert!(fold(&[PartView { member: &member, json: "[]" }], FoldKind::Other, "u").is_err());
        assert!(fold(&[], FoldKind::Other, "u").unwrap().is_empty());
    }
}
