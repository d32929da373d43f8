//! Settling: unfinished writes are finished or taken back, as the home says.
//!
//! A create is committed by its home part: the home exists, so the write is finished and never taken back; it does not,
//! and no byte can land any more, so the other parts go. A delete is committed by the home's deletion.

mod arrival;
mod create;
mod renamed;

use std::{collections::hash_map, sync::Arc, time::Duration};

use futures::FutureExt;
use http::HeaderValue;
use tokio::{sync::Notify, time::Instant};

use crate::write::{
    GONE_WITHIN, LANDS_WITHIN, Writer, companions,
    delete::delete_step,
    fleet::{Fleet, Part},
    journal::{Entry, EntryTarget, Step, Verb},
    options::of_part,
    steps::{Found, Outcome, Removed, Seen, Settled, removed},
};
pub(super) use arrival::ARRIVING_MAX;
use kubefold_serving::audit;
use kubefold_wire::warning::Warnings;

/// How often an entry is tried before only a member's recovery, or the next start, has it tried again.
const TRIES_MAX: u32 = 8;
/// The pause after the first try; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(10);

/// Does work for an entry under the `Audit-ID` of the request that it is of.
async fn under_id_of<W: Future>(entry: &Entry, work: W) -> W::Output {
    match entry.audit_id.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
        Some(id) => audit::scoped(id, None, work).await,
        None => work.await,
    }
}

impl<F: Fleet> Writer<F> {
    /// Tries every unfinished write again: to be called at start, when the first round of contacts is over, and whenever a
    /// member recovers. Returns at once; the work runs in the writer's tasks, one task per write.
    pub fn replay(self: &Arc<Self>) {
        for entry in self.journal.open_entries() {
            self.settle(entry.id, None, Duration::ZERO);
        }
    }

    /// Settles a write whose outcome is not known, with its key held until that is.
    pub(super) fn settle_held(self: &Arc<Self>, id: u64, hold: F::Hold) {
        self.settle(id, Some(hold), Duration::ZERO);
    }

    /// Goes on with a write that is behind, a little later.
    pub(super) fn settle_later(self: &Arc<Self>, id: u64) {
        self.settle(id, None, PAUSE_FIRST);
    }

    /// Starts the task that settles a write, or wakes the one that does.
    fn settle(self: &Arc<Self>, id: u64, hold: Option<F::Hold>, after: Duration) {
        let wake = match self.settling.lock().entry(id) {
            hash_map::Entry::Occupied(known) if hold.is_none() => return known.get().notify_one(),
            hash_map::Entry::Occupied(known) => known.get().clone(),
            hash_map::Entry::Vacant(free) => free.insert(Arc::default()).clone(),
        };
        let this = self.clone();
        self.tasks.spawn(async move {
            let (mut hold, mut after) = (hold, after);
            let settled = loop {
                let tries = this.try_to_settle(id, hold.take(), after, &wake);
                let settled = this.cancel.run_until_cancelled(tries).await.flatten();
                after = Duration::ZERO;
                // Whoever wakes it finds it here, or begins anew.
                let mut settling = this.settling.lock();
                let is_woken = wake.notified().now_or_never().is_some();
                if settled.is_some() || this.cancel.is_cancelled() || !is_woken {
                    settling.remove(&id);
                    break settled;
                }
            };
            if let Some((entry, settled)) = settled {
                under_id_of(&entry, companions::settled(&this, &entry)).await;
                if settled == Settled::GivenUp {
                    this.resume_on_arrival(entry).await;
                }
            }
        });
    }

    /// Has a write that is being settled tried again now.
    pub(super) fn wake(&self, id: u64) {
        if let Some(wake) = self.settling.lock().get(&id) {
            wake.notify_one();
        }
    }

