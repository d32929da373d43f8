//! `/kubefold/v1/status`: what an operator asks of the fleet as a whole. Under the same rule as the fleet view.
//!
//! May name: `stores`, the journal of `write`, and what is below them.

use http::{Response, StatusCode, header};
use kubefold_sql::{RemoteFigures, RemoteState, Replica};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    config::MemberName,
    member::Member,
    mirror::{Figures, MemoryFigures},
    store::Notices,
    stores::{Filling, StoreFigures, Stores},
    write::journal::{Entry, Journal, Step, Unfinished},
};
use kubefold_wire::{
    body::{Body, full},
    resource::Gvr,
};

/// Where it is asked for.
pub const STATUS_PATH: &str = "/kubefold/v1/status";

/// The fleet as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetStatus {
    /// Every configured member, in order.
    pub members: Vec<MemberStatus>,
    /// The kinds that are followed now: what is said below of differing objects is said of these.
    pub kinds: Vec<KindStatus>,
    /// What is kept of the members' objects for a restart; absent where `clusters.yaml` disables that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorStatus>,
    /// The state on a server of databases; absent where it is in the state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateStatus>,
    /// The processes that use that state, by address; empty where there can be only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaStatus>,
    /// Records of the state directory that cannot be read: a sentence for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// Writes that have not reached every part, oldest first.
    pub unfinished: Vec<UnfinishedWrite>,
    /// Objects of which somebody edited, deleted or restored a part.
    pub differing: Vec<RemarkedObject>,
    /// Objects whose name another, younger placement has, too.
    pub doubled: Vec<RemarkedObject>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// `ready`, `degraded`, `down` or `unknown`.
    pub state: String,
    /// Whether requests are sent to it.
    pub reachable: bool,
    /// What is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How long it has been so. Units: seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_seconds: Option<u64>,
    /// Its Kubernetes version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How long its last probe waited for an answer. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_millis: Option<f64>,
    /// Kinds that are followed in it.
    #[serde(default)]
    pub stores: usize,
    /// Its objects in them.
    #[serde(default)]
    pub objects: usize,
    /// What they cost to hold. Units: bytes.
    #[serde(default)]
    pub bytes: usize,
    /// Events of its watches that were taken in, of the kinds that are followed now.
    #[serde(default)]
    pub events: u64,
    /// How long the kind that is furthest behind has not been followed; 0: all are current. Units: seconds.
    #[serde(default)]
    pub lag_seconds: u64,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<PastError>,
    /// The UID of its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The configuration declares it absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
}

/// What is kept of the members' objects for a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MirrorStatus {
    /// There is a file to keep anything in.
    pub on: bool,
    /// Objects in it, as of the last minute.
    pub objects: u64,
    /// Its size. Units: bytes.
    pub bytes: u64,
    /// How long ago everything that kubefold had was written; absent before the first time. Units: seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<u64>,
    /// What went wrong last; absent once everything could be written again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The bound on the objects in memory (`mirror.memory`); absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
}

/// The bound on the objects in memory, and what that means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// The bound. Units: bytes.
    pub max_bytes: u64,
    /// The objects in memory. Units: bytes.
    pub bytes: u64,
    /// The resources that are in the mirror's tables alone because of it.
    pub in_tables: Vec<String>,
}

/// How it goes with the state on a server of databases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateStatus {
    /// The database, without user and password.
    pub place: String,
    /// How long it cannot be reached; absent while it can. Units: seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_seconds: Option<u64>,
    /// Another process has it since, or it was restored from a backup: this process writes nothing more.
    pub lost: bool,
    /// It was restored from a backup before this process started.
    pub restored: bool,
    /// Why nothing can be written; absent while it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A process that uses the same state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// Where the others reach it: `host:port`.
    pub address: String,
    /// `holder`: it has the state and answers; or `standby`: it hands requests on to the holder.
    pub role: String,
    /// The name of its machine, in Kubernetes its pod.
    pub host: String,
    /// Its number there.
    pub process: i64,
    /// Its version.
    pub version: String,
    /// How long ago it said that it is there. Units: seconds.
    pub seen_seconds: u64,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastError {
    /// What, in one sentence.
    pub message: String,
    /// How long ago. Units: seconds.
    pub age_seconds: u64,
}

