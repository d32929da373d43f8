//! How long an answer may take to be delivered: one that its client does not take holds on to memory, to objects that are
//! long gone, and to places at other servers.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Extensions, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;

use crate::credential::{Credential, LOOK_EVERY};
use kubefold_wire::body::{Body, BodyError};

/// A client that does not take the next bytes for so long is given none any more. As long as a kube-apiserver works on a
/// request (kubernetes/apiserver `pkg/server/config.go`, `RequestTimeout`).
const STALLED_MAX: Duration = Duration::from_mins(1);
/// How often stalled deliveries are looked for, and those whose credential counts no more.
const SWEEP_EVERY: Duration = LOOK_EVERY;

/// In an answer's extensions: it is delivered within this time, or broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliverWithin(pub Duration);

/// In an answer's extensions: its bytes come from another server while they are delivered, even if it is known how many
/// they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streamed;

/// The answers that are being delivered.
#[derive(Debug, Default)]
pub struct Deliveries(Mutex<Vec<Weak<Delivery>>>);

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
    /// Since when the client has had something to take, if it has not asked for more since.
    given: Option<Instant>,
    /// An answer that is not whole by then is broken off.
    until: Option<Instant>,
    /// A watch ends with it, as if its time were up.
    credential: Option<Credential>,
    /// Who waits for more, which a body that was given up does not wake.
    waker: Option<Waker>,
}

impl State {
    fn is_late(&self, now: Instant) -> bool {
        let stalled = self.given.is_some_and(|given| now.duration_since(given) >= STALLED_MAX);
        stalled || self.until.is_some_and(|until| now >= until) || self.is_over(now)
    }

    /// The credential is no more.
    fn is_over(&self, now: Instant) -> bool {
        self.credential.as_ref().is_some_and(|credential| !credential.counts_at(now))
    }
}

impl Deliveries {
    /// The same answer, whose body ends with an error when its client is too slow, and ends well when the credential ends
    /// or counts no more with which it was asked for. What it holds is let go of even if the client never asks for more.
    pub fn bounded(&self, response: Response<Body>, credential: Option<Credential>) -> Response<Body> {
        let (mut head, body) = response.into_parts();
        let within = take::<DeliverWithin>(&mut head.extensions);
        let is_here = take::<Streamed>(&mut head.extensions).is_none() && body.size_hint().exact().is_some();
        if is_here {
            return Response::from_parts(head, body);
        }
        let now = Instant::now();
        let until = within.map(|DeliverWithin(within)| now + within);
        let wakes = credential.as_ref().map(|credential| Box::pin(tokio::time::sleep_until(credential.ends())));
        let state = State { body: Some(body), given: Some(now), until, credential, waker: None };
        let delivery = Arc::new(Delivery(Mutex::new(state)));
        self.0.lock().push(Arc::downgrade(&delivery));
        Response::from_parts(head, Delivered { delivery, wakes }.boxed_unsync())
    }

    /// Gives up what is late, until it is cancelled.
    pub async fn sweep(self: Arc<Self>, until: CancellationToken) {
        let mut ticks = interval(SWEEP_EVERY);
        while until.run_until_cancelled(ticks.tick()).await.is_some() {
            self.sweep_once();
        }
    }

    fn sweep_once(&self) {
        let mut all = self.0.lock();
        all.retain(|delivery| delivery.strong_count() > 0);
        let looked_at: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        drop(all);
        let now = Instant::now();
        for delivery in looked_at {
            let mut state = delivery.0.lock();
            let late = if state.is_late(now) { state.body.take() } else { None };
            let waker = state.waker.take_if(|_| late.is_some());
            drop(state);
            waker.into_iter().for_each(Waker::wake);
            // It may hold much, and is freed without a lock.
            drop(late);
        }
    }
}

fn take<T: Clone + Send + Sync + 'static>(extensions: &mut Extensions) -> Option<T> {
    extensions.remove::<T>()
}

