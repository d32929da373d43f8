//! The names of Kubernetes' access control.

/// The group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// Whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The roles and bindings, as plurals.
pub const RESOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

pub(super) const ROLE: &str = "Role";
pub(super) const CLUSTER_ROLE: &str = "ClusterRole";
