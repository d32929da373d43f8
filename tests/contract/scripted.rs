//! Watches that follow a script of changes: every target tells the same story.

use std::time::Duration;

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::{seen::normalise, target::Target};
use testbed::{Api, Member, Watch, eventually};

/// For an event that is due.
const SOON: Duration = Duration::from_secs(20);
/// Where the script plays, for a kind of Kubernetes' own and a custom one.
const CONFIG_MAPS: &str = "/api/v1/namespaces/changing/configmaps";
const GADGETS: &str = "/apis/e2e.kubefold.io/v1/namespaces/changing/gadgets";
/// `zz-with` has every label and `zz-without` none; their ends end the script.
const WITH: &str = "zz-with";
const WITHOUT: &str = "zz-without";

/// A watch: what is asked, in which form, and the object whose deletion is the last event that is looked at.
struct Story {
    path: String,
    accept: &'static str,
    until: &'static str,
}

fn stories() -> Vec<Story> {
    const JSON: &str = "application/json";
    const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
    const LIST: &str = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut all = Vec::new();
    for path in [CONFIG_MAPS, GADGETS] {
        for (query, accept, until) in [
            ("watch=1".to_owned(), JSON, WITHOUT),
            ("watch=true&resourceVersion=0".to_owned(), JSON, WITHOUT),
            ("watch=true&resourceVersion={rv}".to_owned(), JSON, WITHOUT),
            ("watch=true&resourceVersion={rv}".to_owned(), METADATA, WITHOUT),
            ("watch=true".to_owned(), METADATA, WITHOUT),
            ("watch=1&labelSelector=app%3Dweb".to_owned(), JSON, WITH),
            ("watch=1&resourceVersion={rv}&labelSelector=app%3Dweb".to_owned(), JSON, WITH),
            ("watch=1&labelSelector=app+in+(web,api)".to_owned(), JSON, WITH),
            ("watch=1&labelSelector=!app".to_owned(), JSON, WITHOUT),
            ("watch=1&labelSelector=app!%3Dweb".to_owned(), JSON, WITHOUT),
            ("watch=1&fieldSelector=metadata.name%3Dold{@}".to_owned(), JSON, "old"),
            ("watch=1&resourceVersion={rv}&fieldSelector=metadata.name%3Dnew{@}".to_owned(), JSON, "new"),
            ("watch=1&fieldSelector=metadata.name!%3Dold{@}".to_owned(), JSON, WITHOUT),
            (format!("watch=1&{LIST}"), JSON, WITHOUT),
            (format!("watch=1&{LIST}"), METADATA, WITHOUT),
            (format!("watch=1&resourceVersion=0&{LIST}"), JSON, WITHOUT),
            (format!("watch=1&resourceVersion={{rv}}&{LIST}"), JSON, WITHOUT),
            (format!("watch=1&{LIST}&labelSelector=app%3Dweb"), JSON, WITH),
            ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(), JSON, WITHOUT),
            (
                "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={rv}".to_owned(),
                JSON,
                WITHOUT,
            ),
        ] {
            all.push(Story { path: format!("{path}?{query}"), accept, until });
        }
        let legacy = path.replace("/namespaces/", "/watch/namespaces/");
        all.push(Story { path: legacy.clone(), accept: JSON, until: WITHOUT });
        all.push(Story { path: format!("{legacy}/old{{@}}"), accept: JSON, until: "old" });
        all.push(Story { path: format!("{legacy}?resourceVersion={{rv}}"), accept: JSON, until: WITHOUT });
    }
    all
}

/// Plays the script in a member before all targets at once. The first one's stories are those that all must tell.
pub(crate) async fn verdicts(member: &Member, targets: &[&Target]) -> Vec<String> {
    let api = member.api().await;
    for path in [CONFIG_MAPS, GADGETS] {
        api.create(path, &object(path, "old", "web", "1")).await;
        api.create(path, &object(path, "other", "api", "1")).await;
    }
    let mut readers = Vec::new();
    for target in targets {
        readers
            .push(Reader { target, revisions: [revision(target, CONFIG_MAPS).await, revision(target, GADGETS).await] });
    }
    let stories = stories();
    let mut open = Vec::new();
    for story in &stories {
        open.push(join_all(readers.iter().map(|reader| reader.open(story))).await);
    }
    let read = join_all(open.into_iter().zip(&stories).map(async |(tellings, story)| {
        (story, join_all(tellings.into_iter().map(|telling| telling.events(story.until))).await)
    }));
    let ((), told) = tokio::join!(play(&api), read);
    told.into_iter().flat_map(|(story, told)| compare(story, targets, &told)).collect()
}

