//! Claims, bound to volumes that a provisioner makes up.
//!
//! Source: kubernetes `pkg/controller/volume/persistentvolume/`, kubernetes-csi/external-provisioner.

use serde_json::{Value, json};

use super::{
    action::{Event, Outcome},
    context::Context,
    fields::{annotate, annotation, items, text},
    release::without_finalizer,
    resource::{CLAIMS, STORAGE_CLASSES, VOLUMES},
    world::Key,
};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BY: &str = "persistentvolume-controller";
const BOUND: &str = "pv.kubernetes.io/bind-completed";

/// Looks after a claim.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    if entry.deleting {
        return unprotect(context, "kubernetes.io/pvc-protection", is_used(context));
    }
    let mut tree = context.world.tree(context.key)?;
    let mut outcome = Outcome::default();
    if text(&tree, "/status/phase") == "Bound" {
        return None;
    }
    let uid = text(&tree, "/metadata/uid").to_owned();
    let name = match text(&tree, "/spec/volumeName") {
        "" => format!("pvc-{uid}"),
        name => name.to_owned(),
    };
    let key = Key { resource: VOLUMES, namespace: "".into(), name: name.as_str().into() };
    let Some(class) = class(context, &tree) else {
        let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
        if text(&tree, "/spec/storageClassName").is_empty() && text(&tree, "/spec/volumeName").is_empty() {
            outcome.tell(Event::normal(context.key, BY, "FailedBinding", message));
        } else {
            let class = text(&tree, "/spec/storageClassName");
            let message = format!("storageclass.storage.k8s.io \"{class}\" not found");
            outcome.tell(Event::warning(context.key, BY, "ProvisioningFailed", message));
        }
        return Some(outcome);
    };
    if tree["spec"]["volumeName"].is_null() {
        let provisioner = text(&class, "/provisioner");
        annotate(&mut tree, BOUND, "yes");
        annotate(&mut tree, "pv.kubernetes.io/bound-by-controller", "yes");
        annotate(&mut tree, "volume.beta.kubernetes.io/storage-provisioner", provisioner);
        annotate(&mut tree, "volume.kubernetes.io/storage-provisioner", provisioner);
        if context.world.get(&key).is_none() {
            outcome.create(VOLUMES, &key.namespace, volume(&tree, &class, &name));
            let message = format!("Successfully provisioned volume {name}");
            let by = "kubefold.io/provisioner";
            outcome.tell(Event::normal(context.key, by, "ProvisioningSucceeded", message));
        }
        tree["spec"]["volumeName"] = name.into();
        if text(&tree, "/spec/storageClassName").is_empty() {
            tree["spec"]["storageClassName"] = class["metadata"]["name"].clone();
        }
        outcome.update(context.key, tree);
        return Some(outcome);
    }
    let Some(mut volume) = context.world.tree(&key) else { return Some(outcome) };
    if annotation(&tree, BOUND) == "yes" || volume["spec"]["claimRef"]["uid"] == uid {
        if text(&volume, "/status/phase") != "Bound" {
            volume["status"] = json!({"phase": "Bound"});
            outcome.update_status(&key, volume.clone());
        }
        tree["status"] = json!({
            "phase": "Bound",
            "accessModes": tree["spec"]["accessModes"],
            "capacity": {"storage": volume["spec"]["capacity"]["storage"]},
        });
        outcome.update_status(context.key, tree);
    } else if volume["spec"]["claimRef"].is_null() {
        volume["spec"]["claimRef"] = reference(context.key, &tree);
        outcome.update(&key, volume);
    }
    Some(outcome)
}

/// The storage class of a claim: its own, or the one for all.
fn class(context: &Context<'_>, claim: &Value) -> Option<Value> {
    let mut classes = context.world.all(STORAGE_CLASSES).filter_map(|(key, _)| context.world.tree(key));
    match claim["spec"]["storageClassName"].as_str() {
        Some(name) => classes.find(|class| class["metadata"]["name"] == name),
        None => classes.find(|class| annotation(class, DEFAULT_CLASS) == "true"),
    }
}

fn reference(key: &Key, claim: &Value) -> Value {
    json!({
        "kind": "PersistentVolumeClaim", "namespace": *key.namespace, "name": *key.name,
        "uid": claim["metadata"]["uid"], "apiVersion": "v1",
    })
}

/// A volume for a claim.
pub(super) fn volume(claim: &Value, class: &Value, name: &str) -> Value {
    let mode = claim["spec"]["volumeMode"].as_str().unwrap_or("Filesystem");
    let policy = class["reclaimPolicy"].as_str().unwrap_or("Delete");
    let provisioner = text(class, "/provisioner");
    json!({
        "kind": "PersistentVolume", "apiVersion": "v1",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": provisioner}},
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "csi": {"driver": provisioner, "volumeHandle": name},
            "accessModes": claim["spec"]["accessModes"],
            "claimRef": {
                "kind": "PersistentVolumeClaim", "namespace": claim["metadata"]["namespace"],
                "name": claim["metadata"]["name"], "uid": claim["metadata"]["uid"], "apiVersion": "v1",
            },
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class["metadata"]["name"],
            "volumeMode": mode,
        },
    })
}

/// Says whether a pod that has not ended uses the claim.
fn is_used(context: &Context<'_>) -> bool {
    let name = format!("\"claimName\":\"{}\"", context.key.name);
    context
        .world
        .pods_in(&context.key.namespace)
        .any(|(_, entry, pod)| !pod.finished() && memchr::memmem::find(&entry.body, name.as_bytes()).is_some())
}

/// Lets it go when nobody uses it.
fn unprotect(context: &Context<'_>, finalizer: &str, used: bool) -> Option<Outcome> {
    let tree = context.world.tree(context.key)?;
    if used || !items(&tree, "/metadata/finalizers").iter().any(|present| present == finalizer) {
        return None;
    }
    let mut outcome = Outcome::default();
    outcome.update(context.key, without_finalizer(tree, finalizer));
    Some(outcome)
}

/// The volumes of a claim that is gone, as its class wants it.
pub(super) fn release(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    if entry.deleting {
        return unprotect(context, "kubernetes.io/pv-protection", false);
    }
    let mut tree = context.world.tree(context.key)?;
    let reference = &tree["spec"]["claimRef"];
    let namespace = text(reference, "/namespace").into();
    let claim = Key { resource: CLAIMS, namespace, name: text(reference, "/name").into() };
    let uid = super::view::Uid::of(text(reference, "/uid"));
    if reference["uid"].is_null() || context.world.get(&claim).is_some_and(|claim| claim.uid == uid) {
        return None;
    }
    let mut outcome = Outcome::default();
    if text(&tree, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
        outcome.delete(context.key, entry.uid, None);
    } else if text(&tree, "/status/phase") != "Released" {
        tree["status"] = json!({"phase": "Released"});
        outcome.update_status(context.key, tree);
    }
    Some(outcome)
}
