//! The edge over real sockets, on free ports, with handlers that misbehave.

mod replicas;

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::authn::{Authentication, Sources};
use kubefold_serving::{
    Limits, Listener, PeerAddress, Shutdown,
    caller::Caller,
    fingerprint::fingerprint,
    front_proxy::ProxyHeaders,
    health::Check,
    impersonation::Impersonation,
    tls::{Believed, ClientAuthority, FrontProxies, Tls, TlsFiles},
    upgrade::OnceUpgraded,
};
use kubefold_wire::body::{Body, BodyError, full};

/// Answers by path: says who asks, panics, or streams until it is told to end, or for ever.
struct Stage {
    draining: CancellationToken,
    dropped: std::sync::Arc<AtomicUsize>,
}

impl Handler for Stage {
    async fn handle(self: std::sync::Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        match request.uri().path() {
            "/panic" => panic!("as asked"),
            "/watch" => Response::new(endless(Some(self.draining.clone()), &self)),
            "/stuck" => Response::new(endless(None, &self)),
            "/tunnel" => tunnel(),
            "/as" => {
                let wanted = request.extensions().get::<Impersonation>();
                Response::new(full(format!("{} as {:?}", caller.user, wanted.map(|wanted| &wanted.user))))
            }
            "/hang" => {
                self.dropped.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            }
            "/from" => {
                let from = request.extensions().get::<PeerAddress>().map(|PeerAddress(from)| from.ip());
                Response::new(full(format!("{from:?}")))
            }
            "/path" => Response::new(full(request.uri().to_string())),
            "/headers" => {
                Response::new(full(request.headers().keys().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")))
            }
            _ => Response::new(full(format!("{} {}", caller.user, caller.groups.join(",")))),
        }
    }
}

/// A connection that is held until it is taken away.
fn tunnel() -> Response<Body> {
    let held = OnceUpgraded::new(|connection| {
        Box::pin(async move {
            let _connection = connection;
            std::future::pending().await
        })
    });
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert("connection", http::HeaderValue::from_static("upgrade"));
    response.headers_mut().insert("upgrade", http::HeaderValue::from_static("held"));
    response.extensions_mut().insert(held);
    response
}

/// One event, then silence until the token.
fn endless(until: Option<CancellationToken>, stage: &Stage) -> Body {
    struct Counted(std::sync::Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let guard = Counted(std::sync::Arc::clone(&stage.dropped));
    let first = stream::once(async { Ok::<_, BodyError>(Frame::data(Bytes::from_static(b"event\n"))) });
    let rest = stream::once(async move {
        let _guard = guard;
        match until {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
        Ok(Frame::data(Bytes::from_static(b"end\n")))
    });
    StreamBody::new(first.chain(rest)).boxed_unsync()
}

struct Edge {
    address: std::net::SocketAddr,
    state: StateDir,
    tls: std::sync::Arc<ArcSwap<Tls>>,
    draining: CancellationToken,
    dropped: std::sync::Arc<AtomicUsize>,
    tasks: JoinSet<()>,
    _folder: tempfile::TempDir,
}

async fn edge(limits: Limits) -> Edge {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::open(&folder.path().join("state")).unwrap();
    let names = authority::serving_names([127, 0, 0, 1].into(), &[]);
    let own = authority::ensure(&state, &names, &BTreeSet::new(), SystemTime::now()).unwrap();
    let authority = ClientAuthority { bundle: own.ca_certificate, believed: Believed::Everything };
    let client_authorities = vec![authority];
    let (certificate, key) = (own.serving_certificate, own.serving_key);
    let elsewhere = StateDir::open(&folder.path().join("other")).unwrap();
    let other = authority::ensure(&elsewhere, &names, &BTreeSet::new(), SystemTime::now()).unwrap();
    let [user, groups] = ["x-user", "x-group"].map(|name| vec![http::HeaderName::from_static(name)]);
    let headers = ProxyHeaders { user, groups, uid: Vec::new(), extra_prefixes: vec!["x-more-".into()] };
    let proxies =
        FrontProxies { bundle: other.ca_certificate, names: Vec::new(), headers: headers.into(), cluster: None };
    let front_proxies = vec![proxies];
    let replica = Some(authority::ensure_replica(&state, &BTreeSet::new(), SystemTime::now()).unwrap());
    let files = TlsFiles { certificate, key, client_authorities, front_proxies, replica, ..TlsFiles::default() };
    let tls = std::sync::Arc::new(ArcSwap::from_pointee(Tls::new(&files).unwrap()));
    let shared = std::sync::Arc::clone(&tls);
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), shared, limits).await.unwrap();
    let address = listener.address().unwrap();
    let (draining, dropped) = (CancellationToken::new(), std::sync::Arc::default());
    let stage = Stage { draining: draining.clone(), dropped: std::sync::Arc::clone(&dropped) };
    let checks = || vec![Check::of("east", true, String::new())];
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, "abc,robot,,bots\n").unwrap();
    let sources = Sources { tokens: Some(tokens), ..Sources::default() };
    let gate = Gate::new(
        std::sync::Arc::new(stage),
        Health::new(std::sync::Arc::new(checks), draining.clone()),
        draining.clone(),
    );
    let gate = gate.authenticating(std::sync::Arc::new(Authentication::read(sources).unwrap()));
    let gate = gate.telling(Some(std::sync::Arc::new(|_, _| Some(full("what is shown")))));
    let tasks = TaskTracker::new();
    tasks.spawn(gate.sweep());
    let mut tasks = JoinSet::new();
    tasks.spawn(listener.serve(gate, Shutdown { drain: draining.clone(), ..Shutdown::default() }));
    Edge { address, state, tls, draining, dropped, tasks, _folder: folder }
}

impl Edge {
    async fn connect(&self, login: bool, alpn: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let pem = |name: &str| self.state.read(name).unwrap().unwrap();
        let admin = login.then(|| [pem("admin.crt"), pem("admin.key")]);
        self.connect_to(self.address, admin.as_ref(), alpn).await
    }

