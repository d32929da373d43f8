//! Events go with the objects that they are about: each is a member-local object of that object's member.

use std::sync::Arc;

use serde::Deserialize;

use crate::{
    answer::reply::Reply,
    config::MemberName,
    placement::stamp::{Stamp, stamped},
    respond::WriteError,
    write::{
        Writer,
        create::draft::Draft,
        fleet::{Fleet, Owner},
        names::mint,
        pinned,
        request::Request,
    },
};
use kubefold_wire::locate::Paths;

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
/// Recorders name an event after its object, `web-0@east.17f0`; in the member that is `web-0.17f0`.
pub(super) async fn create<F: Fleet>(
    writer: &Arc<Writer<F>>,
    request: &Request,
    draft: &Draft<'_>,
) -> Result<Reply, Reply> {
    let about = about(draft.json);
    let base = if draft.name.is_empty() { mint(&draft.base) } else { draft.name.clone() };
    let (own, member) = match writer.fleet.split(&about.name) {
        Some((own_object, member)) => (base.replacen(&about.name, &own_object, 1), member),
        None => (base, whereabouts(writer, request, about).await?),
    };
    let json = stamped(draft.json, Stamp { name: Some(&own), ..Stamp::default() });
    let json = json.ok().and_then(|json| String::from_utf8(json).ok());
    let json = json.ok_or(WriteError::NoEvent)?;
    pinned::create(writer, request, &json, &format!("{own}@{member}"), &own, &member).await
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
