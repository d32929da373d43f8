//! The way of one try: planned, dry-run, written to the journal, made in the home, and then in the other parts.

use bytes::Bytes;
use futures::future::join_all;
use http::StatusCode;
use serde_json::Value;

use crate::{
    answer::reply::Reply,
    config::MemberName,
    placement::{divided::Field, merge::Change, scheduling::pod_spec},
    respond::WriteError,
    write::{
        carry::Workload,
        fleet::{Fleet, Key},
        steps::{Outcome, Silent},
        update::{
            commit::missing_target,
            desired::{self, Desired, JSON_PATCH, MERGE_PATCH, plain},
            draft::{Plan, with_all},
            part::{Brought, How, Rewrite, SCALE, document, is_stale},
            shares::{Room, Total},
            task::Pending,
            work::{DryRun, Stop, Work, dry_run_failed, unreachable},
        },
    },
};
use kubefold_wire::{patch::merge_into, warning::Warnings};

/// How many places a warning names at most.
const PATHS_MAX: usize = 3;

impl<F: Fleet> Work<'_, F> {
    /// Runs the try to its end.
    pub(super) async fn run(&mut self, hold: F::Hold) -> Result<Reply, Stop> {
        let mut plan = Box::pin(self.planned()).await?;
        plan.warning.iter().for_each(|warning| self.warnings.add(warning));
        if !self.dry {
            let Room { quotas, asked } = &plan.room;
            self.writer.make_room(&self.key.namespace, quotas, asked, &mut self.warnings).await;
        }
        let dry_run_result = loop {
            match Box::pin(self.dry_run(&mut plan)).await? {
                Some(dry_run_result) => break dry_run_result,
                None => self.refresh(&mut plan).await?,
            }
        };
        self.carry(&plan).await;
        if self.dry && self.manner.subresource == SCALE {
            return self.scaled(StatusCode::OK, &dry_run_result.home, plan.total()).map_err(Stop::from);
        }
        if self.dry {
            self.rendered(StatusCode::OK, &dry_run_result.documents).map_err(Stop::from)
        } else {
            Box::pin(self.commit(plan, dry_run_result, hold)).await
        }
    }

    /// Has the members with a part, and those that get one, get first what the pods name.
    async fn carry(&mut self, plan: &Plan) {
        let Key { gvk, .. } = self.key;
        if !matches!(self.manner.subresource.as_str(), "" | SCALE) || pod_spec(&gvk.group, &gvk.kind).is_none() {
            return;
        }
        let policy = self.policy(self.marker().as_ref());
        let missing = plan.missing.iter().map(|missing| missing.member.clone());
        let members = self.parts().map(|part| part.member.clone()).chain(missing).collect();
        let (key, document, caller) = (self.key, &plan.document, &self.request.caller);
        let cargo = self.writer.cargo(Workload { key, document, policy: policy.as_ref(), caller, members }).await;
        if self.dry {
            cargo.announce(|warning| self.warnings.add(warning));
        } else {
            self.writer.carry(cargo, caller, &mut self.warnings).await;
        }
    }

    async fn planned(&mut self) -> Result<Plan, Stop> {
        match self.request.content_type.as_str() {
            _ if self.manner.how == How::Apply => self.plan_apply().await,
            _ if self.manner.subresource == SCALE => self.plan_scale().await,
            _ if self.manner.how == How::Put => self.plan().await,
            JSON_PATCH | MERGE_PATCH => self.plan().await,
            _ => self.ask_home().await,
        }
    }

    /// Plans what needs no schema.
    async fn plan(&mut self) -> Result<Plan, Stop> {
        let wanted = desired::read(self.request, self.key, &self.visible, &self.shown)?;
        self.manner.managed_fields.clone_from(&wanted.managed_fields);
        self.hold_owners(&wanted.after).await?;
        let shares_wait = || !self.earlier.is_empty() && self.parts().any(|part| self.awaited(part) != part.document);
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
    async fn ask_home(&mut self) -> Result<Plan, Stop> {
        let mut patch = desired::object(&self.request.body)?;
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
        let body = self.writer.fleet.localize(self.key, &self.home.member, &Bytes::from(patch.to_string()));
        let mut said = Warnings::default();
        let content_type = &self.request.content_type;
        let (asking, home) = (self.asking(), &self.home.member);
        let outcome = self.writer.send_patch(asking, home, content_type, body, true, &mut said).await;
        self.warnings.merge(&said);
        let after = match outcome {
            Outcome::Done { body, .. } => document(self.key, &body),
            outcome => return Err(dry_run_failed(self.key, &self.home.member, outcome).into()),
        };
        let after = after.ok_or_else(|| WriteError::Internal("the home's answer is no object"))?;
        for field in self.divided() {
            let is_told = totals.iter().any(|total| total.field == *field);
            // A directive (`$patch: replace`) may have taken it away.
            if !is_told && after.pointer(field.pointer) != self.home.document.pointer(field.pointer) {
                totals.extend(Total::read(&after, *field));
            }
        }
        let (before, after) = (plain(self.home.document.clone()), plain(after));
        let wanted = Desired { before, after, guarded: revision.is_some(), managed_fields: None };
        Ok(Box::pin(self.draft(&wanted, Some(&patch), &totals)).await)
    }

    /// Asks every part's member for a dry run. `None`: the home has changed.
    async fn dry_run(&mut self, plan: &mut Plan) -> Result<Option<DryRun>, Stop> {
        let mut warnings = Warnings::default();
        let (asking, writer) = (self.asking(), self.writer);
        let outcome = match &plan.home.apply {
            Some(body) => match writer.apply_part(asking, &self.home, body, true, &mut warnings).await {
                Brought::Answered(outcome) => outcome,
                Brought::Same | Brought::Gone => return Ok(None),
            },
            None => {
                let revision = plan.guarded.then(|| self.home.revision());
                let rewrite = Rewrite { before: &self.home.document, after: &plan.document, revision };
                writer.write_part(asking, &self.home.member, rewrite, true, &mut warnings).await
            }
        };
        let body = match outcome {
            Outcome::Done { body, .. } => body.bytes,
            Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(&body) => return Ok(None),
            outcome => return Err(dry_run_failed(self.key, &self.home.member, outcome).into()),
        };
        let after = if self.manner.subresource == SCALE {
            plan.document.clone()
        } else {
            document(self.key, &body).unwrap_or_default()
        };
        if plan.home.apply.is_some() {
            self.note_applied(plan, &after);
        }
        let holds: Vec<_> = plan.home.shared.iter().map(|change| change.value_in(&after)).collect();
        let asked = join_all(self.others.iter().zip(&plan.others).map(|(part, task)| {
            let pending = Pending::of(&self.earlier_in(&part.member), &part.member);
            let changes = pending.then(&plan.home.shared, &holds, task.clone()).live(&after);
            let mut part = part.clone();
            async move {
                let mut said = Warnings::default();
                let (brought, left) = match &task.apply {
                    Some(body) => (writer.apply_part(asking, &part, body, true, &mut said).await, Vec::new()),
                    None => writer.bring(asking, &mut part, &changes, true, &mut said).await,
                };
                let left: Vec<String> = left.into_iter().map(Change::path).collect();
                (part, changes, brought, left, said)
            }
        }))
        .await;
        let documents = vec![(self.home.member.clone(), body.clone())];
        let mut dry_run_result = DryRun { home: body, holds, others: Vec::new(), documents };
        for (part, changes, brought, left, said) in asked {
            warnings.merge(&said);
            let unchanged = || Bytes::from(part.document.to_string());
            let (shown, to_do) = match brought {
                Brought::Same => (Some(unchanged()), Ok(changes)),
                Brought::Gone => (None, Ok(Vec::new())),
                Brought::Answered(Outcome::Done { body, .. }) => (Some(body.bytes), Ok(changes)),
                Brought::Answered(Outcome::NotSent(cause) | Outcome::Unknown(cause)) => {
                    (Some(unchanged()), Err(Silent(cause)))
                }
                Brought::Answered(outcome) => return Err(dry_run_failed(self.key, &part.member, outcome).into()),
            };
            dry_run_result.documents.extend(shown.map(|shown| (part.member.clone(), shown)));
            if to_do.is_ok() {
                keeps_own(&mut warnings, self.key, &part.member, &left);
            }
            dry_run_result.others.push(to_do);
        }
        dry_run_result.documents.extend(self.dry_run_missing(plan, &mut warnings).await?);
        self.warnings.merge(&warnings);
        Ok(Some(dry_run_result))
    }

    async fn dry_run_missing(&self, plan: &Plan, said: &mut Warnings) -> Result<Vec<(MemberName, Bytes)>, Reply> {
        let Some(making) = self.making(plan) else { return Ok(Vec::new()) };
        let mut made = Vec::new();
        for missing in &plan.missing {
            let target = missing_target(missing);
            match self.writer.make(&making, &target, true, said).await {
                Outcome::Done { body, .. } => made.push((target.member, body.bytes)),
                outcome => return Err(dry_run_failed(self.key, &target.member, outcome)),
            }
        }
        Ok(made)
    }

    /// Reads the home anew. Where its status alone has changed, that is no conflict: the write goes on.
    pub(super) async fn refresh(&mut self, plan: &mut Plan) -> Result<(), Stop> {
        if self.refreshes_left == 0 {
            return Err(WriteError::Stale(self.key.to_ref()).into());
        }
        self.refreshes_left -= 1;
        let body = match self.writer.look(self.key, &self.home).await {
            Ok(Some(body)) => body,
            Ok(None) => {
                return Err(WriteError::NotFound(self.key.to_ref()).into());
            }
            Err(Silent(cause)) => return Err(unreachable(self.key, &self.home.member, cause).into()),
        };
        let now = document(self.key, &body).ok_or_else(|| WriteError::Internal("the home is no object"))?;
        let bare = |document: &Value| {
            let mut document = plain(document.clone());
            if self.without_status {
                desired::take_at(&mut document, &["status"]);
            }
            document
        };
        self.writer.fleet.ingest(self.key, &self.home.member, &body).await;
        if bare(&self.home.document) != bare(&now) {
            return Err(if plan.guarded { WriteError::Stale(self.key.to_ref()).into() } else { Stop::Again });
        }
        self.home.document = now;
        plan.document = with_all(&self.home.document, &plan.home);
        Ok(())
    }
}

/// Warns of values that a part keeps.
fn keeps_own(warnings: &mut Warnings, key: &Key, member: &MemberName, left: &[String]) {
    if left.is_empty() {
        return;
    }
    let more = left.len().saturating_sub(PATHS_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = left.iter().take(PATHS_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    warnings
        .add(&format!("the part of {key} in member {member} keeps its own {named}{more}: somebody changed it there"));
}
