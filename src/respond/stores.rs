//! The stores of all kinds: whether a kind exists, and whether its objects are known.

use crate::{
    mirror::MirrorError,
    respond::{ApiError, Blame, Retry},
};
use kubefold_wire::{resource::Gvr, status::Status};

/// Why a kind cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoresError {
    /// Nobody serves the kind.
    #[error("the server could not find the requested resource")]
    NotServed,
    /// Members that could serve the kind have not said what they serve.
    #[error("whether {} exists is not known: {}", gvr.qualified(), .causes.join("; "))]
    ExistenceUnknown {
        /// The resource.
        gvr: Gvr,
        /// One cause per member.
        causes: Vec<String>,
    },
    /// Members have not listed their objects of the kind yet.
    #[error(
        "the {resource} of {} have not been read since kubefold started ({}); an answer without them would read as \
         deletions. Wait for the member, declare it \"absent: true\" in clusters.yaml, or read the others through \
         their member views (--context fleet-<member>)",
        .members.join(", "),
        .causes.join("; ")
    )]
    Unread {
        /// The plural resource.
        resource: String,
        /// The members.
        members: Vec<String>,
        /// One cause per member.
        causes: Vec<String>,
    },
    /// The stores have the memory that they may have.
    #[error(
        "kubefold holds {held} bytes of objects, and may hold {max}: {} are not read for the first time until others are unused. \
         Give it more memory, or raise --store-memory-max; the member views work (--context fleet-<member>)",
        gvr.qualified()
    )]
    Full {
        /// The resource.
        gvr: Gvr,
        /// Bytes that are held.
        held: u64,
        /// Bytes that may be held.
        max: u64,
    },
    /// The kind is in the mirror's tables alone, and what is asked needs its objects in memory.
    #[error(
        "the {} are in the mirror's tables alone (mirror.stored or mirror.memory in clusters.yaml), and are only listed, searched and got by name there; \
         the member views do the rest (--context fleet-<member>)",
        gvr.qualified()
    )]
    InTables {
        /// The resource.
        gvr: Gvr,
    },
    /// The kind is in the mirror's tables alone, and they cannot be used.
    #[error(
        "the {} are in the mirror's tables alone (mirror.stored or mirror.memory in clusters.yaml), and these cannot be used now: {why}. \
         The member views work (--context fleet-<member>)",
        gvr.qualified()
    )]
    Tables {
        /// The resource.
        gvr: Gvr,
        /// Why.
        why: MirrorError,
    },
    /// The strict view refuses what another view warns of.
    #[error(
        "not every member is current, and /views/strict answers only when all are: {}. Wait, or read the last known state \
         without /views/strict (--context fleet)",
        .0.join("; ")
    )]
    NotCurrent(
        /// One cause per member.
        Vec<String>,
    ),
}

impl ApiError for StoresError {
    fn blame(&self) -> Blame {
        match self {
            Self::NotServed | Self::InTables { .. } => Blame::Downstream,
            // Several members: none of them alone.
            Self::ExistenceUnknown { .. }
            | Self::Unread { .. }
            | Self::Full { .. }
            | Self::Tables { .. }
            | Self::NotCurrent(_) => Blame::Kubefold,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::NotServed | Self::InTables { .. } => Retry::Never,
            Self::ExistenceUnknown { .. }
            | Self::Unread { .. }
            | Self::Full { .. }
            | Self::Tables { .. }
            | Self::NotCurrent(_) => Retry::Always,
        }
    }
}

impl From<StoresError> for Status {
    fn from(error: StoresError) -> Self {
        let message = error.to_string();
        match error {
            StoresError::NotServed => Self::no_such_path(),
            StoresError::InTables { .. } => Self::method_not_allowed(message),
            StoresError::ExistenceUnknown { .. }
            | StoresError::Unread { .. }
            | StoresError::Full { .. }
            | StoresError::Tables { .. }
            | StoresError::NotCurrent(_) => Self::unavailable(message),
        }
    }
}
