//! The `k8s\0` prefix and the `runtime.Unknown` message behind it.
//!
//! Source: `k8s.io/apimachinery/pkg/runtime/generated.proto`.

use super::error::{MEDIA_TYPE, ProtobufError};
use super::records::{Payload, Records};

pub(super) const PREFIX: &[u8] = b"k8s\0";

/// The name that errors give the envelope, as it is no object of its own.
const ENVELOPE_KIND: &str = "the envelope (runtime.Unknown)";

/// What the envelope says of its content.
pub(super) struct Envelope<'a> {
    pub(super) api_version: &'a str,
    pub(super) kind: &'a str,
    pub(super) raw: &'a [u8],
    pub(super) content: Content,
}

/// How [`Envelope::raw`] is written.
pub(super) enum Content {
    /// The message of the envelope's kind.
    Protobuf,
    /// A JSON object that names its own kind.
    Json,
}

impl<'a> Envelope<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, ProtobufError> {
        let unknown = body.strip_prefix(PREFIX).ok_or(ProtobufError::Prefix)?;
        let (mut api_version, mut kind) = ("", "");
        let (mut raw, mut encoding, mut content_type): (&[u8], _, _) = (&[], "", "");
        for (number, bytes) in fields(unknown, "")? {
            match number {
                1 => {
                    for (number, bytes) in fields(bytes, "typeMeta")? {
                        match number {
                            1 => api_version = text(bytes, "typeMeta.apiVersion")?,
                            2 => kind = text(bytes, "typeMeta.kind")?,
                            _ => return Err(unknown_field("typeMeta", number)),
                        }
                    }
                }
                2 => raw = bytes,
                3 => encoding = text(bytes, "contentEncoding")?,
                4 => content_type = text(bytes, "contentType")?,
                _ => return Err(unknown_field("", number)),
            }
        }
        let content = match content_type {
            "" | MEDIA_TYPE if encoding.is_empty() => Content::Protobuf,
            "application/json" if encoding.is_empty() => Content::Json,
            _ => {
                return Err(ProtobufError::Content {
                    content_type: content_type.to_owned(),
                    content_encoding: encoding.to_owned(),
                });
            }
        };
        if matches!(content, Content::Protobuf) && (api_version.is_empty() || kind.is_empty()) {
            return Err(ProtobufError::MissingKind { api_version: api_version.to_owned(), kind: kind.to_owned() });
        }
        Ok(Self { api_version, kind, raw, content })
    }
}

/// Reads a message all of whose fields are length-delimited.
fn fields<'a>(message: &'a [u8], path: &str) -> Result<Vec<(u32, &'a [u8])>, ProtobufError> {
    Records::new(message)
        .map(|record| match record {
            Ok((number, Payload::Bytes(bytes))) => Ok((number, bytes)),
            Ok(_) => Err(ProtobufError::WireType { kind: ENVELOPE_KIND.to_owned(), path: path.to_owned() }),
            Err(source) => {
                Err(ProtobufError::Malformed { kind: ENVELOPE_KIND.to_owned(), path: path.to_owned(), source })
            }
        })
        .collect()
}

fn text<'a>(bytes: &'a [u8], path: &str) -> Result<&'a str, ProtobufError> {
    str::from_utf8(bytes).map_err(|_| ProtobufError::Utf8 { kind: ENVELOPE_KIND.to_owned(), path: path.to_owned() })
}

fn unknown_field(path: &str, number: u32) -> ProtobufError {
    ProtobufError::UnknownField { kind: ENVELOPE_KIND.to_owned(), path: path.to_owned(), number }
}
