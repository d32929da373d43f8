//! What people who are no administrators see and do in the fleet view: what the members allow them, and nothing else.

use std::{collections::BTreeSet, time::Duration};

use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use testbed::{
    Answer, Api, FleetFile, Informer, Kubectl, Kubefold, Member, MemberOptions, Relay, Testbed, Watch, eventually,
    objects::held,
    samples::{config_map, controlled_pod, deployment, keys, name, namespace, revision},
};

const SOON: Duration = Duration::from_secs(60);
/// After a right was withdrawn: the time that a member's yes holds at most, and room.
const WITHDRAWN: Duration = Duration::from_secs(90);

/// Lets a user do all that a developer does in a namespace of one member.
async fn allow(member: &Member, namespace: &str, user: &str) {
    let role = format!("dev-{user}");
    let resources = "--resource=configmaps,pods,deployments.apps,deployments.apps/scale,replicasets.apps";
    let verbs = "--verb=get,list,watch,create,update,patch,delete,deletecollection";
    member.kubectl(&["create", "role", &role, "-n", namespace, verbs, resources]).await.ok();
    let (binding, role, of) = (role.clone(), format!("--role={role}"), format!("--user={user}"));
    member.kubectl(&["create", "rolebinding", &binding, "-n", namespace, &role, &of]).await.ok();
}

async fn fleet_api(fleet: &Kubefold, user: &str) -> Api {
    Api::from_kubeconfig(&fleet.kubeconfig_for(user, None), None).await
}

fn kubectl(fleet: &Kubefold, user: &str) -> Kubectl {
    let kubeconfig = fleet.kubeconfig_for(user, None);
    Kubectl::new(&kubeconfig, kubeconfig.parent().unwrap())
}

async fn get(api: &Api, path: &str) -> Answer {
    api.request(Method::GET, path, "").await
}

/// Has a user see the objects of a member, in the end.
async fn sees(api: &Api, path: &str, wanted: &str) {
    eventually(SOON, async || {
        let answer = get(api, path).await;
        let is_there = answer.status == StatusCode::OK && keys(&answer.json()).iter().any(|key| key == wanted);
        is_there.then_some(()).ok_or(answer)
    })
    .await;
}

