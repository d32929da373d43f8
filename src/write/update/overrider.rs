//! What one member's part differs in, by a policy and by the names of its nodes: an update reaches a part that differs so, and keeps
//! it so.

use serde_json::Value;

use crate::{
    config::{MemberName, Overrides},
    placement::{
        merge::{Change, What},
        nodes::REQUIRED,
        noted::Note,
        overrides::{Kind, overridden_value},
    },
};

/// How the parts differ by policy.
pub(super) struct Overrider<'a> {
    pub(super) kind: Kind<'a>,
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
        if changes.is_empty() {
            return;
        }
        let noted = Note::read(part);
        let names_nodes = || [before, after].into_iter().any(|object| !self.kind.nodes.named(object).is_empty());
        let is_noted = noted.is_some() || self.noted.is_some();
        if self.own.is_empty() && self.homes.is_empty() && !is_noted && !names_nodes() {
            return;
        }
        let said = |document: &Value| match self.noted {
            Some(noted) => noted.said(before, document, self.documents),
            None => document.clone(),
        };
        let said_before = said(before);
        let said_after = said(after);
        let (was, will) = (self.overridden(&said_before, self.own), self.overridden(&said_after, self.own));
        let (base, as_home) = (noted.map(|noted| noted.base(part, self.documents)), self.overridden(part, self.homes));
        let is_home = self.own == self.homes;
        for change in changes {
            self.widen(change, &said_before, &said_after);
            let (shown, held) = (change.before(), change.value_in(part));
            let (overridden, wanted) = (change.value_in(&was), change.value_in(&will));
            // Without a note the home tells what it has, and a patch that adds once more at each turn says nothing of that.
            let settles = self.noted.is_some() || !is_home || self.own.is_empty() || overridden == shown;
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

    /// Has a change within what a part may lack altogether, since its member's nodes are not asked for anything there, be one of
    /// the whole: it holds nothing else.
    fn widen(&self, change: &mut Change, before: &Value, after: &Value) {
        let fields: Vec<&str> = change.fields().collect();
        let root = self.kind.nodes.root(&fields).filter(|root| fields.len() > root.len());
        let Some(length) = root.filter(|root| root.last() == Some(&REQUIRED)).map(<[&str]>::len) else { return };
        change.at.truncate(length);
        change.what = What::Value { old: change.value_in(before), new: change.value_in(after) };
    }

    /// A document with overrides. A patch or edit that does not go with it is left out: the object was made before, or elsewhere.
    pub(super) fn overridden(&self, document: &Value, overrides: &Overrides) -> Value {
        let made =
            |overrides: &Overrides| overridden_value(document.clone(), overrides, &self.kind, "", self.member).ok();
        let fitting = || {
            let (registry, mut fitting) = (overrides.registry.clone(), Overrides::default());
            fitting.registry = registry;
            for edit in &overrides.edits {
                fitting.edits.push(edit.clone());
                if made(&fitting).is_none() {
                    fitting.edits.pop();
                }
            }
            made(&fitting)
        };
        made(overrides).or_else(fitting).unwrap_or_else(|| document.clone())
    }
}
