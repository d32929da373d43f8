//! What no store holds: metrics and other kinds without a watch, and reviews.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use testbed::{
    Answer, Kubefold, Member, MemberOptions, Metrics, Testbed, eventually, node_metrics, pod_metrics,
    samples::{keys, name, namespace},
};

const SOON: Duration = Duration::from_secs(30);
const PODS: &str = "/apis/metrics.k8s.io/v1beta1/pods";
const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
const SSAR: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SAR: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A node as `kubectl top nodes` needs it.
async fn node(member: &Member, name: &str) {
    let room = json!({"cpu": "4", "memory": "8Gi"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"type": "kwok"}},
        "status": {"allocatable": room, "capacity": room}});
    member.api().await.create("/api/v1/nodes", &node).await;
}

/// The lines of a table without its head, with single spaces.
fn rows(table: &str) -> Vec<String> {
    table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_read_from_every_member_that_has_them() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let pods = |member: &str| {
        vec![
            pod_metrics("shop", "web", "web", "250m", "64Mi"),
            pod_metrics("shop", &format!("only-{member}"), "other", "5m", "8Mi"),
        ]
    };
    let (east, west) = (&bed["east"], &bed["west"]);
    let (_figures, metrics, ..) = tokio::join!(
        async {
            node(east, "node-0").await;
            Metrics::of(east, vec![node_metrics("node-0", "1", "4Gi")], pods("east")).await
        },
        async {
            node(west, "node-0").await;
            Metrics::of(west, vec![node_metrics("node-0", "2", "2Gi")], pods("west")).await
        },
        namespace(&bed["north"], "shop"),
        namespace(east, "shop"),
        namespace(west, "shop"),
    );
    let fleet = Kubefold::before(bed.members()).await;
    eventually(3 * SOON, async || {
        let answer = fleet.request(Method::GET, NODES, "").await;
        if answer.status == StatusCode::OK && keys(&answer.json()).len() == 2 {
            Ok(())
        } else {
            Err(answer.to_string())
        }
    })
    .await;
    kubectl_top(&fleet).await;
    lists(&fleet).await;
    gets(&fleet).await;
    revisions_that_are_no_numbers_are_read_live(&fleet).await;
    differs_in_nothing_else(&bed["east"], &fleet).await;
    metrics.break_down();
    a_broken_member_is_named(&fleet).await;
    metrics.mend();
    west.stop_apiserver();
    a_member_that_is_down_is_named(&fleet).await;
}

async fn kubectl_top(fleet: &Kubefold) {
    let top = fleet.kubectl(&["top", "nodes"]).await;
    assert_eq!(rows(top.ok()), ["node-0@east 1000m 25% 4096Mi 50%", "node-0@west 2000m 50% 2048Mi 25%"]);
    assert_eq!(top.stderr, "");
    let top = fleet.kubectl(&["top", "node", "node-0@west"]).await;
    assert_eq!(rows(top.ok()), ["node-0@west 2000m 50% 2048Mi 25%"]);
    let top = fleet.kubectl(&["top", "pods", "-A"]).await;
    let all = [
        "shop only-east@east 5m 8Mi",
        "shop only-west@west 5m 8Mi",
        "shop web@east 250m 64Mi",
        "shop web@west 250m 64Mi",
    ];
    assert_eq!(rows(top.ok()), all);
    let top = fleet.kubectl(&["top", "pods", "-n", "shop", "-l", "app=web"]).await;
    assert_eq!(rows(top.ok()), ["web@east 250m 64Mi", "web@west 250m 64Mi"]);
    let top = fleet.kubectl(&["top", "pods", "-n", "shop", "-l", "kubefold.io/cluster=west,app=web"]).await;
    assert_eq!(rows(top.ok()), ["web@west 250m 64Mi"]);
    let top = fleet.kubectl(&["top", "pod", "web@east", "-n", "shop", "--containers"]).await;
    assert_eq!(rows(top.ok()), ["web@east main 250m 64Mi"]);
    let top = fleet.kubectl(&["top", "pod", "only-west", "-n", "shop"]).await;
    assert_eq!(rows(top.ok()), ["only-west 5m 8Mi"], "short for the one that there is");
    assert!(fleet.kubectl(&["top", "pod", "web", "-n", "shop"]).await.refused().contains("web@east, web@west"));
}

