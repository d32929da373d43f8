//! A kind of a Rust type, and the definition that says the same at a kube-apiserver: good and wrong requests, and the same
//! answers.

use std::time::Duration;

use kubefold_apiserver::{Kind, Server as Own, TypedKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::writes::{Server, Step, step};
use testbed::{Member, MemberOptions, eventually};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Post {
    spec: PostSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<PostStatus>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct PostSpec {
    #[schemars(length(min = 1, max = 10))]
    title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    #[serde(default)]
    replicas: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mood: Option<Mood>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Mood {
    Good,
    Bad,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct PostStatus {
    #[serde(default)]
    replicas: i32,
}

fn post() -> TypedKind<Post> {
    Kind::of::<Post>("blog.example.com", "v1", "Post")
        .schema()
        .short_name("po")
        .column("Title", "string", ".spec.title")
        .selectable_field(".spec.author")
        .status()
        .scale(".spec.replicas", ".status.replicas", None)
}

const POSTS: &str = "/apis/blog.example.com/v1/namespaces/shop/posts";
const A: &str = "/apis/blog.example.com/v1/namespaces/shop/posts/a";

fn object(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "blog.example.com/v1", "kind": "Post", "metadata": {"name": name}, "spec": spec})
}

fn creates() -> Vec<Step> {
    let strict = "/apis/blog.example.com/v1/namespaces/shop/posts?fieldValidation=Strict";
    let good = json!({"title": "t", "author": "ann"});
    vec![
        step("POST", POSTS, object("a", &good)),
        step("POST", POSTS, object("a", &good)),
        step("POST", strict, object("b", &json!({"title": "t", "titel": "x"}))),
        step("POST", POSTS, object("dropped", &json!({"title": "t", "titel": "x"}))),
        step("POST", POSTS, object("b", &json!({"title": 7}))),
        step("POST", POSTS, object("b", &json!({"title": ""}))),
        step("POST", POSTS, object("b", &json!({"title": "much too long"}))),
        step("POST", POSTS, object("b", &json!({"title": "t", "replicas": "x"}))),
        step("POST", POSTS, object("b", &json!({"title": "t", "mood": "Odd"}))),
        step("POST", POSTS, object("b", &json!({"author": "ann"}))),
        step("POST", POSTS, object("b", &json!({"title": "t", "replicas": -1}))),
        step("POST", POSTS, object("A_b", &good)),
        step("POST", POSTS, object("", &good)),
        step("POST", POSTS, json!({"apiVersion": "blog.example.com/v1", "kind": "Post", "metadata": {"name": "b"}})),
        step(
            "POST",
            POSTS,
            json!({"apiVersion": "blog.example.com/v1", "kind": "Pst", "metadata": {"name": "b"}, "spec": good}),
        ),
        step(
            "POST",
            POSTS,
            json!({"apiVersion": "blog.example.com/v2", "kind": "Post", "metadata": {"name": "b"}, "spec": good}),
        ),
        step("POST", POSTS, json!({"metadata": {"name": "b"}, "spec": good})),
        step("POST", "/apis/blog.example.com/v1/namespaces/nope/posts", object("b", &good)),
        step("POST", "/apis/blog.example.com/v1/namespaces/shop/posts?dryRun=All", object("dry", &good)),
        step("GET", "/apis/blog.example.com/v1/namespaces/shop/posts/dry", Value::Null),
    ]
}

fn changes() -> Vec<Step> {
    let old = json!({
        "apiVersion": "blog.example.com/v1", "kind": "Post", "metadata": {"name": "a", "resourceVersion": "1"},
        "spec": {"title": "u"},
    });
    let same = json!({
        "apiVersion": "blog.example.com/v1", "kind": "Post", "spec": {"title": "u"},
        "metadata": {"name": "a", "uid": "{uid}", "resourceVersion": "{rv}"}, "status": {"replicas": 3},
    });
    let status = json!({"status": {"replicas": 2}, "spec": {"title": "ignored"}});
    let applied = "/apis/blog.example.com/v1/namespaces/shop/posts/a?fieldManager=applier";
    let forced = "/apis/blog.example.com/v1/namespaces/shop/posts/a?fieldManager=applier&force=true";
    vec![
        step("PUT", A, old),
        step("PUT", A, object("a", &json!({"title": "u"}))),
        step("PUT", A, same),
        step("PATCH", A, json!({"spec": {"title": "v", "author": "bob"}})),
        step("PATCH", A, json!({"spec": {"title": null}})),
        step("PATCH", A, json!({"metadata": {"name": "b"}})),
        step("PATCH", "/apis/blog.example.com/v1/namespaces/shop/posts/a/status", status),
        step("PATCH", "/apis/blog.example.com/v1/namespaces/shop/posts/a/status", json!({"status": {"replicas": "x"}})),
        step("GET", "/apis/blog.example.com/v1/namespaces/shop/posts/a/scale", Value::Null),
        step("PATCH", "/apis/blog.example.com/v1/namespaces/shop/posts/a/scale", json!({"spec": {"replicas": 5}})),
        step("PATCH", applied, object("a", &json!({"title": "w"}))),
        step("PATCH", forced, object("a", &json!({"title": "w"}))),
        step(
            "PATCH",
            "/apis/blog.example.com/v1/namespaces/shop/posts/made?fieldManager=applier",
            object("made", &json!({"title": "w"})),
        ),
        step("PUT", "/apis/blog.example.com/v1/namespaces/shop/posts/nope", object("nope", &json!({"title": "w"}))),
        step("GET", A, Value::Null),
        step("GET", "/apis/blog.example.com/v1/namespaces/shop/posts?fieldSelector=spec.author%3Dbob", Value::Null),
        step("GET", "/apis/blog.example.com/v1/namespaces/shop/posts?fieldSelector=spec.title%3Dw", Value::Null),
        step("GET", "/apis/blog.example.com/v1/namespaces/shop/posts/nope", Value::Null),
        step("GET", "/apis/blog.example.com/v1/namespaces/shop/posts/a/nope", Value::Null),
        step("DELETE", A, json!({"preconditions": {"uid": "another"}})),
        step("DELETE", A, Value::Null),
        step("DELETE", A, Value::Null),
    ]
}

#[tokio::test]
async fn a_kind_of_a_rust_type_answers_as_its_definition_does_at_a_kube_apiserver() {
    let east = Member::start("typed", MemberOptions::default()).await;
    let api = east.api().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.create(definitions, post().definition()).await;
    let served = async || {
        let answer = api.request(http::Method::GET, "/apis/blog.example.com/v1/posts", "").await;
        if answer.status == 200 { Ok(()) } else { Err(answer.status) }
    };
    eventually(Duration::from_secs(60), served).await;
    let running = Own::new().kind(post()).start().await.unwrap();
    let (real, own) = (Server::Real(Box::new(api)), Server::Embedded(running.service()));
    let shop = step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "shop"}}));
    for server in [&real, &own] {
        assert_eq!(server.answer(&shop).await.0, 201);
    }
    let mut wrong = String::new();
    for step in creates().iter().chain(&changes()) {
        let (said, told) = (real.answer(step).await, own.answer(step).await);
        if said != told {
            let Step { method, path, body } = step;
            wrong.push_str(&format!(
                "{method} {path} {body}\n  said {} {}\n  told {} {}\n\n",
                said.0, said.1, told.0, told.1
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    running.end().await;
}
