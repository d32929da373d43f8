//! Members as a test sees them: each a little etcd with objects, rising revisions and a history.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{config::MemberName, placement::marker::Marker, store::KindSpec};
use kubefold_wire::{
    resource::{Gvk, Gvr},
    watch::EventType,
};

pub(super) const MEMBERS: [&str; 3] = ["east", "west", "north"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Deployments,
    /// They refer to Deployments.
    ReplicaSets,
    /// Shared, cluster-scoped.
    Namespaces,
    /// Custom resources: keys come sorted, list items have their kind.
    Widgets,
}

pub(super) const KINDS: [Kind; 4] = [Kind::Deployments, Kind::ReplicaSets, Kind::Namespaces, Kind::Widgets];

impl Kind {
    pub(super) fn spec(self) -> KindSpec {
        let (group, resource, kind) = match self {
            Self::Deployments => ("apps", "deployments", "Deployment"),
            Self::ReplicaSets => ("apps", "replicasets", "ReplicaSet"),
            Self::Namespaces => ("", "namespaces", "Namespace"),
            Self::Widgets => ("example.com", "widgets", "Widget"),
        };
        KindSpec::new(Gvr::new(group, "v1", resource), Gvk::new(group, "v1", kind), self != Self::Namespaces)
    }
}

pub(super) fn member(at: usize) -> MemberName {
    MemberName::new(MEMBERS[at]).unwrap()
}

