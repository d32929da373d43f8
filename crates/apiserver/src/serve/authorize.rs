//! May whoever asks do that?
//!
//! Source: kubernetes/apiserver `pkg/endpoints/filters/authorization.go`.

use std::sync::Arc;

use http::{Method, Uri, request::Parts};

use crate::{
    rbac::{Attributes, Authorizer, MASTERS},
    registry::Registry,
    serve::{ApiServer, Warned},
};
use kubefold_serving::{audit, caller::Caller, impersonation::Impersonation};
use kubefold_wire::{
    info::{RequestInfo, decode_segment, without_tail},
    status::Status,
};

/// Who asks without a credential. Source: kubernetes/apiserver `pkg/authentication/user/user.go`.
const ANONYMOUS: [&str; 2] = ["system:anonymous", "system:unauthenticated"];

fn anonymous() -> Caller {
    let [user, group] = ANONYMOUS.map(str::to_owned);
    Caller { user, groups: vec![group], ..Caller::default() }
}

impl ApiServer {
    /// Says whether the caller of a request may send it: for owners that answer paths of their own beside this.
    ///
    /// Errors: 403, or 400 for a path that is no path.
    pub fn authorize(&self, parts: &Parts) -> Result<(), Status> {
        self.permitted(parts).map(drop)
    }

    /// The same. Gives what the request is about, if somebody had to know that.
    ///
    /// Errors: as of [`ApiServer::authorize`].
    pub(super) fn permitted(&self, parts: &Parts) -> Result<Option<RequestInfo>, Status> {
        let Some(authorizer) = &self.inner.settings.authorizer else { return Ok(None) };
        let nobody;
        let caller = match parts.extensions.get::<Caller>() {
            Some(caller) => caller,
            None => {
                nobody = anonymous();
                &nobody
            }
        };
        let asked = Asked::of(&parts.method, &parts.uri)?;
        let attributes = Attributes::of(&asked.info, &asked.path);
        let decision = authorizer.decide(caller, &attributes);
        if let Some(notes) = audit::notes() {
            let word = if decision.allowed { "allow" } else { "forbid" };
            notes.annotate("authorization.k8s.io/decision", word.to_owned());
            notes.annotate("authorization.k8s.io/reason", decision.reason.clone());
        }
        if !decision.allowed {
            return Err(attributes.refused(caller, &decision.reason));
        }
        Ok(Some(asked.info))
    }

    /// The objects for whoever asks: for the server itself where nobody is said to, and everybody may do everything.
    pub(super) fn registry_for(&self, parts: &Parts) -> Registry {
        let caller = parts.extensions.get::<Caller>().cloned();
        let registry = match parts.extensions.get::<Warned>() {
            Some(warned) => self.inner.registry.warning_in(Arc::clone(&warned.0)),
            None => self.inner.registry.clone(),
        };
        match (&self.inner.settings.authorizer, caller) {
            (None, None) => registry,
            (None, Some(caller)) => registry.acting_as(caller),
            (Some(authorizer), caller) => {
                let guard: Authorizer = authorizer.clone();
                registry.acting_as(caller.unwrap_or_else(anonymous)).guarded_by(Arc::new(guard))
            }
        }
    }

    /// Whom somebody acts as in a request, by its `Impersonate-*` headers.
    ///
    /// Without an authorizer, members of `system:masters` may.
    ///
    /// Errors: 403, if he may not; 400 for a path that is no path.
    pub fn impersonate(
        &self,
        caller: &Caller,
        wanted: &Impersonation,
        method: &Method,
        uri: &Uri,
    ) -> Result<Caller, Status> {
        let Some(authorizer) = &self.inner.settings.authorizer else {
            if caller.is_in(MASTERS) {
                return Ok(wanted.caller(caller));
            }
            let message = format!(
                "users \"{}\" is forbidden: User \"{}\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
                wanted.user, caller.user
            );
            return Err(Status::forbidden(message).about("", "users", &wanted.user));
        };
        let asked = Asked::of(method, uri)?;
        let attributes = Attributes::of(&asked.info, &asked.path);
        authorizer.impersonate(caller, wanted, &attributes).map_err(|status| *status)
    }
}

/// What a request is about.
struct Asked {
    info: RequestInfo,
    /// Decoded, with a slash at the end if it has one; empty for a resource.
    path: String,
}

impl Asked {
    /// Errors: 400.
    fn of(method: &Method, uri: &Uri) -> Result<Self, Status> {
        let refused = |error: kubefold_wire::info::PathError| Status::bad_request(error.to_string());
        let info = RequestInfo::of(method, without_tail(uri.path()), uri.query()).map_err(refused)?;
        if info.is_resource_request {
            return Ok(Self { info, path: String::new() });
        }
        let parts = uri.path().split('/').map(decode_segment).collect::<Result<Vec<_>, _>>().map_err(refused)?;
        Ok(Self { info, path: parts.join("/") })
    }
}
