//! One try of an update: planned, rehearsed, written to the journal, made in the home, and then in the other parts.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::{
    config::{MemberName, Overrides},
    placement::merge::Change,
    wire::{
        locate::Paths,
        splice::{ObjectEdits, splice, string},
        status::Status,
        warning::Warnings,
    },
    write::{
        Writer,
        fleet::{Document, Fleet, Key, Part, Visible},
        journal::{Entry, EntryTarget, Step, Verb},
        reply::{Reply, refusal, unknown_outcome},
        request::Request,
        steps::Outcome,
        update::{
            draft::{Plan, with_all},
            part::{Asking, Brought, Held, Manner, document, is_stale},
            settle::landed,
            shares::{self, Total, divided},
            task::{Pending, Task},
            wanted::{self, JSON_PATCH, MERGE_PATCH, Wanted, plain, stale},
        },
    },
};

/// What a refusal in the rehearsal leaves.
pub(super) const NOTHING_CHANGED: &str = " (nothing was changed)";
/// How many places a warning names at most.
const PATHS_MAX: usize = 3;

/// Why a try ended without success.
pub(super) enum Stop {
    /// With this answer.
    Told(Reply),
    /// The object changed meanwhile, and the client did not name the revision that it changes.
    Again,
}

impl From<Reply> for Stop {
    fn from(reply: Reply) -> Self {
        Self::Told(reply)
    }
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Told(status.into())
    }
}

/// One try.
pub(super) struct Work<'a, F: Fleet> {
    pub(super) writer: &'a Arc<Writer<F>>,
    pub(super) request: &'a Request,
    pub(super) key: &'a Key,
    pub(super) visible: Visible,
    /// The object as the fleet view shows it.
    pub(super) shown: Value,
    pub(super) home: Held,
    pub(super) others: Vec<Held>,
    pub(super) warnings: Warnings,
    query: String,
    manner: Manner,
    dry: bool,
    /// The status is not this write's.
    pub(super) without_status: bool,
    /// Updates of the object that are not finished everywhere.
    earlier: Vec<Entry>,
}

/// What the rehearsal showed.
struct Rehearsed {
    /// What the home will hold at each of its changes.
    holds: Vec<Option<Value>>,
    /// What is to be changed in each other part, or why that cannot be asked.
    others: Vec<Result<Vec<Change>, String>>,
    /// All documents as they will be.
    documents: Vec<(MemberName, Bytes)>,
}

/// What came of the home's write.
enum Committed {
    Done(StatusCode, Document),
    /// It has changed since it was read.
    Stale,
    Refused(Reply),
    Unknown(Reply),
}

impl<'a, F: Fleet> Work<'a, F> {
    pub(super) fn new(
        writer: &'a Arc<Writer<F>>,
        request: &'a Request,
        key: &'a Key,
        (visible, parts): (Visible, Vec<Part>),
        dry: bool,
    ) -> Result<Self, Reply> {
        let held = parts.into_iter().filter_map(|part| {
            let document = document(key, &part.json)?;
            Some(Held { member: part.member, cluster_uid: part.cluster_uid, uid: part.uid, document })
        });
        let mut held = held;
        let (Some(home), Ok(shown)) = (held.next(), serde_json::from_slice(&visible.body)) else {
            return Err(Reply::internal("a part is no object"));
        };
        let whole = request.method == Method::PUT;
        Ok(Self {
            others: held.collect(),
            shown,
            query: request.passed_query(),
            manner: Manner { whole, subresource: request.subresource.clone(), managed_fields: None },
            without_status: request.subresource.is_empty() && writer.fleet.serves(key, "status"),
            earlier: landed(writer.journal.open_updates(key, &visible.uid), &home),
            warnings: Warnings::default(),
            home,
            dry,
            writer,
            request,
            key,
            visible,
        })
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &Held> {
        std::iter::once(&self.home).chain(&self.others)
    }

    /// The open updates that a member has not made yet.
    pub(super) fn earlier_in(&self, member: &MemberName) -> Vec<Entry> {
        let waits = |entry: &&Entry| entry.key.gvr == self.key.gvr && entry.unfinished().any(|name| name == *member);
        self.earlier.iter().filter(waits).cloned().collect()
    }

    fn asking(&self) -> Asking<'_> {
        Asking {
            key: self.key,
            caller: &self.request.caller,
            user_agent: self.request.user_agent.as_deref(),
            query: &self.query,
            manner: &self.manner,
        }
    }

