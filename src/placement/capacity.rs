//! How much of a member is free, and how many replicas of a pod fit there: the nodes' allocatable minus what pods request.
//!
//! A member's [`Room`]s do not depend on the pod that is to be placed, so they can be kept while nothing changes.

use std::collections::BTreeMap;

use crate::placement::{
    resources::{PodSpec, Resources},
    scheduling::{NodeFacts, PodRequirements, admits},
};
use kubefold_wire::locate::value_at;

/// What one member has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capacity {
    /// How many replicas of the pod in question fit, node by node; 0 where there is no pod.
    pub replicas: u32,
    /// What is free on all its nodes together.
    pub free: Resources,
}

/// One node and what is free on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The node.
    pub node: NodeFacts,
    /// What is allocatable and not requested.
    pub free: Resources,
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
        Self { node, free: Resources::of(&allocatable) }
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

/// What is free in a member, and how many replicas of a pod fit. `pod` is what its pods ask of nodes.
pub fn capacity(rooms: &[Room], pod: Option<&PodRequirements>) -> Capacity {
    let (mut free, mut replicas) = (Resources::default(), 0_u64);
    for room in rooms {
        // A cordoned or ill node takes nothing, whatever is free on it.
        let open = match pod {
            Some(asked) => admits(asked, &room.node),
            None => admits(&PodRequirements::default(), &room.node),
        };
        if open {
            free.add(&room.free);
            replicas = replicas.saturating_add(pod.map_or(0, |asked| room.free.holds(&asked.requested)));
        }
    }
    Capacity { replicas: u32::try_from(replicas).unwrap_or(u32::MAX), free }
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
