//! The examples, with the real kubectl against them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: a failure is a failed test, in their helper functions too"
)]

use std::time::Duration;

use serde_json::{Value, json};
use testbed::{Kubectl, Output, Port, Process, eventually};

/// An example that runs, and a kubectl for it.
struct Served {
    kubectl: Kubectl,
    process: Process,
    _port: Port,
    _home: tempfile::TempDir,
}

impl Served {
    async fn start(example: &str) -> Self {
        let (port, home) = (Port::reserve(), tempfile::tempdir().unwrap());
        let config = home.path().join("kubeconfig");
        let cluster = json!({"name": "c", "cluster": {"server": format!("http://{}", port.addr())}});
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        });
        std::fs::write(&config, text.to_string()).unwrap();
        let process = Process::spawn(example, &testbed::example(example), &[port.addr()], &home.path().join("log"));
        let kubectl = Kubectl::new(&config, home.path());
        let ready = async || kubectl.run(&["get", "--raw", "/readyz"]).await.holds("ok");
        eventually(Duration::from_secs(60), ready).await;
        Self { kubectl, process, _port: port, _home: home }
    }

    /// Ends it as an operator does; it must not need to be killed.
    async fn end(mut self) {
        let ended = self.process.terminate(Duration::from_secs(60)).await;
        assert!(ended.success(), "{ended}: {}", self.process.tail());
    }
}

async fn send(kubectl: &Kubectl, args: &[&str], object: &Value) -> Output {
    kubectl.run_with_input(&[args, &["-f", "-"]].concat(), &object.to_string()).await
}

