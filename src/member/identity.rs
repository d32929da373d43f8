//! Which cluster answers behind a member's name: the UID of its `kube-system` namespace.
//!
//! Another UID than before is another cluster, whatever the address says, and nothing that was read
//! from the old one counts. Two members that are one cluster would show every object twice.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::{sync::watch, time::Instant};

use crate::{
    config::MemberName,
    upstream::{
        Outgoing, Upstream,
        cause::Cause,
        collect,
        error::{Failure, UpstreamError},
    },
};
use kubefold_wire::{body::empty, path::ApiPath, resource::Gvr};

/// Names a member in this process; never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

/// The namespace whose UID names a cluster (the convention of kubernetes-sigs/about-api).
const SYSTEM_NAMESPACE: &str = "kube-system";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// How long what was found holds for those who continue nothing.
const SHARED_FOR: Duration = Duration::from_secs(5);
/// A namespace's metadata is far below this.
const IDENTITY_BYTES_MAX: usize = 1 << 20;

#[derive(Deserialize)]
struct Identified {
    metadata: Uid,
}

#[derive(Deserialize)]
struct Uid {
    uid: String,
}

/// Asks a member which cluster it is.
pub(super) async fn read_uid(upstream: &Upstream) -> Result<Arc<str>, UpstreamError> {
    let fail = |failure| UpstreamError::new(upstream.member(), failure);
    let path = ApiPath::of(&Gvr::new("", "v1", "namespaces")).then(SYSTEM_NAMESPACE);
    let request = Outgoing::own(Method::GET, path, "", empty())
        .map_err(|error| fail(Failure::Request(error.to_string().into())))?
        .with(header::ACCEPT, HeaderValue::from_static(METADATA));
    let response = upstream.probe(request).await?;
    let code = response.status();
    let body = collect(response.into_body(), IDENTITY_BYTES_MAX).await?;
    if code != StatusCode::OK {
        upstream.meter().failed(Cause::of_status(code).unwrap_or(Cause::Unexpected));
        return Err(fail(Failure::Answer(refusal(code))));
    }
    uid_of(&body).ok_or_else(|| {
        upstream.meter().failed(Cause::Unexpected);
        fail(Failure::Answer("namespace kube-system without a UID".into()))
    })
}

fn refusal(code: StatusCode) -> Arc<str> {
    let remedy = match code {
        StatusCode::UNAUTHORIZED => "; its credential is not valid there",
        StatusCode::FORBIDDEN => "; grant it `get` on namespaces",
        _ => "",
    };
    format!("kubefold may not read namespace kube-system ({code}){remedy}").into()
}

fn uid_of(body: &Bytes) -> Option<Arc<str>> {
    let identified: Identified = serde_json::from_slice(body).ok()?;
    (!identified.metadata.uid.is_empty()).then(|| identified.metadata.uid.into())
}

/// Which cluster a member was found to be, and how often it became another one.
#[derive(Debug)]
pub(super) struct Identity {
    uid: Mutex<Option<Arc<str>>>,
    incarnation: watch::Sender<u64>,
    checked: Mutex<Option<Checked>>,
    turn: tokio::sync::Mutex<()>,
}

/// One check of which cluster a member is.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) begun: Instant,
    /// How often the member had ceased to be ready then.
    pub(super) outages: u64,
    /// The incarnation that was found.
    pub(super) outcome: Result<u64, UpstreamError>,
}

