//! The second state of an update: every part's member that can be reached has taken its dry run, and nothing is changed.

use bytes::Bytes;
use futures::future::join_all;
use http::StatusCode;
use serde_json::Value;

use crate::{
    answer::reply::Reply,
    config::MemberName,
    placement::merge::Change,
    write::{
        fleet::{Fleet, Key},
        steps::{Outcome, Silent},
        update::{
            apply::with_other_values,
            draft::Rehearsed,
            part::{Brought, Held, Ownership, Rewrite, SCALE, document, is_stale},
            planned::Planned,
            task::Pending,
            work::{Stop, dry_run_failed},
        },
    },
};
use kubefold_wire::warning::Warnings;

/// How many places a warning names at most.
const PATHS_MAX: usize = 3;

/// A write that was dry-run.
pub(super) struct DryRun<'a, F: Fleet> {
    pub(super) planned: Planned<'a, F>,
    pub(super) shown: Shown,
}

/// What a dry run showed.
pub(super) struct Shown {
    /// The home's answer.
    home: Bytes,
    /// What the home will hold at each of its changes.
    pub(super) holds: Vec<Option<Value>>,
    /// What is to be changed in each other part: by each earlier update that waits there, and then by this one.
    pub(super) others: Vec<Result<Vec<Vec<Change>>, Silent>>,
    /// All documents as they will be, the home's first.
    pub(super) documents: Vec<(MemberName, Bytes)>,
}

