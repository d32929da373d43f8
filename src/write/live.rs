//! The fleet as it is: writes reach members through their connections, and the store through its own doors.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http::Method;
use kubefold_sql::RemoteState;
use parking_lot::Mutex;
use tokio::{sync::OwnedMutexGuard, time::Instant};

use crate::{
    catalog::Scope,
    config::MemberName,
    member::{
        Member,
        call::{Answer, Call, Document},
    },
    placement::{moved::Moved, policy::Rules},
    store::{Entry, FleetStore, Hold, Identities, Named, Part as StorePart, Shared, key, localize, refers_to_nothing},
    stores::{Running, Stores},
    write::{
        facts,
        fleet::{Ask, Facts, Fleet, Key, Listed, MemberLocal, NamedObject, Owner, Part, Placed, Visible},
        room::Measured,
    },
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    locate::Paths,
    matching::ObjectSelector,
    path::ApiPath,
    resource::{Gvr, split_api_version},
    splice::{Edit, ObjectEdits, splice},
};

/// How long a write waits for another one of the same key. A write whose outcome is not known yet is looked into again and again:
/// who waits longer than that may come in between, and meets parts that are neither there nor gone.
const HOLD_WAIT_MAX: Duration = Duration::from_secs(10);

/// The real thing behind [`Fleet`].
pub struct LiveFleet {
    pub(super) stores: Arc<Stores>,
    /// One lock per key that is being written, by resource and key; forgotten when nobody has it.
    keys: Mutex<HashMap<(String, String), Weak<KeyLock>>>,
    pub(super) measured: Measured,
    /// What says whether this process may change members still. `None`: no other one could.
    lease: Option<Arc<RemoteState>>,
}

type KeyLock = tokio::sync::Mutex<()>;

/// A key that is held: for one writer, and unemitted.
#[derive(Debug)]
pub struct LiveHold {
    // Dropped in this order: what the parts make now is shown before the next writer begins.
    fold: Option<Hold>,
    /// The same object in other versions of the API.
    twins: Vec<Hold>,
    /// What was shown when it was taken, and of which parts.
    whole: Option<(Visible, Vec<Part>)>,
    _key: OwnedMutexGuard<()>,
}

impl LiveFleet {
    /// Writes to these stores' members.
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores, keys: Mutex::default(), measured: Measured::default(), lease: None }
    }

    /// Changes members only while this process has the state.
    pub fn under(self, lease: Option<Arc<RemoteState>>) -> Self {
        Self { lease, ..self }
    }

    fn member(&self, name: &MemberName) -> Option<Arc<Member>> {
        self.stores.registry().get(name.as_str())
    }

    fn running(&self, key: &Key) -> Option<Arc<Running>> {
        self.stores.peek(&key.gvr)
    }

    fn key_lock(&self, of: &Key) -> Arc<KeyLock> {
        let mut keys = self.keys.lock();
        keys.retain(|_, lock| lock.strong_count() > 0);
        // Versions of one resource are one object.
        let name = (of.gvr.qualified(), key(&of.namespace, &of.name));
        if let Some(lock) = keys.get(&name).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        keys.insert(name, Arc::downgrade(&lock));
        lock
    }
}

impl Fleet for LiveFleet {
    type Hold = LiveHold;

    async fn call(&self, name: &MemberName, caller: &Caller, call: Call) -> Answer {
        // Whoever has the state since finishes what this process began.
        if call.method != Method::GET
            && let Some(Err(error)) = self.lease.as_ref().map(|lease| lease.check())
        {
            return Answer::NotSent(error.to_string());
        }
        match self.member(name) {
            Some(member) => member.call(Some(caller), call).await,
            None => unconfigured(name),
        }
    }

    async fn look(&self, name: &MemberName, key: &Key) -> Answer {
        match self.member(name) {
            Some(member) => member.look(key.collection(), &key.gvk, &key.name).await,
            None => unconfigured(name),
        }
    }

    async fn list(&self, name: &MemberName, path: ApiPath, query: String) -> Answer {
        let Some(member) = self.member(name) else { return unconfigured(name) };
        let (body, content_type) = (Bytes::new(), String::new());
        member.call(None, Call { method: Method::GET, path, query, body, content_type, user_agent: None }).await
    }

    fn members(&self) -> Vec<MemberName> {
        self.stores.registry().members().iter().map(|member| member.name().clone()).collect()
    }

    fn split(&self, visible: &str) -> Option<(String, MemberName)> {
        let naming = Arc::clone(&self.stores.shared().naming);
        naming.split(visible).map(|(own, member)| (own.to_owned(), member.clone()))
    }

