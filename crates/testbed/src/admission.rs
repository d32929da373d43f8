//! An admission webhook of a member: a test holds single requests there, refuses them or warns of them.
//!
//! It is how a write is caught at one step, dry runs apart from the real thing, without a hook in the program under test.
//!
//! Embedded members call no webhooks, so that they cannot take its place.

use std::{convert::Infallible, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{Member, eventually, pki::Authority};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// By its name one knows that the webhook is in force.
const PROBE: &str = "admission-probe";

/// What a request is told.
#[derive(Clone, Debug)]
pub enum Verdict {
    Allow,
    Warn(&'static str),
    Deny(&'static str),
}

/// Requests that a rule speaks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    /// The object's name in its member.
    pub name: &'static str,
    /// `CREATE` or `DELETE`.
    pub operation: &'static str,
    /// A dry run, or the real thing.
    pub dry: bool,
}

/// A webhook for what the tests of writes create in one member. Dropping it lets nothing be created there any more.
pub struct Admission {
    rules: Rules,
    _end: DropGuard,
}

type Rules = Arc<Mutex<Vec<Rule>>>;

/// Holds for one request, and is used up.
struct Rule {
    which: Which,
    arrived: oneshot::Sender<()>,
    verdict: oneshot::Receiver<Verdict>,
}

/// A request that is to be caught, or is.
pub struct Held {
    arrived: oneshot::Receiver<()>,
    verdict: oneshot::Sender<Verdict>,
}

impl Held {
    /// Waits until the member asks.
    pub async fn arrived(&mut self) {
        let waited = tokio::time::timeout(std::time::Duration::from_secs(30), &mut self.arrived).await;
        waited.expect("the request reaches the member").expect("a webhook");
    }

    /// Lets it go on.
    pub fn answer(self, verdict: Verdict) {
        // Whoever asked may have gone.
        self.verdict.send(verdict).ok();
    }
}

impl Admission {
    /// Registers a webhook and waits until it is in force.
    pub async fn before(member: &Member) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let authority = Authority::new("admission");
        let url = format!("https://127.0.0.1:{}/", listener.local_addr().unwrap().port());
        let rules = Rules::default();
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        let server = serve(listener, acceptor(&authority), rules.clone(), tasks.clone(), end.clone());
        tasks.spawn(end.clone().run_until_cancelled_owned(server));
        let admission = Self { rules, _end: end.drop_guard() };
        member.api().await.create(CONFIGURATIONS, &configuration(&url, &authority)).await;
        admission.in_force(member).await;
        admission
    }

    /// Catches the next such request.
    pub fn hold(&self, which: Which) -> Held {
        let ((arrived, arrival), (decide, verdict)) = (oneshot::channel(), oneshot::channel());
        self.rules.lock().push(Rule { which, arrived, verdict });
        Held { arrived: arrival, verdict: decide }
    }

    /// Answers the next such request at once.
    pub fn answer(&self, which: Which, verdict: Verdict) {
        self.hold(which).answer(verdict);
    }

    async fn in_force(&self, member: &Member) {
        self.answer(Which { name: PROBE, operation: "CREATE", dry: true }, Verdict::Deny("the webhook is in force"));
        let path = "/apis/apps/v1/namespaces/default/deployments?dryRun=All";
        let labels = json!({"app": PROBE});
        let probe = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": PROBE},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}
        });
        eventually(std::time::Duration::from_secs(30), async || {
            let answer = member.request(Method::POST, path, probe.to_string()).await;
            let denied = answer.to_string().contains("the webhook is in force");
            denied.then_some(()).ok_or_else(|| answer.to_string())
        })
        .await;
    }
}

pub(crate) fn acceptor(authority: &Authority) -> TlsAcceptor {
    let identity = authority.server(&["127.0.0.1"]);
    let chain = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn configuration(url: &str, authority: &Authority) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "test"},
        "webhooks": [{
            "name": "test.kubefold.io",
            "clientConfig": {"url": url, "caBundle": STANDARD.encode(authority.cert_pem())},
            "rules": [{
                "apiGroups": ["", "apps"], "apiVersions": ["v1"],
                "resources": ["deployments", "configmaps", "namespaces"],
                "operations": ["CREATE", "DELETE"]
            }],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "failurePolicy": "Fail",
            "timeoutSeconds": 30
        }]
    })
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, rules: Rules, tasks: TaskTracker, end: CancellationToken) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, rules) = (acceptor.clone(), rules.clone());
        let connection = async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| review(request, rules.clone()));
            let _closed =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        };
        tasks.spawn(end.clone().run_until_cancelled_owned(connection));
    }
}

async fn review(request: Request<Incoming>, rules: Rules) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = &review["request"];
    let name = asked["name"].as_str().filter(|name| !name.is_empty());
    let name = name.or_else(|| asked["object"]["metadata"]["name"].as_str()).unwrap_or_default();
    let rule = {
        let mut rules = rules.lock();
        let fits = |rule: &Rule| {
            let Which { name: wanted, operation, dry } = rule.which;
            wanted == name && asked["operation"] == operation && asked["dryRun"].as_bool().unwrap_or_default() == dry
        };
        rules.iter().position(fits).map(|at| rules.remove(at))
    };
    let verdict = match rule {
        Some(rule) => {
            rule.arrived.send(()).ok();
            rule.verdict.await.unwrap_or(Verdict::Allow)
        }
        None => Verdict::Allow,
    };
    let mut response = json!({"uid": asked["uid"], "allowed": !matches!(verdict, Verdict::Deny(_))});
    match verdict {
        Verdict::Allow => {}
        Verdict::Warn(text) => response["warnings"] = json!([text]),
        Verdict::Deny(text) => response["status"] = json!({"message": text, "code": 403, "reason": "Forbidden"}),
    }
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    let mut answer = Response::new(Full::new(Bytes::from(answer.to_string())));
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    Ok(answer)
}
