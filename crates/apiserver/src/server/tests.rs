//! What a server refuses to be, and who gets in.

mod access;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::registry::WriteOptions;
use kubefold_wire::body::{Body, empty, full};

#[derive(Serialize, Deserialize)]
struct Post {
    spec: Value,
}

fn server() -> Server {
    Server::new().kind(Kind::of::<Post>("blog.example.com", "v1", "Post"))
}

fn wrong<T>(started: Result<T, ServerError>) -> String {
    started.err().map(|error| error.to_string()).unwrap()
}

#[tokio::test]
async fn a_server_that_cannot_be_says_what_where_and_why() {
    let kind = || Kind::of::<Post>("blog", "v1", "Post");
    assert!(
        wrong(Server::new().kind(kind()).start().await).contains("the kind posts.blog cannot be served: spec.group")
    );
    let kind = Kind::of::<Post>("blog.example.com", "v1", "Post");
    let twice = "posts.blog.example.com in version v1 was given to the server twice";
    assert!(wrong(server().kind(kind).start().await).contains(twice));
    let only = BuiltIn::Only(vec!["leases".into()]);
    assert!(
        wrong(server().built_in(only).start().await).contains("no built-in kind is called leases; write plural.group")
    );
    assert!(wrong(server().bind("0.0.0.0:0").await).contains("listen on 127.0.0.1"));
    assert!(wrong(server().bind("nowhere").await).contains("write host:port"));
    let bound = server().bind("127.0.0.1:0").await.unwrap();
    assert!(wrong(server().bind(&bound.address().to_string()).await).contains("free the port"));
    let tls = server().tls("certificate", "key");
    assert!(wrong(tls.bind("127.0.0.1:0").await).contains("give a token"));
    let tls = server().tls("certificate", "key").token("secret", Caller::default());
    assert!(wrong(tls.bind("127.0.0.1:0").await).contains("the serving certificate cannot be used"));
}

#[tokio::test]
async fn it_works_in_process_and_as_a_tower_service() {
    let running = server().start().await.unwrap();
    let registry = running.registry();
    let kind = registry.kind("blog.example.com", "Post").unwrap();
    let object = json!({"metadata": {"name": "a"}, "spec": {}});
    registry.create(&kind, "default", object, &WriteOptions::default()).await.unwrap();
    let request = Request::get("/apis/blog.example.com/v1/posts").body(empty()).unwrap();
    let response = running.service().oneshot(request).await.unwrap();
    let body: Value = serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(body["items"][0]["metadata"]["name"], "a");
    running.end().await;
}

#[tokio::test]
async fn what_a_storage_holds_outlives_the_server() {
    let storage = Arc::new(Memory::default());
    for made in [true, false] {
        let running = server().storage(storage.clone()).start().await.unwrap();
        let kind = running.registry().kind("blog.example.com", "Post").unwrap();
        let object = json!({"metadata": {"name": "a"}, "spec": {}});
        let created = running.registry().create(&kind, "default", object, &WriteOptions::default()).await;
        assert_eq!(created.is_ok(), made);
        running.end().await;
    }
}

#[tokio::test]
async fn without_built_in_kinds_every_namespace_is_there() {
    let running = server().built_in(BuiltIn::None).start().await.unwrap();
    let kind = running.registry().kind("blog.example.com", "Post").unwrap();
    let object = json!({"metadata": {"name": "a"}, "spec": {}});
    running.registry().create(&kind, "anywhere", object, &WriteOptions::default()).await.unwrap();
    assert_eq!(running.registry().catalog().kinds().len(), 1);
}

async fn export(_: crate::kinds::Target, object: Value, _: Request<Body>) -> Result<Response<Body>, Status> {
    Ok(Response::new(full(object["metadata"]["name"].to_string())))
}

#[tokio::test]
async fn a_subresource_is_answered_by_whoever_wrote_the_kind() {
    let kind = Kind::of::<Post>("blog.example.com", "v1", "Post").connect("export", &["get"], export);
    let running = Server::new().kind(kind).start().await.unwrap();
    let kind = running.registry().kind("blog.example.com", "Post").unwrap();
    let object = json!({"metadata": {"name": "a"}, "spec": {}});
    running.registry().create(&kind, "default", object, &WriteOptions::default()).await.unwrap();
    let ask = async |method: &str, path: &str| {
        let path = format!("/apis/blog.example.com/v1/namespaces/default/posts/{path}");
        let request = Request::builder().method(method).uri(path).body(empty()).unwrap();
        let response = running.service().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        (code, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    };
    assert_eq!(ask("GET", "a/export").await, (200, "\"a\"".to_owned()));
    assert_eq!(ask("POST", "a/export").await.0, 405);
    assert_eq!(ask("GET", "b/export").await.0, 404);
    assert_eq!(ask("GET", "a/nothing").await.0, 404);
}

/// A definition that a client makes must not take a program's kind over.
#[tokio::test]
async fn a_definition_does_not_take_over_a_kind_of_the_program() {
    let running = server().start().await.unwrap();
    let registry = running.registry();
    let definitions = registry.kind("apiextensions.k8s.io", "CustomResourceDefinition").unwrap();
    let definition = Kind::of::<Post>("blog.example.com", "v1", "Post").short_name("po").definition().clone();
    registry.create(&definitions, "", definition, &WriteOptions::default()).await.unwrap();
    let name = "posts.blog.example.com";
    let conditions = async || {
        let value = registry.get(&definitions, "", name).await.unwrap().value();
        let all = value.pointer("/status/conditions").and_then(Value::as_array).cloned().ok_or("not judged yet")?;
        Ok::<_, &str>(all)
    };
    let conditions = testbed::eventually(std::time::Duration::from_secs(30), conditions).await;
    let accepted = conditions.iter().find(|one| one["type"] == "NamesAccepted").unwrap();
    assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("ListKindConflict")));
    assert!(registry.kind("blog.example.com", "Post").unwrap().short_names.is_empty());
}

