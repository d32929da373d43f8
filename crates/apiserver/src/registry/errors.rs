//! Refusals in Kubernetes' words.
//!
//! Source: kubernetes/apimachinery `pkg/api/errors/errors.go`, kubernetes/apiserver `pkg/storage/errors/storage.go`.

use http::StatusCode;

use crate::{
    kinds::{ConversionError, Kind},
    storage::StorageError,
};
use kubefold_wire::{
    golang::Quoted,
    options::too_large,
    status::{Cause, Reason, Status, qualified},
};

/// What an update says of a revision that has passed.
pub(super) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

pub(super) fn not_found(kind: &Kind, name: &str) -> Status {
    Status::not_found(&kind.group, &kind.plural, name)
}

pub(super) fn already_exists(kind: &Kind, name: &str) -> Status {
    let message = format!("{} {name} already exists", qualified(&kind.group, &kind.plural), name = Quoted(name));
    Status::new(StatusCode::CONFLICT, Reason::AlreadyExists, message).about(&kind.group, &kind.plural, name)
}

pub(super) fn conflict(kind: &Kind, name: &str, why: &str) -> Status {
    let message = format!(
        "Operation cannot be fulfilled on {} {name}: {why}",
        qualified(&kind.group, &kind.plural),
        name = Quoted(name)
    );
    Status::conflict(&kind.group, &kind.plural, name, message)
}

pub(super) fn forbidden(kind: &Kind, name: &str, why: &str) -> Status {
    let resource = qualified(&kind.group, &kind.plural);
    let message = match name {
        "" => format!("{resource} is forbidden: {why}"),
        name => format!("{resource} {name} is forbidden: {why}", name = Quoted(name)),
    };
    Status::forbidden(message).about(&kind.group, &kind.plural, name)
}

pub(super) fn invalid(kind: &Kind, name: &str, causes: Vec<Cause>) -> Status {
    // Of the group whose type it is in Go: both groups of events are the core one's.
    Status::invalid(kind.stored_group(), &kind.kind, name, causes)
}

/// What is there cannot be said in the version that was asked for.
pub(super) fn unreadable(kind: &Kind, name: &str, error: &ConversionError) -> Status {
    let (resource, version) = (qualified(&kind.group, &kind.plural), Quoted(&kind.version));
    Status::internal(format!("{resource} {name} cannot be read in version {version}: {error}", name = Quoted(name)))
}

/// What a client sent cannot be said in the version that is stored.
pub(super) fn unstorable(kind: &Kind, error: &ConversionError) -> Status {
    let (version, kind) = (Quoted(&kind.version), &kind.kind);
    Status::bad_request(format!("{kind} in version {version} cannot be handled as a {kind}: {error}"))
}

/// What a storage says, where nothing better is to be said.
pub(super) fn of_storage(error: &StorageError) -> Status {
    match error {
        StorageError::Compacted { asked, oldest } => {
            Status::expired(format!("too old resource version: {asked} ({oldest})"))
        }
        StorageError::Future { asked, newest } => too_large(*asked, *newest),
        StorageError::Full(why) => {
            let message = format!("the storage is full: {why}");
            Status::new(StatusCode::INSUFFICIENT_STORAGE, Reason::InternalError, message)
        }
        StorageError::Unavailable(why) => {
            let mut status =
                Status::unavailable(format!("the storage does not answer, and nothing was changed: {why}"));
            // Nothing was done: to repeat it is safe.
            status.details.retry_after_seconds = Some(1);
            status
        }
        StorageError::Unknown(why) => Status::unavailable(format!(
            "the storage failed, and whether it made the change is not known; read the object before you try again: {why}"
        )),
        StorageError::Unmet(_) => Status::internal(error.to_string()),
    }
}
