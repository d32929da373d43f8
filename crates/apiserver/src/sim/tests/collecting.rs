use super::*;

#[tokio::test(start_paused = true)]
async fn what_is_owned_goes_with_its_owner() {
    let mut town = Town::new(1).await;
    town.create("deployments", deployment("web", 2)).await.unwrap();
    town.live(10).await;
    town.delete("deployments", "web", Propagation::Background).await;
    assert!(town.get("deployments", "web").await.is_none(), "at once");
    town.live(10).await;
    assert!(town.list("replicasets").await.is_empty() && town.list("pods").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_owner_waits_for_what_blocks_it() {
    let mut town = Town::new(1).await;
    town.create("deployments", deployment("web", 2)).await.unwrap();
    town.live(10).await;
    town.delete("deployments", "web", Propagation::Foreground).await;
    let web = town.get("deployments", "web").await.unwrap();
    assert_eq!(web["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    town.live(0).await;
    assert!(town.get("deployments", "web").await.is_some() && town.list("pods").await.len() == 2);
    town.live(10).await;
    assert!(town.get("deployments", "web").await.is_none());
    assert!(town.list("replicasets").await.is_empty() && town.list("pods").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_deletes_again_may_want_another_end() {
    let mut town = Town::new(0).await;
    let held = json!({"metadata": {"name": "root", "finalizers": ["example.com/hold"]}});
    let root = town.create("configmaps", held).await.unwrap();
    let mut child = owned("child", &root, "ConfigMap");
    child["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = true.into();
    town.create("configmaps", child).await.unwrap();
    town.delete("configmaps", "root", Propagation::Background).await;
    town.live(5).await;
    assert!(town.get("configmaps", "child").await.is_some());
    town.delete("configmaps", "root", Propagation::Foreground).await;
    town.live(5).await;
    assert!(town.get("configmaps", "child").await.is_none());
    let root = town.get("configmaps", "root").await.unwrap();
    assert_eq!(root["metadata"]["finalizers"], json!(["example.com/hold"]));
}

#[tokio::test(start_paused = true)]
async fn orphans_are_adopted_again() {
    let mut town = Town::new(1).await;
    town.create("deployments", deployment("web", 2)).await.unwrap();
    town.live(10).await;
    let before = town.names("pods").await;
    town.delete("deployments", "web", Propagation::Orphan).await;
    town.live(5).await;
    assert!(town.get("deployments", "web").await.is_none());
    let set = town.list("replicasets").await.remove(0);
    assert!(set["metadata"]["ownerReferences"].is_null());
    assert_eq!(town.names("pods").await, before);
    town.create("deployments", deployment("web", 2)).await.unwrap();
    town.live(10).await;
    let set = town.list("replicasets").await.remove(0);
    assert_eq!(set["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(town.names("pods").await, before);
}

fn owned(name: &str, owner: &Value, kind: &str) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": [{
        "apiVersion": "v1", "kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }]}})
}

#[tokio::test(start_paused = true)]
async fn owners_are_known_by_uid_and_namespace() {
    let mut town = Town::new(0).await;
    let there = town.create("configmaps", json!({"metadata": {"name": "there"}})).await.unwrap();
    let mut elsewhere = json!({"metadata": {"name": "elsewhere", "namespace": "kube-system"}});
    elsewhere = town.create("configmaps", elsewhere).await.unwrap();
    let mut impostor = there.clone();
    impostor["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into();
    town.create("configmaps", owned("stays", &there, "ConfigMap")).await.unwrap();
    town.create("configmaps", owned("of-another", &impostor, "ConfigMap")).await.unwrap();
    town.create("configmaps", owned("of-elsewhere", &elsewhere, "ConfigMap")).await.unwrap();
    town.create("configmaps", owned("of-unknown-kind", &there, "Gadget")).await.unwrap();
    let mut both = owned("both", &there, "ConfigMap");
    let stale = owned("x", &impostor, "ConfigMap")["metadata"]["ownerReferences"][0].clone();
    both["metadata"]["ownerReferences"].as_array_mut().unwrap().push(stale);
    town.create("configmaps", both).await.unwrap();
    town.live(5).await;
    assert_eq!(town.names("configmaps").await, ["both", "kube-root-ca.crt", "of-unknown-kind", "stays", "there"]);
    let both = town.get("configmaps", "both").await.unwrap();
    assert_eq!(both["metadata"]["ownerReferences"].as_array().unwrap().len(), 1, "the stale one is dropped");
    let told = town.told("of-elsewhere").await;
    assert!(
        told[0].starts_with("OwnerRefInvalidNamespace: ownerRef [v1/ConfigMap, namespace: default, name: elsewhere"),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_ends_with_all_that_is_in_it() {
    let mut town = Town::new(1).await;
    town.create("namespaces", json!({"metadata": {"name": "shop"}})).await.unwrap();
    let mut web = deployment("web", 2);
    web["metadata"]["namespace"] = "shop".into();
    town.create("deployments", web).await.unwrap();
    let held = json!({"metadata": {"name": "held", "namespace": "shop", "finalizers": ["example.com/hold"]}});
    town.create("configmaps", held).await.unwrap();
    town.live(10).await;
    let accounts = town.registry.list(&town.kind("serviceaccounts"), "shop", &ListOptions::default()).await.unwrap();
    assert_eq!(accounts.objects.len(), 1);
    town.delete("namespaces", "shop", Propagation::Background).await;
    town.live(20).await;
    let shop = town.get("namespaces", "shop").await.unwrap();
    assert_eq!(shop["status"]["phase"], "Terminating");
    let conditions = shop["status"]["conditions"].as_array().unwrap();
    let message = |kind: &str| conditions.iter().find(|c| c["type"] == kind).unwrap()["message"].clone();
    assert_eq!(
        message("NamespaceContentRemaining"),
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    assert_eq!(
        message("NamespaceFinalizersRemaining"),
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    let kind = town.kind("configmaps");
    town.registry
        .modify(&kind, "shop", "held", &WriteOptions::default(), |held| {
            held["metadata"].as_object_mut().unwrap().shift_remove("finalizers");
            Ok(())
        })
        .await
        .unwrap();
    town.live(5).await;
    assert!(town.get("namespaces", "shop").await.is_none());
    let left = town.registry.list(&town.kind("pods"), "shop", &ListOptions::default()).await.unwrap();
    assert!(left.objects.is_empty());
}