async fn lists(fleet: &Kubefold) {
    let api = fleet.api().await;
    let list = api.get(&format!("{PODS}?limit=1")).await;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodMetricsList"), &json!("metrics.k8s.io/v1beta1")));
    assert_eq!(list["metadata"], json!({}), "no revision, and no next page");
    assert_eq!(keys(&list), ["shop/only-east@east", "shop/only-west@west", "shop/web@east", "shop/web@west"]);
    assert_eq!(list["items"][3]["metadata"]["annotations"], json!({"kubefold.io/cluster": "west"}));
    for (query, wanted) in [
        ("labelSelector=app%3Dweb%40west", vec!["shop/web@west"]),
        ("fieldSelector=metadata.name%3Dweb%40east", vec!["shop/web@east"]),
        ("fieldSelector=metadata.name%3Donly-east", vec!["shop/only-east"]),
        ("labelSelector=kubefold.io%2Fcluster+in+(north)", vec![]),
    ] {
        assert_eq!(keys(&api.get(&format!("{PODS}?{query}")).await), wanted, "{query}");
    }
    for query in ["labelSelector=a%3Db%3Dc", "continue=x", "limit=x"] {
        let answer = api.request(Method::GET, &format!("{PODS}?{query}"), "").await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}: {answer}");
    }
    let statuses = api.get("/api/v1/componentstatuses").await;
    let etcds: Vec<String> = keys(&statuses).into_iter().filter(|key| key.starts_with("etcd-0")).collect();
    assert_eq!(
        (&statuses["kind"], etcds),
        (&json!("ComponentStatusList"), ["etcd-0@east", "etcd-0@north", "etcd-0@west"].map(str::to_owned).to_vec())
    );
}

async fn gets(fleet: &Kubefold) {
    let api = fleet.api().await;
    let path = |name: &str| format!("/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/{name}");
    let one = api.get(&path("web@west")).await;
    assert_eq!((&one["kind"], name(&one)), (&json!("PodMetrics"), "web@west"));
    assert_eq!(one["containers"][0]["usage"]["cpu"], "250m");
    for (asked, code, reason) in [
        ("web", 409, "Conflict"),
        ("nope@west", 404, "NotFound"),
        ("nope", 404, "NotFound"),
        ("web@north", 404, "NotFound"),
    ] {
        let answer = api.request(Method::GET, &path(asked), "").await;
        assert_eq!((answer.status.as_u16(), &answer.json()["reason"]), (code, &json!(reason)), "{asked}: {answer}");
    }
}

async fn revisions_that_are_no_numbers_are_read_live(fleet: &Kubefold) {
    const GAUGES: &str = "/apis/metrics.k8s.io/v1beta1/gauges";
    let api = fleet.api().await;
    let list = api.get(GAUGES).await;
    assert_eq!(keys(&list), ["node-0@east", "node-0@west"], "{list}");
    let one = api.get(&format!("{GAUGES}/node-0@west")).await;
    assert_eq!(
        (&one["kind"], &one["metadata"]["annotations"]["kubefold.io/cluster"]),
        (&json!("Gauge"), &json!("west"))
    );
    let watch = api.request(Method::GET, &format!("{GAUGES}?watch=true"), "").await;
    assert_eq!(watch.status, StatusCode::METHOD_NOT_ALLOWED, "{watch}");
}

