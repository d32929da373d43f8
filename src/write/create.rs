//! Create: plan, dry-run, make the other parts, and last the first-listed: that is the commit.

mod commit;
mod draft;
mod dry_run;
mod event;
mod pins;
mod stop;

use std::sync::Arc;

use http::StatusCode;

use crate::{
    answer::reply::Reply,
    config::{MemberName, OWN_NAMESPACE},
    placement::{
        divided::{Amount, Division, PARALLELISM},
        plan::{Candidate, Plan, Standing},
        policy::{Policy, Strategy, place_on},
    },
    respond::{InvalidField, WriteError},
    write::{
        APPLY_PATCH, MINTS_MAX, Writer,
        carry::{Cargo, Workload},
        create::{
            commit::commit,
            dry_run::{Behind, dry_run, held_by, members},
            stop::Stop,
        },
        fleet::{Fleet, Key, Measure},
        journal::{Entry, EntryTarget, Listed, Verb},
        names::mint,
        pinned::{self, Pinned},
        plan::asked,
        quotas::Pods,
        request::Request,
    },
};
use kubefold_serving::audit;
use kubefold_wire::warning::Warnings;

pub(super) use draft::Draft;
pub(super) use pins::{Pin, pins, refuse_what_is_no_pin};

/// Answers a `POST` of the fleet view.
pub(super) async fn create<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request) -> Reply {
    try_create(writer, request).await.unwrap_or_else(|reply| reply)
}

async fn try_create<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request) -> Result<Reply, Reply> {
    let draft = Draft::read(request, writer.fleet.rules().kinds())?;
    let notes = audit::notes();
    if let Some(notes) = &notes {
        notes.name(&draft.name);
    }
    if request.gvr.is_event() {
        return Box::pin(event::create(writer, request, &draft)).await;
    }
    if let Some((own, member)) = writer.fleet.split(&draft.name) {
        let what = Pinned { visible: &draft.name, own: &own, member: &member, marker: None };
        return pinned::create(writer, request, draft.json, what).await;
    }
    refuse_what_is_no_pin(writer, request, &draft.name)?;
    if draft.name == OWN_NAMESPACE && request.gvr.group.is_empty() && &*request.gvr.resource == "namespaces" {
        // It is none of the members'.
        let object = request.key(&draft.name).to_ref();
        return Err(WriteError::AlreadyExists { object, holders: String::new() }.into());
    }
    let dry = request.dry_run("CreateOptions")?;
    if draft.name.is_empty() && draft.base.is_empty() {
        return Err(request.invalid("", InvalidField::NameRequired).into());
    }
    let mut mints_left = if draft.name.is_empty() { MINTS_MAX } else { 1 };
    loop {
        mints_left -= 1;
        let key = request.key(&if draft.name.is_empty() { mint(&draft.base) } else { draft.name.clone() });
        if let Some(notes) = &notes {
            notes.name(&key.name);
        }
        match Box::pin(place(writer, request, &draft, key, dry)).await {
            Err(Stop { name_taken: true, .. }) if mints_left > 0 => {}
            Err(stop) => return Err(stop.reply),
            Ok(reply) => return Ok(reply),
        }
    }
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
    let Some(hold) = fleet.hold(&key).await else { return Err(WriteError::Taken(key.to_ref()).into()) };
    let asked = asked(writer, request, draft, &key, Measure::Nothing).await?;
    asked.admit(fleet, request, draft, &key)?;
    free(writer, &key).await?;
    let plan = asked.plan(draft, &key)?;
    let mut warnings = Warnings::default();
    plan.warnings.iter().for_each(|warning| warnings.add(warning));
    let mut behind = is_made_later(draft, &plan).then(|| {
        let behind = |target: &crate::placement::plan::Target| Some((target.member.clone(), target.behind.clone()?));
        plan.targets.iter().filter(|target| target.made).filter_map(behind).collect()
    });
    if behind.is_none() {
        warn_of_down(&asked.facts.candidates, &key, plan.strategy, &mut warnings);
    }
    if !dry {
        asked.make_room(writer, &key, &pods_of(draft, &plan), &mut warnings).await;
    }
    let mut entry = entry_of(request, draft, key, plan);
    entry.shared = asked.shared.is_some();
    // A policy's patch that does not go with the object is found before anybody is asked.
    for target in &entry.targets {
        writer.part_body(&entry, target).map_err(|error| request.invalid(&entry.key.name, error.into()))?;
    }
    if !entry.shared {
        is_free_later(writer, &entry, behind.as_ref())?;
    }
    let dry_run_result = dry_run(writer, &mut entry, &mut behind, &mut warnings).await?;
    let cargo = cargo(writer, request, &asked.policy, &entry, behind.as_ref()).await;
    if dry {
        cargo.announce(|warning| warnings.add(warning));
        let rendered = fleet.render(&entry.key, &dry_run_result);
        let body = rendered.ok_or_else(|| WriteError::Internal("the dry_run_result bodies are no objects"))?;
        return Ok(Reply { code: StatusCode::CREATED, warnings, body });
    }
    writer.carry(cargo, &request.caller, &mut warnings).await;
    let entry = writer.journal.begin(entry).await.map_err(|error| WriteError::Journal(error.into()))?;
    Ok(commit(writer, entry, hold, behind, warnings).await)
}