    /// Runs the try to its end.
    pub(super) async fn run(&mut self, hold: F::Hold) -> Result<Reply, Stop> {
        let needs_no_schema = matches!(self.request.content_type.as_str(), JSON_PATCH | MERGE_PATCH);
        let mut plan = if self.request.method == Method::PUT || needs_no_schema {
            self.plan()?
        } else {
            Box::pin(self.ask_home()).await?
        };
        let rehearsed = loop {
            match Box::pin(self.rehearse(&plan)).await? {
                Some(rehearsed) => break rehearsed,
                None => self.refresh(&mut plan).await?,
            }
        };
        if self.dry {
            self.rendered(StatusCode::OK, &rehearsed.documents).map_err(Stop::from)
        } else {
            Box::pin(self.commit(plan, rehearsed, hold)).await
        }
    }

    /// Plans what needs no schema.
    fn plan(&mut self) -> Result<Plan, Stop> {
        let wanted = wanted::read(self.request, self.key, &self.visible, &self.shown)?;
        self.manner.managed_fields.clone_from(&wanted.managed_fields);
        let total = |field: &shares::Divided| {
            let (is, was) = (wanted.after.pointer(field.pointer), self.shown.pointer(field.pointer));
            let total = shares::total(&wanted.after, *field).filter(|_| is != was)?;
            Some(Total { field: *field, total })
        };
        let totals: Vec<Total> = divided(self.key).iter().filter_map(total).collect();
        Ok(self.draft(&wanted, None, &totals))
    }

    /// Has the home say what a strategic merge patch makes of it: only a member knows the kind's schema.
    async fn ask_home(&mut self) -> Result<Plan, Stop> {
        let mut patch = wanted::object(&self.request.body)?;
        let (revision, uid) = wanted::strip(&mut patch);
        wanted::judge(self.key, &self.visible, revision.as_deref(), uid.as_deref())?;
        let mut totals = Vec::new();
        for field in divided(self.key) {
            let Some(asked) = wanted::take_at(&mut patch, field.path) else { continue };
            let asked = wanted::nested(field.path, asked);
            match shares::total(&asked, *field) {
                Some(total) => totals.push(Total { field: *field, total }),
                // It is refused in the home's own words.
                None => json_patch::merge(&mut patch, &asked),
            }
        }
        let body = self.writer.fleet.localize(self.key, &self.home.member, &Bytes::from(patch.to_string()));
        let mut said = Warnings::default();
        let content_type = &self.request.content_type;
        let outcome = self.writer.try_patch(self.asking(), &self.home.member, content_type, body, &mut said).await;
        self.warnings.merge(&said);
        let after = match outcome {
            Outcome::Done { body, .. } => document(self.key, &body),
            outcome => return Err(not_rehearsed(self.key, &self.home.member, outcome).into()),
        };
        let after = after.ok_or_else(|| Reply::internal("the home's answer is no object"))?;
        for field in divided(self.key) {
            let is_told = totals.iter().any(|total| total.field == *field);
            // A directive (`$patch: replace`) may have taken it away.
            if !is_told && after.pointer(field.pointer) != self.home.document.pointer(field.pointer) {
                totals.extend(shares::total(&after, *field).map(|total| Total { field: *field, total }));
            }
        }
        let (before, after) = (plain(self.home.document.clone()), plain(after));
        let wanted = Wanted { before, after, guarded: revision.is_some(), managed_fields: None };
        Ok(self.draft(&wanted, Some(&patch), &totals))
    }

