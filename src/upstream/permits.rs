//! How many streams there are, and how many there may be at once: of one caller in one member, in one member, and in all.
//!
//! Streams are long, and each holds a connection or a part of one: without a limit one caller would take them all.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::config::MemberName;
use kubefold_wire::golang::Quoted;

/// Streams of one caller in one member.
const OF_CALLER_MAX: usize = 256;
/// Streams in one member.
const OF_MEMBER_MAX: usize = 1024;
/// Streams in all.
const IN_ALL_MAX: usize = 2048;

/// What a stream is, as metrics tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind(&'static str);

impl Kind {
    /// All that there are: the core's, and whatever else changes its protocol.
    pub(crate) const ALL: [Self; 6] =
        [Self("attach"), Self("exec"), Self("log"), Self("portforward"), Self("proxy"), Self::OTHER];
    /// A console of an aggregated API, a watch over a WebSocket.
    pub(crate) const OTHER: Self = Self("other");

    /// That of a subresource of the core group.
    pub(crate) fn of(subresource: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.0 == subresource && *kind != Self::OTHER)
    }

    /// As a label.
    pub(crate) fn name(self) -> &'static str {
        self.0
    }
}

/// The streams under way.
#[derive(Default)]
pub(crate) struct Permits(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: usize,
    members: HashMap<MemberName, usize>,
    callers: HashMap<(MemberName, String), usize>,
    kinds: HashMap<(MemberName, Kind), usize>,
}

/// One stream's place. Dropping it frees the place.
pub(crate) struct Permit {
    permits: Weak<Permits>,
    who: (MemberName, String),
    kind: Kind,
}

/// A limit of streams is reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{whose} {max} open streams (logs, exec, attach, port-forward, proxy), which is the limit")]
pub struct TooManyStreams {
    /// Who has them, with the verb: `member east has`.
    pub whose: String,
    /// The limit.
    pub max: usize,
}

impl Permits {
    /// Takes a place.
    ///
    /// Errors: the limit that is reached.
    pub(crate) fn take(
        self: &Arc<Self>,
        member: &MemberName,
        user: &str,
        kind: Kind,
    ) -> Result<Permit, TooManyStreams> {
        let mut taken = self.0.lock();
        let who = (member.clone(), user.to_owned());
        let held = |count: Option<&usize>| count.copied().unwrap_or_default();
        let limits = [
            (
                held(taken.callers.get(&who)),
                OF_CALLER_MAX,
                format!("member {member}: user {user} has", user = Quoted(user)),
            ),
            (held(taken.members.get(member)), OF_MEMBER_MAX, format!("member {member} has")),
            (taken.all, IN_ALL_MAX, "kubefold has".to_owned()),
        ];
        if let Some((_, max, whose)) = limits.into_iter().find(|(count, max, _)| count >= max) {
            return Err(TooManyStreams { whose, max });
        }
        taken.all += 1;
        *taken.members.entry(member.clone()).or_default() += 1;
        *taken.callers.entry(who.clone()).or_default() += 1;
        *taken.kinds.entry((member.clone(), kind)).or_default() += 1;
        Ok(Permit { permits: Arc::downgrade(self), who, kind })
    }

    /// How many of a kind are under way in a member.
    pub(crate) fn taken(&self, member: &MemberName, kind: Kind) -> usize {
        self.0.lock().kinds.get(&(member.clone(), kind)).copied().unwrap_or_default()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(permits) = self.permits.upgrade() else { return };
        let mut taken = permits.0.lock();
        taken.all = taken.all.saturating_sub(1);
        give_back(&mut taken.members, &self.who.0);
        give_back(&mut taken.callers, &self.who);
        give_back(&mut taken.kinds, &(self.who.0.clone(), self.kind));
    }
}

/// One fewer; what is none is forgotten.
fn give_back<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, whose: &K) {
    match counts.get_mut(whose) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(whose)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_named_and_places_come_back() {
        let permits = Arc::new(Permits::default());
        let [east, west, north] = ["east", "west", "north"].map(|name| MemberName::new(name).unwrap());
        let take = |member: &MemberName, user: &str| permits.take(member, user, Kind::OTHER);
        let message = |refused: Result<Permit, TooManyStreams>| refused.err().unwrap().to_string();
        let mut anns: Vec<Permit> = (0..OF_CALLER_MAX).map(|_| take(&east, "ann").unwrap()).collect();
        assert!(message(take(&east, "ann")).starts_with("member east: user \"ann\" has 256 open streams"));
        drop(take(&west, "ann").unwrap());
        drop(anns.pop());
        anns.push(take(&east, "ann").unwrap());
        let users = |from: usize, to: usize| (from..to).map(|number| number.to_string());
        let more: Vec<Permit> = users(OF_CALLER_MAX, OF_MEMBER_MAX).map(|user| take(&east, &user).unwrap()).collect();
        assert!(message(take(&east, "bob")).starts_with("member east has 1024 open streams"));
        let most: Vec<Permit> = users(0, OF_MEMBER_MAX).map(|user| take(&west, &user).unwrap()).collect();
        assert!(message(take(&north, "bob")).starts_with("kubefold has 2048 open streams"));
        assert_eq!((permits.taken(&east, Kind::OTHER), permits.taken(&north, Kind::OTHER)), (OF_MEMBER_MAX, 0));
        drop((anns, more, most));
        let taken = permits.0.lock();
        assert!(taken.all == 0 && taken.members.is_empty() && taken.callers.is_empty() && taken.kinds.is_empty());
    }
}
