//! `metadata.managedFields`: who owns which fields.
//!
//! Source: kubernetes/apimachinery `pkg/util/managedfields/internal`.

mod entries;
mod ownership;
mod present;

pub use entries::ManagedError;
pub(super) use entries::{Managed, Operation, Owned, Owner};
pub(super) use ownership::{Ownership, Unowned};
pub(super) use present::present;

use serde_json::Value;

use super::{Subject, fields::Set, typed::Shape};
use kubefold_wire::status::Cause;

/// A manager's name is cut after so many bytes.
///
/// Source: kubernetes/apimachinery `pkg/apis/meta/v1/validation`, `FieldManagerMaxLength`.
const NAME_BYTES_MAX: usize = 128;
/// So many entries of updates are kept apart.
///
/// Source: kubernetes/apimachinery `managedfields/internal/fieldmanager.go`, `DefaultMaxUpdateManagers`.
const UPDATES_MAX: usize = 10;
/// Who owns what the oldest of too many updates wrote.
const ANCIENT: &str = "ancient-changes";
/// Who owns what was there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Fields that nobody owns.
const NEVER_OWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// A write other than an apply.
#[derive(Clone, Copy)]
pub struct Track<'a> {
    /// What is there; `None`: the write creates.
    pub live: Option<&'a Value>,
    /// The name from `manager_of`.
    pub manager: &'a str,
    /// Such as `2026-11-21T15:00:00Z`.
    pub now: &'a str,
    /// What the write is about.
    pub subject: Subject<'a>,
}

/// Says whether entries can be read.
///
/// Errors: why one cannot be.
pub fn check_entries(entries: Option<&Value>) -> Result<(), ManagedError> {
    Managed::decode(entries).map(drop)
}

/// Sets the managed fields of an object that is about to be stored: who writes owns what differs from what is there.
///
/// `new` is what the client wants, decoded, pruned and defaulted, as a kube-apiserver does before its strategies.
pub fn track(write: Track<'_>, new: &mut Value) {
    let before = asked(write, new);
    let live_entries = write.live.and_then(|live| live.pointer("/metadata/managedFields")).cloned();
    drop_entries(new);
    let has_uid = write.live.and_then(|live| live.pointer("/metadata/uid")).is_some_and(|uid| uid != "");
    // What was never tracked is not, until somebody applies.
    if before.fields.is_empty() && has_uid {
        return;
    }
    match owned_after(write, new, before, write.manager) {
        Ok(managed) => set_entries(new, managed.encode()),
        // What can't be told by the types keeps its owners.
        Err(_) => set_entries(new, live_entries),
    }
}

/// Fields that a write to `/status` does not take from clients: what nobody comes to own by it.
///
/// Source: kubernetes `pkg/registry/*/*/strategy.go`, `GetResetFields` of the status strategies.
pub fn reset_by_status(kind: &str, custom: bool) -> &'static [&'static [&'static str]] {
    match kind {
        _ if custom => &[&["metadata"], &["spec"]],
        "Deployment" => &[&["spec"], &["metadata", "labels"]],
        "Pod" => &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
        "CertificateSigningRequest" => &[&["spec"], &["status", "conditions"]],
        "DeviceTaintRule"
        | "FlowSchema"
        | "PodGroup"
        | "PriorityLevelConfiguration"
        | "ResourceClaim"
        | "ServiceCIDR"
        | "StorageVersion"
        | "ValidatingAdmissionPolicy"
        | "VolumeAttachment" => &[&["metadata"], &["spec"]],
        _ => &[&["spec"]],
    }
}

/// Whose write it is: as the request says, or else the client's name up to the first slash.
///
/// Source: kubernetes/apiserver `pkg/endpoints/handlers/create.go`, `managerOrUserAgent`.
pub fn manager_of(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for character in name.chars().filter(|character| !character.is_control()) {
        if manager.len() + character.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        manager.push(character);
    }
    manager
}

/// What is wrong with the `managedFields` that a client sends.
///
/// Source: kubernetes/apimachinery `pkg/apis/meta/v1/validation/validation.go`, `ValidateManagedFields`.
pub fn validate(object: &Value) -> Vec<Cause> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let cause = |index: usize, field: &str, value: &Value, why: &str| {
        Cause::invalid(format!("metadata.managedFields[{index}].{field}"), &value.to_string(), why)
    };
    let mut causes = Vec::new();
    for (index, entry) in entries.into_iter().flatten().enumerate() {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            let value = Value::from(text("operation"));
            causes.push(cause(index, "operation", &value, "must be `Apply` or `Update`"));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            let value = Value::from(text("fieldsType"));
            causes.push(cause(index, "fieldsType", &value, "must be `FieldsV1`"));
        }
    }
    causes
}