/// One kind that is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindStatus {
    /// `deployments.apps`.
    pub resource: String,
    /// `v1`.
    pub version: String,
    /// Visible objects.
    pub objects: usize,
    /// Watches of clients.
    pub watches: usize,
    /// Events of the members' watches that were taken in since the kind is followed.
    #[serde(default)]
    pub events: u64,
    /// Members whose objects of the kind were never held completely.
    pub unknown: Vec<String>,
    /// Of them, those that are being listed, and how far they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filling: Vec<FillingMember>,
}

/// A member whose objects of a kind are being listed for the first time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FillingMember {
    /// Its name.
    pub member: String,
    /// Objects that have been listed.
    pub listed: u64,
    /// About how many there are. Absent while the member has not said that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// A write that has not reached every part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnfinishedWrite {
    /// `deployments.apps`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// `create`, `delete`, ...
    pub verb: String,
    /// How long it has been unfinished. Units: seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Who asked for it, and as whom it is finished.
    pub user: String,
    /// The members that it has not reached, and why.
    pub behind: Vec<BehindMember>,
}

/// A member that a write has not reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BehindMember {
    /// Its name.
    pub member: String,
    /// Why the part is behind: one sentence.
    pub why: String,
}

/// An object and the members that something is to be said of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemarkedObject {
    /// `deployments.apps`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The members.
    pub members: Vec<String>,
}

