//! Who goes on next with long work: reads that go through many objects take turns, and each caller has as many turns as any
//! other, however many reads are his.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use kubefold_serving::caller::Caller;
use kubefold_wire::body::{Body, BodyError};

/// The turns of one process: so many go on at the same time.
#[derive(Debug)]
pub(super) struct Turns(Mutex<Line>);

/// Who waits.
#[derive(Debug)]
struct Line {
    /// Turns that nobody has.
    free: usize,
    /// Callers who wait, in the order in which they come next. Each is in it once.
    callers: VecDeque<Arc<str>>,
    /// What waits, of each caller: in the order in which it came.
    waiting: HashMap<Arc<str>, VecDeque<oneshot::Sender<Turn>>>,
}

/// One turn. Dropping it gives it to the next.
#[derive(Debug)]
pub(super) struct Turn(Option<Arc<Turns>>);

impl Default for Turns {
    /// One fewer than the machine has cores: however many reads go through large kinds, one is free for who asks for little.
    fn default() -> Self {
        Self::new(thread::available_parallelism().map_or(1, |threads| threads.get().saturating_sub(1)))
    }
}

impl Turns {
    /// So many at the same time; at least one.
    pub(super) fn new(max: usize) -> Self {
        Self(Mutex::new(Line { free: max.max(1), callers: VecDeque::new(), waiting: HashMap::new() }))
    }

    /// The pace of one read of a caller.
    pub(super) fn pace(self: &Arc<Self>, caller: &Caller) -> Pace {
        let domain = caller.domain.as_deref().unwrap_or_default();
        Pace {
            turns: Arc::clone(self),
            who: format!("{domain}\n{}", caller.user).into(),
            waits: None,
            has_begun: false,
        }
    }

    /// A turn, if one is free, or a place in the line.
    fn take(self: &Arc<Self>, who: &Arc<str>) -> Result<Turn, oneshot::Receiver<Turn>> {
        let mut line = self.0.lock();
        if line.free > 0 {
            line.free -= 1;
            return Ok(Turn(Some(Arc::clone(self))));
        }
        let (sender, receiver) = oneshot::channel();
        match line.waiting.get_mut(who) {
            Some(waiting) => waiting.push_back(sender),
            None => {
                line.callers.push_back(Arc::clone(who));
                line.waiting.insert(Arc::clone(who), VecDeque::from([sender]));
            }
        }
        Err(receiver)
    }

    /// Gives a turn that has ended to the next caller, or keeps it.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let Some(next) = self.0.lock().next() else { return };
            match next.send(Turn(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // Its read has ended meanwhile.
                Err(mut refused) => refused.0 = None,
            }
        }
    }
}

impl Line {
    /// What waits longest, of the caller who comes next; he is the last one from now on. Without any, a turn more is free.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some(who) = self.callers.pop_front() {
            let Some(waiting) = self.waiting.get_mut(&who) else { continue };
            let next = waiting.pop_front();
            if waiting.is_empty() {
                self.waiting.remove(&who);
            } else {
                self.callers.push_back(who);
            }
            if next.is_some() {
                return next;
            }
        }
        self.free += 1;
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

/// How one read goes on: at once for its first slice, which may be all that there is to do, and in its caller's turns then.
#[derive(Debug)]
pub(super) struct Pace {
    turns: Arc<Turns>,
    who: Arc<str>,
    waits: Option<oneshot::Receiver<Turn>>,
    has_begun: bool,
}

impl Pace {
    /// The turn for the next slice. The first slice needs none.
    pub(super) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<Turn>> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Poll::Ready(None);
        }
        let mut waits = match self.waits.take() {
            Some(waits) => waits,
            None => match self.turns.take(&self.who) {
                Ok(turn) => return Poll::Ready(Some(turn)),
                Err(waits) => waits,
            },
        };
        match Pin::new(&mut waits).poll(cx) {
            Poll::Ready(turn) => Poll::Ready(turn.ok()),
            Poll::Pending => {
                self.waits = Some(waits);
                Poll::Pending
            }
        }
    }

    /// Does work that yields after each slice of it.
    pub(super) async fn run<F: Future>(&mut self, mut work: Pin<&mut F>) -> F::Output {
        std::future::poll_fn(|cx| {
            let _turn = ready!(self.poll_turn(cx));
            work.as_mut().poll(cx)
        })
        .await
    }

    /// A body of which each frame is a slice.
    pub(super) fn body(self, body: Body) -> Body {
        Paced { pace: Self { has_begun: false, ..self }, body }.boxed_unsync()
    }
}

