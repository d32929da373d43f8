//! The few fields of an object that controllers look at often.

use std::{borrow::Cow, collections::BTreeMap, net::Ipv4Addr, sync::Arc};

use bytes::Bytes;
use hashbrown::HashSet;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{
    fields::{is_true, items, text},
    names::hash,
    resource::{NODES, PODS, Resource, Resources, SERVICES},
};
use kubefold_wire::{
    matching::{ObjectSelector, Taint},
    quantity::Quantity,
};

/// The most that counts of a container's request, or of what a node has.
const AMOUNT_MAX: i64 = i64::MAX / 100_000;

/// A UID, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Uid(u128);

impl Uid {
    /// Of its text.
    pub(super) fn of(text: &str) -> Self {
        Self(uuid::Uuid::try_parse(text).map_or_else(|_| u128::from(hash(text.as_bytes())), |uuid| uuid.as_u128()))
    }

    /// Its text.
    pub(super) fn text(self) -> String {
        uuid::Uuid::from_u128(self.0).to_string()
    }
}

/// An owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: Uid,
    /// `None`: a kind that the cluster does not have.
    pub(super) resource: Option<Resource>,
    pub(super) name: Arc<str>,
    pub(super) controller: bool,
    pub(super) blocks: bool,
}

/// Labels, or a selector of equal labels.
pub(super) type Labels = Arc<[(Arc<str>, Arc<str>)]>;

/// What is special to a kind.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Nothing.
    None,
    /// A pod.
    Pod(Box<PodPart>),
    /// A service: which pods it selects.
    Selector(Labels),
    /// A node.
    Node(Box<NodePart>),
}

/// What is special to nodes.
#[derive(Clone, Debug)]
pub(super) struct NodePart {
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) pods: i64,
    pub(super) unschedulable: bool,
    pub(super) taints: Vec<Taint>,
    /// Its address.
    pub(super) address: String,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// What is special to pods.
#[derive(Clone, Debug)]
pub(super) struct PodPart {
    pub(super) phase: Phase,
    pub(super) node: Option<Arc<str>>,
    pub(super) address: Option<Ipv4Addr>,
    /// The kubelet has taken it.
    pub(super) started: bool,
    pub(super) ready: bool,
    /// Seconds of the epoch since when it is ready, or not.
    pub(super) ready_since: i64,
    /// Its containers are started again when they end.
    pub(super) restarts: bool,
    /// It says what shall happen to it.
    pub(super) scripted: bool,
    pub(super) cpu: i64,
    pub(super) memory: i64,
}

impl PodPart {
    /// It has ended.
    pub(super) fn finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// The annotation that says what shall happen to a pod.
pub(super) const SCRIPT: &str = "kubefold.io/sim";

/// An object.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) uid: Uid,
    pub(super) revision: u64,
    /// JSON, without its revision.
    pub(super) body: Bytes,
    /// Seconds of the epoch.
    pub(super) created: i64,
    pub(super) deleting: bool,
    /// Has finalizers.
    pub(super) finalized: bool,
    pub(super) owners: Box<[Owner]>,
    pub(super) labels: Labels,
    pub(super) part: Part,
}