fn post(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "blog.example.com/v1", "kind": "Post", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_blog_is_created_read_applied_edited_explained_awaited_and_deleted() {
    let served = Served::start("blog").await;
    let kubectl = &served.kubectl;
    let hello = post("hello", json!({"title": " Hello ", "body": "text"}));
    assert_eq!(send(kubectl, &["create"], &hello).await.ok(), "post.blog.example.com/hello created\n");
    let table = kubectl.run(&["get", "po"]).await;
    let words: Vec<Vec<&str>> = table.ok().lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words, [["NAME", "TITLE", "AUTHOR"], ["hello", "Hello", "admin"]]);
    let changed = post("hello", json!({"title": "Hello", "body": "other"}));
    send(kubectl, &["apply"], &hello).await.ok();
    assert_eq!(send(kubectl, &["apply"], &changed).await.ok(), "post.blog.example.com/hello configured\n");
    kubectl.with_editor("sed -i s/other/edited/").run(&["edit", "po", "hello"]).await.ok();
    let views = r#"{"status":{"views":3}}"#;
    kubectl.run(&["patch", "po", "hello", "--subresource=status", "--type=merge", "-p", views]).await.ok();
    kubectl.run(&["wait", "po/hello", "--for=jsonpath={.status.views}=3", "--timeout=30s"]).await.ok();
    let path = "jsonpath={.spec.body} {.spec.author} {.metadata.generation}";
    assert_eq!(kubectl.run(&["get", "po", "hello", "-o", path]).await.ok(), "edited admin 3");
    let explained = kubectl.run(&["explain", "post.spec.title"]).await;
    assert!(explained.ok().contains("The headline, of at most 80 characters."), "{explained}");
    let selected = kubectl.run(&["get", "po", "--field-selector=spec.author=admin", "-o", "name"]).await;
    assert_eq!(selected.ok(), "post.blog.example.com/hello\n");
    kubectl.run(&["delete", "po", "hello"]).await.ok();
    assert_eq!(kubectl.run(&["get", "po", "-o", "name"]).await.ok(), "");
    served.end().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_post_is_said_as_kubernetes_says_it() {
    let served = Served::start("blog").await;
    let kubectl = &served.kubectl;
    let good = post("good", json!({"title": "Good"}));
    send(kubectl, &["create"], &good).await.ok();
    let stale = json!({
        "apiVersion": "blog.example.com/v1", "kind": "Post", "metadata": {"name": "good", "resourceVersion": "1"},
        "spec": {"title": "Better"},
    });
    let nameless = json!({"apiVersion": "blog.example.com/v1", "kind": "Post", "spec": {"title": "t"}});
    let long = "x".repeat(81);
    let cases: Vec<(&[&str], Value, String)> = vec![
            (&["create"], good, "posts.blog.example.com \"good\" already exists".to_owned()),
            (&["create"], post("a", json!({"title": "t", "titel": "x"})), "strict decoding error: unknown field \"spec.titel\"".to_owned()),
            (
                &["create"],
                post("a", json!({"title": 7})),
                "The Post \"a\" is invalid: spec.title: Invalid value: \"integer\": spec.title in body must be of type string: \"integer\"".to_owned(),
            ),
            (&["create"], post("a", json!({"body": "b"})), "The Post \"a\" is invalid: spec.title: Required value".to_owned()),
            (&["create"], post("a", json!({"title": " "})), "The Post \"a\" is invalid: spec.title: Required value: a post has a headline".to_owned()),
            (
                &["create"],
                post("a", json!({"title": long})),
                format!("spec.title: Invalid value: \"{long}\": may not have more than 80 characters"),
            ),
            (&["create"], post("A_b", json!({"title": "t"})), "metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain".to_owned()),
            (&["create"], nameless, "name or generateName is required".to_owned()),
            (
                &["replace"],
                stale,
                "Operation cannot be fulfilled on posts.blog.example.com \"good\": the object has been modified; please \
                 apply your changes to the latest version and try again"
                    .to_owned(),
            ),
        ];
    for (args, object, wanted) in cases {
        let output = send(kubectl, args, &object).await;
        assert!(output.refused().contains(&wanted), "{wanted}: {output}");
    }
    let missing = kubectl.run(&["get", "po", "nope"]).await;
    assert_eq!(missing.refused(), "Error from server (NotFound): posts.blog.example.com \"nope\" not found\n");
    let selected = kubectl.run(&["get", "po", "--field-selector=spec.title=x"]).await;
    assert!(selected.refused().contains("field label not supported: spec.title"), "{selected}");
    served.end().await;
}

#[tokio::test]
async fn namespaces_end_with_what_is_in_them() {
    let served = Served::start("blog").await;
    let kubectl = &served.kubectl;
    kubectl.run(&["create", "namespace", "team"]).await.ok();
    let there = kubectl.in_namespace("team");
    send(&there, &["create"], &post("a", json!({"title": "t"}))).await.ok();
    kubectl.run(&["delete", "namespace", "team", "--timeout=60s"]).await.ok();
    assert_eq!(kubectl.run(&["get", "po", "-A", "-o", "name"]).await.ok(), "");
    let refused = send(&there, &["create"], &post("a", json!({"title": "t"}))).await;
    assert!(refused.refused().contains("namespaces \"team\" not found"), "{refused}");
    served.end().await;
}

#[tokio::test]
async fn a_fortune_is_made_up_and_made_elsewhere() {
    let served = Served::start("fortune").await;
    let kubectl = &served.kubectl;
    let all = kubectl.run(&["get", "fortunes"]).await;
    assert!(all.ok().contains("noon      Your next rollout is smooth."), "{all}");
    let object = json!({
        "apiVersion": "oracle.example.com/v1", "kind": "Fortune", "metadata": {"name": "mine"}, "question": "Will it?",
    });
    let dry = send(kubectl, &["create", "--dry-run=server"], &object).await;
    assert_eq!(dry.ok(), "fortune.oracle.example.com/mine created (server dry run)\n");
    let none = kubectl.run(&["get", "fortune", "mine"]).await;
    assert!(none.refused().contains("fortunes.oracle.example.com \"mine\" not found"), "{none}");
    send(kubectl, &["create"], &object).await.ok();
    let mine = kubectl.run(&["get", "fortune", "mine", "-o", "jsonpath={.saying} {.question}"]).await;
    assert_eq!(mine.ok(), "admin, it will be so. Will it?");
    let again = send(kubectl, &["create"], &object).await;
    assert!(again.refused().contains("the oracle repeats nothing"), "{again}");
    let patch = [r#"{"question":"Really?"}"#];
    kubectl.run(&["patch", "fortune", "mine", "--type=merge", "-p", patch[0]]).await.ok();
    let eternal = kubectl.run(&["delete", "fortune", "noon"]).await;
    assert!(eternal.refused().contains("\"Your next rollout is smooth.\" is eternal"), "{eternal}");
    kubectl.run(&["delete", "fortune", "mine", "--wait=false"]).await.ok();
    let selected = kubectl.run(&["get", "fortunes", "--field-selector=metadata.name=night", "-o", "name"]).await;
    assert_eq!(selected.ok(), "fortune.oracle.example.com/night\n");
    served.end().await;
}

fn flunder(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("wardle.example.com/{version}"), "kind": "Flunder", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn flunders_are_converted_or_refused() {
    let served = Served::start("wardle").await;
    let kubectl = &served.kubectl;
    let old = "flunders.v1alpha1.wardle.example.com";
    send(kubectl, &["create"], &flunder("v1alpha1", "a", json!({"reference": "x"}))).await.ok();
    let hub = kubectl.run(&["get", "flunder", "a", "-o", "jsonpath={.apiVersion} {.spec}"]).await;
    assert_eq!(hub.ok(), r#"wardle.example.com/v1beta1 {"flunderReference":"x","referenceType":"Flunder"}"#);
    let shown = kubectl.run(&["get", old, "a", "-o", "jsonpath={.apiVersion} {.spec}"]).await;
    assert_eq!(shown.ok(), r#"wardle.example.com/v1alpha1 {"reference":"x","referenceType":"Flunder"}"#);
    let both = json!({"flunderReference": "x", "fischerReference": "y"});
    let why = "The Flunder \"b\" is invalid: spec.fischerReference: Invalid value: \"y\": cannot be set with \
               flunderReference at the same time";
    for args in [vec!["create"], vec!["create", "--dry-run=server"]] {
        let refused = send(kubectl, &args, &flunder("v1beta1", "b", both.clone())).await;
        assert!(refused.refused().contains(why), "{refused}");
    }
    served.end().await;
}

#[tokio::test]
async fn a_fischer_bans_flunders() {
    let served = Served::start("wardle").await;
    let kubectl = &served.kubectl;
    let fischer = json!({
        "apiVersion": "wardle.example.com/v1alpha1", "kind": "Fischer", "metadata": {"name": "f"}, "disallowedFlunders": ["bad"],
    });
    send(kubectl, &["create"], &fischer).await.ok();
    for version in ["v1alpha1", "v1beta1"] {
        let refused = send(kubectl, &["create"], &flunder(version, "bad", json!({}))).await;
        let why = "(Forbidden): error when creating \"STDIN\": flunders.wardle.example.com \"bad\" is forbidden: this name \
                       may not be used, please change the resource name";
        assert!(refused.refused().contains(why), "{refused}");
    }
    send(kubectl, &["create"], &flunder("v1beta1", "good", json!({}))).await.ok();
    served.end().await;
}

#[tokio::test]
async fn an_operator_makes_pages_and_they_go_with_their_site() {
    let served = Served::start("operator").await;
    let kubectl = &served.kubectl;
    let site = json!({
        "apiVersion": "site.example.com/v1", "kind": "Site", "metadata": {"name": "home"},
        "spec": {"titles": ["One", "Two"]},
    });
    send(kubectl, &["create"], &site).await.ok();
    kubectl.run(&["wait", "site/home", "--for=jsonpath={.status.pages}=2", "--timeout=60s"]).await.ok();
    let pages = kubectl.run(&["get", "pages", "-o", "jsonpath={.items[*].title}"]).await;
    assert_eq!(pages.ok(), "One Two");
    kubectl.run(&["delete", "site", "home", "--timeout=60s"]).await.ok();
    eventually(Duration::from_secs(30), async || match kubectl.run(&["get", "pages", "-o", "name"]).await.ok() {
        "" => Ok(()),
        left => Err(left.to_owned()),
    })
    .await;
    served.end().await;
}
