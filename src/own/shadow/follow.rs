//! What happens without a request: a ShadowResource is looked at again when one of its items changes; one that is deleted takes
//! its items along.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    FINALIZER, KIND, Kept, Shadow,
    calls::By,
    object::{Reference, list, states},
    pending::{Name, Pending},
    told::{State, between},
    undo,
    world::{Place, Seen},
};
use crate::{
    own::{GROUP, Recorder, namespaces},
    stores::{self, Heard, Running, Stores},
    view::Mode,
};
use kubefold_apiserver::{
    kinds::Kind,
    registry::{DeleteOptions, Event, From, Registry, Selection, WriteOptions},
};
use kubefold_wire::{
    access::{text, texts},
    resource::Gvr,
    status::Status,
};

/// What failed is tried again after so long.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Between two looks whether a deleted item is gone.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The longest time between two such looks.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(5);
/// Changes of items that come so soon after each other are one.
const TOGETHER: Duration = Duration::from_millis(50);

/// Which ShadowResources have an item, by its resource and key.
#[derive(Default)]
struct Items {
    of: HashMap<Name, BTreeSet<(Gvr, String)>>,
    by_key: HashMap<Gvr, HashMap<String, BTreeSet<Name>>>,
}

impl Items {
    /// Says which items one has; `None`: it is gone.
    fn set(&mut self, name: &Name, places: Option<BTreeSet<(Gvr, String)>>) {
        for (gvr, key) in self.of.remove(name).into_iter().flatten() {
            let Some(keys) = self.by_key.get_mut(&gvr) else { continue };
            if let Some(names) = keys.get_mut(&key) {
                names.remove(name);
                if names.is_empty() {
                    keys.remove(&key);
                }
            }
            if keys.is_empty() {
                self.by_key.remove(&gvr);
            }
        }
        let Some(places) = places else { return };
        for (gvr, key) in &places {
            let keys = self.by_key.entry(gvr.clone()).or_default();
            keys.entry(key.clone()).or_default().insert(name.clone());
        }
        self.of.insert(name.clone(), places);
    }

    fn having(&self, gvr: &Gvr, key: &str) -> Vec<Name> {
        let names = self.by_key.get(gvr).and_then(|keys| keys.get(key));
        names.into_iter().flatten().cloned().collect()
    }

    fn all_of(&self, gvr: &Gvr) -> BTreeSet<Name> {
        self.by_key.get(gvr).into_iter().flat_map(HashMap::values).flatten().cloned().collect()
    }
}

/// Follows the fleet and the ShadowResources.
pub struct Follower {
    shadow: Shadow,
    stores: Arc<Stores>,
    registry: Registry,
    kind: Arc<Kind>,
    items: Mutex<Items>,
    changed: Pending<()>,
    recorder: Option<Recorder>,
    /// As they were told of last.
    told: Mutex<BTreeMap<Name, State>>,
}

impl Follower {
    /// Follows until cancelled.
    pub async fn run(
        shadow: Shadow,
        stores: Arc<Stores>,
        registry: Registry,
        recorder: Option<Recorder>,
        until: CancellationToken,
    ) {
        let Some(kind) = registry.kind(GROUP, KIND) else { return };
        let (items, changed, told) = (Mutex::default(), Pending::default(), Mutex::default());
        let follower = Arc::new(Self { shadow, stores, registry, kind, items, changed, recorder, told });
        let all = async {
            tokio::join!(
                undo::run(&follower.shadow, &follower.registry, &follower.kind),
                follower.refresh(),
                follower.namespaces(),
                follower.fields(),
                follower.objects()
            );
        };
        Box::pin(until.run_until_cancelled(all)).await;
    }

    /// Follows the ShadowResources themselves.
    async fn objects(self: &Arc<Self>) {
        let mut tasks = Tasks::default();
        loop {
            if let Err(status) = self.follow_objects(&mut tasks).await {
                tracing::warn!(error = status.message, "ShadowResources are followed anew");
            }
            sleep(RETRY_AFTER).await;
        }
    }

    async fn follow_objects(self: &Arc<Self>, tasks: &mut Tasks) -> Result<(), Status> {
        let mut events = self.registry.watch(&self.kind, "", Selection::default(), From::Start).await?;
        // What an earlier process knew is not news.
        let mut is_known = self.told.lock().is_empty();
        while let Some(event) = events.next().await {
            match event? {
                Event::Added(object) | Event::Modified(object) => {
                    let name = (object.namespace().to_owned(), object.name().to_owned());
                    self.seen(&name, &object.value(), tasks).await;
                    self.tell(&name, Some(&object.value()), is_known).await;
                }
                Event::Deleted(object) => {
                    let name = (object.namespace().to_owned(), object.name().to_owned());
                    self.items.lock().set(&name, None);
                    self.tell(&name, None, false).await;
                }
                Event::Synced(_) => is_known = false,
                Event::Progress(_) => {}
            }
            tasks.reap();
        }
        Ok(())
    }

