//! How long writers hold the locks of stores: what a reader of the same store, or a core, may wait for.

use std::{
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::RwLockWriteGuard;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use crate::store::sequencer::Sequencer;

/// Bounds of the buckets. Units: seconds.
const BUCKETS: [f64; 13] = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 2e-2, 5e-2, 1e-1, 3e-1, 1.0, 10.0];

/// How long writers have held the locks of stores.
#[derive(Debug)]
pub struct LockHolds {
    seconds: Histogram,
    longest_nanos: AtomicU64,
}

impl Default for LockHolds {
    fn default() -> Self {
        Self { seconds: Histogram::new(BUCKETS), longest_nanos: AtomicU64::new(0) }
    }
}

impl LockHolds {
    /// All of them, to be exported. Units: seconds.
    pub fn seconds(&self) -> Histogram {
        self.seconds.clone()
    }

    /// The longest.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_nanos.load(Ordering::Relaxed))
    }

    fn observe(&self, held: Duration) {
        self.seconds.observe(held.as_secs_f64());
        let nanos = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
        self.longest_nanos.fetch_max(nanos, Ordering::Relaxed);
    }
}

/// A writer's hold of a store. What is observed is observed without the lock.
pub(super) struct Writing<'a> {
    // Fields are dropped in this order.
    sequencer: RwLockWriteGuard<'a, Sequencer>,
    _timed: Timed<'a>,
}

impl<'a> Writing<'a> {
    /// Times a hold that begins now.
    pub(super) fn begun(sequencer: RwLockWriteGuard<'a, Sequencer>, holds: &'a LockHolds) -> Self {
        Self { sequencer, _timed: Timed { since: Instant::now(), holds } }
    }
}

impl Deref for Writing<'_> {
    type Target = Sequencer;

    fn deref(&self) -> &Sequencer {
        &self.sequencer
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut Sequencer {
        &mut self.sequencer
    }
}

struct Timed<'a> {
    since: Instant,
    holds: &'a LockHolds,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.holds.observe(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_hold_is_kept() {
        let holds = LockHolds::default();
        for millis in [1, 7, 2] {
            let timed = Timed { since: Instant::now(), holds: &holds };
            tokio::time::advance(Duration::from_millis(millis)).await;
            drop(timed);
        }
        assert_eq!(holds.longest(), Duration::from_millis(7));
    }
}
