//! What a create must know of each member before it is planned.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::future::join_all;
use http::Method;

use crate::{
    config::MemberName,
    member::{
        Member,
        stores::{Running, Stores},
    },
    placement::{
        plan::{Candidate, Standing},
        scheduling::{NodeFacts, PodRequirements, Taint, fits},
    },
    store::{Entry, key},
    wire::{
        locate::Paths,
        resource::{Gvr, split_api_version},
    },
    write::{
        fleet::{Answer, Ask, Call, Fleet, Key, Owner},
        live::LiveFleet,
    },
};

/// The facts of every configured member.
pub(super) async fn candidates(fleet: &LiveFleet, ask: Ask<'_>) -> Vec<Candidate> {
    let stores = &fleet.stores;
    let (node_gvr, namespace_gvr) = (Gvr::new("", "v1", "nodes"), Gvr::new("", "v1", "namespaces"));
    let namespaces = async {
        match ask.key.namespace.as_str() {
            "" => None,
            _ => stores.known(&namespace_gvr).await,
        }
    };
    let owners = join_all(ask.owners.iter().map(|owner| async move { (owner, holders(stores, ask.key, owner).await) }));
    // Each waits for members that are not known yet; together they wait no longer than one.
    let (kind, nodes, namespaces, owners) =
        tokio::join!(stores.known(&ask.key.gvr), stores.known(&node_gvr), namespaces, owners);
    let members = stores.registry().members();
    let facts = members.iter().map(|member| async {
        let name = member.name();
        let serves_kind = stores.catalogue().serving_members(&ask.key.gvr).contains(name);
        let missing = owners.iter().filter(|(_, holders)| !holders.contains(name));
        Candidate {
            name: name.clone(),
            cluster_uid: member.cluster_uid().map(|uid| uid.to_string()),
            weight: member.config().weight,
            absent: member.config().absent,
            standing: standing(stores, member, kind.as_deref()),
            serves_kind,
            has_namespace: has_namespace(fleet, member, namespaces.as_deref(), &ask.key.namespace).await,
            missing_owners: missing.map(|(owner, _)| format!("{} {:?}", owner.kind, owner.name)).collect(),
            fits: fits_nodes(stores, nodes.as_deref(), name, ask.pod),
        }
    });
    join_all(facts).await
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

/// The members that hold an owner, by its visible name and UID.
async fn holders(stores: &Stores, of: &Key, owner: &Owner) -> Vec<MemberName> {
    let (group, version) = split_api_version(&owner.api_version).unwrap_or_default();
    let catalogue = stores.catalogue();
    let Some(resource) = catalogue.by_kind(group, version, &owner.kind) else { return Vec::new() };
    let Some(running) = stores.known(&resource.gvr).await else { return Vec::new() };
    let entry =
        [of.namespace.as_str(), ""].into_iter().find_map(|namespace| running.store.get(&key(namespace, &owner.name)));
    entry.filter(|entry| entry.uid() == owner.uid).map(|entry| entry.holders.to_vec()).unwrap_or_default()
}

/// The store knows most namespaces. One that it does not know may have been made in the member a moment ago.
async fn has_namespace(fleet: &LiveFleet, member: &Member, namespaces: Option<&Running>, name: &str) -> bool {
    if name.is_empty() {
        return true;
    }
    let parts = namespaces.map(|running| running.store.parts(name)).unwrap_or_default();
    if let Some(part) = parts.iter().find(|part| part.member == *member.name()) {
        return !part.deleting;
    }
    let call = Call {
        method: Method::GET,
        path: format!("/api/v1/namespaces/{name}"),
        query: String::new(),
        body: Bytes::new(),
        content_type: String::new(),
        user_agent: None,
    };
    match fleet.call(member.name(), None, call).await {
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
) -> Result<(), String> {
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

fn node(name: String, entry: &Entry) -> NodeFacts {
    let labels = entry.labels().and_then(|text| serde_json::from_str::<BTreeMap<String, String>>(text).ok());
    let json = std::str::from_utf8(entry.json()).unwrap_or_default();
    let mut found = Vec::new();
    let located = Paths::new([(0, ["spec", "taints"].as_slice())]).locate(json, &mut found).is_ok();
    let taints = found.first().filter(|_| located).and_then(|at| json.get(at.range.clone()));
    let taints = taints.and_then(|text| serde_json::from_str::<Vec<Taint>>(text).ok());
    NodeFacts { name, labels: labels.unwrap_or_default(), taints: taints.unwrap_or_default() }
}
