//! What the four kinds have in common: which objects, and which members.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name and namespace of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its namespace; empty where the kind has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

impl Metadata {
    /// The name under which kubefold's own rules have a propagation policy.
    pub fn policy_name(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("clusterpropagationpolicy/{}", self.name),
            namespace => format!("propagationpolicy/{namespace}/{}", self.name),
        }
    }
}

/// Which objects: of a kind, by name, by labels, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// The group and version of the kind: `apps/v1`. The version is not compared: an object is the same in every version.
    pub api_version: String,
    /// The kind: `Deployment`.
    pub kind: String,
    /// The namespace. Default: that of the policy, and of a policy without one every namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name. Default: every name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The labels. It has no meaning beside a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// `metav1.LabelSelector`. All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements of labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// A requirement of a label, or of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// The label, or the field.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`; of a field `In` or `NotIn`.
    pub operator: String,
    /// What the operator compares with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Which members. All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Members with such labels (`labels` in clusters.yaml).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Members by `provider`, `region` and `zone`: the members' labels of these names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// Members by name. One that the fleet does not have is passed over, as in Karmada.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    /// Not these members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// Requirements of fields of members. All must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// The requirements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}
