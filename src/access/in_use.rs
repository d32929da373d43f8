//! Answers that are in use: one look each second at what members say by now, for all watches that rest on the same answer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::interval;

use crate::{access::record::Decided, config::MemberName};

/// How often it is looked whether a right was withdrawn.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks after which others get their turn.
const LOOKS_MAX: usize = 64;

/// The answers that are in use.
#[derive(Default)]
pub(super) struct InUse(Mutex<HashMap<AnswerId, Weak<Answer>>>);

/// By which two questions have the same answer, while both are held: where they are in memory, and whom they ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AnswerId {
    pub(super) record: usize,
    pub(super) through: Option<usize>,
    pub(super) only: Option<MemberName>,
    pub(super) selected: Vec<usize>,
}

/// What members say by now to a question.
struct Answer {
    /// Holds the question.
    ask: Box<dyn Fn() -> Arc<Decided> + Send + Sync>,
    /// Rises with each change of what is said.
    version: AtomicU64,
    said: Mutex<Arc<Decided>>,
    /// Of those who follow it.
    wakers: Mutex<Vec<Weak<AtomicWaker>>>,
}

/// An answer that is looked at again for as long as this is held, and how much of it was seen.
pub(super) struct Seen {
    answer: Arc<Answer>,
    /// The version that was taken; 0 before the first one.
    version: u64,
    waker: Arc<AtomicWaker>,
}

impl InUse {
    /// Follows the answer to a question. `ask` says what members say by now; what is due is asked.
    pub(super) fn follow(&self, id: AnswerId, ask: impl Fn() -> Arc<Decided> + Send + Sync + 'static) -> Seen {
        let known = self.0.lock().get(&id).and_then(Weak::upgrade);
        // Members are asked by that: not under the lock.
        let answer = known.unwrap_or_else(|| self.known_or(id, Arc::new(Answer::new(Box::new(ask)))));
        let waker = Arc::default();
        answer.wakers.lock().push(Arc::downgrade(&waker));
        Seen { answer, version: 0, waker }
    }

    /// Of two that are made at the same time one is for both.
    fn known_or(&self, id: AnswerId, made: Arc<Answer>) -> Arc<Answer> {
        let mut answers = self.0.lock();
        if let Some(known) = answers.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        answers.insert(id, Arc::downgrade(&made));
        made
    }

    /// Looks at all of them, again and again. Cancel: safe.
    pub(super) async fn look(&self) {
        let mut due = interval(LOOK_EVERY);
        loop {
            due.tick().await;
            for some in self.all().chunks(LOOKS_MAX) {
                some.iter().for_each(|answer| answer.look());
                tokio::task::yield_now().await;
            }
        }
    }

    fn all(&self) -> Vec<Arc<Answer>> {
        let mut all = Vec::new();
        self.0.lock().retain(|_, answer| {
            let answer = answer.upgrade();
            all.extend(answer.iter().cloned());
            answer.is_some()
        });
        all
    }

    /// How many are in use, and have been since the last look.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Answer {
    fn new(ask: Box<dyn Fn() -> Arc<Decided> + Send + Sync>) -> Self {
        let said = Mutex::new(ask());
        Self { ask, version: AtomicU64::new(1), said, wakers: Mutex::default() }
    }

    /// Tells those who follow it what has changed.
    fn look(&self) {
        let now = (self.ask)();
        let mut wakers = self.wakers.lock();
        wakers.retain(|waker| waker.strong_count() > 0);
        let mut said = self.said.lock();
        if *said == now {
            return;
        }
        *said = now;
        self.version.fetch_add(1, Ordering::Release);
        drop(said);
        wakers.iter().filter_map(Weak::upgrade).for_each(|waker| waker.wake());
    }
}

impl Seen {
    /// Says whether something has changed since it was taken. At first it has.
    pub(super) fn has_news(&self) -> bool {
        self.answer.version.load(Ordering::Acquire) != self.version
    }

    /// Waits until it has news.
    pub(super) fn poll_news(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.has_news() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// What members say.
    pub(super) fn take(&mut self) -> Arc<Decided> {
        // Before what is said: a change in between is news.
        self.version = self.answer.version.load(Ordering::Acquire);
        Arc::clone(&self.answer.said.lock())
    }
}
