//! What clients see of each error: its code, its reason, its words.

use std::time::Duration;

use crate::{
    config::MemberName,
    placement::plan::PlanError,
    respond::{
        ApiError, Blame, DiscoveryError, InvalidField, NotBuilt, ObjectRef, PlainRefusal, ReadError, Retry,
        ReviewError, RouteError, Settling, StreamError, Unplaced, WriteError,
    },
    store::Revision,
    upstream::{Failure, TooManyStreams, UpstreamError},
};
use kubefold_serving::shares::Full;
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
    let named = |member_locals: &[&str]| ReadError::NotFound {
        gvr: pods(),
        name: "web".into(),
        member_locals: member_locals.iter().map(ToString::to_string).collect(),
    };
    let (code, reason, message, blame, retry) = told(named(&[]));
    assert_eq!((code, reason, message.as_str()), (404, Reason::NotFound, "pods \"web\" not found"));
    assert_eq!((blame, retry), (Blame::Downstream, Retry::Never));
    let message = told(named(&["web@east", "web@west"])).2;
    assert_eq!(message, "pods \"web\" not found; member-local objects with that name: web@east, web@west");
    let member_locals = vec!["web@east".to_owned(), "web@west".to_owned()];
    let several = told(ReadError::Ambiguous { gvr: pods(), name: "web".into(), member_locals });
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
    let saturated = Status::from(failed(Failure::Saturated { what: "requests", full: Full::All { max: 4 } }));
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

/// The sentences that clients and tools know, each with its code.
fn write_fails(error: WriteError, code: u16, message: &str) {
    let words = error.to_string();
    let status = Status::from(error);
    assert_eq!((status.code.as_u16(), status.message.as_str()), (code, message));
    // A client would repeat the write on it.
    assert_eq!((words.as_str(), status.details.retry_after_seconds), (message, None));
}

fn web() -> ObjectRef {
    ObjectRef { gvr: Gvr::new("apps", "v1", "deployments"), name: "web".into() }
}

fn east() -> MemberName {
    MemberName::new("east").unwrap()
}

