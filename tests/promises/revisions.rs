//! Promise 3: revisions are decimal numbers below 2^53, they increase, and one version of an object has one of them
//! wherever it is shown.

use std::collections::BTreeMap;

use crate::history::{Event, History, Seen, Type, Watched};

const MAX: u64 = 1 << 53;

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let mut problems = Vec::new();
    shown_alike(history, &mut problems);
    in_watches(history, &mut problems);
    in_lists(history, &mut problems);
    problems
}

fn number(text: &str) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if number == 0 || number >= MAX || number.to_string() != text {
        return Err(format!("{text:?} is no decimal number from 1 to 2^53"));
    }
    Ok(number)
}

/// One revision is one state of one object.
fn shown_alike(history: &History, problems: &mut Vec<String>) {
    let mut versions: BTreeMap<(&str, u64), (&Seen, String)> = BTreeMap::new();
    for (kind, seen, place) in history.sightings() {
        match number(&seen.revision) {
            Err(why) => problems.push(format!("{} of {place}: {why}", seen.name)),
            Ok(number) => {
                let (first, shown) = versions.entry((kind.plural, number)).or_insert_with(|| (seen, place.clone()));
                if first.body != seen.body {
                    problems.push(format!(
                        "revision {number} of {} is, in {shown}\n    {}\n  and in {place}\n    {}",
                        kind.plural, first.body, seen.body
                    ));
                }
            }
        }
    }
}

fn in_watches(history: &History, problems: &mut Vec<String>) {
    for watch in &history.watches {
        let label = format!("the watch of {} that began at {:?}", watch.kind.plural, watch.began);
        let mut last = watch.since().unwrap_or_default();
        for Event { object, .. } in watch.news() {
            if object.number() <= last {
                problems.push(format!("{label} tells {} after {last}", object.revision));
            }
            last = object.number();
        }
        if let Some((count, revision)) = watch.initial {
            let initial = watch.events.get(..count).unwrap_or_default();
            if initial.iter().any(|event| event.object.number() > revision || event.event_type != Type::Added) {
                problems.push(format!("{label} begins with more than what was there at {revision}"));
            }
        }
        bookmarks(watch, &label, problems);
    }
}

fn bookmarks(watch: &Watched, label: &str, problems: &mut Vec<String>) {
    let mut last = 0;
    for text in &watch.bookmarks {
        match number(text) {
            Err(why) => problems.push(format!("a bookmark of {label}: {why}")),
            Ok(number) if number < last => problems.push(format!("{label} has bookmark {number} after {last}")),
            Ok(number) => last = number,
        }
    }
}

/// All pages of a list have one revision, nothing in it is newer, and who reads later reads no older state.
fn in_lists(history: &History, problems: &mut Vec<String>) {
    let mut newest: Vec<(&str, std::time::Duration, u64)> = Vec::new();
    let mut reads: Vec<_> = history.reads.iter().filter(|read| read.succeeded() && read.name.is_none()).collect();
    reads.sort_by_key(|read| read.ended);
    for read in reads {
        let label = format!("the list of {} from {:?} to {:?}", read.kind.plural, read.began, read.ended);
        let Some(first) = read.revisions.first() else { continue };
        let Ok(revision) = number(first).map_err(|why| problems.push(format!("{label}: {why}"))) else { continue };
        if read.revisions.iter().any(|other| other != first) {
            problems.push(format!("{label} has pages of {:?}", read.revisions));
        }
        if let Some(seen) = read.objects.iter().find(|seen| seen.number() > revision) {
            problems.push(format!("{label} is of {revision}, and has {} of {}", seen.name, seen.revision));
        }
        let earlier = newest.iter().filter(|(plural, ended, _)| *plural == read.kind.plural && *ended <= read.began);
        if let Some((_, ended, before)) =
            earlier.max_by_key(|(_, _, revision)| *revision).filter(|(_, _, before)| *before > revision)
        {
            problems.push(format!("{label} is of {revision}, and another that ended at {ended:?} is of {before}"));
        }
        newest.push((read.kind.plural, read.ended, revision));
    }
}

#[test]
fn a_revision_that_is_none_or_of_two_things_is_found() {
    use crate::sample;
    for bad in ["", "x", "007", "0", "-1", "9007199254740992"] {
        let mut history = sample::good();
        history.reads[0].objects[0].revision = bad.into();
        sample::assert_found(check, &history, "no");
        let mut history = sample::good();
        history.watches[0].bookmarks[0] = bad.into();
        sample::assert_found(check, &history, "a bookmark of");
    }
    let mut history = sample::good();
    history.reads[0].objects[0].body["data"]["note"] = "other".into();
    sample::assert_found(check, &history, "revision 104 of configmaps is");
    let mut history = sample::good();
    history.watches[0].events[2].object.revision = "96".into();
    sample::assert_found(check, &history, "tells 96 after 96");
    let mut history = sample::good();
    history.watches[0].bookmarks.push("1".into());
    sample::assert_found(check, &history, "has bookmark 1 after");
    let mut history = sample::good();
    history.reads[0].revisions = vec!["100".into()];
    sample::assert_found(check, &history, "is of 100, and has app@east of 104");
    let mut history = sample::good();
    history.reads[0].revisions.push("112".into());
    sample::assert_found(check, &history, "has pages of");
    let mut history = sample::good();
    history.reads[1].revisions = vec!["99".into()];
    history.reads[1].objects.clear();
    sample::assert_found(check, &history, "is of 99, and another that ended");
    let mut history = sample::good();
    history.watches[1].initial = Some((2, 90));
    sample::assert_found(check, &history, "begins with more than what was there");
}
