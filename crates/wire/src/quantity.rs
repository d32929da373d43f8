//! Quantities as Kubernetes writes them: `100m`, `1.5Gi`, `1e3`.
//!
//! Values are exact decimals of any size, down to a billionth: what is smaller is rounded up, away from zero. Arithmetic is
//! on decimal digits, so that a text of any length costs time in proportion to its length.
//!
//! Source: kubernetes/apimachinery `pkg/api/resource/quantity.go`, `suffix.go`, `amount.go`. `quantity/vectors.txt` is what
//! that package itself makes of some thousand texts (see `tests/testbed/quantities`).

use std::{cmp::Ordering, fmt};

use smallvec::SmallVec;

/// Decimal digits of a usual quantity fit without an allocation.
type Digits = SmallVec<[u8; 24]>;

/// The exponent of the smallest unit.
const NANO: i64 = -9;
/// The exponent of a thousandth.
const MILLI: i64 = -3;
/// Digits up to which Go keeps a quantity in an int64, and with it the text that it was given.
const INT64_DIGITS: usize = 18;
/// What a binary quantity is capped at: the largest int64.
const BINARY_MAX: &[u8] = &[9, 2, 2, 3, 3, 7, 2, 0, 3, 6, 8, 5, 4, 7, 7, 5, 8, 0, 7];
/// Two quantities that lie further apart than this many digits are not added: the larger is the sum.
const ADDED_DIGITS_MAX: i64 = 10_000;

/// From 10^-9 to 10^18, by thousands.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// From 2^0 to 2^60, by 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Why a text is no quantity, in the sentences of apimachinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not have the form of a quantity.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The text has no digits where it needs some.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The text ends in an unknown unit.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The family of units that a quantity was written with, and is printed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    /// `12M`
    #[default]
    Decimal,
    /// `12e6`
    Exponent,
    /// `12Mi`
    Binary,
}

/// An exact amount, and the family of units that it is written with.
///
/// Equality and order are those of the amount alone: `1` equals `1000m`.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    negative: bool,
    /// Without zeros at either end; none of a zero.
    digits: Digits,
    /// The power of ten of the last digit; 0 of a zero.
    exponent: i64,
    format: Format,
    /// The text that it was read from, where Go keeps that instead of printing the canonical form.
    written: Option<Box<str>>,
}

