//! Watches over HTTP: a stream of events, with bookmarks and an end.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/watch.go`, `pkg/storage/cacher/`.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    registry::{Event, Events},
    serve::{form::Form, json_response},
};
use kubefold_wire::{
    body::{Body, BodyError, full},
    status::Status,
};

/// About each minute, as a kube-apiserver.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// So long before its deadline a watch says how far it came. Source: kubernetes/apiserver `cacher/cache_watcher.go`.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A watch without a deadline of its own ends after half an hour and, so that not all end at once, up to as long again.
const DEADLINE_MIN_SECONDS: u64 = 1800;
/// Bytes that go out at once, if there are so many.
const CHUNK_BYTES: usize = 64 << 10;

/// What a watch is, beside its events.
pub(super) struct Terms {
    pub(super) form: Form,
    /// Wants to be told how far it is.
    pub(super) bookmarks: bool,
    /// Waits for the end of the beginning.
    pub(super) initial_events: bool,
    pub(super) timeout_seconds: Option<i64>,
    /// The revision that it begins at.
    pub(super) revision: u64,
    /// Ends it: the server is going.
    pub(super) drain: CancellationToken,
}

/// An answer that tells these events.
pub(super) fn watch(events: Events, terms: Terms) -> Response<Body> {
    let now = Instant::now();
    let seconds = match terms.timeout_seconds {
        Some(seconds) => u64::try_from(seconds).unwrap_or_default().min(7 * 24 * 3600),
        None => DEADLINE_MIN_SECONDS + terms.revision % DEADLINE_MIN_SECONDS,
    };
    let deadline = now + Duration::from_secs(seconds);
    let watcher = Watcher {
        next_bookmark: next_bookmark(terms.bookmarks, now, deadline),
        at: terms.revision,
        events,
        terms,
        deadline,
        told: false,
        over: seconds == 0,
    };
    let chunks = stream::unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next_chunk().await?;
        Some((Ok::<_, BodyError>(Frame::data(chunk)), watcher))
    });
    json_response(StreamBody::new(chunks).boxed_unsync())
}

/// A watch that cannot begin is told so in the stream: on an HTTP 410 clients would try the same revision for ever.
pub(super) fn refusal(status: &Status) -> Response<Body> {
    json_response(full(error_frame(status)))
}

fn error_frame(status: &Status) -> Vec<u8> {
    [b"{\"type\":\"ERROR\",\"object\":".as_slice(), &status.to_json(), b"}\n"].concat()
}

/// Source: kubernetes/apiserver `cacher/cache_watcher.go`, `nextBookmarkTime`.
fn next_bookmark(wanted: bool, now: Instant, deadline: Instant) -> Option<Instant> {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END)?;
    Some(last.min(now + BOOKMARK_EVERY)).filter(|at| wanted && *at > now)
}

struct Watcher {
    events: Events,
    terms: Terms,
    at: u64,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// An event went out.
    told: bool,
    over: bool,
}

impl Watcher {
    /// The next bytes; `None` is a clean end.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while !self.over && out.is_empty() {
            let bookmark = self.next_bookmark.unwrap_or(self.deadline);
            let event = tokio::select! {
                biased;
                () = sleep_until(self.deadline) => return None,
                () = self.terms.drain.cancelled() => return self.last_words(),
                () = sleep_until(bookmark), if self.next_bookmark.is_some() => {
                    self.next_bookmark = next_bookmark(true, Instant::now(), self.deadline);
                    self.bookmark(false, &mut out);
                    continue;
                }
                event = self.events.next() => event,
            };
            self.tell(event, &mut out);
            // What else is there goes along.
            while !self.over && !out.is_empty() && out.len() < CHUNK_BYTES {
                let Some(event) = futures::FutureExt::now_or_never(self.events.next()) else { break };
                self.tell(event, &mut out);
            }
        }
        (!out.is_empty()).then(|| out.into())
    }

    fn last_words(&mut self) -> Option<Bytes> {
        self.over = true;
        let mut out = Vec::new();
        if self.next_bookmark.is_some() {
            self.bookmark(false, &mut out);
        }
        (!out.is_empty()).then(|| out.into())
    }

    fn tell(&mut self, event: Option<Result<Event, Status>>, out: &mut Vec<u8>) {
        let (event_type, object) = match event {
            None => {
                self.over = true;
                return;
            }
            Some(Err(status)) => {
                self.over = true;
                out.extend_from_slice(&error_frame(&status));
                return;
            }
            Some(Ok(Event::Synced(revision))) => {
                self.at = self.at.max(revision);
                if self.terms.initial_events && self.terms.bookmarks {
                    self.bookmark(true, out);
                }
                return;
            }
            Some(Ok(Event::Progress(revision))) => {
                self.at = self.at.max(revision);
                return;
            }
            Some(Ok(Event::Added(object))) => ("ADDED", object),
            Some(Ok(Event::Modified(object))) => ("MODIFIED", object),
            Some(Ok(Event::Deleted(object))) => ("DELETED", object),
        };
        self.at = self.at.max(object.revision());
        begin(event_type, out);
        self.terms.form.object(&object, out);
        self.end(out);
    }

    fn bookmark(&mut self, is_end_of_beginning: bool, out: &mut Vec<u8>) {
        begin("BOOKMARK", out);
        self.terms.form.bookmark(self.at, is_end_of_beginning, out);
        self.end(out);
    }

    /// Only the first event of a watch tells what is the same for all.
    fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"}\n");
        if !std::mem::replace(&mut self.told, true) {
            self.terms.form.of_later_events();
        }
    }
}

fn begin(event_type: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event_type.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}
