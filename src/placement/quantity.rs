//! Quantities as Kubernetes writes them: `100m`, `1.5Gi`, `1e3`.
//!
//! Source: kubernetes/apimachinery `pkg/api/resource/quantity.go` `ParseQuantity`.

use std::{cmp::Ordering, fmt};

use serde::{Deserialize, Deserializer};

/// Billionths in one.
const NANOS: i128 = 1_000_000_000;
/// What a binary quantity is capped at.
const BINARY_MAX: i128 = (i64::MAX as i128) * NANOS;
/// Digits after the point that are read one by one; what follows only rounds up.
const MANTISSA_MAX: i128 = 100_000_000_000_000_000_000;

/// Units of the canonical form, largest first.
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
/// As [`DECIMAL`].
const BINARY: [(&str, i128); 6] = [
    ("Ei", (1 << 60) * NANOS),
    ("Pi", (1 << 50) * NANOS),
    ("Ti", (1 << 40) * NANOS),
    ("Gi", (1 << 30) * NANOS),
    ("Mi", (1 << 20) * NANOS),
    ("Ki", (1 << 10) * NANOS),
];

/// An amount, exact to a billionth: what is smaller counts as one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    /// It was written with a power of two.
    binary: bool,
}

impl Quantity {
    /// Reads one; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let digits_end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (whole, rest) = unsigned.split_at(digits_end(unsigned));
        let (part, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits_end(rest)),
            None => ("", rest),
        };
        let (twos, tens) = suffix_of(suffix)?;
        let mut mantissa = whole.bytes().fold(0_i128, digit);
        let mut scale = i64::from(tens) + 9;
        let mut more = false;
        for byte in part.trim_end_matches('0').bytes() {
            if mantissa < MANTISSA_MAX {
                mantissa = digit(mantissa, byte);
                scale -= 1;
            } else {
                more = true;
            }
        }
        let mut nanos = mantissa.saturating_mul(1 << twos);
        if scale >= 0 {
            let power = u32::try_from(scale).ok().and_then(|scale| 10_i128.checked_pow(scale)).unwrap_or(i128::MAX);
            nanos = nanos.saturating_mul(power);
        } else {
            let power = u32::try_from(-scale).ok().and_then(|scale| 10_i128.checked_pow(scale)).unwrap_or(i128::MAX);
            more |= nanos % power != 0;
            nanos /= power;
        }
        nanos = nanos.saturating_add(i128::from(more));
        if twos > 0 {
            nanos = nanos.min(BINARY_MAX);
        }
        Some(Self { nanos: if negative { -nanos } else { nanos }, binary: twos > 0 })
    }

    /// In wholes, rounded up; nothing below 0.
    pub fn ceil(self) -> u64 {
        self.rounded(NANOS)
    }

    /// In thousandths, rounded up; nothing below 0.
    pub fn milli(self) -> u64 {
        self.rounded(NANOS / 1000)
    }

    /// The sum, written as the first is.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos), binary: self.binary }
    }

    fn rounded(self, unit: i128) -> u64 {
        let nanos = self.nanos.max(0);
        u64::try_from(nanos / unit + i128::from(nanos % unit != 0)).unwrap_or(u64::MAX)
    }
}

fn digit(number: i128, byte: u8) -> i128 {
    number.saturating_mul(10).saturating_add(i128::from(byte - b'0'))
}

/// The powers of two and of ten that a suffix means.
fn suffix_of(suffix: &str) -> Option<(u32, i32)> {
    let known = match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => return suffix.strip_prefix(['e', 'E'])?.parse().ok().map(|tens| (0, tens)),
    };
    Some(known)
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

