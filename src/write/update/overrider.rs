//! What a policy has one member's part differ in: an update reaches a part that was overridden so, and keeps it so.

use serde_json::Value;

use crate::{
    config::{MemberName, Overrides},
    placement::{
        divided::Field,
        merge::{Change, What},
        noted::Note,
        overrides::{Kind, overridden},
    },
    write::fleet::Key,
};

/// How the parts differ by policy.
pub(super) struct Overrider<'a> {
    pub(super) key: &'a Key,
    /// The fields of its kind that are divided.
    pub(super) divided: &'static [Field],
    pub(super) member: &'a MemberName,
    /// The part's own.
    pub(super) own: &'a Overrides,
    /// Those of the home.
    pub(super) homes: &'a Overrides,
    /// What the home notes.
    pub(super) noted: Option<&'a Note>,
    /// All parts, which tell what the object says where the home does not note it.
    pub(super) documents: &'a [&'a Value],
}

impl Overrider<'_> {
    /// Has changes of the object as it is shown say what they come to in a part. Where the policy has changed since the parts
    /// were made, the values that are written get the overrides of now, and the others keep those that they have.
    pub(super) fn fit(&self, changes: &mut [Change], part: &Value, before: &Value, after: &Value) {
        let noted = Note::read(part);
        if self.own.is_empty() && self.homes.is_empty() && noted.is_none() && self.noted.is_none() {
            return;
        }
        let said = |document: &Value| match self.noted {
            Some(noted) => noted.said(before, document, self.documents),
            None => document.clone(),
        };
        let said_before = said(before);
        let (was, will) = (self.overridden(&said_before, self.own), self.overridden(&said(after), self.own));
        let (base, as_home) = (noted.map(|noted| noted.base(part, self.documents)), self.overridden(part, self.homes));
        let is_home = self.own == self.homes;
        for change in changes {
            let (shown, held) = (change.before(), change.value_in(part));
            let (overridden, wanted) = (change.value_in(&was), change.value_in(&will));
            // Without a note the home tells what it has, and a patch that adds once more at each turn says nothing of that.
            let settles = self.noted.is_some() || !is_home || overridden == shown;
            let is_alike = base.as_ref().is_some_and(|base| change.value_in(base) == change.value_in(&said_before));
            let corresponds = held == overridden || is_alike || change.value_in(&as_home) == shown;
            let What::Value { old, new } = &mut change.what else { continue };
            if settles {
                *new = wanted;
            }
            if *old != held && corresponds {
                *old = held;
            }
        }
    }

    /// A document with overrides. A patch that does not go with it is left out: the object was made before, or elsewhere.
    pub(super) fn overridden(&self, document: &Value, overrides: &Overrides) -> Value {
        let made = |overrides: &Overrides| {
            let body = document.to_string().into_bytes();
            let body =
                overridden(body, overrides, &Kind { gvk: &self.key.gvk, divided: self.divided }, "", self.member)
                    .ok()?;
            serde_json::from_slice(&body).ok()
        };
        let registry = || made(&Overrides { patch: None, registry: overrides.registry.clone() });
        if overrides.is_empty() {
            return document.clone();
        }
        made(overrides).or_else(registry).unwrap_or_else(|| document.clone())
    }
}
