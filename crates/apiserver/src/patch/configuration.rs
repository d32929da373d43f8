//! What an admission policy wants of an object, laid over the object. Nobody comes to own fields by it.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/mutating/patch/smd.go`.

use serde_json::Value;

use super::typed::{self, Duplicates, Shape};
use crate::schema::Type;

/// Why a configuration cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// It is not of the object's type.
    #[error("failed to convert patch object to typed object: {0}")]
    Configuration(String),
    /// It would replace what it does not name.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomics(Vec<String>),
    /// The object is not of its type.
    #[error("failed to convert original object to typed object: {0}")]
    Object(String),
    /// The two do not fit together.
    #[error("failed to merge patch: {0}")]
    Merge(String),
}

/// The object with what a configuration, which says the same kind, wants of it.
///
/// Errors: the configuration is not of the type, or has lists or objects that are atomic.
pub fn configured(
    schema: Option<Type<'_>>,
    object: &Value,
    configuration: &Value,
) -> Result<Value, ConfigurationError> {
    let shape = Shape::of(schema);
    let faults = typed::validate(shape, configuration, Duplicates::Refused);
    if !faults.is_empty() {
        return Err(ConfigurationError::Configuration(typed::told(&faults)));
    }
    let atomics = typed::atomics(shape, configuration);
    if !atomics.is_empty() {
        return Err(ConfigurationError::Atomics(atomics));
    }
    let faults = typed::validate(shape, object, Duplicates::Allowed);
    if !faults.is_empty() {
        return Err(ConfigurationError::Object(typed::told(&faults)));
    }
    typed::merge(shape, object, configuration).map_err(|faults| ConfigurationError::Merge(typed::told(&faults)))
}
