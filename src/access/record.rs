//! What members said to one question, and how long that holds.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};

use crate::{
    access::{
        kept::{Id, KeptWord},
        question::Question,
        rbac::{Changes, Followed},
        terms::{ALLOWED_FOR, DENIED_FOR, FOLLOWED_FOR, GRACE, WAIT_MAX},
    },
    catalog::Catalog,
    config::MemberName,
    host::OUTSIDE,
    member::{Member, review::Judgement},
    store::Audience,
    stores::Stores,
};

/// A member that did not say is asked again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// A member that has been asked and has said nothing for so long is not waited for.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// For so long a word is taken that holds as long as its member's outage.
const OUTAGE_LOOK: Duration = Duration::from_secs(1);
/// After so long it is looked anew how long the members' words hold: whether their RBAC is followed may have changed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What all members come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decided {
    /// The members that allow it.
    pub(super) audience: Audience,
    /// Those that do not, with the reason where they give one.
    pub(super) denied: Vec<Word>,
    /// Those that have not said.
    pub(super) unsaid: Vec<Word>,
    /// Those that allowed it, and cannot say any more.
    pub(super) aged: Vec<Word>,
}

impl Decided {
    /// The same, where a member that gives no reason for its no has this one.
    pub(super) fn because(&self, why: &str) -> Self {
        let mut with = self.clone();
        with.denied.iter_mut().filter(|word| word.why.is_empty()).for_each(|word| word.why = why.into());
        with
    }

    /// The same, with the members that are down and have not said, where `other` has their yes.
    pub(super) fn filled(&self, other: &Self) -> Self {
        let is_filled = |word: &Word| word.is_down && other.audience.sees_member(&word.member);
        let (filled, unsaid): (Vec<Word>, Vec<Word>) = self.unsaid.iter().cloned().partition(is_filled);
        let audience = self.audience.or(&Audience::of(filled.into_iter().map(|word| word.member)));
        Self { audience, unsaid, ..self.clone() }
    }

    /// The same, where a member that denies it allows it with the selectors, or has not said whether it does.
    pub(super) fn selected(&self, member: &MemberName, with_selectors: &Self) -> Self {
        let mut with = self.clone();
        if with_selectors.denied.is_empty() && self.denied.iter().any(|word| word.member == *member) {
            with.denied.retain(|word| word.member != *member);
            with.audience = with.audience.or(&with_selectors.audience);
            with.unsaid.extend(with_selectors.unsaid.iter().cloned());
            with.aged.extend(with_selectors.aged.iter().cloned());
        }
        with
    }

    /// Says whether every member says no.
    pub(super) fn is_refused(&self) -> bool {
        self.unsaid.is_empty() && matches!(&self.audience, Audience::Members(members) if members.is_empty())
    }

    /// What both allow.
    pub(super) fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.audience = both.audience.and(&other.audience);
        for (words, more) in [(&mut both.denied, &other.denied), (&mut both.unsaid, &other.unsaid)] {
            let is_new = |word: &&Word| words.iter().all(|known| known.member != word.member);
            let new: Vec<Word> = more.iter().filter(is_new).cloned().collect();
            words.extend(new);
        }
        both.aged.extend(other.aged.iter().cloned());
        // A no is one, whatever else is not known.
        both.unsaid.retain(|word| both.denied.iter().all(|denied| denied.member != word.member));
        both.aged.retain(|word| both.audience.sees_member(&word.member));
        both
    }
}

impl Decided {
    /// What each member decided, for the audit log.
    pub(super) fn for_audit(&self) -> String {
        let Self { audience, denied, unsaid, aged } = self;
        let mut said = match audience {
            Audience::Everyone => vec!["allow: all".to_owned()],
            Audience::Members(members) if members.is_empty() => Vec::new(),
            Audience::Members(members) => {
                let members: Vec<&str> = members.iter().map(MemberName::as_str).collect();
                vec![format!("allow: {}", members.join(", "))]
            }
        };
        let with_reasons = [("forbid", denied), ("unknown", unsaid), ("allow at its last word", aged)];
        for (what, words) in with_reasons.into_iter().filter(|(_, words)| !words.is_empty()) {
            let word = |Word { member, why, .. }: &Word| match &**why {
                "" => member.to_string(),
                why => format!("{member} ({why})"),
            };
            said.push(format!("{what}: {}", words.iter().map(word).collect::<Vec<_>>().join(", ")));
        }
        said.join("; ")
    }
}