    fn split_of(&self, gvr: &Gvr, visible: &str) -> Option<(String, MemberName)> {
        let naming = Arc::clone(&self.stores.shared().naming);
        naming.split_of(gvr, visible).map(|(own, member)| (own.into_owned(), member.clone()))
    }

    fn is_rebuilt(&self, member: &MemberName) -> bool {
        self.member(member).is_some_and(|member| member.config().rebuilt)
    }

    fn is_absent(&self, member: &MemberName) -> bool {
        self.member(member).is_some_and(|member| member.config().absent)
    }

    fn cluster_uid(&self, member: &MemberName) -> Option<String> {
        self.member(member)?.cluster_uid().map(|uid| uid.to_string())
    }

    fn rules(&self) -> Arc<Rules> {
        self.stores.rules()
    }

    async fn facts(&self, ask: Ask<'_>) -> Facts {
        Box::pin(facts::facts(&self.stores, &self.measured, ask)).await
    }

    async fn objects(&self, gvr: &Gvr, namespace: &str) -> Vec<Listed> {
        Box::pin(facts::objects(&self.stores, gvr, namespace, |_| true)).await
    }

    async fn labelled(&self, gvr: &Gvr, namespace: &str, selector: &ObjectSelector) -> Vec<Listed> {
        let is_selected = |entry: &Entry| {
            let labels = entry.labels().and_then(|json| serde_json::from_str(json).ok());
            let labels: HashMap<String, String> = labels.unwrap_or_default();
            selector.matches(|key| labels.get(key).map(String::as_str))
        };
        Box::pin(facts::objects(&self.stores, gvr, namespace, is_selected)).await
    }

    async fn placed_of(&self, gvr: &Gvr, namespace: &str) -> Vec<Listed> {
        Box::pin(facts::objects(&self.stores, gvr, namespace, |entry| entry.folded)).await
    }

    fn resource(&self, api_version: &str, kind: &str) -> Option<Gvr> {
        let (group, version) = split_api_version(api_version)?;
        Some(self.stores.catalog().by_kind(group, version, kind)?.gvr.clone())
    }

    fn named(&self, named: &NamedObject) -> Option<Key> {
        let catalog = self.stores.catalog();
        let resource = catalog.named(&named.resource)?;
        let namespace = if resource.scope == Scope::Namespaced { named.namespace.clone() } else { String::new() };
        Some(Key { gvr: resource.gvr.clone(), gvk: resource.gvk.clone(), namespace, name: named.name.clone() })
    }

    fn set_moved(&self, of: &Key, uid: &str, moved: Option<Arc<Moved>>) {
        self.stores.set_moved(&of.gvr, &key(&of.namespace, &of.name), uid, moved);
    }

    fn moved(&self, uid: &str) -> Option<Arc<Moved>> {
        self.stores.shared().identities.moved(uid)
    }

    async fn placed(&self) -> Vec<Placed> {
        Box::pin(facts::placed(&self.stores)).await
    }

    fn follow_placed(&self, kinds: BTreeSet<(String, String)>) {
        let identities = Arc::clone(&self.stores.shared().identities);
        kinds.iter().for_each(|(group, kind)| identities.place(group, kind));
    }

    fn set_cordoned(&self, members: BTreeSet<MemberName>) {
        self.stores.set_cordoned(members);
    }

    async fn holders(&self, namespace: &str, owner: &Owner) -> Vec<MemberName> {
        Box::pin(facts::holders(&self.stores, namespace, owner)).await
    }

    fn up(&self) -> Vec<MemberName> {
        let members = self.stores.registry().members();
        let up =
            members.iter().filter(|member| !member.config().absent && member.usable() && !member.health().is_down());
        up.map(|member| member.name().clone()).collect()
    }

    fn lost(&self) -> Vec<(MemberName, Duration)> {
        let (members, now) = (self.stores.registry().members(), Instant::now());
        let lost = members.iter().filter(|member| !member.config().absent && member.usable());
        let lost = lost.filter_map(|member| {
            let health = member.health();
            Some((member.name().clone(), health.age(now).filter(|_| health.is_down())?))
        });
        lost.collect()
    }

    fn shared_uid(&self, of: &Key) -> Option<String> {
        let shared = self.stores.shared();
        let (group, resource) = (&*of.gvr.group, &*of.gvr.resource);
        if !shared.naming.is_shared(group, resource, &of.namespace, &of.name) {
            return None;
        }
        let plain = key(&of.namespace, &of.name);
        let life = shared.identities.life(&format!("{group}/{resource}/{plain}"));
        // In a fleet of one member it has its own, which nobody knows yet.
        Some(shared.naming.shared_uid(group, resource, &plain, life).unwrap_or_default())
    }

