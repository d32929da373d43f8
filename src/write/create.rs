//! Create: plan, rehearse, make the other parts, and last the first-listed: that is the commit.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    config::MemberName,
    placement::{
        divided::{REPLICAS, Wholes},
        plan::{Candidate, Order, Standing, plan},
        policy::{Policy, Strategy},
        scheduling::PodRequirements,
        stamp::inputs,
    },
    wire::{
        locate::Paths,
        status::{Reason, Status, qualified},
        warning::Warnings,
    },
    write::{
        MINTS_MAX, Writer,
        fleet::{Ask, Fleet, Key, Owner},
        journal::{Entry, EntryTarget, Step, Verb},
        names::mint,
        pinned,
        reply::{Reply, already_exists, refusal, taken, unknown_outcome, unsettled},
        request::Request,
        steps::{Outcome, Removed, Seen},
        unbuilt::not_built,
    },
};

/// What a create body says of its object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    name: Option<String>,
    generate_name: Option<String>,
    owner_references: Option<Vec<Owner>>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

/// A body that is to be divided.
struct Draft<'a> {
    json: &'a str,
    replicas: u32,
    owners: Vec<Owner>,
    pod: PodRequirements,
}

/// Why a name did not get its object. One that is taken may be minted anew.
struct Stop {
    reply: Reply,
    name_taken: bool,
}

impl From<Reply> for Stop {
    fn from(reply: Reply) -> Self {
        Self { reply, name_taken: false }
    }
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Reply::from(status).into()
    }
}

/// Answers a `POST` of the fleet view.
pub(super) async fn create<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request) -> Reply {
    try_create(writer, request).await.unwrap_or_else(|reply| reply)
}

async fn try_create<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request) -> Result<Reply, Reply> {
    let json = std::str::from_utf8(&request.body).map_err(|error| Status::bad_request(error.to_string()))?;
    let metadata = metadata(json)?;
    let name = metadata.name.clone().unwrap_or_default();
    if let Some((own, member)) = writer.fleet.split(&name) {
        return pinned::create(writer, request, json, &name, (&own, &member)).await;
    }
    refuse_what_is_no_pin(writer, request, &name)?;
    if (&*request.gvr.group, &*request.gvr.resource) != ("apps", "deployments") {
        let path = request.key("").collection();
        let what = request.gvr.qualified();
        return Err(not_built("create", &what, &path, None, &writer.fleet.members()).into());
    }
    refuse_inputs(request, &name, &metadata)?;
    let dry = request.dry_run("CreateOptions")?;
    let base = metadata.generate_name.unwrap_or_default();
    if name.is_empty() && base.is_empty() {
        return Err(invalid(request, "", "metadata.name: Required value: name or generateName is required"));
    }
    let draft = Draft {
        json,
        replicas: replicas(request, &name)?,
        owners: metadata.owner_references.unwrap_or_default(),
        pod: PodRequirements::of(&request.gvk.group, &request.gvk.kind, json)
            .map_err(|error| Status::bad_request(error.to_string()))?
            .unwrap_or_default(),
    };
    let mut mints_left = if name.is_empty() { MINTS_MAX } else { 1 };
    loop {
        mints_left -= 1;
        let key = if name.is_empty() { request.key(&mint(&base)) } else { request.key(&name) };
        match place(writer, request, &draft, key, dry).await {
            Err(Stop { name_taken: true, .. }) if mints_left > 0 => {}
            Err(stop) => return Err(stop.reply),
            Ok(reply) => return Ok(reply),
        }
    }
}

/// Reads `metadata`.
///
/// Errors: 400 where the body is not an object that has one.
fn metadata(json: &str) -> Result<Metadata<'_>, Reply> {
    let bad = |error: &dyn std::fmt::Display| {
        Reply::from(Status::bad_request(format!("the body is no object to create: {error}")))
    };
    let mut found = Vec::new();
    Paths::new([(0, ["metadata"].as_slice())]).locate(json, &mut found).map_err(|error| bad(&error))?;
    let place = found.into_iter().next().ok_or_else(|| bad(&"it has no metadata"))?;
    serde_json::from_str(json.get(place.range).unwrap_or_default()).map_err(|error| bad(&error))
}

