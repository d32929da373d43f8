//! Which rows a query selects of the stores' snapshots, in its order: the evaluator over memory.

use std::{borrow::Cow, collections::HashSet, ops::ControlFlow, sync::Arc};

use crate::{
    search::{Condition, Facts, Paged, Query, Ranked, Top},
    store::{Audience, Entry, Expired, Naming, Revision, Row, Snapshot},
    stores::Ready,
};
use kubefold_wire::selector::Operator;

/// Objects that are looked at before others get their turn.
const STEP_ITEMS_MAX: usize = 512;

/// A kind that is searched.
pub struct Source {
    /// Its store.
    pub ready: Ready,
    /// The members whose objects of it the reader may see.
    pub audience: Audience,
    /// The one namespace that is searched; empty for all.
    pub namespace: String,
    /// Its objects.
    pub snapshot: Snapshot,
    /// All that was given out up to here, of any kind, is in [`Self::snapshot`] if it is of this one.
    pub revision: Revision,
}

/// A search on its way.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub(super) sources: &'a [Source],
    pub(super) query: &'a Query,
    /// Who has to control what is found.
    pub(super) owners: Option<&'a Controllers>,
    pub(super) naming: &'a Naming,
    /// Each visible object is found once, and not each of its parts.
    pub(super) is_of_fleet: bool,
}

/// Those who have to control what is found.
#[derive(Debug, Default)]
pub(super) struct Controllers {
    /// Their UIDs.
    pub(super) uids: HashSet<String>,
    /// What refers to them, for each source. Absent where that is not known: then all objects are looked at.
    pub(super) entries: Option<Vec<Vec<Arc<Entry>>>>,
}

/// A row that was found, of that source.
#[derive(Clone, Debug)]
pub(super) struct Hit {
    pub(super) source: usize,
    pub(super) row: Row,
}

/// The source of a row of the tables.
pub(super) const OF_TABLES: usize = usize::MAX;

/// The first rows that the tables have, and how many follow them there.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) rows: Vec<Ranked<Hit>>,
    pub(super) following: u64,
}

/// One page.
pub(super) struct Found {
    pub(super) hits: Vec<Hit>,
    /// The token of the next page.
    pub(super) next: Option<String>,
    /// How many rows follow.
    pub(super) remaining: u64,
}

impl Source {
    /// Says whether an object lies in the namespace that is searched.
    pub(super) fn covers(&self, entry: &Entry) -> bool {
        self.namespace.is_empty() || entry.namespace() == self.namespace
    }

    /// Takes the objects as of a later revision that was given out, so that several kinds are searched at one.
    ///
    /// Errors: the log does not reach so far back.
    pub(super) fn move_to(&mut self, revision: Revision) -> Result<(), Expired> {
        let store = self.ready.store();
        self.snapshot = store.snapshot_at(revision).ok_or_else(|| Expired { floor: store.snapshot().revision })?;
        self.revision = revision;
        Ok(())
    }
}