/// Leaves the times of the present entries where a write changes nothing else, so that it is none.
///
/// Source: kubernetes/apiserver `pkg/endpoints/handlers/fieldmanager/equality.go`.
pub fn keep_times(new: &mut Value, live: &Value) {
    let without_times = |object: &Value| {
        let mut object = object.clone();
        for entry in object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(entry) = entry.as_object_mut() {
                entry.shift_remove("time");
            }
        }
        object
    };
    if super::fields::same(&without_times(new), &without_times(live)) {
        set_entries(new, live.pointer("/metadata/managedFields").cloned());
    }
}

/// The entries to begin with: a client may set them, take them all away, or say nothing of them.
fn asked(write: Track<'_>, new: &Value) -> Managed {
    let of = |object: Option<&Value>| {
        Managed::decode(object.and_then(|object| object.pointer("/metadata/managedFields"))).ok()
    };
    let live = || of(write.live).unwrap_or_default();
    if !write.subject.subresource.is_empty() {
        return live();
    }
    let entries = new.pointer("/metadata/managedFields");
    let is_reset = match entries.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => {
            only.as_object().is_some_and(|entry| entry.values().all(|value| value == "" || value.is_null()))
        }
        _ => false,
    };
    if is_reset {
        return Managed::default();
    }
    of(Some(new)).filter(|managed| !managed.fields.is_empty()).unwrap_or_else(live)
}

/// Owners once an object has become another by an update.
pub(super) fn owned_after(write: Track<'_>, new: &Value, before: Managed, manager: &str) -> Result<Managed, Unowned> {
    let subject = &write.subject;
    let ownership = Ownership { subject };
    let shape = Shape::of(subject.schema);
    let live = present(subject, write.live);
    let new = present(subject, Some(new));
    let mut managed = before;
    let this = Owner::current();
    let mut set = ownership.update(shape, &live, &new, &mut managed.fields, &this)?;
    set = set.difference(&Set::of(NEVER_OWNED));
    managed.fields.remove(&this);
    if !set.is_empty() {
        let owner = Owner::new(manager, Operation::Update, subject);
        if let Some(previous) = managed.fields.get(&owner) {
            set = set.union(&previous.set);
        }
        let owned = Owned { set, api_version: subject.api_version.to_owned(), applied: false };
        managed.fields.insert(owner.clone(), owned);
        managed.times.insert(owner, write.now.to_owned());
    }
    cap(&mut managed);
    Ok(managed)
}

/// Makes what was written before anybody applied somebody's.
pub(super) fn owned_before_first_apply(write: Track<'_>, live: &Value) -> Result<Managed, Unowned> {
    let write = Track { live: None, ..write };
    owned_after(write, live, Managed::default(), BEFORE_FIRST_APPLY)
}

/// Fields that an applier does not come to own.
pub(super) fn never_owned() -> Set {
    Set::of(NEVER_OWNED)
}

/// Brings the entries of updates down to ten: the oldest of a version become one.
fn cap(managed: &mut Managed) {
    let mut updates: Vec<(String, Owner)> = managed
        .fields
        .iter()
        .filter(|(_, owned)| !owned.applied)
        .map(|(owner, _)| (managed.times.get(owner).cloned().unwrap_or_default(), owner.clone()))
        .collect();
    let mut count = updates.len();
    updates.sort();
    let mut first_of: Vec<(String, Owner)> = Vec::new();
    for (time, owner) in updates {
        if count <= UPDATES_MAX {
            break;
        }
        let Some(owned) = managed.fields.get(&owner).cloned() else { continue };
        let bucket = Owner::bucket(ANCIENT, &owned.api_version);
        let Some((_, first)) = first_of.iter().find(|(version, _)| *version == owned.api_version) else {
            first_of.push((owned.api_version, owner));
            continue;
        };
        if !managed.fields.contains_key(&bucket)
            && let Some(oldest) = managed.fields.remove(first)
        {
            managed.fields.insert(bucket.clone(), oldest);
        }
        if let Some(into) = managed.fields.get_mut(&bucket) {
            into.set = into.set.union(&owned.set);
        }
        // Later than the bucket's, since the oldest come first.
        managed.times.insert(bucket.clone(), time);
        if owner != bucket {
            managed.fields.remove(&owner);
        }
        count -= 1;
    }
}

/// Takes the entries out of an object.
pub(super) fn drop_entries(object: &mut Value) {
    set_entries(object, None);
}

/// Sets the entries of an object.
pub(super) fn set_entries(object: &mut Value, entries: Option<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match entries {
        Some(entries) => {
            metadata.insert("managedFields".to_owned(), entries);
        }
        None => {
            metadata.shift_remove("managedFields");
        }
    }
}
