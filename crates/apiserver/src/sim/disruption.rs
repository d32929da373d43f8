//! Disruption budgets: how many pods may be evicted now.
//!
//! Source: kubernetes `pkg/controller/disruption/disruption.go`.

use hashbrown::HashMap;
use serde_json::{Value, json};

use super::{
    action::Outcome,
    context::Context,
    fields::{count, items, set_condition, share, time_text},
    resource::{DEPLOYMENTS, REPLICA_SETS},
    view::{Uid, selects},
};

/// Looks after a budget.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    context.world.get(context.key).filter(|entry| !entry.deleting)?;
    let mut tree = context.world.tree(context.key)?;
    let selector = tree["spec"]["selector"].clone();
    let pods = context
        .world
        .pods_in(&context.key.namespace)
        .filter(|(_, entry, pod)| !pod.finished() && !selector.is_null() && selects(&selector, &entry.labels));
    let (mut healthy, mut total, mut owners) = (0_i64, 0_i64, HashMap::<Uid, i64>::new());
    for (_, entry, pod) in pods {
        total += 1;
        healthy += i64::from(pod.ready && !entry.deleting);
        if let Some((uid, scale)) = entry.controller().and_then(|controller| scale(context, controller.uid)) {
            owners.insert(uid, scale);
        }
    }
    let of_owners: i64 = owners.values().sum();
    let (most, least) = (&tree["spec"]["maxUnavailable"], &tree["spec"]["minAvailable"]);
    let (expected, wanted) = if !most.is_null() {
        (of_owners, (of_owners - share(most, of_owners, true)).max(0))
    } else if least.is_string() {
        (of_owners, share(least, of_owners, true))
    } else {
        (total, least.as_i64().unwrap_or(0))
    };
    let allowed = if expected <= 0 { 0 } else { (healthy - wanted).max(0) };
    let mut conditions = items(&tree, "/status/conditions").to_vec();
    let (answer, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(
        &mut conditions,
        json!({
            "type": "DisruptionAllowed", "status": answer,
            "observedGeneration": count(&tree, "/metadata/generation"),
            "lastTransitionTime": time_text(context.now), "reason": reason, "message": "",
        }),
    );
    let status: Value = json!({
        "observedGeneration": count(&tree, "/metadata/generation"), "disruptionsAllowed": allowed,
        "currentHealthy": healthy, "desiredHealthy": wanted, "expectedPods": expected, "conditions": conditions,
    });
    let mut outcome = Outcome::default();
    if status != tree["status"] {
        tree["status"] = status;
        outcome.update_status(context.key, tree);
    }
    Some(outcome)
}

/// How many pods the top of a pod's owners wants.
fn scale(context: &Context<'_>, owner: Uid) -> Option<(Uid, i64)> {
    let (key, entry) = context.world.by_uid(owner)?;
    if key.resource == REPLICA_SETS
        && let Some(above) = entry.controller().filter(|above| above.resource == Some(DEPLOYMENTS))
    {
        return scale(context, above.uid);
    }
    let tree = context.world.tree(key)?;
    Some((entry.uid, tree["spec"]["replicas"].as_i64()?))
}