#[test]
fn a_write_that_others_came_before_is_refused() {
    write_fails(
        WriteError::Stale(web()),
        409,
        "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please apply your changes to the latest version and try again",
    );
    write_fails(
        WriteError::Precondition { object: web(), field: "UID", expected: "a".into(), is: String::new() },
        409,
        "Operation cannot be fulfilled on deployments.apps \"web\": Precondition failed: UID in precondition: a, UID in object meta: ",
    );
    let (gvk, name) = (Gvk::new("apps", "v1", "Deployment"), "web".to_owned());
    write_fails(
        WriteError::NotInRecord { gvk, name, field: "UID", expected: "a".into(), is: "b".into() },
        409,
        "Operation cannot be fulfilled on Deployment.apps \"web\": the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted and then recreated",
    );
    write_fails(
        WriteError::AlreadyExists { object: web(), holders: " in member east".into() },
        409,
        "deployments.apps \"web\" already exists in member east",
    );
    write_fails(
        WriteError::PartAlone {
            part: ObjectRef { name: "web@east".into(), ..web() },
            own: "web".into(),
            member: east(),
        },
        409,
        "\"web@east\" is the part in member east of deployments.apps \"web\": write to \"web\" as a whole, or to the part in its member (kubectl --context fleet-east)",
    );
    let budget = || WriteError::Budget { budget: "web".into(), desired: 2, healthy: 2 };
    write_fails(budget(), 429, "Cannot evict pod as it would violate the pod's disruption budget.");
    write_fails(
        WriteError::BudgetHeld { budget: "web".into() },
        429,
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    let causes = Status::from(budget()).details.causes;
    let cause =
        ("DisruptionBudget", "The disruption budget web needs 2 healthy pods and has 2 currently in all members");
    assert_eq!(causes.iter().map(|one| (&*one.reason, &*one.message)).collect::<Vec<_>>(), [cause]);
    write_fails(WriteError::NotFound(web()), 404, "deployments.apps \"web\" not found");
}

#[test]
fn a_write_that_cannot_be_done_now_says_what_was_done() {
    let down = || "it is down".to_owned();
    let unknown = |settling| WriteError::OutcomeUnknown {
        doing: "updating /scale of".into(),
        object: web(),
        causes: vec!["member east: reset".into(), "member west: reset".into()],
        settling,
    };
    write_fails(
        WriteError::Taken(web()),
        503,
        "another write to deployments.apps \"web\" is under way, or its outcome is not known yet: try again in a minute",
    );
    write_fails(
        WriteError::Deleting { object: web(), members: vec![east()] },
        503,
        "deployments.apps \"web\" is not changed: it is being deleted, and is not gone yet in east. Try again once it is",
    );
    write_fails(
        WriteError::Unsettled { object: web(), home: east() },
        503,
        "an earlier create of deployments.apps \"web\" is not settled: whether member east made it is not known while that cannot be reached. It is finished or taken back when the member returns, or is taken out of the configuration",
    );
    write_fails(
        WriteError::HomeUnreachable { object: web(), done: "deleted", home: east(), cause: down() },
        503,
        "deployments.apps \"web\" is not deleted: its home, member east, cannot be reached: it is down",
    );
    write_fails(
        WriteError::ScaleUnread { object: web(), home: east(), cause: down() },
        503,
        "deployments.apps \"web\" cannot be read: its home, member east: it is down",
    );
    write_fails(
        WriteError::NotSent { object: web(), member: east(), cause: down() },
        503,
        "member east cannot be reached, nothing was sent: it is down",
    );
    write_fails(
        WriteError::DryRunUnanswered { object: web(), member: east(), cause: down() },
        503,
        "member east did not answer the dry run, so nothing was made: it is down",
    );
    write_fails(
        WriteError::NotCreated { object: web(), member: east(), cause: down(), undone: "nothing was made".into() },
        503,
        "deployments.apps \"web\" is not created: member east could not be reached: it is down (nothing was made)",
    );
    write_fails(
        unknown(Settling::Nobody),
        504,
        "the outcome of updating /scale of deployments.apps \"web\" is unknown: member east: reset; member west: reset; it may land within 40 s: read the object before you try again",
    );
    write_fails(
        unknown(Settling::IfDone),
        504,
        "the outcome of updating /scale of deployments.apps \"web\" is unknown: member east: reset; member west: reset; it may land within 40 s; until then the name is held, then kubefold finishes it if it did: read the object before you try again",
    );
    write_fails(
        unknown(Settling::DoneOrUndone),
        504,
        "the outcome of updating /scale of deployments.apps \"web\" is unknown: member east: reset; member west: reset; it may land within 40 s; until then the name is held, then kubefold finishes it or takes it back: read the object before you try again",
    );
}

#[test]
fn a_write_says_who_has_to_act_and_whether_to_try_again() {
    let down = || "it is down".to_owned();
    let unreachable = WriteError::HomeUnreachable { object: web(), done: "changed", home: east(), cause: down() };
    assert_eq!((unreachable.blame(), unreachable.retry()), (Blame::Member(east()), Retry::Always));
    let stale = WriteError::Stale(web());
    assert_eq!((stale.blame(), stale.retry()), (Blame::Downstream, Retry::Never));
    let (doing, causes, settling) = ("creating".to_owned(), vec![down()], Settling::DoneOrUndone);
    let unknown = WriteError::OutcomeUnknown { doing, object: web(), causes, settling };
    assert_eq!((unknown.blame(), unknown.retry()), (Blame::Kubefold, Retry::IfRead));
}

#[test]
fn a_body_that_cannot_be_as_it_is() {
    let kind = || Gvk::new("apps", "v1", "Deployment");
    let invalid = |field| WriteError::Invalid { gvk: kind(), name: "web".into(), field };
    write_fails(
        invalid(InvalidField::NameRequired),
        422,
        "Deployment.apps \"web\" is invalid: metadata.name: Required value: name or generateName is required",
    );
    write_fails(
        invalid(InvalidField::NoPin { name: "a@b".into(), members: vec![east()] }),
        422,
        "Deployment.apps \"web\" is invalid: metadata.name: Invalid value: \"a@b\": an `@` only pins to a member: @east",
    );
    write_fails(
        WriteError::DryRun { options: "CreateOptions".into(), value: "x".into() },
        422,
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: \"x\": supported values: \"All\"",
    );
    write_fails(
        WriteError::Body { what: "object to create", cause: "it has no metadata".into() },
        400,
        "the body is no object to create: it has no metadata",
    );
    write_fails(
        WriteError::NameUndeterminable("web".into()),
        400,
        "the name of the object (web based on URL) was undeterminable: name must be provided",
    );
    write_fails(WriteError::SubjectMismatch("Eviction"), 400, "name in URL does not match name in Eviction object");
    write_fails(
        WriteError::Parameter { name: "gracePeriodSeconds", value: "x".into() },
        400,
        "gracePeriodSeconds=\"x\" is not understood",
    );
    write_fails(WriteError::PatchType, 415, "415: Unsupported Media Type");
    write_fails(
        WriteError::NoMatchYet { kind: "Web".into(), api_version: "a/v1".into() },
        503,
        "no matches for kind \"Web\" in version \"a/v1\" yet: kubefold does not know yet what every member serves",
    );
}

#[test]
fn what_no_room_takes() {
    let not_admin =
        told(RouteError::NotAdmin { user: "ann".into(), group: "kubefold:viewers", admins: "system:masters" });
    assert_eq!((not_admin.0, not_admin.1), (403, Reason::Forbidden));
    assert!(
        not_admin.2.starts_with("user \"ann\" is not in group kubefold:viewers or system:masters, and only these "),
        "{}",
        not_admin.2
    );
    let nobody = told(RouteError::NoMember { name: "x".into(), members: vec!["east".into(), "west".into()] });
    assert_eq!((nobody.0, nobody.2.as_str()), (404, "there is no member \"x\"; the members are east, west"));
    let review = told(ReviewError::Unanswered { gvr: pods(), causes: Vec::new() });
    assert_eq!((review.0, review.2.as_str()), (503, "pods: no member serves it"));
    let members = ["east", "west"].map(|name| MemberName::new(name).unwrap()).to_vec();
    let unlisted = told(StreamError::Unlisted { gvr: pods(), name: "web".into(), members: members.clone() });
    let words =
        "pods cannot be listed, so kubefold cannot find the member of \"web\": use \"web@east\" or \"web@west\"";
    assert_eq!((unlisted.0, unlisted.2.as_str()), (404, words));
    let not_built = |member: Option<MemberName>| NotBuilt {
        verb: "patch".into(),
        what: "pods/x".into(),
        path: "/api".into(),
        example: members.first().filter(|_| member.is_none()).cloned(),
        member,
    };
    let words = "the fleet view cannot patch pods/x yet; do it in a member: at /clusters/<member>/api, \
                 or with kubectl --context fleet-<member> (for example fleet-east)";
    assert_eq!(told(not_built(None)).2, words);
    let words = "the fleet view cannot patch pods/x yet; do it in a member: at /clusters/west/api, \
                 or with kubectl --context fleet-west";
    assert_eq!(told(not_built(members.last().cloned())).2, words);
    let page = PlainRefusal {
        member: members[0].clone(),
        code: http::StatusCode::BAD_GATEWAY,
        words: "it answered 502 Bad Gateway".into(),
        told: "nothing was made".into(),
    };
    let page = told(page);
    assert_eq!((page.0, page.1), (502, Reason::InternalError));
    assert_eq!(page.2, "member east: it answered 502 Bad Gateway (nothing was made)");
}
