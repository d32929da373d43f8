//! What the stores have, written to the mirror behind them: docs/design/revisions.md#restarts.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    catalog::MemberCatalog,
    config::MemberName,
    member::{Member, reflector::ReflectorState},
    mirror::{Figures, KeptCatalog, Mirror, MirrorError, MirroredKind, REST},
    store::{Changes, FleetStore},
    stores::{
        Stores, held_by,
        written::{Mirrored, Noted},
    },
};
use kubefold_wire::resource::Gvr;

/// How often it is looked what has changed.
const PACE: Duration = Duration::from_millis(500);
/// How often it is noted that a member is followed of which nothing has changed.
const TOUCH_EVERY: Duration = Duration::from_secs(30);

impl Stores {
    /// Keeps what the stores have in the mirror, and begins with what it has.
    pub(super) fn mirror_in(self: &Arc<Self>, mirror: Arc<Mirror>) {
        self.catalog.set_stored(mirror.stored_kinds());
        for kept in mirror.catalogs() {
            let member = self.registry.get(kept.member.as_str()).filter(|member| !member.config().absent);
            let is_it = |member: Arc<Member>| member.last_cluster_uid().as_ref() == Some(&kept.cluster_uid);
            match MemberCatalog::parse(&kept.document) {
                Ok(catalog) if member.is_some_and(is_it) => self.catalog.restore(&kept.member, catalog),
                Ok(_) => {}
                Err(error) => tracing::warn!(member = %kept.member, %error, "the mirror's catalog is not used"),
            }
        }
        let is_first = self.mirror.set(Arc::clone(&mirror)).is_ok();
        if is_first && mirror.is_on() {
            // What is deleted of them is to be known without a gap, whoever reads them.
            let is_followed = |gvr: &&Gvr| mirror.keeps_deleted(gvr) || mirror.stores(gvr);
            for gvr in mirror.kinds().iter().filter(is_followed) {
                if let Err(error) = self.start_any(gvr) {
                    tracing::info!(kind = %gvr.qualified(), %error, "the kind is not followed yet");
                }
            }
            self.tasks.spawn(Arc::clone(self).write_behind(mirror));
        }
    }

    /// Writes what changes, until cancelled; then once more.
    async fn write_behind(self: Arc<Self>, mirror: Arc<Mirror>) {
        let mut pause = PACE;
        loop {
            let going = self.cancel.run_until_cancelled(sleep(pause)).await.is_some();
            let (stores, to) = (Arc::clone(&self), Arc::clone(&mirror));
            let writing = tokio::task::spawn_blocking(move || stores.write_changes(&to, &mut stores.mirrored.lock()));
            let Ok(written) = writing.await else { return };
            pause = if written.is_ok() { PACE } else { REST };
            if !going {
                return;
            }
        }
    }

    /// Writes what is not written yet, and what is shown, so that a later process goes on from there: call it when nobody is answered
    /// any more.
    pub async fn end(self: &Arc<Self>) {
        // What could not be written a moment ago is not waited for again.
        let is_level = |mirror: &&Arc<Mirror>| mirror.is_on() && mirror.figures().error.is_none();
        let Some(mirror) = self.mirror.get().filter(is_level).cloned() else { return };
        let stores = Arc::clone(self);
        let ending = tokio::task::spawn_blocking(move || stores.write_end(&mirror));
        if let Ok(Err(error)) = ending.await {
            tracing::warn!(%error, "what is shown is not kept: after a restart watches begin anew");
        }
    }

    fn write_end(&self, mirror: &Mirror) -> Result<(), MirrorError> {
        self.write_changes(mirror, &mut self.mirrored.lock())?;
        let last = self.shared().revisions.last();
        for running in self.all_running() {
            let (store, gvr) = (&running.store, &running.store.spec().gvr);
            if running.together.is_some()
                && let Some(shown) = store.shown(last)
            {
                mirror.keep_shown(gvr, &shown)?;
            }
        }
        Ok(())
    }

