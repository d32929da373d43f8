//! Answers that are in use: one look each second at what members say by now, for all watches that rest on the same answer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Once, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::interval;

use crate::{
    access::{
        Access,
        grant::{Renewal, RenewalId, Renewed},
        record::Decided,
    },
    store::Audience,
};

/// How often it is looked whether a right was withdrawn.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks after which others get their turn.
const LOOKS_MAX: usize = 64;

/// The answers that are in use.
pub(super) struct InUse {
    answers: Mutex<HashMap<RenewalId, Weak<Answer>>>,
    looks: Once,
}

/// What members say by now to a question.
struct Answer {
    renewal: Renewal,
    /// Rises with each change of what is said.
    version: AtomicU64,
    said: Mutex<Arc<Decided>>,
    /// Of those who follow it.
    wakers: Mutex<Vec<Weak<AtomicWaker>>>,
}

impl Answer {
    fn new(renewal: &Renewal) -> Self {
        let said = Mutex::new(renewal.decided());
        Self { renewal: renewal.clone(), version: AtomicU64::new(1), said, wakers: Mutex::default() }
    }

    /// Tells those who follow it what has changed.
    fn look(&self) {
        let now = self.renewal.decided();
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

/// A question that is asked again while its answer is used, and how much has been seen of what is said to it.
pub struct Following {
    answer: Arc<Answer>,
    /// The version that was looked at; 0 before the first look.
    seen: u64,
    waker: Arc<AtomicWaker>,
}

impl Following {
    /// Says whether something has changed since the last look. The first one is due.
    pub fn has_news(&self) -> bool {
        self.answer.version.load(Ordering::Acquire) != self.seen
    }

    /// Waits until it has news.
    pub fn poll_news(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.has_news() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// What has become of what `audience` was allowed.
    pub fn look(&mut self, audience: &Audience) -> Renewed {
        // Before what is said: a change in between is seen by the next look.
        self.seen = self.answer.version.load(Ordering::Acquire);
        let said = Arc::clone(&self.answer.said.lock());
        self.answer.renewal.judge(&said, audience)
    }
}

impl Renewal {
    /// Has the question asked again for as long as what is returned is held, and once for all who follow it.
    pub fn follow(&self) -> Following {
        let access = self.access();
        let answer = access.in_use.answer(self);
        access.in_use.looks.call_once(|| {
            let rounds = rounds(Arc::clone(access));
            access.tasks.spawn(access.cancel.clone().run_until_cancelled_owned(rounds));
        });
        let waker = Arc::default();
        answer.wakers.lock().push(Arc::downgrade(&waker));
        Following { answer, seen: 0, waker }
    }
}

impl InUse {
    pub(super) fn new() -> Self {
        Self { answers: Mutex::default(), looks: Once::new() }
    }

    fn answer(&self, renewal: &Renewal) -> Arc<Answer> {
        let id = renewal.id();
        if let Some(known) = self.answers.lock().get(&id).and_then(Weak::upgrade) {
            return known;
        }
        // Members are asked by that: not under the lock.
        let made = Arc::new(Answer::new(renewal));
        let mut answers = self.answers.lock();
        if let Some(known) = answers.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        answers.insert(id, Arc::downgrade(&made));
        made
    }

    /// How many answers are in use, and have been since the last look.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.answers.lock().len()
    }

    fn all(&self) -> Vec<Arc<Answer>> {
        let mut all = Vec::new();
        self.answers.lock().retain(|_, answer| {
            let answer = answer.upgrade();
            all.extend(answer.iter().cloned());
            answer.is_some()
        });
        all
    }
}

async fn rounds(access: Arc<Access>) {
    let mut due = interval(LOOK_EVERY);
    loop {
        due.tick().await;
        for some in access.in_use.all().chunks(LOOKS_MAX) {
            some.iter().for_each(|answer| answer.look());
            tokio::task::yield_now().await;
        }
    }
}
