//! Whether the server that has the tables answers: one that hangs holds up nobody who can do without it.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// A server that answers nothing for so long, though it was asked, is silent.
const SILENT_AFTER: Duration = Duration::from_secs(2);

/// What a server was asked and has not answered yet.
#[derive(Debug, Default)]
pub(super) struct Pulse(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    waiting: usize,
    /// When the last answer came, or the first question since nobody waited.
    since: Option<Instant>,
}

/// A question that is asked until it is dropped.
pub(super) struct Question(Arc<Pulse>);

impl Pulse {
    fn ask(self: &Arc<Self>) -> Question {
        let mut asked = self.0.lock();
        if asked.waiting == 0 {
            asked.since = Some(Instant::now());
        }
        asked.waiting += 1;
        Question(Arc::clone(self))
    }

    /// Asks a question, which `ask` drops when it is answered. `None`: the server is silent. As long as it answers anybody it is waited
    /// for, since a large fleet asks much at once.
    pub(super) async fn answered<T, F: Future<Output = T>>(
        self: &Arc<Self>,
        ask: impl FnOnce(Question) -> F,
    ) -> Option<T> {
        if self.is_silent() {
            return None;
        }
        let mut asking = std::pin::pin!(ask(self.ask()));
        while let Some(at) = self.silent_at() {
            if let Ok(answer) = tokio::time::timeout_at(at, &mut asking).await {
                return Some(answer);
            }
            if self.is_silent() {
                return None;
            }
        }
        // Nobody waits any more: this one is answered, too.
        Some(asking.await)
    }

    fn is_silent(&self) -> bool {
        self.silent_at().is_some_and(|at| at <= Instant::now())
    }

    /// When it is silent unless it answers before. `None`: it is asked nothing.
    fn silent_at(&self) -> Option<Instant> {
        let asked = self.0.lock();
        asked.since.filter(|_| asked.waiting > 0).map(|since| since + SILENT_AFTER)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut asked = self.0.0.lock();
        asked.waiting -= 1;
        asked.since = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_is_silent_that_answers_nobody_for_a_time() {
        let pulse = Arc::new(Pulse::default());
        let wait = async |milliseconds| tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        assert_eq!(pulse.silent_at(), None);
        let (first, second) = (pulse.ask(), pulse.ask());
        wait(1_900).await;
        assert!(!pulse.is_silent());
        // Who else is answered shows that it answers.
        drop(first);
        wait(1_900).await;
        assert!(!pulse.is_silent());
        let third = pulse.ask();
        wait(100).await;
        assert!(pulse.is_silent());
        drop(second);
        assert!(!pulse.is_silent());
        drop(third);
        wait(5_000).await;
        assert_eq!(pulse.silent_at(), None);
        let _fourth = pulse.ask();
        assert!(!pulse.is_silent());
    }
}
