//! What lies in etcd: an object's JSON alone, as whoever else reads it expects, and what others wrote: JSON, and the protobuf
//! of a kube-apiserver.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::{storage::etcd::definition, stored};
use kubefold_wire::protobuf;

/// What a value begins with that a kube-apiserver has encrypted. Source: kubernetes/apiserver
/// `pkg/server/options/encryptionconfig`.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// What one in protobuf begins with.
const PROTOBUF: &[u8] = b"k8s\0";

/// Why a value of etcd is not understood.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ValueError {
    #[error("it is encrypted by a kube-apiserver")]
    Encrypted,
    #[error("it is no JSON of an object ({0})")]
    Json(String),
    #[error("its protobuf is not understood ({0})")]
    Protobuf(String),
}

/// A value for etcd.
pub(super) fn outward(value: Bytes) -> Bytes {
    // No text begins with a number that is as small as the place.
    match value.first_chunk::<{ stored::HEAD_BYTES }>().map(|head| u32::from_le_bytes(*head)) {
        Some(place) if (place as usize) < value.len() && value.get(stored::HEAD_BYTES) == Some(&b'{') => {
            value.slice(stored::HEAD_BYTES..)
        }
        _ => value,
    }
}

/// A value of etcd. What is neither JSON of an object nor protobuf stays as it is.
///
/// Errors: it is an object that cannot be read.
pub(super) fn inward(value: &Bytes) -> Result<Bytes, ValueError> {
    if value.starts_with(ENCRYPTED) {
        return Err(ValueError::Encrypted);
    }
    if value.starts_with(PROTOBUF) {
        let json = protobuf::to_json(value).map_err(|error| ValueError::Protobuf(error.to_string()))?;
        return again(&json);
    }
    if !value.starts_with(b"{") {
        return Ok(Bytes::copy_from_slice(value));
    }
    let text = std::str::from_utf8(value).map_err(|error| ValueError::Json(error.to_string()))?;
    let Some(place) = stored::place_in(text).filter(|_| !definition::is_old(text)) else { return again(value) };
    let mut out = BytesMut::with_capacity(stored::HEAD_BYTES + value.len());
    out.put_u32_le(place);
    out.put_slice(value);
    Ok(out.freeze())
}

/// An object that somebody else wrote, as it is written here.
fn again(json: &[u8]) -> Result<Bytes, ValueError> {
    let mut value = serde_json::from_slice(json).map_err(|error| ValueError::Json(error.to_string()))?;
    definition::modernize(&mut value);
    Ok(stored::encode(&value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_lies_in_etcd_as_json_and_comes_back_as_it_was() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "b", "uid": "c", "labels": {"x": "y"}}, "data": {"k": "v"},
        });
        let value = stored::encode(&object);
        let outside = outward(value.clone());
        let text = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"c","labels":{"x":"y"}},"data":{"k":"v"}}"#;
        assert_eq!(outside, text);
        assert!(stored::place_in(text).is_some());
        assert_eq!(inward(&outside).unwrap(), value);
        // As others write it: in another order, with spaces, and with a revision that is not the storage's.
        let mut other = object;
        other["metadata"]["resourceVersion"] = "7".into();
        let pretty = serde_json::to_string_pretty(&other).unwrap();
        assert_eq!(inward(&pretty.into()).unwrap(), value);
        let text = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"7","labels":{"x":"y"}},"data":{"k":"v"}}"#;
        assert_eq!(inward(&text.into()).unwrap(), value);
        let message = protobuf::from_json(&text.replace(r#""resourceVersion":"7","#, "")).unwrap();
        assert_eq!(inward(&message.into()).unwrap(), value);
    }

    #[test]
    fn what_is_no_object_stays_and_what_cannot_be_read_is_said() {
        for value in ["", "x", "1234", "1234{}", "12345"] {
            assert_eq!(outward(value.into()), value);
            assert_eq!(inward(&value.into()).unwrap(), value);
        }
        for (value, why) in [
            (&b"k8s:enc:aescbc:v1:k:x"[..], "it is encrypted"),
            (b"{\"kind\":\"A\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"}", "no JSON"),
            (b"{\xff}", "no JSON"),
            (b"k8s\0\xff", "protobuf"),
        ] {
            let error = inward(&Bytes::copy_from_slice(value)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
