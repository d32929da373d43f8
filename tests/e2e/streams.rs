//! Logs, exec, attach, cp, port-forward and proxies, by real kubectls, through kubefold, to a kubelet of our own that
//! echoes (`tests/testbed/cmd/kubelet`) and to kwok's.

use std::{fs, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{Method, Request, StatusCode, header};
use kube::{
    Config,
    client::ConfigExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::pki_types::ServerName};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use testbed::samples::crd;
use testbed::{
    FleetFile, Kubectl, Kubefold, Member, MemberOptions, Port, Process, Testbed, binary, client, eventually,
};

const SOON: Duration = Duration::from_secs(30);
/// Above kubefold's grace.
const DRAINED: Duration = Duration::from_secs(60);
/// An address for documentation, of whatever the kubelet's egress proxy leads to: a kube-apiserver proxies to no loopback.
const HERE: &str = "192.0.2.1";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A cluster with one node, whose kubelet is ours.
pub(crate) struct Cluster {
    pub(crate) member: Member,
    kubelet: Process,
    port: Port,
    _sockets: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn start(name: &str) -> Self {
        let sockets = tempfile::tempdir().unwrap();
        let (egress, socket) = (sockets.path().join("egress.yaml"), sockets.path().join("egress.sock"));
        let transport = json!({"uds": {"udsName": socket}});
        let selection = json!({"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster",
                "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}}]});
        fs::write(&egress, selection.to_string()).unwrap();
        let apiserver_args = vec![
            "--disable-admission-plugins=ServiceAccount".into(),
            format!("--egress-selector-config-file={}", egress.display()),
        ];
        let member = Member::start(name, MemberOptions { apiserver_args, ..MemberOptions::default() }).await;
        let (port, file) = (Port::reserve(), |file: &str| member.dir().join(file).to_str().unwrap().to_owned());
        let args = [
            format!("--listen={}", port.addr()),
            format!("--cert={}", file("server.crt")),
            format!("--key={}", file("server.key")),
            format!("--egress={}", socket.display()),
        ];
        let kubelet = Process::spawn("kubelet", &binary("kubelet"), &args, &member.dir().join("kubelet.log"));
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}, "status": {
            "addresses": [{"type": "InternalIP", "address": HERE}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port.number()}}}});
        member.api().await.create("/api/v1/nodes", &node).await;
        let cluster = Self { member, kubelet, port, _sockets: sockets };
        cluster.pod("web", false).await;
        cluster.pod("dup", true).await;
        let ready = async || cluster.member.kubectl(&["logs", "web"]).await.holds("log of");
        eventually(SOON, ready).await;
        cluster
    }

    /// Makes a pod that runs, with or without a controller.
    async fn pod(&self, name: &str, controlled: bool) {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", "controller": true});
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeName": "node-0", "containers": [{"name": "main", "image": "x", "stdin": true}]}});
        if controlled {
            pod["metadata"]["ownerReferences"] = json!([owner]);
        }
        let api = self.member.api().await;
        let mut made = api.create(PODS, &pod).await;
        made["status"] = json!({"phase": "Running", "podIP": HERE, "podIPs": [{"ip": HERE}], "containerStatuses": [{"name": "main", "image": "x", "imageID": "x",
            "ready": true, "restartCount": 0, "state": {"running": {}}}]});
        api.request(Method::PUT, &format!("{PODS}/{name}/status"), made.to_string()).await.ok();
    }

    async fn told(&self, what: &str) {
        let told = async || {
            let output = self.kubelet.output();
            output.lines().any(|line| line.starts_with(what)).then_some(()).ok_or(output)
        };
        eventually(SOON, told).await;
    }
}

struct Fleet {
    east: Cluster,
    west: Cluster,
    kubefold: Kubefold,
}

impl Fleet {
    async fn start() -> Self {
        let (east, west) = tokio::join!(Cluster::start("east"), Cluster::start("west"));
        east.pod("only", true).await;
        let file = FleetFile::default().member(&east.member, 1).member(&west.member, 2);
        let fleet = Self { kubefold: Kubefold::start(&file).await, east, west };
        let seen = async || fleet.kubefold.kubectl(&["get", "pods", "-o", "name"]).await.holds("pod/only@east");
        eventually(SOON, seen).await;
        fleet
    }

