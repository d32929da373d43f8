//! What follows from a seed; and when things happen.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Tells the virtual time since the world began. No two things happen at one time: the clock stands still while anything
/// is done, so each thing is a nanosecond later than the one before.
#[derive(Clone)]
pub(crate) struct Clock {
    began: Instant,
    told: Arc<AtomicU64>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), told: Arc::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed() + Duration::from_nanos(self.told.fetch_add(1, Ordering::Relaxed))
    }
}

/// A seeded source of choices. Parts of it do not depend on how often another was asked.
pub(crate) struct Chance(fastrand::Rng);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1)))
    }

    /// A source for one actor.
    pub(crate) fn part(&mut self) -> Self {
        Self(self.0.fork())
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound.max(1))
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn of_all<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A time between these.
    pub(crate) fn time(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(self.0.u64(from_ms..to_ms))
    }

    /// Waits so long, by the virtual clock: what people and programs do between two requests.
    pub(crate) async fn think(&mut self, from_ms: u64, to_ms: u64) {
        let time = self.time(from_ms, to_ms);
        tokio::time::sleep(time).await;
    }
}
