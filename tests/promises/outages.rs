//! Promise 6: `DELETED` comes from a member's own word, never from silence; and what is not deleted stays in every list.

use std::collections::BTreeMap;

use crate::{
    history::{Event, History, Type, brief},
    kinds::KINDS,
    lives::Lives,
};

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let lives = Lives::of(history);
    let mut problems = Vec::new();
    for watch in &history.watches {
        let deleted = watch.events.iter().filter(|event| event.event_type == Type::Deleted);
        for event in deleted.filter(|event| event.object.namespace == history.namespace) {
            if let Err(why) = was_said(history, &lives, watch.kind.plural, event) {
                problems.push(format!(
                    "Deleted of {} {} at {:?}: {why}",
                    watch.kind.plural,
                    brief(&event.object),
                    event.at
                ));
            }
        }
    }
    stays(history, &lives, &mut problems);
    problems
}

/// Says whether the members that held it say that it is gone.
fn was_said(history: &History, lives: &[Lives], plural: &'static str, event: &Event) -> Result<(), String> {
    let seen = &event.object;
    if let Some(cluster) = seen.cluster() {
        let member = history.members.iter().position(|name| *name == cluster).ok_or("there is no such member")?;
        let life = lives[member].get(plural, &seen.uid).ok_or_else(|| format!("{cluster} never had it"))?;
        return if life.was_gone_by(event.at) { Ok(()) } else { Err(format!("{cluster} never said so")) };
    }
    for (name, lives) in history.members.iter().zip(lives) {
        let parts = lives.of_kind(plural).filter(|(_, life)| life.placement() == Some(&seen.uid));
        for (_, part) in parts {
            if !part.was_gone_by(event.at) {
                return Err(format!("{name} never said so of its part"));
            }
        }
    }
    Ok(())
}

/// A member-local object that was shown once is in every later list, until its member said that it is gone.
fn stays(history: &History, lives: &[Lives], problems: &mut Vec<String>) {
    for kind in KINDS {
        let mut first: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
        for (_, seen, _) in
            history.sightings().filter(|(of, seen, _)| *of == kind && seen.namespace == history.namespace)
        {
            let Some(member) = seen.cluster().and_then(|name| history.members.iter().position(|one| *one == name))
            else {
                continue;
            };
            let shown = first.entry(&seen.uid).or_insert((u64::MAX, member));
            shown.0 = shown.0.min(seen.number());
        }
        let lists = history.reads.iter().filter(|read| read.kind == kind && read.name.is_none() && read.succeeded());
        for read in lists {
            let Some(revision) = read.revisions.first().and_then(|text| text.parse::<u64>().ok()) else { continue };
            for (uid, (shown, member)) in &first {
                let Some(life) = lives[*member].get(kind.plural, uid) else { continue };
                let is_there = read.objects.iter().any(|seen| seen.uid == *uid);
                if *shown <= revision && !is_there && !life.was_gone_by(read.ended) {
                    problems.push(format!(
                        "the list of {} at {:?} ({}) lacks {}@{}, which was shown at {shown} and is not deleted",
                        kind.plural, read.began, read.asked, life.name, history.members[*member]
                    ));
                }
            }
        }
    }
}

#[test]
fn a_deletion_that_nobody_said_is_found() {
    use crate::sample;
    let mut history = sample::good();
    history.changes[0]
        .retain(|change| !matches!(&change.changed, crate::history::Changed::Deleted(seen) if seen.name == "own-0-0"));
    sample::assert_found(check, &history, "east never said so of its part");
    // An outage that reads as the end of a member-local object.
    let mut history = sample::good();
    let mut gone = history.watches[0].events[2].clone();
    gone.event_type = Type::Deleted;
    history.watches[0].events.push(gone);
    sample::assert_found(check, &history, "east never said so");
    let mut history = sample::good();
    history.reads[1].objects.clear();
    sample::assert_found(check, &history, "lacks app@east");
}