impl Quantity {
    /// Reads a quantity.
    ///
    /// Source: `ParseQuantity`.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::of(text)?;
        let (format, exponent) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        let scale = match format {
            Format::Binary => 0,
            _ => exponent,
        } - length(parts.fraction.len());
        if !parts.has_digits && !parts.fits_int64(format, exponent, scale) {
            return Err(QuantityError::Numeric);
        }
        let mut digits: Digits = parts.whole.bytes().chain(parts.fraction.bytes()).map(|byte| byte - b'0').collect();
        if format == Format::Binary {
            (0..exponent / 10).for_each(|_| multiply(&mut digits, 1024));
        }
        let mut amount = Self { negative: parts.negative, format, ..Self::new(digits, scale) };
        amount.round_up(NANO);
        if format == Format::Binary && !amount.is_zero() {
            let most = Self::new(BINARY_MAX.into(), 0);
            if amount.compare_size(&most) == Ordering::Greater {
                amount = Self { negative: amount.negative, format, ..most };
            }
            if amount.top() <= 0 {
                amount.format = Format::Decimal;
            }
        }
        if parts.is_kept(format, exponent, scale) {
            amount.written = Some(text.into());
        }
        Ok(amount)
    }

    fn new(mut digits: Digits, mut exponent: i64) -> Self {
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        while digits.last() == Some(&0) {
            digits.pop();
            exponent += 1;
        }
        if digits.is_empty() {
            exponent = 0;
        }
        Self { digits, exponent, ..Self::default() }
    }

    /// Says whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Says whether the amount is above zero.
    pub fn is_positive(&self) -> bool {
        !self.is_zero() && !self.negative
    }

    /// Says whether the amount is below zero.
    pub fn is_negative(&self) -> bool {
        !self.is_zero() && self.negative
    }

    /// Says whether the amount has no fraction.
    pub fn is_whole(&self) -> bool {
        self.exponent >= 0
    }

    /// The amount rounded away from zero to a whole number, at most what an i64 holds.
    ///
    /// Source: `Quantity.Value`, which answers anything where that does not fit.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// The amount in thousandths, rounded away from zero, at most what an i64 holds.
    ///
    /// Source: `Quantity.MilliValue`.
    pub fn milli_value(&self) -> i64 {
        self.scaled(MILLI)
    }

    /// The same amount, no finer than a thousandth: the rest is rounded away from zero.
    ///
    /// Source: `Quantity.RoundUp` with `Milli`, as the defaults of `v1.ResourceList` call it.
    #[must_use]
    pub fn rounded_to_milli(mut self) -> Self {
        // Go keeps the text unless what was written is finer than a thousandth.
        let finer = self.written.as_deref().is_some_and(|text| {
            Parts::of(text).is_ok_and(|parts| {
                let exponent = suffix(parts.suffix).map_or(0, |(format, exponent)| match format {
                    Format::Binary => 0,
                    _ => exponent,
                });
                exponent - length(parts.fraction.len()) < MILLI
            })
        });
        if finer {
            self.written = None;
        }
        self.round_up(MILLI);
        self
    }

    /// The sum, written as the first is, or as the second if the first is zero.
    ///
    /// Source: `Quantity.Add`.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let sum = match (self.is_zero(), other.is_zero()) {
            (true, _) => other.clone(),
            (_, true) => self.clone(),
            _ => self.added(other),
        };
        Self { format, written: None, ..sum }
    }

    /// What is left without another, written as a sum is.
    ///
    /// Source: `Quantity.Sub`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.plus(&Self { negative: !other.negative, ..other.clone() })
    }

    /// The nearest floating-point number.
    ///
    /// Source: `Quantity.AsApproximateFloat64`.
    pub fn approximate(&self) -> f64 {
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let size = format!("0{digits}e{}", self.exponent).parse().unwrap_or(f64::INFINITY);
        if self.negative { -size } else { size }
    }

    /// The sum of two that are not zero.
    fn added(&self, other: &Self) -> Self {
        let (large, small) = if self.compare_size(other) == Ordering::Less { (other, self) } else { (self, other) };
        if large.top() - small.exponent > ADDED_DIGITS_MAX {
            return large.clone();
        }
        let exponent = large.exponent.min(small.exponent);
        let reversed = |amount: &Self| -> Vec<u8> {
            let zeros = std::iter::repeat_n(0, usize::try_from(amount.exponent - exponent).unwrap_or(0));
            zeros.chain(amount.digits.iter().rev().copied()).collect()
        };
        let (mut sum, small_digits) = (reversed(large), reversed(small));
        sum.push(0);
        let mut carry = 0;
        for (at, digit) in sum.iter_mut().enumerate() {
            let addend = small_digits.get(at).copied().unwrap_or(0);
            if large.negative == small.negative {
                let column = *digit + addend + carry;
                (*digit, carry) = (column % 10, column / 10);
            } else {
                let column = 10 + *digit - addend - carry;
                (*digit, carry) = (column % 10, u8::from(column < 10));
            }
        }
        Self { negative: large.negative, ..Self::new(sum.into_iter().rev().collect(), exponent) }
    }

    /// Drops digits below a power of ten; if there were any, the last that stays grows by one.
    fn round_up(&mut self, exponent: i64) {
        if self.exponent >= exponent || self.is_zero() {
            return;
        }
        let kept = usize::try_from(self.top() - exponent).unwrap_or(0);
        let mut digits: Digits = std::iter::once(0).chain(self.digits.iter().take(kept).copied()).collect();
        for digit in digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                break;
            }
            *digit = 0;
        }
        let rounded = Self::new(digits, exponent);
        (self.digits, self.exponent) = (rounded.digits, rounded.exponent);
    }

    /// The power of ten above the first digit: 0 of 0.5, 1 of 5.
    fn top(&self) -> i64 {
        length(self.digits.len()).saturating_add(self.exponent)
    }

    fn scaled(&self, exponent: i64) -> i64 {
        let mut rounded = Self { written: None, ..self.clone() };
        rounded.round_up(exponent);
        let zeros = rounded.exponent - exponent;
        let limit = if self.negative { i64::MIN } else { i64::MAX };
        if rounded.is_zero() {
            return 0;
        }
        if rounded.top() - exponent > 19 {
            return limit;
        }
        let digits = rounded.digits.iter().copied().chain((0..zeros).map(|_| 0));
        let number = digits.fold(0_i128, |number, digit| number * 10 + i128::from(digit));
        i64::try_from(if self.negative { -number } else { number }).unwrap_or(limit)
    }

    fn compare_size(&self, other: &Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => self.top().cmp(&other.top()).then_with(|| self.digits.cmp(&other.digits)),
        }
    }

    /// Prints a whole number by its factors of 1024.
    fn print_binary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zeros = (0..self.exponent).map(|_| 0);
        let mut digits: Digits = self.digits.iter().copied().chain(zeros).collect();
        let mut power = 0;
        while let Some(quotient) = divided(&digits, 1024) {
            digits = quotient;
            power += 1;
        }
        print_digits(f, &digits, 0)?;
        // As in Go, what is larger than the largest unit is printed without one.
        f.write_str(BINARY.get(power).unwrap_or(&""))
    }
}

