//! kube-rs' watchers over config maps, as `tests/clients/go/cmd/informer` is client-go's: the same lines on stdout, the
//! same orders on stdin.

use std::{collections::HashMap, fmt::Debug};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        watcher::{self, Event},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let flag = |name: &str| {
        let prefix = format!("--{name}=");
        std::env::args().find_map(|arg| arg.strip_prefix(&prefix).map(str::to_owned)).unwrap_or_default()
    };
    let kubeconfig = Kubeconfig::read_from(flag("kubeconfig"))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let settings = watcher::Config::default;
    match flag("mode").as_str() {
        "listwatch" => follow::<ConfigMap>(Api::all(client), settings()).await,
        "streaming" => follow::<ConfigMap>(Api::all(client), settings().streaming_lists()).await,
        "metadata" => follow::<PartialObjectMeta<ConfigMap>>(Api::all(client), settings()).await,
        mode => Err(format!("no such mode: {mode}").into()),
    }
}

/// Keeps a store by a watcher's events, prints them, and obeys orders, until the end of stdin.
async fn follow<K>(api: Api<K>, settings: watcher::Config) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let (store, writer) = reflector::store::<K>();
    let events = reflector::reflector(writer, watcher::watcher(api.clone(), settings))
        .inspect_err(|error| eprintln!("watcher: {error}"));
    let mut events = std::pin::pin!(events.default_backoff());
    let mut seen = Seen::default();
    let mut orders = BufReader::new(stdin()).lines();
    loop {
        tokio::select! {
            event = events.try_next() => if let Ok(event) = event {
                seen.take(event.ok_or("the watcher ended")?)?;
            },
            order = orders.next_line() => match order? {
                Some(order) => obey(&order, &store, &api).await?,
                None => return Ok(()),
            },
        }
    }
}

async fn obey<K>(order: &str, store: &Store<K>, api: &Api<K>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + 'static,
{
    match order.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["dump"] => {
            let held = store.state();
            let items = held.iter().map(|object| Ok((key(object.as_ref()), item(object.as_ref())?)));
            print(&json!({"type": "DUMP", "items": items.collect::<Result<serde_json::Map<_, _>>>()?}));
        }
        ["list"] => print(&list(api, None).await),
        ["pages", size] => print(&list(api, Some(size.parse()?)).await),
        _ => return Err(format!("no such order: {order}").into()),
    }
    Ok(())
}

async fn list<K>(api: &Api<K>, limit: Option<u32>) -> Value
where
    K: ResourceExt + Clone + Debug + DeserializeOwned + Serialize,
{
    let (mut items, mut revisions) = (Vec::new(), Vec::new());
    let mut params = ListParams { limit, ..ListParams::default() };
    let error = loop {
        let (metadata, page) = match api.list(&params).await {
            Ok(list) => (list.metadata, list.items),
            Err(error) => break Some(error.to_string()),
        };
        revisions.push(metadata.resource_version);
        items.extend(page.iter().filter_map(|object| item(object).ok()));
        match metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break None,
        }
    };
    json!({"type": "LIST", "items": items, "revisions": revisions, "error": error})
}

/// What the events said so far: the documents, without their revisions, by key.
#[derive(Default)]
struct Seen {
    held: HashMap<String, Value>,
    /// What an initial list brought so far.
    first: HashMap<String, (Value, Value)>,
    synced: bool,
}

impl Seen {
    fn take<K: Serialize + ResourceExt>(&mut self, event: Event<K>) -> Result<()> {
        match event {
            Event::Init => self.first.clear(),
            Event::InitApply(object) => {
                self.first.insert(key(&object), (item(&object)?, without_revision(&object)?));
            }
            Event::InitDone => self.relisted(),
            Event::Apply(object) => self.apply(key(&object), &item(&object)?, without_revision(&object)?),
            Event::Delete(object) => {
                self.held.remove(&key(&object));
                line("DELETE", &item(&object)?, false);
            }
        }
        Ok(())
    }

    fn relisted(&mut self) {
        let first = std::mem::take(&mut self.first);
        self.held.retain(|key, _| {
            let stays = first.contains_key(key);
            if !stays {
                line("DELETE", &json!({"key": key}), false);
            }
            stays
        });
        for (key, (item, document)) in first {
            self.apply(key, &item, document);
        }
        if !std::mem::replace(&mut self.synced, true) {
            print(&json!({"type": "SYNCED"}));
        }
    }

    fn apply(&mut self, key: String, item: &Value, document: Value) {
        match self.held.get(&key) {
            Some(before) => line("UPDATE", item, *before != document),
            None => line("ADD", item, false),
        }
        self.held.insert(key, document);
    }
}

fn line(kind: &str, item: &Value, changed: bool) {
    print(&json!({"type": kind, "key": item["key"], "rv": item["rv"], "uid": item["uid"], "changed": changed}));
}

fn key(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

fn item<K: Serialize + ResourceExt>(object: &K) -> Result<Value> {
    let data = serde_json::to_value(object)?["data"].take();
    Ok(json!({"key": key(object), "rv": object.resource_version(), "uid": object.uid(), "data": data}))
}

fn without_revision(object: &impl Serialize) -> Result<Value> {
    let mut document = serde_json::to_value(object)?;
    document["metadata"]["resourceVersion"] = Value::Null;
    Ok(document)
}

fn print(line: &Value) {
    println!("{line}");
}
