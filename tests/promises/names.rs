//! Promise 2: a visible name is a function of the object and its member alone, and never changes.

use std::collections::BTreeMap;

use crate::{
    history::{History, Seen},
    lives::Lives,
};

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let lives = Lives::of(history);
    let mut names: BTreeMap<(&str, String), String> = BTreeMap::new();
    let mut problems = Vec::new();
    for (kind, seen, place) in history.sightings().filter(|(_, seen, _)| seen.namespace == history.namespace) {
        let first = names.entry((kind.plural, seen.uid.clone())).or_insert_with(|| seen.key());
        if *first != seen.key() {
            problems.push(format!("{} {} was {first} and is {} in {place}", kind.plural, seen.uid, seen.key()));
        }
        if let Err(why) = is_right(history, &lives, kind.plural, seen) {
            problems.push(format!("{} {} of {place}: {why}", kind.plural, seen.name));
        }
    }
    problems
}

/// A member-local object is called as in its member, with the member's name; a placed one has a plain name.
fn is_right(history: &History, lives: &[Lives], plural: &'static str, seen: &Seen) -> Result<(), String> {
    let Some(cluster) = seen.cluster() else {
        let is_plain = !seen.name.contains('@') && seen.annotation("kubefold.io/clusters").is_some();
        return if is_plain { Ok(()) } else { Err("it is nobody's, and has no plain name".into()) };
    };
    let member = history.members.iter().position(|name| *name == cluster).ok_or("there is no such member")?;
    let life = lives[member].get(plural, &seen.uid).ok_or_else(|| format!("{cluster} never had it"))?;
    let right = format!("{}@{cluster}", life.name);
    if right == seen.name { Ok(()) } else { Err(format!("it is {right}")) }
}

#[test]
fn a_name_that_moves_is_found() {
    use crate::sample;
    let mut history = sample::good();
    history.reads[0].objects[0].name = "app@west".into();
    sample::assert_found(check, &history, "was s1/app@west and is s1/app@east");
    sample::assert_found(check, &history, "it is app@east");
    // A collision that appears later.
    let mut history = sample::good();
    history.watches[0].events[1].object.name = "own@east".into();
    sample::assert_found(check, &history, "it is nobody's, and has no plain name");
    let mut history = sample::good();
    history.changes[0].clear();
    sample::assert_found(check, &history, "east never had it");
}