/// A string or a bare number, as the API takes both. One that is malformed is nothing: its member refuses it.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => text,
            serde_json::Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        Ok(Self::parse(&text).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's table: input, digits and power of ten.
    ///
    /// Source: kubernetes/apimachinery `pkg/api/resource/quantity_test.go` `TestQuantityParse`.
    const PARSED: &[(&str, i128, i32)] = &[
        ("0", 0, 0),
        ("0n", 0, 0),
        ("0Ki", 0, 0),
        ("0T", 0, 0),
        ("1", 1, 0),
        ("1Ki", 1024, 0),
        ("8Ki", 8 * 1024, 0),
        ("7Mi", 7 << 20, 0),
        ("6Gi", 6 << 30, 0),
        ("5Ti", 5 << 40, 0),
        ("4Pi", 4 << 50, 0),
        ("3Ei", 3 << 60, 0),
        ("100Ti", 100 << 40, 0),
        ("5n", 5, -9),
        ("4u", 4, -6),
        ("3m", 3, -3),
        ("9", 9, 0),
        ("8k", 8, 3),
        ("7M", 7, 6),
        ("6G", 6, 9),
        ("40T", 4, 13),
        ("2P", 2, 15),
        ("1E", 1, 18),
        ("1E-3", 1, -3),
        ("1e3", 1, 3),
        ("1E6", 1, 6),
        ("1E18", 1, 18),
        ("100.035k", 100_035, 0),
        ("0.001", 1, -3),
        ("0.0005k", 5, -1),
        ("0.00050k", 5, -1),
        ("0.50000", 5, -1),
        ("0.5e-2", 5, -3),
        ("10.035M", 10_035, 3),
        ("1.3E+6", 13, 5),
        ("1.53E12", 153, 10),
        ("9.01", 901, -2),
        ("6.987654321G", 6_987_654_321, 0),
        ("1.01E", 101, 16),
        ("3.001n", 4, -9),
        ("1.1E-9", 2, -9),
        ("0.0000000001", 1, -9),
        ("0.00000000050", 1, -9),
        ("0.9n", 1, -9),
        ("0.00000012345", 124, -9),
        ("0.00000012354", 124, -9),
        ("9Ei", 9_223_372_036_854_775_807, 0),
        ("9223372036854775807Ki", 9_223_372_036_854_775_807, 0),
        ("12E", 12, 18),
        ("100.035Ki", 10_243_584, -2),
        ("0.5Mi", 1 << 19, 0),
        ("0.05Gi", 536_870_912, -1),
        ("0.025Ti", 274_877_906_944, -1),
        ("0.000000000001Ki", 2, -9),
        (".001", 1, -3),
        (".0001k", 100, -3),
        ("1.", 1, 0),
        ("1.G", 1, 9),
        // What its scanner lets through besides, as a kube-apiserver v1.36 says.
        (".", 0, 0),
        ("m", 0, 0),
        ("000.5", 5, -1),
        ("1e-100", 1, -9),
        ("0e100", 0, 0),
        ("e3", 0, 0),
        (".m", 0, 0),
    ];

    #[test]
    fn reads_what_kubernetes_reads() {
        let read = |text: &str| Quantity::parse(text).map(|quantity| quantity.nanos);
        for (text, digits, tens) in PARSED {
            let nanos = digits * 10_i128.pow(u32::try_from(tens + 9).unwrap());
            assert_eq!(read(text), Some(nanos), "{text}");
            assert_eq!(read(&format!("-{text}")), Some(-nanos), "-{text}");
            assert_eq!(read(&format!("+{text}")), Some(nanos), "+{text}");
        }
    }

    #[test]
    fn refuses_what_kubernetes_refuses() {
        // Source: `TestQuantityParse`, its table of invalid ones.
        for text in [
            "", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-", " 1", "1 ", "- 1",
            "+ 1", "1-", "--1", "1 Mi", "1Kib", "1e", "1k3", "1ee3", "1e+", "1E3i",
        ] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }

    #[test]
    fn wholes_and_thousandths_are_rounded_up() {
        let read = |text| Quantity::parse(text).unwrap();
        assert_eq!(
            (read("100m").milli(), read("0.1").milli(), read("1").milli(), read("1n").milli()),
            (100, 100, 1000, 1)
        );
        assert_eq!((read("1.5Ki").ceil(), read("1500m").ceil(), read("-1").ceil()), (1536, 2, 0));
        assert_eq!(read("1e100").ceil(), u64::MAX);
        assert_eq!(read(&format!("0.{}", "1".repeat(200))).milli(), 112);
        let json: Vec<Quantity> = serde_json::from_str(r#"[1, "2", 0.5, null, "x"]"#).unwrap();
        assert_eq!(json.iter().map(|one| one.milli()).collect::<Vec<_>>(), [1000, 2000, 500, 0, 0]);
    }

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
        let sum = |a: &str, b: &str| Quantity::parse(a).unwrap().plus(Quantity::parse(b).unwrap()).to_string();
        assert_eq!(sum("500m", "1"), "1500m");
        assert_eq!(sum("128Mi", "896Mi"), "1Gi");
        assert!(Quantity::parse("1Gi").unwrap() > Quantity::parse("1G").unwrap());
    }
}
