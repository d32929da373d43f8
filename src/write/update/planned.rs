//! The first state of an update: what it means for each part is known, and no member was asked to change anything.

use bytes::Bytes;

use crate::{
    placement::{divided::Field, nodes::NodeNames, noted, scheduling::pod_spec},
    respond::WriteError,
    write::{
        carry::{Cargo, Workload},
        fleet::{Fleet, Key},
        journal::{Entry, Listed, Verb},
        steps::{Outcome, Silent},
        update::{
            desired::{self, Desired, JSON_PATCH, MERGE_PATCH, plain_of},
            draft::{Plan, Rehearsed, overrides_in, with_all},
            part::{Asking, How, SCALE, document},
            shares::{Room, Total},
            string_data,
            work::{Stop, Work, dry_run_failed, unreachable},
        },
    },
};
use kubefold_wire::{patch::merge_into, warning::Warnings};
use serde_json::Value;

/// How often a write looks again at a home of which the status alone has changed. Units: looks.
const REFRESHES_MAX: u32 = 32;

/// A write that is planned.
pub(super) struct Planned<'a, F: Fleet> {
    pub(super) work: Work<'a, F>,
    pub(super) plan: Plan,
    refreshes_left: u32,
}

impl<'a, F: Fleet> Work<'a, F> {
    /// Plans the write on what the fleet view shows.
    ///
    /// Errors: it cannot be done so, or the home refuses it.
    pub(super) async fn planned(self, warnings: &mut Warnings) -> Result<Planned<'a, F>, Stop> {
        let plan = match self.request.content_type.as_str() {
            _ if self.how() == How::Apply => self.plan_apply().await,
            _ if self.subresource() == SCALE => self.plan_scale().await,
            _ if self.how() == How::Put => self.plan().await,
            JSON_PATCH | MERGE_PATCH => self.plan().await,
            _ => self.ask_home(warnings).await,
        }?;
        self.check_nodes(&plan, warnings)?;
        plan.warning.iter().for_each(|warning| warnings.add(warning));
        self.warn_of_overrides(warnings);
        Ok(Planned { work: self, plan, refreshes_left: REFRESHES_MAX })
    }

    /// Says which parts have overrides of an earlier configuration: a write brings those of now to what it changes alone.
    fn warn_of_overrides(&self, warnings: &mut Warnings) {
        if self.marker.is_none() || !self.subresource().is_empty() {
            return;
        }
        let policy = self.policy();
        if self.parts().all(|part| noted::has(&part.document, &overrides_in(policy, &part.member))) {
            return;
        }
        if let Some(why) = self.writer.outdated(self.key) {
            warnings.add(&format!("{}: {why}", self.key));
        }
    }

    /// Plans what needs no schema.
    async fn plan(&self) -> Result<Plan, Stop> {
        let wanted = desired::read(self.request, self.key, &self.visible, &self.shown)?;
        self.hold_owners(&wanted.after).await?;
        let shares_wait = || !self.earlier.is_empty() && self.parts().any(|part| *self.awaited(part) != *part.document);
        let is_coming = !self.divided().is_empty() && (!self.coming().is_empty() || shares_wait());
        let total = |field: &Field| {
            let (is, was) = (wanted.after.pointer(field.pointer), self.shown.pointer(field.pointer));
            // What parts will have that are behind, or still to be made, is not in the sum that is shown.
            let is_told = is_coming && desired::names(self.request, field);
            Total::read(&wanted.after, *field).filter(|_| is != was || is_told)
        };
        let totals: Vec<Total> = self.divided().iter().filter_map(total).collect();
        Ok(Box::pin(self.draft(&wanted, None, &totals)).await)
    }

    /// Has the home say what a strategic merge patch makes of it: only a member knows the kind's schema.
    async fn ask_home(&self, warnings: &mut Warnings) -> Result<Plan, Stop> {
        let mut patch = desired::object(&self.request.body)?;
        string_data::store_in_patch(self.key, &mut patch);
        let (revision, uid) = desired::strip(&mut patch);
        desired::check_preconditions(self.key, &self.visible, revision.as_deref(), uid.as_deref())?;
        self.hold_owners(&patch).await?;
        let mut totals = Vec::new();
        for field in self.divided() {
            let Some(mut asked) = desired::take_at(&mut patch, field.path) else { continue };
            if let (Some(shown @ Value::Object(_)), Value::Object(_)) = (self.shown.pointer(field.pointer), &asked) {
                // Of amounts it says only those that it changes.
                let changed = std::mem::replace(&mut asked, shown.clone());
                merge_into(&mut asked, changed);
            }
            let asked = desired::nested(field.path, asked);
            match Total::read(&asked, *field) {
                Some(total) => totals.push(total),
                // It is refused in the home's own words.
                None => merge_into(&mut patch, asked),
            }
        }
        // A member takes no visible names, and the home's own ones alone would not say what is written of the others.
        let rules = self.writer.fleet.rules();
        let (nodes, mut sent) = (NodeNames::of(&self.key.gvk, rules.names()), patch.clone());
        let hidden = nodes.hide(&mut sent, &self.home.member);
        let body = self.writer.fleet.localize(self.key, &self.home.member, &Bytes::from(sent.to_string()));
        let (manner, query, mut said) = (self.manner(), self.request.passed_query(), Warnings::default());
        let (asking, home) = (self.asking(&manner, &query), &self.home.member);
        let content_type = &self.request.content_type;
        let outcome = self.writer.send_patch(asking, home, content_type, body, true, &mut said).await;
        warnings.merge(&said);
        let answer = match outcome {
            Outcome::Done { body, .. } => body,
            Outcome::Refused { code, mut body } => {
                body.bytes = hidden.reveal_in(&String::from_utf8_lossy(&body.bytes)).into();
                return Err(dry_run_failed(self.key, home, Outcome::Refused { code, body }).into());
            }
            outcome => return Err(dry_run_failed(self.key, home, outcome).into()),
        };
        let after = document(self.key, &answer);
        let mut after = after.ok_or_else(|| WriteError::Internal("the home's answer is no object"))?;
        nodes.reveal(&hidden, &mut after);
        for field in self.divided() {
            let is_told = totals.iter().any(|total| total.field == *field);
            // A directive (`$patch: replace`) may have taken it away.
            if !is_told && after.pointer(field.pointer) != self.home.document.pointer(field.pointer) {
                totals.extend(Total::read(&after, *field));
            }
        }
        let (before, told) = (plain_of(&self.home.document), plain_of(&after));
        let rehearsed = Rehearsed { body: answer, document: hidden.is_empty().then_some(after) };
        let wanted = Desired { before, after: told, guarded: revision.is_some(), managed_fields: None };
        let plan = Box::pin(self.draft(&wanted, Some(&patch), &totals)).await;
        let is_all = plain_of(&plan.document) == wanted.after;
        Ok(Plan { home_dry_run: is_all.then_some(rehearsed), ..plan })
    }
}

