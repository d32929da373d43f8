//! What a ShadowResource is: its schema, and the parts of it that are read and written as JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    own::{GROUP, VERSION},
    placement::marker::OWN_PREFIX,
};
use kubefold_apiserver::{kinds::Kind, typed::TypedKind};
use kubefold_wire::{
    access::{items, text},
    resource::split_api_version,
    status::Cause,
};

/// Its kind.
pub const KIND: &str = "ShadowResource";
/// As in paths.
pub const PLURAL: &str = "shadowresources";
/// Its items go before it does.
pub const FINALIZER: &str = "kubefold.io/items";
/// An item's annotation: the UID of the ShadowResource that made it.
pub(super) const MADE_BY: &str = "shadow.kubefold.io/uid";
/// An item's annotation in a ShadowResource: it may be there already.
pub(super) const ADOPT: &str = "shadow.kubefold.io/adopt";
/// What kubectl notes of a manifest that it has applied.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Its columns: name, type, path. The last one is the age.
pub(super) const COLUMNS: [[&str; 3]; 3] = [
    ["Ready", "string", ".status.ready"],
    ["Status", "string", ".status.phase"],
    ["Age", "date", ".metadata.creationTimestamp"],
];
/// Items of one ShadowResource.
const ITEMS_MAX: usize = 100;
/// Bytes of their JSON. A kube-apiserver takes as much in one object.
const BYTES_MAX: usize = 3 << 19;

/// Several objects under one name.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct ShadowResource {
    spec: Spec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
}

/// Which objects.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Spec {
    flow_list: Vec<Map<String, Value>>,
}

/// The kind, without what composes its objects.
///
/// Errors: never, since its schema is here.
pub(super) fn kind() -> TypedKind<ShadowResource> {
    let kind = Kind::of::<ShadowResource>(GROUP, VERSION, KIND).schema_value(schema()).short_name("shadow");
    COLUMNS
        .into_iter()
        .fold(kind, |kind, [name, type_, path]| kind.column(name, type_, path))
        .finalizer(FINALIZER)
        .validate(|shadow, _| faults(&shadow.spec.flow_list))
}

fn schema() -> Value {
    json!({
        "type": "object",
        "description": "A ShadowResource is several objects under one name. It is made and deleted as a whole. What is read of it is read from the objects: whoever changes one of them changes it.",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["flowList"],
                "properties": {
                    "flowList": {
                        "type": "array",
                        "description": "The objects, in the order in which they are made. They are deleted in the reverse order.",
                        "x-kubernetes-list-type": "atomic",
                        "maxItems": ITEMS_MAX,
                        "items": item_schema(),
                    },
                },
            },
            "status": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "phase": word("The worst phase of its items."),
                    "ready": word("How many items are ready, of how many."),
                    "items": {"type": "array", "description": "One for each item.", "items": state_schema()},
                    "columns": {
                        "type": "array",
                        "description": "What the columns of the configuration show, as far as the caller may read it.",
                        "items": column_schema(),
                    },
                    "conditions": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"],
                        "items": condition_schema(),
                    },
                },
            },
        },
    })
}

fn word(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn item_schema() -> Value {
    json!({
        "type": "object",
        "description": "A whole object of any kind that the fleet serves. In a namespaced kind without a namespace it is in that of the ShadowResource.",
        "x-kubernetes-preserve-unknown-fields": true,
        "required": ["apiVersion", "kind", "metadata"],
        "properties": {
            "apiVersion": word("The group and version, such as apps/v1."),
            "kind": word("The kind, such as Deployment."),
            "metadata": {
                "type": "object",
                "description": "Name, namespace, labels, annotations.",
                "x-kubernetes-preserve-unknown-fields": true,
            },
        },
    })
}

fn state_schema() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "apiVersion": word("The group and version."),
            "kind": word("The kind."),
            "namespace": word("The namespace; absent where the kind has none."),
            "name": word("The name."),
            "uid": word("The UID in the fleet."),
            "members": {"type": "array", "items": {"type": "string"}, "description": "The members that have it."},
            "phase": word("Ready, Progressing, Failed, Missing or Unknown."),
            "message": word("Why it is not ready."),
        },
    })
}

fn column_schema() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"name": word("What stands above the column.")},
    })
}

fn condition_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "status", "reason", "lastTransitionTime"],
        "properties": {
            "type": word("Ready. ItemsDeleted, where a deletion cannot go on."),
            "status": word("True, False or Unknown."),
            "reason": word("The phase of the items that decide, or Refused."),
            "message": word("Which items these are."),
            "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When the status changed last."},
            "observedGeneration": {"type": "integer", "format": "int64", "description": "The generation that it is about."},
        },
    })
}

