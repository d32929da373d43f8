//! kubefold's own objects.

use http::StatusCode;
use serde_json::Value;

use crate::respond::{ApiError, Blame, Retry};
use kubefold_wire::{
    access::{items, text},
    golang::Quoted,
    resource::Gvr,
    status::{Cause, Reason, Status},
};

/// Why a request for one of kubefold's own objects has no other answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OwnError {
    /// What an object refers to is asked for as whoever asks for it, and members judge impersonation one by one.
    #[error(
        "user {user} acts as somebody else, and only members of system:masters may do so with {}; log in as that user", .resource.qualified(), user = Quoted(.user)
    )]
    Impersonated {
        /// As whom.
        user: String,
        /// What is asked for.
        resource: Gvr,
    },
    /// An item's name makes no path.
    #[error("{0} is no path that a request can have")]
    Address(
        /// The path.
        String,
    ),
    /// The fleet does not answer its own objects.
    #[error("kubefold is starting or ending; ask again")]
    NoFleet,
    /// An answer of the fleet is no JSON, or ended early.
    #[error("the fleet's answer about an item cannot be read ({0}); ask again")]
    BrokenOff(
        /// Why.
        String,
    ),
    /// The fleet refuses what is asked of it.
    #[error("{}", text(.answer, "/message"))]
    Refused {
        /// The code of its answer.
        code: StatusCode,
        /// Its `Status`.
        answer: Value,
    },
    /// Something with an item is refused.
    #[error("spec.flowList[{at}] ({what}): {}{}", .status.message, after(.aftermath))]
    Item {
        /// Which one.
        at: usize,
        /// Such as `Pod default/nginx1`.
        what: String,
        /// What the fleet says of it.
        status: Box<Status>,
        /// What has become of the others; empty for nothing to say.
        aftermath: String,
    },
    /// Nobody serves an item's kind.
    #[error("spec.flowList[{at}] ({what}): no member serves kind {} in version {}; make its definition first, or put it before this item", Quoted(.kind), Quoted(.version))]
    NoKind {
        /// Which one.
        at: usize,
        /// Such as `Pod default/nginx1`.
        what: String,
        /// Such as `Pod`.
        kind: String,
        /// Such as `v1`.
        version: String,
        /// The name of the ShadowResource.
        name: String,
    },
    /// The name is in use by a create that is under way.
    #[error("{resource} {name} is being made or undone by an earlier request; ask again in a moment", resource = .resource.qualified(), name = Quoted(.name))]
    Held {
        /// What is asked for.
        resource: Gvr,
        /// Its name.
        name: String,
    },
    /// An item is there, and nobody said that it may be adopted.
    #[error("{resource} {name} already exists; to take it into the ShadowResource, give the item the annotation shadow.kubefold.io/adopt: \"true\"", resource = .resource.qualified(), name = Quoted(.name))]
    Exists {
        /// The item's.
        resource: Gvr,
        /// Its name.
        name: String,
    },
    /// A member that stands in the file cannot be changed as an object.
    #[error("members.kubefold.io {} is forbidden: it stands in clusters.yaml; change that file, and kubefold takes it", Quoted(.0))]
    OfFile(
        /// The member's name.
        String,
    ),
    /// A member that is of a ClusterProfile cannot be changed as an object.
    #[error("members.kubefold.io {} is forbidden: it is of {profile}; change that, and kubefold takes it", Quoted(.name))]
    OfProfile {
        /// The member's name.
        name: String,
        /// The ClusterProfile.
        profile: String,
    },
    /// The namespace of kubefold's own has nothing else than what kubefold puts into it, and Secrets.
    #[error("{resource} {name} is forbidden: kubefold itself stores the namespace kubefold-system, and only Secrets are written there", resource = .resource.qualified(), name = Quoted(.name))]
    OfSystem {
        /// What is asked for.
        resource: Gvr,
        /// Its name.
        name: String,
    },
    /// There is no such namespace in the fleet.
    #[error("namespaces {} not found", Quoted(.0))]
    NoNamespace(
        /// Its name.
        String,
    ),
    /// The state directory does not take what has to be noted before anything is made.
    #[error("kubefold cannot note in its state directory what it is to make ({0}); nothing was made")]
    Unnoted(
        /// Why.
        String,
    ),
}

