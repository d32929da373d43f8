//! The room against members of this process, over real sockets and TLS.

mod access;
mod admission;
mod registry;
mod upgrade;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{SinkExt, StreamExt, channel::mpsc, future::pending};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    fake::{self, Fake, Handler, handler},
    registry::Registry,
    view::pass_body,
    *,
};
use crate::upstream::{Blame, collect};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    body::{Body, BodyError, empty, full},
    path::ApiPath,
};

type Sender = mpsc::Sender<Result<Frame<Bytes>, BodyError>>;

/// A body that a test feeds.
fn channel() -> (Sender, Body) {
    let (sender, receiver) = mpsc::channel(0);
    (sender, StreamBody::new(receiver).boxed_unsync())
}

fn data(text: &'static str) -> Result<Frame<Bytes>, BodyError> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(empty()).unwrap()
}

fn jane() -> Caller {
    Caller { user: "jane".into(), groups: vec!["dev".into()], ..Caller::default() }
}

/// A request of kubefold's own, to a path that a fake member alone knows.
fn own(path: &str) -> Outgoing {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    Outgoing::own(Method::GET, ApiPath::default().then(path.trim_start_matches('/')), query, empty()).unwrap()
}

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Answers with the request's line and headers.
fn mirror() -> Handler {
    handler(|request: Request<Incoming>| async move {
        let mut seen = format!("{} {}\n", request.method(), request.uri().path_and_query().unwrap());
        for (name, value) in request.headers() {
            seen += &format!("{name}: {}\n", value.to_str().unwrap());
        }
        Ok(Response::new(full(seen)))
    })
}

/// Answers at once, and then never says a byte nor ends.
fn watch() -> Handler {
    handler(|_| async {
        let silence = futures::stream::pending::<Result<Frame<Bytes>, BodyError>>();
        Ok(Response::new(StreamBody::new(silence).boxed_unsync()))
    })
}

/// Never answers.
fn silence() -> Handler {
    handler(|_| pending())
}

#[tokio::test]
async fn the_member_sees_the_caller_and_the_callers_own_bytes() {
    for fake in [Fake::http2(mirror()).await, Fake::http1(mirror()).await] {
        let member = fake.member();
        let mut request = get("/");
        for (name, value) in [
            ("authorization", "Bearer callers"),
            ("impersonate-user", "system:admin"),
            ("x-remote-group", "system:masters"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("host", "kubefold.example"),
            ("expect", "100-continue"),
            ("accept-encoding", "gzip"),
        ] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let rest = "/api/v1/pods%2Fx?labelSelector=a%3Db&b=%zz";
        let seen = text(pass_body(&member, &jane(), request, rest).await).await;
        assert!(seen.starts_with(&format!("GET {rest}\n")), "{seen}");
        assert!(seen.contains("impersonate-user: jane\n") && seen.contains("impersonate-group: dev\n"), "{seen}");
        assert!(seen.contains("authorization: Bearer kubefold-own\n"), "{seen}");
        assert!(seen.contains("accept-encoding: gzip\n"), "{seen}");
        for gone in ["callers", "system:admin", "x-remote", "x-hop", "kubefold.example", "expect"] {
            assert!(!seen.contains(gone), "{gone} in {seen}");
        }
    }
}

#[tokio::test]
async fn a_path_prefix_comes_first_and_cannot_be_left() {
    let fake = Fake::http2(mirror()).await;
    let member = fake::member(&fake::config("east", fake.access("/k8s/clusters/c-1/")));
    let seen = text(pass_body(&member, &jane(), get("/"), "/api?x=1").await).await;
    assert!(seen.starts_with("GET /k8s/clusters/c-1/api?x=1\n"), "{seen}");
    for way_out in ["/../x", "/api/%2e%2E/x", "/a/./b"] {
        let refused = pass_body(&member, &jane(), get("/"), way_out).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{way_out}");
    }
}

#[tokio::test]
async fn bytes_stream_both_ways_before_either_side_ends() {
    let echo = || {
        handler(|request: Request<Incoming>| async move {
            Ok(Response::new(request.into_body().map_err(BodyError::from).boxed_unsync()))
        })
    };
    for fake in [Fake::http2(echo()).await, Fake::http1(echo()).await] {
        let member = fake.member();
        let (mut up, body) = channel();
        let request = Request::post("/").body(body).unwrap();
        let response = pass_body(&member, &jane(), request, "/echo").await;
        let mut down = response.into_body();
        for _ in 0..3 {
            up.send(data("ping")).await.unwrap();
            let frame = down.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), "ping");
        }
        drop(up);
        assert!(down.collect().await.unwrap().to_bytes().is_empty(), "a clean end");
    }
}

