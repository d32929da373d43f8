//! PUT and PATCH of a folded object, or of its `/status`, `/finalize` and the like: whatever answers with the object.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::{
    config::MemberName,
    placement::{
        fold::FoldKind,
        merge::{Change, Step as At, Take, What, difference},
    },
    wire::{
        splice::{ObjectEdits, splice, string},
        status::Status,
        warning::Warnings,
    },
    write::{
        Writer,
        fleet::{Fleet, Key, Visible},
        journal::{Entry, EntryTarget, Step, Verb},
        reply::{Reply, refusal, taken, unknown_outcome, unsettled},
        request::Request,
        steps::Outcome,
        update::{
            part::{Asking, Brought, Held, Manner, changed, document, is_stale},
            shares::{self, Total, divided},
            task::{PartTask, Pending, Task},
            wanted::{self, JSON_PATCH, MERGE_PATCH, Wanted, meant, plain, stale},
        },
    },
};

/// How often a write that names no revision begins anew because the object changed meanwhile, as in a kube-apiserver.
///
/// Source: kubernetes/apiserver `pkg/endpoints/handlers/patch.go` `MaxRetryWhenPatchConflicts`.
const TRIES_MAX: u32 = 5;

/// How many places a warning names at most.
const PATHS_MAX: usize = 3;

/// Why a try ended.
pub(super) enum Stop {
    /// With this answer.
    Told(Reply),
    /// The object changed meanwhile.
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

/// Answers a `PUT` or `PATCH`.
pub(super) async fn write<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, key: &Key) -> Result<Reply, Reply> {
    let options = if request.method == Method::PUT { "UpdateOptions" } else { "PatchOptions" };
    let dry = request.dry_run(options)?;
    for _ in 0..TRIES_MAX {
        let Some(hold) = writer.fleet.hold(key).await else { return Err(taken(key)) };
        let Some((visible, parts)) = writer.fleet.whole(&hold, key) else { return Err(missing(writer, key)) };
        let mut work = Work::new(writer, request, key, visible, &parts, dry)?;
        match Box::pin(work.run(hold)).await {
            Ok(reply) | Err(Stop::Told(reply)) => return Ok(reply.warned_too(work.warnings)),
            Err(Stop::Again) => {}
        }
    }
    Err(stale(key))
}

/// 404, or 503 while a create of that name is not settled.
pub(super) fn missing<F: Fleet>(writer: &Writer<F>, key: &Key) -> Reply {
    match writer.journal.open_create(key).and_then(|entry| entry.targets.into_iter().next()) {
        Some(earlier) => unsettled(key, &earlier.member),
        None => Status::not_found(&key.gvr.group, &key.gvr.resource, &key.name).into(),
    }
}

/// One try.
struct Work<'a, F: Fleet> {
    writer: &'a Arc<Writer<F>>,
    request: &'a Request,
    key: &'a Key,
    visible: Visible,
    /// The object as the fleet view shows it.
    shown: Value,
    /// Home first.
    parts: Vec<Held>,
    query: String,
    dry: bool,
    manner: Manner,
    /// The status is not this write's.
    without_status: bool,
    /// Updates of the object that are not finished everywhere.
    earlier: Vec<Entry>,
    warnings: Warnings,
}

/// What the write means for each part.
struct Plan {
    /// The home's document, with all changes made.
    home: Value,
    /// The home's changes, its share apart.
    changes: Vec<Change>,
    parts: Vec<PartTask>,
    guarded: bool,
}

/// What the rehearsal showed.
struct Rehearsed {
    /// The home, as it will be.
    home: Bytes,
    /// The other parts: what is to be changed in each, or why it cannot be asked.
    others: Vec<Result<Vec<Change>, String>>,
    /// All documents as they will be, for a dry run.
    documents: Vec<(MemberName, Bytes)>,
}

