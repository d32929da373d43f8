//! Whether what a kube-apiserver did with a write is what `patch` makes of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use kubefold_apiserver::{
    patch::{self, Apply, OneVersion, PatchError, Subject, Versions, managed, scale, scale::Mapping},
    schema::{self, Node, Shape, Topology, Type, Types},
};

/// All that was recorded.
#[derive(Serialize, Deserialize)]
pub(super) struct Recording {
    /// CustomResourceDefinitions that were there.
    pub(super) definitions: Vec<Value>,
    /// The writes, in their order.
    pub(super) writes: Vec<Write>,
}

impl Recording {
    /// As it is kept: what was there is mostly what an earlier write had answered.
    pub(super) fn to_text(&self) -> String {
        let mut kept = serde_json::to_value(self).unwrap();
        for index in 0..self.writes.len() {
            let before = &self.writes[index].before;
            let earlier = (0..index).rev().find(|earlier| self.writes[*earlier].answer == *before);
            if let Some(earlier) = earlier {
                kept["writes"][index]["before"] = json!({"after": earlier});
            }
        }
        // A line for each.
        let lines = |all: &Value| all.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",\n");
        format!(
            "{{\"definitions\":[\n{}\n],\"writes\":[\n{}\n]}}\n",
            lines(&kept["definitions"]),
            lines(&kept["writes"])
        )
    }

    /// Reads it again.
    pub(super) fn of(text: &str) -> Self {
        let mut recording: Self = serde_json::from_str(text).unwrap();
        for index in 0..recording.writes.len() {
            if let Some(earlier) = recording.writes[index].before.get("after").and_then(Value::as_u64) {
                recording.writes[index].before = recording.writes[usize::try_from(earlier).unwrap()].answer.clone();
            }
        }
        recording
    }
}

/// One write, and what came of it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Write {
    /// What is looked at.
    pub(super) what: String,
    /// `POST`, `PUT`, `PATCH`.
    pub(super) method: String,
    /// With the query.
    pub(super) path: String,
    /// The `User-Agent`.
    pub(super) agent: String,
    /// The `Content-Type`.
    pub(super) content_type: String,
    /// As it was sent.
    pub(super) body: String,
    /// The server fills in what the body does not say: it is not looked at.
    pub(super) filled: bool,
    /// What was there.
    pub(super) before: Value,
    /// The status code.
    pub(super) code: u16,
    /// The object after, or the `Status`.
    pub(super) answer: Value,
}

/// What a path is about.
struct Target {
    api_version: String,
    resource: String,
    subresource: String,
    query: BTreeMap<String, String>,
}

impl Target {
    fn of(path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = query.map(|(name, value)| (name.to_owned(), value.replace("%20", " "))).collect();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (api_version, rest) = match *parts {
            ["api", version, ref rest @ ..] => (version.to_owned(), rest),
            ["apis", group, version, ref rest @ ..] => (format!("{group}/{version}"), rest),
            _ => panic!("{path}"),
        };
        let rest = match *rest {
            ["namespaces", _, ref rest @ ..] if !rest.is_empty() => rest,
            ref rest => rest,
        };
        let at = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        Self { api_version, resource: at(0), subresource: at(2), query }
    }
}

/// Versions of a custom resource, that differ in nothing but their names.
struct Renamed<'a> {
    schemas: &'a BTreeMap<String, Option<Type<'a>>>,
}

impl Versions for Renamed<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, Option<Type<'_>>)> {
        let schema = *self.schemas.get(api_version)?;
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        Some((object, schema))
    }
}

/// What was expected is not what there is.
pub(super) fn judge(recording: &Recording, write: &Write) -> Result<(), String> {
    let target = Target::of(&write.path);
    let (kind, definition) = kind_of(recording, &target);
    let mut types = (*schema::builtin()).clone();
    let names: BTreeMap<String, usize> = definition.map(|crd| types_of(&mut types, crd)).unwrap_or_default();
    let schemas: BTreeMap<String, Option<Type<'_>>> =
        names.iter().map(|(version, node)| (version.clone(), types.at(*node))).collect();
    let (group, version) = target.api_version.split_once('/').unwrap_or(("", &target.api_version));
    let builtin = || types.named(schema::builtin_kind(group, version, &kind)?);
    let custom = definition.is_some();
    let has_status = custom || matches!(&*kind, "Deployment" | "Pod" | "Service" | "Node");
    let reset: &[&[&str]] = match (&*target.subresource, has_status) {
        ("status", _) => managed::reset_by_status(&kind, custom),
        (_, true) => &[&["status"]],
        _ => &[],
    };
    let subject = Subject {
        api_version: &target.api_version,
        kind: &kind,
        schema: schemas.get(&target.api_version).copied().flatten().or_else(builtin),
        custom,
        subresource: &target.subresource,
        reset,
        versions: &Renamed { schemas: &schemas },
    };
    if target.subresource == "scale" {
        return scaled_alike(write, &target);
    }
    let ours = ours(write, &target, subject);
    if write.code >= 300 {
        return match ours {
            // What comes out is invalid: that is said later.
            Ok(_) if write.answer["details"]["kind"] == *kind && write.code == 422 => Ok(()),
            Ok(_) => Err(format!("not refused: {}", write.answer)),
            Err(error) => refused_alike(&write.answer, error),
        };
    }
    let ours = ours.map_err(|error| format!("not refused by a kube-apiserver: {error:?}"))?;
    alike(write, subject, ours)
}