impl Identity {
    pub(super) fn new() -> Self {
        Self {
            uid: Mutex::new(None),
            incarnation: watch::Sender::new(1),
            checked: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Notes the outcome of a check.
    pub(super) fn checked(&self, checked: Checked) {
        *self.checked.lock() = Some(checked);
    }

    /// Waits until nobody else checks to share.
    pub(super) async fn turn(&self) -> impl Drop + '_ {
        self.turn.lock().await
    }

    /// The outcome of the last check, if one who came then may take it: it began later, or a moment ago in the same outage.
    pub(super) fn shared(&self, came: Instant, outages: Option<u64>) -> Option<Result<u64, UpstreamError>> {
        let last = self.checked.lock().clone()?;
        let is_recent = outages == Some(last.outages) && last.begun.elapsed() < SHARED_FOR;
        match last.outcome {
            // The configuration may have changed since.
            Ok(incarnation) if incarnation != self.incarnation() => None,
            Ok(_) if is_recent => Some(last.outcome),
            _ => (last.begun > came).then_some(last.outcome),
        }
    }

    pub(super) fn uid(&self) -> Option<Arc<str>> {
        self.uid.lock().clone()
    }

    pub(super) fn incarnation(&self) -> u64 {
        *self.incarnation.borrow()
    }

    pub(super) fn incarnations(&self) -> watch::Receiver<u64> {
        self.incarnation.subscribe()
    }

    /// Notes what the member said; true if it is news.
    pub(super) fn learn(&self, uid: &Arc<str>) -> bool {
        let mut known = self.uid.lock();
        let before = known.replace(uid.clone());
        if before.as_ref() == Some(uid) {
            return false;
        }
        if before.is_some() {
            self.incarnation.send_modify(|incarnation| *incarnation += 1);
        }
        true
    }

    /// Another address was configured: what was read through the old one does not count.
    pub(super) fn doubt(&self) {
        self.incarnation.send_modify(|incarnation| *incarnation += 1);
    }
}

/// Who is which cluster, over all members: finds two members that are one.
#[derive(Debug, Default)]
pub(super) struct ClusterUids {
    entries: Mutex<Vec<Entry>>,
    /// Of an earlier process, until the member has said something itself.
    restored: Mutex<BTreeMap<String, String>>,
}

#[derive(Debug)]
struct Entry {
    id: MemberId,
    name: MemberName,
    uid: Option<Arc<str>>,
    /// What it said first, at this address.
    first: Option<Arc<str>>,
    twin: watch::Sender<Option<MemberName>>,
}

impl Entry {
    /// Says whether it is another cluster than it was.
    fn has_changed(&self) -> bool {
        self.first.is_some() && self.uid != self.first
    }
}

impl ClusterUids {
    /// Sets the members in configuration order. What is known about those that stay is kept.
    pub(super) fn arrange(&self, members: &[(MemberId, MemberName, watch::Sender<Option<MemberName>>)]) {
        let mut entries = self.entries.lock();
        let mut restored = self.restored.lock();
        let mut known = |id, name: &MemberName| match entries.iter().find(|entry: &&Entry| entry.id == id) {
            Some(entry) => (entry.uid.clone(), entry.first.clone()),
            None => (None, restored.remove(name.as_str()).map(Arc::from)),
        };
        let arranged = members
            .iter()
            .map(|(id, name, twin)| {
                let (uid, first) = known(*id, name);
                Entry { id: *id, name: name.clone(), uid, first, twin: twin.clone() }
            })
            .collect();
        *entries = arranged;
        settle(&entries);
    }

    /// How many members there are.
    pub(super) fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// Notes which cluster a member is; `None` while that is not known (any more).
    pub(super) fn report(&self, id: MemberId, uid: Option<Arc<str>>) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.id == id) {
            entry.first = match &uid {
                Some(uid) => entry.first.take().or_else(|| Some(Arc::clone(uid))),
                None => None,
            };
            entry.uid = uid;
        }
        settle(&entries);
    }

    /// Takes over what an earlier process knew, before any member is there.
    pub(super) fn restore(&self, known: BTreeMap<String, String>) {
        *self.restored.lock() = known;
    }

    /// Which cluster a member is, or was when the last process ended. `None`: it has another address since, or never said.
    pub(super) fn known_of(&self, id: MemberId) -> Option<Arc<str>> {
        let entries = self.entries.lock();
        let entry = entries.iter().find(|entry| entry.id == id)?;
        entry.uid.clone().or_else(|| entry.first.clone())
    }

    /// Which cluster each member is, or was when the last process ended.
    pub(super) fn known(&self) -> BTreeMap<String, String> {
        let entries = self.entries.lock();
        let of = |entry: &Entry| {
            let is_twin = entry.twin.borrow().is_some();
            let uid = if is_twin { &entry.first } else { entry.uid.as_ref().map_or(&entry.first, |_| &entry.uid) };
            uid.as_ref().map(|uid| (entry.name.to_string(), uid.to_string()))
        };
        entries.iter().filter_map(of).collect()
    }
}