    fn localize(&self, key: &Key, member: &MemberName, body: &Bytes) -> Bytes {
        let Some(running) = self.running(key) else { return body.clone() };
        let Ok(document) = std::str::from_utf8(body) else { return body.clone() };
        let naming = Arc::clone(&self.stores.shared().naming);
        let own_uid = |named: Named<'_>| self.own_uid(&named, member);
        let local = localize(running.store.spec(), &naming, member, &key.namespace, document, own_uid);
        local.map_or_else(|_| body.clone(), Bytes::from)
    }

    fn is_local(&self, key: &Key, body: &Bytes) -> bool {
        let Some(running) = self.running(key) else { return true };
        std::str::from_utf8(body).is_ok_and(|document| refers_to_nothing(running.store.spec(), document))
    }

    async fn hold(&self, of: &Key) -> Option<LiveHold> {
        let lock = self.key_lock(of);
        let guard = tokio::time::timeout(HOLD_WAIT_MAX, lock.lock_owned()).await.ok()?;
        // A kind that is gone has no store, and nothing to hold back.
        let running = self.stores.running(&of.gvr).ok();
        let Some(running) = running else {
            return Some(LiveHold { fold: None, twins: Vec::new(), whole: None, _key: guard });
        };
        let plain = key(&of.namespace, &of.name);
        let (fold, entry, parts) = running.store.hold_whole(&plain);
        let others = self.stores.twins(&of.gvr).into_iter().filter(|twin| !Arc::ptr_eq(twin, &running));
        let twins = others.map(|twin| twin.store.hold(&plain)).collect();
        let parts: Vec<Part> = parts.into_iter().filter_map(|one| self.part(&one)).collect();
        let whole = entry.filter(|entry| entry.folded && !parts.is_empty()).map(|entry| (shown(&entry), parts));
        Some(LiveHold { fold: Some(fold), twins, whole, _key: guard })
    }

    fn whole(&self, hold: &LiveHold, _of: &Key) -> Option<(Visible, Vec<Part>)> {
        hold.whole.clone()
    }

    fn serves(&self, of: &Key, subresource: &str) -> bool {
        self.stores.catalog().get(&of.gvr).is_some_and(|resource| resource.subresource(subresource).is_some())
    }

    async fn release(&self, mut hold: LiveHold) -> Option<Visible> {
        let shown = hold.fold.take().and_then(Hold::release).map(|entry| shown(&entry));
        hold.twins.clear();
        shown
    }

    async fn release_as_written(&self, mut hold: LiveHold) -> Option<Visible> {
        let shown = hold.fold.take().and_then(Hold::release_as_written).map(|entry| shown(&entry));
        for twin in hold.twins.drain(..) {
            twin.release_as_written();
        }
        shown
    }

    fn withhold(&self, of: &Key) {
        self.stores.withhold(&of.gvr, key(&of.namespace, &of.name));
    }

    fn show(&self, of: &Key) {
        self.stores.show(&of.gvr, &key(&of.namespace, &of.name));
    }

    fn set_behind(&self, of: &Key, uid: &str, members: &[MemberName]) {
        self.stores.set_behind(&of.gvr, &key(&of.namespace, &of.name), uid, members);
    }

    fn visible(&self, of: &Key) -> Option<Visible> {
        self.running(of)?.store.get(&key(&of.namespace, &of.name)).map(|entry| shown(&entry))
    }

    fn member_local(&self, of: &Key, member: &MemberName) -> Option<MemberLocal> {
        let member_local = self.running(of)?.store.member_local(&key(&of.namespace, &of.name), member)?;
        let (name, json) = (member_local.entry.name().to_owned(), member_local.original().into());
        Some(MemberLocal { name, json, shown: shown(&member_local.entry) })
    }

    fn own_revision(&self, of: &Key, member: &MemberName, revision: u64) -> Option<u64> {
        let own = key(&of.namespace, &of.name);
        let held =
            self.stores.twins(&of.gvr).into_iter().filter_map(|running| running.store.member_local(&own, member));
        held.filter(|member_local| member_local.entry.revision.0 == revision)
            .find_map(|member_local| member_local.member_rv)
    }

    fn fleet_revision(&self, of: &Key, member: &MemberName, own: u64) -> Option<u64> {
        let store = &self.running(of)?.store;
        store.revision_of(&key(&of.namespace, &of.name), member, own).map(|revision| revision.0)
    }

    fn parts(&self, of: &Key) -> Vec<Part> {
        let Some(running) = self.running(of) else { return Vec::new() };
        let parts = running.store.shown_parts(&key(&of.namespace, &of.name));
        parts.into_iter().filter_map(|one| self.part(&one)).collect()
    }

