//! Who has to control what a search by owner finds: the owner itself, or, level by level, what it controls.

use std::collections::HashSet;

use crate::{
    read::search::find::{Controllers, Search, Source},
    search::{Owner, OwnerBy, Query},
    store::{Key, Naming, Referent, Row},
};
use kubefold_wire::resource::Gvr;

/// A level of owners.
#[derive(Default)]
struct Level {
    uids: HashSet<String>,
    referents: Vec<Referent>,
    /// Whoever has the UID is not known, and so not who refers to it.
    is_nameless: bool,
}

/// The controllers of what is found in `sources`. `kinds` are those that may own something, and of which the reader may see
/// what each has.
///
/// Shape: a walk over the kinds that may be the owner, then over what refers to each level alone.
pub(super) async fn controllers(
    owner: &Owner,
    query: &Query,
    kinds: &[Source],
    sources: &[Source],
    naming: &Naming,
) -> Controllers {
    let mut level = Level::default();
    let named = |source: &Source, row: &Row| match &owner.by {
        OwnerBy::Uid(uid) => row.uid() == uid,
        OwnerBy::Name { name, resource } => {
            let gvr: &Gvr = &source.ready.store().spec().gvr;
            let fits =
                |wanted: &crate::search::GroupResource| wanted.group == *gvr.group && wanted.resource == *gvr.resource;
            resource.as_ref().is_none_or(fits) && row.name(naming, gvr) == name.as_str()
        }
    };
    let sees = |source: &Source, row: &Row| {
        row.member().is_some_and(|member| source.audience.sees_member(member) && query.admits_cluster(member.as_str()))
    };
    for source in kinds {
        for (at, entry) in source.snapshot.objects.values().enumerate() {
            if at % 512 == 511 {
                tokio::task::yield_now().await;
            }
            for row in Row::all_of(entry).iter().filter(|row| named(source, row) && sees(source, row)) {
                level.add(source, row, naming);
            }
        }
    }
    if let (OwnerBy::Uid(uid), true) = (&owner.by, level.uids.is_empty()) {
        level.uids.insert(uid.clone());
        level.is_nameless = true;
    }
    for _ in 0..owner.seniority {
        let mut next = Level::default();
        let of_level = Controllers { uids: level.uids, keys: None };
        let controlled = Query { owner: Some(owner.clone()), ..Query::default() };
        let search = Search { sources: kinds, query: &controlled, owners: Some(&of_level), naming, is_of_fleet: false };
        for source in kinds {
            let keys = keys(source, &level.referents, level.is_nameless);
            for entry in keys.iter().filter_map(|key| source.snapshot.get(key.as_bytes())) {
                for row in Row::all_of(entry).iter().filter(|row| sees(source, row)) {
                    if search.judge(source, row, |_, _| ()).is_some() {
                        next.add(source, row, naming);
                    }
                }
            }
        }
        level = next;
    }
    let of_sources = || sources.iter().map(|source| keys(source, &level.referents, false)).collect();
    Controllers { keys: (!level.is_nameless).then(of_sources), uids: level.uids }
}

fn keys(source: &Source, referents: &[Referent], all: bool) -> Vec<Key> {
    if all {
        return source.snapshot.objects.keys().cloned().collect();
    }
    source.ready.store().dependents_of(referents)
}

impl Level {
    fn add(&mut self, source: &Source, row: &Row, naming: &Naming) {
        let Some(member) = row.member() else { return };
        let spec = source.ready.store().spec();
        let name = row.name(naming, &spec.gvr);
        self.uids.insert(row.uid().to_owned());
        self.referents.push(Referent::new(member, &spec.gvk.group, &spec.gvk.kind, row.entry().namespace(), &name));
    }
}
