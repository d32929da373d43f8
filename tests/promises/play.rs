//! One seed: clients, programs inside the members, and troubles, all at once; then calm, and what is left.

use std::{cell::RefCell, time::Duration};

use futures::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    actors,
    chance::Chance,
    history::{Changed, History, Injected, Seen, Type, Watched, names},
    kinds::{KINDS, Kind},
    trouble::{self, Trouble},
    world::World,
};

/// How much of what is done under one seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Clients that create placed objects, and change them. Each has names of its own.
    pub(crate) placers: usize,
    /// Programs inside members that make and change member-local objects.
    pub(crate) member_locals: usize,
    /// Clients that change member-local objects through the fleet.
    pub(crate) pinners: usize,
    pub(crate) readers: usize,
    pub(crate) watchers: usize,
    /// Things that each of them does.
    pub(crate) steps: usize,
    pub(crate) troubles: &'static [Trouble],
    pub(crate) troubles_count: usize,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            placers: 2,
            member_locals: 3,
            pinners: 1,
            readers: 2,
            watchers: 3,
            steps: 8,
            troubles: trouble::ALL,
            troubles_count: 3,
        }
    }
}

/// Where actors meet: the world, and the history that they write.
pub(crate) struct Stage<'a> {
    pub(crate) world: &'a World,
    pub(crate) namespace: String,
    pub(crate) history: RefCell<History>,
    /// Ends the watches.
    pub(crate) over: CancellationToken,
    /// Wakes who waits for an event in a watch.
    pub(crate) told: tokio::sync::Notify,
}

/// What is not judged because nobody came so far is shown.
impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("Everything that happened:\n{}", self.history.borrow());
        }
    }
}

/// The name of the last object of every member.
pub(crate) const FENCE: &str = "zz-fence";

impl Stage<'_> {
    pub(crate) fn now(&self) -> Duration {
        self.world.now()
    }

    pub(crate) fn note(&self, member: usize, what: String) {
        self.history.borrow_mut().injected.push(Injected { at: self.now(), member, what });
    }

    /// Asks a member past all faults; the answer is a success or a refusal.
    pub(crate) async fn in_member(
        &self,
        member: usize,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(Value::to_string).unwrap_or_default();
        self.world.members[member].ask(method, path, content, body).await
    }
}

/// Plays one seed in a world that is calm, and leaves it calm and clean.
pub(crate) async fn play(world: &World, seed: u64, mix: &Mix) -> History {
    let namespace = format!("s{seed}");
    let history = History {
        namespace: namespace.clone(),
        members: world.members.iter().map(|member| member.name).collect(),
        clients: world.clients.iter().map(|client| client.caller.clone()).collect(),
        ..History::default()
    };
    let stage = Stage {
        world,
        namespace,
        history: RefCell::new(history),
        over: CancellationToken::new(),
        told: tokio::sync::Notify::new(),
    };
    set_up(&stage).await;
    let mut chance = Chance::of(seed);
    let mut watching: FuturesUnordered<LocalBoxFuture<'_, ()>> = FuturesUnordered::new();
    for kind in KINDS {
        watching.push(Box::pin(actors::audit(&stage, kind)));
    }
    for number in 0..mix.watchers {
        watching.push(Box::pin(actors::watch(&stage, number % world.clients.len(), chance.part())));
    }
    let mut acting: FuturesUnordered<LocalBoxFuture<'_, ()>> = FuturesUnordered::new();
    for number in 0..mix.placers {
        acting.push(Box::pin(actors::place(&stage, number, chance.part(), mix.steps)));
    }
    for number in 0..mix.member_locals {
        acting.push(Box::pin(actors::natively(&stage, number % world.members.len(), chance.part(), mix.steps)));
    }
    for number in 0..mix.pinners {
        acting.push(Box::pin(actors::pin(
            &stage,
            (number + mix.placers) % world.clients.len(),
            chance.part(),
            mix.steps,
        )));
    }
    for number in 0..mix.readers {
        acting.push(Box::pin(actors::read(&stage, number % world.clients.len(), chance.part(), mix.steps * 2)));
    }
    acting.push(Box::pin(trouble::befall(&stage, chance.part(), mix.troubles, mix.troubles_count)));
    let script = async {
        while acting.next().await.is_some() {}
        calm_down(&stage).await;
        stage.over.cancel();
    };
    let watches = async { while watching.next().await.is_some() {} };
    futures::join!(script, watches);
    clean_up(&stage).await;
    stage.history.take()
}

