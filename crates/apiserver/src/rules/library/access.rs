//! `authorizer`: what the sender of a request, or a service account, may do.
//!
//! Source: `pkg/cel/library/authz.go`.

use std::{fmt, sync::Arc};

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload,
    common::types::{CelBool, CelString, Type},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    access::text,
    names::{dns_label, dns_subdomain},
};
use serde_json::Value;

use super::{Kind, Of, no};

/// The names of the types, as cel-go has them.
pub(crate) const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
pub(crate) const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
pub(crate) const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
pub(crate) const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
pub(crate) const DECISION: &str = "kubernetes.authorization.Decision";

static AUTHORIZER_TYPE: Type = Type::new_unspecified_type(AUTHORIZER);
static PATH_TYPE: Type = Type::new_unspecified_type(PATH_CHECK);
static GROUP_TYPE: Type = Type::new_unspecified_type(GROUP_CHECK);
static RESOURCE_TYPE: Type = Type::new_unspecified_type(RESOURCE_CHECK);
static DECISION_TYPE: Type = Type::new_unspecified_type(DECISION);

/// What somebody wants to do something with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// Objects of a kind, or one of them.
    Resource {
        /// Empty is core.
        group: &'a str,
        /// Plural.
        resource: &'a str,
        /// Empty: the objects themselves.
        subresource: &'a str,
        /// Empty: those of the cluster.
        namespace: &'a str,
        /// Empty: all.
        name: &'a str,
    },
    /// A path that is no resource's.
    Path(&'a str),
}

/// Whether something is allowed, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) allowed: bool,
    /// Empty where there is none.
    pub(crate) reason: String,
}

/// Says who may do what.
pub(crate) trait Authority: fmt::Debug + Send + Sync {
    /// Says whether somebody may do something, by a verb such as `list`.
    fn decide(&self, caller: &Caller, verb: &str, wanted: Wanted<'_>) -> Decided;
}

/// What somebody may do: the value of `authorizer`.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    authority: Arc<dyn Authority>,
    caller: Arc<Caller>,
}

impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.authority, &other.authority) && self.caller == other.caller
    }
}

impl Access {
    pub(crate) fn new(authority: Arc<dyn Authority>, caller: Arc<Caller>) -> Self {
        Self { authority, caller }
    }

    /// The value of `authorizer.requestResource`: a check of what an `AdmissionRequest` is about.
    pub(in crate::rules) fn of_request(&self, request: &Value) -> Of<ResourceCheck> {
        let of = |at: &str| text(request, at).to_owned();
        Of(ResourceCheck {
            access: self.clone(),
            group: of("/requestResource/group"),
            resource: of("/requestResource/resource"),
            subresource: of("/requestSubResource"),
            namespace: of("/namespace"),
            name: of("/name"),
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
struct PathCheck {
    access: Access,
    path: String,
}

#[derive(Clone, Debug, PartialEq)]
struct GroupCheck {
    access: Access,
    group: String,
}

/// Objects that somebody wants to do something with.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::rules) struct ResourceCheck {
    access: Access,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

impl Kind for Access {
    fn of() -> &'static Type {
        &AUTHORIZER_TYPE
    }
}

impl Kind for PathCheck {
    fn of() -> &'static Type {
        &PATH_TYPE
    }
}

impl Kind for GroupCheck {
    fn of() -> &'static Type {
        &GROUP_TYPE
    }
}

impl Kind for ResourceCheck {
    fn of() -> &'static Type {
        &RESOURCE_TYPE
    }
}

impl Kind for Decided {
    fn of() -> &'static Type {
        &DECISION_TYPE
    }
}