#[tokio::test]
async fn response_headers_and_trailers_pass_but_for_the_connections_own() {
    let fake = Fake::http2(handler(|_| async {
        let (mut sender, body) = channel();
        TaskTracker::new().spawn(async move {
            sender.send(data("x")).await.unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            sender.send(Ok(Frame::trailers(trailers))).await.unwrap();
        });
        let mut response = Response::new(body);
        response.headers_mut().append("warning", HeaderValue::from_static("299 - \"a\""));
        response.headers_mut().append("warning", HeaderValue::from_static("299 - \"b\""));
        response.headers_mut().insert("keep-alive", HeaderValue::from_static("5"));
        response.headers_mut().insert("content-length", HeaderValue::from_static("1"));
        response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Ok(response)
    }))
    .await;
    let response = pass_body(&fake.member(), &jane(), get("/"), "/x").await;
    assert_eq!(response.status(), 503);
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    assert_eq!(warnings, ["299 - \"a\"", "299 - \"b\""]);
    assert!(!response.headers().contains_key("keep-alive"));
    assert_eq!(response.headers()["content-length"], "1");
    assert_eq!(response.headers()["retry-after"], "1", "the member's own word is untouched");
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn redirects_are_refused_and_a_304_passes() {
    let fake = Fake::http2(handler(|request: Request<Incoming>| async move {
        let code: u16 = request.uri().path()[1..].parse().unwrap();
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        if code != 304 {
            response.headers_mut().insert("location", HeaderValue::from_static("https://evil.example/"));
        }
        Ok(response)
    }))
    .await;
    let member = fake.member();
    for code in ["/301", "/302", "/307", "/308"] {
        let refused = pass_body(&member, &jane(), get("/"), code).await;
        assert_eq!(refused.status(), StatusCode::BAD_GATEWAY);
        assert!(!refused.headers().contains_key("location"));
        assert!(text(refused).await.contains("member east: attempted to redirect"));
    }
    assert_eq!(pass_body(&member, &jane(), get("/"), "/304").await.status(), 304);
}

#[tokio::test]
async fn an_answer_that_breaks_off_never_ends_cleanly() {
    let breaking = || {
        handler(|_| async {
            let (mut sender, body) = channel();
            TaskTracker::new().spawn(async move {
                sender.send(data("half")).await.unwrap();
                sender.send(Err("broken".into())).await.unwrap();
            });
            Ok(Response::new(body))
        })
    };
    for fake in [Fake::http2(breaking()).await, Fake::http1(breaking()).await] {
        let response = pass_body(&fake.member(), &jane(), get("/"), "/x?watch=1").await;
        let mut body = response.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        let error = body.frame().await.unwrap().unwrap_err();
        let error = error.downcast_ref::<UpstreamError>().unwrap();
        assert!(matches!(error.failure, Failure::Body { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_takes_the_members_work_with_it() {
    let (gone, mut seen) = mpsc::channel::<()>(1);
    let gone = std::sync::Mutex::new(Some(gone));
    let fake = Fake::http2(handler(move |_| {
        // Held by the answer's stream, so dropped with it.
        let guard = gone.lock().unwrap().take();
        async move {
            let stream = futures::stream::pending::<Result<Frame<Bytes>, BodyError>>();
            let stream = stream.chain(futures::stream::poll_fn(move |_| {
                let _held = &guard;
                std::task::Poll::Ready(None)
            }));
            Ok(Response::new(StreamBody::new(stream).boxed_unsync()))
        }
    }))
    .await;
    let response = pass_body(&fake.member(), &jane(), get("/"), "/x?watch=1").await;
    drop(response);
    assert_eq!(seen.next().await, None);
}

/// Stops the clock once the connection stands: from here on, time passes only while everybody waits for it.
/// (Deadlines in such a test lie before the first ping, which a stopped clock would not let return.)
async fn connect_and_stop_the_clock(member: &Member) {
    let ready = member.upstream().send(Outgoing::document("/readyz").unwrap(), Class::Read).await.unwrap();
    collect(ready.into_body(), 1000).await.unwrap();
    tokio::time::pause();
}

#[tokio::test]
async fn silence_ends_at_the_deadline_of_its_class() {
    let fake = Fake::http2(silence()).await;
    let mut config = fake.config("east");
    config.deadlines.read = Duration::from_secs(3);
    config.deadlines.write = Duration::from_secs(4);
    let member = fake::member(&config);
    connect_and_stop_the_clock(&member).await;
    let read = member.send(own("/x"), Class::Read).await.err().unwrap();
    assert!(matches!(read.failure, Failure::HeadTimeout(max) if max == config.deadlines.read), "{read:?}");
    let write = Request::post("/").body(full("{}")).unwrap();
    let answer = pass_body(&member, &jane(), write, "/x").await;
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    assert!(!answer.headers().contains_key("retry-after"));
    assert!(text(answer).await.contains("member east: no answer in 4 s"));
}

#[tokio::test]
async fn a_stalled_answer_is_an_error_only_for_who_waits_for_its_end() {
    let fake = Fake::http2(watch()).await;
    let mut config = fake.config("east");
    config.deadlines.read = Duration::from_secs(3);
    let member = fake::member(&config);
    let list = member.send(own("/x"), Class::Read).await.unwrap();
    let mut watch = member.send(own("/x"), Class::Watch).await.unwrap().into_body();
    tokio::time::pause();
    let stalled = collect(list.into_body(), 1000).await.unwrap_err();
    assert!(matches!(stalled.failure, Failure::BodyTimeout(_)), "{stalled:?}");
    let waited = tokio::time::timeout(Duration::from_secs(6), watch.frame()).await;
    assert!(waited.is_err(), "a quiet watch stays open");
}

#[tokio::test]
async fn the_in_flight_limit_is_a_429_that_may_be_repeated() {
    let fake = Fake::http2(watch()).await;
    let mut config = fake.config("east");
    config.in_flight_max = 2;
    let member = fake::member(&config);
    let first = member.send(own("/x"), Class::Read).await.unwrap();
    let _second = member.send(own("/x"), Class::Write).await.unwrap();
    let refused = pass_body(&member, &jane(), get("/"), "/x").await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!(text(refused).await.contains("2 concurrent requests are in progress"));
    let _watches_count_apart = member.send(own("/x"), Class::Watch).await.unwrap();
    drop(first);
    assert!(member.send(own("/x"), Class::Read).await.is_ok());
}

/// The attack: requests whose answers nobody reads hold all places, and everybody else gets 429.
#[tokio::test]
async fn a_caller_that_reads_no_answer_leaves_places_for_others_and_for_kubefold() {
    let fake = Fake::http2(watch()).await;
    let member = fake.member();
    let ann = jane();
    let mut held = Vec::new();
    let refused = loop {
        let answer = pass_body(&member, &ann, get("/"), "/x").await;
        if answer.status() != StatusCode::OK {
            break answer;
        }
        held.push(answer);
        assert!(held.len() < 100);
    };
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(text(refused).await.contains("concurrent requests are the same user's, which is its share"));
    let bob = Caller { user: "bob".into(), ..jane() };
    assert_eq!(pass_body(&member, &bob, get("/"), "/x").await.status(), StatusCode::OK);
    assert!(member.send(own("/x"), Class::Read).await.is_ok());
}

/// The attack: watches that nobody reads take the places of those that fill the stores.
#[tokio::test]
async fn watches_of_callers_take_no_place_of_a_reflectors() {
    let fake = Fake::http2(watch()).await;
    let member = fake.member();
    let jane = jane();
    let open = (0..200).map(|_| pass_body(&member, &jane, get("/"), "/x?watch=1"));
    let held = futures::future::join_all(open).await;
    assert!(held.iter().all(|answer| answer.status() == StatusCode::OK));
    assert_eq!(member.upstream().connections(), (0, 0), "they have connections of their own");
    let _own = member.send(own("/x?watch=1"), Class::Watch).await.unwrap();
    assert_eq!(member.upstream().connections(), (0, 1));
}

/// The attack: a page that a pod in one member serves reads another member in its viewer's name.
#[tokio::test]
async fn a_page_of_a_pod_has_an_origin_of_its_own_and_leaves_nothing_behind() {
    let fake = Fake::http2(handler(|request: Request<Incoming>| async move {
        let mut response = Response::new(full("<script>fetch('/clusters/prod/api/v1/secrets')</script>"));
        let media =
            if request.uri().path().ends_with("/json") { "application/json; charset=utf-8" } else { "text/html" };
        for (name, value) in [
            ("content-type", media),
            ("content-security-policy", "default-src 'self'"),
            ("set-cookie", "a=b; Path=/"),
            ("alt-svc", "h3=\":443\""),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
        ] {
            response.headers_mut().append(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }))
    .await;
    let member = fake.member();
    let page = pass_body(&member, &jane(), get("/"), "/api/v1/namespaces/a/pods/b/proxy/").await;
    let policies: Vec<_> = page.headers().get_all("content-security-policy").iter().collect();
    assert_eq!(policies.len(), 2, "{policies:?}");
    let sandbox = policies[1].to_str().unwrap();
    assert!(sandbox.starts_with("sandbox ") && !sandbox.contains("allow-same-origin"), "{sandbox}");
    for gone in ["set-cookie", "alt-svc", "service-worker-allowed", "clear-site-data"] {
        assert!(!page.headers().contains_key(gone), "{gone}");
    }
    let data = pass_body(&member, &jane(), get("/"), "/json").await;
    assert_eq!(data.headers().get_all("content-security-policy").iter().count(), 1);
}

#[tokio::test]
async fn watches_spread_over_connections_and_requests_have_their_own() {
    let fake = Fake::http2(watch()).await;
    let member = fake.member();
    let open = (0..250).map(|_| member.send(own("/x?watch=1"), Class::Watch));
    let watches = futures::future::try_join_all(open).await.unwrap();
    assert_eq!(member.upstream().connections(), (0, 3), "250 streams, 90 each");
    assert_eq!(fake.state.accepted.load(Ordering::Relaxed), 3, "none was opened in vain");
    let _read = member.send(own("/x"), Class::Read).await.unwrap();
    assert_eq!(member.upstream().connections(), (1, 3));
    drop(watches);
    let again = (0..90).map(|_| member.send(own("/x?watch=1"), Class::Watch));
    let _watches = futures::future::try_join_all(again).await.unwrap();
    assert_eq!(fake.state.accepted.load(Ordering::Relaxed), 4, "free places are used again");
}

#[tokio::test]
async fn a_member_that_allows_fewer_streams_is_believed() {
    let fake = Fake::with_streams(watch(), 10).await;
    let member = fake.member();
    let mut watches = Vec::new();
    for _ in 0..25 {
        watches.push(member.send(own("/x?watch=1"), Class::Watch).await.unwrap());
    }
    assert_eq!(member.upstream().connections(), (0, 3));
}

#[tokio::test]
async fn a_slow_reader_slows_the_member_down_and_nobody_else() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let fake = Fake::http2(handler(move |request: Request<Incoming>| {
        let count = count.clone();
        async move {
            if request.uri().path() == "/small" {
                return Ok(Response::new(full("small")));
            }
            let endless = futures::stream::repeat_with(move || {
                count.fetch_add(1 << 16, Ordering::Relaxed);
                Ok::<_, BodyError>(Frame::data(Bytes::from_static(&[0; 1 << 16])))
            });
            Ok(Response::new(StreamBody::new(endless).boxed_unsync()))
        }
    }))
    .await;
    let member = fake.member();
    let jane = jane();
    let open = (0..20).map(|_| pass_body(&member, &jane, get("/"), "/endless"));
    let unread = futures::future::join_all(open).await;
    for _ in 0..20 {
        let small = pass_body(&member, &jane, get("/"), "/small").await;
        assert_eq!(text(small).await, "small");
    }
    assert_eq!(member.upstream().connections(), (1, 0), "all on one connection");
    let buffered_max = unread.len() * (4 << 20);
    assert!(sent.load(Ordering::Relaxed) < buffered_max, "it stops when nobody reads");
}

#[tokio::test]
async fn http1_takes_a_connection_per_request_and_keeps_it() {
    let fake = Fake::http1(mirror()).await;
    let member = fake.member();
    for _ in 0..3 {
        let response = member.send(own("/x"), Class::Read).await.unwrap();
        collect(response.into_body(), 10_000).await.unwrap();
    }
    assert_eq!(fake.state.accepted.load(Ordering::Relaxed), 1);
    let both = futures::future::join_all((0..2).map(|_| member.send(own("/x"), Class::Read))).await;
    assert!(both.iter().all(Result::is_ok));
    assert_eq!(fake.state.accepted.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let fake = Fake::http2(handler(|_| async { Ok(Response::new(full(vec![0; 2000]))) })).await;
    let member = fake.member();
    let large = member.send(own("/x"), Class::Read).await.unwrap();
    let error = collect(large.into_body(), 1000).await.unwrap_err();
    assert!(matches!(error.failure, Failure::BodyTooLarge { bytes_max: 1000 }), "{error:?}");
    let fits = member.send(own("/x"), Class::Read).await.unwrap();
    assert_eq!(collect(fits.into_body(), 2000).await.unwrap().len(), 2000);
}

#[tokio::test]
async fn failures_say_whether_the_request_may_have_arrived() {
    // Nobody listens on a port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fake = Fake::http2(handler(|_| async { Err("cut".into()) })).await;
    let mut access = fake.access("");
    access.server = format!("https://{}", listener.local_addr().unwrap());
    drop(listener);
    let refused = fake::member(&fake::config("west", access)).send(own("/x"), Class::Write).await.err().unwrap();
    assert!(matches!(refused.failure, Failure::Refused(_)), "{refused:?}");
    assert_eq!((refused.may_have_arrived(), refused.cause().as_str()), (false, "connection refused"));
    assert_eq!(refused.to_string(), "member west: connection refused");

    let mut stranger = fake.access("");
    stranger.certificate_authority = Fake::http2(silence()).await.access("").certificate_authority;
    let untrusted = fake::member(&fake::config("west", stranger)).send(own("/x"), Class::Write).await.err().unwrap();
    assert_eq!(untrusted.cause(), "certificate signed by unknown authority");
    assert!(!untrusted.may_have_arrived());

    let unknown = fake::member(&fake::config(
        "west",
        crate::config::ServerAccess { server: "https://no-such-host.invalid".into(), ..fake.access("") },
    ));
    let unknown = unknown.send(own("/x"), Class::Write).await.err().unwrap();
    assert!(matches!(unknown.failure, Failure::Resolve { .. }), "{unknown:?}");

    for cutting in [Fake::http2(cut()).await, Fake::http1(cut()).await] {
        let cut = cutting.member().send(own("/x"), Class::Write).await.err().unwrap();
        assert!(matches!(cut.failure, Failure::Send { .. }), "{cut:?}");
        assert!(cut.may_have_arrived());
        assert_eq!(kubefold_wire::status::Status::from(cut).code, StatusCode::BAD_GATEWAY);
    }
}

/// Takes the request and breaks off without an answer.
fn cut() -> Handler {
    handler(|_| async { Err("cut".into()) })
}

#[tokio::test]
async fn a_token_file_is_followed() {
    let fake = Fake::http2(mirror()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "first\n").unwrap();
    let access = crate::config::ServerAccess { token: None, token_file: Some(file.clone()), ..fake.access("") };
    let member = fake::member(&fake::config("east", access));
    let seen = async || {
        let response = member.send(own("/x"), Class::Read).await.unwrap();
        let body = collect(response.into_body(), 10_000).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    };
    assert!(seen().await.contains("authorization: Bearer first\n"));
    std::fs::write(&file, "second-one\n").unwrap();
    assert!(!member.upstream.follow_files().await, "it is still the same server");
    assert!(seen().await.contains("authorization: Bearer second-one\n"));
    std::fs::remove_file(&file).unwrap();
    member.upstream.follow_files().await;
    assert!(seen().await.contains("second-one"), "the last one that could be read is kept");
}

#[tokio::test]
async fn a_connection_that_closed_while_idle_costs_nobody_a_request() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    let fake = Fake::http1(handler(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async {
            let mut response = Response::new(full("x"));
            response.headers_mut().insert("connection", HeaderValue::from_static("close"));
            Ok(response)
        }
    }))
    .await;
    let member = fake.member();
    for _ in 0..5 {
        let request = Outgoing::own(Method::POST, ApiPath::default().then("x"), "", empty()).unwrap();
        let response = member.send(request, Class::Write).await.unwrap();
        collect(response.into_body(), 10).await.unwrap();
    }
    assert_eq!(served.load(Ordering::Relaxed), 5, "each exactly once");
}
