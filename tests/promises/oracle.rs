//! One cluster as the oracle: one more embedded server is given the verbs that the fleet takes, one after the other, while
//! members go and come back and kubefold restarts. Each answer has the oracle's code; in the end every part is what one cluster
//! holds, or the fleet view says in which member it differs.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use kubefold_apiserver::storage::Backup;
use serde_json::{Value, json};

use crate::{
    actors::merge,
    chance::Chance,
    client::Answer,
    kinds::{CONFIG_MAPS, DEPLOYMENTS, Kind},
    lives::MARKER,
    member::Member,
    owners::Owners,
    world::{NAMES, World},
};

/// Things that happen under one seed.
const STEPS: usize = 40;
/// Who write: field managers.
const WRITERS: usize = 3;
/// Where what is written lies.
const NAMESPACE: &str = "oracle";
/// Two of each kind: one that often is there, and one that often is not.
const OBJECTS: [(&Kind, &str); 3] = [(&CONFIG_MAPS, "settings"), (&DEPLOYMENTS, "web"), (&CONFIG_MAPS, "fleeting")];

/// What is asked of the fleet and of the oracle.
#[derive(Clone, Debug)]
struct Ask {
    method: Method,
    path: String,
    content: &'static str,
    body: Value,
    /// The body is a change of what stands, which is read before and sent back with its revision.
    is_update: bool,
}

impl Ask {
    /// The body as it is sent to one that holds `current`. `None`: there is nothing to change.
    fn body(&self, current: Option<&Value>) -> Option<Value> {
        if !self.is_update {
            return Some(self.body.clone());
        }
        let mut object = current?.clone();
        merge(&mut object, &self.body);
        Some(object)
    }
}

/// What befalls members under a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Losses {
    /// They go and come back as they were.
    Outages,
    /// Some come back as a backup has them.
    Backups,
}

/// The fleet, the oracle, and what was asked.
struct Trial<'a> {
    world: &'a mut World,
    oracle: &'a Member,
    seed: u64,
    told: Vec<String>,
    losses: Losses,
    /// What each member held at some time.
    backups: Vec<Backup>,
    /// A member went back to a backup. From then on the oracle is another story.
    was_restored: bool,
    /// Objects of which the oracle has lost all managers, as a kube-apiserver does when nobody owns a field any more. A part
    /// never does: its marker is somebody's.
    unowned: BTreeSet<String>,
    /// Deployments of which something else than an apply has changed the number: it has that only in the parts whose share it
    /// changes.
    rescaled: BTreeSet<String>,
}

/// Plays one seed.
pub(crate) async fn play(world: &mut World, oracle: &Member, seed: u64, losses: Losses) {
    let backups = world.members.iter().map(Member::backup).collect();
    let (told, unowned, rescaled) = Default::default();
    let mut trial = Trial { world, oracle, seed, told, losses, backups, was_restored: false, unowned, rescaled };
    let mut chance = Chance::of(seed);
    let mut down: Vec<usize> = Vec::new();
    for _ in 0..STEPS {
        chance.think(10, 3_000).await;
        match chance.below(12) {
            0 if down.len() < 2 => trial.kill(&mut chance, &mut down).await,
            1 => trial.revive(&mut chance, &mut down).await,
            2 if chance.one_in(3) => trial.restart().await,
            _ => {
                let (kind, name) = chance.of_all(&OBJECTS);
                let ask = ask(kind, name, &mut chance);
                trial.ask(kind, name, &ask).await;
                if losses == Losses::Backups && chance.one_in(4) {
                    let at = chance.below(NAMES.len());
                    trial.backups[at] = trial.world.members[at].backup();
                }
            }
        }
    }
    while !down.is_empty() {
        trial.revive(&mut chance, &mut down).await;
    }
    trial.settle().await;
    for (kind, name) in OBJECTS {
        if trial.was_restored {
            trial.judge_restored(kind, name).await;
        } else {
            trial.judge(kind, name).await;
        }
    }
    trial.clean_up().await;
}

