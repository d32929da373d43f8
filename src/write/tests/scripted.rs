//! Members in memory, with a fault for any call, and a store that reads through to them.
//!
//! Embedded members (`tests/promises`) cannot take their place: these tests put a fault or a kill after each single call of
//! a write, and after each pair of calls, so that they have to know and to number the calls.

mod change;
mod fault;
mod standing;

pub(super) use fault::{CRASHES, FAULTS, Fault};
pub(super) use standing::member;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    config::{MemberName, Names, Weight},
    member::call::{Answer, Call, Document},
    placement::{
        capacity::Capacity,
        fold::{FoldKind, PartView, fold},
        moved::Moved,
        noted::as_written,
        plan::{Candidate, Standing},
        policy::Rules,
    },
    store::{KindSpec, Naming, localize, refers_to_nothing},
    write::{
        MOVER,
        fleet::{Ask, Facts, Fleet, Key, Listed, MemberLocal, NamedObject, Owner, Part, Placed, Visible},
        tests::{Held, answered, document, get_of, listed},
    },
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{matching::ObjectSelector, path::ApiPath, resource::Gvr, splice::splice, status::Status};

/// Everything that is not kubefold: it survives a crash.
#[derive(Default)]
pub(super) struct World {
    pub(super) members: BTreeMap<MemberName, Cluster>,
    pub(super) calls: Vec<(MemberName, Call)>,
    /// Who made each of them.
    pub(super) callers: Vec<String>,
    /// By the number of the call.
    pub(super) faults: BTreeMap<usize, Fault>,
    pub(super) crashed: bool,
    /// How often a process was started. Those of before do nothing more.
    processes: usize,
    /// Whose requests a member refuses.
    pub(super) denied: BTreeSet<(MemberName, String)>,
    pub(super) rules: Arc<Rules>,
    pub(super) sticky: Option<MemberName>,
    pub(super) lacks_namespace: BTreeSet<MemberName>,
    /// What lists of children of workloads tell.
    pub(super) orphans: BTreeMap<MemberName, Vec<Value>>,
    late: Vec<(Instant, MemberName, Call)>,
    uids: u64,
    /// The fewest replicas that all members together had after a call, since this was last set.
    pub(super) fewest: u64,
    /// What runs is available, also while nothing moves.
    pub(super) is_available: bool,
    /// The most pods that the quotas of all members together allowed after a call, since this was last set.
    pub(super) most_allowed: u64,
    /// The records of placements that have moved, by UID.
    pub(super) moved: BTreeMap<String, Arc<Moved>>,
    /// The newest own UID of every name that was ever made, per member.
    pub(super) made: Vec<(MemberName, String)>,
}

#[derive(Default)]
pub(super) struct Cluster {
    pub(super) uid: String,
    pub(super) weight: u32,
    pub(super) down: bool,
    pub(super) absent: bool,
    /// How many replicas fit on its nodes; `None`: that is not known.
    pub(super) free: Option<u32>,
    /// Since when it is lost.
    pub(super) lost: Option<Instant>,
    pub(super) standing: Option<Standing>,
    pub(super) objects: BTreeMap<String, Value>,
}

/// Members that are behind, by an object's name and UID.
type Behind = BTreeMap<(String, String), Vec<String>>;

#[derive(Clone)]
pub(super) struct Scripted {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) killed: Arc<Notify>,
    process: usize,
    held: Arc<Mutex<BTreeSet<String>>>,
    pub(super) withheld: Arc<Mutex<BTreeSet<String>>>,
    /// What the writer said last of who is behind, by name and UID.
    pub(super) behind: Arc<Mutex<Behind>>,
}

impl Scripted {
    pub(super) fn new(weights: &[(&str, u32)]) -> Self {
        let members = weights.iter().map(|(name, weight)| {
            let cluster = Cluster { uid: format!("cluster-{name}"), weight: *weight, ..Cluster::default() };
            (member(name), cluster)
        });
        let world = World { members: members.collect(), ..World::default() };
        Self::of(Arc::new(Mutex::new(world)))
    }