/// A member, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) member: MemberName,
    pub(super) why: Arc<str>,
    /// It does not answer anybody.
    pub(super) is_down: bool,
    /// It was asked a moment ago.
    pub(super) may_come: bool,
}

/// What a look at a record finds.
pub(super) struct Look {
    pub(super) decided: Arc<Decided>,
    /// Members to ask now.
    pub(super) due: Vec<Arc<Member>>,
    /// One of those that have not said may say soon.
    pub(super) waits: bool,
}

/// What members said to one question.
pub(super) struct Record {
    question: Arc<Question<'static>>,
    /// The members that it may be asked of, and itself.
    weight: u64,
    /// Whose record it is, as [`Quota`](super::quota::Quota) counts them.
    owner: u64,
    /// Its name among what is kept over a restart.
    id: OnceLock<Id>,
    /// What clusters said to an earlier process, by their UIDs.
    kept: HashMap<Arc<str>, KeptWord>,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    said: HashMap<MemberName, Said>,
    known: Option<Known>,
    /// Somebody has asked since it was last looked who is to go.
    used: bool,
}

/// What one member said.
#[derive(Default)]
struct Said {
    last: Option<Decision>,
    failed: Option<Failed>,
    /// Since when it has been asked.
    asked: Option<Instant>,
    /// When it was down last.
    down_at: Option<Instant>,
}

struct Decision {
    /// Why not; absent where it is allowed.
    denied: Option<Arc<str>>,
    at: Instant,
    /// A member that is another cluster by now has said nothing.
    incarnation: u64,
}

struct Failed {
    at: Instant,
    why: Arc<str>,
}

/// What all came to, while that holds and nothing else has changed.
struct Known {
    decided: Arc<Decided>,
    until: Instant,
    catalog: Arc<Catalog>,
    members: Arc<[Arc<Member>]>,
    conditions: u64,
    generation: u64,
    only: Option<MemberName>,
}

/// What holds of one member now.
enum Standing {
    Decided { denied: Option<Arc<str>>, until: Instant },
    Aged(Arc<str>),
    Unsaid { why: Arc<str>, waits: bool },
}

