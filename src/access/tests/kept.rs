//! What outlives a restart: a member that is down is taken at its last word, and one that answers is asked.

use std::sync::atomic::Ordering;

use super::{
    judging::{Verdict, judging},
    *,
};
use crate::access::Kept;

fn caller(user: &str) -> Caller {
    Caller { user: user.into(), ..Caller::default() }
}

/// Waits for what probes find out.
async fn health(stores: &Stores, name: &str, is_there: impl Fn(&Member) -> bool) {
    let member = stores.registry().get(name).unwrap();
    let mut health = member.health_changes();
    while !is_there(&member) {
        health.changed().await.unwrap();
    }
}

/// Another process that knows what the last one wrote down.
fn restarted(stores: Arc<Stores>, text: Option<&str>) -> Arc<Access> {
    let access = access(stores);
    access.restore(Kept::read(b"key", text).unwrap());
    access
}

#[tokio::test]
async fn after_a_restart_a_member_that_is_down_is_taken_at_its_last_word() {
    let judge = |user: &str, _: &Value| if user == "jane" { Verdict::yes() } else { Verdict::no() };
    let (east, _) = judging(|_, _| Verdict::yes()).await;
    let (west, _) = judging(judge).await;
    let members = || vec![east.config("east"), west.config("west")];
    let first = restarted(stores_of(members()), None);
    for name in ["east", "west"] {
        health(first.stores(), name, |member| member.cluster_uid().is_some()).await;
    }
    for user in ["jane", "eve"] {
        first.grant(by(&caller(user)), &list_pods(), None).await;
    }
    let text = first.keep().unwrap();
    assert!(!text.contains("jane") && !text.contains("pods"), "{text}");
    let clusters = first.stores().registry().clusters();
    first.cancel.cancel();

    // West is down, and this process has never reached it.
    let away = west.config("west");
    drop(west);
    let configs = || vec![east.config("east"), away.clone()];
    let begun = async |text: &str, clusters: &std::collections::BTreeMap<String, String>| {
        let stores = stores_that_know(configs(), clusters.clone());
        let access = restarted(stores, Some(text));
        health(access.stores(), "west", |member| member.health().is_down()).await;
        access
    };
    let second = begun(&text, &clusters).await;
    let name = MemberName::new("west").unwrap();
    let jane = second.grant(by(&caller("jane")), &list_pods(), None).await;
    jane.check(Mode::Whole).unwrap();
    assert!(jane.audience().sees_member(&name) && jane.warnings().is_empty());
    // Of a name that it was not asked about, as of all names.
    let of_one = Action { name: "web".into(), ..list_pods() };
    assert!(second.grant(by(&caller("jane")), &of_one, None).await.audience().sees_member(&name));
    let eve = second.grant(by(&caller("eve")), &list_pods(), None).await;
    eve.check(Mode::Whole).unwrap();
    assert_eq!(eve.refusing(), std::slice::from_ref(&name), "its no stands, too, and others are shown");
    assert!(is_unknown(&second.grant(by(&caller("late")), &list_pods(), None).await), "whom it never told of");
    // What is known is kept for the next one, whoever has asked meanwhile.
    let third = begun(&second.keep().unwrap(), &clusters).await;
    assert!(third.grant(by(&caller("jane")), &list_pods(), None).await.audience().sees_member(&name));
    // Another cluster has said nothing.
    let other = [("west".to_owned(), "another".to_owned())].into();
    let fourth = begun(&text, &other).await;
    assert!(is_unknown(&fourth.grant(by(&caller("jane")), &list_pods(), None).await));
    for access in [second, third, fourth] {
        access.cancel.cancel();
    }
}

#[tokio::test]
async fn after_a_restart_a_member_that_answers_is_asked() {
    let allows = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let allowed = Arc::clone(&allows);
    let (east, asked) =
        judging(move |_, _| if allowed.load(Ordering::Relaxed) { Verdict::yes() } else { Verdict::no() }).await;
    let first = restarted(stores_of(vec![east.config("east")]), None);
    health(first.stores(), "east", |member| member.cluster_uid().is_some()).await;
    first.grant(by(&jane()), &list_pods(), None).await.check(Mode::Strict).unwrap();
    let text = first.keep().unwrap();
    allows.store(false, Ordering::Relaxed);
    let clusters = first.stores().registry().clusters();
    let second = restarted(stores_that_know(vec![east.config("east")], clusters), Some(&text));
    assert!(is_forbidden(&second.grant(by(&jane()), &list_pods(), None).await), "whatever it said before");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    // And that is what counts when it goes down.
    let stores = Arc::clone(second.stores());
    health(&stores, "east", |member| member.cluster_uid().is_some()).await;
    drop(east);
    health(&stores, "east", |member| member.health().is_down()).await;
    second.age(&jane(), GRACE);
    assert!(is_forbidden(&second.grant(by(&jane()), &list_pods(), None).await));
    assert!(second.keep().unwrap().contains('-'), "a no");
}

#[tokio::test(start_paused = true)]
async fn a_word_does_not_stand_over_an_outage_when_rights_have_changed_since() {
    use crate::upstream::health::Input;
    let (stores, member, record) = recorded();
    let changes = Changes::default();
    let members = [Arc::clone(&member)];
    let look = || record.look(&stores, &changes, &members, None).decided;
    record.look(&stores, &changes, &members, None);
    record.answered(member.name(), member.incarnation(), Judgement::Allowed);
    pass(FOLLOWED_FOR).await;
    member.feed(Input::ProbeFailed { cause: "refused".into(), certain: true });
    assert!(look().audience.sees_member(member.name()), "its last word stands");
    changes.everybodys(member.name());
    let void = look();
    assert!(!void.audience.sees_member(member.name()) && void.unsaid.len() == 1, "and not against what was heard");
}
