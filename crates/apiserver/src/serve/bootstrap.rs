//! What a new server begins with: the built-in kinds, and the objects that a kube-apiserver makes by itself.

use std::{net::Ipv4Addr, sync::Arc};

use serde_json::{Value, json};

use crate::{
    kinds::{self, Allocator, Kind},
    registry::{Env, ListOptions, Registry, WriteOptions},
    schema::builtin,
    serve::review,
    storage::Storage,
};
use kubefold_wire::status::{Reason, Status};

/// The namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// Where the addresses of services are.
const SERVICES: (Ipv4Addr, u32) = (Ipv4Addr::new(10, 96, 0, 0), 16);

/// The first of them is that of the service `kubernetes`.
const KUBERNETES: &str = "10.96.0.1";

/// All built-in kinds, those of questions (reviews) included.
pub fn built_in_kinds() -> Vec<Kind> {
    let types = builtin();
    kinds::built_in(&types).into_iter().chain(review::kinds(&types)).collect()
}

/// A registry of all built-in kinds over a storage.
pub fn built_in(storage: Arc<dyn Storage>, env: Env) -> Registry {
    registry_of(storage, env, built_in_kinds())
}

/// A registry of some kinds over a storage. Where a group has a kind in several versions, the first is preferred.
pub fn registry_of(storage: Arc<dyn Storage>, env: Env, kinds: impl IntoIterator<Item = Kind>) -> Registry {
    Registry::new(storage, env, Allocator::new(SERVICES.0, SERVICES.1), kinds.into_iter().map(Arc::new))
}

/// Makes the namespaces and the service `kubernetes`, where they are not there. What services have that are there is
/// given out no more.
///
/// Errors: the storage does not answer.
pub async fn bootstrap(registry: &Registry) -> Result<(), Status> {
    if let Some(services) = registry.kind("", "Service") {
        let there = registry.list(&services, "", &ListOptions::default()).await?;
        there.objects.iter().for_each(|service| kinds::hold(&service.value(), registry.allocator()));
    }
    for name in NAMESPACES {
        make(registry, "Namespace", "", json!({"metadata": {"name": name}})).await?;
    }
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": KUBERNETES, "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]},
    });
    make(registry, "Service", "default", service).await
}

async fn make(registry: &Registry, kind: &str, namespace: &str, object: Value) -> Result<(), Status> {
    let Some(kind) = registry.kind("", kind) else { return Ok(()) };
    // A service that is there would be refused for its own address.
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if registry.get(&kind, namespace, name).await.is_ok() {
        return Ok(());
    }
    let write = WriteOptions { manager: "kube-apiserver".into(), ..WriteOptions::default() };
    match registry.create(&kind, namespace, object, &write).await {
        Err(status) if status.reason != Reason::AlreadyExists => Err(status),
        _ => Ok(()),
    }
}
