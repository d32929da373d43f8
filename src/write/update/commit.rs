//! The third state of an update: it is in the journal and the home has it. What is left is to bring it to the other parts.

use crate::{
    answer::reply::{Reply, refusal},
    config::MemberName,
    member::call::Document,
    placement::merge::Change,
    respond::{Settling, WriteError},
    write::{
        fleet::Fleet,
        journal::{Entry, EntryTarget, Step, Verb},
        steps::{Outcome, Silent},
        update::{
            amend::Amendment,
            dry_run::{DryRun, Shown},
            part::{Brought, Held, Rewrite, SCALE, is_stale},
            planned::Planned,
            shares::Missing,
            task::{PartTask, Task, changes_home, waits_for},
            turns::{Applying, Came, Turn, add, turns},
            work::{NOTHING_CHANGED, Stop, Work, unreachable},
        },
    },
};
use bytes::Bytes;
use futures::future::join_all;
use http::StatusCode;
use kubefold_wire::{
    locate::Paths,
    splice::{ObjectEdits, splice, string},
    warning::Warnings,
};

/// A write that the home has.
pub(super) struct Committed<'a, F: Fleet> {
    planned: Planned<'a, F>,
    shown: Shown,
    /// In the journal.
    entry: Entry,
    hold: F::Hold,
    /// The home's answer.
    code: StatusCode,
    body: Document,
}

/// What came of the home's write.
enum HomeWrite {
    Done(StatusCode, Document),
    /// It has changed since it was read.
    Stale,
    Refused(Reply),
    Unknown(WriteError),
}

impl<F: Fleet> Planned<'_, F> {
    fn entry(&self, shown: &Shown) -> Entry {
        let Self { work, plan, .. } = self;
        let task = Task {
            manner: plan.manner.clone(),
            home: plan.home.clone(),
            holds: shown.holds.clone(),
            shown: plan.shown.clone(),
            others: plan.others.clone(),
            coming: plan.coming.clone(),
            making: self.making().map(Box::new),
        };
        let targets = work.parts().map(|part| EntryTarget {
            own_uid: Some(part.uid.clone()),
            ..EntryTarget::new(part.member.clone(), part.cluster_uid.clone())
        });
        let (uid, caller) = (work.visible.uid.clone(), work.request.caller.clone());
        Entry {
            query: plan.query.clone(),
            user_agent: work.request.user_agent.clone(),
            body: task.to_body(),
            targets: targets.chain(plan.missing.iter().map(Missing::target)).collect(),
            shared: work.marker.is_none(),
            ..Entry::new(Verb::Update, work.key.clone(), uid, caller)
        }
    }

    async fn write_home(&self, entry: &Entry, warnings: &mut Warnings) -> HomeWrite {
        let Self { work, plan, .. } = self;
        let mut said = Warnings::default();
        let Held { member, document: before, .. } = &work.home;
        let rewrite = Rewrite { before, after: &plan.document, revision: Some(work.home.revision()) };
        let (asking, writer) = (self.asking(), work.writer);
        let outcome = match &plan.home.apply {
            None => writer.write_part(asking, member, rewrite, false, &mut said).await,
            Some(body) => {
                match writer.apply_to(asking, &work.home, body, &plan.home.ownership, &mut said).await {
                    Brought::Answered(outcome) => outcome,
                    // It is to be made anew, or its member became another cluster.
                    Brought::Same | Brought::Gone => return HomeWrite::Stale,
                }
            }
        };
        warnings.merge(&said);
        match &outcome {
            Outcome::Refused { body, .. } if is_stale(body) => {}
            // Its members are asked again, should nobody know after a restart.
            Outcome::Done { .. } => writer.journal.step_later(entry.id, member, outcome.step()),
            _ => writer.journal.step(entry.id, member, outcome.step()).await,
        }
        match outcome {
            Outcome::Done { code, body } => HomeWrite::Done(code, body),
            Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(&body) => HomeWrite::Stale,
            Outcome::Refused { code, body } => HomeWrite::Refused(refusal(member, code, &body, NOTHING_CHANGED)),
            Outcome::NotSent(cause) => HomeWrite::Refused(unreachable(work.key, member, cause).into()),
            Outcome::Unknown(cause) => {
                let (doing, causes) = ("changing".to_owned(), vec![format!("member {member}: {cause}")]);
                let (object, settling) = (work.key.to_ref(), Settling::IfDone);
                HomeWrite::Unknown(WriteError::OutcomeUnknown { doing, object, causes, settling })
            }
        }
    }
}