    fn of(world: Arc<Mutex<World>>) -> Self {
        let (killed, held, withheld, behind) = Default::default();
        let process = world.lock().processes;
        Self { world, killed, process, held, withheld, behind }
    }

    /// The same world, as a fresh process finds it.
    pub(super) fn restarted(&self) -> Self {
        let mut world = self.world.lock();
        world.crashed = false;
        world.processes += 1;
        drop(world);
        Self::of(self.world.clone())
    }

    fn is_killed(&self) -> bool {
        self.world.lock().has_killed(self.process)
    }
}

impl World {
    fn has_killed(&self, process: usize) -> bool {
        self.crashed || self.processes != process
    }

    /// Does what was under way and is due.
    fn land(&mut self) {
        let now = Instant::now();
        let (due, rest) = std::mem::take(&mut self.late).into_iter().partition(|(at, ..)| *at <= now);
        self.late = rest;
        let due: Vec<(Instant, MemberName, Call)> = due;
        for (_, member, call) in due {
            self.serve(&member, &call);
        }
    }

    /// What a kube-apiserver does, as far as these tests see it.
    fn serve(&mut self, member: &MemberName, call: &Call) -> (StatusCode, Bytes) {
        let answer = self.answer(member, call);
        self.count();
        answer
    }

    fn answer(&mut self, member: &MemberName, call: &Call) -> (StatusCode, Bytes) {
        let status = |status: Status| (status.code, status.to_json());
        let dry =
            call.query.contains("dryRun=All") || String::from_utf8_lossy(&call.body).contains(r#""dryRun":["All"]"#);
        self.uids += 1;
        let Some(cluster) = self.members.get_mut(member) else { panic!("no member {member}") };
        let mut segments = call.path.as_str().split('/').skip(6);
        let last = call.path.as_str().rsplit('/').next().unwrap().to_owned();
        let (subject, subresource) = (segments.nth(1).unwrap_or_default(), segments.next());
        if let Some(subresource) = subresource {
            return self.serve_subresource(member, call, subject, subresource, dry);
        }
        if call.method == Method::POST {
            let mut object: Value = serde_json::from_slice(&call.body).unwrap();
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if cluster.objects.contains_key(&name) {
                let mut already =
                    Status::conflict("apps", "deployments", &name, format!("{last}.apps {name:?} already exists"));
                already.reason = kubefold_wire::status::Reason::AlreadyExists;
                return status(already);
            }
            change::owned(call, None, &mut object, "");
            return self.insert(member, &name, object, dry);
        }
        let Some(object) = cluster.objects.get(&last).cloned() else {
            if change::makes(call) {
                return match change::applied(call, None) {
                    Ok(object) => self.insert(member, &last, object, dry),
                    Err(error) => status(error.into()),
                };
            }
            return status(Status::not_found("apps", "deployments", &last));
        };
        if call.method == Method::GET {
            return (StatusCode::OK, Bytes::from(object.to_string()));
        }
        if matches!(call.method, Method::PUT | Method::PATCH) {
            return self.replace(member, call, &last, object, dry);
        }
        let options: Value = serde_json::from_slice(&call.body).unwrap();
        for (field, meta) in [("uid", "uid"), ("resourceVersion", "resourceVersion")] {
            let wanted = &options["preconditions"][field];
            if !wanted.is_null() && *wanted != object["metadata"][meta] {
                let words = if field == "uid" { "UID in precondition" } else { "ResourceVersion in precondition" };
                return status(Status::conflict("apps", "deployments", &last, format!("Precondition failed: {words}")));
            }
        }
        let mut object = object;
        if options["propagationPolicy"] == "Foreground" {
            object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        }
        if object["metadata"]["finalizers"].is_array() {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            if !dry {
                cluster.objects.insert(last, object.clone());
            }
            return (StatusCode::OK, Bytes::from(object.to_string()));
        }
        if !dry {
            cluster.objects.remove(&last);
        }
        (StatusCode::OK, Bytes::from(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}).to_string()))
    }
}

