//! What a create must know of each member before it is planned.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

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
        nodes::PodsByMember,
        plan::{Candidate, Standing},
        scheduling::{Misfit, NodeFacts, PodRequirements, fits},
    },
    store::{Entry, Part, key},
    stores::{Running, Stores},
    write::{
        fleet::{Ask, Facts, Key, Listed, Measure, Owner, Placed},
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
    stores.is_served_where_it_is_defined(&ask.key.gvr).await;
    let namespaces = known_where(!ask.key.namespace.is_empty(), stores, Gvr::new("", "v1", "namespaces"));
    let nodes = known_where(ask.pods.is_some(), stores, Gvr::new("", "v1", "nodes"));
    let names_class = ask.pods.is_some_and(PodsByMember::names_class);
    let classes = known_where(names_class, stores, Gvr::new("node.k8s.io", "v1", "runtimeclasses"));
    let owners = join_all(
        ask.owners.iter().map(|owner| async move { (owner, holders(stores, &ask.key.namespace, owner).await) }),
    );
    let claims = async {
        match ask.claims {
            [] => Vec::new(),
            claims => claim_holders(stores, &ask.key.namespace, claims).await,
        }
    };
    // Each waits for members that are not known yet; together they wait no longer than one.
    let (kind, nodes, namespaces, classes, owners, claims, ()) =
        tokio::join!(stores.known(&ask.key.gvr), nodes, namespaces, classes, owners, claims, stores.placed_are_known());
    let sticky = sticky(stores, &ask.key.namespace);
    let rooms = match ask.measure {
        Measure::Always => Some(measured.now(stores).await),
        Measure::Use => Some(measured.with_use(stores).await),
        Measure::UnlessSticky if sticky.is_none() => Some(measured.now(stores).await),
        Measure::UnlessSticky | Measure::Nothing => None,
    };
    let members = stores.registry().members();
    let candidates = members.iter().map(|member| async {
        let name = member.name();
        let serves_kind = stores.catalog().serving_members(&ask.key.gvr).contains(name);
        let missing = owners.iter().filter(|(_, holders)| !holders.contains(name));
        let pod = ask.pods.map(|pods| in_class(classes.as_deref(), name, pods.in_member(name)?));
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
            missing_claims: claims
                .iter()
                .filter(|(_, holders)| !holders.is_empty() && !holders.contains(name))
                .map(|(claim, _)| claim.clone())
                .collect(),
            fits: pod.as_ref().map_or(Ok(()), |pod| fits_nodes(stores, nodes.as_deref(), name, pod.as_ref())),
            capacity: rooms
                .as_ref()
                .and_then(|rooms| rooms.get(name))
                .map(|rooms| capacity(rooms, pod.as_ref().and_then(|pod| pod.as_deref().ok()))),
            quota: None,
        }
    });
    Facts { candidates: join_all(candidates).await, sticky }
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

/// Who holds each of these claims, under its own name: placed, or member-local.
async fn claim_holders(stores: &Stores, namespace: &str, claims: &[String]) -> Vec<(String, Vec<MemberName>)> {
    let Some(running) = stores.known(&Gvr::new("", "v1", "persistentvolumeclaims")).await else { return Vec::new() };
    let members = stores.registry().members();
    let holders = |claim: &String| {
        let key = key(namespace, claim);
        let placed = running.store.shown_parts(&key);
        let holds = |member: &MemberName| {
            placed.iter().any(|part| part.member == *member) || running.store.member_local(&key, member).is_some()
        };
        let holders = members.iter().map(|member| member.name()).filter(|name| holds(name)).cloned();
        (claim.clone(), holders.collect())
    };
    claims.iter().map(holders).collect()
}

