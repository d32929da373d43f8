//! The router: paths and methods that no room takes.

use http::{StatusCode, uri::InvalidUri};

use crate::respond::{ApiError, Blame, Retry};
use kubefold_wire::{
    golang::Quoted,
    info::PathError,
    resource::Gvr,
    status::{Reason, Status},
};

/// Why a request goes to no room.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The path is none.
    #[error(transparent)]
    Path(#[from] PathError),
    /// What follows a view's prefix is no path.
    #[error(transparent)]
    Uri(#[from] InvalidUri),
    /// The path names a member that is not configured.
    #[error("there is no member {name}; the members are {}", .members.join(", "), name = Quoted(.name))]
    NoMember {
        /// The name in the path.
        name: String,
        /// The members that there are.
        members: Vec<String>,
    },
    /// Nobody serves the path.
    #[error("the server could not find the requested resource")]
    NoSuchPath,
    /// A method that the path does not take. In the words of a kube-apiserver.
    #[error("the server does not allow this method on the requested resource")]
    Method,
    /// A kind that can be listed and not watched.
    ///
    /// Source: kubernetes/apiserver `pkg/endpoints/handlers/get.go`.
    #[error("watch is not supported on resources of kind {}", Quoted(.0.qualified()))]
    Unwatchable(
        /// The resource.
        Gvr,
    ),
    /// What kubefold tells of itself no member can allow.
    #[error(
        "user {user} is not in group {group} or {admins}, and only these may see this; kubefold's own authority and its \
         token file can name the first (kubefold kubeconfig --group), and viewers and admins in clusters.yaml name others", user = Quoted(.user)
    )]
    NotAdmin {
        /// Who asks.
        user: String,
        /// The group.
        group: &'static str,
        /// The one that may do everything.
        admins: &'static str,
    },
    /// The metrics have no text.
    #[error("the metrics cannot be written")]
    Metrics(#[from] std::fmt::Error),
}

impl ApiError for RouteError {
    fn blame(&self) -> Blame {
        match self {
            Self::Path(_)
            | Self::Uri(_)
            | Self::NoMember { .. }
            | Self::NoSuchPath
            | Self::Method
            | Self::Unwatchable(_)
            | Self::NotAdmin { .. } => Blame::Downstream,
            Self::Metrics(_) => Blame::Kubefold,
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl From<RouteError> for Status {
    fn from(error: RouteError) -> Self {
        let message = error.to_string();
        match error {
            RouteError::Path(_) | RouteError::Uri(_) => Self::bad_request(message),
            RouteError::NoMember { .. } => Self::new(StatusCode::NOT_FOUND, Reason::NotFound, message),
            RouteError::NoSuchPath => Self::no_such_path(),
            RouteError::Method => Self::method_not_allowed(message),
            RouteError::Unwatchable(gvr) => Self::method_not_allowed(message).about(&gvr.group, &gvr.resource, ""),
            RouteError::NotAdmin { .. } => Self::forbidden(message),
            RouteError::Metrics(_) => Self::internal(message),
        }
    }
}
