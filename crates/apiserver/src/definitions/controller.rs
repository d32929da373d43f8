//! Follows definitions: accepts their names, serves their kinds, and clears up behind those that go.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/controller/status/naming_controller.go`,
//! `pkg/controller/establish/establishing_controller.go`, `pkg/controller/finalizer/crd_finalizer.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{FINALIZER, GROUP, conversion::converter, custom, definition_kind};
use crate::{
    kinds::{Kind, put},
    registry::{DeleteOptions, Event, From, ListOptions, Part, Registry, Selection, WriteOptions},
};
use kubefold_wire::{
    access::{self, items, text},
    golang::Quoted,
    status::{Reason, Status},
};

/// As whom the status is written.
const MANAGER: &str = "kube-apiserver";

/// How soon a definition is looked at again whose objects are still there.
const AGAIN: Duration = Duration::from_millis(500);

/// After a failure of the storage.
const RETRY: Duration = Duration::from_secs(1);

/// The definitions of one registry.
pub struct Definitions {
    registry: Registry,
    kind: Arc<Kind>,
    /// What is served, by the name of the definition.
    served: BTreeMap<String, Served>,
    /// Definitions that wait for their objects to go.
    going: BTreeSet<String>,
}

/// What is served of a definition.
struct Served {
    /// Of the definition that it was made of.
    uid: String,
    generation: i64,
    /// Its objects are being deleted.
    ends: bool,
    kinds: Vec<Arc<Kind>>,
}

impl Definitions {
    /// The definitions of a registry, which serves their kind from now on with all that is special to it.
    ///
    /// `None`: it does not have the kind.
    pub fn new(registry: Registry) -> Option<Self> {
        let kind = Arc::new(definition_kind(&*registry.resource(GROUP, "v1", "customresourcedefinitions")?));
        registry.serve_kind(Arc::clone(&kind));
        Some(Self { registry, kind, served: BTreeMap::new(), going: BTreeSet::new() })
    }

    /// Serves what was established before, so that a server that starts again answers for its custom resources at once.
    ///
    /// Errors: the storage's.
    pub async fn begin(&mut self) -> Result<(), Status> {
        let all = self.registry.list(&self.kind, "", &ListOptions::default()).await?;
        for definition in all.objects.iter().map(|object| object.value()) {
            if is_true(&definition, "Established") {
                self.serve(&definition);
            }
        }
        Ok(())
    }

