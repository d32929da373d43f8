//! Which stores may be read, and what a reader must be told: DESIGN.md section 6, unknown members.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    config::MemberName,
    member::{
        Member,
        catalog::Catalogue,
        reflector::ReflectorState,
        stores::{PLACEABLE, Running, Stores},
    },
    store::FleetStore,
    wire::{resource::Gvr, status::Status},
};

/// How long a read waits for members that are not known yet.
pub const UNKNOWN_WAIT_MAX: Duration = Duration::from_secs(10);
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
}

impl Stores {
    /// The store of a kind, with every member in that serves it.
    ///
    /// `only` names the one member that the reader asks about, if it is one.
    /// Errors: nobody serves the kind (404), or a member is still unknown when the wait is over (503).
    pub async fn ready(&self, gvr: &Gvr, only: Option<&MemberName>) -> Result<Ready, Status> {
        let deadline = Instant::now() + UNKNOWN_WAIT_MAX;
        self.settled(gvr, only, deadline).await;
        let running = self.start(gvr)?;
        let mut needed = vec![Arc::clone(&running)];
        for (group, version, resource) in PLACEABLE {
            let placeable = Gvr::new(group, version, resource);
            if placeable != *gvr
                && let Ok(store) = self.start(&placeable)
            {
                needed.push(store);
            }
        }
        for running in &needed {
            self.filled(running, only, deadline).await?;
            running.store.open();
        }
        Ok(Ready { warnings: self.warnings(&needed, only), running })
    }