impl Search<'_> {
    /// Finds a page.
    ///
    /// Shape: one look at each object in the namespaces that are searched, or at what refers to the owners; memory for one
    /// page. Cancel: safe.
    pub(super) async fn find(self, stored: Stored) -> Found {
        let page = &self.query.page;
        let mut top = Top::new(&self.query.order, page.room());
        stored.rows.into_iter().for_each(|Ranked { key, row }| top.take(key, row));
        top.pass(stored.following);
        for at in 0..self.sources.len() {
            self.walk(at, &mut top).await;
        }
        let Paged { rows, next, remaining } = top.into_page(page);
        let hits = rows.into_iter().filter_map(|hit| self.shown(hit)).collect();
        Found { next: next.map(|next| next.encode()), remaining, hits }
    }

    /// A hit as its reader sees it.
    fn shown(self, hit: Hit) -> Option<Hit> {
        if !self.is_of_fleet || hit.source == OF_TABLES {
            return Some(hit);
        }
        let source = self.sources.get(hit.source)?;
        let seen = source.ready.store().seen_by(&source.audience, hit.row.entry())?;
        Some(Hit { row: Row::visible(seen), ..hit })
    }

    async fn walk(self, at: usize, top: &mut Top<'_, Hit>) {
        let Some(source) = self.sources.get(at) else { return };
        if let Some(entries) = self.owners.and_then(|owners| owners.entries.as_ref()?.get(at)) {
            for chunk in entries.chunks(STEP_ITEMS_MAX) {
                let covered = chunk.iter().filter(|entry| source.covers(entry));
                covered.for_each(|entry| self.offer(at, source, entry, top));
                tokio::task::yield_now().await;
            }
            return;
        }
        for namespace in namespaces(&source.namespace, &self.query.namespaces) {
            let mut after = Vec::new();
            while self.step(at, &namespace, &mut after, top).is_continue() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Looks at some objects. `Break`: there are no more.
    fn step(self, at: usize, namespace: &str, after: &mut Vec<u8>, top: &mut Top<'_, Hit>) -> ControlFlow<()> {
        let Some(source) = self.sources.get(at) else { return ControlFlow::Break(()) };
        let mut last = None;
        for (looked_at, entry) in source.snapshot.range(namespace, after).enumerate() {
            if looked_at == STEP_ITEMS_MAX {
                break;
            }
            self.offer(at, source, entry, top);
            last = (looked_at + 1 == STEP_ITEMS_MAX).then_some(entry);
        }
        let Some(last) = last else { return ControlFlow::Break(()) };
        last.key().clone_into(after);
        ControlFlow::Continue(())
    }

    fn offer(self, at: usize, source: &Source, entry: &Arc<Entry>, top: &mut Top<'_, Hit>) {
        for row in Row::all_of(entry) {
            let after = self.query.page.after.as_ref();
            let admitted = self.judge(source, &row, |facts, json| {
                if after.is_none_or(|after| self.query.order.compare_row(facts, json, after.key()).is_gt()) {
                    top.offer(facts, json, || Hit { source: at, row: row.clone() });
                }
            });
            if admitted.is_some() && self.is_of_fleet {
                return;
            }
        }
    }

    /// The rows of an entry that the query selects and the reader may see; of a visible object, itself as he sees it.
    pub(super) fn rows_of(self, source: &Source, entry: &Arc<Entry>) -> Vec<Row> {
        if !source.covers(entry) {
            return Vec::new();
        }
        let all = Row::all_of(entry);
        let mut rows = all.iter().filter(|row| self.judge(source, row, |_, _| ()).is_some());
        if self.is_of_fleet {
            let seen = rows.next().and_then(|_| source.ready.store().seen_by(&source.audience, entry));
            return seen.map(Row::visible).into_iter().collect();
        }
        rows.cloned().collect()
    }

    /// What `admitted` makes of a row that the query selects and the reader may see.
    pub(super) fn judge<T>(
        self,
        source: &Source,
        row: &Row,
        admitted: impl FnOnce(&Facts<'_>, &str) -> T,
    ) -> Option<T> {
        let member = row.member().filter(|member| source.audience.sees_member(member))?;
        let query = self.query;
        if !query.admits_cluster(member.as_str()) {
            return None;
        }
        let spec = source.ready.store().spec();
        let name = row.name(self.naming, &spec.gvr);
        let mut document = None;
        let labels = match row.labels() {
            Some(known) => known.map(Cow::Borrowed),
            None if query.labels.is_empty() => None,
            None => Facts::labels_of(document.get_or_insert_with(|| row.document()))
                .map(|labels| Cow::Owned(labels.to_owned())),
        };
        let facts = Facts {
            cluster: member.as_str(),
            namespace: row.entry().namespace(),
            name: &name,
            uid: row.uid(),
            kind: &spec.gvk.kind,
            group: &spec.gvk.group,
            labels: labels.as_deref(),
            revision: row.revision().0,
            deleted_us: 0,
        };
        if !query.admits(&facts) {
            return None;
        }
        if !query.needs_document() && !query.order.needs_document() {
            return Some(admitted(&facts, ""));
        }
        let json = document.get_or_insert_with(|| row.document());
        let owners = self.owners.map(|owners| &owners.uids);
        query.admits_document(&facts, json, owners).then(|| admitted(&facts, json))
    }
}

/// The namespaces in which something can match; one that is empty stands for all.
fn namespaces(of_path: &str, conditions: &[Condition]) -> Vec<String> {
    let named = conditions.iter().find(|condition| condition.operator == Operator::In);
    match named {
        None => vec![of_path.to_owned()],
        Some(named) => {
            let mut values = named.values.clone();
            values.sort_unstable();
            values.dedup();
            values.retain(|value| !value.is_empty() && (of_path.is_empty() || value == of_path));
            values
        }
    }
}