fn refuse_what_is_no_pin<F: Fleet>(writer: &Writer<F>, request: &Request, name: &str) -> Result<(), Reply> {
    // RBAC names are paths to Kubernetes, in which an `@` is legal.
    if !name.contains('@') || &*request.gvr.group == "rbac.authorization.k8s.io" {
        return Ok(());
    }
    let known: Vec<_> = writer.fleet.members().iter().map(|member| format!("@{member}")).collect();
    let why = format!("metadata.name: Invalid value: {name:?}: an `@` only pins to a member: {}", known.join(", "));
    Err(invalid(request, name, &why))
}

/// Refuses what is asked of placement and not built yet, rather than ignoring it.
fn refuse_inputs(request: &Request, name: &str, metadata: &Metadata<'_>) -> Result<(), Reply> {
    let given = metadata.annotations.map(|map| inputs(map.get())).unwrap_or_default();
    let Some(input) = given.first() else { return Ok(()) };
    let why = format!(
        "metadata.annotations[{input}]: Forbidden: not supported yet; name the object <name>@<member> to pin it"
    );
    Err(invalid(request, name, &why))
}

/// `spec.replicas`; an unset one is the default of the whole.
fn replicas(request: &Request, name: &str) -> Result<u32, Reply> {
    let json = std::str::from_utf8(&request.body).unwrap_or_default();
    let mut found = Vec::new();
    Paths::new([(0, ["spec", "replicas"].as_slice())])
        .locate(json, &mut found)
        .map_err(|error| Status::bad_request(error.to_string()))?;
    match found.first().and_then(|place| json.get(place.range.clone())) {
        None | Some("null") => Ok(1),
        Some(raw) => match raw.parse::<i32>().ok().and_then(|number| u32::try_from(number).ok()) {
            Some(replicas) => Ok(replicas),
            None => {
                let why = format!("spec.replicas: Invalid value: {raw}: must be a number, greater than or equal to 0");
                Err(invalid(request, name, &why))
            }
        },
    }
}

fn invalid(request: &Request, name: &str, why: &str) -> Reply {
    let kind = qualified(&request.gvk.group, &request.gvk.kind);
    Status::new(StatusCode::UNPROCESSABLE_ENTITY, Reason::Invalid, format!("{kind} {name:?} is invalid: {why}"))
        .about(&request.gvr.group, &request.gvr.resource, name)
        .into()
}

/// One attempt under one name, from the hold to the answer.
async fn place<F: Fleet>(
    writer: &Arc<Writer<F>>,
    request: &Request,
    draft: &Draft<'_>,
    key: Key,
    dry: bool,
) -> Result<Reply, Stop> {
    let fleet = &writer.fleet;
    let Some(hold) = fleet.hold(&key).await else { return Err(taken(&key).into()) };
    let candidates = fleet.candidates(Ask { key: &key, owners: &draft.owners, pod: &draft.pod }).await;
    if fleet.visible(&key).is_some() {
        return Err(Stop { reply: already_exists(&key, ""), name_taken: true });
    }
    if let Some(earlier) = writer.journal.open_create(&key).and_then(|entry| entry.targets.into_iter().next()) {
        return Err(Stop { reply: unsettled(&key, &earlier.member), name_taken: true });
    }
    let uid = uuid::Uuid::new_v4().to_string();
    let wholes = Wholes { totals: vec![(REPLICAS, draft.replicas)], ..Wholes::default() };
    let (policy, pod) = (Policy::plain(Strategy::Divide), Some(&draft.pod));
    let order = Order { uid: &uid, policy: &policy, wholes: &wholes, pod, sticky: None, beside: None };
    let plan = plan(&order, &candidates).map_err(|error| {
        error.to_status(&key.gvr.group, &key.gvr.resource, &key.gvk.kind, (&key.namespace, &key.name))
    })?;
    let targets = plan.targets.into_iter().filter(|target| target.made).map(|target| EntryTarget {
        replicas: target.share(),
        member: target.member,
        cluster_uid: target.cluster_uid,
        own_uid: None,
        step: Step::Planned,
    });
    let entry = Entry {
        id: 0,
        verb: Verb::Create,
        key,
        uid,
        caller: request.caller.clone(),
        query: request.passed_query(),
        user_agent: request.user_agent.clone(),
        body: draft.json.to_owned(),
        targets: targets.collect(),
    };
    let mut warnings = without_a_share(&candidates, &entry.key);
    let rehearsed = rehearse(writer, &entry, &mut warnings).await?;
    if dry {
        let rendered = fleet.render(&entry.key, &rehearsed);
        let body = rendered.ok_or_else(|| Reply::internal("the rehearsed bodies are no objects"))?;
        return Ok(Reply { code: StatusCode::CREATED, warnings, body });
    }
    let entry = writer.journal.begin(entry).await.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(commit(writer, entry, hold, warnings).await)
}