/// What is wrong with items, whatever the fleet serves.
fn faults(list: &[Map<String, Value>]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen: Vec<(String, Reference)> = Vec::new();
    for (at, item) in list.iter().enumerate() {
        let item = Value::Object(item.clone());
        let field = |name: &str| format!("spec.flowList[{at}].{name}");
        let required = |name: &str, why: &str| Cause::required(field(name), why);
        let reference = Reference::of(&item);
        for (name, said) in [("apiVersion", &reference.api_version), ("kind", &reference.kind)] {
            if said.is_empty() {
                causes.push(required(name, "an item is a whole object"));
            }
        }
        if reference.name.is_empty() {
            causes.push(required("metadata.name", "an item is known by its name; generateName is not served"));
        }
        let (group, _) = split_api_version(&reference.api_version).unwrap_or_default();
        if group == GROUP || reference.kind == KIND {
            let why = "kubefold's own objects cannot be items of a ShadowResource";
            causes.push(Cause::forbidden(field("kind"), why));
        }
        let same = |(of_group, other): &&(String, Reference)| {
            *of_group == group
                && (&other.kind, &other.namespace, &other.name)
                    == (&reference.kind, &reference.namespace, &reference.name)
        };
        if seen.iter().any(|other| same(&other)) {
            causes.push(Cause { reason: "FieldValueDuplicate".to_owned(), ..duplicate(at, &reference) });
        }
        seen.push((group.to_owned(), reference));
    }
    let bytes: usize = list.iter().map(|item| Value::Object(item.clone()).to_string().len()).sum();
    if bytes > BYTES_MAX {
        let why = format!("Too long: may not be more than {BYTES_MAX} bytes; they are {bytes}");
        causes.push(Cause { reason: "FieldValueTooLong".to_owned(), message: why, field: "spec.flowList".to_owned() });
    }
    causes
}

fn duplicate(at: usize, reference: &Reference) -> Cause {
    let message = format!("Duplicate value: \"{reference}\"");
    Cause { reason: String::new(), message, field: format!("spec.flowList[{at}]") }
}

/// Which object an item is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Reference {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Empty where nothing is said.
    pub(super) namespace: String,
    pub(super) name: String,
}

/// `Pod default/nginx1`.
impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}

impl Reference {
    /// Of an item as it is written.
    pub(super) fn of(item: &Value) -> Self {
        let of = |at: &str| text(item, at).to_owned();
        Self {
            api_version: of("/apiVersion"),
            kind: of("/kind"),
            namespace: of("/metadata/namespace"),
            name: of("/metadata/name"),
        }
    }

    /// Of what is stored of an item's state.
    pub(super) fn of_state(state: &Value) -> Self {
        let of = |at: &str| text(state, at).to_owned();
        Self { api_version: of("/apiVersion"), kind: of("/kind"), namespace: of("/namespace"), name: of("/name") }
    }

    /// Group and version; an empty group is core.
    pub(super) fn group_version(&self) -> (&str, &str) {
        split_api_version(&self.api_version).unwrap_or(("", &self.api_version))
    }

    /// The same object, whichever version it is written in.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.group_version().0 == other.group_version().0
            && (&self.kind, &self.namespace, &self.name) == (&other.kind, &other.namespace, &other.name)
    }

    /// An item that says no more than which object it is.
    pub(super) fn item(&self) -> Value {
        let mut metadata = json!({"name": self.name});
        if !self.namespace.is_empty()
            && let Some(fields) = metadata.as_object_mut()
        {
            fields.insert("namespace".to_owned(), self.namespace.as_str().into());
        }
        json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata})
    }
}

/// The items of a ShadowResource, stored or shown.
pub(super) fn list(shadow: &Value) -> &[Value] {
    items(shadow, "/spec/flowList")
}

/// Puts items in place of those that are there.
pub(super) fn set_list(shadow: &mut Value, list: Vec<Value>) {
    if let Some(spec) = shadow.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("flowList".to_owned(), Value::Array(list));
    }
}

/// What is stored of the state of its items, one for each.
pub(super) fn states(shadow: &Value) -> &[Value] {
    items(shadow, "/status/items")
}

/// An object as an item of a ShadowResource: without what the server that has it says.
pub(super) fn as_item(mut object: Value) -> Value {
    let Some(fields) = object.as_object_mut() else { return object };
    fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for said in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"] {
            metadata.remove(said);
        }
        for map in ["annotations", "labels"] {
            let Some(of) = metadata.get_mut(map).and_then(Value::as_object_mut) else { continue };
            of.retain(|key, _| !key.starts_with(OWN_PREFIX) && key != MADE_BY);
            if of.is_empty() {
                metadata.remove(map);
            }
        }
    }
    object
}

/// Keeps of what kubectl notes of a manifest only which objects it had: bodies are the members' alone.
pub(super) fn without_bodies(shadow: &mut Value) {
    let Some(annotations) = shadow.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    let Some(noted) = annotations.get(LAST_APPLIED).and_then(Value::as_str) else { return };
    let reduced = serde_json::from_str::<Value>(noted).map(|mut manifest| {
        let references = list(&manifest).iter().map(|item| Reference::of(item).item()).collect();
        set_list(&mut manifest, references);
        manifest.to_string()
    });
    match reduced {
        Ok(reduced) => drop(annotations.insert(LAST_APPLIED.to_owned(), reduced.into())),
        Err(_) => drop(annotations.remove(LAST_APPLIED)),
    }
}

/// Says whether kubectl has sent what was applied with it, and not only kept what is stored of that.
pub(super) fn is_applied_by_kubectl(new: &Value, stored: &Value) -> bool {
    let noted = |shadow: &Value| {
        let annotations = shadow.pointer("/metadata/annotations").and_then(Value::as_object);
        annotations.and_then(|annotations| annotations.get(LAST_APPLIED)).cloned()
    };
    let sent = noted(new);
    sent.is_some() && sent != noted(stored)
}
