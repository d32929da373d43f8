//! Placements that move: from where they are to where an operator, or a policy, wants them.
//!
//! A move makes parts and lets parts grow before it takes any away, and the state directory has it before a member is asked
//! for anything. What is done is decided by what stands in the members, stage by stage, so that a move goes on after a kill
//! wherever it was. The record of a placement decides which parts are shown; the markers in the members follow it.

mod adopt;
mod advance;
mod automatic;
mod autoscalers;
mod body;
mod carried;
mod command;
mod forget;
mod fresh;
mod leave;
mod object;
mod orders;
mod overriding;
pub(super) mod part;
mod plan;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};

use self::{advance::Advanced, report::Stayed};
pub use self::{
    command::{Command, Verb},
    orders::MOVES_PATH,
    report::{LeftObject, MoveState, MovesReport, OverriddenPart, OverriddenValue, PartState},
};
pub use crate::write::fleet::NamedObject;
use crate::write::{
    LANDS_WITHIN, Writer,
    fleet::Fleet,
    journal::{JournalError, Placement, Stage},
};

/// How many placements are planned or worked on at once.
const AT_ONCE: usize = 8;
/// How many placements move at once: each has more pods than its number for a while.
const MOVING_MAX: usize = 32;
/// A move that waits so long no longer keeps others from beginning.
const TURN_MAX: Duration = Duration::from_secs(60);
/// How often a move that waits is looked at, at first, and at most.
const LOOK_FIRST: Duration = Duration::from_millis(250);
const LOOK_MAX: Duration = Duration::from_secs(10);

/// The moves that a task is working on.
#[derive(Debug)]
pub(super) struct Working {
    uids: Mutex<BTreeSet<String>>,
    permits: Semaphore,
    /// Who may move.
    turns: Semaphore,
    /// What does not move by policy.
    stayed: Mutex<Stayed>,
    /// The placements that get the overrides of now, and why they do not go on just now.
    overriding: Mutex<BTreeMap<String, Option<String>>>,
}

impl Default for Working {
    fn default() -> Self {
        let (permits, turns) = (Semaphore::new(AT_ONCE), Semaphore::new(MOVING_MAX));
        let (uids, stayed, overriding) = Default::default();
        Self { uids, permits, turns, stayed, overriding }
    }
}

impl<F: Fleet> Writer<F> {
    /// Tells the stores where placements are that have moved, before anything is served.
    pub(super) fn restore_moves(&self) {
        for Placement { key, uid, moved, .. } in self.journal.placements() {
            self.fleet.set_moved(&key, &uid, Some(Arc::new(moved)));
        }
        self.fleet.set_cordoned(self.journal.cordoned());
        self.fleet.follow_placed(self.journal.placed_kinds());
    }

    /// Goes on with every unfinished move: to be called at start, and whenever a member is reached that was not before. Returns
    /// at once; the work runs in the writer's tasks, one task per placement.
    pub fn resume_moves(self: &Arc<Self>) {
        for placement in self.journal.placements().into_iter().filter(Placement::is_unfinished) {
            let stage = placement.goal.as_ref().map(|goal| goal.stage);
            // What an earlier process sent may land still.
            let sends = matches!(stage, Some(Stage::Growing | Stage::Shrinking));
            self.work_on(placement.uid, if sends { LANDS_WITHIN } else { Duration::ZERO });
        }
        for overriding in self.journal.overridings() {
            self.override_parts(overriding.uid, LANDS_WITHIN);
        }
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            this.cancel.run_until_cancelled(this.sweep_moves()).await;
        });
    }

    fn work_on(self: &Arc<Self>, uid: String, after: Duration) {
        if !self.moving.uids.lock().insert(uid.clone()) {
            return;
        }
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let work = async {
                tokio::time::sleep(after).await;
                this.finish_move(&uid).await;
            };
            this.cancel.run_until_cancelled(work).await;
            this.moving.uids.lock().remove(&uid);
        });
    }

    /// Forgets the records of placements that are gone, whoever deleted them.
    async fn sweep_moves(&self) {
        let finished = self.journal.placements().into_iter().filter(|placement| !placement.is_unfinished());
        for placement in finished {
            if self.unknown_members(&placement).await.is_some() {
                continue;
            }
            let Some(hold) = self.fleet.hold(&placement.key).await else { continue };
            let stands =
                self.fleet.whole(&hold, &placement.key).is_some_and(|(visible, _)| visible.uid == placement.uid);
            if !stands {
                self.forget_moved(&placement).await;
            }
            self.fleet.release(hold).await;
        }
    }

    async fn finish_move(self: &Arc<Self>, uid: &str) {
        let (mut pause, mut stage) = (LOOK_FIRST, None);
        let (mut turn, mut has_begun_at) = (None, None);
        loop {
            let is_growing = || Some(self.journal.placement(uid)?.goal?.stage == Stage::Growing);
            if has_begun_at.is_none() && is_growing() == Some(true) {
                // It is never closed.
                turn = self.moving.turns.acquire().await.ok();
                has_begun_at = Some(Instant::now());
            }
            if has_begun_at.is_some_and(|at: Instant| at.elapsed() >= TURN_MAX) {
                drop(turn.take());
            }
            let advanced = {
                // It is never closed.
                let _permit = self.moving.permits.acquire().await;
                Box::pin(self.advance(uid)).await
            };
            match advanced {
                Advanced::Finished => return,
                Advanced::Further => {}
                Advanced::MayLand(problem) => {
                    self.note_problem(uid, &problem).await;
                    tokio::time::sleep(LANDS_WITHIN).await;
                }
                Advanced::Waits(problem) => {
                    self.note_problem(uid, &problem).await;
                    let now = self.journal.placement(uid).and_then(|placement| Some(placement.goal?.stage));
                    pause = if now == stage { (pause * 2).min(LOOK_MAX) } else { LOOK_FIRST };
                    stage = now;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Notes why a move does not go on.
    async fn note_problem(&self, uid: &str, problem: &str) {
        let Some(mut placement) = self.journal.placement(uid) else { return };
        let Some(goal) = placement.goal.as_mut().filter(|goal| goal.problem.as_deref() != Some(problem)) else {
            return;
        };
        tracing::info!(object = %placement.key, why = goal.why, problem, "a move waits");
        goal.problem = Some(problem.to_owned());
        // It is for people: after a kill it is found again.
        drop(self.journal.keep_placement(placement).await);
    }

    /// Keeps the record of a placement, and shows what it changes.
    ///
    /// Errors: the disk refuses; then nothing has changed.
    pub(super) async fn keep_moved(&self, placement: &Placement) -> Result<(), JournalError> {
        self.journal.keep_placement(placement.clone()).await?;
        if self.fleet.moved(&placement.uid).is_none_or(|known| *known != placement.moved) {
            self.fleet.set_moved(&placement.key, &placement.uid, Some(Arc::new(placement.moved.clone())));
        }
        Ok(())
    }

    /// Forgets a placement that is gone.
    pub(super) async fn forget_moved(&self, placement: &Placement) {
        self.journal.forget_placement(&placement.uid).await;
        self.fleet.set_moved(&placement.key, &placement.uid, None);
    }
}
