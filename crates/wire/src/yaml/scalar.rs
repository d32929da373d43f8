//! What a plain word would be read as, and how numbers and odd characters are written: `resolve.go`, `encode.go`.

use serde_json::Number;

/// Words that are no text, in YAML 1.1 and in Go's reading of it.
const WORDS: &[&str] = &[
    "", "~", "null", "Null", "NULL", "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", "n", "N",
    "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF", ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF",
    "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF",
];

/// Says whether a plain word would be read as text again.
pub(super) fn is_text(text: &str) -> bool {
    let Some(first) = text.bytes().next() else { return false };
    if matches!(first, b'.') {
        return !WORDS.contains(&text) && !is_go_float(text);
    }
    if first.is_ascii_digit() || matches!(first, b'+' | b'-') {
        let plain = text.replace('_', "");
        let number = is_integer(&plain) || is_go_float(&plain) || is_base_60(text);
        return !(number || is_timestamp(text) || WORDS.contains(&text));
    }
    !WORDS.contains(&text)
}

/// `strconv.ParseInt` and `ParseUint` with base 0, for 64 bits, and YAML's binary numbers.
fn is_integer(text: &str) -> bool {
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (digits, base) = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (digits.get(2..), 16),
        Some("0b") => (digits.get(2..), 2),
        Some("0o") => (digits.get(2..), 8),
        Some(two) if two.starts_with('0') => (digits.get(1..), 8),
        _ => (Some(digits), 10),
    };
    let Some(digits) = digits.filter(|digits| digits.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())) else {
        return false;
    };
    match u64::from_str_radix(digits, base) {
        Ok(number) if negative => number <= 1 << 63,
        Ok(number) if text.starts_with('+') => i64::try_from(number).is_ok(),
        outcome => outcome.is_ok(),
    }
}

/// `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`
fn is_yaml_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (text, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let sound = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    sound && exponent.is_none_or(digits)
}

/// `strconv.ParseFloat`, of what begins with a dot or has the form of a YAML float.
fn is_go_float(text: &str) -> bool {
    is_yaml_float(text) && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// `^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?$`
fn is_base_60(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let loose = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.split(':');
    let leads = parts.next().is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()) && loose(part));
    let sixties: Vec<&str> = parts.collect();
    let sixty = |part: &&str| match part.as_bytes() {
        [one] => one.is_ascii_digit(),
        [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
        _ => false,
    };
    leads && loose(fraction) && !sixties.is_empty() && sixties.iter().all(sixty)
}

/// Dates, and dates with a time: `2006-1-2`, `2006-1-2T15:4:5.9Z07:00`, `2006-1-2 15:4:5.9`.
fn is_timestamp(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (text.get(..at).unwrap_or_default(), text.get(at..)),
        None => (text, None),
    };
    let number = |text: &str, max: u32| {
        let sound = matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_digit());
        sound.then(|| text.parse::<u32>().ok()).flatten().is_some_and(|number| number <= max)
    };
    let mut parts = date.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let parsed = (year.parse::<i16>(), month.parse::<i8>(), day.parse::<i8>());
    let (Ok(year_number), Ok(month_number), Ok(day_number)) = parsed else { return false };
    let date_is_one = year.len() == 4
        && number(month, 12)
        && number(day, 31)
        && jiff::civil::Date::new(year_number, month_number, day_number).is_ok();
    let Some(time) = time else { return date_is_one };
    let rest = time.get(1..).unwrap_or_default();
    let clock = if time.starts_with(' ') {
        rest
    } else if let Some(clock) = rest.strip_suffix('Z') {
        clock
    } else {
        let Some((clock, zone)) = rest.len().checked_sub(6).and_then(|at| rest.split_at_checked(at)) else {
            return false;
        };
        let zone = zone.strip_prefix(['+', '-']).and_then(|zone| zone.split_once(':'));
        if !zone.is_some_and(|(hours, minutes)| number(hours, 24) && number(minutes, 60)) {
            return false;
        }
        clock
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.split(':');
    let (Some(hour), Some(minute), Some(second), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    date_is_one
        && number(hour, 23)
        && number(minute, 59)
        && number(second, 59)
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number: integers as they are, others as Go's `FormatFloat(.., 'g', -1, 64)`.
pub(super) fn number(number: &Number) -> String {
    if let Some(whole) = number.as_i64() {
        return whole.to_string();
    }
    if let Some(whole) = number.as_u64() {
        return whole.to_string();
    }
    let shortest = format!("{:e}", number.as_f64().unwrap_or_default());
    let Some((mantissa, exponent)) = shortest.split_once('e') else { return shortest };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return number.as_f64().unwrap_or_default().to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// A character as it is escaped between double quotes.
pub(super) fn escape(c: char) -> String {
    let short = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            return match u32::from(c) {
                code @ 0..=0xff => format!("\\x{code:02X}"),
                code @ 0x100..=0xffff => format!("\\u{code:04X}"),
                code => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{short}")
}
