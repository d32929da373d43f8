//! What `kubefold doctor` finds out about one member: each layer by itself, from its name to what it allows.
//!
//! It asks over connections of its own, so that it needs no kubefold that runs and disturbs none that does.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::MemberConfig,
    upstream::{
        access::{Credentials, On},
        client::{address, target},
        dial::{Dialer, Opened, STREAM_WINDOW_BYTES},
        error::{Failure, root},
    },
    write::MOVER,
};
use kubefold_serving::authenticate::AUTHENTICATED;
use kubefold_wire::body::{empty, full};

use super::needs::{
    Need, OF_IMPERSONATOR, OF_LOGINS, OF_MOVER, OF_READER, TOO_MUCH_FOR_IMPERSONATOR, TOO_MUCH_FOR_READER,
};

/// An answer of these checks is small; a longer one is something else.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The first events of a watch come at once where nothing in between holds them back.
const WATCH_MAX: Duration = Duration::from_secs(5);
/// Any key of the right length (RFC 6455 section 4.1): nobody reads what comes after the 101.
const WEBSOCKET_KEY: &str = "a3ViZWZvbGQgZG9jdG9yIQ==";
const END_OF_INITIAL_EVENTS: &str = "k8s.io/initial-events-end";

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// Worth knowing; kubefold works all the same.
    Note,
    /// kubefold does not work with the member, or not fully.
    Failed,
    /// It rests on a check that failed.
    Skipped,
}

/// One check and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// One of [`CHECKS`].
    pub(super) check: &'static str,
    /// How it ended.
    pub(super) result: Verdict,
    /// How long it took. Units: milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) millis: Option<u64>,
    /// What was found.
    pub(super) detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

/// Every check, in order.
pub(super) const CHECKS: [&str; 12] = [
    "credentials",
    "dns",
    "tcp",
    "tls",
    "trust",
    "authentication",
    "ready",
    "identity",
    "authorization",
    "privilege",
    "watchlist",
    "websocket",
];

/// What was found of a member.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkup {
    /// One for each of [`CHECKS`], in that order.
    pub(super) findings: Vec<Finding>,
    /// The UID of its cluster.
    pub(super) cluster: Option<String>,
}

/// What went wrong and what to do.
pub(super) struct Trouble {
    verdict: Verdict,
    detail: String,
    remedy: String,
}

pub(super) type Outcome<T> = Result<(T, String), Trouble>;

pub(super) fn failed(detail: impl Into<String>, remedy: impl Into<String>) -> Trouble {
    Trouble { verdict: Verdict::Failed, detail: detail.into(), remedy: remedy.into() }
}

fn note(detail: impl Into<String>, remedy: impl Into<String>) -> Trouble {
    Trouble { verdict: Verdict::Note, ..failed(detail, remedy) }
}

impl Checkup {
    /// Writes down one check; its value goes to those that rest on it.
    pub(super) async fn check<T>(&mut self, check: &'static str, run: impl Future<Output = Outcome<T>>) -> Option<T> {
        let began = Instant::now();
        let outcome = Box::pin(run).await;
        let millis = u64::try_from(began.elapsed().as_millis()).ok();
        let (value, result, detail, remedy) = match outcome {
            Ok((value, detail)) => (Some(value), Verdict::Ok, detail, None),
            Err(Trouble { verdict, detail, remedy }) => (None, verdict, detail, Some(remedy)),
        };
        self.findings.push(Finding { check, result, millis, detail, remedy });
        value
    }

    /// What was not tried rests on the last that was.
    fn finish(mut self) -> Self {
        let why = self.findings.last().map(|last| format!("not tried: {} failed", last.check)).unwrap_or_default();
        for check in CHECKS.into_iter().skip(self.findings.len()) {
            let (result, detail) = (Verdict::Skipped, why.clone());
            self.findings.push(Finding { check, result, millis: None, detail, remedy: None });
        }
        self
    }
}

