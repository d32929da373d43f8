//! Which stores may be read, and what a reader must be told: docs/design/reads.md#unknown-members.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    catalog::Catalog,
    config::MemberName,
    member::{Member, reflector::ReflectorState},
    respond::StoresError,
    store::{Audience, FleetStore},
    stores::{FILLING_WAIT_MAX, Running, Stores, readiness::Unfilled},
    upstream::Health,
    view::Mode,
};
use kubefold_wire::{resource::Gvr, warning::Warnings};

/// How long a read waits for members that are not known yet.
pub const UNKNOWN_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long one of the lenient view does, while they may yet come.
const LENIENT_WAIT_MAX: Duration = Duration::from_secs(3);
/// How often it is looked whether a member is still to be waited for that has not told yet what is new.
const RESUMING_LOOK: Duration = Duration::from_millis(100);
/// A member that has been asked and has not said a word for so long may be hanging; it is down after two such probes.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Who reads a kind: of whom, through which view, and how long he waits.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The one member that is asked about, if it is one.
    pub only: Option<&'a MemberName>,
    /// The members whose objects may be seen.
    pub audience: &'a Audience,
    /// Through which view.
    pub mode: Mode,
    /// It takes no longer than this.
    pub wait_max: Duration,
}

impl Default for Reading<'_> {
    fn default() -> Self {
        Self { only: None, audience: &Audience::Everyone, mode: Mode::Whole, wait_max: FILLING_WAIT_MAX }
    }
}

/// A store that may be read, and what a reader must be told.
#[derive(Clone)]
pub struct Ready {
    /// The store.
    pub running: Arc<Running>,
    /// One sentence per member whose last known state is shown, or that is left out.
    pub warnings: Vec<String>,
}

impl Ready {
    /// The store.
    pub fn store(&self) -> &Arc<FleetStore> {
        &self.running.store
    }

    /// What a reader must be told, as headers of an answer.
    pub fn to_warnings(&self) -> Warnings {
        let mut warnings = Warnings::default();
        self.warnings.iter().for_each(|warning| warnings.add(warning));
        warnings
    }
}

impl Stores {
    /// The store of a kind, with every member in that serves it.
    ///
    /// `only` names the one member that the reader asks about, if it is one.
    /// Errors: nobody serves the kind (404), or a member is still unknown when the wait is over (503).
    pub async fn ready(&self, gvr: &Gvr, only: Option<&MemberName>) -> Result<Ready, StoresError> {
        self.ready_in(gvr, only, Mode::Whole).await
    }

    /// The same in a view of the fleet: the lenient one leaves unknown members out, unless it is asked about one by name;
    /// the strict one refuses what another would warn of.
    ///
    /// Errors: as [`Self::ready`].
    pub async fn ready_in(&self, gvr: &Gvr, only: Option<&MemberName>, mode: Mode) -> Result<Ready, StoresError> {
        self.ready_for(gvr, Reading { only, mode, ..Reading::default() }).await
    }

    /// The same for one reader, who waits for nobody of whom he sees nothing.
    ///
    /// Errors: as [`Self::ready`].
    pub async fn ready_for(&self, gvr: &Gvr, reading: Reading<'_>) -> Result<Ready, StoresError> {
        self.ready_by(gvr, reading, Self::start).await
    }

