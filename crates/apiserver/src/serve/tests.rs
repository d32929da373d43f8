use std::{
    io::Read as _,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures::stream::BoxStream;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::{
    kinds::Strategy,
    registry::Env,
    storage::{Memory, Page, Range, Record, Stamp, Storage, StorageError, WatchItem, When},
};
use kubefold_wire::{body::empty, protobuf};

async fn server() -> ApiServer {
    let registry = built_in(Arc::new(Memory::default()), Env::default());
    bootstrap(&registry).await.unwrap();
    ApiServer::new(registry, Settings::new("v1.36.2"))
}

async fn send(server: &ApiServer, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { empty() } else { full(body.to_string()) };
    let response = server.answer(request.body(body).unwrap()).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(bytes.to_vec()).unwrap())
}

async fn get(server: &ApiServer, path: &str) -> (u16, Value) {
    let (code, text) = send(server, "GET", path, &[], Value::Null).await;
    (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn with_maps(count: usize) -> ApiServer {
    let server = server().await;
    for number in 0..count {
        let map = json!({"metadata": {"name": format!("m{number}")}});
        assert_eq!(send(&server, "POST", MAPS, &[], map).await.0, 201);
    }
    server
}

#[tokio::test]
async fn pages_go_on_at_their_revision_and_an_old_token_is_renewed() {
    let server = with_maps(5).await;
    let (_, page) = get(&server, &format!("{MAPS}?limit=2")).await;
    assert_eq!((page["items"].as_array().unwrap().len(), &page["metadata"]["remainingItemCount"]), (2, &json!(3)));
    assert_eq!(page["items"][0].get("kind"), None);
    send(&server, "DELETE", &format!("{MAPS}/m4"), &[], Value::Null).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = get(&server, &format!("{MAPS}?continue={token}")).await;
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&rest), ["m2", "m3", "m4"]);
    assert_eq!(rest["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
    let newest = server.registry().revision().await.unwrap();
    server.registry().storage().compact(newest).await.unwrap();
    let (code, gone) = get(&server, &format!("{MAPS}?continue={token}")).await;
    assert_eq!((code, &gone["reason"]), (410, &json!("Expired")));
    let fresh = gone["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&get(&server, &format!("{MAPS}?continue={fresh}")).await.1), ["m2", "m3"]);
}

/// In chunks of both, with a page, and a second time, when the messages are known.
#[tokio::test]
async fn a_list_in_protobuf_is_the_list_in_json() {
    let server = with_maps(300).await;
    for number in [7, 150, 299] {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"a": "\u{e9}".repeat(100_000)}});
        assert_eq!(send(&server, "PUT", &format!("{MAPS}/m{number}"), &[], map).await.0, 200);
    }
    for query in ["", "", "?limit=200", "?labelSelector=a", "?fieldSelector=metadata.name%3Dm7"] {
        let path = format!("{MAPS}{query}");
        let accept = ("accept", "application/vnd.kubernetes.protobuf");
        let request = Request::get(&path).header(accept.0, accept.1).body(empty()).unwrap();
        let response = server.answer(request).await;
        assert_eq!(response.headers()["content-type"], accept.1);
        let message = response.into_body().collect().await.unwrap().to_bytes();
        let mut said: Value = serde_json::from_slice(&protobuf::to_json(&message).unwrap()).unwrap();
        let mut told = get(&server, &path).await.1;
        let (said, told) = (items_of(&mut said), items_of(&mut told));
        assert!(said.len() <= 300 && (query.contains("Selector") || said.len() >= 200));
        assert_eq!(said, told, "{query}");
    }
}

/// The body of an answer in one of four ways to write it, unpacked.
async fn body_of(server: &ApiServer, path: &str, accept: &str, encoding: &str) -> Vec<u8> {
    let request = Request::get(path).header("accept", accept).header("accept-encoding", encoding);
    let response = server.answer(request.body(empty()).unwrap()).await;
    assert_eq!((response.status(), response.headers()["content-type"].as_bytes()), (StatusCode::OK, accept.as_bytes()));
    let is_gzip = response.headers().contains_key("content-encoding");
    let sent = response.into_body().collect().await.unwrap().to_bytes();
    let mut body = Vec::new();
    match is_gzip {
        true => drop(flate2::read::GzDecoder::new(&*sent).read_to_end(&mut body).unwrap()),
        false => body.extend_from_slice(&sent),
    }
    body
}

