//! RBAC objects of members, as a sign that a decision may be another one by now, and never as the decision.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    access::question::Question,
    config::MemberName,
    member::Member,
    store::{Entry, Record},
    stores::{self, Heard, Running, Stores},
    view::Mode,
};
use kubefold_wire::resource::Gvr;

/// The kinds by which RBAC allows something.
const KINDS: [&str; 4] = ["clusterrolebindings", "clusterroles", "rolebindings", "roles"];
/// So long after a change a member is asked once more: the server that told of it, or another one of a highly available
/// control plane, may judge by the old rights for a moment.
const ASK_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Changes that are remembered; so many are swept.
const CHANGES_MAX: usize = 10_000;
/// A change that is older has no decision any more that it is about.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(2);
/// A kind that cannot be followed is tried again after so long.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Whose rights a change may have changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    Everybody,
    /// What is done in a namespace.
    Namespace(String),
    User(String),
    Group(String),
}

/// When rights in members changed last.
#[derive(Default)]
pub(super) struct Changes {
    last: Mutex<HashMap<MemberName, HashMap<Scope, Instant>>>,
    generation: AtomicU64,
}

#[derive(Deserialize)]
struct Binding {
    #[serde(default)]
    subjects: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

impl Changes {
    /// Counts the changes.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Until when a decision holds that was asked for at `at`, where something has changed that may be about it: until the
    /// change itself, if it was asked for before.
    pub(super) fn end(&self, member: &MemberName, question: &Question<'_>, at: Instant) -> Option<Instant> {
        let changed = self.changed(member, question)?;
        let ends = [changed].into_iter().chain(ASK_AGAIN.map(|after| changed + after));
        ends.into_iter().find(|end| at < *end)
    }

    /// Says whether something has changed since that may be about a decision that was asked for at `at`.
    pub(super) fn are_since(&self, member: &MemberName, question: &Question<'_>, at: Instant) -> bool {
        self.changed(member, question).is_some_and(|changed| at < changed)
    }

    fn changed(&self, member: &MemberName, question: &Question<'_>) -> Option<Instant> {
        let last = self.last.lock();
        let of_member = last.get(member)?;
        let caller = &question.caller;
        let scopes = [Scope::Everybody, Scope::User(caller.user.clone())].into_iter();
        let scopes = scopes.chain(caller.groups.iter().cloned().map(Scope::Group));
        let namespace = Some(&question.action.namespace).filter(|namespace| !namespace.is_empty());
        let scopes = scopes.chain(namespace.cloned().map(Scope::Namespace));
        scopes.filter_map(|scope| of_member.get(&scope)).max().copied()
    }

    /// As if everybody's rights changed.
    #[cfg(test)]
    pub(super) fn everybodys(&self, member: &MemberName) {
        self.note(member, [Scope::Everybody]);
    }

    fn note(&self, member: &MemberName, scopes: impl IntoIterator<Item = Scope>) {
        let now = Instant::now();
        let mut last = self.last.lock();
        let of_member = last.entry(member.clone()).or_default();
        of_member.extend(scopes.into_iter().map(|scope| (scope, now)));
        if of_member.len() > CHANGES_MAX {
            let forgotten = of_member.values().filter(|at| now >= **at + FORGOTTEN_AFTER).max().copied();
            of_member.retain(|_, at| now < *at + FORGOTTEN_AFTER);
            // Whoever they were about: what was decided before them is not known to hold.
            if let Some(forgotten) = forgotten {
                let everybody = of_member.entry(Scope::Everybody).or_insert(forgotten);
                *everybody = forgotten.max(*everybody);
            }
        }
        drop(last);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn note_record(&self, record: &Record, resource: &str) {
        for entry in std::iter::once(&record.entry).chain(&record.previous) {
            for member in entry.holders.iter() {
                self.note(member, scopes(entry, resource));
            }
        }
    }
}

/// Whose rights an object may change, by one of its states.
fn scopes(entry: &Entry, resource: &str) -> Vec<Scope> {
    let everybody = vec![Scope::Everybody];
    match resource {
        // Of what every cluster has one part alone is seen here.
        _ if entry.folded => everybody,
        "roles" => vec![Scope::Namespace(entry.namespace().to_owned())],
        "clusterroles" => everybody,
        _ => {
            let Ok(binding) = serde_json::from_slice::<Binding>(entry.json()) else { return everybody };
            binding.subjects.into_iter().map(|subject| subject.scope(entry.namespace())).collect()
        }
    }
}

impl Subject {
    fn scope(self, bound_in: &str) -> Scope {
        match self.kind.as_str() {
            "Group" => Scope::Group(self.name),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { bound_in } else { &self.namespace };
                Scope::User(format!("system:serviceaccount:{namespace}:{}", self.name))
            }
            _ => Scope::User(self.name),
        }
    }
}

fn gvr(resource: &str) -> Gvr {
    Gvr::new("rbac.authorization.k8s.io", "v1", resource)
}

/// The stores of RBAC, as far as they run.
pub(super) struct Followed(Vec<Arc<Running>>);

impl Followed {
    pub(super) fn now(stores: &Stores) -> Self {
        Self(KINDS.iter().filter_map(|kind| stores.peek(&gvr(kind))).collect())
    }