    /// The same of a store that `start` gives.
    pub(super) async fn ready_by(
        &self,
        gvr: &Gvr,
        reading: Reading<'_>,
        start: impl FnOnce(&Self, &Gvr) -> Result<Arc<Running>, StoresError>,
    ) -> Result<Ready, StoresError> {
        let Reading { only, mode, wait_max, .. } = reading;
        let is_lenient = mode == Mode::Lenient && only.is_none();
        let came = Instant::now();
        let limit = came + wait_max.min(if is_lenient { LENIENT_WAIT_MAX } else { FILLING_WAIT_MAX });
        let deadline = limit.min(came + UNKNOWN_WAIT_MAX);
        self.settled(gvr, only, deadline, is_lenient).await;
        let running = start(self, gvr).map_err(|error| match error {
            StoresError::ExistenceUnknown { .. } if is_lenient => StoresError::NotServed,
            error => error,
        })?;
        match self.filled(&running, reading, limit, is_lenient).await {
            Err(_) if is_lenient => {}
            filled => filled?,
        }
        let unknown_parts = self.known_parts(&running, only, deadline.max(Instant::now())).await;
        if !running.store.is_open() {
            running.resumed(limit).await;
            running.store.open();
        }
        let mut warnings = self.warnings(&running, reading);
        warnings.extend(unknown_parts);
        if is_lenient {
            let unknown = self.unknown_to(&running, Reading { only: None, ..reading });
            warnings.extend(unknown.iter().map(|member| left_out(&running, member)));
        }
        if mode == Mode::Strict && !warnings.is_empty() {
            return Err(StoresError::NotCurrent(warnings.into_iter().map(cause).collect()));
        }
        Ok(Ready { warnings, running })
    }

