//! Placements that have moved or are moving, and members that get nothing new, as the state directory has them.

use std::collections::BTreeSet;

use crate::{
    config::MemberName,
    write::journal::{Journal, JournalError, Overriding, Placement, blocking},
};
use kubefold_wire::resource::Gvk;

impl Journal {
    /// Keeps where a placement is and is going.
    ///
    /// Errors: the disk refuses; then nothing may be done by it.
    pub async fn keep_placement(&self, placement: Placement) -> Result<(), JournalError> {
        let this = self.clone();
        let keep = move || {
            this.table.keep_placement(&placement)?;
            this.inner.lock().placements.insert(placement.uid.clone(), placement);
            Ok(())
        };
        blocking(keep).await
    }

    /// Forgets a placement that is gone.
    pub async fn forget_placement(&self, uid: &str) {
        let uid = uid.to_owned();
        self.inner.lock().placements.remove(&uid);
        self.note(move |this| this.table.forget_placement(&uid)).await;
    }

    /// The placements that have moved or are moving.
    pub fn placements(&self) -> Vec<Placement> {
        self.inner.lock().placements.values().cloned().collect()
    }

    /// One of them.
    pub fn placement(&self, uid: &str) -> Option<Placement> {
        self.inner.lock().placements.get(uid).cloned()
    }

    /// Keeps that the parts of a placement are to get the overrides of now.
    ///
    /// Errors: the disk refuses; then nothing may be done by it.
    pub async fn keep_overriding(&self, overriding: Overriding) -> Result<(), JournalError> {
        let this = self.clone();
        let keep = move || {
            this.table.keep_overriding(&overriding)?;
            this.inner.lock().overridings.insert(overriding.uid.clone(), overriding);
            Ok(())
        };
        blocking(keep).await
    }

    /// Notes that the parts of a placement have the overrides of now, or are gone.
    pub async fn forget_overriding(&self, uid: &str) {
        let uid = uid.to_owned();
        self.inner.lock().overridings.remove(&uid);
        self.note(move |this| this.table.forget_overriding(&uid)).await;
    }

    /// The placements whose parts are to get the overrides of now.
    pub fn overridings(&self) -> Vec<Overriding> {
        self.inner.lock().overridings.values().cloned().collect()
    }

    /// One of them.
    pub fn overriding(&self, uid: &str) -> Option<Overriding> {
        self.inner.lock().overridings.get(uid).cloned()
    }

    /// Notes that a member gets nothing new, or does again.
    ///
    /// Errors: the disk refuses.
    pub async fn cordon(&self, member: &MemberName, is_cordoned: bool) -> Result<(), JournalError> {
        let (this, member) = (self.clone(), member.clone());
        let cordon = move || {
            this.table.cordon(&member, is_cordoned)?;
            let cordoned = &mut this.inner.lock().cordoned;
            let _changed = if is_cordoned { cordoned.insert(member) } else { cordoned.remove(&member) };
            Ok(())
        };
        blocking(cordon).await
    }

    /// The members that get nothing new.
    pub fn cordoned(&self) -> BTreeSet<MemberName> {
        self.inner.lock().cordoned.clone()
    }

    /// Notes that an object of a kind was placed: the kind is followed from the next start on.
    pub async fn place(&self, gvk: &Gvk) {
        let gvk = gvk.clone();
        self.note(move |this| this.table.place(&gvk)).await;
    }

    /// The kinds of which an earlier process has ever placed an object: group and kind.
    pub fn placed_kinds(&self) -> BTreeSet<(String, String)> {
        self.inner.lock().placed_kinds.clone()
    }
}
