//! Promise 7: a response that does not show a member's current state says so in a `Warning` that names the member, or is a
//! 503; and when all is calm, everything is shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use crate::{
    bytes,
    history::{Event, History, Read, Seen, Type, Watched},
    kinds::{KINDS, Kind},
    lives::{Life, Lives, MARKER},
};

/// How old a member's state may be that is shown without a word. It takes so long to notice that a member does not answer:
/// a probe each 2 s, of which one is owed an answer for 3 s.
const UNNOTICED: Duration = Duration::from_secs(12);

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let lives = Lives::of(history);
    let mut problems = Vec::new();
    for read in history.reads.iter().filter(|read| read.is_fresh) {
        is_refusal(read, &mut problems);
        let answered = read.succeeded() || (read.code == 404 && read.name.is_some());
        for (member, lives) in lives.iter().enumerate().filter(|_| answered) {
            if !read.names(history.members[member]) {
                is_current(history, read, (member, lives), &mut problems);
            }
        }
    }
    is_complete(history, &mut problems);
    problems
}

/// What is no answer says so.
fn is_refusal(read: &Read, problems: &mut Vec<String>) {
    if !read.succeeded() && !matches!(read.code, 404 | 410 | 429 | 500 | 502 | 503 | 504) {
        problems.push(format!("a read of {} at {:?} is {} {}", read.kind.plural, read.began, read.code, read.message));
    }
}

/// No member-local object of this member is older than what went unnoticed.
fn is_current(history: &History, read: &Read, (member, lives): (usize, &Lives), problems: &mut Vec<String>) {
    let Some(then) = read.began.checked_sub(UNNOTICED) else { return };
    let name = history.members[member];
    for (uid, life) in lives.of_kind(read.kind.plural).filter(|(_, life)| life.placement().is_none()) {
        let visible = format!("{}@{name}", life.name);
        if read.name.as_ref().is_some_and(|asked| *asked != visible) {
            continue;
        }
        let label = || {
            format!(
                "the read of {} at {:?} ({}), which says nothing of {name},",
                read.kind.plural, read.began, read.asked
            )
        };
        let shown = read.objects.iter().find(|seen| seen.uid == *uid);
        let was_there_all_along = life.at(then).is_some()
            && life.states.iter().all(|(at, state)| *at <= then || *at > read.ended || state.is_some());
        let was_gone_all_along = life.at(then).is_none()
            && life.states.iter().all(|(at, state)| *at <= then || *at > read.ended || state.is_none());
        match shown {
            None if was_there_all_along => problems.push(format!("{} lacks {visible}", label())),
            Some(_) if was_gone_all_along => problems.push(format!("{} has {visible}, which is gone", label())),
            Some(seen) if is_older(life, seen, then) => {
                problems.push(format!("{} has {visible} as it was before {then:?}: {}", label(), seen.body));
            }
            _ => {}
        }
    }
}

/// Says whether a state was over at a time.
fn is_older(life: &Life, seen: &Seen, then: Duration) -> bool {
    let body = bytes::as_in_member(seen);
    let same = |state: &Option<Seen>| state.as_ref().is_some_and(|state| bytes::without_revision(state) == body);
    let Some(last) = life.states.iter().rposition(|(_, state)| same(state)) else { return false };
    life.states.get(last + 1).is_some_and(|(next, _)| *next <= then)
}

/// When all is calm, lists and watches have what the members have.
fn is_complete(history: &History, problems: &mut Vec<String>) {
    for kind in KINDS {
        let expected = expected(history, kind);
        let lists = history
            .reads
            .iter()
            .filter(|read| read.kind == kind && read.name.is_none() && read.began >= history.calm_at);
        for read in lists.filter(|read| read.ended > Duration::ZERO && history.calm_at > Duration::ZERO) {
            let shown: BTreeSet<String> = read.objects.iter().map(|seen| seen.name.clone()).collect();
            if !read.succeeded() || shown != expected {
                problems.push(format!(
                    "when all is calm, the list of {} is {} {shown:?}, not {expected:?}",
                    kind.plural, read.code
                ));
            }
        }
        for watch in history.watches.iter().filter(|watch| watch.kind == kind && watch.is_open) {
            let shown = left(watch, &history.namespace);
            if shown != expected {
                problems.push(format!(
                    "when all is calm, the watch of {} that began at {:?} holds {shown:?}, not {expected:?}",
                    kind.plural, watch.began
                ));
            }
        }
    }
}

/// The visible names of what the members hold.
fn expected(history: &History, kind: &Kind) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (member, held) in history.members.iter().zip(&history.held) {
        for seen in held.iter().filter(|(of, _)| *of == kind).flat_map(|(_, objects)| objects) {
            let name = if seen.label(MARKER).is_some() { seen.name.clone() } else { format!("{}@{member}", seen.name) };
            names.insert(name);
        }
    }
    names
}

/// What an informer holds in the end.
fn left(watch: &Watched, namespace: &str) -> BTreeSet<String> {
    let mut held: BTreeMap<String, Value> = BTreeMap::new();
    for seen in watch.held.values().filter(|seen| seen.namespace == namespace) {
        held.insert(seen.name.clone(), Value::Null);
    }
    for Event { event_type, object, .. } in watch.events.iter().filter(|event| event.object.namespace == namespace) {
        match event_type {
            Type::Deleted => drop(held.remove(&object.name)),
            Type::Added | Type::Modified => drop(held.insert(object.name.clone(), Value::Null)),
        }
    }
    held.into_keys().collect()
}

#[test]
fn a_hole_that_is_not_spoken_of_is_found() {
    use crate::sample;
    let late = Duration::from_secs(60);
    // Long after, the first state of an object; its member said nothing.
    let stale = || {
        let mut history = sample::good();
        let old = history.watches[0].events[0].object.clone();
        (history.reads[0].began, history.reads[0].ended) = (late, late);
        history.reads[0].objects[0] = old;
        history
    };
    sample::assert_found(check, &stale(), "has app@east as it was before");
    let mut history = stale();
    history.reads[0].warnings.push("299 - \"member east is down (for 30s); its last known state is shown\"".into());
    assert!(!check(&history).iter().any(|problem| problem.contains("as it was before")));
    let mut history = stale();
    history.reads[0].warnings.push("299 - \"member west is down (for 30s)\"".into());
    sample::assert_found(check, &history, "has app@east as it was before");

    let mut history = stale();
    history.reads[0].objects.clear();
    sample::assert_found(check, &history, "lacks app@east");
    let mut history = stale();
    history.reads[0].code = 400;
    sample::assert_found(check, &history, "is 400");
    let mut history = sample::good();
    history.reads[1].objects.clear();
    sample::assert_found(check, &history, "when all is calm, the list of configmaps is 200");
    let mut history = sample::good();
    history.watches[0].is_open = true;
    history.watches[0].events.clear();
    sample::assert_found(check, &history, "when all is calm, the watch of configmaps");
    // What is gone, and still shown.
    let mut history = sample::good();
    let gone = history.changes[0][1].clone();
    if let crate::history::Changed::Modified(seen) = gone.changed {
        let (at, kind) = (Duration::from_secs(8), gone.kind);
        history.changes[0].push(crate::history::Change { at, kind, changed: crate::history::Changed::Deleted(seen) });
    }
    (history.reads[0].began, history.reads[0].ended) = (late, late);
    sample::assert_found(check, &history, "which is gone");
}
