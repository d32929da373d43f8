//! Roles, and bindings by whom they are for.
//!
//! A decision looks at the bindings of the caller's name and groups alone, however many there are of others.
//!
//! Source: kubernetes `pkg/registry/rbac/validation/rule.go`, `plugin/pkg/auth/authorizer/rbac/rbac.go`.

use std::{collections::BTreeMap, fmt, sync::Arc};

use hashbrown::HashMap;
use serde::Deserialize;

use crate::rbac::{
    attributes::Attributes,
    names::{CLUSTER_ROLE, GROUP},
    rule::Rule,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{golang::Quoted, matching::nullable};

/// A role, or a binding of a role, as it is stored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    /// Empty: of the cluster.
    pub(super) namespace: String,
}

/// A RoleBinding or a ClusterRoleBinding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Binding {
    pub(super) metadata: Metadata,
    pub(super) role_ref: RoleRef,
    #[serde(deserialize_with = "nullable")]
    pub(super) subjects: Vec<Subject>,
}

/// Which role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub(super) kind: String,
    pub(super) name: String,
}

/// Whom a binding is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub(super) kind: String,
    pub(super) name: String,
    /// Of a service account; empty: that of the binding.
    pub(super) namespace: String,
}

/// A role that a binding names and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) role: RoleRef,
}

/// Whether something is allowed, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Otherwise RBAC has no opinion, which comes out as a refusal.
    pub allowed: bool,
    /// In the words of a kube-apiserver; empty where there are none.
    pub reason: String,
}

/// Roles and bindings at one moment.
#[derive(Default)]
pub(super) struct Index {
    cluster_roles: Roles,
    /// By namespace.
    roles: HashMap<String, Roles>,
    cluster: Scope,
    /// By namespace.
    namespaces: HashMap<String, Scope>,
}

type Roles = HashMap<String, Arc<[Rule]>>;

/// The bindings of the cluster, or of one namespace.
#[derive(Default)]
struct Scope {
    bindings: HashMap<String, Arc<Binding>>,
    /// Service accounts among them, by the names of their users.
    users: BySubject,
    groups: BySubject,
}

/// Bindings by whom they are for, then by their own names.
type BySubject = HashMap<String, BTreeMap<String, Arc<Binding>>>;

impl Index {
    /// Puts a role in place of one of the same name; an empty namespace is the cluster.
    pub(super) fn set_role(&mut self, namespace: &str, name: &str, rules: Arc<[Rule]>) {
        let roles = match namespace {
            "" => &mut self.cluster_roles,
            namespace => self.roles.entry_ref(namespace).or_default(),
        };
        roles.insert(name.to_owned(), rules);
    }

    /// Forgets a role.
    pub(super) fn remove_role(&mut self, namespace: &str, name: &str) {
        if namespace.is_empty() {
            self.cluster_roles.remove(name);
        } else if let Some(roles) = self.roles.get_mut(namespace) {
            roles.remove(name);
            if roles.is_empty() {
                self.roles.remove(namespace);
            }
        }
    }

    /// Puts a binding in place of one of the same name.
    pub(super) fn set_binding(&mut self, binding: Binding) {
        let Metadata { name, namespace } = binding.metadata.clone();
        self.remove_binding(&namespace, &name);
        let scope = match namespace.as_str() {
            "" => &mut self.cluster,
            namespace => self.namespaces.entry_ref(namespace).or_default(),
        };
        scope.insert(name, Arc::new(binding));
    }

