//! Who has to control what a search by owner finds: the owner itself, or, level by level, what it controls.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use smallvec::SmallVec;

use crate::{
    config::MemberName,
    read::search::find::{Controllers, Source},
    search::{Owner, OwnerBy, Query, controller},
    store::{Entry, Expired, Key, Naming, Referent, Row},
};
use kubefold_wire::resource::Gvr;

/// Objects that are looked at before others get their turn.
const STEP_ITEMS_MAX: usize = 512;

/// A level of owners.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) uids: HashSet<String>,
    rows: HashMap<Place, SmallVec<[OwnerRow; 1]>>,
    /// Whoever has the UID is not known, and so not who refers to it.
    is_nameless: bool,
}

/// Where an object stands: under which key of the kind with that number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) kind: usize,
    pub(super) key: Key,
}

/// A row of a level.
#[derive(Clone, Debug)]
pub(super) struct OwnerRow {
    uid: String,
    /// The UID of its own controller; empty where that is not asked for.
    controller: String,
    referent: Referent,
}

/// Where owners are looked for: kinds of which the reader may see what each has, in the members of the query.
#[derive(Clone, Copy)]
pub(super) struct Kinds<'a> {
    pub(super) owner: &'a Owner,
    pub(super) query: &'a Query,
    pub(super) kinds: &'a [Source],
    pub(super) naming: &'a Naming,
}

/// The levels of owners above what a search finds: the owner itself first.
///
/// Shape: a look at the owner's UID, or a walk over the kinds that may have the name; then a look at what refers to each level
/// alone. Errors: a log does not reach back to the revision of its source.
pub(super) async fn levels(of: Kinds<'_>) -> Result<Vec<Level>, Expired> {
    let mut levels = vec![of.owner().await?];
    for _ in 0..of.owner.seniority {
        let next = levels.last().map(|level| of.controlled_by(level)).transpose()?;
        levels.extend(next);
    }
    Ok(levels)
}

/// The controllers of what is found in `sources`.
///
/// Errors: as [`levels`].
pub(super) fn controllers(level: &Level, sources: &[Source]) -> Result<Controllers, Expired> {
    let uids = level.uids.clone();
    if level.is_nameless {
        return Ok(Controllers { uids, entries: None });
    }
    let referents = level.referents();
    let of_source = |source: &Source| source.ready.store().referring_at(source.revision, &referents);
    Ok(Controllers { uids, entries: Some(sources.iter().map(of_source).collect::<Result<_, _>>()?) })
}

