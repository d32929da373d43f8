//! Evictions through the fleet keep to the whole of a budget: each part knows its own pods alone.

use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::{
    member::call::Answer,
    placement::{
        companions::{Counts, Eviction, Limits, Subject, evicts},
        divided::Division,
        marker::WHOLE_KEY,
    },
    respond::WriteError,
    write::{
        Writer,
        fleet::{Fleet, Key, Listed},
        request::Request,
        workloads::{COMPANIONS, documents},
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
    let selects = |one: &&Listed| {
        let document = documents(one).next().map(|(_, json)| json);
        let subject = document.and_then(|json| Subject::of(Some(Division::Budget), json));
        subject.is_some_and(|subject| subject.selects(&labels))
    };
    let budgets = writer.fleet.objects(&gvr, &request.namespace).await;
    for budget in budgets.iter().filter(|one| one.folded && one.parts.len() > 1).filter(selects) {
        let gvk = Gvk::new(group, version, kind);
        let key = Key { gvr: gvr.clone(), gvk, namespace: request.namespace.clone(), name: budget.name.clone() };
        let hold = writer.fleet.hold(&key).await;
        let hold = hold.ok_or_else(|| WriteError::BudgetHeld { budget: key.name.clone() })?;
        judge(writer, &key, budget, &pod).await?;
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

async fn judge<F: Fleet>(writer: &Writer<F>, key: &Key, budget: &Listed, pod: &Value) -> Result<(), WriteError> {
    let looks = join_all(budget.parts.iter().map(|(member, held)| async move {
        match writer.fleet.look(member, key).await {
            Answer::Answered { code: StatusCode::OK, body, .. } => Some((read(&body), true)),
            Answer::Answered { code: StatusCode::NOT_FOUND, .. } => None,
            // Its pods are there, as far as is known, and nobody says that they are well.
            Answer::Answered { .. } | Answer::NotSent(_) | Answer::Unknown(_) => Some((read(held), false)),
        }
    }))
    .await;
    let parts: Vec<(Value, bool)> = looks.into_iter().flatten().collect();
    let note = parts.first().and_then(|(home, _)| home.pointer("/metadata/annotations")?.get(WHOLE_KEY)?.as_str());
    let Some(whole) = note.and_then(|note| Limits::noted(Division::Budget, note)) else { return Ok(()) };
    let Eviction { allowed, desired, healthy } = evicts(&whole, parts.iter().map(|(part, told)| counts(part, *told)));
    let policy = parts.first().and_then(|(home, _)| home.pointer("/spec/unhealthyPodEvictionPolicy")?.as_str());
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

fn counts(part: &Value, told: bool) -> Counts {
    let count = |name: &str| part.pointer("/status").and_then(|status| status.get(name)?.as_i64()).unwrap_or(0);
    let expected = count("expectedPods");
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
