//! Members that come, are listed, get another name or leave: changes of many objects, made in slices, so that no lock is
//! held for all of them.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use crate::{
    config::MemberName,
    store::{
        entry::{Entry, Key},
        fleet_store::FleetStore,
        naming::Naming,
        notices::Notices,
        part::Part,
        sequencer::{MemberState, Sequencer},
    },
};

/// Objects that are looked at under one lock.
const LOOKED_AT_MAX: usize = 4096;
/// Folded objects that are looked at under one lock, and of them those that are made anew.
const FOLDS_LOOKED_AT_MAX: usize = 1024;
const FOLDS_CHANGED_MAX: usize = 16;

/// Which full list of a member, and of which of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    seen: u32,
    incarnation: u32,
}

impl FleetStore {
    /// Makes room for a member.
    pub fn join(&self, member: &MemberName, cluster_uid: &str) {
        self.change(|inner| inner.join(member, cluster_uid));
    }

    /// Takes new names: the configuration changed. What that changes is shown in slices.
    pub fn rename(&self, naming: &Arc<Naming>) {
        let changed = self.change(|inner| inner.rename(naming));
        self.in_slices(|inner, after| {
            inner.for_folds(after, |inner, key| {
                inner.order_fold(key, changed);
                true
            })
        });
    }

    /// Ends a full list that was read at `revision`: gives what it did not see, for [`Self::remove_slice`].
    pub fn end_list(&self, member: &MemberName, revision: u64) -> Vec<Arc<Entry>> {
        let Some(list) = self.change(|inner| inner.end_list(member, revision)) else { return Vec::new() };
        self.in_slices(|inner, after| inner.remove_lost_parts(member, list, after));
        // Only now is it known that a part is not where its marker says.
        self.in_slices(|inner, after| inner.expect_parts_of(member, after));
        self.lost(member)
    }

    /// Removes a slice of doomed objects.
    pub fn remove_slice(&self, doomed: &[Arc<Entry>]) {
        self.change(|inner| inner.remove_doomed(doomed));
    }

    /// Takes a member's parts away and gives its member-local objects, for [`Self::remove_slice`]: the operator removed it, or
    /// it serves the kind no more.
    pub fn leave(&self, member: &MemberName) -> Vec<Arc<Entry>> {
        self.change(|inner| inner.begin_to_leave(member));
        self.in_slices(|inner, after| inner.remove_parts_of_leaver(member, after));
        self.in_slices(|inner, after| inner.expect_parts_of(member, after));
        self.change(|inner| inner.end_leaving(member));
        self.lost(member)
    }

    /// Forgets a member that has left, and whatever of it is still here.
    pub fn forget(&self, member: &MemberName) {
        let rest = self.leave(member);
        self.remove_slice(&rest);
        self.drop_reports(member);
        self.change(|inner| inner.forget(member));
    }

    /// The folded objects of which there is something to say, by key.
    pub fn noticed(&self) -> Vec<(String, Notices)> {
        let mut all: Vec<(String, Notices)> = Vec::new();
        let keys: Vec<Key> = self.peek(|inner| inner.folds.keys().cloned().collect());
        for keys in keys.chunks(FOLDS_LOOKED_AT_MAX) {
            let noticed = |inner: &Sequencer| {
                let notices = keys.iter().map(|key| (key.to_string(), inner.notices(key)));
                all.extend(notices.filter(|(_, notices)| !notices.is_empty()));
            };
            self.peek(noticed);
        }
        all.sort_by(|(one, _), (two, _)| one.cmp(two));
        all
    }

    /// The member-local objects that the last full list of a member should have seen and did not.
    fn lost(&self, member: &MemberName) -> Vec<Arc<Entry>> {
        let (mut lost, mut after) = (Vec::new(), None);
        loop {
            after = self.peek(|inner| inner.lost(member, after.as_ref(), LOOKED_AT_MAX, &mut lost));
            if after.is_none() {
                return lost;
            }
        }
    }

    /// Changes folds a slice at a time, each under a lock of its own: `slice` is given the key behind which it goes on, and
    /// gives the next one.
    fn in_slices(&self, slice: impl Fn(&mut Sequencer, Option<Key>) -> Option<Key>) {
        let mut after = None;
        loop {
            after = self.change(|inner| slice(inner, after.take()));
            if after.is_none() {
                return;
            }
        }
    }
}