/// The object that we make, with its managed fields.
fn ours(write: &Write, target: &Target, subject: Subject<'_>) -> Result<Value, PatchError> {
    let live = (!write.before.is_null()).then_some(&write.before);
    let query = |name: &str| target.query.get(name).map(String::as_str).unwrap_or_default();
    let now = newest(&write.answer);
    let mut object = match (&*write.method, &*write.content_type) {
        ("PATCH", "application/apply-patch+yaml") => {
            let applied: Value = serde_json::from_str(&write.body).unwrap();
            let (manager, force) = (query("fieldManager"), query("force") == "true");
            patch::apply(Apply { live, applied: &applied, manager, force, now: &now, subject })?
        }
        (method, content_type) => {
            let before = &write.before;
            let body = write.body.as_bytes();
            let patched = match content_type {
                "application/json-patch+json" => patch::json(before, body)?,
                "application/merge-patch+json" => patch::merge(before, body)?,
                "application/strategic-merge-patch+json" => patch::strategic(before, body, subject.schema.unwrap())?,
                _ => serde_json::from_slice(body).unwrap(),
            };
            let is_patch = method == "PATCH";
            let mut new = if is_patch && !write.filled { patched.clone() } else { write.answer.clone() };
            put_entries(&mut new, patched.pointer("/metadata/managedFields"));
            for assigned in [
                "clusterIP",
                "clusterIPs",
                "ipFamilies",
                "ipFamilyPolicy",
                "priority",
                "preemptionPolicy",
                "tolerations",
            ] {
                if method == "POST" && new.get("spec").is_some() && write.body.find(assigned).is_none() {
                    new["spec"].as_object_mut().unwrap().remove(assigned);
                }
            }
            let manager = managed::manager_of(query("fieldManager"), &write.agent);
            let mut tracked = new;
            managed::track(managed::Track { live, manager: &manager, now: &now, subject }, &mut tracked);
            tracked
        }
    };
    if let Some(live) = live {
        managed::keep_times(&mut object, live);
    }
    Ok(object)
}

/// Who owns what of the object after a write to its `/scale`.
fn scaled_alike(write: &Write, target: &Target) -> Result<(), String> {
    let mappings = [Mapping { api_version: &target.api_version, replicas: Some(&["spec", "replicas"]) }];
    let entries = |object: &Value| object.pointer("/metadata/managedFields").cloned();
    let scale = |object: &Value, entries: Option<Value>| {
        let metadata = json!({"name": "x", "uid": "x", "managedFields": entries});
        let (spec, status) = (json!({"replicas": object["spec"]["replicas"]}), json!({"replicas": 0}));
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": status})
    };
    let types = schema::builtin();
    let live = scale(
        &write.before,
        scale::to_scale(entries(&write.before).as_ref(), &mappings).map_err(|error| error.to_string())?,
    );
    let subject = Subject {
        api_version: "autoscaling/v1",
        kind: "Scale",
        schema: types.named(schema::builtin_kind("autoscaling", "v1", "Scale").unwrap()),
        custom: false,
        subresource: "scale",
        reset: &[],
        versions: &OneVersion,
    };
    let now = newest(&write.answer);
    let manager = target.query.get("fieldManager").map(String::as_str).unwrap_or_default();
    let after = if write.content_type == "application/apply-patch+yaml" {
        let applied: Value = serde_json::from_str(&write.body).unwrap();
        let force = target.query.contains_key("force");
        match patch::apply(Apply { live: Some(&live), applied: &applied, manager, force, now: &now, subject }) {
            Err(error) => return refused_alike(&write.answer, error),
            Ok(after) => after,
        }
    } else {
        let mut after = scale(&write.answer, entries(&live));
        let manager = managed::manager_of(manager, &write.agent);
        managed::track(managed::Track { live: Some(&live), manager: &manager, now: &now, subject }, &mut after);
        after
    };
    let before = entries(&write.before);
    let ours = scale::to_object(before.as_ref(), entries(&after).as_ref(), &mappings, &target.api_version)
        .map_err(|error| error.to_string())?;
    let (ours, theirs) = (ours.unwrap_or_default(), entries(&write.answer).unwrap_or_default());
    if printed_alike(&ours, &theirs) { Ok(()) } else { Err(difference(&ours, &theirs)) }
}

