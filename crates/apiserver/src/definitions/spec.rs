//! What is wrong with a definition.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/validation/validation.go`. A kube-apiserver checks
//! its internal version, in which what all versions have alike stands beside them: so its errors name it there.

use kubefold_wire::golang;
use serde_json::{Value, json};

use super::{review::Review, schema};
use crate::{
    kinds::{client_config, known_versions},
    rules,
    schema::bad_value,
    webhook::is_authority,
};
use kubefold_wire::{
    access::{items as list, text},
    invalid::{Errors, Path},
    names::{dns_subdomain, dns1035_label},
    status::Cause as Fault,
};

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "name", "password"];

/// What is wrong with a definition, and with its change from another.
pub(super) fn faults(definition: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut found = Vec::new();
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    if old.is_none() {
        name(&mut found, definition, spec);
    }
    group_and_scope(&mut found, spec);
    versions(&mut found, spec, old);
    names(&mut found, spec);
    common(&mut found, spec, old);
    conversion(&mut found, spec, old);
    if let Some(old) = old {
        immutable(&mut found, spec, old);
    }
    stored(&mut found, definition, spec);
    approval(&mut found, definition, spec);
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                   instead";
        found.push(Fault::invalid("spec.preserveUnknownFields", "true", why));
    }
    found
}

/// All that is wrong with a name, as one message.
fn joined(wrong: &[String]) -> Option<String> {
    (!wrong.is_empty()).then(|| wrong.join(","))
}

fn name(found: &mut Vec<Fault>, definition: &Value, spec: &Value) {
    let name = text(definition, "/metadata/name");
    let wanted = format!("{}.{}", text(spec, "/names/plural"), text(spec, "/group"));
    found.extend(dns_subdomain(name).iter().map(|why| Fault::invalid("metadata.name", &golang::quoted(name), why)));
    if name != wanted {
        let why = "must be spec.names.plural+\".\"+spec.group";
        found.push(Fault::invalid("metadata.name", &golang::quoted(name), why));
    }
}

