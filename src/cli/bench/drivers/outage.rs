//! An outage: reads at a rate, while a member is killed after a third of the time and started again after two.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use futures::FutureExt;
use tokio::time::{Instant, sleep};

use crate::cli::{
    bench::{
        drivers::{Ground, reads},
        record::Record,
        schedule::{Operation, Schedule},
        target::get,
    },
    demo::fleet::Fleet,
};

/// Before the outage, in it, and behind it.
const PHASES: [&str; 3] = ["before", "down", "after"];
/// How long the member's objects may stay marked as last known state.
const RECOVERY: Duration = Duration::from_mins(2);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Runs the scenario.
///
/// Errors: the member does not start again, or is not read again in time.
pub(in crate::cli::bench) async fn run(
    ground: &Ground,
    schedule: Schedule,
    record: &Arc<Record>,
    fleet: &Fleet,
) -> anyhow::Result<()> {
    let name = fleet.names().last().context("the fleet has no member")?;
    let phase = Arc::new(AtomicU8::new(0));
    let begun = Instant::now();
    let (requests, third) = (operation(ground, &phase), Duration::from_secs_f64(ground.shape.duration_seconds / 3.0));
    let requests = schedule.run(begun, schedule.pace(begun)?, &requests, record);
    let outage = async {
        let member = fleet.member(name).context("the member is not there")?;
        sleep(third).await;
        phase.store(1, Ordering::Relaxed);
        member.kill();
        sleep(third).await;
        member.revive().await?;
        phase.store(2, Ordering::Relaxed);
        record.add("recovery", recovery(ground, name).await?);
        anyhow::Ok(())
    };
    futures::future::join(requests, outage).await.1
}

/// A list among ten gets, under the name of the phase that it was sent in.
fn operation(ground: &Ground, phase: &Arc<AtomicU8>) -> Operation {
    let (ground, phase) = (Arc::new(ground.clone()), Arc::clone(phase));
    Arc::new(move |number| {
        let (ground, measure) = (Arc::clone(&ground), PHASES.get(usize::from(phase.load(Ordering::Relaxed))));
        async move {
            let mut outcome = match number % 10 {
                0 => reads::list(ground, number).await,
                _ => reads::get_one(ground, number).await,
            };
            outcome.measure = measure.copied().unwrap_or("after");
            outcome
        }
        .boxed()
    })
}

/// How long after the member's start an object of it is read without a `Warning`.
async fn recovery(ground: &Ground, member: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let Some(path) = ground.space.object_of(member) else {
        bail!("member {member} has no object; give --objects at least as many as there are members");
    };
    while begun.elapsed() < RECOVERY {
        if let Ok(answer) = ground.target.send(0, get(&path)).await
            && !answer.headers().contains_key(http::header::WARNING)
        {
            return Ok(begun.elapsed());
        }
        sleep(ASK_AGAIN).await;
    }
    bail!("member {member} was started again, and is still shown as it last was after {} s", RECOVERY.as_secs())
}
