//! What a client wants an object to become: the document that its change begins from, and the one that it ends in.

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value};

use crate::{
    placement::{
        divided::Field,
        marker::OWN_PREFIX,
        merge::{Change, What, difference},
    },
    respond::WriteError,
    write::{
        fleet::{Key, Visible},
        request::Request,
        update::string_data,
    },
};
use kubefold_wire::{
    patch::{self, steps},
    status::Status,
};

/// Media types of patches. Source: kubernetes/apimachinery `pkg/types/patch.go`.
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
pub(in crate::write) const MERGE_PATCH: &str = "application/merge-patch+json";
/// A server-side apply.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// What a member writes into `metadata` itself, or kubefold translates on its own. A kube-apiserver takes no change of these.
///
/// Source: kubernetes/apiserver `pkg/registry/rest/update.go` `BeforeUpdate`.
const OWN_METADATA: [&str; 6] =
    ["uid", "resourceVersion", "generation", "managedFields", "selfLink", "creationTimestamp"];

/// A change as the client wants it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Desired {
    /// What the change begins from, without what is not the client's to change.
    pub(super) before: Value,
    /// What it ends in.
    pub(super) after: Value,
    /// The client named the revision that it changes.
    pub(super) guarded: bool,
    /// `metadata.managedFields`, where the client changes them.
    pub(super) managed_fields: Option<Value>,
}

/// Reads what the client wants of the object as the fleet view shows it: a whole document, or a patch that needs no schema.
///
/// Errors: it is no such thing, or expects another object or revision than is shown.
pub(super) fn read(request: &Request, key: &Key, visible: &Visible, shown: &Value) -> Result<Desired, Status> {
    let mut after = match request.content_type.as_str() {
        _ if request.method == Method::PUT => object(&request.body)?,
        // What the patch does not say of managers stays as it is.
        MERGE_PATCH => patch::merged(without_managers(shown), &request.body).map_err(Status::from)?,
        _ => patched(request, shown)?,
    };
    string_data::store(key, &mut after);
    let named = |field: &str| {
        let value = after.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
        value.filter(|value| !value.is_empty() && *value != "0").map(str::to_owned)
    };
    let (revision, uid) = (named("resourceVersion"), named("uid"));
    check_preconditions(key, visible, revision.as_deref(), uid.as_deref())?;
    let guarded = if request.method == Method::PUT { revision.is_some() } else { names_revision(request) };
    let is = after.pointer("/metadata/managedFields").filter(|value| !value.is_null());
    let was = shown.pointer("/metadata/managedFields");
    let empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    let managed_fields = is.filter(|is| Some(*is) != was && !empty(is)).cloned();
    for field in ["kind", "apiVersion"] {
        if after.get(field).is_none_or(|value| value.as_str() == Some("")) {
            set(&mut after, field, shown.get(field).cloned().unwrap_or_default());
        }
    }
    Ok(Desired { before: plain_of(shown), after: plain(after), guarded, managed_fields })
}

/// Compares the revision and the UID that a client expects with what is shown.
///
/// Errors: 409. Source: kubernetes/apiserver `pkg/registry/generic/registry/store.go`, `pkg/storage/interfaces.go`.
pub(super) fn check_preconditions(
    key: &Key,
    visible: &Visible,
    revision: Option<&str>,
    uid: Option<&str>,
) -> Result<(), WriteError> {
    if let Some(uid) = uid.filter(|uid| *uid != visible.uid) {
        let (object, expected, is) = (key.to_ref(), uid.to_owned(), visible.uid.clone());
        return Err(WriteError::Precondition { object, field: "UID", expected, is });
    }
    if revision.is_some_and(|revision| revision != visible.revision.to_string()) {
        Err(WriteError::Stale(key.to_ref()))
    } else {
        Ok(())
    }
}

/// A body that is to be an object.
///
/// Errors: 400.
pub(super) fn object(body: &Bytes) -> Result<Value, WriteError> {
    let bad = |error: &dyn std::fmt::Display| WriteError::Body { what: "object", cause: error.to_string() };
    let value: Value = serde_json::from_slice(body).map_err(|error| bad(&error))?;
    if value.is_object() { Ok(value) } else { Err(bad(&"it is another kind of JSON")) }
}

/// The object as shown, with a JSON patch made, or another patch as if it were a merge patch.
///
/// Errors: as a kube-apiserver's.
pub(super) fn patched(request: &Request, shown: &Value) -> Result<Value, Status> {
    let patched = match request.content_type.as_str() {
        JSON_PATCH => patch::json(shown, &request.body),
        _ => patch::merge(shown, &request.body),
    };
    patched.map_err(Status::from)
}

/// Says whether a patch is about the revision.
fn names_revision(request: &Request) -> bool {
    let Ok(patch) = serde_json::from_slice::<Value>(&request.body) else { return false };
    match &patch {
        Value::Array(operations) => operations.iter().any(|operation| {
            let path = steps(operation.get("path").and_then(Value::as_str).unwrap_or_default());
            path.is_empty() || path == ["metadata"] || path == ["metadata", "resourceVersion"]
        }),
        _ => patch.pointer("/metadata/resourceVersion").and_then(Value::as_str).is_some_and(|text| !text.is_empty()),
    }
}

