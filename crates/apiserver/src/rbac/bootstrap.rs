//! The roles and bindings that every cluster has: made where they are not there, and completed where something of them is
//! gone. What was added to them stays, and one with the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"`
//! is left alone.
//!
//! `bootstrap.json` is what a kube-apiserver 1.36 makes, without what is for Kubernetes' own controllers, nodes and add-ons.
//!
//! Source: kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`,
//! `staging/src/k8s.io/component-helpers/auth/rbac/reconciliation/`.

use serde_json::{Map, Value};

use crate::{
    kinds::{Kind, put},
    rbac::{
        authorizer::RbacError,
        names::GROUP,
        rule::{Rule, uncovered},
    },
    registry::{DeleteOptions, Registry, WriteOptions},
};
use kubefold_wire::{
    access::{items, text},
    matching::nullable,
    status::{Reason, Status},
};

/// As whom they are written.
const MANAGER: &str = "kube-apiserver";
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The objects, as a client would create them.
pub(super) fn objects() -> Vec<Value> {
    // A test reads them.
    serde_json::from_str(include_str!("bootstrap.json")).unwrap_or_default()
}

/// Makes and completes them.
///
/// Errors: the storage does not answer.
pub(super) async fn reconcile(registry: &Registry) -> Result<(), RbacError> {
    for object in objects() {
        let plural = match text(&object, "/kind") {
            "ClusterRole" => "clusterroles",
            _ => "clusterrolebindings",
        };
        let kind = registry.resource(GROUP, "v1", plural).ok_or(RbacError::NoKind(plural))?;
        Box::pin(reconcile_one(registry, &kind, object)).await?;
    }
    Ok(())
}

async fn reconcile_one(registry: &Registry, kind: &Kind, wanted: Value) -> Result<(), Status> {
    let options = WriteOptions { manager: MANAGER.into(), ..WriteOptions::default() };
    let name = text(&wanted, "/metadata/name");
    match registry.get(kind, "", name).await {
        Err(status) if status.reason == Reason::NotFound => {}
        Err(status) => return Err(status),
        Ok(there) if binds_another(&there.value(), &wanted) => {
            registry.delete(kind, "", name, &DeleteOptions::default()).await?;
        }
        Ok(_) => {
            let complete = |there: &mut Value| {
                complete(there, &wanted);
                Ok(())
            };
            registry.modify(kind, "", name, &options, complete).await?;
            return Ok(());
        }
    }
    registry.create(kind, "", wanted, &options).await.map(drop)
}

fn is_protected(there: &Value) -> bool {
    let annotations = there.pointer("/metadata/annotations");
    annotations.and_then(|all| all.get(AUTOUPDATE)).and_then(Value::as_str) == Some("false")
}

/// Says whether a binding is to be made anew: its role cannot be changed.
fn binds_another(there: &Value, wanted: &Value) -> bool {
    !is_protected(there) && there.get("roleRef") != wanted.get("roleRef")
}

/// Adds what is not there.
fn complete(there: &mut Value, wanted: &Value) {
    if is_protected(there) {
        return;
    }
    for field in ["labels", "annotations"] {
        let wanted = wanted.pointer(&format!("/metadata/{field}")).and_then(Value::as_object);
        let mut all =
            there.pointer(&format!("/metadata/{field}")).and_then(Value::as_object).cloned().unwrap_or_default();
        add(&mut all, wanted.into_iter().flatten());
        if let (false, Some(metadata)) = (all.is_empty(), there.get_mut("metadata")) {
            put(metadata, field, Some(all.into()));
        }
    }
    extend(there, "/subjects", items(wanted, "/subjects"));
    let selectors = items(wanted, "/aggregationRule/clusterRoleSelectors");
    if selectors.is_empty() {
        let held = rules(there);
        let missing = uncovered(&held, &rules(wanted)).unwrap_or_default();
        let missing: Vec<Value> = missing.iter().filter_map(|rule| serde_json::to_value(rule).ok()).collect();
        extend(there, "/rules", &missing);
    } else if items(there, "/aggregationRule/clusterRoleSelectors").is_empty() {
        put(there, "aggregationRule", wanted.get("aggregationRule").cloned());
    } else {
        extend(there, "/aggregationRule/clusterRoleSelectors", selectors);
    }
}

fn add<'a>(there: &mut Map<String, Value>, wanted: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (key, value) in wanted {
        there.entry(key).or_insert_with(|| value.clone());
    }
}

/// Adds what a list does not have.
fn extend(object: &mut Value, pointer: &str, wanted: &[Value]) {
    let mut all = items(object, pointer).to_vec();
    let before = all.len();
    for one in wanted {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    if all.len() == before {
        return;
    }
    let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(parent) = object.pointer_mut(parent) {
        put(parent, field, Some(all.into()));
    }
}

fn rules(role: &Value) -> Vec<Rule> {
    role.get("rules").and_then(|rules| nullable(rules).ok()).unwrap_or_default()
}