    async fn seen(self: &Arc<Self>, name: &Name, shadow: &Value, tasks: &mut Tasks) {
        let mut places = BTreeSet::new();
        let mut is_whole = true;
        for reference in list(shadow).iter().map(Reference::of) {
            match self.shadow.place(&reference).await {
                Some(place) => drop(places.insert((place.gvr.clone(), place.key()))),
                None => is_whole = false,
            }
        }
        let kinds: BTreeSet<Gvr> = places.iter().map(|(gvr, _)| gvr.clone()).collect();
        let is_new = self.items.lock().of.get(name) != Some(&places);
        self.items.lock().set(name, Some(places));
        for gvr in kinds {
            tasks.follow(self, gvr);
        }
        if is_new || !is_whole {
            // What happened to its items before they were followed.
            self.mark(name);
        }
        if !text(shadow, "/metadata/deletionTimestamp").is_empty() {
            tasks.end(self, name);
        }
    }

    /// Has Events say what has happened to one; `None`: it is gone.
    async fn tell(&self, name: &Name, shadow: Option<&Value>, is_known: bool) {
        let Some(recorder) = &self.recorder else { return };
        let now = shadow.map(State::of);
        let before = match &now {
            Some(now) => self.told.lock().insert(name.clone(), now.clone()),
            None => self.told.lock().remove(name),
        };
        let news = match &now {
            _ if is_known => Vec::new(),
            Some(now) => between(before.as_ref(), now),
            None => vec![State::deleted()],
        };
        let Some(state) = now.or(before) else { return };
        let about = state.referent(&name.0, &name.1);
        for told in news {
            if let Err(status) = recorder.record(&about, &told).await {
                tracing::warn!(error = status.message, "what happened to a ShadowResource is not written down");
            }
        }
    }

    fn mark(&self, name: &Name) {
        self.changed.add(name.clone(), ());
    }

    /// Looks at ShadowResources again whose items have changed.
    async fn refresh(&self) {
        loop {
            self.changed.added().await;
            sleep(TOGETHER).await;
            for (namespace, name) in self.changed.take().into_keys() {
                if self.shadow.world().lacks_namespace(&namespace).await {
                    self.go_with_namespace(&namespace, &name).await;
                    continue;
                }
                match self.registry.get(&self.kind, &namespace, &name).await {
                    Err(status) if status.code != http::StatusCode::NOT_FOUND => {
                        tracing::debug!(namespace, name, error = status.message, "a ShadowResource is not looked at");
                    }
                    _ => {}
                }
            }
        }
    }

    /// Deletes a ShadowResource whose namespace is gone.
    async fn go_with_namespace(&self, namespace: &str, name: &str) {
        let deleted = self.registry.delete(&self.kind, namespace, name, &DeleteOptions::default()).await;
        if let Err(status) = deleted
            && status.code != http::StatusCode::NOT_FOUND
        {
            tracing::info!(namespace, name, error = status.message, "a ShadowResource stays behind its namespace");
        }
    }

    /// Marks those in namespaces that go.
    async fn namespaces(&self) {
        let gvr = namespaces::resource();
        loop {
            // Where there is none, no store is started for them.
            if self.items.lock().of.is_empty() {
                sleep(RETRY_AFTER).await;
                continue;
            }
            if let Ok(ready) = self.stores.ready_in(&gvr, None, Mode::Lenient).await {
                let of_namespace = |namespace: &str| {
                    self.items.lock().of.keys().filter(|name| name.0 == namespace).cloned().collect::<Vec<Name>>()
                };
                let whom = || self.items.lock().of.keys().cloned().collect();
                self.store(&ready.running, whom, of_namespace).await;
            }
            sleep(RETRY_AFTER).await;
        }
    }

    /// Marks all when they are to have other columns or labels.
    async fn fields(&self) {
        loop {
            self.shadow.configured.notified().await;
            let all: Vec<Name> = self.items.lock().of.keys().cloned().collect();
            all.iter().for_each(|name| self.mark(name));
        }
    }

    /// Follows one kind of items.
    async fn kind(&self, gvr: &Gvr) {
        loop {
            if let Ok(ready) = self.stores.ready_in(gvr, None, Mode::Lenient).await {
                let (whom, about) = (|| self.items.lock().all_of(gvr), |key: &str| self.items.lock().having(gvr, key));
                self.store(&ready.running, whom, about).await;
            }
            sleep(RETRY_AFTER).await;
        }
    }

    /// Marks those that an object of a store is about, and all of `whom` when it is not known what has happened. Ends with the
    /// store.
    async fn store(&self, running: &Running, whom: impl Fn() -> BTreeSet<Name>, about: impl Fn(&str) -> Vec<Name>) {
        stores::follow(&running.store, |heard| match heard {
            Heard::Begun | Heard::Lost => whom().iter().for_each(|name| self.mark(name)),
            Heard::Event(record) => {
                let key = String::from_utf8_lossy(record.entry.key());
                about(&key).iter().for_each(|name| self.mark(name));
            }
        })
        .await;
    }