fn after(aftermath: &str) -> String {
    if aftermath.is_empty() { String::new() } else { format!(" ({aftermath})") }
}

impl ApiError for OwnError {
    fn blame(&self) -> Blame {
        match self {
            Self::NoFleet | Self::BrokenOff(_) | Self::Unnoted(_) => Blame::Kubefold,
            Self::Impersonated { .. }
            | Self::Address(_)
            | Self::Refused { .. }
            | Self::Item { .. }
            | Self::NoKind { .. }
            | Self::Held { .. }
            | Self::Exists { .. }
            | Self::OfFile(_)
            | Self::OfProfile { .. }
            | Self::OfSystem { .. }
            | Self::NoNamespace(_) => Blame::Downstream,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::NoFleet | Self::Unnoted(_) | Self::Held { .. } => Retry::Always,
            Self::BrokenOff(_) => Retry::IfRead,
            Self::Impersonated { .. }
            | Self::Address(_)
            | Self::Refused { .. }
            | Self::Item { .. }
            | Self::NoKind { .. }
            | Self::Exists { .. }
            | Self::OfFile(_)
            | Self::OfProfile { .. }
            | Self::OfSystem { .. }
            | Self::NoNamespace(_) => Retry::Never,
        }
    }
}

impl From<OwnError> for Status {
    fn from(error: OwnError) -> Self {
        let message = error.to_string();
        match error {
            OwnError::Impersonated { .. } => Self::forbidden(message),
            OwnError::Address(_) => Self::bad_request(message),
            OwnError::NoFleet | OwnError::Unnoted(_) => Self::unavailable(message),
            OwnError::BrokenOff(_) => Self::internal(message),
            OwnError::NoNamespace(name) => {
                let not_found = Self::new(StatusCode::NOT_FOUND, Reason::NotFound, message);
                not_found.about("", "namespaces", &name)
            }
            OwnError::OfFile(name) | OwnError::OfProfile { name, .. } => {
                Self::forbidden(message).about("kubefold.io", "members", &name)
            }
            OwnError::OfSystem { resource, name } => {
                Self::forbidden(message).about(&resource.group, &resource.resource, &name)
            }
            OwnError::Held { resource, name } => Self::new(StatusCode::CONFLICT, Reason::Conflict, message).about(
                &resource.group,
                &resource.resource,
                &name,
            ),
            OwnError::Exists { resource, name } => {
                let exists = Self::new(StatusCode::CONFLICT, Reason::AlreadyExists, message);
                exists.about(&resource.group, &resource.resource, &name)
            }
            OwnError::NoKind { at, kind, version, name, .. } => {
                let why = format!("no member serves it in version {version}");
                let cause = Cause::invalid_text(format!("spec.flowList[{at}].kind"), &kind, &why);
                let mut whole = Self::invalid("kubefold.io", "ShadowResource", &name, vec![cause]);
                whole.message = message;
                whole
            }
            OwnError::Refused { code, answer } => of_answer(code, &answer, message),
            OwnError::Item { at, status, .. } => {
                let mut status = *status;
                status.message = message;
                for cause in &mut status.details.causes {
                    cause.field = format!("spec.flowList[{at}].{}", cause.field);
                }
                status
            }
        }
    }
}

/// What an answer of the fleet says, as a status of its own.
fn of_answer(code: StatusCode, answer: &Value, message: String) -> Status {
    let reason = serde_json::from_value(answer.get("reason").cloned().unwrap_or_default()).unwrap_or(Reason::Unknown);
    let of = |at: &str| text(answer, at).to_owned();
    let mut status = Status::new(code, reason, message);
    status.details.name = of("/details/name");
    status.details.group = of("/details/group");
    status.details.kind = of("/details/kind");
    let cause = |cause: &Value| Cause {
        reason: text(cause, "/reason").to_owned(),
        message: text(cause, "/message").to_owned(),
        field: text(cause, "/field").to_owned(),
    };
    status.details.causes = items(answer, "/details/causes").iter().map(cause).collect();
    status
}
