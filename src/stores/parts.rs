//! Who the parts of placed objects are, for kinds that nobody reads.
//!
//! An object that refers to a part (a pod to its Job, an event to anything) is shown with the visible name and UID of the
//! whole, so the parts of a kind are known before anything that refers to it is served. Stores of all kinds would do it,
//! and cost too much: 200 kinds of 200 members are 40,000 watches and everything the fleet holds in memory. Three things
//! make it cheap. Only kinds that some object refers to, or that were placed, are asked for: some twenty in practice. They
//! are asked for by the marker's label, so that what comes is the parts and nothing else: of most kinds in most members an
//! empty list and a silent watch. And where a kind is read anyway, its store does it. Children of placed objects (ReplicaSets)
//! have no label: of their kinds all objects are asked for, by their metadata alone, and of those that are no children
//! nothing is kept.
//!
//! A reference to a kind is found where the document is taken in. A first answer waits until the kinds that its store
//! refers to are in; on a watch that is open the first reference to a kind may be shown as a member-local object's until they are, and
//! be corrected by the next event. Kinds that were ever placed are remembered in the state directory and followed from the
//! start, so that this is left to kinds that another kubefold placed.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use tokio::time::Instant;

use crate::{
    config::MemberName,
    member::Member,
    store::GroupKind,
    stores::{Running, Stores, UNKNOWN_WAIT_MAX},
};

impl Stores {
    /// Follows the parts of every kind that is referred to, or was placed.
    pub(super) fn follow_parts(&self) {
        for kind in self.shared().identities.wanted() {
            self.parts_of(&kind);
        }
    }

    /// The store that knows a kind's parts, started where there is none. `None`: nobody serves such a kind, or it cannot
    /// be watched, so that none of it was placed.
    pub fn parts_of(&self, kind: &GroupKind) -> Option<Arc<Running>> {
        let catalog = self.catalog();
        let resource = catalog.of_kind(&kind.0, &kind.1).filter(|resource| resource.watchable)?;
        if let Some(store) = self.whole(resource.gvr.group.as_ref(), resource.gvr.resource.as_ref()) {
            return Some(store);
        }
        let mut parts = self.parts.lock();
        if let Some(running) = parts.get(kind).filter(|running| !running.store.is_ended()) {
            return Some(Arc::clone(running));
        }
        let running = self.make(resource, true);
        parts.insert(kind.clone(), Arc::clone(&running));
        self.feed(&running);
        Some(running)
    }

    /// The store that is read of a resource, in any version.
    fn whole(&self, group: &str, resource: &str) -> Option<Arc<Running>> {
        let all = self.running.lock();
        let mut of_it = all.iter().filter(|(gvr, _)| &*gvr.group == group && &*gvr.resource == resource);
        of_it.find(|(_, running)| !running.store.is_ended()).map(|(_, running)| Arc::clone(running))
    }

    /// Waits until it is known who the parts are that a store's objects refer to. Says of which that stays unknown.
    ///
    /// What is not known is shown by its member's own name, and by the right one once it is: no reason to refuse an answer
    /// that has every object.
    pub(super) async fn known_parts(
        &self,
        running: &Running,
        only: Option<&MemberName>,
        deadline: Instant,
    ) -> Vec<String> {
        let references = self.shared().identities.references();
        // Nothing new since it was last looked at: the path of nearly every read.
        if running.known_at.load(Ordering::Acquire) == references {
            return Vec::new();
        }
        let (mut unknown, mut are_all_known) = (Vec::new(), true);
        for kind in running.store.refers_to() {
            let Some(source) = self.parts_of(&kind) else { continue };
            self.wait_for_parts(&source, only, deadline).await;
            are_all_known &= self.unknown(&source, None).is_empty();
            let of = running.store.spec().gvr.qualified();
            unknown.extend(self.unknown(&source, only).iter().map(|member| {
                format!(
                    "references of {of} to the {} of member {} may show that member's names: {}",
                    source.store.spec().gvr.qualified(),
                    member.name(),
                    source.describe(member)
                )
            }));
        }
        if are_all_known {
            running.known_at.store(references, Ordering::Release);
        }
        unknown
    }

    /// Waits for members that may yet tell.
    async fn wait_for_parts(&self, source: &Running, only: Option<&MemberName>, deadline: Instant) {
        let mut changes = source.store.subscribe();
        let is_worth_waiting = |member: &Arc<Member>| {
            let is_long = |since: Instant| since.elapsed() >= UNKNOWN_WAIT_MAX;
            let feeds = source.feeds.lock();
            let trouble = feeds.get(member.name()).and_then(|feed| feed.state.trouble());
            !member.health().is_down() && trouble.is_none_or(|trouble| !is_long(trouble.since))
        };
        loop {
            changes.borrow_and_update();
            if source.store.is_ended() || !self.unknown(source, only).iter().any(is_worth_waiting) {
                return;
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Waits (bounded) until the parts of every kind that was placed are known.
    pub async fn placed_are_known(&self) {
        let deadline = Instant::now() + UNKNOWN_WAIT_MAX;
        for kind in self.shared().identities.placed() {
            if let Some(source) = self.parts_of(&kind) {
                self.wait_for_parts(&source, None, deadline).await;
            }
        }
    }

    /// Ends the stores of parts whose kinds are read, since those know them too.
    pub(super) fn end_parts(&self) {
        let is_known_twice = |running: &Running| {
            let gvr = &running.store.spec().gvr;
            self.whole(&gvr.group, &gvr.resource).is_some_and(|whole| self.unknown(&whole, None).is_empty())
        };
        self.parts.lock().retain(|_, running| {
            let ends = is_known_twice(running);
            if ends {
                running.cancel.cancel();
            }
            !ends
        });
    }

    /// Says whether a store may end: nobody needs what it knows of its kind's parts, or another knows it by now.
    pub(super) fn takes_over(&self, running: &Running) -> bool {
        let gvk = &running.store.spec().gvk;
        let kind = (gvk.group.to_string(), gvk.kind.to_string());
        let wanted: BTreeSet<GroupKind> = self.shared().identities.wanted();
        if !wanted.contains(&kind) {
            return true;
        }
        let catalog = self.catalog();
        let Some(resource) = catalog.of_kind(&kind.0, &kind.1).filter(|resource| resource.watchable) else {
            return true;
        };
        let mut parts = self.parts.lock();
        let successor = match parts.get(&kind) {
            Some(known) => Arc::clone(known),
            None => {
                let made = self.make(resource, true);
                parts.insert(kind, Arc::clone(&made));
                self.feed(&made);
                made
            }
        };
        self.unknown(&successor, None).is_empty()
    }
}