impl<'a, F: Fleet> Work<'a, F> {
    fn new(
        writer: &'a Arc<Writer<F>>,
        request: &'a Request,
        key: &'a Key,
        visible: Visible,
        parts: &[crate::write::fleet::Part],
        dry: bool,
    ) -> Result<Self, Reply> {
        let held = parts.iter().map(|part| {
            let (member, cluster_uid, uid) = (part.member.clone(), part.cluster_uid.clone(), part.uid.clone());
            Some(Held { member, cluster_uid, uid, document: document(key, &part.json)? })
        });
        let unreadable = || Reply::internal("a part is no object");
        let parts: Vec<Held> = held.collect::<Option<_>>().filter(|parts: &Vec<_>| !parts.is_empty()).ok_or_else(unreadable)?;
        let shown = serde_json::from_slice(&visible.body).map_err(|_| unreadable())?;
        let earlier = writer.journal.open_updates(key, &visible.uid);
        Ok(Self {
            writer,
            request,
            key,
            shown,
            visible,
            parts,
            query: request.passed_query(),
            dry,
            manner: Manner {
                whole: request.method == Method::PUT,
                subresource: request.subresource.clone(),
                managed_fields: None,
            },
            without_status: request.subresource.is_empty() && writer.fleet.serves(key, "status"),
            earlier,
            warnings: Warnings::default(),
        })
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

    async fn run(&mut self, hold: F::Hold) -> Result<Reply, Stop> {
        let plan = match self.request.content_type.as_str() {
            _ if self.request.method == Method::PUT => self.plan()?,
            JSON_PATCH | MERGE_PATCH => self.plan()?,
            _ => self.ask_home().await?,
        };
        let mut plan = plan;
        let rehearsed = loop {
            match self.rehearse(&plan).await? {
                Some(rehearsed) => break rehearsed,
                None => self.refresh(&mut plan).await?,
            }
        };
        if self.dry {
            return Ok(self.rendered(&rehearsed.documents));
        }
        self.commit(plan, rehearsed, hold).await
    }

    /// Plans what needs no schema.
    fn plan(&mut self) -> Result<Plan, Stop> {
        let wanted = wanted::read(self.request, self.key, &self.visible, &self.shown)?;
        self.manner.managed_fields.clone_from(&wanted.managed_fields);
        let shown = self.shown.clone();
        let total = |field: &shares::Divided| {
            let (is, was) = (wanted.after.pointer(field.pointer), shown.pointer(field.pointer));
            (is != was).then(|| shares::total(&wanted.after, *field)).flatten().map(|total| Total { field: *field, total })
        };
        let totals: Vec<Total> = divided(self.key).iter().filter_map(total).collect();
        Ok(self.draft(&wanted, None, &totals))
    }

    /// Has the home say what a strategic merge patch makes of it: only a member knows the kind's schema.
    async fn ask_home(&mut self) -> Result<Plan, Stop> {
        let mut patch = wanted::object(&self.request.body)?;
        let text = |patch: &Value, field: &str| {
            let value = patch.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
            value.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let (revision, uid) = (text(&patch, "resourceVersion"), text(&patch, "uid"));
        wanted::judge(self.key, &self.visible, revision.as_deref(), uid.as_deref())?;
        wanted::strip(&mut patch);
        let mut totals = Vec::new();
        for field in divided(self.key) {
            if let Some(total) = wanted::take_field(&mut patch, field.path) {
                let as_document = wanted::nested(field.path, total.clone());
                match shares::total(&as_document, *field) {
                    Some(total) => totals.push(Total { field: *field, total }),
                    // It is refused in the home's own words.
                    None => json_patch::merge(&mut patch, &as_document),
                }
            }
        }
        let Some(home) = self.parts.first() else { return Err(Reply::internal("no home").into()) };
        let body = self.writer.fleet.localize(self.key, &home.member, &Bytes::from(patch.to_string()));
        let outcome = self.writer.patch_home(self.asking(), home, &self.request.content_type, body, &mut self.warnings).await;
        let after = match outcome {
            Outcome::Done { body, .. } => document(self.key, &body).ok_or_else(|| Reply::internal("the home's answer is no object"))?,
            Outcome::Refused { code, body } => return Err(refusal(&home.member, code, &body, NOTHING_CHANGED).into()),
            Outcome::NotSent(cause) | Outcome::Unknown(cause) => return Err(unreachable(self.key, &home.member, &cause).into()),
        };
        for field in divided(self.key) {
            let (is, was) = (after.pointer(field.pointer), home.document.pointer(field.pointer));
            if is != was && !totals.iter().any(|total| total.field == *field) {
                totals.extend(shares::total(&after, *field).map(|total| Total { field: *field, total }));
            }
        }
        let wanted = Wanted {
            before: plain(home.document.clone()),
            after: plain(after),
            guarded: revision.is_some(),
            managed_fields: None,
        };
        Ok(self.draft(&wanted, Some(&patch), &totals))
    }

    /// Says what each part is to become.
    fn draft(&self, wanted: &Wanted, patch: Option<&Value>, totals: &[Total]) -> Plan {
        let shares = self.shares(totals);
        let mut all = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            let local = |document: &Value| {
                let local = self.writer.fleet.localize(self.key, &part.member, &Bytes::from(document.to_string()));
                serde_json::from_slice(&local).unwrap_or_else(|_| document.clone())
            };
            let (before, after): (Value, Value) = (local(&wanted.before), local(&wanted.after));
            let mut changes = match patch {
                Some(patch) => meant(self.key, patch, &before, &after),
                None => difference(&before, &after),
            };
            changes.retain(|change| {
                let status = change.is_within(&["status"]);
                !(status && self.without_status)
                    && !totals.iter().any(|total| change.is_within(total.field.path))
                    && !(patch.is_some() && divided(self.key).iter().any(|field| change.is_within(field.path)))
            });
            let own = shares.get(at).cloned().unwrap_or_default();
            all.push(PartTask { shared: changes, own });
        }
        let Some((home, others)) = all.split_first_mut() else {
            return Plan { home: Value::Null, changes: Vec::new(), parts: all, guarded: wanted.guarded };
        };
        let counts = |change: &Change| self.is_counter(change, &wanted.before, &wanted.after);
        // Counters go to the home alone. A change stands at the same place in all lists: elsewhere it says nothing.
        for (at, change) in home.shared.iter_mut().enumerate().filter(|(_, change)| counts(change)) {
            for other in others.iter_mut() {
                if let Some(change) = other.shared.get_mut(at) {
                    change.what = What::Value { old: None, new: None };
                }
            }
            self.shift(change);
        }
        let changes = home.shared.clone();
        let home_document = self.with_all(&changes, &home.own);
        Plan { home: home_document, changes, parts: all, guarded: wanted.guarded }
    }

    fn with_all(&self, changes: &[Change], own: &[Change]) -> Value {
        let Some(home) = self.parts.first() else { return Value::Null };
        let all: Vec<Change> = changes.iter().chain(own).cloned().collect();
        changed(&home.document, &all, Take::Always).0
    }

    /// Says whether a change is one of a number that the fold sums over the parts.
    fn is_counter(&self, change: &Change, before: &Value, after: &Value) -> bool {
        let [At::Field(status), At::Field(name)] = change.at.as_slice() else { return false };
        let number = |document: &Value| look_number(document, status, name);
        let summed = FoldKind::of(&self.key.gvr.group, &self.key.gvr.resource) != FoldKind::Other;
        status == "status" && (summed || name == "observedGeneration") && number(before).or(number(after)).is_some()
    }

    /// Has the home take what a sum has become by the difference.
    fn shift(&self, change: &mut Change) {
        let Some(home) = self.parts.first() else { return };
        let held = change.value_in(&home.document);
        let What::Value { old, new } = &mut change.what else { return };
        let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_i64).unwrap_or(0);
        let shifted = number(&held).saturating_add(number(new)).saturating_sub(number(old));
        *new = Some(shifted.into());
        *old = held;
    }

