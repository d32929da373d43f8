//! How often members are asked, how long their word holds, and what no word comes to.

mod faults;
mod judging;
mod kept;
mod selected;

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use http::Response;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    ALLOWED_FOR, Access, DENIED_FOR, FOLLOWED_FOR, Following, GRACE, Grant, Impersonator, Renewal, Renewed, Who,
    question::Question,
    rbac::Changes,
    record::{Decided, Record, Word},
    terms::WAIT_MAX,
};
use crate::{
    config::MemberName,
    member::{
        Member,
        fake::{Fake, handler},
        review::{Action, Judgement},
    },
    respond::AccessError,
    store::Audience,
    stores::{
        Stores,
        tests::{stores, stores_of, stores_that_know},
    },
    view::Mode,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::body::full;

fn jane() -> Caller {
    Caller { user: "jane".into(), groups: vec!["dev".into()], ..Caller::default() }
}

fn by(caller: &Caller) -> Who<'_> {
    Who { caller, through: None }
}

fn list_pods() -> Action {
    Action { verb: "list".into(), version: "v1".into(), resource: "pods".into(), ..Action::default() }
}

/// What a member answers to every question, and how often it was asked.
#[derive(Clone)]
struct Answers {
    said: Arc<Mutex<(u16, Value)>>,
    count: Arc<AtomicUsize>,
}

impl Answers {
    fn new() -> Self {
        Self { said: Arc::new(Mutex::new((201, json!({"status": {"allowed": true}})))), count: Arc::default() }
    }

