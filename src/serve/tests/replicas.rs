//! A standby before a holder: what it hands on, and whose word counts.

use std::{net::SocketAddr, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use kubefold_sql::Waits;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};

use super::*;
use crate::stores::{SHOWN_PATH, WATCH_CACHE_PATH};
use kubefold_serving::{Answer, Closed, peer::Peer};

/// A client's certificate of an authority, and its key.
fn issued(ca: [String; 2], user: &str, ends: i32) -> [String; 2] {
    let [certificate, key] = ca;
    let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&key).unwrap()).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(ends, 1, 1);
    let key = KeyPair::generate().unwrap();
    [params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem()]
}

/// As RFC 9440 writes it.
fn item(pem: &str) -> HeaderValue {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    format!(":{}:", STANDARD.encode(&certificate)).parse().unwrap()
}

impl Edge {
    fn pem(&self, name: &str) -> String {
        self.state.read(name).unwrap().unwrap()
    }

    fn identity(&self, name: &str) -> [String; 2] {
        ["crt", "key"].map(|kind| self.pem(&format!("{name}.{kind}")))
    }

    /// Sends one request over HTTP/2 on a connection of its own.
    async fn ask(
        &mut self,
        address: SocketAddr,
        identity: Option<&[String; 2]>,
        method: Method,
        path: &str,
        headers: &[(&'static str, HeaderValue)],
    ) -> Response<Incoming> {
        let io = TokioIo::new(self.connect_to(address, identity, b"h2").await.unwrap());
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        self.tasks.spawn(async { drop(connection.await) });
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method;
        *request.uri_mut() = format!("https://fleet.example{path}").parse().unwrap();
        let pairs = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.clone()));
        request.headers_mut().extend(pairs.collect::<HeaderMap>());
        sender.send_request(request).await.unwrap()
    }

    /// A standby with the same certificates, which hands requests on to an address.
    async fn standby(&mut self, holder_at: Option<SocketAddr>) -> Standby {
        let holder = Holder::new(Arc::clone(&self.tls));
        let waits = |epoch, address: Option<SocketAddr>| Waits {
            holder: None,
            epoch,
            address: address.map(|address| address.to_string()),
            error: None,
        };
        holder.see(&waits(1, holder_at));
        let until = CancellationToken::new();
        let handing = Handing::new(Arc::clone(&holder), until.clone());
        let checks = Arc::clone(&holder);
        let health = Health::new(Arc::new(move || vec![checks.check()]), until.clone());
        let stage = Stage { draining: until.clone(), dropped: Arc::default() };
        let gate = Gate::new(Arc::new(stage), health, until.clone()).handing(Some(Arc::new(handing)));
        let limits = Limits { anonymous_life: Duration::from_millis(200), ..Limits::default() };
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), Arc::clone(&self.tls), limits).await.unwrap();
        let address = listener.address().unwrap();
        self.tasks.spawn(listener.serve(gate, Shutdown { drain: until.clone(), ..Shutdown::default() }));
        if holder_at == Some(([0, 0, 0, 0], 0).into()) {
            holder.see(&waits(2, Some(address)));
        }
        Standby { address, holder, until }
    }
}

struct Standby {
    address: SocketAddr,
    holder: Arc<Holder>,
    until: CancellationToken,
}

