//! `kubefold apiserver` as a stranger meets it: the real program and the real kubectl, on each storage.

use std::{fs, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, jwk::JwkSet};
use serde_json::{Value, json};

use testbed::{
    Answer, Api, ApiServer, Kubectl, MariadbServer, PostgresServer, Process, Testbed, eventually, program, samples::crd,
};

use crate::provider::Provider;

const SOON: Duration = Duration::from_secs(30);
const WIDGETS: &str = "/apis/e2e.kubefold.io/v1/namespaces/default/widgets";

fn widget(name: &str, size: u64) -> Value {
    json!({
        "apiVersion": "e2e.kubefold.io/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "default"},
        "spec": {"size": size},
    })
}

/// What a command said: exit code, standard output, standard error.
pub(crate) async fn run(args: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let mut command = tokio::process::Command::new(program());
    let said = command.args(args).current_dir(folder).kill_on_drop(true).output();
    let said = tokio::time::timeout(SOON, said).await.expect("an end").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (said.status.code(), text(said.stdout), text(said.stderr))
}

async fn waits_for(process: &Process, text: &str) {
    eventually(SOON, async || if process.output().contains(text) { Ok(()) } else { Err(process.tail()) }).await;
}

/// From nothing to objects with kubectl, and all of them after `kill -9`.
pub(crate) async fn objects_outlive_the_process(mut server: ApiServer) {
    let kubectl = server.as_admin();
    kubectl.run_with_input(&["create", "-f", "-"], &crd("Widget").to_string()).await.ok();
    kubectl.established("widgets.e2e.kubefold.io").await;
    kubectl.run_with_input(&["create", "-f", "-"], &widget("first", 1).to_string()).await.ok();
    server.apply(&widget("second", 2).to_string()).await;
    let api = server.api().await;
    let before = api.get(WIDGETS).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let told = kubectl.start(&["get", "widgets", "--watch", "--output-watch-events"]);
    waits_for(&told, "second").await;

    server.apply(&widget("second", 3).to_string()).await;
    kubectl.run(&["patch", "widget", "first", "--type=merge", "-p", r#"{"spec":{"size":9}}"#]).await.ok();
    kubectl.with_editor("sed -i s/size:.9/size:\\ 10/").run(&["edit", "widget", "first"]).await.ok();
    kubectl.run(&["delete", "widget", "second", "--wait"]).await.ok();
    waits_for(&told, "DELETED").await;
    kubectl.run(&["create", "configmap", "kept", "--from-literal=to=world"]).await.ok();

    server.kill9();
    server.restart().await;
    let kubectl = server.as_admin();
    let kept = kubectl.run(&["get", "configmap", "kept", "-o", "jsonpath={.data.to}"]).await;
    assert_eq!(kept.ok(), "world");
    let first = kubectl.run(&["get", "widget", "first", "-o", "jsonpath={.spec.size}"]).await;
    assert_eq!(first.ok(), "10");
    assert!(kubectl.run(&["get", "widget", "second"]).await.refused().contains("NotFound"));
    // A watch goes on where it was before the process ended.
    let mut watch = server.api().await.watch(&format!("{WIDGETS}?watch=1&resourceVersion={before}")).await;
    let mut events = Vec::new();
    for _ in 0..4 {
        let event = watch.next(SOON).await.unwrap();
        let of = |pointer: &str| event.pointer(pointer).cloned().unwrap_or_default();
        events.push((of("/type"), of("/object/metadata/name"), of("/object/spec/size")));
    }
    let expected =
        [("MODIFIED", "second", 3), ("MODIFIED", "first", 9), ("MODIFIED", "first", 10), ("DELETED", "second", 3)];
    assert_eq!(events, expected.map(|(kind, name, size)| (kind.into(), name.into(), size.into())));

    // An end in order ends the watch, and is no failure.
    assert!(server.terminate(SOON).await.success(), "{}", server.log());
    assert!(watch.next(SOON).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_outlive_the_process_in_a_file() {
    let server = ApiServer::start(&[]).await;
    assert!(server.state_dir().join("objects.db").exists(), "SQLite in the state directory is the default");
    objects_outlive_the_process(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_outlive_the_process_in_postgres() {
    let postgres = PostgresServer::start();
    let url = postgres.url("apiserver");
    objects_outlive_the_process(ApiServer::start(&["--storage", &url]).await).await;
}

/// By TLS, with a password, which no message has.
#[tokio::test(flavor = "multi_thread")]
async fn objects_outlive_the_process_in_mariadb() {
    let mariadb = MariadbServer::start_with_tls();
    let ca = mariadb.authority().display().to_string();
    let url = mariadb.tls_url("apiserver", "localhost", "s3cret");
    let folder = tempfile::tempdir().unwrap();
    let args = ["apiserver", "--state-dir", "state", "--listen", "127.0.0.1:0", "--storage", url.as_str()];
    let (code, _, error) = run(&args, folder.path()).await;
    assert!(code == Some(1) && error.contains("no TLS with the database") && !error.contains("s3cret"), "{error}");
    objects_outlive_the_process(ApiServer::start(&["--storage", &url, "--storage-ca-file", &ca]).await).await;
    // The server has ended, and its objects move on.
    let args = ["apiserver", "migrate", "--from", url.as_str(), "--from-ca-file", ca.as_str(), "--to", "sqlite:moved"];
    let (code, out, error) = run(&args, folder.path()).await;
    assert!(code == Some(0) && out.contains("objects are in both storages"), "{out}{error}");
}

/// The database is on another machine: its certificate is checked, and so is the password.
#[tokio::test(flavor = "multi_thread")]
async fn objects_are_in_a_database_that_is_reached_by_tls() {
    let postgres = PostgresServer::start_with_tls();
    let ca = postgres.authority().display().to_string();
    let folder = tempfile::tempdir().unwrap();
    let refused = async |url: &str, more: &[&str], words: &str| {
        let args = ["apiserver", "--state-dir", "state", "--listen", "127.0.0.1:0", "--storage", url];
        let (code, _, error) = run(&[&args, more].concat(), folder.path()).await;
        let said: Vec<&str> = error.lines().filter(|line| line.starts_with("kubefold:")).collect();
        assert!(code == Some(1) && said.len() == 1 && said[0].contains(words), "no {words:?} in {error}");
        assert!(!error.contains("s3cret"), "{error}");
    };
    let url = postgres.tls_url("tls", "localhost", "s3cret");
    let with_ca = ["--storage-ca-file", &ca];
    refused(&url, &[], "UnknownIssuer").await;
    refused(&postgres.tls_url("tls", "127.0.0.1", "s3cret"), &with_ca, "not valid for name").await;
    refused(&postgres.tls_url("tls", "localhost", "wrong"), &with_ca, "password authentication failed").await;
    refused(&format!("{url}&sslmode=disable"), &with_ca, "no encryption").await;
    objects_outlive_the_process(ApiServer::start(&["--storage", &url, "--storage-ca-file", &ca]).await).await;
    let tls = postgres
        .sql("SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'jane' AND NOT ssl");
    assert_eq!(tls, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_memory_ends_with_the_process() {
    let mut server = ApiServer::start(&["--storage", "memory:"]).await;
    server.as_admin().run(&["create", "configmap", "gone"]).await.ok();
    assert!(!server.state_dir().join("objects.db").exists());
    server.restart().await;
    assert!(server.as_admin().run(&["get", "configmap", "gone"]).await.refused().contains("NotFound"));
}

/// Each of them is one sentence that says what, where and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_usage_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let said = async |code: i32, args: &[&str], words: &[&str]| {
        let args: Vec<&str> = ["apiserver"].iter().chain(args).copied().collect();
        let (ended, out, error) = run(&args, folder.path()).await;
        assert_eq!((ended, out.as_str()), (Some(code), ""), "{args:?}: {error}");
        for word in words {
            assert!(error.contains(word), "{args:?}: no {word:?} in {error}");
        }
        assert!(!error.contains("s3cret"), "{error}");
        error
    };
    said(64, &[], &["--state-dir"]).await;
    let at = ["--state-dir", "state", "--listen", "127.0.0.1:0", "--storage"];
    let with = |storage: &'static str| [at.as_slice(), &[storage]].concat();
    said(64, &with("redis://x"), &["no storage has the scheme \"redis\"", "sqlite:DIR"]).await;
    said(64, &with("etcd://u:s3cret@h"), &["--storage-cert-file", "no user in the URL"]).await;
    said(1, &with("etcd://127.0.0.1:1"), &["storage etcd://127.0.0.1:1: etcd does not answer", "refused"]).await;
    said(64, &with("/var/lib/x"), &["it has no scheme"]).await;
    said(64, &with("postgres://u:s3cret@h:x/d"), &["storage postgres://h:x/d: it is no connection string"]).await;
    let away =
        said(1, &with("postgres://u:s3cret@127.0.0.1:1/d"), &["storage postgres://127.0.0.1:1/d", "refused"]).await;
    assert_eq!(away.lines().count(), 1, "{away}");
    said(64, &with("mysql://u:s3cret@h:x/d"), &["storage mysql://h:x/d: it is no URL of MySQL"]).await;
    let away = said(1, &with("mysql://u:s3cret@127.0.0.1:1/d"), &["storage mysql://127.0.0.1:1/d", "refused"]).await;
    assert_eq!(away.lines().count(), 1, "{away}");
    fs::write(folder.path().join("file"), "").unwrap();
    let taken = said(1, &with("sqlite:file/x"), &["storage sqlite:file/x: cannot make the folder", "check that"]).await;
    assert_eq!(taken.lines().count(), 1, "{taken}");
    fs::create_dir(folder.path().join("broken")).unwrap();
    fs::write(folder.path().join("broken/objects.db"), "no database, but long enough to be read as one").unwrap();
    said(1, &with("sqlite:broken"), &["storage sqlite:broken: ", "objects.db is no database"]).await;
    let file = ["--state-dir", "state", "--storage-url-file", "nothing"];
    said(64, &file, &["--storage-url-file nothing: cannot be read"]).await;
    let tokens = ["--state-dir", "state", "--listen", "127.0.0.1:0", "--token-auth-file", "nothing"];
    said(64, &tokens, &["--token-auth-file nothing: cannot be read"]).await;
    said(64, &["--state-dir", "state", "--kinds", "some"], &["basic", "all"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_a_storage_says_who_has_it() {
    let server = ApiServer::start(&[]).await;
    let state = server.state_dir().display().to_string();
    let (code, _, error) = run(&["apiserver", "--state-dir", &state, "--listen", "127.0.0.1:0"], server.dir()).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("another kubefold process uses it"), "{error}");
    let storage = format!("sqlite:{state}");
    let args = ["apiserver", "--state-dir", "other", "--listen", "127.0.0.1:0", "--storage", &storage];
    let (code, _, error) = run(&args, server.dir()).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.contains("another process serves")
            && error.lines().filter(|line| line.starts_with("kubefold:")).count() == 1,
        "{error}"
    );
    server.as_admin().run(&["get", "namespaces"]).await.ok();
}

/// Who has no right is refused in Kubernetes' words, until a binding gives it.
#[tokio::test(flavor = "multi_thread")]
async fn rights_come_from_roles_and_bindings() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.csv");
    fs::write(&tokens, "jane-t0ken,jane,7,\"dev\"\n").unwrap();
    let tokens = tokens.display().to_string();
    let server = ApiServer::start(&["--token-auth-file", &tokens]).await;
    let (admin, jane) = (server.as_admin(), server.with_token("jane", "jane-t0ken"));
    let refused = jane.run(&["get", "configmaps"]).await;
    let words = "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert!(refused.refused().contains(words), "{refused}");
    assert!(jane.run(&["auth", "can-i", "list", "configmaps"]).await.stdout.starts_with("no"));
    admin.run(&["create", "rolebinding", "dev", "--clusterrole=edit", "--group=dev"]).await.ok();
    eventually(SOON, async || jane.run(&["get", "configmaps"]).await.holds("").map(drop)).await;
    jane.run(&["create", "configmap", "hers"]).await.ok();
    assert!(jane.run(&["auth", "can-i", "list", "configmaps"]).await.ok().starts_with("yes"));
    assert!(jane.run(&["get", "configmaps", "-n", "kube-system"]).await.refused().contains("forbidden"));
    // Nobody grants what he has not, and nobody becomes somebody else without the right.
    let grant = jane.run(&["create", "rolebinding", "all", "--clusterrole=cluster-admin", "--user=jane"]).await;
    assert!(grant.refused().contains("forbidden"), "{grant}");
    let other = jane.run(&["--as=admin", "get", "configmaps"]).await;
    assert!(other.refused().contains("cannot impersonate"), "{other}");
    assert_eq!(
        admin.run(&["--as=jane", "--as-group=dev", "auth", "can-i", "list", "secrets", "-A"]).await.stdout.trim(),
        "no"
    );
    let nobody = server.with_token("nobody", "wrong").run(&["get", "configmaps"]).await;
    assert!(nobody.refused().contains("Unauthorized") || nobody.stderr.contains("must be logged in"), "{nobody}");
}

/// Single sign-on, and a webhook: another server's reviews of tokens.
#[tokio::test(flavor = "multi_thread")]
async fn people_log_in_by_the_word_of_others() {
    let bed = Testbed::shared(&["east"]).await;
    let mut provider = Provider::start(&bed["east"]).await;
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).display().to_string()
    };
    let tokens = file("tokens.csv", "of-eve,eve,7,\"dev\"\n");
    let knowing = ApiServer::start(&["--token-auth-file", &tokens]).await;
    let reviews = format!("https://{}/apis/authentication.k8s.io/v1/tokenreviews", knowing.addr());
    let kubeconfig = fs::read_to_string(knowing.kubeconfig()).unwrap();
    let webhook = file("webhook.kubeconfig", &kubeconfig.replace(&format!("https://{}", knowing.addr()), &reviews));
    let sso = file("authentication.yaml", &provider.configuration(&bed["east"]));
    let flags = ["--authentication-config", &sso, "--authentication-token-webhook-config-file", &webhook];
    let server = ApiServer::start(&flags).await;
    let admin = server.as_admin();
    admin.run(&["create", "rolebinding", "sso", "--clusterrole=edit", "--group=oidc:dev"]).await.ok();
    admin.run(&["create", "rolebinding", "hook", "--clusterrole=view", "--group=dev"]).await.ok();

    let jane = server.with_token("jane", &provider.token("jane", "dev").await);
    let eve = server.with_token("eve", "of-eve");
    let who = async |kubectl: &Kubectl| {
        let who: Value = serde_json::from_str(kubectl.run(&["auth", "whoami", "-o", "json"]).await.ok()).unwrap();
        who["status"]["userInfo"].clone()
    };
    let said = who(&jane).await;
    assert_eq!((&said["username"], &said["groups"][0]), (&json!("oidc:jane"), &json!("oidc:dev")), "{said}");
    let said = who(&eve).await;
    assert_eq!((&said["username"], &said["uid"]), (&json!("eve"), &json!("7")), "{said}");
    jane.run(&["create", "configmap", "hers"]).await.ok();
    eve.run(&["get", "configmap", "hers"]).await.ok();
    assert!(eve.run(&["delete", "configmap", "hers"]).await.refused().contains("forbidden"));
    let other = server.with_token("bob", &provider.token("bob", "sales").await).run(&["get", "configmaps"]).await;
    assert!(other.refused().contains("User \"oidc:bob\" cannot list"), "{other}");
    for wrong in ["of-nobody", "a.b.c"] {
        let nobody = server.with_token("nobody", wrong).run(&["get", "configmaps"]).await;
        assert!(!nobody.succeeded() && nobody.stderr.contains("must be logged in"), "{nobody}");
    }
    // The server's own users still log in while the webhook is away.
    drop(knowing);
    who(&jane).await;
    admin.run(&["get", "configmaps"]).await.ok();
}

/// Pods, and programs that run beside them, count on both.
#[tokio::test(flavor = "multi_thread")]
async fn every_namespace_has_an_account_and_the_servers_authority() {
    let mut server = ApiServer::start(&[]).await;
    let authority = async |server: &ApiServer, namespace: &str| {
        let of = ["get", "configmap", "kube-root-ca.crt", "-n", namespace, "-o", "jsonpath={.data.ca\\.crt}"];
        let found = server.as_admin().run(&of).await;
        if found.succeeded() { Ok(found.stdout) } else { Err(found) }
    };
    let has_all = async |server: &ApiServer, namespace: &str| {
        eventually(SOON, async || {
            let account = server.as_admin().run(&["get", "serviceaccount", "default", "-n", namespace]).await;
            if account.succeeded() { authority(server, namespace).await } else { Err(account) }
        })
        .await
    };
    server.as_admin().run(&["create", "namespace", "team"]).await.ok();
    let ca = has_all(&server, "team").await;
    assert_eq!(has_all(&server, "kube-system").await, ca);
    // A program that has a token, the authority and the address needs nothing else.
    let token = server.as_admin().run(&["create", "token", "default", "-n", "team"]).await.ok().trim().to_owned();
    let file = server.dir().join("root-ca.crt");
    fs::write(&file, &ca).unwrap();
    let url = format!("https://{}", server.addr());
    let with = ["--kubeconfig=/dev/null", "--server", &url, "--token", &token, "--certificate-authority"];
    let said = server.as_admin().run(&[&with[..], &[file.to_str().unwrap(), "auth", "whoami"]].concat()).await;
    assert!(said.ok().contains("system:serviceaccount:team:default"), "{said}");

    let admin = server.as_admin();
    admin.run(&["delete", "serviceaccount", "default", "-n", "team"]).await.ok();
    admin.run(&["delete", "configmap", "kube-root-ca.crt", "-n", "team"]).await.ok();
    assert_eq!(has_all(&server, "team").await, ca);
    let patch = r#"{"data":{"ca.crt":"none","other":"x"}}"#;
    admin.run(&["patch", "configmap", "kube-root-ca.crt", "-n", "team", "--type=merge", "-p", patch]).await.ok();
    let is_back = async || {
        let data = ["get", "configmap", "kube-root-ca.crt", "-n", "team", "-o", "jsonpath={.data}"];
        let data: Value = serde_json::from_str(server.as_admin().run(&data).await.ok()).unwrap();
        if data == json!({"ca.crt": ca}) { Ok(()) } else { Err(data) }
    };
    eventually(SOON, is_back).await;
    server.restart().await;
    let admin = server.as_admin();
    admin.run(&["delete", "namespace", "team", "--wait"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_service_account_logs_in_until_its_account_is_gone() {
    let mut server = ApiServer::start(&[]).await;
    let admin = server.as_admin();
    admin.run(&["create", "serviceaccount", "robot"]).await.ok();
    admin.run(&["create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot"]).await.ok();
    let token = admin.run(&["create", "token", "robot", "--duration=1h"]).await.ok().trim().to_owned();
    // The key is in the state directory: a restart changes nothing.
    server.restart().await;
    let (admin, robot) = (server.as_admin(), server.with_token("robot", &token));
    robot.run(&["get", "configmaps"]).await.ok();
    assert!(robot.run(&["create", "configmap", "x"]).await.refused().contains("forbidden"));
    let who: Value = serde_json::from_str(robot.run(&["auth", "whoami", "-o", "json"]).await.ok()).unwrap();
    let info = &who["status"]["userInfo"];
    assert_eq!(info["username"], "system:serviceaccount:default:robot");
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert_eq!(info["groups"], groups);

    let review = async |token: &str, audiences: &[&str]| {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences},
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        server.api().await.request(Method::POST, path, review.to_string()).await.json()["status"].clone()
    };
    let said = review(&token, &[]).await;
    assert_eq!((&said["authenticated"], &said["user"]["username"]), (&json!(true), &info["username"]), "{said}");
    assert_eq!(review(&token, &["vault"]).await["authenticated"], Value::Null);
    let forged = format!("{}x", &token[..token.len() - 2]);
    assert_eq!(review(&forged, &[]).await["authenticated"], Value::Null);
    let for_vault = admin.run(&["create", "token", "robot", "--audience=vault"]).await.ok().trim().to_owned();
    assert_eq!(review(&for_vault, &["vault", "other"]).await["audiences"], json!(["vault"]));
    let vault = server.with_token("vault", &for_vault).run(&["get", "configmaps"]).await;
    assert!(!vault.succeeded(), "a token for somebody else is none for this server: {vault}");

    admin.run(&["delete", "serviceaccount", "robot"]).await.ok();
    admin.run(&["create", "serviceaccount", "robot"]).await.ok();
    let gone = robot.run(&["get", "configmaps"]).await;
    assert!(!gone.succeeded(), "another account of that name: {gone}");
}

/// An answer about tokens without what each server makes by itself: times, ids, and who it is.
fn alike(answer: &Answer) -> Value {
    let parse = |text: &str| -> Value {
        let issuers = ["\"https://kubernetes.default.svc.cluster.local\"", "\"https://kubernetes.default.svc\""];
        serde_json::from_str(&issuers.iter().fold(text.to_owned(), |text, url| text.replace(url, "\"issuer\"")))
            .unwrap()
    };
    let mut body = parse(std::str::from_utf8(&answer.body).unwrap());
    // This server does not say who has the fields of a request that nobody stores.
    for field in ["creationTimestamp", "uid", "managedFields"] {
        body["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
    }
    if let Some(token) = body.pointer("/status/token").and_then(Value::as_str) {
        let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        let mut claims = parse(std::str::from_utf8(&claims).unwrap());
        let life = claims["exp"].as_u64().unwrap() - claims["nbf"].as_u64().unwrap();
        for own in ["exp", "iat", "nbf", "jti"] {
            assert!(!claims.as_object_mut().unwrap().remove(own).unwrap().is_null(), "{own}");
        }
        for bound in claims["kubernetes.io"].as_object_mut().unwrap().values_mut().filter(|one| one.is_object()) {
            assert!(bound.as_object_mut().unwrap().remove("uid").is_some());
        }
        body["status"] = json!({"claims": claims, "life": life});
    }
    if let Some(extra) = body.pointer_mut("/status/user/extra").and_then(Value::as_object_mut) {
        extra.values_mut().for_each(|value| *value = json!("of this token"));
    }
    body.pointer_mut("/status/user").and_then(Value::as_object_mut).map(|user| user.remove("uid"));
    // Each says in its own words why a token is nobody's; the spec has the token itself.
    if let Some(error) = body.pointer_mut("/status/error") {
        *error = json!("told");
    }
    if body["kind"] == "TokenReview" {
        body.as_object_mut().unwrap().remove("spec");
    }
    json!({"code": answer.status.as_u16(), "body": body})
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_made_and_reviewed_as_a_kube_apiserver_does() {
    let bed = Testbed::shared(&["east"]).await;
    let server = ApiServer::start(&[]).await;
    let apis = [bed["east"].api().await, server.api().await];
    let post = async |path: &str, body: &Value| {
        let mut answers = Vec::new();
        for api in &apis {
            answers.push(api.request(Method::POST, path, body.to_string()).await);
        }
        answers
    };
    let object = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let within = "/api/v1/namespaces/token-requests";
    post("/api/v1/namespaces", &object("Namespace", "token-requests")).await;
    post(&format!("{within}/serviceaccounts"), &object("ServiceAccount", "robot")).await;
    post(&format!("{within}/secrets"), &object("Secret", "bound")).await;
    let bound = |kind: &str, version: &str, name: &str, uid: &str| {
        let mut reference = json!({"kind": kind, "apiVersion": version, "name": name});
        if !uid.is_empty() {
            reference["uid"] = uid.into();
        }
        json!({"boundObjectRef": reference})
    };
    for (account, spec) in [
        ("robot", json!({})),
        ("robot", json!({"expirationSeconds": 7200, "audiences": ["a", "b"]})),
        ("robot", json!({"expirationSeconds": 599})),
        ("robot", json!({"expirationSeconds": (1_u64 << 32) + 1})),
        ("robot", bound("Secret", "v1", "bound", "")),
        ("robot", bound("Secret", "v1", "bound", "another")),
        ("robot", bound("Secret", "v1", "missing", "")),
        ("robot", bound("Deployment", "apps/v1", "web", "")),
        ("nobody", json!({})),
    ] {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let answers = post(&format!("{within}/serviceaccounts/{account}/token"), &request).await;
        assert_eq!(alike(&answers[0]), alike(&answers[1]), "{account} {spec}");
        let Some(tokens) = answers
            .iter()
            .map(|answer| answer.json()["status"]["token"].as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
        else {
            continue;
        };
        for audiences in [json!([]), json!(["a", "x"]), json!(["x"])] {
            let mut reviews = Vec::new();
            for (api, token) in apis.iter().zip(&tokens) {
                let spec = json!({"token": token, "audiences": audiences});
                let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
                let path = "/apis/authentication.k8s.io/v1/tokenreviews";
                reviews.push(alike(&api.request(Method::POST, path, review.to_string()).await));
            }
            assert_eq!(reviews[0], reviews[1], "{spec} {audiences}");
        }
    }
    for (name, namespace) in [("another", "token-requests"), ("robot", "default"), ("robot", "token-requests")] {
        let metadata = json!({"name": name, "namespace": namespace});
        let request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata, "spec": {}});
        let answers = post(&format!("{within}/serviceaccounts/robot/token"), &request).await;
        assert_eq!(alike(&answers[0]), alike(&answers[1]), "{metadata}");
    }
    for token in ["", "garbage", "a.b.c"] {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answers = post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
        assert_eq!(alike(&answers[0]), alike(&answers[1]), "{token:?}");
    }
}

/// What both servers say of their keys, without the keys.
fn keys_alike(answer: &Answer, server: &str) -> Value {
    let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let text = String::from_utf8(answer.body.to_vec()).unwrap().replace(server, "https://server");
    let mut body: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
    for key in body["keys"].as_array_mut().into_iter().flatten() {
        for own in ["kid", "x", "y"] {
            assert_eq!(URL_SAFE_NO_PAD.decode(key[own].as_str().unwrap()).unwrap().len(), 32, "{own}");
            key[own] = json!("of this server");
        }
    }
    if let Some(issuer) = body.get_mut("issuer") {
        *issuer = json!("issuer");
    }
    json!({"code": answer.status.as_u16(), "type": header("content-type"), "cache": header("cache-control"), "body": body})
}

/// Others check tokens by keys that every ServiceAccount may read.
#[tokio::test(flavor = "multi_thread")]
async fn the_keys_that_sign_tokens_are_told_as_by_a_kube_apiserver() {
    let bed = Testbed::shared(&["east"]).await;
    let server = ApiServer::start(&[]).await;
    let (east, api) = (bed["east"].api().await, server.api().await);
    let own_url = format!("https://{}", server.addr());
    const KEYS: &str = "/openid/v1/jwks";
    for path in [KEYS, "/openid/v1/jwks/", "/.well-known/openid-configuration", "/.well-known/openid-configuration/"] {
        let accepts = ["application/json", "application/jwk-set+json", "*/*", "application/*"];
        for (method, accept) in accepts.map(|accept| (Method::GET, accept)).into_iter().chain([(Method::POST, "*/*")]) {
            let ask = async |api: &Api| {
                let request = Request::builder().method(method.clone()).uri(path).header("accept", accept);
                api.send(request.body(Bytes::new()).unwrap()).await.unwrap()
            };
            let (said, told) = (ask(&east).await, ask(&api).await);
            let (said, told) = (keys_alike(&said, &bed["east"].server_url()), keys_alike(&told, &own_url));
            assert_eq!(said, told, "{method} {path} {accept}");
        }
    }
    let admin = server.as_admin();
    admin.run(&["create", "serviceaccount", "robot"]).await.ok();
    let token = admin.run(&["create", "token", "robot"]).await.ok().trim().to_owned();
    let keys = server.with_token("robot", &token).run(&["get", "--raw", KEYS]).await;
    let keys: JwkSet = serde_json::from_str(keys.ok()).unwrap();
    let name = jsonwebtoken::decode_header(&token).unwrap().kid.unwrap();
    let key = DecodingKey::from_jwk(keys.find(&name).unwrap()).unwrap();
    let mut validation = Validation::new(Algorithm::ES256);
    validation.validate_aud = false;
    let claims = jsonwebtoken::decode::<Value>(&token, &key, &validation).unwrap().claims;
    assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
    let jane = admin.run(&["--as=jane", "get", "--raw", KEYS]).await;
    assert!(jane.refused().contains("User \"jane\" cannot get path \"/openid/v1/jwks\""), "{jane}");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_metrics_and_the_audit_log_say_what_happens() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let path = log.display().to_string();
    let server = ApiServer::start(&["--audit-log-path", &path]).await;
    let api = server.api().await;
    let text = async |api: &Api, path: &str| {
        let answer = api.request(Method::GET, path, "").await;
        assert_eq!(answer.status, StatusCode::OK, "{answer}");
        String::from_utf8(answer.body.to_vec()).unwrap()
    };
    for path in ["/healthz", "/livez", "/readyz", "/readyz/etcd"] {
        assert_eq!(text(&api, path).await, "ok", "{path}");
    }
    assert!(text(&api, "/readyz?verbose").await.contains("[+]etcd ok\n"));
    server.as_admin().run(&["create", "configmap", "seen"]).await.ok();
    let _watch = api.watch("/api/v1/configmaps?watch=1").await;
    let metrics = text(&api, "/metrics").await;
    let docs = include_str!("../../docs/metrics.md");
    for name in
        metrics.lines().filter(|line| line.starts_with("kubefold_")).filter_map(|line| line.split(['{', ' ']).next())
    {
        let base = ["_bucket", "_sum", "_count"].iter().fold(name, |name, end| name.trim_end_matches(end));
        assert!(docs.contains(&format!("`{base}`")), "{name} is not in docs/metrics.md");
    }
    for part in [
        "kubefold_http_requests_total{view=\"apiserver\",verb=\"create\",resource=\"configmaps\",code=\"201\"} 1",
        "kubefold_http_open_watches{resource=\"configmaps\"} 1",
        "kubefold_storage_ready 1",
        "kubefold_storage_revision ",
        "kubefold_storage_object_bytes ",
        "kubefold_certificate_expiry_seconds{certificate=\"serving\"}",
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(part)), "{part}: {metrics}");
    }
    let event = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_default();
    let created = eventually(SOON, async || {
        let text = fs::read_to_string(&log).unwrap();
        let is_it = |event: &Value| event["verb"] == "create" && event["objectRef"]["name"] == "seen";
        text.lines().map(event).find(is_it).ok_or("no event")
    })
    .await;
    assert_eq!(created["user"]["username"], "kubefold-admin");
    assert_eq!(created["annotations"]["authorization.k8s.io/decision"], "allow");
    // Metrics are for those whose roles say so.
    let jane = server.as_admin().run(&["--as=jane", "get", "--raw=/metrics"]).await;
    assert!(jane.refused().contains("User \"jane\" cannot get path \"/metrics\""), "{jane}");
}

/// The database goes away, and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_database_is_away_is_not_ready_and_reads_go_on() {
    let postgres = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("database");
    postgres.link(&link);
    let url = postgres.url_through("away", &link);
    let server = ApiServer::start(&["--storage", &url]).await;
    server.as_admin().run(&["create", "configmap", "kept"]).await.ok();
    let api = server.api().await;
    fs::remove_file(&link).unwrap();
    postgres.cut();
    let is = async |status: StatusCode| {
        let answer = api.try_request(Method::GET, "/readyz", "").await?;
        if answer.status == status { Ok(()) } else { Err(answer.to_string()) }
    };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "refused"}});
    let path = "/api/v1/namespaces/default/configmaps";
    let refused = api.request(Method::POST, path, map.to_string()).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    eventually(SOON, async || is(StatusCode::INTERNAL_SERVER_ERROR).await).await;
    assert_eq!(api.request(Method::GET, "/livez", "").await.status, StatusCode::OK);
    server.as_admin().run(&["get", "configmap", "kept"]).await.ok();
    postgres.link(&link);
    eventually(SOON, async || is(StatusCode::OK).await).await;
    server.as_admin().run(&["create", "configmap", "after"]).await.ok();
}