fn refused(answer: &Answer, words: &str) {
    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{answer}");
    assert!(answer.json()["message"].as_str().unwrap().contains(words), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_sees_and_does_what_the_members_allow() {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    let (east, west, north) = (&bed["east"], &bed["west"], &bed["north"]);
    let maps = "/api/v1/namespaces/crew/configmaps";
    for member in [east, west, north] {
        namespace(member, "crew").await;
        member.api().await.create(maps, &config_map("own", json!({"of": member.name()}))).await;
    }
    for member in [east, west] {
        allow(member, "crew", "jane").await;
    }
    let file = FleetFile::default().member(east, 1).member(west, 1).member(north, 1);
    let fleet = Kubefold::start(&file).await.for_namespace("crew");
    let (admin, jane, eve) = (fleet.api().await, fleet_api(&fleet, "jane").await, fleet_api(&fleet, "eve").await);

    // Reads: the objects of two members, and a word about the third.
    sees(&jane, maps, "crew/own@east").await;
    let listed = get(&jane, maps).await;
    let shown: BTreeSet<String> = keys(&listed.ok()).into_iter().collect();
    assert_eq!(shown, ["crew/own@east", "crew/own@west"].map(str::to_owned).into());
    let text = String::from_utf8_lossy(&listed.body).into_owned();
    assert!(!text.contains("north"), "{text}");
    let left_out = r#"member north does not allow user "jane" to list configmaps; they are left out"#;
    assert!(listed.warnings().iter().any(|warning| warning.contains("member north does not allow")), "{listed}");
    let said = kubectl(&fleet, "jane").run(&["get", "configmaps", "-n", "crew"]).await;
    assert!(said.ok().contains("own@west") && said.stderr.contains(left_out), "{said}");
    refused(&get(&jane, &format!("/views/strict{maps}")).await, "cannot list resource \"configmaps\"");
    for path in
        ["/api/v1/configmaps", "/api/v1/namespaces/crew/secrets", "/api/v1/nodes", "/metrics", "/kubefold/v1/status"]
    {
        assert_eq!(get(&jane, path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    for path in [maps, "/api/v1/namespaces/crew/configmaps/own@east", "/api/v1/namespaces/crew/configmaps/none"] {
        refused(&get(&eve, path).await, "User \"eve\" cannot");
    }
    refused(
        &get(&jane, &format!("{maps}/own@north")).await,
        r#"configmaps "own" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the namespace "crew""#,
    );
    get(&jane, &format!("{maps}/own@east")).await.ok();
    let short = get(&jane, &format!("{maps}/own")).await;
    assert_eq!(
        short.json()["message"],
        r#"configmaps "own" not found; member-local objects with that name: own@east, own@west"#
    );

    // Pages have no count of what is not seen, and all are of one list.
    let page = get(&jane, &format!("{maps}?limit=1")).await.ok();
    assert!(page["metadata"].get("remainingItemCount").is_none(), "{page}");
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = get(&jane, &format!("{maps}?limit=5&continue={token}")).await.ok();
    assert_eq!(keys(&rest), ["crew/own@west"]);
    let other = get(&admin, &format!("{maps}?limit=5&continue={token}")).await;
    assert_eq!(other.status, StatusCode::GONE, "a token of another list: {other}");

    what_is_not_seen_changes_no_answer(&jane, north).await;
    discovery_is_open(&jane).await;
    of_a_shared_object_the_allowed_part_is_seen(&admin, &jane, east, west).await;
    of_a_fold_the_allowed_parts_are_seen(&fleet, &admin, &jane).await;
    writes_go_where_they_are_allowed(&fleet, &admin, &jane).await;
    whoever_may_acts_as_somebody_else(&fleet, east, west).await;
    each_member_says_what_it_allows(&fleet).await;
    rights_come_and_go(&jane, east, west, north).await;
}

/// Answers to what jane may ask, without revisions and what is made of them.
async fn answers(jane: &Api) -> Vec<String> {
    let maps = "/api/v1/namespaces/crew/configmaps";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut all = Vec::new();
    for (path, accept) in [
        (maps.to_owned(), "application/json"),
        (maps.to_owned(), table),
        (format!("{maps}?labelSelector=of"), "application/json"),
        (format!("{maps}?fieldSelector=metadata.name%3Dunseen"), "application/json"),
        (format!("{maps}?limit=1"), "application/json"),
        (format!("{maps}/unseen"), "application/json"),
        (format!("{maps}/unseen@north"), "application/json"),
        (format!("{maps}/unseen?resourceVersion=0"), "application/json"),
        ("/api/v1/namespaces/crew/pods/unseen/log".to_owned(), "application/json"),
        ("/apis/apps/v1/namespaces/crew/deployments/unseen".to_owned(), "application/json"),
        ("/apis/apps/v1/namespaces/crew/deployments/unseen/scale".to_owned(), "application/json"),
        ("/apis/apps/v1/namespaces/crew/deployments".to_owned(), table),
        (format!("{maps}?continue=unseen"), "application/json"),
        (format!("{maps}?resourceVersion=1"), "application/json"),
        (format!("/views/lenient{maps}"), table),
        (format!("/views/strict{maps}"), "application/json"),
        ("/api/v1/configmaps".to_owned(), "application/json"),
        ("/kubefold/v1/status".to_owned(), "application/json"),
    ] {
        let request = Request::get(&path).header(header::ACCEPT, accept).body("".into()).unwrap();
        let answer = jane.send(request).await.unwrap();
        let mut body = answer.json();
        body["metadata"]["resourceVersion"].take();
        body["metadata"]["continue"].take();
        // The age.
        let rows = body.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten();
        rows.for_each(|row| drop(row["cells"].as_array_mut().unwrap().pop()));
        all.push(format!("{path} {} {body} {:?}", answer.status, answer.warnings()));
    }
    // Writes, of which nothing is done: what they say of conflicts and of what is not there.
    let unseen = config_map("unseen", json!({})).to_string();
    let pinned = config_map("unseen@north", json!({})).to_string();
    for (method, path, body) in [
        (Method::POST, maps.to_owned(), &unseen),
        (Method::POST, maps.to_owned(), &pinned),
        (Method::PUT, format!("{maps}/unseen@east"), &unseen),
        (Method::PUT, format!("{maps}/unseen@north"), &pinned),
        (Method::DELETE, format!("{maps}/unseen"), &String::new()),
        (Method::DELETE, format!("{maps}/unseen@north"), &String::new()),
        (Method::DELETE, "/apis/apps/v1/namespaces/crew/deployments/unseen".to_owned(), &String::new()),
    ] {
        let answer = jane.request(method.clone(), &format!("{path}?dryRun=All"), body.clone()).await;
        let mut body = answer.json();
        // What is made anew each time.
        for minted in ["uid", "creationTimestamp", "resourceVersion", "annotations", "managedFields"] {
            body["metadata"][minted].take();
        }
        all.push(format!("{method} {path} {} {body} {:?}", answer.status, answer.warnings()));
    }
    // All that a watch begins with.
    let mut watch = jane
        .watch(&format!(
            "{maps}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        ))
        .await;
    loop {
        let mut event = watch.next(SOON).await.expect("the initial events");
        if event["type"] == "BOOKMARK" {
            return all;
        }
        event["object"]["metadata"]["resourceVersion"].take();
        all.push(event.to_string());
    }
}

/// Two fleets that differ in what one may not read are the same to one.
async fn what_is_not_seen_changes_no_answer(jane: &Api, north: &Member) {
    let before = answers(jane).await;
    let in_north = north.api().await;
    let crew = "/api/v1/namespaces/crew";
    in_north.create(&format!("{crew}/configmaps"), &config_map("unseen", json!({"of": "north"}))).await;
    in_north.create(&format!("{crew}/pods"), &controlled_pod("unseen", "unseen")).await;
    in_north.create("/apis/apps/v1/namespaces/crew/deployments", &deployment("unseen", 1)).await;
    let now = answers(jane).await;
    assert_eq!(now.len(), before.len());
    for (now, before) in now.iter().zip(&before) {
        assert_eq!(now, before);
    }
    for what in ["configmap", "pod", "deployment"] {
        north.kubectl(&["delete", what, "-n", "crew", "unseen", "--wait=false", "--force"]).await.ok();
    }
    for (now, before) in answers(jane).await.iter().zip(&before) {
        assert_eq!(now, before);
    }
}

async fn discovery_is_open(jane: &Api) {
    for path in ["/api", "/apis", "/api/v1", "/apis/apps/v1", "/version", "/openapi/v3", "/openapi/v2"] {
        assert_eq!(get(jane, path).await.status, StatusCode::OK, "{path}");
    }
    refused(&get(jane, "/debug/pprof").await, r#"User "jane" cannot get path "/debug/pprof""#);
}

/// Whoever may read a namespace in the second member alone sees that one, and hears of that one.
async fn of_a_shared_object_the_allowed_part_is_seen(admin: &Api, jane: &Api, east: &Member, west: &Member) {
    let spaces = "/api/v1/namespaces";
    west.kubectl(&["create", "clusterrole", "crew", "--verb=get,list,watch", "--resource=namespaces"]).await.ok();
    west.kubectl(&["create", "clusterrolebinding", "crew", "--clusterrole=crew", "--user=jane"]).await.ok();
    let whole = admin.get(&format!("{spaces}/crew")).await;
    assert_eq!(whole["metadata"]["annotations"]["kubefold.io/clusters"], "east,west,north");
    sees(jane, spaces, "crew").await;
    let mut watch = jane.watch(&format!("{spaces}?watch=true&fieldSelector=metadata.name%3Dcrew&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")).await;
    let first = event(&mut watch).await;
    assert_eq!(first["object"]["metadata"]["annotations"]["kubefold.io/clusters"], "west", "{first}");
    let now = west.api().await.get(&format!("{spaces}/crew")).await;
    assert_eq!(first["object"]["metadata"]["creationTimestamp"], now["metadata"]["creationTimestamp"]);
    assert_eq!(first["object"]["metadata"]["uid"], whole["metadata"]["uid"]);
    let before = revision(&admin.get(spaces).await);
    // What happens in the first member is no event to her, and what happens in hers is none to others.
    east.kubectl(&["label", "namespace", "crew", "in=east"]).await.ok();
    west.kubectl(&["label", "namespace", "crew", "in=west"]).await.ok();
    let heard = event(&mut watch).await;
    assert_eq!((&heard["type"], &heard["object"]["metadata"]["labels"]["in"]), (&json!("MODIFIED"), &json!("west")));
    let got = get(jane, &format!("{spaces}/crew")).await.ok();
    assert_eq!(got, heard["object"], "one version of an object is the same everywhere");
    let whole = admin.get(&format!("{spaces}/crew")).await;
    assert_eq!(whole["metadata"]["labels"]["in"], "east");
    assert!(revision(&whole) > before && revision(&got) > revision(&whole), "{whole} {got}");
    let mut all =
        admin.watch(&format!("{spaces}?watch=true&fieldSelector=metadata.name%3Dcrew&resourceVersion={before}")).await;
    assert_eq!(event(&mut all).await["object"], whole);
    west.kubectl(&["label", "namespace", "crew", "in=west-again", "--overwrite"]).await.ok();
    assert_eq!(event(&mut watch).await["object"]["metadata"]["labels"]["in"], "west-again");
    east.kubectl(&["label", "namespace", "crew", "in=east-again", "--overwrite"]).await.ok();
    assert_eq!(event(&mut all).await["object"]["metadata"]["labels"]["in"], "east-again", "the one between is none");
}

async fn of_a_fold_the_allowed_parts_are_seen(fleet: &Kubefold, admin: &Api, jane: &Api) {
    let all = "/apis/apps/v1/namespaces/crew/deployments";
    admin.create(all, &deployment("web", 6)).await;
    let whole = admin.get(&format!("{all}/web")).await;
    assert_eq!(whole["spec"]["replicas"], 6);
    let cut = get(jane, &format!("{all}/web")).await.ok();
    assert_eq!(cut["spec"]["replicas"], 4, "{cut}");
    assert_eq!(cut["metadata"]["uid"], whole["metadata"]["uid"]);
    let clusters = cut["metadata"]["annotations"]["kubefold.io/clusters"].as_str().unwrap();
    assert!(!clusters.contains("north") && clusters.len() == "east,west".len(), "{cut}");
    let listed = get(jane, all).await.ok();
    assert_eq!(
        (listed["items"][0]["spec"]["replicas"].as_u64(), listed["items"].as_array().unwrap().len()),
        (Some(4), 1)
    );
    refused(&get(jane, &format!("{all}/web@north")).await, "cannot get");
    get(jane, &format!("{all}/web@east")).await.ok();
    // A half is not written back as the whole.
    for args in [
        &["scale", "deployment", "web", "--replicas=9"][..],
        &["label", "deployment", "web", "a=b"],
        &["delete", "deployment", "web"],
    ] {
        let said = kubectl(fleet, "jane").in_namespace("crew").run(args).await;
        assert!(
            said.refused().contains("is forbidden: User \"jane\" cannot") && said.stderr.contains("member north"),
            "{said}"
        );
    }
    assert_eq!(admin.get(&format!("{all}/web")).await["spec"]["replicas"], 6);
}

async fn writes_go_where_they_are_allowed(fleet: &Kubefold, admin: &Api, jane: &Api) {
    let maps = "/api/v1/namespaces/crew/configmaps";
    let kubectl = kubectl(fleet, "jane").in_namespace("crew");
    let said = kubectl.run(&["create", "configmap", "mine", "--from-literal=a=b"]).await;
    assert!(said.ok().contains("configmap/mine created"), "{said}");
    assert!(said.stderr.contains("member north has no part: the caller may not create it there"), "{said}");
    let mine = admin.get(&format!("{maps}/mine")).await;
    assert!(!mine["metadata"]["annotations"]["kubefold.io/clusters"].as_str().unwrap().contains("north"), "{mine}");
    kubectl.run(&["label", "configmap", "mine", "x=y"]).await.ok();
    let manifest =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "b"}});
    kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], &manifest.to_string()).await.ok();
    kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], &manifest.to_string()).await.ok();
    assert_eq!(get(jane, &format!("{maps}/applied")).await.ok()["data"], json!({"a": "b"}));
    kubectl.run(&["delete", "configmap", "mine", "applied"]).await.ok();
    let said = kubectl.run(&["create", "secret", "generic", "no"]).await;
    assert!(said.refused().contains("cannot create resource \"secrets\""), "{said}");
    let pinned = jane.request(Method::POST, maps, config_map("pin@north", json!({})).to_string()).await;
    assert_eq!(pinned.status, StatusCode::FORBIDDEN, "{pinned}");
    jane.create(maps, &config_map("pin@east", json!({}))).await;
    // Of a collection what may be seen goes, and nothing else.
    let listed = format!("{maps}?labelSelector=of");
    let gone = jane.request(Method::DELETE, &listed, "").await;
    assert_eq!(keys(&gone.ok()), ["crew/own@east", "crew/own@west"]);
    assert_eq!(keys(&admin.get(&listed).await), ["crew/own@north"]);
}

async fn each_member_says_what_it_allows(fleet: &Kubefold) {
    let said = async |args: &[&str]| {
        let output = fleet.command(&[&["can-i"], args].concat()).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = said(&["list", "cm", "-n", "crew", "--as", "jane"]).await;
    let rows: Vec<&str> = text.lines().collect();
    for (row, begin) in rows.iter().zip([
        "MEMBER   ALLOWED   WHY",
        "east     yes       RBAC: allowed by RoleBinding \"dev-jane/crew\"",
        "west     yes ",
        "north    no",
    ]) {
        assert!(row.starts_with(begin), "{text}");
    }
    let json = said(&["get", "deployments.apps/scale", "-A", "--as", "jane", "-o", "json"]).await;
    let all: Value = serde_json::from_str(&json).unwrap();
    assert!(all.as_array().unwrap().iter().all(|one| one["allowed"] == false), "{all}");
    let unknown = fleet.command(&["can-i", "list", "wheels"]).await;
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no member serves a resource \"wheels\""), "{unknown:?}");
}

