//! How long an answer may take to be delivered: one that its client does not take holds on to objects that are long gone.

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::time::{Instant, interval};

use crate::store::RETAINED_FOR;
use kubefold_wire::body::{Body, BodyError};

/// A client that does not take the next bytes for so long is given none any more. As long as a kube-apiserver works on a
/// request (kubernetes/apiserver `pkg/server/config.go`, `RequestTimeout`).
const STALLED_MAX: Duration = Duration::from_mins(1);
/// A list is delivered in this time: its snapshot lives no longer than those of paged lists do.
const LIST_MAX: Duration = RETAINED_FOR;
/// How often stalled deliveries are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The answers that are being delivered.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    all: Mutex<Vec<Weak<Delivery>>>,
    is_swept: AtomicBool,
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// No longer than a list may.
    Bounded,
    /// As long as it lasts: a watch.
    Unbounded,
}

/// The client did not take the answer in time.
#[derive(Debug, thiserror::Error)]
#[error("the client did not take the answer in time")]
struct TooSlow;

#[derive(Debug)]
struct Delivery(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Absent when it came to its end or was given up.
    body: Option<Body>,
    /// When the client was last given bytes, if it has not asked for more since.
    given: Option<Instant>,
    until: Option<Instant>,
}

impl State {
    fn is_late(&self) -> bool {
        let stalled = self.given.is_some_and(|given| given.elapsed() >= STALLED_MAX);
        stalled || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

impl Deliveries {
    /// The same body, which ends with an error when its client is too slow. What it holds is let go of even if the client
    /// never asks for more.
    ///
    /// Gives with it what has to run besides, where nothing does so yet: it lets go of what is late.
    pub(super) fn bounded(
        self: &Arc<Self>,
        body: Body,
        takes: Takes,
    ) -> (Body, Option<impl Future<Output = ()> + use<>>) {
        if body.size_hint().exact().is_some() {
            // It is all here.
            return (body, None);
        }
        let until = (takes == Takes::Bounded).then(|| Instant::now() + LIST_MAX);
        let delivery = Arc::new(Delivery(Mutex::new(State { body: Some(body), given: None, until })));
        self.all.lock().push(Arc::downgrade(&delivery));
        let is_swept = self.is_swept.swap(true, Ordering::AcqRel);
        let sweeper = (!is_swept).then(|| sweep_on(Arc::downgrade(self)));
        (Delivered(delivery).boxed_unsync(), sweeper)
    }

    /// Gives up what is late. Says whether there is anything to look at again.
    fn sweep(&self) -> bool {
        let mut all = self.all.lock();
        all.retain(|delivery| delivery.strong_count() > 0);
        if all.is_empty() {
            // Under the lock: who adds one sees that nobody sweeps.
            self.is_swept.store(false, Ordering::Release);
            return false;
        }
        let looked_at: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        drop(all);
        for delivery in looked_at {
            let mut state = delivery.0.lock();
            let late = if state.is_late() { state.body.take() } else { None };
            drop(state);
            // It may hold much, and is freed without a lock.
            drop(late);
        }
        true
    }
}

/// Gives up what is late, for as long as there is anything to look at.
async fn sweep_on(deliveries: Weak<Deliveries>) {
    let mut ticks = interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        if !deliveries.upgrade().is_some_and(|deliveries| deliveries.sweep()) {
            return;
        }
    }
}

/// A body that is being delivered.
#[derive(Debug)]
struct Delivered(Arc<Delivery>);

impl http_body::Body for Delivered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.0.0.lock();
        if state.until.is_some_and(|until| Instant::now() >= until) {
            state.body = None;
        }
        state.given = None;
        let Some(body) = &mut state.body else { return Poll::Ready(Some(Err(TooSlow.into()))) };
        let polled = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(_))) = &polled {
            state.given = Some(Instant::now());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.0.lock().body.as_ref().is_some_and(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.0.lock().body.as_ref().map_or_else(SizeHint::default, http_body::Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use futures::stream::{self, StreamExt};
    use http_body_util::StreamBody;
    use tokio_util::task::TaskTracker;

    use super::*;

    /// The body, with what has to run besides.
    fn bounded(deliveries: &Arc<Deliveries>, body: Body, takes: Takes) -> Body {
        let (body, sweeper) = deliveries.bounded(body, takes);
        if let Some(sweeper) = sweeper {
            TaskTracker::new().spawn(sweeper);
        }
        body
    }

    /// A body of many chunks that holds something.
    fn body(held: &Arc<()>) -> Body {
        let held = Arc::clone(held);
        let chunks = stream::repeat_with(move || {
            let _held = &held;
            Ok::<_, BodyError>(Frame::data(Bytes::from_static(b"x")))
        });
        StreamBody::new(chunks.take(1000)).boxed_unsync()
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_client_does_not_take_is_let_go_of() {
        let (deliveries, held) = (Arc::new(Deliveries::default()), Arc::new(()));
        for takes in [Takes::Bounded, Takes::Unbounded] {
            let mut body = bounded(&deliveries, body(&held), takes);
            for _ in 0..3 {
                assert!(body.frame().await.unwrap().is_ok());
                tokio::time::sleep(STALLED_MAX - Duration::from_secs(1)).await;
            }
            assert_eq!(Arc::strong_count(&held), 2);
            tokio::time::sleep(SWEEP_EVERY + Duration::from_secs(1)).await;
            assert_eq!(Arc::strong_count(&held), 1, "it is let go of though nobody asks for more");
            assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), TooSlow.to_string());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_delivered_in_five_minutes_and_a_watch_as_slowly_as_its_client_likes() {
        let (deliveries, held) = (Arc::new(Deliveries::default()), Arc::new(()));
        let mut list = bounded(&deliveries, body(&held), Takes::Bounded);
        let mut watch = bounded(&deliveries, body(&held), Takes::Unbounded);
        for at in 0..20 {
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert_eq!(list.frame().await.unwrap().is_ok(), at < 9, "{at}");
            assert!(watch.frame().await.unwrap().is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_waits_for_events_is_not_late() {
        let deliveries = Arc::new(Deliveries::default());
        let quiet = StreamBody::new(stream::pending::<Result<Frame<Bytes>, BodyError>>()).boxed_unsync();
        let mut body = bounded(&deliveries, quiet, Takes::Unbounded);
        assert!(tokio::time::timeout(Duration::from_hours(1), body.frame()).await.is_err(), "it waits on");
    }
}