/// A verb and what it says, by one of the writers.
fn ask(kind: &Kind, name: &str, chance: &mut Chance) -> Ask {
    let writer = chance.below(WRITERS);
    let by = format!("fieldManager=m{writer}");
    let path = kind.object_path(NAMESPACE, name);
    let object = |method, content, query: &str, body| Ask {
        method,
        path: format!("{path}?{by}{query}"),
        content,
        body,
        is_update: false,
    };
    const MERGE: &str = "application/merge-patch+json";
    match chance.below(14) {
        0..=2 => Ask {
            method: Method::POST,
            path: format!("{}?{by}", kind.path(NAMESPACE)),
            content: "application/json",
            body: new(kind, name, chance),
            is_update: false,
        },
        3 | 4 => Ask { is_update: true, ..object(Method::PUT, "application/json", "", change(kind, chance)) },
        5 | 6 => object(Method::PATCH, MERGE, "", change(kind, chance)),
        7 => object(Method::PATCH, "application/strategic-merge-patch+json", "", change(kind, chance)),
        8 => object(Method::PATCH, "application/json-patch+json", "", json_patch(chance)),
        9..=11 => {
            let force = if chance.one_in(2) { "&force=true" } else { "" };
            object(Method::PATCH, "application/apply-patch+yaml", force, applied(kind, name, writer, chance))
        }
        12 if *kind == DEPLOYMENTS => {
            let scale = json!({"spec": {"replicas": chance.below(9)}});
            Ask { path: format!("{path}/scale?{by}"), ..object(Method::PATCH, MERGE, "", scale) }
        }
        12 => object(Method::PATCH, MERGE, "", json!({"metadata": {"labels": null}})),
        _ => object(Method::DELETE, "application/json", "", json!({})),
    }
}

fn value(chance: &mut Chance) -> String {
    format!("v{}", chance.below(3))
}

fn new(kind: &Kind, name: &str, chance: &mut Chance) -> Value {
    let mut object = crate::actors::body(kind, NAMESPACE, name, &value(chance));
    if *kind == DEPLOYMENTS {
        object["spec"]["replicas"] = chance.below(9).into();
    }
    object
}

/// A merge patch.
fn change(kind: &Kind, chance: &mut Chance) -> Value {
    let label = chance.of_all(&["a", "b", "note"]);
    let mut patch = json!({"metadata": {"labels": {label: value(chance)}}});
    if *kind == CONFIG_MAPS && chance.one_in(2) {
        patch["data"] = json!({chance.of_all(&["note", "x"]): value(chance)});
    }
    if *kind == DEPLOYMENTS && chance.one_in(2) {
        patch["spec"] = json!({"template": {"metadata": {"annotations": {"note": value(chance)}}}});
    }
    if *kind == DEPLOYMENTS && chance.one_in(3) {
        patch["spec"]["replicas"] = chance.below(9).into();
    }
    patch
}

fn json_patch(chance: &mut Chance) -> Value {
    let add = json!({"op": "add", "path": "/metadata/labels/j", "value": value(chance)});
    match chance.below(3) {
        0 => json!([{"op": "test", "path": "/metadata/labels/note", "value": value(chance)}, add]),
        1 => json!([{"op": "remove", "path": "/metadata/labels/j"}]),
        _ => json!([add]),
    }
}

/// What a writer applies: a label of its own, and some that all apply.
fn applied(kind: &Kind, name: &str, writer: usize, chance: &mut Chance) -> Value {
    let mut labels = BTreeMap::from([(format!("of-m{writer}"), value(chance))]);
    if chance.one_in(2) {
        labels.insert("a".to_owned(), value(chance));
    }
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
    let mut body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata});
    if *kind == DEPLOYMENTS {
        body["spec"] = crate::actors::body(kind, NAMESPACE, name, "applied")["spec"].take();
        match chance.below(3) {
            0 => body["spec"]["replicas"] = chance.below(9).into(),
            _ => drop(body["spec"].as_object_mut().and_then(|spec| spec.shift_remove("replicas"))),
        }
    }
    body
}

