//! What a request was let in by, as long as its answer goes on: watches and tunnels end with it.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

/// How often it is looked whether what goes on is still let in.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Says whether a login counts by what is known now: its authority may be trusted no longer, or it may be withdrawn.
pub type Counts = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a request was let in by.
#[derive(Clone)]
pub struct Credential {
    ends: Instant,
    counts: Counts,
}

impl Credential {
    /// One that ends by itself at a time, and before that when it counts no more.
    pub fn new(ends: Instant, counts: Counts) -> Self {
        Self { ends, counts }
    }

    /// Its own end.
    pub fn ends(&self) -> Instant {
        self.ends
    }

    /// Whether it counts now.
    pub fn counts(&self) -> bool {
        self.counts_at(Instant::now())
    }

    /// The same for who knows what time it is.
    pub(crate) fn counts_at(&self, now: Instant) -> bool {
        now < self.ends && (self.counts)()
    }

    /// Waits until it counts no more.
    ///
    /// Cancel: safe.
    pub async fn ended(&self) {
        while self.counts() {
            sleep_until(self.ends.min(Instant::now() + LOOK_EVERY)).await;
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("ends", &self.ends).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_at_its_end_and_soon_after_it_was_withdrawn() {
        let begun = Instant::now();
        let credential = Credential::new(begun + Duration::from_secs(9), Arc::new(|| true));
        credential.ended().await;
        assert_eq!(begun.elapsed(), Duration::from_secs(9));
        let counts = Arc::new(AtomicBool::new(true));
        let read = Arc::clone(&counts);
        let credential =
            Credential::new(Instant::now() + Duration::from_hours(1), Arc::new(move || read.load(Ordering::Relaxed)));
        assert!(tokio::time::timeout(Duration::from_secs(60), credential.ended()).await.is_err());
        counts.store(false, Ordering::Relaxed);
        let withdrawn = Instant::now();
        credential.ended().await;
        assert!(withdrawn.elapsed() <= LOOK_EVERY);
    }
}