/// The order of fields is part of the form.
fn printed_alike(ours: &Value, theirs: &Value) -> bool {
    let [ours, theirs] = [ours, theirs].map(|value| serde_json::to_string(value).unwrap());
    ours == theirs
}

fn refused_alike(status: &Value, error: PatchError) -> Result<(), String> {
    let sorted = |causes: &mut Vec<Value>| causes.sort_by_key(Value::to_string);
    let mut theirs = status.clone();
    if let Some(causes) = theirs.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
        sorted(causes);
    }
    let status: kubefold_wire::status::Status = error.into();
    let mut ours: Value = serde_json::from_slice(&status.to_json()).unwrap();
    if let Some(causes) = ours.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
        sorted(causes);
    }
    if ours == theirs { Ok(()) } else { Err(difference(&ours, &theirs)) }
}

/// What differs, place by place.
fn difference(ours: &Value, theirs: &Value) -> String {
    fn walk(path: &str, ours: &Value, theirs: &Value, out: &mut String) {
        match (ours, theirs) {
            (Value::Object(ours), Value::Object(theirs)) => {
                let names = ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name)));
                for name in names {
                    let missing = &Value::from("(missing)");
                    let (mine, other) = (ours.get(name).unwrap_or(missing), theirs.get(name).unwrap_or(missing));
                    walk(&format!("{path}/{name}"), mine, other, out);
                }
                let order = |all: &Map<String, Value>| all.keys().cloned().collect::<Vec<_>>();
                if ours == theirs && order(ours) != order(theirs) {
                    out.push_str(&format!("\n  {path}: ours in order {:?}, theirs {:?}", order(ours), order(theirs)));
                }
            }
            (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
                for (index, (mine, other)) in ours.iter().zip(theirs).enumerate() {
                    walk(&format!("{path}/{index}"), mine, other, out);
                }
            }
            _ if ours != theirs => out.push_str(&format!("\n  {path}: ours {ours}, theirs {theirs}")),
            _ => {}
        }
    }
    let mut out = String::new();
    walk("", ours, theirs, &mut out);
    out
}

fn alike(write: &Write, subject: Subject<'_>, ours: Value) -> Result<(), String> {
    // Go prints a custom resource with all keys in order.
    let printed = |object: &Value| match subject.schema.filter(|_| subject.custom) {
        Some(of) => schema::arrange(of, object.clone()),
        None => object.clone(),
    };
    let entries = |object: &Value| printed(object).pointer("/metadata/managedFields").cloned().unwrap_or_default();
    let (mine, theirs) = (entries(&ours), entries(&write.answer));
    if !printed_alike(&mine, &theirs) {
        return Err(difference(&mine, &theirs));
    }
    let bare = |object: &Value| {
        let mut object = object.clone();
        for name in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"] {
            object["metadata"].as_object_mut().unwrap().remove(name);
        }
        match subject.schema.filter(|_| !subject.custom && !write.filled) {
            Some(of) => schema::arrange(of, object),
            None => object,
        }
    };
    let (mine, theirs) = (bare(&ours), bare(&write.answer));
    let fits = if write.filled { is_part(&mine, &theirs) } else { mine == theirs };
    if fits { Ok(()) } else { Err(difference(&mine, &theirs)) }
}

/// Says whether all that one has, the other has, too.
fn is_part(some: &Value, all: &Value) -> bool {
    match (some, all) {
        (Value::Object(some), Value::Object(all)) => {
            let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            let has =
                |name: &String, value| all.get(name).map_or_else(|| is_empty(value), |other| is_part(value, other));
            some.iter().all(|(name, value)| has(name, value))
        }
        (Value::Array(some), Value::Array(all)) => {
            some.len() == all.len() && some.iter().zip(all).all(|(some, all)| is_part(some, all))
        }
        (Value::Null, Value::Array(_)) => true,
        (some, all) => some == all,
    }
}

/// The time of the newest entry: of this write, if it made one.
fn newest(object: &Value) -> String {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let times = entries.into_iter().flatten().filter_map(|entry| entry["time"].as_str());
    times.max().unwrap_or("2000-01-01T00:00:00Z").to_owned()
}

fn put_entries(object: &mut Value, entries: Option<&Value>) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    match entries {
        Some(entries) => metadata.insert("managedFields".to_owned(), entries.clone()),
        None => metadata.remove("managedFields"),
    };
}