    /// Forgets a binding.
    pub(super) fn remove_binding(&mut self, namespace: &str, name: &str) {
        if namespace.is_empty() {
            self.cluster.remove(name);
        } else if let Some(scope) = self.namespaces.get_mut(namespace) {
            scope.remove(name);
            if scope.bindings.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// The rules of the role that a binding in a namespace names; `None`: it is not there.
    pub(super) fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[Rule]>> {
        let roles = if role.kind == CLUSTER_ROLE { &self.cluster_roles } else { self.roles.get(namespace)? };
        roles.get(&role.name)
    }

    /// Says whether the bindings of a caller allow something.
    pub(super) fn decide(&self, caller: &Caller, attributes: &Attributes<'_>) -> Decision {
        let mut missing = Vec::new();
        for binding in self.bindings(caller, attributes.namespace()) {
            let Some(rules) = self.rules(&binding.role_ref, &binding.metadata.namespace) else {
                missing.push(Missing { role: binding.role_ref.clone() });
                continue;
            };
            if rules.iter().any(|rule| rule.allows(attributes)) {
                return Decision { allowed: true, reason: format!("RBAC: allowed by {}", Granted { binding, caller }) };
            }
        }
        let reason = told(&missing, Missing::by_kind).map(|told| format!("RBAC: {told}"));
        Decision { allowed: false, reason: reason.unwrap_or_default() }
    }

    /// All rules of a caller in a namespace, and the roles that are not there.
    pub(super) fn rules_for(&self, caller: &Caller, namespace: &str) -> (Vec<Rule>, Vec<Missing>) {
        // One that names the caller and a group is there twice, and counts once.
        let mut bindings: BTreeMap<[&str; 2], &Binding> = BTreeMap::new();
        for binding in self.bindings(caller, namespace) {
            bindings.insert([&binding.metadata.namespace, &binding.metadata.name], binding);
        }
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        for binding in bindings.into_values() {
            match self.rules(&binding.role_ref, &binding.metadata.namespace) {
                Some(rules) => all.extend(rules.iter().cloned()),
                None => missing.push(Missing { role: binding.role_ref.clone() }),
            }
        }
        (all, missing)
    }

    /// The bindings of a caller: those of the cluster, then those of the namespace.
    fn bindings<'a>(&'a self, caller: &'a Caller, namespace: &str) -> impl Iterator<Item = &'a Binding> {
        // Who is somebody in another server alone is nobody here.
        let here = caller.domain.is_none();
        let scopes = [Some(&self.cluster), self.namespaces.get(namespace)].into_iter().flatten();
        scopes.filter(move |_| here).flat_map(|scope| scope.of(caller))
    }
}

impl Scope {
    fn insert(&mut self, name: String, binding: Arc<Binding>) {
        for subject in &binding.subjects {
            let Some((of, whom)) = self.subject(subject, &binding.metadata.namespace) else { continue };
            of.entry(whom).or_default().insert(name.clone(), Arc::clone(&binding));
        }
        self.bindings.insert(name, binding);
    }

    fn remove(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            let Some((of, whom)) = self.subject(subject, &binding.metadata.namespace) else { continue };
            let Some(bindings) = of.get_mut(&whom) else { continue };
            bindings.remove(name);
            if bindings.is_empty() {
                of.remove(&whom);
            }
        }
    }

    /// Where a subject's bindings are, and under which name. `None`: it is nobody.
    fn subject(&mut self, subject: &Subject, namespace: &str) -> Option<(&mut BySubject, String)> {
        match subject.kind.as_str() {
            "User" => Some((&mut self.users, subject.name.clone())),
            "Group" => Some((&mut self.groups, subject.name.clone())),
            "ServiceAccount" => Some((&mut self.users, subject.account(namespace)?)),
            _ => None,
        }
    }

    fn of<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = &'a Binding> {
        let by_group = caller.groups.iter().filter_map(|group| self.groups.get(group));
        self.users.get(&caller.user).into_iter().chain(by_group).flat_map(BTreeMap::values).map(|binding| &**binding)
    }
}

impl Subject {
    /// The user that a service account is; `None`: it has no namespace.
    fn account(&self, of_binding: &str) -> Option<String> {
        let namespace = if self.namespace.is_empty() { of_binding } else { &self.namespace };
        (!namespace.is_empty()).then(|| format!("system:serviceaccount:{namespace}:{}", self.name))
    }

    fn is(&self, caller: &Caller, of_binding: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == caller.user,
            "Group" => caller.groups.contains(&self.name),
            _ => self.account(of_binding).is_some_and(|user| user == caller.user),
        }
    }
}

impl Missing {
    /// As the authorizer of a kube-apiserver tells it.
    pub(super) fn by_kind(&self) -> String {
        format!("{}.{GROUP} {} not found", self.role.kind.to_lowercase(), Quoted(&self.role.name))
    }
}

/// Errors as Go's `Aggregate` prints them: each once, in brackets if there are several. `None`: there are none.
pub(super) fn told(missing: &[Missing], tell: impl Fn(&Missing) -> String) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    for one in missing.iter().map(tell) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    match all.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// Why somebody has the rules of a role.
struct Granted<'a> {
    binding: &'a Binding,
    caller: &'a Caller,
}

impl fmt::Display for Granted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { metadata: Metadata { name, namespace }, role_ref, subjects } = self.binding;
        let (kind, shown) = match namespace.as_str() {
            "" => ("ClusterRoleBinding", name.clone()),
            namespace => ("RoleBinding", format!("{name}/{namespace}")),
        };
        write!(f, "{kind} {} of {} {}", Quoted(shown), role_ref.kind, Quoted(&role_ref.name))?;
        let Some(subject) = subjects.iter().find(|subject| subject.is(self.caller, namespace)) else { return Ok(()) };
        let whom = match subject.kind.as_str() {
            "ServiceAccount" if subject.namespace.is_empty() => format!("{}/{namespace}", subject.name),
            "ServiceAccount" => format!("{}/{}", subject.name, subject.namespace),
            _ => subject.name.clone(),
        };
        write!(f, " to {} {}", subject.kind, Quoted(whom))
    }
}
