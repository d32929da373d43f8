//! What a write first made of an object is told before what came of it under the same hold.

use super::*;

#[test]
fn a_status_is_told_as_written_though_it_was_corrected_under_the_hold() {
    let mut fleet = Fleet::new();
    let order = [EAST, WEST];
    for at in order {
        fleet.is(at, &part(at, 20, 1, &order));
    }
    fleet.news(DEPLOYMENTS);
    let shown = |fleet: &Fleet| fleet.json(DEPLOYMENTS, "a/web")["metadata"]["annotations"].clone();
    let (store, before) = (Arc::clone(&fleet.stores[DEPLOYMENTS]), shown(&fleet));
    // The writer changes both parts, and a controller of the home takes that back at once.
    let hold = store.hold("a/web");
    for at in order {
        fleet.is(at, &Doc { annotations: 4, ..part(at, 21, 1, &order) });
    }
    fleet.is(EAST, &part(EAST, 22, 1, &order));
    assert_eq!(fleet.news(DEPLOYMENTS), [""; 0]);
    let written = hold.release_as_written().unwrap();
    let written: Value = serde_json::from_slice(written.json()).unwrap();
    assert_ne!(written["metadata"]["annotations"], before);
    assert_eq!(shown(&fleet), before);
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web", "MODIFIED a/web"]);
    // So is a part that is gone meanwhile.
    let hold = store.hold("a/web");
    fleet.is(WEST, &Doc { replicas: 3, ..part(WEST, 30, 1, &order) });
    fleet.gone(WEST, &part(WEST, 31, 1, &order));
    drop(hold.release_as_written());
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web", "MODIFIED a/web"]);
    assert_eq!(fleet.json(DEPLOYMENTS, "a/web")["metadata"]["annotations"]["kubefold.io/clusters"], "east");
}

#[test]
fn an_object_that_goes_under_the_hold_of_its_deletion_is_told_as_deleting_first() {
    let mut fleet = Fleet::new();
    let order = [EAST, WEST];
    for at in order {
        fleet.is(at, &part(at, 20, 1, &order));
    }
    fleet.is(EAST, &replica_set(21, "own-0"));
    fleet.news(DEPLOYMENTS);
    let hold = fleet.stores[DEPLOYMENTS].hold("a/web");
    // A controller writes before the delete and after it; then all is gone.
    fleet.is(EAST, &Doc { annotations: 4, ..part(EAST, 22, 1, &order) });
    for at in order {
        fleet.is(at, &Doc { deleting: true, ..part(at, 23, 1, &order) });
        fleet.is(at, &Doc { deleting: true, replicas: 0, ..part(at, 24, 1, &order) });
    }
    for at in order {
        fleet.gone(at, &Doc { deleting: true, ..part(at, 25, 1, &order) });
    }
    assert_eq!(fleet.news(DEPLOYMENTS), [""; 0]);
    let written = hold.release_as_written().unwrap();
    let written: Value = serde_json::from_slice(written.json()).unwrap();
    assert!(written["metadata"]["deletionTimestamp"].is_string(), "{written}");
    assert_eq!(written["spec"]["replicas"], 2, "{written}");
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web", "DELETED a/web"]);
    // The name is free: the next object of it is another one.
    let hold = fleet.stores[DEPLOYMENTS].hold("a/web");
    fleet.is(EAST, &Doc { uid: "own-7".into(), ..part(EAST, 30, 2, &[EAST]) });
    drop(hold.release_as_written());
    assert_eq!(fleet.news(DEPLOYMENTS), ["ADDED a/web"]);
    // What is gone at once was never seen as deleting.
    let hold = fleet.stores[DEPLOYMENTS].hold("a/web");
    fleet.gone(EAST, &Doc { uid: "own-7".into(), ..part(EAST, 31, 2, &[EAST]) });
    drop(hold.release_as_written());
    assert_eq!(fleet.news(DEPLOYMENTS), ["DELETED a/web"]);
}