    /// Waits until it is known what the members serve that are asked about: one that has never answered may serve the
    /// kind as well.
    async fn settled(&self, gvr: &Gvr, only: Option<&MemberName>, deadline: Instant, is_lenient: bool) {
        let mut changes = self.catalog.changes();
        loop {
            changes.borrow_and_update();
            let catalog = self.catalog();
            let unknown: Vec<Arc<Member>> =
                catalog.unknown.iter().filter_map(|name| self.registry.get(name.as_str())).collect();
            if self.is_settled(&catalog, gvr, only) || is_in_vain(&unknown, is_lenient, None) {
                return;
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Says whether the catalog is known of every member that is asked about.
    fn is_settled(&self, catalog: &Catalog, gvr: &Gvr, only: Option<&MemberName>) -> bool {
        match only {
            Some(only) => !catalog.unknown.contains(only) && catalog.get(gvr).is_some(),
            None => catalog.unknown.iter().all(|name| self.is_left_out(name)),
        }
    }

    /// Says whether nobody waits for a member: it was declared absent, or what it holds is shown as another member's.
    fn is_left_out(&self, name: &MemberName) -> bool {
        self.registry.get(name.as_str()).is_none_or(|member| member.config().absent || member.twin_of().is_some())
    }

    /// Waits until every member that is asked about is filled; no longer than they get further.
    async fn filled(
        &self,
        running: &Running,
        reading: Reading<'_>,
        limit: Instant,
        is_lenient: bool,
    ) -> Result<(), StoresError> {
        let came = Instant::now();
        let mut changes = running.store.subscribe();
        loop {
            changes.borrow_and_update();
            let unknown = self.unknown_to(running, reading);
            if unknown.is_empty() {
                let Some(until) = self.resuming_until(running, reading) else { return Ok(()) };
                let until = until.min(limit).min(Instant::now() + RESUMING_LOOK);
                if until <= Instant::now() {
                    return Ok(());
                }
                // A member that goes down is not waited for, and nobody tells the store of that.
                let _elapsed = tokio::time::timeout_at(until, changes.changed()).await;
                continue;
            }
            if is_in_vain(&unknown, is_lenient, Some(running)) || self.readiness(running).is_unordered {
                return Err(unread(running, &unknown));
            }
            let until = if is_lenient { limit } else { running.waits_until(&unknown, came, limit) };
            if until <= Instant::now() || running.store.is_ended() {
                return Err(unread(running, &unknown));
            }
            // Either end of the wait will do: they may have got further meanwhile.
            let _elapsed = tokio::time::timeout_at(until, changes.changed()).await;
        }
    }

    /// Until when a reader waits for members of which the store has what an earlier process was told, and which may say soon what
    /// is new. `None`: for none.
    fn resuming_until(&self, running: &Running, reading: Reading<'_>) -> Option<Instant> {
        let readiness = self.readiness(running);
        let is_asked = |name: &MemberName| match reading.only {
            Some(only) => only == name,
            None => reading.audience.sees_member(name),
        };
        let resuming =
            readiness.troubled.iter().filter(|one| is_asked(one.member.name()) && !one.member.health().is_down());
        let until = resuming.filter_map(|one| Some(one.state.mirrored()?.since + UNKNOWN_WAIT_MAX)).max();
        until.filter(|until| *until > Instant::now())
    }

    /// Says whether there is a member of a store that may soon say what is new: it is not down, and has not been brought up to date.
    pub(super) fn awaits_members(&self, running: &Running) -> bool {
        self.resuming_until(running, Reading::default()).is_some()
            || self.unknown(running, None).iter().any(|member| !member.health().is_down())
    }

    /// Members whose objects of this kind have not been held completely since kubefold started.
    pub fn unknown(&self, running: &Running, only: Option<&MemberName>) -> Vec<Arc<Member>> {
        self.unknown_to(running, Reading { only, ..Reading::default() })
    }

    fn unknown_to(&self, running: &Running, reading: Reading<'_>) -> Vec<Arc<Member>> {
        let readiness = self.readiness(running);
        let is_asked = |unfilled: &&Unfilled| match reading.only {
            Some(only) => only == unfilled.member.name(),
            None => !unfilled.is_copy && reading.audience.sees_member(unfilled.member.name()),
        };
        let asked = readiness.unknown.iter().filter(is_asked).map(|unfilled| &unfilled.member);
        asked.filter(|member| !running.store.is_filled(member.name())).cloned().collect()
    }

    /// The store of a kind after the bounded wait for its members, of whom some may be unknown still. `None`: nobody is
    /// known to serve the kind.
    pub async fn known(&self, gvr: &Gvr) -> Option<Arc<Running>> {
        // Whoever is unknown after the wait is asked for by name.
        let _waited = self.ready(gvr, None).await;
        self.peek(gvr)
    }

    /// Says whether a kind that can be watched is in no store all the same: its revisions are no decimal numbers.
    pub fn is_unordered(&self, gvr: &Gvr) -> bool {
        self.peek(gvr).is_some_and(|running| self.readiness(&running).is_unordered)
    }

    fn warnings(&self, running: &Running, reading: Reading<'_>) -> Vec<String> {
        let is_asked =
            |name: &MemberName| reading.only.is_none_or(|only| only == name) && reading.audience.sees_member(name);
        let readiness = self.readiness(running);
        let troubled = readiness.troubled.iter().filter(|one| one.is_shown && is_asked(one.member.name()));
        let mut warnings: Vec<String> = troubled.filter_map(|one| stale(&one.member, &one.state)).collect();
        let copies = readiness.copies.iter().filter(|copy| reading.audience.sees_member(copy.name()));
        warnings.extend(copies.map(|copy| format!("member {}; it is left out", copy.describe())));
        warnings.sort();
        let skewed = readiness.skewed.iter().filter(|(member, _)| is_asked(member));
        warnings.extend(skewed.map(|(_, sentence)| sentence.clone()));
        warnings
    }

    /// One sentence per member of which it is not known whether it serves a kind.
    pub fn left_out_unseen(&self, resource: &str) -> Vec<String> {
        let catalog = self.catalog();
        let unknown = catalog.unknown.iter().filter(|name| !self.is_left_out(name));
        let sentence = |member: Arc<Member>| {
            let (name, why) = (member.name(), member.describe());
            format!(
                "whether member {name} has {resource} is not known, and they are left out: {name} has not answered since kubefold started ({why})"
            )
        };
        unknown.filter_map(|name| self.registry.get(name.as_str())).map(sentence).collect()
    }

    /// Says whether all that a member tells of a kind comes in at once.
    pub fn follows(&self, running: &Running, member: &Member) -> bool {
        let feeds = running.feeds.lock();
        let state = feeds.get(member.name()).map(|feed| &feed.state);
        running.store.is_filled(member.name()) && state.is_some_and(|state| stale(member, state).is_none())
    }

    /// Members that a watcher of this store sees the last known state of.
    pub fn stale(&self, running: &Running) -> Vec<MemberName> {
        let readiness = self.readiness(running);
        let troubled = readiness.troubled.iter().filter(|one| stale(&one.member, &one.state).is_some());
        let mut names: Vec<MemberName> = troubled.map(|one| one.member.name().clone()).collect();
        names.sort();
        names
    }
}

impl Running {
    /// Why a member is not followed, in one line.
    pub(super) fn describe(&self, member: &Member) -> String {
        let trouble = self.feeds.lock().get(member.name()).and_then(|feed| feed.state.trouble());
        let trouble = match trouble {
            Some(trouble) if !member.health().is_down() => {
                format!("{} for {}s: {}", member.name(), trouble.since.elapsed().as_secs(), trouble.cause)
            }
            Some(_) | None => member.describe(),
        };
        match self.describe_filling(member.name()) {
            Some(filling) => format!("{trouble}; {filling}"),
            None => trouble,
        }
    }
}

/// Members have not listed their objects of a kind yet.
fn unread(running: &Running, unknown: &[Arc<Member>]) -> StoresError {
    StoresError::Unread {
        resource: running.store.spec().gvr.resource.to_string(),
        members: unknown.iter().map(|member| member.name().to_string()).collect(),
        causes: unknown.iter().map(|member| running.describe(member)).collect(),
    }
}

/// One sentence about a member that the lenient view shows nothing of.
fn left_out(running: &Running, member: &Member) -> String {
    let resource = &running.store.spec().gvr.resource;
    format!(
        "the {resource} of member {} have not been read since kubefold started ({}) and are left out",
        member.name(),
        running.describe(member)
    )
}

/// Says whether nothing is to be waited for: one of them is lost. In the lenient view: there is none of whom it may soon be
/// known.
fn is_in_vain(unknown: &[Arc<Member>], is_lenient: bool, running: Option<&Running>) -> bool {
    if !is_lenient {
        return unknown.iter().any(|member| is_lost(member));
    }
    let is_long = |age: Option<Duration>| age.is_some_and(|age| age >= LENIENT_WAIT_MAX);
    let trouble = |member: &Member| running?.feeds.lock().get(member.name())?.state.trouble();
    unknown.iter().all(|member| {
        let health = member.health();
        health.is_down()
            || is_long(health.age(Instant::now()))
            || is_long(trouble(member).map(|trouble| trouble.since.elapsed()))
    })
}

/// Says whether waiting for a member is useless: it has been down for as long as a reader would wait.
fn is_lost(member: &Member) -> bool {
    let health = member.health();
    health.is_down() && health.age(Instant::now()).is_some_and(|age| age >= UNKNOWN_WAIT_MAX)
}

/// What a warning of an old state says of what is shown.
const LAST_KNOWN: &str = "; its last known state is shown";

/// Why a state is old, for who is not shown it.
fn cause(warning: String) -> String {
    warning.split_once(LAST_KNOWN).map(|(cause, _)| cause.to_owned()).unwrap_or(warning)
}

/// One sentence, if what the store shows of the member may be old.
pub(super) fn stale(member: &Member, state: &ReflectorState) -> Option<String> {
    let mirrored = state.mirrored();
    let of = mirrored.map(|from| format!(", of {}s ago", from.age().as_secs())).unwrap_or_default();
    if member.health().is_down() {
        return Some(format!("member {}{LAST_KNOWN}{of}", member.describe()));
    }
    if let Some(trouble) = state.trouble() {
        return Some(format!(
            "member {} has not been followed for {}s: {}{LAST_KNOWN}{of}",
            member.name(),
            trouble.since.elapsed().as_secs(),
            trouble.cause
        ));
    }
    if mirrored.is_some() {
        let name = member.name();
        return Some(format!("member {name} has not been followed since kubefold started{LAST_KNOWN}{of}"));
    }
    // Its watch is open, but nothing may come through it: its etcd is gone, or it hangs.
    if let Health::Degraded { .. } = member.health() {
        return Some(format!("member {}; its objects may be out of date", member.describe()));
    }
    let silent = member.silent_for().filter(|silent| *silent >= SILENCE_MAX)?;
    Some(format!("member {} has not answered for {}s; its objects may be out of date", member.name(), silent.as_secs()))
}