impl Kinds<'_> {
    /// The owner itself.
    pub(super) async fn owner(self) -> Result<Level, Expired> {
        let mut level = Level::default();
        match &self.owner.by {
            OwnerBy::Uid(uid) => self.with_uid(uid, &mut level).await?,
            OwnerBy::Name { .. } => self.with_name(&mut level).await,
        }
        Ok(level)
    }

    async fn with_uid(self, uid: &str, level: &mut Level) -> Result<(), Expired> {
        for (kind, source) in self.kinds.iter().enumerate() {
            let store = source.ready.store();
            let mut indexed = String::new();
            while !store.index_uids(&mut indexed) {
                tokio::task::yield_now().await;
            }
            for entry in store.of_uid_at(source.revision, uid)?.unwrap_or_default() {
                let mut rows = Row::of_uid(&entry, uid);
                rows.retain(|row| self.sees(source, row));
                level.put(Place::of(kind, &entry), self.owner_rows(source, &rows));
            }
            // A UID is of one object; only a restored copy of it, in another member, has it too.
            if !level.uids.is_empty() {
                return Ok(());
            }
        }
        level.join([uid.to_owned()]);
        Ok(())
    }

    async fn with_name(self, level: &mut Level) {
        for (kind, source) in self.kinds.iter().enumerate() {
            for (at, entry) in source.snapshot.range(&source.namespace, b"").enumerate() {
                if at % STEP_ITEMS_MAX == STEP_ITEMS_MAX - 1 {
                    tokio::task::yield_now().await;
                }
                level.put(Place::of(kind, entry), self.named(source, entry));
            }
        }
    }

    /// The rows of an entry that are the owner, which is known by its own name or by its name in the fleet view.
    pub(super) fn named(self, source: &Source, entry: &Arc<Entry>) -> SmallVec<[OwnerRow; 1]> {
        let OwnerBy::Name { name, resource } = &self.owner.by else { return SmallVec::new() };
        let gvr: &Gvr = &source.ready.store().spec().gvr;
        if resource.as_ref().is_some_and(|wanted| !wanted.is_of(gvr)) || !source.covers(entry) {
            return SmallVec::new();
        }
        let mut rows = Row::all_of(entry);
        let is_named = |row: &Row| entry.name() == name || row.name(self.naming, gvr) == name.as_str();
        rows.retain(|row| is_named(row) && self.sees(source, row));
        self.owner_rows(source, &rows)
    }

    /// What a level controls.
    pub(super) fn controlled_by(self, level: &Level) -> Result<Level, Expired> {
        let mut next = Level::default();
        let referents = level.referents();
        for (kind, source) in self.kinds.iter().enumerate() {
            let mut put = |entry: &Arc<Entry>| {
                next.put(Place::of(kind, entry), self.controlled(source, entry, &level.uids));
            };
            if level.is_nameless {
                source.snapshot.range(&source.namespace, b"").for_each(&mut put);
            } else {
                source.ready.store().referring_at(source.revision, &referents)?.iter().for_each(&mut put);
            }
        }
        Ok(next)
    }

    /// The rows of an entry that one of these controls.
    pub(super) fn controlled(
        self,
        source: &Source,
        entry: &Arc<Entry>,
        uids: &HashSet<String>,
    ) -> SmallVec<[OwnerRow; 1]> {
        if !source.covers(entry) || uids.is_empty() {
            return SmallVec::new();
        }
        let seen = Row::all_of(entry).into_iter().filter(|row| self.sees(source, row));
        let owned = seen.filter_map(|row| {
            let controller = controller(&row.document()).filter(|uid| uids.contains(uid))?;
            Some(OwnerRow { controller, ..self.owner_row(source, &row)? })
        });
        owned.collect()
    }

    fn owner_rows(self, source: &Source, rows: &[Row]) -> SmallVec<[OwnerRow; 1]> {
        rows.iter().filter_map(|row| self.owner_row(source, row)).collect()
    }

    fn owner_row(self, source: &Source, row: &Row) -> Option<OwnerRow> {
        let spec = source.ready.store().spec();
        let name = row.name(self.naming, &spec.gvr);
        let (group, kind) = (&spec.gvk.group, &spec.gvk.kind);
        let referent = Referent::new(row.member()?, group, kind, row.entry().namespace(), &name);
        Some(OwnerRow { uid: row.uid().to_owned(), controller: String::new(), referent })
    }

    fn sees(self, source: &Source, row: &Row) -> bool {
        let is_seen =
            |member: &MemberName| source.audience.sees_member(member) && self.query.admits_cluster(member.as_str());
        row.member().is_some_and(is_seen)
    }
}

impl Place {
    pub(super) fn of(kind: usize, entry: &Entry) -> Self {
        Self { kind, key: entry.shared_key().clone() }
    }
}

impl Level {
    /// Adds owners of which no store has anything.
    pub(super) fn join(&mut self, uids: impl IntoIterator<Item = String>) {
        let before = self.uids.len();
        self.uids.extend(uids);
        self.is_nameless |= self.uids.len() > before;
    }

    /// Has these rows of a place in it, and no others.
    ///
    /// Shape: costs O(rows of the level) where one of the place goes.
    pub(super) fn put(&mut self, place: Place, rows: SmallVec<[OwnerRow; 1]>) {
        self.uids.extend(rows.iter().map(|row| row.uid.clone()));
        let before = match rows.is_empty() {
            true => self.rows.remove(&place),
            false => self.rows.insert(place.clone(), rows),
        };
        for OwnerRow { uid, .. } in before.unwrap_or_default() {
            if !self.at(&place).iter().chain(self.all_rows()).any(|row| row.uid == uid) {
                self.uids.remove(&uid);
            }
        }
    }

    /// Where rows are that one of these controls.
    pub(super) fn controlled_by(&self, uids: &HashSet<String>) -> Vec<Place> {
        let is_controlled = |rows: &[OwnerRow]| rows.iter().any(|row| uids.contains(&row.controller));
        self.rows.iter().filter(|(_, rows)| is_controlled(rows)).map(|(place, _)| place.clone()).collect()
    }

    /// The rows of a place without those that one of these controls.
    pub(super) fn without(&self, place: &Place, uids: &HashSet<String>) -> SmallVec<[OwnerRow; 1]> {
        let rows = self.rows.get(place).into_iter().flatten();
        rows.filter(|row| !uids.contains(&row.controller)).cloned().collect()
    }

    /// The rows of a place.
    pub(super) fn at(&self, place: &Place) -> &[OwnerRow] {
        self.rows.get(place).map_or(&[], SmallVec::as_slice)
    }

    fn all_rows(&self) -> impl Iterator<Item = &OwnerRow> {
        self.rows.values().flatten()
    }

    fn referents(&self) -> Vec<Referent> {
        self.all_rows().map(|row| row.referent.clone()).collect()
    }
}

impl OwnerRow {
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    pub(super) fn referent(&self) -> &Referent {
        &self.referent
    }
}
