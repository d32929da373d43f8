//! A controller of kube-rs (`tests/clients/kube-rs/src/bin/controller.rs`): it applies a config map for each Note, tells events,
//! and has a finalizer.

use kubefold_apiserver::BuiltIn;
use serde_json::{Value, json};

use super::served::{Place, SOON, Served};
use testbed::{Process, client, eventually};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/notes.e2e.kubefold.io";
const NOTES: &str = "/apis/e2e.kubefold.io/v1/namespaces/default/notes";
const NOTE: &str = "/apis/e2e.kubefold.io/v1/namespaces/default/notes/a";
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
const GONE: &str = "/api/v1/namespaces/default/configmaps/a-gone";

fn says(text: &str) -> impl Fn(&Value) -> bool {
    move |map| map["data"]["text"] == text
}

async fn a_life(place: Place) {
    let mut served = Served::start(place, BuiltIn::Basic).await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = format!("--kubeconfig={}", served.kubeconfig.display());
    let log = home.path().join("log");
    let mut controller = Process::spawn("controller", &client("kube-rs-controller"), &[kubeconfig], &log);
    let is_established = |definition: &Value| {
        let conditions = definition["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    };
    served.until(DEFINITION, is_established).await;

    let note =
        json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Note", "metadata": {"name": "a"}, "spec": {"text": "one"}});
    let note = served.api.create(NOTES, &note).await;
    let map = served.until(MAP, says("one")).await;
    let owner = json!([{
        "apiVersion": "e2e.kubefold.io/v1", "kind": "Note", "name": "a", "uid": note["metadata"]["uid"], "controller": true,
    }]);
    assert_eq!(map["metadata"]["ownerReferences"], owner);
    let written = served.until(NOTE, |note| note["status"]["written"] == "one").await;
    assert_eq!(written["metadata"]["finalizers"], json!(["e2e.kubefold.io/note"]));
    eventually(SOON, async || {
        let events = served.api.get("/apis/events.k8s.io/v1/namespaces/default/events").await;
        let told = events["items"].as_array().unwrap().iter().any(|event| event["note"] == r#"wrote "one""#);
        if told { Ok(()) } else { Err(events.to_string()) }
    })
    .await;

    served.patch(NOTE, &json!({"spec": {"text": "two"}})).await;
    served.until(MAP, says("two")).await;
    // What others write over it is put right.
    served.patch(MAP, &json!({"data": {"text": "hand"}})).await;
    served.until(MAP, says("two")).await;
    served.until(NOTE, |note| note["status"]["written"] == "two").await;

    served.restart().await;
    served.until(MAP, says("two")).await;
    served.patch(NOTE, &json!({"spec": {"text": "three"}})).await;
    let map = served.until(MAP, says("three")).await;
    served.delete(MAP).await;
    served.until(MAP, |again| again["metadata"]["uid"] != map["metadata"]["uid"]).await;

    served.delete(NOTE).await;
    served.until(GONE, says("three")).await;
    served.gone(NOTE).await;
    served.gone(MAP).await;
    assert!(controller.exited().is_none(), "{}", controller.tail());
    controller.kill();
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_of_kube_rs_does_its_work_over_memory() {
    a_life(Place::memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_of_kube_rs_does_its_work_over_sqlite() {
    a_life(Place::file()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_of_kube_rs_does_its_work_over_postgresql() {
    a_life(Place::database("kube_rs").await).await;
}