/// A body that is being delivered.
#[derive(Debug)]
struct Delivered {
    delivery: Arc<Delivery>,
    /// Ends a quiet watch in time.
    wakes: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl http_body::Body for Delivered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let mut state = this.delivery.0.lock();
        if state.until.is_some_and(|until| Instant::now() >= until) {
            state.body = None;
        }
        state.given = None;
        let is_ended = this.wakes.as_mut().is_some_and(|wakes| wakes.as_mut().poll(cx).is_ready());
        if is_ended || (state.body.is_none() && state.is_over(Instant::now())) {
            state.body = None;
            // A watch ends at any time; a list that is not whole must not look so.
            let is_watch = state.until.is_none();
            return Poll::Ready((!is_watch).then(|| Err(TooSlow.into())));
        }
        let Some(body) = &mut state.body else { return Poll::Ready(Some(Err(TooSlow.into()))) };
        let polled = Pin::new(body).poll_frame(cx);
        state.waker = polled.is_pending().then(|| cx.waker().clone());
        if let Poll::Ready(Some(Ok(_))) = &polled {
            state.given = Some(Instant::now());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.delivery.0.lock().body.as_ref().is_some_and(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.delivery.0.lock().body.as_ref().map_or_else(SizeHint::default, http_body::Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use futures::stream::{self, StreamExt};
    use http_body_util::StreamBody;
    use kubefold_wire::body::full;
    use tokio_util::task::TaskTracker;

    use super::*;

    const LIST_MAX: Duration = Duration::from_mins(5);

    fn deliveries() -> Arc<Deliveries> {
        let deliveries = Arc::new(Deliveries::default());
        TaskTracker::new().spawn(Arc::clone(&deliveries).sweep(CancellationToken::new()));
        deliveries
    }

    fn bounded(deliveries: &Deliveries, body: Body, within: Option<Duration>) -> Body {
        let mut response = Response::new(body);
        response.extensions_mut().extend(
            within
                .map(DeliverWithin)
                .map(|within| {
                    let mut extensions = Extensions::new();
                    extensions.insert(within);
                    extensions
                })
                .unwrap_or_default(),
        );
        deliveries.bounded(response, None).into_body()
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
        let (deliveries, held) = (deliveries(), Arc::new(()));
        for within in [Some(LIST_MAX), None] {
            let mut body = bounded(&deliveries, body(&held), within);
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
    async fn what_comes_from_elsewhere_is_let_go_of_though_its_size_is_known_and_nobody_ever_asked() {
        let deliveries = deliveries();
        let mut response = Response::new(full("x"));
        response.extensions_mut().insert(Streamed);
        let mut body = deliveries.bounded(response, None).into_body();
        tokio::time::sleep(STALLED_MAX + SWEEP_EVERY).await;
        assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), TooSlow.to_string());
        let mut here = deliveries.bounded(Response::new(full("x")), None).into_body();
        tokio::time::sleep(STALLED_MAX + SWEEP_EVERY).await;
        assert!(here.frame().await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_delivered_in_five_minutes_and_a_watch_as_slowly_as_its_client_likes() {
        let (deliveries, held) = (deliveries(), Arc::new(()));
        let mut list = bounded(&deliveries, body(&held), Some(LIST_MAX));
        let mut watch = bounded(&deliveries, body(&held), None);
        for at in 0..20 {
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert_eq!(list.frame().await.unwrap().is_ok(), at < 9, "{at}");
            assert!(watch.frame().await.unwrap().is_ok());
        }
    }

    fn quiet() -> Response<Body> {
        Response::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, BodyError>>()).boxed_unsync())
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_waits_for_events_is_not_late() {
        let mut body = deliveries().bounded(quiet(), None).into_body();
        assert!(tokio::time::timeout(Duration::from_hours(1), body.frame()).await.is_err(), "it waits on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_ends_well_when_the_credential_of_its_client_does() {
        let ends = Instant::now() + Duration::from_hours(1);
        let until = |ends| Some(Credential::new(ends, Arc::new(|| true)));
        let mut body = deliveries().bounded(quiet(), until(ends)).into_body();
        assert!(body.frame().await.is_none());
        assert_eq!(Instant::now().duration_since(ends).as_secs(), 0);
        let mut list = quiet();
        list.extensions_mut().insert(DeliverWithin(Duration::from_hours(2)));
        let ends = Instant::now() + Duration::from_hours(1);
        assert!(deliveries().bounded(list, until(ends)).into_body().frame().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_ends_well_soon_after_its_credential_was_withdrawn() {
        let counts = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let read = Arc::clone(&counts);
        let by = move || read.load(std::sync::atomic::Ordering::Relaxed);
        let credential = Credential::new(Instant::now() + Duration::from_hours(9), Arc::new(by));
        let deliveries = deliveries();
        let mut body = deliveries.bounded(quiet(), Some(credential)).into_body();
        let silent = tokio::time::timeout(Duration::from_hours(1), body.frame()).await;
        assert!(silent.is_err(), "it waits on");
        counts.store(false, std::sync::atomic::Ordering::Relaxed);
        let withdrawn = Instant::now();
        assert!(body.frame().await.is_none());
        assert!(withdrawn.elapsed() <= SWEEP_EVERY);
    }
}
