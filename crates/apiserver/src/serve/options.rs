//! What a client says of a write beside the object, validated as Kubernetes does.
//!
//! Source: kubernetes/apimachinery `pkg/apis/meta/v1/validation/validation.go`.

use bytes::Bytes;
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    kinds::{Propagation, put},
    patch::managed::manager_of,
    registry::{DeleteOptions, Part, Preconditions, WriteOptions},
    schema::FieldValidation,
};
use kubefold_wire::{
    golang::Quoted,
    options::query_value,
    status::{Cause, Status},
};

const MANAGER_BYTES_MAX: usize = 128;

/// Options of a create, an update or a patch.
pub(super) struct RequestOptions {
    pub(super) write: WriteOptions,
    pub(super) validation: FieldValidation,
    /// Of an apply: fields of others are taken.
    pub(super) force: bool,
}

/// What kind of write the options are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Create,
    Update,
    Patch,
    Apply,
}

impl RequestOptions {
    /// Reads the query of a write.
    ///
    /// Errors: 422.
    pub(super) fn read(query: &str, headers: &HeaderMap, of: Of, part: Part) -> Result<Self, Status> {
        let text = |name: &str| query_value(query, name).unwrap_or_default();
        let (manager, validation) = (text("fieldManager"), text("fieldValidation"));
        let mut causes = Vec::new();
        let force = query_value(query, "force");
        if of == Of::Apply && manager.is_empty() {
            causes.push(Cause::new(
                "FieldValueRequired",
                "fieldManager",
                "Required value: is required for apply patch",
            ));
        }
        if of == Of::Patch && force.is_some() {
            causes.push(Cause::new(
                "FieldValueForbidden",
                "force",
                "Forbidden: may not be specified for non-apply patch",
            ));
        }
        if manager.len() > MANAGER_BYTES_MAX {
            let message = format!("Too long: may not be more than {MANAGER_BYTES_MAX} bytes");
            causes.push(Cause::new("FieldValueTooLong", "fieldManager", message));
        }
        for (at, odd) in manager.char_indices().filter(|(_, c)| c.is_control()) {
            let message = format!(
                "Invalid value: {manager}: invalid character U+{:04X} (at position {at})",
                u32::from(odd),
                manager = Quoted(&manager)
            );
            causes.push(Cause::new("FieldValueInvalid", "fieldManager", message));
        }
        let dry_run = dry_run(&values(query, "dryRun"), &mut causes);
        let parsed = FieldValidation::parse(&validation);
        if parsed.is_none() {
            let supported = r#""", "Ignore", "Strict", "Warn""#;
            let message = format!(
                "Unsupported value: {validation}: supported values: {supported}",
                validation = Quoted(&validation)
            );
            causes.push(Cause::new("FieldValueNotSupported", "fieldValidation", message));
        }
        if !causes.is_empty() {
            let kind = match of {
                Of::Create => "CreateOptions",
                Of::Update => "UpdateOptions",
                Of::Patch | Of::Apply => "PatchOptions",
            };
            return Err(Status::invalid("meta.k8s.io", kind, "", causes));
        }
        let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let manager = manager_of(&manager, agent);
        // A client that says nothing of itself owns its fields, too, under no name; here under one, so that it is said.
        let manager = if manager.is_empty() { "unknown".to_owned() } else { manager };
        let mut options = json!({});
        for name in ["fieldManager", "fieldValidation"] {
            put(&mut options, name, Some(text(name)).filter(|text| !text.is_empty()).map(Value::from));
        }
        let validation = parsed.unwrap_or_default();
        Ok(Self {
            write: WriteOptions { dry_run, manager, part, validation, said: options, ..WriteOptions::default() },
            validation,
            force: force.is_some_and(|force| !matches!(force.to_ascii_lowercase().as_str(), "false" | "0")),
        })
    }
}

/// All values of a query parameter.
fn values(query: &str, name: &str) -> Vec<String> {
    let pairs = query.split('&').filter(|pair| pair.split('=').next() == Some(name));
    pairs.map(|pair| query_value(pair, name).unwrap_or_default()).collect()
}

