//! ShadowResources over a fleet that fails on demand.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, timeout};

use super::{
    KIND, Shadow,
    object::{LAST_APPLIED, MADE_BY, Reference, list, states},
    undo,
    world::{Place, Seen, World},
};
use crate::own::{GROUP, kinds_of};
use kubefold_apiserver::{
    BuiltIn, Server,
    kinds::Kind,
    registry::{DeleteOptions, Patch, Registry, WriteOptions, Written},
    schema::FieldValidation,
    server::Running,
    storage::{Memory, Storage},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    access::text,
    body::{Body, full},
    resource::Gvr,
    status::Status,
};

mod fields;
mod kept;

/// A user who may not read Secrets.
const BLIND: &str = "jane";

/// What happens to one request for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is refused, and nothing has happened.
    Refused,
    /// It is done, and nobody is told.
    Lost,
    /// It is done, and no answer comes: the process is killed meanwhile.
    Killed,
}

/// One cluster in place of a fleet.
struct Fleet {
    running: Running,
    /// Which change fails, and how.
    fault: Mutex<Option<(usize, Fault)>>,
    changes: AtomicUsize,
    /// Nobody may ask as kubefold itself.
    refuses_kubefold: AtomicBool,
}

impl Fleet {
    async fn new() -> Arc<Self> {
        let running = Server::new().built_in(BuiltIn::All).start().await.unwrap();
        Arc::new(Self {
            running,
            fault: Mutex::default(),
            changes: AtomicUsize::new(0),
            refuses_kubefold: AtomicBool::new(false),
        })
    }

    fn registry(&self) -> &Registry {
        self.running.registry()
    }

    /// Has a later change fail. Counts anew.
    fn fail(&self, fault: Option<(usize, Fault)>) {
        *self.fault.lock() = fault;
        self.changes.store(0, Relaxed);
    }

    async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let kind = self.registry().kind("", kind).unwrap();
        Some(self.registry().get(&kind, "default", name).await.ok()?.value())
    }

    /// The names of config maps that a ShadowResource has made.
    async fn made(&self) -> Vec<String> {
        let kind = self.registry().kind("", "ConfigMap").unwrap();
        let all = self.registry().list(&kind, "default", &Default::default()).await.unwrap();
        let is_made = |object: &Value| object["metadata"]["annotations"].get(MADE_BY).is_some();
        let objects = all.objects.iter().map(|object| object.value());
        objects.filter(is_made).map(|object| text(&object, "/metadata/name").to_owned()).collect()
    }
}

fn forbidden(why: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "message": why, "reason": "Forbidden"});
    let mut response = Response::new(full(status.to_string()));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

impl World for Fleet {
    fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Option<Response<Body>>> {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let is_kubefold = parts.extensions.get::<Caller>().is_some_and(|caller| caller.user == super::ITSELF);
            if is_kubefold && self.refuses_kubefold.load(Relaxed) {
                return Some(forbidden("groups \"system:masters\" is forbidden (member east)"));
            }
            let is_blind = parts.extensions.get::<Caller>().is_some_and(|caller| caller.user == BLIND);
            if is_blind && parts.uri.path().contains("/secrets/") {
                return Some(forbidden("secrets is forbidden"));
            }
            let body = body.collect().await.unwrap().to_bytes();
            let is_dry_run = parts.uri.query().unwrap_or_default().contains("dryRun")
                || (parts.method == Method::DELETE && String::from_utf8_lossy(&body).contains("dryRun"));
            let is_change = parts.method != Method::GET && !is_dry_run;
            let request = Request::from_parts(parts, full(body));
            let number = if is_change { self.changes.fetch_add(1, Relaxed) } else { usize::MAX };
            let fault = self.fault.lock().filter(|(at, _)| *at == number).map(|(_, fault)| fault);
            let failed = || {
                let status = json!({"kind": "Status", "message": "etcdserver: request timed out", "reason": "Timeout"});
                let mut response = Response::new(full(status.to_string()));
                *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
                response
            };
            if fault == Some(Fault::Refused) {
                return Some(forbidden("quota exceeded"));
            }
            let response = self.running.service().answer(request).await;
            match fault {
                Some(Fault::Killed) => futures::future::pending().await,
                Some(_) => Some(failed()),
                None => Some(response),
            }
        })
    }

    fn place<'a>(&'a self, reference: &'a Reference) -> BoxFuture<'a, Option<Place>> {
        let (group, version) = reference.group_version();
        let kind = self
            .registry()
            .catalog()
            .kinds()
            .iter()
            .find(|kind| kind.group == group && kind.version == version && kind.kind == reference.kind)
            .cloned();
        let place = kind.map(|kind| Place {
            gvr: Gvr::new(&kind.group, &kind.version, &kind.plural),
            namespace: if kind.namespaced { reference.namespace.clone() } else { String::new() },
            name: reference.name.clone(),
        });
        futures::future::ready(place).boxed()
    }

    fn kept<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Seen> {
        Box::pin(async move {
            let Place { gvr, namespace, name } = place;
            let kind = self.registry().resource(&gvr.group, &gvr.version, &gvr.resource).unwrap();
            let object = self.registry().get(&kind, namespace, name).await;
            object.map_or(Seen::Absent, |object| Seen::There(Box::new(object.value())))
        })
    }

    fn of_no_kind(&self, _: &Reference) -> Seen {
        Seen::Absent
    }

    fn lacks_namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, bool> {
        futures::future::ready(name != "default").boxed()
    }
}

