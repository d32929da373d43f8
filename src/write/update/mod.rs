//! PUT and PATCH of folded objects, placed or shared, and of their subresources.
//!
//! The change is planned on what the fleet view shows, dry-run in every part, written to the journal, made in the home,
//! and then in the other parts: each value only where a part still holds the old one.

mod amend;
mod apply;
mod commit;
mod companion;
mod desired;

mod draft;
mod dry_run;
mod nodes;
mod overrider;
mod own;
mod owners;
mod part;
mod planned;
mod quota;
mod scale;
mod settle;
mod shares;
mod status;
mod string_data;
mod supersede;
mod task;
mod turns;
mod united;
mod work;

pub use desired::APPLY_PATCH;
pub(super) use {
    desired::{MERGE_PATCH, plain},
    part::{SCALE, is_stale, note},
    quota::is_quota,
    task::renamed_task,
    work::Aim,
};

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Map, Value};
use tokio::time::sleep;

use crate::{
    answer::{
        reply::{Reply, named},
        unbuilt::not_built,
    },
    config::MemberName,
    placement::divided::Division,
    respond::{InvalidField, NotBuilt, WriteError},
    write::{
        Writer,
        create::create,
        evict::guard,
        fleet::{Fleet, Key, Owner, Part, Visible},
        forward::{forward_home, paired},
        request::{Request, with_dry_run},
        update::work::{Stop, Work},
    },
};
use kubefold_wire::warning::Warnings;

/// How often a write that names no revision begins anew because the object changed meanwhile, as in a kube-apiserver.
///
/// Source: kubernetes/apiserver `pkg/endpoints/handlers/patch.go` `MaxRetryWhenPatchConflicts`.
const TRIES_MAX: u32 = 5;

/// How many steps there are at most until all shares are where they are to be, those included in which nothing can be done
/// yet: a member's controller has to take in what its part says.
const STEPS_MAX: u32 = 20;
/// The pause after a step in which nothing could be done.
const STEP_PAUSE: Duration = Duration::from_millis(150);

/// What a part that is missing is made of: a shown object without what kubefold and the members write in it.
pub(super) fn body_of_missing(shown: Value) -> String {
    draft::template(plain(shown))
}

/// Answers a write.
pub(super) async fn update<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, name: &str) -> Reply {
    let key = request.key(name);
    let documents = ["", "status", "finalize", "approval", "ephemeralcontainers", "resize"];
    let takes_documents = documents.contains(&request.subresource.as_str());
    let scales = request.subresource == SCALE && writer.division(&key).and_then(Division::scaled).is_some();
    let writes = matches!(request.method, Method::PUT | Method::PATCH);
    if request.method == Method::GET && scales {
        return read_scale(writer, request, &key).await.unwrap_or_else(|reply| reply);
    }
    if writes && (takes_documents || scales) {
        return document(writer, request, &key, &Aim::default()).await.unwrap_or_else(|reply| reply);
    }
    if OF_HOME.contains(&request.subresource.as_str()) {
        return of_home(writer, request, &key).await.unwrap_or_else(|reply| reply);
    }
    refused(writer, request, &key).into()
}

/// Places a companion anew: a change of nothing, in which each part gets its share as it is by now. `None`: all have it.
pub(super) async fn replace<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request) -> Option<Reply> {
    let key = request.key(&request.name);
    if is_quota(&key) {
        return redivide(writer, request, &Aim::default()).await;
    }
    let (visible, parts) = (writer.fleet.visible(&key)?, writer.fleet.parts(&key));
    let shares = match Work::new(writer, request, &key, visible, parts) {
        Ok(work) => work.companion_shares(&work.shown, &[]).await?,
        Err(error) => return Some(error.into()),
    };
    let is_same = shares.missing.is_empty() && shares.tasks.iter().all(|task| task.own.is_empty());
    if is_same {
        return None;
    }
    Some(document(writer, request, &key, &Aim::default()).await.unwrap_or_else(|reply| reply))
}

/// Divides a quota again, step by step. Gives the last answer; `None`: there was nothing to change, or nothing is divided of
/// it.
pub(in crate::write) async fn redivide<F: Fleet>(
    writer: &Arc<Writer<F>>,
    request: &Request,
    aim: &Aim,
) -> Option<Reply> {
    let key = request.key(&request.name);
    let mut last = None;
    for _ in 0..STEPS_MAX {
        let Some(visible) = writer.fleet.visible(&key) else { return last };
        let work = match Work::new(writer, request, &key, visible, writer.fleet.parts(&key)) {
            Ok(work) => work.aiming(aim.clone()),
            Err(error) => return Some(error.into()),
        };
        let Some((shares, is_whole)) = work.quota_step().await else { return last };
        let is_same = shares.tasks.iter().all(|task| task.own.is_empty());
        drop(work);
        if is_same && is_whole {
            return last;
        }
        if is_same {
            sleep(STEP_PAUSE).await;
            continue;
        }
        let reply = document(writer, request, &key, aim).await.unwrap_or_else(|reply| reply);
        if !reply.code.is_success() {
            return Some(reply);
        }
        last = Some(reply);
    }
    last
}