/// The attack: a client says in a replica's words who it is.
#[tokio::test]
async fn only_a_replica_says_what_its_clients_have_shown() {
    let mut edge = edge(Limits::default()).await;
    let (address, admin) = (edge.address, edge.identity("admin"));
    let other = {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("state")).unwrap();
        let names = authority::serving_names([127, 0, 0, 1].into(), &[]);
        authority::ensure(&state, &names, &BTreeSet::new(), SystemTime::now()).unwrap();
        ["ca.crt", "ca.key"].map(|name| state.read(name).unwrap().unwrap())
    };
    let own = || edge.identity("ca");
    let (jane, late) = (issued(own(), "jane", 2100), issued(own(), "late", 2001));
    let namesake = issued(other.clone(), kubefold_serving::replica::USER, 2100);
    let foreign = issued(other, "kubefold-admin", 2100);
    let shows = |identity: &[String; 2]| vec![("client-cert", item(&identity[0]))];
    let mut said = async |identity: Option<&[String; 2]>, headers: &[(&'static str, HeaderValue)]| {
        text(edge.ask(address, identity, Method::GET, "/api", headers).await).await
    };
    // Nobody, somebody, and somebody with the name of a replica from elsewhere: their word is no more than they have shown.
    assert_eq!(said(None, &shows(&admin)).await.0, 401);
    assert_eq!(said(Some(&namesake), &shows(&admin)).await.0, 401);
    assert_eq!(said(Some(&late), &shows(&admin)).await.0, 401);
    assert_eq!(said(Some(&jane), &shows(&admin)).await, (200, "jane system:authenticated".to_owned()));
    let replica = edge.identity("replica");
    let mut said = async |headers: &[(&'static str, HeaderValue)]| {
        text(edge.ask(address, Some(&replica), Method::GET, "/api", headers).await).await
    };
    // A replica is nobody itself, and its clients are who they would be here.
    assert_eq!(said(&[]).await.0, 401);
    assert_eq!(said(&shows(&jane)).await, (200, "jane system:authenticated".to_owned()));
    for nobody in [&late, &foreign, &namesake, &replica] {
        assert_eq!(said(&shows(nobody)).await.0, 401);
    }
    let broken = HeaderValue::from_static(":%:");
    for unread in [vec![("client-cert", broken.clone())], [shows(&jane), vec![("client-cert-chain", broken)]].concat()]
    {
        assert_eq!(said(&unread).await.0, 401, "{unread:?}");
    }
    let chain = vec![("client-cert-chain", item(&jane[0]))];
    assert_eq!(said(&[shows(&jane), chain].concat()).await.0, 200);
    let revoked = Arc::new([fingerprint(&CertificateDer::from_pem_slice(jane[0].as_bytes()).unwrap())].into());
    edge.tls.store(Arc::new(Tls { revoked, ..Tls::clone(&edge.tls.load()) }));
    assert_eq!(text(edge.ask(address, Some(&replica), Method::GET, "/api", &shows(&jane)).await).await.0, 401);
    let from = [("kubefold-client-address", HeaderValue::from_static("192.0.2.7:9")), ("client-cert", item(&admin[0]))];
    for (identity, wanted) in [(&replica, "Some(192.0.2.7)"), (&admin, "Some(127.0.0.1)")] {
        let seen = edge.ask(address, Some(identity), Method::GET, "/from", &from).await;
        assert_eq!(text(seen).await, (200, wanted.to_owned()));
    }
    // Nothing of it goes further.
    let mut all = shows(&jane);
    all.extend(
        ["client-cert-chain", "kubefold-client-address", "kubefold-client-connection"]
            .map(|name| (name, HeaderValue::from_static("x"))),
    );
    let seen = text(edge.ask(address, Some(&admin), Method::GET, "/headers", &all).await).await.1;
    assert_eq!(seen, "audit-id");
}

#[tokio::test]
async fn what_is_shown_is_told_to_replicas_alone() {
    let mut edge = edge(Limits::default()).await;
    let standby = edge.standby(Some(edge.address)).await;
    let [admin, replica] = ["admin", "replica"].map(|name| edge.identity(name));
    let address = edge.address;
    for path in [SHOWN_PATH, WATCH_CACHE_PATH] {
        let told = standby.holder.ask(path).await.unwrap().body.collect().await.unwrap().to_bytes();
        assert_eq!(told, "what is shown");
    }
    let shows = [("client-cert", item(&admin[0]))];
    let mut said = async |address, identity: Option<&[String; 2]>, headers: &[(&'static str, HeaderValue)]| {
        let mut both = Vec::new();
        for path in [SHOWN_PATH, WATCH_CACHE_PATH] {
            both.push(text(edge.ask(address, identity, Method::GET, path, headers).await).await);
        }
        both
    };
    for (address, identity, headers) in [
        (address, None, &[][..]),
        (address, Some(&admin), &[]),
        // A replica's client.
        (address, Some(&replica), &shows),
        (standby.address, Some(&admin), &[]),
        (standby.address, Some(&replica), &[]),
    ] {
        for (code, said) in said(address, identity, headers).await {
            assert!(said != "what is shown", "{code} {said}");
        }
    }
    // Nobody has the state.
    standby.holder.end();
    assert!(standby.holder.ask(SHOWN_PATH).await.is_err());
    standby.until.cancel();
}

#[tokio::test]
async fn a_standby_hands_requests_on_as_they_are() {
    let mut edge = edge(Limits::default()).await;
    let standby = edge.standby(Some(edge.address)).await;
    let (address, admin) = (standby.address, edge.identity("admin"));
    let shown = edge.ask(address, Some(&admin), Method::GET, "/api", &[]).await;
    assert!(shown.headers().get("kubefold-caller").is_none() && shown.headers()["audit-id"].len() == 36);
    assert_eq!(text(shown).await, (200, "kubefold-admin system:masters,system:authenticated".to_owned()));
    assert_eq!(text(edge.ask(address, None, Method::GET, "/api", &[]).await).await.0, 401);
    // What a client says in a replica's words is not handed on.
    let forged = [("client-cert", item(&admin[0])), ("kubefold-client-address", HeaderValue::from_static("1.2.3.4:5"))];
    assert_eq!(text(edge.ask(address, None, Method::GET, "/api", &forged).await).await.0, 401);
    let path = text(edge.ask(address, Some(&admin), Method::PUT, "/path?a=%40b", &[]).await).await;
    assert_eq!(path, (200, "https://fleet.example/path?a=%40b".to_owned()));
    let head = edge.ask(address, Some(&admin), Method::HEAD, "/api", &[]).await;
    assert_eq!((head.status(), text(head).await.1), (StatusCode::OK, String::new()));
    let mut watch = edge.ask(address, Some(&admin), Method::GET, "/watch", &[]).await;
    assert_eq!(watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "event\n");

    // A connection that a token makes somebody's lasts, as it does at the holder.
    let io = TokioIo::new(edge.connect_to(address, None, b"http/1.1").await.unwrap());
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    edge.tasks.spawn(async { drop(connection.await) });
    let mut bots = async |pairs: &[(&str, &str)]| {
        let request = Request::get("/as").header("host", "localhost").header("authorization", "Bearer abc");
        let request = pairs.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        text(sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()).await.1
    };
    assert_eq!(bots(&[]).await, "robot as None");
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Whom it asks to be is not hidden by what it says of its connection.
    let hidden = [("connection", "keep-alive, impersonate-user"), ("impersonate-user", "jane")];
    assert_eq!(bots(&hidden).await, "robot as Some(\"jane\")");
    standby.until.cancel();
}

/// A replica that takes requests and closes its connections.
struct Closes(Arc<AtomicUsize>);

impl Answer for Closes {
    async fn answer(&self, _: Request<Incoming>, _: &Arc<Peer>) -> Result<Response<Body>, Closed> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(Closed)
    }
}

#[tokio::test]
async fn what_cannot_be_handed_on_is_refused_and_nothing_is_sent_twice() {
    let mut edge = edge(Limits::default()).await;
    let admin = edge.identity("admin");
    // No holder is known; nobody listens; the holder is this standby itself.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (holder_at, why) in [
        (None, "another process has the state); it answers once it has taken over"),
        (Some(closed), "cannot reach that process: connection refused; nothing was done"),
        (Some(([0, 0, 0, 0], 0).into()), "this kubefold is a standby (another process has the state)"),
    ] {
        let standby = edge.standby(holder_at).await;
        for method in [Method::GET, Method::POST] {
            let refused = edge.ask(standby.address, Some(&admin), method, "/api", &[]).await;
            assert_eq!(refused.headers().get("retry-after").unwrap(), "1");
            let (code, said) = text(refused).await;
            assert!(code == 503 && said.contains(why), "{code} {said}");
        }
        standby.until.cancel();
    }
    let taken = Arc::new(AtomicUsize::new(0));
    let limits = Limits::default();
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), Arc::clone(&edge.tls), limits).await.unwrap();
    let closes_at = listener.address().unwrap();
    edge.tasks.spawn(listener.serve(Closes(Arc::clone(&taken)), Shutdown::default()));
    let standby = edge.standby(Some(closes_at)).await;
    for (method, wanted) in [(Method::POST, 504), (Method::DELETE, 504), (Method::GET, 503)] {
        let lost = edge.ask(standby.address, Some(&admin), method.clone(), "/api", &[]).await;
        assert_eq!(lost.headers().contains_key("retry-after"), method.is_safe());
        let (code, said) = text(lost).await;
        assert!(code == wanted && said.contains("handed the request on"), "{code} {said}");
        assert_eq!(said.contains("whether it was done is not known"), !method.is_safe(), "{said}");
        assert_eq!(taken.swap(0, Ordering::SeqCst), 1, "once");
    }
}

