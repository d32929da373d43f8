//! The kinds that a definition makes.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/registry/customresource/strategy.go`, `status_strategy.go`,
//! `pkg/apiserver/customresource_handler.go`.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    kinds::{
        Context, ConversionError, Converter, Kind, Scale, Strategy, Subresource, forbidden, keep, put, set_generation,
    },
    rules::Rules,
    schema::{Types, arrange, bad_value, fill_defaults, prune, structural, validate, validate_update},
};
use kubefold_table::{Definition as Columns, Printer};
use kubefold_wire::access;
use kubefold_wire::{
    golang,
    status::{Cause, Status},
};

/// As discovery lists them.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

const PART_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The kinds of the versions that are served, most preferred first.
pub(super) fn kinds(definition: &Value, converter: Option<Arc<dyn Converter>>) -> Vec<Kind> {
    let versions = access::items(definition, "/spec/versions");
    let mut served: Vec<&Value> = versions.iter().filter(|version| is(version, "served")).collect();
    served.sort_by_key(|version| std::cmp::Reverse(rank(name_of(version))));
    made(definition, converter, &served)
}

/// The kind of the version that is stored, served or not.
pub(super) fn stored_kind(definition: &Value, converter: Option<Arc<dyn Converter>>) -> Option<Kind> {
    let stored = storage(definition)?;
    made(definition, converter, &[stored]).pop()
}

fn is(version: &Value, what: &str) -> bool {
    version.get(what) == Some(&Value::Bool(true))
}

fn storage(definition: &Value) -> Option<&Value> {
    access::items(definition, "/spec/versions").iter().find(|version| is(version, "storage"))
}

/// The kinds of some versions.
fn made(definition: &Value, converter: Option<Arc<dyn Converter>>, versions: &[&Value]) -> Vec<Kind> {
    let text = |at: &str| access::text(definition, at);
    let (group, kind) = (text("/spec/group"), text("/status/acceptedNames/kind"));
    let names = |at: &str| access::texts(definition, at).map(str::to_owned).collect::<Vec<_>>();
    let whole = definition.to_string();
    // Its schemas may be others than they were when objects were stored.
    let has_changed = definition.pointer("/metadata/generation").and_then(Value::as_i64).is_some_and(|count| count > 1);
    let types_of = |version: &Value| {
        let schema = version.pointer("/schema/openAPIV3Schema");
        Arc::new(structural(&type_name(group, name_of(version), kind), schema))
    };
    let stored = storage(definition).map(|version| Stored {
        api_version: format!("{group}/{}", name_of(version)),
        types: types_of(version),
        type_name: type_name(group, name_of(version), kind),
    });
    let make = |version: &&Value| {
        let version = *version;
        let name = name_of(version);
        let type_name = type_name(group, name, kind);
        let schema = version.pointer("/schema/openAPIV3Schema").cloned();
        let types = types_of(version);
        let has_status = version.pointer("/subresources/status").is_some_and(|status| !status.is_null());
        let scale = scale(version);
        let strategy = Custom {
            api_version: format!("{group}/{name}"),
            types: Arc::clone(&types),
            type_name: type_name.clone(),
            has_status,
            has_changed,
            ends_in: ends(definition).then(|| (group.to_owned(), text("/status/acceptedNames/plural").to_owned())),
            scale: scale.clone(),
            stored: stored.clone(),
            converter: converter.clone(),
            rules: schema.as_ref().and_then(Rules::of),
            schema,
            printer: Columns::of_version(&whole, name).as_ref().map(Printer::custom),
        };
        Kind {
            group: group.to_owned(),
            version: name.to_owned(),
            kind: kind.to_owned(),
            plural: text("/status/acceptedNames/plural").to_owned(),
            singular: text("/status/acceptedNames/singular").to_owned(),
            short_names: names("/status/acceptedNames/shortNames"),
            categories: names("/status/acceptedNames/categories"),
            namespaced: text("/spec/scope") == "Namespaced",
            verbs: VERBS.map(str::to_owned).to_vec(),
            has_status,
            subresources: subresources(kind, has_status, scale.is_some()),
            scale,
            selectable_fields: selectable_fields(version),
            stored_version: storage(definition).map(|version| name_of(version).to_owned()),
            types,
            type_name,
            strategy: Arc::new(strategy),
            ..Kind::default()
        }
    };
    versions.iter().map(make).collect()
}

/// Says whether a definition is being deleted, and its objects before it.
pub(super) fn ends(definition: &Value) -> bool {
    !access::text(definition, "/metadata/deletionTimestamp").is_empty()
}

