//! The processes that use one database, and where each of them can be reached. A row is counted while its process renews it.
//!
//! Nothing depends on these rows but where a request is sent: who has the database, the lease alone says.

use std::time::Duration;

use tokio::time::Instant;

use crate::backend::Replica;

/// How often a process renews its row.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);
/// How long a row counts after its process renewed it last.
pub(super) const LIFE: Duration = Duration::from_secs(15);

/// What was read of all processes, and when.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) at: Instant,
    pub(super) replicas: Vec<Replica>,
}

impl Known {
    pub(super) fn nobody() -> Self {
        Self { at: Instant::now(), replicas: Vec::new() }
    }

    /// Those that count now.
    pub(super) fn now(&self) -> Vec<Replica> {
        let older = |replica: &Replica| Replica { seen_ago: replica.seen_ago + self.at.elapsed(), ..replica.clone() };
        self.replicas.iter().map(older).filter(|replica| replica.seen_ago < LIFE).collect()
    }
}
