//! `PlacementPolicy`: an entry of `policies` of `clusters.yaml` as an object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{Config, PolicyConfig, PolicySpec, policy_of},
    karmada::{HeldKind, Metadata},
};
use kubefold_wire::status::Cause;

/// Where objects go: an entry of `policies` of clusters.yaml. Those of the file come first, then these by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlacementPolicy {
    /// Its name: objects name it in the annotation `kubefold.io/placement-policy`.
    #[serde(default)]
    pub(super) metadata: Metadata,
    /// The entry, without its name.
    #[serde(default)]
    pub(super) spec: PolicySpec,
    /// What kubefold says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<PlacementStatus>,
}

/// What kubefold says of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlacementStatus {
    /// How many placed objects it holds for. Absent until they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) objects: Option<usize>,
    /// The same by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) kinds: Vec<HeldKind>,
    /// `Accepted`: whether it goes with the fleet as it is now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
}

/// A condition, as Kubernetes has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    /// `Accepted`.
    #[serde(rename = "type")]
    of: String,
    /// `True` or `False`.
    status: String,
    /// In one word.
    reason: String,
    /// In a sentence.
    message: String,
}

impl PlacementPolicy {
    /// The policy.
    ///
    /// Errors: it does not go with the fleet, or the file has one of its name.
    pub(super) fn compiled(&self, file: &Config) -> Result<PolicyConfig, Cause> {
        if file.policies.iter().any(|policy| policy.name == self.metadata.name) {
            let why = "clusters.yaml has a policy of this name; give each policy its own name";
            return Err(Cause::invalid_text("metadata.name", &self.metadata.name, why));
        }
        policy_of(&self.metadata.name, &self.spec, file).map_err(|error| Cause::forbidden("spec", &error.to_string()))
    }

    /// Tells whether it goes with the fleet.
    pub(super) fn tell(&mut self, file: &Config) {
        let (status, reason, message) = match self.compiled(file) {
            Ok(_) => ("True", "Valid", String::new()),
            Err(cause) => ("False", "Invalid", cause.text()),
        };
        let (of, status, reason) = ("Accepted".to_owned(), status.to_owned(), reason.to_owned());
        let conditions = vec![Condition { of, status, reason, message }];
        self.status = Some(PlacementStatus { conditions, ..self.status.take().unwrap_or_default() });
    }
}
