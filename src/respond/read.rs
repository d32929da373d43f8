//! Reads: get, list, watch, and the list that a deletion of a collection begins with.

use crate::{
    respond::{ApiError, Blame, Retry},
    store::Revision,
};
use kubefold_wire::{golang::Quoted, options::too_large, resource::Gvr, status::Status};

/// Why a read has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No object has the name.
    #[error("{} {name} not found{}", gvr.qualified(), also(.member_locals), name = Quoted(.name))]
    NotFound {
        /// The resource.
        gvr: Gvr,
        /// The name.
        name: String,
        /// The visible names of member-local objects of that name, so that people find what they mean.
        member_locals: Vec<String>,
    },
    /// The name is short for several objects.
    #[error("{} {name} is in several members: {}", gvr.qualified(), .member_locals.join(", "), name = Quoted(.name))]
    Ambiguous {
        /// The resource.
        gvr: Gvr,
        /// The name.
        name: String,
        /// The visible names of the objects.
        member_locals: Vec<String>,
    },
    /// A Lease whose member does not answer.
    #[error(
        "{why}, and a Lease is not answered from its last known state, since clients decide by it who leads. A list shows it"
    )]
    LeaseUnknown {
        /// Its name.
        name: String,
        /// The member, and the cause.
        why: String,
    },
    /// A list at a revision of which the objects are not kept any more.
    #[error("The resourceVersion for the provided list is too old.")]
    ListTooOld,
    /// The rest of a list of which the objects are not kept any more.
    ///
    /// Source: kubernetes/apiserver `pkg/storage/etcd3/errors.go`.
    #[error(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )]
    ContinueTooOld {
        /// A token that goes on behind the same object, at whatever is newest then.
        fresh: String,
    },
    /// A watch from a revision that the log does not reach back to, or that was never given out.
    #[error("too old resource version: {asked} ({known})")]
    WatchTooOld {
        /// The revision asked for.
        asked: Revision,
        /// The oldest revision that is known, or the newest.
        known: Revision,
    },
    /// A revision that was not given out yet.
    #[error("Timeout: Too large resource version: {asked}, current: {current}")]
    TooLarge {
        /// The revision asked for.
        asked: u64,
        /// The newest revision.
        current: u64,
    },
    /// The path names one object, and the field selector another.
    #[error("fieldSelector metadata.name doesn't match requested name")]
    OtherName,
    /// A continue token for a list that has no pages.
    #[error("invalid continue token: this list is always whole and gives none")]
    NoPages,
    /// A watch of the strict view while a member is not current. Informers keep what they have, and are refused until
    /// every member is current.
    #[error(
        "not every member is current ({} is not), and a watch of /views/strict goes on only while all are",
        .stale.join(", ")
    )]
    NotCurrent {
        /// The members that are not.
        stale: Vec<String>,
    },
    /// The deletion of a collection while a member is not current.
    #[error("nothing was deleted, because it is not known what matches in {}: {}", .stale.join(", "), .causes.join("; "))]
    CollectionUnknown {
        /// The resource.
        gvr: Gvr,
        /// The members that are not current.
        stale: Vec<String>,
        /// One cause per member.
        causes: Vec<String>,
    },
    /// Members that decide do not answer.
    #[error("{}: {}", gvr.qualified(), .causes.join("; "))]
    Unanswered {
        /// The resource.
        gvr: Gvr,
        /// One cause per member.
        causes: Vec<String>,
    },
    /// A list that has no pages would have more objects than kubefold holds for it.
    #[error(
        "the members have {count} {} together, more than {max}: ask for one namespace, or use a selector",
        gvr.qualified()
    )]
    TooMany {
        /// The resource.
        gvr: Gvr,
        /// The objects of all members.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// The answer to a write ended before it was whole.
    #[error("the answer broke off: {0}")]
    BrokenOff(
        /// The cause.
        String,
    ),
}

fn also(member_locals: &[String]) -> String {
    if member_locals.is_empty() {
        return String::new();
    }
    format!("; member-local objects with that name: {}", member_locals.join(", "))
}

impl ApiError for ReadError {
    fn blame(&self) -> Blame {
        match self {
            Self::NotFound { .. }
            | Self::Ambiguous { .. }
            | Self::ListTooOld
            | Self::ContinueTooOld { .. }
            | Self::WatchTooOld { .. }
            | Self::TooLarge { .. }
            | Self::OtherName
            | Self::NoPages
            | Self::TooMany { .. } => Blame::Downstream,
            // Several members: none of them alone.
            Self::NotCurrent { .. }
            | Self::CollectionUnknown { .. }
            | Self::Unanswered { .. }
            | Self::LeaseUnknown { .. }
            | Self::BrokenOff(_) => Blame::Kubefold,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::NotFound { .. }
            | Self::Ambiguous { .. }
            | Self::ListTooOld
            | Self::ContinueTooOld { .. }
            | Self::WatchTooOld { .. }
            | Self::OtherName
            | Self::NoPages
            | Self::TooMany { .. } => Retry::Never,
            Self::TooLarge { .. }
            | Self::NotCurrent { .. }
            | Self::CollectionUnknown { .. }
            | Self::Unanswered { .. }
            | Self::LeaseUnknown { .. } => Retry::Always,
            // The write is done.
            Self::BrokenOff(_) => Retry::IfRead,
        }
    }
}

impl From<ReadError> for Status {
    fn from(error: ReadError) -> Self {
        let message = error.to_string();
        match error {
            ReadError::NotFound { gvr, name, .. } => {
                let mut status = Self::not_found(&gvr.group, &gvr.resource, &name);
                status.message = message;
                status
            }
            ReadError::Ambiguous { gvr, name, .. } => Self::conflict(&gvr.group, &gvr.resource, &name, message),
            ReadError::ListTooOld | ReadError::WatchTooOld { .. } => Self::expired(message),
            ReadError::ContinueTooOld { fresh } => {
                let mut status = Self::expired(message);
                status.continue_token = fresh;
                status
            }
            ReadError::TooLarge { asked, current } => too_large(asked, current),
            ReadError::OtherName | ReadError::NoPages => Self::bad_request(message),
            ReadError::NotCurrent { .. } | ReadError::Unanswered { .. } | ReadError::TooMany { .. } => {
                Self::unavailable(message)
            }
            ReadError::LeaseUnknown { name, .. } => {
                Self::unavailable(message).about("coordination.k8s.io", "leases", &name)
            }
            ReadError::CollectionUnknown { gvr, .. } => Self::unavailable(message).about(&gvr.group, &gvr.resource, ""),
            ReadError::BrokenOff(_) => Self::internal(message),
        }
    }
}
