//! What a member refuses, with the name that the client used.

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use http::{Response, header};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody};

use kubefold_wire::{
    body::{Body, full},
    reword::{is_status, renamed},
};

/// A refusal is short; what is longer is some application's, and passes as it is.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Puts the asked name in place of the member's own into a `Status`. All else passes as it is.
///
/// `proxied`: the answer may be an application's, whose bytes are not waited for unless it said how many there are.
pub(super) async fn in_visible_names(
    response: Response<Body>,
    own: &str,
    visible: &str,
    proxied: bool,
) -> Response<Body> {
    let failed = response.status().is_client_error() || response.status().is_server_error();
    let media = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let short = response.body().size_hint().exact().is_some_and(|bytes| bytes <= REFUSAL_BYTES_MAX as u64);
    let is_json = media.starts_with("application/json") && !response.headers().contains_key(header::CONTENT_ENCODING);
    if !failed || own == visible || !is_json || (proxied && !short) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let (read, rest) = read(body).await;
    if let Some(rest) = rest {
        return Response::from_parts(parts, rest);
    }
    let told = is_status(&read).then(|| renamed(&read, own, visible)).flatten();
    if told.is_some() {
        // It may be another one.
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Response::from_parts(parts, full(told.unwrap_or(read)))
}

/// Reads a body to its end; or, where it is too long or breaks off, gives it as it was.
async fn read(mut body: Body) -> (Bytes, Option<Body>) {
    let mut read = BytesMut::new();
    loop {
        let next = match body.frame().await {
            None => return (read.freeze(), None),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if read.len() + data.len() <= REFUSAL_BYTES_MAX => {
                    read.extend_from_slice(&data);
                    continue;
                }
                Ok(data) => Ok(Frame::data(data)),
                // Trailers: nothing of a `Status` is in them.
                Err(_) => continue,
            },
            Some(Err(error)) => Err(error),
        };
        let first = stream::iter([Ok(Frame::data(read.freeze())), next]);
        let whole = StreamBody::new(first.chain(BodyStream::new(body)));
        return (Bytes::new(), Some(whole.boxed_unsync()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubefold_wire::{body::BodyError, status::Status};

    async fn text(body: Body) -> Result<Bytes, BodyError> {
        body.collect().await.map(http_body_util::Collected::to_bytes)
    }

    fn answer(code: u16, media: &str, body: Body) -> Response<Body> {
        let answer = Response::builder().status(code).header(header::CONTENT_TYPE, media);
        answer.header(header::CONTENT_LENGTH, "1").body(body).unwrap()
    }

    #[tokio::test]
    async fn a_status_is_reworded_and_all_else_passes() {
        let json = Status::not_found("", "pods", "web").to_json();
        let reworded =
            in_visible_names(answer(404, "application/json", full(json.clone())), "web", "web@east", false).await;
        assert!(!reworded.headers().contains_key(header::CONTENT_LENGTH));
        let wanted = Status::not_found("", "pods", "web@east").to_json();
        assert_eq!(text(reworded.into_body()).await.unwrap(), wanted);
        let other = r#"{"message":"no \"web\" here"}"#;
        for (code, media, body) in [
            (200, "application/json", &json[..]),
            (404, "text/plain", &json),
            (404, "application/json", other.as_bytes()),
        ] {
            let same = in_visible_names(answer(code, media, full(body.to_vec())), "web", "web@east", false).await;
            assert_eq!(text(same.into_body()).await.unwrap(), body, "{code} {media}");
        }
    }

    #[tokio::test]
    async fn what_is_long_or_breaks_off_passes_as_it_came() {
        let chunk = Bytes::from(vec![b'x'; 30 << 10]);
        let frames = move |count: usize| vec![chunk.clone(); count].into_iter().map(|chunk| Ok(Frame::data(chunk)));
        let long = StreamBody::new(stream::iter(frames(5))).boxed_unsync();
        let same = in_visible_names(answer(500, "application/json", long), "web", "web@east", false).await;
        assert_eq!(text(same.into_body()).await.unwrap().len(), 150 << 10);
        let broken = StreamBody::new(stream::iter(frames(1).chain([Err("cut".into())]))).boxed_unsync();
        let same = in_visible_names(answer(500, "application/json", broken), "web", "web@east", false).await;
        assert!(text(same.into_body()).await.is_err());
        // An application's endless answer is not waited for.
        let endless = StreamBody::new(stream::pending()).boxed_unsync();
        in_visible_names(answer(500, "application/json", endless), "web", "web@east", true).await;
    }
}
