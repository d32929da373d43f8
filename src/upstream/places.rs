//! How many requests and watches there may be at once in one member, and who may have how many of them.
//!
//! kubefold's own have a reserve that no caller touches: what fills the stores, probes and finishes writes goes on whatever
//! callers do. Callers share the rest, so that none of them takes it all.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::upstream::{error::Failure, pool::STREAMS_MAX};
use kubefold_serving::shares::{Full, Share, Shares};

/// Connections for kubefold's own watches.
pub(super) const WATCH_CONNECTIONS_MAX: usize = 64;
/// kubefold's own watches under way.
const WATCHES_MAX: usize = WATCH_CONNECTIONS_MAX * STREAMS_MAX;
/// Connections for the watches and other endless answers of callers.
pub(super) const CALLER_CONNECTIONS_MAX: usize = 24;
/// Watches and other endless answers of callers under way.
const CALLER_WATCHES_MAX: usize = CALLER_CONNECTIONS_MAX * STREAMS_MAX;
/// Of so many places for requests one is kubefold's alone.
const RESERVE_OF: usize = 10;

/// What kind of request it is: that decides its deadline, its limit and its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Ends soon, changes nothing.
    Read,
    /// Ends soon, changes something.
    Write,
    /// A watch: an answer at once, then events without end.
    Watch,
    /// No deadline at all: followed logs, proxied applications.
    Stream,
    /// A question about what a caller may do, whatever else that caller does: kubefold asks it, in the caller's name.
    Review,
}

/// The places for requests that end soon. They are as many as the configuration says.
pub(super) struct Requests {
    all: Arc<Semaphore>,
    max: usize,
    callers: Arc<Shares>,
}

/// The places for what does not end by itself.
pub(super) struct Watches {
    own: Arc<Semaphore>,
    callers: Arc<Shares>,
}

/// One place; dropping it frees it.
#[derive(Debug)]
#[allow(dead_code, reason = "held, not read")]
pub(super) struct Place(Option<OwnedSemaphorePermit>, Option<Share>);

impl Requests {
    pub(super) fn new(max: usize) -> Self {
        let callers = Shares::new(max - max / RESERVE_OF);
        Self { all: Arc::new(Semaphore::new(max)), max, callers }
    }

    fn take(&self, caller: Option<&str>) -> Result<Place, Full> {
        let share = caller.map(|caller| self.callers.take(caller)).transpose()?;
        let all = Arc::clone(&self.all).try_acquire_owned().map_err(|_| Full::All { max: self.max })?;
        Ok(Place(Some(all), share))
    }
}

impl Watches {
    pub(super) fn new() -> Self {
        Self { own: Arc::new(Semaphore::new(WATCHES_MAX)), callers: Shares::new(CALLER_WATCHES_MAX) }
    }

    fn take(&self, caller: Option<&str>) -> Result<Place, Full> {
        match caller {
            Some(caller) => Ok(Place(None, Some(self.callers.take(caller)?))),
            None => {
                let own = Arc::clone(&self.own).try_acquire_owned();
                Ok(Place(Some(own.map_err(|_| Full::All { max: WATCHES_MAX })?), None))
            }
        }
    }
}

/// Takes a place for a request of a class.
///
/// Errors: [`Failure::Saturated`].
pub(super) fn take(
    requests: &Requests,
    watches: &Watches,
    class: Class,
    caller: Option<&str>,
) -> Result<Place, Failure> {
    let (taken, what) = match class {
        Class::Read | Class::Write => (requests.take(caller), "requests"),
        Class::Watch | Class::Stream => (watches.take(caller), "watches"),
        // Whoever asks takes a place before.
        Class::Review => return Ok(Place(None, None)),
    };
    taken.map_err(|full| Failure::Saturated { what, full })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(requests: &Requests, caller: Option<&str>) -> Vec<Place> {
        std::iter::repeat_with(|| requests.take(caller)).map_while(Result::ok).collect()
    }

    #[test]
    fn no_caller_takes_what_others_and_kubefold_need() {
        let requests = Requests::new(200);
        let ann = fill(&requests, Some("ann"));
        let bob = fill(&requests, Some("bob"));
        assert_eq!((ann.len(), bob.len()), (120, 40));
        let own = fill(&requests, None);
        assert_eq!(own.len(), 40, "kubefold has all that is left");
        drop((ann, bob, own));
        let crowd: Vec<_> = (0..200).map(|who| fill(&requests, Some(&who.to_string()))).collect();
        assert!(fill(&requests, None).len() >= 20, "and a reserve that all callers together leave alone");
        drop(crowd);
    }

    #[test]
    fn watches_of_callers_are_none_of_kubefolds() {
        let watches = Watches::new();
        let take = |caller| std::iter::repeat_with(|| watches.take(caller)).map_while(Result::ok).collect::<Vec<_>>();
        let ann = take(Some("ann"));
        assert_eq!(ann.len(), CALLER_WATCHES_MAX * 2 / 3);
        assert!(watches.take(Some("bob")).is_ok());
        assert_eq!(take(None).len(), WATCHES_MAX);
    }
}