impl<F: Fleet> Planned<'_, F> {
    pub(super) fn asking(&self) -> Asking<'_> {
        self.work.asking(&self.plan.manner, &self.plan.query)
    }

    /// Has the quotas of the members allow what the write is about to use.
    pub(super) async fn make_room(&self, warnings: &mut Warnings) {
        let Room { quotas, asked } = &self.plan.room;
        self.work.writer.make_room(&self.work.key.namespace, quotas, asked, warnings).await;
    }

    /// What the members with a part, and those that get one, are to have first, since the pods name it.
    pub(super) async fn cargo(&self) -> Cargo {
        let Self { work, plan, .. } = self;
        let Key { gvk, .. } = work.key;
        if !matches!(work.subresource(), "" | SCALE) || pod_spec(&gvk.group, &gvk.kind).is_none() {
            return Cargo::default();
        }
        let policy = work.policy();
        let missing = plan.missing.iter().map(|missing| missing.member.clone());
        let members = work.parts().map(|part| part.member.clone()).chain(missing).collect();
        let (key, document, caller) = (work.key, &plan.document, &work.request.caller);
        work.writer.cargo(Workload { key, document, policy, caller, members }).await
    }

    /// The create of parts that are missing, with the marker that the others have.
    pub(super) fn making(&self) -> Option<Entry> {
        let Self { work, plan, .. } = self;
        let (body, marker) = (plan.body.clone()?, work.marker.clone()?);
        let listed = marker.members.iter().cloned().map(|(member, cluster_uid)| Listed { member, cluster_uid });
        Some(Entry {
            query: plan.query.clone(),
            user_agent: work.request.user_agent.clone(),
            body,
            listed: listed.collect(),
            policy: marker.policy,
            place_on: marker.place_on,
            adopts: marker.adopts,
            owns_shares: work.how() != How::Apply,
            epoch: marker.epoch,
            ..Entry::new(Verb::Create, work.key.clone(), marker.uid, work.request.caller.clone())
        })
    }

    /// Reads the home anew. Where its status alone has changed, that is no conflict: the write goes on.
    pub(super) async fn refresh(&mut self) -> Result<(), Stop> {
        let Self { work, plan, refreshes_left } = self;
        if *refreshes_left == 0 {
            return Err(WriteError::Stale(work.key.to_ref()).into());
        }
        *refreshes_left -= 1;
        let body = match work.writer.look(work.key, &work.home).await {
            Ok(Some(body)) => body,
            // An apply makes it anew.
            Ok(None) if work.how() == How::Apply => return Err(Stop::Again),
            Ok(None) => return Err(WriteError::NotFound(work.key.to_ref()).into()),
            Err(Silent(cause)) => return Err(unreachable(work.key, &work.home.member, cause).into()),
        };
        let now = document(work.key, &body).ok_or_else(|| WriteError::Internal("the home is no object"))?;
        let without_status = work.is_without_status();
        let bare = |document: &Value| {
            let mut document = plain_of(document);
            if without_status {
                desired::take_at(&mut document, &["status"]);
            }
            document
        };
        work.writer.fleet.ingest(work.key, &work.home.member, &body).await;
        if bare(&work.home.document) != bare(&now) {
            return Err(if plan.guarded { WriteError::Stale(work.key.to_ref()).into() } else { Stop::Again });
        }
        work.home.document = now.into();
        plan.document = with_all(&work.home.document, &plan.home);
        plan.home_dry_run = None;
        Ok(())
    }
}
