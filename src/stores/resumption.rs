//! A store that goes on where an earlier process ended: docs/design/revisions.md#restarts.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    member::reflector::{Stage, Together},
    mirror::Mirror,
    store::Earlier,
    stores::{Running, Stores},
};
use kubefold_wire::resource::Gvr;

/// How long a store waits until it is known who the parts are that its objects refer to. Otherwise some may look other than before.
const PARTS_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long it waits at most for what its members told the earlier process, and the mirror has not.
const LEVEL_WAIT_MAX: Duration = Duration::from_secs(5);
/// Then members are listed anew all the same, as the mirror is too old.
const TOLD_FOR: Duration = Duration::from_mins(5);
/// How often it is looked whether there is still a member to be waited for: one that goes down does not say so.
const LEVEL_LOOK: Duration = Duration::from_millis(100);

impl Stores {
    /// Says whether an earlier process may have kept what it showed of a kind.
    pub(super) fn resumes(&self, gvr: &Gvr, of_parts: bool) -> bool {
        !of_parts && self.mirror.get().is_some_and(|mirror| mirror.is_on() && mirror.keeps(gvr) && !mirror.stores(gvr))
    }

    /// Begins with what another process showed, and what it has kept in the mirror, and keeps there what the stores have; call it before
    /// anything is read.
    pub fn begins_with(self: &Arc<Self>, told: HashMap<Gvr, Earlier>, mirror: Arc<Mirror>) {
        *self.told.lock() = told;
        self.mirror_in(mirror);
        let (this, cancel) = (self.this.clone(), self.cancel.clone());
        let forgetting = async move {
            sleep(TOLD_FOR).await;
            if let Some(stores) = this.upgrade() {
                stores.told.lock().clear();
            }
        };
        self.tasks.spawn(cancel.run_until_cancelled_owned(forgetting));
    }

    /// Has a store that begins go on where an earlier process ended, if that can be.
    pub(super) fn resume(&self, running: &Arc<Running>) {
        if let Some(together) = &running.together {
            let (cancel, decides) = (running.cancel.clone(), Decides(Arc::clone(together)));
            let resuming = resume(self.this.clone(), Arc::clone(running), decides);
            self.tasks.spawn(cancel.run_until_cancelled_owned(resuming));
        }
    }
}

impl Running {
    /// Waits until the store goes on where an earlier process ended, or cannot.
    pub(super) async fn resumed(&self, deadline: Instant) {
        if let Some(together) = &self.together {
            // Who waits no longer begins anew.
            let _elapsed = tokio::time::timeout_at(deadline, together.reached(Stage::Decided)).await;
        }
    }
}

/// Has the reflectors follow their members, and readers wait no longer, when dropped.
struct Decides(Arc<Together>);

impl Drop for Decides {
    fn drop(&mut self) {
        self.0.reach(Stage::Decided);
    }
}

async fn resume(stores: Weak<Stores>, running: Arc<Running>, decides: Decides) {
    let Some(stores) = stores.upgrade() else { return };
    let Some(earlier) = stores.earlier(&running.store.spec().gvr).await else { return };
    running.store.recognize(earlier);
    decides.0.reach(Stage::Filling);
    decides.0.filled().await;
    let _unknown = stores.known_parts(&running, None, Instant::now() + PARTS_WAIT_MAX).await;
    running.store.filled_from_mirror();
    let goes_on = running.store.resume(!stores.awaits_members(&running)) || {
        decides.0.reach(Stage::Following);
        stores.resumes_with_members(&running).await
    };
    tracing::info!(kind = %running.store.spec().label(), goes_on, "filled from the mirror");
}

impl Stores {
    /// What an earlier process showed of a kind at last. `None`: that is not known.
    async fn earlier(&self, gvr: &Gvr) -> Option<Earlier> {
        let (mirror, of) = (self.mirror.get()?.clone(), gvr.clone());
        let written = mirror.ask_unless_silent(move |mirror| Ok(mirror.shown(&of))).await.ok().flatten();
        let told = self.told.lock().remove(gvr);
        // What was written down at an orderly end is newer than what was told; that of an end before is older.
        [written, told].into_iter().flatten().max_by_key(Earlier::last)
    }

    /// Waits until the members have told what was shown and the mirror has not, no longer than there is one that may. Says whether
    /// the store goes on.
    async fn resumes_with_members(&self, running: &Running) -> bool {
        let (until, mut changes) = (Instant::now() + LEVEL_WAIT_MAX, running.store.subscribe());
        loop {
            changes.borrow_and_update();
            let is_awaited = Instant::now() < until && self.awaits_members(running);
            if running.store.resume(!is_awaited) {
                return true;
            }
            if !is_awaited {
                return false;
            }
            let _elapsed = tokio::time::timeout(LEVEL_LOOK, changes.changed()).await;
        }
    }
}
