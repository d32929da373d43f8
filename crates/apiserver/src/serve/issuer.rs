//! By which keys others check tokens of service accounts: OpenID Connect discovery.
//!
//! Source: kubernetes `pkg/routes/openidmetadata.go`.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request::Parts};
use serde_json::json;

use crate::serve::{NOT_ALLOWED, json_response, tokens::Tokens};
use kubefold_wire::{
    accept::accept_header,
    body::{Body, full},
    status::{Reason, Status},
};

const CONFIGURATION: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";

/// Answers a question for the issuer or its keys. `None`: it is about something else, or the keys are not told.
pub(super) fn answer(tokens: &dyn Tokens, parts: &Parts) -> Option<Result<Response<Body>, Status>> {
    let path = parts.uri.path();
    let is_keys = match path.strip_suffix('/').unwrap_or(path) {
        CONFIGURATION => false,
        KEYS => true,
        _ => return None,
    };
    let published = tokens.published_keys()?;
    if parts.method != http::Method::GET {
        return Some(Err(Status::method_not_allowed(NOT_ALLOWED)));
    }
    let (media, text) = if is_keys {
        ("application/jwk-set+json", published.jwks.to_string())
    } else {
        let configuration = json!({
            "issuer": tokens.issuer(),
            "jwks_uri": format!("{}{KEYS}", published.url),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [published.algorithm],
        });
        ("application/json", configuration.to_string())
    };
    if !accepts(&parts.headers, media) {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {media}");
        return Some(Err(Status::new(StatusCode::NOT_ACCEPTABLE, Reason::NotAcceptable, message).detailed()));
    }
    let mut response = json_response(full(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Some(Ok(response))
}

/// Says whether a client takes this media type. Of wildcards only `*/*` counts.
///
/// Source: emicklei/go-restful `route.go`.
fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let accept = accept_header(headers);
    let mut asked = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    accept.is_empty() || asked.any(|one| one == "*/*" || one == media)
}