impl fmt::Display for Quantity {
    /// Prints the canonical form.
    ///
    /// Source: `CanonicalizeBytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(written) = &self.written {
            return f.write_str(written);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.negative {
            f.write_str("-")?;
        }
        let small = || self.compare_size(&Self::new(Digits::from_slice(&[1, 0, 2, 4]), 0)) == Ordering::Less;
        if self.format == Format::Binary && self.is_whole() && !small() {
            return self.print_binary(f);
        }
        let over = self.exponent.rem_euclid(3);
        print_digits(f, &self.digits, over)?;
        let exponent = self.exponent - over;
        match (self.format, exponent) {
            (_, 0) => Ok(()),
            (Format::Exponent, exponent) => write!(f, "e{exponent}"),
            // As in Go, what is larger than the largest unit is printed without one.
            (_, exponent) => {
                let at = usize::try_from((exponent - NANO) / 3).ok();
                f.write_str(at.and_then(|at| DECIMAL.get(at)).unwrap_or(&""))
            }
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative(), other.is_negative()) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
        }
    }
}

/// A text, cut as apimachinery's scanner does.
struct Parts<'a> {
    negative: bool,
    /// Without zeros before it; `0` if nothing is left.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    /// The text had a digit before its suffix.
    has_digits: bool,
}

impl<'a> Parts<'a> {
    /// Source: `parseQuantityString`.
    fn of(text: &'a str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let negative = text.starts_with('-');
        let end = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(end(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(end(rest)),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let digits = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        // A text of zeros alone, or of a sign alone, is read as `0`.
        let has_digits = !whole.is_empty() || !fraction.is_empty() || unsigned.is_empty();
        let whole = whole.trim_start_matches('0');
        Ok(Self { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix, has_digits })
    }

    /// Says whether Go reads it on its fast way, into an int64.
    fn fits_int64(&self, format: Format, exponent: i64, scale: i64) -> bool {
        let digits = self.whole.len() + self.fraction.len();
        let precise = match format {
            // Ten binary digits are three decimal ones.
            Format::Binary => self.fraction.is_empty() && length(self.whole.len()) + exponent * 3 / 10 < 15,
            _ => digits <= INT64_DIGITS,
        };
        precise && scale >= NANO
    }

    /// Says whether Go keeps the text, since it has the look of a canonical form.
    fn is_kept(&self, format: Format, exponent: i64, scale: i64) -> bool {
        if !self.fits_int64(format, exponent, scale) {
            return false;
        }
        if format == Format::Binary {
            return self.whole.parse::<u64>().is_ok_and(|value| value & 7 != 0);
        }
        let shifted = || self.whole.bytes().chain(self.fraction.bytes());
        scale % 3 == 0 && !shifted().rev().take(3).eq(*b"000") && !self.whole.starts_with('0')
    }
}

/// The family and the power of ten, or of two, that a suffix means.
fn suffix(text: &str) -> Option<(Format, i64)> {
    if let Some(at) = DECIMAL.iter().position(|name| *name == text) {
        return Some((Format::Decimal, length(at) * 3 + NANO));
    }
    if let Some(power) = BINARY.iter().position(|name| *name == text) {
        return Some((Format::Binary, length(power) * 10));
    }
    let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
    #[allow(clippy::cast_possible_truncation, reason = "Go cuts it to an int32, too")]
    let exponent = exponent as i32;
    Some((Format::Exponent, i64::from(exponent)))
}

fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn print_digits(f: &mut fmt::Formatter<'_>, digits: &[u8], zeros: i64) -> fmt::Result {
    digits.iter().try_for_each(|digit| write!(f, "{digit}"))?;
    (0..zeros).try_for_each(|_| f.write_str("0"))
}

fn multiply(digits: &mut Digits, factor: u32) {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let column = u32::from(*digit) * factor + carry;
        *digit = u8::try_from(column % 10).unwrap_or(0);
        carry = column / 10;
    }
    let mut first = Digits::new();
    while carry > 0 {
        first.push(u8::try_from(carry % 10).unwrap_or(0));
        carry /= 10;
    }
    first.reverse();
    digits.insert_from_slice(0, &first);
}

/// The quotient without zeros before it; `None` if there is a remainder.
fn divided(digits: &Digits, divisor: u32) -> Option<Digits> {
    let mut remainder = 0;
    let mut quotient = Digits::new();
    for digit in digits {
        let column = remainder * 10 + u32::from(*digit);
        remainder = column % divisor;
        let digit = u8::try_from(column / divisor).unwrap_or(0);
        if digit > 0 || !quotient.is_empty() {
            quotient.push(digit);
        }
    }
    (remainder == 0).then_some(quotient)
}

#[cfg(test)]
mod tests;
