//! Promise 4: all watchers of a kind see the same events in the same order.
//!
//! Each watch tells increasing revisions (promise 3), so the order is one where one revision is one event; and nobody
//! misses one.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included},
};

use crate::{
    history::{Event, History, brief},
    kinds::KINDS,
};

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let mut problems = Vec::new();
    for kind in KINDS {
        let mut events: BTreeMap<u64, &Event> = BTreeMap::new();
        for watch in history.watches.iter().filter(|watch| watch.kind == kind) {
            for event in watch.news() {
                let first = events.entry(event.object.number()).or_insert(event);
                if (first.event_type, &first.object) != (event.event_type, &event.object) {
                    problems.push(format!(
                        "revision {} of {} is {:?} of {} to one watcher, and {:?} of {} to another",
                        event.object.revision,
                        kind.plural,
                        first.event_type,
                        brief(&first.object),
                        event.event_type,
                        brief(&event.object)
                    ));
                }
            }
        }
        for watch in history.watches.iter().filter(|watch| watch.kind == kind) {
            let (Some(since), Some(until)) = (watch.since(), watch.until()) else { continue };
            let told: Vec<u64> = watch.news().iter().map(|event| event.object.number()).collect();
            for (revision, event) in events.range((Excluded(since), Included(until))) {
                let concerns = watch.namespace.is_empty() || watch.namespace == event.object.namespace;
                if concerns && !told.contains(revision) {
                    problems.push(format!(
                        "the watch of {} that began at {:?} told everything from {since} to {until}, but not {:?} of {}",
                        kind.plural, watch.began, event.event_type, brief(&event.object)
                    ));
                }
            }
        }
    }
    problems
}

#[test]
fn a_watcher_that_sees_something_else_is_found() {
    use crate::{history::Type, sample};
    let mut history = sample::good();
    history.watches[1].events[2].event_type = Type::Deleted;
    sample::assert_found(check, &history, "to one watcher, and Deleted");
    let mut history = sample::good();
    history.watches[0].events.remove(1);
    sample::assert_found(check, &history, "but not Added of own");
    // Two that are told in another order have each other's revisions.
    let mut history = sample::good();
    let (first, second) = (history.watches[0].events[1].clone(), history.watches[0].events[2].clone());
    history.watches[0].events[1].object.clone_from(&second.object);
    history.watches[0].events[1].object.revision = first.object.revision;
    sample::assert_found(check, &history, "to one watcher, and");
}