/// Checks one member. Its connections run under `tasks` and end with `cancel`.
///
/// Cancel: safe.
pub(super) async fn examine(member: &MemberConfig, tasks: &TaskTracker, cancel: &CancellationToken) -> Checkup {
    let mut done = Checkup::default();
    let Some(patient) = Box::pin(reach(&mut done, member, tasks, cancel)).await else { return done.finish() };
    let Patient { dialer, mut line } = patient;
    // First of the questions: a kube-apiserver closes a connection on which it refused a credential.
    if done.check("authentication", authentication(&mut line)).await.is_none()
        && done.findings.last().is_some_and(|last| last.result == Verdict::Failed)
    {
        return done.finish();
    }
    done.check("ready", ready(&mut line)).await;
    done.cluster = done.check("identity", identity(&mut line)).await;
    done.check("authorization", authorization(&mut line, member.name.as_str())).await;
    done.check("privilege", privilege(&mut line, member.name.as_str())).await;
    done.check("watchlist", watchlist(&mut line)).await;
    done.check("websocket", Box::pin(websocket(&dialer))).await;
    done
}

/// A member that speaks.
struct Patient {
    dialer: Dialer,
    line: Line,
}

/// A connection, and what is written on each request.
struct Line {
    opened: Opened,
    credentials: Arc<Credentials>,
    answer_max: Duration,
    /// It asks as kubefold's own user.
    is_mover: bool,
}

async fn reach(
    done: &mut Checkup,
    member: &MemberConfig,
    tasks: &TaskTracker,
    cancel: &CancellationToken,
) -> Option<Patient> {
    let (access, impersonator) = (member.access.clone(), member.impersonator.clone());
    let read = async {
        let read = tasks.spawn_blocking(move || Credentials::read(&access, impersonator.as_deref())).await;
        let remedy = "correct what clusters.yaml names for this member: the file, the context or the plugin";
        let read = read.map_err(|panic| failed(panic.to_string(), remedy))?;
        let credentials = Arc::new(read.map_err(|failure| failed(failure.to_string(), remedy))?);
        let detail = format!("read; the server is {}", credentials.base);
        Ok((credentials, detail))
    };
    let credentials = done.check("credentials", read).await?;
    let dialer = Dialer {
        credentials: Arc::clone(&credentials),
        connect_max: member.deadlines.connect,
        stream_window_bytes: STREAM_WINDOW_BYTES,
        tasks: tasks.clone(),
        cancel: cancel.clone(),
    };
    done.check("dns", dns(&dialer)).await?;
    let tcp = done.check("tcp", tcp(&dialer)).await?;
    let opened = done.check("tls", tls(&dialer, tcp)).await?;
    done.check("trust", async { trust(&credentials) }).await;
    let line = Line { opened, credentials, answer_max: member.deadlines.read, is_mover: false };
    Some(Patient { dialer, line })
}

/// Who is dialled: the member, or the proxy on the way to it.
fn dialled(dialer: &Dialer) -> (String, u16, &'static str) {
    let credentials = &dialer.credentials;
    let (uri, what) =
        credentials.proxy.as_ref().map_or((&credentials.base, "the server"), |proxy| (proxy, "the proxy"));
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    (host, uri.port_u16().unwrap_or(usual), what)
}

async fn dns(dialer: &Dialer) -> Outcome<()> {
    let (host, port, what) = dialled(dialer);
    if host.parse::<std::net::IpAddr>().is_ok() {
        return Ok(((), format!("{what} is given by its address, {host}")));
    }
    let remedy = format!("correct the name of {what}, or this machine's resolver; try: getent hosts {host}");
    let found = match timeout(dialer.connect_max, tokio::net::lookup_host((host.as_str(), port))).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(failed(format!("{host} has no address: {error}"), remedy)),
        Err(_) => return Err(failed(format!("the resolver does not answer about {host}"), remedy)),
    };
    let found: Vec<String> = found.map(|address| address.ip().to_string()).collect();
    match found.as_slice() {
        [] => Err(failed(format!("{host} has no address"), remedy)),
        found => Ok(((), format!("{host} is {}", found.join(", ")))),
    }
}