/// One object of one member.
#[derive(Clone, Debug)]
pub(super) struct Doc {
    pub(super) kind: Kind,
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
    pub(super) uid: String,
    pub(super) rv: u64,
    pub(super) created: u64,
    pub(super) generation: u64,
    pub(super) deleting: bool,
    pub(super) labels: usize,
    pub(super) annotations: usize,
    pub(super) replicas: u64,
    pub(super) owner: Option<(&'static str, String)>,
    pub(super) marker: Option<Marker>,
    /// The copy of its owner's marker, of a child.
    pub(super) inherited: Option<Marker>,
}

pub(super) const LABELS: [&str; 4] = ["", r#""app":"web""#, r#""a":"}","b":"\u003c""#, r#" "x" : "y" "#];
pub(super) const ANNOTATIONS: [Option<&str>; 8] = [
    None,
    Some("{}"),
    Some("{ }"),
    Some("null"),
    Some(r#"{"a":"b"}"#),
    Some(r#"{"kubefold.io/cluster":"evil","k\u003c":"\u0026"}"#),
    Some(r#"{"k\u003c": "v" , "kube\u0066old.io/x":"1"}"#),
    Some(r#"{"a":"about kubefold"}"#),
];
/// Bytes that must come through as they are.
pub(super) const ODD: &str = r#"{"note": "\u003c\u00e9 {\"name\":1}"  ,"n":1.0, "e":[]}"#;

impl Doc {
    /// Makes it a part of a placement of Deployments.
    pub(super) fn mark(&mut self, uid: String, name: &str, at: MemberName, members: Vec<(MemberName, String)>) {
        let gvk = &Kind::Deployments.spec().gvk;
        self.marker = Some(Marker::new(uid, gvk, self.namespace, name, at, members.into()));
    }

    /// The marker that counts if it names the object's place, and the annotation's own if it is a child's.
    fn counts(&self) -> Option<Marker> {
        let Some(parent) = &self.inherited else { return self.marker.clone() };
        let is_named = || self.name.strip_prefix(&parent.name).is_some_and(|rest| rest.starts_with('-'));
        let is_owners = self.owner.as_ref().map_or_else(is_named, |(name, _)| *name == parent.name);
        let placement = uuid::Uuid::parse_str(parent.adopts.as_ref().unwrap_or(&parent.uid)).unwrap();
        let name = format!("apps/ReplicaSet/{}", self.name);
        is_owners.then(|| Marker {
            uid: uuid::Uuid::new_v5(&placement, name.as_bytes()).to_string(),
            kind: "ReplicaSet".into(),
            name: self.name.into(),
            adopts: None,
            is_child: true,
            ..parent.clone()
        })
    }

    pub(super) fn key(&self) -> (&'static str, &'static str) {
        (self.namespace, self.name)
    }

    /// As get and watch print it.
    pub(super) fn whole(&self) -> String {
        let meta = self.metadata();
        let tail = format!(
            r#""spec":{{"replicas":{},"odd":{ODD}}},"status":{{"observedGeneration":{},"readyReplicas":{}}}}}"#,
            self.replicas, self.generation, self.replicas
        );
        let spec = self.kind.spec();
        let (api_version, kind) = (spec.gvk.api_version(), &spec.gvk.kind);
        if self.kind == Kind::Widgets {
            return format!(
                r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{{}}},{tail}"#,
                meta.join(",")
            );
        }
        format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{{}}},{tail}"#, meta.join(","))
    }

    /// As a list prints it.
    pub(super) fn item(&self) -> String {
        let spec = self.kind.spec();
        let type_meta = format!(r#""kind":"{}","apiVersion":"{}","#, spec.gvk.kind, spec.gvk.api_version());
        self.whole().replacen(&type_meta, "", 1)
    }

    fn metadata(&self) -> Vec<String> {
        let mut meta = vec![format!(r#""name":"{}""#, self.name)];
        if !self.namespace.is_empty() {
            meta.push(format!(r#""namespace":"{}""#, self.namespace));
        }
        meta.push(format!(r#""uid":"{}""#, self.uid));
        meta.push(format!(r#""resourceVersion":"{}""#, self.rv));
        meta.push(format!(r#""generation":{}"#, self.generation));
        meta.push(format!(r#""creationTimestamp":"{}""#, timestamp(self.created)));
        if self.deleting {
            meta.push(r#""deletionTimestamp":"2026-06-01T00:00:00Z""#.into());
        }
        let mut labels: Vec<String> = Vec::new();
        let mut annotations = ANNOTATIONS[self.annotations].map(str::to_owned);
        if !LABELS[self.labels].is_empty() {
            labels.push(LABELS[self.labels].into());
        }
        if let Some(marker) = self.inherited.as_ref().or(self.marker.as_ref()) {
            let text = |json: Vec<u8>| String::from_utf8(json).unwrap();
            if self.inherited.is_none() {
                labels.push(format!(r#""kubefold.io/placement":{}"#, text(marker.label_json())));
            }
            let mine = format!(r#""kubefold.io/placement":{}"#, text(marker.annotation_json()));
            annotations = Some(match annotations.as_deref() {
                None | Some("{}" | "{ }" | "null") => format!("{{{mine}}}"),
                Some(other) => format!("{},{mine}}}", &other[..other.len() - 1]),
            });
        }
        if !labels.is_empty() {
            meta.push(format!(r#""labels":{{{}}}"#, labels.join(",")));
        }
        if let Some(annotations) = annotations {
            meta.push(format!(r#""annotations":{annotations}"#));
        }
        if let Some((name, uid)) = &self.owner {
            meta.push(format!(
                r#""ownerReferences":[{{"apiVersion":"apps/v1","kind":"Deployment","name":"{name}","uid":"{uid}","controller":true}}]"#
            ));
        }
        if self.kind == Kind::Widgets {
            meta.sort();
        }
        meta
    }

    pub(super) fn value(&self) -> Value {
        serde_json::from_str(&self.whole()).unwrap()
    }
}

fn timestamp(created: u64) -> String {
    format!("2026-01-01T{:02}:{:02}:{:02}Z", created / 3600, created / 60 % 60, created % 60)
}

#[derive(Clone, Debug)]
pub(super) struct Happened {
    pub(super) event_type: EventType,
    pub(super) doc: Doc,
}

pub(super) type Objects = BTreeMap<(&'static str, &'static str), Doc>;

/// What a member has stored, and how it came to that.
#[derive(Clone, Debug)]
pub(super) struct Etcd {
    pub(super) cluster_uid: String,
    pub(super) rv: u64,
    pub(super) history: [Vec<Happened>; 4],
    pub(super) objects: [Objects; 4],
}

impl Etcd {
    pub(super) fn new(cluster_uid: String) -> Self {
        Self { cluster_uid, rv: 10, history: Default::default(), objects: Default::default() }
    }

    /// Writes one object and returns it as stored.
    pub(super) fn put(&mut self, mut doc: Doc) -> Doc {
        self.rv += 1;
        doc.rv = self.rv;
        let kind = doc.kind as usize;
        let before = self.objects[kind].insert(doc.key(), doc.clone());
        let event_type = if before.is_some() { EventType::Modified } else { EventType::Added };
        self.history[kind].push(Happened { event_type, doc: doc.clone() });
        doc
    }

    pub(super) fn delete(&mut self, kind: Kind, key: (&'static str, &'static str)) {
        let Some(mut doc) = self.objects[kind as usize].remove(&key) else { return };
        self.rv += 1;
        doc.rv = self.rv;
        self.history[kind as usize].push(Happened { event_type: EventType::Deleted, doc });
    }

    /// What a list gave after the first `len` events.
    pub(super) fn state_at(&self, kind: Kind, len: usize) -> Objects {
        let mut objects = Objects::new();
        for happened in &self.history[kind as usize][..len] {
            match happened.event_type {
                EventType::Deleted => objects.remove(&happened.doc.key()),
                _ => objects.insert(happened.doc.key(), happened.doc.clone()),
            };
        }
        objects
    }

    /// A restored backup: history and revisions go back.
    pub(super) fn restore(&mut self, back: u64) {
        self.rv = self.rv.saturating_sub(back).max(10);
        for kind in KINDS {
            let rv = self.rv;
            self.history[kind as usize].retain(|happened| happened.doc.rv <= rv);
            self.objects[kind as usize] = self.state_at(kind, self.history[kind as usize].len());
        }
    }
}

/// What the fleet view has to show of a kind, made from the members' objects by other means than the store's. The
/// `resourceVersion` is left out.
pub(super) fn expected(
    members: &[Option<Etcd>; 3],
    kind: Kind,
    shared_uid: impl Fn(&str) -> String,
    child_life: impl Fn(&str) -> u32,
) -> BTreeMap<String, Expected> {
    let mut out = BTreeMap::new();
    let mut by_key: BTreeMap<(&str, &str), Vec<(usize, &Doc)>> = BTreeMap::new();
    for (at, etcd) in members.iter().enumerate() {
        for doc in etcd.iter().flat_map(|etcd| etcd.objects[kind as usize].values()) {
            by_key.entry(doc.key()).or_default().push((at, doc));
        }
    }
    for ((namespace, name), docs) in by_key {
        let parts: Vec<(usize, &Doc)> = docs.iter().copied().filter(|(at, doc)| is_folded(members, *at, doc)).collect();
        let chosen = chosen(members, &parts);
        let key = |name: &str| if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        if !chosen.is_empty() {
            let lives = (&*shared_uid(name), child_life(&key(name)));
            out.insert(key(name), folded(members, &chosen, lives));
        }
        for (at, doc) in docs.iter().filter(|(at, _)| !chosen.iter().any(|(other, _)| other == at)) {
            out.insert(key(&format!("{name}@{}", MEMBERS[*at])), member_local(members, *at, doc));
        }
    }
    out
}

#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) value: Value,
    /// The owner lives in no member any more: what stands in the reference depends on what was.
    pub(super) owner_is_gone: bool,
    pub(super) original: Option<String>,
}

fn is_folded(members: &[Option<Etcd>; 3], at: usize, doc: &Doc) -> bool {
    let splits = doc.name.rsplit_once('@').is_some_and(|(_, member)| MEMBERS.contains(&member));
    if doc.kind == Kind::Namespaces {
        return !splits;
    }
    let cluster = cluster_of(members, at);
    !splits
        && doc.counts().is_some_and(|marker| {
            marker.name == doc.name
                && marker.kind == *doc.kind.spec().gvk.kind
                && marker
                    .members
                    .iter()
                    .find(|(_, listed)| *listed == cluster)
                    .is_some_and(|(name, _)| *name == marker.member)
        })
}

/// The UID of the cluster that a member is: it decides, and the name that a marker has for it does not.
fn cluster_of(members: &[Option<Etcd>; 3], at: usize) -> String {
    members[at].as_ref().map(|etcd| etcd.cluster_uid.clone()).unwrap_or_default()
}

fn chosen<'a>(members: &[Option<Etcd>; 3], parts: &[(usize, &'a Doc)]) -> Vec<(usize, &'a Doc)> {
    let Some((_, first)) = parts.first() else { return Vec::new() };
    if first.kind == Kind::Namespaces {
        let mut all = parts.to_vec();
        all.sort_by_key(|(at, doc)| (doc.deleting, *at));
        let body = if all[0].1.deleting { 0 } else { parts.iter().position(|(at, _)| *at == all[0].0).unwrap() };
        let mut out = parts.to_vec();
        let body = out.remove(body);
        out.insert(0, body);
        return out;
    }
    let uid = |doc: &Doc| doc.counts().unwrap().uid;
    // Only of a cluster that is not listed the name counts.
    let place = |order: &[(MemberName, String)], at: usize| {
        let by_cluster = order.iter().position(|(_, cluster)| *cluster == cluster_of(members, at));
        by_cluster.or_else(|| order.iter().position(|(name, _)| *name == member(at)))
    };
    let home = |wanted: &str| {
        let of: Vec<_> = parts.iter().filter(|(_, doc)| uid(doc) == wanted).collect();
        let order = of[0].1.counts().unwrap().members;
        of.iter().min_by_key(|(at, _)| place(&order, *at)).unwrap().1.created
    };
    let winner = parts.iter().map(|(_, doc)| (home(&uid(doc)), uid(doc))).min().unwrap().1;
    let mut out: Vec<(usize, &Doc)> = parts.iter().copied().filter(|(_, doc)| uid(doc) == winner).collect();
    let order = out[0].1.counts().unwrap().members;
    out.sort_by_key(|(at, _)| place(&order, *at));
    out
}

fn folded(members: &[Option<Etcd>; 3], chosen: &[(usize, &Doc)], lives: (&str, u32)) -> Expected {
    let (home, body) = chosen[0];
    let mut value = body.value();
    let clusters: Vec<&str> = chosen.iter().map(|(at, _)| MEMBERS[*at]).collect();
    annotate(&mut value, "kubefold.io/clusters", &clusters.join(","));
    let differs = differing(members, chosen);
    if !differs.is_empty() {
        value["metadata"]["annotations"]["kubefold.io/differs"] = json!(differs.join(","));
    }
    let owner_is_gone = refer(members, home, body, &mut value);
    if body.kind == Kind::Namespaces {
        value["metadata"]["uid"] = json!(lives.0);
        return Expected { value, owner_is_gone, original: None };
    }
    let marker = body.counts().unwrap();
    let life = if marker.is_child { lives.1 } else { 0 };
    value["metadata"]["uid"] = json!(marker.visible_uid(life));
    let metadata = value["metadata"].as_object_mut().unwrap();
    let labels = metadata.get_mut("labels").and_then(Value::as_object_mut);
    // A child's were as they are.
    if labels.is_some_and(|labels| labels.shift_remove("kubefold.io/placement").is_some() && labels.is_empty()) {
        metadata.shift_remove("labels");
    }
    let sum = |of: fn(&Doc) -> u64| json!(chosen.iter().map(|(_, doc)| of(doc)).sum::<u64>());
    value["metadata"]["generation"] = sum(|doc| doc.generation);
    value["spec"]["replicas"] = sum(|doc| doc.replicas);
    value["status"]["observedGeneration"] = sum(|doc| doc.generation);
    value["status"]["readyReplicas"] = sum(|doc| doc.replicas);
    Expected { value, owner_is_gone, original: None }
}

/// Members whose part is gone, on its way out, or has other labels or another value of an annotation than the home's.
fn differing(members: &[Option<Etcd>; 3], chosen: &[(usize, &Doc)]) -> Vec<&'static str> {
    let (_, home) = chosen[0];
    let Some(marker) = home.marker.as_ref().filter(|_| !home.deleting) else { return Vec::new() };
    let metadata = |doc: &Doc, key: &str| {
        let mut map = doc.value()["metadata"][key].as_object().cloned().unwrap_or_default();
        map.retain(|key, _| !key.starts_with("kubefold.io/"));
        map
    };
    let is_edited = |doc: &Doc| {
        let (mine, theirs) = (metadata(home, "annotations"), metadata(doc, "annotations"));
        let changed = mine.iter().any(|(key, value)| theirs.get(key).is_some_and(|theirs| theirs != value));
        doc.deleting || changed || metadata(home, "labels") != metadata(doc, "labels")
    };
    let differs = |at: &usize| match chosen.iter().find(|(holder, _)| holder == at) {
        Some((_, doc)) => is_edited(doc),
        None => members[*at]
            .as_ref()
            .is_some_and(|etcd| marker.members.iter().any(|(_, cluster)| *cluster == etcd.cluster_uid)),
    };
    (0..3).filter(differs).map(|at| MEMBERS[at]).collect()
}

fn member_local(members: &[Option<Etcd>; 3], at: usize, doc: &Doc) -> Expected {
    let mut value = doc.value();
    value["metadata"]["name"] = json!(format!("{}@{}", doc.name, MEMBERS[at]));
    annotate(&mut value, "kubefold.io/cluster", MEMBERS[at]);
    let owner_is_gone = refer(members, at, doc, &mut value);
    Expected { value, owner_is_gone, original: Some(doc.whole()) }
}

fn annotate(value: &mut Value, key: &str, with: &str) {
    let metadata = value["metadata"].as_object_mut().unwrap();
    let mut annotations = metadata.get("annotations").and_then(Value::as_object).cloned().unwrap_or_default();
    annotations.retain(|name, _| !name.starts_with("kubefold.io/"));
    annotations.insert(key.into(), json!(with));
    metadata.insert("annotations".into(), Value::Object(annotations));
}

/// Rewrites the owner reference; says whether nobody lives who could tell what it leads to.
fn refer(members: &[Option<Etcd>; 3], at: usize, doc: &Doc, value: &mut Value) -> bool {
    let Some((name, uid)) = &doc.owner else { return false };
    let deployments = |at: usize| members[at].as_ref().map(|etcd| &etcd.objects[Kind::Deployments as usize]);
    let key = (doc.namespace, *name);
    let parts: Vec<(usize, &Doc)> = (0..3)
        .filter_map(|at| Some((at, deployments(at)?.get(&key)?)))
        .filter(|(at, doc)| is_folded(members, *at, doc))
        .collect();
    let owner = chosen(members, &parts).into_iter().find(|(other, owner)| *other == at && owner.uid == *uid);
    let reference = &mut value["metadata"]["ownerReferences"][0];
    match owner {
        Some((_, owner)) => reference["uid"] = json!(owner.marker.as_ref().unwrap().uid),
        None => reference["name"] = json!(format!("{name}@{}", MEMBERS[at])),
    }
    owner.is_none() && deployments(at).and_then(|all| all.get(&key)).is_none_or(|owner| owner.uid != *uid)
}
