//! Who did what, in kubefold's audit log; and metrics and health without a login.

use std::{fs, path::Path, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use testbed::{
    Api, FleetFile, Kubefold, Member, MemberOptions, Port, Testbed, eventually,
    samples::{config_map, namespace},
};

const SOON: Duration = Duration::from_secs(60);
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules:\n\
                      - {level: Metadata, users: [jane, admin]}\n- {level: Metadata, userGroups: ['system:masters']}\n";

fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Sends a request under an id, and gives its code.
async fn send(api: &Api, method: &Method, path: &str, id: &str, body: &str) -> StatusCode {
    let request =
        http::Request::builder().method(method).uri(path).header("audit-id", id).header("user-agent", "e2e/1");
    let request = request.header("content-type", "application/json").body(body.to_owned().into()).unwrap();
    api.send(request).await.unwrap().status
}

/// What two servers must say alike of one request.
fn alike(event: &Value) -> Value {
    let mut event = event.clone();
    let fields = event.as_object_mut().unwrap();
    // Each has its own clients, clock and authorizer. A kube-apiserver knows more of what its answer was about.
    for own in ["user", "sourceIPs", "requestReceivedTimestamp", "stageTimestamp", "annotations", "auditID"] {
        assert!(fields.remove(own).is_some() || own == "annotations", "{own}");
    }
    if let Some(status) = event.get_mut("responseStatus").and_then(Value::as_object_mut) {
        status.remove("details");
    }
    event
}

async fn event_of(events: impl Fn() -> Vec<Value>, id: &str) -> Value {
    let find = || events().into_iter().find(|event| event["auditID"] == id);
    eventually(SOON, async || find().map(drop).ok_or_else(|| format!("no event of {id}"))).await;
    find().unwrap()
}

/// The same requests to a kube-apiserver and to a fleet of it alone.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_what_a_kube_apiserver_writes() {
    let member = Member::start("east", MemberOptions { audit: true, ..MemberOptions::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let [log, policy] = ["audit.log", "policy.yaml"].map(|file| folder.path().join(file));
    fs::write(&policy, POLICY).unwrap();
    let flags = ["--audit-log-path", log.to_str().unwrap(), "--audit-policy-file", policy.to_str().unwrap()];
    let file = FleetFile::default().member(&member, 1).settings("names: plain");
    let fleet = Kubefold::start_with(&file, &flags).await;
    let (own, through) = (member.api().await, fleet.api().await);
    namespace(&member, "shop").await;
    let maps = "/api/v1/namespaces/shop/configmaps";
    let text = |name: &str| config_map(name, json!({"a": "b"})).to_string();
    let requests = [
        (Method::GET, "/version".to_owned(), String::new()),
        (Method::GET, "/apis/apps".to_owned(), String::new()),
        (Method::GET, "/api/v1/pods?limit=5".to_owned(), String::new()),
        (Method::GET, format!("{maps}/none"), String::new()),
        (Method::GET, "/api/v1/namespaces/shop".to_owned(), String::new()),
        (Method::GET, format!("{maps}?watch=true&timeoutSeconds=1"), String::new()),
        (Method::DELETE, "/api/v1/namespaces/shop/configmaps/none".to_owned(), String::new()),
        (Method::POST, format!("{maps}?dryRun=All"), text("rehearsed")),
        (Method::POST, format!("{maps}?dryRun=All"), "{".to_owned()),
        (Method::GET, "/apis/apps/v1/namespaces/shop/deployments/web/scale".to_owned(), String::new()),
    ];
    for (at, (method, path, body)) in requests.iter().enumerate() {
        let [direct, folded] = ["direct", "folded"].map(|which| format!("{which}-{at}"));
        let codes = (send(&own, method, path, &direct, body).await, send(&through, method, path, &folded, body).await);
        assert_eq!(codes.0, codes.1, "{method} {path}");
        let [theirs, ours] = [event_of(|| member.audit(), &direct).await, event_of(|| events(&log), &folded).await];
        assert_eq!(alike(&theirs)["objectRef"], alike(&ours)["objectRef"], "{method} {path}\n{theirs}\n{ours}");
        for field in ["kind", "apiVersion", "level", "stage", "requestURI", "verb", "userAgent"] {
            assert_eq!(theirs[field], ours[field], "{field} of {method} {path}\n{theirs}\n{ours}");
        }
        for field in ["status", "code", "reason"] {
            assert_eq!(
                theirs["responseStatus"][field], ours["responseStatus"][field],
                "{method} {path}\n{theirs}\n{ours}"
            );
        }
    }
    assert_eq!(fs::metadata(&log).map(|file| std::os::unix::fs::MetadataExt::mode(&file) & 0o777).unwrap(), 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_says_what_each_member_decided() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for member in [east, west] {
        namespace(member, "audit").await;
    }
    for args in [
        &["create", "role", "audit", "-n", "audit", "--verb=*", "--resource=configmaps"][..],
        &["create", "rolebinding", "audit", "-n", "audit", "--role=audit", "--user=auditee"],
    ] {
        east.kubectl(args).await.ok();
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let flags = ["--audit-log-path", log.to_str().unwrap()];
    let fleet = Kubefold::start_with(&FleetFile::default().member(east, 1).member(west, 1), &flags).await;
    let user = Api::from_kubeconfig(&fleet.kubeconfig_for("auditee", Some("people")), None).await;
    let maps = "/api/v1/namespaces/audit/configmaps";
    let event = async |id: &str| event_of(|| events(&log), id).await;

    let body = config_map("kept", json!({})).to_string();
    assert_eq!(send(&user, &Method::POST, maps, "of-create", &body).await, StatusCode::CREATED);
    let made = event("of-create").await;
    assert_eq!(made["objectRef"]["name"], "kept");
    assert_eq!(made["user"], json!({"username": "auditee", "groups": ["people", "system:authenticated"]}));
    assert_eq!(made["sourceIPs"], json!(["127.0.0.1"]));
    let notes = &made["annotations"];
    assert_eq!(notes["authentication.kubefold.io/by"], "certificate");
    assert_eq!(notes["authorization.kubefold.io/create"], "allow: east; forbid: west", "{made}");

    // Whoever acts as somebody else is named, and so is whom he acts as.
    let as_other =
        http::Request::builder().uri(maps).header("audit-id", "of-other").header("impersonate-user", "other");
    assert_eq!(user.send(as_other.body(bytes::Bytes::new()).unwrap()).await.unwrap().status, StatusCode::FORBIDDEN);
    let other = event("of-other").await;
    assert_eq!(
        (&other["user"]["username"], &other["impersonatedUser"]["username"]),
        (&json!("auditee"), &json!("other"))
    );
    assert_eq!(other["responseStatus"]["reason"], "Forbidden");

    // Whom nobody knows.
    let nobody = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await;
    assert_eq!(send(&nobody, &Method::GET, maps, "of-nobody", "").await, StatusCode::UNAUTHORIZED);
    assert_eq!(
        (&event("of-nobody").await["user"], &event("of-nobody").await["responseStatus"]["code"]),
        (&json!({}), &json!(401))
    );

    // A watch that ends because a right is withdrawn says so, at its end.
    let request = http::Request::builder().uri(format!("{maps}?watch=true")).header("audit-id", "of-watch");
    let response = user.open(request.body(bytes::Bytes::new()).unwrap()).await.unwrap();
    assert_eq!(event("of-watch").await["stage"], "ResponseStarted");
    east.kubectl(&["delete", "rolebinding", "audit", "-n", "audit"]).await.ok();
    let told =
        tokio::time::timeout(SOON, http_body_util::BodyExt::collect(response.into_body())).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&told.to_bytes()).contains(r#""code":403"#));
    let ended = || {
        events(&log).into_iter().find(|event| event["auditID"] == "of-watch" && event["stage"] == "ResponseComplete")
    };
    eventually(SOON, async || ended().map(drop).ok_or("the watch has no end")).await;
    let why = ended().unwrap()["annotations"]["kubefold.io/ended"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("auditee") && why.contains("cannot watch"), "{why}");
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("healthz") && !text.contains("readyz"), "probes are left out");
}

async fn plain(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_health_have_an_address_of_their_own() {
    let bed = Testbed::shared(&["east"]).await;
    let port = Port::reserve();
    let address = format!("127.0.0.1:{}", port.number());
    let fleet =
        Kubefold::start_with(&FleetFile::default().member(&bed["east"], 1), &["--metrics-listen", &address]).await;
    let metrics = plain(&address, "GET /metrics").await;
    assert!(metrics.contains("text/plain; version=0.0.4;") && metrics.contains("kubefold_member_health{"), "{metrics}");
    let ready = plain(&address, "GET /readyz?verbose").await;
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("[+]member/east ok"), "{ready}");
    assert!(plain(&address, "GET /livez").await.ends_with("ok"));
    for (request, code) in
        [("POST /metrics", "405"), ("GET /api/v1/secrets", "404"), ("GET /kubefold/v1/status", "404")]
    {
        let answer = plain(&address, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{request}: {answer}");
    }
    // The other one still asks who it is.
    let nobody = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await;
    assert_eq!(nobody.request(Method::GET, "/metrics", "").await.status, StatusCode::UNAUTHORIZED);
}

/// Who may read everything cannot fill kubefold's memory with kinds that nobody uses.
#[tokio::test(flavor = "multi_thread")]
async fn a_further_kind_is_refused_when_objects_take_their_memory() {
    let bed = Testbed::shared(&["east"]).await;
    let fleet =
        Kubefold::start_with(&FleetFile::default().member(&bed["east"], 1), &["--store-memory-max", "1Ki"]).await;
    let api = fleet.api().await;
    namespace(&bed["east"], "full").await;
    let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"a": "x".repeat(4096)}});
    bed["east"].api().await.create("/api/v1/namespaces/full/configmaps", &large).await;
    api.get("/api/v1/namespaces/full/configmaps").await;
    let refused = api.request(Method::GET, "/api/v1/services", "").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("may hold 1024") && message.contains("--store-memory-max"), "{message}");
    // What is read already, what kubefold itself reads, and the members' own APIs go on.
    for path in
        ["/api/v1/namespaces/full/configmaps", "/api/v1/namespaces", "/api/v1/nodes", "/clusters/east/api/v1/services"]
    {
        api.get(path).await;
    }
}
