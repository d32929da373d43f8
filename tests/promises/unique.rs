//! Promise 1: in one list, and at every moment of one watch, no two objects share namespace and name.

use std::collections::BTreeMap;

use crate::history::{Event, History, Read, Type, Watched, brief};

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let lists = history.reads.iter().filter(|read| read.succeeded()).flat_map(in_list);
    lists.chain(history.watches.iter().flat_map(in_watch)).collect()
}

fn in_list(read: &Read) -> Vec<String> {
    let mut names = BTreeMap::new();
    let mut problems = Vec::new();
    for seen in &read.objects {
        if let Some(other) = names.insert(seen.key(), seen) {
            problems.push(format!(
                "the list of {} at {:?} has {} and {}",
                read.kind.plural,
                read.began,
                brief(other),
                brief(seen)
            ));
        }
    }
    problems
}

/// An informer has one object for each key: every event must fit what it has.
fn in_watch(watch: &Watched) -> Vec<String> {
    let mut held: BTreeMap<String, String> =
        watch.held.iter().map(|(key, seen)| (key.clone(), seen.uid.clone())).collect();
    let mut problems = Vec::new();
    for Event { at, event_type, object } in &watch.events {
        let before = match event_type {
            Type::Deleted => held.remove(&object.key()),
            Type::Added | Type::Modified => held.insert(object.key(), object.uid.clone()),
        };
        let fits = match event_type {
            Type::Added => before.is_none(),
            Type::Modified | Type::Deleted => before.as_ref() == Some(&object.uid),
        };
        if !fits {
            let held = before.unwrap_or_else(|| "nothing".into());
            problems.push(format!(
                "the watch of {} that began at {:?} tells {event_type:?} of {} at {at:?}, and holds {held} there",
                watch.kind.plural,
                watch.began,
                brief(object)
            ));
        }
    }
    problems
}

#[test]
fn a_key_that_comes_twice_is_found() {
    use crate::sample;
    let mut history = sample::good();
    let again = history.reads[0].objects[0].clone();
    history.reads[0].objects.push(again);
    sample::assert_found(check, &history, "has app@east");

    let mut history = sample::good();
    history.watches[0].events[2].event_type = Type::Added;
    sample::assert_found(check, &history, "tells Added of app@east");
    let mut history = sample::good();
    history.watches[0].events[2].object.uid = "another".into();
    sample::assert_found(check, &history, "tells Modified of app@east");
    let mut history = sample::good();
    history.watches[0].events.remove(0);
    sample::assert_found(check, &history, "and holds nothing there");
}
