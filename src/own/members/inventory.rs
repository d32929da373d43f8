//! The members that ClusterProfiles describe: their objects follow the ClusterProfiles of another member, and their Secrets those
//! there.
//!
//! What goes is removed by a whole list of the cluster that it came from, and by nothing else: while that cluster is down, everything
//! stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    Members,
    object::{Refusal, SecretFault},
    profile::{Found, Problem, Profile},
};
use crate::{
    config::ClusterProfiles,
    member::{
        Member,
        call::{Answer, Document},
        reflector::METADATA_LIST,
    },
    own::OwnObjects,
    upstream::{Class, Outgoing, OutgoingError, UpResponseBody, UpstreamError, collect},
};
use kubefold_wire::{
    body::empty,
    list::{ListError, split},
    path::ApiPath,
    resource::{Gvk, Gvr},
    status::Status,
    watch::{Event, EventType, Lines, WatchError},
};

/// The group of ClusterProfiles.
const GROUP: &str = "multicluster.x-k8s.io";
/// Its versions, the one first that has more in it.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1alpha2"];
/// One page of a list. Source: client-go's pager.
const PAGE_ITEMS: usize = 500;
/// The largest page. Units: bytes.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// Secrets that are read at once.
const AT_ONCE: usize = 8;
/// Two looks are so far apart at least, however much changes.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// It is looked again after so long where something is wrong: what mends it may be in no watch.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// It is looked again after so long in any case. The member ends watches after that.
const LOOK_EVERY: Duration = Duration::from_mins(5);
/// An object's metadata alone.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const JSON: &str = "application/json";

