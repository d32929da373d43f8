//! What bounds the work of all reflectors together: pages of lists in memory, slices that are prepared, and sessions that
//! begin.
//!
//! A cold start lists every kind of every member at once, and so does the end of an outage of all members. Whoever comes
//! first is let in first. Answers to clients never wait here.

use std::{pin::pin, sync::Arc, thread, time::Duration};

use tokio::{
    sync::{Mutex, Semaphore, watch},
    time::timeout,
};

/// Bytes of list pages that are under way or being taken in, over all members and kinds.
const PAGES_BYTES_MAX: usize = 256 << 20;
/// Sessions that are asking their members who they are and how far they are, over all members and kinds.
const SESSIONS_MAX: usize = 128;
/// A member that has not begun to answer for so long gives its room to others, and gets it anew when it answers: a hung
/// member holds up nobody else.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lets reflectors work, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Admission {
    pages_bytes_max: usize,
    pages_bytes: watch::Sender<usize>,
    /// Held by the one whose page is next.
    next_page: Mutex<()>,
    slices: Semaphore,
    sessions: Semaphore,
}

impl Default for Admission {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self::new(PAGES_BYTES_MAX, (cores / 2).max(1))
    }
}

impl Admission {
    /// Makes one with nobody in it.
    pub(super) fn new(pages_bytes_max: usize, slices_max: usize) -> Self {
        Self {
            pages_bytes_max,
            pages_bytes: watch::Sender::new(0),
            next_page: Mutex::default(),
            slices: Semaphore::new(slices_max),
            sessions: Semaphore::new(SESSIONS_MAX),
        }
    }

    /// Waits for room for a page of about so many bytes; one that is larger than all the room there is comes in alone.
    /// Cancel: safe.
    pub(super) async fn page(self: &Arc<Self>, bytes: usize) -> PageRoom {
        let _turn = self.next_page.lock().await;
        let has_room = |held: &usize| *held == 0 || held.saturating_add(bytes) <= self.pages_bytes_max;
        let mut pages_bytes = self.pages_bytes.subscribe();
        // The sender lives here: the wait does not fail.
        drop(pages_bytes.wait_for(has_room).await);
        self.pages_bytes.send_modify(|held| *held = held.saturating_add(bytes));
        PageRoom { admission: Arc::clone(self), bytes }
    }

    /// Waits for room for a page, and asks for it then. Room is given back while the member does not begin to answer.
    /// Cancel: safe.
    pub(super) async fn ask<T>(self: &Arc<Self>, bytes: usize, asking: impl Future<Output = T>) -> (PageRoom, T) {
        let room = self.page(bytes).await;
        let mut asking = pin!(asking);
        if let Ok(answer) = timeout(PATIENCE, &mut asking).await {
            return (room, answer);
        }
        drop(room);
        let answer = asking.await;
        (self.page(bytes).await, answer)
    }

    /// Does the synchronous work on one slice when it is its turn.
    /// Cancel: safe; the work is done wholly or not at all.
    pub(super) async fn slice<T>(&self, work: impl FnOnce() -> T) -> T {
        // It is never closed.
        let _turn = self.slices.acquire().await;
        work()
    }

    /// Does what a session begins with when it is its turn. The turn ends when that takes long.
    /// Cancel: safe.
    pub(super) async fn begin<T>(&self, beginning: impl Future<Output = T>) -> T {
        let turn = self.sessions.acquire().await;
        let mut beginning = pin!(beginning);
        if let Ok(done) = timeout(PATIENCE, &mut beginning).await {
            return done;
        }
        drop(turn);
        beginning.await
    }

    /// Bytes of pages that are let in now.
    #[cfg(test)]
    pub(super) fn pages_bytes(&self) -> usize {
        *self.pages_bytes.borrow()
    }
}

/// Room for one page. It is given back when this is dropped, with the page.
#[derive(Debug)]
pub(super) struct PageRoom {
    admission: Arc<Admission>,
    bytes: usize,
}

impl PageRoom {
    /// The page is here, and so large. That is not waited for: it is in memory already, and the next ones wait for it.
    pub(super) fn correct(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.admission.pages_bytes.send_modify(|held| *held = held.saturating_sub(before).saturating_add(bytes));
    }
}

impl Drop for PageRoom {
    fn drop(&mut self) {
        self.admission.pages_bytes.send_modify(|held| *held = held.saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use futures::future::{join_all, pending, poll_immediate};
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pages_never_exceed_their_budget_and_all_of_them_end() {
        let admission = Arc::new(Admission::new(100, 1));
        let began = Instant::now();
        let page = |bytes: usize| {
            let admission = Arc::clone(&admission);
            async move {
                let room = admission.page(bytes).await;
                let held = admission.pages_bytes();
                assert!(held <= 100, "{held} bytes at once");
                sleep(Duration::from_secs(1)).await;
                drop(room);
            }
        };
        join_all((0..60).map(|at| page(10 + at % 3 * 20))).await;
        assert_eq!(admission.pages_bytes(), 0);
        assert!(began.elapsed() < Duration::from_secs(30), "they share the room: {:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_larger_than_the_budget_comes_in_alone_and_is_not_overtaken() {
        let admission = Arc::new(Admission::new(100, 1));
        let small = admission.page(10).await;
        let mut large = pin!(admission.page(1_000));
        assert!(poll_immediate(&mut large).await.is_none());
        let mut later = pin!(admission.page(10));
        assert!(poll_immediate(&mut later).await.is_none(), "who comes later waits behind it");
        drop(small);
        let large = large.await;
        assert!(poll_immediate(&mut later).await.is_none());
        drop(large);
        assert_eq!(later.await.bytes, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_counts_as_what_it_is_once_it_is_here() {
        let admission = Arc::new(Admission::new(100, 1));
        let mut first = admission.page(90).await;
        first.correct(20);
        let second = admission.page(80).await;
        first.correct(50);
        assert_eq!(admission.pages_bytes(), 130);
        drop(second);
        assert!(poll_immediate(pin!(admission.page(60))).await.is_none());
        drop(first);
        assert_eq!(admission.pages_bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_cancelled_gives_its_room_and_its_turn_back() {
        let admission = Arc::new(Admission::new(100, 1));
        let held = admission.page(100).await;
        {
            let mut waiting = pin!(admission.page(100));
            assert!(poll_immediate(&mut waiting).await.is_none());
        }
        {
            let mut asking = pin!(admission.ask(100, pending::<()>()));
            drop(held);
            assert!(poll_immediate(&mut asking).await.is_none());
            assert_eq!(admission.pages_bytes(), 100);
        }
        assert_eq!(admission.page(100).await.bytes, 100);
        assert_eq!(admission.pages_bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_does_not_answer_holds_up_nobody() {
        let admission = Arc::new(Admission::new(100, 1));
        let late = admission.ask(100, sleep(Duration::from_secs(30)));
        let (late, ()) = tokio::join!(late, async {
            let began = Instant::now();
            drop(admission.page(100).await);
            assert_eq!(began.elapsed(), PATIENCE);
        });
        assert_eq!(late.0.bytes, 100, "when it answers, its page has room again");
        let hung: Vec<_> = (0..SESSIONS_MAX).map(|_| admission.begin(sleep(Duration::from_secs(30)))).collect();
        let (_, began) = (Instant::now(), Instant::now());
        tokio::join!(join_all(hung), async {
            admission.begin(async {}).await;
            assert_eq!(began.elapsed(), PATIENCE);
        });
    }
}
