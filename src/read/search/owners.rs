//! Who has to control what a search by owner finds: the owner itself, or, level by level, what it controls.

use std::{collections::HashSet, sync::Arc};

use smallvec::SmallVec;

use crate::{
    config::MemberName,
    read::search::find::{Controllers, Search, Source},
    search::{Owner, OwnerBy, Query},
    store::{Entry, Key, Naming, Referent, Row},
};
use kubefold_wire::resource::Gvr;

/// A level of owners.
#[derive(Default)]
pub(super) struct Level {
    pub(super) uids: HashSet<String>,
    referents: Vec<Referent>,
    /// Whoever has the UID is not known, and so not who refers to it.
    is_nameless: bool,
}

/// Where owners are looked for: kinds of which the reader may see what each has, in the members of the query.
#[derive(Clone, Copy)]
pub(super) struct Kinds<'a> {
    pub(super) owner: &'a Owner,
    pub(super) query: &'a Query,
    pub(super) kinds: &'a [Source],
    pub(super) naming: &'a Naming,
}

/// The controllers of what is found in `sources`.
///
/// Shape: a walk over the kinds that may be the owner, then over what refers to each level alone.
pub(super) async fn controllers(of: Kinds<'_>, sources: &[Source]) -> Controllers {
    let mut level = of.owner().await;
    for _ in 0..of.owner.seniority {
        level = of.controlled_by(&level);
    }
    let of_sources = || sources.iter().map(|source| keys(source, &level.referents, false)).collect();
    Controllers { keys: (!level.is_nameless).then(of_sources), uids: level.uids }
}

impl Kinds<'_> {
    /// The owner itself.
    pub(super) async fn owner(self) -> Level {
        let mut level = Level::default();
        let mut kinds: Vec<&Source> = self.kinds.iter().collect();
        kinds.sort_by_key(|source| source.snapshot.objects.len());
        for source in kinds {
            for (at, entry) in source.snapshot.objects.values().enumerate() {
                if at % 512 == 511 {
                    tokio::task::yield_now().await;
                }
                for row in self.named(source, entry).iter().filter(|row| self.sees(source, row)) {
                    level.add(source, row, self.naming);
                }
            }
            // A UID is of one object; only a restored copy of it, in another member, has it too.
            if matches!(self.owner.by, OwnerBy::Uid(_)) && !level.uids.is_empty() {
                break;
            }
        }
        if let (OwnerBy::Uid(uid), true) = (&self.owner.by, level.uids.is_empty()) {
            level.join([uid.clone()]);
        }
        level
    }

    /// The rows of an entry that are the owner, as it is named.
    fn named(self, source: &Source, entry: &Arc<Entry>) -> SmallVec<[Row; 1]> {
        match &self.owner.by {
            OwnerBy::Uid(uid) => Row::of_uid(entry, uid),
            OwnerBy::Name { name, resource } => {
                let gvr: &Gvr = &source.ready.store().spec().gvr;
                if resource.as_ref().is_some_and(|wanted| !wanted.is_of(gvr)) {
                    return SmallVec::new();
                }
                let mut rows = Row::all_of(entry);
                rows.retain(|row| row.name(self.naming, gvr) == name.as_str());
                rows
            }
        }
    }

    /// What a level controls.
    pub(super) fn controlled_by(self, level: &Level) -> Level {
        let mut next = Level::default();
        let of_level = Controllers { uids: level.uids.clone(), keys: None };
        let controlled = Query { owner: Some(self.owner.clone()), ..Query::default() };
        let (kinds, naming) = (self.kinds, self.naming);
        let search = Search { sources: kinds, query: &controlled, owners: Some(&of_level), naming, is_of_fleet: false };
        for source in kinds {
            let keys = keys(source, &level.referents, level.is_nameless);
            for entry in keys.iter().filter_map(|key| source.snapshot.get(key.as_bytes())) {
                for row in Row::all_of(entry).iter().filter(|row| self.sees(source, row)) {
                    if search.judge(source, row, |_, _| ()).is_some() {
                        next.add(source, row, naming);
                    }
                }
            }
        }
        next
    }

    fn sees(self, source: &Source, row: &Row) -> bool {
        let is_seen =
            |member: &MemberName| source.audience.sees_member(member) && self.query.admits_cluster(member.as_str());
        row.member().is_some_and(is_seen)
    }
}

fn keys(source: &Source, referents: &[Referent], all: bool) -> Vec<Key> {
    if all {
        return source.snapshot.objects.keys().cloned().collect();
    }
    source.ready.store().dependents_of(referents)
}

impl Level {
    /// Adds owners of which no store has anything.
    pub(super) fn join(&mut self, uids: impl IntoIterator<Item = String>) {
        let before = self.uids.len();
        self.uids.extend(uids);
        self.is_nameless |= self.uids.len() > before;
    }

    fn add(&mut self, source: &Source, row: &Row, naming: &Naming) {
        let Some(member) = row.member() else { return };
        let spec = source.ready.store().spec();
        let name = row.name(naming, &spec.gvr);
        self.uids.insert(row.uid().to_owned());
        self.referents.push(Referent::new(member, &spec.gvk.group, &spec.gvk.kind, row.entry().namespace(), &name));
    }
}
