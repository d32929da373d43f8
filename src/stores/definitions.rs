//! Custom resources are served as soon as their definition says that they are.
//!
//! The fleet view shows a definition with the words of its first holder, and what it serves with those of every member's
//! discovery, which is read each second. Between the two a client would be told that a kind is `Established` which nobody
//! knows, so whoever asks for discovery, or for a kind that is not known, waits (bounded) until it is. OpenAPI has it a
//! moment later, and whoever asks for that waits for it, too.
//!
//! A definition may be large, and a fleet has one of each in every member. So each version of one is parsed once, only what
//! changed since the last wait is looked at, and one request looks for all that wait at the same time.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use http::{HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::{
    config::MemberName,
    member::Member,
    store::{Entry, FleetStore, Revision, key},
    stores::{Running, Stores, ready::SILENCE_MAX},
    upstream::{Class, Outgoing, collect},
    view::Mode,
};
use kubefold_table::{Definition as Columns, Printer};
use kubefold_wire::resource::Gvr;

/// How long discovery waits for a kind whose definition says that it is served.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
/// How long a create waits for members in which the definition of its kind is about to be served. A kube-apiserver takes less
/// than a second; one whose names are taken in the member never is.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(3);
/// For one member's answer, while others wait.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// A member that has failed to answer so often is not waited for any more.
const FAILURES_MAX: u32 = 2;
/// For how long a definition is new. Older ones were published long ago.
const NEW_FOR: Duration = Duration::from_mins(2);
/// The index of OpenAPI v3; its documents are below.
const OPENAPI_V3: &str = "/openapi/v3";
/// Largest OpenAPI document that is looked at.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Members that are asked for the same OpenAPI document.
const ASKED_MAX: usize = 2;
/// Versions of kinds of which it is kept how they are printed.
const PRINTERS_MAX: usize = 1024;
/// Between two looks at members while somebody waits: first, and at most.
const AGAIN_MIN: Duration = Duration::from_millis(20);
const AGAIN_MAX: Duration = Duration::from_millis(100);

/// Where a kind is looked for.
#[derive(Clone, Copy)]
enum Published {
    V2,
    V3,
}

/// What the store of definitions knows of them. The stores of other kinds have an empty one.
#[derive(Default)]
pub(super) struct Definitions {
    /// Up to which fleet revision what they define is known to be in the catalog, in OpenAPI v3 and in v2.
    served: Known,
    published: Known,
    described: Known,
    /// By name: as the fleet view shows them.
    shown: Mutex<HashMap<String, (Revision, Arc<Definition>)>>,
    /// As members have them, by the version that they have. Only of members that do not serve what is shown.
    of_members: Mutex<HashMap<(String, MemberName), OfMember>>,
    /// How what they define is printed, and at which revision of them.
    printers: Mutex<HashMap<Gvr, (Revision, Printer)>>,
    /// When it was last waited for a change of theirs to be in OpenAPI: what members said of it before may lack that.
    changed: Mutex<Option<Instant>>,
}

/// A version of a member's definition: its UID and the member's revision, and what it says.
type OfMember = (String, u64, Arc<Definition>);

/// Up to which fleet revision something is known. Who finds out has the turn.
#[derive(Default)]
struct Known {
    up_to: AtomicU64,
    turn: tokio::sync::Mutex<()>,
}

/// What a definition says, as far as it matters here.
#[derive(Debug)]
pub(super) struct Definition {
    /// Of the versions that are served: none, unless it is established and stays.
    pub(super) served: Vec<Gvr>,
    kind: String,
    created: Option<jiff::Timestamp>,
}

/// A definition that changed, with who has it.
pub(super) struct Changed {
    entry: Arc<Entry>,
    pub(super) definition: Arc<Definition>,
}