    /// Says whether every change of RBAC in a member is heard of.
    pub(super) fn has(&self, stores: &Stores, member: &Member) -> bool {
        self.0.len() == KINDS.len() && self.0.iter().all(|running| stores.follows(running, member))
    }
}

/// Notes every change, until cancelled.
pub(super) async fn follow(stores: &Stores, changes: &Changes) {
    futures::future::join_all(KINDS.map(|kind| follow_kind(stores, changes, kind))).await;
}

async fn follow_kind(stores: &Stores, changes: &Changes, kind: &str) {
    loop {
        if let Ok(ready) = stores.ready_in(&gvr(kind), None, Mode::Lenient).await {
            follow_store(&ready.running, changes, kind).await;
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Ends with the store.
async fn follow_store(running: &Running, changes: &Changes, kind: &str) {
    let store = &running.store;
    stores::follow(store, |heard| match heard {
        Heard::Begun => {}
        Heard::Event(record) => changes.note_record(record, kind),
        // Whatever it was.
        Heard::Lost => {
            let snapshot = store.snapshot();
            let members: BTreeSet<&MemberName> =
                snapshot.objects.values().flat_map(|entry| entry.holders.iter()).collect();
            members.into_iter().for_each(|member| changes.note(member, [Scope::Everybody]));
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::review::Action;
    use kubefold_serving::caller::Caller;

    #[tokio::test(start_paused = true)]
    async fn a_change_ends_the_decisions_that_it_may_be_about() {
        let [east, west] = ["east", "west"].map(|name| MemberName::new(name).unwrap());
        let caller = Caller { user: "jane".into(), groups: vec!["dev".into()], ..Caller::default() };
        let inside = Action { namespace: "shop".into(), ..Action::default() };
        let everywhere = Action::default();
        let about = |scope: Scope, action: &Action| {
            let (changes, before) = (Changes::default(), Instant::now());
            changes.note(&east, [scope]);
            let question = Question::of(&caller, action);
            assert_eq!(changes.end(&west, &question, before - Duration::from_secs(1)), None, "another member's");
            changes.end(&east, &question, before - Duration::from_secs(1)).is_some()
        };
        let text = str::to_owned;
        for (scope, is_about) in [
            (Scope::Everybody, [true, true]),
            (Scope::User(text("jane")), [true, true]),
            (Scope::Group(text("dev")), [true, true]),
            (Scope::Namespace(text("shop")), [true, false]),
            (Scope::Namespace(text("bank")), [false, false]),
            (Scope::User(text("dev")), [false, false]),
            (Scope::Group(text("jane")), [false, false]),
        ] {
            assert_eq!([&inside, &everywhere].map(|action| about(scope.clone(), action)), is_about, "{scope:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_change_a_member_is_asked_three_times() {
        let east = MemberName::new("east").unwrap();
        let (caller, action) = (Caller::default(), Action::default());
        let question = Question::of(&caller, &action);
        let changes = Changes::default();
        let changed = Instant::now();
        changes.note(&east, [Scope::Everybody]);
        let after = |asked_after: u64| changes.end(&east, &question, changed + Duration::from_secs(asked_after));
        assert_eq!(after(0), Some(changed + Duration::from_secs(1)));
        assert_eq!(after(1), Some(changed + Duration::from_secs(5)));
        assert_eq!((after(5), changes.generation()), (None, 1));
    }

    #[test]
    fn a_subject_is_whom_it_binds() {
        let scope = |subject: &str| serde_json::from_str::<Subject>(subject).unwrap().scope("shop");
        let account = |name: &str| Scope::User(name.to_owned());
        assert_eq!(scope(r#"{"kind":"User","name":"jane"}"#), account("jane"));
        assert_eq!(scope(r#"{"kind":"Group","name":"dev"}"#), Scope::Group("dev".into()));
        let of = r#"{"kind":"ServiceAccount","name":"ci","namespace":"build"}"#;
        assert_eq!(scope(of), account("system:serviceaccount:build:ci"));
        assert_eq!(scope(r#"{"kind":"ServiceAccount","name":"ci"}"#), account("system:serviceaccount:shop:ci"));
    }
}