/// What the member answers to a person who asks for what is not there, the fleet answers as well.
async fn differs_in_nothing_else(east: &Member, fleet: &Kubefold) {
    for (method, path) in [
        (Method::GET, "/api/v1/componentstatuses?watch=1"),
        (Method::GET, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        (Method::GET, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x"),
    ] {
        let (theirs, ours) = (east.request(method.clone(), path, "").await, fleet.request(method, path, "").await);
        assert_eq!((theirs.status, theirs.json()), (ours.status, ours.json()), "{path}");
    }
}

/// The members whose objects a warning says are left out.
fn left_out(answer: &Answer) -> Vec<String> {
    let warnings = answer.warnings();
    let named = warnings.iter().filter(|text| text.contains("are left out"));
    named.flat_map(|text| text.split("member ").nth(1)?.split([' ', ':']).next().map(str::to_owned)).collect()
}

async fn a_broken_member_is_named(fleet: &Kubefold) {
    let answer = fleet.request(Method::GET, NODES, "").await;
    assert_eq!((keys(&answer.ok()), left_out(&answer)), (vec!["node-0@east".to_owned()], vec!["west".to_owned()]));
    let top = fleet.kubectl(&["top", "pods", "-A"]).await;
    assert!(
        top.ok().contains("web@east") && !top.ok().contains("web@west") && top.stderr.contains("member west"),
        "{top}"
    );
    let one = |name: &str| format!("/apis/metrics.k8s.io/v1beta1/nodes/{name}");
    assert_eq!(fleet.request(Method::GET, &one("node-0@west"), "").await.status, StatusCode::SERVICE_UNAVAILABLE);
    // Whether it is the only one is not known.
    assert_eq!(fleet.request(Method::GET, &one("node-0"), "").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fleet.request(Method::GET, &one("node-0@east"), "").await.status, StatusCode::OK);
}

async fn a_member_that_is_down_is_named(fleet: &Kubefold) {
    eventually(SOON, async || {
        let answer = fleet.request(Method::GET, NODES, "").await;
        let named = answer.status == StatusCode::OK && left_out(&answer) == ["west"];
        if named && keys(&answer.json()) == ["node-0@east"] { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    // What the caller may do is judged by who is there.
    let asked = fleet.kubectl(&["auth", "can-i", "get", "pods"]).await;
    assert!(asked.ok().contains("yes") && asked.stderr.contains("member west"), "{asked}");
    let answer = fleet.request(Method::POST, SAR, subject(None).to_string()).await;
    assert_eq!((answer.status, &answer.json()["status"]["allowed"]), (StatusCode::CREATED, &json!(false)));
    assert!(answer.json()["status"]["evaluationError"].as_str().unwrap().contains("member west"), "{answer}");
}

/// May bob read pods?
fn subject(name: Option<&str>) -> Value {
    let mut review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "shop"}}});
    if let Some(name) = name {
        review["spec"]["resourceAttributes"]["name"] = json!(name);
    }
    review
}

async fn allow_bob(member: &Member) {
    member.kubectl(&["create", "clusterrole", "reader", "--verb=get,list", "--resource=pods"]).await.ok();
    member.kubectl(&["create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=bob"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_ask_every_member() {
    let bed = Testbed::start(&["east", "west"], MemberOptions { audit: true, ..MemberOptions::default() }).await;
    let fleet = Kubefold::before(bed.members()).await;
    assert_eq!(fleet.kubectl(&["auth", "can-i", "get", "pods"]).await.ok().trim(), "yes");
    assert_eq!(fleet.kubectl(&["auth", "can-i", "delete", "pod/web@east"]).await.ok().trim(), "yes");
    let list = fleet.kubectl(&["auth", "can-i", "--list"]).await;
    assert!(list.ok().contains("*.*") && list.stderr.is_empty(), "{list}");
    let whoami = fleet.kubectl(&["auth", "whoami"]).await;
    assert!(whoami.ok().contains("system:masters"), "{whoami}");
    same_as_one_member(&bed["east"], &fleet).await;
    a_token_is_shown_to_whose_it_is(&bed, &fleet).await;

    let api = fleet.api().await;
    let ask = async |name: Option<&str>| {
        let answer = api.request(Method::POST, SAR, subject(name).to_string()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer}");
        let review = answer.json();
        assert_eq!(review["spec"], subject(name)["spec"], "as the client sent it");
        review["status"].clone()
    };
    allow_bob(&bed["east"]).await;
    eventually(SOON, async || {
        let status = ask(Some("web@east")).await;
        if status["allowed"] == true { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    assert_eq!(ask(None).await, json!({"allowed": false, "reason": "member west does not allow it"}));
    assert_eq!(ask(Some("web@west")).await["allowed"], false);
    allow_bob(&bed["west"]).await;
    eventually(SOON, async || {
        let status = ask(None).await;
        if status["allowed"] == true { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    // The members were asked as the caller, and for their own names.
    let audited = bed["east"].audit();
    let reviews: Vec<&Value> =
        audited.iter().filter(|event| event["objectRef"]["resource"] == "subjectaccessreviews").collect();
    assert!(!reviews.is_empty() && reviews.iter().all(|event| event["impersonatedUser"]["username"].is_string()));
}

/// The attack: a member that keeps the tokens that it is asked about has those of all others.
async fn a_token_is_shown_to_whose_it_is(bed: &Testbed, fleet: &Kubefold) {
    bed["east"].kubectl(&["create", "serviceaccount", "robot"]).await.ok();
    let token = bed["east"].kubectl(&["create", "token", "robot"]).await.ok().trim().to_owned();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let status =
        fleet.api().await.create("/apis/authentication.k8s.io/v1/tokenreviews", &review).await["status"].clone();
    assert_eq!(status["authenticated"], true, "{status}");
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    let groups = status["user"]["groups"].as_array().unwrap();
    assert_eq!(groups, &[json!("system:authenticated")], "what Kubernetes itself trusts has no power in other members");
    let asked = |member: &Member| {
        member.audit().iter().filter(|event| event["objectRef"]["resource"] == "tokenreviews").count()
    };
    eventually(SOON, async || if asked(&bed["east"]) > 0 { Ok(()) } else { Err("east was not asked") }).await;
    assert_eq!(asked(&bed["west"]), 0, "nor was it for what nobody signed");
}

/// A fault of the question is told as a member tells it, and an answer on which all agree is a member's own.
async fn same_as_one_member(east: &Member, fleet: &Kubefold) {
    let (theirs, ours) = (east.api().await, fleet.api().await);
    let of =
        |spec: Value| json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec});
    let good = of(json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}));
    let (a, b) = (ours.create(SSAR, &good).await, theirs.create(SSAR, &good).await);
    assert_eq!((&a["status"], &a["spec"], &a["kind"]), (&b["status"], &b["spec"], &b["kind"]));
    let bad = of(json!({})).to_string();
    let (a, b) = (ours.request(Method::POST, SSAR, bad.clone()).await, theirs.request(Method::POST, SSAR, bad).await);
    assert_eq!(
        (a.status, &a.json()["reason"], &a.json()["details"]),
        (b.status, &b.json()["reason"], &b.json()["details"])
    );
    let rules = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let (a, b) = (ours.create(path, &rules).await, theirs.create(path, &rules).await);
    // Their order is any, from one answer to the next.
    let sorted = |review: &Value| {
        let rules = review["status"]["resourceRules"].as_array().unwrap().iter().map(Value::to_string);
        rules.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((sorted(&a), &a["status"]["incomplete"]), (sorted(&b), &b["status"]["incomplete"]));
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "nonsense"}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    assert_eq!(ours.create(path, &token).await["status"], theirs.create(path, &token).await["status"]);
}
