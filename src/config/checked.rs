//! A value of the configuration that was checked, or the fault that refuses it.

use serde_saphyr::Spanned;

use crate::config::{Problem, Weight};

const WEIGHT_MAX: u32 = 1_000_000;

/// A problem and the line that it is on; the caller adds file and member.
pub(super) struct Fault {
    pub(super) line: u64,
    pub(super) problem: Box<Problem>,
}

/// A value, or the fault that refuses it.
pub(super) type Checked<T> = Result<T, Fault>;

/// Refuses the value at `at`.
pub(super) fn fault<T, V>(at: &Spanned<V>, problem: Problem) -> Checked<T> {
    Err(Fault { line: at.referenced.line(), problem: Box::new(problem) })
}

/// A weight; 1 where none is given.
pub(super) fn weight(raw: Option<&Spanned<i64>>) -> Checked<Weight> {
    let Some(at) = raw else { return Ok(Weight(1)) };
    match u32::try_from(at.value) {
        Ok(weight) if weight <= WEIGHT_MAX => Ok(Weight(weight)),
        Ok(_) | Err(_) => fault(at, Problem::Weight { weight: at.value, max: WEIGHT_MAX }),
    }
}