impl<'a, F: Fleet> DryRun<'a, F> {
    /// Writes the journal and then the home, which is the commit. What the pods name is carried along before.
    ///
    /// Errors: the home does not have it, or may have it and does not say so.
    pub(super) async fn commit(self, hold: F::Hold, warnings: &mut Warnings) -> Result<Committed<'a, F>, Stop> {
        let Self { mut planned, shown } = self;
        let writer = planned.work.writer;
        writer.carry(planned.cargo().await, &planned.work.request.caller, warnings).await;
        planned.work.note_landed(u64::MAX).await;
        let entry = planned.entry(&shown);
        let undecided = planned.work.undecided();
        if !undecided.is_empty() && !Task::of(&entry).is_some_and(|task| changes_home(&task)) {
            // The home could make an earlier update behind this one, which leaves its revision as it is, and the other parts before it.
            undecided.into_iter().for_each(|id| writer.settle_later(id));
            return Err(WriteError::Taken(planned.work.key.to_ref()).into());
        }
        let entry = writer.journal.begin(entry).await;
        let entry = entry.map_err(|error| WriteError::Journal(error.into()))?;
        let stop = loop {
            match planned.write_home(&entry, warnings).await {
                HomeWrite::Done(code, body) => return Ok(Committed { planned, shown, entry, hold, code, body }),
                HomeWrite::Stale => match planned.refresh().await {
                    Ok(()) => planned.work.note_landed(entry.id).await,
                    Err(stop) => break stop,
                },
                HomeWrite::Refused(reply) => break reply.into(),
                HomeWrite::Unknown(error) => {
                    writer.settle_held(entry.id, hold);
                    return Err(error.into());
                }
            }
        };
        writer.journal.finish(entry.id);
        Err(stop)
    }
}

impl<F: Fleet> Committed<'_, F> {
    /// Brings the write to the other parts, and answers. A part that has not got it is behind.
    pub(super) async fn follow(self, warnings: &mut Warnings) -> Result<Reply, Stop> {
        let Self { mut planned, mut shown, entry, hold, code, body } = self;
        let (work, plan) = (&planned.work, &planned.plan);
        work.take_in(&work.home, &body).await;
        work.writer.amend(Amendment { update: &entry, changes: &plan.shown, coming: &plan.coming }).await;
        let answered = body.bytes.clone();
        if let Some((_, home)) = shown.documents.first_mut() {
            *home = body.bytes;
        }
        let mut steps = planned.write_others(&entry, &shown, warnings).await;
        steps.extend(planned.write_missing(warnings).await);
        let writer = planned.work.writer;
        let behind = planned.work.warn_behind(&steps, warnings);
        if behind {
            for (member, step) in steps {
                writer.journal.step(entry.id, &member, step).await;
            }
            writer.supersede(entry.id).await;
        } else {
            // A step that is not noted costs a restart one question to its member.
            writer.journal.finish(entry.id);
        }
        let now = if planned.work.subresource() == "status" {
            writer.fleet.release_as_written(hold).await
        } else {
            writer.fleet.release(hold).await
        };
        if behind {
            writer.settle_later(entry.id);
        }
        let work = &mut planned.work;
        let now = now.filter(|now| now.uid == work.visible.uid);
        if work.subresource() == SCALE {
            if let Some(now) = now {
                work.shown = serde_json::from_slice(&now.body).unwrap_or_else(|_| work.shown.clone());
                work.visible = now;
            }
            return work.scaled(code, &answered, None).map_err(Stop::from);
        }
        match now {
            Some(now) => Ok(Reply { code, warnings: Warnings::default(), body: now.body }),
            None => work.rendered(code, &shown.documents).map_err(Stop::from),
        }
    }
}

