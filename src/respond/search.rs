//! Searches: what is not understood, and what cannot be watched.

use http::StatusCode;

use crate::{
    mirror::MirrorError,
    respond::{ApiError, Blame, Retry},
    search::SearchError,
};
use kubefold_wire::{
    golang::Quoted,
    resource::Gvr,
    status::{Reason, Status},
};

/// Why a search has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SearchRefused {
    /// The query is none.
    #[error(transparent)]
    Query(#[from] SearchError),
    /// One object is asked for, and several members may have one of that name.
    #[error(
        "please specify the cluster name: {} {} is asked for below /apis/clusterpedia.io/v1beta1/resources/clusters/<member>/",
        .gvr.qualified(),
        Quoted(.name)
    )]
    NoCluster {
        /// The resource.
        gvr: Gvr,
        /// The name.
        name: String,
    },
    /// The object is not there.
    #[error("{} {} not found in member {member}", .gvr.qualified(), Quoted(.name))]
    NotFound {
        /// The resource.
        gvr: Gvr,
        /// The name.
        name: String,
        /// The member.
        member: String,
    },
    /// A collection that there is not.
    #[error("collectionresources.clusterpedia.io {} not found; there are {}", Quoted(.name), .known.join(", "))]
    NoCollection {
        /// The name.
        name: String,
        /// The collections that there are.
        known: Vec<String>,
    },
    /// A collection of whatever kinds its parameters name, without such parameters.
    #[error("the collection {0} takes its kinds from the parameters groups and resources, and there is neither")]
    NoKinds(String),
    /// A kind in `groups` or `resources` that no member serves.
    #[error("{0}: no member serves it, or it cannot be watched and so is in no store")]
    NoKind(String),
    /// More kinds than one list is made of.
    #[error("the collection has {found} kinds, and may have {max}")]
    TooManyKinds {
        /// How many.
        found: usize,
        /// How many it may have.
        max: usize,
    },
    /// A watch whose order or bounds no stream can keep.
    #[error("a search with {0} cannot be watched: what comes and goes would change who else is in it")]
    Unwatchable(&'static str),
    /// What was deleted is looked for in the fleet view, or in a watch.
    #[error(
        "what was deleted is found by a list below /apis/clusterpedia.io/v1beta1, each object under its own name: it has no name in the \
         fleet view, and nothing comes and goes"
    )]
    DeletedElsewhere,
    /// What is deleted of a kind is not kept.
    #[error("what is deleted of {resource} is not kept: {why}")]
    NotKept {
        /// The kind.
        resource: String,
        /// Why.
        why: &'static str,
    },
    /// The mirror cannot be searched now.
    #[error("what was deleted cannot be searched now: {0}")]
    Mirror(#[from] MirrorError),
    /// What only reads.
    #[error("a search only reads: write to the fleet's own API, or to a member's at /clusters/<member>/")]
    ReadOnly,
}

impl ApiError for SearchRefused {
    fn blame(&self) -> Blame {
        match self {
            Self::Mirror(_) => Blame::Kubefold,
            _ => Blame::Downstream,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Mirror(_) => Retry::IfRead,
            _ => Retry::Never,
        }
    }
}

impl From<SearchRefused> for Status {
    fn from(error: SearchRefused) -> Self {
        let message = error.to_string();
        match error {
            SearchRefused::NotFound { gvr, name, .. } => {
                Self::new(StatusCode::NOT_FOUND, Reason::NotFound, message).about(&gvr.group, &gvr.resource, &name)
            }
            SearchRefused::NoCollection { name, .. } => Self::new(StatusCode::NOT_FOUND, Reason::NotFound, message)
                .about("clusterpedia.io", "collectionresources", &name),
            SearchRefused::Unwatchable(_) | SearchRefused::ReadOnly => Self::method_not_allowed(message),
            SearchRefused::Mirror(_) => Self::unavailable(message),
            SearchRefused::Query(_)
            | SearchRefused::NoCluster { .. }
            | SearchRefused::DeletedElsewhere
            | SearchRefused::NotKept { .. }
            | SearchRefused::NoKinds(_)
            | SearchRefused::NoKind(_)
            | SearchRefused::TooManyKinds { .. } => Self::bad_request(message),
        }
    }
}