/// Whatever changed between two lists: of the kind, of another one, or all of it at once.
#[tokio::test]
async fn a_list_that_is_written_again_is_that_of_its_revision() {
    let storage = Arc::new(Failing::default());
    let server = over(&storage).await;
    let map = |name: String, text: &str| json!({"metadata": {"name": name}, "data": {"a": text.repeat(50_000)}});
    for namespace in ["default", "kube-system"] {
        for number in 0..4 {
            let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
            assert_eq!(send(&server, "POST", &maps, &[], map(format!("m{number}"), "x")).await.0, 201);
        }
    }
    let backup = storage.memory.backup();
    let nothing = Value::Null;
    let changes = [
        ("GET", MAPS.to_owned(), nothing.clone()),
        ("PUT", format!("{MAPS}/m1"), map("m1".to_owned(), "y")),
        ("POST", "/api/v1/namespaces/default/secrets".to_owned(), json!({"metadata": {"name": "s"}})),
        ("DELETE", format!("{MAPS}/m2"), nothing.clone()),
        ("POST", MAPS.to_owned(), map("m9".to_owned(), "z")),
        ("PUT", "/api/v1/namespaces/kube-system/configmaps/m3".to_owned(), map("m3".to_owned(), "y")),
        ("RESTORE", String::new(), nothing.clone()),
        ("PUT", format!("{MAPS}/m1"), map("m1".to_owned(), "w")),
    ];
    for (method, path, body) in changes {
        match method {
            "RESTORE" => storage.memory.restore(&backup),
            _ => assert!(send(&server, method, &path, &[], body).await.0 < 300, "{method} {path}"),
        }
        for accept in ["application/json", "application/vnd.kubernetes.protobuf"] {
            for encoding in ["identity", "gzip"] {
                for (path, limit) in [(MAPS, ""), ("/api/v1/configmaps", ""), (MAPS, "&limit=500"), (MAPS, "&limit=2")]
                {
                    let revision = server.registry().revision().await.unwrap();
                    // This one is never written of what is known.
                    let exact = format!("{path}?resourceVersion={revision}&resourceVersionMatch=Exact{limit}");
                    let wanted = body_of(&server, &exact, accept, encoding).await;
                    let path = format!("{path}?a=b{limit}");
                    for time in ["first", "second", "third"] {
                        let ranges = storage.ranges.load(Ordering::Relaxed);
                        assert!(body_of(&server, &path, accept, encoding).await == wanted, "{method} {accept} {path}");
                        let is_known = storage.ranges.load(Ordering::Relaxed) == ranges;
                        assert!(
                            is_known || time != "third" || limit == "&limit=2",
                            "{method} {accept} {encoding} {path}"
                        );
                    }
                }
            }
        }
    }
}

