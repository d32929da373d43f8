//! What stands in the members.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    config::MemberName,
    member::call::Call,
    placement::marker::Marker,
    write::{
        fleet::Key,
        tests::scripted::{Cluster, Scripted, World},
    },
};
use kubefold_wire::status::Status;

pub(in crate::write::tests) fn member(name: &str) -> MemberName {
    MemberName::new(name).unwrap()
}

impl Scripted {
    /// The fleet's parts of `name`: member and replicas.
    pub(in crate::write::tests) fn standing(&self, name: &str) -> Vec<(String, u64)> {
        let mut world = self.world.lock();
        world.land();
        let at = |(member, cluster): (&MemberName, &Cluster)| {
            let object = cluster.objects.get(name)?;
            Some((member.to_string(), object["spec"]["replicas"].as_u64().unwrap_or_default()))
        };
        world.members.iter().filter_map(at).collect()
    }
}

impl World {
    /// Which members hold an object that has no marker.
    pub(super) fn holders(&self, key: &Key) -> Vec<(MemberName, Value)> {
        let held = self.members.iter().filter_map(|(name, cluster)| Some((name, cluster.objects.get(&key.name)?)));
        held.map(|(name, object)| (name.clone(), object.clone())).collect()
    }

    /// `/scale` shows and sets replicas, `/eviction` deletes.
    pub(super) fn serve_subresource(
        &mut self,
        member: &MemberName,
        call: &Call,
        name: &str,
        subresource: &str,
        dry: bool,
    ) -> (StatusCode, Bytes) {
        let cluster = self.members.get_mut(member).unwrap();
        let Some(object) = cluster.objects.get(name) else {
            let status = Status::not_found("apps", "deployments", name);
            return (status.code, status.to_json());
        };
        let object = object.clone();
        if subresource == "eviction" {
            if !dry {
                cluster.objects.remove(name);
            }
            return (StatusCode::CREATED, Bytes::from(json!({"kind": "Status", "status": "Success"}).to_string()));
        }
        self.rescale(member, call, name, &object, dry)
    }

    /// While something moves, what runs is available at once.
    pub(super) fn as_available(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if self.is_available || !self.moved.is_empty() {
            let (replicas, generation) = (&object["spec"]["replicas"], &object["metadata"]["generation"]);
            object["status"] = json!({"replicas": replicas, "updatedReplicas": replicas,
                "availableReplicas": replicas, "observedGeneration": generation});
        }
        object
    }

    /// How many pods the quotas in a member allow, by their spec.
    pub(in crate::write::tests) fn allowed(&self) -> Vec<(String, u64)> {
        let pods = |object: &Value| object["spec"]["hard"]["pods"].as_str().map_or(0, |pods| pods.parse().unwrap());
        let of = |cluster: &Cluster| cluster.objects.values().map(pods).sum();
        self.members.iter().map(|(name, cluster)| (name.to_string(), of(cluster))).collect()
    }

    /// Notes how few replicas there have been of all that stands, and how many pods the quotas have allowed.
    pub(super) fn count(&mut self) {
        self.most_allowed = self.most_allowed.max(self.allowed().iter().map(|(_, pods)| pods).sum());
        let replicas = |object: &Value| object["spec"]["replicas"].as_u64().unwrap_or_default();
        let now = self.members.values().flat_map(|cluster| cluster.objects.values()).map(replicas).sum();
        self.fewest = self.fewest.min(now);
    }

    pub(super) fn marked(&self, key: &Key) -> Vec<(Marker, MemberName, Value)> {
        let mut parts = Vec::new();
        for (member, cluster) in &self.members {
            let Some(object) = cluster.objects.get(&key.name) else { continue };
            let text =
                |field: &str| object["metadata"][field].is_object().then(|| object["metadata"][field].to_string());
            let Some(marker) = Marker::read(text("labels").as_deref(), text("annotations").as_deref()) else {
                continue;
            };
            let kind = (&*key.gvk.group, &*key.gvk.kind);
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            let marker = match self.moved.get(&marker.uid) {
                Some(moved) => moved.judge(marker, &cluster.uid, uid),
                None => Some(marker),
            };
            let Some(marker) = marker else { continue };
            if marker.belongs_to(kind.0, kind.1, &key.namespace, &key.name, member, &cluster.uid) {
                parts.push((marker, member.clone(), self.as_available(object)));
            }
        }
        parts.sort_by_key(|(marker, member, _)| marker.members.iter().position(|(name, _)| name == member));
        parts
    }
}
