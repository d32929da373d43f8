//! Disruption budgets: how many pods may be evicted now.
//!
//! Source: kubernetes `pkg/controller/disruption/disruption.go`.

use hashbrown::HashMap;
use serde_json::{Value, json};

use super::{
    action::Outcome,
    fields::{count, items, set_condition, share, stamp},
    machine::Sight,
    resource::{DEPLOYMENTS, REPLICA_SETS},
    view::{Uid, selects},
};

/// Looks after a budget.
pub(super) fn look(sight: &Sight<'_>) -> Option<Outcome> {
    sight.world.get(sight.key).filter(|entry| !entry.deleting)?;
    let mut tree = sight.world.tree(sight.key)?;
    let selector = tree["spec"]["selector"].clone();
    let pods = sight
        .world
        .pods_in(&sight.key.namespace)
        .filter(|(_, entry, pod)| !pod.finished() && !selector.is_null() && selects(&selector, &entry.labels));
    let (mut healthy, mut total, mut owners) = (0_i64, 0_i64, HashMap::<Uid, i64>::new());
    for (_, entry, pod) in pods {
        total += 1;
        healthy += i64::from(pod.ready && !entry.deleting);
        if let Some((uid, scale)) = entry.controller().and_then(|controller| scale(sight, controller.uid)) {
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
            "lastTransitionTime": stamp(sight.now), "reason": reason, "message": "",
        }),
    );
    let status: Value = json!({
        "observedGeneration": count(&tree, "/metadata/generation"), "disruptionsAllowed": allowed,
        "currentHealthy": healthy, "desiredHealthy": wanted, "expectedPods": expected, "conditions": conditions,
    });
    let mut outcome = Outcome::default();
    if status != tree["status"] {
        tree["status"] = status;
        outcome.update_status(sight.key, tree);
    }
    Some(outcome)
}

/// How many pods the top of a pod's owners wants.
fn scale(sight: &Sight<'_>, owner: Uid) -> Option<(Uid, i64)> {
    let (key, entry) = sight.world.by_uid(owner)?;
    if key.resource == REPLICA_SETS
        && let Some(above) = entry.controller().filter(|above| above.resource == Some(DEPLOYMENTS))
    {
        return scale(sight, above.uid);
    }
    let tree = sight.world.tree(key)?;
    Some((entry.uid, tree["spec"]["replicas"].as_i64()?))
}
