//! Namespaces of the fleet, as far as kubefold's own objects are in them.

use crate::{stores::Stores, view::Mode};
use kubefold_wire::resource::Gvr;

/// Their resource.
pub(super) fn resource() -> Gvr {
    Gvr::new("", "v1", "namespaces")
}

/// Says whether a namespace is known to be in no member, with none of them left out.
pub(super) async fn lacks(stores: &Stores, name: &str) -> bool {
    // A member that is down may have it.
    let ready = stores.ready_in(&resource(), None, Mode::Strict).await;
    ready.is_ok_and(|ready| ready.store().get(name).is_none())
}
