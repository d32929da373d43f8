//! Admission webhooks at a kube-apiserver and at the embedded server: one webhook that both call, the same configurations and writes,
//! and the same answers, warnings, objects and reviews.

mod cases;
mod refused;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::FutureExt;
use kubefold_apiserver::{BuiltIn, Server as Own, serve::ApiServer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::writes::{Server, Step, masked, step};
use cases::{Case, Place, cases};
use testbed::{Authority, Member, MemberOptions, Reply, Webhook, ca_bundle, eventually};

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const EFFECT: Duration = Duration::from_secs(60);
/// What a service in the namespace `shop` is called by.
const SERVICE: &str = "named.shop.svc";

/// What a webhook was asked: the name of the server, the rest of the path, and the request.
type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A webhook that answers as its path says, and remembers what it was asked.
struct Hook {
    webhook: Webhook,
    asked: Asked,
    /// Whether those asked to wait may go on, and how many wait.
    gate: watch::Sender<bool>,
    closed_port: u16,
    other: Authority,
}

impl Hook {
    async fn start() -> Self {
        let (asked, gate) = (Asked::default(), watch::Sender::new(true));
        let (log, waits) = (Arc::clone(&asked), gate.clone());
        let answer = move |path: String, review: Value| {
            let mut steps = path.trim_start_matches('/').splitn(2, '/');
            let (server, kind) = (steps.next().unwrap().to_owned(), steps.next().unwrap_or_default().to_owned());
            log.lock().push((server, kind.clone(), review["request"].clone()));
            let mut open = waits.subscribe();
            async move {
                if kind == "wait" {
                    open.wait_for(|open| *open).await.unwrap();
                }
                reply(&kind, &review)
            }
            .boxed()
        };
        let webhook = Webhook::start(&[SERVICE], answer).await;
        // Nobody listens there any more.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { webhook, asked, gate, closed_port: closed, other: Authority::new("other") }
    }

    fn client_config(&self, server: &str, place: &Place) -> Value {
        let path = |kind: &str| format!("/{server}/{kind}");
        let of_service = |name: &str, port: u16, kind: &str| json!({"service": {"namespace": "shop", "name": name, "port": port, "path": path(kind)}, "caBundle": self.webhook.ca_bundle()});
        match place {
            Place::Path(kind) => {
                json!({"url": format!("{}{}", self.webhook.url, path(kind)), "caBundle": self.webhook.ca_bundle()})
            }
            Place::OtherAuthority => {
                json!({"url": format!("{}{}", self.webhook.url, path("allow")), "caBundle": ca_bundle(&self.other)})
            }
            Place::Closed => {
                json!({"url": format!("https://127.0.0.1:{}", self.closed_port), "caBundle": self.webhook.ca_bundle()})
            }
            Place::Service(name) => of_service(name, self.webhook.port, "deny"),
            Place::ServicePort(name, port) => of_service(name, *port, "deny"),
        }
    }

    /// What one server asked since the last time.
    fn asked_by(&self, server: &str) -> Vec<(String, Value)> {
        let mut all = self.asked.lock();
        let mut taken: Vec<(String, Value)> = Vec::new();
        all.retain(|(by, kind, request)| {
            if by != server {
                return true;
            }
            taken.push((kind.clone(), request.clone()));
            false
        });
        taken
    }

    /// Waits until a server asks.
    async fn asks(&self, server: &str) {
        eventually(EFFECT, async || {
            let asks = self.asked.lock().iter().any(|(by, _, _)| by == server);
            asks.then_some(()).ok_or("nothing was asked")
        })
        .await;
    }
}

fn response(review: &Value, fields: Value) -> Reply {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    for (name, value) in fields.as_object().unwrap() {
        response[name] = value.clone();
    }
    Reply::Json(json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}))
}

