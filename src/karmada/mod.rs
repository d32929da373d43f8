//! Karmada's policies: PropagationPolicy, ClusterPropagationPolicy, OverridePolicy and ClusterOverridePolicy of
//! `policy.karmada.io/v1alpha1`, compiled to kubefold's own placement.
//!
//! A policy means what Karmada's documentation says, or is refused by field. Nothing of it is ignored.
//!
//! - `propagation`, `overriding`, `selectors`: the kinds as types
//! - `compile`: a propagation policy to [`PolicyConfig`]s
//! - `alter`: an override policy to an [`OverrideConfig`]
//! - `affinity`: which members and which objects
//!
//! Pure: values in, values out; no clock, no IO. May name `config`, `view` and `wire`; its tests `placement`, too.

mod affinity;
mod alter;
mod compile;
mod overriding;
mod placing;
mod propagation;
mod selectors;
#[cfg(test)]
mod tests;

use crate::config::{Config, KindConfig, MemberConfig, OverrideConfig, PolicyConfig, SharedRule};
use kubefold_wire::{invalid::Errors, status::Cause};

pub use overriding::{ClusterOverridePolicy, OverridePolicy, OverrideSpec};
pub use propagation::{ClusterPropagationPolicy, HeldKind, HeldStatus, PropagationPolicy, PropagationSpec};
pub use selectors::Metadata;

/// Karmada's group of policies.
pub const GROUP: &str = "policy.karmada.io";
/// Its version.
pub const VERSION: &str = "v1alpha1";

/// What policies are compiled against.
#[derive(Clone, Copy, Debug)]
pub struct Fleet<'a> {
    /// The members.
    pub members: &'a [MemberConfig],
    /// Kinds that can be divided, beside Kubernetes' own.
    pub kinds: &'a [KindConfig],
    /// What every member has.
    pub shared: &'a [SharedRule],
}

impl<'a> From<&'a Config> for Fleet<'a> {
    fn from(config: &'a Config) -> Self {
        Self { members: &config.members, kinds: &config.kinds, shared: &config.shared }
    }
}

/// All policies that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// PropagationPolicies.
    pub propagation: Vec<PropagationPolicy>,
    /// ClusterPropagationPolicies.
    pub cluster_propagation: Vec<ClusterPropagationPolicy>,
    /// OverridePolicies.
    pub overriding: Vec<OverridePolicy>,
    /// ClusterOverridePolicies.
    pub cluster_overriding: Vec<ClusterOverridePolicy>,
}

/// What policies come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// In the order in which they count.
    pub policies: Vec<PolicyConfig>,
    /// What makes parts different.
    pub overrides: Vec<OverrideConfig>,
    /// The policies that do not go with the fleet as it is, which have no effect.
    pub refused: Vec<Refused>,
}

/// A policy that does not go with the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// As people call it: `PropagationPolicy shop/web`.
    pub name: String,
    /// What is wrong.
    pub causes: Vec<Cause>,
}

/// What is wrong with one policy, and what its author should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Why it is refused; none: it is not.
    pub causes: Vec<Cause>,
    /// What has another effect than it may seem.
    pub warnings: Vec<String>,
}

/// Compiles all policies.
pub fn compile(objects: &Objects, fleet: Fleet<'_>) -> Compiled {
    let mut compiled = Compiled::default();
    let mut entries = Vec::new();
    let namespaced = objects.propagation.iter().map(|policy| (&policy.metadata, &policy.spec));
    let cluster = objects.cluster_propagation.iter().map(|policy| (&policy.metadata, &policy.spec));
    for (metadata, spec) in namespaced.chain(cluster) {
        let mut found = Findings::default();
        let of = compile::entries(metadata, spec, fleet, &mut found);
        if found.errors.is_empty() { entries.extend(of) } else { compiled.refuse(compile::called(metadata), found) }
    }
    entries.sort_by(|one, other| one.rank.cmp(&other.rank));
    compiled.policies = entries.into_iter().map(|entry| entry.config).collect();
    let namespaced = objects.overriding.iter().map(|policy| (&policy.metadata, &policy.spec));
    let cluster = objects.cluster_overriding.iter().map(|policy| (&policy.metadata, &policy.spec));
    for (metadata, spec) in namespaced.chain(cluster) {
        let mut found = Findings::default();
        let config = alter::overriding(metadata, spec, fleet, &mut found);
        if found.errors.is_empty() {
            compiled.overrides.push(config);
        } else {
            compiled.refuse(alter::called(metadata), found);
        }
    }
    compiled
}

/// Checks a PropagationPolicy, or a ClusterPropagationPolicy, which has no namespace.
pub fn check_propagation(metadata: &Metadata, spec: &PropagationSpec, fleet: Fleet<'_>) -> Checked {
    let mut found = Findings::default();
    compile::entries(metadata, spec, fleet, &mut found);
    found.into()
}

/// Checks an OverridePolicy, or a ClusterOverridePolicy, which has no namespace.
pub fn check_overriding(metadata: &Metadata, spec: &OverrideSpec, fleet: Fleet<'_>) -> Checked {
    let mut found = Findings::default();
    alter::overriding(metadata, spec, fleet, &mut found);
    found.into()
}

impl Compiled {
    fn refuse(&mut self, name: String, found: Findings) {
        self.refused.push(Refused { name, causes: found.errors.into_causes() });
    }
}

/// What is found while a policy is compiled.
#[derive(Debug, Default)]
struct Findings {
    errors: Errors,
    warnings: Vec<String>,
}

impl From<Findings> for Checked {
    fn from(found: Findings) -> Self {
        Self { causes: found.errors.into_causes(), warnings: found.warnings }
    }
}