/// Says whether a patch says what a divided field is to be.
pub(super) fn names(request: &Request, field: &Field) -> bool {
    let Ok(patch) = serde_json::from_slice::<Value>(&request.body) else { return false };
    match &patch {
        _ if request.method == Method::PUT => false,
        Value::Array(operations) => operations.iter().any(|operation| {
            let text = |name: &str| operation.get(name).and_then(Value::as_str).unwrap_or_default();
            text("op") != "test" && steps(text("path")) == field.path
        }),
        _ => patch.pointer(field.pointer).is_some(),
    }
}

/// A document without what is not the client's to change: both sides of a difference are made alike so.
pub(in crate::write) fn plain(mut document: Value) -> Value {
    let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) else { return document };
    for field in OWN_METADATA {
        metadata.shift_remove(field);
    }
    for field in ["labels", "annotations"] {
        if metadata.get(field).is_none_or(Value::is_null) {
            // A map that comes or goes is compared key by key: a part has one in any case.
            metadata.insert(field.to_owned(), Value::Object(Map::new()));
        }
        if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            map.retain(|name, _| !name.starts_with(OWN_PREFIX));
        }
    }
    document
}

/// The same of a document that stays: what goes, the managers of its fields above all, is not copied first.
pub(super) fn plain_of(document: &Value) -> Value {
    plain(without_managers(document))
}

/// A copy of a document without `metadata.managedFields`.
pub(super) fn without_managers(document: &Value) -> Value {
    let Value::Object(fields) = document else { return document.clone() };
    let copy = |fields: &Map<String, Value>| -> Map<String, Value> {
        let kept = fields.iter().filter(|(name, _)| *name != "managedFields");
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let copied = fields.iter().map(|(name, value)| {
        let value = match value {
            Value::Object(metadata) if name == "metadata" => Value::Object(copy(metadata)),
            value => value.clone(),
        };
        (name.clone(), value)
    });
    Value::Object(copied.collect())
}

/// Takes from a patch what kubefold translates or keeps to itself; gives the revision and the UID that it expects.
pub(super) fn strip(patch: &mut Value) -> (Option<String>, Option<String>) {
    let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) else { return (None, None) };
    let mut text = |field: &str| {
        let value = metadata.shift_remove(field)?;
        value.as_str().filter(|value| !value.is_empty() && *value != "0").map(str::to_owned)
    };
    let (revision, uid) = (text("resourceVersion"), text("uid"));
    for field in ["labels", "annotations"] {
        if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            map.retain(|name, _| !name.starts_with(OWN_PREFIX));
        }
    }
    (revision, uid)
}

/// Takes what stands at a path away.
pub(super) fn take_at(document: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut place = document;
    for field in parents {
        place = place.get_mut(field)?;
    }
    place.as_object_mut()?.shift_remove(*last)
}

/// A document with one value in it.
pub(super) fn nested(path: &[&str], value: Value) -> Value {
    path.iter().rev().fold(value, |value, field| {
        let mut fields = Map::new();
        fields.insert((*field).to_owned(), value);
        Value::Object(fields)
    })
}

pub(super) fn set(document: &mut Value, field: &str, value: Value) {
    if let Some(fields) = document.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

/// What members assign: each part keeps its own unless the client names one.
///
/// Source: kubernetes `pkg/registry/core/service/storage/alloc.go`.
const ASSIGNED: &[(&str, &str, &[&str])] = &[
    ("", "services", &["clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort"]),
    ("", "persistentvolumeclaims", &["volumeName"]),
];

/// The changes that a patch means, of all that one member made of it: without what its admission added elsewhere, and
/// without what it assigned.
pub(super) fn meant(key: &Key, patch: &Value, before: &Value, after: &Value) -> Vec<Change> {
    let assigned =
        ASSIGNED.iter().find(|(group, resource, _)| (*group, *resource) == (&*key.gvr.group, &*key.gvr.resource));
    let assigned = assigned.map_or([].as_slice(), |(_, _, fields)| fields);
    let unnamed: Vec<&str> = assigned.iter().copied().filter(|field| !mentions(patch, field)).collect();
    let mut changes = difference(before, after);
    changes
        .retain(|change| touches(patch, &change.at) && !change.fields_anywhere().any(|field| unnamed.contains(&field)));
    for change in &mut changes {
        if let What::Value { new: Some(Value::Object(fields)), .. } = &mut change.what {
            fields.retain(|name, _| !unnamed.contains(&name.as_str()));
        }
    }
    changes
}

fn mentions(patch: &Value, field: &str) -> bool {
    match patch {
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| (name == field && !value.is_null()) || mentions(value, field))
        }
        Value::Array(items) => items.iter().any(|item| mentions(item, field)),
        _ => false,
    }
}

/// Says whether a strategic merge patch says anything at this place, above or below it.
fn touches(patch: &Value, at: &[crate::placement::merge::Step]) -> bool {
    use crate::placement::merge::Step;
    let Some((step, rest)) = at.split_first() else { return true };
    let directive =
        |value: &Value| value.as_object().is_some_and(|fields| fields.keys().any(|name| name.starts_with('$')));
    match step {
        Step::Field(name) if name == "ownerReferences" => patch.get(name).is_some() || directive(patch),
        Step::Field(name) => match patch.get(name) {
            Some(inner) => touches(inner, rest),
            None => directive(patch),
        },
        Step::Item(key) => match patch {
            Value::Array(items) => {
                let is_it = |item: &&Value| key.iter().all(|(name, value)| item.get(name).is_none_or(|is| is == value));
                items.iter().any(directive) || items.iter().filter(is_it).any(|item| touches(item, rest))
            }
            _ => true,
        },
        Step::Text(_) => true,
    }
}
