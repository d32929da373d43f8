use bytes::Bytes;
use flate2::read::GzDecoder;
use http_body_util::{BodyExt, StreamBody};
use std::io::Read as _;

use super::*;
use kubefold_wire::body::BodyError;

const LIST: &str = r#"{"metadata":{"resourceVersion":"120"},"items":[{"metadata":{"resourceVersion":"7"}}]}"#;

/// Answers once.
struct Once(Mutex<Option<Body>>);

impl Service for Once {
    fn answer(&self, _: Request<Body>) -> futures::future::BoxFuture<'_, Response<Body>> {
        let body = self.0.lock().take().expect("one request");
        Box::pin(std::future::ready(Response::new(body)))
    }
}

fn request(path: &str) -> Request<Body> {
    Request::get(path).body(full("")).unwrap()
}

fn rule(fault: Fault) -> Rule {
    Rule { on: Matching::default(), fault, times: None, every: None }
}

async fn answer(faults: &Faults, path: &str, body: Body) -> Result<Response<Body>, Closed> {
    faults.pass(request(path), &Once(Mutex::new(Some(body)))).await
}

async fn bytes(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// A watch of three events, in pieces that are no lines, which then stays open.
fn watch() -> Body {
    let pieces = ["{\"resourceVersion\":\"1", "0\"}\n{\"resourceVersion\":\"11\"}\n", "{\"resourceVersion\":\"12\"}\n"];
    let pieces = pieces.map(|piece| Ok::<_, BodyError>(http_body::Frame::data(Bytes::from(piece))));
    StreamBody::new(futures::StreamExt::chain(futures::stream::iter(pieces), futures::stream::pending())).boxed_unsync()
}

/// What of a body is there without waiting.
async fn so_far(response: Response<Body>) -> (String, bool) {
    let (mut body, mut text, mut broken) = (response.into_body(), String::new(), false);
    while let Some(Some(frame)) = futures::FutureExt::now_or_never(body.frame()) {
        match frame {
            Ok(frame) => text += std::str::from_utf8(&frame.into_data().unwrap()).unwrap(),
            Err(_) => {
                broken = true;
                break;
            }
        }
    }
    (text, broken)
}

#[tokio::test]
async fn without_a_rule_everything_passes() {
    let faults = Faults::default();
    assert_eq!(bytes(answer(&faults, "/api/v1/pods", full(LIST)).await.unwrap()).await, LIST);
}

#[tokio::test]
async fn a_rule_fits_by_method_path_and_watch_and_ends_after_its_times() {
    let faults = Faults::default();
    let on = Matching { method: Some("get".into()), path: Some("/pods".into()), watch: Some(false) };
    faults
        .add(Rule { on, times: Some(2), every: Some(2), ..rule(Fault::Status { code: 429, retry_after: Some(3) }) })
        .unwrap();
    let mut codes = Vec::new();
    for path in [
        "/api/v1/pods",
        "/api/v1/nodes",
        "/api/v1/pods?watch=true",
        "/api/v1/pods",
        "/api/v1/pods",
        "/api/v1/pods",
        "/api/v1/pods",
    ] {
        let response = answer(&faults, path, full(LIST)).await.unwrap();
        if response.status() == 429 {
            assert_eq!(response.headers()["retry-after"], "3");
        }
        codes.push(response.status().as_u16());
    }
    assert_eq!(codes, [200, 200, 200, 429, 200, 429, 200]);
    assert!(faults.rules().is_empty());
}

#[tokio::test]
async fn a_rule_that_can_never_hold_is_refused_and_so_is_one_too_many() {
    let faults = Faults::default();
    for bad in [
        Rule { times: Some(0), ..rule(Fault::Hang) },
        Rule { every: Some(0), ..rule(Fault::Hang) },
        rule(Fault::Status { code: 9, retry_after: None }),
    ] {
        assert!(faults.add(bad).is_err());
    }
    for _ in 0..RULES_MAX {
        faults.add(rule(Fault::Close)).unwrap();
    }
    assert!(faults.add(rule(Fault::Close)).unwrap_err().message.contains("clear them first"));
    faults.clear();
    faults.add(rule(Fault::Close)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn late_never_closed() {
    let faults = Faults::default();
    faults.add(rule(Fault::Latency { millis: 700 })).unwrap();
    let before = tokio::time::Instant::now();
    answer(&faults, "/", full(LIST)).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_millis(700));
    faults.add(rule(Fault::Close)).unwrap();
    assert!(answer(&faults, "/", full(LIST)).await.is_err());
    faults.clear();
    faults.add(rule(Fault::Hang)).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(3600), answer(&faults, "/", full(LIST))).await.is_err());
}

