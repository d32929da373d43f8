//! What a caller may see and do: each member decides, and its decisions are kept for a while.
//!
//! A member is asked with a `SelfSubjectAccessReview` in the caller's name, before anything is started, read or planned for
//! him. What it said holds for [`FOLLOWED_FOR`], [`ALLOWED_FOR`] or [`DENIED_FOR`], and until its RBAC changes; equal
//! questions at the same time are one. A member that does not say is unknown, and not "no": docs/design/members.md#who-may-see-what.
//!
//! About kubefold's own objects the host decides, if there is one.
//!
//! May name: `stores`, `catalog`, `host`, `member` and what is below them.

mod grant;
mod hosted;
mod in_use;
mod kept;
mod own;
mod question;
mod quota;
mod rbac;
mod record;
mod terms;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    sync::{Arc, Once, OnceLock},
    time::Duration,
};

use futures::future::join_all;
use quick_cache::{Weighter, sync::Cache};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{MemberName, OwnRights},
    host::Host,
    member::{
        Member,
        review::{Action, Judgement, judge},
    },
    stores::Stores,
};
use kubefold_serving::{audit, caller::Caller};
use kubefold_wire::{golang::Quoted, resource::Gvr};

use self::{
    in_use::InUse,
    question::{Question, Sought},
    quota::Quota,
    rbac::Changes,
    record::{Decided, Look, Record},
    terms::WAIT_MAX,
};

pub use terms::{ALLOWED_FOR, DENIED_FOR, FOLLOWED_FOR, GRACE};

pub use {
    grant::{Following, Grant, Grants, Renewal, Renewed},
    kept::Kept,
    own::{MASTERS, Own, allows as allows_own},
};

/// How long a member has for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Words of members, and questions, that are kept.
const WORDS_MAX: u64 = 400_000;
/// Questions that there is room for from the start.
const QUESTIONS_START: usize = 1_000;