/// ShadowResources of one process.
struct Process {
    shadow: Shadow,
    running: Running,
    kind: Arc<Kind>,
}

impl Process {
    async fn new(fleet: &Arc<Fleet>, storage: &Arc<dyn Storage>) -> Self {
        let shadow = Shadow::over(Arc::clone(fleet) as Arc<dyn World>, Arc::clone(storage));
        let server = Server::new().built_in(BuiltIn::None).storage(Arc::clone(storage));
        let kinds = kinds_of(shadow.kind(&[])).unwrap();
        let running = kinds.into_iter().fold(server, Server::kind).start().await.unwrap();
        let kind = running.registry().kind(GROUP, KIND).unwrap();
        Self { shadow, running, kind }
    }

    async fn create(&self, object: Value) -> Result<Written, Status> {
        self.running.registry().create(&self.kind, "default", object, &WriteOptions::default()).await
    }

    async fn get(&self) -> Option<Value> {
        Some(self.running.registry().get(&self.kind, "default", "app").await.ok()?.value())
    }

    /// Writes over what is there now.
    async fn replace(&self, object: Value) -> Result<Written, Status> {
        self.update(self.current(object).await).await
    }

    async fn current(&self, mut object: Value) -> Value {
        let now = self.get().await.unwrap();
        object["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
        object
    }

    async fn update(&self, object: Value) -> Result<Written, Status> {
        self.running.registry().update(&self.kind, "default", "app", object, &WriteOptions::default()).await
    }

    async fn apply(&self, object: Value) -> Result<Written, Status> {
        let patch = Patch::Apply { object, force: false };
        let options = WriteOptions { manager: "ci".to_owned(), ..WriteOptions::default() };
        let registry = self.running.registry();
        registry.patch(&self.kind, "default", "app", &patch, FieldValidation::default(), &options).await
    }

    /// What is done once everything that was under way has landed.
    async fn settle(&self) {
        let before = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        for note in self.shadow.journal.all().await.unwrap() {
            assert!(undo::is_settled(&self.shadow, self.running.registry(), &self.kind, &note, before).await);
        }
    }
}

fn map(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": data}})
}

fn app(items: &[Value]) -> Value {
    json!({"apiVersion": "kubefold.io/v1alpha1", "kind": "ShadowResource", "metadata": {"name": "app"},
        "spec": {"flowList": items}})
}

fn memory() -> Arc<dyn Storage> {
    Arc::new(Memory::default())
}

/// Says whether everything that a ShadowResource has is there, and nothing else is.
async fn is_whole(process: &Process, fleet: &Fleet, what: &str) {
    let mut made = fleet.made().await;
    let mut wanted: Vec<String> = process.get().await.map_or_else(Vec::new, |shadow| {
        list(&shadow).iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
    });
    made.sort();
    wanted.sort();
    assert_eq!(made, wanted, "{what}");
    if let Some(shadow) = process.get().await {
        let phases: Vec<&str> = states(&shadow).iter().map(|state| text(state, "/phase")).collect();
        assert!(phases.iter().all(|phase| *phase == "Ready"), "{what}: {phases:?}");
    }
    assert!(process.shadow.journal.all().await.unwrap().is_empty(), "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_all_or_nothing_whichever_request_fails_and_however() {
    let items = [map("a", "1"), map("b", "1"), map("c", "1")];
    for fault in [Fault::Refused, Fault::Lost, Fault::Killed] {
        for at in 0..items.len() {
            let what = format!("create, change {at} is {fault:?}");
            let (fleet, storage) = (Fleet::new().await, memory());
            let process = Process::new(&fleet, &storage).await;
            fleet.fail(Some((at, fault)));
            let made = timeout(Duration::from_secs(1), process.create(app(&items))).await;
            fleet.fail(None);
            assert_eq!(made.is_err(), fault == Fault::Killed, "{what}");
            // What has landed after all is not undone.
            assert_eq!(matches!(made, Ok(Ok(_))), fault == Fault::Lost, "{what}: {made:?}");
            let next = Process::new(&fleet, &storage).await;
            next.settle().await;
            is_whole(&next, &fleet, &what).await;
            assert_eq!(next.get().await.is_some(), fault == Fault::Lost, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_that_fails_half_way_leaves_nothing_that_nobody_knows() {
    let before = [map("a", "1"), map("b", "1")];
    let after = [map("x", "1"), map("a", "2"), map("y", "1")];
    for fault in [Fault::Refused, Fault::Lost, Fault::Killed] {
        for at in 0..4 {
            let what = format!("update, change {at} is {fault:?}");
            let (fleet, storage) = (Fleet::new().await, memory());
            let process = Process::new(&fleet, &storage).await;
            process.create(app(&before)).await.unwrap();
            fleet.fail(Some((at, fault)));
            let updated = timeout(Duration::from_secs(1), process.replace(app(&after))).await;
            fleet.fail(None);
            let next = Process::new(&fleet, &storage).await;
            next.settle().await;
            if !matches!(updated, Ok(Ok(_))) {
                let made: Vec<String> = fleet.made().await;
                assert!(!made.contains(&"x".to_owned()) && !made.contains(&"y".to_owned()), "{what}: {made:?}");
            }
            // Whoever sends it again gets it.
            next.replace(app(&after)).await.unwrap();
            is_whole(&next, &fleet, &what).await;
            assert_eq!(fleet.get("ConfigMap", "a").await.unwrap()["data"]["a"], "2", "{what}");
            assert!(fleet.get("ConfigMap", "b").await.is_none(), "{what}");
        }
    }
}

#[tokio::test]
async fn nothing_is_stored_but_references() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": "topsecret"}});
    let mut object = app(&[secret, map("a", "topsecret")]);
    object["metadata"]["annotations"] = json!({LAST_APPLIED: object.to_string()});
    process.create(object).await.unwrap();
    let page = storage.range(Default::default()).await.unwrap();
    for record in &page.records {
        let stored = String::from_utf8_lossy(&record.value).into_owned();
        assert!(!stored.contains("topsecret") && !stored.contains("dG9wc2VjcmV0"), "{stored}");
    }
    let shown = process.get().await.unwrap();
    assert_eq!(shown["spec"]["flowList"][1]["data"]["a"], "topsecret");
    assert_eq!(shown["spec"]["flowList"][0]["data"]["p"], "dG9wc2VjcmV0");
    assert_eq!(shown["status"]["ready"], "2/2");
}

#[tokio::test]
async fn an_edit_of_an_item_is_one_new_revision_and_the_next_read_has_it() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    process.create(app(&[map("a", "1"), map("b", "1")])).await.unwrap();
    let first = process.get().await.unwrap();
    assert_eq!(process.get().await.unwrap(), first, "nothing has changed");
    let kind = fleet.registry().kind("", "ConfigMap").unwrap();
    let change = |map: &mut Value| {
        map["data"]["a"] = "2".into();
        Ok(())
    };
    fleet.registry().modify(&kind, "default", "a", &WriteOptions::default(), change).await.unwrap();
    let second = process.get().await.unwrap();
    assert_eq!(second["spec"]["flowList"][0]["data"]["a"], "2");
    assert_ne!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    // What was read before is written over nothing.
    let mut stale = first.clone();
    stale["spec"]["flowList"][1]["data"]["a"] = "3".into();
    assert_eq!(process.update(stale).await.unwrap_err().code, StatusCode::CONFLICT);
    let mut fresh = second.clone();
    fresh["spec"]["flowList"][1]["data"]["a"] = "3".into();
    process.update(fresh).await.unwrap();
    assert_eq!(fleet.get("ConfigMap", "b").await.unwrap()["data"]["a"], "3");
    assert_eq!(fleet.get("ConfigMap", "a").await.unwrap()["data"]["a"], "2");
}

#[tokio::test]
async fn an_apply_is_an_apply_of_each_item_and_the_second_one_is_no_change() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    let mut b = map("b", "1");
    b["data"]["extra"] = "x".into();
    assert!(process.apply(app(&[map("a", "1"), b])).await.unwrap().created);
    let first = process.get().await.unwrap();
    let again = process.apply(app(&[map("a", "1"), {
        let mut b = map("b", "1");
        b["data"]["extra"] = "x".into();
        b
    }]));
    again.await.unwrap();
    assert_eq!(process.get().await.unwrap(), first, "the same again is no change");
    process.apply(app(&[map("a", "1"), map("b", "2")])).await.unwrap();
    assert_eq!(fleet.get("ConfigMap", "b").await.unwrap()["data"], json!({"a": "2"}), "what is left out goes");
    // What others own is a conflict.
    let kind = fleet.registry().kind("", "ConfigMap").unwrap();
    let options = WriteOptions { manager: "ops".to_owned(), ..WriteOptions::default() };
    let change = |map: &mut Value| {
        map["data"]["a"] = "9".into();
        Ok(())
    };
    fleet.registry().modify(&kind, "default", "a", &options, change).await.unwrap();
    let refused = process.apply(app(&[map("a", "1"), map("b", "2")])).await.unwrap_err();
    assert_eq!(refused.code, StatusCode::CONFLICT);
    assert!(refused.message.contains("spec.flowList[0] (ConfigMap default/a)"), "{}", refused.message);
}

#[tokio::test]
async fn an_item_that_is_there_is_named_and_can_be_adopted() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    let kind = fleet.registry().kind("", "ConfigMap").unwrap();
    fleet.registry().create(&kind, "default", map("b", "1"), &WriteOptions::default()).await.unwrap();
    for refused in [
        process.create(app(&[map("a", "1"), map("b", "1")])).await.unwrap_err(),
        process.apply(app(&[map("a", "1"), map("b", "1")])).await.unwrap_err(),
    ] {
        assert_eq!(refused.code, StatusCode::CONFLICT);
        assert!(refused.message.contains("spec.flowList[1] (ConfigMap default/b)"), "{}", refused.message);
        assert!(refused.message.contains("nothing was made"), "{}", refused.message);
    }
    assert_eq!(fleet.made().await, Vec::<String>::new());
    let mut b = map("b", "1");
    b["metadata"]["annotations"] = json!({"shadow.kubefold.io/adopt": "true"});
    process.create(app(&[map("a", "1"), b])).await.unwrap();
    assert_eq!(fleet.made().await, ["a"], "what was there before is not marked as made");
}

#[tokio::test]
async fn wrong_items_are_told_by_their_field() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 0, "targetPort": 1}]}});
    for (items, field) in [
        (vec![map("a", "1"), service], "spec.flowList[1].spec.ports[0].port"),
        (vec![map("a", "1"), map("a", "2")], "spec.flowList[1]"),
        (vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})], "spec.flowList[0].metadata.name"),
        (vec![app(&[])], "spec.flowList[0].kind"),
        (vec![json!({"apiVersion": "x.io/v1", "kind": "Redis", "metadata": {"name": "r"}})], "spec.flowList[0].kind"),
        ((0..101).map(|at| map(&format!("m{at}"), "1")).collect(), "spec.flowList"),
        (vec![map("a", &"x".repeat(1_600_000))], "spec.flowList"),
    ] {
        let refused = process.create(app(&items)).await.unwrap_err();
        assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.message);
        let fields: Vec<&str> = refused.details.causes.iter().map(|cause| &*cause.field).collect();
        assert_eq!(fields, [field], "{}", refused.message);
    }
    let mut unknown = map("a", "1");
    unknown["dat"] = json!({});
    let strict = WriteOptions { validation: FieldValidation::Strict, ..WriteOptions::default() };
    let elsewhere = process.running.registry();
    let refused = elsewhere.create(&process.kind, "default", app(&[unknown]), &strict).await.unwrap_err();
    assert!(refused.message.contains("unknown field \"dat\""), "{}", refused.message);
    let refused = elsewhere.create(&process.kind, "nowhere", app(&[]), &WriteOptions::default()).await.unwrap_err();
    assert_eq!((refused.code, &*refused.message), (StatusCode::NOT_FOUND, "namespaces \"nowhere\" not found"));
    assert_eq!(fleet.made().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_dry_run_leaves_no_trace() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let registry = process.running.registry();
    let tried = registry.create(&process.kind, "default", app(&[map("a", "1")]), &options).await.unwrap();
    assert_eq!(tried.object.value()["spec"]["flowList"][0]["metadata"]["namespace"], "default");
    assert!(fleet.made().await.is_empty() && process.get().await.is_none());
    process.create(app(&[map("a", "1"), map("b", "1")])).await.unwrap();
    let before = process.get().await.unwrap();
    let other = process.current(app(&[map("a", "2"), map("c", "1")])).await;
    let tried = registry.update(&process.kind, "default", "app", other, &options).await.unwrap().object.value();
    assert_eq!(tried["spec"]["flowList"][0]["data"]["a"], "2");
    let deleting = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    registry.delete(&process.kind, "default", "app", &deleting).await.unwrap();
    assert_eq!(process.get().await.unwrap(), before);
    assert_eq!(fleet.made().await, ["a", "b"]);
}