/// Warns of members that are left out because they are down: they would have been asked.
fn without_a_share(candidates: &[Candidate], key: &Key) -> Warnings {
    let mut warnings = Warnings::default();
    for candidate in candidates.iter().filter(|candidate| !candidate.absent && candidate.serves_kind) {
        if let Standing::Down(why) = &candidate.standing {
            warnings.add(&format!("member {why}; {key} is divided without it"));
        }
    }
    warnings
}

/// Asks every target for a dry run, in parallel. Any refusal refuses the whole.
async fn rehearse<F: Fleet>(
    writer: &Writer<F>,
    entry: &Entry,
    warnings: &mut Warnings,
) -> Result<Vec<(MemberName, Bytes)>, Stop> {
    let mut bodies = Vec::new();
    for (target, outcome) in make_all(writer, entry, &entry.targets, true, warnings).await {
        let member = &target.member;
        match outcome {
            Outcome::Done { body, .. } => bodies.push((member.clone(), body.bytes)),
            Outcome::Refused { code, body } => {
                let name_taken = Seen::of(&body).reason.as_deref() == Some("AlreadyExists");
                let hint = if name_taken {
                    format!("; the fleet view shows it as {}@{member}", entry.key.name)
                } else {
                    String::new()
                };
                return Err(Stop { reply: refusal(member, code, &body, &hint), name_taken });
            }
            Outcome::NotSent(cause) | Outcome::Unknown(cause) => {
                let message = format!("member {member} gave no answer to the rehearsal, so nothing was made: {cause}");
                let key = &entry.key;
                return Err(Status::unavailable(message).about(&key.gvr.group, &key.gvr.resource, &key.name).into());
            }
        }
    }
    Ok(bodies)
}

async fn make_all<'e, F: Fleet>(
    writer: &Writer<F>,
    entry: &Entry,
    targets: &'e [EntryTarget],
    dry: bool,
    warnings: &mut Warnings,
) -> Vec<(&'e EntryTarget, Outcome)> {
    let all = join_all(targets.iter().map(|target| async move {
        let mut said = Warnings::default();
        let outcome = writer.make(entry, target, dry, &mut said).await;
        (target, outcome, said)
    }));
    let made = all.await;
    made.into_iter()
        .map(|(target, outcome, said)| {
            warnings.merge(&said);
            (target, outcome)
        })
        .collect()
}