/// What a new configuration has the store read of all parts once more.
#[derive(Clone, Copy)]
struct Reread {
    /// What they are compared by.
    prints: bool,
    /// What is added up.
    numbers: bool,
}

impl Sequencer {
    /// Makes room for a member; its place among the others is that of the configuration.
    fn join(&mut self, name: &MemberName, cluster_uid: &str) {
        self.note_members();
        if let Some(known) = self.member_mut(name) {
            known.left = false;
            if *known.cluster_uid != *cluster_uid {
                known.cluster_uid = cluster_uid.into();
                self.epoch += 1;
            }
            return;
        }
        self.lives += 1;
        let state = MemberState {
            events: 0,
            name: name.clone(),
            cluster_uid: cluster_uid.into(),
            incarnation: self.lives,
            position: 0,
            filled: false,
            seen: 0,
            listed_at: 0,
            left: false,
            gone: HashMap::new(),
            member_locals: BTreeSet::new(),
            parts: BTreeSet::new(),
            tracking: None,
        };
        self.members.push(state);
        self.order_members();
    }

    /// Takes new names: members were added, removed or put in another order. Says what is to be read of
    /// the parts anew. [`Self::order_fold`] does the rest.
    fn rename(&mut self, naming: &Arc<Naming>) -> Reread {
        self.epoch += 1;
        let kind = self.fold_kind();
        let former = std::mem::replace(&mut self.shared.naming, Arc::clone(naming));
        self.order_members();
        let numbers = kind != self.fold_kind();
        Reread { prints: numbers || former.mask() != naming.mask(), numbers }
    }

    /// Puts the parts of a fold in the order of now, and shows what that changes.
    fn order_fold(&mut self, key: &Key, reread: Reread) {
        let (naming, kind) = (Arc::clone(&self.shared.naming), self.fold_kind());
        let Some(fold) = self.folds.get_mut(key) else { return };
        if reread.prints {
            fold.print(&self.spec.gvr, kind, naming.mask());
        }
        if reread.numbers {
            fold.add_up(kind, &self.shared.identities);
        }
        fold.sort(naming.members());
        self.refold(key);
    }

    /// Gives the folds above a key to `change`, which says whether it changed one, until that is enough for one lock. Gives
    /// the key to go on behind, if there may be more.
    fn for_folds(&mut self, after: Option<Key>, change: impl Fn(&mut Self, &Key) -> bool) -> Option<Key> {
        let all: Vec<Key> = above(&self.keys_of_folds, after).take(FOLDS_LOOKED_AT_MAX).cloned().collect();
        self.change_folds(all, change)
    }

    fn change_folds(&mut self, keys: Vec<Key>, change: impl Fn(&mut Self, &Key) -> bool) -> Option<Key> {
        let is_whole = keys.len() < FOLDS_LOOKED_AT_MAX;
        let mut changed = 0;
        let mut last = None;
        for key in keys {
            if changed == FOLDS_CHANGED_MAX {
                return last;
            }
            changed += usize::from(change(self, &key));
            last = Some(key);
        }
        last.filter(|_| !is_whole)
    }

    /// Begins another life of a member: its revisions compare with no earlier ones, and the next full list decides.
    pub(super) fn reset(&mut self, name: &MemberName) {
        self.note_members();
        self.lives += 1;
        let life = self.lives;
        if let Some(member) = self.member_mut(name) {
            member.incarnation = life;
            member.position = 0;
            member.listed_at = 0;
            // A restored member may hold again what it had deleted.
            member.gone.clear();
            member.tracking = None;
        }
    }

    /// Begins a full list of a member. What it does not see is gone when it ends.
    pub(super) fn begin_list(&mut self, name: &MemberName) {
        if let Some(member) = self.member_mut(name) {
            member.seen += 1;
            member.left = false;
            member.tracking = None;
        }
    }

    /// Ends a full list that was read at `revision`. What it did not see is found by [`Self::remove_lost_parts`] and
    /// [`Self::lost`].
    fn end_list(&mut self, member: &MemberName, revision: u64) -> Option<Listed> {
        self.news = true;
        self.note_members();
        let state = self.member_mut(member)?;
        state.position = state.position.max(revision);
        state.filled = true;
        state.listed_at = revision;
        state.forget_gone();
        Some(Listed::of(state))
    }

