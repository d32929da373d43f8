//! What an operator watches: metrics, the dashboard and the alerts over them, logs, and the id that joins them.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

use testbed::{
    Api, FleetFile, Kubefold, MemberOptions, Testbed, eventually,
    samples::{config_map, deployment, namespace},
};

const SOON: Duration = Duration::from_secs(20);
const DOCS: &str = include_str!("../../docs/metrics.md");
const DASHBOARD: &str = include_str!("../../deploy/grafana/kubefold.json");
const RULES: &str = include_str!("../../deploy/prometheus/rules.yaml");

async fn scrape(fleet: &Kubefold) -> String {
    let answer = fleet.request(Method::GET, "/metrics", "").await;
    String::from_utf8(answer.body.to_vec()).unwrap()
}

/// The names of the samples that a scrape may hold.
fn exposed(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        assert!(
            ["counter", "gauge", "histogram"].contains(&kind),
            "{line}: the text format of Prometheus has no such type"
        );
        names.insert(name.to_owned());
    }
    names
}

/// Every name that begins as kubefold's do, without what a histogram adds.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("kubefold_"));
    words
        .map(|word| word.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_and_every_panel_and_alert_has_one() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.log");
    let file = FleetFile::default().member(&bed["east"], 1).member(&bed["west"], 1);
    let file = file.settings("mirror: {memory: 4Gi, storable: [events]}\n");
    let fleet = Kubefold::start_with(&file, &["--audit-log-path", audit.to_str().unwrap()]).await;
    namespace(&bed["east"], "shop").await;
    let api = bed["east"].api().await;
    api.create("/api/v1/namespaces/shop/configmaps", &config_map("never-in-a-label", json!({}))).await;
    fleet.kubectl(&["-n", "shop", "get", "configmap", "never-in-a-label@east"]).await.ok();
    fleet.kubectl(&["get", "configmaps", "-A"]).await.ok();
    let wide = fleet.api().await;
    wide.request(Method::GET, "/apis/example.com/v1/never-in-a-label", "").await;
    let _watch = wide.watch("/api/v1/configmaps?watch=true").await;

    let text = scrape(&fleet).await;
    // tests/e2e/apiserver.rs looks at the metrics of a server without a fleet.
    let of_fleet = DOCS.split("## An API server of its own").next().unwrap().lines();
    let documented = named(&of_fleet.filter(|line| line.starts_with("| `")).collect::<String>());
    assert!(exposed(&text).is_subset(&documented), "docs/metrics.md: {:?}", exposed(&text).difference(&documented));
    for (file, names) in [("dashboard", named(DASHBOARD)), ("rules", named(RULES))] {
        assert!(names.len() > 5, "{file}");
        let missing: Vec<_> = names.difference(&documented).collect();
        assert!(missing.is_empty(), "{file} names what is not there: {missing:?}");
    }
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let rules: Value = serde_saphyr::from_str(RULES).unwrap();
    let asks = |of: &Value| of["expr"].as_str().is_some_and(|expr| expr.contains("kubefold"));
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.iter().all(|panel| panel["targets"].as_array().unwrap().iter().all(asks)));
    assert!(rules["groups"][0]["rules"].as_array().unwrap().iter().all(asks));
    assert!(!text.contains("never-in-a-label"), "{text}");
    let has = |begin: &str, labels: &[&str]| {
        let line = text.lines().find(|line| line.starts_with(begin) && labels.iter().all(|label| line.contains(label)));
        let line = line.unwrap_or_else(|| panic!("no {begin} with {labels:?} in\n{text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let of_get = ["view=\"fleet\"", "verb=\"get\"", "resource=\"configmaps\"", "code=\"200\""];
    assert!(has("kubefold_http_requests_total", &of_get) >= 1.0);
    assert!(has("kubefold_http_response_bytes_total", &["verb=\"list\"", "resource=\"configmaps\""]) > 100.0);
    assert!(has("kubefold_http_requests_total", &["resource=\"custom\"", "code=\"404\""]) >= 1.0);
    assert!(has("kubefold_member_requests_total", &["member=\"west\"", "verb=\"watch\"", "code=\"200\""]) >= 1.0);
    assert!(has("kubefold_member_received_bytes_total", &["member=\"east\"", "verb=\"list\""]) > 100.0);
    assert!(has("kubefold_store_objects", &["member=\"east\"", "resource=\"configmaps\""]) >= 1.0);
    assert!(has("kubefold_store_object_bytes", &["member=\"east\"", "resource=\"configmaps\""]) > 100.0);
    assert!((has("kubefold_store_watchers", &["resource=\"configmaps\""]) - 1.0).abs() < 0.1);
    assert!(has("kubefold_member_probe_latency_seconds", &["member=\"east\""]) > 0.0);
    assert!(has("kubefold_member_lag_seconds", &["member=\"west\""]) < 60.0);
    for (name, label) in [
        ("kubefold_certificate_expiry_seconds", "certificate=\"serving\""),
        ("kubefold_certificate_expiry_seconds", "certificate=\"own_ca\""),
        ("kubefold_member_credential_expiry_seconds", "credential=\"client_certificate\""),
    ] {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(has(name, &[label]) > now, "{name}");
    }
    scraped_as_a_kube_apiserver(&api, &wide).await;
    bed["west"].kill();
    // tests/e2e/state.rs looks at those of state in PostgreSQL, and tests/e2e/standby.rs at those of a standby.
    let is_elsewhere = |name: &String| ["kubefold_state_", "kubefold_replica_"].iter().any(|of| name.starts_with(of));
    let documented: BTreeSet<_> = documented.into_iter().filter(|name| !is_elsewhere(name)).collect();
    eventually(SOON, async || {
        let text = scrape(&fleet).await;
        let lag = text.lines().find(|line| line.starts_with("kubefold_member_lag_seconds{member=\"west\"}"));
        let lag: f64 = lag.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default();
        // What has never failed has no count of failures.
        (lag > 0.5 && exposed(&text) == documented).then_some(()).ok_or(text)
    })
    .await;
}

/// The formats of metrics, and the results of health checks.
async fn scraped_as_a_kube_apiserver(member: &Api, fleet: &Api) {
    let scraped = async |api: &Api, path: &str, accept: &str| {
        let request = Request::get(path).header("accept", accept).body(Bytes::new()).unwrap();
        let answer = api.send(request).await.unwrap();
        let kind = answer.headers["content-type"].to_str().unwrap().to_owned();
        (kind, String::from_utf8(answer.body.to_vec()).unwrap())
    };
    for api in [member, fleet] {
        api.request(Method::GET, "/readyz", "").await;
    }
    for accept in ["", "*/*", "text/plain", "application/json"] {
        for path in ["/metrics", "/metrics/slis"] {
            let (said, told) = (scraped(member, path, accept).await, scraped(fleet, path, accept).await);
            assert_eq!(said.0, told.0, "{path}, {accept}");
        }
    }
    let (kind, text) = scraped(fleet, "/metrics", "application/openmetrics-text; version=1.0.0").await;
    assert!(
        kind.starts_with("application/openmetrics-text") && text.contains("# TYPE kubefold_build info\n"),
        "{kind}"
    );
    let families = async |api: &Api| {
        let text = scraped(api, "/metrics/slis", "").await.1;
        assert!(text.lines().any(|line| line == "kubernetes_healthcheck{name=\"ping\",type=\"readyz\"} 1"), "{text}");
        let comments = text.lines().filter(|line| line.starts_with("# ")).map(str::to_owned);
        comments.collect::<BTreeSet<_>>()
    };
    assert_eq!(families(member).await, families(fleet).await);
}

fn with_id(method: Method, path: &str, id: &str, body: &Value) -> Request<Bytes> {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let json = "application/json";
    let request = Request::builder().method(method).uri(path).header("content-type", json).header("accept", json);
    request.header("audit-id", id).body(body).unwrap()
}

/// One id in the answer, in kubefold's log, and in the audit log of every member that worked for it.
#[tokio::test(flavor = "multi_thread")]
async fn one_id_joins_all_logs() {
    let options = MemberOptions { audit: true, ..MemberOptions::default() };
    let bed = Testbed::start(&["east", "west"], options).await;
    let file = FleetFile::default().member(&bed["east"], 1).member(&bed["west"], 1);
    let fleet = Kubefold::start_with(&file, &["--log-format", "json"]).await;
    let api: Api = fleet.api().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let send = async |method: Method, path: String, id: &str, body: Value| {
        let answer = api.send(with_id(method, &path, id, &body)).await.unwrap();
        assert_eq!(answer.headers["audit-id"], id, "{answer}");
        answer
    };
    send(Method::POST, deployments.into(), "id-of-create", deployment("web", 2)).await.ok();
    send(Method::GET, format!("{deployments}/web"), "id-of-get", Value::Null).await.ok();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let mut request = with_id(Method::PATCH, &format!("{deployments}/web"), "id-of-patch", &patch);
    request.headers_mut().insert("content-type", "application/merge-patch+json".parse().unwrap());
    api.send(request).await.unwrap().ok();
    send(Method::GET, "/clusters/west/api/v1/namespaces/default".into(), "id-of-view", Value::Null).await.ok();
    send(Method::GET, "/api/v1/nosuch".into(), "id-of-refusal", Value::Null).await;
    let made = fleet.request(Method::GET, "/api/v1/namespaces", "").await;
    assert_eq!(made.headers["audit-id"].len(), 36, "one is made where none was sent");

    let worked = |member: &str, id: &str| {
        let events = bed[member].audit().into_iter().filter(|event| event["auditID"] == id);
        events.map(|event| event["verb"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    eventually(SOON, async || {
        for member in ["east", "west"] {
            for (id, verb) in [("id-of-create", "create"), ("id-of-get", "get"), ("id-of-patch", "patch")] {
                if !worked(member, id).contains(verb) {
                    return Err(format!("{member} has no {verb} of {id}: {:?}", worked(member, id)));
                }
            }
        }
        worked("west", "id-of-view").contains("get").then_some(()).ok_or_else(|| "no id-of-view in west".to_owned())
    })
    .await;
    assert!(worked("east", "id-of-view").is_empty());
    let log = fleet.log();
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect();
    let refused = lines.iter().find(|line| line["audit"] == "id-of-refusal").unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&refused["status"], &refused["method"]), (&json!(404), &json!("GET")));
}
