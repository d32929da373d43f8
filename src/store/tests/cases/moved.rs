//! Placements that have moved: the record decides.

use serde_json::json;

use super::*;
use crate::placement::moved::{Moved, Superseded};

const KEY: &str = "a/web";

fn moved(members: &[usize]) -> Moved {
    let members: Vec<_> = members.iter().map(|at| (member(*at), format!("cluster-{at}"))).collect();
    Moved { epoch: 1, made: members.len(), members, ..Moved::default() }
}

fn set(fleet: &Fleet, moved: Moved) {
    fleet.shared.identities.set_moved(&placed_uid(1), Some(Arc::new(moved)));
    fleet.stores[DEPLOYMENTS].judge_parts(KEY);
}

#[test]
fn a_placement_that_moves_is_one_object_all_the_time() {
    let mut fleet = Fleet::new();
    let old = Doc { replicas: 3, ..part(EAST, 10, 1, &[EAST, WEST]) };
    fleet.is(EAST, &old);
    fleet.is(WEST, &Doc { replicas: 2, ..part(WEST, 20, 1, &[EAST, WEST]) });
    let shown = |fleet: &Fleet| {
        let json = fleet.json(DEPLOYMENTS, KEY);
        let metadata = &json["metadata"];
        let clusters = metadata["annotations"]["kubefold.io/clusters"].as_str().unwrap().to_owned();
        (
            clusters,
            json["spec"]["replicas"].clone(),
            metadata["generation"].clone(),
            metadata["creationTimestamp"].clone(),
        )
    };
    let (_, replicas, generation, created) = shown(&fleet);
    assert_eq!((replicas, generation), (json!(5), json!(2)));
    fleet.news(DEPLOYMENTS);

    // West has taken over what east has, and becomes the home.
    fleet.is(WEST, &Doc { replicas: 5, rv: 21, generation: 2, ..part(WEST, 20, 1, &[EAST, WEST]) });
    fleet.news(DEPLOYMENTS);
    let leaving = Moved {
        ceilings: [("cluster-0".to_owned(), 0)].into(),
        leaving: ["cluster-0".to_owned()].into(),
        generation: 1,
        created: created.as_str().map(str::to_owned),
        ..moved(&[WEST, EAST])
    };
    set(&fleet, leaving.clone());
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web"]);
    let before = shown(&fleet);
    assert_eq!(before, ("west,east".to_owned(), json!(5), json!(3), created.clone()));
    fleet.gone(EAST, &Doc { rv: 22, ..old });
    set(
        &fleet,
        Moved {
            ceilings: Default::default(),
            leaving: Default::default(),
            ..Moved { members: moved(&[WEST]).members, ..leaving }
        },
    );
    assert_eq!(shown(&fleet), ("west".to_owned(), before.1, before.2, created));
    assert!(fleet.news(DEPLOYMENTS).iter().all(|event| event == "MODIFIED a/web"));
}

#[test]
fn a_part_that_was_replaced_is_its_members_own_by_its_uid_alone() {
    let fleet = Fleet::new();
    fleet.is(EAST, &part(EAST, 10, 1, &[EAST, WEST]));
    fleet.is(WEST, &part(WEST, 20, 1, &[EAST, WEST]));
    let lost = Superseded { member: member(EAST), cluster_uid: "cluster-0".into(), uid: "own-0".into() };
    set(&fleet, Moved { superseded: vec![lost], ..moved(&[WEST, EAST]) });
    assert_eq!(fleet.keys(DEPLOYMENTS), ["a/web", "a/web@east"]);
    // Made anew by a later move.
    fleet.gone(EAST, &part(EAST, 30, 1, &[EAST, WEST]));
    fleet.is(EAST, &Doc { uid: "own-again".into(), ..part(EAST, 31, 1, &[EAST, WEST]) });
    assert_eq!(fleet.keys(DEPLOYMENTS), ["a/web"]);
    // A marker of a cluster that the record does not name.
    fleet.is(NORTH, &part(NORTH, 40, 1, &[EAST, NORTH]));
    assert_eq!(fleet.keys(DEPLOYMENTS), ["a/web", "a/web@north"]);
}
