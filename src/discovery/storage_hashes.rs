//! Hashes of the versions in which members store what they serve: whoever migrates stored objects looks at them.
//!
//! Only a list of resources of the old form has them. A member is asked for its own when such a list is asked for.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/discovery/storageversionhash.go`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    catalog::{Group, MergedGroup, MergedVersion},
    config::MemberName,
    member::{Member, MemberId},
    stores::{Patience, Stores},
    upstream::{Class, Outgoing, collect},
};
use kubefold_wire::discovery::ApiResourceList;

/// The hash of each resource that has one, by its plural.
pub type StorageHashes = BTreeMap<String, String>;

/// For so long a member's word is taken: another version is stored once a definition says so, and nothing else in discovery changes.
const FRESH_FOR_MIN: Duration = Duration::from_secs(10);
/// The same for each member: many are asked less often each.
const FRESH_FOR_EACH: Duration = Duration::from_millis(750);
/// Largest list that is read.
const LIST_BYTES_MAX: usize = 16 << 20;
/// Lists of which something is kept.
const LISTS_MAX: usize = 2_000;

/// What members said.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<HashMap<String, Arc<OfList>>>);

/// Of one list.
#[derive(Debug, Default)]
struct OfList {
    /// Held while members are asked.
    turn: tokio::sync::Mutex<()>,
    said: Mutex<HashMap<MemberId, Said>>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    incarnation: u64,
    /// What it served when it was asked.
    group: Arc<Group>,
    hashes: Arc<StorageHashes>,
}

impl Told {
    /// The hashes in which all agree who serve a resource. One that says nothing, and never did, agrees with nobody.
    ///
    /// `path` is that of the list. Cancel: safe.
    pub(super) async fn agreed(
        &self,
        stores: &Stores,
        group: &MergedGroup,
        version: &MergedVersion,
        path: &str,
    ) -> StorageHashes {
        let serving: HashMap<&MemberName, &Arc<Group>> =
            group.sources().filter(|(_, group)| group.version(&version.version).is_some()).collect();
        let members = stores.registry().members();
        let members: Vec<Asked> = members
            .iter()
            .filter_map(|member| Some((Arc::clone(member), Arc::clone(serving.get(member.name())?))))
            .collect();
        if members.is_empty() {
            return StorageHashes::new();
        }
        let of_list = self.of_list(path);
        let fresh_for =
            FRESH_FOR_EACH.saturating_mul(u32::try_from(members.len()).unwrap_or(u32::MAX)).max(FRESH_FOR_MIN);
        let is_fresh = |(member, group): &Asked| {
            let said = of_list.said.lock();
            said.get(&member.id()).is_some_and(|said| {
                said.incarnation == member.incarnation()
                    && said.at.elapsed() < fresh_for
                    && Arc::ptr_eq(&said.group, group)
            })
        };
        if !members.iter().all(is_fresh) {
            let _turn = of_list.turn.lock().await;
            let asked: Vec<Asked> = members.iter().filter(|asked| !is_fresh(asked)).cloned().collect();
            of_list.ask(stores, asked, path).await;
        }
        let said = of_list.said.lock();
        let last =
            |member: &Arc<Member>| said.get(&member.id()).filter(|said| said.incarnation == member.incarnation());
        let said: HashMap<&MemberName, &StorageHashes> =
            members.iter().filter_map(|(member, _)| Some((member.name(), &*last(member)?.hashes))).collect();
        agreed(version, &said)
    }

    fn of_list(&self, path: &str) -> Arc<OfList> {
        let mut lists = self.0.lock();
        if lists.len() >= LISTS_MAX && !lists.contains_key(path) {
            lists.clear();
        }
        Arc::clone(lists.entry(path.to_owned()).or_default())
    }
}

impl OfList {
    async fn ask(&self, stores: &Stores, asked: Vec<Asked>, path: &str) {
        let at = Instant::now();
        let (members, groups): (Vec<Arc<Member>>, Vec<Arc<Group>>) = asked.into_iter().unzip();
        let ask = |member: Arc<Member>| {
            let path = path.to_owned();
            async move { read(&member, &path).await.map(|hashes| (member.incarnation(), hashes)) }
        };
        let answers = stores.ask_all(&members, Patience::Little, Option::is_some, ask).await;
        let mut said = self.said.lock();
        let mut shared: Option<Arc<StorageHashes>> = None;
        for ((member, group), answer) in members.iter().zip(groups).zip(answers) {
            let Some((incarnation, hashes)) = answer.flatten() else { continue };
            // Most often all members say the same.
            let hashes = shared.take_if(|shared| **shared == hashes).unwrap_or_else(|| Arc::new(hashes));
            shared = Some(Arc::clone(&hashes));
            said.insert(member.id(), Said { at, incarnation, group, hashes });
        }
    }
}

/// A member to ask, and what it serves.
type Asked = (Arc<Member>, Arc<Group>);

/// What a member says; `None`: nothing that can be read.
async fn read(member: &Member, path: &str) -> Option<StorageHashes> {
    let request = Outgoing::document(path).ok()?;
    let (head, body) = member.send(request, Class::Read).await.ok()?.into_parts();
    if !head.status.is_success() {
        return None;
    }
    let body = collect(body, LIST_BYTES_MAX).await.ok()?;
    let list: ApiResourceList<'_> = serde_json::from_slice(&body).ok()?;
    let with_hashes = list.resources.into_iter().filter(|resource| !resource.storage_version_hash.is_empty());
    Some(with_hashes.map(|one| (one.name.to_string(), one.storage_version_hash.to_string())).collect())
}

fn agreed(version: &MergedVersion, said: &HashMap<&MemberName, &StorageHashes>) -> StorageHashes {
    let of_resource = version.resources.iter().filter_map(|resource| {
        let name = &*resource.gvr.resource;
        let mut hashes = resource.members.iter().map(|member| said.get(member)?.get(name));
        let first = hashes.next()??;
        hashes.all(|other| other == Some(first)).then(|| (name.to_owned(), first.clone()))
    });
    of_resource.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::catalog::testdata::{EAST, catalog, documents, name};

    #[test]
    fn a_hash_is_told_where_all_say_the_same_who_serve_the_resource() {
        let of_east = catalog(&documents(EAST));
        let fleet = Catalog::merge(&[(name("east"), Some(of_east.clone())), (name("west"), Some(of_east))]);
        let version = fleet.version("", "v1").unwrap();
        let hashes =
            |pods: &str| StorageHashes::from([("pods".to_owned(), pods.to_owned()), ("nodes".into(), "n".into())]);
        let (east, west) = (name("east"), name("west"));
        let agreed_of = |of_west: Option<&StorageHashes>| {
            let of_east = hashes("p");
            let mut said = HashMap::from([(&east, &of_east)]);
            said.extend(of_west.map(|of_west| (&west, of_west)));
            agreed(version, &said)
        };
        assert_eq!(agreed_of(Some(&hashes("p"))), hashes("p"));
        assert_eq!(agreed_of(Some(&hashes("q"))), StorageHashes::from([("nodes".into(), "n".into())]));
        assert_eq!(agreed_of(Some(&StorageHashes::new())), StorageHashes::new(), "west is older, and knows none");
        assert_eq!(agreed_of(None), StorageHashes::new(), "nobody knows what west stores");
    }
}
