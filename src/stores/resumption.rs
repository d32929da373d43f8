//! A store that goes on where an earlier process ended: docs/design/revisions.md#restarts.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    member::reflector::{Stage, Together},
    stores::{Running, Stores},
};
use kubefold_wire::resource::Gvr;

/// How long a store waits until it is known who the parts are that its objects refer to. Otherwise some may look other than before.
const PARTS_WAIT_MAX: Duration = Duration::from_secs(2);

impl Stores {
    /// Says whether an earlier process may have kept what it showed of a kind.
    pub(super) fn resumes(&self, gvr: &Gvr, of_parts: bool) -> bool {
        !of_parts && self.mirror.get().is_some_and(|mirror| mirror.is_on() && mirror.keeps(gvr) && !mirror.stores(gvr))
    }

    /// Has a store that begins go on where an earlier process ended, if that can be.
    pub(super) fn resume(&self, running: &Arc<Running>) {
        if let Some(together) = &running.together {
            let (cancel, follows) = (running.cancel.clone(), Follows(Arc::clone(together)));
            let resuming = resume(self.this.clone(), Arc::clone(running), follows);
            self.tasks.spawn(cancel.run_until_cancelled_owned(resuming));
        }
    }
}

impl Running {
    /// Waits until the store goes on where an earlier process ended, or cannot.
    pub(super) async fn resumed(&self, deadline: Instant) {
        if let Some(together) = &self.together {
            // Who waits no longer begins anew.
            let _elapsed = tokio::time::timeout_at(deadline, together.reached(Stage::Following)).await;
        }
    }
}

/// Has the reflectors follow their members when dropped.
struct Follows(Arc<Together>);

impl Drop for Follows {
    fn drop(&mut self) {
        self.0.reach(Stage::Following);
    }
}

async fn resume(stores: Weak<Stores>, running: Arc<Running>, follows: Follows) {
    let Some(stores) = stores.upgrade() else { return };
    let Some(mirror) = stores.mirror.get().cloned() else { return };
    let gvr = running.store.spec().gvr.clone();
    let Ok(Some(earlier)) = mirror.ask_unless_silent(move |mirror| Ok(mirror.shown(&gvr))).await else { return };
    running.store.recognize(earlier);
    follows.0.reach(Stage::Filling);
    follows.0.filled().await;
    let _unknown = stores.known_parts(&running, None, Instant::now() + PARTS_WAIT_MAX).await;
    let goes_on = running.store.resume();
    tracing::info!(kind = %running.store.spec().label(), goes_on, "filled from the mirror");
}