/// Makes the parts of an entered write: the others in parallel, then the home.
async fn commit<F: Fleet>(writer: &Arc<Writer<F>>, entry: Entry, hold: F::Hold, mut warnings: Warnings) -> Reply {
    let Some((home, others)) = entry.targets.split_first() else { return Reply::internal("a plan without targets") };
    let mut made = make_all(writer, &entry, others, false, &mut warnings).await;
    for (target, outcome) in &made {
        writer.journal.step(entry.id, &target.member, outcome.step()).await;
    }
    if made.iter().all(|(_, outcome)| matches!(outcome, Outcome::Done { .. })) {
        let outcome = writer.make(&entry, home, false, &mut warnings).await;
        writer.journal.step(entry.id, &home.member, outcome.step()).await;
        made.push((home, outcome));
    }
    let unknown = made.iter().filter_map(|(target, outcome)| match outcome {
        Outcome::Unknown(cause) => Some(format!("member {}: {cause}", target.member)),
        Outcome::Done { .. } | Outcome::Refused { .. } | Outcome::NotSent(_) => None,
    });
    let unknown: Vec<_> = unknown.collect();
    if !unknown.is_empty() {
        let what = format!("creating {}", entry.key);
        let then = "it may land within 40 s; until then the name is held, then kubefold finishes it or takes it back: \
                    read the object before you try again";
        let reply = unknown_outcome(&what, &entry.key, &unknown.join("; "), then);
        writer.settle_held(entry.id, hold);
        return reply.warned(warnings);
    }
    let failed = made.iter().find(|(_, outcome)| !matches!(outcome, Outcome::Done { .. }));
    if let Some((target, outcome)) = failed {
        let (closed, told) = take_back(writer, &entry, &made).await;
        if closed {
            writer.journal.finish(entry.id).await;
            writer.fleet.release(hold).await;
        } else {
            writer.fleet.release(hold).await;
            writer.settle_later(entry.id);
        }
        return failure(&entry.key, &target.member, outcome, &told).warned(warnings);
    }
    let bodies: Vec<_> = made
        .iter()
        .rev()
        .filter_map(|(target, outcome)| match outcome {
            Outcome::Done { body, .. } => Some((target.member.clone(), body.clone())),
            Outcome::Refused { .. } | Outcome::NotSent(_) | Outcome::Unknown(_) => None,
        })
        .collect();
    for (member, body) in &bodies {
        writer.fleet.ingest(&entry.key, member, body).await;
    }
    let bodies: Vec<_> = bodies.into_iter().map(|(member, body)| (member, body.bytes)).collect();
    writer.journal.finish(entry.id).await;
    let shown = writer.fleet.release(hold).await;
    let stored = shown.filter(|visible| visible.uid == entry.uid).map(|visible| visible.body);
    match stored.or_else(|| writer.fleet.render(&entry.key, &bodies)) {
        Some(body) => Reply { code: StatusCode::CREATED, warnings, body },
        None => Reply::internal("it is created, but cannot be shown").warned(warnings),
    }
}

/// Takes back what was made before a failure. Says whether nothing is left to do, and what happened where.
async fn take_back<F: Fleet>(writer: &Writer<F>, entry: &Entry, made: &[(&EntryTarget, Outcome)]) -> (bool, String) {
    let undone = join_all(made.iter().filter_map(|(target, outcome)| {
        let Outcome::Done { body, .. } = outcome else { return None };
        let uid = Seen::of(body).uid;
        Some(async move {
            let removed = match uid {
                Some(uid) => writer.undo(entry, target, &uid).await,
                None => Removed::Left("its answer has no UID".to_owned()),
            };
            (target, removed)
        })
    }))
    .await;
    let (mut closed, mut told) = (true, Vec::new());
    for (target, removed) in undone {
        let member = &target.member;
        match removed {
            Removed::Gone => told.push(format!("member {member}: removed again")),
            Removed::Requested => told.push(format!("member {member}: deletion requested, a finalizer holds it")),
            Removed::Left(cause) => {
                closed = false;
                told.push(format!("member {member}: not removed yet, kubefold goes on trying: {cause}"));
                continue;
            }
        }
        writer.journal.step(entry.id, member, Step::Undone).await;
    }
    let told = if told.is_empty() { "nothing was made".to_owned() } else { told.join("; ") };
    (closed, format!(" ({told})"))
}

fn failure(key: &Key, member: &MemberName, outcome: &Outcome, told: &str) -> Reply {
    match outcome {
        Outcome::Refused { code, body } => refusal(member, *code, body, told),
        Outcome::NotSent(cause) | Outcome::Unknown(cause) => {
            Status::unavailable(format!("{key} is not created: member {member} could not be reached: {cause}{told}"))
                .about(&key.gvr.group, &key.gvr.resource, &key.name)
                .into()
        }
        Outcome::Done { .. } => Reply::internal("a success was taken for a failure"),
    }
}