    /// Asks every part's member for a dry run. `None`: the home has changed.
    async fn rehearse(&mut self, plan: &Plan) -> Result<Option<Rehearsed>, Stop> {
        let mut warnings = Warnings::default();
        let (asking, writer) = (self.asking(), self.writer);
        let revision = plan.guarded.then(|| self.home.revision());
        let documents = (&self.home.document, &plan.document);
        let outcome = self.writer.write_part(asking, &self.home.member, documents, revision, true, &mut warnings).await;
        let body = match outcome {
            Outcome::Done { body, .. } => body.bytes,
            Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(&body) => return Ok(None),
            outcome => return Err(not_rehearsed(self.key, &self.home.member, outcome).into()),
        };
        let after = document(self.key, &body).unwrap_or_default();
        let holds: Vec<_> = plan.home.shared.iter().map(|change| change.value_in(&after)).collect();
        let asked = join_all(self.others.iter().zip(&plan.others).map(|(part, task)| {
            let pending = Pending::of(&self.earlier_in(&part.member), &part.member);
            let changes = pending.then(&plan.home.shared, &holds, task.clone()).live(&after);
            let mut part = part.clone();
            async move {
                let mut said = Warnings::default();
                let (brought, left) = writer.bring(asking, &mut part, &changes, true, &mut said).await;
                let left: Vec<String> = left.into_iter().map(Change::path).collect();
                (part, changes, brought, left, said)
            }
        }))
        .await;
        let mut rehearsed = Rehearsed { holds, others: Vec::new(), documents: vec![(self.home.member.clone(), body)] };
        for (part, changes, brought, left, said) in asked {
            warnings.merge(&said);
            let unchanged = || Bytes::from(part.document.to_string());
            let (shown, to_do) = match brought {
                Brought::Same => (Some(unchanged()), Ok(changes)),
                Brought::Gone => (None, Ok(Vec::new())),
                Brought::Asked(Outcome::Done { body, .. }) => (Some(body.bytes), Ok(changes)),
                Brought::Asked(Outcome::NotSent(cause) | Outcome::Unknown(cause)) => (Some(unchanged()), Err(cause)),
                Brought::Asked(outcome) => return Err(not_rehearsed(self.key, &part.member, outcome).into()),
            };
            rehearsed.documents.extend(shown.map(|shown| (part.member.clone(), shown)));
            if to_do.is_ok() {
                keeps_own(&mut warnings, self.key, &part.member, &left);
            }
            rehearsed.others.push(to_do);
        }
        self.warnings.merge(&warnings);
        Ok(Some(rehearsed))
    }

    /// Reads the home anew. Where its status alone has changed, that is no conflict: the write goes on.
    async fn refresh(&mut self, plan: &mut Plan) -> Result<(), Stop> {
        let body = match self.writer.look(self.key, &self.home).await {
            Ok(Some(body)) => body,
            Ok(None) => {
                return Err(Status::not_found(&self.key.gvr.group, &self.key.gvr.resource, &self.key.name).into());
            }
            Err(cause) => return Err(unreachable(self.key, &self.home.member, &cause).into()),
        };
        let now = document(self.key, &body).ok_or_else(|| Reply::internal("the home is no object"))?;
        let bare = |document: &Value| {
            let mut document = plain(document.clone());
            if self.without_status {
                wanted::take_at(&mut document, &["status"]);
            }
            document
        };
        self.writer.fleet.ingest(self.key, &self.home.member, &body).await;
        if bare(&self.home.document) != bare(&now) {
            return Err(if plan.guarded { stale(self.key).into() } else { Stop::Again });
        }
        self.home.document = now;
        plan.document = with_all(&self.home.document, &plan.home);
        Ok(())
    }

    fn entry(&self, plan: &Plan, rehearsed: &Rehearsed) -> Entry {
        let task = Task {
            manner: self.manner.clone(),
            home: plan.home.clone(),
            holds: rehearsed.holds.clone(),
            others: plan.others.clone(),
        };
        let targets = self.parts().map(|part| EntryTarget {
            member: part.member.clone(),
            cluster_uid: part.cluster_uid.clone(),
            values: Vec::new(),
            overrides: Overrides::default(),
            own_uid: Some(part.uid.clone()),
            step: Step::Planned,
        });
        Entry {
            id: 0,
            verb: Verb::Update,
            key: self.key.clone(),
            uid: self.visible.uid.clone(),
            caller: self.request.caller.clone(),
            query: self.query.clone(),
            user_agent: self.request.user_agent.clone(),
            body: task.to_body(),
            targets: targets.collect(),
            listed: Vec::new(),
            policy: None,
            shared: false,
        }
    }