    /// The parts' shares of new totals.
    fn shares(&self, totals: &[Total]) -> Vec<Vec<Change>> {
        let mut all = vec![Vec::new(); self.parts.len()];
        for total in totals {
            let now = self.parts.iter().map(|part| {
                let mut document = part.document.clone();
                // What a part is behind with counts as if it were so.
                let waiting = Pending::of(&self.earlier_in(&part.member), &part.member).shares();
                crate::placement::merge::take(&waiting, Take::WhereOld, &mut document);
                (&part.member, self.writer.fleet.weight(&part.member), shares::total(&document, total.field).unwrap_or(0))
            });
            let now: Vec<_> = now.collect();
            for (own, change) in all.iter_mut().zip(shares::changes(*total, &now, &self.visible.uid)) {
                own.extend(change);
            }
        }
        all
    }

    /// The open updates that a member has not made yet.
    fn earlier_in(&self, member: &MemberName) -> Vec<Entry> {
        let waits = |entry: &&Entry| entry.key.gvr == self.key.gvr && entry.unfinished().any(|name| name == *member);
        self.earlier.iter().filter(waits).cloned().collect()
    }

    /// Asks every part's member for a dry run. `None`: the home has changed.
    async fn rehearse(&mut self, plan: &Plan) -> Result<Option<Rehearsed>, Stop> {
        let Some((home, others)) = self.parts.split_first() else { return Err(Reply::internal("no home").into()) };
        let mut warnings = Warnings::default();
        let asking = self.asking();
        let revision = plan.guarded.then(|| home.revision());
        let documents = (&home.document, &plan.home);
        let outcome = self.writer.write_part(asking, &home.member, documents, revision, true, &mut warnings).await;
        let home_after = match outcome {
            Outcome::Done { body, .. } => body.bytes,
            Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(&body) => return Ok(None),
            Outcome::Refused { code, body } => return Err(refusal(&home.member, code, &body, NOTHING_CHANGED).into()),
            Outcome::NotSent(cause) | Outcome::Unknown(cause) => return Err(unreachable(self.key, &home.member, &cause).into()),
        };
        let after = document(self.key, &home_after).unwrap_or_default();
        let holds: Vec<_> = plan.changes.iter().map(|change| change.value_in(&after)).collect();
        let asked = join_all(others.iter().zip(plan.parts.iter().skip(1)).map(|(part, task)| {
            let pending = Pending::of(&self.earlier_in(&part.member), &part.member);
            let changes = pending.then(&plan.changes, &holds, task.clone()).live(&after);
            let mut part = part.clone();
            async move {
                let mut said = Warnings::default();
                let (brought, left) = self.writer.bring(asking, &mut part, &changes, true, &mut said).await;
                let left: Vec<String> = left.into_iter().map(Change::path).collect();
                (part, changes, brought, left, said)
            }
        }))
        .await;
        let mut rehearsed = Rehearsed {
            documents: vec![(home.member.clone(), home_after.clone())],
            home: home_after,
            others: Vec::new(),
        };
        for (part, changes, brought, left, said) in asked {
            warnings.merge(&said);
            let json = |document: &Value| Bytes::from(document.to_string());
            match brought {
                Brought::Same => rehearsed.documents.push((part.member.clone(), json(&part.document))),
                Brought::Gone => {}
                Brought::Asked(Outcome::Done { body, .. }) => rehearsed.documents.push((part.member.clone(), body.bytes)),
                Brought::Asked(Outcome::Refused { code, body }) => {
                    return Err(refusal(&part.member, code, &body, NOTHING_CHANGED).into());
                }
                Brought::Asked(Outcome::NotSent(cause) | Outcome::Unknown(cause)) => {
                    rehearsed.documents.push((part.member.clone(), json(&part.document)));
                    rehearsed.others.push(Err(cause));
                    continue;
                }
            }
            keeps_own(&mut warnings, self.key, &part.member, &left);
            rehearsed.others.push(Ok(changes));
        }
        self.warnings.merge(&warnings);
        Ok(Some(rehearsed))
    }

