//! A short history in which every promise holds. The checkers' own tests break one thing in it, and see it found.

use std::{collections::BTreeMap, time::Duration};

use http::Method;
use kubefold_serving::caller::Caller;
use serde_json::{Value, json};

use crate::{
    history::{Change, Changed, End, Event, Heard, History, Read, Seen, Type, Verb, Watched, Write},
    kinds::CONFIG_MAPS,
    lives::MARKER,
};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn object(name: &str, uid: &str, revision: u64, note: &str, extra: &Value) -> Seen {
    let mut body = json!({
        "metadata": {"name": name, "namespace": "s1", "uid": uid, "resourceVersion": revision.to_string()},
        "data": {"note": note},
    });
    for (field, value) in extra.as_object().into_iter().flatten() {
        body["metadata"][field] = value.clone();
    }
    Seen::of_value(body)
}

fn member_local(revision: u64, note: &str) -> Seen {
    object("app@east", "u-east", revision, note, &json!({"annotations": {"kubefold.io/cluster": "east"}}))
}

fn placed(revision: u64) -> Seen {
    object("own-0-0", "p-1", revision, "c0", &json!({"annotations": {"kubefold.io/clusters": "east,west"}}))
}

fn part(uid: &str, revision: u64) -> Seen {
    object("own-0-0", uid, revision, "c0", &json!({"labels": {MARKER: "p-1"}, "annotations": {MARKER: "{}"}}))
}

fn change(at: u64, changed: Changed) -> Change {
    Change { at: s(at), kind: &CONFIG_MAPS, changed }
}

fn event(at: u64, event_type: Type, object: Seen) -> Event {
    Event { at: s(at), event_type, object }
}

fn caller(number: usize) -> Caller {
    let groups = ["system:masters", "team", "system:authenticated"].map(str::to_owned).into();
    Caller { user: format!("client-{number}"), groups, ..Caller::default() }
}

fn read(at: u64, revision: u64, objects: Vec<Seen>) -> Read {
    Read {
        client: 1,
        began: s(at),
        ended: s(at),
        kind: &CONFIG_MAPS,
        namespace: "s1".into(),
        name: None,
        asked: "?".into(),
        is_fresh: true,
        code: 200,
        message: String::new(),
        warnings: Vec::new(),
        revisions: vec![revision.to_string()],
        objects,
    }
}

fn write(at: u64, verb: Verb, object: Option<Seen>) -> Write {
    Write {
        client: 0,
        began: s(at),
        ended: s(at),
        kind: &CONFIG_MAPS,
        namespace: "s1".into(),
        name: "own-0-0".into(),
        verb,
        code: 200,
        message: String::new(),
        warnings: Vec::new(),
        object,
    }
}

fn watch(from: Option<u64>, initial: Option<(usize, u64)>, events: Vec<Event>) -> Watched {
    Watched {
        client: 0,
        began: s(0),
        kind: &CONFIG_MAPS,
        namespace: "s1".into(),
        held: BTreeMap::new(),
        from,
        code: 200,
        events,
        initial,
        is_open: false,
        bookmarks: vec!["90".into(), "128".into()],
        end: End::Left,
    }
}

/// A member-local object that changes, and a placed one that is made, changed and deleted.
pub(crate) fn good() -> History {
    let events = vec![
        event(1, Type::Added, member_local(88, "one")),
        event(2, Type::Added, placed(96)),
        event(3, Type::Modified, member_local(104, "two")),
        event(5, Type::Modified, placed(112)),
        event(6, Type::Deleted, placed(120)),
    ];
    let held_in = |uid: &str| {
        vec![
            change(2, Changed::Added(part(uid, 6))),
            change(5, Changed::Modified(part(uid, 7))),
            change(6, Changed::Deleted(part(uid, 8))),
        ]
    };
    let mut of_east = vec![
        change(1, Changed::Added(object("app", "u-east", 5, "one", &json!({})))),
        change(3, Changed::Modified(object("app", "u-east", 6, "two", &json!({})))),
    ];
    of_east.extend(held_in("part-east"));
    let heard = |method: Method, path: &str, caller: Caller| Heard {
        at: s(2),
        method,
        path: path.into(),
        caller: Some(caller),
    };
    let own = Caller { user: "admin".into(), groups: vec!["system:masters".into()], ..Caller::default() };
    let asked = vec![
        heard(Method::GET, "/api/v1/configmaps", own),
        heard(Method::PATCH, "/api/v1/namespaces/s1/configmaps/own-0-0", caller(0)),
    ];
    let left = object("app", "u-east", 6, "two", &json!({}));
    History {
        namespace: "s1".into(),
        members: vec!["east", "west"],
        changes: vec![of_east, held_in("part-west")],
        heard: vec![asked.clone(), asked],
        reads: vec![
            read(4, 104, vec![member_local(104, "two"), placed(96)]),
            read(9, 120, vec![member_local(104, "two")]),
        ],
        writes: vec![
            write(2, Verb::Create, Some(placed(96))),
            write(5, Verb::Patch, Some(placed(112))),
            write(6, Verb::Delete, None),
        ],
        watches: vec![watch(Some(80), None, events.clone()), watch(None, Some((1, 90)), events)],
        injected: Vec::new(),
        calm_at: s(8),
        held: vec![vec![(&CONFIG_MAPS, vec![left])], vec![(&CONFIG_MAPS, Vec::new())]],
        clients: (0..2).map(caller).collect(),
    }
}

/// That a checker finds what was broken, and nothing before it was.
pub(crate) fn assert_found(check: fn(&History) -> Vec<String>, broken: &History, expected: &str) {
    assert_eq!(check(&good()), Vec::<String>::new(), "a good history");
    let found = check(broken);
    assert!(found.iter().any(|problem| problem.contains(expected)), "{expected:?} is not in {found:#?}");
}

#[test]
fn every_promise_holds_in_the_sample() {
    for (name, check) in crate::PROMISES {
        assert_eq!(check(&good()), Vec::<String>::new(), "{name}");
    }
}
