//! What of the stores is in the mirror.

use std::{collections::HashMap, sync::Arc};

use tokio::time::Instant;

use crate::{catalog::MemberCatalog, config::MemberName, mirror::MirroredKind};

/// What was written last.
#[derive(Default)]
pub(super) struct Mirrored {
    pub(super) feeds: HashMap<MirroredKind, Noted>,
    pub(super) catalogs: HashMap<MemberName, Arc<MemberCatalog>>,
}

/// Where a feed stood when it was written last.
pub(super) struct Noted {
    pub(super) revision: u64,
    pub(super) at: Instant,
    pub(super) is_followed: bool,
}