    /// Takes the items of a deleted ShadowResource away, the last one first, and then lets it go.
    async fn end(&self, whole: &Name) {
        let (namespace, name) = whole;
        loop {
            let there = match self.registry.get(&self.kind, namespace, name).await {
                Ok(object) => object.value(),
                Err(status) if status.code == http::StatusCode::NOT_FOUND => {
                    self.shadow.set_kept(whole, None);
                    return;
                }
                Err(_) => {
                    sleep(RETRY_AFTER).await;
                    continue;
                }
            };
            if !texts(&there, "/metadata/finalizers").any(|finalizer| finalizer == FINALIZER) {
                return;
            }
            let how = text(&there, "/status/deletion");
            let is_gone = how == "Orphan" || self.end_items(whole, &there, how).await;
            if is_gone && self.let_go(namespace, name).await {
                return;
            }
            sleep(RETRY_AFTER).await;
        }
    }

    /// Says whether all are gone. What keeps one is in the status of the ShadowResource from then on.
    async fn end_items(&self, name: &Name, shadow: &Value, how: &str) -> bool {
        for (at, item) in list(shadow).iter().enumerate().rev() {
            let reference = Reference::of(item);
            let uid = states(shadow).get(at).map(|state| text(state, "/uid").to_owned()).unwrap_or_default();
            let ended = match self.shadow.place(&reference).await {
                Some(place) => self.end_item(&place, &uid, how).await,
                None => match self.shadow.world().of_no_kind(&reference) {
                    // Of a kind that nobody serves there is nothing.
                    Seen::Absent => Ended::Gone,
                    Seen::Unknown(why) => Ended::Kept(why),
                    Seen::There(_) | Seen::Hidden => Ended::Kept("nobody can say what it is".to_owned()),
                },
            };
            if let Ended::Kept(why) = ended {
                tracing::info!(item = %reference, why, "an item of a deleted ShadowResource cannot be deleted yet");
                self.tell_kept(name, Some(Kept { at, why })).await;
                return false;
            }
        }
        self.tell_kept(name, None).await;
        true
    }

    /// Has the status say what keeps a ShadowResource that is deleted.
    async fn tell_kept(&self, name: &Name, kept: Option<Kept>) {
        if self.shadow.set_kept(name, kept) {
            // A look writes down what has changed.
            drop(self.registry.get(&self.kind, &name.0, &name.1).await);
        }
    }

    async fn end_item(&self, place: &Place, uid: &str, how: &str) -> Ended {
        let itself = Shadow::itself();
        let how = if how.is_empty() { "Background" } else { how };
        let is_it = |object: &Value| uid.is_empty() || text(object, "/metadata/uid") == uid;
        let is_gone = async || match self.shadow.calls.get(&itself, place, false).await {
            Ok(Some(reply)) => Ok(!is_it(&reply.object)),
            Ok(None) => Ok(true),
            Err(status) => Err(status),
        };
        match is_gone().await {
            Ok(false) => {}
            Ok(true) => return Ended::Gone,
            // A refused deletion says which member refuses; a refused get does not.
            Err(status) if status.code == http::StatusCode::FORBIDDEN && !uid.is_empty() => {}
            Err(status) => return Ended::Kept(status.message),
        }
        if let Err(status) = self.shadow.calls.delete(By::doing(&itself), place, uid, how).await {
            return Ended::Kept(status.message);
        }
        let mut wait = LOOK_EVERY;
        loop {
            match is_gone().await {
                Ok(false) => {}
                Ok(true) => return Ended::Gone,
                Err(status) => return Ended::Kept(status.message),
            }
            sleep(wait).await;
            wait = (wait * 2).min(LOOK_EVERY_MAX);
        }
    }

    async fn let_go(&self, namespace: &str, name: &str) -> bool {
        let without = |shadow: &mut Value| {
            let finalizers = shadow.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
            if let Some(finalizers) = finalizers {
                finalizers.retain(|finalizer| finalizer != FINALIZER);
            }
            Ok(())
        };
        let options = WriteOptions::default();
        match self.registry.modify_all(&self.kind, namespace, name, &options, without).await {
            Ok(_) => true,
            Err(status) => status.code == http::StatusCode::NOT_FOUND,
        }
    }
}

/// What has become of an item that is to be deleted.
enum Ended {
    Gone,
    /// Why it is still there.
    Kept(String),
}

/// What runs besides: one for each kind of items, one for each ShadowResource that ends.
#[derive(Default)]
struct Tasks {
    kinds: BTreeSet<Gvr>,
    ending: Arc<Mutex<BTreeSet<Name>>>,
    running: JoinSet<()>,
}

impl Tasks {
    fn follow(&mut self, follower: &Arc<Follower>, gvr: Gvr) {
        if self.kinds.insert(gvr.clone()) {
            let follower = Arc::clone(follower);
            self.running.spawn(async move { follower.kind(&gvr).await });
        }
    }

    fn end(&mut self, follower: &Arc<Follower>, name: &Name) {
        if self.ending.lock().insert(name.clone()) {
            let (follower, ending, name) = (Arc::clone(follower), Arc::clone(&self.ending), name.clone());
            self.running.spawn(async move {
                follower.end(&name).await;
                ending.lock().remove(&name);
            });
        }
    }

    /// Lets go of those that have ended.
    fn reap(&mut self) {
        while self.running.try_join_next().is_some() {}
    }
}