    fn say(&self, code: u16, body: Value) {
        *self.said.lock() = (code, body);
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// A member that is asked in the caller's name, and knows nothing else.
    async fn member(&self) -> Fake {
        let answers = self.clone();
        Fake::http2(handler(move |request| {
            let answers = answers.clone();
            async move {
                if !request.uri().path().ends_with("/selfsubjectaccessreviews") {
                    return Ok(Response::builder().status(404).body(full("{}")).unwrap());
                }
                assert_eq!(request.headers()["impersonate-user"], "jane");
                assert_eq!(request.headers()["impersonate-group"], "dev");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let asked: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(asked["spec"]["resourceAttributes"]["resource"], "pods");
                answers.count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
                let (code, said) = answers.said.lock().clone();
                let said = judging::of_review(asked, said.to_string());
                Ok(Response::builder().status(code).body(full(said)).unwrap())
            }
        }))
        .await
    }
}

fn access(stores: Arc<Stores>) -> Arc<Access> {
    Access::new(stores, TaskTracker::new(), CancellationToken::new())
}

fn is_unknown(grant: &Grant) -> bool {
    matches!(grant.check(Mode::Whole), Err(AccessError::Unknown { .. }))
}

fn is_forbidden(grant: &Grant) -> bool {
    matches!(grant.check(Mode::Lenient), Err(AccessError::Forbidden { .. }))
}

#[tokio::test]
async fn equal_questions_are_one_for_each_member() {
    let (east, west) = (Answers::new(), Answers::new());
    west.say(201, json!({"status": {"allowed": false, "reason": "no rule"}}));
    let (in_east, in_west) = (east.member().await, west.member().await);
    let access = access(stores_of(vec![in_east.config("east"), in_west.config("west")]));
    let (caller, action) = (jane(), list_pods());
    let grants = join_all((0..1000).map(|_| access.grant(by(&caller), &action, None))).await;
    for grant in &grants {
        grant.check(Mode::Whole).unwrap();
        assert_eq!(grant.refusing(), [MemberName::new("west").unwrap()]);
        let refused = grant.check(Mode::Strict).unwrap_err().to_string();
        assert!(refused.ends_with("at the cluster scope: member west: no rule"), "{refused}");
    }
    for _ in 0..1000 {
        access.grant(by(&caller), &action, None).await;
    }
    assert_eq!((east.count(), west.count()), (1, 1));
    let of_one = Action { name: "web".into(), ..list_pods() };
    access.grant(by(&caller), &of_one, Some(&MemberName::new("east").unwrap())).await.check(Mode::Strict).unwrap();
    assert_eq!((east.count(), west.count()), (2, 1), "one member is asked about what is its own");
}

#[tokio::test]
async fn what_is_no_clear_yes_allows_nothing() {
    let answers = Answers::new();
    let member = answers.member().await;
    let access = access(stores_of(vec![member.config("east")]));
    let of = |status: Value| json!({ "status": status });
    for (at, (code, body, is_no)) in [
        (500, json!({}), false),
        (429, json!({}), false),
        (401, json!({}), false),
        (201, json!("nonsense"), false),
        (201, of(json!({"allowed": false, "evaluationError": "webhook"})), false),
        (201, of(json!({"allowed": true, "denied": true})), true),
        (201, of(json!({"allowed": false})), true),
        (403, json!({"message": "jane cannot be impersonated"}), true),
    ]
    .into_iter()
    .enumerate()
    {
        answers.say(code, body);
        let action = Action { namespace: at.to_string(), ..list_pods() };
        let grant = access.grant(by(&jane()), &action, None).await;
        assert_eq!((is_forbidden(&grant), is_unknown(&grant)), (is_no, !is_no), "{code} {at}");
        assert!(grant.check_write().is_err());
    }
}

/// A member that nobody probes, and a record that a test fills.
fn recorded() -> (Arc<Stores>, Arc<Member>, Record) {
    let stores = stores(&["east"]);
    let member = stores.registry().get("east").unwrap();
    member.removed().cancel();
    let record = Record::new(Question::of(&jane(), &list_pods()), 1, 0);
    (stores, member, record)
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_word_holds_for_its_time_and_is_renewed_before() {
    for (judgement, holds_for) in [(Judgement::Allowed, ALLOWED_FOR), (Judgement::Denied("".into()), DENIED_FOR)] {
        let (stores, member, record) = recorded();
        let members = [Arc::clone(&member)];
        let look = || record.look(&stores, &Changes::default(), &members, None);
        let first = look();
        assert_eq!((first.due.len(), first.waits, first.decided.unsaid.len()), (1, true, 1));
        assert_eq!(look().due.len(), 0, "it is being asked");
        record.answered(member.name(), member.incarnation(), judgement);
        let said = look();
        assert_eq!((said.due.len(), said.waits, said.decided.unsaid.len()), (0, false, 0));
        assert!(Arc::ptr_eq(&record.known(&stores, &Changes::default(), None).unwrap(), &said.decided));
        assert!(record.known(&stores, &Changes::default(), Some(member.name())).is_none(), "another question");
        pass(holds_for * 4 / 5).await;
        assert!(record.known(&stores, &Changes::default(), None).is_none());
        let ahead = look();
        assert_eq!((ahead.due.len(), ahead.waits, ahead.decided), (1, false, said.decided), "nobody waits for it");
        pass(holds_for / 5).await;
        assert_eq!(look().decided.unsaid.len(), 1, "its time is over");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_say_any_more_is_taken_at_its_last_yes_for_a_while() {
    let (stores, member, record) = recorded();
    let members = [Arc::clone(&member)];
    let look = || record.look(&stores, &Changes::default(), &members, None);
    let _asked = look();
    record.answered(member.name(), member.incarnation(), Judgement::Allowed);
    let fails = || {
        let due = look().due.len();
        record.answered(member.name(), member.incarnation(), Judgement::Unknown("it answered 500".into()));
        due
    };
    pass(ALLOWED_FOR).await;
    assert_eq!(fails(), 1);
    let aged = look();
    assert_eq!((aged.due.len(), aged.decided.aged.len(), aged.decided.unsaid.len()), (0, 1, 0));
    assert!(
        aged.decided.audience.sees_member(member.name()) && record.known(&stores, &Changes::default(), None).is_none()
    );
    pass(Duration::from_secs(2)).await;
    assert_eq!(fails(), 1, "it is asked again");
    pass(GRACE).await;
    fails();
    let over = look();
    assert_eq!((over.decided.aged.len(), over.decided.unsaid.len()), (0, 1));
    // A no has no such grace, and another cluster has said nothing.
    record.answered(member.name(), member.incarnation(), Judgement::Denied("".into()));
    pass(DENIED_FOR).await;
    fails();
    assert_eq!(look().decided.unsaid.len(), 1);
    record.answered(member.name(), member.incarnation() + 1, Judgement::Allowed);
    assert_eq!(look().decided.unsaid.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_hangs_is_not_waited_for_and_taken_at_its_last_yes() {
    let (stores, member, record) = recorded();
    let members = [Arc::clone(&member)];
    let look = || record.look(&stores, &Changes::default(), &members, None);
    let _asked = look();
    pass(WAIT_MAX).await;
    let never = look();
    assert_eq!((never.due.len(), never.waits, never.decided.unsaid.len()), (0, false, 1));
    record.answered(member.name(), member.incarnation(), Judgement::Allowed);
    pass(ALLOWED_FOR).await;
    let again = look();
    assert_eq!((again.due.len(), again.waits), (1, true));
    pass(WAIT_MAX).await;
    let hangs = look();
    assert_eq!((hangs.waits, hangs.decided.aged.len(), hangs.decided.unsaid.len()), (false, 1, 0));
    assert!(hangs.decided.audience.sees_member(member.name()));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_about_to_say_keeps_no_loss_in_another_from_being_seen() {
    let access = access(stores(&["east", "west"]));
    let members = access.stores().registry().members();
    members.iter().for_each(|member| member.removed().cancel());
    let [east, west] = [0, 1].map(|at| members[at].name().clone());
    let record = access.record(&jane(), &list_pods(), 0);
    let renewal = Renewal::new(&access, Arc::clone(&record), None, None);
    let answered = |name: &MemberName, judgement| record.answered(name, members[0].incarnation(), judgement);
    answered(&east, Judgement::Allowed);
    let sees_east = Audience::of([east.clone()]);
    assert!(matches!(renewal.look(&sees_east), Renewed::Same), "west is asked for the first time");
    answered(&west, Judgement::Allowed);
    assert!(matches!(renewal.look(&sees_east), Renewed::More(more) if more.sees_member(&west)));
    pass(ALLOWED_FOR).await;
    pass(Duration::from_secs(3)).await;
    let sees_both = Audience::of([east.clone(), west.clone()]);
    assert!(matches!(renewal.look(&sees_both), Renewed::Same), "both are asked again");
    answered(&east, Judgement::Denied("".into()));
    assert!(matches!(renewal.look(&sees_both), Renewed::Ended(_)), "whatever west is about to say");
    access.cancel.cancel();
}

#[tokio::test(start_paused = true)]
async fn those_who_use_the_same_answer_are_told_of_changes_by_one_look() {
    let access = access(stores(&["east", "west"]));
    let members = access.stores().registry().members();
    members.iter().for_each(|member| member.removed().cancel());
    let [east, west] = [0, 1].map(|at| members[at].name().clone());
    let record = access.record(&jane(), &list_pods(), 0);
    let answered = |name: &MemberName, judgement| record.answered(name, members[0].incarnation(), judgement);
    answered(&east, Judgement::Allowed);
    let renewal = || Renewal::new(&access, Arc::clone(&record), None, None);
    let mut all = [renewal().follow(), renewal().follow()];
    let of_east = Renewal::new(&access, Arc::clone(&record), None, Some(east.clone())).follow();
    assert_eq!(access.in_use.len(), 2, "one for both, and one for whoever asks east alone");

    let (sees_east, sees_both) = (Audience::of([east.clone()]), Audience::of([east.clone(), west.clone()]));
    assert!(all.iter().all(Following::has_news), "the first look is due");
    assert!(all.each_mut().map(|one| one.look(&sees_east)).iter().all(|seen| matches!(seen, Renewed::Same)));
    pass(Duration::from_secs(2)).await;
    assert!(!all.iter().any(Following::has_news), "nobody has said anything else");
    let mut waits = renewal().follow();
    assert!(matches!(waits.look(&sees_east), Renewed::Same));
    let told = access.tasks.spawn(async move { poll_fn(|cx| waits.poll_news(cx)).await });
    answered(&west, Judgement::Allowed);
    pass(Duration::from_secs(2)).await;
    assert!(told.is_finished(), "whoever waits is woken");
    for one in &mut all {
        assert!(one.has_news());
        assert!(matches!(one.look(&sees_east), Renewed::More(more) if more == sees_both));
    }
    answered(&east, Judgement::Denied("".into()));
    pass(Duration::from_secs(2)).await;
    assert!(all.each_mut().map(|one| one.look(&sees_both)).iter().all(|seen| matches!(seen, Renewed::Ended(_))));
    drop((all, of_east));
    pass(Duration::from_secs(2)).await;
    assert_eq!(access.in_use.len(), 0);
    access.cancel.cancel();
}

#[test]
fn a_member_that_is_down_is_taken_at_its_yes_to_all_names() {
    let names = ["yes", "no", "silent", "up"].map(|name| MemberName::new(name).unwrap());
    let [yes, no, silent, up] = &names;
    let word =
        |member: &MemberName| Word { member: member.clone(), why: "".into(), is_down: member != up, may_come: false };
    let of_one = Decided { unsaid: names.iter().map(word).collect(), audience: Audience::of([]), ..Decided::default() };
    let of_all = Decided {
        audience: Audience::of([yes.clone(), up.clone()]),
        denied: vec![word(no)],
        unsaid: vec![word(silent)],
        aged: Vec::new(),
    };
    let filled = of_one.filled(&of_all);
    assert_eq!(filled.audience, Audience::of([yes.clone()]));
    assert_eq!(filled.unsaid, [no, silent, up].map(word), "a no to all names may be a yes to this one");
}
