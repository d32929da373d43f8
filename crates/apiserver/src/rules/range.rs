//! From the least to the most that something costs, or that it is long. What is too much to be counted is the most of all.
//!
//! Source: google/cel-go `checker/cost.go` `SizeEstimate`, `CostEstimate`.

/// Both ends are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    pub(super) const NOTHING: Self = Self { min: 0, max: 0 };
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) fn exactly(count: u64) -> Self {
        Self { min: count, max: count }
    }

    pub(super) fn up_to(max: u64) -> Self {
        Self { min: 0, max }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Rounded up.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as in Go, and what is too much is the most of all"
    )]
    pub(super) fn scaled(self, factor: f64) -> Self {
        let scaled = |count: u64| (count as f64 * factor).ceil() as u64;
        Self { min: scaled(self.min), max: scaled(self.max) }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}
