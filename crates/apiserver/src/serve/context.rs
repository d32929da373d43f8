//! A request: what it is about, and how it was asked.

use std::sync::Arc;

use http::{HeaderMap, request::Parts};

use crate::kinds::Kind;
use kubefold_wire::{
    form::offers,
    media::{self, Negotiated},
    resource::api_version,
    status::Status,
};

/// What a request is about.
pub(super) struct Target {
    pub(super) kind: Arc<Kind>,
    /// Empty for all, and for what lies in none.
    pub(super) namespace: String,
    /// Empty for a collection.
    pub(super) name: String,
    pub(super) subresource: String,
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
