//! A member that answers each review as a test says.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::pending;
use http::Response;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::member::fake::{Fake, handler};
use kubefold_wire::body::full;

/// What a member does about a review.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Its code and body.
    Says(u16, String),
    /// It never answers.
    Hangs,
}

impl Verdict {
    /// A review with this status.
    pub(super) fn status(status: &Value) -> Self {
        Self::Says(201, json!({ "status": status }).to_string())
    }

    pub(super) fn yes() -> Self {
        Self::status(&json!({"allowed": true}))
    }

    pub(super) fn no() -> Self {
        Self::status(&json!({"allowed": false}))
    }
}

/// A member that is told who asks, and the attributes that he asks about; and how often it was asked.
pub(super) async fn judging(
    judge: impl Fn(&str, &Value) -> Verdict + Send + Sync + 'static,
) -> (Fake, Arc<AtomicUsize>) {
    let (judge, count) = (Arc::new(judge), Arc::new(AtomicUsize::new(0)));
    let asked = Arc::clone(&count);
    let answer = handler(move |request| {
        let (judge, count) = (Arc::clone(&judge), Arc::clone(&asked));
        async move {
            let named = request.headers().get("impersonate-user");
            let user = named.map(|name| name.to_str().unwrap().to_owned()).unwrap_or_default();
            let body = request.into_body().collect().await?.to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap_or_default();
            count.fetch_add(1, Ordering::Relaxed);
            let (code, text) = match judge(&user, &review["spec"]["resourceAttributes"]) {
                Verdict::Says(code, text) => (code, of_review(review, text)),
                Verdict::Hangs => pending().await,
            };
            Ok(Response::builder().status(code).body(full(text)).unwrap())
        }
    });
    (Fake::http2(answer).await, count)
}

/// What a member answers: where it says a status, that of the review that it was asked for.
pub(super) fn of_review(mut review: Value, said: String) -> String {
    match serde_json::from_str::<Value>(&said) {
        Ok(Value::Object(answer)) if answer.get("status").is_some_and(Value::is_object) => {
            review["status"] = answer["status"].clone();
            review.to_string()
        }
        _ => said,
    }
}
