//! A kube-apiserver and the embedded registry on one etcd: each reads what the other has written.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Method;
use kubefold_apiserver::{
    definitions::Definitions,
    registry::{DeleteOptions, Env, ListOptions, Registry, WriteOptions},
    serve::built_in,
    storage::{Bounds, Etcd, EtcdOptions, Storage},
};
use serde_json::{Value, json};
use testbed::{Member, MemberOptions, eventually, samples::crd};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "default";

async fn registry(member: &Member) -> (Arc<Etcd>, Registry) {
    let tls = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
    let options = EtcdOptions::new(vec![member.etcd_url().parse().unwrap()], tls.with_no_client_auth());
    let storage = Arc::new(Etcd::open(options, Bounds::default()).await.unwrap());
    (Arc::clone(&storage), built_in(storage, Env::default()))
}

fn path_of(group: &str, version: &str, plural: &str) -> String {
    let prefix = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    format!("{prefix}/{version}/{plural}")
}

/// Objects of many kinds, one of each.
fn objects() -> Vec<Value> {
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m"}}}]},
    });
    let selector = json!({"matchLabels": {"app": "web"}});
    [
        ("v1", "ConfigMap", json!({"data": {"a": "b"}, "binaryData": {"c": "AAE="}})),
        ("v1", "Secret", json!({"stringData": {"a": "b"}})),
        ("v1", "Service", json!({"spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}})),
        ("v1", "Endpoints", json!({"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]})),
        ("v1", "ReplicationController", json!({"spec": {"selector": {"app": "web"}, "template": template}})),
        ("apps/v1", "Deployment", json!({"spec": {"selector": selector, "template": template}})),
        ("networking.k8s.io/v1", "Ingress", json!({"spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}})),
        ("autoscaling/v2", "HorizontalPodAutoscaler", json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}})),
        ("coordination.k8s.io/v1", "Lease", json!({"spec": {"holderIdentity": "x", "renewTime": "2026-01-01T00:00:00.000000Z"}})),
    ]
    .into_iter()
    .map(|(version, kind, mut object)| {
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"] = json!({"name": "web", "namespace": NAMESPACE});
        object
    })
    .chain([json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})])
    .collect()
}

/// Definitions that are stored in a version of before: with what all versions have in common, with what each has of its own,
/// and with a webhook.
fn definitions() -> Vec<Value> {
    let version = |name: &str, column: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 1}, "colour": {"type": "string"}}}}}},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
            "additionalPrinterColumns": [{"name": "Own", "type": "string", "jsonPath": column}],
        })
    };
    let webhook = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]}});
    let none = json!({"strategy": "None"});
    [("same", [".spec.size", ".spec.size"], &none), ("other", [".spec.size", ".spec.colour"], &webhook)]
        .into_iter()
        .map(|(name, columns, conversion)| {
            let mut versions = [version("v1", columns[0]), version("v2", columns[1])];
            if name == "same" {
                // A kube-apiserver refuses them where the versions have different ones.
                versions.iter_mut().for_each(|version| version["selectableFields"] = json!([{"jsonPath": ".spec.size"}]));
            }
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{name}s.e2e.kubefold.io")},
                "spec": {
                    "group": "e2e.kubefold.io", "scope": "Cluster", "conversion": conversion,
                    "names": {"kind": format!("{}{}", name[..1].to_uppercase(), &name[1..]), "plural": format!("{name}s"), "singular": name},
                    "versions": versions,
                },
            })
        })
        .collect()
}

/// What a kube-apiserver has stored, in protobuf and at its own places, is read as it shows it.
async fn check_kinds(member: &Member, registry: &Registry) {
    let api = member.api().await;
    let (mut compared, mut wrong) = (0, Vec::new());
    for kind in registry.catalog().kinds().to_vec() {
        if !kind.verbs.iter().any(|verb| verb == "list") || kind.rest.is_some() {
            continue;
        }
        let path = path_of(&kind.group, &kind.version, &kind.plural);
        let answer = api.request(Method::GET, &path, Bytes::new()).await;
        if answer.status == 404 {
            continue;
        }
        let items = answer.json()["items"].as_array().cloned().unwrap_or_default();
        let own = registry.list(&kind, "", &ListOptions::default()).await.unwrap();
        for (item, object) in items.iter().zip(&own.objects) {
            let mut shown = object.value();
            for field in ["kind", "apiVersion"] {
                shown.as_object_mut().unwrap().remove(field);
            }
            compared += 1;
            if *item != shown {
                wrong.push(format!("{path}\n{item}\n{shown}"));
            }
        }
        if items.len() != own.objects.len() {
            wrong.push(format!("{path}: {} and {} objects", items.len(), own.objects.len()));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 150, "{compared}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kube_apiserver_on_the_same_etcd_has_the_same_objects() {
    let member = Member::start("etcd", MemberOptions::default()).await;
    member.apply(&crd("Widget").to_string()).await;
    member.kubectl(&["wait", "--for=condition=Established", "crd/widgets.e2e.kubefold.io"]).await.ok();
    let widget = |name: &str| json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Widget", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"size": 1}});
    member.apply(&widget("theirs").to_string()).await;
    for object in objects().into_iter().chain(definitions()) {
        member.apply(&object.to_string()).await;
    }
    let (storage, registry) = registry(&member).await;
    check_kinds(&member, &registry).await;

    // Custom resources are JSON on both sides.
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let (mut definitions, until) = (Definitions::new(registry.clone()).unwrap(), stop.clone());
    tasks.spawn(async move { definitions.run(&until).await.unwrap() });
    let served = async || registry.resource("e2e.kubefold.io", "v1", "widgets").ok_or("not served yet");
    let widgets = eventually(SOON, served).await;
    let api = member.api().await;
    let path = "/apis/e2e.kubefold.io/v1/namespaces/default/widgets";
    assert_eq!(
        registry.get(&widgets, NAMESPACE, "theirs").await.unwrap().value(),
        api.get(&format!("{path}/theirs")).await
    );
    registry.create(&widgets, NAMESPACE, widget("ours"), &WriteOptions::default()).await.unwrap();
    let maps = registry.resource("", "v1", "configmaps").unwrap();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours", "namespace": NAMESPACE}, "data": {"a": "b"}});
    registry.create(&maps, NAMESPACE, map, &WriteOptions::default()).await.unwrap();
    for (kind, path) in [(&widgets, path), (&maps, "/api/v1/namespaces/default/configmaps")] {
        let ours = registry.get(kind, NAMESPACE, "ours").await.unwrap().value();
        assert_eq!(api.get(&format!("{path}/ours")).await, ours);
        // Each sees at once what the other does, and conditions are common.
        let patch = json!({"metadata": {"labels": {"theirs": "yes"}}}).to_string();
        let request =
            http::Request::patch(format!("{path}/ours")).header("content-type", "application/merge-patch+json");
        let patched = api.send(request.body(patch.into()).unwrap()).await.unwrap().ok();
        assert_eq!(registry.get(kind, NAMESPACE, "ours").await.unwrap().value(), patched);
        let stale = registry.update(kind, NAMESPACE, "ours", ours, &WriteOptions::default()).await;
        assert_eq!(stale.unwrap_err().code, 409);
        registry.delete(kind, NAMESPACE, "ours", &DeleteOptions::default()).await.unwrap();
        assert_eq!(api.request(Method::GET, &format!("{path}/ours"), Bytes::new()).await.status, 404);
    }
    stop.cancel();
    tasks.join_all().await;
    storage.close().await;
}
