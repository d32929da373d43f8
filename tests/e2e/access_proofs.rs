//! What holds of rights whatever happens: under load, over a restart, with a kubelet's selectors, and where somebody on the way
//! takes a caller's name off.

use std::{fs, time::Duration};

use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use testbed::{
    Answer, Api, FleetFile, Kubefold, Member, MemberOptions, Relay, Saboteur, Testbed, Watch, eventually,
    samples::{config_map, keys, name, namespace, revision},
};

const SOON: Duration = Duration::from_secs(60);
/// After a right was withdrawn nothing is told of that happened later than this.
const BOUND: Duration = Duration::from_secs(12);

async fn fleet_api(fleet: &Kubefold, user: &str, group: Option<&str>) -> Api {
    Api::from_kubeconfig(&fleet.kubeconfig_for(user, group), None).await
}

async fn get(api: &Api, path: &str) -> Answer {
    api.request(Method::GET, path, "").await
}

/// Lets a user read and write config maps in a namespace of one member.
async fn allow(member: &Member, namespace: &str, user: &str) {
    let role = format!("maps-{user}");
    let verbs = "--verb=get,list,watch,create,update,patch,delete";
    member.kubectl(&["create", "role", &role, "-n", namespace, verbs, "--resource=configmaps"]).await.ok();
    let (role_flag, user) = (format!("--role={role}"), format!("--user={user}"));
    member.kubectl(&["create", "rolebinding", &role, "-n", namespace, &role_flag, &user]).await.ok();
}

/// Has a list show exactly these, in the end.
async fn shows(api: &Api, path: &str, wanted: &[&str]) {
    eventually(SOON, async || {
        let answer = get(api, path).await;
        if answer.status == StatusCode::OK && keys(&answer.json()) == wanted { Ok(()) } else { Err(answer) }
    })
    .await;
}

/// The text of kubefold's metrics.
async fn metrics(fleet: &Kubefold) -> String {
    let answer = fleet.request(Method::GET, "/metrics", "").await;
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Waits until what kubefold follows of everybody's rights is there.
async fn rights_are_followed(fleet: &Kubefold, member: &str) {
    eventually(SOON, async || {
        let text = metrics(fleet).await;
        let has = |kind: &str| {
            let (of, resource) = (format!("member=\"{member}\""), format!("resource=\"{kind}.rbac"));
            text.lines().any(|line| {
                line.starts_with("kubefold_store_objects{") && line.contains(&of) && line.contains(&resource)
            })
        };
        let missing: Vec<&str> =
            ["clusterroles", "clusterrolebindings"].into_iter().filter(|kind| !has(kind)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
    })
    .await;
}

/// A kubelet may list the pods of its own node and no others: the Node authorizer looks at the selector.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_lists_and_watches_its_own_pods() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let pods = "/api/v1/namespaces/kubelet/pods";
    let on = |name: &str, node: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "main:1"}]}})
    };
    for member in [east, west] {
        namespace(member, "kubelet").await;
        let api = member.api().await;
        api.create(pods, &on("mine", "kubelet-1")).await;
        api.create(pods, &on("others", "kubelet-2")).await;
    }
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1).member(west, 1)).await;
    let admin = fleet.api().await;
    let node = fleet_api(&fleet, "system:node:kubelet-1", Some("system:nodes")).await;
    let own = "fieldSelector=spec.nodeName%3Dkubelet-1%40east";
    assert_eq!(keys(&admin.get(&format!("/api/v1/pods?{own}")).await), ["kubelet/mine@east"]);
    for path in
        ["/api/v1/pods", "/api/v1/pods?fieldSelector=spec.nodeName%3Dkubelet-2%40east", "/api/v1/pods?labelSelector=a"]
    {
        let answer = get(&node, path).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}: {answer}");
    }
    let listed = get(&node, &format!("/api/v1/pods?{own}")).await;
    assert_eq!(keys(&listed.ok()), ["kubelet/mine@east"], "{listed}");
    assert!(listed.warnings().iter().any(|warning| warning.contains("member west does not allow")), "{listed}");
    let from = revision(&listed.json());
    let mut watch = node.watch(&format!("/api/v1/pods?watch=true&{own}&resourceVersion={from}")).await;
    let api = east.api().await;
    api.create(pods, &on("others-later", "kubelet-2")).await;
    api.create(pods, &on("mine-later", "kubelet-1")).await;
    assert_eq!(name(&event(&mut watch).await["object"]), "mine-later@east", "and nothing of another node");
    let refused = get(&node, &format!("/api/v1/pods?watch=true&resourceVersion={from}")).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
}