impl Stores {
    /// Waits until every kind whose definition the fleet view shows as established is in the catalog.
    ///
    /// Where nobody has read definitions there is nobody who was told of one. What a member says it serves and does not is
    /// waited for once.
    pub async fn definitions_are_served(&self) {
        let Some(running) = self.definitions() else { return };
        let head = running.store.snapshot().revision.0;
        let known = &running.definitions.served;
        if known.up_to.load(Ordering::Acquire) >= head {
            return;
        }
        let deadline = Instant::now() + SERVED_WITHIN;
        let Ok(_turn) = timeout_at(deadline, known.turn.lock()).await else { return };
        let since = known.up_to.load(Ordering::Acquire);
        if since >= head {
            return;
        }
        let (mut failures, mut pause) = (HashMap::new(), AGAIN_MIN);
        while Instant::now() < deadline {
            let lacking = self.lacking(&running, since, &failures).await;
            if lacking.is_empty() {
                break;
            }
            let asked = lacking.iter().map(|member| timeout(ANSWER_MAX, self.try_refresh(Arc::clone(member))));
            let answers = timeout_at(deadline, join_all(asked)).await.unwrap_or_default();
            for (member, answer) in lacking.iter().zip(answers) {
                if !matches!(answer, Ok(Ok(_))) {
                    *failures.entry(member.name().clone()).or_default() += 1;
                }
            }
            if self.lacking(&running, since, &failures).await.is_empty() {
                break;
            }
            sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
        known.up_to.fetch_max(head, Ordering::AcqRel);
    }

    /// Waits until each member that has the new definition of a kind serves the kind, so that what is created right after
    /// the definition is placed as it will be later. Waits for nobody that is down or silent.
    pub async fn is_served_where_it_is_defined(&self, gvr: &Gvr) {
        if self.catalog().serving_members(gvr).len() >= self.registry.members().len() {
            return;
        }
        let Some(running) = self.definitions() else { return };
        let name = format!("{}.{}", gvr.resource, gvr.group);
        let deadline = Instant::now() + ESTABLISHED_WITHIN;
        let mut pause = AGAIN_MIN;
        while Instant::now() < deadline {
            let Some(entry) = running.store.get(&key("", &name)) else { return };
            if !running.definitions.shown(&entry).0.is_some_and(|shown| shown.is_new()) {
                return;
            }
            let lacking = self.holders_that_do_not_serve(&entry, gvr);
            if lacking.is_empty() {
                return;
            }
            let defined =
                lacking.into_iter().filter(|one| running.definitions.says(&running.store, &entry, one.name(), gvr));
            let asked = defined.map(|member| timeout(ANSWER_MAX, self.refresh(member)));
            join_all(asked).await;
            sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
    }

    fn holders_that_do_not_serve(&self, entry: &Entry, gvr: &Gvr) -> Vec<Arc<Member>> {
        let catalog = self.catalog();
        let resource = catalog.get(gvr);
        let serves = |name: &MemberName| {
            resource.is_some_and(|resource| resource.members.contains(name) || resource.conflicting.contains(name))
        };
        let holders = entry.holders.iter().filter(|name| !serves(name) && self.answers(name));
        holders.filter_map(|name| self.registry.get(name.as_str())).collect()
    }

    /// The same, and in OpenAPI v3, which a kube-apiserver publishes a moment later.
    pub async fn definitions_are_published(&self) {
        self.definitions_are_served().await;
        self.are_published(Published::V3).await;
    }

    /// The same, and in OpenAPI v2, too, which a kube-apiserver publishes on its own.
    pub async fn definitions_are_described(&self) {
        self.definitions_are_published().await;
        self.are_published(Published::V2).await;
    }

    /// When definitions were last seen to have changed, and to stand in OpenAPI: what members said of it before may lack that.
    pub fn definitions_changed(&self) -> Option<Instant> {
        *self.definitions()?.definitions.changed.lock()
    }

    fn definitions(&self) -> Option<Arc<Running>> {
        self.peek(&Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
    }

    /// How a custom resource is printed, by its definition as the fleet view shows it. `None`: it has none.
    ///
    /// A definition is read once a revision: its schema may be large.
    pub async fn printer_of(&self, gvr: &Gvr) -> Option<Printer> {
        let definitions = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let ready = self.ready_in(&definitions, None, Mode::Lenient).await.ok()?;
        let entry = ready.store().get(&key("", &format!("{}.{}", gvr.resource, gvr.group)))?;
        let printers = &ready.running.definitions.printers;
        let known = printers.lock().get(gvr).cloned();
        if let Some((_, printer)) = known.filter(|(revision, _)| *revision == entry.revision) {
            return Some(printer);
        }
        let definition = Columns::of_version(std::str::from_utf8(entry.json()).ok()?, &gvr.version)?;
        let printer = Printer::custom(&definition);
        let mut printers = printers.lock();
        if printers.len() >= PRINTERS_MAX {
            printers.clear();
        }
        printers.insert(gvr.clone(), (entry.revision, printer.clone()));
        Some(printer)
    }

    /// Members that are up and serve less, as far as is known, than the fleet view was told and they say themselves.
    async fn lacking(&self, running: &Running, since: u64, failures: &HashMap<MemberName, u32>) -> Vec<Arc<Member>> {
        let catalog = self.catalog();
        let members = self.registry.members();
        let waited_for = |member: &&Arc<Member>| {
            let is_silent = member.silent_for().is_some_and(|silent| silent >= SILENCE_MAX);
            !member.health().is_down() && !is_silent && failures.get(member.name()).is_none_or(|n| *n < FAILURES_MAX)
        };
        let mut up: HashMap<&MemberName, &Arc<Member>> =
            members.iter().filter(waited_for).map(|member| (member.name(), member)).collect();
        let mut lacking = Vec::new();
        for Changed { entry, definition } in running.definitions.changed_since(&running.store, since).await {
            for gvr in &definition.served {
                let resource = catalog.get(gvr);
                let serving: HashSet<&MemberName> =
                    resource.iter().flat_map(|resource| resource.members.iter().chain(&resource.conflicting)).collect();
                for name in entry.holders.iter().filter(|name| !serving.contains(name)) {
                    if let Some(member) = up.get(name)
                        && running.definitions.says(&running.store, &entry, name, gvr)
                    {
                        lacking.push(Arc::clone(member));
                        up.remove(name);
                    }
                }
            }
        }
        lacking
    }

    /// Waits until the kinds of new definitions stand in some member's OpenAPI document, so that they stand in the fleet's.
    async fn are_published(&self, published: Published) {
        let Some(running) = self.definitions() else { return };
        let head = running.store.snapshot().revision.0;
        let known = match published {
            Published::V3 => &running.definitions.published,
            Published::V2 => &running.definitions.described,
        };
        if known.up_to.load(Ordering::Acquire) >= head {
            return;
        }
        let deadline = Instant::now() + SERVED_WITHIN;
        let Ok(_turn) = timeout_at(deadline, known.turn.lock()).await else { return };
        let since = known.up_to.load(Ordering::Acquire);
        if since >= head {
            return;
        }
        let mut pause = AGAIN_MIN;
        let mut sought = self.sought(&running, since, published).await;
        while !sought.is_empty() && Instant::now() < deadline {
            let each = sought.into_iter().map(async |((path, members), wanted)| {
                let lacked = self.not_in(&path, &members, wanted).await;
                (!lacked.is_empty()).then_some(((path, members), lacked))
            });
            let Ok(left) = timeout_at(deadline, join_all(each)).await else { break };
            sought = left.into_iter().flatten().collect();
            if !sought.is_empty() {
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN_MAX);
            }
        }
        *running.definitions.changed.lock() = Some(Instant::now());
        known.up_to.fetch_max(head, Ordering::AcqRel);
    }

    /// What stands in a document once the kinds of new definitions do, by the document and whom to ask for it.
    async fn sought(&self, running: &Running, since: u64, published: Published) -> Sought {
        let mut sought = Sought::new();
        for Changed { entry, definition } in running.definitions.changed_since(&running.store, since).await {
            if !definition.is_new() {
                continue;
            }
            let asked: Vec<MemberName> =
                entry.holders.iter().filter(|name| self.answers(name)).take(ASKED_MAX).cloned().collect();
            for Gvr { group, version, .. } in definition.served.iter().filter(|_| !asked.is_empty()) {
                let kind = &definition.kind;
                let (path, wanted) = match published {
                    Published::V3 => (format!("{OPENAPI_V3}/apis/{group}/{version}"), format!("\"kind\":\"{kind}\"")),
                    Published::V2 => (
                        "/openapi/v2".to_owned(),
                        format!("{{\"group\":\"{group}\",\"kind\":\"{kind}\",\"version\":\"{version}\"}}"),
                    ),
                };
                sought.entry((path, asked.clone())).or_default().push(wanted);
            }
        }
        sought
    }

    fn answers(&self, name: &MemberName) -> bool {
        self.registry.get(name.as_str()).is_some_and(|member| {
            !member.health().is_down() && member.silent_for().is_none_or(|silent| silent < SILENCE_MAX)
        })
    }

    /// Of what is wanted, what stands in no member's document.
    async fn not_in(&self, path: &str, members: &[MemberName], mut wanted: Vec<String>) -> Vec<String> {
        let members = members.iter().filter_map(|name| self.registry.get(name.as_str()));
        let ask =
            async |member: Arc<Member>| timeout(ANSWER_MAX, published_document(&member, path)).await.ok().flatten();
        let mut documents: FuturesUnordered<_> = members.map(ask).collect();
        while let Some(document) = documents.next().await {
            let Some(document) = document else { continue };
            wanted.retain(|wanted| memchr::memmem::find(&document, wanted.as_bytes()).is_none());
            if wanted.is_empty() {
                break;
            }
        }
        wanted
    }
}

/// A document of OpenAPI as a member's clients find it. Of v3 that is by the index: a kube-apiserver has the document of custom
/// resources first, and names it in the index up to a second later.
async fn published_document(member: &Member, path: &str) -> Option<Bytes> {
    let Some(name) = path.strip_prefix(OPENAPI_V3).and_then(|name| name.strip_prefix('/')) else {
        return document(member, path).await;
    };
    let index: Value = serde_json::from_slice(&document(member, OPENAPI_V3).await?).ok()?;
    let url = index["paths"][name]["serverRelativeURL"].as_str()?;
    let query = url.split_once('?').map_or("", |(_, query)| query);
    document(member, &format!("{path}?{query}")).await
}

/// `None`: the member did not give it, or has another one by now.
async fn document(member: &Member, path: &str) -> Option<Bytes> {
    let json = HeaderValue::from_static("application/json");
    let request = Outgoing::document(path).ok()?.with(header::ACCEPT, json);
    let response = member.send(request, Class::Read).await.ok()?;
    let is_given = response.status() == StatusCode::OK;
    let body = collect(response.into_body(), DOCUMENT_BYTES_MAX).await.ok()?;
    is_given.then_some(body)
}

/// What is wanted of a document, by its path and whom to ask for it.
type Sought = BTreeMap<(String, Vec<MemberName>), Vec<String>>;

impl Definitions {
    /// The definitions that the fleet view shows otherwise than at that revision. Each version is parsed once.
    pub(super) async fn changed_since(&self, store: &FleetStore, since: u64) -> Vec<Changed> {
        let snapshot = store.snapshot();
        self.forget(&snapshot);
        let mut changed = Vec::new();
        for entry in snapshot.range("", b"").filter(|entry| entry.revision.0 > since) {
            let (definition, is_new) = self.shown(entry);
            changed.extend(definition.map(|definition| Changed { entry: Arc::clone(entry), definition }));
            if is_new {
                // It may be large, and there may be hundreds.
                tokio::task::yield_now().await;
            }
        }
        changed
    }

    /// What a definition says as it is shown, and whether it was parsed for that.
    fn shown(&self, entry: &Entry) -> (Option<Arc<Definition>>, bool) {
        let known = self.shown.lock().get(entry.name()).cloned();
        if let Some((_, definition)) = known.filter(|(revision, _)| *revision == entry.revision) {
            return (Some(definition), false);
        }
        let Some(definition) = Definition::read(entry.json()) else { return (None, true) };
        let definition = Arc::new(definition);
        self.shown.lock().insert(entry.name().to_owned(), (entry.revision, Arc::clone(&definition)));
        (Some(definition), true)
    }

    /// Says whether a member's own definition has it serve a kind.
    fn says(&self, store: &FleetStore, entry: &Entry, member: &MemberName, gvr: &Gvr) -> bool {
        let at = (entry.name().to_owned(), member.clone());
        let Some(part) = store.part(&key("", entry.name()), member) else {
            // It is not folded: what is shown is the member's own.
            return true;
        };
        let known = self.of_members.lock().get(&at).cloned();
        if let Some((.., definition)) = known.filter(|(uid, rv, _)| *uid == part.uid && *rv == part.member_rv) {
            return definition.served.contains(gvr);
        }
        let Some(definition) = Definition::read(part.document.text().as_bytes()).map(Arc::new) else { return false };
        self.of_members.lock().insert(at, (part.uid.clone(), part.member_rv, Arc::clone(&definition)));
        definition.served.contains(gvr)
    }

    /// Forgets definitions that are no more.
    fn forget(&self, snapshot: &crate::store::Snapshot) {
        let is_shown = |name: &str| snapshot.get(key("", name).as_bytes()).is_some();
        let mut shown = self.shown.lock();
        if shown.len() > snapshot.objects.len() {
            shown.retain(|name, _| is_shown(name));
            self.of_members.lock().retain(|(name, _), _| is_shown(name));
        }
    }
}

impl Definition {
    fn read(json: &[u8]) -> Option<Self> {
        let Document { metadata, spec, status } = serde_json::from_slice(json).ok()?;
        let Spec { group, names, versions } = spec;
        let mut conditions = status.conditions.iter();
        let established = conditions.any(|one| one.type_ == "Established" && one.status == "True");
        let is_served = |version: &&Version| version.served && established && metadata.deletion_timestamp.is_none();
        let served = versions.iter().filter(is_served);
        Some(Self {
            served: served.map(|version| Gvr::new(&group, &version.name, &names.plural)).collect(),
            kind: names.kind,
            created: metadata.creation_timestamp,
        })
    }

    /// It was made a moment ago, by whoever's clock.
    fn is_new(&self) -> bool {
        let age = self.created.map(|created| created.duration_until(jiff::Timestamp::now()).abs());
        age.is_some_and(|age| age <= jiff::SignedDuration::try_from(NEW_FOR).unwrap_or_default())
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    creation_timestamp: Option<jiff::Timestamp>,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    group: String,
    names: Names,
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    plural: String,
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Version {
    name: String,
    served: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}
