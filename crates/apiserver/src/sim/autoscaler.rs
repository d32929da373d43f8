//! Autoscalers: what they see, without any metrics.

use serde_json::{Value, json};

use std::sync::Arc;

use super::{
    action::Outcome,
    context::Context,
    fields::{count, items, number, set_condition, text, time_text},
    names::{Dice, hash},
    world::Key,
};

/// Looks after an autoscaler: its target's size is kept within its bounds.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    context.world.get(context.key).filter(|entry| !entry.deleting)?;
    let mut tree = context.world.tree(context.key)?;
    let reference = &tree["spec"]["scaleTargetRef"];
    let resource = context.world.resources.of_kind(text(reference, "/apiVersion"), text(reference, "/kind"))?;
    let namespace = Arc::clone(&context.key.namespace);
    let key = Key { resource, namespace, name: text(reference, "/name").into() };
    let mut outcome = Outcome::default();
    let Some(mut target) = context.world.tree(&key) else {
        let message = format!("the HPA controller was unable to get the target's current scale: {}", "not found");
        let condition = told(context, "AbleToScale", "False", "FailedGetScale", &message);
        put(context, &mut tree, json!({}), vec![condition], &mut outcome);
        return Some(outcome);
    };
    let size = count(&target, "/spec/replicas");
    let (least, most) = (number(&tree, "/spec/minReplicas").unwrap_or(1), count(&tree, "/spec/maxReplicas"));
    let wanted = if size == 0 { 0 } else { size.clamp(least.min(most), most) };
    if wanted != size {
        target["spec"]["replicas"] = wanted.into();
        outcome.update(&key, target.clone());
    }
    let current = count(&target, "/status/replicas");
    let metrics: Vec<Value> =
        items(&tree, "/spec/metrics").iter().filter_map(|metric| measured(context, metric)).collect();
    let conditions = vec![
        told(context, "AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
        told(
            context,
            "ScalingActive",
            "True",
            "ValidMetricFound",
            "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)",
        ),
        told(
            context,
            "ScalingLimited",
            "False",
            "DesiredWithinRange",
            "the desired count is within the acceptable range",
        ),
    ];
    let status = json!({"currentReplicas": current, "desiredReplicas": wanted, "currentMetrics": metrics});
    put(context, &mut tree, status, conditions, &mut outcome);
    Some(outcome)
}

/// A measure somewhat below its target.
fn measured(context: &Context<'_>, metric: &Value) -> Option<Value> {
    let target = metric["resource"]["target"]["averageUtilization"].as_i64()?;
    let mut dice = Dice::new(context.settings.seed ^ hash(context.key.name.as_bytes()), "metric");
    let share = target * dice.between(40, 95) / 100;
    let current = json!({"averageUtilization": share, "averageValue": format!("{share}m")});
    Some(json!({"type": "Resource", "resource": {"name": metric["resource"]["name"], "current": current}}))
}

fn told(context: &Context<'_>, kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "lastTransitionTime": time_text(context.now), "reason": reason, "message": message,
    })
}

fn put(context: &Context<'_>, tree: &mut Value, mut status: Value, conditions: Vec<Value>, outcome: &mut Outcome) {
    let mut present = items(tree, "/status/conditions").to_vec();
    conditions.into_iter().for_each(|condition| set_condition(&mut present, condition));
    status["conditions"] = present.into();
    if status != tree["status"] {
        tree["status"] = status;
        outcome.update_status(context.key, tree.clone());
    }
}
