//! The token that a `TokenReview` is about.

use serde_json::{Value, json};

/// The token that a review is about.
pub(super) fn token(review: &[u8]) -> Option<String> {
    let review: Value = serde_json::from_slice(review).ok()?;
    review["spec"]["token"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
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
