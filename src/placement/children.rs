//! What controllers make of placed objects and that says so itself, with no controller to ask.
//!
//! The endpoints controller gives the Endpoints of a Service the Service's labels, the marker's label among them, and no
//! annotations. So an Endpoints object that has the label is the Service's, and nothing tells in which members there are
//! others: those of one name and label are one object.
//!
//! A ReplicaSet or ControllerRevision whose workload was deleted with `--cascade=orphan` has the copy of the marker still.
//! It stays the object that it was, and so it does in the hands of the next workload of the name: the marker of that one
//! names the placement by whose UID the children are known ([`Marker::adopts`]).
//!
//! Source: kubernetes `pkg/controller/endpoint/endpoints_controller.go` `syncService`, `pkg/controller/controller_ref_manager.go`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    config::MemberName,
    placement::{
        companions::Shares,
        marker::{Marker, placement_uid},
    },
};
use kubefold_wire::{
    matching::ObjectSelector,
    resource::{Gvk, Gvr},
};

/// Whose children are objects of their own, one in each member, that fold as their owner does: Kubernetes names them after
/// the owner and what they hold, and copies its annotations to them.
///
/// Source: kubernetes `pkg/controller/deployment/sync.go` `getNewReplicaSet`; `pkg/controller/statefulset/stateful_set_utils.go`
/// `newRevision`; `pkg/controller/daemon/update.go` `snapshot`.
const CHILDREN: [(&str, &str, &[&str]); 2] =
    [("apps", "replicasets", &["Deployment"]), ("apps", "controllerrevisions", &["StatefulSet", "DaemonSet"])];

/// The kinds, of the same group, whose children objects of that resource may be.
pub fn parents(gvr: &Gvr) -> &'static [&'static str] {
    let children = CHILDREN.iter().find(|(group, resource, _)| *group == &*gvr.group && *resource == &*gvr.resource);
    children.map_or(&[], |(_, _, parents)| parents)
}

/// The resource of a kind's children.
pub fn children(gvk: &Gvk) -> Option<Gvr> {
    let is_parent =
        |(group, _, parents): &&(&str, &str, &[&str])| *group == &*gvk.group && parents.contains(&&*gvk.kind);
    CHILDREN.iter().find(is_parent).map(|(group, resource, _)| Gvr::new(group, "v1", resource))
}

/// Says whether the objects of a resource are revisions of others.
pub fn is_revision(gvr: &Gvr) -> bool {
    &*gvr.group == "apps" && &*gvr.resource == "controllerrevisions"
}

/// Says whether the objects of a resource get the labels of the objects that they are made of.
pub fn are_labelled(gvr: &Gvr) -> bool {
    gvr.group.is_empty() && &*gvr.resource == "endpoints"
}

impl Marker {
    /// The marker of an object of a kind whose objects [`are_labelled`], by its labels. It names its own place alone. Gives the
    /// placement's UID, too.
    pub fn of_labelled(
        labels_json: &str,
        gvk: &Gvk,
        namespace: &str,
        name: &str,
        member: &MemberName,
        cluster_uid: &str,
    ) -> Option<(String, Self)> {
        let of = placement_uid(labels_json)?;
        let placement = Uuid::parse_str(&of).ok()?;
        let uid = Uuid::new_v5(&placement, format!("{}/{}/{name}", gvk.group, gvk.kind).as_bytes()).to_string();
        let members = Arc::new([(member.clone(), cluster_uid.to_owned())]);
        let marker = Self { is_child: true, ..Self::new(uid, gvk, namespace, name, member.clone(), members) };
        Some((of, marker))
    }

    /// Says whether the marker names its own place alone: other parts are known by its UID.
    pub fn is_of_labels(&self) -> bool {
        self.is_child && self.group.is_empty() && self.kind == "Endpoints"
    }

    /// The marker of what has no controller any more, by the copy that it has of the marker of one of these kinds. Its name
    /// is what that one's controller gives. Gives the placement's UID, too.
    pub fn of_orphan(annotations_json: &str, gvk: &Gvk, name: &str, parents: &[&str]) -> Option<(String, Self)> {
        let (uid, marker) = Self::noted(annotations_json)?;
        let is_parent = marker.group == *gvk.group && parents.contains(&marker.kind.as_str());
        let is_its = name.strip_prefix(&marker.name).is_some_and(|rest| rest.starts_with('-'));
        let uid = uid.filter(|_| is_parent && is_its)?;
        let child = marker.child(&uid, gvk, name)?;
        Some((uid, child))
    }
}

/// What earlier workloads of a name left: the next one adopts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// The placement by whose UID they are known.
    pub family: String,
    /// How many replicas of them each member has; 0 of what has none.
    pub shares: Shares,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Orphan {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    labels: Option<Value>,
    #[serde(default)]
    annotations: Option<Value>,
    #[serde(default)]
    owner_references: Vec<Owner>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    #[serde(default)]
    controller: bool,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    replicas: u32,
}

/// What a workload of that kind, name and selector adopts, of the possible children that each member has. Of several families
/// the one with most replicas counts.
pub fn orphans<'a>(
    gvk: &Gvk,
    name: &str,
    selector: &ObjectSelector,
    held: impl Iterator<Item = (&'a MemberName, &'a Value)>,
) -> Option<Orphans> {
    let mut families: Vec<Orphans> = Vec::new();
    for (member, object) in held {
        let Ok(orphan) = Orphan::deserialize(object) else { continue };
        let Some(family) = family(gvk, name, selector, &orphan) else { continue };
        let at = families.iter().position(|known| known.family == family).unwrap_or_else(|| {
            families.push(Orphans { family, shares: Shares::new() });
            families.len() - 1
        });
        if let Some(known) = families.get_mut(at) {
            let share: &mut u32 = known.shares.entry(member.clone()).or_default();
            *share = share.saturating_add(orphan.spec.map_or(0, |spec| spec.replicas));
        }
    }
    // Of equals the first.
    families.into_iter().rev().max_by_key(|family| family.shares.values().map(|share| u64::from(*share)).sum::<u64>())
}