fn patched(review: &Value, patch: Value) -> Reply {
    response(review, json!({"patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())}))
}

/// What the last step of a path says.
fn reply(kind: &str, review: &Value) -> Reply {
    let denied = |status: Value| response(review, json!({"allowed": false, "status": status}));
    let object = &review["request"]["object"];
    match kind {
        "deny" => denied(json!({"message": "not today"})),
        "bare" => response(review, json!({"allowed": false})),
        "reason" => denied(json!({"reason": "Forbidden", "code": 403})),
        "success" => denied(json!({"status": "Success", "code": 200, "message": "fine"})),
        "full" => denied(json!({
            "code": 409, "reason": "Conflict", "message": "<it> is & \"there\"", "details": {
                "name": "n", "group": "g", "kind": "k", "retryAfterSeconds": 3,
                "causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "data.a"}]},
        })),
        "warn" => response(
            review,
            json!({"warnings": ["be careful", "and \"quoted\"", "be careful"], "auditAnnotations": {"a": "b"}}),
        ),
        "warn-deny" => response(review, json!({"allowed": false, "warnings": ["beware"], "status": {"message": "no"}})),
        "silent" => Reply::Silence,
        "broken" => Reply::Text(200, "{x"),
        "empty" => Reply::Json(json!({})),
        "no-response" => Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"})),
        "other-uid" => response(review, json!({"uid": "other"})),
        "other-kind" => {
            let answer = response(review, json!({}));
            let Reply::Json(mut answer) = answer else { return answer };
            answer["kind"] = "".into();
            answer["apiVersion"] = "".into();
            Reply::Json(answer)
        }
        "text-500" => Reply::Text(500, "out of order\n"),
        "text-404" => Reply::Text(404, "nothing here"),
        "patch-alone" => response(review, json!({"patch": STANDARD.encode("[]")})),
        "type-alone" => response(review, json!({"patchType": "JSONPatch"})),
        "other-type" => response(review, json!({"patchType": "MergePatch", "patch": STANDARD.encode("[{}]")})),
        "nothing" => patched(review, json!([])),
        "same" => patched(review, json!([{"op": "test", "path": "/kind", "value": object["kind"]}])),
        "absent" => patched(review, json!([{"op": "add", "path": "/nope/a", "value": "x"}])),
        "differs" => patched(review, json!([{"op": "test", "path": "/kind", "value": "x"}])),
        "mistyped" => patched(review, json!([{"op": "add", "path": "/data", "value": {"a": 7}}])),
        "unknown-field" => patched(review, json!([{"op": "add", "path": "/unknown", "value": {"a": 7}}])),
        "moved" => patched(review, json!([{"op": "replace", "path": "/metadata/namespace", "value": "default"}])),
        "renamed" => {
            patched(review, json!([{"op": "replace", "path": "/metadata/name", "value": "renamed-by-webhook"}]))
        }
        "invalid" => patched(review, json!([{"op": "add", "path": "/metadata/labels/x y", "value": "z"}])),
        "managers" => patched(
            review,
            json!([{"op": "add", "path": "/metadata/managedFields", "value": [{"manager": "x", "operation": "Nope"}]}]),
        ),
        "label" => patched(review, json!([{"op": "add", "path": "/metadata/labels/seen", "value": "yes"}])),
        "scale" => patched(review, json!([{"op": "add", "path": "/spec/replicas", "value": 3}])),
        "target" => patched(review, json!([{"op": "add", "path": "/spec/maxReplicas", "value": 9}])),
        "sidecar" => patched(
            review,
            json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "side:1"}}]),
        ),
        "widget" => patched(
            review,
            json!([
            {"op": "add", "path": "/spec", "value": {"size": 3, "unknown": true}}, {"op": "add", "path": "/more", "value": 1}]),
        ),
        "break-widget" => patched(review, json!([{"op": "add", "path": "/spec", "value": {"size": "large"}}])),
        _ => match kind.strip_prefix("trace-") {
            Some(mark) => {
                let trace = format!("{}{mark}", object["data"]["trace"].as_str().unwrap_or_default());
                patched(review, json!([{"op": "add", "path": "/data/trace", "value": trace}]))
            }
            None => response(review, json!({})),
        },
    }
}

