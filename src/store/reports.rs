//! The store of a kind whose objects are in the mirror's tables: what members tell goes in, and comes out to be written.

use std::sync::Arc;

use crate::{
    config::MemberName,
    store::{
        fleet_store::FleetStore,
        identities::Referent,
        kind::KindSpec,
        naming::key,
        passing::{Batch, Passing, Report, ReportNumbers, ReportedObject},
        rewrite::{BadObject, Facts},
        sequencer::Shared,
    },
};
use kubefold_wire::watch::{Event, EventType};

/// Bytes of documents that wait to be written. Reflectors wait above it.
const WAITING_BYTES_MAX: usize = 16 << 20;

impl FleetStore {
    /// Makes the store of a kind whose objects are in tables and not in it.
    pub fn passing(
        spec: Arc<KindSpec>,
        shared: Shared,
        on_identities: impl Fn(&[Referent]) + Send + Sync + 'static,
    ) -> Self {
        let mut store = Self::new(spec, shared, on_identities);
        store.passing = Some(Passing::default());
        store
    }

    /// Says whether its objects are in tables and not in it.
    pub fn passes(&self) -> bool {
        self.passing.is_some()
    }

    /// Says whether what is told has room to wait.
    pub(super) fn has_passing_room(&self) -> bool {
        self.passing.as_ref().is_none_or(|passing| passing.waiting.lock().bytes < WAITING_BYTES_MAX)
    }

    /// Notes that a member stands at a revision up to which the tables have its objects.
    pub fn stand_at(&self, member: &MemberName, revision: u64) {
        let _nothing_lost = self.end_list(member, revision);
    }

    /// Has a member's objects listed again: its rows are not there any more.
    pub fn lose(&self, member: &MemberName) {
        if let Some(passing) = &self.passing {
            passing.waiting.lock().lost.insert(member.clone());
            passing.lost.notify_waiters();
        }
    }

    /// Waits until a member's objects are to be listed again. Cancel: safe.
    pub async fn is_lost(&self, member: &MemberName) {
        let Some(passing) = &self.passing else { return std::future::pending().await };
        loop {
            let notified = passing.lost.notified();
            if passing.waiting.lock().lost.contains(member) {
                return;
            }
            notified.await;
        }
    }

