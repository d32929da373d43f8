//! Members as objects: what is configured of each, and how it is. They are made of the configuration and of what kubefold sees,
//! and nobody writes them by the API.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    member::Member,
    own::{
        GROUP, VERSION,
        counts::{Counts, held},
    },
    stores::Stores,
};
use kubefold_apiserver::{
    kinds::Kind,
    registry::{DeleteOptions, ListOptions, Registry, WriteOptions},
    typed::{IntoKinds, KindError},
};
use kubefold_wire::{
    access::{items, text},
    status::Status,
};

/// The kind's name.
const KIND: &str = "Member";
/// How often it is looked how members are. A state that changes is seen so late at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Numbers that change all the time are written down so often at most.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// What can be done with the objects.
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// A cluster of the fleet.
#[derive(Serialize, Deserialize, JsonSchema)]
struct MemberObject {
    /// What `clusters.yaml` says of it.
    spec: MemberSpec,
    /// How it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<MemberStatus>,
}

/// What is configured of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct MemberSpec {
    /// Its share of replicas that are divided by static weights.
    weight: u32,
    /// Labels, by which policies choose it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// The configuration declares it absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    absent: bool,
}

/// How a member is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MemberStatus {
    /// ready, degraded, down or unknown.
    state: String,
    /// Why it is not ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cause: String,
    /// Its Kubernetes version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    version: String,
    /// The UID of its namespace kube-system, which says which cluster it is.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "String::is_empty")]
    cluster_uid: String,
    /// Its nodes, as it said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nodes: Option<usize>,
    /// Its pods, as it said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pods: Option<usize>,
    /// How long the kind that is furthest behind has not been followed, such as 12s; 0s: all are current.
    lag: String,
    /// Ready: it answers and is ready.
    conditions: Vec<Condition>,
}

/// One statement about a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Condition {
    /// Ready.
    r#type: String,
    /// True, False or Unknown.
    status: String,
    /// The state of the member in one word.
    reason: String,
    /// Why it is so.
    message: String,
    /// When the status changed last.
    last_transition_time: String,
}

/// The members as objects.
pub struct Members {
    stores: Arc<Stores>,
    registry: Registry,
    kind: Arc<Kind>,
    counted: BTreeMap<String, Instant>,
    counts: Arc<Counts>,
}

impl Members {
    /// The kind. Its objects are read only.
    ///
    /// Errors: never, unless its type has no structural schema.
    pub fn kind() -> Result<Vec<Kind>, KindError> {
        let kind = Kind::of::<MemberObject>(GROUP, VERSION, KIND)
            .cluster_scoped()
            .schema()
            .column("State", "string", ".status.state")
            .column("Version", "string", ".status.version")
            .column("Nodes", "integer", ".status.nodes")
            .column("Pods", "integer", ".status.pods")
            .column("Lag", "string", ".status.lag")
            .column("Age", "date", ".metadata.creationTimestamp")
            .wide_column("Cause", "string", ".status.cause");
        let mut kinds = kind.into_kinds()?;
        for kind in &mut kinds {
            kind.verbs = VERBS.map(str::to_owned).to_vec();
        }
        Ok(kinds)
    }

    /// Keeps the objects as the members are, until cancelled.
    pub async fn follow(stores: Arc<Stores>, registry: Registry) {
        let Some(kind) = registry.kind(GROUP, KIND) else { return };
        let counts = Arc::new(Counts::default());
        let of_stores = Arc::clone(&stores);
        let mut members = Self { stores, registry, kind, counted: BTreeMap::new(), counts: Arc::clone(&counts) };
        let looking = async {
            loop {
                if let Err(status) = members.look().await {
                    tracing::warn!(error = status.message, "members are not written down as objects");
                }
                sleep(LOOK_EVERY).await;
            }
        };
        let counting = async {
            loop {
                counts.ask(&of_stores).await;
                sleep(LOOK_EVERY).await;
            }
        };
        tokio::join!(looking, counting);
    }

