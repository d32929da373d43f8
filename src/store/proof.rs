//! What the store holds of one member, to be compared with what the member itself says now, and what is gone by its word.

use std::collections::HashMap;

use crate::{
    config::MemberName,
    store::{entry::Entry, fleet_store::FleetStore, naming::key, sequencer::Sequencer},
};

/// Keys of one member and kind that are gone by a live answer while its watch has not said so yet.
const GONE_MAX: usize = 65_536;

/// One version of a member's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldVersion {
    /// Its UID in its member.
    pub uid: String,
    /// Its member's revision.
    pub member_rv: u64,
    /// Says whether that revision is of the member's present life; otherwise it compares with nothing.
    pub current: bool,
}

/// More is gone than is remembered: the member's watch is far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its watch has not reported the deletion of more than {GONE_MAX} objects yet")]
pub struct TooManyGone;

impl FleetStore {
    /// What is held of a member in a namespace (empty: in all, or of a cluster-scoped kind), by own key: of one own name,
    /// or of the visible objects that match.
    ///
    /// Shape: linear in the objects of the namespace.
    pub fn held(
        &self,
        member: &MemberName,
        namespace: &str,
        own_name: Option<&str>,
        matches: impl Fn(&Entry) -> bool,
    ) -> HashMap<String, HeldVersion> {
        let naming = self.naming();
        let snapshot = self.snapshot();
        let is_asked = |entry: &Entry| {
            own_name.is_none_or(|own| naming.own(entry.name()) == own)
                && entry.holders.contains(member)
                && matches(entry)
        };
        let entries: Vec<_> = snapshot.range(namespace, &[]).filter(|entry| is_asked(entry)).collect();
        self.peek(|inner| {
            let held = entries.into_iter().filter_map(|entry| {
                let own = key(entry.namespace(), naming.own(entry.name()));
                let version = inner.held_version(member, &own)?;
                Some((own, version))
            });
            held.collect()
        })
    }

    /// Takes a member's word that nothing is under an own key at `revision`, from an answer to a request that began in that
    /// life of the member. What its watch tells of the time before is not taken in any more.
    ///
    /// Errors: too much is remembered already; nothing is changed then.
    pub fn gone(&self, member: &MemberName, incarnation: u32, own_key: &str, revision: u64) -> Result<(), TooManyGone> {
        self.change(|inner| inner.gone(member, incarnation, own_key, revision))
    }
}

impl Sequencer {
    fn held_version(&self, member: &MemberName, own_key: &str) -> Option<HeldVersion> {
        let state = self.member(member)?;
        let current = |incarnation: u32| incarnation == state.incarnation;
        if let Some(part) = self.folds.get(own_key).and_then(|fold| fold.part(member)) {
            let (uid, member_rv) = (part.uid.clone(), part.member_rv);
            return Some(HeldVersion { uid, member_rv, current: current(part.incarnation) });
        }
        let member_local_key = self.member_local_key(own_key, member);
        let entry = self.objects.get(member_local_key.as_str())?;
        if entry.folded || entry.holders.first() != Some(member) {
            return None;
        }
        let from = &entry.provenance;
        let (uid, member_rv) = (entry.uid().to_owned(), from.member_rv());
        Some(HeldVersion { uid, member_rv, current: current(from.incarnation()) })
    }

    fn gone(&mut self, member: &MemberName, incarnation: u32, own_key: &str, revision: u64) -> Result<(), TooManyGone> {
        let Some(held) = self.held_version(member, own_key) else { return Ok(()) };
        let Some(state) = self.member_mut(member) else { return Ok(()) };
        let is_later = held.current && held.member_rv > revision;
        if state.incarnation != incarnation || state.left || is_later {
            return Ok(());
        }
        if state.gone.len() >= GONE_MAX {
            state.forget_gone();
            if state.gone.len() >= GONE_MAX {
                return Err(TooManyGone);
            }
        }
        if revision > state.position {
            state.gone.insert(own_key.to_owned(), revision);
        }
        if self.folds.get(own_key).is_some_and(|fold| fold.part(member).is_some()) {
            self.remove_part(own_key, member);
        } else {
            let member_local_key = self.member_local_key(own_key, member);
            self.remove_visible(&member_local_key);
        }
        Ok(())
    }
}
