//! The kinds as they are served: names, columns, schemas, and what is refused.

use std::sync::Arc;

use super::{Policies, placement::PlacementPolicy};
use crate::{
    karmada::{
        self, Checked, ClusterOverridePolicy, ClusterPropagationPolicy, OverridePolicy, PropagationPolicy,
        check_overriding, check_propagation,
    },
    own::{GROUP, VERSION},
};
use kubefold_apiserver::{
    kinds::Kind,
    typed::{IntoKinds, KindError, TypedKind},
};

/// The category that Karmada gives its kinds.
const CATEGORY: &str = "karmada-io";

impl Policies {
    /// The kinds of policies.
    ///
    /// Errors: never, unless a type has no structural schema.
    pub fn kinds(self: &Arc<Self>) -> Result<Vec<Kind>, KindError> {
        let propagation = karmada_kind("PropagationPolicy", "pp")
            .prepare_create(|policy: &mut PropagationPolicy, _| policy.status = None)
            .prepare_update(|new: &mut PropagationPolicy, old, _| new.status.clone_from(&old.status));
        let propagation = self.checked(propagation, |policy: &PropagationPolicy, fleet| {
            check_propagation(&policy.metadata, &policy.spec, fleet)
        });
        let cluster_propagation = karmada_kind("ClusterPropagationPolicy", "cpp")
            .cluster_scoped()
            .prepare_create(|policy: &mut ClusterPropagationPolicy, _| policy.status = None)
            .prepare_update(|new: &mut ClusterPropagationPolicy, old, _| new.status.clone_from(&old.status));
        let cluster_propagation = self.checked(cluster_propagation, |policy: &ClusterPropagationPolicy, fleet| {
            check_propagation(&policy.metadata, &policy.spec, fleet)
        });
        let overriding = self.checked(karmada_kind("OverridePolicy", "op"), |policy: &OverridePolicy, fleet| {
            check_overriding(&policy.metadata, &policy.spec, fleet)
        });
        let cluster_overriding = self.checked(
            karmada_kind("ClusterOverridePolicy", "cop").cluster_scoped(),
            |policy: &ClusterOverridePolicy, fleet| check_overriding(&policy.metadata, &policy.spec, fleet),
        );
        let mut kinds = self.placement_kind().into_kinds()?;
        kinds.extend(prioritized(propagation).into_kinds()?);
        kinds.extend(prioritized(cluster_propagation).into_kinds()?);
        kinds.extend(overriding.into_kinds()?);
        kinds.extend(cluster_overriding.into_kinds()?);
        Ok(kinds)
    }

    /// Has a kind refuse what does not go with the fleet.
    fn checked<T>(
        self: &Arc<Self>,
        kind: TypedKind<T>,
        check: impl Fn(&T, karmada::Fleet<'_>) -> Checked + Copy + Send + Sync + 'static,
    ) -> TypedKind<T>
    where
        T: Send + Sync + 'static,
    {
        let (refusing, warning) = (Arc::clone(self), Arc::clone(self));
        kind.validate(move |policy, _| refusing.judge(|fleet| check(policy, fleet).causes))
            .warn(move |policy, _| warning.judge(|fleet| check(policy, fleet).warnings))
    }

    fn placement_kind(self: &Arc<Self>) -> TypedKind<PlacementPolicy> {
        let (refusing, telling) = (Arc::clone(self), Arc::clone(self));
        Kind::of::<PlacementPolicy>(GROUP, VERSION, "PlacementPolicy")
            .cluster_scoped()
            .schema()
            .column("Strategy", "string", ".spec.strategy")
            .column("Accepted", "string", ".status.conditions[?(@.type==\"Accepted\")].status")
            .column("Objects", "integer", ".status.objects")
            .column("Age", "date", ".metadata.creationTimestamp")
            // What it holds for is counted, and nobody else says it.
            .prepare_create(|policy, _| policy.status = None)
            .prepare_update(|new, old, _| new.status.clone_from(&old.status))
            .validate(move |policy, _| {
                refusing.with_file(|config| policy.compiled(config).err().into_iter().collect::<Vec<_>>())
            })
            .decorate(move |policy| telling.with_file(|config| policy.tell(config)))
    }
}

/// A kind of Karmada's, under its names.
fn karmada_kind<T>(kind: &str, short_name: &str) -> TypedKind<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + schemars::JsonSchema + Send + Sync + 'static,
{
    Kind::of::<T>(karmada::GROUP, karmada::VERSION, kind).short_name(short_name).category(CATEGORY).schema()
}

/// With the columns of a propagation policy, and behind them one that Karmada does not have.
fn prioritized<T: Send + Sync + 'static>(kind: TypedKind<T>) -> TypedKind<T> {
    kind.column("CONFLICT-RESOLUTION", "string", ".spec.conflictResolution")
        .column("PRIORITY", "string", ".spec.priority")
        .column("AGE", "date", ".metadata.creationTimestamp")
        .wide_column("OBJECTS", "integer", ".status.objects")
}
