//! What makes parts different beyond a patch: changes that depend on what the part says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use kubefold_wire::patch::JsonPatch;

/// A change of one member's part. The journal keeps it, for parts that are made later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// Who orders it, as people call it.
    pub by: String,
    /// What is changed.
    pub what: Alteration,
}

/// What is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Alteration {
    /// A component of images.
    Image {
        /// The image at this JSON pointer; `None`: those of all containers of a pod.
        at: Option<String>,
        /// Which component.
        component: Component,
        /// How.
        how: How,
        /// Empty where it is removed.
        value: String,
    },
    /// Texts of a container: its command, or its arguments.
    Words {
        /// Which.
        texts: Texts,
        /// The container's name.
        container: String,
        /// They are appended, or removed.
        how: How,
        /// The texts.
        values: Vec<String>,
    },
    /// Labels or annotations.
    Keys {
        /// Which.
        map: KeyMap,
        /// Keys that are not there are neither replaced nor removed.
        how: How,
        /// The keys with their values.
        values: BTreeMap<String, String>,
    },
    /// A document that is a text of the object, as in a ConfigMap.
    Document {
        /// The JSON pointer of the text.
        at: String,
        /// How the text is written.
        format: Format,
        /// What is done in it.
        patch: JsonPatch,
    },
    /// A JSON patch of the object.
    Patch(JsonPatch),
}

/// A component of an image: `registry/repository:tag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Component {
    Registry,
    Repository,
    /// A tag or a digest.
    Tag,
}

/// What is done with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum How {
    Add,
    Remove,
    Replace,
}

/// A map of an object's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum KeyMap {
    Labels,
    Annotations,
}

impl KeyMap {
    /// The field of the metadata.
    pub fn field(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Annotations => "annotations",
        }
    }
}

/// A list of texts of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Texts {
    Command,
    Args,
}

impl Texts {
    /// The field of the container.
    pub fn field(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Args => "args",
        }
    }
}

/// How a document within a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Format {
    Json,
    Yaml,
}
