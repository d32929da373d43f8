//! The objects of a write as policies see them, in each version that one of them wants.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/generic/policy_dispatcher.go` `versionedAttributeAccessor`.

use serde_json::Value;

use super::{
    access::Write,
    matching::Matched,
    request::{SeenError, described, seen},
};
use crate::rules::Inputs;

/// All versions that were wanted so far.
pub(super) struct Versions<'a> {
    write: &'a Write<'a>,
    /// As it was sent.
    object: Option<&'a Value>,
    /// The one that expressions see.
    namespace: Option<Value>,
    each: Vec<Version>,
}

/// One version.
pub(super) struct Version {
    pub(super) matched: Matched,
    /// As it is to be written; `None`: it is deleted.
    pub(super) object: Option<Value>,
    old: Option<Value>,
    /// An `AdmissionRequest`.
    described: Value,
}

impl<'a> Versions<'a> {
    pub(super) fn new(write: &'a Write<'a>, object: Option<&'a Value>, namespace: Option<Value>) -> Self {
        Self { write, object, namespace, each: Vec::new() }
    }

    /// The place of a version.
    ///
    /// Errors: the objects cannot be said in it.
    pub(super) async fn place_of(&mut self, matched: &Matched) -> Result<usize, SeenError> {
        if let Some(place) = self.each.iter().position(|version| version.matched.is_same(matched)) {
            return Ok(place);
        }
        let Write { registry, request, .. } = self.write;
        self.each.push(Version {
            object: seen(registry, request, matched, self.object).await?,
            old: seen(registry, request, matched, request.old).await?,
            described: described(request, matched, registry.caller()),
            matched: matched.clone(),
        });
        Ok(self.each.len() - 1)
    }

    pub(super) fn at(&self, place: usize) -> Option<&Version> {
        self.each.get(place)
    }

    pub(super) fn at_mut(&mut self, place: usize) -> Option<&mut Version> {
        self.each.get_mut(place)
    }

    /// What expressions see of a version, with a parameter.
    pub(super) fn inputs<'v>(&'v self, version: &'v Version, param: Option<&'v Value>) -> Inputs<'v> {
        Inputs {
            object: version.object.as_ref(),
            old_object: version.old.as_ref(),
            request: &version.described,
            namespace: self.namespace.as_ref(),
            params: param,
            access: Some(&self.write.access),
        }
    }
}
