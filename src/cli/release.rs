//! `kubefold release`: takes the placement marker off every object in every member, and leaves ordinary clusters.
//!
//! Objects with the marker are found by its label. Kubernetes copies annotations to the objects that its controllers make
//! (a Deployment's to its ReplicaSets), and Service labels to endpoints: those few kinds are looked through as a whole.

use std::{
    collections::{BTreeMap, HashSet},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    app::STATE_MARKS,
    catalog::{FetchError, Fetched, MemberCatalog},
    cli::{client::Output, print, progress::Progress},
    config::{self, Config, MemberName},
    member::{Member, registry::Registry},
    placement::marker::{MARKER_KEY, OWN_PREFIX},
    serve::StateDir,
    upstream::{Class, Outgoing, collect},
    write::journal::{Journal, KeyFile},
};
use kubefold_wire::{
    body::{empty, full},
    golang::Quoted,
    path::ApiPath,
    resource::Gvr,
};

#[derive(Debug, clap::Args)]
pub(super) struct Release {
    /// The clusters.yaml with the members.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The state directory of `kubefold serve`: refuse while a kubefold uses it, or while a write is unfinished.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The --state-key-file of `kubefold serve`, if it has one.
    #[arg(long, value_name = "FILE", requires = "state_dir")]
    state_key_file: Option<PathBuf>,
    /// Release only this member; may be repeated.
    #[arg(long, value_name = "NAME")]
    member: Vec<String>,
    /// Print what would be released; change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print what was released, by member and kind, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// How long a member may take to be reached.
const REACHED_WITHIN: Duration = Duration::from_secs(30);
/// How often a member is looked through until nothing is found: controllers copy what is being taken off.
const PASSES_MAX: usize = 10;
const PASS_PAUSE: Duration = Duration::from_secs(1);
/// Requests under way at one member.
const IN_FLIGHT_MAX: usize = 8;
const PAGE_ITEMS: usize = 500;
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Kinds that controllers copy labels and annotations to.
const COPIED_TO: [(&str, &str); 4] = [
    ("apps", "replicasets"),
    ("apps", "controllerrevisions"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Releases, and prints how many objects in each member.
pub(super) fn run(flags: &Release) -> anyhow::Result<()> {
    let config = config::load(&flags.config)?;
    let members = chosen(&config, &flags.member)?;
    let _state = flags.state_dir.as_deref().map(|path| idle_state(path, flags.state_key_file.clone())).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(Box::pin(release(&config, &members, flags)))
}

fn chosen(config: &Config, only: &[String]) -> anyhow::Result<Vec<MemberName>> {
    let known: Vec<MemberName> = config.members.iter().map(|member| member.name.clone()).collect();
    if let Some(stranger) = only.iter().find(|name| !known.iter().any(|known| known.as_str() == **name)) {
        let known: Vec<&str> = known.iter().map(MemberName::as_str).collect();
        bail!(
            "there is no member {stranger} in the configuration; the members are {}",
            known.join(", "),
            stranger = Quoted(stranger)
        );
    }
    let is_chosen = |name: &MemberName| only.is_empty() || only.iter().any(|only| only == name.as_str());
    Ok(known.into_iter().filter(is_chosen).collect())
}

/// Makes sure that nothing else writes, for as long as the value lives.
fn idle_state(path: &Path, key: Option<PathBuf>) -> anyhow::Result<StateDir> {
    if !path.exists() {
        bail!("the state directory {} does not exist; leave --state-dir out if it is lost", path.display());
    }
    let state =
        StateDir::open(path).context("a kubefold uses this state directory, so nothing is released: stop it first")?;
    if STATE_MARKS.iter().any(|mark| path.join(mark).exists()) {
        bail!(
            "the state of this kubefold is in a database: see kubefold status until no write is unfinished, stop kubefold, and \
             leave --state-dir out"
        );
    }
    let journal = Journal::open(path, &KeyFile::new(key, path)).context("cannot read the journal")?;
    let unfinished = journal.open_entries().len();
    if unfinished > 0 {
        bail!(
            "{unfinished} writes are unfinished, and kubefold cannot finish them without markers: start kubefold, see \
             kubefold status until they have ended, and end it again"
        );
    }
    Ok(state)
}

async fn release(config: &Config, chosen: &[MemberName], flags: &Release) -> anyhow::Result<()> {
    let dry_run = flags.dry_run;
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    let registry = Registry::new(tasks.clone(), cancel.clone());
    registry.apply(config)?;
    let members: Vec<Arc<Member>> = chosen.iter().filter_map(|name| registry.get(name.as_str())).collect();
    let line = &Line::new(members.len());
    let outcomes = join_all(members.iter().map(|member| async move {
        let mut done = Tally::default();
        let ended = release_member(member, dry_run, line, &mut done).await;
        line.count(&line.members_ended, 1);
        (member.name(), done, ended)
    }))
    .await;
    line.progress.clear();
    cancel.cancel();
    tasks.close();
    tasks.wait().await;
    let (mut failures, mut out, mut told) = (Vec::new(), String::new(), Vec::new());
    for (name, done, ended) in outcomes {
        let verb = if dry_run { "would be released" } else { "released" };
        out.push_str(&format!("{name}: {} objects {verb}\n", done.values().map(HashSet::len).sum::<usize>()));
        let objects: BTreeMap<_, _> = done.iter().map(|(resource, uids)| (resource, uids.len())).collect();
        let error = ended.as_ref().err().map(|error| format!("{error:#}"));
        told.push(json!({"name": name.as_str(), "dryRun": dry_run, "objects": objects, "error": error}));
        failures.extend(ended.err().map(|error| format!("member {name}: {error:#}")));
    }
    print(&flags.output.map_or(Ok(out), |output| output.text(&json!({"members": told})))?)?;
    if failures.is_empty() { Ok(()) } else { Err(anyhow!("not everything is released: {}", failures.join("; "))) }
}

/// The UIDs of what was released, by resource.
type Tally = BTreeMap<String, HashSet<String>>;

/// How far all members are, on a terminal.
struct Line {
    progress: Progress,
    members: usize,
    members_ended: AtomicUsize,
    lists: AtomicUsize,
    lists_read: AtomicUsize,
    released: AtomicUsize,
}

impl Line {
    fn new(members: usize) -> Self {
        let zero = || AtomicUsize::new(0);
        let progress = Progress::new();
        Self { progress, members, members_ended: zero(), lists: zero(), lists_read: zero(), released: zero() }
    }

    /// Adds to one of its numbers, and shows it.
    fn count(&self, number: &AtomicUsize, more: usize) {
        number.fetch_add(more, Relaxed);
        self.progress.show(|| {
            let [ended, lists, read, released] =
                [&self.members_ended, &self.lists, &self.lists_read, &self.released].map(|number| number.load(Relaxed));
            let members = self.members;
            format!("{ended} of {members} members done: {read} of {lists} lists read, {released} objects released")
        });
    }
}

async fn release_member(member: &Member, dry_run: bool, line: &Line, done: &mut Tally) -> anyhow::Result<()> {
    line.count(&line.lists, 0);
    reached(member).await?;
    let get = |path: String, headers: HeaderMap| async move { discover(member, &path, headers).await };
    let catalog = Fetched::default().fetch(&get).await?.catalog(None);
    let kinds = kinds(&catalog);
    let mut left = 0;
    for pass in 0..PASSES_MAX {
        if pass > 0 {
            tokio::time::sleep(PASS_PAUSE).await;
        }
        let mut found = find(member, &kinds, line).await?;
        left = found.len();
        if dry_run {
            found.iter().for_each(|one| count(one, done));
        }
        if dry_run || found.is_empty() {
            line.progress.clear();
            report(member, done);
            return Ok(());
        }
        // Copies come off when there is nothing any more to copy.
        if found.iter().any(|one| !is_copied_to(&one.gvr)) {
            found.retain(|one| !is_copied_to(&one.gvr));
        }
        let strips = found.iter().map(|one| strip(member, one, line));
        let outcomes: Vec<_> = stream::iter(strips).buffer_unordered(IN_FLIGHT_MAX).collect().await;
        for one in outcomes.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten() {
            count(one, done);
        }
    }
    bail!(
        "{left} objects have the marker again after {PASSES_MAX} passes: does a kubefold still serve this member? Run this again"
    )
}

fn count(Marked { gvr, metadata }: &Marked, done: &mut Tally) {
    done.entry(gvr.qualified()).or_default().insert(metadata.uid.clone());
}

fn report(member: &Member, done: &Tally) {
    for (resource, uids) in done {
        // Progress that cannot be written is no reason to stop.
        drop(writeln!(std::io::stderr(), "{}: {resource}: {}", member.name(), uids.len()));
    }
}

async fn reached(member: &Member) -> anyhow::Result<()> {
    let mut health = member.health_changes();
    let reached = async { health.wait_for(|health| health.is_reachable()).await.map(drop) };
    match tokio::time::timeout(REACHED_WITHIN, reached).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => bail!("it cannot be reached: {}", member.describe()),
    }
}

async fn discover(member: &Member, path: &str, headers: HeaderMap) -> Result<Response<Bytes>, FetchError> {
    let request = Outgoing::document(path)?.with_all(headers);
    let (head, body) = member.send(request, Class::Read).await?.into_parts();
    Ok(Response::from_parts(head, collect(body, ANSWER_BYTES_MAX).await?))
}

/// Every kind that can be listed and patched, in one version; those that controllers copy to come last.
fn kinds(catalog: &MemberCatalog) -> Vec<Gvr> {
    let mut out = Vec::new();
    let mut known: HashSet<(Arc<str>, Arc<str>)> = HashSet::new();
    for group in &catalog.groups {
        for version in &group.versions {
            for resource in &version.resources {
                let can = |verb: &str| resource.verbs.iter().any(|known| **known == *verb);
                let is_usable = can("list") && can("patch");
                if is_usable && known.insert((group.name.clone(), resource.resource.clone())) {
                    out.push(Gvr::new(&group.name, &version.version, &resource.resource));
                }
            }
        }
    }
    out.sort_by_key(is_copied_to);
    out
}

fn is_copied_to(gvr: &Gvr) -> bool {
    COPIED_TO.contains(&(&*gvr.group, &*gvr.resource))
}

/// An object that has keys of kubefold's.
struct Marked {
    gvr: Gvr,
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    r#continue: String,
}

impl Metadata {
    /// JSON pointers of the keys that are kubefold's own.
    fn own_keys(&self) -> Vec<String> {
        let maps = [("labels", &self.labels), ("annotations", &self.annotations)];
        let own = maps.into_iter().flat_map(|(map, keys)| keys.keys().map(move |key| (map, key)));
        let own = own.filter(|(_, key)| key.starts_with(OWN_PREFIX));
        own.map(|(map, key)| format!("/metadata/{map}/{}", key.replace('~', "~0").replace('/', "~1"))).collect()
    }
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: Metadata,
    /// `null` where there is none.
    #[serde(default)]
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    metadata: Metadata,
}

/// All that has keys of kubefold's in a member, each object once.
async fn find(member: &Member, kinds: &[Gvr], line: &Line) -> anyhow::Result<Vec<Marked>> {
    line.count(&line.lists, kinds.len());
    let lists = kinds.iter().map(|gvr| async move {
        let found = list(member, gvr).await;
        line.count(&line.lists_read, 1);
        found
    });
    let lists: Vec<_> = stream::iter(lists).buffered(IN_FLIGHT_MAX).collect().await;
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for list in lists {
        // An Event is in two groups.
        out.extend(list?.into_iter().filter(|one| seen.insert(one.metadata.uid.clone())));
    }
    Ok(out)
}

async fn list(member: &Member, gvr: &Gvr) -> anyhow::Result<Vec<Marked>> {
    let selector = if is_copied_to(gvr) { String::new() } else { format!("labelSelector={MARKER_KEY}&") };
    let (mut out, mut token) = (Vec::new(), String::new());
    loop {
        let after = if token.is_empty() {
            String::new()
        } else {
            format!("&continue={}", percent_encoding::utf8_percent_encode(&token, percent_encoding::NON_ALPHANUMERIC))
        };
        let query = format!("{selector}limit={PAGE_ITEMS}{after}");
        let metadata = HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
        let request = Outgoing::own(Method::GET, ApiPath::of(gvr), &query, empty())?.with(header::ACCEPT, metadata);
        let (head, body) = member.send(request, Class::Read).await?.into_parts();
        let body = collect(body, ANSWER_BYTES_MAX).await?;
        match head.status {
            StatusCode::OK => {}
            // A kind that went, or that lists in another way than its discovery says.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => return Ok(out),
            code => bail!("the list of {} was answered with {code}: {}", gvr.qualified(), message(&body)),
        }
        let page: Page = serde_json::from_slice(&body).with_context(|| format!("the list of {}", gvr.qualified()))?;
        let marked =
            page.items.into_iter().flatten().map(|item| item.metadata).filter(|one| !one.own_keys().is_empty());
        out.extend(marked.map(|metadata| Marked { gvr: gvr.clone(), metadata }));
        token = page.metadata.r#continue;
        if token.is_empty() {
            return Ok(out);
        }
    }
}

/// Takes the keys off one object, if it still is the one that was read. `None`: it is not; the next round looks again.
async fn strip<'m>(member: &Member, marked: &'m Marked, line: &Line) -> anyhow::Result<Option<&'m Marked>> {
    let Marked { gvr, metadata } = marked;
    let path = ApiPath::within(gvr, &metadata.namespace).then(&metadata.name);
    let tests = [("/metadata/uid", &metadata.uid), ("/metadata/resourceVersion", &metadata.resource_version)];
    let tests = tests.map(|(path, value)| json!({"op": "test", "path": path, "value": value}));
    let removals = metadata.own_keys().into_iter().map(|path| json!({"op": "remove", "path": path}));
    let patch: Vec<_> = tests.into_iter().chain(removals).collect();
    let body = full(serde_json::to_vec(&patch)?);
    let request = Outgoing::own(Method::PATCH, path, "fieldManager=kubefold-release", body)?
        .with(header::CONTENT_TYPE, HeaderValue::from_static("application/json-patch+json"))
        .with(header::ACCEPT, HeaderValue::from_static("application/json"));
    let (head, body) = member.send(request, Class::Write).await?.into_parts();
    let body = collect(body, ANSWER_BYTES_MAX).await?;
    match head.status {
        code if code.is_success() => {
            line.count(&line.released, 1);
            Ok(Some(marked))
        }
        // It changed, or went, since it was listed: a failed test is 422 and says so.
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(None),
        StatusCode::UNPROCESSABLE_ENTITY if message(&body).contains("testing") => Ok(None),
        code => {
            let what = format!("{} {}/{}", gvr.qualified(), metadata.namespace, metadata.name);
            if code == StatusCode::FORBIDDEN {
                bail!(
                    "kubefold's own login may not change {what}, as it should be: {}; give --config a file with administrators' \
                     logins, such as kubefold init makes of their contexts",
                    message(&body)
                );
            }
            bail!("cannot remove the marker of {what}: the member answered {code}: {}", message(&body))
        }
    }
}

fn message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct StatusMessage {
        message: String,
    }
    serde_json::from_slice::<StatusMessage>(body).map(|said| said.message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_whose_state_is_in_a_database_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        drop(StateDir::open(&path).unwrap());
        std::fs::write(path.join(STATE_MARKS[1]), "").unwrap();
        let refused = idle_state(&path, None).err().unwrap().to_string();
        assert!(refused.contains("is in a database") && !path.join("state.db").exists(), "{refused}");
    }
}
