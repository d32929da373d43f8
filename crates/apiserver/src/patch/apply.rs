//! Server-side apply.
//!
//! Source: kubernetes/apimachinery `pkg/util/managedfields/internal/{fieldmanager,structuredmerge,lastapplied*}.go`.

use serde_json::Value;

use super::{
    PatchError, Subject,
    fields::{Element, Set, same, shown},
    managed::{self, Managed, Operation, Owner, Ownership, Track, Unowned},
    typed::{self, Duplicates, Shape},
};
use kubefold_wire::{golang, status::Cause};

/// Where `kubectl apply` keeps what it applied, if it does so by itself.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotations of an object take at most so many bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Who `kubectl apply --server-side` is: what it applied by itself before is its own.
const KUBECTL: &str = "kubectl";

/// An apply.
#[derive(Clone, Copy)]
pub struct Apply<'a> {
    /// What is there; `None`: the apply creates.
    pub live: Option<&'a Value>,
    /// What is to be.
    pub applied: &'a Value,
    /// Who says so.
    pub manager: &'a str,
    /// Whether fields of others are taken.
    pub force: bool,
    /// Such as `2026-11-21T15:00:00Z`.
    pub now: &'a str,
    /// What it is about.
    pub subject: Subject<'a>,
}

/// The object as it becomes, with its managed fields.
///
/// Errors: a conflict with its causes; what of the applied object does not fit its types.
pub fn apply(apply: Apply<'_>) -> Result<Value, PatchError> {
    check_kind(&apply)?;
    let live = managed::present(&apply.subject, apply.live);
    let entries = apply.live.and_then(|live| live.pointer("/metadata/managedFields"));
    let managed = Managed::decode(entries)
        .map_err(|why| PatchError::unforeseen(format!("failed to decode managed fields: {why}")))?;
    let (mut object, managed) = match merge(&apply, &live, managed.clone(), apply.force) {
        Err(Unowned::Conflicts(conflicts)) => match migrated(&apply, &live, conflicts) {
            Ok(()) => merge(&apply, &live, managed, true).map_err(refusal)?,
            Err(conflicts) => return Err(refusal(Unowned::Conflicts(conflicts))),
        },
        other => other.map_err(refusal)?,
    };
    if apply.manager == KUBECTL && last_applied(&object).is_some() {
        set_last_applied(&mut object, apply.applied);
    }
    managed::set_entries(&mut object, managed.encode());
    Ok(object)
}