    fn write_changes(&self, mirror: &Mirror, before: &mut Mirrored) -> Result<(), MirrorError> {
        self.write_catalogs(mirror, before)?;
        for running in self.all_running() {
            let (store, gvr) = (&running.store, &running.store.spec().gvr);
            if !mirror.keeps(gvr) || store.passes() {
                continue;
            }
            let feeds: Vec<(MemberName, Arc<ReflectorState>)> =
                running.feeds.lock().iter().map(|(name, feed)| (name.clone(), Arc::clone(&feed.state))).collect();
            for (member, state) in feeds {
                // What was not brought up to date stays as the earlier process left it, unless it cannot be resumed any more.
                let is_followed = state.trouble().is_none();
                if is_followed && state.mirrored().is_some() {
                    continue;
                }
                let feed = MirroredKind { gvr: gvr.clone(), member };
                write_feed(mirror, store, feed, is_followed, before)?;
            }
        }
        mirror.bounds(|| held_by(self.all_running().iter()));
        if self.unwritable.borrow().is_none() {
            mirror.is_level();
        }
        Ok(())
    }

    fn write_catalogs(&self, mirror: &Mirror, before: &mut Mirrored) -> Result<(), MirrorError> {
        for member in self.registry.members().iter() {
            let (catalog, uid) = (self.member_catalog(member.name()), member.last_cluster_uid());
            let Some((catalog, cluster_uid)) = catalog.zip(uid) else { continue };
            if before.catalogs.get(member.name()).is_some_and(|before| Arc::ptr_eq(before, &catalog)) {
                continue;
            }
            let (member, document) = (member.name().clone(), catalog.document());
            mirror.keep_catalog(KeptCatalog { member: member.clone(), cluster_uid, document })?;
            before.catalogs.insert(member, catalog);
        }
        Ok(())
    }

    /// How it goes with what is kept. `None`: nothing is to be kept.
    pub fn mirror_figures(&self) -> Option<Figures> {
        self.mirror.get().filter(|mirror| mirror.is_wanted()).map(|mirror| mirror.figures())
    }

    /// Keeps nothing more of a member that has left a kind.
    pub(super) async fn forget_kept(&self, feed: MirroredKind) {
        if let Some(mirror) = self.mirror.get().cloned() {
            let forgetting = tokio::task::spawn_blocking(move || mirror.forget(&feed));
            // It fails when kubefold ends; the next one begins by its configuration.
            let _ended = forgetting.await;
        }
    }
}

fn write_feed(
    mirror: &Mirror,
    store: &FleetStore,
    feed: MirroredKind,
    is_followed: bool,
    before: &mut Mirrored,
) -> Result<(), MirrorError> {
    let Some(changes) = store.take_changes(&feed.member) else { return Ok(()) };
    let revision = changes.position.revision;
    let noted = before.feeds.get(&feed);
    let is_level = noted.is_some_and(|noted| noted.revision == revision);
    let written = if changes.is_whole {
        write_all(mirror, store, &feed)
    } else if !changes.objects.is_empty() || (!is_level && (is_followed || noted.is_some())) {
        match mirror.keep(&feed, changes) {
            Ok(false) => {
                store.give_changes_back(&feed.member);
                return Ok(());
            }
            kept => kept.map(|_| ()),
        }
    } else if noted.is_some_and(|noted| noted.is_followed == is_followed && noted.at.elapsed() < TOUCH_EVERY) {
        return Ok(());
    } else {
        mirror.touch(&feed, is_followed)
    };
    let written = written.and_then(|()| if is_followed { Ok(()) } else { mirror.touch(&feed, false) });
    match written {
        Ok(()) => {
            before.feeds.insert(feed, Noted { revision, at: Instant::now(), is_followed });
        }
        Err(_) => store.give_changes_back(&feed.member),
    }
    written
}

/// Writes all objects of a feed, together with what changes while they are read.
fn write_all(mirror: &Mirror, store: &FleetStore, feed: &MirroredKind) -> Result<(), MirrorError> {
    let mut documents = store.documents(&feed.member);
    // A list that has begun meanwhile ends with another turn.
    let Some(Changes { position, is_whole, objects }) = store.take_changes(&feed.member) else { return Ok(()) };
    if is_whole {
        store.give_changes_back(&feed.member);
        return Ok(());
    }
    for (key, document) in objects {
        match document {
            Some(document) => drop(documents.insert(key, document)),
            None => drop(documents.remove(&key)),
        }
    }
    mirror.keep_all(feed, &position, documents)
}