    /// Connects to some address with a certificate and its key, if there is one.
    async fn connect_to(
        &self,
        address: std::net::SocketAddr,
        identity: Option<&[String; 2]>,
        alpn: &[u8],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let pem = |name: &str| self.state.read(name).unwrap().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem("ca.crt").as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(std::sync::Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some([certificate, key]) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(address).await?;
        let connector = TlsConnector::from(std::sync::Arc::new(config));
        connector.connect("localhost".try_into().unwrap(), stream).await
    }

    /// Sends one request on a connection of its own.
    async fn get(&mut self, login: bool, version: &str, path: &str) -> hyper::Result<Response<Incoming>> {
        let request = Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new()).unwrap();
        if version == "h2" {
            self.http2(login).await?.send_request(request).await
        } else {
            let io = TokioIo::new(self.connect(login, version.as_bytes()).await.unwrap());
            let (mut sender, connection) = http1::handshake(io).await?;
            self.tasks.spawn(async { drop(connection.await) });
            sender.send_request(request).await
        }
    }

    /// A connection for many requests at once.
    async fn http2(&mut self, login: bool) -> hyper::Result<http2::SendRequest<Empty<Bytes>>> {
        let io = TokioIo::new(self.connect(login, b"h2").await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        self.tasks.spawn(async { drop(connection.await) });
        Ok(sender)
    }
}

async fn text(response: Response<Incoming>) -> (u16, String) {
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_login_is_known_and_nobody_is_401_on_both_protocols() {
    let mut edge = edge(Limits::default()).await;
    for version in ["h2", "http/1.1"] {
        let response = edge.get(true, version, "/api/v1/pods").await.unwrap();
        assert_eq!(response.headers()["audit-id"].len(), 36);
        assert_eq!(text(response).await, (200, "kubefold-admin system:masters,system:authenticated".to_owned()));
        let (code, body) = text(edge.get(false, version, "/api/v1/pods").await.unwrap()).await;
        assert_eq!(code, 401);
        assert!(body.contains(r#""message":"Unauthorized","reason":"Unauthorized","code":401"#), "{body}");
        assert_eq!(text(edge.get(false, version, "/readyz").await.unwrap()).await, (200, "ok".to_owned()));
        assert_eq!(text(edge.get(false, version, "/readyz?verbose").await.unwrap()).await.0, 401);
        let verbose = text(edge.get(true, version, "/readyz?verbose").await.unwrap()).await;
        assert_eq!(verbose, (200, "[+]ping ok\n[+]east ok\n[+]shutdown ok\nreadyz check passed\n".to_owned()));
    }
}

#[tokio::test]
async fn an_authority_that_is_trusted_no_longer_logs_nobody_in_on_open_connections() {
    let mut edge = edge(Limits::default()).await;
    let mut sender = edge.http2(true).await.unwrap();
    let mut ask = async || {
        let request = Request::get("https://localhost/api").body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(request).await.unwrap().status()
    };
    assert_eq!(ask().await, StatusCode::OK);
    let before = edge.tls.load_full();
    edge.tls.store(std::sync::Arc::new(Tls { judges: Vec::new(), ..Tls::clone(&before) }));
    assert_eq!(ask().await, StatusCode::UNAUTHORIZED);
    edge.tls.store(before);
    assert_eq!(ask().await, StatusCode::OK);
}

/// The digest of the login's certificate, as an administrator revokes it.
fn admin_digest(edge: &Edge) -> [u8; 32] {
    let admin = edge.state.read("admin.crt").unwrap().unwrap();
    fingerprint(&CertificateDer::from_pem_slice(admin.as_bytes()).unwrap())
}

#[tokio::test]
async fn a_revoked_certificate_logs_nobody_in_on_open_connections_and_ends_what_is_open() {
    let mut edge = edge(Limits::default()).await;
    let mut sender = edge.http2(true).await.unwrap();
    let mut ask = async |path: &str| {
        let request = Request::get(format!("https://localhost{path}")).body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(request).await.unwrap()
    };
    let mut watch = ask("/watch").await;
    assert_eq!(watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "event\n");
    let revoked = std::sync::Arc::new([admin_digest(&edge)].into());
    edge.tls.store(std::sync::Arc::new(Tls { revoked, ..Tls::clone(&edge.tls.load()) }));
    assert_eq!(ask("/api").await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(watch.into_body().collect().await.unwrap().to_bytes(), "", "a clean end");
}

#[tokio::test]
async fn a_tunnel_ends_when_its_certificate_is_revoked() {
    let edge = edge(Limits::default()).await;
    let io = TokioIo::new(edge.connect(true, b"http/1.1").await.unwrap());
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async { drop(connection.with_upgrades().await) });
    let request = Request::get("/tunnel").header("host", "localhost");
    let request = request.header("connection", "upgrade").header("upgrade", "held");
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let mut read = [0];
    let silent = tokio::time::timeout(Duration::from_millis(20), tokio::io::AsyncReadExt::read(&mut tunnel, &mut read));
    assert!(silent.await.is_err(), "it is open");
    let revoked = std::sync::Arc::new([admin_digest(&edge)].into());
    edge.tls.store(std::sync::Arc::new(Tls { revoked, ..Tls::clone(&edge.tls.load()) }));
    // Whether it is closed or cut, no byte comes any more.
    assert_eq!(tokio::io::AsyncReadExt::read(&mut tunnel, &mut read).await.unwrap_or(0), 0);
}

/// The headers of a front proxy that is none: its certificate is a client's.
#[tokio::test]
async fn headers_of_a_front_proxy_say_nothing_of_others_and_go_no_further() {
    let edge = edge(Limits::default()).await;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(edge.connect(true, b"http/1.1").await.unwrap())).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async { drop(connection.await) });
    let mut ask = async |path: &str| {
        let request = Request::get(path).header("host", "localhost").header("x-user", "jane").header("x-group", "dev");
        let request = request.header("x-more-a", "b").header("x-remote-user", "jane").header("x-mine", "c");
        text(sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()).await.1
    };
    assert_eq!(ask("/api").await, "kubefold-admin system:masters,system:authenticated");
    assert_eq!(ask("/headers").await, "host x-mine audit-id");
}

/// The fleet as a subresource, by which a host's aggregator hands requests on: health and all.
#[tokio::test]
async fn a_request_through_the_proxy_is_one_to_the_fleet() {
    let mut edge = edge(Limits::default()).await;
    let proxy = crate::view::FLEET_PROXY;
    for version in ["h2", "http/1.1"] {
        let (code, body) = text(edge.get(true, version, &format!("{proxy}/path?a=%40b")).await.unwrap()).await;
        assert_eq!(code, 200);
        assert!(body.ends_with("/path?a=%40b") && !body.contains("fleets"), "{body}");
        assert_eq!(edge.get(true, version, &format!("{proxy}/readyz")).await.unwrap().status(), StatusCode::OK);
        let nobody = edge.get(false, version, &format!("{proxy}/path")).await.unwrap();
        assert_eq!(nobody.status(), StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn a_panic_is_one_requests_500() {
    let mut edge = edge(Limits::default()).await;
    for version in ["h2", "http/1.1"] {
        let (code, body) = text(edge.get(true, version, "/panic").await.unwrap()).await;
        assert_eq!(code, 500);
        assert!(body.contains("InternalError") && !body.contains("as asked"), "{body}");
        assert_eq!(edge.get(true, version, "/").await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_drain_ends_watches_and_then_the_server() {
    let mut edge = edge(Limits::default()).await;
    let mut watches = Vec::new();
    for version in ["h2", "http/1.1"] {
        let mut watch = edge.get(true, version, "/watch").await.unwrap();
        assert_eq!(watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "event\n");
        watches.push(watch);
    }
    edge.draining.cancel();
    for watch in watches {
        assert_eq!(watch.into_body().collect().await.unwrap().to_bytes(), "end\n", "a clean end");
    }
    while edge.tasks.join_next().await.is_some() {}
    assert!(TcpStream::connect(edge.address).await.is_err(), "nobody listens");
}

#[tokio::test]
async fn a_drain_cuts_what_does_not_end_within_the_grace() {
    let limits = Limits { grace: Duration::from_millis(20), ..Limits::default() };
    let mut edge = edge(limits).await;
    let mut bodies = Vec::new();
    for version in ["h2", "http/1.1"] {
        let mut stuck = edge.get(true, version, "/stuck").await.unwrap();
        assert_eq!(stuck.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "event\n");
        bodies.push(stuck.into_body());
    }
    // A connection that never sends a byte holds nothing up.
    let silent = edge.connect(true, b"h2").await.unwrap();
    edge.draining.cancel();
    while edge.tasks.join_next().await.is_some() {}
    assert_eq!(edge.dropped.load(Ordering::SeqCst), 2, "no body outlives the server");
    for body in bodies {
        assert!(body.collect().await.is_err(), "a cut answer does not look whole");
    }
    drop(silent);
}

#[tokio::test]
async fn a_watcher_that_leaves_is_let_go() {
    let mut edge = edge(Limits::default()).await;
    let mut watch = edge.get(true, "h2", "/stuck").await.unwrap();
    watch.body_mut().frame().await.unwrap().unwrap();
    drop(watch);
    while edge.dropped.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn beyond_the_connection_limit_one_is_told_so() {
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let mut edge = edge(limits).await;
    let mut first = edge.get(true, "http/1.1", "/stuck").await.unwrap();
    first.body_mut().frame().await.unwrap().unwrap();
    let second = edge.get(true, "http/1.1", "/api").await.unwrap();
    assert_eq!(
        (second.status(), &second.headers()["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
    );
}

#[tokio::test]
async fn who_does_not_log_in_keeps_out_nobody_who_does() {
    let limits = Limits { anonymous_max: 9, connections_max: 2, ..Limits::default() };
    let mut edge = edge(limits).await;
    let mut silent = Vec::new();
    // One address has at most its share: of nine places six, and the last ones are for others.
    while silent.len() < 6 {
        silent.push(TcpStream::connect(edge.address).await.unwrap());
    }
    let mut closed = TcpStream::connect(edge.address).await.unwrap();
    assert_eq!(tokio::io::AsyncReadExt::read(&mut closed, &mut [0]).await.unwrap_or(0), 0);
    drop((silent.pop(), closed));
    // A place that a client has left is free once that is noticed.
    let mut known = Vec::new();
    while known.len() < 2 {
        let Ok(stream) = edge.connect(true, b"http/1.1").await else {
            tokio::task::yield_now().await;
            continue;
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        edge.tasks.spawn(async { drop(connection.await) });
        let request = Request::get("/stuck").header("host", "localhost").body(Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "their places are apart from the others'");
        known.push(answer);
    }
    drop((silent, known));
}

#[tokio::test]
async fn a_head_of_nobody_is_small() {
    let edge = edge(Limits::default()).await;
    for (login, code) in [(true, StatusCode::OK), (false, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)] {
        let stream = edge.connect(login, b"http/1.1").await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async { drop(connection.await) });
        let mut request = Request::get("/api").body(Empty::<Bytes>::new()).unwrap();
        request.headers_mut().insert("x-large", "x".repeat(40 << 10).parse().unwrap());
        assert_eq!(sender.send_request(request).await.unwrap().status(), code, "{login}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_log_in_is_not_kept() {
    let limits = Limits { anonymous_life: Duration::from_millis(20), ..Limits::default() };
    let edge = edge(limits).await;
    let mut idle = edge.connect(false, b"h2").await.unwrap();
    let mut seen = Vec::new();
    // Whatever the server says first, it ends the connection by itself.
    drop(tokio::io::AsyncReadExt::read_to_end(&mut idle, &mut seen).await);
}

#[tokio::test]
async fn a_client_that_logs_in_by_a_token_is_kept() {
    let limits = Limits { anonymous_life: Duration::from_secs(2), connections_max: 1, ..Limits::default() };
    let mut edge = edge(limits).await;
    let mut sender = edge.http2(false).await.unwrap();
    let mut ask = async |path: &str, token: &str| {
        let request =
            Request::get(format!("https://localhost{path}")).header("authorization", format!("Bearer {token}"));
        sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
    };
    let watch = ask("/watch", "abc").await;
    assert_eq!(watch.status(), StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(text(ask("/api", "abc").await).await, (200, "robot bots,system:authenticated".to_owned()));
    // Another request of the same connection is judged by itself.
    assert_eq!(ask("/api", "abd").await.status(), StatusCode::UNAUTHORIZED);
    drop(watch);
}

#[tokio::test]
async fn a_client_whose_authority_is_trusted_later_is_kept() {
    let limits = Limits { anonymous_life: Duration::from_secs(2), ..Limits::default() };
    let mut edge = edge(limits).await;
    let trusted = edge.tls.load_full();
    edge.tls.store(std::sync::Arc::new(Tls { judges: Vec::new(), ..Tls::clone(&trusted) }));
    let mut sender = edge.http2(true).await.unwrap();
    let mut ask = async |path: &str| {
        let request = Request::get(format!("https://localhost{path}")).body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(request).await.unwrap()
    };
    assert_eq!(ask("/api").await.status(), StatusCode::UNAUTHORIZED);
    edge.tls.store(trusted);
    let watch = ask("/watch").await;
    assert_eq!(watch.status(), StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(ask("/api").await.status(), StatusCode::OK);
    drop(watch);
}

#[test]
fn serving_names_hold_the_address_and_the_operators_own() {
    let names: BTreeSet<String> =
        authority::serving_names([10, 0, 0, 9].into(), &["kf.example".into(), "0:0::7".into()]);
    for name in ["localhost", "127.0.0.1", "::1", "10.0.0.9", "kf.example", "::7"] {
        assert!(names.contains(name), "{name}");
    }
    assert!(!authority::serving_names([0, 0, 0, 0].into(), &[]).contains("0.0.0.0"));
}