fn check_kind(apply: &Apply<'_>) -> Result<(), PatchError> {
    let text = |field: &str| apply.applied.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != apply.subject.api_version || kind != apply.subject.kind {
        return Err(PatchError::bad_request(format!("invalid object type: {}", kind_shown(api_version, kind))));
    }
    if apply.applied.pointer("/metadata/managedFields").is_some_and(|entries| !entries.is_null()) {
        return Err(PatchError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// The merged object without entries, and the entries.
fn merge(apply: &Apply<'_>, live: &Value, mut managed: Managed, force: bool) -> Result<(Value, Managed), Unowned> {
    let subject = &apply.subject;
    if managed.fields.is_empty() {
        let write = Track { live: None, manager: "", now: apply.now, subject: *subject };
        managed = managed::owned_before_first_apply(write, live)?;
    }
    let shape = Shape::of(subject.schema);
    let misfit = |what: &str, object: &Value, duplicates: Duplicates| {
        let faults = typed::validate(shape, object, duplicates);
        let why = || format!("failed to create typed {what} object ({}): {}", named(object), typed::told(&faults));
        if faults.is_empty() { Ok(()) } else { Err(Unowned::Misfit(why())) }
    };
    misfit("patch", apply.applied, Duplicates::Refused)?;
    misfit("live", live, Duplicates::Allowed)?;
    let this = Owner::new(apply.manager, Operation::Apply, subject);
    let merged = Ownership { subject }.apply(live, apply.applied, &mut managed.fields, &this, force)?;
    if let Some(mine) = managed.fields.get_mut(&this) {
        mine.set = mine.set.difference(&managed::never_owned());
        if mine.set.is_empty() {
            managed.fields.remove(&this);
        }
    }
    if same(live, &merged) {
        return Ok((live.clone(), managed));
    }
    managed.times.insert(this, apply.now.to_owned());
    Ok((merged, managed))
}

/// `namespace/name; apps/v1, Kind=Deployment`.
fn named(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let kind = kind_shown(text("/apiVersion"), text("/kind"));
    format!("{}/{}; {kind}", text("/metadata/namespace"), text("/metadata/name"))
}

/// `apps/v1, Kind=Deployment`.
pub(crate) fn kind_shown(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// Says whether all conflicts are over fields that kubectl's own apply wrote and nobody has changed since; else those
/// that are not.
fn migrated(
    apply: &Apply<'_>,
    live: &Value,
    conflicts: Vec<(Owner, Vec<Element>)>,
) -> Result<(), Vec<(Owner, Vec<Element>)>> {
    let allowed = if apply.manager == KUBECTL { applied_before(apply, live) } else { None };
    let Some(allowed) = allowed else { return Err(conflicts) };
    let left: Vec<_> = conflicts.into_iter().filter(|(_, path)| !allowed.has(path)).collect();
    if left.is_empty() { Ok(()) } else { Err(left) }
}

/// The fields that kubectl's own apply wrote and that are still so.
fn applied_before(apply: &Apply<'_>, live: &Value) -> Option<Set> {
    let last: Value = serde_json::from_str(last_applied(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(apply.subject.api_version) {
        return None;
    }
    let shape = Shape::of(apply.subject.schema);
    let fits = |object: &Value| typed::validate(shape, object, Duplicates::Refused).is_empty();
    if !fits(live) || !fits(&last) {
        return None;
    }
    let compared = typed::compare(shape, &last, live).ok()?;
    let all = typed::collect(shape, &last);
    Some(all.difference(&compared.modified).difference(&compared.added).difference(&compared.removed))
}

fn last_applied(object: &Value) -> Option<&str> {
    let annotations = object.pointer("/metadata/annotations")?;
    annotations.get(LAST_APPLIED)?.as_str().filter(|text| !text.is_empty())
}

/// Keeps the annotation true, for a kubectl that applies by itself again.
fn set_last_applied(object: &mut Value, applied: &Value) {
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove(LAST_APPLIED);
        if annotations.is_empty()
            && let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.shift_remove("annotations");
        }
    }
    // Go's encoder ends with a line.
    let text = format!("{}\n", golang::json(&applied));
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    annotations.insert(LAST_APPLIED.to_owned(), text.into());
    let bytes = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
    if annotations.iter().map(bytes).sum::<usize>() > ANNOTATIONS_BYTES_MAX {
        annotations.shift_remove(LAST_APPLIED);
    }
}

/// What a client is told.
///
/// Source: kubernetes/apimachinery `managedfields/internal/conflict.go`.
fn refusal(why: Unowned) -> PatchError {
    let mut conflicts = match why {
        Unowned::Misfit(why) => return PatchError::unforeseen(why),
        Unowned::Conflicts(conflicts) => conflicts,
    };
    // The order in which owners come is not said; this one is at least the same each time.
    conflicts.sort_by(|left, right| left.0.cmp(&right.0));
    let cause = |(owner, path): &(Owner, Vec<Element>)| Cause {
        reason: "FieldManagerConflict".to_owned(),
        message: format!("conflict with {}", owner.shown()),
        field: shown(path),
    };
    let causes: Vec<Cause> = conflicts.iter().map(cause).collect();
    if let [only] = causes.as_slice() {
        let message = format!("Apply failed with 1 conflict: {}: {}", only.message, only.field);
        return PatchError::conflict(message, causes);
    }
    let mut message = format!("Apply failed with {} conflicts:", causes.len());
    let mut owner_before = None;
    for (owner, path) in &conflicts {
        if owner_before != Some(owner) {
            let lead = if owner_before.is_none() { ' ' } else { '\n' };
            message.push_str(&format!("{lead}conflicts with {}:", owner.shown()));
            owner_before = Some(owner);
        }
        message.push_str(&format!("\n- {}", shown(path)));
    }
    PatchError::conflict(message, causes)
}
