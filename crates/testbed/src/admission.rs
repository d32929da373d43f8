//! An admission webhook of a member: a test holds single requests there, refuses them or warns of them.
//!
//! It is how a write is caught at one step, dry runs apart from the real thing, without a hook in the program under test.

use std::sync::Arc;

use futures::FutureExt;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    Member, eventually,
    webhook::{Reply, Webhook},
};

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
    _webhook: Webhook,
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
        let rules = Rules::default();
        let known = rules.clone();
        let webhook = Webhook::start(&[], move |_, review| self::review(review, known.clone()).boxed()).await;
        member.api().await.create(CONFIGURATIONS, &configuration(&webhook)).await;
        let admission = Self { rules, _webhook: webhook };
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

fn configuration(webhook: &Webhook) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "test"},
        "webhooks": [{
            "name": "test.kubefold.io",
            "clientConfig": {"url": webhook.url, "caBundle": webhook.ca_bundle()},
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

async fn review(review: Value, rules: Rules) -> Reply {
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
    Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}
