//! How it goes with the database, for all who use it.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{
    mark::{Mark, Seen},
    replicas::Known,
};
use crate::{
    backend::{Announcement, Found, Keeper, Replica},
    error::SqlError,
    server::Server,
};

/// How long a holder acts by a change of the row that was answered, from when it was sent.
pub(super) const TRUSTED: Duration = Duration::from_secs(2);

/// A database that is this process's.
pub(super) struct Held {
    pub(super) keeper: Box<dyn Keeper>,
    pub(super) identity: String,
    pub(super) epoch: i64,
    pub(super) beat: i64,
    /// The highest number that earlier holders reserved.
    pub(super) number: i64,
    /// Sent before the row was this process's.
    pub(super) since: Instant,
    /// It is older than what was seen of it, or another one.
    pub(super) is_restored: bool,
}

/// How it goes with a database.
#[derive(Clone, Debug, Default)]
pub struct RemoteFigures {
    /// How long it cannot be reached; absent while it can.
    pub away: Option<Duration>,
    /// Why it cannot be reached, or why this process may not write any more.
    pub error: Option<String>,
    /// This process may not write any more.
    pub is_lost: bool,
    /// This process may act as the one that has the database: its lease is not lost, and was renewed a moment ago.
    pub is_held: bool,
    /// Connections and statements that failed since the start.
    pub failures: u64,
}

/// Whether a process may tell its clients what it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayTell {
    /// It has the database.
    Yes,
    /// That is to be found out, which takes a moment.
    Unclear,
    /// Another process may have it: it tells what comes next.
    No,
}

impl MayTell {
    /// Of one that has lost the database, or renewed its lease so long ago. One that stood still does not know whether another one has
    /// taken its place until the database has answered, or is known not to answer.
    fn of(is_lost: bool, renewed: Duration, is_away: impl FnOnce() -> bool) -> Self {
        match () {
            () if is_lost => Self::No,
            () if renewed < TRUSTED || is_away() => Self::Yes,
            () => Self::Unclear,
        }
    }
}

/// Whether it answers, and whether it is this process's.
#[derive(Debug)]
pub(super) struct Standing {
    place: String,
    /// What the server is called.
    engine: &'static str,
    /// As it was last seen in the row of the holder.
    seen: Mutex<Seen>,
    mark: Mark,
    away: Mutex<Option<Away>>,
    failures: AtomicU64,
    /// When the database became this process's.
    since: Instant,
    /// How long after that the last change of the row that was answered was sent. Units: microseconds.
    held: AtomicU64,
    /// The number that this process would reserve, and the one that is reserved.
    wanted: AtomicI64,
    reserved: watch::Sender<i64>,
    /// Has the row changed at once.
    asked: Notify,
    /// What this process says of itself to the others, and what is known of them.
    announcement: Mutex<Option<Announcement>>,
    has_announced: Notify,
    replicas: Mutex<Known>,
    /// Why this process may not write any more.
    lost: OnceLock<String>,
    /// Whether that is so, for those who wait for it.
    is_over: watch::Sender<bool>,
    /// Whether nothing keeps the lease any more.
    is_left: watch::Sender<bool>,
}

#[derive(Debug)]
struct Away {
    since: Instant,
    why: String,
}