fn group_and_scope(found: &mut Vec<Fault>, spec: &Value) {
    let group = text(spec, "/group");
    if group.is_empty() {
        found.push(Fault::required("spec.group", ""));
    } else if let Some(why) = joined(&dns_subdomain(group)) {
        found.push(Fault::invalid("spec.group", &golang::quoted(group), &why));
    } else if !group.contains('.') {
        found.push(Fault::invalid("spec.group", &golang::quoted(group), "should be a domain with at least one dot"));
    }
    match text(spec, "/scope") {
        "" => found.push(Fault::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => found.push(Fault::unsupported("spec.scope", other, &["Cluster", "Namespaced"])),
    }
}

/// Whether all versions have the same at a place.
fn is_common(spec: &Value, at: &str) -> bool {
    let mut versions = list(spec, "/versions").iter().map(|version| version.pointer(at).filter(|at| !at.is_null()));
    let Some(first) = versions.next() else { return true };
    versions.all(|other| other == first)
}

fn versions(found: &mut Vec<Fault>, spec: &Value, old: Option<&Value>) {
    let all = list(spec, "/versions");
    for (index, version) in all.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            found.push(Fault::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    for (index, version) in all.iter().enumerate() {
        let at = format!("spec.versions[{index}]");
        let name = text(version, "/name");
        if let Some(why) = joined(&dns1035_label(name)) {
            found.push(Fault::invalid(format!("{at}.name"), &golang::quoted(name), &why));
        }
        let warning = version.get("deprecationWarning").and_then(Value::as_str);
        if let Some(warning) = warning.filter(|_| version.get("deprecated") != Some(&Value::Bool(true))) {
            let why = "can only be set for deprecated versions";
            found.push(Fault::invalid(format!("{at}.deprecationWarning"), &golang::quoted(warning), why));
        }
        if !is_common(spec, "/schema") {
            schemas(found, version, old, &format!("{at}.schema"));
        }
        if !is_common(spec, "/subresources") {
            subresources(found, version, &format!("{at}.subresources"));
        }
        if !is_common(spec, "/additionalPrinterColumns") {
            columns(found, version, &format!("{at}.additionalPrinterColumns"));
        }
    }
    let names: Vec<&str> = all.iter().map(|version| text(version, "/name")).collect();
    if names.iter().enumerate().any(|(index, name)| names.iter().take(index).any(|before| before == name)) {
        found.push(Fault::invalid("spec.versions", &shown(spec), "must contain unique version names"));
    }
    if all.iter().filter(|version| version.get("storage") == Some(&Value::Bool(true))).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        found.push(Fault::invalid("spec.versions", &shown(spec), why));
    }
    if let Some((first, why)) = names.first().and_then(|first| Some((first, joined(&dns1035_label(first))?))) {
        found.push(Fault::invalid("spec.version", &golang::quoted(first), &why));
    }
}

/// The versions as Go prints its internal type.
fn shown(spec: &Value) -> String {
    let versions = list(spec, "/versions").iter().map(|version| {
        let own = |at: &str| version.get(at).filter(|_| !is_common(spec, &format!("/{at}"))).unwrap_or(&Value::Null);
        let truth = |at: &str| version.get(at) == Some(&Value::Bool(true));
        json!({
            "Name": text(version, "/name"),
            "Served": truth("served"),
            "Storage": truth("storage"),
            "Deprecated": truth("deprecated"),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": own("schema"),
            "Subresources": own("subresources"),
            "AdditionalPrinterColumns": own("additionalPrinterColumns"),
            "SelectableFields": own("selectableFields"),
        })
        .to_string()
    });
    format!("[{}]", versions.collect::<Vec<_>>().join(","))
}

/// What all versions have alike.
fn common(found: &mut Vec<Fault>, spec: &Value, old: Option<&Value>) {
    let Some(version) = list(spec, "/versions").first() else { return };
    if is_common(spec, "/schema") {
        schemas(found, version, old, "spec.validation");
    }
    if is_common(spec, "/subresources") {
        subresources(found, version, "spec.subresources");
    }
    if is_common(spec, "/additionalPrinterColumns") {
        columns(found, version, "spec.additionalPrinterColumns");
    }
}

fn schemas(found: &mut Vec<Fault>, version: &Value, old: Option<&Value>, path: &str) {
    if let Some(schema) = version.pointer("/schema/openAPIV3Schema").filter(|schema| !schema.is_null()) {
        let path = format!("{path}.openAPIV3Schema");
        let wrong = schema::faults(&path, schema);
        let mut stored = old.into_iter().flat_map(|old| list(old, "/spec/versions"));
        let before = stored.find(|stored| text(stored, "/name") == text(version, "/name"));
        let is_stored = before.and_then(|before| before.pointer("/schema/openAPIV3Schema")) == Some(schema);
        // A schema that is wrong says no types to rules.
        found.extend(if wrong.is_empty() { rules::faults(&path, schema, is_stored) } else { wrong });
    }
}

fn subresources(found: &mut Vec<Fault>, version: &Value, path: &str) {
    let Some(scale) = version.pointer("/subresources/scale").filter(|scale| !scale.is_null()) else { return };
    let places = [
        ("specReplicasPath", &[".spec."] as &[&str], "under .spec", true),
        ("statusReplicasPath", &[".status."], "under .status", true),
        ("labelSelectorPath", &[".spec.", ".status."], "under either .spec or .status", false),
    ];
    for (name, starts, place, needed) in places {
        let at = format!("{path}.scale.{name}");
        match text(scale, &format!("/{name}")) {
            "" if needed => found.push(Fault::required(at, "")),
            "" => {}
            said if !said.starts_with('.') => {
                found.push(Fault::invalid(at, &golang::quoted(said), "must be a simple json path starting with ."));
            }
            said if !starts.iter().any(|start| said.starts_with(start)) => {
                found.push(Fault::invalid(at, &golang::quoted(said), &format!("should be a json path {place}")));
            }
            _ => {}
        }
    }
}

fn columns(found: &mut Vec<Fault>, version: &Value, path: &str) {
    for (index, column) in list(version, "/additionalPrinterColumns").iter().enumerate() {
        let at = format!("{path}[{index}]");
        let field = |name: &str| text(column, &format!("/{name}")).to_owned();
        if field("name").is_empty() {
            found.push(Fault::required(format!("{at}.name"), ""));
        }
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        match field("type").as_str() {
            "" => found.push(Fault::required(format!("{at}.type"), &types)),
            known if COLUMN_TYPES.contains(&known) => {}
            other => found.push(Fault::invalid(format!("{at}.type"), &golang::quoted(other), &types)),
        }
        let format = field("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format.as_str()) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            found.push(Fault::invalid(format!("{at}.format"), &golang::quoted(&format), &why));
        }
        match field("jsonPath").as_str() {
            "" => found.push(Fault::required(format!("{at}.JSONPath"), "")),
            path if path.starts_with('.') => {}
            other => {
                let why = "must be a simple json path starting with .";
                found.push(Fault::invalid(format!("{at}.JSONPath"), &golang::quoted(other), why));
            }
        }
    }
}

fn names(found: &mut Vec<Fault>, spec: &Value) {
    let said = |name: &str| text(spec, &format!("/names/{name}")).to_owned();
    for name in ["plural", "singular", "kind", "listKind"].into_iter().filter(|name| said(name).is_empty()) {
        found.push(Fault::required(format!("spec.names.{name}"), ""));
    }
    for name in ["plural", "singular"] {
        let value = said(name);
        if let Some(why) = joined(&dns1035_label(&value)).filter(|_| !value.is_empty()) {
            found.push(Fault::invalid(format!("spec.names.{name}"), &golang::quoted(&value), &why));
        }
    }
    for name in ["kind", "listKind"] {
        let value = said(name);
        if let Some(why) = joined(&dns1035_label(&value.to_lowercase())).filter(|_| !value.is_empty()) {
            let why = format!("may have mixed case, but should otherwise match: {why}");
            found.push(Fault::invalid(format!("spec.names.{name}"), &golang::quoted(&value), &why));
        }
    }
    let each = |found: &mut Vec<Fault>, name: &str| {
        for (index, value) in list(spec, &format!("/names/{name}")).iter().filter_map(Value::as_str).enumerate() {
            if let Some(why) = joined(&dns1035_label(value)) {
                found.push(Fault::invalid(format!("spec.names.{name}[{index}]"), &golang::quoted(value), &why));
            }
        }
    };
    each(found, "shortNames");
    if !said("kind").is_empty() && said("kind") == said("listKind") {
        let value = golang::quoted(&said("listKind"));
        found.push(Fault::invalid("spec.names.listKind", &value, "kind and listKind may not be the same"));
    }
    each(found, "categories");
}

fn conversion(found: &mut Vec<Fault>, spec: &Value, old: Option<&Value>) {
    let Some(conversion) = spec.get("conversion").filter(|conversion| !conversion.is_null()) else { return };
    let strategy = text(conversion, "/strategy");
    if strategy != "None" && spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let why = "must be None if spec.preserveUnknownFields is true";
        found.push(Fault::invalid_text("spec.conversion.strategy", strategy, why));
    }
    match strategy {
        "None" | "Webhook" => {}
        "" => found.push(Fault::required("spec.conversion.strategy", "")),
        other => found.push(Fault::unsupported("spec.conversion.strategy", other, &["None", "Webhook"])),
    }
    let config = conversion.pointer("/webhook/clientConfig").filter(|config| !config.is_null());
    let versions = list(conversion, "/webhook/conversionReviewVersions");
    let (at_config, at_versions) = ("spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions");
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        let set = [(at_config, config.is_some()), (at_versions, !versions.is_empty())];
        found.extend(set.into_iter().filter(|(_, is_set)| *is_set).map(|(at, _)| Fault::forbidden(at, why)));
        return;
    }
    let mut errors = Errors::default();
    match config {
        None => errors.required(&Path::new(at_config), "required when strategy is set to Webhook"),
        Some(config) => {
            client_config(config, &Path::new(at_config), &mut errors);
            let bundle = text(config, "/caBundle");
            if !bundle.is_empty() && !may_have_any_bundle(old) && !is_authority(bundle) {
                let why = "unable to load root certificates: unable to parse bytes as PEM block";
                errors.invalid(&Path::new(at_config).child("caBundle"), bundle, why);
            }
        }
    }
    match versions {
        [] => errors.required(&Path::new(at_versions), ""),
        versions => {
            let before = old.map(|old| list(old, "/spec/conversion/webhook/conversionReviewVersions"));
            let is_odd = |versions: &[Value]| {
                let mut known = versions.iter().filter_map(Value::as_str).filter_map(Review::known);
                !versions.is_empty() && known.next().is_none()
            };
            known_versions(versions, before.is_some_and(is_odd), &Path::new(at_versions), &mut errors);
        }
    }
    found.extend(errors.into_causes());
}

