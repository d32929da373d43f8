//! One member that is no entry of `clusters.yaml`, but has the same fields.

use std::{collections::HashMap, path::Path};

use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use crate::config::{
    MemberConfig, SpecError,
    files::Files,
    load::{member, yaml_cause},
    raw::RawMember,
};

/// Reads a member whose fields are those of an entry of `members`. Whoever gives the fields has them name no files that others must
/// not have read.
///
/// Errors: what is wrong with it first.
pub fn member_of(fields: Map<String, Value>) -> Result<MemberConfig, SpecError> {
    let text = Value::Object(fields).to_string();
    let raw: Spanned<RawMember> =
        serde_saphyr::from_str(&text).map_err(|error| SpecError::Syntax(yaml_cause(&error)))?;
    Ok(member(&raw, &mut HashMap::new(), &mut Files::beside(Path::new(""))).map_err(|fault| fault.problem)?)
}