async fn tcp(dialer: &Dialer) -> Outcome<tokio::net::TcpStream> {
    let (host, port, what) = dialled(dialer);
    let place = format!("{host}:{port}");
    match timeout(dialer.connect_max, dialer.reach()).await {
        Ok(Ok(stream)) => Ok((stream, format!("connected to {place}"))),
        Ok(Err(failure)) => {
            let remedy = match failure {
                Failure::Refused(_) => {
                    format!("nothing listens at {place}: is the API server running? Is the port correct?")
                }
                _ => format!("see that {what} can be reached from this machine: routes, VPN, firewall"),
            };
            Err(failed(format!("{place}: {failure}"), remedy))
        }
        Err(_) => Err(failed(
            format!("{place}: {}", Failure::ConnectTimeout(dialer.connect_max)),
            format!(
                "let this machine reach {place}: a firewall or security group drops its packets, or the host is off"
            ),
        )),
    }
}

async fn tls(dialer: &Dialer, tcp: tokio::net::TcpStream) -> Outcome<Opened> {
    let opened = match timeout(dialer.connect_max, Box::pin(dialer.open(tcp))).await {
        Ok(opened) => opened,
        Err(_) => Err(Failure::HandshakeTimeout(dialer.connect_max)),
    };
    let opened = opened.map_err(|failure| {
        let text = failure.to_string();
        let remedy = match &failure {
            _ if text.contains("unknown authority") => {
                "give the authority that signed the server's certificate (certificateAuthority); is this the right cluster?"
            }
            _ if text.contains("expired") => "renew the server's certificate; is this machine's clock right?",
            _ if text.contains("another name") => "set tlsServerName to a name that the certificate has",
            _ if text.contains("refused the TLS handshake") => "give a client certificate that the server's authority signed",
            Failure::HandshakeTimeout(_) => "the server hangs or is overloaded; look at it, or at the proxy before it",
            _ => "see that an API server speaks TLS at this port, and nothing in between ends it",
        };
        failed(text, remedy)
    })?;
    let secured = if dialer.credentials.base.scheme_str() == Some("https") { "TLS" } else { "no TLS: http" };
    let version = match &opened {
        Opened::Http2(..) => "HTTP/2",
        Opened::Http1(_) => "HTTP/1.1",
    };
    Ok((opened, format!("{secured}, {version}")))
}

/// Whether anybody between could read kubefold's credential.
fn trust(credentials: &Credentials) -> Outcome<()> {
    match credentials.exposed {
        None => Ok(((), "nobody on the way can read kubefold's credential".to_owned())),
        Some(exposed) => Err(note(
            format!("{exposed}: whoever is on the way reads kubefold's credential, which may impersonate everybody"),
            "use https, and give the authority that signed the server's certificate (certificateAuthority)",
        )),
    }
}

