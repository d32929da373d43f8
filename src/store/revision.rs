//! Fleet revisions: one counter per process, over all kinds.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The only kind of `resourceVersion` that the fleet view emits: a decimal integer below 2^53.
///
/// Units: (microseconds since 2025-01-01T00:00:00Z) * 8 + replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Revision {
    /// How much later another revision was given out, by the clock that revisions follow.
    pub fn until(self, later: Self) -> std::time::Duration {
        std::time::Duration::from_micros(later.0.saturating_sub(self.0) / REPLICAS)
    }
}

/// 2025-01-01T00:00:00Z in microseconds of Unix time.
const EPOCH_MICROS: u64 = 1_735_689_600_000_000;
/// Revisions of several replicas never meet.
const REPLICAS: u64 = 8;
/// Clients read revisions as numbers that JSON holds exactly; the clock reaches this in 2060.
const REVISION_MAX: u64 = 1 << 53;
/// How far ahead the high-water mark is written, so that it is written about once a minute.
const RESERVED: u64 = 60_000_000 * REPLICAS;
/// The clock is followed no further than this below the mark: what is left are revisions for while it cannot be raised.
const SPARE: u64 = RESERVED / 4;

/// Writes the high-water mark to where a later process finds it, and gives the one that it would find by now.
pub type Reserve = Box<dyn Fn(Revision) -> std::io::Result<Revision> + Send + Sync>;

/// The counter. It never falls behind what an earlier process gave out, and behind the clock only where the high-water mark
/// does: while that cannot be written, each event takes the next revision, of which the rest of the mark has millions.
pub struct Revisions {
    first: Revision,
    last: AtomicU64,
    replica: u64,
    clock: fn() -> u64,
    reserved: AtomicU64,
    reserve: Mutex<Reserve>,
}

impl std::fmt::Debug for Revisions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Revisions").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Revisions {
    /// Begins above `high_water`, which an earlier process reserved.
    ///
    /// `clock` gives microseconds of Unix time; `replica` is below 8.
    pub fn new(high_water: Revision, replica: u8, clock: fn() -> u64, reserve: Reserve) -> Self {
        let mut this = Self {
            first: Revision(0),
            last: AtomicU64::new(high_water.0),
            replica: u64::from(replica) % REPLICAS,
            clock,
            reserved: AtomicU64::new(high_water.0),
            reserve: Mutex::new(reserve),
        };
        this.first = this.next();
        this
    }

    /// Begins at the clock and reserves nothing: for tests and for stores that live no longer than their process.
    pub fn volatile() -> Self {
        Self::new(Revision(0), 0, unix_micros, Box::new(Ok))
    }

    /// Gives the next revision.
    pub fn next(&self) -> Revision {
        let now = self.now();
        self.renew_at(now);
        let reserved = self.reserved.load(Ordering::Acquire);
        let now = now.min(reserved.saturating_sub(SPARE) / REPLICAS);
        let advance = |last: u64| Some((last / REPLICAS + 1).max(now) * REPLICAS + self.replica);
        let last = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, advance).unwrap_or_else(|last| last);
        let next = advance(last).unwrap_or(last);
        if next > reserved {
            self.reserve(next);
        }
        Revision(next)
    }

    /// Another process has given out that one.
    pub fn reach(&self, revision: Revision) {
        self.last.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// Asks for what the next minute needs, if less than half of it is left.
    pub fn renew(&self) {
        self.renew_at(self.now());
    }

    fn renew_at(&self, now: u64) {
        let next = self.last.load(Ordering::Acquire).max(now * REPLICAS);
        if next + RESERVED / 2 > self.reserved.load(Ordering::Acquire) {
            self.reserve(next);
        }
    }

    /// Units: microseconds since 2025-01-01T00:00:00Z. A clock that is decades ahead is wrong, and following it once would spoil
    /// all revisions to come.
    fn now(&self) -> u64 {
        let now = (self.clock)().saturating_sub(EPOCH_MICROS);
        if now < (REVISION_MAX - RESERVED) / REPLICAS { now } else { 0 }
    }

    /// The first revision of this process.
    pub fn first(&self) -> Revision {
        self.first
    }

    /// The latest revision given out, for any kind.
    pub fn last(&self) -> Revision {
        Revision(self.last.load(Ordering::Acquire))
    }

    fn reserve(&self, at_least: u64) {
        let write = self.reserve.lock();
        if at_least + RESERVED / 2 <= self.reserved.load(Ordering::Acquire) {
            return;
        }
        let mark = at_least + RESERVED;
        let kept = write(Revision(mark)).unwrap_or_else(|error| {
            // The clock still keeps revisions rising; only a clock that also jumps back could now repeat one.
            tracing::error!(%error, "the revision high-water mark could not be written to the state directory");
            Revision(mark)
        });
        self.reserved.fetch_max(kept.0, Ordering::AcqRel);
    }

    /// The mark that has to be kept before the first revision is given out, above this one.
    pub fn first_mark(high_water: Revision, clock: fn() -> u64) -> Revision {
        Revision(
            high_water.0.max(clock().saturating_sub(EPOCH_MICROS) * REPLICAS).min(REVISION_MAX - RESERVED) + RESERVED,
        )
    }
}