/// Who differs from the first.
fn compare(story: &Story, targets: &[&Target], told: &[EventLines]) -> Vec<String> {
    let first = &told[0];
    let others = targets.iter().zip(told).skip(1);
    others
        .filter_map(|(target, told)| {
            let wrong = match (first, told) {
                (Ok(first), Ok(told)) => {
                    // Of custom resources a kube-apiserver writes the keys in another order.
                    let same = |at: &usize| match (first.get(*at), told.get(*at)) {
                        (Some(first), Some(told)) if story.path.contains("gadgets") => {
                            serde_json::from_str::<Value>(first).ok() == serde_json::from_str::<Value>(told).ok()
                        }
                        (first, told) => first == told,
                    };
                    let at = (0..first.len().max(told.len())).find(|at| !same(at))?;
                    let event = |events: &[String]| events.get(at).cloned().unwrap_or_else(|| "nothing".into());
                    format!("event {at} is {}\n    and from the member {}", event(told), event(first))
                }
                (Err(first), Err(told)) if first == told => return None,
                (first, told) => format!("{told:?}\n    and the member {first:?}"),
            };
            Some(format!("{}: {} [accept: {}]\n    {wrong}", target.name, story.path, story.accept))
        })
        .collect()
}

/// What a watch told: its events, or why there are none.
type EventLines = Result<Vec<String>, String>;

/// A target, and its revisions when the script begins.
struct Reader<'a> {
    target: &'a Target,
    revisions: [String; 2],
}

/// An open watch.
struct Telling {
    suffix: String,
    opened: Result<Watch, String>,
}

impl Reader<'_> {
    async fn open(&self, story: &Story) -> Telling {
        let revision = &self.revisions[usize::from(story.path.contains("gadgets"))];
        let path = self.target.path(&story.path.replace("{rv}", revision));
        let opened = match self.target.api.watch_as(&path, story.accept).await {
            watch if watch.status.is_success() => Ok(watch),
            watch => Err(watch.status.to_string()),
        };
        Telling { suffix: self.target.suffix.clone(), opened }
    }
}

impl Telling {
    /// Everything up to the deletion of one object; of several members, what is about the first one's.
    async fn events(self, until: &str) -> EventLines {
        let mut watch = self.opened?;
        let (mut events, mut last) = (Vec::new(), 0);
        loop {
            let next = tokio::time::timeout(SOON, watch.next(SOON * 2)).await;
            let Ok(Some(mut event)) = next else {
                events.push(format!("{next:?}, and not the end of {until}"));
                return Ok(events);
            };
            let metadata = &event["object"]["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default();
            let end = metadata["annotations"]["k8s.io/initial-events-end"] == "true";
            let bookmark = event["type"] == "BOOKMARK";
            if (bookmark && !end) || (!bookmark && event["type"] != "ERROR" && !name.ends_with(&self.suffix)) {
                continue;
            }
            let over = event["type"] == "DELETED" && name.strip_suffix(&self.suffix) == Some(until);
            // What a watch begins with may come in any order; what follows has one.
            let revision = metadata["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
            if event["type"] != "ADDED" && !bookmark {
                assert!(revision > Some(last), "{event} after {last}");
            }
            last = last.max(revision.unwrap_or_default());
            normalise(&mut event, &self.suffix);
            // Each target sees the same object: what it was given at creation is the same, too.
            events.push(event.to_string());
            if over || event["type"] == "ERROR" {
                return Ok(events);
            }
        }
    }
}

/// A revision at which the target shows what is there when the script begins.
async fn revision(target: &Target, path: &str) -> String {
    eventually(SOON, async || {
        let list = target.api.get(path).await;
        let has = |name: &str| {
            let name = format!("{name}{}", target.suffix);
            list["items"].as_array().into_iter().flatten().any(|item| item["metadata"]["name"] == name)
        };
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        if has("old") && has("other") { Ok(revision) } else { Err(list) }
    })
    .await
}

fn object(path: &str, name: &str, app: &str, data: &str) -> Value {
    let labels = match app {
        "" => json!({}),
        app => json!({"app": app}),
    };
    let metadata = json!({"name": name, "labels": labels});
    if path == GADGETS {
        json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Gadget", "metadata": metadata, "spec": {"color": data}})
    } else {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"is": data}})
    }
}

/// Objects come, change, enter and leave selectors, and go.
async fn play(api: &Api) {
    for path in [CONFIG_MAPS, GADGETS] {
        let create = async |name: &str, app: &str| {
            api.create(path, &object(path, name, app, "1")).await;
        };
        let change = async |name: &str, app: &str, data: &str| {
            let mut object = object(path, name, app, data);
            let now = api.get(&format!("{path}/{name}")).await;
            object["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
            api.request(Method::PUT, &format!("{path}/{name}"), object.to_string()).await.ok();
        };
        let delete = async |name: &str| {
            api.request(Method::DELETE, &format!("{path}/{name}"), "").await.ok();
        };
        create("new", "web").await;
        change("new", "api", "1").await;
        change("old", "web", "2").await;
        change("old", "", "2").await;
        change("other", "web", "1").await;
        change("new", "web", "3").await;
        delete("new").await;
        delete("old").await;
        create("old", "web").await;
        delete("old").await;
        create(WITH, "web").await;
        delete(WITH).await;
        create(WITHOUT, "").await;
        delete(WITHOUT).await;
    }
}