    /// Gives the entry as it was before it was closed, and what it came to; `None` if it is open still, or somebody else closed
    /// it.
    async fn try_to_settle(
        &self,
        id: u64,
        mut hold: Option<F::Hold>,
        after: Duration,
        wake: &Notify,
    ) -> Option<(Entry, Settled)> {
        let mut pause = if after.is_zero() { PAUSE_FIRST } else { after };
        if !after.is_zero() {
            self.pause(after, wake).await;
        }
        for tried in 1..=TRIES_MAX {
            let (entry, _) = self.journal.open_entry(id)?;
            if hold.is_none() {
                hold = self.fleet.hold(&entry.key).await;
            }
            if let Some(hold) = hold.take() {
                let settled = under_id_of(&entry, self.settle_once(id, wake)).await;
                self.fleet.show(&entry.key);
                self.fleet.release(hold).await;
                if settled != Settled::Open {
                    return Some((entry, settled));
                }
            }
            // Who wakes this after the last try has all of them begin anew.
            if tried < TRIES_MAX {
                self.pause(pause, wake).await;
                pause *= 2;
            }
        }
        tracing::warn!(entry = id, "an unfinished write waits for its members to recover");
        None
    }

    /// Waits, but not once a member has recovered.
    async fn pause(&self, pause: Duration, wake: &Notify) {
        let _either = tokio::time::timeout(pause, wake.notified()).await;
    }

    /// One try, under the key's hold.
    async fn settle_once(&self, id: u64, wake: &Notify) -> Settled {
        let Some((mut entry, last_byte)) = self.journal.open_entry(id) else { return Settled::Closed };
        let members = self.fleet.members();
        if entry.targets.iter().any(|target| !members.contains(&target.member)) {
            self.under_names_of_now(&entry).await;
            let Some((renamed, _)) = self.journal.open_entry(id) else { return Settled::Closed };
            entry = renamed;
        }
        let Some((home, others)) = entry.targets.split_first() else { return self.close(&entry).await };
        let landed = last_byte + LANDS_WITHIN;
        match entry.verb {
            Verb::Create => {
                let stands = |found: &Found| !matches!(found, Found::Absent | Found::Stranger { .. });
                let found = self.find_landed(&entry, home, landed, wake, stands).await;
                self.settle_create(&entry, home, others, found).await
            }
            Verb::Update => {
                let settled = self.settle_update(&entry, last_byte, wake).await;
                if settled != Settled::Open {
                    self.journal.finish(entry.id);
                }
                settled
            }
            Verb::Delete if matches!(home.step, Step::Done { .. }) => self.delete_others(&entry, others).await,
            Verb::Delete => {
                let stands = |found: &Found| matches!(found, Found::Part { deleting: false, .. });
                let found = self.find_landed(&entry, home, landed, wake, |found| !stands(found)).await;
                self.settle_delete(&entry, home, others, found).await
            }
        }
    }

    /// Looks at the home until what is there proves something: while the mutation may still land, what it finds undone
    /// does not, and a home that cannot be asked may return.
    async fn find_landed(
        &self,
        entry: &Entry,
        home: &EntryTarget,
        landed: Instant,
        wake: &Notify,
        done: impl Fn(&Found) -> bool,
    ) -> Found {
        loop {
            let may_still_land = Instant::now() < landed;
            let found = self.find(entry, home).await;
            if !may_still_land || (done(&found) && !matches!(found, Found::Unreachable(_))) {
                return found;
            }
            let _either = tokio::time::timeout_at(landed, wake.notified()).await;
        }
    }

    async fn close(&self, entry: &Entry) -> Settled {
        self.journal.finish(entry.id);
        Settled::Closed
    }

    fn given_up(&self, entry: &Entry) -> Settled {
        self.journal.finish(entry.id);
        Settled::GivenUp
    }

