//! Config maps in bulk, and what a fleet must show of them.

use std::collections::BTreeMap;

use futures::StreamExt;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Api, Member};

/// All of them.
pub const CONFIG_MAPS: &str = "/api/v1/configmaps";
/// Those of the namespace that tests work in.
pub const IN_DEFAULT: &str = "/api/v1/namespaces/default/configmaps";
/// Requests under way at once when many objects are made.
const IN_PARALLEL: usize = 24;

/// What each cluster that has controllers makes in every namespace: one object of the fleet, and nobody's in these tests.
const OF_EVERY_NAMESPACE: &str = "/kube-root-ca.crt";

/// `namespace/name` to what decides whether two states of an object are one: its UID and its data.
pub type Objects = BTreeMap<String, Value>;

/// A cluster that can be asked what it has.
pub trait Cluster {
    /// Its name in the fleet.
    fn name(&self) -> &str;
    /// A client of it.
    fn api(&self) -> impl Future<Output = Api>;
}

impl Cluster for Member {
    fn name(&self) -> &str {
        Self::name(self)
    }

    async fn api(&self) -> Api {
        Self::api(self).await
    }
}

/// A config map of the default namespace.
pub fn config_map(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"is": data}})
}

/// Creates a config map, straight at its member.
pub async fn create(member: &Member, name: &str, data: &str) -> Value {
    member.api().await.create(IN_DEFAULT, &config_map(name, data)).await
}

/// Changes a config map, straight at its member.
pub async fn update(member: &Member, name: &str, data: &str) -> Value {
    member.request(Method::PUT, &format!("{IN_DEFAULT}/{name}"), config_map(name, data).to_string()).await.ok()
}

/// Deletes a config map, straight at its member.
pub async fn delete(member: &Member, name: &str) {
    member.request(Method::DELETE, &format!("{IN_DEFAULT}/{name}"), "").await.ok();
}

/// Creates `count` config maps `<prefix>-<number>` of about `bytes`, many at a time.
pub async fn create_many(member: &Member, prefix: &str, count: usize, bytes: usize) {
    let (api, data) = (member.api().await, "x".repeat(bytes));
    let create = |number: usize| {
        let (api, object) = (api.clone(), config_map(&format!("{prefix}-{number:05}"), &data));
        async move {
            let answer = api.request(Method::POST, IN_DEFAULT, object.to_string()).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{answer}");
        }
    };
    futures::stream::iter(0..count).map(create).buffer_unordered(IN_PARALLEL).collect::<()>().await;
}

/// The union of what the members themselves list, under the names that the fleet shows.
pub async fn union(members: &[&impl Cluster]) -> Objects {
    let mut union = Objects::new();
    for member in members {
        let list = member.api().await.get(CONFIG_MAPS).await;
        let suffix = format!("@{}", member.name());
        union.extend(objects(&list).into_iter().map(|(key, object)| (key + &suffix, object)));
    }
    union
}

/// What the fleet lists, with the texts of its warnings.
pub async fn listed(fleet: &Api) -> Result<(Objects, Vec<String>), String> {
    let answer = fleet.try_request(Method::GET, CONFIG_MAPS, "").await?;
    match answer.status {
        StatusCode::OK => Ok((objects(&answer.json()), answer.warnings())),
        _ => Err(answer.to_string()),
    }
}

/// That the fleet shows exactly what its members hold, without a warning.
pub async fn exact(fleet: &Api, members: &[&impl Cluster]) -> Result<(), String> {
    let (shown, warnings) = listed(fleet).await?;
    same(&shown, &union(members).await)?;
    if warnings.is_empty() { Ok(()) } else { Err(format!("{warnings:?}")) }
}

/// The items of a list, each once.
pub fn objects(list: &Value) -> Objects {
    let mut all = Objects::new();
    for item in list["items"].as_array().unwrap() {
        let metadata = &item["metadata"];
        let key = format!("{}/{}", metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap());
        if key.ends_with(OF_EVERY_NAMESPACE) {
            continue;
        }
        let twice = all.insert(key.clone(), json!({"uid": metadata["uid"], "data": item["data"]}));
        assert_eq!(twice, None, "{key} is listed twice");
    }
    all
}

/// What an informer holds, from its dump.
pub fn held(dump: &Value) -> Objects {
    let item = |(key, item): (&String, &Value)| (key.clone(), json!({"uid": item["uid"], "data": item["data"]}));
    let all = dump.as_object().unwrap().iter().filter(|(key, _)| !key.ends_with(OF_EVERY_NAMESPACE));
    all.map(item).collect()
}

/// That two sets are one; else what differs, shortly.
pub fn same(have: &Objects, want: &Objects) -> Result<(), String> {
    let missing: Vec<_> = want.keys().filter(|key| !have.contains_key(*key)).collect();
    let extra: Vec<_> = have.keys().filter(|key| !want.contains_key(*key)).collect();
    let differs: Vec<_> = want.keys().filter(|key| have.contains_key(*key) && have[*key] != want[*key]).collect();
    if missing.is_empty() && extra.is_empty() && differs.is_empty() {
        return Ok(());
    }
    let some = |keys: &[&String]| format!("{}: {:?}", keys.len(), keys.iter().take(5).collect::<Vec<_>>());
    Err(format!("missing {}, too many {}, different {}", some(&missing), some(&extra), some(&differs)))
}