/// Why an inventory cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum InventoryError {
    #[error("{}", .0.cause())]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Request(#[from] OutgoingError),
    #[error("it answered {code} when it was asked for {what}{message}")]
    Answered { code: StatusCode, what: String, message: String },
    #[error("it has no ClusterProfiles; apply the definition of clusterprofiles.multicluster.x-k8s.io there")]
    Undefined,
    #[error("it gave no whole answer: {0}")]
    Answer(String),
    #[error("its answer is none: {0}")]
    List(#[from] ListError),
    #[error("its answer is none: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its answer is none: {0}")]
    Watch(#[from] WatchError),
    #[error("it became another cluster meanwhile")]
    OtherCluster,
    /// kubefold's own storage.
    #[error("{}", .0.message)]
    Storage(Box<Status>),
}

impl From<Status> for InventoryError {
    fn from(status: Status) -> Self {
        Self::Storage(Box::new(status))
    }
}

/// Where watches go on.
pub(super) struct Positions {
    profiles: Gvr,
    profiles_at: String,
    secrets_at: String,
    /// The Secrets that matter.
    named: BTreeSet<String>,
}

/// Secrets that were read, by name, with their revisions.
pub(super) type Kept = BTreeMap<String, (String, Value)>;

impl Members {
    /// Follows the inventory of the configuration, until cancelled.
    pub async fn follow_inventory(self: Arc<Self>, own: Arc<OwnObjects>) {
        let mut sources = self.inventory.subscribe();
        loop {
            let source = sources.borrow_and_update().clone();
            let following = async {
                match source {
                    Some(source) => self.follow_source(&own, &source).await,
                    None => self.follow_none(&own).await,
                }
            };
            tokio::select! {
                () = following => {}
                changed = sources.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Without an inventory nobody is of one.
    async fn follow_none(&self, own: &OwnObjects) {
        self.tell_inventory(None);
        while let Err(status) = self.forget_profiles(own).await {
            tracing::warn!(error = status.message, "members of ClusterProfiles are not removed");
            sleep(RETRY_AFTER).await;
        }
        std::future::pending::<()>().await;
    }

    async fn follow_source(&self, own: &OwnObjects, source: &ClusterProfiles) {
        let mut kept = Kept::new();
        loop {
            let began = Instant::now();
            let Some(hub) = self.stores.registry().get(source.member.as_str()) else { return sleep(RETRY_AFTER).await };
            // It is a cluster that the fleet has by another name: what it has is not looked at.
            if !hub.health().is_reachable() || !hub.usable() {
                let why = hub.health().cause().map_or_else(|| "it was not asked yet".to_owned(), ToString::to_string);
                self.tell_unread(source, &why);
                let mut health = hub.health_changes();
                tokio::select! {
                    _ = health.wait_for(|health| health.is_reachable()) => {}
                    () = sleep(RETRY_AFTER) => {}
                }
                continue;
            }
            let looked = tokio::select! {
                looked = self.look_at(own, source, &hub, &mut kept) => looked,
                // Why is told at the next look.
                _ = hub.goes_down() => continue,
            };
            if let Err(error) = looked {
                self.tell_unread(source, &error.to_string());
                sleep(RETRY_AFTER).await;
            }
            sleep_until(began + LOOK_AFTER).await;
        }
    }

    /// Reads the inventory, makes the members that it has, and waits until it may have others.
    async fn look_at(
        &self,
        own: &OwnObjects,
        source: &ClusterProfiles,
        hub: &Member,
        kept: &mut Kept,
    ) -> Result<(), InventoryError> {
        let incarnation = hub.check_identity().await?;
        let (found, positions) = read(hub, source, kept).await?;
        if hub.incarnation() != incarnation {
            return Err(InventoryError::OtherCluster);
        }
        let is_settled = self.reconcile(own, source, hub, found).await?;
        let again = if is_settled { LOOK_EVERY } else { RETRY_AFTER };
        let profiles = ApiPath::within(&positions.profiles, &source.namespace);
        let query = format!("{}&resourceVersion={}", selected(source), positions.profiles_at);
        let of_profiles = changes(hub, profiles, query, JSON, None);
        let query = format!("&resourceVersion={}", positions.secrets_at);
        let of_secrets = changes(hub, secrets_of(source), query, METADATA, Some(&positions.named));
        tokio::select! {
            changed = of_profiles => changed,
            changed = of_secrets => changed,
            () = sleep(again) => Ok(()),
        }
    }
}

fn secrets_of(source: &ClusterProfiles) -> ApiPath {
    ApiPath::within(&Gvr::new("", "v1", "secrets"), &source.secret_namespace)
}

fn selected(source: &ClusterProfiles) -> String {
    let selector = utf8_percent_encode(&source.selector, NON_ALPHANUMERIC);
    if source.selector.is_empty() { String::new() } else { format!("&labelSelector={selector}") }
}

/// Reads the ClusterProfiles, and the Secrets that they name.
pub(super) async fn read(
    hub: &Member,
    source: &ClusterProfiles,
    kept: &mut Kept,
) -> Result<(Found, Positions), InventoryError> {
    // Before the Secrets themselves: what changes between is told by the watch.
    let (revisions, secrets_at) = list(hub, &secrets_of(source), "", METADATA_LIST).await?;
    let revisions = revisions.iter().map(|text| Revised::read(text)).collect::<Result<BTreeMap<_, _>, _>>()?;
    let (profiles, texts, profiles_at) = list_profiles(hub, source).await?;
    let cluster_uid = hub.cluster_uid().ok_or(InventoryError::OtherCluster)?;
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for text in texts {
        match Profile::read(&text, source, &cluster_uid) {
            Ok(profile) => found.push(profile),
            Err(error) => {
                problems.push(Problem {
                    name: Revised::read(&text)?.0,
                    reason: "ProfileInvalid",
                    why: error.to_string(),
                });
            }
        }
    }
    let named: BTreeSet<String> =
        found.iter().filter(|profile| profile.refusal.is_none()).map(|profile| profile.secret.clone()).collect();
    kept.retain(|name, (revision, _)| named.contains(name) && revisions.get(name) == Some(revision));
    let unread = named.iter().filter(|name| !kept.contains_key(*name)).filter(|name| revisions.contains_key(*name));
    let reading: Vec<_> = unread.map(|name| read_secret(hub, source, name)).collect();
    let read: Vec<Option<(String, Value)>> = stream::iter(reading).buffer_unordered(AT_ONCE).try_collect().await?;
    kept.extend(read.into_iter().flatten().map(|(name, secret)| {
        let revision = kubefold_wire::access::text(&secret, "/metadata/resourceVersion").to_owned();
        (name, (revision, secret))
    }));
    let secrets = kept.iter().map(|(name, (_, secret))| (name.clone(), secret.clone())).collect();
    for profile in &mut found {
        profile.judge(source, &secrets);
    }
    let found = Found { cluster_uid, profiles: found, secrets, problems };
    Ok((found, Positions { profiles, profiles_at, secrets_at, named }))
}

impl Profile {
    /// Says what is wrong with its Secret, if nothing else is.
    fn judge(&mut self, source: &ClusterProfiles, secrets: &BTreeMap<String, Value>) {
        let Some(from) = self.spec.cluster_profile_ref.clone().filter(|_| self.refusal.is_none()) else { return };
        let (namespace, name) = (source.secret_namespace.clone(), self.secret.clone());
        let secret = secrets.get(&self.secret);
        let place = format!("the Secret {namespace}/{name} there");
        let fault = |what| Refusal::ProfileSecret { from: from.clone(), namespace, name, what };
        self.refusal = match secret.map(|secret| self.object().with_credential(Some(secret))) {
            None => Some(fault(SecretFault::Missing)),
            Some(Ok(_)) => None,
            Some(Err(Refusal::NoCredential(_))) => Some(fault(SecretFault::Empty)),
            Some(Err(Refusal::Credential { why, .. })) => {
                Some(Refusal::ProfileCredential { from, why: format!("{place}: {why}") })
            }
            Some(Err(refusal)) => Some(refusal),
        };
    }
}

/// The ClusterProfiles, in the first version that there is, and their revision.
async fn list_profiles(hub: &Member, source: &ClusterProfiles) -> Result<(Gvr, Vec<String>, String), InventoryError> {
    for version in VERSIONS {
        let profiles = Gvr::new(GROUP, version, "clusterprofiles");
        let path = ApiPath::within(&profiles, &source.namespace);
        match list(hub, &path, &selected(source), JSON).await {
            Err(InventoryError::Answered { code: StatusCode::NOT_FOUND, .. }) => {}
            Err(error) => return Err(error),
            Ok((texts, at)) => return Ok((profiles, texts, at)),
        }
    }
    Err(InventoryError::Undefined)
}

/// The name and the revision of an object.
struct Revised;

impl Revised {
    fn read(text: &str) -> serde_json::Result<(String, String)> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            name: String,
            resource_version: String,
        }
        let Object { metadata } = serde_json::from_str(text)?;
        Ok((metadata.name, metadata.resource_version))
    }
}

/// One Secret, if it is still there.
async fn read_secret(
    hub: &Member,
    source: &ClusterProfiles,
    name: &str,
) -> Result<Option<(String, Value)>, InventoryError> {
    match hub.look(secrets_of(source), &Gvk::new("", "v1", "Secret"), name).await {
        Answer::Answered { code: StatusCode::OK, body: Document { bytes, .. }, .. } => {
            Ok(Some((name.to_owned(), serde_json::from_slice(&bytes)?)))
        }
        Answer::Answered { code: StatusCode::NOT_FOUND, .. } => Ok(None),
        Answer::Answered { code, body, .. } => Err(refused(code, "a Secret", &body)),
        Answer::NotSent(cause) | Answer::Unknown(cause) => Err(InventoryError::Answer(cause)),
    }
}

/// All objects of a collection at one revision, which is the second.
async fn list(
    hub: &Member,
    path: &ApiPath,
    selected: &str,
    accept: &'static str,
) -> Result<(Vec<String>, String), InventoryError> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let after = utf8_percent_encode(&token, NON_ALPHANUMERIC);
        let after = if token.is_empty() { String::new() } else { format!("&continue={after}") };
        let query = format!("limit={PAGE_ITEMS}{selected}{after}");
        let answer = ask(hub, path, &query, accept, Class::Read).await?;
        let page = collect(answer, PAGE_BYTES_MAX).await?;
        let (meta, items) = split(&page)?;
        all.extend(items.into_iter().map(str::to_owned));
        token = meta.continue_token;
        if token.is_empty() {
            return Ok((all, meta.resource_version));
        }
    }
}

