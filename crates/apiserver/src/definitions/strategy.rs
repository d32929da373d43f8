//! What is special to definitions themselves.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/registry/customresourcedefinition/strategy.go`,
//! `pkg/apis/apiextensions/v1/defaults.go`.

use serde_json::{Value, json};

use super::{FINALIZER, controller::set_condition, schema, spec};
use crate::kinds::{Context, Strategy, keep, keep_all_but_status, put, raise_generation, set_generation};
use kubefold_wire::{golang::Quoted, status::Cause};

/// Of `customresourcedefinitions`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Definition;

impl Strategy for Definition {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
        if let Some(names) = spec.get_mut("names").filter(|names| names.is_object()) {
            let said =
                |names: &Value, name: &str| names.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let kind = said(names, "kind");
            if said(names, "singular").is_empty() && !kind.is_empty() {
                put(names, "singular", Some(kind.to_lowercase().into()));
            }
            if said(names, "listKind").is_empty() && !kind.is_empty() {
                put(names, "listKind", Some(format!("{kind}List").into()));
            }
        }
        if spec.get("conversion").is_none_or(Value::is_null) {
            put(spec, "conversion", Some(json!({"strategy": "None"})));
        }
        let service = spec.pointer_mut("/conversion/webhook/clientConfig/service");
        if let Some(service) = service.filter(|service| service.is_object() && service["port"].is_null()) {
            put(service, "port", Some(443.into()));
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _context: Context<'_>) {
        set_generation(object, 1);
        put(object, "status", None);
        drop_empty_webhook(object);
        add_stored(object);
    }

    fn validate(&self, object: &Value, _context: Context<'_>) -> Vec<Cause> {
        spec::faults(object, None)
    }

    fn warnings(&self, object: &Value, _context: Context<'_>) -> Vec<String> {
        let mut formats = Vec::new();
        let versions = object.pointer("/spec/versions").and_then(Value::as_array);
        for version in versions.into_iter().flatten() {
            let Some(schema) = version.pointer("/schema/openAPIV3Schema") else { continue };
            schema::unknown_formats(schema, &mut formats);
        }
        formats.sort();
        formats.dedup();
        formats.iter().map(|format| format!("unrecognized format {format}", format = Quoted(format))).collect()
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _context: Context<'_>) {
        keep(new, old, "status");
        drop_empty_webhook(new);
        add_stored(new);
        raise_generation(new, old);
    }

    /// What is stored is one of the versions that were: a client cannot say otherwise.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        add_stored(new);
    }

    /// Source: `pkg/registry/customresourcedefinition/etcd.go` `Delete`. It does not raise the generation, and there is no grace period.
    fn begin_deletion(&self, object: &mut Value, now: &str) -> bool {
        let why = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        set_condition(object, "Terminating", ["True", "InstanceDeletionPending", why], now);
        if let Some(metadata) = object.get_mut("metadata") {
            put(metadata, "deletionTimestamp", Some(now.into()));
        }
        true
    }

    fn validate_update(&self, new: &Value, old: &Value, _context: Context<'_>) -> Vec<Cause> {
        spec::faults(new, Some(old))
    }

    fn finalizers_of_deletion(&self) -> &[&'static str] {
        &[FINALIZER]
    }
}

/// A webhook without any field is none: a kube-apiserver has its fields beside the strategy.
fn drop_empty_webhook(object: &mut Value) {
    let Some(conversion) = object.pointer_mut("/spec/conversion") else { return };
    let config = conversion.pointer("/webhook/clientConfig");
    let versions = conversion.pointer("/webhook/conversionReviewVersions").and_then(Value::as_array);
    if config.is_none_or(Value::is_null) && versions.is_none_or(Vec::is_empty) {
        put(conversion, "webhook", None);
    }
}

/// Names the storage version in the status, which is as Go prints it even where nothing is known yet.
pub(super) fn add_stored(object: &mut Value) {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    let storage = versions.into_iter().flatten().find(|version| version.get("storage") == Some(&Value::Bool(true)));
    let name = storage.and_then(|version| version.get("name")).cloned();
    let Some(fields) = object.as_object_mut() else { return };
    let status = fields.entry("status").or_insert_with(
        || json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}),
    );
    let Some(status) = status.as_object_mut() else { return };
    let stored = status.entry("storedVersions").or_insert(Value::Null);
    if stored.is_null() && name.is_some() {
        *stored = json!([]);
    }
    if let (Some(stored), Some(name)) = (stored.as_array_mut(), name)
        && !stored.contains(&name)
    {
        stored.push(name);
    }
}