fn family(gvk: &Gvk, name: &str, selector: &ObjectSelector, orphan: &Orphan) -> Option<String> {
    let Metadata { name: own, labels, annotations, owner_references, deletion_timestamp } = &orphan.metadata;
    let is_orphan = deletion_timestamp.is_none() && !owner_references.iter().any(|owner| owner.controller);
    let label = |key: &str| labels.as_ref()?.get(key)?.as_str();
    if !is_orphan || selector.is_empty() || !selector.matches(label) {
        return None;
    }
    let (uid, marker) = Marker::noted(&annotations.as_ref()?.to_string())?;
    let is_its = marker.group == *gvk.group && marker.kind == *gvk.kind && marker.name == name;
    let is_named = own.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    if is_its && is_named { Some(marker.adopts.or(uid)?) } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::placement::marker::MARKER_KEY;

    const FIRST: &str = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455";
    const SECOND: &str = "6f1c2d5e-0b1a-4c3d-8e9f-001122334466";

    fn member(name: &str) -> MemberName {
        MemberName::new(name).unwrap()
    }

    fn deployment() -> Gvk {
        Gvk::new("apps", "v1", "Deployment")
    }

    /// The annotation that a child of `web` has.
    fn copy(uid: &str, adopts: Option<&str>) -> String {
        let adopts = adopts.map(str::to_owned);
        let members: Arc<[_]> = Arc::new([(member("east"), "c-e".into()), (member("west"), "c-w".into())]);
        let marker = Marker::new(uid.into(), &deployment(), "default", "web", member("east"), members);
        let marker = Marker { adopts, ..marker };
        serde_json::from_slice(&marker.annotation_json()).unwrap()
    }

    fn orphan(name: &str, uid: &str, replicas: u32) -> Value {
        json!({"metadata": {"name": name, "labels": {"app": "web"}, "annotations": {MARKER_KEY: copy(uid, None)}},
            "spec": {"replicas": replicas}})
    }

    fn found(held: &[(&str, Value)]) -> Option<(String, Vec<(String, u32)>)> {
        let selector = ObjectSelector::of(&json!({"matchLabels": {"app": "web"}})).unwrap();
        let held: Vec<(MemberName, &Value)> = held.iter().map(|(name, object)| (member(name), object)).collect();
        let held = held.iter().map(|(name, object)| (name, *object));
        let orphans = orphans(&deployment(), "web", &selector, held)?;
        Some((orphans.family, orphans.shares.iter().map(|(name, share)| (name.to_string(), *share)).collect()))
    }

    #[test]
    fn an_orphan_is_known_by_its_copy_and_its_name() {
        let set = Gvk::new("apps", "v1", "ReplicaSet");
        let of = |uid: &str, adopts: Option<&str>, name: &str, parents: &[&str]| {
            let annotations = json!({MARKER_KEY: copy(uid, adopts)}).to_string();
            Marker::of_orphan(&annotations, &set, name, parents).map(|(_, marker)| (marker.uid, marker.name))
        };
        let first = of(FIRST, None, "web-1", &["Deployment"]).unwrap();
        assert_eq!(first.1, "web-1");
        // In the hands of the next one it is the same.
        assert_eq!(of(SECOND, Some(FIRST), "web-1", &["Deployment"]).unwrap(), first);
        assert_ne!(of(SECOND, None, "web-1", &["Deployment"]).unwrap(), first);
        for (name, parents) in [("webb", ["Deployment"]), ("db-1", ["Deployment"]), ("web-1", ["StatefulSet"])] {
            assert_eq!(of(FIRST, None, name, &parents), None, "{name}");
        }
    }

    #[test]
    fn orphans_are_counted_by_member_and_of_families_the_larger() {
        let old = orphan("web-0", FIRST, 0);
        let held = [("east", orphan("web-1", FIRST, 4)), ("west", orphan("web-1", FIRST, 2)), ("west", old.clone())];
        let shares = vec![("east".to_owned(), 4), ("west".to_owned(), 2)];
        assert_eq!(found(&held), Some((FIRST.to_owned(), shares)));
        let two = [("east", old), ("west", orphan("web-1", SECOND, 1))];
        assert_eq!(found(&two).unwrap().0, SECOND);
    }

    #[test]
    fn what_another_one_has_or_would_not_adopt_is_no_orphan_of_it() {
        let mut adopted = orphan("web-1", FIRST, 1);
        adopted["metadata"]["ownerReferences"] = json!([{"controller": true, "kind": "Deployment", "name": "x"}]);
        let mut other = orphan("web-1", FIRST, 1);
        other["metadata"]["labels"]["app"] = json!("db");
        let mut going = orphan("web-1", FIRST, 1);
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut strange = orphan("web-1", FIRST, 1);
        strange["metadata"]["annotations"] = json!({});
        let copied = orphan("db-1", FIRST, 1);
        for one in [adopted, other, going, strange, copied, json!({})] {
            assert_eq!(found(&[("east", one)]), None);
        }
    }
}
