//! One policy that is no entry of `clusters.yaml`, but has the same fields.

use std::{borrow::Cow, collections::HashMap};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serde_saphyr::Spanned;

use super::{Known, policy};
use crate::config::{Config, PolicyConfig, Problem, load::yaml_cause, raw::RawPolicy};

/// An entry of `policies` without its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicySpec(Value);

/// The schema is that of the entry.
impl JsonSchema for PolicySpec {
    fn schema_name() -> Cow<'static, str> {
        "PolicySpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = RawPolicy::json_schema(generator);
        if let Some(fields) = schema.as_object_mut() {
            fields.insert("description".to_owned(), "A placement policy, as in clusters.yaml.".into());
            if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
                properties.remove("name");
                // A label, or a list of labels with numbers.
                if let Some(spread) = properties.get_mut("spread") {
                    *spread =
                        json!({"description": spread.get("description"), "x-kubernetes-preserve-unknown-fields": true});
                }
            }
            if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|field| field != "name");
            }
        }
        schema
    }
}

/// Why a policy or a member is none, in the words of `clusters.yaml`.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// A field is unknown, or not of its type.
    #[error("{0}")]
    Syntax(String),
    /// A value is wrong.
    #[error(transparent)]
    Problem(#[from] Box<Problem>),
}

impl SpecError {
    /// Whether it is the name that is wrong.
    pub fn is_of_name(&self) -> bool {
        let Self::Problem(problem) = self else { return false };
        matches!(**problem, Problem::InvalidName { .. } | Problem::ReservedName { .. })
    }
}

/// Reads a policy.
///
/// Errors: what is wrong with it first.
pub fn policy_of(name: &str, spec: &PolicySpec, config: &Config) -> Result<PolicyConfig, SpecError> {
    let mut entry = match &spec.0 {
        Value::Object(fields) => fields.clone(),
        _ => serde_json::Map::new(),
    };
    entry.insert("name".to_owned(), name.into());
    let text = Value::Object(entry).to_string();
    let raw: Spanned<RawPolicy> =
        serde_saphyr::from_str(&text).map_err(|error| SpecError::Syntax(yaml_cause(&error)))?;
    let known = Known { members: &config.members, kinds: &config.kinds };
    Ok(policy(&raw.value, known, &mut HashMap::new()).map_err(|fault| fault.problem)?)
}