impl<F: Fleet> Planned<'_, F> {
    /// Writes the other parts. Gives what came of this write in each, which is not noted yet.
    async fn write_others(&self, entry: &Entry, shown: &Shown, warnings: &mut Warnings) -> Vec<(MemberName, Step)> {
        let Self { work, plan, .. } = self;
        let written =
            join_all(work.others.iter().zip(&plan.others).zip(&shown.others).map(|((part, task), lists)| async move {
                let mut said = Warnings::default();
                let steps = match lists {
                    Ok(lists) => self.write_other(entry, &mut part.clone(), task, lists, &mut said).await,
                    Err(Silent(cause)) => vec![(entry.id, Step::Failed(cause.clone()))],
                };
                (&part.member, steps, said)
            }))
            .await;
        let mut own = Vec::new();
        for (member, steps, said) in written {
            warnings.merge(&said);
            let (of_this, of_earlier): (Vec<_>, Vec<_>) = steps.into_iter().partition(|(id, _)| *id == entry.id);
            work.writer.note_steps(member, entry.id, of_earlier).await;
            own.extend(of_this.into_iter().map(|(_, step)| (member.clone(), step)));
        }
        own
    }

    /// Brings a part what waits for it, and then this write. Gives what came of each.
    ///
    /// Shape: `lists` has the changes of each earlier update that waits there, and then those of this one.
    async fn write_other(
        &self,
        entry: &Entry,
        part: &mut Held,
        task: &PartTask,
        lists: &[Vec<Change>],
        said: &mut Warnings,
    ) -> Vec<(u64, Step)> {
        let (work, writer) = (&self.work, self.work.writer);
        let updates = work.earlier_in(&part.member);
        let later = task.apply.as_ref().map(|body| (self.plan.query.as_str(), body));
        let waits = updates.iter().any(|earlier| waits_for(earlier, &part.member, later));
        if waits {
            let is_nothing = task.apply.is_none() && lists.iter().all(Vec::is_empty);
            let waiting = || Step::Failed("an earlier apply has not reached it yet".to_owned());
            return vec![(entry.id, if is_nothing { Step::Done { uid: None } } else { waiting() })];
        }
        let mut turns = turns(&updates, lists, &part.member);
        let applying = task.apply.as_ref().map(|body| {
            let (id, asking, ownership) = (entry.id, self.asking(), &task.ownership);
            Applying { id, asking, body, ownership }
        });
        if let (None, Some(changes)) = (applying, lists.last()) {
            add(&mut turns, Turn::of(entry.id, self.asking(), changes));
        }
        let Came { mut steps, latest } = writer.bring_turns(part, &turns, applying, &work.home.document, said).await;
        if steps.last().is_some_and(|(_, step)| step.cause().is_none()) {
            // It takes the place of earlier applies.
            let replaced = updates.iter().filter(|one| !steps.iter().any(|(id, _)| *id == one.id));
            let replaced: Vec<_> = replaced.map(|one| (one.id, Step::Done { uid: None })).collect();
            steps.extend(replaced);
        }
        if let Some(body) = latest {
            work.take_in(part, &body).await;
        }
        steps
    }

    /// Makes the parts that are missing. Gives what came of each, which is not noted yet.
    async fn write_missing(&self, warnings: &mut Warnings) -> Vec<(MemberName, Step)> {
        let Some(making) = self.making() else { return Vec::new() };
        let (work, mut steps) = (&self.work, Vec::new());
        for missing in &self.plan.missing {
            let target = missing.target();
            let mut said = Warnings::default();
            let outcome = work.writer.make(&making, &target, false, &mut said).await;
            warnings.merge(&said);
            if let Outcome::Done { body, .. } = &outcome {
                work.writer.fleet.ingest(work.key, &target.member, body).await;
            }
            steps.push((target.member, outcome.step()));
        }
        steps
    }
}

impl<F: Fleet> Work<'_, F> {
    /// Brings an answer into the store. That to a `/scale` is not the object, which is read then.
    async fn take_in(&self, part: &Held, answer: &Document) {
        if self.subresource() != SCALE {
            return self.writer.fleet.ingest(self.key, &part.member, answer).await;
        }
        if let Ok(Some(body)) = self.writer.look(self.key, part).await {
            self.writer.fleet.ingest(self.key, &part.member, &body).await;
        }
    }

    /// Says whether a part is behind, and warns of each that is.
    fn warn_behind(&self, steps: &[(MemberName, Step)], warnings: &mut Warnings) -> bool {
        let behind = steps.iter().filter_map(|(member, step)| Some((member, step.cause()?)));
        let told = behind.map(|(member, cause)| {
            let key = self.key;
            warnings.add(&format!("{key} is not changed in member {member} yet, kubefold goes on trying: {cause}"));
        });
        told.count() > 0
    }

    /// Documents as the fleet view would show them, with the revision that is there: a kube-apiserver's dry run answers so.
    pub(super) fn rendered(&self, code: StatusCode, documents: &[(MemberName, Bytes)]) -> Result<Reply, WriteError> {
        let body = self.writer.fleet.render(self.key, documents);
        let body = body.ok_or_else(|| WriteError::Internal("it cannot be shown"))?;
        Ok(Reply { code, warnings: Warnings::default(), body: self.identified(&body).unwrap_or(body) })
    }

    fn identified(&self, body: &Bytes) -> Option<Bytes> {
        let text = std::str::from_utf8(body).ok()?;
        let mut found = Vec::new();
        Paths::new([(0, ["metadata"].as_slice())]).locate(text, &mut found).ok()?;
        let at = found.into_iter().next()?.range;
        let mut metadata = ObjectEdits::new(text.get(at.clone())?, at.start).ok()?;
        metadata.set("uid", string(&self.visible.uid));
        metadata.set("resourceVersion", string(&self.visible.revision.to_string()));
        let mut out = Vec::with_capacity(body.len() + 128);
        splice(body, &mut metadata.finish(), &mut out);
        Some(out.into())
    }
}
