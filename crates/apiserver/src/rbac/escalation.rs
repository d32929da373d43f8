//! Nobody grants what he does not have, or creates by an update what he may not create.
//!
//! Source: kubernetes `pkg/registry/rbac/escalation_check.go`, `pkg/registry/rbac/{role,clusterrole,rolebinding,
//! clusterrolebinding}/policybased/storage.go`, `pkg/registry/rbac/validation/rule.go`.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use crate::{
    rbac::{
        attributes::{Attributes, Resource},
        authorizer::Authorizer,
        index::{RoleRef, told},
        names::{CLUSTER_ROLE, GROUP, MASTERS, ROLE},
        rule::{Rule, listed, quoted_list, uncovered},
    },
    registry::{Attempt, Guard},
};
use kubefold_wire::{
    access::{items, text},
    golang::Quoted,
    matching::nullable,
    status::{Reason, Status, qualified},
};

impl Guard for Authorizer {
    fn check(&self, attempt: &Attempt<'_>) -> Result<(), Box<Status>> {
        if attempt.kind.group != GROUP || attempt.caller.is_in(MASTERS) {
            return Ok(());
        }
        match attempt.kind.kind.as_str() {
            ROLE | CLUSTER_ROLE => self.check_role(attempt),
            _ => self.check_binding(attempt),
        }
    }

    // Source: kubernetes/apiserver `pkg/endpoints/handlers/update.go`, `withAuthorization`.
    fn check_create(&self, attempt: &Attempt<'_>) -> Result<(), Box<Status>> {
        let Attempt { caller, kind, namespace, name, .. } = *attempt;
        let of = Resource { group: &kind.group, resource: &kind.plural, namespace, name, ..Resource::default() };
        let attributes = Attributes::resource("create", of);
        let decision = self.decide(caller, &attributes);
        if decision.allowed { Ok(()) } else { Err(Box::new(attributes.refused(caller, &decision.reason))) }
    }
}

impl Authorizer {
    fn check_role(&self, attempt: &Attempt<'_>) -> Result<(), Box<Status>> {
        let Attempt { kind, namespace, name, new, .. } = *attempt;
        let role = Resource { group: GROUP, resource: &kind.plural, namespace, name, ..Resource::default() };
        let may_escalate = self.decide(attempt.caller, &Attributes::resource("escalate", role)).allowed;
        if may_escalate || attempt.old.is_some_and(|old| changes_owners_alone(new, old)) {
            return Ok(());
        }
        let rules = rules_of(new).ok_or_else(|| refused(attempt, "its rules cannot be read"))?;
        self.check_rules(attempt, &rules)?;
        let aggregates = |role: &Value| !items(role, "/aggregationRule/clusterRoleSelectors").is_empty();
        if (aggregates(new) || attempt.old.is_some_and(aggregates)) && self.check_rules(attempt, &everything()).is_err()
        {
            return Err(refused(attempt, "must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn check_binding(&self, attempt: &Attempt<'_>) -> Result<(), Box<Status>> {
        let Attempt { kind, namespace, new, .. } = *attempt;
        if attempt.old.is_some_and(|old| changes_owners_alone(new, old)) {
            return Ok(());
        }
        let (of, name) = (text(new, "/roleRef/kind"), text(new, "/roleRef/name"));
        let resource = match of {
            CLUSTER_ROLE => "clusterroles",
            ROLE => "roles",
            other => {
                let message = format!("unsupported role reference kind: {}", Quoted(other));
                return Err(Box::new(Status::new(StatusCode::INTERNAL_SERVER_ERROR, Reason::Unknown, message)));
            }
        };
        let role = Resource { group: GROUP, resource, namespace, name, ..Resource::default() };
        if self.decide(attempt.caller, &Attributes::resource("bind", role)).allowed {
            return Ok(());
        }
        let role = RoleRef { kind: of.to_owned(), name: name.to_owned() };
        let rules: Option<Arc<[Rule]>> = self.with(|index| index.rules(&role, namespace).cloned());
        // A kube-apiserver says so of the resource that the request is about.
        let rules = rules.ok_or_else(|| Box::new(Status::not_found(GROUP, &kind.plural, name)))?;
        self.check_rules(attempt, &rules)
    }

    /// Errors: 403, if the caller does not have all that the rules allow.
    fn check_rules(&self, attempt: &Attempt<'_>, rules: &[Rule]) -> Result<(), Box<Status>> {
        let (caller, plural) = (attempt.caller, &attempt.kind.plural);
        let (held, missing) = self.with(|index| index.rules_for(caller, attempt.namespace));
        let lacking = uncovered(&held, rules).map_err(|error| refused(attempt, &error.to_string()))?;
        if lacking.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            Quoted(&caller.user),
            quoted_list(&caller.groups),
            listed(&lacking),
        );
        if let Some(told) = told(&missing, |one| format!("{plural}.{GROUP} {} not found", Quoted(&one.role.name))) {
            why.push_str(&format!("; resolution errors: [{told}]"));
        }
        Err(refused(attempt, &why))
    }
}

/// 403 for a role or a binding, by the name that the object has: it may be none yet.
fn refused(attempt: &Attempt<'_>, why: &str) -> Box<Status> {
    let (plural, name) = (&attempt.kind.plural, text(attempt.new, "/metadata/name"));
    let what = match name {
        "" => qualified(GROUP, plural),
        name => format!("{} {}", qualified(GROUP, plural), Quoted(name)),
    };
    Box::new(Status::forbidden(format!("{what} is forbidden: {why}")).about(GROUP, plural, name))
}

/// The rules of a role; `None`: they are not of the form of rules.
fn rules_of(role: &Value) -> Option<Vec<Rule>> {
    role.get("rules").map_or_else(|| Some(Vec::new()), |rules| nullable(rules).ok())
}

/// What `cluster-admin` may do.
fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

/// Says whether an update is one that lets an object be collected, whatever its rules are.
fn changes_owners_alone(new: &Value, old: &Value) -> bool {
    let mut same = new.clone();
    let Some(metadata) = same.get_mut("metadata").and_then(Value::as_object_mut) else { return false };
    for field in ["ownerReferences", "finalizers", "managedFields"] {
        match old.pointer(&format!("/metadata/{field}")) {
            Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
            None => drop(metadata.shift_remove(field)),
        }
    }
    same == *old
}
