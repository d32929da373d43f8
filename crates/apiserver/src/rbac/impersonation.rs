//! Who may act as somebody else.
//!
//! First the constrained ways, which look at what is done, too; then the old one, by the verb `impersonate`. A refusal tells
//! what the first way lacked, as in a kube-apiserver. A service account that acts as its own node is not known here.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/filters/impersonation/mode.go`, KEP-5284.

use crate::rbac::{
    attributes::{Attributes, On, Resource},
    authorizer::Authorizer,
    names::MASTERS,
};
use kubefold_serving::{caller::Caller, impersonation::Impersonation};
use kubefold_wire::{names::dns_subdomain, status::Status};

const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";
/// The group of users, groups and the like for the constrained ways, and of UIDs and extras for all.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From so many groups or extras on, the constrained ways ask for all at once first.
const MANY: usize = 4;

/// A way in which somebody may act as somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// As a node.
    Node,
    /// As a service account.
    ServiceAccount,
    /// As anybody else.
    User,
    /// Whatever the request does.
    Legacy,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Node, Self::ServiceAccount, Self::User, Self::Legacy];

    /// As verbs name it; `None`: they do not.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Node => Some("arbitrary-node"),
            Self::ServiceAccount => Some("serviceaccount"),
            Self::User => Some("user-info"),
            Self::Legacy => None,
        }
    }

    fn fits(self, wanted: &Impersonation) -> bool {
        let name_alone = wanted.uid.is_none() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (is_node, is_account) = (node(&wanted.user).is_some(), wanted.service_account().is_some());
        match self {
            Self::Node => is_node && name_alone,
            Self::ServiceAccount => is_account && name_alone,
            Self::User => !is_node && !is_account,
            Self::Legacy => true,
        }
    }
}

fn node(user: &str) -> Option<&str> {
    user.strip_prefix(NODE).filter(|name| dns_subdomain(name).is_empty())
}

impl Authorizer {
    /// Whom a caller acts as, if he may.
    ///
    /// Errors: 403.
    pub fn impersonate(
        &self,
        caller: &Caller,
        wanted: &Impersonation,
        request: &Attributes<'_>,
    ) -> Result<Caller, Box<Status>> {
        let mut first = None;
        for mode in Mode::ALL.into_iter().filter(|mode| mode.fits(wanted)) {
            match self.impersonate_by(mode, caller, wanted, request) {
                Ok(()) if mode == Mode::Node => {
                    let wanted = Impersonation { groups: vec![NODES.to_owned()], ..wanted.clone() };
                    return Ok(wanted.caller(caller));
                }
                Ok(()) => return Ok(wanted.caller(caller)),
                Err(status) => first = first.or(Some(status)),
            }
        }
        // The old way fits everybody.
        Err(first.unwrap_or_else(|| Box::new(request.refused(caller, ""))))
    }

    fn impersonate_by(
        &self,
        mode: Mode,
        caller: &Caller,
        wanted: &Impersonation,
        request: &Attributes<'_>,
    ) -> Result<(), Box<Status>> {
        let verb = match mode.name() {
            Some(name) => {
                let on = format!("impersonate-on:{name}:{}", request.verb);
                self.demand(caller, &Attributes { verb: &on, ..*request })?;
                format!("impersonate:{name}")
            }
            None => "impersonate".to_owned(),
        };
        let way = Way { authorizer: self, caller, verb: &verb, is_constrained: mode.name().is_some() };
        way.user(wanted)?;
        way.uid(wanted)?;
        way.groups(wanted)?;
        way.extra(wanted)
    }

    /// Errors: 403, if the caller may not.
    fn demand(&self, caller: &Caller, attributes: &Attributes<'_>) -> Result<(), Box<Status>> {
        let decision = self.decide(caller, attributes);
        if decision.allowed { Ok(()) } else { Err(Box::new(attributes.refused(caller, &decision.reason))) }
    }
}

/// One way, for one caller.
struct Way<'a> {
    authorizer: &'a Authorizer,
    caller: &'a Caller,
    verb: &'a str,
    is_constrained: bool,
}

impl Way<'_> {
    fn group(&self) -> &'static str {
        if self.is_constrained { AUTHENTICATION } else { "" }
    }

    fn demand(&self, resource: Resource<'_>) -> Result<(), Box<Status>> {
        self.authorizer.demand(self.caller, &Attributes::resource(self.verb, resource))
    }

    fn refused(&self, resource: Resource<'_>, why: &str) -> Box<Status> {
        Box::new(Attributes { verb: self.verb, on: On::Resource(resource) }.refused(self.caller, why))
    }

    fn user(&self, wanted: &Impersonation) -> Result<(), Box<Status>> {
        let any = Resource { group: self.group(), ..Resource::default() };
        if let Some((namespace, name)) = wanted.service_account() {
            return self.demand(Resource { resource: "serviceaccounts", namespace, name, ..any });
        }
        match node(&wanted.user).filter(|_| self.is_constrained) {
            Some(name) => self.demand(Resource { resource: "nodes", name, ..any }),
            None => self.demand(Resource { resource: "users", name: &wanted.user, ..any }),
        }
    }

    fn uid(&self, wanted: &Impersonation) -> Result<(), Box<Status>> {
        let Some(name) = &wanted.uid else { return Ok(()) };
        self.demand(Resource { group: AUTHENTICATION, resource: "uids", name, ..Resource::default() })
    }

    fn groups(&self, wanted: &Impersonation) -> Result<(), Box<Status>> {
        let any = Resource { group: self.group(), resource: "groups", ..Resource::default() };
        if self.is_constrained {
            if wanted.groups.iter().any(String::is_empty) {
                return Err(self.refused(any, "impersonating the empty string group is not allowed"));
            }
            if wanted.groups.iter().any(|group| group == MASTERS) {
                let masters = Resource { name: MASTERS, ..any };
                return Err(self.refused(masters, "impersonating the system:masters group is not allowed"));
            }
            if wanted.groups.len() >= MANY && self.demand(Resource { name: "*", ..any }).is_ok() {
                return Ok(());
            }
        }
        wanted.groups.iter().try_for_each(|name| self.demand(Resource { name, ..any }))
    }

    fn extra(&self, wanted: &Impersonation) -> Result<(), Box<Status>> {
        let any = Resource { group: AUTHENTICATION, resource: "userextras", ..Resource::default() };
        if self.is_constrained {
            if let Some(why) = wanted.extra.iter().find_map(|(key, values)| unfit(key, values)) {
                return Err(self.refused(any, why));
            }
            let count: usize = wanted.extra.values().map(Vec::len).sum();
            let all = Resource { subresource: "*", name: "*", ..any };
            if count >= MANY && self.demand(all).is_ok() {
                return Ok(());
            }
        }
        for (subresource, values) in &wanted.extra {
            values.iter().try_for_each(|name| self.demand(Resource { subresource, name, ..any }))?;
        }
        Ok(())
    }
}

/// What is wrong with an extra for the constrained ways.
///
/// Source: `mode.go`, `validateExtra`.
fn unfit(key: &str, values: &[String]) -> Option<&'static str> {
    let has_domain =
        key.split_once('/').is_some_and(|(domain, path)| dns_subdomain(domain).is_empty() && !path.is_empty());
    if key.is_empty() {
        Some("impersonating the empty string key in extra is not allowed")
    } else if !has_domain {
        Some(
            "impersonating an invalid key in extra is not allowed: must be a domain-prefixed path (such as \"acme.io/foo\")",
        )
    } else if values.iter().any(String::is_empty) {
        Some("impersonating the empty string value in extra is not allowed")
    } else {
        None
    }
}
