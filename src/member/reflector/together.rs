//! The reflectors of one store that begins with what an earlier process knew: none watches before all have filled it, so that there is a
//! moment at which it shows what that process showed.

use std::sync::Arc;

use tokio::sync::watch;

/// How far the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// What the earlier process showed is being read.
    Reading,
    /// The reflectors fill the store.
    Filling,
    /// They follow their members.
    Following,
    /// The store goes on where that of the earlier process ended, or it is known that it cannot.
    Decided,
}

/// The reflectors of one store.
#[derive(Debug)]
pub(crate) struct Together {
    stage: watch::Sender<Stage>,
    /// Reflectors that have not filled it.
    filling: watch::Sender<usize>,
}

impl Together {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { stage: watch::Sender::new(Stage::Reading), filling: watch::Sender::new(0) })
    }

    /// A further reflector.
    pub(crate) fn turn(self: &Arc<Self>) -> Turn {
        self.filling.send_modify(|filling| *filling += 1);
        Turn(Arc::clone(self))
    }

    /// Says how far the store is.
    pub(crate) fn reach(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Waits until the store is so far.
    pub(crate) async fn reached(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        // The sender is here.
        let _closed = stages.wait_for(|now| *now >= stage).await;
    }

    /// Waits until all reflectors have filled the store, or have ended.
    pub(crate) async fn filled(&self) {
        let mut filling = self.filling.subscribe();
        let _closed = filling.wait_for(|filling| *filling == 0).await;
    }
}

/// A reflector's turn to fill the store. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Together>);

impl Turn {
    /// Fills the store once that may be, and waits until its members may be followed.
    ///
    /// Cancel: the others do not wait for it.
    pub(super) async fn take<T>(self, fill: impl Future<Output = T>) -> T {
        self.0.reached(Stage::Filling).await;
        let filled = fill.await;
        let together = Arc::clone(&self.0);
        drop(self);
        together.reached(Stage::Following).await;
        filled
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.filling.send_modify(|filling| *filling -= 1);
    }
}