fn kind_of<'r>(recording: &'r Recording, target: &Target) -> (String, Option<&'r Value>) {
    let group = target.api_version.split_once('/').map_or("", |(group, _)| group);
    let is_it = |crd: &&Value| crd["spec"]["group"] == group && crd["spec"]["names"]["plural"] == *target.resource;
    if let Some(crd) = recording.definitions.iter().find(is_it) {
        return (crd["spec"]["names"]["kind"].as_str().unwrap().to_owned(), Some(crd));
    }
    let kinds = [
        ("configmaps", "ConfigMap"),
        ("services", "Service"),
        ("pods", "Pod"),
        ("deployments", "Deployment"),
        ("serviceaccounts", "ServiceAccount"),
        ("nodes", "Node"),
        ("events", "Event"),
        ("roles", "Role"),
    ];
    let kind =
        kinds.iter().find(|(plural, _)| *plural == target.resource).unwrap_or_else(|| panic!("{}", target.resource));
    (kind.1.to_owned(), None)
}

/// Adds the types of a definition's versions; answers their nodes by `group/version`.
fn types_of(types: &mut Types, crd: &Value) -> BTreeMap<String, usize> {
    let group = crd["spec"]["group"].as_str().unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let mut nodes = BTreeMap::new();
    for version in versions {
        let name = format!("{group}/{}", version["name"].as_str().unwrap());
        let mut root = version["schema"]["openAPIV3Schema"].clone();
        let properties = root.as_object_mut().unwrap().entry("properties").or_insert_with(|| json!({}));
        for text in ["apiVersion", "kind"] {
            properties[text] = json!({"type": "string"});
        }
        properties["metadata"] = json!({"$ref": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"});
        let node = add(types, &root);
        nodes.insert(name, node);
    }
    nodes
}

fn add(types: &mut Types, said: &Value) -> usize {
    if let Some(name) = said["$ref"].as_str() {
        return types.names[name];
    }
    let mut node = Node { default: said.get("default").cloned(), ..Node::default() };
    node.open = said["x-kubernetes-preserve-unknown-fields"] == true;
    node.nullable = said["nullable"] == true;
    node.merge.topology = match (said["x-kubernetes-list-type"].as_str(), said["x-kubernetes-map-type"].as_str()) {
        (Some("set"), _) => Topology::Set,
        (Some("map"), _) => {
            let keys = said["x-kubernetes-list-map-keys"].as_array().unwrap();
            Topology::Keyed(keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect())
        }
        (Some(_), _) | (_, Some("atomic")) => Topology::Atomic,
        (_, Some(_)) => Topology::Granular,
        _ => Topology::Unsaid,
    };
    let empty = Map::new();
    node.shape = match said["type"].as_str() {
        _ if said["x-kubernetes-int-or-string"] == true => Shape::IntegerOrText,
        Some("string") => Shape::Text,
        Some("integer") => Shape::Integer,
        Some("number") => Shape::Number,
        Some("boolean") => Shape::Truth,
        Some("array") => Shape::List(add(types, &said["items"])),
        Some("object") if said.get("additionalProperties").is_some() => {
            Shape::Map(add(types, &said["additionalProperties"]))
        }
        Some("object") => {
            let properties = said["properties"].as_object().unwrap_or(&empty);
            let field = |(name, said): (&String, &Value)| schema::Field {
                name: name.clone(),
                node: add(types, said),
                omit: schema::Omit::Empty,
                within: String::new(),
            };
            Shape::Object(properties.iter().map(field).collect())
        }
        _ => Shape::Any,
    };
    types.add(node)
}

/// What two servers answered differently, but for what is theirs alone: times, UIDs, revisions, addresses.
#[allow(dead_code, reason = "the test of the embedded server calls it")]
pub(super) fn differ(ours: &Write, theirs: &Write) -> Option<String> {
    if ours.code != theirs.code {
        return Some(format!("ours {} {}, theirs {} {}", ours.code, ours.answer, theirs.code, theirs.answer));
    }
    let comparable = |write: &Write| {
        let mut answer = write.answer.clone();
        for (of, name) in [
            ("metadata", "uid"),
            ("metadata", "resourceVersion"),
            ("metadata", "creationTimestamp"),
            ("spec", "clusterIP"),
            ("spec", "clusterIPs"),
        ] {
            if let Some(fields) = answer.get_mut(of).and_then(Value::as_object_mut) {
                fields.remove(name);
            }
        }
        let entries = answer.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        if let Some(entries) = entries {
            entries.iter_mut().for_each(|entry| entry["time"] = entry.get("time").is_some().into());
            entries.sort_by_key(Value::to_string);
        }
        if let Some(causes) = answer.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
            causes.sort_by_key(Value::to_string);
        }
        answer
    };
    let (ours, theirs) = (comparable(ours), comparable(theirs));
    (ours != theirs).then(|| difference(&ours, &theirs))
}
