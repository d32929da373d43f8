//! Custom resources that the configuration declares: divided by their own paths, and one object with sums for the client.

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const KINDS: &str = "kinds:
- kind: Widget.declared.kubefold.io
  replicasPath: .spec.pool.size
  statusPaths: [.status.pool.ready, .status.pool.total]
policies:
- name: widgets
  match: {kinds: [Widget.declared.kubefold.io]}
  strategy: divide
";
const EVERYWHERE: &str = "policies: [{name: everywhere, match: {namespaces: [default]}, strategy: duplicate}]";
const WIDGETS: &str = "/apis/declared.kubefold.io/v1/namespaces/default/widgets";

/// What lets the mover move them.
const MOVER: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: widgets}
rules:
- {apiGroups: [declared.kubefold.io], resources: [widgets], verbs: [get, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: widgets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: widgets}
subjects: [{kind: User, name: \"kubefold:mover\", apiGroup: rbac.authorization.k8s.io}]
";

fn file(bed: &Testbed, settings: &str) -> FleetFile {
    weighted(bed, [1, 2], settings)
}

fn weighted(bed: &Testbed, [east, west]: [u32; 2], settings: &str) -> FleetFile {
    let file = FleetFile::default().entry("east", &bed["east"].kubeconfig(), east, "");
    file.entry("west", &bed["west"].kubeconfig(), west, "").settings(settings)
}

fn definition() -> Value {
    let scale = json!({"specReplicasPath": ".spec.pool.size", "statusReplicasPath": ".status.pool.ready"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.declared.kubefold.io"},
        "spec": {
            "group": "declared.kubefold.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": scale},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn widget(size: i64) -> Value {
    json!({"apiVersion": "declared.kubefold.io/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"pool": {"size": size, "flavor": "plain"}}})
}

/// The size of each part, and of the whole.
async fn sizes(bed: &Testbed, api: &Api) -> [i64; 3] {
    let path = format!("{WIDGETS}/w");
    let mut sizes = Vec::new();
    for member in ["east", "west"] {
        sizes.push(
            in_member(&bed[member], &path).await.map_or(-1, |part| part["spec"]["pool"]["size"].as_i64().unwrap()),
        );
    }
    [sizes[0], sizes[1], api.get(&path).await["spec"]["pool"]["size"].as_i64().unwrap()]
}

async fn merged(api: &Api, path: &str, body: Value) -> Answer {
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    api.send(request.body(body.to_string().into()).unwrap()).await.unwrap()
}

/// Waits until the widget is shown so.
async fn shown(api: &Api, is_it: impl Fn(&Value) -> bool) -> Value {
    eventually(SOON, async || {
        let shown = api.get(&format!("{WIDGETS}/w")).await;
        if is_it(&shown) { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_kind_is_divided_by_its_own_paths() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let fleet = Kubefold::start(&file(&bed, KINDS)).await;
    let api = fleet.api().await;
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await;
    eventually(SOON, async || {
        let made = api.request(Method::POST, WIDGETS, widget(6).to_string()).await;
        if made.status == StatusCode::CREATED { Ok(()) } else { Err(made.to_string()) }
    })
    .await;
    assert_eq!(sizes(&bed, &api).await, [2, 4, 6]);
    scaled(&bed, &fleet, &api).await;
    reported(&bed, &fleet, &api).await;
    reloaded(&bed, &fleet, &api).await;
    moved(&bed, &fleet, &api).await;
}

/// A definition is served by one member a moment before the other: what is made meanwhile waits for both.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_created_right_after_its_definition_is_in_every_member() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let fleet = Kubefold::start(&file(&bed, EVERYWHERE)).await;
    let api = fleet.api().await;
    let rounds = 12;
    for round in 0..rounds {
        let group = format!("round{round}.kubefold.io");
        let widgets = format!("/apis/{group}/v1/namespaces/default/widgets");
        let mut defined = definition();
        defined["metadata"]["name"] = format!("widgets.{group}").into();
        defined["spec"]["group"] = group.clone().into();
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &defined).await;
        let mut made = widget(1);
        made["apiVersion"] = format!("{group}/v1").into();
        eventually(SOON, async || {
            let answer = api.request(Method::POST, &widgets, made.to_string()).await;
            if answer.status == StatusCode::CREATED { Ok(()) } else { Err(answer.to_string()) }
        })
        .await;
        for member in ["east", "west"] {
            let part = in_member(&bed[member], &format!("{widgets}/w")).await;
            assert!(part.is_some(), "round {round}: {member} has no part");
        }
    }
}

/// Every way to write the number means the whole.
async fn scaled(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    fleet.kubectl(&["scale", "widgets.declared.kubefold.io", "w", "--replicas=9"]).await.ok();
    assert_eq!(sizes(bed, api).await, [3, 6, 9]);
    assert_eq!(api.get(&format!("{WIDGETS}/w/scale")).await["spec"]["replicas"], 9);
    fleet
        .as_admin()
        .run_with_input(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &widget(3).to_string())
        .await
        .ok();
    assert_eq!(sizes(bed, api).await, [1, 2, 3]);
    let flavor = merged(api, &format!("{WIDGETS}/w"), json!({"spec": {"pool": {"flavor": "sweet"}}})).await.ok();
    assert_eq!(flavor["spec"]["pool"], json!({"size": 3, "flavor": "sweet"}));
    let whole = merged(api, &format!("{WIDGETS}/w"), json!({"spec": {"pool": {"size": 6}}})).await.ok();
    assert_eq!(whole["spec"]["pool"]["size"], 6);
    assert_eq!(sizes(bed, api).await, [2, 4, 6]);
    let shown = api.get(&format!("{WIDGETS}/w")).await;
    assert!(shown["metadata"]["annotations"]["kubefold.io/differs"].is_null(), "shares are no difference: {shown}");
}

/// What the operators in the members count is counted together, and a status that a client writes is divided.
async fn reported(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    let status = format!("{WIDGETS}/w/status");
    for (member, ready, total) in [("east", 1, 2), ("west", 3, 4)] {
        let report = json!({"status": {"pool": {"ready": ready, "total": total}, "phase": member}});
        merged(&bed[member].api().await, &status, report).await.ok();
    }
    let both = shown(api, |shown| shown["status"]["pool"] == json!({"ready": 4, "total": 6})).await;
    assert_eq!(both["status"]["phase"], "west", "the home's");
    assert_eq!(api.get(&format!("{WIDGETS}/w/scale")).await["status"]["replicas"], 4);
    let written = merged(api, &status, json!({"status": {"pool": {"ready": 5}}})).await.ok();
    assert_eq!(written["status"]["pool"], json!({"ready": 5, "total": 6}));
    let plan = fleet
        .as_admin()
        .run(&["get", "widgets.declared.kubefold.io", "w", "-o", "jsonpath={.status.pool.ready}"])
        .await;
    assert_eq!(plan.ok(), "5");
}

/// What is no longer declared is the home's own; declared again, it is a sum again.
async fn reloaded(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    fleet.configure(&file(bed, ""));
    shown(api, |shown| shown["spec"]["pool"]["size"] == 4).await;
    fleet.configure(&file(bed, KINDS));
    let again = shown(api, |shown| shown["spec"]["pool"]["size"] == 6).await;
    assert_eq!(again["status"]["pool"]["ready"], 5);
    assert!(again["metadata"]["annotations"]["kubefold.io/differs"].is_null(), "{again}");
}

/// It is rebalanced by its own number, and leaves a member only where that is forced: its operator may take that for a deletion.
async fn moved(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    for member in ["east", "west"] {
        bed[member].apply(MOVER).await;
    }
    fleet.configure(&weighted(bed, [2, 1], KINDS));
    let rebalanced = async || {
        let output = fleet.command(&["rebalance"]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let sizes = sizes(bed, api).await;
        if sizes == [4, 2, 6] { Ok(()) } else { Err(format!("{sizes:?}")) }
    };
    eventually(SOON, rebalanced).await;
    let refused = fleet.command(&["drain", "west", "--wait=false"]).await;
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("its operator may take the move for a deletion; --force moves it all the same"), "{said}");
    let forced = fleet.command(&["drain", "west", "--force"]).await;
    assert!(forced.status.success(), "{}", String::from_utf8_lossy(&forced.stderr));
    assert_eq!(sizes(bed, api).await, [6, -1, 6]);
}
