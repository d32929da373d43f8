//! The kinds that the workload uses: one of each strategy.

/// A kind of objects in namespaces.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
}

/// A part in every member.
pub(crate) static CONFIG_MAPS: Kind = Kind { group: "", version: "v1", plural: "configmaps", kind: "ConfigMap" };
/// A part in every member, as its replicas are divided.
pub(crate) static DEPLOYMENTS: Kind = Kind { group: "apps", version: "v1", plural: "deployments", kind: "Deployment" };
/// In one member.
pub(crate) static LEASES: Kind = Kind { group: "coordination.k8s.io", version: "v1", plural: "leases", kind: "Lease" };

/// All of them.
pub(crate) static KINDS: [&Kind; 3] = [&CONFIG_MAPS, &DEPLOYMENTS, &LEASES];

impl Kind {
    /// Such as `/apis/apps/v1`.
    fn prefix(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// The collection of a namespace; of all where it is empty.
    pub(crate) fn path(&self, namespace: &str) -> String {
        match namespace {
            "" => format!("{}/{}", self.prefix(), self.plural),
            _ => format!("{}/namespaces/{namespace}/{}", self.prefix(), self.plural),
        }
    }

    /// One object. An `@` in its name is sent as browsers and client-go send it.
    pub(crate) fn object_path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(namespace), name.replace('@', "%40"))
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        (self.group, self.plural) == (other.group, other.plural)
    }
}

impl Eq for Kind {}
