//! The reflector: per member and kind, the list and watch that feed a fleet store.
//!
//! It resumes where its watch broke; only when the member says 410, is another or a restored cluster, or was not ready
//! in between does it list again, and then that member only. What it does not know it never calls a deletion.
//!
//! One cycle of files: `Reflector` is one type, its requests to the member stand in `requests`, and how it begins with what the
//! mirror has in `restored`.
//!
//! [`state`] decides, and this file drives: it does what the machine says and tells it what came of it.

mod error;
mod progress;
mod report;
mod requests;
mod restored;
mod state;
mod together;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::StatusCode;
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    member::{Member, metrics::ListReason},
    mirror::Mirror,
    store::{Entry, FleetStore, SLICE_ITEMS_MAX},
    upstream::{Class, Health, cause::Cause},
};
use kubefold_wire::{
    list::split,
    watch::{Event, EventType, Lines},
};
use {
    error::SessionError,
    requests::{PAGE_ITEMS, StatusSaid, bookmark, ok, revision},
    restored::Restored,
    state::{Action, Begin, Input, Machine},
};

pub(crate) use {
    report::ReflectorState,
    requests::{METADATA, METADATA_LIST},
    together::{Stage, Together, Turn},
};

/// A member that says 429 is left alone for as long as it says, but not for longer.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// How often in a row a kind that its member makes ready is asked for after the shortest pause.
const INITIALIZING_MAX: u32 = 10;
/// A session shorter than this was none.
const SESSION_MIN: Duration = Duration::from_secs(5);
/// A member ends our watches after this, each a little later than the one before, so that they do not all end at once.
const WATCH_SECONDS: u64 = 300;
/// How long a page of a list waits for the mirror's tables.
const UNWRITTEN_MAX: Duration = Duration::from_secs(10);
/// A kube-apiserver begins a watch with all that it has to tell. When nothing has come for so long, that was all.
const QUIET: Duration = Duration::from_millis(250);

/// Feeds one member's objects of one kind to their store, until it is cancelled.
pub(crate) struct Reflector {
    pub(crate) member: Arc<Member>,
    pub(crate) store: Arc<FleetStore>,
    /// Only parts are followed, by what of them says who they are.
    pub(crate) of_parts: bool,
    /// What an earlier process was told.
    pub(crate) mirror: Option<Arc<Mirror>>,
    /// When it may begin, where that depends on the other reflectors of the store.
    pub(crate) turn: Option<Turn>,
    pub(crate) state: Arc<ReflectorState>,
    pub(crate) cancel: CancellationToken,
}

impl Reflector {
    /// Runs until cancelled. Cancel: safe at any point; the store keeps what it has.
    pub(crate) async fn run(mut self) {
        let turn = self.turn.take();
        let Some(mut machine) = self.cancel.run_until_cancelled(self.begin(turn)).await else { return };
        let mut initializing = 0;
        loop {
            let began = Instant::now();
            let first = machine.apply(Input::Began { outages: self.member.outages() });
            // A member that goes down ends the session, though its connection may not know yet: what comes after an
            // outage is a watch begun anew, which asks first whether it still is the same cluster.
            let outcome = tokio::select! {
                () = self.cancel.cancelled() => return,
                outcome = self.session(&mut machine, first) => outcome,
                cause = self.member.goes_down() => Err(SessionError::Down(cause)),
            };
            let lasted = began.elapsed() >= SESSION_MIN;
            let input = match outcome {
                Ok(()) => {
                    initializing = 0;
                    Input::Ended { lasted }
                }
                Err(error) => {
                    initializing = if error.is_initializing() { initializing + 1 } else { 0 };
                    // A kind that was defined a moment ago is ready in another: no reason to tell of, nor for longer pauses.
                    let is_new = (1..=INITIALIZING_MAX).contains(&initializing);
                    if !is_new {
                        self.note(&error);
                    }
                    Input::Failed {
                        lasted: lasted || is_new,
                        ready: self.member.health() == Health::Ready && !matches!(error, SessionError::Down(_)),
                        again: error.lists_again(),
                        retry_after: error.retry_after().min(RETRY_AFTER_MAX),
                    }
                }
            };
            if let Action::Pause { pause, at_least } = machine.apply(input) {
                self.rest(pause, at_least).await;
            }
        }
    }

    /// Begins with what the mirror has, or with nothing.
    async fn begin(&self, turn: Option<Turn>) -> Machine {
        let outages = self.member.outages();
        let restored = match turn {
            Some(turn) => turn.take(self.restore()).await,
            None => self.restore().await,
        };
        match restored {
            None => Machine::new(outages),
            Some(Restored::At(position)) => {
                Machine::restored(outages, self.member.incarnation(), Begin::Resume(position))
            }
            Some(Restored::Old) => Machine::restored(outages, self.member.incarnation(), Begin::Afresh),
        }
    }