type Plain = Client<hyper_util::client::legacy::connect::HttpConnector, Full<bytes::Bytes>>;

async fn ask(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> (StatusCode, String) {
    let client: Plain = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::get(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = client.request(request.body(Full::default()).unwrap()).await.unwrap();
    let code = response.status();
    (code, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

async fn while_serving(server: Server, test: impl AsyncFnOnce(SocketAddr)) {
    let bound = server.bind("127.0.0.1:0").await.unwrap();
    let address = bound.address();
    let (done, ended) = tokio::sync::oneshot::channel::<()>();
    let test = async {
        test(address).await;
        drop(done);
    };
    tokio::join!(bound.serve_until(async { drop(ended.await) }), test);
}

#[tokio::test]
async fn pages_in_browsers_do_not_get_in_by_being_on_this_machine() {
    while_serving(server(), async |address| {
        assert_eq!(ask(address, "/api", &[]).await.0, 200);
        assert_eq!(ask(address, "/api", &[("origin", "http://evil.example")]).await.0, 403);
        assert_eq!(ask(address, "/api", &[("host", "evil.example")]).await.0, 403);
        let port = address.port();
        assert_eq!(ask(address, "/api", &[("host", &format!("localhost:{port}"))]).await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn with_tokens_nobody_gets_in_without_one_and_only_masters_act_for_others() {
    let ann = Caller { user: "ann".into(), ..Caller::default() };
    let root = Caller { user: "root".into(), groups: vec!["system:masters".into()], ..Caller::default() };
    while_serving(server().token("a", ann).token("r", root), async |address| {
        let review = "/apis/blog.example.com/v1/posts";
        assert_eq!(ask(address, review, &[]).await.0, 401);
        assert_eq!(ask(address, review, &[("authorization", "Bearer x")]).await.0, 401);
        assert_eq!(ask(address, "/readyz", &[]).await.0, 200);
        assert_eq!(ask(address, review, &[("authorization", "Bearer a")]).await.0, 200);
        let acting = |token| [("authorization", token), ("impersonate-user", "bob")];
        assert_eq!(ask(address, review, &acting("Bearer r")).await.0, 200);
        let (code, text) = ask(address, review, &acting("Bearer a")).await;
        assert!(code == 403 && text.contains("cannot impersonate resource"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn with_tls_a_token_logs_in() {
    use rustls::{RootCertStore, crypto::aws_lc_rs};
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let ann = Caller { user: "ann".into(), ..Caller::default() };
    let server = server().tls(&made.cert.pem(), &made.signing_key.serialize_pem()).token("secret", ann);
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    while_serving(server, async |address| {
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let client: Client<_, Full<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
        let uri = format!("https://localhost:{}/apis/blog.example.com/v1/posts", address.port());
        for (token, code) in [("secret", 200), ("wrong", 401)] {
            let request = Request::get(&uri).header("authorization", format!("Bearer {token}"));
            let response = client.request(request.body(Full::default()).unwrap()).await.unwrap();
            assert_eq!(response.status(), code);
        }
    })
    .await;
}

#[tokio::test]
async fn custom_resources_are_served_at_once_after_a_restart() {
    let storage = Arc::new(Memory::default());
    let start = || Server::new().storage(storage.clone()).start();
    let running = start().await.unwrap();
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let spec = json!({
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "notes", "kind": "Note"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
    });
    let definition = json!({"metadata": {"name": "notes.example.com"}, "spec": spec});
    let kind = running.registry().kind("apiextensions.k8s.io", "CustomResourceDefinition").unwrap();
    running.registry().create(&kind, "", definition, &WriteOptions::default()).await.unwrap();
    let is_established = async || {
        let there = running.registry().get(&kind, "", "notes.example.com").await.unwrap().value();
        there["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|one| one["type"] == "Established"))
    };
    while !is_established().await {
        tokio::task::yield_now().await;
    }
    // Whoever sees it established can use it.
    assert!(running.registry().kind("example.com", "Note").is_some());
    running.end().await;
    let again = start().await.unwrap();
    assert!(again.registry().kind("example.com", "Note").is_some());
    again.end().await;
}
