//! Kubernetes' sample-controller: it makes a Deployment of each Foo.

use kubefold_apiserver::BuiltIn;
use serde_json::{Value, json};

use super::served::{Place, SOON, Served};
use testbed::{Process, client, eventually};

const FOO: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos/example";
const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/made";

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

async fn a_life(place: Place) {
    let mut served = Served::start(place, BuiltIn::All).await;
    let definition = client("foos.yaml");
    served.kubectl.run(&["create", "-f", definition.to_str().unwrap()]).await.ok();
    served.kubectl.run(&["wait", "--for=condition=Established", "crd/foos.samplecontroller.k8s.io"]).await.ok();
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = format!("-kubeconfig={}", served.kubeconfig.display());
    let log = home.path().join("log");
    let mut controller = Process::spawn("sample-controller", &client("sample-controller"), &[kubeconfig], &log);

    let stored = json!({
        "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": "example"},
        "spec": {"deploymentName": "made", "replicas": 1},
    });
    let stored = served.api.create(FOOS, &stored).await;
    let deployment = served.until(DEPLOYMENT, |_| true).await;
    let owner = json!([{
        "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "name": "example", "uid": uid(&stored),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(deployment["metadata"]["ownerReferences"], owner);
    assert_eq!(deployment["spec"]["replicas"], 1);
    served.until(FOO, |one| one["status"]["availableReplicas"] == 0).await;
    eventually(SOON, async || {
        let events = served.api.get("/api/v1/namespaces/default/events").await;
        let told =
            events["items"].as_array().unwrap().iter().any(|event| event["message"] == "Foo synced successfully");
        if told { Ok(()) } else { Err(events.to_string()) }
    })
    .await;

    served.patch(FOO, &json!({"spec": {"replicas": 3}})).await;
    let scaled = served.until(DEPLOYMENT, |deployment| deployment["spec"]["replicas"] == 3).await;
    assert_eq!(uid(&scaled), uid(&deployment));
    // The definition's own bounds hold for the controller's kind.
    let refused =
        served.kubectl.run(&["patch", "foo", "example", "--type=merge", "-p", r#"{"spec":{"replicas":11}}"#]).await;
    assert!(
        refused
            .refused()
            .contains("spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10"),
        "{refused}"
    );

    let before = (served.api.get(FOO).await, served.api.get(DEPLOYMENT).await);
    served.restart().await;
    let after = (served.until(FOO, |_| true).await, served.api.get(DEPLOYMENT).await);
    assert_eq!(before, after, "a restart changes nothing");
    served.patch(FOO, &json!({"spec": {"replicas": 2}})).await;
    served.until(DEPLOYMENT, |deployment| deployment["spec"]["replicas"] == 2).await;

    served.delete(DEPLOYMENT).await;
    served.until(DEPLOYMENT, |again| uid(again) != uid(&deployment) && again["spec"]["replicas"] == 2).await;
    served.delete(FOO).await;
    served.gone(FOO).await;
    served.gone(DEPLOYMENT).await;
    assert!(controller.exited().is_none(), "{}", controller.tail());
    controller.kill();
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_controller_does_its_work_over_memory() {
    a_life(Place::memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_controller_does_its_work_over_sqlite() {
    a_life(Place::file()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_controller_does_its_work_over_postgresql() {
    a_life(Place::database("sample_controller").await).await;
}