#[tokio::test]
async fn a_lost_answer_is_of_a_request_that_was_carried_out() {
    let (faults, server) = (Faults::default(), Once(Mutex::new(Some(full(LIST)))));
    faults.add(rule(Fault::Lost { code: 504 })).unwrap();
    assert_eq!(faults.pass(request("/"), &server).await.unwrap().status(), 504);
    assert!(server.0.lock().is_none());
}

#[tokio::test]
async fn expired_is_said_in_a_watch_and_before_a_list() {
    let faults = Faults::default();
    faults.add(rule(Fault::Expired)).unwrap();
    assert_eq!(answer(&faults, "/api/v1/pods", full(LIST)).await.unwrap().status(), 410);
    let watch = answer(&faults, "/api/v1/pods?watch=1", full(LIST)).await.unwrap();
    assert_eq!(watch.status(), 200);
    let event: serde_json::Value = serde_json::from_slice(&bytes(watch).await).unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()));
}

#[tokio::test]
async fn a_body_breaks_off_inside_an_object() {
    let faults = Faults::default();
    faults.add(rule(Fault::Cut { after: 40 })).unwrap();
    let (text, broken) = so_far(answer(&faults, "/?watch=true", watch()).await.unwrap()).await;
    assert_eq!((text.len(), broken), (40, true));
}

#[tokio::test]
async fn half_of_a_compressed_body_ends_cleanly() {
    let faults = Faults::default();
    faults.add(rule(Fault::TruncatedGzip)).unwrap();
    let response = answer(&faults, "/", full(LIST)).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let half = bytes(response).await;
    assert!(half.len() > 10 && GzDecoder::new(&half[..]).read_to_end(&mut Vec::new()).is_err());
}

#[tokio::test]
async fn wrong_content_says_success() {
    let faults = Faults::default();
    faults.add(rule(Fault::WrongContent)).unwrap();
    let response = answer(&faults, "/", full(LIST)).await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (200, &"text/html".parse().unwrap()));
}

#[tokio::test]
async fn revisions_go_backwards_in_lists_and_across_the_pieces_of_a_watch() {
    let faults = Faults::default();
    faults.add(rule(Fault::Backwards { by: 9 })).unwrap();
    let list = bytes(answer(&faults, "/", full(LIST)).await.unwrap()).await;
    assert_eq!(list, LIST.replace("120", "111").replace("\"7\"", "\"1\""));
    let (text, _) = so_far(answer(&faults, "/?watch=true", watch()).await.unwrap()).await;
    assert_eq!(text, "{\"resourceVersion\":\"1\"}\n{\"resourceVersion\":\"2\"}\n{\"resourceVersion\":\"3\"}\n");
}

#[tokio::test]
async fn a_watch_falls_silent_and_stays_open() {
    for (after, told) in [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)] {
        let faults = Faults::default();
        faults.add(rule(Fault::Silence { after })).unwrap();
        let (text, broken) = so_far(answer(&faults, "/?watch=true", watch()).await.unwrap()).await;
        assert_eq!((text.lines().count(), broken), (told, false), "{text}");
    }
}

#[test]
fn rules_are_read_from_what_people_write() {
    let text = r#"{"on":{"path":"/pods","watch":true},"fault":{"cut":{"after":100}},"times":1}"#;
    let read: Rule = serde_json::from_str(text).unwrap();
    assert_eq!(read.fault, Fault::Cut { after: 100 });
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!(serde_json::from_str::<Rule>(r#"{"fault":"hang"}"#).unwrap(), rule(Fault::Hang));
    assert!(serde_json::from_str::<Rule>(r#"{"fault":"hang","time":3}"#).is_err());
}
