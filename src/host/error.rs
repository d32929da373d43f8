//! Why the host has not said, and how long it is waited for.

use std::time::Duration;

use tokio::time::timeout;

/// After a failure the host is asked again after so long.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// For one answer.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Why the host has not said.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostError {
    #[error("no answer in {}s", ANSWER_MAX.as_secs())]
    Late,
    #[error("{0}")]
    Client(#[from] kube::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
}

/// Bounds a question.
pub(super) async fn answered<T, E: Into<HostError>>(
    question: impl Future<Output = Result<T, E>>,
) -> Result<T, HostError> {
    timeout(ANSWER_MAX, question).await.map_err(|_| HostError::Late)?.map_err(Into::into)
}
