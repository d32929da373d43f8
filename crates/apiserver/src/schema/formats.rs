//! Formats of texts that schemas may ask for.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apiserver/validation/formats.go`; kubernetes/kube-openapi
//! `pkg/validation/strfmt`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::schema::canonical_time;
use kubefold_wire::names::{is_dns_label, is_dns_subdomain};

/// What a kube-apiserver knows by name, without hyphens.
const KNOWN: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether a format says anything of values of a type; a kube-apiserver warns of others.
pub fn is_known_format(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => KNOWN.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Whether a text has a format. Formats that nobody uses for clusters (`isbn`, `creditcard`) let everything pass.
pub(crate) fn has_format(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "datetime" => is_time(text),
        "date" => is_date(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_block(text),
        "mac" => is_hardware_address(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "uri" => is_uri(text),
        "email" => is_address(text),
        "hostname" => is_host(text),
        "hexcolor" => is_color(text),
        "duration" => is_duration(text),
        "k8sshortname" => is_dns_label(text),
        "k8slongname" => is_dns_subdomain(text),
        _ => true,
    }
}

fn is_time(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    canonical_time(&upper).is_ok()
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && canonical_time(&format!("{text}T00:00:00Z")).is_ok()
}

fn is_block(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_hardware_address(text: &str) -> bool {
    let pairs = |separator: char, digits: usize| {
        let parts: Vec<_> = text.split(separator).collect();
        matches!(parts.len() * digits, 12 | 16 | 40) && parts.iter().all(|part| part.len() == digits && is_hex(part))
    };
    pairs(':', 2) || pairs('-', 2) || pairs('.', 4)
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Hyphens are at their places, or missing.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    for (index, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((part, after)) = rest.split_at_checked(digits) else { return false };
        let fits = match (index, version) {
            (2, Some(version)) => part.starts_with(version),
            (3, Some('4' | '5')) => part.starts_with(['8', '9', 'a', 'b', 'A', 'B']),
            _ => true,
        };
        if !fits || !is_hex(part) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return false;
    }
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    };
    text.starts_with('/') || scheme.is_some_and(is_scheme)
}

fn is_address(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(local, host)| {
        !local.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace) && !local.contains('@')
    })
}

fn is_host(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_')
    };
    text.len() <= 255 && text.split('.').all(part)
}

fn is_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hex(digits)
}

/// Numbers with units, as Go's `time.ParseDuration`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        if number.len() == rest.len() {
            return false;
        }
        let number = number.trim_start();
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h", "d", "w"].into_iter().find(|unit| {
            number.strip_prefix(unit).is_some_and(|after| !after.starts_with(|next: char| next.is_ascii_alphabetic()))
        });
        let Some(after) = unit.and_then(|unit| number.strip_prefix(unit)) else { return false };
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_texts_of_a_format_from_others() {
        let cases = [
            ("date-time", "2020-01-01T00:00:00Z", "2020-01-01"),
            ("date", "2020-02-29", "2021-02-29"),
            ("byte", "YQ==", "***"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:00:5e:00:53:01", "00:00:5e"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("uri", "https://x/y", "x y"),
            ("email", "a@b.example", "a"),
            ("hostname", "a.b", "-a"),
            ("duration", "1h30m", "1x"),
            ("hexcolor", "#aabbcc", "#aabb"),
            ("k8s-short-name", "a-b", "A"),
            ("k8s-long-name", "a.b", "a..b"),
        ];
        for (format, good, bad) in cases {
            assert!(has_format(format, good), "{format} {good}");
            assert!(!has_format(format, bad), "{format} {bad}");
        }
    }
}