    async fn settle_delete(&self, entry: &Entry, home: &EntryTarget, others: &[EntryTarget], found: Found) -> Settled {
        match found {
            Found::Part { deleting: true, body, .. } => self.fleet.ingest(&entry.key, &home.member, &body).await,
            Found::Absent | Found::Stranger { .. } => self.wait_gone(entry, home, home.own_uid.as_deref()).await,
            Found::Elsewhere => {
                tracing::warn!(object = %entry.key, member = %home.member, "an unfinished delete is given up: \
                    its home is no longer in the configuration, or is another cluster; its remaining parts stay");
                return self.close(entry).await;
            }
            // It never landed: nobody was told that it did.
            Found::Part { deleting: false, .. } => return self.given_up(entry),
            Found::Unreachable(cause) => {
                tracing::debug!(object = %entry.key, member = %home.member, cause, "an unfinished delete waits for its home");
                return Settled::Open;
            }
        }
        self.journal.step(entry.id, &home.member, Step::Done { uid: None }).await;
        self.delete_others(entry, others).await
    }

    async fn delete_others(&self, entry: &Entry, others: &[EntryTarget]) -> Settled {
        self.journal.end_others(entry).await;
        let mut open = false;
        for target in others.iter().filter(|target| !matches!(target.step, Step::Done { .. })) {
            open |= !self.delete_part(entry, target).await;
        }
        if open { Settled::Open } else { self.close(entry).await }
    }

    /// Deletes a part that is behind. Says whether that is done.
    async fn delete_part(&self, entry: &Entry, target: &EntryTarget) -> bool {
        // What an unfinished create sent there was sent before the delete began.
        let landed = self.journal.began(entry.id).is_none_or(|began| Instant::now() >= began + LANDS_WITHIN);
        let uid = match self.find(entry, target).await {
            Found::Absent | Found::Stranger { .. } if target.own_uid.is_none() && !landed => return false,
            Found::Part { .. } if self.is_made_anew(entry, target) => {
                self.journal.step(entry.id, &target.member, Step::Done { uid: None }).await;
                return true;
            }
            // A part that was made anew since is not the one that was deleted.
            Found::Part { uid, .. } if target.own_uid.as_ref().is_none_or(|own| *own == uid) => uid,
            Found::Part { .. } | Found::Stranger { .. } | Found::Absent | Found::Elsewhere => {
                self.journal.step(entry.id, &target.member, Step::Done { uid: None }).await;
                return true;
            }
            Found::Unreachable(cause) => {
                self.journal.step(entry.id, &target.member, Step::Failed(cause)).await;
                return false;
            }
        };
        let options = of_part(&entry.body, &uid, None, false);
        let outcome = self.remove(entry, &target.member, options, false, &mut Warnings::default()).await;
        match (&outcome, removed(&outcome)) {
            (Outcome::Done { body, .. }, Removed::Requested) => {
                self.fleet.ingest(&entry.key, &target.member, body).await;
            }
            (_, Removed::Gone) => self.wait_gone(entry, target, Some(&uid)).await,
            (_, Removed::Requested | Removed::Left(_)) => {}
        }
        let step = delete_step(&outcome);
        let done = matches!(step, Step::Done { .. });
        self.journal.step(entry.id, &target.member, step).await;
        done
    }

    /// Says whether a shared object, of whose part there is no UID to know it by, stands again: elsewhere it is not on its way
    /// out, or is about to be made.
    fn is_made_anew(&self, entry: &Entry, target: &EntryTarget) -> bool {
        let stands = |part: &Part| part.member != target.member && !Seen::of(&part.json).deleting;
        let is_made = || self.journal.open_create(&entry.key).is_some_and(|create| create.uid != entry.uid);
        entry.shared && target.own_uid.is_none() && (self.fleet.parts(&entry.key).iter().any(stands) || is_made())
    }

    /// Waits (bounded) until the store knows that a part is gone, so that its key is not shown in between.
    async fn wait_gone(&self, entry: &Entry, target: &EntryTarget, own_uid: Option<&str>) {
        if let Some(uid) = own_uid {
            self.fleet.wait_gone(&entry.key, &target.member, uid, GONE_WITHIN).await;
        }
    }
}
