//! Creates: divided by weight, shown as one object, run as many.

use futures::future::join_all;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::*;
use testbed::{FleetFile, Informer, Kubefold, MemberOptions, Testbed, binary};

/// Asserts that nothing of kubefold's marker is to be seen.
#[track_caller]
fn unmarked(object: &Value) {
    let text = object.to_string();
    assert!(!text.contains("kubefold.io/placement"), "the marker shows: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_one_object_and_runs_in_every_member() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::with_workloads(1)).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1).member(west, 2)).await;
    let api = fleet.api().await;
    let mut informer = Informer::start(&fleet.kubeconfig(), Some("fleet"), "deployments.apps", true);
    informer.synced(SOON).await;
    let mut watch = api.watch(&format!("{DEPLOYMENTS}?watch=true")).await;

    // kubectl sends protobuf.
    fleet.kubectl(&["create", "deployment", "web", "--image=web:1", "--replicas=3"]).await.ok();
    assert_eq!(shares(&[east, west], "web").await, split(&[("east", 1), ("west", 2)]));
    fleet.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    let shown = eventually(PODS, async || {
        let shown = api.get(&format!("{DEPLOYMENTS}/web")).await;
        let status = &shown["status"];
        let done = status["readyReplicas"] == 3 && status["observedGeneration"] == shown["metadata"]["generation"];
        done.then_some(shown.clone()).ok_or_else(|| shown.to_string())
    })
    .await;
    assert_eq!((&shown["spec"]["replicas"], &shown["status"]["availableReplicas"]), (&json!(3), &json!(3)));
    unmarked(&shown);
    let (type_, added) = event(&mut watch, "web").await;
    assert_eq!((type_.as_str(), &added["metadata"]["uid"]), ("ADDED", &shown["metadata"]["uid"]));
    unmarked(&added);
    one_object(&fleet, &api).await;
    member_local_objects_lead_to_it(&fleet, &api, &shown).await;
    a_part_edited_in_its_member_shows(&fleet, &api, west).await;

    the_event_is_the_answer(&api).await;
    typed_clients_write(&fleet).await;

    let first = text(&shown, "/metadata/uid").to_owned();
    fleet.kubectl(&["delete", "deployment", "web"]).await.ok();
    gone(&api, &[east, west], "web").await;
    nothing_is_left(&fleet).await;
    fleet.as_admin().run_with_input(&["create", "-f", "-"], &deployment("web", 2).to_string()).await.ok();
    let second = text(&api.get(&format!("{DEPLOYMENTS}/web")).await, "/metadata/uid").to_owned();
    assert_ne!(first, second, "another life has another UID");
    let told = eventually(SOON, async || {
        let events = informer.events().into_iter().filter(|event| event["key"] == "default/web");
        let events: Vec<_> = events.map(|event| (event["type"].to_string(), event["uid"].clone())).collect();
        let adds = events.iter().filter(|(type_, _)| type_ == "\"ADD\"").count();
        if adds == 2 { Ok(events) } else { Err(format!("{events:?}")) }
    })
    .await;
    let ends: Vec<_> = told.iter().filter(|(type_, _)| type_ != "\"UPDATE\"").cloned().collect();
    let uid = |uid: &str| json!(uid);
    let wanted = [("\"ADD\"", uid(&first)), ("\"DELETE\"", uid(&first)), ("\"ADD\"", uid(&second))];
    assert_eq!(ends, wanted.map(|(type_, uid)| (type_.to_owned(), uid)));
    assert_eq!(informer.dump().await.as_object().unwrap().len(), 1);
}

/// Controllers are quick to write to what was made: the answer is what the one event of the create told all the same.
async fn the_event_is_the_answer(api: &Api) {
    let mut watch = api.watch(&format!("{DEPLOYMENTS}?watch=true")).await;
    for name in ["quick-1", "quick-2", "quick-3", "quick-4"] {
        let made = post(api, &deployment(name, 3)).await.ok();
        let (type_, added) = event(&mut watch, name).await;
        assert_eq!((type_.as_str(), &added), ("ADDED", &made));
        api.request(Method::DELETE, &format!("{DEPLOYMENTS}/{name}"), "").await.ok();
    }
}

/// client-go's typed clients send protobuf, and know every answer for what it is.
async fn typed_clients_write(fleet: &Kubefold) {
    let kubeconfig = format!("--kubeconfig={}", fleet.kubeconfig().display());
    let mut writer = tokio::process::Command::new(binary("writer"));
    let ran = writer.args([&kubeconfig, "--member=east"]).kill_on_drop(true).output().await.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let lines = String::from_utf8(ran.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let made = lines.iter().find(|line| line["spec"].is_object()).expect("a Deployment");
    assert_eq!(made["spec"]["replicas"], 3);
    // Controllers may have written to it as well by then.
    let mut managers = made["metadata"]["managedFields"].as_array().unwrap().iter().map(|one| one["manager"].clone());
    assert!(managers.any(|manager| manager == "writer"), "{made}");
    let bodies: Vec<_> = lines.iter().filter_map(|line| line["contentType"].as_str()).collect();
    assert!(
        bodies.len() >= 5 && bodies.iter().all(|sent| *sent == "application/vnd.kubernetes.protobuf"),
        "{bodies:?}"
    );
}

/// Get, list, and a list's Table know one Deployment; each member's view shows its part as it is.
async fn one_object(fleet: &Kubefold, api: &Api) {
    let list = api.get(DEPLOYMENTS).await;
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name")).collect();
    assert_eq!(names, ["web"]);
    unmarked(&list);
    let got = fleet.kubectl(&["get", "deployment", "web", "-o", "yaml", "--show-managed-fields"]).await.ok().to_owned();
    assert!(got.contains("kubefold.io/clusters: west,east") && !got.contains(MARKER), "{got}");
    assert!(got.contains("manager: kubectl-create"), "the client is the manager: {got}");
    let part = fleet.kubectl_in("fleet-east", &["get", "deployment", "web", "-o", "json"]).await.ok().to_owned();
    let part: Value = serde_json::from_str(&part).unwrap();
    assert!(part["metadata"]["labels"][MARKER].is_string() && part["metadata"]["annotations"][MARKER].is_string());
    let whole = fleet.kubectl(&["get", "deployment", "web@west", "-o", "jsonpath={.spec.replicas}"]).await;
    assert_eq!(whole.ok(), "2", "a part can be read by its own name");
}

/// Its ReplicaSets are one, Pods are their members' own, and owners are what the fleet shows.
async fn member_local_objects_lead_to_it(fleet: &Kubefold, api: &Api, shown: &Value) {
    let owner = |object: &Value| object["metadata"]["ownerReferences"][0].clone();
    let sets = api.get("/apis/apps/v1/namespaces/default/replicasets").await;
    let sets = sets["items"].as_array().unwrap();
    assert!(sets.len() == 1 && !text(&sets[0], "/metadata/name").contains('@'), "{sets:?}");
    assert_eq!(sets[0]["metadata"]["annotations"]["kubefold.io/clusters"], "west,east");
    assert_eq!(sets[0]["spec"]["replicas"], 3);
    for set in sets {
        assert_eq!((&owner(set)["name"], &owner(set)["uid"]), (&json!("web"), &shown["metadata"]["uid"]));
    }
    let pods = api.get("/api/v1/namespaces/default/pods").await;
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 3);
    for pod in pods {
        let owner = owner(pod);
        let set = sets.iter().find(|set| set["metadata"]["name"] == owner["name"]).expect("a visible owner");
        assert_eq!(owner["uid"], set["metadata"]["uid"]);
    }
    let described = fleet.kubectl(&["describe", "deployment", "web"]).await.ok().to_owned();
    assert!(described.contains("3 desired | 3 updated | 3 total | 3 available"), "{described}");
    assert!(described.contains("NewReplicaSet:   web-"), "{described}");
}

/// Somebody scales a part where it lives: shown, and not repaired.
async fn a_part_edited_in_its_member_shows(fleet: &Kubefold, api: &Api, west: &Member) {
    west.kubectl(&["scale", "deployment", "web", "--replicas=4"]).await.ok();
    eventually(SOON, async || {
        let shown = api.get(&format!("{DEPLOYMENTS}/web")).await;
        (shown["spec"]["replicas"] == 5).then_some(()).ok_or_else(|| shown.to_string())
    })
    .await;
    fleet.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    assert_eq!(part(west, "web").await.unwrap()["spec"]["replicas"], 4);
}

/// The members' garbage collectors took what the parts owned.
async fn nothing_is_left(fleet: &Kubefold) {
    eventually(PODS, async || {
        let left = fleet.kubectl(&["get", "replicasets,pods", "-o", "name"]).await;
        if left.ok().is_empty() { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_total_is_divided_exactly_and_answered_as_it_is_stored() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let all = [&bed["east"], &bed["west"], &bed["north"]];
    let file = FleetFile::default().member(all[0], 1).member(all[1], 2).member(all[2], 4);
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;

    totals(&api, &all).await;
    the_answer_is_what_is_stored(&api).await;
    dry_runs_change_nothing(&fleet, &api, &all).await;
    names_are_minted(&api, &all).await;
    a_forged_marker_is_dropped(&fleet, &api, &all).await;
    the_client_is_known(&api, &all).await;
    crowds(&api, &all).await;
}

async fn totals(api: &Api, all: &[&Member; 3]) {
    for (total, parts) in [
        (7, [("east", 1), ("west", 2), ("north", 4)].as_slice()),
        (1, &[("north", 1)]),
        (0, &[("north", 0)]),
        (3, &[("west", 1), ("north", 2)]),
        (70, &[("east", 10), ("west", 20), ("north", 40)]),
    ] {
        let name = format!("total-{total}");
        let answer = post(api, &deployment(&name, total)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer}");
        assert_eq!(answer.json()["spec"]["replicas"], total);
        assert_eq!(shares(all, &name).await, split(parts));
    }
    for total in [2, 5, 11, 100] {
        let name = format!("sum-{total}");
        post(api, &deployment(&name, total)).await.ok();
        assert_eq!(shares(all, &name).await.values().sum::<i64>(), total);
    }
    let mut unset = deployment("unset", 0);
    unset["spec"].as_object_mut().unwrap().remove("replicas");
    assert_eq!(post(api, &unset).await.ok()["spec"]["replicas"], 1, "the default is of the whole");
    assert_eq!(shares(all, "unset").await, split(&[("north", 1)]));
}

/// The answer, the event, the get and the list are one version.
async fn the_answer_is_what_is_stored(api: &Api) {
    let mut watch = api.watch(&format!("{DEPLOYMENTS}?watch=true")).await;
    let made = post(api, &deployment("same", 7)).await.ok();
    unmarked(&made);
    assert_eq!(text(&made, "/metadata/annotations/kubefold.io~1clusters"), "north,west,east");
    let (type_, added) = event(&mut watch, "same").await;
    assert_eq!((type_.as_str(), &added), ("ADDED", &made));
    assert_eq!(api.get(&format!("{DEPLOYMENTS}/same")).await, made);
    let list = api.get(DEPLOYMENTS).await;
    let mut item = list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "same").cloned();
    for key in ["kind", "apiVersion"] {
        item.as_mut().unwrap()[key] = made[key].clone();
    }
    assert_eq!(item.unwrap(), made);
    // Nothing else was told of it: the next event is of the next write.
    post(api, &deployment("next", 7)).await.ok();
    let next = watch.next(SOON).await.unwrap();
    assert_eq!((&next["type"], &next["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("next")));
}

async fn dry_runs_change_nothing(fleet: &Kubefold, api: &Api, all: &[&Member; 3]) {
    let answer =
        api.request(Method::POST, &format!("{DEPLOYMENTS}?dryRun=All"), deployment("dry", 7).to_string()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer}");
    let dry = answer.json();
    assert_eq!((&dry["spec"]["replicas"], &dry["metadata"]["name"]), (&json!(7), &json!("dry")));
    assert_eq!(text(&dry, "/metadata/annotations/kubefold.io~1clusters"), "north,west,east");
    unmarked(&dry);
    let said = fleet.kubectl(&["create", "deployment", "dry", "--image=web:1", "--dry-run=server"]).await;
    assert!(said.ok().contains("created (server dry run)"), "{said}");
    assert_eq!(shares(all, "dry").await, split(&[]));
    let shown = api.request(Method::GET, &format!("{DEPLOYMENTS}/dry"), "").await;
    assert_eq!(shown.status, StatusCode::NOT_FOUND);
    let odd = api.request(Method::POST, &format!("{DEPLOYMENTS}?dryRun=Some"), deployment("dry", 1).to_string()).await;
    refused(&odd, 422, "Invalid", &["dryRun"]);
}

async fn names_are_minted(api: &Api, all: &[&Member; 3]) {
    let mut object = deployment("x", 7);
    object["metadata"] = json!({"generateName": "minted-"});
    let made = post(api, &object).await.ok();
    let name = text(&made, "/metadata/name").to_owned();
    assert!(name.starts_with("minted-") && name.len() == 12, "{name}");
    assert_eq!(shares(all, &name).await, split(&[("east", 1), ("west", 2), ("north", 4)]));
}

/// A part's own manifest, marker and all, makes an object like any other.
async fn a_forged_marker_is_dropped(fleet: &Kubefold, api: &Api, all: &[&Member; 3]) {
    let manifest = fleet.kubectl_in("fleet-north", &["get", "deployment", "same", "-o", "json"]).await.ok().to_owned();
    let mut copy: Value = serde_json::from_str(&manifest).unwrap();
    copy["metadata"]["name"] = json!("copy");
    for key in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
        copy["metadata"].as_object_mut().unwrap().remove(key);
    }
    copy["spec"]["replicas"] = json!(1);
    let forged = copy["metadata"]["labels"][MARKER].clone();
    assert!(forged.is_string());
    let made = post(api, &copy).await.ok();
    assert_ne!(made["metadata"]["uid"], forged);
    let stands = part(all[2], "copy").await.unwrap();
    assert_eq!(stands["metadata"]["labels"][MARKER], made["metadata"]["uid"], "the part's marker is its own");
    assert_eq!(shares(all, "copy").await, split(&[("north", 1)]));
    assert_eq!(api.get(&format!("{DEPLOYMENTS}/same")).await["spec"]["replicas"], 7);
}

/// What a client says of itself reaches the members.
async fn the_client_is_known(api: &Api, all: &[&Member; 3]) {
    for (query, agent, manager) in
        [("", "shopkeeper/1.2 (linux)", "shopkeeper"), ("?fieldManager=butler", "x/1", "butler")]
    {
        let request = Request::post(format!("{DEPLOYMENTS}{query}"))
            .header("content-type", "application/json")
            .header("user-agent", agent)
            .body(deployment(manager, 7).to_string().into())
            .unwrap();
        let made = api.send(request).await.unwrap().ok();
        assert_eq!(text(&made, "/metadata/managedFields/0/manager"), manager);
        for member in all {
            let part = part(member, manager).await.unwrap();
            assert_eq!(text(&part, "/metadata/managedFields/0/manager"), manager);
        }
    }
    let mut odd = deployment("odd", 7);
    odd["spec"]["colour"] = json!("red");
    let answer = post(api, &odd).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer}");
    let warnings = answer.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("unknown field \\\"spec.colour\\\""), "{warnings:?}");
    odd["metadata"]["name"] = json!("odd-strict");
    let path = format!("{DEPLOYMENTS}?fieldValidation=Strict");
    let answer = api.request(Method::POST, &path, odd.to_string()).await;
    refused(&answer, 400, "BadRequest", &["member ", "unknown field \"spec.colour\""]);
    assert_eq!(shares(all, "odd-strict").await, split(&[]));
}

/// Clients that come together: of one name there is one object, of many names each is whole.
async fn crowds(api: &Api, all: &[&Member; 3]) {
    let (one, two) = (deployment("race", 7), deployment("race", 14));
    let (one, two) = tokio::join!(post(api, &one), post(api, &two));
    let mut codes = [one.status.as_u16(), two.status.as_u16()];
    codes.sort_unstable();
    assert_eq!(codes, [201, 409], "{one}\n{two}");
    let (won, lost) = if one.status.is_success() { (one, two) } else { (two, one) };
    refused(&lost, 409, "AlreadyExists", &["deployments.apps \"race\" already exists"]);
    let total = won.json()["spec"]["replicas"].as_i64().unwrap();
    assert_eq!(
        shares(all, "race").await,
        split(&[("east", total / 7), ("west", total / 7 * 2), ("north", total / 7 * 4)])
    );

    let objects: Vec<_> = (0..8).map(|number| deployment(&format!("crowd-{number}"), 7)).collect();
    for answer in join_all(objects.iter().map(|object| post(api, object))).await {
        assert_eq!(answer.status, StatusCode::CREATED, "{answer}");
        let name = answer.json()["metadata"]["name"].as_str().unwrap().to_owned();
        assert_eq!(shares(all, &name).await, split(&[("east", 1), ("west", 2), ("north", 4)]));
    }
}