impl Fleet for Scripted {
    type Hold = Held;

    fn named(&self, named: &NamedObject) -> Option<Key> {
        Some(super::request("", &Value::Null).key(&named.name))
    }

    fn set_moved(&self, _key: &Key, uid: &str, moved: Option<Arc<Moved>>) {
        let mut world = self.world.lock();
        match moved {
            Some(moved) => drop(world.moved.insert(uid.to_owned(), moved)),
            None => drop(world.moved.remove(uid)),
        }
    }

    fn moved(&self, uid: &str) -> Option<Arc<Moved>> {
        self.world.lock().moved.get(uid).cloned()
    }

    async fn placed(&self) -> Vec<Placed> {
        let mut world = self.world.lock();
        world.land();
        let key = super::request("", &Value::Null).key("web");
        let parts = world.marked(&key);
        let Some((marker, ..)) = parts.first().cloned() else { return Vec::new() };
        let members = parts.into_iter().map(|(_, member, _)| member).collect();
        vec![Placed { key, marker: Arc::new(marker), members }]
    }

    fn follow_placed(&self, _kinds: BTreeSet<(String, String)>) {}

    fn set_cordoned(&self, _members: BTreeSet<MemberName>) {}

    async fn look(&self, member: &MemberName, key: &Key) -> Answer {
        self.call(member, &Caller::default(), get_of(key)).await
    }

    async fn call(&self, member: &MemberName, caller: &Caller, call: Call) -> Answer {
        let answer = {
            let mut world = self.world.lock();
            world.land();
            let number = world.calls.len();
            let is_killed = world.has_killed(self.process);
            if !is_killed {
                world.calls.push((member.clone(), call.clone()));
                world.callers.push(caller.user.clone());
            }
            let is_delete = call.method == Method::DELETE && caller.user != MOVER;
            let concerns = |fault: &Fault| *fault != Fault::RefuseCaller || is_delete;
            let fault = world.faults.get(&number).copied().filter(|fault| !is_killed && concerns(fault));
            let late = Instant::now() + Duration::from_secs(if fault == Some(Fault::LostLong) { 120 } else { 33 });
            let down = world.members[member].down;
            let is_denied = world.denied.contains(&(member.clone(), caller.user.clone()));
            match fault {
                _ if is_killed => None,
                _ if down => Some(Answer::NotSent("connection refused".into())),
                Some(Fault::NotSent) => Some(Answer::NotSent("connection refused".into())),
                Some(Fault::Refuse | Fault::RefuseCaller) => Some(answered(&Status::forbidden("no"))),
                None if is_denied => Some(answered(&Status::forbidden("no"))),
                Some(fault @ (Fault::Broken | Fault::BrokenLanded)) => {
                    if fault == Fault::BrokenLanded {
                        world.serve(member, &call);
                    }
                    Some(answered(&Status::internal("etcd: timed out")))
                }
                Some(Fault::LostNothing) => Some(Answer::Unknown("reset".into())),
                Some(Fault::LostLanded) => {
                    world.serve(member, &call);
                    Some(Answer::Unknown("reset".into()))
                }
                Some(Fault::LostLate | Fault::LostLong) => {
                    world.late.push((late, member.clone(), call));
                    Some(Answer::Unknown("reset".into()))
                }
                Some(Fault::CrashBefore) => {
                    world.crashed = true;
                    None
                }
                Some(Fault::CrashAfter) => {
                    world.serve(member, &call);
                    world.crashed = true;
                    None
                }
                Some(Fault::CrashLate) => {
                    world.late.push((late, member.clone(), call));
                    world.crashed = true;
                    None
                }
                None | Some(Fault::Vanished | Fault::Touched(..)) => {
                    world.meddle(member, fault);
                    let (code, body) = world.serve(member, &call);
                    Some(Answer::Answered {
                        code,
                        warnings: vec!["299 - \"unknown field \\\"x\\\"\"".into()],
                        body: document(body),
                    })
                }
            }
        };
        match answer {
            Some(answer) => answer,
            None => {
                self.killed.notify_one();
                std::future::pending().await
            }
        }
    }

