//! What a reflector begins with that finds its member's objects in the mirror: docs/design/revisions.md#restarts.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    member::reflector::Reflector,
    mirror::{KeptObject, KeptPosition, Mirror, MirrorError, MirroredKind},
    store::SLICE_ITEMS_MAX,
};

/// A member that was not followed for longer, or not when the earlier process ended, is listed anew: it may have been restored from
/// a backup in that time, and be past the position again.
pub(super) const RESUME_MAX: Duration = Duration::from_mins(5);

/// How a restored reflector goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restored {
    /// Behind this member revision.
    At(u64),
    /// With a list whose bytes decide.
    Old,
}

impl Reflector {
    /// Fills the store with what the mirror has of the member. `None`: nothing, or nothing that can be used.
    ///
    /// Cancel: safe; what is half there is replaced by the first list.
    pub(super) async fn restore(&self) -> Option<Restored> {
        let mirror = self.mirror.as_ref().filter(|mirror| !self.of_parts && mirror.keeps(&self.store.spec().gvr))?;
        let (name, gvr) = (self.member.name(), &self.store.spec().gvr);
        let feed = MirroredKind { gvr: gvr.clone(), member: name.clone() };
        let asked = feed.clone();
        let kept = mirror.ask_unless_silent(move |mirror| Ok(mirror.position(&asked))).await.ok()??;
        let position = &kept.position;
        // Another address, or another cluster by the word of an earlier process.
        if self.member.last_cluster_uid().as_ref() != Some(&position.cluster_uid) {
            return None;
        }
        self.store.join(name, &position.cluster_uid);
        if self.store.passes() {
            // The objects stay where they are.
            self.store.stand_at(name, position.revision);
            return Some(self.begins_at(&kept));
        }
        self.store.begin_list(name);
        // Before the first object: what is written meanwhile is news to the mirror.
        self.store.track(name, position.definition, false);
        if let Err(error) = self.take_kept(mirror, &feed).await {
            tracing::warn!(member = %name, kind = %self.store.spec().label(), %error, "the mirror is not used");
            self.store.reset(name);
            return None;
        }
        let doomed = self.store.end_list(name, position.revision);
        self.remove(&doomed).await;
        Some(self.begins_at(&kept))
    }

    /// Notes that what there is of the member is what an earlier process was told.
    fn begins_at(&self, kept: &KeptPosition) -> Restored {
        let KeptPosition { position, age, is_followed } = kept;
        self.state.definition.store(position.definition, Ordering::Relaxed);
        self.state.restore(age.unwrap_or_default());
        self.store.wake();
        let is_recent = *is_followed && age.is_some_and(|age| age <= RESUME_MAX);
        let (member, kind) = (self.member.name(), self.store.spec().label());
        tracing::info!(%member, %kind, ?age, is_recent, "restored from the mirror");
        if is_recent { Restored::At(position.revision) } else { Restored::Old }
    }

    async fn take_kept(&self, mirror: &Arc<Mirror>, feed: &MirroredKind) -> Result<(), MirrorError> {
        let mut after = String::new();
        loop {
            let asked = (feed.clone(), after);
            let page: Vec<KeptObject> = mirror.ask_unless_silent(move |mirror| mirror.page(&asked.0, &asked.1)).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.key.clone();
            let documents: Vec<&str> = page.iter().map(|kept| &*kept.document).collect();
            for slice in documents.chunks(SLICE_ITEMS_MAX) {
                self.room().await;
                let slicing = || self.store.list_slice(self.member.name(), slice);
                let bad = self.member.admission().slice(slicing).await;
                if !bad.is_empty() {
                    mirror.forget(feed);
                    let (resource, member) = (feed.gvr.qualified(), feed.member.clone());
                    return Err(MirrorError::Damaged { key: after, resource, member });
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Looks whether the member has told all up to the revision that it had when it was asked.
    pub(super) fn resume_if_level(&self) {
        if self.state.is_restored()
            && self.store.position(self.member.name()) >= self.state.current.load(Ordering::Relaxed)
        {
            self.resumed();
        }
    }

    /// The member has told all that it had when it was asked: what the store has of it is as of now.
    pub(super) fn resumed(&self) {
        if self.state.resume() {
            let (member, kind) = (self.member.name(), self.store.spec().label());
            tracing::info!(%member, %kind, "what the mirror had of the member has been brought up to date");
            self.store.wake();
        }
    }
}