#[tokio::test]
async fn an_alias_serves_the_same_objects() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let shadow = Shadow::over(fleet as Arc<dyn World>, Arc::clone(&storage));
    let alias = crate::config::Alias { group: "apis.abc.com".to_owned(), version: "v1".to_owned() };
    let kinds = kinds_of(shadow.kind(&[alias])).unwrap();
    let server = Server::new().built_in(BuiltIn::None).storage(storage);
    let running = kinds.into_iter().fold(server, Server::kind).start().await.unwrap();
    let registry = running.registry();
    let (own, other) = (registry.kind(GROUP, KIND).unwrap(), registry.kind("apis.abc.com", KIND).unwrap());
    let mut object = app(&[map("a", "1")]);
    object["apiVersion"] = "apis.abc.com/v1".into();
    let made = registry.create(&other, "default", object, &WriteOptions::default()).await.unwrap().object.value();
    assert_eq!(made["apiVersion"], "apis.abc.com/v1");
    let mut same = registry.get(&own, "default", "app").await.unwrap().value();
    assert_eq!(same["apiVersion"], "kubefold.io/v1alpha1");
    same["apiVersion"] = "apis.abc.com/v1".into();
    assert_eq!(registry.get(&other, "default", "app").await.unwrap().value(), same);
    assert_eq!(registry.list(&other, "", &Default::default()).await.unwrap().objects.len(), 1);
    registry.delete(&other, "default", "app", &DeleteOptions::default()).await.unwrap();
    let going = registry.get(&own, "default", "app").await.unwrap().value();
    assert!(going["metadata"]["deletionTimestamp"].is_string(), "its items go first");
}
