//! `/healthz`, `/livez`, `/readyz`: whether the storage takes changes.
//!
//! Source: kubernetes/apiserver `pkg/server/healthz/healthz.go`, `pkg/server/options/etcd.go`.

use std::time::Duration;

use http::{Method, Response, request::Parts};
use tokio::time::timeout;

use crate::{serve::NOT_ALLOWED, storage::Storage};
use kubefold_serving::health::{self, Check, HealthPath};
use kubefold_wire::{body::Body, status::Status};

/// The storage stands as `etcd`: whoever asks a kube-apiserver for that check asks this one, too.
const CHECKS: [&str; 3] = ["ping", "log", STORAGE];
const STORAGE: &str = "etcd";
/// Source: kubernetes/apiserver `pkg/storage/storagebackend/config.go`, `DefaultHealthcheckTimeout`.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Answers a question for health.
///
/// Errors: 404 for a check that there is not, 405.
pub(super) async fn answer(
    path: HealthPath<'_>,
    parts: &Parts,
    storage: &dyn Storage,
) -> Result<Response<Body>, Status> {
    if path.check.is_some_and(|check| !CHECKS.contains(&check)) {
        return Err(Status::no_such_path());
    }
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed(NOT_ALLOWED));
    }
    let failed = match timeout(TIME_MAX, storage.ready()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("the storage does not answer in time".to_owned()),
    };
    let check = |name: &str| {
        let failed = failed.as_ref().filter(|_| name == STORAGE);
        Check::of(name, failed.is_none(), failed.cloned().unwrap_or_default())
    };
    Ok(health::answer(path, parts.uri.query(), &CHECKS.map(check), true))
}