/// Subresources that are one member's affair, of which most answer with something else than the object.
const OF_HOME: [&str; 4] = ["binding", "eviction", SCALE, "token"];

/// Passes a request to a subresource on to the home, which has the only part; of a token it is no matter how many there are.
async fn of_home<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, key: &Key) -> Result<Reply, Reply> {
    let fleet = &writer.fleet;
    let is_token = request.subresource == "token";
    let whole = if is_token {
        fleet.visible(key).map(|visible| (visible, fleet.parts(key)))
    } else {
        paired(fleet, key).await?
    };
    let (visible, parts) = whole.ok_or_else(|| missing(writer, key))?;
    let at = match request.subresource.as_str() {
        "token" => bound_in(writer, request, key).await,
        _ if parts.len() < 2 => Vec::new(),
        "eviction" => return Box::pin(evict_all(writer, request, key, visible, parts)).await,
        "binding" => vec![node_of(writer, request, key)?],
        // Each part has the value that the home has, as long as nobody scales one alone.
        _ if request.method == Method::GET => Vec::new(),
        _ => return Err(refused(writer, request, key).into()),
    };
    // Until the eviction was answered.
    let _held = guard(writer, request, parts.first().map(|part| &*part.json)).await?;
    let place = parts.iter().position(|part| at.contains(&part.member)).unwrap_or(0);
    let home = parts.into_iter().nth(place).ok_or_else(|| missing(writer, key))?;
    Ok(Box::pin(forward_home(fleet, request, key, visible, home)).await)
}

/// Evicts every part, or none: all are asked for a dry run first.
async fn evict_all<F: Fleet>(
    writer: &Writer<F>,
    request: &Request,
    key: &Key,
    visible: Visible,
    parts: Vec<Part>,
) -> Result<Reply, Reply> {
    let dry = request.dry_run("CreateOptions")?;
    let dry_run = Request { query: with_dry_run(&request.query), ..request.clone() };
    let ask = async |request: &Request, part: &Part, told: &str| {
        let reply = forward_home(&writer.fleet, request, key, visible.clone(), part.clone()).await;
        let is_refusal = !reply.code.is_success();
        let body = named(&reply.body, &part.member, told).filter(|_| is_refusal);
        let reply = Reply { body: body.unwrap_or_else(|| reply.body.clone()), ..reply };
        if is_refusal { Err(reply) } else { Ok(reply) }
    };
    let (mut last, mut warnings) = (None, Warnings::default());
    for part in parts.iter().filter(|_| !dry) {
        ask(&dry_run, part, "nothing was evicted").await?;
    }
    let mut evicted = Vec::new();
    for part in &parts {
        let done = if evicted.is_empty() {
            "nothing was evicted".to_owned()
        } else {
            format!("evicted already: {}", evicted.join(", "))
        };
        let reply = ask(request, part, &done).await?;
        warnings.merge(&reply.warnings);
        evicted.push(part.member.to_string());
        last = Some(reply);
    }
    let reply = last.ok_or_else(|| missing(writer, key))?;
    Ok(reply.warned(warnings))
}

/// The member of the node that a pod is to be bound to: that of its parts which is there is meant.
fn node_of<F: Fleet>(writer: &Writer<F>, request: &Request, key: &Key) -> Result<MemberName, WriteError> {
    let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let node = asked.pointer("/target/name").and_then(Value::as_str).unwrap_or_default();
    let member = writer.fleet.split(node).map(|(_, member)| member);
    let member = member.filter(|member| writer.fleet.parts(key).iter().any(|part| part.member == *member));
    member.ok_or_else(|| request.invalid(&key.name, InvalidField::NodeUnnamed(node.to_owned())))
}

/// The members that hold what a token is to be bound to: it is good where that is.
async fn bound_in<F: Fleet>(writer: &Writer<F>, request: &Request, key: &Key) -> Vec<MemberName> {
    let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let bound = asked.pointer("/spec/boundObjectRef").cloned().unwrap_or_default();
    match serde_json::from_value::<Owner>(bound) {
        Ok(bound) if !bound.name.is_empty() => writer.fleet.holders(&key.namespace, &bound).await,
        _ => Vec::new(),
    }
}

fn refused<F: Fleet>(writer: &Writer<F>, request: &Request, key: &Key) -> NotBuilt {
    let mut what = request.gvr.qualified();
    if !request.subresource.is_empty() {
        what = format!("{what}/{}", request.subresource);
    }
    not_built(request.method.as_str(), &what, key.object().as_str(), None::<&MemberName>, &writer.fleet.members())
}

async fn read_scale<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, key: &Key) -> Result<Reply, Reply> {
    let visible = writer.fleet.visible(key).ok_or_else(|| missing(writer, key))?;
    Work::new(writer, request, key, visible, writer.fleet.parts(key))?.read_scale().await
}

