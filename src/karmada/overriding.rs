//! `OverridePolicy` and `ClusterOverridePolicy`: how the parts of objects differ between members.
//!
//! Source: karmada `pkg/apis/policy/v1alpha1/override_types.go`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::karmada::selectors::{ClusterAffinity, Metadata, ResourceSelector};

/// How the parts of objects of its namespace differ between members. It applies after every ClusterOverridePolicy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverridePolicy {
    /// Its name and namespace.
    #[serde(default)]
    pub metadata: Metadata,
    /// What it orders.
    pub spec: OverrideSpec,
}

/// How the parts of objects of every namespace, and of none, differ between members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOverridePolicy {
    /// Its name.
    #[serde(default)]
    pub metadata: Metadata,
    /// What it orders.
    pub spec: OverrideSpec,
}

/// What a policy orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideSpec {
    /// The objects that it is for: those that one of these selects. Absent: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_selectors: Vec<ResourceSelector>,
    /// What differs where. They apply in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub override_rules: Vec<OverrideRule>,
    /// The members of `overriders`. Deprecated: use `overrideRules`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// What differs in the members of `targetCluster`. Deprecated: use `overrideRules`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overriders: Option<Overriders>,
}

/// What differs in some members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideRule {
    /// The members. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// What differs.
    pub overriders: Overriders,
}

/// What differs. It applies in the order of images, commands, arguments, labels, annotations, fields, plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overriders {
    /// A JSON patch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plaintext: Vec<PlaintextOverrider>,
    /// Images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_overrider: Vec<ImageOverrider>,
    /// Commands of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command_overrider: Vec<CommandArgsOverrider>,
    /// Arguments of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args_overrider: Vec<CommandArgsOverrider>,
    /// Labels of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels_overrider: Vec<LabelAnnotationOverrider>,
    /// Annotations of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations_overrider: Vec<LabelAnnotationOverrider>,
    /// JSON or YAML that is a text of the object, as in a ConfigMap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub field_overrider: Vec<FieldOverrider>,
}

/// What is done with a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are Karmada's own")]
pub enum Operator {
    #[default]
    Add,
    Remove,
    Replace,
}

/// One operation of a JSON patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaintextOverrider {
    /// Where, as a JSON pointer: `/spec/paused`.
    pub path: String,
    /// `add`, `remove` or `replace`.
    pub operator: Operator,
    /// The value. None with `remove`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// A change of images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageOverrider {
    /// Which image. Absent: those of all containers of a Pod, ReplicaSet, Deployment, DaemonSet, StatefulSet or Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    /// Which component of `[registry/]repository[:tag]`.
    pub component: ImageComponent,
    /// `add` (it is appended to what is there), `remove` or `replace`.
    pub operator: Operator,
    /// The value. Required with `add` and `replace`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// Which image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImagePredicate {
    /// Where, as a JSON pointer: `/spec/template/spec/containers/0/image`.
    pub path: String,
}

/// A component of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are Karmada's own")]
pub enum ImageComponent {
    #[default]
    Registry,
    Repository,
    Tag,
}

/// A change of the command, or of the arguments, of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandArgsOverrider {
    /// The container.
    pub container_name: String,
    /// `add` (they are appended) or `remove`.
    pub operator: Operator,
    /// The texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value: Vec<String>,
}

/// A change of labels, or of annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelAnnotationOverrider {
    /// `add`, `remove` or `replace`. A key that is not there is neither removed nor replaced.
    pub operator: Operator,
    /// The keys with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub value: BTreeMap<String, String>,
}

/// A change of a document that is a text of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldOverrider {
    /// The text, as a JSON pointer: `/data/config.yaml`.
    pub field_path: String,
    /// What is done in it if it is JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json: Vec<FieldOperation>,
    /// What is done in it if it is YAML.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yaml: Vec<FieldOperation>,
}

/// One operation in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldOperation {
    /// Where in the document, as a JSON pointer.
    pub sub_path: String,
    /// `add`, `remove` or `replace`.
    pub operator: Operator,
    /// The value. None with `remove`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}
