//! Where OpenAPI is, and the hashes by which its documents are told apart.

use std::fmt::Write as _;

/// The one document of v2.
pub(super) const V2: &str = "/openapi/v2";
/// The index of v3; its documents are below it.
pub(super) const V3: &str = "/openapi/v3";

/// A hash as kube-openapi writes it.
pub(super) fn upper_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        // Writing to a string does not fail.
        let _infallible = write!(out, "{byte:02X}");
        out
    })
}

/// A document's URL with its hash.
pub(super) fn versioned(path: &str, hash: &str) -> String {
    format!("{path}?hash={}", percent_encoding::utf8_percent_encode(hash, percent_encoding::NON_ALPHANUMERIC))
}

/// The decoded value of a query parameter. A hash has no spaces, which are written in two ways.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))?.1;
    let value = percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_of_kube_openapi() {
        assert_eq!(versioned("/openapi/v3/api/v1", "AB0"), "/openapi/v3/api/v1?hash=AB0");
        assert_eq!(parameter("x=1&hash=AB%300&y", "hash").as_deref(), Some("AB00"));
        assert_eq!(parameter("hash=", "hash"), None);
    }
}
