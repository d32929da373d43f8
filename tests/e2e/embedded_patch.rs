//! Patches, applies and managed fields: what a kube-apiserver makes of a script of writes is what
//! `kubefold::apiserver::patch` makes of them, write by write.
//!
//! The script speaks HTTP only, so that it runs against any API server. `KUBEFOLD_RECORD=1` writes what the
//! kube-apiserver did to `src/apiserver/patch/tests/recorded.json`, which unit tests hold without a cluster.

#[path = "../../src/apiserver/patch/tests/judge.rs"]
mod judge;
mod script;

mod under_test {
    pub(super) use kubefold::{
        apiserver::{patch, schema},
        wire::status::Status,
    };
}

use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use serde_json::Value;

use crate::{
    objects::namespace,
    support::{Api, Member, MemberOptions, eventually},
};
use judge::{Recording, Write};
use script::{Body, Step};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/apiserver/patch/tests/recorded.json");

#[tokio::test]
async fn patches_and_applies_come_out_as_at_a_kube_apiserver() {
    let east = Member::start("east", MemberOptions::default()).await;
    namespace(&east, "shop").await;
    let recording = play(&east.api().await).await;
    if std::env::var_os("KUBEFOLD_RECORD").is_some() {
        std::fs::write(RECORDED, recording.to_text()).unwrap();
    }
    let mut wrong = String::new();
    for write in &recording.writes {
        if let Err(why) = judge::judge(&recording, write) {
            wrong.push_str(&format!("{}: {} {}: {why}\n\n", write.what, write.method, write.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Runs the script against an API server.
pub(crate) async fn play(api: &Api) -> Recording {
    let definitions = script::definitions();
    for definition in &definitions {
        api.create(DEFINITIONS, definition).await;
    }
    for list in script::CUSTOM {
        eventually(Duration::from_secs(30), async || {
            let served = api.request(Method::GET, list, "").await;
            if served.status.is_success() { Ok(()) } else { Err(served) }
        })
        .await;
    }
    let mut writes = Vec::new();
    for step in script::steps() {
        writes.push(perform(api, step).await);
    }
    Recording { definitions, writes }
}

async fn perform(api: &Api, step: Step) -> Write {
    let object = step.path.split('?').next().unwrap_or_default().to_owned();
    let whole = object.trim_end_matches("/status").trim_end_matches("/scale").to_owned();
    let before = match step.method {
        "POST" => Value::Null,
        _ => {
            let found = api.request(Method::GET, &whole, "").await;
            if found.status == StatusCode::NOT_FOUND { Value::Null } else { found.ok() }
        }
    };
    let body = match step.body {
        Body::Json(body) => body.to_string(),
        Body::Text(body) => body,
        Body::Changed(change) => {
            let mut body = before.clone();
            change(&mut body);
            body.to_string()
        }
    };
    let request = Request::builder()
        .method(step.method)
        .uri(&step.path)
        .header(header::CONTENT_TYPE, step.content_type)
        .header(header::USER_AGENT, step.agent)
        .header(header::ACCEPT, "application/json")
        .body(body.clone().into())
        .unwrap();
    let answer = api.send(request).await.unwrap();
    Write {
        what: step.what.to_owned(),
        method: step.method.to_owned(),
        path: step.path,
        agent: step.agent.to_owned(),
        content_type: step.content_type.to_owned(),
        body,
        filled: step.filled,
        before,
        code: answer.status.as_u16(),
        // Of a scale, the object it is of.
        answer: if answer.status.is_success() && object.ends_with("/scale") {
            api.get(&whole).await
        } else {
            answer.json()
        },
    }
}
