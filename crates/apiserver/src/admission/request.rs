//! A write as an `AdmissionRequest`.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/cel/condition.go` `CreateAdmissionRequest`.

use serde_json::{Map, Value, json};

use super::matching::Matched;
use crate::{
    kinds::{ConversionError, Kind, forbidden, put},
    registry::{AdmissionRequest, Registry},
    schema::arrange,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    resource::{Gvk, api_version},
    status::Status,
};

/// The API group of policies and webhooks.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// Why an object cannot be seen in another version.
#[derive(Debug, thiserror::Error)]
pub(super) enum SeenError {
    /// This server cannot convert it.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// Whoever converts it cannot.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
}

/// The request without its objects and its UID.
pub(super) fn described(request: &AdmissionRequest<'_>, matched: &Matched, caller: &Caller) -> Value {
    let kind = |of: &Gvk| json!({"group": *of.group, "version": *of.version, "kind": *of.kind});
    let resource = |of: &Kind| json!({"group": of.group, "version": of.version, "resource": of.plural});
    let mut out = Map::new();
    let mut set = |name: &str, value: Value| drop(out.insert(name.to_owned(), value));
    set("kind", kind(&matched.object_type));
    set("resource", resource(matched.other.as_deref().unwrap_or(request.kind)));
    set("requestKind", kind(&request.object_type));
    set("requestResource", resource(request.kind));
    let texts = [
        ("subResource", request.subresource),
        ("requestSubResource", request.subresource),
        ("name", request.name),
        ("namespace", request.namespace),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        set(name, text.into());
    }
    set("operation", request.operation.name().into());
    set("userInfo", user_info(caller));
    set("dryRun", request.dry_run.into());
    set("options", request.options.clone());
    out.into()
}

/// Somebody as a `UserInfo`.
pub(crate) fn user_info(caller: &Caller) -> Value {
    let mut info = json!({"username": caller.user});
    put(&mut info, "uid", caller.uid.as_deref().map(Value::from));
    put(&mut info, "groups", Some(caller.groups.clone().into()));
    put(&mut info, "extra", (!caller.extra.is_empty()).then(|| json!(caller.extra)));
    info
}

/// 403 about a write. The object is its own, if it has one.
///
/// Source: kubernetes/apiserver `pkg/admission/errors.go` `NewForbidden`.
pub(super) fn refused(request: &AdmissionRequest<'_>, object: Option<&Value>, why: &str) -> Box<Status> {
    let named = json!({"metadata": {"name": request.name}});
    let object = if request.name.is_empty() { object.unwrap_or(&Value::Null) } else { &named };
    forbidden(&request.kind.group, &request.kind.plural, object, why)
}

/// An object of the request, as it is seen.
///
/// Errors: it cannot be said in that version.
pub(super) async fn seen(
    registry: &Registry,
    request: &AdmissionRequest<'_>,
    matched: &Matched,
    object: Option<&Value>,
) -> Result<Option<Value>, SeenError> {
    let Some(object) = object else { return Ok(None) };
    match kind_of_seen(request, matched).zip(matched.other.as_deref()) {
        None => Ok(Some(object.clone())),
        Some((_, other)) => converted(registry, object, request.kind, other).await.map(Some),
    }
}

/// The kind of an object as it is seen; `None`: it is another one, which is written below an object of the kind.
pub(super) fn kind_of_seen<'k>(request: &AdmissionRequest<'k>, matched: &'k Matched) -> Option<&'k Kind> {
    let is_own = *request.object_type.kind == *request.kind.kind && *request.object_type.group == request.kind.group;
    is_own.then(|| matched.other.as_deref().unwrap_or(request.kind))
}

/// An object that was changed as it was seen, as the request has it.
///
/// Errors: it cannot be said in the version of the request.
pub(super) async fn taken(
    registry: &Registry,
    request: &AdmissionRequest<'_>,
    matched: &Matched,
    object: Value,
) -> Result<Value, SeenError> {
    match kind_of_seen(request, matched).zip(matched.other.as_deref()) {
        None => Ok(object),
        Some((_, other)) => converted(registry, &object, other, request.kind).await,
    }
}

/// An object of a kind in another version.
///
/// Errors: it cannot be said in that version.
async fn converted(registry: &Registry, object: &Value, from: &Kind, to: &Kind) -> Result<Value, SeenError> {
    if let Some(object) = registry.converted(object, to).await.map_err(|status| SeenError::Refused(Box::new(status)))? {
        return Ok(object);
    }
    let mut object = to.strategy.from_storage(from.strategy.to_storage(object.clone())?)?;
    put(&mut object, "kind", Some(to.kind.as_str().into()));
    put(&mut object, "apiVersion", Some(api_version(&to.group, &to.version).into()));
    Ok(match to.types.named(&to.type_name).filter(|typed| typed.go().is_some()) {
        Some(typed) => arrange(typed, object),
        None => object,
    })
}
