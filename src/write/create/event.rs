//! Events go with the objects that they are about: each is in that object's member alone.

use std::sync::Arc;

use serde::Deserialize;

use crate::{
    answer::reply::Reply,
    config::MemberName,
    placement::marker::Marker,
    respond::WriteError,
    write::{
        Writer,
        create::draft::Draft,
        fleet::{Fleet, Key, Owner},
        names::mint,
        pinned::{self, Pinned},
        request::Request,
    },
};
use kubefold_wire::locate::Paths;
use kubefold_wire::resource::Gvk;

/// What an event is about.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct About {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

/// Creates an event where its object is; where that is nowhere, in the first member that is up.
///
/// Recorders name an event after its object. `web-0@east.17f0` is `web-0.17f0` in east, which the fleet view calls as they do. Any
/// other name is that of a placed object, with one part: so it keeps it.
pub(super) async fn create<F: Fleet>(
    writer: &Arc<Writer<F>>,
    request: &Request,
    draft: &Draft<'_>,
) -> Result<Reply, Reply> {
    let about = about(draft.json);
    let name = if draft.name.is_empty() { mint(&draft.base) } else { draft.name.clone() };
    let of_object = writer.fleet.split(&about.name);
    if let Some((own, member)) = writer.fleet.split_of(&request.gvr, &name) {
        return local(writer, request, draft, &name, &own, &member).await;
    }
    match of_object {
        Some((object, member)) if name.contains('@') => {
            let own = name.replacen(&about.name, &object, 1);
            local(writer, request, draft, &name, &own, &member).await
        }
        Some((_, member)) => placed(writer, request, draft, name, member).await,
        None => {
            let member = whereabouts(writer, request, about).await?;
            placed(writer, request, draft, name, member).await
        }
    }
}

/// A member-local event.
async fn local<F: Fleet>(
    writer: &Writer<F>,
    request: &Request,
    draft: &Draft<'_>,
    name: &str,
    own: &str,
    member: &MemberName,
) -> Result<Reply, Reply> {
    let what = Pinned { visible: name, own, member, marker: None };
    pinned::create(writer, request, draft.json, what).await
}

/// An event under its own name. One member has all of it, so the member's answer is the answer, and there is nothing to finish.
async fn placed<F: Fleet>(
    writer: &Writer<F>,
    request: &Request,
    draft: &Draft<'_>,
    name: String,
    member: MemberName,
) -> Result<Reply, Reply> {
    let fleet = &writer.fleet;
    let key = request.key(&name);
    let hold = fleet.hold(&key).await.ok_or_else(|| WriteError::Taken(key.to_ref()))?;
    if fleet.visible(&key).is_some() {
        return Err(WriteError::AlreadyExists { object: key.to_ref(), holders: String::new() }.into());
    }
    let cluster_uid = fleet.cluster_uid(&member).ok_or(WriteError::NoMemberUp)?;
    let marker = marker(&key, &member, cluster_uid);
    let what = Pinned { visible: &name, own: &name, member: &member, marker: Some(&marker) };
    let reply = pinned::create(writer, request, draft.json, what).await?;
    let shown = fleet.release(hold).await.filter(|shown| shown.uid == marker.uid);
    Ok(Reply { body: shown.map_or(reply.body, |shown| shown.body), ..reply })
}

fn marker(key: &Key, member: &MemberName, cluster_uid: String) -> Marker {
    let (uid, members) = (uuid::Uuid::new_v4().to_string(), Arc::new([(member.clone(), cluster_uid)]));
    // Both groups have the same events.
    let gvk = Gvk::new("", &key.gvk.version, &key.gvk.kind);
    Marker::new(uid, &gvk, &key.namespace, &key.name, member.clone(), members)
}

async fn whereabouts<F: Fleet>(writer: &Writer<F>, request: &Request, about: About) -> Result<MemberName, WriteError> {
    let owner = Owner { api_version: about.api_version, kind: about.kind, name: about.name, uid: about.uid };
    let holders = writer.fleet.holders(&request.namespace, &owner).await;
    let any = writer.fleet.up();
    let chosen = holders.into_iter().next().or_else(|| any.into_iter().next());
    chosen.ok_or(WriteError::NoMemberUp)
}

fn about(json: &str) -> About {
    let mut found = Vec::new();
    let paths = Paths::new([(0, ["involvedObject"].as_slice()), (0, &["regarding"])]);
    let located = paths.locate(json, &mut found).is_ok();
    let raw = found.first().filter(|_| located).and_then(|place| json.get(place.range.clone()));
    raw.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default()
}
