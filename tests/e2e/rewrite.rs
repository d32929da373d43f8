//! `kubefold rewrite`: objects that are stored in an old version of their kind.

use std::{fs, path::Path, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::apiserver::run;
use testbed::{
    Api, ApiServer, Kubectl, Testbed, eventually,
    samples::{crd, create_all},
};

const SOON: Duration = Duration::from_secs(30);

/// A definition with both versions, which are stored in one of them.
fn relics(storage: &str, versions: &[&str]) -> String {
    let mut definition = crd("Relic");
    let version = definition["spec"]["versions"][0].clone();
    let version = |name: &&str| {
        let mut version = version.clone();
        (version["name"], version["storage"]) = (json!(name), json!(*name == storage));
        version
    };
    definition["spec"]["versions"] = versions.iter().map(version).collect();
    definition.to_string()
}

/// Objects in an old version are rewritten, nothing else of them changes, and the old version can go.
async fn an_old_version_ends(kubectl: Kubectl, api: Api, kubeconfig: &Path, count: usize) {
    let path = |version: &str| format!("/apis/e2e.kubefold.io/{version}/namespaces/default/relics");
    let relic = |version: &str, name: usize| {
        json!({
            "apiVersion": format!("e2e.kubefold.io/{version}"), "kind": "Relic", "metadata": {"name": format!("r{name}")},
            "spec": {"size": 1.5},
        })
    };
    kubectl.run_with_input(&["apply", "-f", "-"], &relics("v1", &["v1"])).await.ok();
    kubectl.established("relics.e2e.kubefold.io").await;
    let old: Vec<Value> = (0..count).map(|name| relic("v1", name)).collect();
    create_all(&api, &path("v1"), &old).await;
    kubectl.run_with_input(&["apply", "-f", "-"], &relics("v2", &["v1", "v2"])).await.ok();
    eventually(SOON, async || {
        let made = api.try_request(Method::POST, &path("v2"), relic("v2", count).to_string()).await?;
        if made.status == StatusCode::CREATED { Ok(()) } else { Err(made.to_string()) }
    })
    .await;
    let stored = ["get", "crd", "relics.e2e.kubefold.io", "-o", "jsonpath={.status.storedVersions}"];
    assert_eq!(kubectl.run(&stored).await.ok(), "[\"v1\",\"v2\"]");
    let without = kubectl.run_with_input(&["apply", "-f", "-"], &relics("v2", &["v2"])).await;
    assert!(without.refused().contains("status.storedVersions[0]: Invalid value: \"v1\""), "{without}");

    let items = async || {
        let mut items = api.get(&path("v1")).await["items"].take();
        for item in items.as_array_mut().unwrap() {
            item["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        }
        items
    };
    let (before, folder) = (items().await, tempfile::tempdir().unwrap());
    let rewrite = async |more: &[&str]| {
        let args = ["rewrite", "--kubeconfig", kubeconfig.to_str().unwrap()];
        let (code, out, error) = run(&[&args, more].concat(), folder.path()).await;
        assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
        out
    };
    let told: Value = serde_json::from_str(&rewrite(&["relics.e2e.kubefold.io", "-o", "json"]).await).unwrap();
    let expected = json!({
        "kinds": [{
            "resource": "relics.e2e.kubefold.io", "version": "v2", "objects": count + 1, "rewritten": count,
            "failures": [], "storedVersions": {"before": ["v1", "v2"], "after": ["v2"]},
        }],
        "objects": count + 1, "rewritten": count,
    });
    assert_eq!(told, expected);
    assert_eq!(items().await, before);
    assert_eq!(kubectl.run(&stored).await.ok(), "[\"v2\"]");
    // Nothing is left to do.
    let told = rewrite(&["relics.e2e.kubefold.io"]).await;
    assert_eq!(told, format!("0 of {} objects were rewritten\n", count + 1));
    kubectl.run_with_input(&["apply", "-f", "-"], &relics("v2", &["v2"])).await.ok();
    let size = kubectl.run(&["get", "relics", "r0", "-o", "jsonpath={.apiVersion} {.spec.size}"]).await;
    assert_eq!(size.ok(), "e2e.kubefold.io/v2 1.5");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_version_ends_after_a_rewrite() {
    let server = ApiServer::start(&[]).await;
    // More than a page of them.
    an_old_version_ends(server.as_admin(), server.api().await, &server.kubeconfig(), 510).await;
    // Without names it is everything, by the login of the state directory, too. As in Kubernetes, a write removes managed
    // fields in a version that is gone: that is a change, once.
    let state = server.state_dir().display().to_string();
    for is_first in [true, false] {
        let (code, out, error) = run(&["rewrite", "--state-dir", &state], server.dir()).await;
        assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
        assert!(out.starts_with(if is_first { "relics.e2e.kubefold.io: 510 of 511 " } else { "0 of 5" }), "{out}");
        assert!(out.ends_with(" objects were rewritten\n"), "{out}");
    }
    let (code, _, error) = run(&["rewrite", "relic", "--state-dir", &state], server.dir()).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("the server has no resource \"relic\" that can be listed and patched"), "{error}");
}

/// The command asks nothing of a server that a kube-apiserver does not have.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_version_ends_after_a_rewrite_in_a_kube_apiserver() {
    let bed = Testbed::shared(&["east"]).await;
    let east = &bed.members()[0];
    an_old_version_ends(east.as_admin(), east.api().await, &east.kubeconfig(), 5).await;
    east.as_admin().run(&["delete", "crd", "relics.e2e.kubefold.io"]).await.ok();
}

/// A login that may not change some objects: they are named, and the definition is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_rewrite_says_what_it_could_not_write() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.csv");
    fs::write(&tokens, "jane-t0ken,jane,7\n").unwrap();
    let server = ApiServer::start(&["--token-auth-file", tokens.to_str().unwrap()]).await;
    let admin = server.as_admin();
    admin.run_with_input(&["create", "-f", "-"], &relics("v1", &["v1"])).await.ok();
    admin.established("relics.e2e.kubefold.io").await;
    let relic = json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Relic", "metadata": {"name": "r"}});
    server.apply(&relic.to_string()).await;
    server.apply(&relics("v2", &["v1", "v2"])).await;
    admin
        .run(&["create", "clusterrole", "reads", "--verb=get,list", "--resource=relics.e2e.kubefold.io,crd"])
        .await
        .ok();
    admin.run(&["create", "clusterrolebinding", "reads", "--clusterrole=reads", "--user=jane"]).await.ok();
    server.with_token("jane", "jane-t0ken").run(&["get", "relics"]).await.ok();
    let kubeconfig = server.dir().join("jane.kubeconfig");
    let args = ["rewrite", "relics.e2e.kubefold.io", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let (code, out, error) = run(&args, dir.path()).await;
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("relics.e2e.kubefold.io default/r: "), "{out}");
    assert!(error.contains("failures: 1;") && error.contains("jane"), "{error}");
    let stored = admin.run(&["get", "crd", "relics.e2e.kubefold.io", "-o", "jsonpath={.status.storedVersions}"]).await;
    assert_eq!(stored.ok(), "[\"v1\",\"v2\"]");
}