/// The next event that is no bookmark.
async fn event(watch: &mut Watch) -> Value {
    loop {
        let event = watch.next(SOON).await.expect("the watch goes on");
        if event["type"] != "BOOKMARK" {
            return event;
        }
    }
}

/// Whoever may not read a kind makes nobody read it.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_is_refused_starts_nothing() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let fleet = Kubefold::start(&FleetFile::default().member(&bed["east"], 1).member(&bed["west"], 1)).await;
    let eve = fleet_api(&fleet, "eve", None).await;
    let all = "/apis/policy/v1/poddisruptionbudgets";
    let one = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/one";
    assert_eq!(get(&eve, "/api/v1/secrets").await.status, StatusCode::FORBIDDEN);
    rights_are_followed(&fleet, "east").await;
    for path in [
        all.to_owned(),
        format!("{all}?watch=true"),
        format!("{all}?limit=1"),
        format!("{all}?resourceVersion=0"),
        format!("{all}?labelSelector=a"),
        format!("/views/lenient{all}"),
        format!("/views/strict{all}"),
        one.to_owned(),
        format!("{one}@east"),
        format!("{one}/status"),
    ] {
        let answer = get(&eve, &path).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}: {answer}");
    }
    for (method, path) in [(Method::DELETE, all), (Method::DELETE, one), (Method::PATCH, one)] {
        let answer = eve.request(method.clone(), path, "{}").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path}: {answer}");
    }
    let of_kind = "resource=\"poddisruptionbudgets.policy\"";
    let about = async || -> Vec<String> {
        let text = metrics(&fleet).await;
        let of_members =
            text.lines().filter(|line| line.starts_with("kubefold_member_") || line.starts_with("kubefold_store_"));
        of_members.filter(|line| line.contains(of_kind)).map(str::to_owned).collect()
    };
    assert_eq!(about().await, [""; 0]);
    fleet.api().await.get(all).await;
    assert!(!about().await.is_empty(), "whoever may read it is seen there");
}

/// Somebody who may read one member of three hears of no name in the others, wherever a name could stand.
#[tokio::test(flavor = "multi_thread")]
async fn no_answer_names_what_may_not_be_read() {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    let members = [&bed["east"], &bed["west"], &bed["north"]];
    let maps = "/api/v1/namespaces/hush/configmaps";
    let mut file = FleetFile::default();
    for member in members {
        namespace(member, "hush").await;
        file = file.member(member, 1);
        let api = member.api().await;
        let labels = json!({"of": "hush"});
        for name in ["common", "common-2"] {
            api.create(maps, &config_map(name, labels.clone())).await;
        }
        if member.name() != "east" {
            for name in ["veiled", "common-veiled"] {
                api.create(maps, &config_map(name, labels.clone())).await;
            }
        }
    }
    allow(members[0], "hush", "jane").await;
    let fleet = Kubefold::start(&file).await;
    let (admin, jane) = (fleet.api().await, fleet_api(&fleet, "jane", None).await);
    // A placed object of which jane may read no part.
    let hidden = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "veiled-whole",
        "annotations": {"kubefold.io/place-on": "west,north"}}, "data": {"secret": "veiled-value"}});
    admin.request(Method::POST, maps, hidden.to_string()).await;
    shows(&jane, maps, &["hush/common-2@east", "hush/common@east"]).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (body, empty) = (config_map("common", json!({})).to_string(), String::new());
    let wrong = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new",
        "annotations": {"kubefold.io/place-on": "nowhere"}}})
    .to_string();
    let cases = [
        (Method::GET, maps.to_owned(), &empty),
        (Method::GET, format!("{maps}?limit=1"), &empty),
        (Method::GET, format!("{maps}?labelSelector=of%3Dhush"), &empty),
        (Method::GET, format!("{maps}?fieldSelector=metadata.name%3Dveiled"), &empty),
        (Method::GET, format!("{maps}/common"), &empty),
        (Method::GET, format!("{maps}/common-veiled"), &empty),
        (Method::GET, format!("{maps}/veiled@west"), &empty),
        (Method::GET, "/api/v1/configmaps".to_owned(), &empty),
        (Method::GET, format!("/views/lenient{maps}"), &empty),
        (Method::GET, format!("/views/strict{maps}"), &empty),
        (Method::GET, "/kubefold/v1/status".to_owned(), &empty),
        (Method::POST, "/kubefold/v1/plan".to_owned(), &body),
        (Method::GET, "/openapi/v3".to_owned(), &empty),
        (Method::GET, "/apis".to_owned(), &empty),
        (Method::POST, format!("{maps}?dryRun=All"), &body),
        (Method::POST, format!("{maps}?dryRun=All"), &wrong),
        (Method::PUT, format!("{maps}/common?dryRun=All"), &body),
        (Method::DELETE, format!("{maps}/common?dryRun=All"), &empty),
        (Method::DELETE, format!("{maps}?dryRun=All&labelSelector=of"), &empty),
    ];
    for (method, path, body) in &cases {
        for accept in ["application/json", table] {
            let request = http::Request::builder().method(method).uri(path).header("accept", accept);
            let request = request.header("content-type", "application/json").body(body.to_string().into()).unwrap();
            let answer = jane.send(request).await.unwrap();
            // What was asked for may be said again.
            let said = format!("{:?} {}", answer.headers, String::from_utf8_lossy(&answer.body));
            let others = said.replace("common-veiled\\\" not found", "").replace("\"common-veiled\"", "");
            let others =
                others.replace("\"veiled\"", "").replace("\\\"veiled\\\"", "").replace("\\\"common-veiled\\\"", "");
            assert!(!others.contains("veiled"), "{method} {path} {accept}: {said}");
            assert!(!said.contains("@west") && !said.contains("@north"), "{method} {path} {accept}: {said}");
        }
    }
    let page = get(&jane, &format!("{maps}?limit=1")).await.ok();
    assert!(page["metadata"].get("remainingItemCount").is_none(), "{page}");
}