impl Trial<'_> {
    fn note(&mut self, what: String) {
        self.told.push(what);
    }

    fn fail(&self, what: &str) -> ! {
        panic!("PROMISE_SEED={}: {what}\n\nWhat happened:\n{}", self.seed, self.told.join("\n"))
    }

    async fn kill(&mut self, chance: &mut Chance, down: &mut Vec<usize>) {
        let at = chance.below(NAMES.len());
        if down.contains(&at) {
            return;
        }
        down.push(at);
        self.note(format!("{} is killed", NAMES[at]));
        self.world.members[at].endpoint.kill();
    }

    async fn revive(&mut self, chance: &mut Chance, down: &mut Vec<usize>) {
        if down.is_empty() {
            return;
        }
        let at = down.remove(chance.below(down.len()));
        if self.losses == Losses::Backups && chance.one_in(2) {
            self.was_restored = true;
            self.note(format!("{} is restored", NAMES[at]));
            self.world.is_missed(at).await;
            self.world.members[at].restore(&self.backups[at]);
        }
        self.note(format!("{} is back", NAMES[at]));
        self.world.members[at].endpoint.revive().await.expect("its own address");
    }

    async fn restart(&mut self) {
        self.note("kubefold restarts".to_owned());
        self.world.restart().await;
    }

    /// Asks the fleet; what that takes or refuses the oracle is asked, too.
    async fn ask(&mut self, kind: &Kind, name: &str, ask: &Ask) {
        let path = kind.object_path(NAMESPACE, name);
        let client = &self.world.clients[0];
        let shown = Some(client.get(&path).await).filter(Answer::is_success).map(|answer| answer.json());
        if !self.was_restored && shown.is_some() && self.is_deleted(&path).await {
            // A part of it is in a member that is down: the name is free when that is gone.
            return;
        }
        let current = shown.filter(|_| ask.is_update);
        let Some(body) = ask.body(current.as_ref()) else { return };
        let answer = client.ask(ask.method.clone(), &ask.path, ask.content, body.to_string()).await;
        let Ask { method, path: asked, body: said, .. } = ask;
        self.note(format!("{method} {asked} {said}: {} {} {:?}", answer.code, answer.message(), answer.warnings()));
        if self.was_restored {
            if answer.code == 0 || answer.code == 500 {
                self.fail("that is no answer");
            }
            return;
        }
        let is_caught_up_with = ask.is_update && answer.message().contains("the object has been modified");
        if answer.code == 503 || is_caught_up_with {
            // Nothing was done: the home is down or has it in hand, or a part that was behind has changed since it was read.
            return;
        }
        let current = match ask.is_update {
            true => Some(self.of_oracle(Method::GET, &path, "application/json", "").await.1),
            false => None,
        };
        let Some(body) = ask.body(current.as_ref()) else { return };
        let (code, told) = self.of_oracle(ask.method.clone(), &ask.path, ask.content, &body.to_string()).await;
        if code != answer.code {
            self.fail(&format!("the oracle answers {code}: {}", told["message"]));
        }
        let is_apply = ask.content.contains("apply");
        let says_number = ask.method != Method::POST && !ask.body["spec"]["replicas"].is_null();
        if !is_apply && says_number && code == 200 {
            self.rescaled.insert(path.clone());
        }
        let (found, held) = self.of_oracle(Method::GET, &path, "application/json", "").await;
        match found {
            404 => {
                self.unowned.remove(&path);
                self.rescaled.remove(&path);
            }
            _ if held["metadata"]["managedFields"].is_null() => drop(self.unowned.insert(path)),
            _ => {}
        }
    }

    async fn is_deleted(&self, path: &str) -> bool {
        self.of_oracle(Method::GET, path, "application/json", "").await.0 == 404
    }

    async fn of_oracle(&self, method: Method, path: &str, content: &str, body: &str) -> (u16, Value) {
        self.oracle.ask(method, path, content, body.to_owned()).await
    }

    /// Waits until every member is current and every write is finished.
    async fn settle(&self) {
        self.world.is_calm().await;
        let client = &self.world.clients[0];
        self.world
            .eventually(async || {
                let status = client.get("/kubefold/v1/status").await.json();
                let unfinished = status["unfinished"].as_array().cloned().unwrap_or_default();
                if unfinished.is_empty() { Ok(()) } else { Err(format!("{:?}: {unfinished:?}", self.told)) }
            })
            .await;
    }

    /// Compares an object and each part of it with the oracle's.
    async fn judge(&self, kind: &Kind, name: &str) {
        let path = kind.object_path(NAMESPACE, name);
        let (code, wanted) = self.of_oracle(Method::GET, &path, "application/json", "").await;
        let shown = self.world.clients[0].get(&path).await;
        if shown.code != code {
            self.fail(&format!("{path} is {} {}, and {code} of the oracle", shown.code, shown.text()));
        }
        let mut parts = Vec::new();
        for member in &self.world.members {
            let (found, part) = member.ask(Method::GET, &path, "application/json", String::new()).await;
            if found == 200 {
                parts.push((member.name, part));
            }
        }
        if code == 404 {
            if !parts.is_empty() {
                self.fail(&format!("{path} is deleted, and there are parts: {parts:?}"));
            }
            return;
        }
        let shown = shown.json();
        let differs = shown["metadata"]["annotations"]["kubefold.io/differs"].as_str().unwrap_or_default().to_owned();
        let sum: u64 = parts.iter().filter_map(|(_, part)| part["spec"]["replicas"].as_u64()).sum();
        if *kind == DEPLOYMENTS && (Some(sum) != wanted["spec"]["replicas"].as_u64()) {
            self.fail(&format!("{path}: the parts have {sum} replicas of {}", wanted["spec"]["replicas"]));
        }
        if bare(&shown, true) != bare(&wanted, true) {
            self.fail(&format!("{path} is shown as\n{}\nand is\n{}", bare(&shown, true), bare(&wanted, true)));
        }
        for (member, part) in parts.iter().filter(|(member, _)| !differs.split(',').any(|other| other == *member)) {
            if bare(part, false) != bare(&wanted, false) {
                let (is, wanted) = (bare(part, false), bare(&wanted, false));
                self.fail(&format!("{path} in {member} is\n{is}\nand should be\n{wanted}"));
            }
            self.judge_owners(&path, member, part, &wanted);
        }
    }

    /// After a restore: each part is what the fleet view shows, or it says that the part differs; and what is no part of it is
    /// shown as its member's own.
    async fn judge_restored(&self, kind: &Kind, name: &str) {
        let client = &self.world.clients[0];
        let path = kind.object_path(NAMESPACE, name);
        let shown = client.get(&path).await;
        let (code, shown) = (shown.code, shown.json());
        let differs = shown["metadata"]["annotations"]["kubefold.io/differs"].as_str().unwrap_or_default().to_owned();
        let mut sum = 0;
        for member in &self.world.members {
            let (found, part) = member.ask(Method::GET, &path, "application/json", String::new()).await;
            if found != 200 {
                continue;
            }
            if code == 200 && part["metadata"]["labels"][MARKER] == shown["metadata"]["uid"] {
                sum += part["spec"]["replicas"].as_u64().unwrap_or_default();
                let is_told = differs.split(',').any(|other| other == member.name);
                if !is_told && bare(&part, false) != bare(&shown, false) {
                    let (is, shown) = (bare(&part, false), bare(&shown, false));
                    self.fail(&format!("{path} in {} is\n{is}\nand is shown as\n{shown}", member.name));
                }
                continue;
            }
            let own = client.get(&format!("{path}@{}", member.name)).await;
            if own.code != 200 {
                self.fail(&format!("{path} in {} is not shown ({} {}): {part}", member.name, own.code, own.text()));
            }
        }
        if code == 200 && *kind == DEPLOYMENTS && shown["spec"]["replicas"].as_u64() != Some(sum) {
            self.fail(&format!("{path} is shown with {} replicas, and has {sum}", shown["spec"]["replicas"]));
        }
    }

    fn judge_owners(&self, path: &str, member: &str, part: &Value, wanted: &Value) {
        if self.unowned.contains(path) {
            return;
        }
        let all = [part, wanted].map(Owners::of);
        let [is, wanted] = if self.rescaled.contains(path) { all.map(Owners::without_replicas) } else { all };
        if is != wanted {
            let entries = &part["metadata"]["managedFields"];
            self.fail(&format!(
                "the fields of {path} in {member} are of\n{is}\nand should be of\n{wanted}\nby {entries}"
            ));
        }
    }

    async fn clean_up(&self) {
        for (kind, name) in OBJECTS {
            let path = kind.object_path(NAMESPACE, name);
            self.of_oracle(Method::DELETE, &path, "application/json", "").await;
            self.world.clients[0].ask(Method::DELETE, &path, "application/json", "").await;
            for member in self.world.members.iter().filter(|_| self.was_restored) {
                member.ask(Method::DELETE, &path, "application/json", String::new()).await;
            }
            let client = &self.world.clients[0];
            self.world
                .eventually(async || {
                    let left = client.get(&kind.path(NAMESPACE)).await.json()["items"].as_array().map_or(1, Vec::len);
                    if left == 0 || (kind, name) != OBJECTS[OBJECTS.len() - 1] {
                        Ok(())
                    } else {
                        Err(format!("{left} are left"))
                    }
                })
                .await;
        }
    }
}