/// Waits for a change of an object, or of one of these names, or for the end of the watch.
async fn changes(
    hub: &Member,
    path: ApiPath,
    query: String,
    accept: &'static str,
    names: Option<&BTreeSet<String>>,
) -> Result<(), InventoryError> {
    let query = format!("watch=1&allowWatchBookmarks=true&timeoutSeconds={}{query}", LOOK_EVERY.as_secs());
    let mut body = ask(hub, &path, &query, accept, Class::Watch).await?;
    let mut lines = Lines::default();
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame?.into_data() else { continue };
        lines.push(&chunk)?;
        while let Some(line) = lines.next_line() {
            let event = Event::parse(&line)?;
            match event.event_type {
                EventType::Bookmark => {}
                // The revision is too old, or the server goes: everything is listed anew.
                EventType::Error => return Ok(()),
                EventType::Added | EventType::Modified | EventType::Deleted => {
                    let name = Revised::read(event.object)?.0;
                    if names.is_none_or(|names| names.contains(&name)) {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

async fn ask(
    hub: &Member,
    path: &ApiPath,
    query: &str,
    accept: &'static str,
    class: Class,
) -> Result<UpResponseBody, InventoryError> {
    let request = Outgoing::own(Method::GET, path.clone(), query, empty())?;
    let request = request.with(header::ACCEPT, HeaderValue::from_static(accept));
    let (head, body) = hub.send(request, class).await?.into_parts();
    if head.status.is_success() {
        return Ok(body);
    }
    let told = collect(body, 1 << 20).await.unwrap_or_default();
    Err(refused(head.status, path.to_string().trim_start_matches('/'), &told))
}

fn refused(code: StatusCode, what: &str, body: &Bytes) -> InventoryError {
    let message = serde_json::from_slice::<Value>(body).ok().and_then(|status| {
        let message = status.get("message")?.as_str()?;
        Some(format!(" ({message})"))
    });
    InventoryError::Answered { code, what: what.to_owned(), message: message.unwrap_or_default() }
}