    /// Waits until there is something to write. Cancel: safe.
    pub async fn has_reports(&self) {
        match &self.passing {
            Some(passing) => passing.news.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The next reports of each member. Until [`Self::reports_written`] is told of them, their bytes count as waiting.
    pub fn next_reports(&self) -> Vec<(MemberName, Batch)> {
        let Some(passing) = &self.passing else { return Vec::new() };
        let mut waiting = passing.waiting.lock();
        let next = waiting.queues.iter_mut().filter_map(|(member, queue)| Some((member.clone(), queue.next()?)));
        let next: Vec<(MemberName, Batch)> = next.collect();
        if !next.is_empty() {
            // There may be more.
            passing.news.notify_one();
        }
        next
    }

    /// Notes that reports of a member were written, or are of no use any more.
    pub fn reports_written(&self, member: &MemberName, batch: &Batch) {
        let Some(passing) = &self.passing else { return };
        let mut waiting = passing.waiting.lock();
        waiting.bytes -= batch.bytes;
        if let Some(queue) = waiting.queues.get_mut(member) {
            queue.written += batch.reports.len() as u64;
        }
        drop(waiting);
        passing.written.send_modify(|version| *version += 1);
    }

    /// What each member has told until now.
    pub fn reports_told(&self) -> ReportNumbers {
        let told = |passing: &Passing| {
            let waiting = passing.waiting.lock();
            waiting.queues.iter().map(|(member, queue)| (member.clone(), queue.told)).collect()
        };
        ReportNumbers(self.passing.as_ref().map(told).unwrap_or_default())
    }

    /// Waits until what was told at a moment has been written. Cancel: safe.
    pub async fn are_written(&self, told: &ReportNumbers) {
        let Some(passing) = &self.passing else { return };
        let mut written = passing.written.subscribe();
        loop {
            written.borrow_and_update();
            let are_written = {
                let waiting = passing.waiting.lock();
                let has_written = |member: &MemberName| waiting.queues.get(member).map_or(u64::MAX, |of| of.written);
                told.0.iter().all(|(member, told)| has_written(member) >= *told)
            };
            // The sender lives as long as the store.
            if are_written || written.changed().await.is_err() {
                return;
            }
        }
    }

    /// What a member told and nobody wrote yet is of no use any more: it has left, or is listed again.
    pub(super) fn drop_reports(&self, member: &MemberName) {
        let Some(passing) = &self.passing else { return };
        let mut waiting = passing.waiting.lock();
        waiting.lost.remove(member);
        let Some(queue) = waiting.queues.get_mut(member) else { return };
        let dropped = std::mem::take(&mut queue.reports);
        queue.written += dropped.len() as u64;
        waiting.bytes -= dropped.iter().map(Report::bytes).sum::<usize>();
        drop(waiting);
        passing.written.send_modify(|version| *version += 1);
    }

    /// Notes that a full list of a member begins.
    pub(super) fn report_list(&self, member: &MemberName) {
        self.drop_reports(member);
        self.report(member, Report::ListBegan);
    }

    /// Notes that the full list of a member is complete.
    pub(super) fn report_listed(&self, member: &MemberName, definition: u64) {
        let ended = self.peek(|inner| {
            let state = inner.member(member)?;
            let (cluster_uid, revision) = (Arc::clone(&state.cluster_uid), state.position);
            Some(Report::ListEnded { cluster_uid, revision, definition })
        });
        if let Some(ended) = ended {
            self.report(member, ended);
        }
    }

    /// Takes a slice of a full list. A bad object is left out and told of.
    pub(super) fn report_slice(&self, member: &MemberName, items: &[&str]) -> Vec<BadObject> {
        let each = items.iter().filter_map(|item| match self.reported(item) {
            Ok(object) => {
                self.report(member, Report::Object(object));
                None
            }
            Err(error) => Some(error),
        });
        each.collect()
    }

    /// Takes one event of a member's watch.
    ///
    /// Errors: a document that is no object.
    pub(super) fn report_event(&self, member: &MemberName, event: &Event<'_>) -> Result<(), BadObject> {
        let object = match event.event_type {
            EventType::Added | EventType::Modified | EventType::Deleted => self.reported(event.object)?,
            EventType::Bookmark | EventType::Error => return Ok(()),
        };
        let revision = object.revision;
        let report = match event.event_type {
            EventType::Deleted => Report::Gone { key: object.key, revision },
            _ => Report::Object(object),
        };
        self.report(member, report);
        self.lock().bookmark(member, revision);
        Ok(())
    }

    /// Notes the revision of a member's bookmark.
    pub(super) fn report_at(&self, member: &MemberName, revision: u64) {
        self.report(member, Report::At(revision));
    }

    fn report(&self, member: &MemberName, report: Report) {
        if let Some(passing) = &self.passing {
            passing.waiting.lock().push(member, report);
            passing.news.notify_one();
        }
    }

    fn reported(&self, text: &str) -> Result<ReportedObject, BadObject> {
        let (text, mut found) = (text.trim_ascii(), Vec::new());
        let facts = Facts::read(self.spec(), text, &mut found)?;
        let lead = if facts.kind.is_some() { "" } else { self.spec().type_meta.as_str() };
        // An object begins with its brace.
        let document = ["{", lead, text.get(1..).unwrap_or_default()].concat();
        let (key, uid) = (key(&facts.namespace, &facts.name), facts.uid.to_owned());
        Ok(ReportedObject { key, uid, revision: facts.member_rv, document })
    }
}
