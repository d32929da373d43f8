//! What kubefold's credentials are for in a member: the rules of `deploy/member-rbac.yaml`, as questions.

use std::fmt;

use serde_json::{Value, json};

/// One thing to do in a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A verb on a group's resource.
    Resource(&'static str, &'static str, &'static str),
    /// A verb on a subresource of the core group.
    Subresource(&'static str, &'static str, &'static str),
    /// A verb on one object of the core group.
    Named(&'static str, &'static str, &'static str),
    /// A `get` of a path.
    Path(&'static str),
}

/// All that kubefold does as itself.
pub(super) const OF_READER: &[Need] = &[
    Need::Resource("list", "*", "*"),
    Need::Resource("watch", "*", "*"),
    Need::Resource("get", "", "namespaces"),
    Need::Resource("get", "apiextensions.k8s.io", "customresourcedefinitions"),
    Need::Path("/readyz"),
    Need::Path("/version"),
    Need::Path("/api"),
    Need::Path("/api/v1"),
    Need::Path("/apis"),
    Need::Path("/apis/apps/v1"),
    Need::Path("/openapi/v2"),
    Need::Path("/openapi/v3"),
];
/// What it does for a caller before the caller's own rights count.
pub(super) const OF_IMPERSONATOR: &[Need] = &[
    Need::Resource("impersonate", "", "users"),
    // Which other groups, the operator may have narrowed.
    Need::Named("impersonate", "groups", "system:authenticated"),
    Need::Resource("impersonate", "", "serviceaccounts"),
    Need::Resource("impersonate", "authentication.k8s.io", "uids"),
];
/// What nothing but logins with ServiceAccounts' tokens needs.
pub(super) const OF_LOGINS: &[Need] =
    &[Need::Resource("create", "authentication.k8s.io", "tokenreviews"), Need::Path("/openid/v1/jwks")];
/// What it does as its own user: it moves parts, and takes back what its creator may not delete.
pub(super) const OF_MOVER: &[Need] = &[
    Need::Resource("create", "apps", "deployments"),
    Need::Resource("patch", "apps", "deployments"),
    Need::Resource("delete", "apps", "deployments"),
    Need::Resource("delete", "", "configmaps"),
];
/// What kubefold never does as itself, and who steals the credential might.
pub(super) const TOO_MUCH_FOR_READER: &[Need] = &[
    // Enough for a command in any container of a node: kubernetes/kubernetes issue 136550.
    Need::Subresource("get", "nodes", "proxy"),
    Need::Subresource("get", "pods", "exec"),
    Need::Resource("create", "", "pods"),
    Need::Resource("update", "rbac.authorization.k8s.io", "clusterroles"),
    Need::Resource("impersonate", "", "users"),
];
/// The same of the credential that impersonates.
pub(super) const TOO_MUCH_FOR_IMPERSONATOR: &[Need] = &[
    Need::Resource("list", "", "secrets"),
    Need::Resource("create", "", "pods"),
    Need::Resource("update", "rbac.authorization.k8s.io", "clusterroles"),
];

impl Need {
    /// The `spec` of a SelfSubjectAccessReview about it.
    pub(super) fn spec(&self) -> Value {
        match self {
            Self::Resource(verb, group, resource) => {
                json!({"resourceAttributes": {"verb": verb, "group": group, "resource": resource}})
            }
            Self::Subresource(verb, resource, subresource) => {
                json!({"resourceAttributes": {"verb": verb, "resource": resource, "subresource": subresource}})
            }
            Self::Named(verb, resource, name) => {
                json!({"resourceAttributes": {"verb": verb, "resource": resource, "name": name}})
            }
            Self::Path(path) => json!({"nonResourceAttributes": {"verb": "get", "path": path}}),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(verb, "*", "*") => write!(f, "{verb} every resource"),
            Self::Resource(verb, "", resource) => write!(f, "{verb} {resource}"),
            Self::Resource(verb, group, resource) => write!(f, "{verb} {resource}.{group}"),
            Self::Subresource(verb, resource, subresource) => write!(f, "{verb} {resource}/{subresource}"),
            Self::Named(verb, resource, name) => write!(f, "{verb} {resource} {name}"),
            Self::Path(path) => write!(f, "get {path}"),
        }
    }
}