    /// Does what the machine says, from the first action of a session until its watch ends.
    async fn session(&self, machine: &mut Machine, first: Action) -> Result<(), SessionError> {
        let (admission, mut action) = (self.member.admission(), first);
        loop {
            let input = match action {
                Action::Identify => {
                    let check = self.member.share_identity(machine.is_without_history());
                    let incarnation = admission.begin(check).await?;
                    let uid = self.member.cluster_uid().unwrap_or_default();
                    if self.store.cluster_uid(self.member.name()).is_some_and(|known| known != uid) {
                        machine.distrust();
                    }
                    self.store.join(self.member.name(), &uid);
                    Input::Identified { incarnation }
                }
                Action::Compare { forget } => {
                    self.forget(forget);
                    Input::Compared { backwards: admission.begin(self.is_backwards()).await? }
                }
                Action::Describe { forget } => {
                    self.forget(forget);
                    Input::Described { changed: Box::pin(admission.begin(self.is_redefined())).await }
                }
                Action::List(reason) => {
                    self.member.reflectors().listed(reason);
                    Input::Listed(self.list().await?)
                }
                Action::Watch(from) => return self.watch(from, machine).await,
                Action::Read | Action::Pause { .. } | Action::Begin => return Ok(()),
            };
            action = machine.apply(input);
        }
    }

    /// Forgets the history of the member whose objects the store has: their bytes are compared with what comes now.
    fn forget(&self, reason: Option<ListReason>) {
        let (member, kind) = (self.member.name(), self.store.spec().label());
        match reason {
            None => return,
            Some(ListReason::OtherCluster) => {
                let cause = Cause::OtherCluster;
                self.member.meter().failed(cause);
                tracing::warn!(%member, cause = cause.as_str(), "the member is another cluster than before");
            }
            Some(ListReason::RevisionsBackwards) => {
                let cause = Cause::RevisionsBackwards;
                self.member.meter().failed(cause);
                tracing::warn!(%member, %kind, cause = cause.as_str(), "the member's revisions went backwards: it was restored from a backup");
            }
            Some(_) => {}
        }
        self.store.reset(member);
    }

    /// Says why the member is not followed: to readers at once, to the log once for each cause, to the metrics every time.
    fn note(&self, error: &SessionError) {
        let cause = error.cause();
        // What failed on its way was counted there.
        if !matches!(error, SessionError::Upstream(_) | SessionError::Down(_)) && Some(cause) != error.counted() {
            self.member.meter().failed(cause);
            self.member.note(&format!("{}: {error}", self.store.spec().label()));
        }
        if self.state.tell(cause) {
            let (member, kind) = (self.member.name(), self.store.spec().label());
            tracing::warn!(%member, %kind, cause = cause.as_str(), %error, "the member is not followed");
        }
        self.state.fail(&error.to_string());
        if error.is_about_order() && self.state.find_unordered() {
            // Who waits for the first list need not.
            self.store.wake();
        }
    }

    /// Pauses, and no less than the member asked for. Ends early when cancelled.
    async fn rest(&self, pause: Duration, at_least: Duration) {
        let resting = async {
            let asked_for = Instant::now() + at_least;
            self.pause(pause.max(at_least)).await;
            sleep_until(asked_for).await;
        };
        self.cancel.run_until_cancelled(resting).await;
    }

    /// Waits; while the member is down until it is not, otherwise no longer than until it becomes ready.
    async fn pause(&self, pause: Duration) {
        let mut health = self.member.health_changes();
        if health.borrow_and_update().is_down() {
            // While it is down, asking is useless: the probe says when it is not.
            let _closed = health.wait_for(|health| !health.is_down()).await;
            return;
        }
        let becomes_ready = async {
            while health.changed().await.is_ok() {
                if *health.borrow_and_update() == Health::Ready {
                    return;
                }
            }
        };
        // Either end of the wait will do.
        let _elapsed = timeout(pause, becomes_ready).await;
    }

    /// Says whether the member's revision is below the position.
    async fn is_backwards(&self) -> Result<bool, SessionError> {
        let position = self.store.position(self.member.name());
        if position == 0 {
            self.state.current.store(0, Ordering::Relaxed);
            return Ok(false);
        }
        let now = self.revision().await?;
        self.state.current.store(now, Ordering::Relaxed);
        Ok(now < position)
    }

    /// Says whether the kind is a custom resource whose definition changed since this was last asked.
    ///
    /// Then its objects may read differently at the same revision, by other defaults. A kube-apiserver tells no event of that,
    /// but it ends every watch of the kind a second later, or when requests under way are done, in two minutes at most
    /// (kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go`, `tearDown`). What cannot be read has
    /// not changed.
    async fn is_redefined(&self) -> bool {
        let Some(now) = self.definition().await else { return false };
        let before = self.state.definition.swap(now, Ordering::Relaxed);
        before > 0 && before != now
    }

