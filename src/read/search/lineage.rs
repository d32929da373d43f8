//! The owners of what a watch tells of, level by level, kept from what happens to their kinds.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use smallvec::SmallVec;

use crate::{
    read::search::{
        find::{Controllers, Source},
        owners::{Kinds, Level, OwnerRow, Place, controllers, levels},
    },
    search::{Owner, OwnerBy, Query},
    store::{Expired, Naming, Record, Referent},
};
use kubefold_wire::watch::EventType;

/// The levels of owners as of one revision.
pub(super) struct Lineage {
    owner: Owner,
    /// In which clusters.
    query: Query,
    naming: Arc<Naming>,
    kinds: Vec<Source>,
    levels: Vec<Level>,
}

/// What became of the UIDs of a level.
#[derive(Debug, Default)]
pub(super) struct Change {
    gained: HashSet<String>,
    lost: HashSet<String>,
    /// Who they are.
    pub(super) referents: Vec<Referent>,
}

/// The UIDs of a level that came or went, each with whether it was there before.
#[derive(Debug, Default)]
struct Touched {
    was_there: HashMap<String, bool>,
    referents: Vec<Referent>,
}

impl Lineage {
    /// Looks up the levels as of the revisions of `kinds`.
    ///
    /// Errors: as [`levels`].
    pub(super) async fn begin(
        owner: Owner,
        clusters: &Query,
        kinds: Vec<Source>,
        naming: Arc<Naming>,
    ) -> Result<Self, Expired> {
        let query = Query { clusters: clusters.clusters.clone(), ..Query::default() };
        let mut begun = Self { owner, query, naming, kinds, levels: Vec::new() };
        begun.levels = levels(begun.of()).await?;
        Ok(begun)
    }

    /// The kinds of the owners.
    pub(super) fn kinds(&self) -> &[Source] {
        &self.kinds
    }

    /// The controllers of what `sources` have now, each at its revision.
    ///
    /// Errors: as [`levels`].
    pub(super) fn controllers(&self, sources: &[Source]) -> Result<Controllers, Expired> {
        self.levels.last().map_or_else(|| Ok(Controllers::default()), |level| controllers(level, sources))
    }

    /// The UIDs of those who control what is told of.
    pub(super) fn uids(&self) -> HashSet<String> {
        self.levels.last().map(|level| level.uids.clone()).unwrap_or_default()
    }

    /// Follows an event of the kind with that number. `None`: the same control what is told of.
    ///
    /// Shape: costs O(what refers to who came or went). Errors: a log does not reach back to the event.
    pub(super) fn follow(&mut self, kind: usize, record: &Record) -> Result<Option<Change>, Expired> {
        let mut change = Change::default();
        let mut levels = std::mem::take(&mut self.levels);
        for depth in 0..levels.len() {
            let Some((above, [level, ..])) = levels.split_at_mut_checked(depth) else { break };
            change = match above.last() {
                None => self.of_owner(kind, record, level),
                Some(above) => self.of_level(kind, record, &change, above, level)?,
            };
        }
        self.levels = levels;
        Ok((!change.gained.is_empty() || !change.lost.is_empty()).then_some(change))
    }

    fn of(&self) -> Kinds<'_> {
        Kinds { owner: &self.owner, query: &self.query, kinds: &self.kinds, naming: &self.naming }
    }

    /// What an event makes of the owner itself. Who is known by a UID is so whether it exists or not.
    fn of_owner(&self, kind: usize, record: &Record, level: &mut Level) -> Change {
        let mut touched = Touched::default();
        if let (OwnerBy::Name { .. }, Some(source)) = (&self.owner.by, self.kinds.get(kind)) {
            let is_there = record.event_type != EventType::Deleted;
            let rows = if is_there { self.of().named(source, &record.entry) } else { SmallVec::new() };
            touched.put(level, Place::of(kind, &record.entry), rows);
        }
        touched.into_change(level)
    }

    /// What an event, and what it made of the level above, make of a level.
    fn of_level(
        &self,
        kind: usize,
        record: &Record,
        change: &Change,
        above: &Level,
        level: &mut Level,
    ) -> Result<Change, Expired> {
        let mut touched = Touched::default();
        if !change.lost.is_empty() {
            for place in level.controlled_by(&change.lost) {
                let rows = level.without(&place, &change.lost);
                touched.put(level, place, rows);
            }
        }
        if !change.gained.is_empty() {
            for (kind, source) in self.kinds.iter().enumerate() {
                for entry in source.ready.store().referring_at(record.revision, &change.referents)? {
                    let rows = self.of().controlled(source, &entry, &above.uids);
                    touched.put(level, Place::of(kind, &entry), rows);
                }
            }
        }
        if let Some(source) = self.kinds.get(kind) {
            let is_there = record.event_type != EventType::Deleted;
            let rows =
                if is_there { self.of().controlled(source, &record.entry, &above.uids) } else { SmallVec::new() };
            touched.put(level, Place::of(kind, &record.entry), rows);
        }
        Ok(touched.into_change(level))
    }
}

impl Touched {
    fn put(&mut self, level: &mut Level, place: Place, rows: SmallVec<[OwnerRow; 1]>) {
        if rows.is_empty() && level.at(&place).is_empty() {
            return;
        }
        for row in rows.iter().chain(level.at(&place)) {
            if !self.was_there.contains_key(row.uid()) {
                self.was_there.insert(row.uid().to_owned(), level.uids.contains(row.uid()));
            }
            self.referents.push(row.referent().clone());
        }
        level.put(place, rows);
    }

    fn into_change(self, level: &Level) -> Change {
        let mut change = Change { referents: self.referents, ..Change::default() };
        for (uid, was_there) in self.was_there {
            match (was_there, level.uids.contains(&uid)) {
                (false, true) => drop(change.gained.insert(uid)),
                (true, false) => drop(change.lost.insert(uid)),
                _ => {}
            }
        }
        change
    }
}
