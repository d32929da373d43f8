//! What fields become that nobody set, by the type of what they are in.
//!
//! Source: kubernetes `pkg/apis/*/v1/defaults.go` and `zz_generated.defaults.go`; apiextensions-apiserver
//! `pkg/apis/apiextensions/v1/defaults.go`.

mod core;
mod workload;

use serde_json::{Map, Value, json};

use super::doc::{Doc, fill, fill_empty, inner, items_mut};
use crate::schema::{GoKind, Type, visit};
use kubefold_wire::quantity::Quantity;

/// Fills in a whole object of a type that is in its form.
pub(super) fn apply(typed: Type<'_>, object: &mut Value) {
    visit(typed, object, &mut |typed, value| {
        round_resource_lists(typed, value);
        let Some((group, name)) = typed.name().and_then(|name| name.rsplit_once('.')) else { return };
        match group {
            "io.k8s.api.core.v1" => core::apply(name, value),
            "io.k8s.api.apps.v1" | "io.k8s.api.batch.v1" => workload::apply(name, value),
            "io.k8s.api.autoscaling.v1" | "io.k8s.api.autoscaling.v2" => autoscaling(group, name, value),
            "io.k8s.api.admissionregistration.v1" => admission(name, value),
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1" => definition(name, value),
            _ => others(name, value),
        }
    });
}

/// Amounts of resources are no finer than a thousandth. Source: `SetDefaults_ResourceList`.
fn round_resource_lists(typed: Type<'_>, value: &mut Value) {
    let Some(object) = value.as_object_mut() else { return };
    let is_quantity = |values: Type<'_>| values.go().is_some_and(|go| go.kind == GoKind::Quantity);
    for (field, _) in typed.fields().filter(|(_, typed)| typed.values().is_some_and(is_quantity)) {
        let amounts = object.get_mut(&field.name).and_then(Value::as_object_mut);
        for amount in amounts.into_iter().flat_map(Map::values_mut) {
            if let Some(quantity) = amount.as_str().and_then(|text| Quantity::parse(text).ok()) {
                *amount = quantity.rounded_to_milli().to_string().into();
            }
        }
    }
}

fn others(name: &str, value: &mut Value) {
    match name {
        "NetworkPolicyPort" => fill(value, "protocol", "TCP"),
        "NetworkPolicySpec" if value.items("policyTypes").is_empty() => {
            let egress = !value.items("egress").is_empty();
            let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            fill_empty(value, "policyTypes", types);
        }
        "IngressClassParametersReference" => fill(value, "scope", "Cluster"),
        "RoleRef" => fill_empty(value, "apiGroup", "rbac.authorization.k8s.io"),
        "Subject" if matches!(value.text("kind"), "User" | "Group") => {
            fill_empty(value, "apiGroup", "rbac.authorization.k8s.io");
        }
        "StorageClass" => {
            fill(value, "reclaimPolicy", "Delete");
            fill(value, "volumeBindingMode", "Immediate");
        }
        "CSIDriverSpec" => {
            fill(value, "attachRequired", true);
            for off in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
                fill(value, off, false);
            }
            fill(value, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            fill_empty(value, "volumeLifecycleModes", json!(["Persistent"]));
        }
        "EndpointPort" => {
            fill(value, "name", "");
            fill(value, "protocol", "TCP");
        }
        "PriorityClass" => fill(value, "preemptionPolicy", "PreemptLowerPriority"),
        "ServiceReference" => fill(value, "port", 443),
        _ => {}
    }
}

fn admission(name: &str, value: &mut Value) {
    match name {
        "ValidatingWebhook" | "MutatingWebhook" => {
            fill(value, "failurePolicy", "Fail");
            fill(value, "matchPolicy", "Equivalent");
            fill(value, "namespaceSelector", json!({}));
            fill(value, "objectSelector", json!({}));
            fill(value, "timeoutSeconds", 10);
            if name == "MutatingWebhook" {
                fill(value, "reinvocationPolicy", "Never");
            }
        }
        "RuleWithOperations" | "NamedRuleWithOperations" => fill(value, "scope", "*"),
        "ServiceReference" => fill(value, "port", 443),
        "ValidatingAdmissionPolicySpec" | "MutatingAdmissionPolicySpec" => fill(value, "failurePolicy", "Fail"),
        "MatchResources" => {
            fill(value, "matchPolicy", "Equivalent");
            fill(value, "namespaceSelector", json!({}));
            fill(value, "objectSelector", json!({}));
        }
        _ => {}
    }
}

fn definition(name: &str, value: &mut Value) {
    match name {
        "CustomResourceDefinition" => {
            if let Some(spec) = inner(value, "spec") {
                fill(spec, "conversion", json!({"strategy": "None"}));
                if let Some(names) = inner(spec, "names") {
                    let kind = names.text("kind").to_owned();
                    fill_empty(names, "singular", kind.to_lowercase());
                    if !kind.is_empty() {
                        fill_empty(names, "listKind", format!("{kind}List"));
                    }
                }
            }
            let stored = value.items("spec.versions").iter().find(|version| version.truth("storage"));
            let stored = stored.map(|version| version.text("name").to_owned());
            if let (Some(stored), Some(status)) = (stored, inner(value, "status")) {
                fill_empty(status, "storedVersions", json!([stored]));
            }
        }
        "ServiceReference" => fill(value, "port", 443),
        _ => {}
    }
}

fn autoscaling(group: &str, name: &str, value: &mut Value) {
    match name {
        "HorizontalPodAutoscalerSpec" => {
            fill(value, "minReplicas", 1);
            if group.ends_with("v2") {
                let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}});
                fill_empty(value, "metrics", json!([{"type": "Resource", "resource": cpu}]));
            }
        }
        "HorizontalPodAutoscalerBehavior" => {
            for direction in ["scaleUp", "scaleDown"] {
                let Some(rules) = inner(value, direction) else { continue };
                fill(rules, "selectPolicy", "Max");
                if direction == "scaleUp" {
                    fill(rules, "stabilizationWindowSeconds", 0);
                }
                let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
                let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
                let policies = if direction == "scaleUp" { json!([pods, percent]) } else { json!([percent]) };
                fill(rules, "policies", policies);
            }
        }
        _ => {}
    }
}
