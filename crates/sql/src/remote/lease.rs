//! The lease of the one process that has a database: a row that it changes every moment, and that another process takes once
//! it has not seen it change for a while.
//!
//! No two clocks are compared. A holder trusts its lease for `TRUSTED` from the moment at which it *sent* the last change
//! that was answered; another process waits for [`SILENT`] from the moment at which it *saw* that change or a later one. So
//! the holder has stopped before the other one begins, as long as both clocks run at about the same rate.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::{
    mark::{Mark, Seen},
    standing::{Held, Standing},
};
use crate::{
    backend::{Found, Keeper, Taken},
    error::SqlError,
    server::Server,
};

/// How often the row is changed.
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// How long a change is waited for, and a connection for the next one.
const BEAT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an answer is waited for that a transaction of another process may hold up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// Between two tries to connect again.
const PAUSE: Duration = Duration::from_millis(250);
/// How long the row stays as it is before another process takes it.
const SILENT: Duration = Duration::from_secs(3);
/// How often a process that waits should look, and what one look counts for at most: while nobody looks, the server may be
/// away, for the holder too.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_MAX: Duration = Duration::from_millis(500);
/// The file outside of the database is written at one of so many changes.
const MARK_EVERY: i64 = 10;

/// How long the row has stayed as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    epoch: i64,
    beat: i64,
    silent: Duration,
    at: Instant,
}

impl Watched {
    /// What is known after another look.
    fn after(before: Option<Self>, found: &Found, now: Instant) -> Self {
        let Found { epoch, beat, .. } = *found;
        let before = before.filter(|before| (before.epoch, before.beat) == (epoch, beat));
        let silent = before.map_or(Duration::ZERO, |before| before.silent + (now - before.at).min(LOOK_MAX));
        Self { epoch, beat, silent, at: now }
    }

    fn is_silent(&self) -> bool {
        self.silent >= SILENT
    }
}

/// What a look at the row came to.
pub(super) enum Looked {
    Taken(Box<Held>),
    /// Another process has it, as far as is known.
    Held(Found, Watched),
}

/// Looks whether the row is free, and takes it then. The connection is given back unless it is the holder's now.
///
/// Errors: the server did not answer; what was watched before counts no more.
pub(super) async fn look(
    keeper: &mut Option<Box<dyn Keeper>>,
    before: Option<Watched>,
    mark: &Mark,
) -> Result<Looked, SqlError> {
    let asked = keeper.as_ref().ok_or_else(SqlError::ended)?;
    let found = prompt(asked.found()).await?;
    let watched = Watched::after(before, &found, Instant::now());
    if !(found.is_released || watched.is_silent()) {
        mark.note(|identity| Seen { identity, epoch: found.epoch, beat: found.beat });
        return Ok(Looked::Held(found, watched));
    }
    let begun = answered(begin_epoch(&**asked, &found, mark)).await?;
    let (Some(begun), Some(keeper)) = (begun, keeper.take()) else {
        // It beat after all, or a third one was faster.
        return Ok(Looked::Held(found.clone(), Watched::after(None, &found, Instant::now())));
    };
    let Begun { identity, taken: Taken { epoch, beat, number }, since, is_restored } = begun;
    mark.write(&Seen { identity: identity.clone(), epoch, beat });
    Ok(Looked::Taken(Box::new(Held { keeper, identity, epoch, beat, number, since, is_restored })))
}

struct Begun {
    identity: String,
    taken: Taken,
    since: Instant,
    is_restored: bool,
}

/// Begins an epoch in place of the one that was found. `None`: the row is not as it was found any more.
async fn begin_epoch(keeper: &dyn Keeper, found: &Found, mark: &Mark) -> Result<Option<Begun>, SqlError> {
    let identity = keeper.identity().await?;
    if !found.is_released {
        keeper.end_others(found.epoch).await?;
    }
    let before = keeper.lock().await?;
    if before.epoch != found.epoch || (before.beat != found.beat && !before.is_released) {
        keeper.undo().await?;
        return Ok(None);
    }
    let seen = mark.read();
    let now = Seen { identity: identity.clone(), epoch: before.epoch, beat: before.beat };
    let is_restored = seen.as_ref().is_some_and(|seen| !now.goes_on(seen));
    // Of an older state the epochs and beats that were are not given out again.
    let (epoch, beat) = seen.map_or((0, 0), |seen| (seen.epoch, seen.beat));
    let since = Instant::now();
    let taken = keeper.take(epoch, beat).await?;
    Ok(Some(Begun { identity, taken, since, is_restored }))
}

