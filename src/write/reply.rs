//! The statuses of writes that cannot be done, or whose outcome is not known.

use http::StatusCode;

use crate::{answer::reply::Reply, config::MemberName, write::fleet::Key};
use kubefold_wire::status::{Reason, Status};

pub(super) use kubefold_wire::{reword::reworded, warning::warning_text};

/// 504 for a write whose outcome is not known. `what` names it: `creating deployments.apps "web"`.
pub(super) fn unknown_outcome(what: &str, key: &Key, where_: &str, then: &str) -> Reply {
    let message = format!("the outcome of {what} is unknown: {where_}; {then}");
    Status::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, message)
        .about(&key.gvr.group, &key.gvr.resource, &key.name)
        .into()
}

/// 503 for a key that another write has.
pub(super) fn taken(key: &Key) -> Reply {
    let message =
        format!("another write to {key} is under way, or its outcome is not known yet: try again in a minute");
    Status::unavailable(message).about(&key.gvr.group, &key.gvr.resource, &key.name).into()
}

/// 503 for a name whose earlier create may still have made an object in a member that cannot be asked.
pub(super) fn unsettled(key: &Key, home: &MemberName) -> Reply {
    let message = format!(
        "an earlier create of {key} is not settled: whether member {home} made it is not known while that cannot be \
         reached. It is finished or taken back when the member returns, or is taken out of the configuration"
    );
    Status::unavailable(message).about(&key.gvr.group, &key.gvr.resource, &key.name).into()
}

/// 409 for a name that is in use.
pub(super) fn already_exists(key: &Key, why: &str) -> Reply {
    Status::new(StatusCode::CONFLICT, Reason::AlreadyExists, format!("{key} already exists{why}"))
        .about(&key.gvr.group, &key.gvr.resource, &key.name)
        .into()
}
