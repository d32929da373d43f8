//! Who acts under a seed: clients that write, read and watch through kubefold, and programs inside the members.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::{Method, Request, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    chance::Chance,
    client::{Line, Lines},
    history::{End, Event, Read, Seen, Type, Verb, Watched, Write},
    kinds::{DEPLOYMENTS, KINDS, Kind},
    play::Stage,
};

/// Pages of a list at most: a walk that does not end is a failure.
const PAGES_MAX: usize = 200;

/// A new object.
pub(crate) fn body(kind: &Kind, namespace: &str, name: &str, note: &str) -> Value {
    let mut body = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {"note": note}},
    });
    match kind.kind {
        "ConfigMap" => body["data"] = json!({"note": note, "text": "a \"quoted\" \u{fc}\n<line>"}),
        "Lease" => body["spec"] = json!({"holderIdentity": note, "leaseDurationSeconds": 15}),
        _ => {
            body["spec"] = json!({
                "replicas": 4,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}, "annotations": {"note": note}},
                    "spec": {"containers": [{"name": "web", "image": "web:1"}]},
                },
            });
        }
    }
    body
}

/// A merge patch that changes an object.
fn change(kind: &Kind, note: &str) -> Value {
    match kind.kind {
        "ConfigMap" => json!({"data": {"note": note}, "metadata": {"labels": {"note": note}}}),
        "Lease" => json!({"spec": {"holderIdentity": note}}),
        _ => json!({"spec": {"template": {"metadata": {"annotations": {"note": note}}}}}),
    }
}

/// A program inside a member: it makes, changes and deletes objects of names that other members have, too.
pub(crate) async fn natively(stage: &Stage<'_>, member: usize, mut chance: Chance, steps: usize) {
    for step in 0..steps * 2 {
        chance.think(50, 1_500).await;
        let kind = chance.of_all(&KINDS);
        let name = format!("app-{}", chance.below(3));
        let (note, path) = (format!("n{member}-{step}"), kind.object_path(&stage.namespace, &name));
        let created = body(kind, &stage.namespace, &name, &note);
        let collection = kind.path(&stage.namespace);
        match chance.below(5) {
            0 => drop(stage.in_member(member, Method::DELETE, &path, None).await),
            1 | 2 => drop(stage.in_member(member, Method::PATCH, &path, Some(&change(kind, &note))).await),
            _ => drop(stage.in_member(member, Method::POST, &collection, Some(&created)).await),
        }
    }
}

/// A client that makes placed objects of its own.
pub(crate) async fn place(stage: &Stage<'_>, client: usize, mut chance: Chance, steps: usize) {
    for step in 0..steps {
        chance.think(50, 3_000).await;
        let kind = chance.of_all(&KINDS);
        let name = format!("own-{client}-{}", chance.below(2));
        write(stage, client, kind, &name, &format!("c{client}-{step}"), &mut chance).await;
    }
}

/// A client that makes and changes member-local objects, by their visible names.
pub(crate) async fn pin(stage: &Stage<'_>, client: usize, mut chance: Chance, steps: usize) {
    for step in 0..steps {
        chance.think(50, 3_000).await;
        let kind = chance.of_all(&KINDS);
        let member = chance.of_all(&crate::world::NAMES);
        let name = format!("app-{}@{member}", chance.below(3));
        write(stage, client, kind, &name, &format!("p{client}-{step}"), &mut chance).await;
    }
}

