//! The bearer token of a request, and whom it says.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header};

use kubefold_serving::caller::Caller;

/// What a WebSocket's client writes its token behind, as a browser can set no other header of it.
///
/// Source: kubernetes/apiserver `pkg/authentication/request/websocket/protocol.go`.
pub(super) const PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A caller who was found by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// Who asks.
    pub caller: Caller,
    /// The token's end, in Unix seconds; a token of a file has none.
    pub ends_s: Option<u64>,
    /// Who says so.
    pub by: By,
}

/// Who says whose a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The file, for the token of this digest.
    File([u8; 32]),
    /// The issuer or webhook of this number.
    Source(u64),
    /// The reviewer: a member, or the API server itself.
    Reviewer,
}

/// A number of an issuer or webhook, which no other one has that is configured later.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The token among a request's headers.
pub(super) fn token_of(headers: &HeaderMap) -> Option<String> {
    let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some((scheme, token)) = said.and_then(|said| said.trim().split_once(' '))
        && scheme.eq_ignore_ascii_case("bearer")
    {
        return Some(token.trim().to_owned()).filter(|token| !token.is_empty());
    }
    let protocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut encoded =
        protocols.flat_map(|value| value.split(',')).filter_map(|word| word.trim().strip_prefix(PROTOCOL));
    let token = URL_SAFE_NO_PAD.decode(encoded.next()?.trim_end_matches('=')).ok()?;
    // One that is said twice is two persons'.
    let only = encoded.next().is_none();
    String::from_utf8(token).ok().filter(|token| only && !token.is_empty())
}
