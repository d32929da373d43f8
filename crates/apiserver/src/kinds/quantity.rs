//! Amounts such as `100m` or `1Gi`, and the one way of writing each.
//!
//! Source: kubernetes/apimachinery `pkg/api/resource/quantity.go`, `suffix.go`.

use std::fmt;

/// An amount, in billionths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

const NANOS: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// From 10^-9 to 10^18.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl Quantity {
    /// Reads one; `None` if it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at_checked(end)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (factor, format) = factor(suffix)?;
        let digits = format!("{whole}{fraction}");
        let digits: i128 = digits
            .trim_start_matches('0')
            .parse()
            .or_else(|error| if digits.trim_start_matches('0').is_empty() { Ok(0) } else { Err(error) })
            .ok()?;
        let divisor = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let scaled = match factor {
            Factor::Times(factor) => digits.saturating_mul(factor).saturating_mul(NANOS),
            Factor::Nanos(nanos) => digits.saturating_mul(nanos),
        };
        // What is finer is rounded away from zero.
        let nanos = scaled / divisor + i128::from(scaled % divisor != 0);
        let nanos = nanos.min(i128::from(i64::MAX).saturating_mul(NANOS));
        Some(Self { nanos: if text.starts_with('-') { -nanos } else { nanos }, format })
    }

    /// No finer than a thousandth.
    pub(super) fn rounded_to_milli(self) -> Self {
        let rest = self.nanos % MILLI;
        let cut = self.nanos - rest;
        Self { nanos: cut + rest.signum() * MILLI * i128::from(rest != 0), ..self }
    }

    /// For comparisons.
    pub(super) fn nanos(self) -> i128 {
        self.nanos
    }

    /// Says whether it has no fraction.
    pub(super) fn is_whole(self) -> bool {
        self.nanos % NANOS == 0
    }
}

enum Factor {
    Times(i128),
    Nanos(i128),
}

fn factor(suffix: &str) -> Option<(Factor, Format)> {
    if let Some(at) = BINARY.iter().position(|known| *known == suffix).filter(|at| *at > 0) {
        return Some((Factor::Times(1 << (10 * at)), Format::Binary));
    }
    if let Some(at) = DECIMAL.iter().position(|known| *known == suffix) {
        return Some((Factor::Nanos(10_i128.pow(u32::try_from(3 * at).ok()?)), Format::Decimal));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let nanos = exponent.checked_add(9).filter(|power| (0..=36).contains(power))?;
    Some((Factor::Nanos(10_i128.pow(u32::try_from(nanos).ok()?)), Format::Exponent))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.format == Format::Binary && self.is_whole() && (self.nanos / NANOS).abs() >= 1024 {
            let mut number = self.nanos / NANOS;
            let mut suffixes = BINARY.iter();
            let mut suffix = suffixes.next();
            while number % 1024 == 0 && suffixes.len() > 0 {
                number /= 1024;
                suffix = suffixes.next();
            }
            return write!(f, "{number}{}", suffix.unwrap_or(&""));
        }
        let (mut number, mut at) = (self.nanos, 0_usize);
        while number % 1000 == 0 && at + 1 < DECIMAL.len() {
            number /= 1000;
            at += 1;
        }
        match (self.format, at) {
            (Format::Exponent, 3) => write!(f, "{number}"),
            (Format::Exponent, _) => write!(f, "{number}e{}", 3 * i64::try_from(at).unwrap_or(0) - 9),
            _ => write!(f, "{number}{}", DECIMAL.get(at).unwrap_or(&"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_amount_is_written_in_one_way() {
        for (given, written) in [
            ("1000m", "1"),
            ("1.5", "1500m"),
            ("0.5Gi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1500Mi", "1500Mi"),
            ("1000", "1k"),
            ("100", "100"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("512Ki", "512Ki"),
            ("0", "0"),
            ("-1", "-1"),
            ("1.5Gi", "1536Mi"),
            ("0.1Ki", "102400m"),
            ("100000n", "100u"),
            ("00.10", "100m"),
            ("+3", "3"),
            ("512", "512"),
            ("1Ki", "1Ki"),
            ("500Ki", "500Ki"),
            (".5", "500m"),
            ("5.", "5"),
            ("1e0", "1"),
        ] {
            assert_eq!(Quantity::parse(given).unwrap().to_string(), written, "{given}");
        }
        for wrong in ["", "a", "1x", "1 Gi", "1.2.3", ".", "-", "1mm", "Gi"] {
            assert!(Quantity::parse(wrong).is_none(), "{wrong}");
        }
        assert_eq!(Quantity::parse("1u").unwrap().rounded_to_milli().to_string(), "1m");
    }
}
