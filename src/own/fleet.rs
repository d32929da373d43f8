//! The fleet's own API, asked from inside of it.

use std::sync::{OnceLock, Weak};

use futures::future::BoxFuture;
use http::{Request, Response};

use kubefold_wire::body::Body;

/// Answers requests as it answers clients. The caller is in the request's extensions.
pub trait Fleet: Send + Sync + 'static {
    /// Answers one.
    fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Response<Body>>;
}

/// The way to the fleet, for what it is made of itself: it leads nowhere until the fleet is whole.
#[derive(Default)]
pub struct FleetLink(OnceLock<Weak<dyn Fleet>>);

impl FleetLink {
    /// Leads to a fleet from here on. The first one counts.
    pub fn set(&self, fleet: Weak<dyn Fleet>) {
        let _ = self.0.set(fleet);
    }

    /// Asks the fleet. `None`: it is not there yet, or not any more.
    pub async fn answer(&self, request: Request<Body>) -> Option<Response<Body>> {
        let fleet = self.0.get()?.upgrade()?;
        Some(fleet.answer(request).await)
    }
}