struct Servers {
    real: Server,
    own: Server,
    hook: Hook,
}

impl Servers {
    /// Sends the same to both at once.
    async fn both(&self, step: &Step) -> [Value; 2] {
        tokio::join!(self.told("real", &self.real, step), self.told("own", &self.own, step)).into()
    }

    async fn told(&self, name: &str, server: &Server, step: &Step) -> Value {
        let mut body = if step.body.is_null() { String::new() } else { step.body.to_string() };
        if body.contains("{uid}") {
            let (_, there) = server.send("GET", step.path, String::new()).await;
            body = body.replace("{uid}", there["metadata"]["uid"].as_str().unwrap());
        }
        let (code, warnings, body) = server.whole(step.method, step.path, body).await;
        let mut asked = self.hook.asked_by(name);
        // Each server asks the webhook at paths of its own, by UIDs of its own.
        let mut text = String::from_utf8(body.to_vec()).unwrap().replace(&format!("/{name}/"), "/<server>/");
        for (_, request) in &asked {
            text = text.replace(request["uid"].as_str().unwrap(), "<uid>");
        }
        let mut body = masked(&serde_json::from_str(&text).unwrap());
        if body["kind"] == "Status" && code < 300 {
            body["details"]["uid"] = Value::Null;
        }
        // Validating webhooks are asked at once.
        asked.sort_by_key(|(kind, _)| kind.starts_with("also-").then(|| kind.clone()));
        let masked = |(kind, request): (String, Value)| {
            let mut request = masked(&request);
            request["userInfo"] = Value::Null;
            // docs/embedded-kinds.md says what is different there.
            let is_below = request["subResource"].is_string() && request["subResource"] != "status";
            for object in ["object", "oldObject"].into_iter().filter(|_| is_below) {
                request[object]["metadata"] = Value::Null;
                request[object]["status"] = Value::Null;
            }
            if request["kind"]["group"] == "authorization.k8s.io" {
                request["object"]["metadata"] = Value::Null;
            }
            json!({"kind": kind, "request": request})
        };
        let asked: Vec<Value> = asked.into_iter().map(masked).collect();
        let told = json!({"code": code, "warnings": warnings, "body": body, "asked": asked}).to_string();
        serde_json::from_str(&without_generated(&told)).unwrap()
    }
}

/// A text without the letters of generated names.
fn without_generated(text: &str) -> String {
    const PREFIX: &str = "made-";
    let mut parts = text.split(PREFIX);
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let is_whole = part.chars().take(5).all(|letter| letter.is_ascii_alphanumeric());
        out += PREFIX;
        out += if is_whole { &part[5..] } else { part };
    }
    out
}

/// The places at which two answers differ, and both values.
pub(super) fn differences(place: &str, real: &Value, own: &Value, out: &mut String) {
    match (real, own) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                differences(&format!("{place}.{name}"), &real[name], &own[name], out);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (at, (left, right)) in left.iter().zip(right).enumerate() {
                differences(&format!("{place}[{at}]"), left, right, out);
            }
        }
        _ if real != own => out.push_str(&format!("  {place}\n    said {real}\n    told {own}\n")),
        _ => {}
    }
}