/// Changes come between any two steps of a list.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_while_others_write_is_that_of_its_revision() {
    let server = with_maps(200).await;
    let text = "x".repeat(700);
    let is_over = Arc::new(AtomicBool::new(false));
    let (writing, until) = (server.clone(), Arc::clone(&is_over));
    let mut writer = JoinSet::new();
    writer.spawn(async move {
        for number in 0_u64.. {
            let name = format!("m{}", number % 7);
            let map = json!({"metadata": {"name": name}, "data": {"a": format!("{number}{text}")}});
            assert_eq!(send(&writing, "PUT", &format!("{MAPS}/{name}"), &[], map).await.0, 200);
            // Some states are listed twice, so that the second list is recorded.
            tokio::time::sleep(Duration::from_micros(number % 3 * 2_000)).await;
            if until.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    let mut revisions = Vec::new();
    for _ in 0..600 {
        let list = body_of(&server, MAPS, "application/json", "identity").await;
        let json: Value = serde_json::from_slice(&list).unwrap();
        let revision = json["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let exact = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
        assert!(body_of(&server, &exact, "application/json", "identity").await == list, "{revision}");
        revisions.push(revision);
    }
    is_over.store(true, Ordering::Relaxed);
    writer.join_next().await.unwrap().unwrap();
    revisions.dedup();
    assert!((20..580).contains(&revisions.len()), "{}", revisions.len());
}

/// Shows what is not stored.
#[derive(Debug)]
struct Decorating;

impl Strategy for Decorating {
    fn decorates(&self) -> bool {
        true
    }

    fn decorate(&self, object: &mut Value) {
        object["data"]["new"] = json!("y");
    }
}

/// No object changes, and what is shown of them does.
#[tokio::test]
async fn a_kind_that_is_served_otherwise_is_listed_otherwise() {
    let server = server().await;
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "x".repeat(200_000)}});
    assert_eq!(send(&server, "POST", MAPS, &[], map).await.0, 201);
    let list = async || body_of(&server, MAPS, "application/json", "identity").await.len();
    let before = [list().await, list().await, list().await];
    let kind = server.registry().resource("", "v1", "configmaps").unwrap();
    server.registry().serve_kind(Arc::new(Kind { strategy: Arc::new(Decorating), ..(*kind).clone() }));
    for _ in 0..3 {
        assert_eq!(list().await, before[2] + r#","new":"y""#.len());
    }
}

/// Its stamp is of before the change, and so are its objects.
#[tokio::test]
async fn a_list_in_which_a_change_comes_is_that_of_its_stamp() {
    let storage = Arc::new(Failing::default());
    let server = over(&storage).await;
    for number in 0..3 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"a": "x".repeat(90_000)}});
        assert_eq!(send(&server, "POST", MAPS, &[], map).await.0, 201);
    }
    let list = async || body_of(&server, MAPS, "application/json", "identity").await;
    let of_three = list().await;
    let record = storage.memory.get("configmaps/default/m0").await.unwrap().0.unwrap();
    // The second time it is recorded.
    *storage.put_first.lock() = Some(Record { key: "configmaps/default/m3".into(), ..record.clone() });
    assert!(list().await == of_three);
    assert!(list().await.len() > of_three.len());
    // Its revision is forgotten before it is read.
    storage.forgets.store(true, Ordering::Relaxed);
    *storage.put_first.lock() = Some(Record { key: "configmaps/default/m4".into(), ..record });
    assert!(list().await.len() > of_three.len() * 3 / 2);
}