fn dry_run(said: &[String], causes: &mut Vec<Cause>) -> bool {
    if said.iter().any(|value| value != "All") {
        let shown: Vec<String> = said.iter().map(|value| Quoted(value).to_string()).collect();
        let message = format!("Unsupported value: [{}]: supported values: \"All\"", shown.join(","));
        causes.push(Cause::new("FieldValueNotSupported", "dryRun", message));
    }
    !said.is_empty()
}

/// `metav1.DeleteOptions`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Body {
    kind: Option<String>,
    api_version: Option<String>,
    grace_period_seconds: Option<i64>,
    preconditions: Option<BodyPreconditions>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BodyPreconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Reads the options of a delete from its body or, if there is none, from its query. Says, too, whether a client that
/// wants its dependents deleted is told 202 while the object waits.
///
/// Errors: 400, 422.
pub(super) fn of_delete(query: &str, body: &Bytes) -> Result<(DeleteOptions, bool), Status> {
    let said = if body.trim_ascii().is_empty() {
        of_query(query)?
    } else {
        let said: Body = serde_json::from_slice(body).map_err(|error| Status::bad_request(error.to_string()))?;
        if let Some(kind) = said.kind.as_deref().filter(|kind| !matches!(*kind, "" | "DeleteOptions")) {
            let version = said.api_version.as_deref().unwrap_or("meta.k8s.io/v1");
            let scheme = "in scheme \"pkg/runtime/scheme.go:111\"";
            let message = format!(
                "no kind {kind} is registered for version {version} {scheme}",
                kind = Quoted(kind),
                version = Quoted(version)
            );
            return Err(Status::bad_request(message));
        }
        said
    };
    let mut causes = Vec::new();
    let policy = said.propagation_policy.as_deref();
    if let (Some(policy), Some(_)) = (policy, said.orphan_dependents) {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        let message = format!("Invalid value: {policy}: {why}", policy = Quoted(policy));
        causes.push(Cause::new("FieldValueInvalid", "propagationPolicy", message));
    }
    let propagation = match policy {
        None => said.orphan_dependents.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
        Some("Foreground") => Some(Propagation::Foreground),
        Some("Background") => Some(Propagation::Background),
        Some("Orphan") => Some(Propagation::Orphan),
        Some(other) => {
            let supported = r#""Foreground", "Background", "Orphan", "nil""#;
            let message = format!("Unsupported value: {other}: supported values: {supported}", other = Quoted(other));
            causes.push(Cause::new("FieldValueNotSupported", "propagationPolicy", message));
            None
        }
    };
    let dry_run = dry_run(&said.dry_run.unwrap_or_default(), &mut causes);
    if !causes.is_empty() {
        return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", causes));
    }
    let preconditions = said.preconditions.unwrap_or_default();
    let mut options = json!({});
    put(&mut options, "gracePeriodSeconds", said.grace_period_seconds.map(Value::from));
    put(&mut options, "orphanDependents", said.orphan_dependents.map(Value::from));
    put(&mut options, "propagationPolicy", said.propagation_policy.map(Value::from));
    let options = DeleteOptions {
        said: options,
        dry_run,
        preconditions: Preconditions { uid: preconditions.uid, resource_version: preconditions.resource_version },
        grace_seconds: said.grace_period_seconds,
        propagation,
    };
    Ok((options, said.orphan_dependents == Some(false)))
}

fn of_query(query: &str) -> Result<Body, Status> {
    let number = |text: String| {
        text.parse::<i64>().map_err(|_| {
            Status::bad_request(format!("strconv.ParseInt: parsing {text}: invalid syntax", text = Quoted(text)))
        })
    };
    let dry_run = values(query, "dryRun");
    Ok(Body {
        kind: None,
        api_version: None,
        grace_period_seconds: query_value(query, "gracePeriodSeconds").map(number).transpose()?,
        preconditions: None,
        orphan_dependents: query_value(query, "orphanDependents")
            .map(|text| !matches!(text.to_ascii_lowercase().as_str(), "false" | "0")),
        propagation_policy: query_value(query, "propagationPolicy"),
        dry_run: Some(dry_run),
    })
}