#[tokio::test]
async fn whoever_waits_for_a_holder_is_answered_when_it_is_one_no_more() {
    let mut edge = edge(Limits::default()).await;
    let standby = edge.standby(Some(edge.address)).await;
    let (address, admin) = (standby.address, edge.identity("admin"));
    let mut stuck = edge.ask(address, Some(&admin), Method::GET, "/stuck", &[]).await;
    assert_eq!(stuck.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "event\n");
    let io = TokioIo::new(edge.connect_to(address, Some(&admin), b"http/1.1").await.unwrap());
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    edge.tasks.spawn(async { drop(connection.with_upgrades().await) });
    let request = Request::get("/tunnel").header("host", "localhost");
    let request = request.header("connection", "upgrade").header("upgrade", "held").body(Empty::<Bytes>::new());
    let answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["upgrade"]),
        (StatusCode::SWITCHING_PROTOCOLS, &"held".parse().unwrap())
    );
    let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let (holder, reached) = (Arc::clone(&standby.holder), Arc::clone(&edge.dropped));
    edge.tasks.spawn(async move {
        while reached.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        holder.end();
    });
    let ended = edge.ask(address, Some(&admin), Method::POST, "/hang", &[]).await;
    assert_eq!(ended.status(), StatusCode::GATEWAY_TIMEOUT);
    assert!(stuck.into_body().collect().await.is_err(), "a cut answer does not look whole");
    assert_eq!(tokio::io::AsyncReadExt::read(&mut tunnel, &mut [0]).await.unwrap_or(0), 0);
}