/// The members' decisions.
pub struct Access {
    stores: Arc<Stores>,
    records: Cache<Arc<Question<'static>>, Arc<Record>, Words>,
    quota: Quota,
    kept: OnceLock<Kept>,
    changes: Arc<Changes>,
    follows: Once,
    in_use: Arc<InUse>,
    looks: Once,
    own: own::Policy,
    host: OnceLock<Arc<Host>>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl Access {
    /// Knows nothing yet. What it asks runs under `tasks` and ends with `cancel`.
    pub fn new(stores: Arc<Stores>, tasks: TaskTracker, cancel: CancellationToken) -> Arc<Self> {
        let records = Cache::with_weighter(QUESTIONS_START, WORDS_MAX, Words);
        Arc::new(Self {
            stores,
            records,
            quota: Quota::new(WORDS_MAX),
            kept: OnceLock::new(),
            changes: Arc::default(),
            follows: Once::new(),
            in_use: Arc::default(),
            looks: Once::new(),
            own: own::Policy::default(),
            host: OnceLock::new(),
            tasks,
            cancel,
        })
    }

    /// Takes who may use kubefold's own from here on.
    pub fn configure(&self, rights: &OwnRights) {
        self.own.configure(rights);
    }

    /// Says whether somebody may use what kubefold itself tells or does.
    pub fn allows_own(&self, who: Who<'_>, own: Own) -> bool {
        self.own.allows(who, own)
    }

    /// Takes over what members said to an earlier process; call it before anything is asked.
    pub fn restore(&self, kept: Kept) {
        // Once, as a process begins once.
        let _taken_before = self.kept.set(kept);
    }

    /// What members said, for a later process; see [`Kept::read`]. `None`: nothing was restored, so nothing is kept.
    pub fn keep(&self) -> Option<String> {
        let kept = self.kept.get()?;
        let members = self.stores.registry().members();
        let said = self.records.iter().flat_map(|(_, record)| {
            let id = record.id(|question| kept.id(question));
            let said = record.said_by(&self.changes, &members);
            said.into_iter().map(move |(uid, word)| (id, uid, word))
        });
        Some(kept.write(said))
    }

    /// The stores whose members are asked.
    pub fn stores(&self) -> &Arc<Stores> {
        &self.stores
    }

    /// Asks the members that serve a resource, or one of them, whether somebody may do something. `action` has a name as the
    /// members know it.
    ///
    /// Shape: one look-up while every member's word holds. Cancel: safe.
    pub async fn grant(self: &Arc<Self>, who: Who<'_>, action: &Action, only: Option<&MemberName>) -> Grant {
        self.grant_selected(who, action, only, |_| None).await
    }

    /// The same for a list or watch with selectors: a member that denies it without them is asked with them. `selected` gives
    /// the action with the selectors in a member's words; `None` where there are none, or nothing in it can match.
    pub async fn grant_selected(
        self: &Arc<Self>,
        who: Who<'_>,
        action: &Action,
        only: Option<&MemberName>,
        selected: impl Fn(&MemberName) -> Option<Action>,
    ) -> Grant {
        let owner = self.quota.owner(who.through.map_or(who.caller, |original| &original.caller));
        let parts = self.parts(who.through, only, owner).await;
        if let Some(parts) = parts.as_ref().filter(|parts| parts.is_refused()) {
            // In the name of whom the caller may not be nobody is asked, and nothing is kept.
            let record = Arc::new(Record::new(Question::of(who.caller, action), 0, owner));
            let renewal = Renewal::new(self, record, who.through.cloned(), only.cloned());
            note(action, parts);
            return Grant::new(Arc::clone(parts), renewal);
        }
        let record = self.record(who.caller, action, owner);
        let mut decided = self.decided(&record, only).await;
        let mut renewal = Renewal::new(self, record, who.through.cloned(), only.cloned());
        if !decided.denied.is_empty() {
            let asked = decided.denied.iter().filter_map(|word| Some((&word.member, selected(&word.member)?)));
            let asked = asked.map(async |(member, action)| {
                let record = self.record(who.caller, &action, owner);
                (member.clone(), self.decided(&record, Some(member)).await, record)
            });
            for (member, with_selectors, record) in join_all(asked).await {
                // A no is asked about anew by the next list or watch.
                if with_selectors.denied.is_empty() {
                    decided = Arc::new(decided.selected(&member, &with_selectors));
                    renewal = renewal.selecting(member, record);
                }
            }
        }
        if let Some(parts) = parts {
            decided = Arc::new(decided.and(&parts));
        }
        note(action, &decided);
        Grant::new(decided, renewal)
    }

    /// What members say of whether somebody may be somebody else. `None`: he is himself.
    async fn parts(
        self: &Arc<Self>,
        through: Option<&Arc<Impersonator>>,
        only: Option<&MemberName>,
        owner: u64,
    ) -> Option<Arc<Decided>> {
        let original = through?;
        let mut all: Option<Arc<Decided>> = None;
        for part in &original.parts {
            let of_part = self.decided(&self.record(&original.caller, part, owner), only).await;
            let of_part = of_part.because(&original.cannot(part));
            all = Some(Arc::new(all.map_or_else(|| of_part.clone(), |all| all.and(&of_part))));
        }
        all
    }

    /// From the first question on, which administrators do not ask.
    fn follow(&self) {
        self.follows.call_once(|| {
            let (stores, changes) = (Arc::clone(&self.stores), Arc::clone(&self.changes));
            let following = async move { rbac::follow(&stores, &changes).await };
            self.tasks.spawn(self.cancel.clone().run_until_cancelled_owned(following));
        });
    }

    /// The answers that are in use, which are looked at from the first one on.
    fn in_use<T>(&self, then: impl FnOnce(&InUse) -> T) -> T {
        self.looks.call_once(|| {
            let in_use = Arc::clone(&self.in_use);
            let looking = async move { in_use.look().await };
            self.tasks.spawn(self.cancel.clone().run_until_cancelled_owned(looking));
        });
        then(&self.in_use)
    }

    async fn decided(self: &Arc<Self>, record: &Arc<Record>, only: Option<&MemberName>) -> Arc<Decided> {
        if let Some(known) = record.known(&self.stores, &self.changes, only) {
            return known;
        }
        self.follow();
        let members = self.members(&record.question().action, only);
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let mut said = Box::pin(record.said());
            said.as_mut().enable();
            let look = self.look(record, &members, only);
            if !look.waits || Instant::now() >= deadline {
                return self.with_words_of_all_names(record, only, look.decided);
            }
            // However it ends, what is known by then is what counts.
            let _elapsed = timeout_at(deadline, said).await;
        }
    }

    /// What is known now, without waiting; what is due is asked.
    fn peek(self: &Arc<Self>, record: &Arc<Record>, only: Option<&MemberName>) -> Arc<Decided> {
        if let Some(known) = record.known(&self.stores, &self.changes, only) {
            return known;
        }
        let decided = self.look(record, &self.members(&record.question().action, only), only).decided;
        self.with_words_of_all_names(record, only, decided)
    }

    /// The same, where a member that is down and was never asked about a name is taken at what it said of all names. They are
    /// asked about all names ahead, since an object may be made and asked for in the meantime.
    fn with_words_of_all_names(
        self: &Arc<Self>,
        record: &Arc<Record>,
        only: Option<&MemberName>,
        decided: Arc<Decided>,
    ) -> Arc<Decided> {
        let Question { caller, action } = &**record.question();
        let Some(of_all) = action.of_all_names() else { return decided };
        let of_all = self.peek(&self.record(caller, &of_all, record.owner()), only);
        if decided.unsaid.iter().any(|word| word.is_down) { Arc::new(decided.filled(&of_all)) } else { decided }
    }

