//! What is free in each member, kept for a few seconds: reading all pods for every create would cost more than it tells.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use crate::{
    config::MemberName,
    placement::{
        capacity::{Room, Usage, occupy},
        scheduling::NodeFacts,
    },
    store::{Entry, Naming},
    stores::{Running, Stores},
};
use kubefold_wire::{locate::Paths, matching::Taint, resource::Gvr};

/// How long what was measured is good enough.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// The rooms of every member whose nodes and pods are known.
pub(super) type Rooms = Arc<HashMap<MemberName, Vec<Room>>>;

/// What was measured last.
#[derive(Default)]
pub(super) struct Measured(Mutex<Option<(Instant, Rooms)>>);

impl Measured {
    /// What is free in the members, at most [`KEPT_FOR`] old. Those who ask together share one measuring.
    pub(super) async fn now(&self, stores: &Stores) -> Rooms {
        let mut kept = self.0.lock().await;
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
