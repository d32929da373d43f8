//! Documents that refer to others are rewritten when who those others are changes.

use std::collections::HashSet;

use aho_corasick::AhoCorasick;

use crate::store::{
    entry::Slot,
    identities::{GroupKind, Referent},
    ingest::Incoming,
    sequencer::Sequencer,
};

/// How many different referents of one member a store tells apart before it stops to.
const REFERENTS_MAX: usize = 1 << 16;
/// How many kinds they may be of. Beyond that (somebody makes kinds up in events) none is told of as new.
const KINDS_MAX: usize = 512;

/// Which referents the documents of one member have named: a filter that spares a store the search for references. It
/// forgets nothing, so it is bounded: at the bound everything counts as named.
#[derive(Debug, Default)]
pub(super) struct Referred {
    hashes: HashSet<u64>,
    overflowed: bool,
    /// Group and kind of all that was named.
    kinds: Vec<GroupKind>,
}

impl Referred {
    /// Notes that a document names an object of this kind. Says whether it is the first of its kind.
    pub(super) fn insert_kind(&mut self, group: &str, kind: &str) -> bool {
        let is_new = self.kinds.len() < KINDS_MAX && !self.kinds.iter().any(|(g, k)| k == kind && g == group);
        if is_new {
            self.kinds.push((group.to_owned(), kind.to_owned()));
        }
        is_new
    }

    pub(super) fn kinds(&self) -> &[GroupKind] {
        &self.kinds
    }

    /// Notes that a document names this referent.
    pub(super) fn insert(&mut self, referent: &[u8]) {
        if self.overflowed {
            return;
        }
        self.hashes.insert(hash(referent));
        if self.hashes.len() > REFERENTS_MAX {
            self.hashes = HashSet::new();
            self.overflowed = true;
        }
    }

    fn may_hold(&self, referent: &[u8]) -> bool {
        self.overflowed || (!self.hashes.is_empty() && self.hashes.contains(&hash(referent)))
    }
}

fn hash(referent: &[u8]) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(referent);
    hasher.finish()
}

impl Sequencer {
    /// Rewrites every object that refers to one of these, and says so where that changes its bytes.
    pub(super) fn rewrite_dependents(&mut self, changed: &[Referent]) {
        for at in 0..self.members.len() {
            let Some(member) = self.members.get(at) else { continue };
            let name = member.name.clone();
            let hit = |referent: &&Referent| {
                let own = referent.bytes().strip_prefix(name.as_str().as_bytes());
                own.is_some_and(|rest| rest.starts_with(&[0])) && member.refs.may_hold(referent.bytes())
            };
            let names: Vec<&[u8]> = changed.iter().filter(hit).filter_map(Referent::own_name).collect();
            if names.is_empty() {
                continue;
            }
            // What JSON may write in another way is not searched for: then every object is looked at.
            let is_plain =
                |name: &[u8]| name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._:@".contains(byte));
            // All names at once: a first list may bring hundreds, and a store hold thousands of objects.
            let search = names.iter().all(|name| is_plain(name)).then(|| AhoCorasick::new(&names).ok()).flatten();
            let names_one = |json: &[u8]| search.as_ref().is_none_or(|search| search.is_match(json));
            let touched: Vec<Slot> =
                member.member_locals.iter().filter(|slot| names_one(slot.0.json())).cloned().collect();
            for slot in touched {
                self.rewrite_dependent(at, &slot);
            }
            let parts: Vec<String> =
                self.folds.iter().filter(|(_, fold)| fold.part(&name).is_some()).map(|(key, _)| key.clone()).collect();
            for key in parts {
                self.refold(&key);
            }
        }
    }

    fn rewrite_dependent(&mut self, at: usize, Slot(held): &Slot) {
        let mut original = Vec::with_capacity(held.json().len());
        held.write_original(&mut original);
        let Ok(document) = std::str::from_utf8(&original) else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let spec = std::sync::Arc::clone(&self.spec);
        if let Ok(incoming) = Incoming::read(at, &spec, document, &mut scratch.found) {
            let from = &held.provenance;
            let entry = self.rewrite_member_local(
                &incoming,
                from.seen(),
                &scratch.found,
                &mut scratch.edits,
                &mut scratch.referent,
            );
            if let Some(entry) = entry.filter(|entry| !entry.is_same_but_for_revision(held)) {
                entry.provenance.set(from.member_rv(), from.incarnation(), from.seen());
                self.put_own(entry);
            }
        }
        self.scratch = scratch;
    }
}