    /// Lists everything, page by page, at one revision.
    async fn list(&self) -> Result<u64, SessionError> {
        let name = self.member.name();
        let mut token = String::new();
        let mut at = None;
        let mut page_items = PAGE_ITEMS;
        self.state.begin_list();
        loop {
            // Before the page has room that others wait for, too.
            if self.store.passes() {
                self.room().await;
            }
            // The room of the page is given back with its bytes, when all of it is in the store.
            let (_room, body) = self.page(&token, &mut page_items).await?;
            let (meta, items) = split(&body)?;
            self.state.measure(body.len(), items.len());
            self.state.note_progress(|progress| progress.page(items.len(), meta.remaining_item_count));
            let list = revision(&meta.resource_version)?;
            if *at.get_or_insert(list) != list {
                return Err(SessionError::Revision(meta.resource_version));
            }
            if token.is_empty() {
                let position = self.store.position(name);
                if list < position {
                    return Err(SessionError::OldList { list, position });
                }
                self.store.begin_list(name);
            }
            for slice in items.chunks(SLICE_ITEMS_MAX) {
                self.room_in_page().await?;
                let bad = self.member.admission().slice(|| self.store.list_slice(name, slice)).await;
                if let Some(bad) = bad.into_iter().next() {
                    // Left out it would read as deleted: the list as a whole does not count.
                    return Err(bad.into());
                }
                self.state.note_progress(|progress| progress.add(slice.len()));
                tokio::task::yield_now().await;
            }
            token = meta.continue_token;
            if token.is_empty() {
                let doomed = self.store.end_list(name, list);
                self.state.end_list();
                self.remove(&doomed).await;
                if self.mirror.is_some() {
                    self.store.track(name, self.state.definition.load(Ordering::Relaxed), true);
                }
                return Ok(list);
            }
        }
    }

    /// Removes in slices what a list did not see.
    async fn remove(&self, doomed: &[Arc<Entry>]) {
        for slice in doomed.chunks(SLICE_ITEMS_MAX) {
            self.room().await;
            self.store.remove_slice(slice);
            tokio::task::yield_now().await;
        }
    }

    /// Waits until no watcher that still moves is more than half a ring behind.
    async fn room(&self) {
        while !self.store.has_room() {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The same while a page waits. It does not wait for long where the tables cannot be written, since it has room that all kinds share.
    async fn room_in_page(&self) -> Result<(), SessionError> {
        if !self.store.passes() {
            self.room().await;
            return Ok(());
        }
        timeout(UNWRITTEN_MAX, self.room()).await.map_err(|_| SessionError::Unwritten)
    }

    async fn watch(&self, from: u64, machine: &mut Machine) -> Result<(), SessionError> {
        let name = self.member.name();
        let seconds = WATCH_SECONDS + from % WATCH_SECONDS;
        let query = format!("?watch=1&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}");
        let response = self.ask(&query, Class::Watch).await?;
        if response.status() == StatusCode::GONE {
            return Err(SessionError::Expired(from));
        }
        let mut body = ok(response, "watch").await?;
        self.state.heal();
        if self.state.watched.swap(true, Ordering::Relaxed) {
            self.member.reflectors().watch_restarted();
        }
        self.resume_if_level();
        let mut lines = Lines::default();
        let lasts = Instant::now() + SESSION_MIN;
        let mut quiet = Instant::now() + QUIET;
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = self.store.is_lost(name), if self.store.passes() => return Err(SessionError::Lost),
                () = sleep_until(quiet), if self.state.is_restored() => {
                    self.resumed();
                    continue;
                }
                // In the middle of an event it may turn out to be one without end.
                () = sleep_until(lasts), if !self.state.is_settled() && !lines.is_mid_line() => {
                    self.settled();
                    continue;
                }
            };
            let Some(frame) = frame else { break };
            let Ok(chunk) = frame?.into_data() else { continue };
            lines.push(&chunk)?;
            while let Some(line) = lines.next_line() {
                if self.store.passes() {
                    self.room().await;
                }
                self.take(&Event::parse(&line)?)?;
                machine.apply(Input::Progress(self.store.position(name)));
            }
            quiet = Instant::now() + QUIET;
            self.resume_if_level();
        }
        if lines.is_mid_line() {
            return Err(SessionError::Torn);
        }
        tracing::debug!(member = %name, kind = %self.store.spec().label(), "the member ended the watch");
        Ok(())
    }

    /// The watch has lasted: what went wrong before it is over.
    fn settled(&self) {
        if self.state.settle() {
            tracing::info!(member = %self.member.name(), kind = %self.store.spec().label(), "the member is followed again");
        }
    }

    fn take(&self, event: &Event<'_>) -> Result<(), SessionError> {
        let name = self.member.name();
        match event.event_type {
            EventType::Added | EventType::Modified | EventType::Deleted => self.store.watch_event(name, event)?,
            EventType::Bookmark => self.store.bookmark(name, bookmark(event.object)?),
            EventType::Error => {
                let status: StatusSaid = serde_json::from_str(event.object).unwrap_or_default();
                if status.code == StatusCode::GONE.as_u16() {
                    return Err(SessionError::Expired(self.store.position(name)));
                }
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                return Err(SessionError::Status { code, what: "watch", message: status.message, retry_after: None });
            }
        }
        Ok(())
    }
}