    /// Reads the home anew. One whose status alone has changed goes on as if nothing were.
    async fn refresh(&mut self, plan: &mut Plan) -> Result<(), Stop> {
        let Some(home) = self.parts.first() else { return Err(Reply::internal("no home").into()) };
        let body = match self.writer.look(self.key, home).await {
            Ok(Some(body)) => body,
            Ok(None) => return Err(self.gone().into()),
            Err(cause) => return Err(unreachable(self.key, &home.member, &cause).into()),
        };
        let now = document(self.key, &body).ok_or_else(|| Reply::internal("the home is no object"))?;
        let bare = |document: &Value| {
            let mut document = plain(document.clone());
            if self.without_status {
                wanted::remove(&mut document, "status");
            }
            document
        };
        self.writer.fleet.ingest(self.key, &home.member, &body).await;
        if bare(&home.document) != bare(&now) {
            return Err(if plan.guarded { stale(self.key).into() } else { Stop::Again });
        }
        if let Some(home) = self.parts.first_mut() {
            home.document = now;
        }
        let own = plan.parts.first().map(|home| home.own.clone()).unwrap_or_default();
        plan.home = self.with_all(&plan.changes, &own);
        Ok(())
    }

    fn gone(&self) -> Reply {
        Status::not_found(&self.key.gvr.group, &self.key.gvr.resource, &self.key.name).into()
    }

