//! The making of a planned update: journal, home, the other parts.

use crate::{
    answer::reply::{Reply, refusal},
    config::MemberName,
    member::call::Document,
    placement::merge::Change,
    respond::{Settling, WriteError},
    write::{
        fleet::Fleet,
        journal::{Entry, EntryTarget, Listed, Step, Verb},
        steps::{Outcome, Silent},
        update::{
            amend::Amendment,
            draft::Plan,
            part::{Asking, Brought, Held, How, Manner, Rewrite, SCALE, is_stale},
            shares::Missing,
            task::{PartTask, Task, waits_for},
            work::{DryRun, NOTHING_CHANGED, Stop, Work, unreachable},
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
use serde_json::Value;

/// What came of the home's write.
enum Committed {
    Done(StatusCode, Document),
    /// It has changed since it was read.
    Stale,
    Refused(Reply),
    Unknown(WriteError),
}
impl<F: Fleet> Work<'_, F> {
    fn entry(&self, plan: &Plan, dry_run_result: &DryRun) -> Entry {
        let task = Task {
            manner: self.manner.clone(),
            home: plan.home.clone(),
            holds: dry_run_result.holds.clone(),
            shown: plan.shown.clone(),
            others: plan.others.clone(),
            coming: plan.coming.clone(),
            making: self.making(plan).map(Box::new),
        };
        let targets = self.parts().map(|part| EntryTarget {
            own_uid: Some(part.uid.clone()),
            ..EntryTarget::new(part.member.clone(), part.cluster_uid.clone())
        });
        let (uid, caller) = (self.visible.uid.clone(), self.request.caller.clone());
        Entry {
            query: self.query.clone(),
            user_agent: self.request.user_agent.clone(),
            body: task.to_body(),
            targets: targets.chain(plan.missing.iter().map(missing_target)).collect(),
            shared: self.marker().is_none(),
            ..Entry::new(Verb::Update, self.key.clone(), uid, caller)
        }
    }

    /// The create of parts that are missing, with the marker that the others have.
    pub(super) fn making(&self, plan: &Plan) -> Option<Entry> {
        let (marker, body) = (self.marker()?, plan.body.clone()?);
        let listed = marker.members.iter().cloned().map(|(member, cluster_uid)| Listed { member, cluster_uid });
        Some(Entry {
            query: self.query.clone(),
            user_agent: self.request.user_agent.clone(),
            body,
            listed: listed.collect(),
            policy: marker.policy,
            place_on: marker.place_on,
            adopts: marker.adopts,
            epoch: marker.epoch,
            ..Entry::new(Verb::Create, self.key.clone(), marker.uid, self.request.caller.clone())
        })
    }

    /// Writes the home, and then the other parts.
    pub(super) async fn commit(
        &mut self,
        mut plan: Plan,
        mut dry_run_result: DryRun,
        hold: F::Hold,
    ) -> Result<Reply, Stop> {
        let entry = self.entry(&plan, &dry_run_result);
        let entry = self.writer.journal.begin(entry).await.map_err(|error| WriteError::Journal(error.into()))?;
        let (code, body) = loop {
            match self.commit_home(&plan, &entry).await {
                Committed::Done(code, body) => break (code, body),
                Committed::Stale => {
                    if let Err(stop) = self.refresh(&mut plan).await {
                        self.writer.journal.finish(entry.id).await;
                        return Err(stop);
                    }
                }
                Committed::Refused(reply) => {
                    self.writer.journal.finish(entry.id).await;
                    return Err(reply.into());
                }
                Committed::Unknown(error) => {
                    self.writer.settle_held(entry.id, hold);
                    return Err(error.into());
                }
            }
        };
        let home = self.home.clone();
        self.take_in(&home, &body).await;
        self.writer.amend(Amendment { update: &entry, changes: &plan.shown, coming: &plan.coming }).await;
        let answered = body.bytes.clone();
        if let Some((_, home)) = dry_run_result.documents.first_mut() {
            *home = body.bytes;
        }
        let mut behind = self.write_others(&entry, &plan, &dry_run_result).await;
        behind |= self.make_missing(&entry, &plan).await;
        match behind {
            true => self.writer.supersede(entry.id).await,
            false => self.writer.journal.finish(entry.id).await,
        }
        let shown = self.writer.fleet.release(hold).await;
        if behind {
            self.writer.settle_later(entry.id);
        }
        let shown = shown.filter(|now| now.uid == self.visible.uid);
        if self.manner.subresource == SCALE {
            if let Some(now) = shown {
                self.shown = serde_json::from_slice(&now.body).unwrap_or_else(|_| self.shown.clone());
                self.visible = now;
            }
            return self.scaled(code, &answered, None).map_err(Stop::from);
        }
        match shown {
            Some(now) => Ok(Reply { code, warnings: Warnings::default(), body: now.body }),
            None => self.rendered(code, &dry_run_result.documents).map_err(Stop::from),
        }
    }

    async fn commit_home(&mut self, plan: &Plan, entry: &Entry) -> Committed {
        let mut said = Warnings::default();
        let Held { member, document: before, .. } = &self.home;
        let rewrite = Rewrite { before, after: &plan.document, revision: Some(self.home.revision()) };
        let outcome = match &plan.home.apply {
            None => self.writer.write_part(self.asking(), member, rewrite, false, &mut said).await,
            Some(body) => match self.apply_home(body, &plan.home.disowns, &mut said).await {
                Brought::Answered(outcome) => outcome,
                Brought::Same | Brought::Gone => Outcome::NotSent("it became another cluster".to_owned()),
            },
        };
        self.warnings.merge(&said);
        if !matches!(&outcome, Outcome::Refused { body, .. } if is_stale(body)) {
            self.writer.journal.step(entry.id, member, outcome.step()).await;
        }
        match outcome {
            Outcome::Done { code, body } => Committed::Done(code, body),
            Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(&body) => Committed::Stale,
            Outcome::Refused { code, body } => Committed::Refused(refusal(member, code, &body, NOTHING_CHANGED)),
            Outcome::NotSent(cause) => Committed::Refused(unreachable(self.key, member, cause).into()),
            Outcome::Unknown(cause) => {
                let (doing, causes) = ("changing".to_owned(), vec![format!("member {member}: {cause}")]);
                let (object, settling) = (self.key.to_ref(), Settling::IfDone);
                Committed::Unknown(WriteError::OutcomeUnknown { doing, object, causes, settling })
            }
        }
    }

    /// Writes the other parts. Says whether one is behind.
    async fn write_others(&mut self, entry: &Entry, plan: &Plan, dry_run_result: &DryRun) -> bool {
        let this: &Self = self;
        let written = join_all(self.others.iter().zip(&plan.others).zip(&dry_run_result.others).map(
            |((part, task), changes)| async move {
                let mut said = Warnings::default();
                let brought = match changes {
                    Ok(changes) if this.waits_in(part, task) && (task.apply.is_some() || !changes.is_empty()) => {
                        Brought::Answered(Outcome::NotSent("an earlier apply has not reached it yet".to_owned()))
                    }
                    Ok(changes) => this.write_other(part, task, changes, &mut said).await,
                    Err(Silent(cause)) => Brought::Answered(Outcome::NotSent(cause.clone())),
                };
                (part.clone(), brought, said)
            },
        ))
        .await;
        let mut behind = false;
        for ((part, brought, said), task) in written.into_iter().zip(&plan.others) {
            self.warnings.merge(&said);
            let step = match brought {
                Brought::Same | Brought::Gone => Step::Done { uid: None },
                Brought::Answered(outcome) => {
                    if let Outcome::Done { body, .. } = &outcome {
                        self.take_in(&part, body).await;
                    }
                    outcome.step()
                }
            };
            match self.warn_behind(&part.member, &step) {
                true => behind = true,
                // It was made without what waits there.
                false if self.waits_in(&part, task) => {}
                false => self.writer.finish_earlier(&self.earlier_in(&part.member), &part.member).await,
            }
            self.writer.journal.step(entry.id, &part.member, step).await;
        }
        behind
    }

    /// Says whether a part waits for an earlier apply.
    fn waits_in(&self, part: &Held, task: &PartTask) -> bool {
        let query = task.apply.as_ref().map(|_| self.query.as_str());
        self.earlier_in(&part.member).iter().any(|earlier| waits_for(earlier, &part.member, query))
    }

    async fn write_other(&self, part: &Held, task: &PartTask, changes: &[Change], said: &mut Warnings) -> Brought {
        let mut part = part.clone();
        let Some(body) = &task.apply else {
            return self.writer.bring(self.asking(), &mut part, changes, false, said).await.0;
        };
        if !changes.is_empty() {
            // What earlier updates have left to do there is no part of the apply.
            let manner = Manner { how: How::Patch, subresource: String::new(), managed_fields: None };
            let asking = Asking { manner: &manner, ..self.asking() };
            match self.writer.bring(asking, &mut part, changes, false, said).await.0 {
                Brought::Same | Brought::Answered(Outcome::Done { .. }) => {}
                other => return other,
            }
        }
        self.writer.apply_other(self.asking(), &mut part, body, &task.disowns, said).await
    }

    async fn apply_home(&self, body: &Value, disowns: &[Vec<String>], said: &mut Warnings) -> Brought {
        self.writer.apply_and_disown(self.asking(), &self.home, body, disowns, false, said).await
    }

    /// Brings an answer into the store. That to a `/scale` is not the object, which is read then.
    async fn take_in(&self, part: &Held, answer: &Document) {
        if self.manner.subresource != SCALE {
            return self.writer.fleet.ingest(self.key, &part.member, answer).await;
        }
        if let Ok(Some(body)) = self.writer.look(self.key, part).await {
            self.writer.fleet.ingest(self.key, &part.member, &body).await;
        }
    }

    /// Says whether a part is behind, and warns of it.
    fn warn_behind(&mut self, member: &MemberName, step: &Step) -> bool {
        let (Step::Failed(cause) | Step::Unknown(cause)) = step else { return false };
        let key = self.key;
        self.warnings.add(&format!("{key} is not changed in member {member} yet, kubefold goes on trying: {cause}"));
        true
    }

    /// Makes the parts that are missing. Says whether one is behind.
    async fn make_missing(&mut self, entry: &Entry, plan: &Plan) -> bool {
        let Some(making) = self.making(plan) else { return false };
        let mut behind = false;
        for missing in &plan.missing {
            let target = missing_target(missing);
            let mut said = Warnings::default();
            let outcome = self.writer.make(&making, &target, false, &mut said).await;
            self.warnings.merge(&said);
            if let Outcome::Done { body, .. } = &outcome {
                self.writer.fleet.ingest(self.key, &target.member, body).await;
            }
            let step = outcome.step();
            behind |= self.warn_behind(&target.member, &step);
            self.writer.journal.step(entry.id, &target.member, step).await;
        }
        behind
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

pub(super) fn missing_target(missing: &Missing) -> EntryTarget {
    EntryTarget {
        values: missing.values.clone(),
        overrides: missing.overrides.clone(),
        whole: missing.whole.clone(),
        ..EntryTarget::new(missing.member.clone(), missing.cluster_uid.clone())
    }
}
