//! Cold start: kubefold ends and starts again before the same members, and is asked for everything at once.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::cli::{
    bench::{
        drivers::{Ground, reads},
        embedded,
        record::Record,
        target::Target,
    },
    demo::fleet::Fleet,
};

/// A fleet, and the way to its kubefold.
pub(in crate::cli::bench) struct Started {
    pub(in crate::cli::bench) fleet: Fleet,
    pub(in crate::cli::bench) target: Arc<Target>,
}

/// Starts kubefold anew until the scenario's time is over, at least once.
///
/// Errors: it does not start.
pub(in crate::cli::bench) async fn run(ground: &Ground, record: &Record, fleet: Fleet) -> anyhow::Result<Started> {
    let ends = Instant::now() + Duration::from_secs_f64(ground.shape.duration_seconds);
    let (mut fleet, mut number) = (fleet, 0);
    record.begin(Instant::now());
    loop {
        let ended = Instant::now();
        fleet = Box::pin(fleet.restart()).await?;
        record.add("restart", ended.elapsed());
        let begun = Instant::now();
        let target = Arc::new(Box::pin(embedded::open(&fleet, ground.shape.clients)).await?);
        let asked = Arc::new(Ground { target: Arc::clone(&target), ..ground.clone() });
        let mut outcome = reads::list(asked, number).await;
        outcome.measure = "first-list";
        record.answered(begun.elapsed(), &outcome);
        number += 1;
        if Instant::now() >= ends {
            return Ok(Started { fleet, target });
        }
    }
}
