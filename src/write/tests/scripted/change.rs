//! How scripted members change objects, and who has which of their fields by that: by the embedded server's own rules.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    config::MemberName,
    member::call::Call,
    write::{
        request::values,
        tests::scripted::World,
        update::{APPLY_PATCH, SCALE},
    },
};
use kubefold_apiserver::patch::{
    Apply, OneVersion, PatchError, Subject, apply,
    managed::{Track, manager_of, track},
};
use kubefold_wire::{patch::merge_into, status::Status};

/// No time passes between two writes, so that nothing is changed by its time alone.
const NOW: &str = "2026-01-01T00:00:00Z";

/// One without a schema: what its fields are is deduced of the values.
fn subject<'a>(object: &'a Value, subresource: &'a str) -> Subject<'a> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    Subject {
        api_version: text("apiVersion"),
        kind: text("kind"),
        schema: None,
        custom: true,
        subresource,
        reset: &[],
        versions: &OneVersion,
    }
}

/// The object with what it is, where a test does not say so.
fn typed(mut object: Value) -> Value {
    for (field, text) in [("apiVersion", "v1"), ("kind", "Thing")] {
        if object[field].is_null() {
            object[field] = text.into();
        }
    }
    object
}

/// Whose a call is.
fn manager(call: &Call) -> String {
    let named = values(&call.query, "fieldManager").next().unwrap_or_default();
    manager_of(&named, call.user_agent.as_deref().unwrap_or_default())
}

/// Has what a call that is no apply changes in `live` be its manager's.
pub(super) fn owned(call: &Call, live: Option<&Value>, new: &mut Value, subresource: &str) {
    let object = typed(new.clone());
    let (manager, subject) = (manager(call), subject(&object, subresource));
    track(Track { live, manager: &manager, now: NOW, subject }, new);
}

/// Says whether a call makes an object that is not there.
pub(super) fn makes(call: &Call) -> bool {
    let names_one = |body: Value| body["metadata"]["uid"].is_string();
    call.content_type == APPLY_PATCH && !serde_json::from_slice(&call.body).is_ok_and(names_one)
}

/// What a server-side apply makes of what is there.
pub(super) fn applied(call: &Call, live: Option<&Value>) -> Result<Value, PatchError> {
    let body = typed(serde_json::from_slice(&call.body).unwrap());
    let (manager, force) = (manager(call), values(&call.query, "force").any(|force| force == "true"));
    apply(Apply { live, applied: &body, manager: &manager, force, now: NOW, subject: subject(&body, "") })
}

fn refused(status: &Status) -> (StatusCode, Bytes) {
    (status.code, status.to_json())
}

/// Says why a call is not about this version of an object: by what its body says of UID and revision.
fn stale(call: &Call, name: &str, held: &Value) -> Option<Status> {
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    let expected = &body["metadata"]["uid"];
    if call.method == Method::PATCH && expected.is_string() && *expected != held["metadata"]["uid"] {
        let words = "Precondition failed: UID in precondition".to_owned();
        return Some(Status::conflict("apps", "deployments", name, words));
    }
    let asks = &body["metadata"]["resourceVersion"];
    let is_other =
        asks.as_str().is_some_and(|text| !matches!(text, "" | "0")) && *asks != held["metadata"]["resourceVersion"];
    is_other.then(|| {
        let words = format!(
            "Operation cannot be fulfilled on deployments.apps {name:?}: the object has been modified; please apply \
             your changes to the latest version and try again"
        );
        Status::conflict("apps", "deployments", name, words)
    })
}

impl World {
    /// Has a member hold a new object.
    pub(super) fn insert(
        &mut self,
        member: &MemberName,
        name: &str,
        mut object: Value,
        dry: bool,
    ) -> (StatusCode, Bytes) {
        let fresh = format!("own-{member}-{}", self.uids);
        object["metadata"]["uid"] = fresh.clone().into();
        object["metadata"]["generation"] = 1.into();
        object["metadata"]["resourceVersion"] = self.uids.to_string().into();
        let body = Bytes::from(object.to_string());
        if !dry {
            self.members.get_mut(member).unwrap().objects.insert(name.to_owned(), object);
            self.made.push((member.clone(), fresh));
        }
        (StatusCode::CREATED, body)
    }

    /// A `PUT`, a merge patch, or a server-side apply.
    pub(super) fn replace(
        &mut self,
        member: &MemberName,
        call: &Call,
        name: &str,
        held: Value,
        dry: bool,
    ) -> (StatusCode, Bytes) {
        if let Some(status) = stale(call, name, &held) {
            return refused(&status);
        }
        let mut next = if call.content_type == APPLY_PATCH {
            match applied(call, Some(&held)) {
                Ok(next) => next,
                Err(error) => return refused(&error.into()),
            }
        } else {
            let body: Value = serde_json::from_slice(&call.body).unwrap();
            let mut next = if call.method == Method::PUT { body } else { merged(&held, body) };
            match held.get("status") {
                Some(status) => next["status"] = status.clone(),
                None => drop(next.as_object_mut().unwrap().shift_remove("status")),
            }
            owned(call, Some(&held), &mut next, "");
            next
        };
        self.keep(member, name, &held, &mut next, dry);
        (StatusCode::OK, Bytes::from(next.to_string()))
    }

    /// A read or a write of `/scale`.
    pub(super) fn rescale(
        &mut self,
        member: &MemberName,
        call: &Call,
        name: &str,
        held: &Value,
        dry: bool,
    ) -> (StatusCode, Bytes) {
        let mut next = held.clone();
        if call.method != Method::GET {
            if let Some(status) = stale(call, name, held) {
                return refused(&status);
            }
            let said: Value = serde_json::from_slice(&call.body).unwrap();
            next["spec"]["replicas"] = said["spec"]["replicas"].clone();
            owned(call, Some(held), &mut next, SCALE);
            self.keep(member, name, held, &mut next, dry);
        }
        let revision = &next["metadata"]["resourceVersion"];
        let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": name, "resourceVersion": revision}, "spec": {"replicas": next["spec"]["replicas"]}});
        (StatusCode::OK, scale.to_string().into())
    }

    /// Has a member hold what became of an object, as a new version of it.
    fn keep(&mut self, member: &MemberName, name: &str, held: &Value, next: &mut Value, dry: bool) {
        for field in ["uid", "generation", "resourceVersion"] {
            next["metadata"][field] = held["metadata"][field].clone();
        }
        if next["spec"] != held["spec"] {
            next["metadata"]["generation"] = (held["metadata"]["generation"].as_u64().unwrap_or(0) + 1).into();
        }
        if next != held {
            next["metadata"]["resourceVersion"] = self.uids.to_string().into();
        }
        if !dry {
            self.members.get_mut(member).unwrap().objects.insert(name.to_owned(), next.clone());
        }
    }
}

fn merged(held: &Value, patch: Value) -> Value {
    let mut next = held.clone();
    merge_into(&mut next, patch);
    next
}