    async fn list(&self, name: &MemberName, _path: ApiPath, _query: String) -> Answer {
        let items = self.world.lock().orphans.get(name).cloned().unwrap_or_default();
        let body = document(json!({"items": items}).to_string().into());
        Answer::Answered { code: StatusCode::OK, warnings: Vec::new(), body }
    }

    fn members(&self) -> Vec<MemberName> {
        self.world.lock().members.keys().cloned().collect()
    }

    fn rules(&self) -> Arc<Rules> {
        self.world.lock().rules.clone()
    }

    fn split(&self, visible: &str) -> Option<(String, MemberName)> {
        let (own, name) = visible.rsplit_once('@')?;
        let member = MemberName::new(name).filter(|member| self.world.lock().members.contains_key(member))?;
        Some((own.to_owned(), member))
    }

    fn split_of(&self, gvr: &Gvr, visible: &str) -> Option<(String, MemberName)> {
        let naming = Naming::of(Names::Suffixed, Vec::new(), self.members());
        naming.split_of(gvr, visible).map(|(own, member)| (own.into_owned(), member.clone()))
    }

    fn is_absent(&self, member: &MemberName) -> bool {
        self.world.lock().members.get(member).is_some_and(|cluster| cluster.absent)
    }

    fn is_rebuilt(&self, _member: &MemberName) -> bool {
        false
    }

    fn cluster_uid(&self, member: &MemberName) -> Option<String> {
        self.world.lock().members.get(member).map(|cluster| cluster.uid.clone())
    }

    async fn facts(&self, ask: Ask<'_>) -> Facts {
        let world = self.world.lock();
        let candidate = |(name, cluster): (&MemberName, &Cluster)| Candidate {
            name: name.clone(),
            cluster_uid: Some(cluster.uid.clone()),
            weight: Weight(cluster.weight),
            absent: false,
            allowed: true,
            standing: cluster.standing.clone().unwrap_or(Standing::Ready),
            serves_kind: true,
            has_namespace: ask.key.namespace.is_empty() || !world.lacks_namespace.contains(name),
            missing_owners: ask
                .owners
                .iter()
                .filter(|owner| !cluster.objects.contains_key(&owner.name))
                .map(|owner| format!("{} {:?}", owner.kind, owner.name))
                .collect(),
            missing_claims: Vec::new(),
            fits: ask.pods.map_or(Ok(()), |pods| pods.in_member(name).map(|_| ())),
            capacity: cluster.free.map(|replicas| Capacity { replicas, ..Capacity::default() }),
            quota: None,
        };
        let candidates = world.members.iter().map(candidate).collect();
        Facts { candidates, sticky: world.sticky.clone() }
    }

    async fn objects(&self, gvr: &Gvr, _namespace: &str) -> Vec<Listed> {
        listed(&self.world.lock(), gvr)
    }

    async fn labelled(&self, gvr: &Gvr, namespace: &str, selector: &ObjectSelector) -> Vec<Listed> {
        let mut all = self.objects(gvr, namespace).await;
        all.retain(|one| {
            let object: Value = serde_json::from_slice(&one.parts[0].1).unwrap();
            selector.matches(|key| object["metadata"]["labels"][key].as_str())
        });
        all
    }

    async fn placed_of(&self, gvr: &Gvr, namespace: &str) -> Vec<Listed> {
        self.objects(gvr, namespace).await
    }

