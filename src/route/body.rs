//! Bodies of writes: bounded, and JSON whatever they came as.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;

use crate::wire::{
    body::Body,
    locate::Paths,
    protobuf,
    status::{Reason, Status},
};

/// Largest body of a write, as a kube-apiserver has it. Source: kubernetes/apiserver `pkg/server/config.go`.
const BODY_BYTES_MAX: usize = 3 << 20;

/// Reads a write's body as JSON: typed clients send protobuf.
///
/// Errors: 413, 415, or 400 when it cannot be read.
pub(super) async fn read_json(headers: &HeaderMap, body: Body) -> Result<Bytes, Status> {
    let body = whole(body).await?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    match media_type {
        _ if body.is_empty() => Ok(body),
        "" | "application/json" => Ok(body),
        _ if protobuf::is_protobuf(content_type) => {
            protobuf::to_json(&body).map(Bytes::from).map_err(|error| Status::bad_request(error.to_string()))
        }
        other => Err(Status::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Reason::UnsupportedMediaType,
            format!(
                "the body of the request was in an unknown format ({other}) - accepted media types include: \
                 application/json, application/vnd.kubernetes.protobuf"
            ),
        )),
    }
}

/// The whole of a body, up to the limit.
async fn whole(mut body: Body) -> Result<Bytes, Status> {
    let mut out = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::bad_request(format!("the body broke off: {error}")))?;
        let Ok(chunk) = frame.into_data() else { continue };
        if out.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(Status::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                Reason::RequestEntityTooLarge,
                format!("Request entity too large: limit is {BODY_BYTES_MAX}"),
            ));
        }
        out.extend_from_slice(&chunk);
    }
    Ok(out.freeze())
}

/// `metadata.name` of a body.
pub(super) fn body_name(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let mut found = Vec::new();
    Paths::new([(0, ["metadata", "name"].as_slice())]).locate(text, &mut found).ok()?;
    serde_json::from_str(text.get(found.first()?.range.clone())?).ok()
}