/// Of the members that let jane see something, those count that let the lead be jane.
async fn whoever_may_acts_as_somebody_else(fleet: &Kubefold, east: &Member, west: &Member) {
    let lead = kubectl(fleet, "lead").in_namespace("crew");
    let get = ["get", "configmaps", "-o", "name", "--as=jane"];
    let said = lead.run(&get).await;
    assert!(said.refused().contains(r#"User "lead" cannot impersonate users "jane""#), "{said}");
    west.api().await.create("/api/v1/namespaces/crew/configmaps", &config_map("for-lead", json!({}))).await;
    west.kubectl(&["create", "clusterrole", "lead", "--verb=impersonate", "--resource=users"]).await.ok();
    west.kubectl(&["create", "clusterrolebinding", "lead", "--clusterrole=lead", "--user=lead"]).await.ok();
    eventually(WITHDRAWN, async || {
        let said = lead.run(&get).await;
        if said.succeeded() { Ok(()) } else { Err(said) }
    })
    .await;
    let said = lead.run(&get).await;
    assert_eq!(said.ok().trim(), "configmap/for-lead@west", "{said}");
    assert!(said.stderr.contains("member east does not allow user \"jane\" to list configmaps"), "{said}");
    let own = lead.run(&["get", "configmaps"]).await;
    assert!(own.refused().contains(r#"User "lead" cannot list"#), "{own}");
    let masters = lead.run(&["get", "configmaps", "--as=jane", "--as-group=system:masters"]).await;
    assert!(masters.refused().contains(r#"cannot impersonate groups "system:masters""#), "{masters}");
    let can = lead.run(&["auth", "can-i", "list", "secrets", "--as=jane"]).await;
    assert!(!can.succeeded() && can.stderr.contains("cannot impersonate"), "{can}");
    for verb in [&["create", "configmap", "as-jane"][..], &["delete", "configmap", "pin@east"]] {
        let said = lead.run(&[verb, &["--as=jane"]].concat()).await;
        let is_east = verb.contains(&"pin@east");
        assert_eq!(said.succeeded(), !is_east, "{said}");
    }
    let made = east.api().await.request(Method::GET, "/api/v1/namespaces/crew/configmaps/as-jane", "").await;
    assert_eq!(made.status, StatusCode::NOT_FOUND, "{made}");
    west.kubectl(&["delete", "configmap", "-n", "crew", "as-jane", "for-lead"]).await.ok();
}

/// The next event that is no bookmark.
async fn event(watch: &mut Watch) -> Value {
    loop {
        let event = watch.next(WITHDRAWN).await.expect("the watch goes on");
        if event["type"] != "BOOKMARK" {
            return event;
        }
    }
}

async fn rights_come_and_go(jane: &Api, east: &Member, west: &Member, north: &Member) {
    let maps = "/api/v1/namespaces/crew/configmaps";
    let from = revision(&get(jane, maps).await.ok());
    let mut watch = jane.watch(&format!("{maps}?watch=true&resourceVersion={from}&allowWatchBookmarks=true")).await;
    north.api().await.create(maps, &config_map("hidden", json!({}))).await;
    west.api().await.create(maps, &config_map("seen", json!({}))).await;
    assert_eq!(name(&event(&mut watch).await["object"]), "seen@west", "and nothing of the other member");

    // Gained: what is there is told of, on the same watch.
    allow(north, "crew", "jane").await;
    let (one, other) = (event(&mut watch).await, event(&mut watch).await);
    let gained: BTreeSet<String> = [&one, &other].iter().map(|event| name(&event["object"]).to_owned()).collect();
    assert_eq!(gained, ["hidden@north", "own@north"].map(str::to_owned).into(), "{one} {other}");
    assert!(one["type"] == "ADDED" && other["type"] == "ADDED");
    north.api().await.create(maps, &config_map("later", json!({}))).await;
    let later = event(&mut watch).await;
    assert_eq!((name(&later["object"]), &later["type"]), ("later@north", &json!("ADDED")));

    // Withdrawn: the watch is told so, and of no deletion.
    north.kubectl(&["delete", "rolebinding", "dev-jane", "-n", "crew"]).await.ok();
    let end = event(&mut watch).await;
    assert_eq!((&end["type"], &end["object"]["code"]), (&json!("ERROR"), &json!(403)), "{end}");
    assert!(watch.next(SOON).await.is_none());
    let listed = get(jane, maps).await;
    assert!(keys(&listed.ok()).iter().all(|key| !key.ends_with("@north")), "{listed}");
    for member in [east, west] {
        member.kubectl(&["delete", "rolebinding", "dev-jane", "-n", "crew"]).await.ok();
    }
    eventually(WITHDRAWN, async || {
        let answer = get(jane, maps).await;
        if answer.status == StatusCode::FORBIDDEN { Ok(()) } else { Err(answer) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_member_is_down_its_last_word_stands() {
    // A word does not stand against a change of rights, and other tests change theirs.
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let maps = "/api/v1/namespaces/silent/configmaps";
    for member in [east, west] {
        namespace(member, "silent").await;
        member.api().await.create(maps, &config_map("own", json!({}))).await;
        allow(member, "silent", "jane").await;
        allow(member, "silent", "late").await;
    }
    let relay = Relay::before(west).await;
    let file = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&relay), 1, "");
    let fleet = Kubefold::start(&file).await;
    let [jane, late, eve] =
        [fleet_api(&fleet, "jane").await, fleet_api(&fleet, "late").await, fleet_api(&fleet, "eve").await];
    sees(&jane, maps, "silent/own@west").await;
    assert_eq!(get(&eve, maps).await.status, StatusCode::FORBIDDEN);
    let mut watch = jane.watch(&format!("{maps}?watch=true")).await;
    get(&jane, &format!("{maps}/own@west")).await.ok();
    jane.create(maps, &config_map("fresh@west", json!({}))).await;
    sees(&jane, maps, "silent/fresh@west").await;
    relay.cut().await;
    eventually(SOON, async || {
        let listed = get(&jane, maps).await;
        if listed.warnings().iter().any(|warning| warning.contains("west")) { Ok(()) } else { Err(listed) }
    })
    .await;
    // Longer than its word holds by itself.
    east.api().await.create(maps, &config_map("meanwhile", json!({}))).await;
    let until = tokio::time::Instant::now() + Duration::from_secs(14);
    while tokio::time::Instant::now() < until {
        let listed = get(&jane, maps).await;
        assert!(keys(&listed.ok()).contains(&"silent/own@west".to_owned()), "{listed}");
        assert!(!get(&eve, maps).await.status.is_success(), "what one may not see stays unseen");
    }
    assert_eq!(get(&eve, maps).await.status, StatusCode::FORBIDDEN, "its no stands, too");
    let fresh = get(&jane, &format!("{maps}/fresh@west")).await;
    assert_eq!(fresh.ok()["metadata"]["name"], "fresh@west", "a name that nobody asked it about: {fresh}");
    assert!(!get(&eve, &format!("{maps}/fresh@west")).await.status.is_success());
    assert!(["ADDED", "BOOKMARK"].contains(&event(&mut watch).await["type"].as_str().unwrap()));
    // A kubefold that never reached it knows as little of everybody.
    let blind = Kubefold::start(&file).await;
    let jane_there = fleet_api(&blind, "jane").await;
    let unknown = get(&jane_there, maps).await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE, "{unknown}");
    let lenient = get(&jane_there, &format!("/views/lenient{maps}")).await;
    assert!(keys(&lenient.ok()).contains(&"silent/own@east".to_owned()), "{lenient}");
    assert!(lenient.warnings().iter().any(|warning| warning.contains("west")), "{lenient}");
    // Whom it never told of is refused, unless people read.
    let unknown = get(&late, maps).await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE, "{unknown}");
    assert!(
        unknown.json()["message"]
            .as_str()
            .unwrap()
            .contains("whether user \"late\" may list configmaps is not known: member west"),
        "{unknown}"
    );
    let table =
        Request::get(maps).header(header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let rows = late.send(table.body("".into()).unwrap()).await.unwrap();
    assert!(
        rows.ok()["rows"].to_string().contains("own@east") && !rows.ok()["rows"].to_string().contains("own@west"),
        "{rows}"
    );
    assert!(rows.warnings().iter().any(|warning| warning.contains("whether member west allows")), "{rows}");
    relay.restore().await;
    sees(&late, maps, "silent/own@west").await;
}

/// An informer of client-go holds what its user may see, by pages and by a streaming list, and goes on by itself when his
/// rights change.
#[tokio::test(flavor = "multi_thread")]
async fn an_informer_holds_what_its_user_may_see() {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    let members = [&bed["east"], &bed["west"], &bed["north"]];
    let maps = "/api/v1/namespaces/informed/configmaps";
    let mut file = FleetFile::default();
    for member in members {
        namespace(member, "informed").await;
        member.api().await.create(maps, &config_map("own", json!({}))).await;
        file = file.member(member, 1);
    }
    let let_in = async |member: &Member| {
        let role = ["create", "clusterrole", "informed", "--verb=get,list,watch", "--resource=configmaps"];
        member.kubectl(&role).await.ok();
        let bound = ["create", "clusterrolebinding", "informed", "--clusterrole=informed", "--user=informer"];
        member.kubectl(&bound).await.ok();
    };
    let_in(members[0]).await;
    let_in(members[1]).await;
    let fleet = Kubefold::start(&file).await;
    sees(&fleet_api(&fleet, "informer").await, maps, "informed/own@west").await;
    let kubeconfig = fleet.kubeconfig_for("informer", None);
    let mut informers = [true, false].map(|watchlist| Informer::start(&kubeconfig, None, "configmaps", watchlist));
    let expect = async |informers: &mut [Informer], wanted: &[&str]| {
        for informer in informers {
            eventually(WITHDRAWN, async || {
                let held: BTreeSet<String> = held(&informer.dump().await).into_keys().collect();
                let ours: Vec<&String> = held.iter().filter(|key| key.starts_with("informed/")).collect();
                if ours == wanted { Ok(()) } else { Err(format!("{ours:?}\n{}", informer.errors())) }
            })
            .await;
        }
    };
    expect(&mut informers, &["informed/own@east", "informed/own@west"]).await;
    let_in(members[2]).await;
    expect(&mut informers, &["informed/own@east", "informed/own@north", "informed/own@west"]).await;
    members[2].kubectl(&["delete", "clusterrolebinding", "informed"]).await.ok();
    expect(&mut informers, &["informed/own@east", "informed/own@west"]).await;
}
