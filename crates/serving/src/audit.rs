//! The `Audit-ID` of the request that a task works for: it goes into log lines and to the servers that the request is sent on to, so
//! that their audit logs and ours can be joined.

use http::{HeaderName, HeaderValue};
use tracing::Instrument;

/// Carries one request's identity through the logs of all servers that work for it.
///
/// Source: kubernetes/apiserver `pkg/endpoints/filters/audit_init.go`.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

tokio::task_local! {
    static CURRENT: HeaderValue;
}

/// Runs a request's work under its id.
pub async fn scoped<F: Future>(id: HeaderValue, work: F) -> F::Output {
    let span = tracing::info_span!("request", audit = id.to_str().unwrap_or_default());
    CURRENT.scope(id, work).instrument(span).await
}

/// The id of the request that this task works for.
pub fn current() -> Option<HeaderValue> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Has work that is to be spawned go on under the id of the request that it is begun for.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let id = current();
    async move {
        match id {
            Some(id) => scoped(id, work).await,
            None => work.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_id_goes_with_the_work() {
        assert_eq!(current(), None);
        let id = HeaderValue::from_static("a1");
        let carried = scoped(id.clone(), async { (current(), carried(async { current() })) }).await;
        assert_eq!(carried.0, Some(id.clone()));
        assert_eq!(tokio_util::task::TaskTracker::new().spawn(carried.1).await.unwrap(), Some(id));
    }
}
