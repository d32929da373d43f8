//! Who feeds a store: one reflector per member, for as long as the member is configured and serves the kind.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use crate::{
    config::MemberName,
    member::{
        Member,
        reflector::{Reflector, ReflectorState, Together},
    },
    mirror::MirroredKind,
    store::SLICE_ITEMS_MAX,
    stores::{Feed, Running, Stores},
};

impl Stores {
    /// Starts and ends a store's reflectors. Members and catalog are looked at under the lock: one who came with an older
    /// catalog would take a member for gone that has just been heard of, and its objects for deleted.
    pub(super) fn feed(&self, running: &Arc<Running>) {
        let mut feeds = running.feeds.lock();
        let catalog = self.catalog();
        let serving: HashSet<&MemberName> = catalog.serving_members(&running.store.spec().gvr).iter().collect();
        let members = self.registry.members();
        let wanted = |member: &Arc<Member>| !member.config().absent && serving.contains(member.name());
        let configured: HashMap<&MemberName, &Arc<Member>> =
            members.iter().map(|member| (member.name(), member)).collect();
        let stays = |name: &MemberName, feed: &Feed| {
            configured.get(name).is_some_and(|member| Arc::ptr_eq(member, &feed.member) && wanted(member))
        };
        let gone: Vec<MemberName> =
            feeds.iter().filter(|(name, feed)| !stays(name, feed)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            if let Some(feed) = feeds.remove(&name) {
                running.leaving.lock().insert(name.clone());
                running.news.fetch_add(1, Ordering::AcqRel);
                self.tasks.spawn(leave(self.this.clone(), Arc::clone(running), name, feed));
            }
        }
        for member in members.iter().filter(|member| wanted(member)) {
            if feeds.contains_key(member.name()) || running.leaving.lock().contains(member.name()) {
                continue;
            }
            let state = Arc::new(ReflectorState::counted_in(Arc::clone(&running.news)));
            let cancel = running.cancel.child_token();
            let reflector = Reflector {
                member: Arc::clone(member),
                store: Arc::clone(&running.store),
                of_parts: running.of_parts,
                mirror: self.mirror.get().cloned(),
                turn: running.together.as_ref().map(Together::turn),
                state: Arc::clone(&state),
                cancel: cancel.clone(),
            };
            let task = self.tasks.spawn(reflector.run());
            feeds.insert(member.name().clone(), Feed { member: Arc::clone(member), state, cancel, task });
            running.news.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Takes a member's objects out of a store, in slices, once its reflector is silent. If it was configured again
/// meanwhile, it is followed from then on.
async fn leave(stores: Weak<Stores>, running: Arc<Running>, name: MemberName, feed: Feed) {
    feed.cancel.cancel();
    let _ended = feed.task.await;
    let doomed = running.store.leave(&name);
    running.news.fetch_add(1, Ordering::AcqRel);
    for slice in doomed.chunks(SLICE_ITEMS_MAX) {
        while !running.store.has_room() && !running.cancel.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.store.remove_slice(slice);
        tokio::task::yield_now().await;
    }
    running.store.forget(&name);
    if let Some(stores) = stores.upgrade().filter(|_| !running.of_parts) {
        let gvr = running.store.spec().gvr.clone();
        stores.forget_kept(MirroredKind { gvr, member: name.clone() }).await;
    }
    running.leaving.lock().remove(&name);
    if let Some(stores) = stores.upgrade() {
        stores.reconcile();
    }
}
