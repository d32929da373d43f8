//! kubefold's own OpenAPI v2 document, beside those of the members: in JSON as its server gives it, and as protobuf, in which
//! client-go reads it.

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha512};

use super::{merge::Encoding, urls::upper_hex};
use kubefold_wire::protobuf::from_openapi_v2;

/// The document, in both encodings.
pub(super) struct OwnSwagger {
    json: Bytes,
    protobuf: Bytes,
    hash: String,
}

impl OwnSwagger {
    /// Takes a document. `None`: it is not one.
    pub(super) fn of(json: Bytes) -> Option<Self> {
        let document: Value = serde_json::from_slice(&json).ok()?;
        document.get("definitions")?.as_object()?;
        let hash = upper_hex(&Sha512::digest(&json));
        Some(Self { json, protobuf: from_openapi_v2(&document).into(), hash })
    }

    pub(super) fn bytes(&self, encoding: Encoding) -> &[u8] {
        match encoding {
            Encoding::Json => &self.json,
            Encoding::Protobuf => &self.protobuf,
        }
    }

    /// Changes with the document.
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_document_is_left_out() {
        for odd in [&b"<html>"[..], b"[]", br#"{"paths":{}}"#, br#"{"definitions":[]}"#] {
            assert!(OwnSwagger::of(Bytes::from_static(odd)).is_none());
        }
        let own = OwnSwagger::of(Bytes::from_static(br#"{"definitions":{"A":{"type":"object"}}}"#)).unwrap();
        assert!(!own.bytes(Encoding::Protobuf).is_empty());
    }
}