impl<'a, F: Fleet> Planned<'a, F> {
    /// Asks every part's member for a dry run.
    ///
    /// Errors: one refuses, or the home does not answer.
    pub(super) async fn dry_run(mut self, warnings: &mut Warnings) -> Result<DryRun<'a, F>, Stop> {
        loop {
            match Box::pin(self.ask_all(warnings)).await? {
                Some(shown) => return Ok(DryRun { planned: self, shown }),
                None => self.refresh().await?,
            }
        }
    }

    /// `None`: the home has changed.
    async fn ask_all(&mut self, warnings: &mut Warnings) -> Result<Option<Shown>, Stop> {
        let mut said = Warnings::default();
        let mut read = None;
        let asked = match self.plan.home_dry_run.take() {
            Some(Rehearsed { body, document }) => {
                read = document;
                Brought::Answered(Outcome::Done { code: StatusCode::OK, body })
            }
            None => Box::pin(self.ask_home(&mut said)).await,
        };
        let outcome = match asked {
            Brought::Answered(outcome) => outcome,
            Brought::Same | Brought::Gone => return Ok(None),
        };
        let Self { work, plan, .. } = self;
        let home = match outcome {
            Outcome::Done { body, .. } => body.bytes,
            Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(&body) => return Ok(None),
            outcome => return Err(dry_run_failed(work.key, &work.home.member, outcome).into()),
        };
        let after = if work.subresource() == SCALE {
            plan.document.clone()
        } else {
            read.or_else(|| document(work.key, &home)).unwrap_or_default()
        };
        if plan.home.apply.is_some() {
            work.note_applied(plan, &after);
        }
        let holds: Vec<_> = plan.home.shared.iter().map(|change| change.value_in(&after)).collect();
        let documents = vec![(work.home.member.clone(), home.clone())];
        let mut shown = Shown { home, holds, others: Vec::new(), documents };
        self.ask_others(&after, &mut shown, &mut said).await?;
        shown.documents.extend(self.make_missing(&mut said).await?);
        warnings.merge(&said);
        Ok(Some(shown))
    }

    async fn ask_home(&self, said: &mut Warnings) -> Brought {
        let Self { work, plan, .. } = self;
        let asking = self.asking();
        if let Some(body) = &plan.home.apply {
            return self.ask_apply(&work.home, body, &plan.home.ownership, said).await;
        }
        let revision = plan.guarded.then(|| work.home.revision());
        let rewrite = Rewrite { before: &work.home.document, after: &plan.document, revision };
        Brought::Answered(work.writer.write_part(asking, &work.home.member, rewrite, true, said).await)
    }

    /// Asks for an apply. Where a share stays though the whole changes, its member is asked with another value before: whoever else
    /// has it is in conflict over the whole.
    async fn ask_apply(&self, part: &Held, body: &Value, ownership: &Ownership, said: &mut Warnings) -> Brought {
        let (writer, asking) = (self.work.writer, self.asking());
        if !ownership.takes.is_empty() {
            let other = with_other_values(body, &ownership.takes);
            let told = writer.apply_part(asking, part, &other, true, &mut Warnings::default()).await;
            if matches!(told, Brought::Answered(Outcome::Refused { .. })) {
                return told;
            }
        }
        writer.apply_part(asking, part, body, true, said).await
    }

    /// Asks the members of the other parts; the home will be as in `after`.
    async fn ask_others(&self, after: &Value, shown: &mut Shown, warnings: &mut Warnings) -> Result<(), Stop> {
        let Self { work, plan, .. } = self;
        let (asking, writer, holds) = (self.asking(), work.writer, &shown.holds);
        let asked = join_all(work.others.iter().zip(&plan.others).map(|(part, task)| {
            let pending = Pending::of(&work.earlier_in(&part.member), &part.member);
            let lists = pending.then(&plan.home.shared, holds, task.clone()).live_of_each(after);
            let changes = lists.concat();
            let mut part = part.clone();
            async move {
                let mut said = Warnings::default();
                let (brought, left) = match &task.apply {
                    Some(body) => (self.ask_apply(&part, body, &task.ownership, &mut said).await, Vec::new()),
                    None => writer.bring(asking, &mut part, &changes, true, &mut said).await,
                };
                let left: Vec<String> = left.into_iter().map(Change::path).collect();
                (part, lists, brought, left, said)
            }
        }))
        .await;
        for (part, lists, brought, left, said) in asked {
            warnings.merge(&said);
            let unchanged = || Bytes::from(part.document.to_string());
            let (document, to_do) = match brought {
                Brought::Same => (Some(unchanged()), Ok(lists)),
                Brought::Gone => (None, Ok(Vec::new())),
                Brought::Answered(Outcome::Done { body, .. }) => (Some(body.bytes), Ok(lists)),
                Brought::Answered(Outcome::NotSent(cause) | Outcome::Unknown(cause)) => {
                    (Some(unchanged()), Err(Silent(cause)))
                }
                // It judges what it has, and it has not got all yet.
                Brought::Answered(_) if work.bring_up(&part.member).await => return Err(Stop::Again),
                Brought::Answered(outcome) => return Err(dry_run_failed(work.key, &part.member, outcome).into()),
            };
            shown.documents.extend(document.map(|document| (part.member.clone(), document)));
            if to_do.is_ok() {
                keeps_own(warnings, work.key, &part.member, &left);
            }
            shown.others.push(to_do);
        }
        Ok(())
    }

    async fn make_missing(&self, said: &mut Warnings) -> Result<Vec<(MemberName, Bytes)>, Reply> {
        let Some(making) = self.making() else { return Ok(Vec::new()) };
        let mut made = Vec::new();
        for missing in &self.plan.missing {
            let target = missing.target();
            match self.work.writer.make(&making, &target, true, said).await {
                Outcome::Done { body, .. } => made.push((target.member, body.bytes)),
                outcome => return Err(dry_run_failed(self.work.key, &target.member, outcome)),
            }
        }
        Ok(made)
    }
}

impl<F: Fleet> DryRun<'_, F> {
    /// Answers the client's own dry run. Nothing is carried along, and the answer tells what would be.
    pub(super) async fn answer(self, warnings: &mut Warnings) -> Result<Reply, Stop> {
        let Self { planned, shown } = self;
        planned.cargo().await.announce(|warning| warnings.add(warning));
        let work = &planned.work;
        let reply = if work.subresource() == SCALE {
            work.scaled(StatusCode::OK, &shown.home, planned.plan.scale)
        } else {
            work.rendered(StatusCode::OK, &shown.documents)
        };
        reply.map_err(Stop::from)
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