/// What the members that get a part are to get first.
async fn cargo<F: Fleet>(
    writer: &Writer<F>,
    request: &Request,
    policy: &Policy,
    entry: &Entry,
    behind: Option<&Behind>,
) -> Cargo {
    if policy.carry.is_empty() {
        return Cargo::default();
    }
    let is_behind = |member: &MemberName| behind.into_iter().flatten().any(|(name, _)| name == member);
    let members = entry.targets.iter().map(|target| &target.member).filter(|member| !is_behind(member)).cloned();
    let document = serde_json::from_str(&entry.body).unwrap_or_default();
    let (key, caller) = (&entry.key, &request.caller);
    let workload = Workload { key, document: &document, policy: Some(policy), caller, members: members.collect() };
    writer.cargo(workload).await
}

/// That nothing has the name.
async fn free<F: Fleet>(writer: &Writer<F>, key: &Key) -> Result<(), Stop> {
    if writer.fleet.visible(key).is_some() {
        let holders: Vec<String> = writer.fleet.parts(key).iter().map(|part| part.member.to_string()).collect();
        // To a fleet of one member nobody has to say where.
        let several = writer.fleet.members().len() > 1 && !holders.is_empty();
        let holds = if several { format!(" in {}", members(&holders)) } else { String::new() };
        let error = WriteError::AlreadyExists { object: key.to_ref(), holders: holds };
        return Err(Stop { reply: error.into(), name_taken: true });
    }
    let Some(earlier) = writer.journal.open_create(key) else { return Ok(()) };
    if earlier.is_committed() {
        // It was shown, and is gone: nothing is to be made of it any more.
        writer.journal.finish(earlier.id);
        return Ok(());
    }
    match earlier.targets.into_iter().next() {
        Some(home) => {
            let error = WriteError::Unsettled { object: key.to_ref(), home: home.member };
            Err(Stop { reply: error.into(), name_taken: true })
        }
        None => Ok(()),
    }
}

/// That no member that gets its part later has an object of its own under that name, as far as the store knows.
fn is_free_later<F: Fleet>(writer: &Writer<F>, entry: &Entry, behind: Option<&Behind>) -> Result<(), Stop> {
    let key = &entry.key;
    let has_own = |member: &&MemberName| writer.fleet.member_local(key, member).is_some();
    let taken: Vec<String> =
        behind.into_iter().flatten().map(|(member, _)| member).filter(has_own).map(ToString::to_string).collect();
    if taken.is_empty() {
        return Ok(());
    }
    let holders = Some(held_by(entry, &taken)).filter(|shown| !shown.is_empty());
    let holders = holders.map(|shown| format!(" ({shown})")).unwrap_or_default();
    let error = WriteError::AlreadyExists { object: key.to_ref(), holders };
    Err(Stop { reply: error.into(), name_taken: true })
}

/// How many pods a plan asks of each member at once.
fn pods_of(draft: &Draft<'_>, plan: &Plan) -> Pods {
    let whole = draft.wholes.pods_at_once();
    let made = plan.targets.iter().filter(|target| target.made && target.behind.is_none());
    let pods = made.map(|target| {
        let parallel = target.values.iter().find(|value| value.pointer == PARALLELISM.pointer);
        let own = match parallel.map(|value| &value.number) {
            Some(Amount::Number(number)) => Some(*number),
            _ => target.share(),
        };
        (target.member.clone(), own.unwrap_or(if plan.strategy == Strategy::One { whole } else { 0 }))
    });
    pods.collect()
}

/// Says whether members that are down get their parts when they are back.
fn is_made_later(draft: &Draft<'_>, plan: &Plan) -> bool {
    let goes_along = draft.wholes.division.is_some_and(Division::goes_along);
    plan.strategy == Strategy::Duplicate || (goes_along && plan.strategy == Strategy::Divide)
}

fn entry_of(request: &Request, draft: &Draft<'_>, key: Key, plan: Plan) -> Entry {
    // Without a part, a member that joins would have no limit.
    let is_quota = draft.wholes.division == Some(Division::Quota) && plan.strategy == Strategy::Divide;
    let (made, listed): (Vec<_>, Vec<_>) = plan.targets.into_iter().partition(|target| target.made);
    let target = |target: crate::placement::plan::Target| EntryTarget {
        values: target.values,
        overrides: target.overrides,
        whole: target.whole,
        ..EntryTarget::new(target.member, target.cluster_uid)
    };
    let other =
        |target: crate::placement::plan::Target| Listed { member: target.member, cluster_uid: target.cluster_uid };
    Entry {
        query: request.passed_query(),
        user_agent: request.user_agent.clone(),
        body: draft.json.to_owned(),
        targets: made.into_iter().map(target).collect(),
        listed: listed.into_iter().map(other).collect(),
        policy: plan.policy,
        place_on: draft.annotations.and_then(place_on),
        everywhere: plan.strategy == Strategy::Duplicate || is_quota,
        adopts: plan.adopts,
        applied: request.content_type == APPLY_PATCH,
        ..Entry::new(Verb::Create, key, plan.uid, request.caller.clone())
    }
}

/// Warns of members that are left out because they are down: they would have been asked.
fn warn_of_down(candidates: &[Candidate], key: &Key, strategy: Strategy, warnings: &mut Warnings) {
    let done = if strategy == Strategy::Divide { "divided" } else { "placed" };
    for candidate in candidates.iter().filter(|candidate| !candidate.absent && candidate.serves_kind) {
        if let Standing::Down(why) = &candidate.standing {
            warnings.add(&format!("member {why}; {key} is {done} without it"));
        }
    }
}