impl Record {
    pub(super) fn new(question: Question<'_>, members: usize, owner: u64) -> Self {
        Self {
            question: Arc::new(question.into_owned()),
            weight: 1 + members as u64,
            owner,
            id: OnceLock::new(),
            kept: HashMap::new(),
            state: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// The same, with what clusters said to an earlier process.
    pub(super) fn keeping(self, id: Id, kept: HashMap<Arc<str>, KeptWord>) -> Self {
        Self { id: OnceLock::from(id), kept, ..self }
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    pub(super) fn owner(&self) -> u64 {
        self.owner
    }

    /// Its name among what is kept over a restart.
    pub(super) fn id(&self, of: impl FnOnce(&Question<'_>) -> Id) -> Id {
        *self.id.get_or_init(|| of(&self.question))
    }

    /// Says whether somebody has asked since this was called last.
    pub(super) fn was_used(&self) -> bool {
        std::mem::take(&mut self.state.lock().used)
    }

    /// What these members said, for a later process: each with the UID of its cluster, and without what may be another
    /// decision by now.
    pub(super) fn said_by(&self, changes: &Changes, members: &[Arc<Member>]) -> Vec<(Arc<str>, Option<KeptWord>)> {
        let state = self.state.lock();
        let of = |member: &Arc<Member>| {
            let Decision { denied, at, .. } = state.said.get(member.name())?.decision(member)?;
            let word = KeptWord::of(denied.is_none(), at.elapsed());
            Some((member.cluster_uid()?, (!changes.are_since(member.name(), &self.question, *at)).then_some(word)))
        };
        members.iter().filter_map(of).collect()
    }

    /// As if somebody asked.
    #[cfg(test)]
    pub(super) fn use_it(&self) {
        self.state.lock().used = true;
    }

    /// Has all that was said be so old.
    #[cfg(test)]
    pub(super) fn age(&self, by: Duration) {
        let mut state = self.state.lock();
        state.known = None;
        for said in state.said.values_mut() {
            for at in
                said.last.iter_mut().map(|last| &mut last.at).chain(said.failed.iter_mut().map(|last| &mut last.at))
            {
                *at = Instant::now().checked_sub(by).unwrap_or(*at);
            }
        }
    }

    pub(super) fn question(&self) -> &Arc<Question<'static>> {
        &self.question
    }

    /// Waits for the next answer of a member.
    pub(super) fn said(&self) -> Notified<'_> {
        self.news.notified()
    }

    /// What is known, if every member's word holds.
    pub(super) fn known(&self, stores: &Stores, changes: &Changes, only: Option<&MemberName>) -> Option<Arc<Decided>> {
        let mut state = self.state.lock();
        state.used = true;
        let known = state.known.as_ref()?;
        let is_current = known.until > Instant::now()
            && known.only.as_ref() == only
            && known.generation == changes.generation()
            && known.conditions == stores.registry().conditions()
            && Arc::ptr_eq(&known.members, &stores.registry().members())
            && Arc::ptr_eq(&known.catalog, &stores.catalog());
        is_current.then(|| Arc::clone(&known.decided))
    }

    /// What is known of these members, and who is to be asked. Who is, counts as asked from here on.
    pub(super) fn look(
        &self,
        stores: &Stores,
        changes: &Changes,
        members: &[Arc<Member>],
        only: Option<&MemberName>,
    ) -> Look {
        // Before anything else is read: what changes meanwhile is seen by the next look.
        let (conditions, generation) = (stores.registry().conditions(), changes.generation());
        let catalog = stores.catalog();
        let all = stores.registry().members();
        let now = Instant::now();
        let mut state = self.state.lock();
        let mut due = Vec::new();
        let (mut allowed, mut decided, mut waits) = (Vec::new(), Decided::default(), false);
        let followed = Followed::now(stores);
        let mut until = Some(now + LOOK_EVERY);
        for member in members {
            if let Some(domain) =
                self.question.caller.domain.as_ref().filter(|domain| **domain != *member.name().as_str())
            {
                let whose = if domain == OUTSIDE { domain.clone() } else { format!("member {domain}") };
                let why = format!("the caller is known by the word of {whose}, and acts in that cluster alone");
                let member = member.name().clone();
                decided.denied.push(Word { member, why: why.into(), is_down: false, may_come: false });
                continue;
            }
            let said = state.said.entry(member.name().clone()).or_default();
            let is_followed = followed.has(stores, member);
            let holds = said.holds(&self.question, changes, member, is_followed);
            if said.is_due(member, holds, now) {
                said.asked = Some(now);
                due.push(Arc::clone(member));
            }
            let word = |why| {
                let (member, is_down) = (member.name().clone(), member.health().is_down());
                Word { member, why, is_down, may_come: false }
            };
            let kept = if said.decision(member).is_some() { None } else { self.kept_of(member) };
            match said.standing(member, holds, kept, now) {
                Standing::Decided { denied, until: of_member } => {
                    until = until.map(|until| until.min(of_member));
                    match denied {
                        None => allowed.push(member.name().clone()),
                        Some(why) => decided.denied.push(word(why)),
                    }
                }
                Standing::Aged(why) => {
                    until = None;
                    allowed.push(member.name().clone());
                    decided.aged.push(word(why));
                }
                Standing::Unsaid { why, waits: may_come } => {
                    until = None;
                    waits |= may_come;
                    decided.unsaid.push(Word { may_come, ..word(why) });
                }
            }
        }
        decided.audience = Audience::of(allowed);
        let decided = Arc::new(decided);
        state.known = until.map(|until| Known {
            decided: Arc::clone(&decided),
            until,
            catalog,
            members: all,
            conditions,
            generation,
            only: only.cloned(),
        });
        Look { decided, due, waits }
    }

    /// What the cluster that a member is said to an earlier process.
    fn kept_of(&self, member: &Member) -> Option<KeptWord> {
        if self.kept.is_empty() {
            return None;
        }
        self.kept.get(&member.last_cluster_uid()?).copied()
    }

    /// Takes what a member said, in the incarnation in which it was asked.
    pub(super) fn answered(&self, member: &MemberName, incarnation: u64, judgement: Judgement) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.known = None;
        let said = state.said.entry(member.clone()).or_default();
        // What changed meanwhile it may not have known.
        let at = said.asked.take().unwrap_or(now);
        let denied = match judgement {
            Judgement::Allowed => None,
            Judgement::Denied(why) => Some(why),
            Judgement::Unknown(why) => {
                said.failed = Some(Failed { at: now, why });
                drop(state);
                return self.news.notify_waiters();
            }
        };
        said.failed = None;
        said.last = Some(Decision { denied, at, incarnation });
        drop(state);
        self.news.notify_waiters();
    }
}

/// How long a member's word holds.
#[derive(Clone, Copy)]
struct Holds {
    /// From then on it is asked again, and nobody waits for that.
    ahead: Instant,
    ends: Instant,
    /// Nothing is known to have changed since.
    stands: bool,
}

impl Said {
    fn decision(&self, member: &Member) -> Option<&Decision> {
        self.last.as_ref().filter(|decision| decision.incarnation == member.incarnation())
    }