async fn install(servers: &Servers, all: &[Case]) {
    let shop = json!({"metadata": {"name": "shop", "labels": {"team": "a"}}});
    let external =
        json!({"metadata": {"name": "named"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let headless = json!({"metadata": {"name": "headless"}, "spec": {"clusterIP": "None", "ports": [{"port": 443}]}});
    let plain = json!({"metadata": {"name": "plain"}, "spec": {"ports": [{"port": 443}]}});
    let services = "/api/v1/namespaces/shop/services";
    let mut steps = vec![step("POST", "/api/v1/namespaces", shop)];
    steps.extend([external, headless, plain].map(|service| step("POST", services, service)));
    steps.push(step("POST", "/api/v1/namespaces/shop/serviceaccounts", json!({"metadata": {"name": "default"}})));
    steps.push(step("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", cases::widgets()));
    for (name, server) in [("real", &servers.real), ("own", &servers.own)] {
        for step in &steps {
            let (code, body) = server.raw(step).await;
            // The account may be there already.
            assert!(code == 201 || code == 409, "{name}: {body}");
        }
        for case in all {
            for (path, configuration) in case.configurations(|place| servers.hook.client_config(name, place)) {
                let (code, body) = server.raw(&step("POST", path, configuration)).await;
                assert_eq!(code, 201, "{name}: {body}");
            }
        }
        // The last ones of both kinds: when they are in force, so are those before them.
        for (case, path) in [("last-mutating", MUTATING), ("last-validating", VALIDATING)] {
            let probe = json!({"metadata": {"name": "probe", "labels": {"case": case}}});
            eventually(EFFECT, async || {
                let (code, body) = server
                    .raw(&step("POST", concat!("/api/v1/namespaces/shop/configmaps", "?dryRun=All"), probe.clone()))
                    .await;
                (code == 400).then_some(()).ok_or_else(|| format!("{path}: {body}"))
            })
            .await;
        }
        eventually(EFFECT, async || match server.send("GET", cases::WIDGETS, String::new()).await {
            (200, _) => Ok(()),
            (code, _) => Err(code),
        })
        .await;
    }
    servers.hook.asked.lock().clear();
}

#[tokio::test]
async fn webhooks_change_and_refuse_writes_as_at_a_kube_apiserver() {
    let member = Member::start("webhooks", MemberOptions::default()).await;
    let running = Own::new().built_in(BuiltIn::All).start().await.unwrap();
    let own: ApiServer = running.service();
    let servers = Servers {
        real: Server::Real(Box::new(member.api().await)),
        own: Server::Embedded(own),
        hook: Hook::start().await,
    };
    let all = cases();
    install(&servers, &all).await;
    let mut wrong = String::new();
    let steps: Vec<Step> = all.into_iter().flat_map(|case| case.steps).chain(refused::steps()).collect();
    for step in &steps {
        let [real, own] = servers.both(step).await;
        let mut differs = String::new();
        differences("", &real, &own, &mut differs);
        if !differs.is_empty() {
            wrong.push_str(&format!("{} {} {}\n{differs}", step.method, step.path, step.body));
        }
    }
    assert!(wrong.is_empty(), "of {}:\n{wrong}", steps.len());
    for (name, server) in [("real", &servers.real), ("own", &servers.own)] {
        others_write_meanwhile(name, server, &servers.hook).await;
    }
    running.end().await;
}

/// While a webhook is asked, others write the same object; then it is asked again about what is there now.
async fn others_write_meanwhile(name: &str, server: &Server, hook: &Hook) {
    const HELD: &str = "/api/v1/namespaces/shop/configmaps/held";
    let made = json!({"metadata": {"name": "held"}, "data": {"a": "1"}});
    assert_eq!(server.raw(&step("POST", MAPS, made)).await.0, 201, "{name}");
    hook.gate.send_replace(false);
    // The label is what the webhook selects.
    let held = json!({"metadata": {"labels": {"case": "held"}}, "data": {"a": "2"}});
    let held = step("PATCH", HELD, held);
    let waits = async {
        hook.asks(name).await;
        let free = step("PATCH", HELD, json!({"data": {"b": "1"}}));
        let (code, body) = server.raw(&free).await;
        hook.gate.send_replace(true);
        (code, body)
    };
    let ((code, body), (free, _)) = tokio::join!(server.raw(&held), waits);
    assert_eq!((code, free), (200, 200), "{name}: {body}");
    assert_eq!(body["data"], json!({"a": "2", "b": "1"}), "{name}: both changes are there");
    let asked = hook.asked_by(name);
    assert_eq!(asked.len(), 2, "{name}: {asked:?}");
    assert_eq!(asked[1].1["oldObject"]["data"], json!({"a": "1", "b": "1"}), "{name}");
}
