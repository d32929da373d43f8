//! Sentences that several checks say.

pub(in crate::kinds) const PORT: &str = "must be between 1 and 65535, inclusive";
pub(in crate::kinds) const NEGATIVE: &str = "must be greater than or equal to 0";
pub(in crate::kinds) const IMMUTABLE: &str = "field is immutable";
