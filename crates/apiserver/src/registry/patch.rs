//! Patches of objects that are there, and applies of those that may not be.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/patch.go`.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    kinds::Kind,
    patch::{self, Apply},
    registry::{
        Part, Preconditions, Registry, WriteOptions, Written, errors, managed::typed, meta, versions::Conversions,
    },
    schema::{FieldValidation, Text, decode},
};
use kubefold_wire::status::{Cause, Status};

/// A patch, as its media type says.
#[derive(Clone, Debug)]
pub enum Patch {
    /// RFC 6902.
    Json(Bytes),
    /// RFC 7386.
    Merge(Bytes),
    /// Kubernetes' own, by the types of built-in kinds.
    Strategic(Bytes),
    /// Server-side apply.
    Apply {
        /// What is to be.
        object: Value,
        /// Whether fields of others are taken.
        force: bool,
    },
}

/// What a request says of its patch.
#[derive(Clone, Copy)]
struct PatchTerms<'a> {
    conversions: &'a Conversions,
    validation: FieldValidation,
    /// Whose the fields of an apply are.
    manager: &'a str,
    /// The part of the object that is patched.
    part: Part,
}

impl Registry {
    /// Patches an object. An apply makes it if it is not there.
    ///
    /// Errors: in Kubernetes' words: 400, 404, 409, 413, 422.
    pub async fn patch(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        patch: &Patch,
        validation: FieldValidation,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let is_apply = matches!(patch, Patch::Apply { .. });
        let mut options = options.clone();
        options.may_create = is_apply && options.part == Part::Whole;
        // An apply says itself whose the fields are.
        let manager = if is_apply { options.manager.clone() } else { String::new() };
        options.applies = is_apply;
        options.force = matches!(patch, Patch::Apply { force: true, .. });
        let none = Conversions::default();
        let terms = PatchTerms { conversions: &none, validation, manager: &manager, part: options.part };
        let mut warnings = Vec::new();
        let mut revise = |there: Option<&Value>, conversions: &Conversions| {
            let (object, findings) = self.patched(kind, name, there, patch, &PatchTerms { conversions, ..terms })?;
            warnings = findings;
            check_name(&object, namespace, name)?;
            Ok(object)
        };
        let none = Preconditions::default();
        let mut written = Box::pin(self.revise(kind, namespace, name, &options, &none, &mut revise)).await?;
        written.warnings.splice(0..0, warnings);
        Ok(written)
    }

    fn patched(
        &self,
        kind: &Kind,
        name: &str,
        there: Option<&Value>,
        patch: &Patch,
        terms: &PatchTerms<'_>,
    ) -> Result<(Value, Vec<String>), Status> {
        let &PatchTerms { conversions, validation, manager, part } = terms;
        let missing = || errors::not_found(kind, name);
        let object = match patch {
            Patch::Json(patch) => patch::json(there.ok_or_else(missing)?, patch)?,
            Patch::Merge(patch) => patch::merge(there.ok_or_else(missing)?, patch)?,
            Patch::Strategic(patch) => {
                let typed = typed(kind).ok_or_else(|| Status::internal("strategic merge patch of an unknown type"))?;
                patch::strategic(there.ok_or_else(missing)?, patch, typed)?
            }
            Patch::Apply { object, force } => {
                let described = self.described(kind, conversions);
                let now = self.inner.env.now_text();
                let uid = meta::text(object, "uid");
                if there.is_none() && !uid.is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(errors::conflict(kind, name, &why));
                }
                let mut object = object.clone();
                if there.is_none() && meta::text(&object, "name").is_empty() {
                    meta::set(&mut object, "name", Some(name.into()));
                }
                let subject = described.subject(part);
                patch::apply(Apply { live: there, applied: &object, manager, force: *force, now: &now, subject })?
            }
        };
        decoded(kind, object, validation)
    }
}

/// The patched object as its type has it, and what of it was dropped.
///
/// Errors: 422.
fn decoded(kind: &Kind, object: Value, validation: FieldValidation) -> Result<(Value, Vec<String>), Status> {
    let Some(typed) = typed(kind) else { return Ok((object, Vec::new())) };
    let json = object.to_string();
    let refused = |why: &dyn std::error::Error| {
        let cause = Cause::invalid_text("patch", &json, &why.to_string());
        Status::invalid("", "", "", vec![cause])
    };
    let text = Text::read(&json).map_err(|error| refused(&error))?;
    let decoded = decode(typed, &text).map_err(|error| refused(&error))?;
    let findings = validation.judge(decoded.findings).map_err(|error| refused(&error))?;
    Ok((decoded.object, findings))
}

/// Errors: 400, if an object is not the one that the path names.
pub fn check_name(object: &Value, namespace: &str, name: &str) -> Result<(), Status> {
    let said = meta::text(object, "name");
    if said != name {
        if said.is_empty() {
            let message =
                format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
            return Err(Status::bad_request(message));
        }
        let message = format!("the name of the object ({said}) does not match the name on the URL ({name})");
        return Err(Status::bad_request(message));
    }
    let said = meta::text(object, "namespace");
    if !namespace.is_empty() && !said.is_empty() && said != namespace {
        let message =
            format!("the namespace of the object ({said}) does not match the namespace on the request ({namespace})");
        return Err(Status::bad_request(message));
    }
    Ok(())
}
