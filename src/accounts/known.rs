//! What members said of tokens, and how long that holds. Tokens themselves are not kept.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use kubefold_serving::caller::Caller;

/// What a member has said of a token holds for so long.
pub(super) const GOOD_FOR: Duration = Duration::from_secs(10);
pub(super) const BAD_FOR: Duration = Duration::from_secs(1);
/// A member that is up and cannot say any more is taken at its last word for so long.
pub(super) const GRACE: Duration = Duration::from_mins(5);

/// Tokens that are remembered.
const TOKENS_MAX: usize = 10_000;

/// What is known of tokens. Their digests are keyed: what is in memory finds no token elsewhere.
pub(super) struct Known {
    slots: Cache<[u8; 32], Arc<Slot>>,
    key: [u8; 32],
}

impl Default for Known {
    fn default() -> Self {
        let mut key = [0; 32];
        let halves = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        key.iter_mut().zip(halves.iter().flat_map(|half| half.as_bytes())).for_each(|(to, from)| *to = *from);
        Self { slots: Cache::new(TOKENS_MAX), key }
    }
}

impl Known {
    /// What is known of one token.
    pub(super) fn slot(&self, token: &str) -> Arc<Slot> {
        let digest: [u8; 32] = Sha256::new().chain_update(self.key).chain_update(token).finalize().into();
        let made = self.slots.get_or_insert_with(&digest, || Ok::<_, std::convert::Infallible>(Arc::default()));
        made.unwrap_or_default()
    }
}

/// What is known of one token.
#[derive(Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Whose it is, by the last word, and when that was.
    last: Option<Word>,
    /// From then on members are asked again.
    until: Option<Instant>,
}

struct Word {
    caller: Option<Caller>,
    at: Instant,
}

impl Slot {
    /// Waits until nobody else asks about it.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Whose it is, while that is known. `Some(None)`: nobody's.
    pub(super) fn fresh(&self) -> Option<Option<Caller>> {
        let state = self.state.lock();
        let holds = state.until.is_some_and(|until| Instant::now() < until);
        holds.then(|| state.last.as_ref().and_then(|word| word.caller.clone()))
    }

    /// Takes what was said to a question of `asked`.
    pub(super) fn is(&self, caller: Option<Caller>, asked: Instant) -> Option<Caller> {
        let holds_for = if caller.is_some() { GOOD_FOR } else { BAD_FOR };
        let until = (asked + holds_for).max(Instant::now() + BAD_FOR);
        *self.state.lock() = State { last: Some(Word { caller: caller.clone(), at: asked }), until: Some(until) };
        caller
    }

    /// Nobody said: the last word stands while its member is down, and otherwise for a while.
    pub(super) fn is_unknown(&self, asked: Instant, is_down: impl Fn(&str) -> bool) -> Option<Caller> {
        let mut state = self.state.lock();
        state.until = Some(Instant::now() + BAD_FOR);
        let stands = state.last.as_ref().is_some_and(|word| {
            let member = word.caller.as_ref().and_then(|caller| caller.domain.as_deref());
            asked < word.at + GRACE || member.is_some_and(is_down)
        });
        if !stands {
            state.last = None;
        }
        state.last.as_ref().and_then(|word| word.caller.clone())
    }
}