fn name_of(version: &Value) -> &str {
    version.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// `com.example.v1.Widget`.
fn type_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

/// How much a version is preferred: `v2`, `v1`, `v1beta1`, `v1alpha1`, others.
///
/// Source: kubernetes/apimachinery `pkg/version/helpers.go`.
fn rank(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let other = (0, 0, 0, std::cmp::Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return other };
    let digits = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let Ok(major) = rest.trim_end_matches(digits).parse() else { return other };
    let same = std::cmp::Reverse(String::new());
    if digits.is_empty() {
        return (3, major, 0, same);
    }
    for (word, rank) in [("beta", 2), ("alpha", 1)] {
        if let Some(Ok(minor)) = digits.strip_prefix(word).map(str::parse) {
            return (rank, major, minor, same);
        }
    }
    other
}

/// `spec.color` of `{"jsonPath": ".spec.color"}`.
fn selectable_fields(version: &Value) -> Vec<String> {
    let paths = access::items(version, "/selectableFields").iter().map(|field| access::text(field, "/jsonPath"));
    paths.map(|path| path.trim_start_matches('.').to_owned()).collect()
}

fn scale(version: &Value) -> Option<Scale> {
    let scale = version.pointer("/subresources/scale").filter(|scale| !scale.is_null())?;
    let text = |name: &str| scale.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(Scale {
        spec_replicas: text("specReplicasPath")?,
        status_replicas: text("statusReplicasPath")?,
        selector: text("labelSelectorPath").filter(|path| !path.is_empty()),
    })
}

fn subresources(kind: &str, status: bool, scale: bool) -> Vec<Subresource> {
    let verbs = PART_VERBS.map(str::to_owned).to_vec();
    let mut out = Vec::new();
    if status {
        let (name, kind) = ("status".to_owned(), kind.to_owned());
        out.push(Subresource { name, group: None, version: None, kind, verbs: verbs.clone() });
    }
    if scale {
        let (group, version) = (Some("autoscaling".to_owned()), Some("v1".to_owned()));
        out.push(Subresource { name: "scale".to_owned(), group, version, kind: "Scale".to_owned(), verbs });
    }
    out
}

/// The version in which objects are stored: what it does not know is lost.
#[derive(Clone)]
struct Stored {
    api_version: String,
    types: Arc<Types>,
    type_name: String,
}

impl Stored {
    /// What is stored of an object, with the defaults.
    fn complete(&self, mut object: Value) -> Value {
        if let Some(typed) = self.types.named(&self.type_name) {
            prune(typed, &mut object);
            fill_defaults(typed, &mut object);
            object = arrange(typed, object);
        }
        object
    }
}

/// What is special to the objects of a definition, in one version.
struct Custom {
    api_version: String,
    types: Arc<Types>,
    type_name: String,
    has_status: bool,
    has_changed: bool,
    /// The group and the plural, if the definition is being deleted.
    ends_in: Option<(String, String)>,
    scale: Option<Scale>,
    stored: Option<Stored>,
    /// `None`: versions differ in what their schemas know, and in nothing else.
    converter: Option<Arc<dyn Converter>>,
    /// Of its schema, in CEL.
    rules: Option<Rules>,
    schema: Option<Value>,
    printer: Option<Printer>,
}

impl Custom {
    fn faults(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let Some(typed) = self.types.named(&self.type_name) {
            causes.extend(match old {
                Some(old) => validate_update(typed, object, old),
                None => validate(typed, object),
            });
        }
        if let Some(scale) = &self.scale {
            causes.extend(replicas(object, &scale.spec_replicas));
            causes.extend(replicas(object, &scale.status_replicas));
        }
        self.add_broken(&mut causes, object, old);
        causes
    }

    /// Adds what breaks the rules in CEL, which see only objects of the right types.
    ///
    /// Source: `pkg/registry/customresource/strategy.go` `hasBlockingErr`.
    fn add_broken(&self, causes: &mut Vec<Cause>, object: &Value, old: Option<&Value>) {
        let Some(rules) = &self.rules else { return };
        let is_blocking = |cause: &Cause| BLOCKING.contains(&cause.reason.as_str());
        if causes.iter().any(is_blocking) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors \
                       to complete validation";
            causes.push(Cause::invalid("<nil>", "null", why));
        } else {
            causes.extend(rules.broken(object, old));
        }
    }
}

/// The reasons for which rules are not asked any more.
const BLOCKING: [&str; 5] =
    ["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"];

