//! Places that clients share, so that one of them may take many while many are free, and never all.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

/// Whoever holds this many times the free places gets no further one.
///
/// A single client takes up to two thirds of all places, two take two fifths each, and so on: whatever some of them do,
/// the next one finds a place. This is the dynamic threshold of packet switches (Choudhury and Hahne, IEEE/ACM
/// Transactions on Networking 6(2), 1998).
const FREE_FACTOR: usize = 2;

/// Places, and who has how many.
#[derive(Debug)]
pub struct Shares {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<Arc<str>, usize>,
}

/// One place. Dropping it frees the place.
#[derive(Debug)]
pub struct Share {
    shares: Weak<Shares>,
    who: Arc<str>,
}

/// There is no place for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// All places are taken.
    #[error("all {max} are taken")]
    All {
        /// How many there are.
        max: usize,
    },
    /// This client has its share.
    #[error("the client has {held} of {max}, which is its share")]
    Share {
        /// How many this client has.
        held: usize,
        /// How many there are.
        max: usize,
    },
}

impl Shares {
    /// So many places, all of them free.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// Takes a place for a client.
    ///
    /// Errors: all are taken, or the client has its share of them.
    pub fn take(self: &Arc<Self>, who: &str) -> Result<Share, Full> {
        let mut taken = self.taken.lock();
        let free = self.max.saturating_sub(taken.all);
        if free == 0 {
            return Err(Full::All { max: self.max });
        }
        let known = taken.of.get_key_value(who).map(|(who, held)| (Arc::clone(who), *held));
        let (who, held) = known.unwrap_or_else(|| (Arc::from(who), 0));
        if held >= FREE_FACTOR.saturating_mul(free) {
            return Err(Full::Share { held, max: self.max });
        }
        taken.all += 1;
        taken.of.insert(Arc::clone(&who), held + 1);
        Ok(Share { shares: Arc::downgrade(self), who })
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken.lock().all
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(shares) = self.shares.upgrade() else { return };
        let mut taken = shares.taken.lock();
        taken.all = taken.all.saturating_sub(1);
        match taken.of.get_mut(&self.who) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(taken.of.remove(&self.who)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(shares: &Arc<Shares>, who: &str) -> Vec<Share> {
        std::iter::repeat_with(|| shares.take(who)).map_while(Result::ok).collect()
    }

    #[test]
    fn one_client_never_has_all() {
        let shares = Shares::new(180);
        let ann = take_all(&shares, "ann");
        assert_eq!(ann.len(), 120);
        assert_eq!(shares.take("ann").unwrap_err(), Full::Share { held: 120, max: 180 });
        let bob = take_all(&shares, "bob");
        assert_eq!(bob.len(), 40);
        assert!(!take_all(&shares, "eve").is_empty());
        drop(ann);
        assert!(shares.take("bob").is_ok(), "what comes back is for all");
    }

    #[test]
    fn whoever_comes_when_many_are_there_finds_a_place_and_all_come_back() {
        let shares = Shares::new(200);
        let held: Vec<Vec<Share>> = (0..40).map(|who| take_all(&shares, &who.to_string())).collect();
        assert!(held.iter().filter(|of| !of.is_empty()).count() >= 5, "{:?}", shares.taken());
        drop(held);
        let taken = shares.taken.lock();
        assert!(taken.all == 0 && taken.of.is_empty());
    }

    #[test]
    fn the_last_place_is_somebodys() {
        let shares = Shares::new(1);
        let held = shares.take("ann").unwrap();
        assert_eq!(shares.take("bob").unwrap_err(), Full::All { max: 1 });
        drop(held);
        assert!(shares.take("bob").is_ok());
    }
}
