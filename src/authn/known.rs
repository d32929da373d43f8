//! What was said of tokens by whoever knows them, and how long that holds. Tokens themselves are not kept.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// What was said of a token holds for so long at least: whoever tries tokens asks no more often.
pub const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Whoever is there and cannot say any more is taken at the last word for so long.
pub const GRACE: Duration = Duration::from_mins(5);
/// No token is longer.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Tokens that are remembered.
const TOKENS_MAX: usize = 10_000;

/// What is known of tokens. Their digests are keyed: what is in memory finds no token elsewhere.
pub struct Known<W> {
    slots: Cache<[u8; 32], Arc<Slot<W>>>,
    key: [u8; 32],
}

impl<W> Default for Known<W> {
    fn default() -> Self {
        let mut key = [0; 32];
        let halves = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        key.iter_mut().zip(halves.iter().flat_map(|half| half.as_bytes())).for_each(|(to, from)| *to = *from);
        Self { slots: Cache::new(TOKENS_MAX), key }
    }
}

impl<W> Known<W> {
    /// What is known of one token.
    pub fn slot(&self, token: &str) -> Arc<Slot<W>> {
        let digest: [u8; 32] = Sha256::new().chain_update(self.key).chain_update(token).finalize().into();
        let made = self.slots.get_or_insert_with(&digest, || Ok::<_, std::convert::Infallible>(Arc::default()));
        made.unwrap_or_default()
    }
}

/// What is known of one token.
pub struct Slot<W> {
    state: Mutex<State<W>>,
    turn: tokio::sync::Mutex<()>,
}

struct State<W> {
    /// The last word, and when that was.
    last: Option<(W, Instant)>,
    /// From then on it is asked again.
    until: Option<Instant>,
}

impl<W> Default for Slot<W> {
    fn default() -> Self {
        Self { state: Mutex::new(State { last: None, until: None }), turn: tokio::sync::Mutex::default() }
    }
}

impl<W: Clone> Slot<W> {
    /// Waits until nobody else asks about it.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The word, while it holds. `Some(None)`: nobody could say a moment ago.
    pub fn fresh(&self) -> Option<Option<W>> {
        let state = self.state.lock();
        let holds = state.until.is_some_and(|until| Instant::now() < until);
        holds.then(|| state.last.as_ref().map(|(word, _)| word.clone()))
    }

    /// Takes what was said to a question of `asked`.
    pub fn is(&self, word: W, asked: Instant, holds_for: Duration) -> W {
        let until = (asked + holds_for).max(Instant::now() + AGAIN_AFTER);
        *self.state.lock() = State { last: Some((word.clone(), asked)), until: Some(until) };
        word
    }

    /// Nobody said: the last word goes on while it `stands`, by itself and by when it was said.
    pub fn is_unknown(&self, stands: impl Fn(&W, Instant) -> bool) -> Option<W> {
        let mut state = self.state.lock();
        state.until = Some(Instant::now() + AGAIN_AFTER);
        state.last = state.last.take().filter(|(word, at)| stands(word, *at));
        state.last.as_ref().map(|(word, _)| word.clone())
    }
}
