//! What kubefold's own credential is for in a member: the rules of `deploy/member-rbac.yaml`, as questions.

use std::fmt;

use serde_json::{Value, json};

/// One thing that kubefold must be allowed to do in a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A verb on a group's resource.
    Resource(&'static str, &'static str, &'static str),
    /// A `get` of a path.
    Path(&'static str),
}

/// All of them.
pub(super) const NEEDS: &[Need] = &[
    Need::Resource("get", "*", "*"),
    Need::Resource("list", "*", "*"),
    Need::Resource("watch", "*", "*"),
    Need::Resource("impersonate", "", "users"),
    Need::Resource("impersonate", "", "groups"),
    Need::Resource("impersonate", "", "serviceaccounts"),
    Need::Resource("impersonate", "authentication.k8s.io", "uids"),
    Need::Path("/readyz"),
    Need::Path("/version"),
    Need::Path("/api"),
    Need::Path("/api/v1"),
    Need::Path("/apis"),
    Need::Path("/apis/apps/v1"),
    Need::Path("/openapi/v2"),
    Need::Path("/openapi/v3"),
];

impl Need {
    /// The `spec` of a SelfSubjectAccessReview about it.
    pub(super) fn spec(&self) -> Value {
        match self {
            Self::Resource(verb, group, resource) => {
                json!({"resourceAttributes": {"verb": verb, "group": group, "resource": resource}})
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
            Self::Path(path) => write!(f, "get {path}"),
        }
    }
}
