//! Why an attempt to create ended.

use crate::{answer::reply::Reply, respond::ApiError};

/// Why a name did not get its object. One that is taken may be minted anew.
pub(super) struct Stop {
    pub(super) reply: Reply,
    pub(super) name_taken: bool,
}

impl From<Reply> for Stop {
    fn from(reply: Reply) -> Self {
        Self { reply, name_taken: false }
    }
}

impl<E: ApiError> From<E> for Stop {
    fn from(error: E) -> Self {
        Reply::from(error).into()
    }
}
