//! Documents that refer to others are rewritten when who those others are changes.

use std::sync::Arc;

use crate::store::{
    entry::{Entry, Key},
    incoming::Incoming,
    sequencer::Sequencer,
};

impl Sequencer {
    /// Rewrites objects that refer to others of whom something changed, where that changes their bytes.
    pub(super) fn rewrite(&mut self, keys: &[Key]) {
        for key in keys {
            let Some(held) = self.objects.get(key).cloned() else { continue };
            if held.folded {
                self.refold(key);
            } else {
                self.rewrite_dependent(&held);
            }
        }
    }

    fn rewrite_dependent(&mut self, held: &Entry) {
        let Some(at) = held.holders.first().and_then(|holder| self.index_of(holder)) else { return };
        let mut original = Vec::with_capacity(held.json().len());
        held.write_original(&mut original);
        let Ok(document) = std::str::from_utf8(&original) else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let spec = Arc::clone(&self.spec);
        if let Ok(incoming) = Incoming::read(&spec, document, &mut scratch.found) {
            let entry = self.rewrite_member_local(at, &incoming, held.provenance.seen(), &mut scratch);
            if let Some(entry) = entry.filter(|entry| !entry.is_same_but_for_revision(held)) {
                let from = &held.provenance;
                entry.provenance.set(from.member_rv(), from.incarnation(), from.seen());
                drop(self.put(entry));
            }
        }
        self.scratch = scratch;
    }
}
