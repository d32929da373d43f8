//! Whatever goes wrong with a review, whatever was known before, and whatever is read: what a user sees.

use std::{collections::HashSet, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;

use super::{
    judging::{Verdict, judging},
    *,
};
use crate::access::FOLLOWED_FOR;
use kubefold_wire::status::Status;

/// What a member does in place of an answer.
const FAULTS: [&str; 6] = ["500", "429", "hang", "garbage", "both", "evaluation"];
/// What it said before: nothing, or a yes, of which the time is not over, or is, or is over for longer than the grace.
const BEFORE: [&str; 4] = ["never", "known", "expired", "forgotten"];

fn fault(name: &str) -> Verdict {
    match name {
        "500" => Verdict::Says(500, r#"{"message":"etcd"}"#.to_owned()),
        "429" => Verdict::Says(429, String::new()),
        "hang" => Verdict::Hangs,
        "garbage" => Verdict::Says(201, "<html>Please log in</html>".to_owned()),
        "both" => Verdict::status(&json!({"allowed": true, "denied": true, "reason": "both"})),
        _ => Verdict::status(&json!({"allowed": false, "evaluationError": "webhook"})),
    }
}

/// What a user is answered: the code, and of the second member that its objects are left out, or shown by its last word.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    All,
    Aged,
    LeftOut,
    Refused(u16),
}

fn seen(grant: &Grant, mode: Mode) -> Seen {
    if let Err(error) = grant.check(mode) {
        return Seen::Refused(Status::from(error).code.as_u16());
    }
    let (west, warnings) = (MemberName::new("west").unwrap(), grant.warnings());
    match (grant.audience().sees_member(&west), warnings.is_empty()) {
        (true, true) => Seen::All,
        (true, false) => Seen::Aged,
        (false, _) => {
            assert!(warnings.iter().any(|warning| warning.contains("west")), "{warnings:?}");
            Seen::LeftOut
        }
    }
}

fn watched(renewed: Renewed) -> Seen {
    match renewed {
        Renewed::Same | Renewed::More(_) => Seen::All,
        Renewed::Ended(error) => Seen::Refused(Status::from(*error).code.as_u16()),
    }
}

/// A list, a Table, a get, the strict view, and a watch that began when all was well.
fn wanted(fault: &str, before: &str) -> [Seen; 5] {
    use Seen::{Aged, All, LeftOut, Refused};
    match (fault, before) {
        (_, "known") => [All, All, All, All, All],
        // Whoever says both says no.
        ("both", _) => [LeftOut, LeftOut, LeftOut, Refused(403), Refused(403)],
        (_, "expired") => [Aged, Aged, Aged, Refused(503), All],
        _ => [Refused(503), LeftOut, Refused(503), Refused(503), Refused(503)],
    }
}

/// What all members allow, once they have said so.
async fn allowed(access: &Arc<Access>, caller: &Caller, action: &Action) -> Grant {
    loop {
        let grant = access.grant(by(caller), action, None).await;
        if grant.check(Mode::Strict).is_ok() {
            return grant;
        }
    }
}

#[tokio::test]
async fn whatever_goes_wrong_with_a_review_nothing_is_shown_that_is_not_allowed() {
    let broken: Arc<Mutex<HashSet<String>>> = Arc::default();
    let is_broken = Arc::clone(&broken);
    let (east, _) = judging(|_, _| Verdict::yes()).await;
    let (west, _) =
        judging(
            move |user, _| {
                if is_broken.lock().contains(user) { fault(user.split('-').next().unwrap()) } else { Verdict::yes() }
            },
        )
        .await;
    let access = access(stores_of(vec![east.config("east"), west.config("west")]));
    let cases = FAULTS.iter().flat_map(|fault| BEFORE.map(|before| (*fault, before)));
    let all = cases.map(|(fault, before)| {
        let (access, broken) = (Arc::clone(&access), Arc::clone(&broken));
        async move {
            let caller = Caller { user: format!("{fault}-{before}"), ..Caller::default() };
            let get = Action { verb: "get".into(), name: "web".into(), ..list_pods() };
            let began = if before == "never" {
                None
            } else {
                allowed(&access, &caller, &get).await;
                Some(allowed(&access, &caller, &list_pods()).await)
            };
            broken.lock().insert(caller.user.clone());
            let age = match before {
                "expired" => FOLLOWED_FOR + Duration::from_secs(1),
                "forgotten" => GRACE + FOLLOWED_FOR,
                _ => Duration::ZERO,
            };
            access.age(&caller, age);
            let list = list_pods();
            let (list, got) =
                tokio::join!(access.grant(by(&caller), &list, None), access.grant(by(&caller), &get, None));
            let watch = match &began {
                Some(grant) => watched(grant.renewal().unwrap().look(grant.audience())),
                None => seen(&list, Mode::Whole),
            };
            let now = [
                seen(&list, Mode::Whole),
                seen(&list, Mode::Lenient),
                seen(&got, Mode::Whole),
                seen(&list, Mode::Strict),
                watch,
            ];
            let mut wanted = wanted(fault, before);
            if began.is_none() && fault == "both" {
                wanted[4] = Seen::LeftOut;
            }
            assert_eq!(now, wanted, "{fault} {before}");
        }
    });
    join_all(all).await;
    access.cancel.cancel();
}