    /// The record of a question. It counts as its owner's: as that of who asks, whoever he asks for.
    fn record(&self, caller: &Caller, action: &Action, owner: u64) -> Arc<Record> {
        let question = Question::of(caller, action);
        if let Some(record) = self.records.get(&Sought(&question)) {
            return record;
        }
        let restored = self.kept.get().map(|kept| {
            let id = kept.id(&question);
            (id, kept.words(&id))
        });
        let mut record = Record::new(question, self.stores.registry().members().len(), owner);
        if let Some((id, words)) = restored {
            record = record.keeping(id, words);
        }
        let record = Arc::new(record);
        // Of two who come at the same time one makes it for both.
        let first = self.records.get_or_insert_with(record.question(), || Ok::<_, Infallible>(Arc::clone(&record)));
        let first = first.unwrap_or_else(|_| Arc::clone(&record));
        if Arc::ptr_eq(&first, &record) {
            for gone in self.quota.add(&record) {
                self.records.remove_if(&Sought(gone.question()), |kept| Arc::ptr_eq(kept, &gone));
            }
        }
        first
    }

    /// Has all that a caller was told be so old.
    #[cfg(test)]
    fn age(&self, caller: &Caller, by: Duration) {
        let of_caller = self.records.iter().filter(|(question, _)| *question.caller == *caller);
        of_caller.for_each(|(_, record)| record.age(by));
    }

    /// What a record says, with what is due asked.
    fn look(self: &Arc<Self>, record: &Arc<Record>, members: &[Arc<Member>], only: Option<&MemberName>) -> Look {
        let look = record.look(&self.stores, &self.changes, members, only);
        for member in &look.due {
            let (record, member, cancel) = (Arc::clone(record), Arc::clone(member), self.cancel.clone());
            self.tasks.spawn(async move { cancel.run_until_cancelled(ask(&record, &member)).await });
        }
        look
    }

    /// Who is asked about an action: whoever serves its resource. Of what is no resource everybody.
    fn members(&self, action: &Action, only: Option<&MemberName>) -> Vec<Arc<Member>> {
        let all = self.stores.registry().members();
        let is_present = |member: &&Arc<Member>| !member.config().absent && member.twin_of().is_none();
        let catalog = self.stores.catalog();
        let gvr = Gvr::new(&action.group, &action.version, &action.resource);
        // What kubefold serves itself all members judge.
        let of_members = catalog.get(&gvr).filter(|resource| !resource.is_own());
        let serving = of_members.map(|resource| resource.members.as_slice());
        // One that has never said what it serves may serve it as well.
        let may_serve =
            |name: &MemberName| serving.is_none_or(|serving| serving.contains(name) || catalog.unknown.contains(name));
        let is_asked = |member: &&Arc<Member>| match only {
            Some(only) => only == member.name(),
            None => may_serve(member.name()),
        };
        all.iter().filter(is_present).filter(is_asked).cloned().collect()
    }
}

/// Puts what members decided into the audit event of the request that it is for.
fn note(action: &Action, decided: &Decided) {
    if let Some(notes) = audit::notes() {
        notes.annotate(&format!("authorization.kubefold.io/{}", action.verb), decided.for_audit());
    }
}

/// Who asks. Whoever acts as somebody else needs the right to, too.
#[derive(Clone, Copy)]
pub struct Who<'a> {
    /// As whom.
    pub caller: &'a Caller,
    /// Who that is really; absent where it is himself.
    pub through: Option<&'a Arc<Impersonator>>,
}

impl Who<'_> {
    /// Says whether somebody who acts for himself is in one of these groups.
    pub fn is_of(&self, groups: &[&str]) -> bool {
        self.through.is_none() && groups.iter().any(|group| self.caller.is_in(group))
    }
}

/// Somebody who acts as somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonator {
    /// Who it is.
    pub caller: Caller,
    /// What has to be allowed for that.
    pub parts: Vec<Action>,
}

impl Impersonator {
    /// Why what it wants is refused.
    fn cannot(&self, part: &Action) -> String {
        let (user, resource, name) = (Quoted(&self.caller.user), &part.resource, Quoted(&part.name));
        format!("User {user} cannot impersonate {resource} {name}")
    }
}

/// Counts the words in a record.
#[derive(Clone)]
struct Words;

impl Weighter<Arc<Question<'static>>, Arc<Record>> for Words {
    fn weight(&self, _: &Arc<Question<'static>>, record: &Arc<Record>) -> u64 {
        record.weight()
    }
}

async fn ask(record: &Record, member: &Member) {
    let incarnation = member.incarnation();
    let question = record.question();
    let asked = timeout(ANSWER_MAX, judge(member, &question.caller, &question.action));
    let judgement =
        asked.await.unwrap_or_else(|_| Judgement::Unknown(format!("no answer in {}s", ANSWER_MAX.as_secs()).into()));
    record.answered(member.name(), incarnation, judgement);
}
