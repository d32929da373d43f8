//! Promise 5: one write is one event, the answer carries its revision, and later reads include it.

use std::{
    ops::Bound::{Excluded, Included, Unbounded},
    time::Duration,
};

use crate::history::{Event, History, Read, Type, Verb, Watched, Write, brief};

/// What an event is on its way to a watcher, by the virtual clock.
const MOMENT: Duration = Duration::from_secs(1);

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let mut problems = Vec::new();
    for write in history.writes.iter().filter(|write| write.succeeded()) {
        match &write.object {
            Some(_) if write.verb != Verb::Delete => {
                is_told(history, write, &mut problems);
                is_read(history, write, &mut problems);
            }
            _ if write.verb == Verb::Delete => is_gone(history, write, &mut problems),
            _ => {}
        }
        is_one_event(history, write, &mut problems);
    }
    problems
}

fn label(write: &Write) -> String {
    let revision = write.object.as_ref().map_or("", |seen| &seen.revision);
    format!("{:?} of {} {} at {:?} (answer {revision})", write.verb, write.kind.plural, write.name, write.began)
}

/// A watch that covers the revision of the answer tells just that.
fn is_told(history: &History, write: &Write, problems: &mut Vec<String>) {
    let Some(seen) = &write.object else { return };
    let revision = seen.number();
    let covers = |watch: &&Watched| {
        let covered =
            watch.since().zip(watch.until()).is_some_and(|(since, until)| since < revision && revision <= until);
        watch.kind == write.kind && covered
    };
    for watch in history.watches.iter().filter(covers) {
        let told = watch.news().iter().find(|event| event.object.number() == revision);
        if told.is_none_or(|event| event.object != *seen || event.event_type == Type::Deleted) {
            problems.push(format!("{}: the watch that began at {:?} tells {told:?}", label(write), watch.began));
        }
    }
}

/// Who reads later sees it, or what came after it.
fn is_read(history: &History, write: &Write, problems: &mut Vec<String>) {
    let Some(written) = &write.object else { return };
    let events = history.events(write.kind);
    // A get has no revision: the deletion that it saw may reach watchers a moment later.
    let is_deleted_by = |read: &Read| {
        let until = read.revisions.first().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        let deleted = |event: &&Event| event.object.key() == written.key() && event.event_type == Type::Deleted;
        let later = events.range((Excluded(written.number()), Unbounded)).filter(|(revision, _)| **revision <= until);
        later.map(|(_, event)| *event).any(|event| deleted(&event) && event.at <= read.ended + MOMENT)
    };
    for read in later(history, write) {
        let shown = read.objects.iter().find(|seen| seen.key() == written.key());
        let concerns = read.name.as_ref().is_none_or(|name| *name == written.name);
        match shown {
            Some(seen) if seen.number() < written.number() => {
                problems.push(format!("{}: the read at {:?} has {}", label(write), read.began, brief(seen)));
            }
            None if concerns && !is_deleted_by(read) && !was_restored(history, write, read) => {
                problems.push(format!("{}: the read at {:?} ({}) lacks it", label(write), read.began, read.asked));
            }
            _ => {}
        }
    }
}

/// Reads that began when the write was answered, and are of all members.
fn later<'a>(history: &'a History, write: &'a Write) -> impl Iterator<Item = &'a Read> {
    history.reads.iter().filter(move |read| {
        let answered = read.succeeded() || read.code == 404;
        read.kind == write.kind && read.is_fresh && read.began >= write.ended && answered
    })
}

/// A restored etcd takes back what was answered.
fn was_restored(history: &History, write: &Write, read: &Read) -> bool {
    let between = |one: &crate::history::Injected| one.at >= write.began && one.at <= read.ended;
    history.injected.iter().any(|one| one.what.contains("restored") && between(one))
}

/// What was deleted is not read any more.
fn is_gone(history: &History, write: &Write, problems: &mut Vec<String>) {
    // A bound was reached, or a part is behind: the answer says so.
    if !write.warnings.is_empty() {
        return;
    }
    let key = format!("{}/{}", write.namespace, write.name);
    let events = history.events(write.kind);
    let told = events.values().rev().find(|event| event.object.key() == key && event.at <= write.ended);
    let Some(told) = told.filter(|event| event.event_type == Type::Deleted) else { return };
    for read in later(history, write).filter(|read| !was_restored(history, write, read)) {
        if let Some(seen) = read.objects.iter().find(|seen| seen.key() == key && seen.uid == told.object.uid) {
            problems.push(format!("{}: the read at {:?} still has {}", label(write), read.began, brief(seen)));
        }
    }
}

/// Between one write of a key and the next there are no other events, where nobody else touches it and nothing goes wrong.
fn is_one_event(history: &History, write: &Write, problems: &mut Vec<String>) {
    let (Some(written), true) = (&write.object, write.name.starts_with("own-")) else { return };
    let mut earlier: Vec<&Write> = history
        .writes
        .iter()
        .filter(|other| other.kind == write.kind && other.name == write.name && other.ended < write.began)
        .collect();
    earlier.sort_by_key(|other| other.ended);
    let Some(before) = earlier.last() else { return };
    let Some(base) = before.object.as_ref().filter(|_| before.succeeded() && before.verb != Verb::Delete) else {
        return;
    };
    let was_quiet = before.warnings.is_empty() && write.warnings.is_empty();
    if !was_quiet || base.number() > written.number() || history.injected_between(Duration::ZERO, write.ended) {
        return;
    }
    let events = history.events(write.kind);
    let between = events
        .range((Excluded(base.number()), Included(written.number())))
        .filter(|(_, event)| event.object.key() == written.key());
    let count = between.count();
    let expected = usize::from(written.number() != base.number());
    if count != expected {
        problems.push(format!("{} is {count} events", label(write)));
    }
}

#[test]
fn a_write_that_is_not_seen_is_found() {
    use crate::sample;
    // Not told.
    let mut history = sample::good();
    history.watches[0].events.remove(1);
    sample::assert_found(check, &history, "tells None");
    // Told as something else.
    let mut history = sample::good();
    history.writes[0].object.as_mut().unwrap().body["data"]["note"] = "mine".into();
    sample::assert_found(check, &history, "tells Some");
    // Not read.
    let mut history = sample::good();
    history.reads[0].objects.retain(|seen| seen.name != "own-0-0");
    sample::assert_found(check, &history, "lacks it");
    // Read as it was before.
    let mut history = sample::good();
    history.reads[0].objects[1].revision = "90".into();
    sample::assert_found(check, &history, "the read at");
    // Two events for one.
    let mut history = sample::good();
    let mut twice = history.watches[0].events[3].clone();
    twice.object.revision = "110".into();
    history.watches[0].events.insert(3, twice);
    sample::assert_found(check, &history, "is 2 events");
    // Deleted, and still there.
    let mut history = sample::good();
    let gone = history.watches[0].events[3].object.clone();
    history.reads[1].objects.push(gone);
    sample::assert_found(check, &history, "still has own-0-0");
}