impl Standing {
    pub(super) fn new(server: &Server, held: &Held, mark: Mark) -> Self {
        Self {
            place: server.place(),
            engine: server.engine(),
            seen: Mutex::new(Seen { identity: held.identity.clone(), epoch: held.epoch, beat: held.beat }),
            mark,
            away: Mutex::default(),
            failures: AtomicU64::default(),
            since: held.since,
            held: AtomicU64::new(0),
            wanted: AtomicI64::new(held.number),
            reserved: watch::Sender::new(held.number),
            asked: Notify::new(),
            announcement: Mutex::default(),
            has_announced: Notify::new(),
            replicas: Mutex::new(Known::nobody()),
            lost: OnceLock::new(),
            is_over: watch::Sender::new(false),
            is_left: watch::Sender::new(false),
        }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn beat(&self) -> i64 {
        self.seen.lock().beat
    }

    /// Notes how far the database was seen.
    pub(super) fn saw(&self, beat: i64, is_noted: bool) {
        self.seen.lock().beat = beat;
        if is_noted {
            self.note();
        }
    }

    /// Notes outside of the database how far it was seen.
    fn note(&self) {
        let seen = self.seen.lock().clone();
        self.mark.write(&seen);
    }

    /// The row was changed by what was sent then, and has this number.
    pub(super) fn holds(&self, sent: Instant, number: i64) {
        let held = sent.duration_since(self.since).as_micros();
        self.held.store(u64::try_from(held).unwrap_or(u64::MAX), Ordering::Release);
        self.reserved.send_replace(number);
    }

    /// Asks that a later holder is told of a number: that it is at least this one. Gives the one that is kept by now.
    pub(super) fn reserve(&self, number: i64) -> i64 {
        self.wanted.fetch_max(number, Ordering::AcqRel);
        *self.reserved.borrow()
    }

    /// The same, and waits until it is kept.
    pub(super) async fn reserved(&self, number: i64) {
        let mut reserved = self.reserved.subscribe();
        self.reserve(number);
        self.asked.notify_one();
        // It lives as long as this.
        let _kept = reserved.wait_for(|kept| *kept >= number).await;
    }

    pub(super) fn wanted(&self) -> i64 {
        self.wanted.load(Ordering::Acquire)
    }

    pub(super) async fn is_asked(&self) {
        self.asked.notified().await;
    }

    pub(super) fn announce(&self, of: Announcement) {
        *self.announcement.lock() = Some(of);
        self.has_announced.notify_one();
    }

    pub(super) fn announced(&self) -> Option<Announcement> {
        self.announcement.lock().clone()
    }

    pub(super) async fn has_announced(&self) {
        self.has_announced.notified().await;
    }

    pub(super) fn knows(&self, known: Known) {
        *self.replicas.lock() = known;
    }

    pub(super) fn replicas(&self) -> Vec<Replica> {
        self.replicas.lock().now()
    }

    pub(super) fn may_beat(&self) -> bool {
        self.lost.get().is_none()
    }

    /// Says whether this process may act as the holder now. Errors: why it may not.
    pub(super) fn check(&self) -> Result<(), SqlError> {
        if let Some(lost) = self.lost() {
            return Err(lost);
        }
        let since = self.renewed();
        if since < TRUSTED {
            return Ok(());
        }
        let why = self.away.lock().as_ref().map(|away| away.why.clone());
        Err(SqlError::away(why.unwrap_or_else(|| {
            format!(
                "{} ({}) has not renewed the lease of this process for {} ms",
                self.engine,
                self.place,
                since.as_millis()
            )
        })))
    }

    /// How long ago the lease was renewed. No lock: it is asked before each event.
    fn renewed(&self) -> Duration {
        self.since.elapsed().saturating_sub(Duration::from_micros(self.held.load(Ordering::Acquire)))
    }

    /// Says whether what this process knows may be told.
    pub(super) fn may_tell(&self) -> MayTell {
        MayTell::of(self.lost.get().is_some(), self.renewed(), || self.away.lock().is_some())
    }

    /// This process would write nothing more: the next one may begin.
    pub(super) fn release(&self) {
        let why = || format!("this process ends, and has left the state in {} to the next one", self.engine);
        self.lost.get_or_init(why);
        self.note();
        self.is_over.send_replace(true);
        self.asked.notify_one();
    }

    /// Nothing keeps the lease any more.
    pub(super) fn leave(&self) {
        self.is_left.send_replace(true);
    }

    pub(super) async fn is_left(&self) {
        let mut is_left = self.is_left.subscribe();
        let _left = is_left.wait_for(|is_left| *is_left).await;
    }

    pub(super) async fn is_over(&self) -> String {
        let mut is_over = self.is_over.subscribe();
        let _over = is_over.wait_for(|is_over| *is_over).await;
        self.lost.get().cloned().unwrap_or_default()
    }

    /// It answers.
    pub(super) fn answers(&self) {
        let before = self.away.lock().take();
        if let Some(before) = before {
            let seconds = before.since.elapsed().as_secs();
            tracing::info!(place = self.place, seconds, "{} can be reached again", self.engine);
        }
    }

    /// It does not. Gives the error as whoever asked is told it.
    pub(super) fn fails(&self, error: &SqlError) -> SqlError {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let why = format!("{} ({}) cannot be reached: {error}", self.engine, self.place);
        let mut away = self.away.lock();
        match &mut *away {
            Some(away) => away.why.clone_from(&why),
            None => {
                tracing::error!("{why}");
                *away = Some(Away { since: Instant::now(), why: why.clone() });
            }
        }
        SqlError::away(why)
    }

    /// This process may not write any more.
    pub(super) fn lose(&self, holder: &Found, epoch: i64) -> SqlError {
        let why = self.lost.get_or_init(|| {
            let engine = self.engine;
            let why = match holder.epoch > epoch {
                true => format!("{} has the state in {engine} since; this process writes nothing more", holder.holder),
                false => format!("the state in {engine} was restored from a backup; start kubefold again"),
            };
            tracing::error!(place = self.place, "{why}");
            self.note();
            why
        });
        self.is_over.send_replace(true);
        self.asked.notify_one();
        SqlError::lost(why.clone())
    }

    pub(super) fn lost(&self) -> Option<SqlError> {
        self.lost.get().map(|why| SqlError::lost(why.clone()))
    }

    pub(super) fn figures(&self) -> RemoteFigures {
        let is_held = self.check().is_ok();
        let away = self.away.lock();
        let why = self.lost.get().or_else(|| away.as_ref().map(|away| &away.why));
        RemoteFigures {
            away: away.as_ref().map(|away| away.since.elapsed()),
            error: why.cloned(),
            is_lost: self.lost.get().is_some(),
            is_held,
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stood_still_does_not_know_whether_it_may_tell() {
        let (now, later) = (Duration::ZERO, TRUSTED);
        for (is_lost, renewed, is_away, may_tell) in [
            (false, now, false, MayTell::Yes),
            (false, later, false, MayTell::Unclear),
            (false, later, true, MayTell::Yes),
            (true, now, false, MayTell::No),
            (true, later, true, MayTell::No),
        ] {
            assert_eq!(MayTell::of(is_lost, renewed, || is_away), may_tell, "{is_lost} {renewed:?} {is_away}");
        }
    }
}
