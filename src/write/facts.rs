//! What a create must know of each member before it is planned.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::future::join_all;
use http::Method;

use crate::{
    config::MemberName,
    member::{
        Member,
        call::{Answer, Call},
    },
    placement::{
        capacity::capacity,
        plan::{Candidate, Standing},
        scheduling::{Misfit, NodeFacts, PodRequirements, fits},
    },
    store::key,
    stores::{Running, Stores},
    write::{
        fleet::{Ask, Facts, Measure, Owner, Scaled},
        room::{Measured, node},
    },
};
use kubefold_wire::{
    golang::Quoted,
    path::ApiPath,
    resource::{Gvr, split_api_version},
};

/// What is known of every configured member, and of what the object belongs to.
pub(super) async fn facts(stores: &Stores, measured: &Measured, ask: Ask<'_>) -> Facts {
    let (node_gvr, namespace_gvr) = (Gvr::new("", "v1", "nodes"), Gvr::new("", "v1", "namespaces"));
    let namespaces = async {
        match ask.key.namespace.as_str() {
            "" => None,
            _ => stores.known(&namespace_gvr).await,
        }
    };
    let nodes = async {
        match ask.pod {
            Some(_) => stores.known(&node_gvr).await,
            None => None,
        }
    };
    let owners = join_all(
        ask.owners.iter().map(|owner| async move { (owner, holders(stores, &ask.key.namespace, owner).await) }),
    );
    let beside = async {
        match ask.scales {
            Some(scaled) => members_of(stores, &ask.key.namespace, scaled).await,
            None => None,
        }
    };
    // Each waits for members that are not known yet; together they wait no longer than one.
    let (kind, nodes, namespaces, owners, beside, ()) =
        tokio::join!(stores.known(&ask.key.gvr), nodes, namespaces, owners, beside, stores.placed_are_known());
    let sticky = sticky(stores, &ask.key.namespace);
    let rooms = match ask.measure {
        Measure::Always => Some(measured.now(stores).await),
        Measure::UnlessSticky if sticky.is_none() => Some(measured.now(stores).await),
        Measure::UnlessSticky | Measure::Nothing => None,
    };
    let members = stores.registry().members();
    let candidates = members.iter().map(|member| async {
        let name = member.name();
        let serves_kind = stores.catalog().serving_members(&ask.key.gvr).contains(name);
        let missing = owners.iter().filter(|(_, holders)| !holders.contains(name));
        Candidate {
            name: name.clone(),
            cluster_uid: member.cluster_uid().map(|uid| uid.to_string()),
            weight: member.config().weight,
            absent: member.config().absent,
            allowed: true,
            standing: standing(stores, member, kind.as_deref()),
            serves_kind,
            has_namespace: has_namespace(member, namespaces.as_deref(), &ask.key.namespace).await,
            missing_owners: missing.map(|(owner, _)| format!("{} {}", owner.kind, Quoted(&owner.name))).collect(),
            fits: ask.pod.map_or(Ok(()), |pod| fits_nodes(stores, nodes.as_deref(), name, pod)),
            capacity: rooms.as_ref().and_then(|rooms| rooms.get(name)).map(|rooms| capacity(rooms, ask.pod)),
        }
    });
    Facts { candidates: join_all(candidates).await, sticky, beside }
}

/// The member that holds most of the objects of a namespace that are whole in one member.
fn sticky(stores: &Stores, namespace: &str) -> Option<MemberName> {
    let shared = stores.shared();
    let mut counts: BTreeMap<MemberName, usize> = BTreeMap::new();
    for (_, member, count) in shared.identities.alone_in(namespace) {
        if let Some(member) = shared.naming.member(&member) {
            *counts.entry(member.clone()).or_default() += count;
        }
    }
    // Of equals the first that is configured.
    let place = |name: &MemberName| shared.naming.members().iter().position(|known| known == name);
    counts.into_iter().max_by_key(|(name, count)| (*count, std::cmp::Reverse(place(name)))).map(|(name, _)| name)
}

/// The members that the marker of a placed object lists; `None` if it is none.
async fn members_of(stores: &Stores, namespace: &str, scaled: &Scaled) -> Option<Vec<MemberName>> {
    let (group, version) = split_api_version(&scaled.api_version).unwrap_or_default();
    let gvr = stores.catalog().by_kind(group, version, &scaled.kind)?.gvr.clone();
    let running = stores.known(&gvr).await?;
    let parts = running.store.shown_parts(&key(namespace, &scaled.name));
    let marker = parts.first()?.marker.as_ref()?;
    Some(marker.members.iter().map(|(name, _)| name.clone()).collect())
}

fn standing(stores: &Stores, member: &Arc<Member>, kind: Option<&Running>) -> Standing {
    let unknown = kind.is_none_or(|running| {
        stores.unknown(running, Some(member.name())).iter().any(|unknown| unknown.name() == member.name())
    });
    if unknown {
        return Standing::Unknown(member.describe());
    }
    if member.health().is_down() || !member.usable() {
        return Standing::Down(member.describe());
    }
    Standing::Ready
}

/// The members that hold an object that is referred to by its visible name and UID, the first-listed first.
pub(super) async fn holders(stores: &Stores, namespace: &str, owner: &Owner) -> Vec<MemberName> {
    let (group, version) = split_api_version(&owner.api_version).unwrap_or_default();
    let catalog = stores.catalog();
    let Some(resource) = catalog.by_kind(group, version, &owner.kind) else { return Vec::new() };
    let Some(running) = stores.known(&resource.gvr).await else { return Vec::new() };
    let entry = [namespace, ""].into_iter().find_map(|namespace| running.store.get(&key(namespace, &owner.name)));
    // A reference of an event may lack the UID.
    entry
        .filter(|entry| owner.uid.is_empty() || entry.uid() == owner.uid)
        .map(|entry| entry.holders.to_vec())
        .unwrap_or_default()
}

/// The store knows most namespaces. One that it does not know may have been made in the member a moment ago.
async fn has_namespace(member: &Member, namespaces: Option<&Running>, name: &str) -> bool {
    if name.is_empty() {
        return true;
    }
    let parts = namespaces.map(|running| running.store.parts(name)).unwrap_or_default();
    if let Some(part) = parts.iter().find(|part| part.member == *member.name()) {
        return !part.deleting;
    }
    let call = Call {
        method: Method::GET,
        path: ApiPath::of(&Gvr::new("", "v1", "namespaces")).then(name),
        query: String::new(),
        body: Bytes::new(),
        content_type: String::new(),
        user_agent: None,
    };
    match member.call(None, call).await {
        Answer::Answered { code, body, .. } if code.is_success() => {
            memchr::memmem::find(&body, b"\"deletionTimestamp\"").is_none()
        }
        Answer::Answered { .. } => false,
        // A member that does not answer is left out as one that is down, not as one that lacks the namespace.
        Answer::NotSent(_) | Answer::Unknown(_) => true,
    }
}

fn fits_nodes(
    stores: &Stores,
    nodes: Option<&Running>,
    member: &MemberName,
    pod: &PodRequirements,
) -> Result<(), Misfit> {
    let Some(running) = nodes else { return Ok(()) };
    let naming = Arc::clone(&stores.shared().naming);
    let snapshot = running.store.snapshot();
    let facts: Vec<NodeFacts> = snapshot
        .range("", b"")
        .filter(|entry| entry.holders.contains(member))
        .map(|entry| node(naming.own(entry.name()).to_owned(), entry))
        .collect();
    fits(pod, &facts)
}