    /// How long the last word holds, if there is one.
    fn holds(&self, question: &Question<'_>, changes: &Changes, member: &Member, is_followed: bool) -> Option<Holds> {
        let Decision { denied, at, .. } = self.decision(member)?;
        let holds_for = match denied {
            Some(_) => DENIED_FOR,
            None if is_followed => FOLLOWED_FOR,
            None => ALLOWED_FOR,
        };
        let (mut ahead, mut ends) = (*at + holds_for * 4 / 5, *at + holds_for);
        if let Some(end) = changes.end(member.name(), question, *at) {
            (ahead, ends) = (ahead.min(end), ends.min(end));
        }
        let stands = !changes.are_since(member.name(), question, *at);
        Some(Holds { ahead, ends, stands })
    }

    /// Says whether the member is to be asked: shortly before its word ends, and not again and again.
    fn is_due(&self, member: &Member, holds: Option<Holds>, now: Instant) -> bool {
        let has_failed = self.failed.as_ref().is_some_and(|failed| now < failed.at + AGAIN_AFTER);
        if self.asked.is_some() || has_failed || member.health().is_down() {
            return false;
        }
        holds.is_none_or(|holds| now >= holds.ahead)
    }

    fn standing(&mut self, member: &Member, holds: Option<Holds>, kept: Option<KeptWord>, now: Instant) -> Standing {
        let is_down = member.health().is_down();
        let is_silent = member.silent_for().is_some_and(|silent| silent >= SILENCE_MAX)
            || self.asked.is_some_and(|asked| now >= asked + WAIT_MAX);
        let waits = !is_down && !is_silent && (self.asked.is_some() || self.failed.is_none());
        let last = self.decision(member).map(|decision| (decision.denied.clone(), decision.at));
        if let (Some((denied, at)), Some(Holds { ahead, ends, stands })) = (last, holds) {
            if now < ends {
                // So that somebody comes by when it is to be asked again.
                let until = if now < ahead { ahead } else { ends };
                return Standing::Decided { denied, until };
            }
            // What it holds does not change meanwhile either, as far as is known.
            if is_down && stands {
                self.down_at = Some(now);
                return Standing::Decided { denied, until: now + OUTAGE_LOOK };
            }
            let since = self.down_at.map_or(at, |down_at| at.max(down_at));
            if !waits && stands && denied.is_none() && now < since + GRACE {
                return Standing::Aged(self.aged(now.saturating_duration_since(at)));
            }
        }
        match kept {
            // Whoever has been ready since may have changed its mind.
            Some(kept) if is_down && member.outages() == 0 => {
                let denied = (!kept.allowed()).then(|| "".into());
                return Standing::Decided { denied, until: now + OUTAGE_LOOK };
            }
            Some(kept) if !waits && !is_down && kept.allowed() && kept.age().is_some_and(|age| age < GRACE) => {
                return Standing::Aged(self.aged(kept.age().unwrap_or_default()));
            }
            _ => {}
        }
        let why = member.down().unwrap_or_else(|| self.trouble());
        Standing::Unsaid { why, waits }
    }

    fn aged(&self, age: Duration) -> Arc<str> {
        format!("it allowed it {}s ago, and cannot say now: {}", age.as_secs(), self.trouble()).into()
    }

    /// Why it does not say.
    fn trouble(&self) -> Arc<str> {
        self.failed.as_ref().map_or_else(|| "it has not answered".into(), |failed| Arc::clone(&failed.why))
    }
}