    /// Follows them until it is cancelled, whatever the storage says.
    ///
    /// Cancel: safe.
    pub async fn follow_until(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(status) = self.run(&stop).await {
                tracing::warn!(error = status.message, "restarting the watch of custom resource definitions");
                let _cancelled = stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
            }
        }
    }

    /// Follows them until it is cancelled, or the storage does not answer.
    ///
    /// Errors: the storage's. It may be called again. Cancel: safe.
    pub async fn run(&mut self, cancel: &CancellationToken) -> Result<(), Status> {
        let mut events = self.registry.watch(&self.kind, "", Selection::default(), From::Start).await?;
        loop {
            let event = tokio::select! {
                () = cancel.cancelled() => return Ok(()),
                event = events.next() => event,
                () = tokio::time::sleep(AGAIN), if !self.going.is_empty() => {
                    for name in self.going.clone() {
                        Box::pin(self.reconcile(&name)).await?;
                    }
                    continue;
                }
            };
            match event.transpose()? {
                Some(Event::Added(object) | Event::Modified(object)) => Box::pin(self.follow(&object.value())).await?,
                Some(Event::Deleted(object)) => self.forget(object.name()).await?,
                Some(Event::Synced(_) | Event::Progress(_)) => {}
                None => return Ok(()),
            }
        }
    }

    async fn reconcile(&mut self, name: &str) -> Result<(), Status> {
        match self.registry.get(&self.kind, "", name).await {
            Ok(object) => self.follow(&object.value()).await,
            Err(status) if status.reason == Reason::NotFound => self.forget(name).await,
            Err(status) => Err(status),
        }
    }

    /// Brings what is served, and its status, to what a definition says.
    async fn follow(&mut self, definition: &Value) -> Result<(), Status> {
        if !text(definition, "/metadata/deletionTimestamp").is_empty() {
            return self.clear(definition).await;
        }
        self.accept(definition).await
    }

    /// Says in the status which names the definition has. What it says is served is served before that: a client that waits
    /// for `Established` may begin at once.
    async fn accept(&mut self, definition: &Value) -> Result<(), Status> {
        let taken = self.taken(definition).await?;
        let now = self.registry.env().now_text();
        let mut wanted = definition.clone();
        judge(&mut wanted, &taken, &now);
        // Names that were not accepted leave what was served before as it was.
        if is_true(&wanted, "Established") {
            self.serve(&wanted);
        }
        if wanted.get("status") == definition.get("status") {
            return Ok(());
        }
        self.write_status(definition, wanted.get("status").cloned().unwrap_or_default()).await
    }

    async fn write_status(&self, definition: &Value, status: Value) -> Result<(), Status> {
        let name = text(definition, "/metadata/name");
        let mut options = WriteOptions::default();
        (options.part, options.manager) = (Part::Status, MANAGER.to_owned());
        let written = self.registry.modify(&self.kind, "", name, &options, |there| {
            put(there, "status", Some(status.clone()));
            Ok(())
        });
        match Box::pin(written).await {
            // It is gone, or another event of it is on its way.
            Err(status) if !matches!(status.reason, Reason::NotFound | Reason::Conflict) => Err(status),
            _ => Ok(()),
        }
    }

    /// The names of resources and kinds that other definitions of the group have.
    async fn taken(&self, definition: &Value) -> Result<Taken, Status> {
        let group = text(definition, "/spec/group");
        let all = self.registry.list(&self.kind, "", &ListOptions::default()).await?;
        let mut taken = Taken::default();
        for other in all.objects.iter().map(|object| object.value()) {
            if text(&other, "/spec/group") != group
                || other.pointer("/metadata/uid") == definition.pointer("/metadata/uid")
            {
                continue;
            }
            let name = |name: &str| text(&other, &format!("/status/acceptedNames/{name}")).to_owned();
            taken.resources.extend([name("plural"), name("singular")]);
            taken.resources.extend(texts(&other, "/status/acceptedNames/shortNames"));
            taken.kinds.extend([name("kind"), name("listKind")]);
        }
        taken.extend_with_own(&self.own(group));
        Ok(taken)
    }

    /// The kinds of a group that no definition made: the server brings them itself.
    fn own(&self, group: &str) -> Vec<Arc<Kind>> {
        let defined = |kind: &Arc<Kind>| {
            let mut all = self.served.values().flat_map(|served| &served.kinds);
            all.any(|served| served.group == kind.group && served.plural == kind.plural)
        };
        let catalog = self.registry.catalog();
        catalog.kinds().iter().filter(|kind| kind.group == group && !defined(kind)).cloned().collect()
    }

    fn serve(&mut self, definition: &Value) {
        let name = text(definition, "/metadata/name").to_owned();
        let uid = text(definition, "/metadata/uid").to_owned();
        let generation = definition.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let before = self.served.remove(&name);
        let ends = custom::ends(definition);
        let is_same =
            |before: &&Served| (before.uid == uid, before.generation, before.ends) == (true, generation, ends);
        if let Some(before) = before.as_ref().filter(is_same) {
            let kinds = before.kinds.clone();
            self.served.insert(name, Served { uid, generation, ends, kinds });
            return;
        }
        let kinds: Vec<_> =
            custom::kinds(definition, converter(definition, self.registry.env())).into_iter().map(Arc::new).collect();
        for old in before.iter().flat_map(|before| &before.kinds) {
            if !kinds.iter().any(|kind| kind.version == old.version) {
                self.registry.drop_kind(&old.group, &old.version, &old.plural);
            }
        }
        for kind in &kinds {
            self.registry.serve_kind(Arc::clone(kind));
        }
        self.served.insert(name, Served { uid, generation, ends, kinds });
    }

    /// Deletes the objects of a definition that is to go; once none is left, it may.
    async fn clear(&mut self, definition: &Value) -> Result<(), Status> {
        let name = text(definition, "/metadata/name").to_owned();
        if !texts(definition, "/metadata/finalizers").iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(());
        }
        if is_true(definition, "Established") {
            // From now on nothing new is made. It may be one that was on its way when this server began.
            self.serve(definition);
        }
        // What is stored in the version of its kind needs no conversion to go.
        let is_served = self.served.get(&name).is_some_and(|served| !served.kinds.is_empty());
        let stored = || custom::stored_kind(definition, converter(definition, self.registry.env()));
        let kind = is_served.then(stored).flatten();
        let left = match &kind {
            None => 0,
            Some(kind) => {
                let (which, how) = (ListOptions::default(), DeleteOptions::default());
                Box::pin(self.registry.delete_collection(kind, "", &which, &how)).await?;
                self.registry.list(kind, "", &which).await?.objects.len()
            }
        };
        if left > 0 {
            self.going.insert(name);
            let mut definition = definition.clone();
            let words = ["True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"];
            set_condition(&mut definition, "Terminating", words, &self.registry.env().now_text());
            let status = definition.get("status").cloned().unwrap_or_default();
            self.write_status(&definition, status).await?;
            return Ok(());
        }
        self.withdraw(&name);
        let mut options = WriteOptions::default();
        MANAGER.clone_into(&mut options.manager);
        let written = self.registry.modify(&self.kind, "", &name, &options, |there| {
            let finalizers = there.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
            if let Some(finalizers) = finalizers {
                finalizers.retain(|finalizer| finalizer != FINALIZER);
            }
            Ok(())
        });
        match Box::pin(written).await {
            Err(status) if !matches!(status.reason, Reason::NotFound | Reason::Conflict) => Err(status),
            _ => Ok(()),
        }
    }

    /// Serves the kinds of a definition no more.
    fn withdraw(&mut self, name: &str) {
        self.going.remove(name);
        for kind in self.served.remove(name).iter().flat_map(|served| &served.kinds) {
            self.registry.drop_kind(&kind.group, &kind.version, &kind.plural);
        }
    }

    /// A definition is gone. Others may have its names now.
    async fn forget(&mut self, name: &str) -> Result<(), Status> {
        self.withdraw(name);
        let all = self.registry.list(&self.kind, "", &ListOptions::default()).await?;
        for other in all.objects.iter().map(|object| object.value()) {
            if !is_true(&other, "NamesAccepted") && text(&other, "/metadata/deletionTimestamp").is_empty() {
                self.accept(&other).await?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    fn extend_with_own(&mut self, kinds: &[Arc<Kind>]) {
        for kind in kinds {
            self.resources.extend([kind.plural.clone(), kind.singular.clone()]);
            self.resources.extend(kind.short_names.iter().cloned());
            self.kinds.extend([kind.kind.clone(), format!("{}List", kind.kind)]);
        }
    }
}

fn texts(value: &Value, at: &str) -> Vec<String> {
    access::texts(value, at).map(str::to_owned).collect()
}

fn is_true(definition: &Value, condition: &str) -> bool {
    items(definition, "/status/conditions")
        .iter()
        .any(|one| text(one, "/type") == condition && text(one, "/status") == "True")
}

/// Sets names and conditions in the status, if they are not yet what they must be.
fn judge(definition: &mut Value, taken: &Taken, now: &str) {
    let wanted = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let before = definition.pointer("/status/acceptedNames").cloned().unwrap_or_else(|| json!({}));
    let mut accepted = before.clone();
    let mut conflict = None;
    let names = [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ];
    for (name, reason, taken) in names {
        let own = texts(&before, &format!("/{name}"));
        let asked = match wanted.get(name) {
            Some(Value::String(one)) if before.get(name) != wanted.get(name) => vec![one.clone()],
            Some(Value::Array(_)) => texts(&wanted, &format!("/{name}")),
            _ => Vec::new(),
        };
        let clashes: Vec<_> = asked.iter().filter(|name| !own.contains(*name) && taken.contains(*name)).collect();
        match clashes.as_slice() {
            [] => put(&mut accepted, name, wanted.get(name).cloned()),
            [one] => conflict = Some((reason, format!("{} is already in use", Quoted(one)))),
            several => {
                let several: Vec<_> = several.iter().map(|one| format!("{} is already in use", Quoted(one))).collect();
                conflict = Some((reason, format!("[{}]", several.join(", "))));
            }
        }
    }
    put(&mut accepted, "categories", wanted.get("categories").cloned());
    if let Some(status) = definition.get_mut("status") {
        put(status, "acceptedNames", Some(accepted));
    }
    let names = match &conflict {
        None => ["True", "NoConflicts", "no conflicts found"],
        Some((reason, message)) => ["False", reason, message],
    };
    set_condition(definition, "NamesAccepted", names, now);
    if !is_true(definition, "Established") {
        let established = match conflict {
            None => ["True", "InitialNamesAccepted", "the initial names have been accepted"],
            Some(_) => ["False", "NotAccepted", "not all names are accepted"],
        };
        set_condition(definition, "Established", established, now);
    }
}

/// `words` are status, reason and message.
pub(super) fn set_condition(definition: &mut Value, kind: &str, words: [&str; 3], now: &str) {
    let [state, reason, message] = words;
    let Some(status) = definition.get_mut("status").and_then(Value::as_object_mut) else { return };
    let conditions = status.entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let there = conditions.iter_mut().find(|one| text(one, "/type") == kind);
    let since = there.as_ref().filter(|one| text(one, "/status") == state);
    let since = since.map_or(now, |one| text(one, "/lastTransitionTime")).to_owned();
    let condition =
        json!({"type": kind, "status": state, "lastTransitionTime": since, "reason": reason, "message": message});
    match there {
        Some(there) => *there = condition,
        None => conditions.push(condition),
    }
}