    /// Writes the home, and then the other parts.
    async fn commit(&mut self, mut plan: Plan, mut rehearsed: Rehearsed, hold: F::Hold) -> Result<Reply, Stop> {
        let entry = self.entry(&plan, &rehearsed);
        let entry = self.writer.journal.begin(entry).await.map_err(|error| Status::unavailable(error.to_string()))?;
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
                Committed::Unknown(reply) => {
                    self.writer.settle_held(entry.id, hold);
                    return Err(reply.into());
                }
            }
        };
        self.writer.fleet.ingest(self.key, &self.home.member, &body).await;
        if let Some((_, home)) = rehearsed.documents.first_mut() {
            *home = body.bytes;
        }
        let behind = self.write_others(&entry, &rehearsed).await;
        if !behind {
            self.writer.journal.finish(entry.id).await;
        }
        let shown = self.writer.fleet.release(hold).await;
        if behind {
            self.writer.settle_later(entry.id);
        }
        match shown.filter(|now| now.uid == self.visible.uid) {
            Some(now) => Ok(Reply { code, warnings: Warnings::default(), body: now.body }),
            None => self.rendered(code, &rehearsed.documents).map_err(Stop::from),
        }
    }

    async fn commit_home(&mut self, plan: &Plan, entry: &Entry) -> Committed {
        let mut said = Warnings::default();
        let (documents, revision) = ((&self.home.document, &plan.document), Some(self.home.revision()));
        let member = &self.home.member;
        let outcome = self.writer.write_part(self.asking(), member, documents, revision, false, &mut said).await;
        self.warnings.merge(&said);
        if !matches!(&outcome, Outcome::Refused { body, .. } if is_stale(body)) {
            self.writer.journal.step(entry.id, member, outcome.step()).await;
        }
        match outcome {
            Outcome::Done { code, body } => Committed::Done(code, body),
            Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(&body) => Committed::Stale,
            Outcome::Refused { code, body } => Committed::Refused(refusal(member, code, &body, NOTHING_CHANGED)),
            Outcome::NotSent(cause) => Committed::Refused(unreachable(self.key, member, &cause)),
            Outcome::Unknown(cause) => {
                let then = "it may land within 40 s; until then the name is held, then kubefold finishes it if it did: \
                            read the object before you try again";
                let what = format!("changing {}", self.key);
                Committed::Unknown(unknown_outcome(&what, self.key, &format!("member {member}: {cause}"), then))
            }
        }
    }

    /// Writes the other parts. Says whether one is behind.
    async fn write_others(&mut self, entry: &Entry, rehearsed: &Rehearsed) -> bool {
        let (asking, writer) = (self.asking(), self.writer);
        let written = join_all(self.others.iter().zip(&rehearsed.others).map(|(part, changes)| async move {
            let (mut said, mut part) = (Warnings::default(), part.clone());
            let brought = match changes {
                Ok(changes) => writer.bring(asking, &mut part, changes, false, &mut said).await.0,
                Err(cause) => Brought::Asked(Outcome::NotSent(cause.clone())),
            };
            (part.member, brought, said)
        }))
        .await;
        let mut behind = false;
        for (member, brought, said) in written {
            self.warnings.merge(&said);
            let step = match brought {
                Brought::Same | Brought::Gone => Step::Done { uid: None },
                Brought::Asked(outcome) => {
                    if let Outcome::Done { body, .. } = &outcome {
                        self.writer.fleet.ingest(self.key, &member, body).await;
                    }
                    outcome.step()
                }
            };
            match &step {
                Step::Failed(cause) | Step::Unknown(cause) => {
                    behind = true;
                    let key = self.key;
                    self.warnings
                        .add(&format!("{key} is not changed in member {member} yet, kubefold goes on trying: {cause}"));
                }
                _ => self.writer.finish_earlier(&self.earlier_in(&member), &member).await,
            }
            self.writer.journal.step(entry.id, &member, step).await;
        }
        behind
    }

    /// Documents as the fleet view would show them, with the revision that is there: a kube-apiserver's dry run answers so.
    fn rendered(&self, code: StatusCode, documents: &[(MemberName, Bytes)]) -> Result<Reply, Reply> {
        let body = self.writer.fleet.render(self.key, documents);
        let body = body.ok_or_else(|| Reply::internal("it cannot be shown"))?;
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

/// The answer where a dry run was no success.
fn not_rehearsed(key: &Key, member: &MemberName, outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Refused { code, body } => refusal(member, code, &body, NOTHING_CHANGED),
        Outcome::NotSent(cause) | Outcome::Unknown(cause) => unreachable(key, member, &cause),
        Outcome::Done { .. } => Reply::internal("a success was taken for a failure"),
    }
}

/// 503: the home decides, and it does not answer.
pub(super) fn unreachable(key: &Key, home: &MemberName, cause: &str) -> Reply {
    Status::unavailable(format!("{key} is not changed: its home, member {home}, cannot be reached: {cause}"))
        .about(&key.gvr.group, &key.gvr.resource, &key.name)
        .into()
}
