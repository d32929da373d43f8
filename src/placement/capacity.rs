//! How much of a member is free, and how many replicas of a pod fit there: the nodes' allocatable minus what pods request.
//!
//! A member's [`Room`]s do not depend on the pod that is to be placed, so they can be kept while nothing changes.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    config::Weights,
    placement::{
        resources::{Amounts, PodSpec, Resources},
        scheduling::{NodeFacts, PodRequirements, admits},
    },
};
use kubefold_wire::locate::value_at;

/// What one member has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capacity {
    /// How many replicas of the pod in question fit, node by node; 0 where there is no pod.
    pub replicas: u32,
    /// What is free on all its nodes together.
    pub free: Resources,
    /// How many replicas would fit if only what is used were taken; `None`: no node is measured.
    pub unused: Option<u32>,
}

impl Capacity {
    /// How many replicas count for the member's share.
    pub fn weight(&self, weights: Weights) -> u32 {
        self.unused.filter(|_| weights == Weights::Use).unwrap_or(self.replicas)
    }

    /// Counts as free what takes room now.
    pub fn add_own(&mut self, replicas: u32) {
        self.replicas = self.replicas.saturating_add(replicas);
        self.unused = self.unused.map(|unused| unused.saturating_add(replicas));
    }
}

/// One node and what is free on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The node.
    pub node: NodeFacts,
    /// What it has for pods.
    pub allocatable: Resources,
    /// What is allocatable and not requested.
    pub free: Resources,
    /// What is allocatable and not used; `None`: it is not measured.
    pub unused: Option<Resources>,
}

/// What one pod takes of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The node's plain name.
    pub node: String,
    /// How much.
    pub taken: Resources,
}

impl Room {
    /// An empty node, by its document.
    pub fn of_node(node: NodeFacts, json: &str) -> Self {
        let allocatable = value_at(json, &["status", "allocatable"]);
        let allocatable = allocatable.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        let allocatable = Resources::of(&allocatable);
        Self { node, allocatable, free: allocatable, unused: None }
    }

    /// Takes what is used of the node.
    pub fn measure(&mut self, used: &Resources) {
        let mut unused = self.allocatable;
        unused.subtract(used);
        // Places for pods are not used, but had.
        self.unused = Some(Resources { pods: self.free.pods, ..unused });
    }
}

impl Usage {
    /// What a pod takes, by its document; `None` while it is on no node, and once it has ended.
    pub fn of_pod(json: &str) -> Option<Self> {
        if matches!(value_at(json, &["status", "phase"]), Some("\"Succeeded\"" | "\"Failed\"")) {
            return None;
        }
        let spec: PodSpec = serde_json::from_str(value_at(json, &["spec"])?).ok()?;
        let taken = Resources::requested(&spec);
        (!spec.node_name.is_empty()).then_some(Self { node: spec.node_name, taken })
    }
}

/// Takes what pods request off the nodes that they are on.
pub fn occupy(rooms: &mut [Room], pods: impl IntoIterator<Item = Usage>) {
    let mut places: BTreeMap<String, &mut Room> = rooms.iter_mut().map(|room| (room.node.name.clone(), room)).collect();
    for usage in pods {
        if let Some(room) = places.get_mut(&usage.node) {
            room.free.subtract(&usage.taken);
        }
    }
}

/// What the nodes of a member use, by a list of `metrics.k8s.io` as JSON: by the node's name. One that is malformed is not
/// measured.
pub fn used(list_json: &str) -> BTreeMap<String, Resources> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        name: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct NodeMetrics {
        metadata: Metadata,
        usage: Amounts,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct List {
        items: Vec<NodeMetrics>,
    }
    let list: List = serde_json::from_str(list_json).unwrap_or_default();
    list.items.into_iter().map(|item| (item.metadata.name, Resources::of(&item.usage))).collect()
}

