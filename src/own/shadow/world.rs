//! What ShadowResources need of the fleet.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use serde_json::Value;

use super::object::Reference;
use crate::{
    catalog::Scope,
    own::{FleetLink, namespaces},
    store::key,
    stores::Stores,
    view::Mode,
};
use kubefold_wire::{body::Body, path::ApiPath, resource::Gvr};

/// Where an item is in the fleet's API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) gvr: Gvr,
    /// Empty where the kind has none.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Place {
    /// As the stores name it.
    pub(super) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }

    /// Its path.
    pub(super) fn object(&self) -> ApiPath {
        ApiPath::within(&self.gvr, &self.namespace).then(&self.name)
    }
}

/// What is known of an item.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// The object.
    There(Box<Value>),
    Absent,
    /// Whoever asks may not read it.
    Hidden,
    /// Nobody can say, and why.
    Unknown(String),
}

/// The fleet, as far as ShadowResources ask it.
pub(super) trait World: Send + Sync + 'static {
    /// Answers a request, as a client's. `None`: the fleet is not there.
    fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Option<Response<Body>>>;

    /// Where an item is; `None` where nobody serves its kind.
    fn place<'a>(&'a self, reference: &'a Reference) -> BoxFuture<'a, Option<Place>>;

    /// What kubefold has of an object.
    fn kept<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Seen>;

    /// What there is of an item whose kind nobody serves.
    fn of_no_kind(&self, reference: &Reference) -> Seen;

    /// Says whether a namespace is known to be in no member, with none of them left out.
    fn lacks_namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, bool>;
}

/// The fleet that is served.
pub(super) struct Served {
    pub(super) fleet: Arc<FleetLink>,
    pub(super) stores: Arc<Stores>,
}

impl Served {
    fn known_place(&self, reference: &Reference) -> Option<Place> {
        let catalog = self.stores.catalog();
        let (group, version) = reference.group_version();
        let resource = catalog.by_kind(group, version, &reference.kind)?;
        let namespace = if resource.scope == Scope::Namespaced { reference.namespace.clone() } else { String::new() };
        Some(Place { gvr: resource.gvr.clone(), namespace, name: reference.name.clone() })
    }
}

impl World for Served {
    fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Option<Response<Body>>> {
        Box::pin(self.fleet.answer(request))
    }

    fn place<'a>(&'a self, reference: &'a Reference) -> BoxFuture<'a, Option<Place>> {
        Box::pin(async move {
            if let Some(place) = self.known_place(reference) {
                return Some(place);
            }
            self.stores.definitions_are_served().await;
            self.known_place(reference)
        })
    }

    fn kept<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Seen> {
        Box::pin(async move {
            let ready = match self.stores.ready_in(&place.gvr, None, Mode::Lenient).await {
                Ok(ready) => ready,
                Err(error) => return Seen::Unknown(error.to_string()),
            };
            match ready.store().get(&place.key()) {
                Some(entry) => {
                    let object = serde_json::from_slice(entry.json());
                    object.map_or_else(|error| Seen::Unknown(error.to_string()), |object| Seen::There(Box::new(object)))
                }
                // What a member has that does not answer is not known.
                None => ready.warnings.first().cloned().map_or(Seen::Absent, Seen::Unknown),
            }
        })
    }

    fn of_no_kind(&self, reference: &Reference) -> Seen {
        if self.stores.catalog().complete() {
            return Seen::Absent;
        }
        Seen::Unknown(format!("no member is known to serve kind {} in {}", reference.kind, reference.api_version))
    }

    fn lacks_namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(namespaces::lacks(&self.stores, name))
    }
}
