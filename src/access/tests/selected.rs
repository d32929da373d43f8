//! Lists with selectors, where a member allows nothing else; and what one who asks for everything costs the others.

use std::sync::atomic::Ordering;

use super::{
    judging::{Verdict, judging},
    *,
};

#[tokio::test]
async fn a_member_that_denies_a_list_is_asked_with_its_selectors() {
    let of_node = json!({"rawSelector": "spec.nodeName=n"});
    let (east, in_east) = judging(|_, _| Verdict::yes()).await;
    let selected = of_node.clone();
    let (west, in_west) =
        judging(move |_, asked| if asked["fieldSelector"] == selected { Verdict::yes() } else { Verdict::no() }).await;
    let (north, in_north) = judging(|_, _| Verdict::no()).await;
    let configs = [("east", &east), ("west", &west), ("north", &north)].map(|(name, fake)| fake.config(name));
    let access = access(stores_of(configs.into()));
    let caller = jane();
    // Each in its own words; in north nothing can match.
    let in_member = |member: &MemberName| {
        let fields = "spec.nodeName=n".to_owned();
        (member.as_str() != "north").then(|| Action { fields, ..list_pods() })
    };
    let [sees_east, sees_west] = ["east", "west"].map(|name| MemberName::new(name).unwrap());
    let mut grants = Vec::new();
    for _ in 0..3 {
        let grant = access.grant_selected(by(&caller), &list_pods(), None, in_member).await;
        grant.check(Mode::Whole).unwrap();
        assert_eq!(grant.audience(), &Audience::of([sees_east.clone(), sees_west.clone()]));
        assert!(grant.warnings().iter().all(|warning| warning.contains("north")), "{:?}", grant.warnings());
        grants.push(grant);
    }
    assert_eq!([in_east, in_west, in_north].map(|count| count.load(Ordering::Relaxed)), [1, 2, 1]);
    let without = access.grant(by(&caller), &list_pods(), None).await;
    assert_eq!(without.audience(), &Audience::of([sees_east]), "without them it is another question");
    // An open watch is renewed by both.
    let grant = grants.pop().unwrap();
    assert!(matches!(grant.renewal().unwrap().look(grant.audience()), Renewed::Same));
    access.cancel.cancel();
}

#[tokio::test]
async fn who_asks_about_name_after_name_pushes_out_nobody_else() {
    let (east, asked) = judging(|_, _| Verdict::yes()).await;
    let access = access(stores_of(vec![east.config("east")]));
    access.grant(by(&jane()), &list_pods(), None).await.check(Mode::Strict).unwrap();
    let eve = Caller { user: "eve".into(), ..Caller::default() };
    let names: Vec<Action> = (0..2_100).map(|at| Action { namespace: format!("n{at}"), ..list_pods() }).collect();
    for some in names.chunks(50) {
        join_all(some.iter().map(|action| access.grant(by(&eve), action, None))).await;
    }
    access.age(&jane(), Duration::ZERO);
    let before = asked.load(Ordering::Relaxed);
    access.grant(by(&jane()), &list_pods(), None).await.check(Mode::Strict).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), before, "what she was told is known");
    assert_eq!(access.records.len(), 2_001, "his own alone are gone");
}

#[tokio::test]
async fn in_the_name_of_whom_one_may_not_be_nobody_is_asked() {
    let (east, asked) =
        judging(|_, asked| if asked["verb"] == "impersonate" { Verdict::no() } else { Verdict::yes() }).await;
    let access = access(stores_of(vec![east.config("east")]));
    let eve = Caller { user: "eve".into(), ..Caller::default() };
    let part =
        Action { verb: "impersonate".into(), resource: "users".into(), name: "jane".into(), ..Action::default() };
    let through = Arc::new(Impersonator { caller: eve, parts: vec![part] });
    let caller = jane();
    let grant = access.grant(Who { caller: &caller, through: Some(&through) }, &list_pods(), None).await;
    let refused = grant.check(Mode::Lenient).unwrap_err().to_string();
    assert!(refused.contains(r#"User "eve" cannot impersonate users "jane""#), "{refused}");
    assert_eq!((asked.load(Ordering::Relaxed), access.records.len()), (1, 1));
}

/// Ten thousand equal requests over ten of the times that a yes holds.
#[tokio::test]
async fn equal_requests_cost_one_review_a_member_in_the_time_that_its_word_holds() {
    let (east, in_east) = judging(|_, _| Verdict::yes()).await;
    let (west, in_west) = judging(|_, _| Verdict::yes()).await;
    let access = access(stores_of(vec![east.config("east"), west.config("west")]));
    let caller = jane();
    for _ in 0..10 {
        for _ in 0..1_000 {
            access.grant(by(&caller), &list_pods(), None).await.check(Mode::Strict).unwrap();
        }
        access.age(&caller, FOLLOWED_FOR);
    }
    assert_eq!([in_east, in_west].map(|count| count.load(Ordering::Relaxed)), [10, 10]);
}