impl Entry {
    /// The owner that manages it.
    pub(super) fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// What is special to pods.
    pub(super) fn pod(&self) -> Option<&PodPart> {
        match &self.part {
            Part::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    /// What is special to nodes.
    pub(super) fn node(&self) -> Option<&NodePart> {
        match &self.part {
            Part::Node(node) => Some(node),
            _ => None,
        }
    }

    /// A label.
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        value_of(&self.labels, name)
    }
}

/// The texts that many objects share.
#[derive(Debug, Default)]
pub(super) struct Texts(HashSet<Arc<str>>);

impl Texts {
    /// The one copy of a text.
    pub(super) fn one(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    #[serde(borrow)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(borrow)]
    annotations: Option<Annotations<'a>>,
    #[serde(borrow)]
    owner_references: Option<Vec<Reference<'a>>>,
    finalizers: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations<'a> {
    #[serde(borrow, rename = "kubefold.io/sim")]
    script: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Reference<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    spec: PodSpec<'a>,
    #[serde(borrow, default)]
    status: PodStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec<'a> {
    #[serde(borrow)]
    node_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
    #[serde(borrow)]
    containers: Vec<Container<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Container<'a> {
    #[serde(borrow)]
    resources: Resourcing<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resourcing<'a> {
    #[serde(borrow)]
    requests: Option<Requests<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Requests<'a> {
    #[serde(borrow)]
    cpu: Option<Cow<'a, str>>,
    #[serde(borrow)]
    memory: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus<'a> {
    #[serde(borrow)]
    phase: Option<Cow<'a, str>>,
    #[serde(rename = "podIP")]
    pod_ip: Option<Ipv4Addr>,
    start_time: Option<Timestamp>,
    #[serde(borrow)]
    conditions: Vec<Condition<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    last_transition_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Service<'a> {
    #[serde(borrow, default)]
    spec: Selecting<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Selecting<'a> {
    #[serde(borrow)]
    selector: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

/// Reads what controllers look at; `None` if it is no object.
pub(super) fn parse(
    resource: Resource,
    revision: u64,
    body: &Bytes,
    resources: &Resources,
    texts: &mut Texts,
) -> Option<Entry> {
    let (metadata, part) = if resource == PODS {
        let pod: Pod<'_> = serde_json::from_slice(body).ok()?;
        let part = pod_part(&pod, texts);
        (pod.metadata, Part::Pod(Box::new(part)))
    } else {
        let part = if resource == SERVICES {
            let service: Service<'_> = serde_json::from_slice(body).ok()?;
            Part::Selector(labels(service.spec.selector.unwrap_or_default(), texts))
        } else if resource == NODES {
            Part::Node(Box::new(node_part(&serde_json::from_slice(body).ok()?)))
        } else {
            Part::None
        };
        (serde_json::from_slice::<Head<'_>>(body).ok()?.metadata, part)
    };
    let owners = metadata.owner_references.unwrap_or_default();
    Some(Entry {
        uid: Uid::of(&metadata.uid),
        revision,
        body: body.clone(),
        created: metadata.creation_timestamp.map_or(0, Timestamp::as_second),
        deleting: metadata.deletion_timestamp.is_some(),
        finalized: metadata.finalizers.is_some_and(|finalizers| !finalizers.is_empty()),
        owners: owners.into_iter().map(|reference| owner(&reference, resources, texts)).collect(),
        labels: labels(metadata.labels.unwrap_or_default(), texts),
        part,
    })
}

fn owner(reference: &Reference<'_>, resources: &Resources, texts: &mut Texts) -> Owner {
    Owner {
        uid: Uid::of(&reference.uid),
        resource: resources.of_kind(&reference.api_version, &reference.kind),
        name: texts.one(&reference.name),
        controller: reference.controller.unwrap_or(false),
        blocks: reference.block_owner_deletion.unwrap_or(false),
    }
}

fn labels(labels: BTreeMap<Cow<'_, str>, Cow<'_, str>>, texts: &mut Texts) -> Labels {
    labels.into_iter().map(|(key, value)| (texts.one(&key), texts.one(&value))).collect()
}

fn pod_part(pod: &Pod<'_>, texts: &mut Texts) -> PodPart {
    let ready = pod.status.conditions.iter().find(|condition| condition.kind == "Ready");
    let requests = || pod.spec.containers.iter().filter_map(|container| container.resources.requests.as_ref());
    PodPart {
        phase: match pod.status.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Pending,
        },
        node: pod.spec.node_name.as_deref().filter(|node| !node.is_empty()).map(|node| texts.one(node)),
        address: pod.status.pod_ip,
        started: pod.status.start_time.is_some(),
        ready: ready.is_some_and(|ready| ready.status == "True"),
        ready_since: ready.and_then(|ready| ready.last_transition_time).map_or(0, Timestamp::as_second),
        restarts: pod.spec.restart_policy.as_deref().is_none_or(|policy| policy == "Always"),
        scripted: pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.script.is_some()),
        cpu: requests()
            .filter_map(|requests| requests.cpu.as_deref())
            .map(|cpu| amount(cpu, Quantity::milli_value))
            .sum(),
        memory: requests()
            .filter_map(|requests| requests.memory.as_deref())
            .map(|memory| amount(memory, Quantity::value))
            .sum(),
    }
}

/// An amount in the unit of `of`; zero if it is malformed. It is bounded, so that sums do not overflow.
fn amount(text: &str, of: fn(&Quantity) -> i64) -> i64 {
    of(&Quantity::parse(text).unwrap_or_default()).clamp(-AMOUNT_MAX, AMOUNT_MAX)
}

fn node_part(node: &Value) -> NodePart {
    let allocatable = |name: &str, of| amount(node["status"]["allocatable"][name].as_str().unwrap_or_default(), of);
    let addresses = items(node, "/status/addresses");
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP");
    NodePart {
        cpu: allocatable("cpu", Quantity::milli_value),
        memory: allocatable("memory", Quantity::value),
        pods: allocatable("pods", Quantity::value),
        unschedulable: is_true(node, "/spec/unschedulable"),
        taints: items(node, "/spec/taints").iter().filter_map(|taint| Taint::deserialize(taint).ok()).collect(),
        address: internal.map(|address| text(address, "/address").to_owned()).unwrap_or_default(),
    }
}

/// Says whether a label selector takes these labels. A malformed one takes none.
pub(super) fn selects(selector: &Value, labels: &Labels) -> bool {
    ObjectSelector::of(selector).is_some_and(|selector| selector.matches(|name| value_of(labels, name)))
}

/// The value of a label.
pub(super) fn value_of<'a>(labels: &'a Labels, name: &str) -> Option<&'a str> {
    labels.iter().find(|(key, _)| &**key == name).map(|(_, value)| &**value)
}

/// Says whether a selector of equal labels takes these labels; an empty one takes none.
pub(super) fn selects_equal(selector: &Value, labels: &Labels) -> bool {
    let pairs = selector.as_object().filter(|pairs| !pairs.is_empty());
    pairs.is_some_and(|pairs| pairs.iter().all(|(name, value)| value_of(labels, name) == value.as_str()))
}
