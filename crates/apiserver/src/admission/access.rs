//! A write, and whom expressions ask what its sender may do.

use std::fmt;

use crate::{
    rbac::{Attributes, Authorizer, On, Resource},
    registry::{AdmissionRequest, Registry},
    rules::{Access, Authority, Decided, Wanted},
};
use kubefold_serving::caller::Caller;

/// A write that is to be admitted.
pub(super) struct Write<'a> {
    pub(super) registry: &'a Registry,
    pub(super) request: &'a AdmissionRequest<'a>,
    /// What its sender may do.
    pub(super) access: Access,
}

/// The authorizer of the server; `None`: everybody may do everything.
pub(super) struct Asked(pub(super) Option<Authorizer>);

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("authorizer")
    }
}

impl Authority for Asked {
    fn decide(&self, caller: &Caller, verb: &str, wanted: Wanted<'_>) -> Decided {
        let Some(authorizer) = &self.0 else { return Decided { allowed: true, reason: String::new() } };
        let on = match wanted {
            Wanted::Path(path) => On::Path(path),
            Wanted::Resource { group, resource, subresource, namespace, name } => {
                On::Resource(Resource { group, resource, subresource, namespace, name })
            }
        };
        let decision = authorizer.decide(caller, &Attributes { verb, on });
        Decided { allowed: decision.allowed, reason: decision.reason }
    }
}
