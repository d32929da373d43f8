//! The one way to wait in a test.

use std::{fmt::Display, future::Future, panic::Location, time::Duration};

use tokio::time::{Instant, sleep};

/// Between two probes: short beside any deadline, long beside a probe.
const INTERVAL: Duration = Duration::from_millis(50);

/// Probes until the probe succeeds and returns its value; panics at the deadline with the probe's last error.
///
/// A probe that hangs is cut off at the deadline. To wait for one thing while doing another, use `tokio::join!`: the
/// compiler cannot show that the future of an async closure is `Send`, so it cannot go into a task of its own.
#[track_caller]
pub fn eventually<T, E: Display>(
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let end = Instant::now() + deadline;
        let mut last = "it has not answered at all".to_owned();
        loop {
            match tokio::time::timeout_at(end, probe()).await {
                Ok(Ok(value)) => return value,
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => panic!("{caller}: not within {deadline:?}, and the last probe hung; before it: {last}"),
            }
            assert!(Instant::now() < end, "{caller}: not within {deadline:?}; at last: {last}");
            sleep(INTERVAL).await;
        }
    }
}