/// Those of a list, without what is the type's in JSON made of protobuf. The rest of the list is compared elsewhere.
fn items_of(list: &mut Value) -> Vec<Value> {
    let mut items = match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    for item in &mut items {
        for name in ["kind", "apiVersion"] {
            item.as_object_mut().unwrap().shift_remove(name);
        }
    }
    items
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_tells_its_beginning_and_a_bookmark_before_its_end() {
    let server = with_maps(2).await;
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5";
    let (code, text) = send(&server, "GET", &format!("{MAPS}?{query}"), &[], Value::Null).await;
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((code, types.as_slice()), (200, ["ADDED", "ADDED", "BOOKMARK", "BOOKMARK"].as_slice()));
    let end = &events[2]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"];
    assert_eq!((end, &events[3]["object"]["kind"]), (&json!("true"), &json!("ConfigMap")));
    let future = format!("{MAPS}?watch=1&resourceVersion=99999");
    let (_, told) = get(&server, &future).await;
    assert_eq!((&told["type"], &told["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

#[tokio::test]
async fn objects_come_in_the_form_that_is_asked_for() {
    let server = with_maps(1).await;
    let ask = async |accept: &str, path: &str| {
        let (code, text) = send(&server, "GET", path, &[("accept", accept)], Value::Null).await;
        (code, serde_json::from_str::<Value>(&text).unwrap_or(Value::String(text)))
    };
    let (_, table) = ask("application/json;as=Table;g=meta.k8s.io;v=v1", MAPS).await;
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap().len(), 3);
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert_eq!(ask(metadata, MAPS).await.1["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(ask(metadata, &format!("{MAPS}/m0")).await.0, 406);
    let (_, yaml) = ask("application/yaml", &format!("{MAPS}/m0")).await;
    assert!(yaml.as_str().unwrap().starts_with("apiVersion: v1\nkind: ConfigMap\n"), "{yaml}");
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_refused() {
    let server = server().await;
    for (method, path, code) in [
        ("GET", "/nope", 404),
        ("GET", "/api/v1/foos", 404),
        ("GET", "/apis/nope.io/v1/foos", 404),
        ("GET", "/api/v1/pods/x", 404),
        ("POST", "/api/v1/configmaps", 405),
        ("PUT", MAPS, 405),
        ("DELETE", "/api/v1/configmaps", 405),
        ("HEAD", "/api/v1/pods", 405),
        ("GET", "/api/v1/namespaces/default/pods/x/nope", 404),
        ("GET", "/api/v1/namespaces/default/configmaps?fieldSelector=data.a%3Db", 400),
        ("GET", "/apis/apps/v1", 200),
        ("GET", "/api", 200),
        ("GET", "/openapi/v3", 200),
        ("GET", "/openapi/v3/apis/apps/v1", 200),
        ("GET", "/openapi/v3/apis/apps/v9", 404),
        ("GET", "/readyz?verbose", 200),
        ("GET", "/version", 200),
    ] {
        assert_eq!(send(&server, method, path, &[], Value::Null).await.0, code, "{method} {path}");
    }
}

/// A memory that fails each change in one way, as long as that is set, and counts what is read at once.
#[derive(Default)]
struct Failing {
    memory: Memory,
    failure: Mutex<Option<StorageError>>,
    ranges: AtomicUsize,
    /// What is put before the next of them.
    put_first: Mutex<Option<Record>>,
    /// What was before that is compacted then.
    forgets: AtomicBool,
}

async fn over(storage: &Arc<Failing>) -> ApiServer {
    let registry = built_in(Arc::<Failing>::clone(storage), Env::default());
    bootstrap(&registry).await.unwrap();
    ApiServer::new(registry, Settings::new("v1.36.2"))
}

impl Failing {
    fn result(&self) -> Result<(), StorageError> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }
}

impl Storage for Failing {
    fn revision(&self) -> BoxFuture<'_, Result<u64, StorageError>> {
        self.memory.revision()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(Option<Record>, u64), StorageError>> {
        self.memory.get(key)
    }

    fn range<'a>(&'a self, range: Range<'a>) -> BoxFuture<'a, Result<Page, StorageError>> {
        self.ranges.fetch_add(1, Ordering::Relaxed);
        let put = self.put_first.lock().take();
        Box::pin(async move {
            if let Some(Record { key, value, .. }) = put {
                let revision = self.memory.put(&key, value, When::Absent).await?;
                if self.forgets.load(Ordering::Relaxed) {
                    self.memory.compact(revision).await?;
                }
            }
            self.memory.range(range).await
        })
    }

    fn stamp<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Option<Stamp>, StorageError>> {
        self.memory.stamp(prefix)
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, when: When) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(async move {
            self.result()?;
            self.memory.put(key, value, when).await
        })
    }

    fn delete<'a>(&'a self, key: &'a str, at: u64) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(async move {
            self.result()?;
            self.memory.delete(key, at).await
        })
    }

    fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem, StorageError>>, StorageError>> {
        self.memory.watch(prefix, after)
    }

    fn compact(&self, before: u64) -> BoxFuture<'_, Result<(), StorageError>> {
        self.memory.compact(before)
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        let ready = self.result().or_else(|error| match error {
            StorageError::Full(_) => Ok(()),
            error => Err(error),
        });
        Box::pin(async { ready })
    }
}

#[tokio::test]
async fn a_storage_that_fails_is_told_on_writes_and_on_readiness_and_reads_go_on() {
    let storage = Arc::new(Failing::default());
    let server = over(&storage).await;
    let map = |name: &str| json!({"metadata": {"name": name}});
    assert_eq!(send(&server, "POST", MAPS, &[], map("there")).await.0, 201);
    let why = || "disk gone".to_owned();
    for (failure, code, words, retry, ready) in [
        (StorageError::Full(why()), 507, "the storage is full: disk gone", false, true),
        (StorageError::Unavailable(why()), 503, "nothing was changed: disk gone", true, false),
        (StorageError::Unknown(why()), 503, "whether it made the change is not known", false, false),
    ] {
        *storage.failure.lock() = Some(failure);
        for (method, path, body) in [
            ("POST", MAPS.to_owned(), map("new")),
            ("PUT", format!("{MAPS}/there"), json!({"metadata": {"name": "there"}, "data": {"a": "b"}})),
            ("DELETE", format!("{MAPS}/there"), Value::Null),
        ] {
            let (told, text) = send(&server, method, &path, &[], body).await;
            let status: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((told, &status["code"]), (code, &json!(code)), "{method} {text}");
            assert!(status["message"].as_str().unwrap().contains(words), "{method} {text}");
            assert_eq!(status["details"].get("retryAfterSeconds").is_some(), retry, "{method} {text}");
        }
        assert_eq!(get(&server, &format!("{MAPS}/there")).await.0, 200);
        assert_eq!(get(&server, MAPS).await.1["items"].as_array().unwrap().len(), 1);
        for (path, passes) in [
            ("/readyz", ready),
            ("/livez", ready),
            ("/readyz/etcd", ready),
            ("/readyz/ping", true),
            ("/readyz?exclude=etcd", true),
        ] {
            let (told, text) = send(&server, "GET", path, &[], Value::Null).await;
            assert_eq!(told, if passes { 200 } else { 500 }, "{path} {text}");
            assert_eq!(text.contains("disk gone"), !passes, "{path} {text}");
        }
    }
    *storage.failure.lock() = None;
    assert_eq!(send(&server, "POST", MAPS, &[], map("new")).await.0, 201);
    assert_eq!(get(&server, "/readyz").await.0, 200);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_server_that_is_started_again_over_its_file_goes_on_where_it_was() {
    use crate::storage::{Bounds, Sqlite};

    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
    let start = async || {
        let storage = Arc::new(Sqlite::open(&path, Bounds::default()).await.unwrap());
        let registry = built_in(storage, Env::default());
        bootstrap(&registry).await.unwrap();
        ApiServer::new(registry, Settings::new("v1.36.2"))
    };
    let service = |name: &str, spec: Value| {
        let mut spec = spec;
        spec["ports"] = json!([{"port": 80}]);
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let created = async |server: &ApiServer, path: &str, object: Value| {
        let (code, text) = send(server, "POST", path, &[], object).await;
        (code, serde_json::from_str::<Value>(&text).unwrap())
    };
    let server = start().await;
    let (_, first) = created(&server, SERVICES, service("first", json!({"type": "NodePort"}))).await;
    for number in 0..4 {
        assert_eq!(created(&server, MAPS, json!({"metadata": {"name": format!("m{number}")}})).await.0, 201);
    }
    let (_, page) = get(&server, &format!("{MAPS}?limit=2")).await;
    server.registry().storage().close().await;
    assert_eq!(created(&server, MAPS, json!({"metadata": {"name": "late"}})).await.0, 503);
    assert_eq!(get(&server, "/readyz").await.0, 500);

    let server = start().await;
    assert_eq!(get(&server, "/readyz").await.0, 200);
    assert_eq!(get(&server, &format!("{SERVICES}/first")).await.1, first);
    // What one service has, no other gets.
    let (address, port) = (&first["spec"]["clusterIP"], &first["spec"]["ports"][0]["nodePort"]);
    let (code, second) = created(&server, SERVICES, service("second", json!({"type": "NodePort"}))).await;
    assert_eq!(code, 201);
    assert_ne!(&second["spec"]["clusterIP"], address);
    assert_ne!(&second["spec"]["ports"][0]["nodePort"], port);
    assert_eq!(created(&server, SERVICES, service("third", json!({"clusterIP": address}))).await.0, 422);
    // Pages and watches go on from revisions of before.
    send(&server, "DELETE", &format!("{MAPS}/m3"), &[], Value::Null).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = get(&server, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((code, &rest["items"][1]["metadata"]["name"]), (200, &json!("m3")));
    let revision = first["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("{MAPS}?watch=true&resourceVersion={revision}&timeoutSeconds=1");
    let (_, events) = send(&server, "GET", &query, &[], Value::Null).await;
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED", "ADDED", "ADDED", "ADDED", "DELETED"]);
}

#[tokio::test]
async fn discovery_has_a_tag() {
    let server = server().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let ask = async |tag: &str| {
        let request = Request::builder().uri("/apis").header("accept", accept).header("if-none-match", tag);
        server.answer(request.body(empty()).unwrap()).await
    };
    let first = ask("\"x\"").await;
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!((first.status(), ask(&tag).await.status()), (StatusCode::OK, StatusCode::NOT_MODIFIED));
}

#[tokio::test]
async fn reviews_and_tokens_are_answered() {
    let server = server().await;
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let (code, text) = send(&server, "POST", review, &[], asked).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &answer["status"]["allowed"], &answer["kind"]),
        (201, &json!(true), &json!("SelfSubjectAccessReview"))
    );
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    send(&server, "POST", accounts, &[], json!({"metadata": {"name": "a"}})).await;
    let (code, text) = send(&server, "POST", &format!("{accounts}/a/token"), &[], json!({})).await;
    let token: Value = serde_json::from_str(&text).unwrap();
    let asked = json!({"spec": {"token": token["status"]["token"]}});
    let (_, text) = send(&server, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", &[], asked).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &answer["status"]["user"]["username"]), (201, &json!("system:serviceaccount:default:a")));
}