/// One write, and a read after it.
async fn write(stage: &Stage<'_>, client: usize, kind: &'static Kind, name: &str, note: &str, chance: &mut Chance) {
    let verb =
        chance.of_all(&[Verb::Create, Verb::Create, Verb::Update, Verb::Patch, Verb::Apply, Verb::Scale, Verb::Delete]);
    let verb = if verb == Verb::Scale && *kind != DEPLOYMENTS { Verb::Patch } else { verb };
    let path = kind.object_path(&stage.namespace, name);
    let mut object = body(kind, &stage.namespace, name, note);
    // As whoever writes back what he read.
    if chance.one_in(3) {
        object["metadata"]["annotations"] =
            json!({"kubefold.io/cluster": "nowhere", "kubefold.io/clusters": "a,b", "mine": "x"});
    }
    let (method, path, content, body) = match verb {
        Verb::Create => (Method::POST, kind.path(&stage.namespace), "application/json", object),
        Verb::Update => {
            let read = get(stage, client, kind, name).await;
            let Some(seen) = read.objects.first() else { return };
            let mut object = seen.body.clone();
            merge(&mut object, &change(kind, note));
            object["apiVersion"] = kind.api_version().into();
            object["kind"] = kind.kind.into();
            (Method::PUT, path, "application/json", object)
        }
        Verb::Patch => (Method::PATCH, path, "application/merge-patch+json", change(kind, note)),
        Verb::Apply => {
            let path = format!("{path}?fieldManager=applier&force=true");
            (Method::PATCH, path, "application/apply-patch+yaml", object)
        }
        Verb::Scale => {
            let scale = json!({"spec": {"replicas": chance.below(9)}});
            (Method::PATCH, format!("{path}/scale"), "application/merge-patch+json", scale)
        }
        Verb::Delete => (Method::DELETE, path, "application/json", json!({})),
    };
    let began = stage.now();
    let answer = stage.world.clients[client].ask(method, &path, content, body.to_string()).await;
    let object = Some(answer.json()).filter(|body| answer.is_success() && body["kind"] == kind.kind);
    stage.history.borrow_mut().writes.push(Write {
        client,
        began,
        ended: stage.now(),
        kind,
        namespace: stage.namespace.clone(),
        name: name.to_owned(),
        verb,
        code: answer.code,
        message: answer.message(),
        warnings: answer.warnings(),
        object: object.map(Seen::of_value),
    });
    // Somebody else reads at once.
    let other = chance.below(stage.world.clients.len());
    if chance.one_in(2) {
        get(stage, other, kind, name).await;
    } else {
        list(stage, other, kind, "", None).await;
    }
}

/// A merge patch, applied.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    match patch.as_object() {
        None => *target = patch.clone(),
        Some(fields) => {
            for (name, value) in fields {
                merge(&mut target[name], value);
            }
        }
    }
}

/// A client that reads in every way.
pub(crate) async fn read(stage: &Stage<'_>, client: usize, mut chance: Chance, steps: usize) {
    for _ in 0..steps {
        chance.think(50, 2_000).await;
        let kind = chance.of_all(&KINDS);
        match chance.below(6) {
            0 => drop(list(stage, client, kind, "", Some(1 + chance.below(3))).await),
            1 => drop(list(stage, client, kind, "/views/lenient", None).await),
            2 => drop(list(stage, client, kind, "/views/strict", None).await),
            3 => {
                let member = chance.of_all(&crate::world::NAMES);
                get(stage, client, kind, &format!("app-{}@{member}", chance.below(3))).await;
            }
            4 => drop(get(stage, client, kind, &format!("own-{}-{}", chance.below(2), chance.below(2))).await),
            _ => drop(list(stage, client, kind, "", None).await),
        }
    }
}

/// Reads one object, and notes it.
pub(crate) async fn get(stage: &Stage<'_>, client: usize, kind: &'static Kind, name: &str) -> Read {
    let began = stage.now();
    let answer = stage.world.clients[client].get(&kind.object_path(&stage.namespace, name)).await;
    let read = Read {
        client,
        began,
        ended: stage.now(),
        kind,
        namespace: stage.namespace.clone(),
        name: Some(name.to_owned()),
        asked: String::new(),
        is_fresh: true,
        code: answer.code,
        message: answer.message(),
        warnings: answer.warnings(),
        revisions: Vec::new(),
        objects: if answer.is_success() { vec![Seen::of_value(answer.json())] } else { Vec::new() },
    };
    stage.history.borrow_mut().reads.push(read.clone());
    read
}

