//! A metrics server of a member: an aggregated API, registered by a real APIService, whose figures a test sets.
//!
//! It cannot watch and its objects have neither UIDs nor revisions, like the real one's. Beside them it serves `gauges`, of
//! the kind of API that says it can be watched, and whose revisions are no numbers.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{Member, eventually, pki::Authority, webhook::acceptor};

const GROUP_VERSION: &str = "/apis/metrics.k8s.io/v1beta1";

/// A running metrics server. Dropping it makes the API unavailable.
pub struct Metrics {
    state: Arc<State>,
    _end: DropGuard,
}

struct State {
    nodes: Vec<Value>,
    pods: Vec<Value>,
    broken: AtomicBool,
}

/// What a node uses.
pub fn node_metrics(name: &str, cpu: &str, memory: &str) -> Value {
    json!({
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"type": "kwok"}},
        "timestamp": "2026-01-01T00:00:00Z", "window": "10s", "usage": {"cpu": cpu, "memory": memory},
    })
}

/// What a pod of one container uses.
pub fn pod_metrics(namespace: &str, name: &str, app: &str, cpu: &str, memory: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": app},
        },
        "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
        "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}],
    })
}

impl Metrics {
    /// Starts one for a member, and waits until the member serves its API.
    pub async fn of(member: &Member, nodes: Vec<Value>, pods: Vec<Value>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let authority = Authority::new("metrics");
        let state = Arc::new(State { nodes, pods, broken: AtomicBool::new(false) });
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        let server =
            serve(listener, acceptor(&authority, &["127.0.0.1"]), Arc::clone(&state), tasks.clone(), end.clone());
        tasks.spawn(end.clone().run_until_cancelled_owned(server));
        register(member, port).await;
        Self { state, _end: end.drop_guard() }
    }

    /// From now on every figure is refused with 503.
    pub fn break_down(&self) {
        self.state.broken.store(true, Ordering::Relaxed);
    }

    /// It works again.
    pub fn mend(&self) {
        self.state.broken.store(false, Ordering::Relaxed);
    }
}

/// Without a network of services in the testbed, the name of one is an address outside: this machine's.
async fn register(member: &Member, port: u16) {
    let api = member.api().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics-server"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    api.create("/api/v1/namespaces/kube-system/services", &service).await;
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "kube-system", "name": "metrics-server", "port": port},
        },
    });
    api.create("/apis/apiregistration.k8s.io/v1/apiservices", &api_service).await;
    eventually(Duration::from_secs(60), async || {
        let answer = api.request(Method::GET, &format!("{GROUP_VERSION}/nodes"), "").await;
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    // A kube-apiserver that found an API away when it looked what is in it looks again after a minute, or a change.
    member.kubectl(&["label", "apiservice", "v1beta1.metrics.k8s.io", "looked=again"]).await.ok();
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    state: Arc<State>,
    tasks: TaskTracker,
    end: CancellationToken,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        let connection = async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| {
                let answer = answer(&request, &state);
                async move { Ok::<_, Infallible>(answer) }
            });
            let _closed =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        };
        tasks.spawn(end.clone().run_until_cancelled_owned(connection));
    }
}

fn answer(request: &Request<Incoming>, state: &State) -> Response<Full<Bytes>> {
    let (code, body) = document(request.uri().path(), request.uri().query().unwrap_or_default(), state);
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = code;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

fn document(path: &str, query: &str, state: &State) -> (StatusCode, Value) {
    let status = |code: u16, reason: &str, message: String| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code});
        (StatusCode::from_u16(code).unwrap(), status)
    };
    let Some(rest) = path.strip_prefix(GROUP_VERSION) else {
        return status(404, "NotFound", format!("no {path}"));
    };
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    let (namespace, parts) = match parts.as_slice() {
        ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let Some(resource) = parts.first() else { return (StatusCode::OK, resources()) };
    if state.broken.load(Ordering::Relaxed) {
        return status(503, "ServiceUnavailable", "the metrics are not there yet".into());
    }
    let gauges: Vec<Value>;
    let (kind, all) = match *resource {
        "nodes" => ("NodeMetrics", &state.nodes),
        "gauges" => {
            gauges = state.nodes.iter().map(gauge).collect();
            ("Gauge", &gauges)
        }
        "pods" => ("PodMetrics", &state.pods),
        other => return status(404, "NotFound", format!("no {other}")),
    };
    let mut items = all.iter().filter(|one| {
        let metadata = &one["metadata"];
        namespace.is_none_or(|namespace| metadata["namespace"] == namespace) && selected(metadata, query)
    });
    if let Some(name) = parts.get(1) {
        let Some(found) = items.find(|one| one["metadata"]["name"] == *name) else {
            return status(404, "NotFound", format!("{resource}.metrics.k8s.io {name:?} not found"));
        };
        let mut whole = json!({"kind": kind, "apiVersion": "metrics.k8s.io/v1beta1"});
        found.as_object().unwrap().iter().for_each(|(key, value)| whole[key] = value.clone());
        return (StatusCode::OK, whole);
    }
    let items: Vec<&Value> = items.collect();
    let metadata = if kind == "Gauge" { json!({"resourceVersion": GAUGES_AT}) } else { json!({}) };
    let list = json!({"kind": format!("{kind}List"), "apiVersion": "metrics.k8s.io/v1beta1", "metadata": metadata,
        "items": items});
    (StatusCode::OK, list)
}

/// As of an API over two stores.
const GAUGES_AT: &str = "41/17";

fn gauge(node: &Value) -> Value {
    let name = &node["metadata"]["name"];
    json!({"metadata": {"name": name, "uid": format!("uid-of-{name}"), "resourceVersion": "40/16"}})
}

/// Equality alone, which is all that the tests ask of it.
fn selected(metadata: &Value, query: &str) -> bool {
    let decoded: Vec<(&str, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key, percent_decode_str(value).decode_utf8_lossy().into_owned()))
        .collect();
    decoded.iter().all(|(key, selector)| {
        selector.split(',').filter_map(|term| term.split_once('=')).all(|(name, value)| match *key {
            "labelSelector" => metadata["labels"][name] == value,
            "fieldSelector" => metadata[name.trim_start_matches("metadata.")] == value,
            _ => true,
        })
    })
}

fn resources() -> Value {
    let one = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    let gauges = json!({"name": "gauges", "singularName": "", "namespaced": false, "kind": "Gauge",
        "verbs": ["get", "list", "watch"]});
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
        "resources": [gauges, one("nodes", "NodeMetrics", false), one("pods", "PodMetrics", true)],
    })
}
