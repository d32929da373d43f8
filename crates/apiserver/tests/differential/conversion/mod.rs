//! Custom resources whose versions a webhook converts, at a kube-apiserver and at the embedded server: one webhook that both call,
//! the same requests, and the same answers.

mod answers;
mod steps;

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use kubefold_apiserver::{BuiltIn, Server as Own, serve::ApiServer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    webhooks::differences,
    writes::{Server, Step, masked, step},
};
use steps::{DEFINITION, DEFINITIONS, HOSTS_V1, HOSTS_V2};
use testbed::{Authority, Member, MemberOptions, Webhook, ca_bundle, eventually};

const SOON: Duration = Duration::from_secs(60);
/// How long one look at whether a change is in force may take.
const PROBE: Duration = Duration::from_secs(5);

/// How the webhook answers now.
type Mode = Arc<Mutex<&'static str>>;

struct Servers {
    real: Server,
    own: Server,
    webhook: Webhook,
    mode: Mode,
    other: Authority,
    closed_port: u16,
}

impl Servers {
    async fn start(member: &Member, own: ApiServer) -> Self {
        let mode: Mode = Arc::new(Mutex::new("fine"));
        let now = Arc::clone(&mode);
        let answer = move |_path: String, review: Value| {
            let mode = *now.lock();
            async move { answers::reply(mode, &review) }.boxed()
        };
        // Nobody listens there any more.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self {
            real: Server::Real(Box::new(member.api().await)),
            own: Server::Embedded(own),
            webhook: Webhook::start(&["named.shop.svc"], answer).await,
            mode,
            other: Authority::new("other"),
            closed_port: closed,
        }
    }

    fn all(&self) -> [(&'static str, &Server); 2] {
        [("real", &self.real), ("own", &self.own)]
    }

    fn set(&self, mode: &'static str) {
        *self.mode.lock() = mode;
    }

    /// Sends the same to both at once, and notes what differs.
    async fn compare(&self, step: &Step, wrong: &mut String) {
        let (real, own) = tokio::join!(told("real", &self.real, step), told("own", &self.own, step));
        let mut differs = String::new();
        differences("", &real, &own, &mut differs);
        if !differs.is_empty() {
            let mode = *self.mode.lock();
            wrong.push_str(&format!("{mode}: {} {} {}\n{differs}", step.method, step.path, step.body));
        }
    }

    /// Sends a change of the definition to both, each with the place of the webhook, and waits until it is in force.
    async fn redefine(&self, change: impl Fn(&str) -> Value, in_force: &'static str) {
        for (name, server) in self.all() {
            let body = json!({"spec": {"conversion": {"webhook": {"clientConfig": change(name)}}}});
            let (code, answer) = server.raw(&step("PATCH", DEFINITION, body)).await;
            assert_eq!(code, 200, "{name}: {answer}");
            eventually(SOON, async || {
                // A kube-apiserver may hold a request that it got while it read the definition anew for as long as a minute.
                let path = format!("{HOSTS_V2}/a");
                let asked = timeout(PROBE, server.send("GET", &path, String::new())).await;
                let (_, body) = asked.map_err(|_| format!("{name}: no answer within {PROBE:?}"))?;
                let text = body.to_string();
                text.contains(in_force).then_some(()).ok_or_else(|| format!("{name}: {in_force} is not in {text}"))
            })
            .await;
        }
    }
}

/// What a server says to a step, without what no two servers have alike.
async fn told(name: &str, server: &Server, step: &Step) -> Value {
    // A kube-apiserver that reads the objects of a changed definition anew has done nothing, and asks to be asked again.
    let answer = eventually(SOON, async || match server.raw(step).await {
        (429, body) => Err(body),
        answer => Ok(answer),
    });
    let (code, body) = answer.await;
    shown(name, code, &body)
}

fn shown(name: &str, code: u16, body: &Value) -> Value {
    let mut text = body.to_string().replace(&format!("/{name}/"), "/<server>/");
    // Go says one or the other, as it comes.
    for late in ["net/http: request canceled", "context deadline exceeded"] {
        text = text
            .replace(&format!("{late} (Client.Timeout exceeded while awaiting headers)"), "context deadline exceeded");
    }
    // What each server makes up, and the order of fields.
    let text = without(&text, "expected response.uid=", ", got");
    let text = without(&text, "Object 'Kind' is missing in '", "}}'");
    let body: Value = serde_json::from_str(&text).unwrap();
    // Who owns what `/scale` set is told in another way: docs/embedded.md.
    let is_scaled = |object: &Value| object["metadata"]["name"] == "scaled";
    let owners =
        |object: &Value| if is_scaled(object) { Value::Null } else { masked(&object["metadata"]["managedFields"]) };
    let items = body["items"].as_array().cloned().unwrap_or_default();
    let owned: Vec<Value> = [&body, &body["object"]].into_iter().chain(&items).map(owners).collect();
    let mut body = masked(&body);
    if body["kind"] == "Status" && code < 300 {
        body["details"]["uid"] = Value::Null;
    }
    json!({"code": code, "body": body, "owners": owned})
}