/// 200 watches of somebody whose right is withdrawn while objects change all the time.
#[tokio::test(flavor = "multi_thread")]
async fn watches_end_when_a_right_is_withdrawn_and_tell_of_nothing_after() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let maps = "/api/v1/namespaces/race/configmaps";
    for member in [east, west] {
        namespace(member, "race").await;
        allow(member, "race", "jane").await;
        member.api().await.create(maps, &config_map("own", json!({}))).await;
    }
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1).member(west, 1)).await;
    let jane = fleet_api(&fleet, "jane", None).await;
    shows(&jane, maps, &["race/own@east", "race/own@west"]).await;
    rights_are_followed(&fleet, "west").await;
    let from = revision(&get(&jane, maps).await.ok());
    let path = format!("{maps}?watch=true&resourceVersion={from}");
    let mut watches = join_all((0..200).map(|_| jane.watch(&path))).await;
    let (begun, api) = (Instant::now(), west.api().await);
    let churn = async {
        for turn in 0.. {
            let at = begun.elapsed().as_millis().to_string();
            let object = json!({"metadata": {"name": format!("churn-{}", turn % 20), "labels": {"at": at}}});
            let (one, body) = (format!("{maps}/churn-{}", turn % 20), object.to_string());
            let changed = api.request(Method::PUT, &one, body.clone()).await;
            if changed.status == StatusCode::NOT_FOUND {
                api.create(maps, &object).await;
            }
        }
    };
    let revoked = async {
        event(&mut west_watch(west, maps).await).await;
        west.kubectl(&["delete", "rolebinding", "maps-jane", "-n", "race"]).await.ok();
        begun.elapsed()
    };
    let reading = join_all(watches.iter_mut().map(async |watch| {
        let mut told: Vec<Value> = Vec::new();
        while let Some(event) = watch.next(SOON).await {
            let is_end = event["type"] == "ERROR";
            told.push(event);
            if is_end {
                break;
            }
        }
        told
    }));
    let (revoked, told) = tokio::select! {
        both = async { tokio::join!(revoked, reading) } => both,
        () = churn => unreachable!("it goes on and on"),
    };
    for events in &told {
        let end = events.last().unwrap();
        assert_eq!((&end["type"], &end["object"]["code"]), (&json!("ERROR"), &json!(403)), "{end}");
        for event in &events[..events.len() - 1] {
            assert_ne!(event["type"], "DELETED", "{event}");
            let at = event["object"]["metadata"]["labels"]["at"].as_str().map_or(0, |at| at.parse().unwrap());
            assert!(Duration::from_millis(at) < revoked + BOUND, "{at} ms is long after {revoked:?}: {event}");
        }
    }
    let listed = get(&jane, maps).await;
    assert_eq!(keys(&listed.ok()), ["race/own@east"]);
}

async fn west_watch(west: &Member, maps: &str) -> Watch {
    west.api().await.watch(&format!("{maps}?watch=true")).await
}