impl Line {
    async fn request(
        &self,
        on: On,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<kubefold_wire::body::Body>, Failure> {
        let body = body.map_or_else(empty, |body| full(body.to_string()));
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("kubefold/", env!("CARGO_PKG_VERSION"), " doctor"))
            .body(body)
            .map_err(|error| Failure::Request(error.to_string().into()))?;
        if let Some(authorization) = self.credentials.authorization(on).await? {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        if self.is_mover {
            request.headers_mut().insert("impersonate-user", HeaderValue::from_static(MOVER));
            request.headers_mut().insert("impersonate-group", HeaderValue::from_static(AUTHENTICATED));
        }
        let uri = target(&self.credentials.base, request.uri())?;
        address(&mut request, &uri, matches!(self.opened, Opened::Http2(..)));
        Ok(request)
    }

    /// Waits for the head of an answer.
    async fn send(
        &mut self,
        on: On,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, Trouble> {
        let remedy = "the connection works, the server does not: look at its log, or at the proxy before it";
        let request =
            self.request(on, method, path, body).await.map_err(|failure| failed(failure.to_string(), remedy))?;
        let sent = async {
            match &mut self.opened {
                Opened::Http2(sender, _) => sender.send_request(request).await,
                Opened::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        match timeout(self.answer_max, sent).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(failed(format!("{path}: {}", root(&error)), remedy)),
            Err(_) => Err(failed(format!("{path}: {}", Failure::HeadTimeout(self.answer_max)), remedy)),
        }
    }

    /// A whole answer.
    async fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, String), Trouble> {
        self.ask_on(On::OwnBehalf, method, path, body).await
    }

    async fn ask_on(
        &mut self,
        on: On,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, String), Trouble> {
        let (head, body) = self.send(on, method, path, body).await?.into_parts();
        let whole = timeout(self.answer_max, Limited::new(body, ANSWER_BYTES_MAX).collect()).await;
        let broken = |cause: String| {
            failed(format!("{path}: the answer broke off: {cause}"), "check the connection to the member")
        };
        let whole = whole.map_err(|_| broken("it stalled".into()))?.map_err(|error| broken(error.to_string()))?;
        Ok((head.status, String::from_utf8_lossy(&whole.to_bytes()).into_owned()))
    }
}

async fn ready(line: &mut Line) -> Outcome<()> {
    let (code, said) = line.ask(Method::GET, "/readyz?verbose", None).await?;
    let version = line.ask(Method::GET, "/version", None).await.ok();
    let version = version.and_then(|(_, text)| serde_json::from_str::<Value>(&text).ok());
    let version = version.as_ref().and_then(|version| version.get("gitVersion")?.as_str());
    match code {
        StatusCode::OK => Ok(((), format!("ready, Kubernetes {}", version.unwrap_or("of an unknown version")))),
        StatusCode::UNAUTHORIZED => Err(refused_credential()),
        StatusCode::FORBIDDEN => Err(failed(
            "/readyz is forbidden: kubefold could not tell whether the member is up",
            "grant `get` on the non-resource URL /readyz: deploy/member-rbac.yaml has it",
        )),
        code => {
            let checks: Vec<&str> = said.lines().filter(|line| line.starts_with("[-]")).take(8).collect();
            let detail = format!("/readyz says {code}: {}", checks.join(", "));
            Err(failed(detail, "the API server runs and is not ready: look at what it names, often etcd"))
        }
    }
}

fn refused_credential() -> Trouble {
    failed(
        "the credential is refused (401)",
        "renew the token or client certificate that clusters.yaml names; is it this cluster's, has it expired?",
    )
}

async fn identity(line: &mut Line) -> Outcome<String> {
    let (code, said) = line.ask(Method::GET, "/api/v1/namespaces/kube-system", None).await?;
    let remedy = "grant `get` on namespaces: kubefold knows a cluster by the UID of kube-system";
    match code {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => return Err(refused_credential()),
        code => return Err(failed(format!("namespace kube-system cannot be read ({code})"), remedy)),
    }
    let whole: Option<Value> = serde_json::from_str(&said).ok();
    let uid = whole.as_ref().and_then(|whole| whole.pointer("/metadata/uid")?.as_str()).filter(|uid| !uid.is_empty());
    let no_api = || {
        failed("the answer is not a namespace", "check that the server is a Kubernetes API server, not a login page")
    };
    let uid = uid.ok_or_else(no_api)?;
    Ok((uid.to_owned(), format!("cluster {uid}")))
}

async fn authentication(line: &mut Line) -> Outcome<()> {
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let (code, said) =
        line.ask(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", Some(&review)).await?;
    match code {
        StatusCode::UNAUTHORIZED => return Err(refused_credential()),
        code if !code.is_success() => {
            return Err(note(
                format!("the server does not say who kubefold is ({code})"),
                "nothing: this API needs Kubernetes 1.28; the checks below say what the credential is allowed to do",
            ));
        }
        _ => {}
    }
    let whole: Value = serde_json::from_str(&said).unwrap_or_default();
    let user = whole.pointer("/status/userInfo/username").and_then(Value::as_str).unwrap_or_default();
    if user.is_empty() || user == "system:anonymous" {
        return Err(failed(
            "the server treats kubefold as anonymous (system:anonymous)",
            "give a credential: a token, a client certificate or a kubeconfig with a user",
        ));
    }
    Ok(((), format!("as {user}")))
}

/// What of `needs` the server does not allow.
async fn refused(line: &mut Line, on: On, needs: &[Need]) -> Result<Vec<Need>, Trouble> {
    let mut refused = Vec::new();
    for need in needs {
        let review =
            json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": need.spec()});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let (code, said) = line.ask_on(on, Method::POST, path, Some(&review)).await?;
        let whole: Value = serde_json::from_str(&said).unwrap_or_default();
        if !code.is_success() {
            let message = whole.get("message").and_then(Value::as_str).unwrap_or_default();
            return Err(failed(
                format!("the server does not say what kubefold is allowed to do ({code}): {message}"),
                "let authenticated users create selfsubjectaccessreviews: the built-in ClusterRole system:basic-user does",
            ));
        }
        if whole.pointer("/status/allowed") != Some(&Value::Bool(true)) {
            refused.push(*need);
        }
    }
    Ok(refused)
}

fn listed(needs: &[Need]) -> String {
    needs.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

async fn authorization(line: &mut Line, member: &str) -> Outcome<()> {
    let mut denied = refused(line, On::OwnBehalf, OF_READER).await?;
    denied.extend(refused(line, On::CallersBehalf, OF_IMPERSONATOR).await?);
    let remedy = format!(
        "kubefold join --context {member}, or kubectl --context {member} apply -f deploy/member-rbac.yaml, and let kubefold \
         log in as those ServiceAccounts"
    );
    if !denied.is_empty() {
        return Err(failed(format!("it may not {}", listed(&denied)), remedy));
    }
    let denied = refused(line, On::OwnBehalf, OF_LOGINS).await?;
    if !denied.is_empty() {
        let why = "so ServiceAccounts of this member cannot log in to the fleet with their tokens";
        return Err(note(format!("it may not {}, {why}", listed(&denied)), remedy));
    }
    line.is_mover = true;
    let denied = refused(line, On::CallersBehalf, OF_MOVER).await;
    line.is_mover = false;
    let denied = denied?;
    if !denied.is_empty() {
        let why = "so a part that a create has to take back stays, where its creator may not delete it";
        return Err(note(format!("user {MOVER} may not {}, {why}", listed(&denied)), remedy));
    }
    let count = OF_READER.len() + OF_IMPERSONATOR.len() + OF_LOGINS.len() + OF_MOVER.len();
    Ok(((), format!("all {count} things that kubefold does are allowed")))
}

/// What a thief of kubefold's credentials could do beyond what kubefold does.
async fn privilege(line: &mut Line, member: &str) -> Outcome<()> {
    let excess = async |line: &mut Line, on: On, needs: &[Need]| {
        let refused = refused(line, on, needs).await?;
        Ok::<_, Trouble>(needs.iter().filter(|need| !refused.contains(need)).copied().collect::<Vec<_>>())
    };
    let remedy = format!("kubefold join --context {member} gives kubefold two ServiceAccounts with what it needs");
    let of_reader = excess(line, On::OwnBehalf, TOO_MUCH_FOR_READER).await?;
    if !line.credentials.has_impersonator() {
        let may = if of_reader.is_empty() { String::new() } else { format!("; it may also {}", listed(&of_reader)) };
        return Err(note(format!("one credential both reads and impersonates{may}"), remedy));
    }
    let of_impersonator = excess(line, On::CallersBehalf, TOO_MUCH_FOR_IMPERSONATOR).await?;
    match (of_reader.as_slice(), of_impersonator.as_slice()) {
        ([], []) => Ok(((), "one credential reads, another one impersonates, and neither can do more".to_owned())),
        ([], more) => Err(note(format!("the credential that impersonates may also {}", listed(more)), remedy)),
        (more, _) => Err(note(format!("the credential that reads may also {}", listed(more)), remedy)),
    }
}

async fn watchlist(line: &mut Line) -> Outcome<()> {
    let path = "/api/v1/namespaces?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                &allowWatchBookmarks=true&timeoutSeconds=10";
    let response = line.send(On::OwnBehalf, Method::GET, path, None).await?;
    let (code, mut body) = (response.status(), response.into_body());
    if !code.is_success() {
        return Err(match code {
            StatusCode::FORBIDDEN => failed("a watch of namespaces is forbidden", "see authorization, above"),
            code => note(
                format!("the server has no WatchList ({code})"),
                "nothing: kubefold lists and watches; Kubernetes 1.32 and later have it",
            ),
        });
    }
    let events = async {
        let mut text = String::new();
        while let Some(Ok(frame)) = body.frame().await {
            text.push_str(&String::from_utf8_lossy(&frame.into_data().unwrap_or_default()));
            if text.contains(END_OF_INITIAL_EVENTS) {
                return Some(text.matches("\"ADDED\"").count());
            }
            if text.len() > ANSWER_BYTES_MAX {
                return Some(text.matches("\"ADDED\"").count());
            }
        }
        None
    };
    match timeout(WATCH_MAX, events).await {
        Ok(Some(count)) => Ok(((), format!("{count} namespaces came as events at once"))),
        Ok(None) => Err(note(
            "the watch ended without the mark of a WatchList",
            "nothing: kubefold lists and watches; Kubernetes 1.32 and later have it",
        )),
        Err(_) => Err(failed(
            format!("no event of a watch came in {} s", WATCH_MAX.as_secs()),
            "something between kubefold and the member delays answers: turn off buffering in the proxy or load balancer",
        )),
    }
}

/// Over HTTP/1.1, where an upgrade is possible, and on a watch: it changes nothing and everybody may.
async fn websocket(dialer: &Dialer) -> Outcome<()> {
    let remedy = "exec, attach and port-forward need it: let the proxy before the member pass `Upgrade: websocket`";
    let trouble = |failure: Failure| failed(failure.to_string(), remedy);
    let tcp = dialer.reach().await.map_err(trouble)?;
    let opened = timeout(dialer.connect_max, Box::pin(dialer.open_http1(tcp))).await;
    let opened = opened.map_err(|_| trouble(Failure::HandshakeTimeout(dialer.connect_max)))?.map_err(trouble)?;
    let (credentials, answer_max) = (Arc::clone(&dialer.credentials), dialer.connect_max);
    let mut line = Line { opened, credentials, answer_max, is_mover: false };
    let mut request = line
        .request(On::OwnBehalf, Method::GET, "/api/v1/namespaces?watch=1&timeoutSeconds=1", None)
        .await
        .map_err(trouble)?;
    let headers = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    for (name, value) in headers.into_iter().chain([("sec-websocket-key", WEBSOCKET_KEY)]) {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    // A kube-apiserver refuses a WebSocket without one (golang.org/x/net/websocket `hybi.go`).
    let base = dialer.credentials.base.to_string();
    request
        .headers_mut()
        .extend(HeaderValue::from_str(base.trim_end_matches('/')).ok().map(|base| (header::ORIGIN, base)));
    let Opened::Http1(sender) = &mut line.opened else {
        return Err(failed("cannot open an HTTP/1.1 connection", remedy));
    };
    match timeout(dialer.connect_max, sender.send_request(request)).await {
        Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Ok(((), "a connection was upgraded (101)".to_owned()))
        }
        Ok(Ok(response)) => Err(failed(format!("an upgrade is answered with {}, not 101", response.status()), remedy)),
        Ok(Err(error)) => Err(failed(format!("an upgrade broke off: {}", root(&error)), remedy)),
        Err(_) => Err(failed("an upgrade is not answered", remedy)),
    }
}
