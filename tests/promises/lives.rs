//! What each member held at each time, by its own word.

use std::{collections::BTreeMap, time::Duration};

use crate::history::{Change, Changed, History, Seen};

/// The label and annotation of a part.
pub(crate) const MARKER: &str = "kubefold.io/placement";

/// The states of one object of one member.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) name: String,
    /// From this time on it was so; `None`: it was not there.
    pub(crate) states: Vec<(Duration, Option<Seen>)>,
}

impl Life {
    pub(crate) fn at(&self, time: Duration) -> Option<&Seen> {
        self.states.iter().rev().find(|(from, _)| *from <= time)?.1.as_ref()
    }

    /// Says whether it was gone at any time up to this one, after it had been there.
    pub(crate) fn was_gone_by(&self, time: Duration) -> bool {
        self.states.iter().any(|(from, state)| *from <= time && state.is_none())
    }

    pub(crate) fn versions(&self) -> impl Iterator<Item = &Seen> {
        self.states.iter().filter_map(|(_, state)| state.as_ref())
    }

    /// The placement that it is a part of.
    pub(crate) fn placement(&self) -> Option<&str> {
        self.versions().find_map(|seen| seen.label(MARKER))
    }
}

/// The objects of one member, by the plural of their kind and their UID.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    all: BTreeMap<(&'static str, String), Life>,
}

impl Lives {
    /// Of every member.
    pub(crate) fn of(history: &History) -> Vec<Self> {
        history.changes.iter().map(|changes| Self::told_by(changes)).collect()
    }

    fn told_by(changes: &[Change]) -> Self {
        let mut lives = Self::default();
        // While a kind is read afresh: what was read so far.
        let mut read: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for Change { at, kind, changed } in changes {
            match changed {
                Changed::Afresh => drop(read.insert(kind.plural, Vec::new())),
                Changed::Synced => {
                    let there = read.remove(kind.plural).unwrap_or_default();
                    for ((plural, uid), life) in &mut lives.all {
                        if *plural == kind.plural && !there.contains(uid) && life.at(*at).is_some() {
                            life.states.push((*at, None));
                        }
                    }
                }
                Changed::Added(seen) | Changed::Modified(seen) => {
                    if let Some(there) = read.get_mut(kind.plural) {
                        there.push(seen.uid.clone());
                    }
                    let life = lives.all.entry((kind.plural, seen.uid.clone())).or_default();
                    life.name.clone_from(&seen.name);
                    life.states.push((*at, Some(seen.clone())));
                }
                Changed::Deleted(seen) => {
                    let life = lives.all.entry((kind.plural, seen.uid.clone())).or_default();
                    life.name.clone_from(&seen.name);
                    life.states.push((*at, None));
                }
            }
        }
        lives
    }

    pub(crate) fn get(&self, plural: &'static str, uid: &str) -> Option<&Life> {
        self.all.get(&(plural, uid.to_owned()))
    }

    /// Of one kind, with their UIDs.
    pub(crate) fn of_kind(&self, plural: &'static str) -> impl Iterator<Item = (&str, &Life)> {
        self.all.iter().filter(move |((kind, _), _)| *kind == plural).map(|((_, uid), life)| (uid.as_str(), life))
    }
}