    async fn ingest(&self, of: &Key, member: &MemberName, body: &Document) {
        let Some(running) = self.running(of) else { return };
        // The store's life first: should the member become another cluster after the look at it, the store refuses.
        let incarnation = running.store.incarnation(member);
        if self.member(member).is_none_or(|member| member.incarnation() != body.incarnation) {
            return;
        }
        let document = std::str::from_utf8(body).unwrap_or_default();
        if let Err(error) = running.store.ingest_live(member, incarnation, document) {
            tracing::warn!(%member, key = %of, %error, "the answer to a write cannot be taken in; the watch will bring it");
        }
    }

    fn render(&self, key: &Key, documents: &[(MemberName, Bytes)]) -> Option<Bytes> {
        let running = self.running(key)?;
        let shared = self.stores.shared();
        let identities = Arc::new(Identities::over(Arc::clone(&shared.identities)));
        let shared = Shared { identities, ..Shared::clone(&shared) };
        let scratch = FleetStore::new(running.store.spec_arc(), shared, |_| {});
        let mut shown = None;
        for (member, document) in documents {
            scratch.join(member, &self.cluster_uid(member).unwrap_or_default());
            let document = with_revision(std::str::from_utf8(document).ok()?)?;
            let incarnation = scratch.incarnation(member);
            shown = scratch.ingest_live(member, incarnation, &document).ok().flatten();
        }
        let entry = scratch.get(&shown?.key)?;
        without_revision(std::str::from_utf8(entry.json()).ok()?).map(Bytes::from)
    }

    async fn wait_gone(&self, of: &Key, member: &MemberName, uid: &str, bound: Duration) -> bool {
        let Some(running) = self.running(of) else { return true };
        let deadline = Instant::now() + bound;
        let mut changes = running.store.subscribe();
        let plain = key(&of.namespace, &of.name);
        loop {
            changes.borrow_and_update();
            if !running.store.holds(&plain, member, uid) {
                return true;
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return false;
            }
        }
    }
}

impl LiveFleet {
    /// A part in the words of a write. Its cluster is the one that its marker names: that one is known of a member, too,
    /// that was never reached since kubefold started. Shared objects have none.
    fn part(&self, part: &StorePart) -> Option<Part> {
        let cluster_uid = match &part.marker {
            Some(marker) => marker.members.iter().find(|(name, _)| *name == part.member)?.1.clone(),
            None => self.cluster_uid(&part.member)?,
        };
        Some(Part {
            cluster_uid,
            member: part.member.clone(),
            uid: part.uid.clone(),
            resource_version: part.member_rv.to_string(),
            json: Bytes::from(part.document.text().into_owned()),
        })
    }

    /// The UID that a folded object's part has in a member.
    fn own_uid(&self, named: &Named<'_>, member: &MemberName) -> Option<String> {
        let kind = (named.group_version.0.to_owned(), named.kind.to_owned());
        let store = &self.stores.parts_of(&kind)?.store;
        let namespaces = [named.namespace, ""];
        let parts = namespaces.iter().flat_map(|namespace| store.parts(&key(namespace, named.name)));
        parts.into_iter().find(|part| part.member == *member).map(|part| part.uid.clone())
    }
}

fn shown(entry: &Entry) -> Visible {
    Visible {
        uid: entry.uid().to_owned(),
        revision: entry.revision.0,
        body: Bytes::copy_from_slice(entry.json()),
        deleting: entry.deleting,
    }
}

/// The answer to a dry run has no revision; the store takes no object without one.
fn with_revision(document: &str) -> Option<String> {
    let mut found = Vec::new();
    let paths = Paths::new([(0, ["metadata", "resourceVersion"].as_slice()), (1, ["metadata", "name"].as_slice())]);
    paths.locate(document, &mut found).ok()?;
    if found.iter().any(|at| at.id == 0) {
        return Some(document.to_owned());
    }
    let name = found.into_iter().find(|at| at.id == 1)?.range;
    let insert = Edit::new(name.end..name.end, b",\"resourceVersion\":\"1\"".as_slice());
    let mut out = Vec::with_capacity(document.len() + 24);
    splice(document.as_bytes(), &mut [insert], &mut out);
    String::from_utf8(out).ok()
}

fn without_revision(document: &str) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    Paths::new([(0, ["metadata"].as_slice())]).locate(document, &mut found).ok()?;
    let at = found.into_iter().next()?.range;
    let mut metadata = ObjectEdits::new(document.get(at.clone())?, at.start).ok()?;
    metadata.remove(|key| key == "resourceVersion");
    let mut out = Vec::with_capacity(document.len());
    splice(document.as_bytes(), &mut metadata.finish(), &mut out);
    Some(out)
}

fn unconfigured(name: &MemberName) -> Answer {
    Answer::NotSent(format!("member {name} is not in the configuration"))
}
