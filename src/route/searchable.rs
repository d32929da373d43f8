//! What is kept between searches.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::{catalog::Catalog, discovery::Discovery};

/// What is kept for searches.
#[derive(Default)]
pub(super) struct Searchable {
    /// The fleet's catalog as it was last shown, and what it was made of.
    pub(super) catalog: ArcSwapOption<Shown>,
    /// Its documents.
    pub(super) discovery: Discovery,
}

/// What was made of a catalog.
pub(super) struct Shown {
    pub(super) of: Arc<Catalog>,
    pub(super) shown: Arc<Catalog>,
}