/// Waits for an answer, but no longer than a lease does.
pub(super) async fn prompt<T>(work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
    within(BEAT_TIMEOUT, work).await
}

/// Waits for an answer that others may hold up, but not for ever.
pub(super) async fn answered<T>(work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
    within(ANSWER_TIMEOUT, work).await
}

async fn within<T>(bound: Duration, work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
    match timeout(bound, work).await {
        Ok(answer) => answer,
        Err(_) => Err(SqlError::away(format!("the server has not answered for {} seconds", bound.as_secs()))),
    }
}

/// Keeps the lease, connects again where the connection is lost, and ends once this process has the database no more.
pub(super) async fn keep(mut held: Held, server: Server, standing: Arc<Standing>) {
    while standing.may_beat() {
        match beat(&mut held, &standing).await {
            Ok(()) => standing.answers(),
            Err(error) if error.is_lost() => return,
            Err(error) => {
                standing.fails(&error);
                match again(&held, &server, &standing).await {
                    Some(keeper) => held.keeper = keeper,
                    None => return,
                }
                continue;
            }
        }
        tokio::select! {
            () = sleep(BEAT_EVERY) => {}
            () = standing.is_asked() => {}
        }
    }
    // What is not said to be free is free for the others a moment later.
    let _released = prompt(held.keeper.release(held.epoch)).await;
}

async fn beat(held: &mut Held, standing: &Standing) -> Result<(), SqlError> {
    let (sent, wanted) = (Instant::now(), standing.wanted());
    match prompt(held.keeper.beat(held.epoch, wanted)).await? {
        Some((beat, number)) if beat > held.beat => {
            let is_noted = beat / MARK_EVERY > held.beat / MARK_EVERY;
            held.beat = beat;
            standing.saw(beat, is_noted);
            standing.holds(sent, number);
            Ok(())
        }
        // The row went back.
        Some(_) | None => Err(standing.lose(&prompt(held.keeper.found()).await?, held.epoch)),
    }
}

/// Connects again. `None`: the database is not this process's any more.
async fn again(held: &Held, server: &Server, standing: &Standing) -> Option<Box<dyn Keeper>> {
    while standing.may_beat() {
        let tried = prompt(async {
            let keeper = server.keeper().await?;
            let found = keeper.found().await?;
            if found.epoch != held.epoch || found.beat < held.beat {
                return Err(standing.lose(&found, held.epoch));
            }
            Ok(keeper)
        });
        match tried.await {
            Ok(keeper) => return Some(keeper),
            Err(error) if error.is_lost() => return None,
            Err(error) => drop(standing.fails(&error)),
        }
        sleep(PAUSE).await;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backend::Holder, remote::standing::TRUSTED};

    fn found(epoch: i64, beat: i64) -> Found {
        let holder = Holder { host: String::new(), pid: 0, since: String::new() };
        Found { epoch, beat, is_released: false, holder }
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_is_silent_once_it_was_looked_at_often_enough_and_did_not_change() {
        let mut watched = None;
        let mut look = async |beat: i64, pause: Duration| {
            sleep(pause).await;
            let now = Watched::after(watched, &found(1, beat), Instant::now());
            watched = Some(now);
            now.is_silent()
        };
        for _ in 0..12 {
            assert!(!look(1, LOOK_EVERY).await);
        }
        assert!(look(1, LOOK_EVERY).await);
        assert!(!look(2, LOOK_EVERY).await, "it beat");
        // The one that waits was stopped itself: that says nothing about the holder.
        assert!(!look(2, Duration::from_secs(60)).await);
        for _ in 0..9 {
            assert!(!look(2, LOOK_EVERY).await);
        }
        assert!(look(2, LOOK_EVERY).await);
        assert!(BEAT_EVERY < TRUSTED && TRUSTED < SILENT, "a holder has stopped before another one begins");
    }
}