    /// Removes the parts that a list did not see, unless another one has begun since.
    fn remove_lost_parts(&mut self, member: &MemberName, list: Listed, after: Option<Key>) -> Option<Key> {
        let state = self.member(member).filter(|state| Listed::of(state) == list)?;
        let listed_at = state.listed_at;
        let keys = above(&state.parts, after).take(FOLDS_LOOKED_AT_MAX).cloned().collect();
        self.change_folds(keys, |inner, key| {
            let part = inner.folds.get(key).and_then(|fold| fold.part(member));
            let is_lost = |part: &Arc<Part>| {
                part.seen != list.seen && (part.incarnation != list.incarnation || part.member_rv <= listed_at)
            };
            let is_lost = part.is_some_and(is_lost);
            if is_lost {
                inner.remove_part(key, member);
            }
            is_lost
        })
    }

    /// Looks at up to `max` member-local objects of a member whose keys are above `after`, and gives those that its last full
    /// list should have seen and did not. Says from which key on to look next; `None`: all were looked at.
    fn lost(&self, member: &MemberName, after: Option<&Key>, max: usize, out: &mut Vec<Arc<Entry>>) -> Option<Key> {
        let state = self.member(member)?;
        let start = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let mut looked_at = 0;
        let mut last = None;
        for key in state.member_locals.range((start, Bound::Unbounded)).take(max) {
            out.extend(self.objects.get(key).filter(|entry| state.has_lost(entry)).cloned());
            looked_at += 1;
            last = Some(key);
        }
        last.filter(|_| looked_at == max).cloned()
    }

    /// Removes member-local objects that are still the ones that were doomed: since then one may have been rewritten (it goes), or
    /// seen by another list, or succeeded by a later object (they stay).
    fn remove_doomed(&mut self, doomed: &[Arc<Entry>]) {
        for entry in doomed {
            let Some(held) = self.objects.get(entry.shared_key()) else { continue };
            let is_it = !held.folded && held.uid() == entry.uid();
            let state = held.holders.first().and_then(|name| self.member(name));
            if is_it && state.is_none_or(|state| state.has_lost(held)) {
                self.remove_visible(entry.shared_key());
            }
        }
    }

    fn begin_to_leave(&mut self, member: &MemberName) {
        self.note_members();
        // From the first: nothing is expected of it any more.
        if let Some(state) = self.member_mut(member) {
            state.left = true;
            state.tracking = None;
        }
    }

    /// Removes parts of a member, unless it has come back since.
    fn remove_parts_of_leaver(&mut self, member: &MemberName, after: Option<Key>) -> Option<Key> {
        let state = self.member(member).filter(|state| state.left)?;
        let keys = above(&state.parts, after).take(FOLDS_LOOKED_AT_MAX).cloned().collect();
        self.change_folds(keys, |inner, key| {
            inner.remove_part(key, member);
            true
        })
    }

    fn end_leaving(&mut self, member: &MemberName) {
        if self.member(member).is_some_and(|state| state.left) {
            self.reset(member);
            if let Some(state) = self.member_mut(member) {
                state.filled = false;
            }
        }
    }

    /// Shows anew what lacks a part in a member: whether that is told depends on what is known of the member.
    fn expect_parts_of(&mut self, member: &MemberName, after: Option<Key>) -> Option<Key> {
        let keys = above(&self.placed, after).take(FOLDS_LOOKED_AT_MAX).cloned().collect();
        self.change_folds(keys, |inner, key| {
            let lacks = inner.folds.get(key).is_some_and(|fold| fold.expects(member));
            if lacks {
                inner.refold(key);
            }
            lacks
        })
    }

    fn forget(&mut self, member: &MemberName) {
        self.members.retain(|known| known.name != *member);
        self.order_members();
        self.kinds.forget(member);
    }
}

impl Listed {
    fn of(state: &MemberState) -> Self {
        Self { seen: state.seen, incarnation: state.incarnation }
    }
}

/// The keys above one, or all.
fn above(keys: &BTreeSet<Key>, after: Option<Key>) -> impl Iterator<Item = &Key> {
    keys.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
}
