//! One document of a member on its way into a store: its text, and the facts that were found in it.

use std::sync::Arc;

use crate::store::{
    entry::Edits,
    kind::KindSpec,
    revision::Revision,
    rewrite::{BadObject, Facts},
};
use kubefold_wire::{locate::Found, splice::push_string};

/// Annotation that names the member of a member-local object.
pub(super) const CLUSTER: &str = "kubefold.io/cluster";

/// A document on its way in. Its whole form, which is the one that is kept and compared, has `lead` behind the brace: the
/// kind and apiVersion that items of built-in kinds' lists lack.
#[derive(Debug)]
pub(super) struct Incoming<'a> {
    pub(super) text: &'a str,
    pub(super) lead: &'a str,
    pub(super) facts: Facts<'a>,
}

impl<'a> Incoming<'a> {
    /// Walks a document once; what else was found stays in `found`.
    pub(super) fn read(spec: &'a KindSpec, text: &'a str, found: &mut Vec<Found>) -> Result<Self, BadObject> {
        // A kube-apiserver ends an answer with a line feed, which is no part of the object.
        let text = text.trim_ascii();
        let facts = Facts::read(spec, text, found)?;
        let lead = if facts.kind.is_some() { "" } else { spec.type_meta.as_str() };
        Ok(Self { text, lead, facts })
    }

    /// Length of the kind and apiVersion that a built-in kind's whole document begins with, and its list items lack.
    pub(super) fn type_meta_len(&self, spec: &KindSpec) -> usize {
        let leads = !self.lead.is_empty() || self.text.get(1..).is_some_and(|rest| rest.starts_with(&spec.type_meta));
        if leads { spec.type_meta.len() } else { 0 }
    }

    pub(super) fn whole(&self) -> Arc<str> {
        if self.lead.is_empty() {
            return self.text.into();
        }
        ["{", self.lead, self.text.get(1..).unwrap_or_default()].concat().into()
    }

    /// As much of the document as says who the object is.
    pub(super) fn identity(&self) -> Arc<str> {
        let (facts, mut out) = (&self.facts, b"{\"metadata\":{\"name\":".to_vec());
        push_string(&facts.name, &mut out);
        if !facts.namespace.is_empty() {
            out.extend_from_slice(b",\"namespace\":");
            push_string(&facts.namespace, &mut out);
        }
        out.extend_from_slice(b",\"uid\":");
        push_string(facts.uid, &mut out);
        out.extend_from_slice(b",\"resourceVersion\":");
        push_string(&facts.member_rv.to_string(), &mut out);
        out.extend_from_slice(b"}}");
        String::from_utf8(out).unwrap_or_default().into()
    }

    pub(super) fn is_whole(&self, whole: &str) -> bool {
        if self.lead.is_empty() {
            return self.text == whole;
        }
        whole.get(1..).and_then(|rest| rest.strip_prefix(self.lead)) == self.text.get(1..)
    }
}

/// Memory that is used again for every document.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) edits: Edits,
    pub(super) found: Vec<Found>,
    pub(super) referent: Vec<u8>,
    pub(super) own_key: String,
    pub(super) member_local_key: String,
}

/// Writes a revision as Kubernetes does: a string of digits.
pub(super) fn push_revision(revision: Revision, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to memory has no way to fail.
    let _infallible = write!(out, "\"{revision}\"");
}
