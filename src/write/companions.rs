//! Companions are placed anew after their workload was written.
//!
//! Nothing waits for a workload. What came first is placed as if there were none; when the workload is written, its
//! companions are divided again, as the caller of that write. Where that fails the write stands, and the answer warns.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::{
    answer::reply::Reply,
    placement::{
        companions::{Subject, pod_labels},
        divided::Division,
    },
    write::{
        APPLY_PATCH, Writer,
        fleet::{Fleet, Key, Listed},
        journal::Entry,
        request::{OWN_MANAGER, Request},
        reshare,
        steps::mover,
        update::{MERGE_PATCH, SCALE, is_quota, replace},
        workloads::{COMPANIONS, POD, WORKLOADS, documents, of_kinds},
    },
};
use kubefold_serving::{caller::Caller, request::body_name};
use kubefold_wire::{
    media::is_built_in,
    resource::{Gvk, Gvr},
    status::Failure,
    warning::Warnings,
};

/// A workload that is written, as its companions see it before; or a companion.
pub(super) enum Followed {
    /// With the labels of its pods.
    Workload { labels: Option<String> },
    /// A companion that is applied: its parts are made from what it is then. Or a quota, of which some shares grow only once
    /// others have shrunk.
    Companion,
}

/// Notes what a write may change for companions; `None`: nothing.
pub(super) fn before<F: Fleet>(writer: &Writer<F>, request: &Request, name: &str) -> Option<Followed> {
    let is_of = |kinds: &[(&str, &str, &str, &str)]| {
        kinds.iter().any(|(group, _, resource, _)| (*group, *resource) == (&*request.gvr.group, &*request.gvr.resource))
    };
    let is_custom = !is_built_in(&request.gvr.group) && !request.namespace.is_empty();
    let writes_it = request.subresource.is_empty() || request.subresource == SCALE;
    let is_written = request.method != Method::GET && writes_it && request.dry_run("").is_ok_and(|dry| !dry);
    if !is_written {
        return None;
    }
    if is_quota(&request.key(name)) {
        return Some(Followed::Companion);
    }
    if is_of(&COMPANIONS) {
        return (request.content_type == APPLY_PATCH).then_some(Followed::Companion);
    }
    (is_of(&WORKLOADS) || is_of(&[POD]) || is_custom)
        .then(|| Followed::Workload { labels: labels(writer, &request.key(name)) })
}

/// Places the companions of a workload anew, now that it was written. Gives what the client is to be warned of.
pub(super) async fn follow<F: Fleet>(
    writer: &Arc<Writer<F>>,
    request: &Request,
    before: Option<Followed>,
    mut reply: Reply,
) -> Reply {
    let Some(before) = before.filter(|_| reply.code.is_success()) else { return reply };
    let named = Some(request.name.clone()).filter(|name| !name.is_empty());
    let Some(name) = named.or_else(|| body_name(&reply.body)) else { return reply };
    let key = request.key(&name);
    let warnings = &mut reply.warnings;
    let noted = match before {
        Followed::Workload { labels } => labels,
        Followed::Companion => {
            let itself = of_companion(request, request.gvr.clone(), request.gvk.clone(), &name);
            place_anew(writer, &itself, &key, warnings).await;
            return reply;
        }
    };
    let labels: Vec<String> = noted.into_iter().chain(labels(writer, &key)).collect();
    for ((group, version, resource, kind), listed) in COMPANIONS.into_iter().zip(companions(&writer.fleet, &key).await)
    {
        let division = Division::of(group, kind);
        let is_its = |one: &&Listed| {
            let subject = documents(one).next().and_then(|(_, json)| Subject::of(division, json));
            subject.is_some_and(|subject| {
                subject.scales(&key.gvk.group, &key.gvk.kind, &key.name)
                    || labels.iter().any(|labels| subject.selects(labels))
            })
        };
        for one in listed.iter().filter(|one| one.folded).filter(is_its) {
            let gvk = Gvk::new(group, version, kind);
            let companion = of_companion(request, Gvr::new(group, version, resource), gvk, &one.name);
            place_anew(writer, &companion, &key, warnings).await;
        }
    }
    reply
}

/// The same for a write that was settled later than it was answered: nobody is there to be warned.
pub(super) async fn settled<F: Fleet>(writer: &Arc<Writer<F>>, entry: &Entry) {
    unasked(writer, &entry.key, entry.caller.clone(), entry.user_agent.clone()).await;
}

/// The same for a workload whose parts have moved, as the mover.
pub(super) async fn moved<F: Fleet>(writer: &Arc<Writer<F>>, key: &Key) {
    if is_quota(key) {
        return reshare::divide_anew(writer, key).await;
    }
    unasked(writer, key, mover(), None).await;
}

async fn unasked<F: Fleet>(writer: &Arc<Writer<F>>, key: &Key, caller: Caller, user_agent: Option<String>) {
    let request = Request {
        caller,
        method: Method::PATCH,
        gvr: key.gvr.clone(),
        gvk: key.gvk.clone(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        subresource: String::new(),
        query: String::new(),
        content_type: String::new(),
        user_agent,
        refusing: Vec::new(),
        body: Bytes::new(),
    };
    let followed = before(writer, &request, &key.name);
    let reply = Reply { code: StatusCode::OK, warnings: Warnings::default(), body: Bytes::new() };
    let told = follow(writer, &request, followed, reply).await;
    if told.warnings != Warnings::default() {
        tracing::warn!(object = %key, warnings = ?told.warnings, "companions of a workload that was settled or moved");
    }
}

/// Has each part of a companion get its share by now. `key` is what was written.
async fn place_anew<F: Fleet>(writer: &Arc<Writer<F>>, companion: &Request, key: &Key, warnings: &mut Warnings) {
    let Some(told) = Box::pin(replace(writer, companion)).await else { return };
    warnings.merge(&told.warnings);
    if let Some(failure) = Failure::of(&told.body).filter(|_| !told.code.is_success()) {
        let companion = companion.key(&companion.name);
        warnings.add(&format!("{companion} is not divided by the parts of {key} yet: {}", failure.message));
    }
}

async fn companions<F: Fleet>(fleet: &F, key: &Key) -> Vec<Vec<Listed>> {
    of_kinds(fleet, &key.namespace, &COMPANIONS).await.into_iter().map(|(_, listed)| listed).collect()
}

/// The labels of the pods of a placed workload.
fn labels<F: Fleet>(writer: &Writer<F>, key: &Key) -> Option<String> {
    let home = writer.fleet.parts(key).into_iter().next()?;
    pod_labels(&key.gvk.group, &key.gvk.kind, std::str::from_utf8(&home.json).ok()?).map(str::to_owned)
}

/// The same caller's write that places a companion anew: a patch of nothing.
fn of_companion(request: &Request, gvr: Gvr, gvk: Gvk, name: &str) -> Request {
    Request {
        method: Method::PATCH,
        gvr,
        gvk,
        name: name.to_owned(),
        subresource: String::new(),
        query: format!("fieldManager={OWN_MANAGER}"),
        content_type: MERGE_PATCH.to_owned(),
        refusing: Vec::new(),
        body: Bytes::from_static(b"{}"),
        ..request.clone()
    }
}
