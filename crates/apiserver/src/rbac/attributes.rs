//! What a request is about, as far as access is concerned.

use kubefold_serving::caller::Caller;
use kubefold_wire::{
    golang::Quoted,
    info::RequestInfo,
    status::{Status, qualified},
};

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Such as `list`; of a path the method in lower case.
    pub verb: &'a str,
    /// With what.
    pub on: On<'a>,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On<'a> {
    /// Objects.
    Resource(Resource<'a>),
    /// A path that is no resource's, such as `/version`.
    Path(&'a str),
}

/// Objects of a kind, or one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Empty is core.
    pub group: &'a str,
    /// Plural.
    pub resource: &'a str,
    /// Such as `log`; empty: the objects themselves.
    pub subresource: &'a str,
    /// Empty: those of the cluster, or of all namespaces.
    pub namespace: &'a str,
    /// Empty: all.
    pub name: &'a str,
}

impl<'a> Attributes<'a> {
    /// Those of a request; `path` is the decoded one.
    pub fn of(info: &'a RequestInfo, path: &'a str) -> Self {
        let on = if info.is_resource_request {
            On::Resource(Resource {
                group: &info.api_group,
                resource: &info.resource,
                subresource: &info.subresource,
                namespace: &info.namespace,
                name: &info.name,
            })
        } else {
            On::Path(path)
        };
        Self { verb: &info.verb, on }
    }

    /// Something done with objects.
    pub fn resource(verb: &'a str, resource: Resource<'a>) -> Self {
        Self { verb, on: On::Resource(resource) }
    }

    /// The namespace; empty if there is none.
    pub fn namespace(&self) -> &'a str {
        match self.on {
            On::Resource(resource) => resource.namespace,
            On::Path(_) => "",
        }
    }

    /// 403 in the words of a kube-apiserver.
    ///
    /// Source: kubernetes/apiserver `pkg/endpoints/handlers/responsewriters/errors.go`, `ForbiddenStatusError`.
    pub fn refused(&self, caller: &Caller, reason: &str) -> Status {
        let (user, verb) = (Quoted(&caller.user), self.verb);
        let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let of = match self.on {
            On::Path(path) => {
                let path = Quoted(path);
                return Status::forbidden(format!("forbidden: User {user} cannot {verb} path {path}{because}"))
                    .detailed();
            }
            On::Resource(of) => of,
        };
        let place = match of.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", Quoted(namespace)),
        };
        let what = match of.name {
            "" => qualified(of.group, of.resource),
            name => format!("{} {}", qualified(of.group, of.resource), Quoted(name)),
        };
        let resource = match of.subresource {
            "" => of.resource.to_owned(),
            subresource => format!("{}/{subresource}", of.resource),
        };
        let message = format!(
            "{what} is forbidden: User {user} cannot {verb} resource {} in API group {} {place}{because}",
            Quoted(resource),
            Quoted(of.group),
        );
        Status::forbidden(message).about(of.group, of.resource, of.name)
    }
}
