//! How long a member's word about a token holds, and what a lying member gains.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, advance};

use super::{
    Said,
    known::{BAD_FOR, GOOD_FOR, GRACE, Known},
    said,
};
use crate::config::MemberName;
use kubefold_serving::caller::Caller;

fn runner() -> Caller {
    Caller { user: "system:serviceaccount:ci:runner".into(), domain: Some("east".into()), ..Caller::default() }
}

#[tokio::test(start_paused = true)]
async fn a_good_token_is_asked_about_again_after_a_while_and_a_bad_one_soon() {
    let known = Known::default();
    let slot = known.slot("token");
    assert_eq!(slot.fresh(), None, "nobody was asked");
    slot.is(Some(runner()), Instant::now());
    advance(GOOD_FOR - Duration::from_millis(1)).await;
    assert_eq!(known.slot("token").fresh(), Some(Some(runner())));
    assert_eq!(known.slot("other").fresh(), None);
    advance(Duration::from_millis(1)).await;
    assert_eq!(slot.fresh(), None);
    slot.is(None, Instant::now());
    assert_eq!(slot.fresh(), Some(None));
    advance(BAD_FOR).await;
    assert_eq!(slot.fresh(), None);
}

#[tokio::test(start_paused = true)]
async fn the_last_word_stands_through_an_outage_and_for_a_while_without_one() {
    let known = Known::default();
    let [silent, down] = ["silent", "down"].map(|token| known.slot(token));
    for slot in [&silent, &down] {
        slot.is(Some(runner()), Instant::now());
    }
    advance(GRACE - Duration::from_secs(1)).await;
    assert_eq!(silent.is_unknown(Instant::now(), |_| false), Some(runner()));
    advance(Duration::from_secs(1)).await;
    assert_eq!(silent.is_unknown(Instant::now(), |_| false), None);
    assert_eq!(silent.is_unknown(Instant::now(), |_| true), None, "what is forgotten is not known again");
    assert_eq!(down.is_unknown(Instant::now(), |member| member == "east"), Some(runner()));
    assert_eq!(known.slot("never").is_unknown(Instant::now(), |_| true), None);
}

#[test]
fn whoever_a_member_names_is_somebody_in_that_member_alone() {
    let east = MemberName::new("east").unwrap();
    let of = |review: serde_json::Value| said(&east, review.to_string().as_bytes());
    let user = json!({"username": "jane", "uid": "u", "groups": ["system:masters"], "extra": {"a": ["b"]}});
    let Said::Good(jane) = of(json!({"status": {"authenticated": true, "user": user}})) else { panic!() };
    assert_eq!((jane.domain.as_deref(), jane.uid.as_deref(), jane.extra.len()), (Some("east"), Some("u"), 0));
    assert_eq!(jane.groups, ["system:masters", "system:authenticated"]);
    assert!(!jane.is_in("system:masters") && jane.counts_in("east") && !jane.counts_in("west"));
    for nobody in [json!({"user": user}), json!({"authenticated": true}), json!({})] {
        assert!(matches!(of(json!({ "status": nobody })), Said::Bad));
    }
    assert!(matches!(said(&east, b"<html>"), Said::Unknown(_)));
}
