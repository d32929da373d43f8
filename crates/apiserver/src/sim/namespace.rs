//! Namespaces: what each has while it lives, and its end.
//!
//! Source: kubernetes `pkg/controller/namespace/deletion/`, `pkg/controller/serviceaccount/`,
//! `pkg/controller/certificates/rootcacertpublisher/`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    action::Outcome,
    context::Context,
    fields::{condition, items, time_text},
    resource::{CONFIG_MAPS, Described, PODS, SERVICE_ACCOUNTS},
    world::Key,
};
use crate::kinds::put;

/// The finalizer of namespaces, in their `spec`.
const FINALIZER: &str = "kubernetes";

/// What every namespace has: its certificate authority.
pub(super) const ROOT_CA_NAME: &str = "kube-root-ca.crt";
/// What stands on every `kube-root-ca.crt`.
const ROOT_CA_WORDS: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                             endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                             guaranteed across distributions of Kubernetes clusters.";

/// Looks after a namespace.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let mut outcome = Outcome::default();
    if entry.deleting {
        end(context, &mut outcome)?;
        return Some(outcome);
    }
    let namespace = &context.key.name;
    let key = |resource, name: &str| Key { resource, namespace: namespace.clone(), name: name.into() };
    if context.settings.accounts && context.world.get(&key(SERVICE_ACCOUNTS, "default")).is_none() {
        outcome.create(SERVICE_ACCOUNTS, namespace, service_account(namespace, "default"));
    }
    if let Some(authority) = &context.settings.root_ca {
        let key = key(CONFIG_MAPS, ROOT_CA_NAME);
        match context.world.tree(&key) {
            None => outcome.create(CONFIG_MAPS, namespace, root_ca(namespace, authority)),
            Some(mut present) => {
                let data = json!({"ca.crt": &**authority});
                if present["data"] != data {
                    put(&mut present, "data", Some(data));
                    outcome.update(&key, present);
                }
            }
        }
    }
    Some(outcome)
}

/// A service account.
pub(super) fn service_account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace}})
}

/// The config map with the certificate authority.
pub(super) fn root_ca(namespace: &str, authority: &str) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {
            "name": ROOT_CA_NAME, "namespace": namespace,
            "annotations": {"kubernetes.io/description": ROOT_CA_WORDS},
        },
        "data": {"ca.crt": authority},
    })
}

fn end(context: &Context<'_>, outcome: &mut Outcome) -> Option<()> {
    let mut tree = context.world.tree(context.key)?;
    if !items(&tree, "/spec/finalizers").iter().any(|finalizer| finalizer == FINALIZER) {
        return None;
    }
    let content = context.world.content(&context.key.name);
    if content.is_empty() {
        if set_conditions(&mut tree, context, &[]) {
            outcome.update_status(context.key, tree);
            return Some(());
        }
        if let Some(finalizers) = tree["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        outcome.update_part(context.key, "finalize", tree);
        return Some(());
    }
    let mut fresh = content.iter().filter(|(_, entry)| !entry.deleting).peekable();
    if fresh.peek().is_some() {
        for (key, entry) in fresh {
            outcome.delete(key, entry.uid, Some("Background"));
        }
        // What is gone at once is not worth telling of.
        outcome.again(context.now);
        return Some(());
    }
    if set_conditions(&mut tree, context, &content.iter().map(|(key, _)| *key).collect::<Vec<_>>()) {
        outcome.update_status(context.key, tree);
    }
    Some(())
}

/// Says what remains. Answers whether that is new.
fn set_conditions(tree: &mut Value, context: &Context<'_>, content: &[&Key]) -> bool {
    let conditions = conditions(context, content);
    let present = items(tree, "/status/conditions");
    let says = |condition: &Value| (condition["status"].clone(), condition["message"].clone());
    let is_new = conditions
        .iter()
        .any(|wanted| condition(present, wanted["type"].as_str().unwrap_or_default()).map(says) != Some(says(wanted)));
    if is_new {
        let kept = conditions.into_iter().map(|mut wanted| {
            let before = condition(present, wanted["type"].as_str().unwrap_or_default());
            if let Some(before) = before.filter(|before| before["status"] == wanted["status"]) {
                wanted["lastTransitionTime"] = before["lastTransitionTime"].clone();
            }
            wanted
        });
        let kept: Vec<Value> = kept.collect();
        tree["status"]["conditions"] = kept.into();
    }
    is_new
}

/// What is to be said of what remains.
fn conditions(context: &Context<'_>, content: &[&Key]) -> Vec<Value> {
    let (mut kinds, mut finalizers) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
    for key in content {
        if let Some(Described { group, plural, .. }) = context.world.resources.describe(key.resource).map(AsRef::as_ref)
        {
            *kinds.entry(format!("{plural}.{group}")).or_default() += 1;
        }
        let held = context.world.tree(key).filter(|_| key.resource != PODS);
        for finalizer in held.iter().flat_map(|tree| items(tree, "/metadata/finalizers")) {
            *finalizers.entry(finalizer.as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    let list = |counts: &BTreeMap<String, usize>, words: &str| {
        let texts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {words} {count}")).collect();
        texts.join(", ")
    };
    let of_kinds = format!("Some resources are remaining: {} resource instances", {
        list(&kinds, "has").replace(", ", " resource instances, ")
    });
    let of_finalizers = format!("Some content in the namespace has finalizers remaining: {} resource instances", {
        list(&finalizers, "in").replace(", ", " resource instances, ")
    });
    let told = |kind: &str, is_true: bool, reason: &str, message: &str| {
        let status = if is_true { "True" } else { "False" };
        json!({
            "type": kind, "status": status, "lastTransitionTime": time_text(context.now), "reason": reason, "message": message
        })
    };
    vec![
        told(
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        told(
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        told(
            "NamespaceDeletionContentFailure",
            false,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        if kinds.is_empty() {
            told("NamespaceContentRemaining", false, "ContentRemoved", "All content successfully removed")
        } else {
            told("NamespaceContentRemaining", true, "SomeResourcesRemain", &of_kinds)
        },
        if finalizers.is_empty() {
            told(
                "NamespaceFinalizersRemaining",
                false,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            )
        } else {
            told("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", &of_finalizers)
        },
    ]
}
