//! Streams: exec, attach, port-forward, logs, proxy.

use crate::{
    config::MemberName,
    respond::{ApiError, Blame, Retry},
};
use kubefold_wire::{golang::Quoted, resource::Gvr, status::Status};

/// Why a stream is not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The name of what is proxied is none.
    #[error("invalid name {}: it is <name>, <name>:<port> or <scheme>:<name>:<port>", Quoted(.0))]
    Identifier(String),
    /// A path whose own part two readers would cut differently.
    #[error("the server could not find the requested resource")]
    NoSuchPath,
    /// No object has the name.
    #[error("{} {name} not found", gvr.qualified(), name = Quoted(.name))]
    NotFound {
        /// The resource.
        gvr: Gvr,
        /// The name.
        name: String,
    },
    /// The kind cannot be listed, so that nobody knows whose the name is.
    #[error(
        "{} cannot be listed, so kubefold cannot find the member of {name}: use {}",
        gvr.qualified(),
        full_names(.name, .members), name = Quoted(.name))]
    Unlisted {
        /// The resource.
        gvr: Gvr,
        /// The name.
        name: String,
        /// The members that may have it.
        members: Vec<MemberName>,
    },
    /// The member left the configuration while the request was on its way.
    #[error("member {0} is being removed from the configuration")]
    Removed(
        /// The member.
        MemberName,
    ),
}

/// `"web@east" or "web@west"`.
fn full_names(name: &str, members: &[MemberName]) -> String {
    members.iter().map(|member| Quoted(format!("{name}@{member}")).to_string()).collect::<Vec<_>>().join(" or ")
}

impl ApiError for StreamError {
    fn blame(&self) -> Blame {
        match self {
            Self::Identifier(_) | Self::NoSuchPath | Self::NotFound { .. } | Self::Unlisted { .. } => Blame::Downstream,
            Self::Removed(_) => Blame::Kubefold,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Identifier(_) | Self::NoSuchPath | Self::NotFound { .. } | Self::Unlisted { .. } => Retry::Never,
            // Nothing was sent.
            Self::Removed(_) => Retry::Always,
        }
    }
}

impl From<StreamError> for Status {
    fn from(error: StreamError) -> Self {
        let message = error.to_string();
        match error {
            StreamError::Identifier(_) => Self::bad_request(message),
            StreamError::NoSuchPath => Self::no_such_path(),
            StreamError::NotFound { gvr, name } | StreamError::Unlisted { gvr, name, .. } => {
                let mut status = Self::not_found(&gvr.group, &gvr.resource, &name);
                status.message = message;
                status
            }
            StreamError::Removed(_) => Self::unavailable(message),
        }
    }
}