    fn entry(&self, plan: &Plan, rehearsed: &Rehearsed) -> Entry {
        let after = document(self.key, &rehearsed.home).unwrap_or_default();
        let task = Task {
            manner: self.manner.clone(),
            home: plan.changes.clone(),
            holds: plan.changes.iter().map(|change| change.value_in(&after)).collect(),
            parts: plan.parts.clone(),
        };
        let targets = self.parts.iter().map(|part| EntryTarget {
            member: part.member.clone(),
            cluster_uid: part.cluster_uid.clone(),
            replicas: None,
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
        }
    }

    /// Writes the home, and then the other parts.
    async fn commit(&mut self, mut plan: Plan, rehearsed: Rehearsed, hold: F::Hold) -> Result<Reply, Stop> {
        let entry = self.entry(&plan, &rehearsed);
        let journal = &self.writer.journal;
        let entry = journal.begin(entry).await.map_err(|error| Status::unavailable(error.to_string()))?;
        let (code, body) = loop {
            match self.commit_home(&plan, &entry).await {
                Ok(Some(done)) => break done,
                Ok(None) => {
                    if let Err(stop) = self.refresh(&mut plan).await {
                        self.writer.journal.finish(entry.id).await;
                        return Err(stop);
                    }
                }
                Err(HomeStop::Refused(reply)) => {
                    self.writer.journal.finish(entry.id).await;
                    return Err(reply.into());
                }
                Err(HomeStop::Unknown(reply)) => {
                    self.writer.settle_held(entry.id, hold);
                    return Err(reply.into());
                }
            }
        };
        let mut documents = vec![(self.home().clone(), body.bytes.clone())];
        self.writer.fleet.ingest(self.key, &entry.targets.first().map_or_else(|| self.home().clone(), |home| home.member.clone()), &body).await;
        let behind = self.write_others(&entry, rehearsed, &mut documents).await;
        if behind {
            // Its open entry is what *behind* means.
        } else {
            self.writer.journal.finish(entry.id).await;
        }
        let shown = self.writer.fleet.release(hold).await;
        if behind {
            self.writer.settle_later(entry.id);
        }
        let body = shown.filter(|now| now.uid == self.visible.uid).map(|now| now.body);
        Ok(match body {
            Some(body) => Reply { code, warnings: Warnings::default(), body },
            None => Reply { code, ..self.rendered(&documents) },
        })
    }

    fn home(&self) -> &MemberName {
        // There is one: `new` made sure.
        static NOBODY: std::sync::LazyLock<MemberName> = std::sync::LazyLock::new(MemberName::default);
        self.parts.first().map_or(&NOBODY, |home| &home.member)
    }
}