/// Answers a get of [`STATUS_PATH`]. `now_unix` is in seconds since 1970.
pub fn answer(stores: &Stores, journal: &Journal, now_unix: u64) -> Response<Body> {
    let status = status(stores, journal, now_unix);
    // Strings and numbers: serialization has no way to fail.
    let mut response = Response::new(full(serde_json::to_vec(&status).unwrap_or_default()));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn status(stores: &Stores, journal: &Journal, now_unix: u64) -> FleetStatus {
    let members = stores.registry().members();
    let mut running = stores.all_running();
    running.sort_by_key(|running| {
        let gvr = &running.store.spec().gvr;
        (gvr.group.clone(), gvr.resource.clone(), gvr.version.clone())
    });
    let (mut kinds, mut differing, mut doubled) = (Vec::new(), Vec::new(), Vec::new());
    for running in &running {
        let (store, gvr) = (&running.store, &running.store.spec().gvr);
        let serving = stores.catalog().serving_members(gvr).to_vec();
        let unknown = serving.iter().filter(|member| !store.is_filled(member));
        kinds.push(KindStatus {
            resource: gvr.qualified(),
            version: gvr.version.to_string(),
            objects: store.snapshot().objects.len(),
            watches: store.watchers(),
            events: store.events_by_member().values().sum(),
            unknown: unknown.map(ToString::to_string).collect(),
            filling: running.filling().into_iter().map(filling_member).collect(),
        });
        for (key, Notices { differs, others, .. }) in store.noticed() {
            differing.extend(noticed(gvr, &key, store.spec().namespaced, &differs));
            doubled.extend(noticed(gvr, &key, store.spec().namespaced, &others));
        }
    }
    // Of a resource that is followed in several versions.
    differing.dedup();
    doubled.dedup();
    let figures = stores.figures();
    FleetStatus {
        members: members.iter().map(|member| member_status(stores, &figures, member)).collect(),
        kinds,
        mirror: stores.mirror_figures().map(mirror_status),
        state: journal.state().map(|state| state_status(state)),
        replicas: journal
            .state()
            .map(|state| state.replicas())
            .unwrap_or_default()
            .into_iter()
            .map(replica_status)
            .collect(),
        damaged: journal.damaged().iter().map(ToString::to_string).collect(),
        unfinished: journal.unfinished().iter().map(|one| unfinished_write(one, now_unix)).collect(),
        differing,
        doubled,
    }
}

fn member_status(stores: &Stores, figures: &[StoreFigures], member: &Member) -> MemberStatus {
    let (health, following) = (member.health(), stores.following(member.name()));
    let held = figures.iter().filter_map(|store| store.held.get(member.name()));
    let (objects, bytes) = held.fold((0, 0), |(objects, bytes), held| (objects + held.objects, bytes + held.bytes));
    let server = stores.member_catalog(member.name()).and_then(|catalog| catalog.server.clone());
    let version = server.and_then(|server| server.document.get("gitVersion")?.as_str().map(str::to_owned));
    MemberStatus {
        name: member.name().to_string(),
        state: health.name().to_owned(),
        reachable: health.is_reachable(),
        cause: health.cause().map(ToString::to_string),
        since_seconds: health.age(Instant::now()).map(|age| age.as_secs()),
        version,
        latency_millis: member.latency().map(|latency| (latency.as_secs_f64() * 1e5).round() / 100.0),
        stores: following.stores,
        objects,
        bytes,
        events: figures.iter().filter_map(|store| store.events.get(member.name())).sum(),
        lag_seconds: following.lag.as_secs(),
        last_error: member
            .last_error()
            .map(|last| PastError { message: last.text.to_string(), age_seconds: last.at.elapsed().as_secs() }),
        cluster: member.cluster_uid().map(|uid| uid.to_string()),
        absent: member.config().absent,
    }
}

fn state_status(state: &RemoteState) -> StateStatus {
    let RemoteFigures { away, error, is_lost, .. } = state.figures();
    let (place, restored) = (state.place().to_owned(), state.is_restored());
    StateStatus { place, away_seconds: away.map(|away| away.as_secs()), lost: is_lost, restored, error }
}

fn replica_status(replica: Replica) -> ReplicaStatus {
    let Replica { address, host, pid, version, is_holder, seen_ago, .. } = replica;
    let role = if is_holder { "holder" } else { "standby" }.to_owned();
    ReplicaStatus { address, role, host, process: pid, version, seen_seconds: seen_ago.as_secs() }
}

fn mirror_status(figures: Figures) -> MirrorStatus {
    let lag_seconds = figures.lag().map(|lag| lag.as_secs());
    let Figures { is_on, rows, bytes, error, memory, .. } = figures;
    let memory =
        memory.map(|MemoryFigures { max, held, in_tables }| MemoryStatus { max_bytes: max, bytes: held, in_tables });
    MirrorStatus { on: is_on, objects: rows, bytes, lag_seconds, error: error.map(|error| error.to_string()), memory }
}

fn filling_member(Filling { member, listed, total }: Filling) -> FillingMember {
    FillingMember { member: member.to_string(), listed, total }
}

fn noticed(gvr: &Gvr, key: &str, namespaced: bool, members: &[MemberName]) -> Option<RemarkedObject> {
    if members.is_empty() {
        return None;
    }
    let (namespace, name) = if namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) };
    Some(RemarkedObject {
        resource: gvr.qualified(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        members: members.iter().map(ToString::to_string).collect(),
    })
}

fn unfinished_write(Unfinished { entry, begun_at }: &Unfinished, now_unix: u64) -> UnfinishedWrite {
    UnfinishedWrite {
        resource: entry.key.gvr.qualified(),
        namespace: entry.key.namespace.clone(),
        name: entry.key.name.clone(),
        verb: format!("{:?}", entry.verb).to_lowercase(),
        age_seconds: (*begun_at > 0).then(|| now_unix.saturating_sub(*begun_at)),
        user: entry.caller.user.clone(),
        behind: behind(entry),
    }
}

fn behind(entry: &Entry) -> Vec<BehindMember> {
    let why = |step: &Step| match step {
        Step::Planned => Some("not asked yet".to_owned()),
        Step::Failed(why) => Some(why.clone()),
        Step::Unknown(why) => Some(format!("it may have been done: {why}")),
        Step::Done { .. } | Step::Undone => None,
    };
    let open = entry.targets.iter().filter_map(|target| Some((&target.member, why(&target.step)?)));
    open.map(|(member, why)| BehindMember { member: member.to_string(), why }).collect()
}
