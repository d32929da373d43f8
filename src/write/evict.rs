//! Evictions through the fleet keep to the whole of a budget: each part knows its own pods alone.

use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::{
    member::call::Answer,
    placement::{
        companions::{Counts, Eviction, Limits, Shares, Subject, evicts},
        divided::Division,
        marker::WHOLE_KEY,
    },
    respond::WriteError,
    write::{
        Writer,
        fleet::{Fleet, Key, Listed},
        request::Request,
        workloads::{COMPANIONS, documents, shares},
    },
};
use kubefold_wire::resource::{Gvk, Gvr};

/// Judges the eviction of a pod by the wholes of the budgets that select it. They are held until the eviction was answered:
/// so that the next one sees what this one took.
///
/// Errors: 429 where the whole allows no more, or other evictions hold the budget for too long.
pub(in crate::write) async fn guard<F: Fleet>(
    writer: &Writer<F>,
    request: &Request,
    pod: Option<&[u8]>,
) -> Result<Vec<F::Hold>, WriteError> {
    let mut holds = Vec::new();
    let is_eviction = request.subresource == "eviction" && request.method == Method::POST;
    let pod: Option<Value> = pod.filter(|_| is_eviction).and_then(|pod| serde_json::from_slice(pod).ok());
    let Some(pod) = pod.filter(is_guarded) else { return Ok(holds) };
    let [(group, version, resource, kind), _] = COMPANIONS;
    let gvr = Gvr::new(group, version, resource);
    let labels = pod.pointer("/metadata/labels").map(Value::to_string).unwrap_or_default();
    let selecting = |budget: Listed| {
        let subject = documents(&budget).next().and_then(|(_, json)| Subject::of(Some(Division::Budget), json));
        subject.filter(|subject| subject.selects(&labels)).map(|subject| (budget, subject))
    };
    let budgets = writer.fleet.objects(&gvr, &request.namespace).await;
    let folded = budgets.into_iter().filter(|one| one.folded && one.parts.len() > 1);
    for (budget, subject) in folded.filter_map(selecting) {
        let gvk = Gvk::new(group, version, kind);
        let key = Key { gvr: gvr.clone(), gvk, namespace: request.namespace.clone(), name: budget.name.clone() };
        let hold = writer.fleet.hold(&key).await;
        let hold = hold.ok_or_else(|| WriteError::BudgetHeld { budget: key.name.clone() })?;
        let shares = shares(&writer.fleet, &request.namespace, &subject).await;
        judge(writer, &key, &budget, &shares, &pod).await?;
        holds.push(hold);
    }
    Ok(holds)
}

/// Says whether budgets hold for a pod: it runs, and is not going already.
///
/// Source: kubernetes `pkg/registry/core/pod/storage/eviction.go` `canIgnorePDB`.
fn is_guarded(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    !matches!(phase, "Succeeded" | "Failed" | "Pending") && pod.pointer("/metadata/deletionTimestamp").is_none()
}

async fn judge<F: Fleet>(
    writer: &Writer<F>,
    key: &Key,
    budget: &Listed,
    shares: &Shares,
    pod: &Value,
) -> Result<(), WriteError> {
    let looks = join_all(budget.parts.iter().map(|(member, held)| async move {
        let (part, told) = match writer.fleet.look(member, key).await {
            Answer::Answered { code: StatusCode::OK, body, .. } => (read(&body), true),
            Answer::Answered { code: StatusCode::NOT_FOUND, .. } => return None,
            // Its pods are there, as far as is known, and nobody says that they are well.
            Answer::Answered { .. } | Answer::NotSent(_) | Answer::Unknown(_) => (read(held), false),
        };
        let counts = counts(&part, told, shares.get(member).copied().unwrap_or(0));
        Some((part, counts))
    }))
    .await;
    let parts: Vec<(Value, Counts)> = looks.into_iter().flatten().collect();
    let home = parts.first().map(|(home, _)| home);
    let note = home.and_then(|home| home.pointer("/metadata/annotations")?.get(WHOLE_KEY)?.as_str());
    let Some(whole) = note.and_then(|note| Limits::noted(Division::Budget, note)) else { return Ok(()) };
    let Eviction { allowed, desired, healthy } = evicts(&whole, parts.iter().map(|(_, counts)| *counts));
    let policy = home.and_then(|home| home.pointer("/spec/unhealthyPodEvictionPolicy")?.as_str());
    // Source: the same, `unhealthyPodEvictionPolicy`: a pod that is not ready may go while the others are enough.
    let is_spare = !is_ready(pod) && (policy == Some("AlwaysAllow") || healthy >= desired && desired > 0);
    if allowed > 0 || is_spare {
        return Ok(());
    }
    Err(WriteError::Budget { budget: key.name.clone(), desired, healthy })
}

fn read(document: &[u8]) -> Value {
    serde_json::from_slice(document).unwrap_or_default()
}

/// A controller that sees no pod of a budget expects none: for a moment after a member's only pod is gone. The workloads say
/// how many there are to be.
///
/// Source: kubernetes `pkg/controller/disruption/disruption.go` `getExpectedScale`.
fn counts(part: &Value, told: bool, share: u32) -> Counts {
    let count = |name: &str| part.pointer("/status").and_then(|status| status.get(name)?.as_i64()).unwrap_or(0);
    let expected = count("expectedPods").max(share.into());
    if !told {
        return Counts { expected, ..Counts::default() };
    }
    Counts {
        allowed: count("disruptionsAllowed"),
        healthy: count("currentHealthy"),
        desired: count("desiredHealthy"),
        expected,
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}