    fn resource(&self, api_version: &str, kind: &str) -> Option<Gvr> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Some(Gvr::new(group, version, &format!("{}s", kind.to_lowercase())))
    }

    async fn holders(&self, _namespace: &str, owner: &Owner) -> Vec<MemberName> {
        let world = self.world.lock();
        let holds = |(_, cluster): &(&MemberName, &Cluster)| cluster.objects.contains_key(&owner.name);
        world.members.iter().filter(holds).map(|(name, _)| name.clone()).collect()
    }

    fn up(&self) -> Vec<MemberName> {
        let world = self.world.lock();
        world.members.iter().filter(|(_, cluster)| !cluster.down).map(|(name, _)| name.clone()).collect()
    }

    fn lost(&self) -> Vec<(MemberName, Duration)> {
        let world = self.world.lock();
        let lost = world.members.iter().filter_map(|(name, cluster)| Some((name.clone(), cluster.lost?.elapsed())));
        lost.collect()
    }

    fn shared_uid(&self, key: &Key) -> Option<String> {
        (&*key.gvr.resource == "namespaces").then(|| format!("shared-{}", key.name))
    }

    fn localize(&self, key: &Key, member: &MemberName, body: &Bytes) -> Bytes {
        let naming = Naming::of(Names::Suffixed, Vec::new(), self.members());
        let spec = KindSpec::new(key.gvr.clone(), key.gvk.clone(), !key.namespace.is_empty());
        let text = std::str::from_utf8(body).unwrap();
        let local = localize(&spec, &naming, member, &key.namespace, text, |_| None);
        local.map_or_else(|_| body.clone(), Bytes::from)
    }

    fn is_local(&self, key: &Key, body: &Bytes) -> bool {
        let spec = KindSpec::new(key.gvr.clone(), key.gvk.clone(), !key.namespace.is_empty());
        refers_to_nothing(&spec, std::str::from_utf8(body).unwrap())
    }

    async fn hold(&self, key: &Key) -> Option<Held> {
        for _ in 0..10 {
            if self.is_killed() {
                std::future::pending::<()>().await;
            }
            if self.held.lock().insert(key.name.clone()) {
                return Some(Held { held: self.held.clone(), key: key.clone() });
            }
            sleep(Duration::from_millis(500)).await;
        }
        None
    }

    async fn release(&self, hold: Held) -> Option<Visible> {
        let key = hold.key.clone();
        drop(hold);
        self.visible(&key)
    }

    /// Nothing corrects a status here.
    async fn release_as_written(&self, hold: Held) -> Option<Visible> {
        self.release(hold).await
    }

    fn withhold(&self, key: &Key) {
        self.withheld.lock().insert(key.name.clone());
    }

    fn show(&self, key: &Key) {
        self.withheld.lock().remove(&key.name);
    }

    fn set_behind(&self, key: &Key, uid: &str, members: &[MemberName]) {
        let names = members.iter().map(|member| member.as_str().to_owned()).collect();
        self.behind.lock().insert((key.name.clone(), uid.to_owned()), names);
    }

    fn visible(&self, key: &Key) -> Option<Visible> {
        if self.withheld.lock().contains(&key.name) {
            return None;
        }
        let mut world = self.world.lock();
        world.land();
        if let Some((own, name)) = key.name.rsplit_once('@') {
            let mut object = world.members.get(&member(name))?.objects.get(own)?.clone();
            object["metadata"]["name"] = key.name.clone().into();
            // As far from the member's as a fleet's revision is.
            let revision = super::own_revision(&object).map_or(7, |own| own + 1_000_000);
            object["metadata"]["resourceVersion"] = revision.to_string().into();
            object["metadata"]["annotations"]["kubefold.io/cluster"] = name.into();
            let uid = object["metadata"]["uid"].as_str().unwrap_or("own").to_owned();
            let deleting = object["metadata"]["deletionTimestamp"].is_string();
            return Some(Visible { uid, revision, body: object.to_string().into(), deleting });
        }
        if let Some(uid) = self.shared_uid(key) {
            let (_, mut object) = world.holders(key).into_iter().next()?;
            object["metadata"]["uid"] = uid.clone().into();
            object["metadata"]["resourceVersion"] = "7".into();
            let deleting = object["metadata"]["deletionTimestamp"].is_string();
            return Some(Visible { uid, revision: 7, body: object.to_string().into(), deleting });
        }
        let parts = world.marked(key);
        let uid = parts.first()?.0.uid.clone();
        let deleting = parts.first()?.2["metadata"]["deletionTimestamp"].is_string();
        let documents: Vec<_> =
            parts.iter().map(|(_, member, object)| (member.clone(), object.to_string().into())).collect();
        drop(world);
        let mut body: Value = serde_json::from_slice(&self.render(key, &documents)?).unwrap();
        body["metadata"]["resourceVersion"] = "7".into();
        Some(Visible { uid, revision: 7, body: body.to_string().into(), deleting })
    }

    fn whole(&self, _hold: &Held, key: &Key) -> Option<(Visible, Vec<Part>)> {
        Some((self.visible(key)?, self.parts(key)))
    }

    fn serves(&self, _key: &Key, _subresource: &str) -> bool {
        true
    }

    fn member_local(&self, key: &Key, member: &MemberName) -> Option<MemberLocal> {
        let mut world = self.world.lock();
        world.land();
        let object = world.members.get(member)?.objects.get(&key.name)?.clone();
        drop(world);
        let name = format!("{}@{member}", key.name);
        let shown = self.visible(&key.named(&name))?;
        Some(MemberLocal { name, json: object.to_string().into(), shown })
    }

    fn own_revision(&self, key: &Key, member: &MemberName, revision: u64) -> Option<u64> {
        let member_local =
            self.member_local(key, member).filter(|member_local| member_local.shown.revision == revision)?;
        super::own_revision(&serde_json::from_slice(&member_local.json).unwrap())
    }

    fn fleet_revision(&self, key: &Key, member: &MemberName, own: u64) -> Option<u64> {
        let member_local = self.member_local(key, member)?;
        let held = super::own_revision(&serde_json::from_slice(&member_local.json).unwrap());
        (held == Some(own)).then_some(member_local.shown.revision)
    }

    fn parts(&self, key: &Key) -> Vec<Part> {
        let mut world = self.world.lock();
        world.land();
        let part = |(member, object): (MemberName, Value)| Part {
            cluster_uid: world.members[&member].uid.clone(),
            member,
            uid: object["metadata"]["uid"].as_str().unwrap().into(),
            resource_version: object["metadata"]["resourceVersion"].as_str().unwrap().into(),
            json: Bytes::from(object.to_string()),
        };
        let marked = || world.marked(key).into_iter().map(|(_, member, object)| (member, object)).collect();
        let held = if self.shared_uid(key).is_some() { world.holders(key) } else { marked() };
        held.into_iter().map(part).collect()
    }

    async fn ingest(&self, _key: &Key, _member: &MemberName, body: &Document) {
        let object: Value = serde_json::from_slice(body).unwrap();
        assert!(object["metadata"]["uid"].is_string(), "only objects are ingested: {object}");
    }

    fn render(&self, key: &Key, documents: &[(MemberName, Bytes)]) -> Option<Bytes> {
        let mut texts: Vec<_> =
            documents.iter().map(|(name, body)| (name, String::from_utf8(body.to_vec()).unwrap())).collect();
        let home = &mut texts.first_mut()?.1;
        *home = as_written(home, false).unwrap_or_else(|| home.clone());
        let views: Vec<_> = texts.iter().map(|(member, json)| PartView { member, json }).collect();
        let object: Value = serde_json::from_str(views.first()?.json).unwrap();
        let uid = object["metadata"]["labels"]["kubefold.io/placement"].as_str().unwrap_or("own").to_owned();
        let mut out = Vec::new();
        let kind = FoldKind::known(self.rules().kinds(), &key.gvr, &key.gvk);
        splice(views.first()?.json.as_bytes(), &mut fold(&views, kind, &uid).unwrap(), &mut out);
        Some(out.into())
    }

    async fn wait_gone(&self, key: &Key, member: &MemberName, uid: &str, _bound: Duration) -> bool {
        let world = self.world.lock();
        world.members[member].objects.get(&key.name).is_none_or(|object| object["metadata"]["uid"] != uid)
    }
}