type Authorizer = Of<Access>;
type OfPath = Of<PathCheck>;
type OfGroup = Of<GroupCheck>;
type OfResource = Of<ResourceCheck>;
type Decision = Of<Decided>;

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    add_member_overload!(env, fn path: (Authorizer, CelString<'_>) -> Result<OfPath>)?;
    add_member_overload!(env, fn group: (Authorizer, CelString<'_>) -> OfGroup)?;
    add_member_overload!(env, fn service_account: (Authorizer, CelString<'_>, CelString<'_>) -> Result<Authorizer>)?;
    add_member_overload!(env, fn resource: (OfGroup, CelString<'_>) -> Result<OfResource>)?;
    add_member_overload!(env, fn subresource: (OfResource, CelString<'_>) -> OfResource)?;
    add_member_overload!(env, fn namespace: (OfResource, CelString<'_>) -> OfResource)?;
    add_member_overload!(env, fn name: (OfResource, CelString<'_>) -> OfResource)?;
    add_member_overload!(env, fn selected: (OfResource, CelString<'_>) -> OfResource, name = "fieldSelector")?;
    add_member_overload!(env, fn labelled: (OfResource, CelString<'_>) -> OfResource, name = "labelSelector")?;
    add_member_overload!(env, fn check_path: (OfPath, CelString<'_>) -> Decision, name = "check")?;
    add_member_overload!(env, fn check: (OfResource, CelString<'_>) -> Decision)?;
    add_member_overload!(env, fn allowed: (Decision) -> CelBool)?;
    add_member_overload!(env, fn reason: (Decision) -> CelString<'_>)?;
    add_member_overload!(env, fn errored: (Decision) -> CelBool)?;
    add_member_overload!(env, fn error: (Decision) -> CelString<'_>)
}

fn path(authorizer: &Authorizer, path: &CelString<'_>) -> Result<OfPath, ExecutionError> {
    if path.inner().trim().is_empty() {
        return Err(no("path", "path must not be empty"));
    }
    Ok(Of(PathCheck { access: authorizer.0.clone(), path: path.inner().to_owned() }))
}

fn group(authorizer: &Authorizer, group: &CelString<'_>) -> OfGroup {
    Of(GroupCheck { access: authorizer.0.clone(), group: group.inner().to_owned() })
}

/// Source: kubernetes/apiserver `pkg/authentication/serviceaccount/util.go`.
fn service_account(
    authorizer: &Authorizer,
    namespace: &CelString<'_>,
    name: &CelString<'_>,
) -> Result<Authorizer, ExecutionError> {
    let (namespace, name) = (namespace.inner(), name.inner());
    if !dns_subdomain(name).is_empty() {
        return Err(no("serviceAccount", "Invalid service account name"));
    }
    if !dns_label(namespace).is_empty() {
        return Err(no("serviceAccount", "Invalid service account namespace"));
    }
    let all = "system:serviceaccounts";
    let caller = Caller {
        user: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![all.to_owned(), format!("{all}:{namespace}")],
        ..Caller::default()
    };
    Ok(Of(Access { caller: Arc::new(caller), ..authorizer.0.clone() }))
}

fn resource(of: &OfGroup, resource: &CelString<'_>) -> Result<OfResource, ExecutionError> {
    if resource.inner().trim().is_empty() {
        return Err(no("resource", "resource must not be empty"));
    }
    Ok(Of(ResourceCheck {
        access: of.0.access.clone(),
        group: of.0.group.clone(),
        resource: resource.inner().to_owned(),
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
    }))
}

fn subresource(of: &OfResource, subresource: &CelString<'_>) -> OfResource {
    Of(ResourceCheck { subresource: subresource.inner().to_owned(), ..of.0.clone() })
}

fn namespace(of: &OfResource, namespace: &CelString<'_>) -> OfResource {
    Of(ResourceCheck { namespace: namespace.inner().to_owned(), ..of.0.clone() })
}

fn name(of: &OfResource, name: &CelString<'_>) -> OfResource {
    Of(ResourceCheck { name: name.inner().to_owned(), ..of.0.clone() })
}

/// RBAC, which decides, knows no selectors: who may list some objects may list all.
fn selected(of: &OfResource, _selector: &CelString<'_>) -> OfResource {
    of.clone()
}

fn labelled(of: &OfResource, _selector: &CelString<'_>) -> OfResource {
    of.clone()
}

fn check_path(of: &OfPath, verb: &CelString<'_>) -> Decision {
    let PathCheck { access, path } = &of.0;
    Of(access.authority.decide(&access.caller, verb.inner(), Wanted::Path(path)))
}

fn check(of: &OfResource, verb: &CelString<'_>) -> Decision {
    let ResourceCheck { access, group, resource, subresource, namespace, name } = &of.0;
    let wanted = Wanted::Resource { group, resource, subresource, namespace, name };
    Of(access.authority.decide(&access.caller, verb.inner(), wanted))
}

fn allowed(decision: &Decision) -> CelBool {
    CelBool::from(decision.0.allowed)
}

fn reason(decision: &Decision) -> CelString<'static> {
    CelString::from(decision.0.reason.clone())
}

/// RBAC always decides. A role that a binding names and that is not there is part of the reason.
fn errored(_decision: &Decision) -> CelBool {
    CelBool::from(false)
}

fn error(_decision: &Decision) -> CelString<'static> {
    CelString::from(String::new())
}