    /// Writes down what has changed.
    async fn look(&mut self) -> Result<(), Status> {
        let known = self.registry.list(&self.kind, "", &ListOptions::default()).await?;
        let mut known: BTreeMap<String, Value> =
            known.objects.iter().map(|object| (object.name().to_owned(), object.value())).collect();
        let all = self.stores.registry().members();
        for member in all.iter() {
            let name = member.name().as_str();
            let there = known.remove(name);
            let (spec, status) = (spec(member), self.status(member, there.as_ref()));
            let Some(there) = there else {
                let object = json!({"metadata": {"name": name}, "spec": spec, "status": status});
                self.registry.create(&self.kind, "", object, &WriteOptions::default()).await?;
                continue;
            };
            if there.get("spec") == Some(&json!(spec)) && !self.is_news(name, &there, &status) {
                continue;
            }
            let change = |object: &mut Value| {
                object["spec"] = json!(spec);
                object["status"] = json!(status);
                Ok(())
            };
            self.registry.modify_all(&self.kind, "", name, &WriteOptions::default(), change).await?;
        }
        for gone in known.into_keys() {
            self.registry.delete(&self.kind, "", &gone, &DeleteOptions::default()).await?;
        }
        Ok(())
    }

    /// Says whether a status is to be written: at once where the state has changed, now and then where numbers have.
    fn is_news(&mut self, name: &str, there: &Value, status: &MemberStatus) -> bool {
        let before: MemberStatus =
            there.get("status").cloned().map(serde_json::from_value).and_then(Result::ok).unwrap_or_default();
        if before == *status {
            return false;
        }
        let bare =
            |status: &MemberStatus| MemberStatus { nodes: None, pods: None, lag: String::new(), ..status.clone() };
        let now = Instant::now();
        let is_due = self.counted.get(name).is_none_or(|last| now.duration_since(*last) >= COUNT_EVERY);
        let is_news = bare(&before) != bare(status) || is_due;
        if is_news {
            self.counted.insert(name.to_owned(), now);
        }
        is_news
    }

    fn status(&self, member: &Arc<Member>, there: Option<&Value>) -> MemberStatus {
        let health = member.health();
        let server = self.stores.member_catalog(member.name()).and_then(|catalog| catalog.server.clone());
        let version = server.as_ref().and_then(|server| server.document.get("gitVersion")?.as_str());
        let cause = health.cause().map(ToString::to_string).unwrap_or_default();
        let value = match health.name() {
            "ready" => "True",
            "unknown" => "Unknown",
            _ => "False",
        };
        let before = there.map_or(&[][..], |there| items(there, "/status/conditions"));
        let same = before.iter().find(|condition| text(condition, "/status") == value);
        let since = same.map(|condition| text(condition, "/lastTransitionTime").to_owned());
        let now = || Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut reason = health.name().to_owned();
        reason.get_mut(..1).into_iter().for_each(str::make_ascii_uppercase);
        MemberStatus {
            state: health.name().to_owned(),
            version: version.unwrap_or_default().to_owned(),
            cluster_uid: member.cluster_uid().map(|uid| uid.to_string()).unwrap_or_default(),
            nodes: self.count("nodes", member),
            pods: self.count("pods", member),
            lag: format!("{}s", self.stores.following(member.name()).lag.as_secs()),
            conditions: vec![Condition {
                r#type: "Ready".to_owned(),
                status: value.to_owned(),
                reason,
                message: cause.clone(),
                last_transition_time: since.unwrap_or_else(now),
            }],
            cause,
        }
    }

    /// How many objects of a kind a member has, if anybody knows.
    fn count(&self, resource: &str, member: &Member) -> Option<usize> {
        held(&self.stores, resource, member).or_else(|| self.counts.of(resource, member))
    }
}

fn spec(member: &Member) -> MemberSpec {
    let config = member.config();
    MemberSpec { weight: config.weight.0, labels: config.labels.clone(), absent: config.absent }
}