/// Writes whatever answers with the object. `aim` is what the shares of a quota are to come to.
async fn document<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, key: &Key, aim: &Aim) -> Result<Reply, Reply> {
    let options = if request.method == Method::PUT { "UpdateOptions" } else { "PatchOptions" };
    let dry = request.dry_run(options)?;
    for _ in 0..TRIES_MAX {
        let Some(hold) = writer.fleet.hold(key).await else { return Err(WriteError::Taken(key.to_ref()).into()) };
        let Some((visible, parts)) = writer.fleet.whole(&hold, key) else {
            drop(hold);
            if !makes(request) {
                return Err(missing(writer, key).into());
            }
            let reply = if request.method == Method::PUT {
                put_new(writer, request, key).await?
            } else {
                apply_new(writer, request, key).await?
            };
            // Somebody else has made it meanwhile: then it is a change of that.
            if reply.code == StatusCode::CONFLICT && writer.fleet.visible(key).is_some() {
                continue;
            }
            return Ok(reply);
        };
        if let Some(members) = writer.journal.deleting(key, &visible.uid) {
            return Err(WriteError::Deleting { object: key.to_ref(), members }.into());
        }
        united::check(request, key, &visible, &parts)?;
        let work = Work::new(writer, request, key, visible, parts)?.aiming(aim.clone());
        let mut warnings = Warnings::default();
        let outcome = if dry {
            Box::pin(previewed(work, &mut warnings)).await
        } else {
            Box::pin(made(work, hold, &mut warnings)).await
        };
        match outcome {
            Ok(reply) | Err(Stop::Answer(reply)) => return Ok(reply.warned(warnings)),
            Err(Stop::Again) => {}
        }
    }
    Err(WriteError::Stale(key.to_ref()).into())
}

/// One try of a write.
async fn made<F: Fleet>(work: Work<'_, F>, hold: F::Hold, warnings: &mut Warnings) -> Result<Reply, Stop> {
    let planned = work.planned(warnings).await?;
    planned.make_room(warnings).await;
    let dry_run = planned.dry_run(warnings).await?;
    dry_run.commit(hold, warnings).await?.follow(warnings).await
}

/// One try of a client's own dry run.
async fn previewed<F: Fleet>(work: Work<'_, F>, warnings: &mut Warnings) -> Result<Reply, Stop> {
    let dry_run = work.planned(warnings).await?.dry_run(warnings).await?;
    dry_run.answer(warnings).await
}

/// Kinds that a PUT makes where there is none of that name. `tests/e2e/write/subresources.rs` asks a kube-apiserver.
///
/// Source: kubernetes `pkg/registry/*/*/strategy.go` `AllowCreateOnUpdate`.
const MADE_BY_PUT: [(&str, &str); 12] = [
    ("", "endpoints"),
    ("", "events"),
    ("", "limitranges"),
    ("", "services"),
    ("coordination.k8s.io", "leasecandidates"),
    ("coordination.k8s.io", "leases"),
    ("node.k8s.io", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("events.k8s.io", "events"),
];

/// Says whether a write makes what is not there: an apply does, and of some kinds a PUT.
pub fn makes(request: &Request) -> bool {
    let kind = (&*request.gvr.group, &*request.gvr.resource);
    let puts = request.method == Method::PUT && MADE_BY_PUT.contains(&kind);
    let applies = request.method == Method::PATCH && request.content_type == APPLY_PATCH;
    request.subresource.is_empty() && (puts || applies)
}

/// A PUT of what is not there, of a kind that it makes.
async fn put_new<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, key: &Key) -> Result<Reply, WriteError> {
    let mut body = desired::object(&request.body)?;
    let name = body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let url = &request.name;
    if name.is_empty() {
        return Err(WriteError::NameUndeterminable(url.clone()));
    }
    if name != url {
        return Err(WriteError::NameMismatch { name: name.to_owned(), url: url.clone() });
    }
    let (_, uid) = desired::strip(&mut body);
    if let Some(expected) = uid {
        return Err(WriteError::Precondition { object: key.to_ref(), field: "UID", expected, is: String::new() });
    }
    let request = Request { body: body.to_string().into(), ..request.clone() };
    Ok(create(writer, &request).await)
}

/// An apply of what is not there makes it, by the very apply: so its manager has what it says.
async fn apply_new<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, key: &Key) -> Result<Reply, WriteError> {
    let mut body = desired::object(&request.body)?;
    let (revision, uid) = desired::strip(&mut body);
    if uid.is_some() || revision.is_some() {
        return Err(missing(writer, key));
    }
    let fields = body.as_object_mut();
    let metadata = fields.map(|fields| fields.entry("metadata").or_insert_with(|| Value::Object(Map::new())));
    if let Some(metadata) = metadata {
        desired::set(metadata, "name", key.name.clone().into());
    }
    let request = Request { body: body.to_string().into(), ..request.clone() };
    Ok(create(writer, &request).await)
}

/// Nothing has the name, or a create of it is not settled.
fn missing<F: Fleet>(writer: &Writer<F>, key: &Key) -> WriteError {
    match writer.journal.open_create(key).and_then(|entry| entry.targets.into_iter().next()) {
        Some(earlier) => WriteError::Unsettled { object: key.to_ref(), home: earlier.member },
        None => WriteError::NotFound(key.to_ref()),
    }
}
