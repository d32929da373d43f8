//! Quantities as Kubernetes writes them: `500m`, `1536Mi`, `2`.
//!
//! Source: kubernetes/apimachinery `pkg/api/resource/quantity.go`, grammar and canonical form.

use std::{cmp::Ordering, fmt};

/// A quantity, exact to a billionth as Kubernetes keeps them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    nanos: i128,
    binary: bool,
}

const NANOS: i128 = 1_000_000_000;
const DECIMAL: [(&str, i128); 9] = [
    ("E", 1_000_000_000_000_000_000 * NANOS),
    ("P", 1_000_000_000_000_000 * NANOS),
    ("T", 1_000_000_000_000 * NANOS),
    ("G", 1_000_000_000 * NANOS),
    ("M", 1_000_000 * NANOS),
    ("k", 1000 * NANOS),
    ("m", 1_000_000),
    ("u", 1000),
    ("n", 1),
];
const BINARY: [(&str, i128); 6] = [
    ("Ei", (1 << 60) * NANOS),
    ("Pi", (1 << 50) * NANOS),
    ("Ti", (1 << 40) * NANOS),
    ("Gi", (1 << 30) * NANOS),
    ("Mi", (1 << 20) * NANOS),
    ("Ki", (1 << 10) * NANOS),
];

impl Quantity {
    /// Reads one. `None` for what is none, or beyond every cluster's measure.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
        let (number, suffix) = text.split_at_checked(end)?;
        let (sign, digits) = match number.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, number.strip_prefix('+').unwrap_or(number)),
        };
        let (scale, binary) = scale(suffix)?;
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && part.is_empty() || !whole.bytes().chain(part.bytes()).all(|c| c.is_ascii_digit()) {
            return None;
        }
        let mut nanos = if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()?.checked_mul(scale)? };
        let mut unit = scale;
        for digit in part.bytes() {
            // What is finer than a billionth counts as one: Kubernetes rounds up.
            let value = i128::from(digit - b'0') * unit;
            nanos = nanos.checked_add(value / 10 + i128::from(value % 10 != 0))?;
            unit /= 10;
        }
        Some(Self { nanos: sign * nanos, binary })
    }

    /// The sum, written as the first is.
    #[must_use]
    pub(super) fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos), binary: self.binary }
    }
}

fn scale(suffix: &str) -> Option<(i128, bool)> {
    if suffix.is_empty() {
        return Some((NANOS, false));
    }
    if let Some((_, scale)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((*scale, true));
    }
    if let Some((_, scale)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((*scale, false));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = u32::try_from(exponent.checked_add(9)?).ok().filter(|power| *power <= 27)?;
    Some((10_i128.pow(power), false))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Below 1Ki the binary form is the decimal one.
        if self.binary && self.nanos % NANOS == 0 && self.nanos.abs() >= 1024 * NANOS {
            let fits = BINARY.iter().find(|(_, scale)| self.nanos % scale == 0);
            let (suffix, scale) = fits.copied().unwrap_or(("", NANOS));
            return write!(f, "{}{suffix}", self.nanos / scale);
        }
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let units = DECIMAL.iter().take(6).copied().chain([("", NANOS)]).chain(DECIMAL.iter().skip(6).copied());
        let mut fits = units.filter(|(_, scale)| self.nanos % scale == 0);
        let (suffix, scale) = fits.next().unwrap_or(("n", 1));
        write!(f, "{}{suffix}", self.nanos / scale)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
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
        self.nanos.cmp(&other.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_and_written_as_kubernetes_does() {
        for (text, canonical) in [
            ("0", "0"),
            ("2", "2"),
            ("500m", "500m"),
            ("1500m", "1500m"),
            ("2000m", "2"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1e3", "1k"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("-1", "-1"),
            ("100n", "100n"),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
        }
        for text in ["", "m", "1x", "1.2.3", "--1", "1e", "1e99", "."] {
            assert!(Quantity::parse(text).is_none(), "{text}");
        }
        let sum = |a: &str, b: &str| Quantity::parse(a).unwrap().plus(Quantity::parse(b).unwrap()).to_string();
        assert_eq!(sum("500m", "1"), "1500m");
        assert_eq!(sum("128Mi", "896Mi"), "1Gi");
        assert!(Quantity::parse("1Gi").unwrap() > Quantity::parse("1G").unwrap());
    }
}