/// Reads a list, perhaps page by page, and notes it.
pub(crate) async fn list(
    stage: &Stage<'_>,
    client: usize,
    kind: &'static Kind,
    view: &str,
    limit: Option<usize>,
) -> Read {
    let began = stage.now();
    let path = format!("{view}{}", kind.path(&stage.namespace));
    let limit = limit.map(|limit| format!("limit={limit}")).unwrap_or_default();
    let mut read = Read {
        client,
        began,
        ended: began,
        kind,
        namespace: stage.namespace.clone(),
        name: None,
        asked: format!("{view}?{limit}"),
        is_fresh: true,
        code: 0,
        message: String::new(),
        warnings: Vec::new(),
        revisions: Vec::new(),
        objects: Vec::new(),
    };
    let mut token = String::new();
    for page in 0.. {
        assert!(page < PAGES_MAX, "promise 10: a list of {PAGES_MAX} pages\n{read:?}");
        let answer = stage.world.clients[client].get(&format!("{path}?{limit}&continue={token}")).await;
        (read.code, read.message) = (answer.code, answer.message());
        read.warnings.extend(answer.warnings());
        if !answer.is_success() {
            break;
        }
        let list = answer.json();
        read.revisions.push(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned());
        read.objects.extend(list["items"].as_array().cloned().unwrap_or_default().into_iter().map(Seen::of_value));
        token = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
    }
    read.ended = stage.now();
    stage.history.borrow_mut().reads.push(read.clone());
    read
}

/// Follows a kind of the seed's namespace from the beginning to the end, so that there is one watch that saw everything.
pub(crate) async fn audit(stage: &Stage<'_>, kind: &'static Kind) {
    let mut informer =
        Informer { stage, client: 0, kind, namespace: stage.namespace.clone(), held: BTreeMap::new(), at: None };
    while !stage.over.is_cancelled() {
        informer.session(false, 3600).await;
    }
}

/// Follows kinds as informers do: by list and watch or by WatchList, and again where that ends.
pub(crate) async fn watch(stage: &Stage<'_>, client: usize, mut chance: Chance) {
    let kind = chance.of_all(&KINDS);
    let namespace = if chance.one_in(3) { String::new() } else { stage.namespace.clone() };
    chance.think(0, 5_000).await;
    let mut informer = Informer { stage, client, kind, namespace, held: BTreeMap::new(), at: None };
    while !stage.over.is_cancelled() {
        if chance.one_in(4) {
            informer.at = None;
        }
        let is_streaming = chance.one_in(2);
        let seconds = if chance.one_in(3) { 3600 } else { 2 + chance.below(20) };
        informer.session(is_streaming, seconds).await;
    }
}

/// What an informer knows.
struct Informer<'a> {
    stage: &'a Stage<'a>,
    client: usize,
    kind: &'static Kind,
    namespace: String,
    held: BTreeMap<String, Seen>,
    /// The revision that it is at; `None`: it has to begin anew.
    at: Option<u64>,
}

/// Between two tries of an informer, by the virtual clock.
const PAUSE: Duration = Duration::from_millis(800);

