//! Says in the status of a policy that it was seen, as the controller of a cluster does. Types are not checked.
//!
//! Source: kubernetes `pkg/controller/validatingadmissionpolicystatus/controller.go`.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    kinds::{Kind, put},
    registry::{Event, From, Part, Registry, Selection, WriteOptions},
};
use kubefold_wire::status::{Reason, Status};

/// As whom the status is written.
const MANAGER: &str = "validatingadmissionpolicy-status";
/// After a failure of the storage.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the status of all policies until it is cancelled, whatever the storage says.
///
/// Cancel: safe.
pub(super) async fn follow_until(registry: Registry, kind: Arc<Kind>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Some(Err(status)) = stop.run_until_cancelled(run(&registry, &kind)).await {
            tracing::warn!(error = status.message, "restarting the watch of admission policies");
            let _cancelled = stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
        }
    }
}

async fn run(registry: &Registry, kind: &Arc<Kind>) -> Result<(), Status> {
    let mut events = registry.watch(kind, "", Selection::default(), From::Start).await?;
    while let Some(event) = events.next().await.transpose()? {
        if let Event::Added(object) | Event::Modified(object) = event {
            say(registry, kind, &object.value()).await?;
        }
    }
    Ok(())
}

/// Says that a policy was seen as it is now.
async fn say(registry: &Registry, kind: &Kind, policy: &Value) -> Result<(), Status> {
    let generation = policy.pointer("/metadata/generation").cloned().unwrap_or_default();
    if policy.pointer("/status/observedGeneration") == Some(&generation) {
        return Ok(());
    }
    let name = policy.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let options = WriteOptions { part: Part::Status, manager: MANAGER.to_owned(), ..WriteOptions::default() };
    let written = registry.modify(kind, "", name, &options, |there| {
        let mut status = there.get("status").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
        put(&mut status, "observedGeneration", Some(generation.clone()));
        put(&mut status, "typeChecking", Some(json!({})));
        put(there, "status", Some(status));
        Ok(())
    });
    match Box::pin(written).await {
        // It is gone, or another event of it is on its way.
        Err(status) if !matches!(status.reason, Reason::NotFound | Reason::Conflict) => Err(status),
        _ => Ok(()),
    }
}
