//! The kinds of a cluster, as small numbers.

use std::sync::Arc;

/// A resource of a cluster: a place in [`Resources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Resource(u16);

/// What a resource is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
}

impl Described {
    /// Such as `apps/v1`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

macro_rules! resources {
    ($(($name:ident, $index:literal, $group:literal, $version:literal, $kind:literal, $plural:literal, $namespaced:literal)),* $(,)?) => {
        $(pub(super) const $name: Resource = Resource($index);)*
        const KNOWN: &[(&str, &str, &str, &str, bool)] = &[$(($group, $version, $kind, $plural, $namespaced)),*];
    };
}

resources![
    (NAMESPACES, 0, "", "v1", "Namespace", "namespaces", false),
    (NODES, 1, "", "v1", "Node", "nodes", false),
    (PODS, 2, "", "v1", "Pod", "pods", true),
    (SERVICES, 3, "", "v1", "Service", "services", true),
    (ENDPOINTS, 4, "", "v1", "Endpoints", "endpoints", true),
    (EVENTS, 5, "", "v1", "Event", "events", true),
    (CONFIG_MAPS, 6, "", "v1", "ConfigMap", "configmaps", true),
    (SERVICE_ACCOUNTS, 7, "", "v1", "ServiceAccount", "serviceaccounts", true),
    (CLAIMS, 8, "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    (VOLUMES, 9, "", "v1", "PersistentVolume", "persistentvolumes", false),
    (REPLICATION_CONTROLLERS, 10, "", "v1", "ReplicationController", "replicationcontrollers", true),
    (DEPLOYMENTS, 11, "apps", "v1", "Deployment", "deployments", true),
    (REPLICA_SETS, 12, "apps", "v1", "ReplicaSet", "replicasets", true),
    (STATEFUL_SETS, 13, "apps", "v1", "StatefulSet", "statefulsets", true),
    (DAEMON_SETS, 14, "apps", "v1", "DaemonSet", "daemonsets", true),
    (CONTROLLER_REVISIONS, 15, "apps", "v1", "ControllerRevision", "controllerrevisions", true),
    (JOBS, 16, "batch", "v1", "Job", "jobs", true),
    (CRON_JOBS, 17, "batch", "v1", "CronJob", "cronjobs", true),
    (ENDPOINT_SLICES, 18, "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true),
    (DISRUPTION_BUDGETS, 19, "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    (AUTOSCALERS, 20, "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    (STORAGE_CLASSES, 21, "storage.k8s.io", "v1", "StorageClass", "storageclasses", false),
    (LEASES, 22, "coordination.k8s.io", "v1", "Lease", "leases", true),
];

/// The resources of a cluster.
#[derive(Debug)]
pub(super) struct Resources {
    list: Vec<Arc<Described>>,
}

impl Default for Resources {
    fn default() -> Self {
        let known = KNOWN.iter().map(|(group, version, kind, plural, namespaced)| {
            Arc::new(Described {
                group: (*group).to_owned(),
                version: (*version).to_owned(),
                kind: (*kind).to_owned(),
                plural: (*plural).to_owned(),
                namespaced: *namespaced,
            })
        });
        Self { list: known.collect() }
    }
}

impl Resources {
    /// The resource of a group and plural.
    pub(super) fn find(&self, group: &str, plural: &str) -> Option<Resource> {
        self.position(|described| described.group == group && described.plural == plural)
    }

    /// The resource that a reference names by its `apiVersion` and `kind`.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<Resource> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.position(|described| described.kind == kind && described.group == group)
    }

    /// Adds a resource that is not known yet.
    pub(super) fn learn(&mut self, described: Described) -> Resource {
        self.find(&described.group, &described.plural).unwrap_or_else(|| {
            self.list.push(Arc::new(described));
            Resource(u16::try_from(self.list.len() - 1).unwrap_or(u16::MAX))
        })
    }

    /// What it is called.
    pub(super) fn describe(&self, resource: Resource) -> Option<&Arc<Described>> {
        self.list.get(usize::from(resource.0))
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = (Resource, &Arc<Described>)> {
        (0..).map(Resource).zip(&self.list)
    }

    fn position(&self, is: impl Fn(&Described) -> bool) -> Option<Resource> {
        let place = self.list.iter().position(|described| is(described))?;
        u16::try_from(place).ok().map(Resource)
    }
}