struct Paced {
    pace: Pace,
    body: Body,
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { pace, body } = &mut *self;
        if body.is_end_stream() {
            return Poll::Ready(None);
        }
        let _turn = ready!(pace.poll_turn(cx));
        Pin::new(body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};
    use http_body::Body as _;

    use super::*;

    fn caller(user: &str, domain: Option<&str>) -> Caller {
        Caller { user: user.to_owned(), domain: domain.map(str::to_owned), ..Caller::default() }
    }

    /// A body of so many frames, which says at each whose it is.
    fn body(turns: &Arc<Turns>, caller: &Caller, frames: usize, said: &Arc<Mutex<Vec<String>>>) -> Body {
        let (user, said) = (caller.user.clone(), Arc::clone(said));
        let frames = futures::stream::iter(0..frames).map(move |_| {
            said.lock().push(user.clone());
            Ok::<_, BodyError>(Frame::data(Bytes::from_static(b"x")))
        });
        turns.pace(caller).body(http_body_util::StreamBody::new(frames).boxed_unsync())
    }

    /// Before, turns were given in the order in which they were asked for: ann's fifty reads had fifty slices for bob's one.
    #[tokio::test]
    async fn a_caller_with_fifty_reads_has_one_slice_before_another_with_one() {
        for domain in [None, Some("east")] {
            let turns = Arc::new(Turns::new(1));
            let (ann, bob) = (caller("ann", None), caller(if domain.is_some() { "ann" } else { "bob" }, domain));
            let said = Arc::new(Mutex::new(Vec::new()));
            let mut anns: Vec<Body> = (0..50).map(|_| body(&turns, &ann, 5, &said)).collect();
            let mut first = body(&turns, &bob, 5, &Arc::default());
            // Each has had its first slice, which waits for nobody.
            for of in anns.iter_mut().chain([&mut first]) {
                assert!(futures::poll!(of.frame()).is_ready());
            }
            let held = turns.take(&"somebody".into()).unwrap();
            for of in anns.iter_mut().chain([&mut first]) {
                assert!(futures::poll!(of.frame()).is_pending());
            }
            said.lock().clear();
            drop(held);
            for slices in 1..5 {
                let mut polls = 0;
                while futures::poll!(first.frame()).is_pending() {
                    for of in &mut anns {
                        let _ = futures::poll!(of.frame());
                    }
                    polls += 1;
                    assert!(polls < 3, "bob starves");
                }
                let anns = said.lock().len();
                assert!(anns <= slices * 2, "ann has had {anns} slices and bob {slices}");
            }
        }
    }

    #[tokio::test]
    async fn what_fits_in_one_slice_waits_for_nobody() {
        let turns = Arc::new(Turns::new(1));
        let _held = turns.take(&"somebody".into()).unwrap();
        let mut short = turns.pace(&caller("ann", None)).body(kubefold_wire::body::full("x"));
        assert!(futures::poll!(short.frame()).is_ready() && short.is_end_stream());
        assert!(matches!(futures::poll!(short.frame()), Poll::Ready(None)));
        let mut pace = turns.pace(&caller("ann", None));
        assert_eq!(pace.run(std::pin::pin!(async { 7 })).now_or_never(), Some(7));
    }

    #[tokio::test]
    async fn a_turn_comes_back_whatever_becomes_of_who_waits() {
        let turns = Arc::new(Turns::new(1));
        let who: [Arc<str>; 3] = ["ann", "bob", "eve"].map(Arc::from);
        let held = turns.take(&who[0]).unwrap();
        let [gone, given, waits] = [0, 1, 2].map(|at| turns.take(&who[at]).unwrap_err());
        drop(gone);
        drop(held);
        // It is bob's, who goes without having looked.
        drop(given);
        drop(waits.await.unwrap());
        let line = turns.0.lock();
        assert!(line.free == 1 && line.callers.is_empty() && line.waiting.is_empty(), "{line:?}");
    }
}