    /// Waits until it is known what the members serve that are asked about: one that has never answered may serve the
    /// kind as well.
    async fn settled(&self, gvr: &Gvr, only: Option<&MemberName>, deadline: Instant) {
        let mut changes = self.catalogue.changes();
        loop {
            changes.borrow_and_update();
            let catalogue = self.catalogue();
            let lost =
                || catalogue.unknown.iter().filter_map(|name| self.registry.get(name.as_str())).any(|it| is_lost(&it));
            if self.is_settled(&catalogue, gvr, only) || lost() {
                return;
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Says whether the catalogue is known of every member that is asked about.
    fn is_settled(&self, catalogue: &Catalogue, gvr: &Gvr, only: Option<&MemberName>) -> bool {
        match only {
            Some(only) => !catalogue.unknown.contains(only) && catalogue.get(gvr).is_some(),
            None => catalogue.unknown.iter().all(|name| self.is_left_out(name)),
        }
    }

    /// Says whether nobody waits for a member: it was declared absent, or what it holds is shown as another member's.
    fn is_left_out(&self, name: &MemberName) -> bool {
        self.registry.get(name.as_str()).is_none_or(|member| member.config().absent || member.twin_of().is_some())
    }

    /// Waits until every member that is asked about is filled.
    async fn filled(&self, running: &Running, only: Option<&MemberName>, deadline: Instant) -> Result<(), Status> {
        let mut changes = running.store.subscribe();
        loop {
            changes.borrow_and_update();
            let unknown = self.unknown(running, only);
            if unknown.is_empty() {
                return Ok(());
            }
            if unknown.iter().any(|member| is_lost(member)) {
                return Err(self.unknown_status(running, &unknown));
            }
            let changed = tokio::time::timeout_at(deadline, changes.changed()).await;
            if changed.is_err() || running.store.is_ended() {
                return Err(self.unknown_status(running, &self.unknown(running, only)));
            }
        }
    }

    /// Members whose objects of this kind have not been held completely since kubefold started.
    pub fn unknown(&self, running: &Running, only: Option<&MemberName>) -> Vec<Arc<Member>> {
        let catalogue = self.catalogue();
        let serving = catalogue.serving_members(&running.store.spec().gvr);
        let members = self.registry.members();
        members
            .iter()
            .filter(|member| !member.config().absent)
            .filter(|member| only.map_or_else(|| member.twin_of().is_none(), |only| only == member.name()))
            .filter(|member| serving.contains(member.name()) || catalogue.unknown.contains(member.name()))
            .filter(|member| !running.store.is_filled(member.name()))
            .cloned()
            .collect()
    }

    /// The store of a kind after the bounded wait for its members, of whom some may be unknown still. `None`: nobody is
    /// known to serve the kind.
    pub async fn known(&self, gvr: &Gvr) -> Option<Arc<Running>> {
        // Whoever is unknown after the wait is asked for by name.
        let _waited = self.ready(gvr, None).await;
        self.peek(gvr)
    }

    fn unknown_status(&self, running: &Running, unknown: &[Arc<Member>]) -> Status {
        let resource = &running.store.spec().gvr.resource;
        let each: Vec<String> = unknown.iter().map(|member| running.describe(member)).collect();
        let names: Vec<&str> = unknown.iter().map(|member| member.name().as_str()).collect();
        Status::unavailable(format!(
            "the {resource} of {} have not been read since kubefold started ({}); an answer without them would read as \
             deletions. Wait for the member, declare it \"absent: true\" in clusters.yaml, or read the others through \
             their member views (--context fleet-<member>)",
            names.join(", "),
            each.join("; "),
        ))
    }

    fn warnings(&self, needed: &[Arc<Running>], only: Option<&MemberName>) -> Vec<String> {
        let Some(running) = needed.first() else { return Vec::new() };
        let gvr = &running.store.spec().gvr;
        let mut warnings: Vec<String> = running
            .feeds
            .lock()
            .values()
            .filter(|feed| only.is_none_or(|only| only == feed.member.name()))
            .filter(|feed| feed.member.twin_of().is_none() || running.store.is_filled(feed.member.name()))
            .filter_map(|feed| stale(&feed.member, &feed.state))
            .collect();
        let members = self.registry.members();
        let is_copy = |member: &&Arc<Member>| member.twin_of().is_some() && !running.store.is_filled(member.name());
        warnings
            .extend(members.iter().filter(is_copy).map(|copy| format!("member {}; it is left out", copy.describe())));
        warnings.sort();
        let catalogue = self.catalogue();
        for (member, version) in catalogue.members_serving_other_version(gvr) {
            warnings.push(format!(
                "member {member} serves {} in version {version} only: its objects are left out",
                gvr.qualified()
            ));
        }
        warnings
    }

    /// Members that a watcher of this store sees the last known state of.
    pub fn stale(&self, running: &Running) -> Vec<String> {
        let feeds = running.feeds.lock();
        let mut names: Vec<String> = feeds
            .values()
            .filter(|feed| stale(&feed.member, &feed.state).is_some())
            .map(|feed| feed.member.name().to_string())
            .collect();
        names.sort();
        names
    }
}

impl Running {
    /// Why a member is not followed, in one line.
    fn describe(&self, member: &Member) -> String {
        let trouble = self.feeds.lock().get(member.name()).and_then(|feed| feed.state.trouble());
        match trouble {
            Some(trouble) if !member.health().is_down() => {
                format!("{} for {}s: {}", member.name(), trouble.since.elapsed().as_secs(), trouble.cause)
            }
            Some(_) | None => member.describe(),
        }
    }
}

/// Says whether waiting for a member is useless: it has been down for as long as a reader would wait.
fn is_lost(member: &Member) -> bool {
    let health = member.health();
    health.is_down() && health.age(Instant::now()).is_some_and(|age| age >= UNKNOWN_WAIT_MAX)
}

/// One sentence, if what the store shows of the member may be old.
fn stale(member: &Member, state: &ReflectorState) -> Option<String> {
    if member.health().is_down() {
        return Some(format!("member {}; its last known state is shown", member.describe()));
    }
    let trouble = state.trouble()?;
    Some(format!(
        "member {} has not been followed for {}s: {}; its last known state is shown",
        member.name(),
        trouble.since.elapsed().as_secs(),
        trouble.cause
    ))
}
