//! Reviews: questions that members answer.

use crate::respond::{ApiError, Blame, Retry};
use kubefold_wire::{resource::Gvr, status::Status};

/// Why a review has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// No member has said yet whether it serves the kind.
    #[error("kubefold does not know yet what the members serve; see /readyz?verbose")]
    NothingKnown,
    /// No member answers.
    #[error("{}: {}", gvr.qualified(), why(.causes))]
    Unanswered {
        /// The resource.
        gvr: Gvr,
        /// One cause per member; none where no member serves it.
        causes: Vec<String>,
    },
}

fn why(causes: &[String]) -> String {
    if causes.is_empty() { "no member serves it".to_owned() } else { causes.join("; ") }
}

impl ApiError for ReviewError {
    fn blame(&self) -> Blame {
        // Several members: none of them alone.
        Blame::Kubefold
    }

    fn retry(&self) -> Retry {
        // A review changes nothing.
        Retry::Always
    }
}

impl From<ReviewError> for Status {
    fn from(error: ReviewError) -> Self {
        Self::unavailable(error.to_string())
    }
}
