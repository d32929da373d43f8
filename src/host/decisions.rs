//! What the host says of what somebody may do: a `SubjectAccessReview`, kept for seconds.

use std::{sync::Arc, time::Duration};

use http::Request;
use kube::Client;
use quick_cache::sync::Cache;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    authn::known::Slot,
    host::error::{HostError, answered},
    member::review::{Action, Judgement},
};
use kubefold_serving::caller::Caller;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// A yes and a no hold for so long, as in every aggregated API server.
///
/// Source: kubernetes/apiserver `pkg/server/options/authorization.go`, `NewDelegatingAuthorizationOptions`.
const HOLDS_FOR: Duration = Duration::from_secs(10);
/// Decisions that are kept.
const DECISIONS_MAX: usize = 10_000;

/// Questions at once; others wait, as long as for an answer.
const QUESTIONS_MAX: usize = 64;

/// The decisions of one host.
pub(super) struct Decisions {
    known: Cache<Question, Arc<Slot<Judgement>>>,
    places: Semaphore,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    caller: Caller,
    action: Action,
}

impl Default for Decisions {
    fn default() -> Self {
        Self { known: Cache::new(DECISIONS_MAX), places: Semaphore::new(QUESTIONS_MAX) }
    }
}

impl Decisions {
    /// Asks, where it is not known. Equal questions at the same time are one.
    pub(super) async fn judge(&self, client: &Client, caller: &Caller, action: &Action) -> Judgement {
        let question = Question { caller: caller.clone(), action: action.clone() };
        let slot = self.known.get_or_insert_with(&question, || Ok::<_, std::convert::Infallible>(Arc::default()));
        let slot = slot.unwrap_or_default();
        if let Some(Some(known)) = slot.fresh() {
            return known;
        }
        let _turn = slot.turn().await;
        if let Some(Some(known)) = slot.fresh() {
            return known;
        }
        let asked_at = Instant::now();
        match answered(self.ask(client, caller, action)).await {
            Ok(said @ (Judgement::Allowed | Judgement::Denied(_))) => slot.is(said, asked_at, HOLDS_FOR),
            Ok(unknown @ Judgement::Unknown(_)) => unknown,
            Err(error) => Judgement::Unknown(error.to_string().into()),
        }
    }

    async fn ask(&self, client: &Client, caller: &Caller, action: &Action) -> Result<Judgement, HostError> {
        let Ok(_place) = self.places.acquire().await else { return Err(HostError::Late) };
        let asked = action.review_of(caller);
        let json = "application/json";
        let request = Request::post(REVIEWS).header("content-type", json).header("accept", json);
        let answer = client.request_text(request.body(asked.to_string().into_bytes())?).await?;
        Ok(action.judged(&asked, answer.as_bytes()))
    }
}