/// A text without what stands between two others.
fn without(text: &str, before: &str, after: &str) -> String {
    let mut parts = text.split(before);
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        out += before;
        out += part.find(after).map_or(part, |end| &part[end..]);
    }
    out
}

/// What a watch tells of all that happened since a revision.
async fn watched(name: &str, server: &Server, path: &str, revision: &str) -> Vec<Value> {
    let path = format!("{path}?watch=1&timeoutSeconds=2&resourceVersion={revision}");
    let text = server.text(&path).await;
    text.lines().map(|line| shown(name, 200, &serde_json::from_str(line).unwrap())).collect()
}

async fn install(servers: &Servers) {
    for (name, server) in servers.all() {
        let shop = json!({"metadata": {"name": "shop"}});
        assert_eq!(server.raw(&step("POST", "/api/v1/namespaces", shop)).await.0, 201, "{name}");
        let named =
            json!({"metadata": {"name": "named"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
        assert_eq!(server.raw(&step("POST", "/api/v1/namespaces/shop/services", named)).await.0, 201, "{name}");
        let config =
            json!({"url": format!("{}/{name}/convert", servers.webhook.url), "caBundle": servers.webhook.ca_bundle()});
        let (code, body) = server.raw(&step("POST", DEFINITIONS, steps::definition(&config))).await;
        assert_eq!(code, 201, "{name}: {body}");
        for path in [HOSTS_V1, HOSTS_V2] {
            eventually(SOON, async || match server.send("GET", path, String::new()).await {
                (200, _) => Ok(()),
                (code, _) => Err(code),
            })
            .await;
        }
        for (path, body) in steps::policy() {
            let (code, body) = server.raw(&step("POST", path, body)).await;
            assert_eq!(code, 201, "{name}: {body}");
        }
        let banned = steps::banned();
        eventually(SOON, async || match server.raw(&banned).await {
            (422, _) => Ok(()),
            (code, body) => Err(format!("{code} {body}")),
        })
        .await;
    }
}

#[tokio::test]
async fn webhooks_convert_objects_as_at_a_kube_apiserver() {
    let member = Member::start("conversion", MemberOptions::default()).await;
    let running = Own::new().built_in(BuiltIn::All).start().await.unwrap();
    let servers = Servers::start(&member, running.service()).await;
    install(&servers).await;
    let mut wrong = String::new();
    for step in steps::refused(&servers.webhook.ca_bundle()) {
        servers.compare(&step, &mut wrong).await;
    }
    let mut revisions = Vec::new();
    for (_, server) in servers.all() {
        let (_, list) = server.send("GET", HOSTS_V1, String::new()).await;
        revisions.push(list["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
    }
    for step in steps::lives() {
        servers.compare(&step, &mut wrong).await;
    }
    for path in [HOSTS_V1, HOSTS_V2] {
        let (said, told) = tokio::join!(
            watched("real", &servers.real, path, &revisions[0]),
            watched("own", &servers.own, path, &revisions[1])
        );
        assert!(said.len() > 10, "{said:?}");
        differences(&format!("watch of {path}"), &said.into(), &told.into(), &mut wrong);
    }
    for step in steps::stored_in_another_version() {
        servers.compare(&step, &mut wrong).await;
    }
    for mode in answers::BROKEN {
        servers.set(mode);
        for step in steps::broken() {
            servers.compare(&step, &mut wrong).await;
        }
    }
    servers.set("fine");
    places(&servers, &mut wrong).await;
    assert!(wrong.is_empty(), "{wrong}");
    running.end().await;
}

/// Webhooks that are elsewhere than they were.
async fn places(servers: &Servers, wrong: &mut String) {
    let (url, bundle) = (&servers.webhook.url, servers.webhook.ca_bundle());
    let closed = format!("https://127.0.0.1:{}", servers.closed_port);
    let at_service = |name: &str, service: &str, port: u16| json!({"url": null, "caBundle": bundle, "service": {"namespace": "shop", "name": service, "port": port, "path": format!("/{name}/convert")}});
    servers.redefine(|name| at_service(name, "named", servers.webhook.port), "hostPort").await;
    servers.redefine(|name| at_service(name, "missing", 443), "not found").await;
    for step in steps::broken() {
        servers.compare(&step, wrong).await;
    }
    let other = ca_bundle(&servers.other);
    let elsewhere = |url: String, bundle: &str| json!({"url": url, "service": null, "caBundle": bundle});
    servers.redefine(|name| elsewhere(format!("{url}/{name}/convert"), &other), "unknown authority").await;
    for step in steps::broken() {
        servers.compare(&step, wrong).await;
    }
    servers.redefine(|name| elsewhere(format!("{closed}/{name}/convert"), &bundle), "refused").await;
    for step in steps::broken().into_iter().chain(steps::without_webhook()) {
        servers.compare(&step, wrong).await;
    }
}