/// Where somebody on the way takes the names off, a caller's request is nobody's, and never kubefold's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_loses_its_caller_is_refused_by_the_member() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let maps = "/api/v1/namespaces/lost/configmaps";
    for member in [east, west] {
        namespace(member, "lost").await;
        for user in ["jane", "late"] {
            allow(member, "lost", user).await;
        }
        member.api().await.create(maps, &config_map("own", json!({}))).await;
    }
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1)).await;
    let mut join = tokio::process::Command::new(testbed::program());
    join.args(["join", "--name", "west", "--config"]).arg(fleet.config()).arg("--kubeconfig").arg(west.kubeconfig());
    let joined = join.output().await.unwrap();
    assert!(joined.status.success(), "{joined:?}");
    let folder = fleet.config().parent().unwrap().join("members/west");
    let thief = Saboteur::for_tokens(west, "west").await;
    let access = format!(
        "server: http://{}\ntokenFile: {}\nimpersonatorTokenFile: {}",
        thief.address(),
        folder.join("reader.token").display(),
        folder.join("impersonator.token").display()
    );
    fleet.configure(&FleetFile::default().member(east, 1).written("west", &access));
    fleet.hang_up();
    let (jane, late) = (fleet_api(&fleet, "jane", None).await, fleet_api(&fleet, "late", None).await);
    shows(&jane, maps, &["lost/own@east", "lost/own@west"]).await;
    assert_eq!(get(&jane, &format!("{maps}/own@west")).await.status, StatusCode::OK);

    thief.strip_impersonation();
    // Whom west knows already, and whom it does not.
    for api in [&jane, &late] {
        for (method, path, body) in [
            (Method::GET, format!("{maps}/own@west"), String::new()),
            (Method::POST, maps.to_owned(), config_map("new@west", json!({})).to_string()),
            (Method::DELETE, format!("{maps}/own@west"), String::new()),
            (Method::GET, format!("/clusters/west{maps}"), String::new()),
            (Method::GET, "/clusters/west/api/v1/nodes".to_owned(), String::new()),
            (Method::GET, format!("/clusters/west{maps}?watch=true"), String::new()),
        ] {
            let answer = api.request(method.clone(), &path, body).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path}: {answer}");
        }
    }
    let listed = get(&late, maps).await;
    assert_eq!(keys(&listed.ok()), ["lost/own@east"], "{listed}");
    assert_eq!(keys(&west.api().await.get(maps).await), ["lost/own"], "nothing was changed");
}

/// kubefold is started anew while a member is down: what that one allowed, and refused, is known.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_member_said_outlives_a_restart_while_it_is_down() {
    // A word does not stand against a change of rights, and other tests change theirs.
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let maps = "/api/v1/namespaces/anew/configmaps";
    for member in [east, west] {
        namespace(member, "anew").await;
        member.api().await.create(maps, &config_map("own", json!({}))).await;
        allow(member, "anew", "jane").await;
        allow(member, "anew", "late").await;
    }
    allow(east, "anew", "eve").await;
    let relay = Relay::before(west).await;
    let file = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&relay), 1, "");
    let fleet = Kubefold::start(&file).await;
    let users = async || {
        [
            fleet_api(&fleet, "jane", None).await,
            fleet_api(&fleet, "eve", None).await,
            fleet_api(&fleet, "late", None).await,
        ]
    };
    let [jane, eve, _] = users().await;
    shows(&jane, maps, &["anew/own@east", "anew/own@west"]).await;
    rights_are_followed(&fleet, "west").await;
    shows(&jane, maps, &["anew/own@east", "anew/own@west"]).await;
    shows(&eve, maps, &["anew/own@east"]).await;
    relay.cut().await;
    fleet.terminate(SOON).await;
    let kept = fs::read_to_string(fleet.state_dir().join("decisions.json")).unwrap();
    assert!(!kept.contains("jane") && !kept.contains("anew"), "{kept}");
    fleet.restart().await;

    let [jane, eve, late] = users().await;
    shows(&eve, maps, &["anew/own@east"]).await;
    let listed = get(&eve, maps).await;
    assert!(listed.warnings().iter().any(|warning| warning.contains("member west does not allow")), "{listed}");
    // What west held is known, too.
    shows(&jane, maps, &["anew/own@east", "anew/own@west"]).await;
    let listed = get(&jane, maps).await;
    assert!(listed.warnings().iter().any(|warning| warning.contains("member west is down")), "{listed}");
    let unknown = get(&late, maps).await;
    assert!(unknown.to_string().contains("whether user"), "west never told of late: {unknown}");
    relay.restore().await;
    shows(&jane, maps, &["anew/own@east", "anew/own@west"]).await;
    shows(&eve, maps, &["anew/own@east"]).await;
}
