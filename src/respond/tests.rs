//! What clients see of each error: its code, its reason, its words.

use std::time::Duration;

use crate::{
    config::MemberName,
    placement::plan::PlanError,
    respond::{ApiError, Blame, DiscoveryError, ReadError, Retry, StreamError, Unplaced},
    store::Revision,
    upstream::{Failure, TooManyStreams, UpstreamError},
};
use kubefold_wire::{
    resource::{Gvk, Gvr},
    status::{Reason, Status},
};

/// Code, reason and text of the answer, and who has to act.
fn told(error: impl ApiError) -> (u16, Reason, String, Blame, Retry) {
    let (blame, retry) = (error.blame(), error.retry());
    let status: Status = error.into();
    (status.code.as_u16(), status.reason, status.message, blame, retry)
}

fn pods() -> Gvr {
    Gvr::new("", "v1", "pods")
}

#[test]
fn a_name_that_is_nothing_lists_what_it_could_be() {
    let named = |natives: &[&str]| ReadError::NotFound {
        gvr: pods(),
        name: "web".into(),
        natives: natives.iter().map(ToString::to_string).collect(),
    };
    let (code, reason, message, blame, retry) = told(named(&[]));
    assert_eq!((code, reason, message.as_str()), (404, Reason::NotFound, "pods \"web\" not found"));
    assert_eq!((blame, retry), (Blame::Downstream, Retry::Never));
    let message = told(named(&["web@east", "web@west"])).2;
    assert_eq!(message, "pods \"web\" not found; member-local objects with that name: web@east, web@west");
    let natives = vec!["web@east".to_owned(), "web@west".to_owned()];
    let several = told(ReadError::Ambiguous { gvr: pods(), name: "web".into(), natives });
    assert_eq!((several.0, several.1), (409, Reason::Conflict));
    assert_eq!(several.2, "pods \"web\" is in several members: web@east, web@west");
}

#[test]
fn an_error_and_its_status_have_the_same_words() {
    let read = [
        ReadError::ListTooOld,
        ReadError::ContinueTooOld { fresh: "t".into() },
        ReadError::WatchTooOld { asked: Revision(3), known: Revision(7) },
        ReadError::TooLarge { asked: 9, current: 7 },
        ReadError::OtherName,
        ReadError::NoPages,
        ReadError::NotCurrent { stale: vec!["east".into()] },
        ReadError::CollectionUnknown { gvr: pods(), stale: vec!["east".into()], causes: vec!["it is down".into()] },
        ReadError::Unanswered { gvr: pods(), causes: vec!["member east answered 500".into()] },
        ReadError::TooMany { gvr: pods(), count: 9, max: 7 },
        ReadError::BrokenOff("reset".into()),
    ];
    let codes: Vec<u16> = read
        .into_iter()
        .map(|error| {
            let words = error.to_string();
            let (code, _, message, ..) = told(error);
            assert_eq!(message, words);
            code
        })
        .collect();
    assert_eq!(codes, [410, 410, 410, 504, 400, 400, 503, 503, 503, 503, 500]);
    let discovery = [
        DiscoveryError::Method,
        DiscoveryError::NoSuchPath,
        DiscoveryError::NotAcceptable,
        DiscoveryError::NothingKnown { unknown: "east".into() },
        DiscoveryError::GroupDown,
        DiscoveryError::Changing,
        DiscoveryError::DocumentMissing { path: "/openapi/v2".into(), causes: vec!["east: 500".into()] },
        DiscoveryError::NoOpenApi(vec!["east: 500".into()]),
    ];
    let codes: Vec<u16> = discovery
        .into_iter()
        .map(|error| {
            let words = error.to_string();
            let (code, _, message, ..) = told(error);
            assert_eq!(message, words);
            code
        })
        .collect();
    assert_eq!(codes, [405, 404, 406, 503, 503, 503, 503, 503]);
    let name = told(StreamError::Identifier("a:b:c:d".into()));
    assert_eq!((name.0, name.1), (400, Reason::BadRequest));
}

#[test]
fn a_members_failure_names_the_member_and_the_cause() {
    let west = MemberName::new("west").unwrap();
    let failed = |failure| UpstreamError::new(&west, failure);
    let timeout = told(failed(Failure::HeadTimeout(Duration::from_secs(30))));
    assert_eq!((timeout.0, timeout.2.as_str()), (504, "member west: no answer in 30 s"));
    assert_eq!((timeout.3, timeout.4), (Blame::Member(west.clone()), Retry::IfRead));
    let saturated = Status::from(failed(Failure::Saturated { what: "requests", max: 4 }));
    assert_eq!((saturated.code.as_u16(), saturated.details.retry_after_seconds), (429, Some(1)));
    let streams = Status::from(TooManyStreams { whose: "kubefold has".into(), max: 2048 });
    assert_eq!((streams.code.as_u16(), streams.details.retry_after_seconds), (429, Some(1)));
    assert!(streams.message.starts_with("kubefold has 2048 open streams"), "{}", streams.message);
}

#[test]
fn a_list_that_expired_may_go_on() {
    let status = Status::from(ReadError::ContinueTooOld { fresh: "t".into() });
    assert_eq!((status.reason, status.continue_token.as_str()), (Reason::Expired, "t"));
}

#[test]
fn what_cannot_be_placed() {
    let unplaced = |error| Unplaced {
        gvr: Gvr::new("apps", "v1", "deployments"),
        gvk: Gvk::new("apps", "v1", "Deployment"),
        namespace: "ns".into(),
        name: "web".into(),
        error,
    };
    let east = MemberName::new("east").unwrap();
    let because = |why: &str| vec![(east.clone(), why.to_owned())];
    let (code, reason, message, ..) = told(unplaced(PlanError::NoNamespace));
    assert_eq!((code, reason), (404, Reason::NotFound));
    assert_eq!(message, "namespaces \"ns\" not found: no member holds it");
    let (code, reason, message, ..) = told(unplaced(PlanError::NoCandidate(because("it does not serve the kind"))));
    assert_eq!((code, reason), (422, Reason::Invalid));
    assert_eq!(
        message,
        "Deployment.apps \"web\" is invalid: placement: no member can take it: east: it does not serve the kind"
    );
    let none = told(unplaced(PlanError::NoRoom { total: 7, fits: 6, reasons: because("6 fit") }));
    assert_eq!((none.0, none.1), (422, Reason::Invalid));
    for error in [PlanError::AllDown(because("never reached")), PlanError::Unknown(because("never reached"))] {
        let status = Status::from(unplaced(error.clone()));
        assert_eq!((status.code.as_u16(), status.details.retry_after_seconds), (503, None));
        assert!(status.message.starts_with("deployments.apps \"web\" cannot be placed: "), "{}", status.message);
        assert!(status.message.contains("east: never reached"), "{}", status.message);
        assert_eq!(told(unplaced(error)).3, Blame::Member(east.clone()));
    }
}
