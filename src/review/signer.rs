//! Whose token a `TokenReview` is about: a member's whose keys signed it. A token is shown to nobody else: whoever sees one may
//! use it.

use futures::future::join_all;
use http::{Request, header};
use serde_json::{Value, json};

use crate::{
    authn::SigningKeys,
    config::MemberName,
    stores::Stores,
    upstream::{Class, collect},
};
use kubefold_wire::body::empty;

/// Where a kube-apiserver shows its public keys, and in which form alone.
///
/// Source: kubernetes/kubernetes `pkg/routes/openidmetadata.go`.
const KEYS: &str = "/openid/v1/jwks";
const KEYS_MEDIA: &str = "application/jwk-set+json";
const KEYS_BYTES_MAX: usize = 1 << 20;

/// Who may be shown a token.
#[derive(Debug, Default)]
pub(super) struct Signers {
    /// Members whose keys signed it: one, unless clusters share their keys.
    pub(super) members: Vec<MemberName>,
    /// Why others are not known to be none.
    pub(super) silent: Vec<String>,
}

/// The token that a review is about.
pub(super) fn token(review: &[u8]) -> Option<String> {
    let review: Value = serde_json::from_slice(review).ok()?;
    review["spec"]["token"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
}

/// Asks all members for their keys, which are public, and looks whose signed the token.
pub(super) async fn signers(stores: &Stores, members: &[MemberName], token: &str) -> Signers {
    let asked = members.iter().map(|name| async move {
        let registry = stores.registry();
        let Some(member) = registry.get(name.as_str()) else { return Err("it is not in the configuration".to_owned()) };
        let request = Request::get(KEYS).header(header::ACCEPT, KEYS_MEDIA).body(empty());
        let request = request.map_err(|error| error.to_string())?;
        let (head, body) = member.send(request, Class::Read).await.map_err(|error| error.cause())?.into_parts();
        if !head.status.is_success() {
            return Err(format!("it does not show kubefold its keys ({} at {KEYS})", head.status));
        }
        let body = collect(body, KEYS_BYTES_MAX).await.map_err(|error| error.cause())?;
        serde_json::from_slice::<SigningKeys>(&body).map_err(|error| format!("it answered with no keys: {error}"))
    });
    let mut signers = Signers::default();
    for (name, keys) in members.iter().zip(join_all(asked).await) {
        match keys {
            Ok(keys) if keys.signed(token) => signers.members.push(name.clone()),
            Ok(_) => {}
            Err(cause) => signers.silent.push(format!("member {name}: {cause}")),
        }
    }
    signers
}

/// The review of a token that no member has made, as far as is known: in the words of a kube-apiserver.
pub(super) fn of_nobody(review: &[u8], silent: &[String]) -> Value {
    let mut review: Value = serde_json::from_slice(review).unwrap_or_default();
    let error = std::iter::once("invalid bearer token").chain(silent.iter().map(String::as_str));
    let error = error.collect::<Vec<_>>().join("; ");
    if let Some(review) = review.as_object_mut() {
        review.insert("status".to_owned(), json!({"user": {}, "error": error}));
    }
    review
}
