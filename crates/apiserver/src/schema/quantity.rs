//! Quantities in the one form in which a kube-apiserver stores them.
//!
//! Source: kubernetes/apimachinery `pkg/api/resource/quantity.go`, `suffix.go`.

const WRONG: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Nothing is smaller than a billionth.
const NANO: i32 = -9;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Exponent,
    Binary,
}

/// A quantity in its canonical form: `1` of `1000m`, `1Gi` of `1024Mi`.
///
/// Errors: what Go says of it.
pub fn canonical_quantity(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err(WRONG.to_owned());
    }
    let parts = split(text).ok_or(WRONG)?;
    let (format, exponent) = suffix(parts.suffix).ok_or(SUFFIX)?;
    let whole = parts.whole.trim_start_matches('0');
    let digits = format!("{}{}", if whole.is_empty() { "0" } else { whole }, parts.fraction);
    // What does not fit is left as it is written: nobody asks for 10^30 of anything.
    let Ok(mantissa) = digits.parse::<i128>() else { return Ok(text.to_owned()) };
    if mantissa == 0 {
        return Ok("0".to_owned());
    }
    let scale = -i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    let kept = match format {
        Format::Binary => parts.fraction.is_empty() && mantissa & 7 != 0,
        _ => {
            (scale + exponent) % 3 == 0
                && scale + exponent >= NANO
                && !digits.ends_with("000")
                && !digits.starts_with('0')
        }
    };
    if kept && digits.len() <= 18 {
        return Ok(text.to_owned());
    }
    Ok(canonical(mantissa, scale, format, exponent)
        .map_or_else(|| text.to_owned(), |form| format!("{}{form}", if parts.negative { "-" } else { "" })))
}

fn canonical(mut mantissa: i128, mut scale: i32, format: Format, exponent: i32) -> Option<String> {
    match format {
        Format::Binary => mantissa = mantissa.checked_mul(1_i128.checked_shl(u32::try_from(exponent).ok()?)?)?,
        _ => scale += exponent,
    }
    while mantissa % 10 == 0 {
        mantissa /= 10;
        scale += 1;
    }
    while scale < NANO {
        mantissa = mantissa / 10 + i128::from(mantissa % 10 != 0);
        scale += 1;
    }
    if format == Format::Binary
        && let Some(form) = binary(mantissa, scale)
    {
        return Some(form);
    }
    while scale.rem_euclid(3) != 0 {
        mantissa = mantissa.checked_mul(10)?;
        scale -= 1;
    }
    let suffix = match (format, scale) {
        (_, 0) => String::new(),
        (Format::Exponent, scale) => format!("e{scale}"),
        (_, scale) => usize::try_from(scale / 3 + 3).ok().and_then(|at| DECIMAL.get(at))?.0.to_owned(),
    };
    Some(format!("{mantissa}{suffix}"))
}

/// `None` if it is small or no whole number: then it is printed as a decimal.
fn binary(mantissa: i128, scale: i32) -> Option<String> {
    let mut whole = mantissa.checked_mul(10_i128.checked_pow(u32::try_from(scale).ok()?)?)?;
    if whole < 1024 {
        return None;
    }
    let mut power = 0;
    while whole % 1024 == 0 && power + 1 < BINARY.len() {
        whole /= 1024;
        power += 1;
    }
    Some(format!("{whole}{}", BINARY.get(power)?))
}

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn suffix(text: &str) -> Option<(Format, i32)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == text) {
        return Some((Format::Decimal, *exponent));
    }
    if let Some(power) = BINARY.iter().position(|name| *name == text) {
        return Some((Format::Binary, i32::try_from(power).ok()? * 10));
    }
    let exponent = text.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Format::Exponent, exponent))
}

struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Option<Parts<'_>> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = unsigned.split_at(end(unsigned));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(end(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let letters = suffix.trim_start_matches(|character| "eEinumkKMGTP".contains(character));
    let digits = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(Parts {
        negative: text.starts_with('-'),
        whole,
        fraction,
        suffix,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_one_form_of_a_number() {
        let cases = [
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("100", "100"),
            ("1000", "1k"),
            ("1500m", "1500m"),
            ("1e3", "1e3"),
            ("1000Ki", "1000Ki"),
            ("0Gi", "0"),
            ("-0.1", "-100m"),
            ("512", "512"),
            ("1Ki", "1Ki"),
            ("0.1n", "1n"),
            ("2.0", "2"),
            ("1E", "1E"),
            ("12e6", "12e6"),
        ];
        for (text, wanted) in cases {
            assert_eq!(canonical_quantity(text).as_deref(), Ok(wanted), "{text}");
        }
        for text in ["x", "", "1.5.5", "e", "+", "1 "] {
            assert_eq!(canonical_quantity(text), Err(WRONG.to_owned()), "{text}");
        }
        for text in ["1Xi", "1kk"] {
            assert!(canonical_quantity(text).is_err(), "{text}");
        }
        assert_eq!(canonical_quantity("1kk"), Err(SUFFIX.to_owned()));
    }
}
