//! Bodies of writes: bounded, and JSON whatever they came as.

mod yaml;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use tokio::time::timeout;

use kubefold_wire::{
    body::Body,
    locate::Paths,
    media::{self, Format},
    protobuf,
    status::{Reason, Status},
};

pub use yaml::ReadBody;

/// Largest body of a write, as a kube-apiserver has it. Source: kubernetes/apiserver `pkg/server/config.go`.
const BODY_BYTES_MAX: usize = 3 << 20;

/// Time for a body to come: as long as a kube-apiserver works on a request. Source: as above, `RequestTimeout`.
const BODY_TIME_MAX: Duration = Duration::from_mins(1);

/// Reads a write's body as JSON: typed clients send protobuf, people YAML.
///
/// Errors: 413, 415, 400 when it cannot be read, or 504 when it does not come.
pub async fn read_json(headers: &HeaderMap, body: Body) -> Result<Bytes, Status> {
    read_object(headers, body).await.map(|read| read.json)
}

/// The same, with the keys that stand twice.
///
/// Errors: as [`read_json`].
pub async fn read_object(headers: &HeaderMap, body: Body) -> Result<ReadBody, Status> {
    let format = media::format_of(headers);
    let body = whole(body).await?;
    if body.is_empty() {
        return Ok(body.into());
    }
    match format? {
        Format::Json => Ok(body.into()),
        Format::Yaml => yaml::to_json(&body).map_err(|error| Status::bad_request(error.to_string())),
        Format::Protobuf => protobuf::to_json(&body)
            .map(|json| Bytes::from(json).into())
            .map_err(|error| Status::bad_request(error.to_string())),
    }
}

/// Reads a patch as JSON: only that of a server-side apply may be YAML.
///
/// Errors: 413, 400 when it cannot be read, or 504 when it does not come.
pub async fn read_patch(headers: &HeaderMap, body: Body) -> Result<ReadBody, Status> {
    let body = whole(body).await?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.starts_with("application/apply-patch+yaml") {
        return yaml::to_json(&body).map_err(|error| Status::bad_request(error.to_string()));
    }
    Ok(body.into())
}

/// Reads what a client sends with a request that is refused: it might not read its answer otherwise.
pub async fn drain(body: Body) {
    let _whatever = whole(body).await;
}

/// The whole of a body, up to the limits.
async fn whole(body: Body) -> Result<Bytes, Status> {
    let late = |_| {
        let message = format!("the body has not come within {} s", BODY_TIME_MAX.as_secs());
        Status::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, message)
    };
    timeout(BODY_TIME_MAX, collected(body)).await.map_err(late)?
}

async fn collected(mut body: Body) -> Result<Bytes, Status> {
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
pub fn body_name(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let mut found = Vec::new();
    Paths::new([(0, ["metadata", "name"].as_slice())]).locate(text, &mut found).ok()?;
    serde_json::from_str(text.get(found.first()?.range.clone())?).ok()
}

/// The name of what an event is about.
pub fn body_subject(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let mut found = Vec::new();
    let paths = Paths::new([(0, ["involvedObject", "name"].as_slice()), (0, &["regarding", "name"])]);
    paths.locate(text, &mut found).ok()?;
    serde_json::from_str(text.get(found.first()?.range.clone())?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: bodies that never end hold on to what their requests have taken.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        use futures::stream::{self, StreamExt};
        use http_body::Frame;
        use http_body_util::StreamBody;
        let drips =
            stream::repeat_with(|| Ok::<_, kubefold_wire::body::BodyError>(Frame::data(Bytes::from_static(b" "))));
        let slow = drips.then(|drip| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drip
        });
        let refused = read_json(&HeaderMap::new(), StreamBody::new(slow).boxed_unsync()).await.unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (StatusCode::GATEWAY_TIMEOUT, "the body has not come within 60 s")
        );
    }
}
