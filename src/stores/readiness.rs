//! What the readers of a store must know of its members, as a value: who is unknown, whose last known state is shown, what is
//! left out.
//!
//! It is made anew when something that it rests on changes (health, configuration, catalog, what feeds the store), so that a
//! read of a store whose members are all well costs the same however many they are. Ages are not in it: who is in trouble is,
//! and the sentence about him is written when it is read.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    catalog::Catalog,
    config::MemberName,
    member::{Member, reflector::ReflectorState},
    store::Audience,
    stores::{
        Running, Stores,
        ready::{SILENCE_MAX, stale},
    },
};
use kubefold_wire::{resource::Gvr, warning::Warnings};

/// How often it is looked whether a member owes an answer for too long: nothing tells of that.
const SILENCE_PACE: Duration = Duration::from_millis(250);

/// What the readers of one store must know of its members.
pub(super) struct Readiness {
    basis: Basis,
    /// Members whose objects had not been held completely when this was made, in configuration order. Some may be by now.
    pub(super) unknown: Vec<Unfilled>,
    /// Members that something is wrong with.
    pub(super) troubled: Vec<Troubled>,
    /// Members that are the same cluster as an earlier one, and of which nothing is shown.
    pub(super) copies: Vec<Arc<Member>>,
    /// What a member has that is left out all the same: one sentence.
    pub(super) skewed: Vec<(MemberName, String)>,
    /// What members warn of whoever reads the kind, by member.
    warned: Vec<(MemberName, Arc<str>)>,
    /// A member's revisions are no decimal numbers, while no member has filled the store.
    pub(super) is_unordered: bool,
}

/// A member that has not filled a store.
pub(super) struct Unfilled {
    pub(super) member: Arc<Member>,
    /// It is the same cluster as an earlier member, whose objects are its.
    pub(super) is_copy: bool,
}

/// A member that something is wrong with, and its reflector.
pub(super) struct Troubled {
    pub(super) member: Arc<Member>,
    pub(super) state: Arc<ReflectorState>,
    /// What the store holds of it is shown.
    pub(super) is_shown: bool,
}

/// What a [`Readiness`] rests on: of the same, the same comes.
struct Basis {
    catalog: Arc<Catalog>,
    members: Arc<[Arc<Member>]>,
    conditions: u64,
    news: u64,
}

impl Basis {
    /// The counters first: what changes while the rest is read is seen by the next reader.
    fn now(stores: &Stores, running: &Running) -> Self {
        let (conditions, news) = (stores.registry.conditions(), running.news.load(Ordering::Acquire));
        Self { catalog: stores.catalog(), members: stores.registry.members(), conditions, news }
    }

    fn is(&self, other: &Self) -> bool {
        self.conditions == other.conditions
            && self.news == other.news
            && Arc::ptr_eq(&self.catalog, &other.catalog)
            && Arc::ptr_eq(&self.members, &other.members)
    }
}

impl Stores {
    /// What readers of a store must know now. Constant time, unless something has changed since it was last asked for.
    pub(super) fn readiness(&self, running: &Running) -> Arc<Readiness> {
        let known = |basis: &Basis| running.readiness.load_full().filter(|known| known.basis.is(basis));
        if let Some(known) = known(&Basis::now(self, running)) {
            return known;
        }
        // One makes it for all who come at the same time.
        let _turn = running.readiness_turn.lock();
        let basis = Basis::now(self, running);
        if let Some(known) = known(&basis) {
            return known;
        }
        let newer = Arc::new(Readiness::new(basis, running));
        running.readiness.store(Some(Arc::clone(&newer)));
        newer
    }

    /// What the members that somebody sees warn of whoever reads a kind: that its version is deprecated. In their words, since each knows its
    /// own release and definitions.
    pub fn deprecations(&self, gvr: &Gvr, audience: &Audience) -> Warnings {
        let mut warnings = Warnings::default();
        if let Some(running) = self.peek(gvr) {
            let readiness = self.readiness(&running);
            let seen = readiness.warned.iter().filter(|(member, _)| audience.sees_member(member));
            seen.for_each(|(_, text)| warnings.add(text));
        }
        warnings
    }

    /// Notices members that have owed an answer for too long, until cancelled.
    pub(super) async fn notice_silence(&self) {
        let mut before: Vec<MemberName> = Vec::new();
        let noticing = async {
            loop {
                tokio::time::sleep(SILENCE_PACE).await;
                let members = self.registry.members();
                let is_silent = |member: &&Arc<Member>| member.silent_for().is_some_and(|silent| silent >= SILENCE_MAX);
                let silent: Vec<MemberName> =
                    members.iter().filter(is_silent).map(|member| member.name().clone()).collect();
                if silent != before {
                    before = silent;
                    self.registry.condition_changed();
                }
            }
        };
        self.cancel.run_until_cancelled(noticing).await;
    }
}

impl Readiness {
    /// Shape: linear in the members.
    fn new(basis: Basis, running: &Running) -> Self {
        let gvr = &running.store.spec().gvr;
        let filled = running.store.filled();
        let catalog = &basis.catalog;
        let serving: HashSet<&MemberName> = catalog.serving_members(gvr).iter().chain(&catalog.unknown).collect();
        let unfilled = basis.members.iter().filter(|member| !filled.contains(member.name()));
        let unknown = unfilled
            .clone()
            .filter(|member| serving.contains(member.name()) && !member.config().absent)
            .map(|member| Unfilled { member: Arc::clone(member), is_copy: member.twin_of().is_some() });
        let feeds: HashMap<MemberName, (Arc<Member>, Arc<ReflectorState>)> = running
            .feeds
            .lock()
            .iter()
            .map(|(name, feed)| (name.clone(), (Arc::clone(&feed.member), Arc::clone(&feed.state))))
            .collect();
        let is_unordered = feeds.values().any(|(_, state)| state.is_unordered())
            && !feeds.keys().any(|member| filled.contains(member));
        let said = |(name, (_, state)): (&MemberName, &(Arc<Member>, Arc<ReflectorState>))| {
            state.warnings().into_iter().map(|text| (name.clone(), text)).collect::<Vec<_>>()
        };
        let mut warned: Vec<(MemberName, Arc<str>)> = feeds.iter().flat_map(said).collect();
        warned.sort();
        let troubled = feeds.into_values().filter(|(member, state)| stale(member, state).is_some());
        Self {
            unknown: unknown.collect(),
            troubled: troubled
                .map(|(member, state)| {
                    let is_shown = member.twin_of().is_none() || filled.contains(member.name());
                    Troubled { member, state, is_shown }
                })
                .collect(),
            copies: unfilled.filter(|member| member.twin_of().is_some()).cloned().collect(),
            skewed: skewed(catalog, gvr),
            warned,
            is_unordered,
            basis,
        }
    }
}

/// Members that serve the kind in another version, or another kind under its name.
fn skewed(catalog: &Catalog, gvr: &Gvr) -> Vec<(MemberName, String)> {
    let others = catalog.members_serving_other_version(gvr).into_iter().map(|(member, version)| {
        let kind = gvr.qualified();
        let sentence = format!("member {member} serves {kind} in version {version} only: its objects are left out");
        (member.clone(), sentence)
    });
    let conflicting = catalog.get(gvr).map(|resource| resource.conflicting.as_slice()).unwrap_or_default();
    let conflicting = conflicting.iter().map(|member| {
        let sentence = format!(
            "member {member} serves {} with another kind or scope than the first member that has it: its objects are left out",
            gvr.qualified()
        );
        (member.clone(), sentence)
    });
    others.chain(conflicting).collect()
}
