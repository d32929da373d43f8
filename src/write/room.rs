//! What is free in each member, kept for a few seconds: reading all pods for every create would cost more than it tells.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, StatusCode};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    config::MemberName,
    member::call::{Answer, Call},
    placement::{
        capacity::{Room, Usage, occupy, used},
        resources::Resources,
        scheduling::NodeFacts,
    },
    store::{Entry, Naming},
    stores::{Running, Stores},
};
use kubefold_wire::{locate::Paths, matching::Taint, path::ApiPath, resource::Gvr};

/// How long what was measured is good enough.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// The rooms of every member whose nodes and pods are known.
pub(super) type Rooms = Arc<HashMap<MemberName, Vec<Room>>>;

/// What the nodes of the members use, of those that say so.
type Used = Arc<HashMap<MemberName, BTreeMap<String, Resources>>>;

/// How long a metrics API has for its answer: without one, requests count.
const METRICS_WITHIN: Duration = Duration::from_secs(2);

/// What was measured last.
#[derive(Default)]
pub(super) struct Measured {
    rooms: Mutex<Option<(Instant, Rooms)>>,
    used: Mutex<Option<(Instant, Used)>>,
}

impl Measured {
    /// What is free in the members, at most [`KEPT_FOR`] old. Those who ask together share one measuring.
    pub(super) async fn now(&self, stores: &Stores) -> Rooms {
        let mut kept = self.rooms.lock().await;
        if let Some((_, rooms)) = kept.as_ref().filter(|(at, _)| at.elapsed() < KEPT_FOR) {
            return Arc::clone(rooms);
        }
        let (nodes, pods) = (Gvr::new("", "v1", "nodes"), Gvr::new("", "v1", "pods"));
        let (Some(nodes), Some(pods)) = tokio::join!(stores.known(&nodes), stores.known(&pods)) else {
            return Rooms::default();
        };
        let naming = Arc::clone(&stores.shared().naming);
        let is_known = |name: &MemberName, running: &Running| stores.unknown(running, Some(name)).is_empty();
        let known = naming.members().iter().filter(|name| is_known(name, &nodes) && is_known(name, &pods));
        let known: Vec<MemberName> = known.cloned().collect();
        // All pods of the fleet are parsed: not on a thread that serves.
        let measuring = tokio::task::spawn_blocking(move || {
            let mut all: HashMap<MemberName, Vec<Room>> = known.into_iter().map(|name| (name, Vec::new())).collect();
            for entry in nodes.store.snapshot().range("", b"") {
                let rooms = entry.holders.first().and_then(|member| all.get_mut(member));
                let json = std::str::from_utf8(entry.json()).unwrap_or_default();
                let facts = node(own(&naming, entry.name()), entry);
                rooms.into_iter().for_each(|rooms| rooms.push(Room::of_node(facts.clone(), json)));
            }
            let mut taken: HashMap<MemberName, Vec<Usage>> = HashMap::new();
            for entry in pods.store.snapshot().range("", b"") {
                let Some(member) = entry.holders.first() else { continue };
                let Some(mut usage) = std::str::from_utf8(entry.json()).ok().and_then(Usage::of_pod) else { continue };
                // A pod's node has its visible name.
                usage.node = own(&naming, &usage.node);
                taken.entry(member.clone()).or_default().push(usage);
            }
            for (member, taken) in taken {
                all.get_mut(&member).into_iter().for_each(|rooms| occupy(rooms, taken.iter().cloned()));
            }
            Arc::new(all)
        });
        let rooms = measuring.await.unwrap_or_default();
        *kept = Some((Instant::now(), Arc::clone(&rooms)));
        rooms
    }

    /// The same, with what the nodes use where their member has a metrics API.
    pub(super) async fn with_use(&self, stores: &Stores) -> Rooms {
        let (rooms, used) = tokio::join!(self.now(stores), self.used(stores));
        let mut rooms = HashMap::clone(&rooms);
        for (member, rooms) in &mut rooms {
            let Some(used) = used.get(member) else { continue };
            rooms.iter_mut().for_each(|room| used.get(&room.node.name).into_iter().for_each(|used| room.measure(used)));
        }
        Arc::new(rooms)
    }

    /// What the nodes use, at most [`KEPT_FOR`] old. Those who ask together share one measuring.
    async fn used(&self, stores: &Stores) -> Used {
        let mut kept = self.used.lock().await;
        if let Some((_, used)) = kept.as_ref().filter(|(at, _)| at.elapsed() < KEPT_FOR) {
            return Arc::clone(used);
        }
        let nodes = Gvr::new("metrics.k8s.io", "v1beta1", "nodes");
        let catalog = stores.catalog();
        let serving = catalog.serving_members(&nodes);
        let members = stores.registry().members();
        let asked = members.iter().filter(|member| serving.contains(member.name())).map(|member| async {
            let call = Call {
                method: Method::GET,
                path: ApiPath::within(&nodes, ""),
                query: String::new(),
                body: Bytes::new(),
                content_type: String::new(),
                user_agent: None,
            };
            match tokio::time::timeout(METRICS_WITHIN, member.call(None, call)).await {
                Ok(Answer::Answered { code: StatusCode::OK, body, .. }) => {
                    Some((member.name().clone(), used(std::str::from_utf8(&body).unwrap_or_default())))
                }
                _ => None,
            }
        });
        let used: Used = Arc::new(join_all(asked).await.into_iter().flatten().collect());
        *kept = Some((Instant::now(), Arc::clone(&used)));
        used
    }
}

/// What placing must know of a node.
pub(super) fn node(name: String, entry: &Entry) -> NodeFacts {
    let labels = entry.labels().and_then(|text| serde_json::from_str::<BTreeMap<String, String>>(text).ok());
    let json = std::str::from_utf8(entry.json()).unwrap_or_default();
    let mut found = Vec::new();
    let located = Paths::new([(0, ["spec", "taints"].as_slice())]).locate(json, &mut found).is_ok();
    let taints = found.first().filter(|_| located).and_then(|at| json.get(at.range.clone()));
    let taints = taints.and_then(|text| serde_json::from_str::<Vec<Taint>>(text).ok());
    NodeFacts { name, labels: labels.unwrap_or_default(), taints: taints.unwrap_or_default() }
}

/// The own name of a node.
fn own(naming: &Naming, visible: &str) -> String {
    naming.split(visible).map_or(visible, |(own, _)| own).to_owned()
}
