//! A placed object that may move, and why it is to.

use crate::{
    config::MemberName,
    placement::{divided::Division, marker::Marker},
    write::{
        Writer,
        fleet::{Fleet, Key, Part, Visible},
        moves::command::Verb,
        quotas::is_noted,
        steps::Seen,
    },
};

/// An object, and what stands of it.
pub(super) struct Object {
    pub(super) key: Key,
    /// What is divided of it.
    pub(super) division: Option<Division>,
    pub(super) marker: Marker,
    pub(super) visible: Visible,
    pub(super) parts: Vec<Part>,
}

/// Why and how objects are to move.
pub(super) struct Intent<'a> {
    pub(super) verb: Verb,
    /// The member that is left, or that gets something.
    pub(super) member: Option<&'a MemberName>,
    /// What cannot move without a gap, or may run twice, moves all the same.
    pub(super) force: bool,
    /// Pods leave the member also where every member has the object.
    pub(super) evicts: bool,
    /// As people read it: `drain east`.
    pub(super) why: String,
    /// Who wants it.
    pub(super) by: &'a str,
}

impl<F: Fleet> Writer<F> {
    /// A placed object that is not on its way out.
    pub(super) fn object(&self, key: &Key) -> Option<Object> {
        let visible = self.fleet.visible(key).filter(|visible| !visible.deleting)?;
        let parts = self.fleet.parts(key);
        let marker = Seen::of(&parts.first()?.json).marker?;
        let marker = match self.fleet.moved(&marker.uid) {
            Some(moved) => moved.apply(marker),
            None => marker,
        };
        let is_noted = parts.first().is_some_and(|home| is_noted(&home.json));
        let by_policy = || Division::by_policy(&key.gvk.group, &key.gvk.kind).filter(|_| is_noted);
        let division = self.division(key).or_else(by_policy);
        Some(Object { key: key.clone(), division, marker, visible, parts })
    }
}
