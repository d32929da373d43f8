//! What a registry has from the world: the time, and chance. Under a seed both are the same in every run.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use uuid::Uuid;

/// What tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The present.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The time and chance.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    /// `None`: the system's own.
    random: Option<Arc<Mutex<u64>>>,
}

impl Default for Env {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), random: None }
    }
}

/// The letters of generated names: none that make words, none that look alike.
///
/// Source: kubernetes/apimachinery `pkg/util/rand/rand.go`.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Env {
    /// The time of this clock, and chance that is the same in every run.
    pub fn seeded(seed: u64, clock: Arc<dyn Clock>) -> Self {
        Self { clock, random: Some(Arc::new(Mutex::new(seed))) }
    }

    /// The present.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The present as objects have it: `2025-01-01T00:00:00Z`.
    pub fn now_text(&self) -> String {
        time_text(self.now())
    }

    /// A new UID.
    pub fn uid(&self) -> String {
        let (high, low) = (self.random(), self.random());
        uuid::Builder::from_u128(u128::from(high) << 64 | u128::from(low))
            .with_variant(uuid::Variant::RFC4122)
            .with_version(uuid::Version::Random)
            .into_uuid()
            .to_string()
    }

    /// Five letters, as they end a generated name.
    pub fn suffix(&self) -> String {
        let mut random = self.random();
        let count = ALPHABET.len() as u64;
        let mut letter = || {
            let index = usize::try_from(random % count).unwrap_or_default();
            random /= count;
            ALPHABET.get(index).map_or('x', |letter| char::from(*letter))
        };
        (0..5).map(|_| letter()).collect()
    }

    /// 64 bits of chance. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (SplitMix64).
    pub fn random(&self) -> u64 {
        let Some(state) = &self.random else { return Uuid::new_v4().as_u64_pair().1 ^ Uuid::new_v4().as_u64_pair().0 };
        let mut state = state.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// A time as objects have it: whole seconds, in UTC.
pub fn time_text(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_all_alike() {
        let of = |seed| {
            let env = Env::seeded(seed, Arc::new(SystemClock));
            (env.uid(), env.suffix(), env.uid())
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        let (one, suffix, other) = of(7);
        assert!(one != other && suffix.len() == 5 && Uuid::parse_str(&one).unwrap().get_version_num() == 4);
        assert_ne!(Env::default().uid(), Env::default().uid());
    }

    #[test]
    fn times_are_whole_seconds() {
        assert_eq!(time_text("2025-01-02T03:04:05.678Z".parse().unwrap()), "2025-01-02T03:04:05Z");
    }
}