/// Makes the namespace, and forgets what was before.
async fn set_up(stage: &Stage<'_>) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.namespace}});
    for member in 0..stage.world.members.len() {
        let (code, answer) = stage.in_member(member, Method::POST, "/api/v1/namespaces", Some(&namespace)).await;
        assert_eq!(code, 201, "{answer}");
    }
    let path = format!("/api/v1/namespaces/{}", stage.namespace);
    stage
        .world
        .eventually(async || {
            let shown = Seen::of_value(stage.world.clients[0].get(&path).await.json());
            let clusters = shown.annotation("kubefold.io/clusters").unwrap_or_default();
            let everywhere = stage.world.members.iter().all(|member| names(clusters, member.name));
            if everywhere { Ok(()) } else { Err(format!("it is in {clusters}")) }
        })
        .await;
    for member in &stage.world.members {
        member.take_changes();
        member.take_heard();
    }
}

/// Waits until every member is current and every write is finished, and every watch has told all there is.
async fn calm_down(stage: &Stage<'_>) {
    stage.world.is_calm().await;
    stage
        .world
        .eventually(async || {
            let status = stage.world.clients[0].get("/kubefold/v1/status").await.json();
            let unfinished = status["unfinished"].as_array().cloned().unwrap_or_default();
            if unfinished.is_empty() { Ok(()) } else { Err(format!("unfinished: {unfinished:?}")) }
        })
        .await;
    stage.world.is_calm().await;
    for member in 0..stage.world.members.len() {
        for kind in KINDS {
            let fence = actors::body(kind, &stage.namespace, FENCE, "fence");
            let (code, answer) =
                stage.in_member(member, Method::POST, &kind.path(&stage.namespace), Some(&fence)).await;
            assert_eq!(code, 201, "{answer}");
        }
    }
    for kind in KINDS {
        fences_are_seen(stage, kind).await;
    }
    let calm_at = stage.now();
    stage.history.borrow_mut().calm_at = calm_at;
    for kind in KINDS {
        for client in 0..2 {
            let read = actors::list(stage, client, kind, "", None).await;
            for seen in read.objects.iter().filter(|_| client == 0) {
                actors::get(stage, client, kind, &seen.name).await;
            }
        }
    }
    let mut held = Vec::new();
    for member in &stage.world.members {
        let mut all = Vec::new();
        for kind in KINDS {
            all.push((kind, member.objects(kind, &stage.namespace).await));
        }
        held.push(all);
    }
    let mut history = stage.history.borrow_mut();
    history.held = held;
    history.changes =
        stage.world.members.iter().map(|member| of_namespace(member.take_changes(), &stage.namespace)).collect();
    history.heard = stage.world.members.iter().map(|member| member.take_heard()).collect();
}

/// Waits until each watch that is open has told the last object of every member. Each watcher notes what it saw.
async fn fences_are_seen(stage: &Stage<'_>, kind: &'static Kind) {
    let all_told = || {
        let history = stage.history.borrow();
        let saw = |watch: &Watched, fence: &str| {
            let told = watch.events.iter().any(|event| event.event_type == Type::Added && event.object.name == fence);
            told || watch.held.values().any(|seen| seen.name == fence)
        };
        let missing = history.watches.iter().filter(|watch| watch.kind == kind && watch.is_open).find_map(|watch| {
            let fences = history.members.iter().map(|member| format!("{FENCE}@{member}"));
            fences.into_iter().find(|fence| !saw(watch, fence))
        });
        let is_watched = history.watches.iter().any(|watch| watch.kind == kind && watch.is_open);
        is_watched && missing.is_none()
    };
    let waiting = async {
        loop {
            let told = stage.told.notified();
            if all_told() {
                return;
            }
            told.await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(120), waiting).await;
    assert!(
        waited.is_ok(),
        "promise 7: the watches of {} do not tell all there is\n{}",
        kind.plural,
        stage.history.borrow()
    );
}

fn of_namespace(changes: Vec<crate::history::Change>, namespace: &str) -> Vec<crate::history::Change> {
    let concerns = |changed: &Changed| match changed {
        Changed::Afresh | Changed::Synced => true,
        Changed::Added(seen) | Changed::Modified(seen) | Changed::Deleted(seen) => seen.namespace == namespace,
    };
    changes.into_iter().filter(|change| concerns(&change.changed)).collect()
}

/// Deletes what is left in the members, and waits until kubefold knows.
async fn clean_up(stage: &Stage<'_>) {
    for member in 0..stage.world.members.len() {
        for kind in KINDS {
            stage.in_member(member, Method::DELETE, &kind.path(&stage.namespace), None).await;
        }
    }
    for kind in KINDS {
        stage
            .world
            .eventually(async || {
                let list = stage.world.clients[0].get(&kind.path(&stage.namespace)).await.json();
                let left = list["items"].as_array().map_or(1, Vec::len);
                if left == 0 { Ok(()) } else { Err(format!("{left} {} are left", kind.plural)) }
            })
            .await;
    }
}
