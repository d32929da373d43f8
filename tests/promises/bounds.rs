//! Promise 10: at every limit there is a clear status, never a hang, never a silent drop.

use std::time::Duration;

use ::bytes::Bytes;
use http::{Method, Request};
use serde_json::Value;

use crate::{
    actors,
    client::{Client, Lines},
    history::{End, History},
    kinds::CONFIG_MAPS,
    world::{self, World},
};

/// What an answer takes at most: kubefold's deadline of a write, twice, and the wait for a member that is unknown.
const ANSWER_MAX: Duration = Duration::from_secs(100);
/// For an event, by the virtual clock.
const SOON: Duration = Duration::from_secs(30);

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let mut problems = Vec::new();
    for write in &history.writes {
        let label = format!("{:?} of {} {} at {:?}", write.verb, write.kind.plural, write.name, write.began);
        if write.ended - write.began > ANSWER_MAX {
            problems.push(format!("{label} took {:?}", write.ended - write.began));
        }
        if write.code == 0 {
            problems.push(format!("{label} has no answer: {}", write.message));
        }
    }
    for read in &history.reads {
        let label = format!("the read of {} at {:?} ({})", read.kind.plural, read.began, read.asked);
        // A walk has several pages.
        let pages = u32::try_from(read.revisions.len()).unwrap_or(u32::MAX) + 1;
        if read.ended - read.began > ANSWER_MAX * pages {
            problems.push(format!("{label} took {:?}", read.ended - read.began));
        }
        if read.code == 0 {
            problems.push(format!("{label} has no answer: {}", read.message));
        }
    }
    for watch in &history.watches {
        let is_clear = match watch.end {
            End::Left | End::Ended => true,
            End::Failed(code) => code == 410 || code == 503,
        };
        if !is_clear || !matches!(watch.code, 200 | 410 | 429 | 503 | 504) {
            problems.push(format!(
                "the watch of {} at {:?} is {} and ends as {:?}",
                watch.kind.plural, watch.began, watch.code, watch.end
            ));
        }
    }
    problems
}

/// Bytes of the object that changes under a reader that does not read.
const LARGE_BYTES: usize = 900 << 10;
/// Far more than the window of the reader's connection holds.
const CHANGES: usize = 10;
/// Longer than an answer is offered to a client that does not take it.
const STALLED_FOR: Duration = Duration::from_secs(70);

/// A reader that does not read is cut off; another one sees everything.
#[test]
fn promise_10_a_slow_reader_is_ended_and_slows_nobody() {
    world::run(async {
        let world = World::start(1).await;
        let namespace = "kube-public";
        let path = CONFIG_MAPS.path(namespace);
        let list = world.clients[0].get(&path).await.json();
        let from = list["metadata"]["resourceVersion"].as_str().expect("a list").to_owned();
        let watch = format!("{path}?watch=1&resourceVersion={from}");
        let open = async |client: &Client| {
            let request = Request::get(&watch).body(Bytes::new()).expect("a request");
            let response = client.open(request).await.expect("a watch");
            assert_eq!(response.status(), 200);
            Lines::new(response.into_body())
        };
        let slow = Client::new(world.clients[0].caller.clone(), &world.authority, world.address(), &world.tasks);
        let slow = slow.with_window(64 << 10);
        let (mut stalled, mut swift) = (open(&slow).await, open(&world.clients[1]).await);
        let mut object = actors::body(&CONFIG_MAPS, namespace, "large@east", "0");
        object["data"]["filler"] = "x".repeat(LARGE_BYTES).into();
        let note = |line: &[u8]| {
            let event: Value = serde_json::from_slice(line).expect("an event");
            event["object"]["data"]["note"].as_str().map(str::to_owned).ok_or(event)
        };
        for number in 0..CHANGES {
            object["data"]["note"] = number.to_string().into();
            let (method, path) = match number {
                0 => (Method::POST, path.clone()),
                _ => (Method::PUT, CONFIG_MAPS.object_path(namespace, "large@east")),
            };
            let answer = world.clients[2].ask(method, &path, "application/json", object.to_string()).await;
            assert!(answer.is_success(), "{} {}", answer.code, answer.message());
            let line = tokio::time::timeout(SOON, swift.next()).await.expect("an event in time").expect("an event");
            assert_eq!(note(&line), Ok(number.to_string()));
        }
        tokio::time::sleep(STALLED_FOR).await;
        // Then it reads again: what was on its way, and the end.
        let mut read = 0;
        let end = loop {
            let line = tokio::time::timeout(SOON, stalled.next()).await.expect("promise 10: a watch that hangs");
            match line.as_deref().map(note) {
                Some(Ok(number)) => {
                    assert_eq!(number, read.to_string(), "no event is left out");
                    read += 1;
                }
                Some(Err(event)) => break Some(event["object"]["code"].clone()),
                None => break None,
            }
        };
        assert!(read < CHANGES, "the reader was slow enough to fall behind");
        assert!(end.is_none_or(|code| code == 410));
        world.end().await;
    });
}

/// A body above 3 MiB is 413, as at a kube-apiserver, and reaches no member.
#[test]
fn promise_10_a_body_that_is_too_large_is_refused() {
    world::run(async {
        let world = World::start(1).await;
        for (method, path) in [
            (Method::POST, CONFIG_MAPS.path("default")),
            (Method::PUT, CONFIG_MAPS.object_path("default", "large@east")),
            (Method::PATCH, CONFIG_MAPS.object_path("default", "large")),
        ] {
            let mut object = actors::body(&CONFIG_MAPS, "default", "large", "0");
            object["data"]["filler"] = "x".repeat(4 << 20).into();
            world.members.iter().for_each(|member| drop(member.take_heard()));
            let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
            let answer = world.clients[0].ask(method.clone(), &path, content, object.to_string()).await;
            assert_eq!(
                (answer.code, answer.json()["reason"].as_str()),
                (413, Some("RequestEntityTooLarge")),
                "{method}"
            );
            let heard = world.members.iter().flat_map(|member| member.take_heard());
            assert_eq!(heard.filter(|heard| heard.method == method).count(), 0);
        }
        world.end().await;
    });
}

#[test]
fn a_hang_and_an_end_without_a_word_are_found() {
    use crate::sample;
    let mut history = sample::good();
    history.writes[0].ended += ANSWER_MAX * 2;
    sample::assert_found(check, &history, "took");
    let mut history = sample::good();
    history.reads[0].ended += ANSWER_MAX * 3;
    sample::assert_found(check, &history, "took");
    let mut history = sample::good();
    history.reads[0].code = 0;
    sample::assert_found(check, &history, "has no answer");
    let mut history = sample::good();
    history.writes[0].code = 0;
    sample::assert_found(check, &history, "has no answer");
    let mut history = sample::good();
    history.watches[0].end = End::Failed(500);
    sample::assert_found(check, &history, "ends as Failed(500)");
}
