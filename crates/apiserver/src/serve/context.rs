//! A request: what it is about, and how it was asked.

use std::sync::Arc;

use http::{HeaderMap, Request, Response, request::Parts};

use crate::{
    kinds::{self, Connect, Kind},
    registry::Registry,
};
use kubefold_wire::{
    body::Body,
    form::offers,
    media::{self, Negotiated},
    resource::api_version,
    status::Status,
};

/// What a request is about.
pub(super) struct Target {
    /// As its caller sees it.
    pub(super) registry: Registry,
    pub(super) kind: Arc<Kind>,
    /// Empty for all, and for what lies in none.
    pub(super) namespace: String,
    /// Empty for a collection.
    pub(super) name: String,
    pub(super) subresource: String,
}

impl Target {
    /// Has a subresource answered by what the kind says.
    ///
    /// Errors: 404 without the object, and whatever the answerer says.
    pub(super) async fn connect(
        &self,
        connect: &dyn Connect,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let object = self.registry.get(&self.kind, &self.namespace, &self.name).await?.value();
        let target = kinds::Target {
            caller: self.registry.caller().clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        };
        connect.connect(target, object, Request::from_parts(parts.clone(), body)).await
    }
}

/// How it was asked.
#[derive(Clone, Copy)]
pub(super) struct RequestContext<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) query: &'a str,
    pub(super) parts: &'a Parts,
}

impl RequestContext<'_> {
    /// In what form the answer is wanted.
    ///
    /// Errors: 406.
    pub(super) fn wanted(&self, kind: &Kind, subresource: &str) -> Result<Negotiated, Status> {
        let offers = offers(&kind.group, &kind.plural, subresource);
        let wanted = media::negotiate(self.headers, self.parts.uri.query(), offers)?;
        Ok(wanted.of_kind(&api_version(&kind.group, &kind.version), &kind.kind))
    }
}