/// What is wrong with a number of replicas. Source: `pkg/registry/customresource/validator.go`.
fn replicas(object: &Value, path: &str) -> Option<Cause> {
    let cause = |value: &str, why: &str| {
        let message = format!("Invalid value: {value}: {why}");
        Some(Cause::new("FieldValueInvalid", path, message))
    };
    let mut place = object;
    for name in path.split('.').skip(1) {
        if !place.is_object() {
            let why = format!(
                "{path} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                go_value(place),
                golang::type_name(place)
            );
            return cause("0", &why);
        }
        place = place.get(name)?;
    }
    let Some(number) = place.as_i64() else {
        let why = format!(
            "{path} accessor error: {} is of the type {}, expected int64",
            go_value(place),
            golang::type_name(place)
        );
        return cause("0", &why);
    };
    if number < 0 {
        return cause(&number.to_string(), "should be a non-negative integer");
    }
    if number > i64::from(i32::MAX) {
        return cause(&number.to_string(), &format!("should be less than or equal to {}", i32::MAX));
    }
    None
}

fn go_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => bad_value(other),
    }
}

impl Strategy for Custom {
    fn default(&self, object: &mut Value) {
        if let Some(typed) = self.types.named(&self.type_name) {
            fill_defaults(typed, object);
        }
    }

    fn admit(&self, object: &mut Value, _context: Context<'_>) -> Result<(), Box<Status>> {
        let Some((group, plural)) = &self.ends_in else { return Ok(()) };
        Err(forbidden(group, plural, object, "create not allowed while custom resource definition is terminating"))
    }

    fn prepare_for_create(&self, object: &mut Value, _context: Context<'_>) {
        if self.has_status {
            put(object, "status", None);
        }
        set_generation(object, 1);
    }

    fn validate(&self, object: &Value, _context: Context<'_>) -> Vec<Cause> {
        self.faults(object, None)
    }

    fn canonicalize(&self, object: &mut Value) {
        if let Some(typed) = self.types.named(&self.type_name) {
            *object = arrange(typed, object.take());
        }
    }

    fn to_storage(&self, mut object: Value) -> Result<Value, ConversionError> {
        let Some(stored) = self.stored.as_ref().filter(|stored| stored.type_name != self.type_name) else {
            return Ok(object);
        };
        put(&mut object, "apiVersion", Some(stored.api_version.clone().into()));
        Ok(stored.complete(object))
    }

    fn converter(&self) -> Option<&dyn Converter> {
        self.converter.as_deref()
    }

    /// It has the defaults of the version that it was stored in: those of this one are for objects of clients.
    fn prune(&self, mut object: Value) -> Value {
        let Some(typed) = self.types.named(&self.type_name) else { return object };
        prune(typed, &mut object);
        arrange(typed, object)
    }

    fn rereads(&self) -> bool {
        self.has_changed
    }

    /// Versions differ in what their schemas know. The defaults are those of the version that the object is stored in.
    fn from_storage(&self, mut object: Value) -> Result<Value, ConversionError> {
        let said = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let is_own = said == self.api_version;
        let other = self.stored.as_ref().filter(|stored| !is_own && self.has_changed && stored.api_version == said);
        if let Some(stored) = other {
            object = stored.complete(object);
        }
        if let Some(typed) = self.types.named(&self.type_name) {
            prune(typed, &mut object);
            if is_own {
                fill_defaults(typed, &mut object);
            }
            object = arrange(typed, object);
        }
        Ok(object)
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _context: Context<'_>) {
        if self.has_status {
            keep(new, old, "status");
        }
        let rest = |value: &Value| {
            let mut rest = value.clone();
            put(&mut rest, "metadata", None);
            rest
        };
        let before = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        set_generation(new, before + i64::from(rest(new) != rest(old)));
    }

    fn validate_update(&self, new: &Value, old: &Value, _context: Context<'_>) -> Vec<Cause> {
        self.faults(new, Some(old))
    }

    /// Only the status counts: what else is wrong was there before.
    fn validate_status_update(&self, new: &Value, old: &Value, _context: Context<'_>) -> Vec<Cause> {
        let mut causes = Vec::new();
        let typed = self.types.named(&self.type_name).and_then(|typed| typed.field("status"));
        if let (Some(typed), Some(status)) = (typed, new.get("status")) {
            let old = old.get("status").unwrap_or(&Value::Null);
            causes.extend(validate_update(typed, status, old).into_iter().map(|cause| Cause {
                field: match cause.field.as_str() {
                    "<nil>" | "" => "status".to_owned(),
                    field if field.starts_with('[') => format!("status{field}"),
                    field => format!("status.{field}"),
                },
                ..cause
            }));
        }
        let path = self.scale.as_ref().map(|scale| scale.status_replicas.as_str());
        causes.extend(path.and_then(|path| replicas(new, path)));
        self.add_broken(&mut causes, new, Some(old));
        causes
    }

    fn printer(&self) -> Option<Printer> {
        self.printer.clone()
    }

    fn schema(&self) -> Option<&Value> {
        self.schema.as_ref()
    }
}
