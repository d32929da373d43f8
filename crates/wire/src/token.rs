//! The continue token of a paged list: opaque to clients, checked before it is believed.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Where a paged list goes on.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContinueToken {
    /// Format of the token.
    #[serde(rename = "v")]
    version: u8,
    /// The resource that the list is of: a token of another list is refused.
    #[serde(rename = "r")]
    pub resource: String,
    /// Revision that all pages share.
    #[serde(rename = "rv")]
    pub revision: u64,
    /// Key of the last object given; the next page begins after it.
    #[serde(rename = "k")]
    pub after: String,
    /// Stands for whose objects the list shows, where that is not everybody's.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<u64>,
    /// Objects that remain after it, where the list has no selector.
    #[serde(rename = "n", skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
}

impl ContinueToken {
    /// Makes a token.
    pub fn new(resource: String, revision: u64, after: String, remaining: Option<u64>) -> Self {
        Self { version: 1, resource, revision, after, audience: None, remaining }
    }

    /// The same for a list of these members' objects alone.
    #[must_use]
    pub fn for_audience(self, audience: Option<u64>) -> Self {
        Self { audience, ..self }
    }

    /// As clients carry it.
    pub fn encode(&self) -> String {
        // Strings and numbers only: serialization has no way to fail.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads a token back; `None` where it is not one of ours.
    pub fn decode(text: &str) -> Option<Self> {
        let token: Self = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        (token.version == 1).then_some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(revision in 0u64..1 << 53, after in ".*", remaining in proptest::option::of(any::<u64>())) {
            let token = ContinueToken::new("v1/pods".into(), revision, after, remaining);
            prop_assert_eq!(ContinueToken::decode(&token.encode()), Some(token));
        }

        #[test]
        fn anything_else_is_refused(text in ".*") {
            prop_assert_eq!(ContinueToken::decode(&text), None);
        }
    }
}
