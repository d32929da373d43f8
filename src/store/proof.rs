//! What the store holds of one member, to be compared with what the member itself says now, and what is gone by its word.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
};

use crate::{
    config::MemberName,
    store::{
        entry::{Entry, Key},
        fleet_store::{FleetStore, SLICE_ITEMS_MAX},
        naming::key,
        part::Part,
        revision::Revision,
        sequencer::Sequencer,
        tally::Held,
    },
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
    /// The members whose objects have been held completely since the store started.
    pub fn filled(&self) -> HashSet<MemberName> {
        let published = self.published_at(Revision(0));
        published.members.iter().filter(|(_, view)| view.filled).map(|(name, _)| name.clone()).collect()
    }

    /// How much is held of each member. Of those of which nothing is, there is no entry.
    pub fn held_by_member(&self) -> BTreeMap<MemberName, Held> {
        self.peek(|inner| inner.tally.0.iter().map(|(member, held)| (member.clone(), *held)).collect())
    }

    /// How much is held of one member.
    pub fn held_of(&self, member: &MemberName) -> Held {
        self.peek(|inner| inner.tally.0.get(member).copied().unwrap_or_default())
    }

    /// How many events of each member's watch were taken in since the kind is followed in it.
    pub fn events_by_member(&self) -> BTreeMap<MemberName, u64> {
        self.peek(|inner| inner.members.iter().map(|member| (member.name.clone(), member.events)).collect())
    }

    /// A member's part under a plain key.
    pub fn part(&self, key: &str, member: &MemberName) -> Option<Arc<Part>> {
        self.peek(|inner| inner.folds.get(key).and_then(|fold| fold.part(member)).cloned())
    }

    /// What is held of a member in a namespace (empty: in all, or of a cluster-scoped kind), by own key: of one own name,
    /// or of the visible objects that match.
    ///
    /// Shape: linear in the member's objects and the folds; constant for one name in a namespace.
    pub fn held(
        &self,
        member: &MemberName,
        namespace: &str,
        own_name: Option<&str>,
        matches: impl Fn(&Entry) -> bool,
    ) -> HashMap<String, HeldVersion> {
        let own = match own_name {
            Some(own) if !namespace.is_empty() || !self.spec().namespaced => {
                self.peek(|inner| inner.held_under(member, key(namespace, own))).into_iter().collect()
            }
            _ => self.held_in(member, namespace),
        };
        let is_asked = |own_key: &str| {
            own_name.is_none_or(|own| own_key.rsplit_once('/').map_or(own_key, |(_, name)| name) == own)
        };
        let asked = own.into_iter().filter(|held| is_asked(&held.own_key) && matches(&held.entry));
        asked.map(|held| (held.own_key, held.version)).collect()
    }

    fn held_in(&self, member: &MemberName, namespace: &str) -> Vec<HeldObject> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let mut held = self.peek(|inner| inner.held_folds(member, &prefix));
        let mut after = None;
        // In slices: writers get their turn in between.
        while let Some(last) = self.peek(|inner| inner.held_after(member, &prefix, after.take(), &mut held)) {
            after = Some(last);
        }
        held
    }

    /// Takes a member's word that nothing is under an own key at `revision`, from an answer to a request that began in that
    /// life of the member. What its watch tells of the time before is not taken in any more.
    ///
    /// Errors: too much is remembered already; nothing is changed then.
    pub fn gone(&self, member: &MemberName, incarnation: u32, own_key: &str, revision: u64) -> Result<(), TooManyGone> {
        self.change(|inner| inner.gone(member, incarnation, own_key, revision))
    }
}

/// A visible object that a member holds.
struct HeldObject {
    own_key: String,
    entry: Arc<Entry>,
    version: HeldVersion,
}

impl Sequencer {
    /// What a member holds of the folds whose key has the prefix.
    fn held_folds(&self, member: &MemberName, prefix: &str) -> Vec<HeldObject> {
        let Some(state) = self.member(member) else { return Vec::new() };
        let keys = state.parts.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let keys = keys.take_while(|key| key.starts_with(prefix));
        keys.filter_map(|key| self.held_under(member, key.to_string())).collect()
    }

    /// Appends the next slice of a member's own objects whose visible key has the prefix. Gives the last key of the slice,
    /// if there may be more.
    fn held_after(
        &self,
        member: &MemberName,
        prefix: &str,
        after: Option<Key>,
        held: &mut Vec<HeldObject>,
    ) -> Option<Key> {
        let state = self.member(member)?;
        let start = after.as_deref().map_or(Bound::Included(prefix), Bound::Excluded);
        let keys = state.member_locals.range::<str, _>((start, Bound::Unbounded));
        let mut last = None;
        for (at, visible) in keys.take_while(|visible| visible.starts_with(prefix)).take(SLICE_ITEMS_MAX).enumerate() {
            let (namespace, name) = visible.split_once('/').unwrap_or(("", visible));
            held.extend(self.held_under(member, key(namespace, &self.shared.naming.own(&self.spec.gvr, name))));
            last = (at + 1 == SLICE_ITEMS_MAX).then(|| visible.clone());
        }
        last
    }

    /// What a member holds under an own key, if it is visible: as the whole, or by itself.
    fn held_under(&self, member: &MemberName, own_key: String) -> Option<HeldObject> {
        let version = self.held_version(member, &own_key)?;
        let holds = |entry: &&Arc<Entry>| entry.holders.contains(member);
        let visible = |key: &str| self.objects.get(key).filter(holds);
        let entry = visible(&own_key).or_else(|| visible(&self.member_local_key(&own_key, member)))?;
        Some(HeldObject { entry: Arc::clone(entry), version, own_key })
    }

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
        self.note_change(member, own_key);
        Ok(())
    }
}