/// What is free in a member, and how many replicas of a pod fit. `pod` is what its pods ask of nodes.
pub fn capacity(rooms: &[Room], pod: Option<&PodRequirements>) -> Capacity {
    let (mut free, mut replicas, mut unused) = (Resources::default(), 0_u64, 0_u64);
    for room in rooms {
        // A cordoned or ill node takes nothing, whatever is free on it.
        let open = match pod {
            Some(asked) => admits(asked, &room.node),
            None => admits(&PodRequirements::default(), &room.node),
        };
        if open {
            let fits = |free: &Resources| pod.map_or(0, |asked| free.holds(&asked.requested));
            free.add(&room.free);
            replicas = replicas.saturating_add(fits(&room.free));
            unused = unused.saturating_add(fits(room.unused.as_ref().unwrap_or(&room.free)));
        }
    }
    let number = |replicas: u64| u32::try_from(replicas).unwrap_or(u32::MAX);
    let is_measured = rooms.iter().any(|room| room.unused.is_some());
    Capacity { replicas: number(replicas), free, unused: is_measured.then(|| number(unused)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubefold_wire::matching::Taint;

    fn room(name: &str, cpu: &str, memory: &str, pods: u32) -> Room {
        let json = format!(r#"{{"status":{{"allocatable":{{"cpu":"{cpu}","memory":"{memory}","pods":"{pods}"}}}}}}"#);
        Room::of_node(NodeFacts { name: name.into(), ..NodeFacts::default() }, &json)
    }

    fn container(cpu: &str, memory: &str) -> String {
        format!(r#"{{"resources":{{"requests":{{"cpu":"{cpu}","memory":"{memory}"}}}}}}"#)
    }

    #[test]
    fn pods_take_their_nodes_room_until_they_end() {
        let mut rooms = [room("a", "2", "1Gi", 10), room("b", "1", "1Gi", 2)];
        let pod = |node: &str, phase: &str| {
            let (one, node) = (container("600m", "1Mi"), format!(r#""nodeName":"{node}""#));
            format!(r#"{{"spec":{{{node},"containers":[{one}]}},"status":{{"phase":"{phase}"}}}}"#)
        };
        let pods =
            [pod("a", "Running"), pod("a", "Succeeded"), pod("b", "Failed"), pod("", "Pending"), pod("z", "Running")];
        occupy(&mut rooms, pods.iter().filter_map(|json| Usage::of_pod(json)));
        assert_eq!((rooms[0].free.cpu_milli, rooms[0].free.pods), (1400, 9));
        assert_eq!((rooms[1].free.cpu_milli, rooms[1].free.pods), (1000, 2));
        let asks = |cpu_milli: u64| PodRequirements {
            requested: Resources { cpu_milli, memory_bytes: 0, pods: 1 },
            ..PodRequirements::default()
        };
        let all = capacity(&rooms, Some(&asks(500)));
        assert_eq!((all.replicas, all.free.cpu_milli), (4, 2400), "node by node: 2 and 2, not 2400 / 500");
        assert_eq!(capacity(&rooms, Some(&asks(0))).replicas, 11);
        assert_eq!(capacity(&rooms, None).replicas, 0);
        assert_eq!(capacity(&[], Some(&asks(1))), Capacity::default());
    }

    #[test]
    fn what_is_used_counts_where_it_is_measured() {
        let mut rooms = [room("a", "4", "1Gi", 10), room("b", "4", "1Gi", 10)];
        let list = r#"{"kind":"NodeMetricsList","items":[
            {"metadata":{"name":"a"},"timestamp":"x","usage":{"cpu":"500m","memory":"1Mi"}},{"metadata":{"name":"z"},"usage":{}}]}"#;
        let asks = Resources { cpu_milli: 1000, memory_bytes: 0, pods: 1 };
        let asks = PodRequirements { requested: asks, ..PodRequirements::default() };
        let full = Usage { node: "a".into(), taken: Resources { cpu_milli: 4000, memory_bytes: 0, pods: 9 } };
        occupy(&mut rooms, [full]);
        assert_eq!(capacity(&rooms, Some(&asks)).unused, None);
        let used = used(list);
        rooms.iter_mut().for_each(|room| used.get(&room.node.name).into_iter().for_each(|used| room.measure(used)));
        let now = capacity(&rooms, Some(&asks));
        assert_eq!((now.replicas, now.unused), (4, Some(5)), "one more place for a pod in a, and four CPUs in b");
        assert_eq!((now.weight(Weights::Capacity), now.weight(Weights::Use)), (4, 5));
        assert!(super::used("no list").is_empty());
    }

    #[test]
    fn nodes_that_the_pod_cannot_use_do_not_count() {
        let mut rooms = [room("a", "2", "1Gi", 10), room("b", "2", "1Gi", 10)];
        rooms[0].node.taints = vec![Taint {
            key: "node.kubernetes.io/unschedulable".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        }];
        let one = Resources { cpu_milli: 1000, memory_bytes: 1, pods: 1 };
        let asked = PodRequirements { requested: one, ..PodRequirements::default() };
        assert_eq!(capacity(&rooms, Some(&asked)).replicas, 2);
        let named = PodRequirements { node_name: "a".into(), ..asked };
        assert_eq!(capacity(&rooms, Some(&named)).replicas, 2, "it passes the scheduler by");
    }
}