/// Of the members with one UID, the first in configuration order is the cluster, the others are its twins. One that was
/// another cluster before comes after all that were not: a member can say whatever it likes, and what it says of itself
/// must not take the place of another.
fn settle(entries: &[Entry]) {
    for entry in entries {
        let same = || entries.iter().filter(|other| entry.uid.is_some() && other.uid == entry.uid);
        let first = same().find(|other| !other.has_changed()).or_else(|| same().next());
        let twin = first.filter(|first| first.id != entry.id).map(|first| first.name.clone());
        entry.twin.send_if_modified(|known| {
            let changed = *known != twin;
            *known = twin;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> MemberName {
        MemberName::new(name).unwrap()
    }

    #[test]
    fn another_uid_is_another_incarnation_and_the_first_is_none() {
        let identity = Identity::new();
        assert!(identity.learn(&"a".into()));
        assert_eq!(identity.incarnation(), 1);
        assert!(!identity.learn(&"a".into()));
        assert!(identity.learn(&"b".into()));
        assert_eq!(identity.incarnation(), 2);
    }

    #[test]
    fn the_second_of_two_equal_clusters_is_the_twin_until_the_first_leaves() {
        let cluster_uids = ClusterUids::default();
        let (east, west) = (watch::Sender::new(None), watch::Sender::new(None));
        let east_entry = (MemberId(1), name("east"), east.clone());
        let west_entry = (MemberId(2), name("west"), west.clone());
        cluster_uids.arrange(&[east_entry, west_entry.clone()]);
        cluster_uids.report(MemberId(2), Some("a".into()));
        assert_eq!(*west.borrow(), None);
        cluster_uids.report(MemberId(1), Some("a".into()));
        assert_eq!((east.borrow().clone(), west.borrow().clone()), (None, Some(name("east"))));
        cluster_uids.arrange(&[west_entry]);
        assert_eq!(*west.borrow(), None);
    }

    /// The attack: a member says that it is the cluster of another, and that one is taken for its copy.
    #[test]
    fn who_says_to_be_another_takes_nobodys_place() {
        let cluster_uids = ClusterUids::default();
        let (east, west) = (watch::Sender::new(None), watch::Sender::new(None));
        let entries = [(MemberId(1), name("east"), east.clone()), (MemberId(2), name("west"), west.clone())];
        cluster_uids.arrange(&entries);
        cluster_uids.report(MemberId(1), Some("e".into()));
        cluster_uids.report(MemberId(2), Some("w".into()));
        cluster_uids.report(MemberId(1), Some("w".into()));
        let twins = || (east.borrow().clone(), west.borrow().clone());
        assert_eq!(twins(), (Some(name("west")), None));
        // Nor after a restart.
        let known = cluster_uids.known();
        assert_eq!(known, [("east".to_owned(), "e".into()), ("west".to_owned(), "w".into())].into());
        let restarted = ClusterUids::default();
        restarted.restore(known);
        restarted.arrange(&entries);
        restarted.report(MemberId(1), Some("w".into()));
        restarted.report(MemberId(2), Some("w".into()));
        assert_eq!(twins(), (Some(name("west")), None));
        // The operator gave it another address: what it was before counts no more.
        restarted.report(MemberId(1), None);
        restarted.report(MemberId(1), Some("w".into()));
        assert_eq!(twins(), (None, Some(name("east"))));
    }

    #[test]
    fn a_uid_is_read_from_metadata() {
        let body =
            Bytes::from_static(br#"{"kind":"PartialObjectMetadata","metadata":{"name":"kube-system","uid":"u-1"}}"#);
        assert_eq!(uid_of(&body).as_deref(), Some("u-1"));
        assert_eq!(uid_of(&Bytes::from_static(b"{}")), None);
    }
}