    /// Every kubectl that there is: over WebSockets, over SPDY, and the oldest.
    fn kubectls(&self) -> [(&'static str, Kubectl); 3] {
        let newest = self.kubefold.as_admin();
        let spdy =
            newest.with("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false").with("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false");
        [("websocket", newest.clone()), ("spdy", spdy), ("oldest", newest.by(client("kubectl-oldest")))]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_reach_the_pod_that_was_named() {
    let fleet = Box::pin(Fleet::start()).await;
    logs(&fleet).await;
    for (how, kubectl) in fleet.kubectls() {
        exec(&kubectl, how).await;
        attach(&kubectl, how).await;
        copy(&kubectl, how).await;
        forward(&kubectl, how).await;
    }
    web_socket(&fleet).await;
    refusals(&fleet).await;
    proxies(&fleet).await;
    services(&fleet).await;
    consoles(&fleet).await;
    debug(&fleet).await;
    whoever_goes(&fleet).await;
    drain(fleet).await;
}

async fn logs(fleet: &Fleet) {
    let kubefold = &fleet.kubefold;
    for name in ["web@east", "web@west", "only", "only@east"] {
        let own = name.split('@').next().unwrap();
        let wanted = format!("log of default/{own} in main limit= since=\n");
        assert_eq!(kubefold.kubectl(&["logs", name]).await.ok(), wanted);
        assert_eq!(kubefold.kubectl(&["logs", name, "--all-containers"]).await.ok(), wanted);
    }
    let options = ["logs", "web@east", "--limit-bytes=77", "--since-time=2026-01-01T00:00:00Z"];
    kubefold.kubectl(&options).await.holds("limit=77 since=2026-01-01T00:00:00Z").unwrap();
    let selected = kubefold.kubectl(&["logs", "-l", "app=web", "--prefix"]).await.ok().to_owned();
    assert!(selected.contains("[pod/web@east/main] ") && selected.contains("[pod/web@west/main] "), "{selected}");
    let view = kubefold.kubectl_in("fleet-west", &["logs", "web"]).await;
    assert!(view.ok().starts_with("log of default/web"), "{view}");
    let answer = kubefold.request(Method::GET, &format!("{PODS}/web@east/log"), "").await;
    let theirs = fleet.east.member.request(Method::GET, &format!("{PODS}/web/log"), "").await;
    assert_eq!((answer.status, &answer.body), (theirs.status, &theirs.body));
    assert_eq!(answer.headers.get(header::CONTENT_TYPE), theirs.headers.get(header::CONTENT_TYPE));
    // Typed clients say that they read protobuf.
    let request = Request::get(format!("{PODS}/web@east/log")).header(header::ACCEPT, PROTOBUF).body(Bytes::new());
    let answer = kubefold.api().await.send(request.unwrap()).await.unwrap();
    assert_eq!(answer.body, theirs.body);
    // Followed, it comes as it is written.
    let mut following = kubefold.as_admin().start(&["logs", "-f", "web@west"]);
    let lines = async || following.output().contains("line 5\n").then_some(()).ok_or_else(|| following.output());
    eventually(SOON, lines).await;
    following.kill();
    fleet.west.told("log of web ends").await;
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Runs kubectl with much on its stdin.
async fn fed(kubectl: &Kubectl, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = kubectl.command(args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let fed = async move {
        stdin.write_all(&input).await.unwrap();
        drop(stdin);
    };
    let ended = async { tokio::join!(fed, child.wait_with_output()).1.unwrap() };
    let output = timeout(Duration::from_secs(120), ended).await.expect("kubectl ends");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

async fn exec(kubectl: &Kubectl, how: &str) {
    let much: Vec<u8> = (0..5_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let echo = fed(kubectl, &["exec", "-i", "web@east", "--", "cat"], &much).await;
    assert!(echo == much, "{how}: {} of {} bytes came back", echo.len(), much.len());
    let script = "echo out; echo err >&2; exit 7";
    let failed = kubectl.run(&["exec", "only", "--", "sh", "-c", script]).await;
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(7), "out\n"), "{how}: {failed}");
    assert!(failed.stderr.starts_with("err\n"), "{how}: {failed}");
    let view = kubectl.in_context("fleet-east").run(&["exec", "web", "--", "echo", "here"]).await;
    assert_eq!(view.ok(), "here\n", "{how}");
}

async fn attach(kubectl: &Kubectl, how: &str) {
    let echo = fed(kubectl, &["attach", "-i", "web@east"], b"hello\n").await;
    assert_eq!(String::from_utf8_lossy(&echo), "attached to web\nhello\n", "{how}");
}

/// A tree of files there and back.
async fn copy(kubectl: &Kubectl, how: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(dir.path().join("from/sub/empty")).unwrap();
    fs::create_dir(dir.path().join("there")).unwrap();
    let big = vec![b'k'; 1_500_000];
    fs::write(dir.path().join("from/big"), &big).unwrap();
    fs::write(dir.path().join("from/sub/small"), "s").unwrap();
    kubectl.run(&["cp", &path("from"), &format!("web@west:{}/tree", path("there"))]).await.ok();
    assert!(fs::read(dir.path().join("there/tree/big")).unwrap() == big, "{how}");
    kubectl.run(&["cp", &format!("web@west:{}", path("there/tree")), &path("back")]).await.ok();
    assert!(fs::read(dir.path().join("back/big")).unwrap() == big, "{how}");
    assert_eq!(fs::read_to_string(dir.path().join("back/sub/small")).unwrap(), "s", "{how}");
}

/// The local port of a running port-forward.
async fn local_port(forward: &Process) -> u16 {
    eventually(SOON, async || {
        let output = forward.output();
        let port = output.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')?.0.parse::<u16>().ok());
        port.ok_or(output)
    })
    .await
}

async fn forward(kubectl: &Kubectl, how: &str) {
    let running = kubectl.start(&["port-forward", "pod/web@west", ":7"]);
    let port = local_port(&running).await;
    for _ in 0..3 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let much = vec![b'x'; 1_000_000];
        let mut echo = vec![0; much.len()];
        {
            let (mut read, mut write) = stream.split();
            let both = async { tokio::try_join!(write.write_all(&much), read.read_exact(&mut echo)).map(drop) };
            timeout(SOON, both).await.unwrap_or_else(|_| panic!("{how}: {}", running.output())).unwrap();
        }
        assert!(echo == much, "{how}");
    }
    let running = kubectl.start(&["port-forward", "only", ":80"]);
    let port = local_port(&running).await;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.ends_with("GET /a at only"), "{how}: {answer}");
}

/// A connection to kubefold that nobody has spoken on.
async fn connect(kubeconfig: &Path) -> (TlsStream<TcpStream>, String) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let address = config.cluster_url.authority().unwrap().to_string();
    let tcp = TcpStream::connect(&address).await.unwrap();
    let tls = TlsConnector::from(Arc::new(config.rustls_client_config().unwrap()));
    let host = config.cluster_url.host().unwrap().to_owned();
    (tls.connect(ServerName::try_from(host).unwrap(), tcp).await.unwrap(), address)
}

/// As a browser's terminal does it: resize, pings, and an end of stdin that does not end the stream.
async fn web_socket(fleet: &Fleet) {
    let exec = async |query: &str| {
        let (stream, address) = connect(&fleet.kubefold.kubeconfig()).await;
        let uri = format!("wss://{address}{PODS}/web@east/exec?container=main&stdin=true&stdout=true&{query}");
        let mut request = uri.into_client_request().unwrap();
        let protocol = "v5.channel.k8s.io".parse().unwrap();
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        let (socket, response) = Box::pin(client_async(request, stream)).await.unwrap();
        assert_eq!(response.headers()[header::SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
        socket
    };
    let message = |channel: u8, bytes: &[u8]| Message::Binary([&[channel], bytes].concat().into());
    let mut socket = exec("tty=true&command=sizes").await;
    socket.send(Message::Ping(Bytes::from_static(b"ping"))).await.unwrap();
    socket.send(message(4, br#"{"Width":132,"Height":43}"#)).await.unwrap();
    let (mut pong, mut size) = (false, false);
    while !(pong && size) {
        match timeout(SOON, socket.next()).await.unwrap().unwrap().unwrap() {
            Message::Pong(bytes) => pong = &bytes[..] == b"ping",
            Message::Binary(bytes) => size |= &bytes[..] == b"\x01132x43\r\n",
            other => panic!("{other:?}"),
        }
    }
    let mut socket = exec("command=cat").await;
    socket.send(message(0, b"said")).await.unwrap();
    socket.send(message(255, &[0])).await.unwrap();
    let (mut out, mut status) = (Vec::new(), Value::Null);
    while status.is_null() {
        match timeout(SOON, socket.next()).await.unwrap().unwrap().unwrap() {
            Message::Binary(bytes) if bytes[0] == 1 => out.extend_from_slice(&bytes[1..]),
            Message::Binary(bytes) if bytes[0] == 3 => status = serde_json::from_slice(&bytes[1..]).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((&out[..], &status["status"]), (&b"said"[..], &json!("Success")));
}

/// What is refused, in the words of the member and with the name that was used.
async fn refusals(fleet: &Fleet) {
    let kubefold = &fleet.kubefold;
    for (args, wanted) in [
        (&["logs", "nope@east"][..], r#"pods "nope@east" not found"#),
        (&["logs", "web@east", "-c", "nope"], "container nope is not valid for pod web@east"),
        (&["logs", "web"], "member-local objects with that name: web@east, web@west"),
        (&["logs", "dup"], "dup@east, dup@west"),
        (&["exec", "dup", "--", "ls"], "dup@east, dup@west"),
        (&["attach", "nope@west"], r#"pods "nope@west" not found"#),
    ] {
        let said = kubefold.kubectl(args).await;
        assert!(said.refused().contains(wanted), "{said}");
    }
    let api = kubefold.api().await;
    for (method, path, code) in [
        (Method::GET, format!("{PODS}/dup/log"), 409),
        (Method::GET, format!("{PODS}/web/log"), 404),
        (Method::GET, format!("{PODS}/none/exec?command=ls"), 404),
        // Not an upgrade: the member's own word.
        (Method::POST, format!("{PODS}/web@east/exec?command=ls&stdout=true"), 400),
        (Method::PUT, format!("{PODS}/web@east/exec"), 405),
        (Method::DELETE, format!("{PODS}/web@east/log"), 405),
        (Method::GET, format!("{PODS}/web@east/log/more"), 404),
        (Method::GET, "/api/v1/namespaces/default/services/a:b:c:d/proxy/".to_owned(), 400),
    ] {
        let answer = api.request(method.clone(), &path, "").await;
        assert_eq!(answer.status.as_u16(), code, "{method} {path}: {answer}");
        assert_eq!(answer.json()["kind"], "Status", "{method} {path}: {answer}");
    }
    // After every refusal all goes on, on connections of its own.
    for _ in 0..3 {
        let refused = kubefold.kubectl(&["exec", "web@east", "-c", "nope", "--", "ls"]).await;
        assert!(refused.refused().contains("web@east"), "{refused}");
        assert_eq!(kubefold.kubectl(&["exec", "web@east", "--", "echo", "well"]).await.ok(), "well\n");
    }
}

/// The proxies of a node and of a pod, which lead to the kubelet: as the member's own.
async fn proxies(fleet: &Fleet) {
    let pod = |name: &str| format!("{PODS}/https:{name}:{}/proxy", fleet.east.port.number());
    proxy(fleet, "/api/v1/nodes/node-0/proxy", "/api/v1/nodes/node-0@east/proxy").await;
    proxy(fleet, &pod("web"), &pod("web@east")).await;
}

async fn proxy(fleet: &Fleet, plain: &str, visible: &str) {
    let (own, ours) = (fleet.east.member.api().await, fleet.kubefold.api().await);
    for (method, tail) in [
        (Method::GET, "/mirror"),
        (Method::GET, "/mirror/a//b%2Fc/%20/?x=1&y=%2F&x=2"),
        (Method::POST, "/mirror/"),
        (Method::PUT, "/mirror/x"),
        (Method::PATCH, "/mirror/x"),
        (Method::DELETE, "/mirror/x"),
        (Method::HEAD, "/mirror/x"),
        (Method::OPTIONS, "/mirror/x"),
        (Method::GET, "/say?code=404&type=application/json&body=%7B%22message%22:%22no%20%5C%22node-0%5C%22%22%7D"),
        (Method::GET, "/say?code=500&type=text/plain&body=node-0"),
    ] {
        let body = if method == Method::GET || method == Method::HEAD { "" } else { "body" };
        let said = own.request(method.clone(), &format!("{plain}{tail}"), body).await;
        assert_ne!(said.status, StatusCode::BAD_REQUEST, "{plain}{tail}: {said}");
        for path in [format!("{visible}{tail}"), format!("/clusters/east{plain}{tail}")] {
            let told = ours.request(method.clone(), &path, body).await;
            assert_eq!((told.status, &told.body), (said.status, &said.body), "{method} {path}");
            assert_eq!(told.headers.get("x-mirror"), said.headers.get("x-mirror"), "{method} {path}");
        }
    }
    // A redirect within the application stays in it; none leads out.
    let within = ours.request(Method::GET, &format!("{visible}/redirect?to=/login"), "").await;
    assert_eq!(within.status, StatusCode::FOUND, "{within}");
    assert_eq!(within.headers[header::LOCATION], format!("{visible}/login"));
    let out = ours.request(Method::GET, &format!("{visible}/redirect?to=https://evil/"), "").await;
    assert_eq!(out.status, StatusCode::BAD_GATEWAY, "{out}");
    let root = ours.request(Method::GET, visible, "").await;
    assert_ne!(root.status, StatusCode::BAD_GATEWAY, "{root}");
    let strict = ours.request(Method::GET, &format!("/views/strict{visible}/redirect?to=/login"), "").await;
    assert_eq!(strict.headers[header::LOCATION], format!("/views/strict{visible}/login"));
    // Any protocol, not Kubernetes' own alone.
    shout(fleet, &format!("{visible}/raw")).await;
    fleet.east.told("raw ends").await;
}

/// Speaks a protocol of nobody's to whatever is there.
async fn shout(fleet: &Fleet, path: &str) {
    let (mut stream, _) = connect(&fleet.kubefold.kubeconfig()).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: kubefold\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\nloud");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b"LOUD") {
        let next = timeout(SOON, stream.read_u8()).await.expect("an echo");
        heard.push(next.unwrap_or_else(|error| panic!("{path}: {error}: {}", String::from_utf8_lossy(&heard))));
    }
    let heard = String::from_utf8(heard).unwrap().to_lowercase();
    assert!(heard.starts_with("http/1.1 101 ") && heard.contains("\r\nupgrade: shout\r\n"), "{heard}");
}

/// A subresource that an aggregated API serves alone, of objects that live in another group.
async fn consoles(fleet: &Fleet) {
    let api = fleet.east.member.api().await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "consoles"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    api.create("/api/v1/namespaces/default/services", &service).await;
    let aggregated = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.consoles.e2e.kubefold.io"},
        "spec": {"group": "consoles.e2e.kubefold.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "consoles", "port": fleet.east.port.number()}}});
    api.create("/apis/apiregistration.k8s.io/v1/apiservices", &aggregated).await;
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd("Gadget")).await;
    let path = |group: &str, name: &str| format!("/apis/{group}e2e.kubefold.io/v1/namespaces/default/gadgets{name}");
    let gadget = json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Gadget", "metadata": {"name": "db"}});
    eventually(SOON, async || {
        let made = api.request(Method::POST, &path("", ""), gadget.to_string()).await;
        if made.status.is_success() { Ok(()) } else { Err(made) }
    })
    .await;
    let kubefold = fleet.kubefold.api().await;
    eventually(2 * SOON, async || {
        let catalog = kubefold.request(Method::GET, "/apis/consoles.e2e.kubefold.io/v1", "").await;
        if catalog.status.is_success() { Ok(()) } else { Err(catalog) }
    })
    .await;
    shout(fleet, &path("consoles.", "/db@east/console/1%20a")).await;
    fleet.east.told("raw at /apis/consoles.e2e.kubefold.io/v1/namespaces/default/gadgets/db/console/1 a begins").await;
    // By a plain name as a get: it is nobody's but the member-local object's.
    let none = async |path: &str| {
        let (mut stream, _) = connect(&fleet.kubefold.kubeconfig()).await;
        let asked = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: shout\r\n\r\n");
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut heard = vec![0; 2048];
        let length = timeout(SOON, stream.read(&mut heard)).await.unwrap().unwrap();
        String::from_utf8_lossy(&heard[..length]).into_owned()
    };
    let refused = none(&path("consoles.", "/db/console/x")).await;
    assert!(refused.starts_with("HTTP/1.1 404 ") && refused.contains("db@east"), "{refused}");
    let unknown = none(&format!("{PODS}/web@east/nothing")).await;
    assert!(unknown.starts_with("HTTP/1.1 404 "), "{unknown}");
}

/// `kubectl debug` calls its pod by the node's name.
async fn debug(fleet: &Fleet) {
    for (how, kubectl) in fleet.kubectls() {
        let debug: &[&str] = if how == "oldest" { &["alpha", "debug"] } else { &["debug"] };
        let said = kubectl.run(&[debug, &["node/node-0@west", "--image=x"]].concat()).await;
        assert!(said.succeeded(), "{how}: {said}");
    }
    let pods = fleet.kubefold.kubectl(&["get", "pods", "-o", "name"]).await.ok().to_owned();
    let made: Vec<&str> = pods.lines().filter(|pod| pod.starts_with("pod/node-debugger-node-0-")).collect();
    assert!(made.len() == 3 && made.iter().all(|pod| pod.ends_with("@west")), "{pods}");
    let of = fleet.kubefold.kubectl(&["get", made[0], "-o", "jsonpath={.spec.nodeName}"]).await;
    assert_eq!(of.ok(), "node-0@west");
    fleet.kubefold.kubectl(&[&["delete", "--grace-period=0", "--force"], &made[..]].concat()).await.ok();
}

/// The streams of a member that are under way, by kind.
async fn open_streams(kubefold: &Kubefold, member: &str, kind: &str) -> String {
    let metrics = kubefold.request(Method::GET, "/metrics", "").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let wanted = format!("kubefold_member_streams{{member=\"{member}\",kind=\"{kind}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&wanted)).unwrap_or_else(|| panic!("{metrics}")).to_owned()
}

/// A service with parts in both members: any of them leads to the same application.
async fn services(fleet: &Fleet) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}, "spec": {"ports": [{"port": 443}]}});
    let kubefold = &fleet.kubefold;
    kubefold.apply(&service.to_string()).await;
    for cluster in [&fleet.east, &fleet.west] {
        // No controller makes them.
        let address = json!({"ip": HERE, "targetRef": {"kind": "Pod", "namespace": "default", "name": "web"}});
        let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "shop"},
            "subsets": [{"addresses": [address], "ports": [{"port": cluster.port.number()}]}]});
        cluster.member.api().await.create("/api/v1/namespaces/default/endpoints", &endpoints).await;
    }
    for name in ["shop", "shop@west", "shop@east"] {
        let path = format!("/api/v1/namespaces/default/services/https:{name}:443/proxy/mirror/x?y");
        let answer = kubefold.request(Method::GET, &path, "").await;
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"GET /mirror/x?y "[..]), "{path}: {answer}");
    }
    let none = kubefold.request(Method::GET, "/api/v1/namespaces/default/services/https:none@west:1/proxy/", "").await;
    assert!(none.json()["message"].as_str().unwrap().contains(r#"services "none@west" not found"#), "{none}");
}

/// A client that is killed, and a member.
async fn whoever_goes(fleet: &Fleet) {
    let kubefold = &fleet.kubefold;
    fleet.east.pod("killed", false).await;
    let mut child = kubefold.as_admin().command(&["exec", "-i", "killed@east", "--", "cat"]).spawn().unwrap();
    fleet.east.told("exec in killed begins").await;
    child.start_kill().unwrap();
    fleet.east.told("stdin of killed ends").await;
    fleet.east.told("exec in killed ends").await;

    fleet.west.pod("doomed", false).await;
    let mut exec = kubefold.as_admin().command(&["exec", "-i", "doomed@west", "--", "cat"]).spawn().unwrap();
    let mut following = kubefold.as_admin().start(&["logs", "-f", "doomed@west"]);
    fleet.west.told("exec in doomed begins").await;
    let lines = async || following.output().contains("line 2\n").then_some(()).ok_or_else(|| following.output());
    eventually(SOON, lines).await;
    assert_eq!(open_streams(kubefold, "west", "exec").await, "1");
    assert_eq!(open_streams(kubefold, "west", "log").await, "1");
    fleet.west.member.stop_apiserver();
    let ended = timeout(SOON, exec.wait()).await.expect("exec ends with its member").unwrap();
    assert!(!ended.success());
    following.wait(SOON).await;
    let free = async || match open_streams(kubefold, "west", "exec").await.as_str() {
        "0" => Ok(()),
        open => Err(open.to_owned()),
    };
    eventually(SOON, free).await;
    let answer = eventually(SOON, async || {
        let answer = kubefold.request(Method::GET, &format!("{PODS}/web@west/log"), "").await;
        (answer.status == StatusCode::SERVICE_UNAVAILABLE).then(|| answer.clone()).ok_or(answer)
    })
    .await;
    assert!(answer.json()["message"].as_str().unwrap().contains("member west"), "{answer}");
    let said = kubefold.kubectl(&["exec", "doomed@west", "--", "ls"]).await;
    assert!(said.refused().contains("west"), "{said}");
    // The service, whose home that was, has another part.
    eventually(SOON, async || {
        let path = "/api/v1/namespaces/default/services/https:shop:443/proxy/mirror/z";
        let answer = kubefold.request(Method::GET, path, "").await;
        (answer.body == "GET /mirror/z ").then_some(()).ok_or(answer)
    })
    .await;
}

/// A stream goes on while kubefold drains, up to the end of the grace.
async fn drain(fleet: Fleet) {
    let Fleet { east, kubefold, .. } = fleet;
    east.pod("last", false).await;
    let mut exec = kubefold.as_admin().command(&["exec", "-i", "last@east", "--", "cat"]).spawn().unwrap();
    let (mut stdin, mut stdout) = (exec.stdin.take().unwrap(), exec.stdout.take().unwrap());
    let mut echo = async |text: &'static [u8]| {
        let mut echo = [0; 4];
        stdin.write_all(text).await.unwrap();
        timeout(SOON, stdout.read_exact(&mut echo)).await.expect("an echo").unwrap();
        assert_eq!(echo, text);
    };
    echo(b"one\n").await;
    let until_refused = async || {
        let refused = TcpStream::connect(kubefold.addr()).await.is_err();
        refused.then_some(()).ok_or("it still listens")
    };
    let (ended, ()) = tokio::join!(kubefold.terminate(DRAINED), async {
        eventually(SOON, until_refused).await;
        echo(b"two\n").await;
    });
    assert!(ended.success(), "{ended}");
    let ended = timeout(SOON, exec.wait()).await.expect("exec ends with kubefold").unwrap();
    assert!(!ended.success());
    east.told("exec in last ends").await;
}

/// A placed Deployment's pods are member-local objects: kubectl finds them by its selector.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_leads_to_one_of_its_pods() {
    let bed = Testbed::shared_with_workloads(&["east", "west"]).await;
    let kubefold = Kubefold::before(bed.members()).await.for_namespace("streams");
    kubefold.kubectl(&["create", "namespace", "streams"]).await.ok();
    kubefold.kubectl(&["create", "deployment", "web", "--image=web:1", "--replicas=2"]).await.ok();
    kubefold.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    kubefold.kubectl(&["expose", "deployment", "web", "--port=80"]).await.ok();
    let hello = |text: &str| text.starts_with("hello from ");
    for args in [&["logs", "deploy/web"][..], &["logs", "deploy/web", "--all-containers"], &["logs", "svc/web"]] {
        assert!(hello(kubefold.kubectl(args).await.ok()), "{args:?}");
    }
    let all = kubefold.kubectl(&["logs", "-l", "app=web", "--prefix"]).await.ok().to_owned();
    assert!(all.contains("hello from east") && all.contains("hello from west"), "{all}");
    assert_eq!(kubefold.kubectl(&["exec", "deploy/web", "--", "echo", "here"]).await.ok(), "here\n");
    // The plain name of a pod, which only one member has.
    let pods = kubefold.kubectl(&["get", "pods", "-o", "name"]).await.ok().to_owned();
    for (pod, member) in pods.lines().map(|line| line.trim_start_matches("pod/").split_once('@').unwrap()) {
        assert_eq!(kubefold.kubectl(&["logs", pod]).await.ok(), format!("hello from {member}\n"));
        assert_eq!(kubefold.kubectl(&["exec", pod, "--", "echo", member]).await.ok(), format!("{member}\n"));
    }
    for target in ["deploy/web", "svc/web"] {
        let running = kubefold.as_admin().start(&["port-forward", target, ":80"]);
        let mut stream = TcpStream::connect(("127.0.0.1", local_port(&running).await)).await.unwrap();
        stream.write_all(b"ping").await.unwrap();
        let mut echo = [0; 4];
        timeout(SOON, stream.read_exact(&mut echo)).await.unwrap().unwrap();
        assert_eq!(&echo, b"ping");
    }
    let following = kubefold.as_admin().start(&["logs", "-f", "deploy/web"]);
    let said = async || following.output().contains("hello from ").then_some(()).ok_or_else(|| following.output());
    eventually(SOON, said).await;
}
