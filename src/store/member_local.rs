//! A member-local object as a writer needs it: what its member last said, and which of the two sides' revisions name it.

use std::sync::Arc;

use crate::{
    config::MemberName,
    store::{entry::Entry, fleet_store::FleetStore, revision::Revision, sequencer::Sequencer},
};

/// A member-local object as the store holds it now.
#[derive(Debug)]
pub struct MemberLocal {
    /// As the fleet view shows it.
    pub entry: Arc<Entry>,
    /// Its member's revision; `None` if that is of an earlier life of the member and so names nothing there.
    pub member_rv: Option<u64>,
}

impl MemberLocal {
    /// The document as its member sent it.
    pub fn original(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entry.json().len());
        self.entry.write_original(&mut out);
        out
    }
}

impl FleetStore {
    /// The member-local object that a member holds under an own key.
    pub fn member_local(&self, own_key: &str, member: &MemberName) -> Option<MemberLocal> {
        self.peek(|inner| inner.member_local(own_key, member))
    }

    /// The fleet's revision of the version that its member calls `member_rv`: of the one that is held, or of an earlier one
    /// that is in the log still.
    ///
    /// Shape: linear in the log if it is not the one that is held.
    pub fn revision_of(&self, own_key: &str, member: &MemberName, member_rv: u64) -> Option<Revision> {
        self.peek(|inner| {
            let held = inner.member_local(own_key, member)?;
            if held.member_rv == Some(member_rv) {
                return Some(held.entry.revision);
            }
            let incarnation = inner.member(member)?.incarnation;
            inner.log.newest(|entry| {
                let from = &entry.provenance;
                entry.key() == held.entry.key() && from.member_rv() == member_rv && from.incarnation() == incarnation
            })
        })
    }
}

impl Sequencer {
    fn member_local(&self, own_key: &str, member: &MemberName) -> Option<MemberLocal> {
        let state = self.member(member)?;
        let entry = self.objects.get(self.member_local_key(own_key, member).as_str())?;
        if entry.folded || entry.holders.first() != Some(member) {
            return None;
        }
        let from = &entry.provenance;
        let member_rv = (from.incarnation() == state.incarnation).then(|| from.member_rv());
        Some(MemberLocal { entry: Arc::clone(entry), member_rv })
    }
}