/// Microseconds of Unix time.
pub fn unix_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicU64};

    use proptest::prelude::*;

    use super::*;

    /// What the scripted clock shows; one test sets it.
    static CLOCK: AtomicU64 = AtomicU64::new(0);

    fn clock() -> impl Strategy<Value = u64> {
        let years = |years: u64| years * 31_557_600_000_000;
        prop_oneof![
            4 => EPOCH_MICROS..EPOCH_MICROS + 3_600_000_000,
            2 => EPOCH_MICROS..EPOCH_MICROS + years(30),
            1 => Just(0),
            1 => any::<u64>(),
        ]
    }

    proptest! {
        /// Whatever the system's clock does, and whenever kubefold starts again.
        #[test]
        fn revisions_rise_through_every_step_of_the_clock(
            steps in prop::collection::vec((clock(), 1..4_usize, prop::bool::weighted(0.2)), 1..40),
        ) {
            let mark = Arc::new(AtomicU64::new(0));
            let start = |mark: &Arc<AtomicU64>| {
                let (high_water, keep) = (Revision(mark.load(Ordering::SeqCst)), Arc::clone(mark));
                let reserve = move |revision: Revision| {
                    keep.store(revision.0, Ordering::SeqCst);
                    Ok(revision)
                };
                Revisions::new(high_water, 5, || CLOCK.load(Ordering::SeqCst), Box::new(reserve))
            };
            let (mut revisions, mut last) = (start(&mark), Revision(0));
            for (now, events, starts_again) in steps {
                CLOCK.store(now, Ordering::SeqCst);
                if starts_again {
                    revisions = start(&mark);
                }
                for _ in 0..events {
                    let next = revisions.next();
                    prop_assert!(next > last && next.0 < REVISION_MAX && next.0 % REPLICAS == 5);
                    prop_assert!(next.0 <= mark.load(Ordering::SeqCst), "beyond what was reserved");
                    last = next;
                }
            }
        }
    }

    #[test]
    fn revisions_rise_even_when_the_clock_stands_or_falls() {
        let revisions = Revisions::new(Revision(0), 3, || EPOCH_MICROS + 10, Box::new(Ok));
        let first = revisions.next();
        let second = revisions.next();
        assert!(second > first && second.0 % 8 == 3 && second == revisions.last());
    }

    #[test]
    fn a_later_process_begins_above_all_that_an_earlier_one_gave() {
        let mark = Arc::new(AtomicU64::new(0));
        let keep = Arc::clone(&mark);
        let reserve = move |revision: Revision| {
            keep.store(revision.0, Ordering::SeqCst);
            Ok(revision)
        };
        let earlier = Revisions::new(Revision(0), 0, unix_micros, Box::new(reserve));
        let given = (0..1000).map(|_| earlier.next()).max().unwrap();
        let later = Revisions::new(Revision(mark.load(Ordering::SeqCst)), 0, || 0, Box::new(Ok));
        assert!(later.next() > given);
    }

    /// Another process may begin above the mark meanwhile, by a clock that is behind this one.
    #[test]
    fn while_the_mark_is_not_kept_revisions_rise_within_it() {
        static NOW: AtomicU64 = AtomicU64::new(EPOCH_MICROS + 3_600_000_000);
        let clock = || NOW.load(Ordering::SeqCst);
        let first = Revisions::first_mark(Revision(7), clock);
        let mark = Arc::new(AtomicU64::new(first.0));
        let kept = Arc::clone(&mark);
        let revisions =
            Revisions::new(Revision(7), 0, clock, Box::new(move |_| Ok(Revision(kept.load(Ordering::SeqCst)))));
        let mut last = revisions.last();
        assert!(last.0 >= 3_600_000_000 * REPLICAS && last < first);
        NOW.fetch_add(600_000_000, Ordering::SeqCst);
        for _ in 0..1000 {
            let next = revisions.next();
            assert!(next > last && next <= first);
            last = next;
        }
        mark.store(clock() * REPLICAS, Ordering::SeqCst);
        revisions.renew();
        assert!(revisions.next().0 >= 4_200_000_000 * REPLICAS, "it follows the clock again");
    }

    #[test]
    fn revisions_stay_below_2_to_the_53_until_2060() {
        let in_2060: u64 = 2_840_140_800_000_000;
        assert!((in_2060 - EPOCH_MICROS) * REPLICAS < 1 << 53);
    }
}