/// A document without what a cluster writes for itself; the numbers of a part are its share.
fn bare(document: &Value, is_whole: bool) -> Value {
    let mut bare = document.clone();
    let metadata = bare["metadata"].as_object_mut().expect("an object");
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        metadata.shift_remove(field);
    }
    for map in ["labels", "annotations"] {
        let Some(entries) = metadata.get_mut(map).and_then(Value::as_object_mut) else { continue };
        entries.retain(|key, _| !key.starts_with("kubefold.io/"));
        if entries.is_empty() {
            metadata.shift_remove(map);
        }
    }
    if !is_whole && let Some(spec) = bare.get_mut("spec").and_then(Value::as_object_mut) {
        spec.shift_remove("replicas");
    }
    bare
}

/// Makes the namespace in all members and in the oracle.
pub(crate) async fn set_up(world: &World, oracle: &Member) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}).to_string();
    for member in world.members.iter().chain([oracle]) {
        let (code, told) = member.ask(Method::POST, "/api/v1/namespaces", "application/json", namespace.clone()).await;
        assert_eq!(code, 201, "{told}");
    }
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    world
        .eventually(async || {
            let clusters = world.clients[0].get(&path).await.json();
            let clusters = clusters["metadata"]["annotations"]["kubefold.io/clusters"].clone();
            if clusters == json!(NAMES.join(",")) { Ok(()) } else { Err(format!("it is in {clusters}")) }
        })
        .await;
}