impl Informer<'_> {
    /// One watch; before it a list, where that is needed.
    async fn session(&mut self, is_streaming: bool, seconds: usize) {
        if self.at.is_none() && !is_streaming && !self.list().await {
            tokio::time::sleep(PAUSE).await;
            return;
        }
        let from = match self.at {
            Some(at) => format!("resourceVersion={at}"),
            None => {
                self.held.clear();
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned()
            }
        };
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&{from}",
            self.kind.path(&self.namespace)
        );
        let request =
            Request::get(&path).header(header::ACCEPT, "application/json").body(Bytes::new()).expect("a request");
        let began = Instant::now();
        let opened = tokio::select! {
            opened = self.stage.world.clients[self.client].open(request) => opened,
            () = self.stage.over.cancelled() => return,
        };
        let Ok(response) = opened else {
            tokio::time::sleep(PAUSE).await;
            return;
        };
        let (parts, body) = response.into_parts();
        let number = {
            let mut history = self.stage.history.borrow_mut();
            history.watches.push(Watched {
                client: self.client,
                began: self.stage.now(),
                kind: self.kind,
                namespace: self.namespace.clone(),
                held: self.held.clone(),
                from: self.at,
                code: parts.status.as_u16(),
                events: Vec::new(),
                initial: None,
                bookmarks: Vec::new(),
                is_open: parts.status.is_success(),
                end: End::Left,
            });
            history.watches.len() - 1
        };
        if parts.status.is_success() {
            let end = self.follow(number, Lines::new(body)).await;
            let mut history = self.stage.history.borrow_mut();
            history.watches[number].is_open = false;
            history.watches[number].end = end;
        } else {
            self.at = None;
        }
        self.stage.told.notify_waiters();
        if began.elapsed() < PAUSE {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Lists, as one that begins anew.
    async fn list(&mut self) -> bool {
        let began = self.stage.now();
        let answer = self.stage.world.clients[self.client].get(&self.kind.path(&self.namespace)).await;
        let list = answer.json();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let objects: Vec<Seen> = items.into_iter().map(Seen::of_value).collect();
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        self.at = revision.parse().ok().filter(|_| answer.is_success());
        self.held = objects.iter().map(|seen| (seen.key(), seen.clone())).collect();
        if self.namespace == self.stage.namespace {
            self.stage.history.borrow_mut().reads.push(Read {
                client: self.client,
                began,
                ended: self.stage.now(),
                kind: self.kind,
                namespace: self.namespace.clone(),
                name: None,
                asked: "an informer's".to_owned(),
                is_fresh: true,
                code: answer.code,
                message: answer.message(),
                warnings: answer.warnings(),
                revisions: vec![revision],
                objects,
            });
        }
        self.at.is_some()
    }

    /// Takes events until the watch ends or all is over.
    async fn follow(&mut self, number: usize, mut lines: Lines) -> End {
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                () = self.stage.over.cancelled() => return End::Left,
            };
            let Some(line) = line else {
                if self.stage.history.borrow().watches[number].since().is_none() {
                    self.at = None;
                }
                return End::Ended;
            };
            let line: Line<'_> = serde_json::from_slice(&line).expect("a line of a watch is an event");
            if let Some(end) = self.take(number, &line) {
                return end;
            }
            self.stage.told.notify_waiters();
        }
    }

    fn take(&mut self, number: usize, line: &Line<'_>) -> Option<End> {
        let at = self.stage.now();
        let mut history = self.stage.history.borrow_mut();
        let watch = &mut history.watches[number];
        let event_type = match line.event_type.as_str() {
            "ADDED" => Type::Added,
            "MODIFIED" => Type::Modified,
            "DELETED" => Type::Deleted,
            "BOOKMARK" => {
                let object = Seen::of(line.object.get());
                if object.annotation("k8s.io/initial-events-end").is_some() {
                    watch.initial = Some((watch.events.len(), object.number()));
                }
                if watch.since().is_some() {
                    self.at = Some(object.number());
                }
                watch.bookmarks.push(object.revision);
                return None;
            }
            _ => {
                let status: Value = serde_json::from_str(line.object.get()).unwrap_or_default();
                self.at = None;
                return Some(End::Failed(status["code"].as_u64().unwrap_or_default()));
            }
        };
        let object = Seen::of(line.object.get());
        if watch.since().is_some() {
            self.at = Some(object.number());
        }
        match event_type {
            Type::Deleted => drop(self.held.remove(&object.key())),
            Type::Added | Type::Modified => drop(self.held.insert(object.key(), object.clone())),
        }
        watch.events.push(Event { at, event_type, object });
        None
    }
}
