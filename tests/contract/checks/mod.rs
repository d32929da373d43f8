//! What is asked, by subject.

mod catalog;
mod forms;
mod gets;
mod lists;
mod paths;
mod selectors;
mod subresources;
mod watches;

use crate::check::Check;

/// Config maps of the namespace that holds several.
pub(crate) const SHOP: &str = "/api/v1/namespaces/shop/configmaps";

/// Every check.
pub(crate) fn all() -> Vec<Check> {
    [
        catalog::checks(),
        forms::checks(),
        gets::checks(),
        lists::checks(),
        paths::checks(),
        selectors::checks(),
        subresources::checks(),
        watches::checks(),
    ]
    .concat()
}
