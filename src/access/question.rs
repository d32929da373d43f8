//! Who wants to do what.

use std::{borrow::Cow, hash::Hash, sync::Arc};

use quick_cache::Equivalent;

use crate::member::review::Action;
use kubefold_serving::caller::Caller;

/// Who wants to do what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question<'a> {
    pub(super) caller: Cow<'a, Caller>,
    pub(super) action: Cow<'a, Action>,
}

impl<'a> Question<'a> {
    pub(super) fn of(caller: &'a Caller, action: &'a Action) -> Self {
        Self { caller: Cow::Borrowed(caller), action: Cow::Borrowed(action) }
    }

    pub(super) fn into_owned(self) -> Question<'static> {
        Question { caller: Cow::Owned(self.caller.into_owned()), action: Cow::Owned(self.action.into_owned()) }
    }
}

/// A question by which its record is found, without a copy of it.
#[derive(Hash)]
pub(super) struct Sought<'a>(pub(super) &'a Question<'a>);

impl Equivalent<Arc<Question<'static>>> for Sought<'_> {
    fn equivalent(&self, known: &Arc<Question<'static>>) -> bool {
        *self.0.caller == *known.caller && *self.0.action == *known.action
    }
}