/// What is not established yet, or had no authority that can be read, may have one.
fn may_have_any_bundle(old: Option<&Value>) -> bool {
    let Some(old) = old.filter(|old| is_established(old)) else { return true };
    let before = text(old, "/spec/conversion/webhook/clientConfig/caBundle");
    !before.is_empty() && !is_authority(before)
}

fn is_established(definition: &Value) -> bool {
    list(definition, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == "Established" && text(condition, "/status") == "True")
}

/// What stays once a definition is established.
fn immutable(found: &mut Vec<Fault>, spec: &Value, old: &Value) {
    let is_established = is_established(old);
    let places: &[(&str, &str, bool)] = &[
        ("/group", "spec.group", true),
        ("/names/plural", "spec.names.plural", true),
        ("/names/kind", "spec.names.kind", is_established),
        ("/scope", "spec.scope", is_established),
    ];
    for (at, field, stays) in places {
        let (new, old) = (spec.pointer(at), old.pointer(&format!("/spec{at}")));
        if *stays && new != old {
            found.push(Fault::invalid(*field, &bad_value(new.unwrap_or(&Value::Null)), "field is immutable"));
        }
    }
}

fn stored(found: &mut Vec<Fault>, definition: &Value, spec: &Value) {
    let stored = list(definition, "/status/storedVersions");
    if stored.is_empty() {
        found.push(Fault::invalid("status.storedVersions", "null", "must have at least one stored version"));
        return;
    }
    let has = |name: &str| stored.iter().any(|stored| stored == name);
    for version in list(spec, "/versions").iter().filter(|version| version.get("storage") == Some(&Value::Bool(true))) {
        let name = text(version, "/name");
        if !has(name) {
            let why = format!("must have the storage version {name}");
            found.push(Fault::invalid("status.storedVersions", &bad_value(&json!(stored)), &why));
        }
    }
    for (index, name) in stored.iter().filter_map(Value::as_str).enumerate() {
        if !list(spec, "/versions").iter().any(|version| text(version, "/name") == name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            found.push(Fault::invalid(format!("status.storedVersions[{index}]"), &golang::quoted(name), &why));
        }
    }
}

/// Groups of Kubernetes' own want a word of approval.
fn approval(found: &mut Vec<Fault>, definition: &Value, spec: &Value) {
    let group = text(spec, "/group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .into_iter()
        .any(|own| group == own || group.strip_suffix(own).is_some_and(|start| start.ends_with('.')));
    let said = definition.pointer("/metadata/annotations/api-approved.kubernetes.io").and_then(Value::as_str);
    if is_protected && said.unwrap_or_default().is_empty() {
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/\
                   kubernetes/enhancements/pull/1111";
        found.push(Fault::required("metadata.annotations[api-approved.kubernetes.io]", why));
    }
}