/// The objects of a kind in a namespace, of those that are wanted.
pub(super) async fn objects(
    stores: &Stores,
    gvr: &Gvr,
    namespace: &str,
    is_wanted: impl Fn(&Entry) -> bool + Send,
) -> Vec<Listed> {
    let Some(running) = stores.known(gvr).await else { return Vec::new() };
    let snapshot = running.store.snapshot();
    let listed = |entry: &Arc<Entry>| {
        let (name, folded) = (entry.name().to_owned(), entry.folded);
        let parts = match entry.holders.first() {
            Some(member) if !folded => vec![(member.clone(), Bytes::copy_from_slice(entry.json()))],
            _ => {
                let parts = running.store.shown_parts(&key(namespace, &name));
                parts.iter().map(|part| (part.member.clone(), Bytes::from(part.document.text().into_owned()))).collect()
            }
        };
        Listed { name, folded, parts }
    };
    snapshot.range(namespace, b"").filter(|entry| !entry.deleting && is_wanted(entry)).map(listed).collect()
}

/// Every placed object, with the kinds that others need first.
pub(super) async fn placed(stores: &Stores) -> Vec<Placed> {
    let catalog = stores.catalog();
    let kinds = stores.shared().identities.placed();
    let kinds = kinds.iter().filter_map(|(group, kind)| catalog.of_kind(group, kind));
    let all = kinds.map(|resource| async {
        let Some(running) = stores.known(&resource.gvr).await else { return Vec::new() };
        let of = |(key, parts): (String, Vec<Arc<Part>>)| {
            let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
            let (gvr, gvk) = (resource.gvr.clone(), resource.gvk.clone());
            Some(Placed {
                key: Key { gvr, gvk, namespace: namespace.to_owned(), name: name.to_owned() },
                marker: parts.first()?.marker.clone()?,
                members: parts.iter().map(|part| part.member.clone()).collect(),
            })
        };
        running.store.placed().into_iter().filter_map(of).collect()
    });
    join_all(all).await.into_iter().flatten().collect()
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

/// The store of a kind, where it is asked for.
async fn known_where(is_asked: bool, stores: &Stores, gvr: Gvr) -> Option<Arc<Running>> {
    if is_asked { stores.known(&gvr).await } else { None }
}

/// What pods ask in one member, where their RuntimeClass adds to it. Each member has a RuntimeClass of its own.
///
/// Errors: the member does not have it, and refuses pods that name it.
fn in_class<'a>(
    classes: Option<&Running>,
    member: &MemberName,
    pod: &'a PodRequirements,
) -> Result<Cow<'a, PodRequirements>, Misfit> {
    let Some(running) = classes else { return Ok(Cow::Borrowed(pod)) };
    let key = key("", &pod.runtime_class_name);
    let parts = running.store.shown_parts(&key);
    if let Some(part) = parts.iter().find(|part| part.member == *member) {
        return Ok(Cow::Owned(pod.with_runtime_class(&part.document.text())));
    }
    let own = running.store.member_local(&key, member).map(|own| own.entry);
    let own = own.ok_or_else(|| Misfit::NotHeld(vec![format!("RuntimeClass {}", Quoted(&pod.runtime_class_name))]))?;
    Ok(Cow::Owned(pod.with_runtime_class(std::str::from_utf8(own.json()).unwrap_or_default())))
}

fn fits_nodes(
    stores: &Stores,
    nodes: Option<&Running>,
    member: &MemberName,
    pod: Result<&Cow<'_, PodRequirements>, &Misfit>,
) -> Result<(), Misfit> {
    let pod = pod.map_err(Misfit::clone)?;
    let Some(running) = nodes else { return Ok(()) };
    let naming = Arc::clone(&stores.shared().naming);
    let snapshot = running.store.snapshot();
    let facts: Vec<NodeFacts> = snapshot
        .range("", b"")
        .filter(|entry| entry.holders.contains(member))
        .map(|entry| node(naming.own(&running.store.spec().gvr, entry.name()).into_owned(), entry))
        .collect();
    fits(pod, &facts)
}
