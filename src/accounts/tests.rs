//! How long a member's word about a token holds, and what a lying member gains.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;
use tokio::time::{Instant, advance};

use super::{GOOD_FOR, Said, Whose, is_of_account, said};
use crate::{
    authn::known::{AGAIN_AFTER, GRACE, Known},
    config::MemberName,
};
use kubefold_serving::caller::Caller;

fn runner() -> Whose {
    let user = "system:serviceaccount:ci:runner".to_owned();
    Whose::Account(Caller { user, domain: Some("east".into()), ..Caller::default() })
}

#[tokio::test(start_paused = true)]
async fn a_good_token_is_asked_about_again_after_a_while_and_a_bad_one_soon() {
    let known = Known::default();
    let slot = known.slot("token");
    assert_eq!(slot.fresh(), None, "nobody was asked");
    slot.is(runner(), Instant::now(), GOOD_FOR);
    advance(GOOD_FOR - Duration::from_millis(1)).await;
    assert_eq!(known.slot("token").fresh(), Some(Some(runner())));
    assert_eq!(known.slot("other").fresh(), None);
    advance(Duration::from_millis(1)).await;
    assert_eq!(slot.fresh(), None);
    slot.is(Whose::Nobodys, Instant::now(), AGAIN_AFTER);
    assert_eq!(slot.fresh(), Some(Some(Whose::Nobodys)));
    advance(AGAIN_AFTER).await;
    assert_eq!(slot.fresh(), None);
}

#[tokio::test(start_paused = true)]
async fn the_last_word_stands_as_long_as_whoever_asks_lets_it() {
    let known = Known::default();
    let slot = known.slot("silent");
    let said = Instant::now();
    slot.is(runner(), said, GOOD_FOR);
    advance(GRACE).await;
    let stands = |word: &Whose, at| word.member() == Some("east") && at == said;
    assert_eq!(slot.is_unknown(stands), Some(runner()));
    assert_eq!(slot.is_unknown(|_, at| Instant::now() < at + GRACE), None);
    assert_eq!(slot.fresh(), Some(None), "nobody is asked again at once");
    assert_eq!(slot.is_unknown(|_, _| true), None, "what is forgotten is not known again");
    assert_eq!(known.slot("never").is_unknown(|_: &Whose, _| true), None);
}

/// While a member cannot be asked for its keys, a token that may be its own is shown to nobody.
#[test]
fn a_token_of_a_service_account_is_known_before_its_signature_is() {
    let token = |payload: serde_json::Value| format!("e30.{}.x", URL_SAFE_NO_PAD.encode(payload.to_string()));
    assert!(is_of_account(&token(json!({"sub": "system:serviceaccount:ci:runner"}))));
    for other in [token(json!({"sub": "jane"})), token(json!({})), "opaque".to_owned()] {
        assert!(!is_of_account(&other), "{other}");
    }
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
