//! Names and choices that follow from what they are for, and a seed: the same at every run.

use serde_json::Value;

/// Letters of generated names: none that make words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A hash of bytes (FNV-1a).
pub(super) fn hash(bytes: &[u8]) -> u64 {
    mixed(0xcbf2_9ce4_8422_2325, bytes)
}

/// A hash of bytes that goes on from another.
pub(super) fn mixed(mut state: u64, bytes: &[u8]) -> u64 {
    for byte in bytes {
        state ^= u64::from(*byte);
        state = state.wrapping_mul(0x0100_0000_01b3);
    }
    state
}

/// The hash of a pod template, as it stands in labels and names.
///
/// Kubernetes hashes a dump of its Go structs; nobody can tell one hash from another.
pub(super) fn template_hash(template: &Value, collisions: Option<i64>) -> String {
    let mut state = fold(0xcbf2_9ce4_8422_2325, template);
    if let Some(collisions) = collisions {
        state = mixed(state, &collisions.to_be_bytes());
    }
    letters_of_number(u32::try_from((state >> 32) ^ (state & 0xffff_ffff)).unwrap_or_default())
}

/// Kubernetes' `rand.SafeEncodeString` of a number's decimal digits.
fn letters_of_number(number: u32) -> String {
    number.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

/// The order of an object's fields does not count.
fn fold(state: u64, value: &Value) -> u64 {
    match value {
        Value::Object(fields) => {
            let sum = fields.iter().map(|(name, value)| fold(mixed(17, name.as_bytes()), value));
            mixed(state, &sum.fold(fields.len() as u64, u64::wrapping_add).to_be_bytes())
        }
        Value::Array(items) => items.iter().fold(mixed(state, b"["), fold),
        other => mixed(state, other.to_string().as_bytes()),
    }
}

/// A source of choices: SplitMix64.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Dice that fall alike for the same seed and purpose.
    pub(super) fn new(seed: u64, purpose: &str) -> Self {
        Self(mixed(seed ^ 0x9e37_79b9_7f4a_7c15, purpose.as_bytes()))
    }

    /// Any number.
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mix = self.0;
        mix = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mix = (mix ^ (mix >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mix ^ (mix >> 31)
    }

    /// A number below another; 0 below 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.number().checked_rem(bound).unwrap_or(0)
    }

    /// A number of a range, its end excluded.
    pub(super) fn between(&mut self, first: i64, end: i64) -> i64 {
        let span = u64::try_from(end - first).unwrap_or(0);
        first + i64::try_from(self.below(span)).unwrap_or(0)
    }

    /// One of several.
    pub(super) fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let place = self.below(of.len() as u64);
        of.get(usize::try_from(place).unwrap_or(0))
    }

    /// Letters as generated names end with.
    pub(super) fn letters(&mut self, count: usize) -> String {
        (0..count).filter_map(|_| self.one(LETTERS)).map(|letter| char::from(*letter)).collect()
    }

    /// A version 4 UUID.
    pub(super) fn uid(&mut self) -> String {
        let bits = (u128::from(self.number()) << 64) | u128::from(self.number());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
    }
}
