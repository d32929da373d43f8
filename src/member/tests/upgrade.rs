//! Upgrades against members that say, byte by byte, what a test tells them to.

use hyper::{service::service_fn, upgrade};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::config::ServerAccess;
use crate::upstream::permits::Kind;
use kubefold_serving::upgrade::{OnceUpgraded, UpgradeAsked};
use kubefold_wire::info::proxied;

/// A member that speaks raw bytes.
struct Raw {
    listener: TcpListener,
    member: Arc<Member>,
}

impl Raw {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let access = ServerAccess { server, token: Some("kubefold-own".into()), ..ServerAccess::default() };
        Self { listener, member: fake::member(&fake::config("east", access)) }
    }

    /// The next connection, its request's head read and answered.
    async fn answers(&self, answer: &str) -> (TcpStream, String) {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let head = head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        (stream, head)
    }

    /// A connection to kubefold, as a client has one. What `pass_body` answers goes out on it.
    fn client(&self) -> DuplexStream {
        let (client, io) = duplex(1 << 20);
        let (member, tasks) = (Arc::clone(&self.member), TaskTracker::new());
        let spawned = tasks.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (member, tasks) = (Arc::clone(&member), tasks.clone());
            async move {
                let upgraded = upgrade::on(&mut request);
                if let Some(asked) = UpgradeAsked::by(request.headers()) {
                    request.extensions_mut().insert(asked);
                }
                let path = request.uri().path().to_owned();
                let mut response = view::pass(&member, &jane(), request, &path).await;
                if let Some(once) = response.extensions_mut().remove::<OnceUpgraded>() {
                    tasks.spawn(async move { once.run(upgraded.await.unwrap()).await });
                }
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let server = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service);
        spawned.spawn(server.with_upgrades());
        client
    }
}

async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

const EXEC: &str = "/api/v1/namespaces/a/pods/b/exec";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
    X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

fn asks(method: &str, more: &str) -> String {
    format!("{method} {EXEC} HTTP/1.1\r\nHost: kubefold\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n{more}\r\n")
}

/// Sends a request for an upgrade, and has the member answer.
async fn upgraded(raw: &Raw, answer: &str) -> (DuplexStream, TcpStream, String, String) {
    let mut client = raw.client();
    client.write_all(asks("POST", "Content-Length: 0\r\nImpersonate-User: root\r\n").as_bytes()).await.unwrap();
    let (member, sent) = raw.answers(answer).await;
    let answered = head(&mut client).await;
    (client, member, sent, answered)
}

#[tokio::test]
async fn a_101_opens_a_tunnel_with_the_callers_identity() {
    let raw = Raw::start().await;
    // Bytes that come right behind the head are the tunnel's.
    let (mut client, mut member, sent, answered) = upgraded(&raw, &format!("{SWITCHED}first ")).await;
    assert!(sent.starts_with("post /api/v1/namespaces/a/pods/b/exec http/1.1\r\n"), "{sent}");
    for line in
        ["connection: upgrade", "upgrade: spdy/3.1", "impersonate-user: jane", "authorization: bearer kubefold-own"]
    {
        assert!(sent.contains(&format!("\r\n{line}\r\n")), "{line} in {sent}");
    }
    assert!(!sent.contains("root"));
    assert!(answered.starts_with("http/1.1 101 "), "{answered}");
    for line in ["connection: upgrade", "upgrade: spdy/3.1", "x-stream-protocol-version: v4.channel.k8s.io"] {
        assert!(answered.contains(&format!("\r\n{line}\r\n")), "{line} in {answered}");
    }
    // More than any buffer, both ways at once.
    let much = vec![7_u8; 3 << 20];
    let (mut up, mut down) = (vec![0; much.len()], vec![0; much.len() + 6]);
    {
        let (mut client_read, mut client_write) = tokio::io::split(&mut client);
        let (mut member_read, mut member_write) = member.split();
        let (_, _, _, _) = tokio::try_join!(
            client_write.write_all(&much),
            member_write.write_all(&much),
            member_read.read_exact(&mut up),
            client_read.read_exact(&mut down)
        )
        .unwrap();
    }
    assert!(up == much && &down[..6] == b"first " && down[6..] == much);
    // The end of one direction is told, and the other goes on.
    client.shutdown().await.unwrap();
    assert_eq!(member.read(&mut [0]).await.unwrap(), 0);
    member.write_all(b"last").await.unwrap();
    drop(member);
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "last");
}

#[tokio::test]
async fn whoever_goes_takes_the_other_along() {
    let raw = Raw::start().await;
    let (client, mut member, ..) = upgraded(&raw, SWITCHED).await;
    drop(client);
    assert_eq!(member.read(&mut [0]).await.unwrap(), 0);
    drop(member);
    let (mut client, member, ..) = upgraded(&raw, SWITCHED).await;
    drop(member);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    // A member that leaves the configuration, too.
    let (mut client, member, ..) = upgraded(&raw, SWITCHED).await;
    raw.member.cancel.cancel();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    drop(member);
}

#[tokio::test]
async fn what_is_not_a_101_is_an_answer_and_leaves_no_connection_behind() {
    let raw = Raw::start().await;
    let refused = r#"{"kind":"Status","message":"no"}"#;
    for (answer, wanted, text) in [
        // CVE-2018-1002105: what comes behind a refusal must never be somebody's answer or stream.
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", 200, "ok"),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 32\r\n\r\n{\"kind\":\"Status\",\"message\":\"no\"}", 403, refused),
        (
            "HTTP/1.1 400 Bad Request\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
            400,
            "no",
        ),
        ("HTTP/1.1 302 Found\r\nLocation: https://evil/\r\nContent-Length: 0\r\n\r\n", 502, "attempted to redirect"),
        (
            "HTTP/1.1 307 Found\r\nLocation: /api/v1/namespaces/a/pods/b/exec\r\nContent-Length: 0\r\n\r\n",
            502,
            "redirect",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            502,
            "did not ask for",
        ),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", 502, "did not ask for"),
        ("I am a teapot\r\n\r\n", 502, "not HTTP"),
    ] {
        let (mut client, mut member, _, answered) = upgraded(&raw, answer).await;
        assert!(answered.starts_with(&format!("http/1.1 {wanted} ")), "{answer}: {answered}");
        let mut body = vec![0; 4096];
        let read = client.read(&mut body).await.unwrap();
        let body = String::from_utf8_lossy(&body[..read]).into_owned();
        assert!(body.contains(text) && !body.contains("evil"), "{answer}: {body}");
        let mut rest = Vec::new();
        // A connection that is closed with bytes unread is reset.
        let _reset = member.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{answer}: nothing more was sent, and the connection is closed");
        // The client's own connection goes on, with a member's connection of its own.
        client.write_all(asks("GET", "").as_bytes()).await.unwrap();
        drop(raw.answers(SWITCHED).await);
        assert!(String::from_utf8(vec![client.read_u8().await.unwrap()]).is_ok());
    }
    // Nobody answers at all.
    let mut client = raw.client();
    client.write_all(asks("GET", "").as_bytes()).await.unwrap();
    drop(raw.answers("").await);
    assert!(head(&mut client).await.starts_with("http/1.1 502 "));
}

#[tokio::test]
async fn what_must_not_be_sent_is_not() {
    let raw = Raw::start().await;
    let mut client = raw.client();
    client.write_all(asks("POST", "Content-Length: 4\r\n").as_bytes()).await.unwrap();
    client.write_all(b"body").await.unwrap();
    assert!(head(&mut client).await.starts_with("http/1.1 400 "));
    let _all: Vec<_> =
        (0..256).map(|_| raw.member.permits.take(raw.member.name(), "jane", Kind::OTHER).ok().unwrap()).collect();
    let mut client = raw.client();
    client.write_all(asks("POST", "Content-Length: 0\r\n").as_bytes()).await.unwrap();
    let refused = head(&mut client).await;
    assert!(refused.starts_with("http/1.1 429 ") && refused.contains("retry-after: 1"), "{refused}");
    // A member that switches protocols unasked is not believed.
    drop(_all);
    let mut client = raw.client();
    let plain = format!("GET {EXEC} HTTP/1.1\r\nHost: kubefold\r\n\r\n");
    client.write_all(plain.as_bytes()).await.unwrap();
    let (_member, sent) = raw.answers(SWITCHED).await;
    assert!(!sent.contains("upgrade"), "{sent}");
    assert!(head(&mut client).await.starts_with("http/1.1 502 "));
}

#[tokio::test]
async fn a_redirect_within_a_proxied_application_is_put_where_the_client_sees_it() {
    let own = "/api/v1/namespaces/a/services/web:80/proxy";
    let to = |location: &'static str| {
        handler(move |_| async move {
            Ok(Response::builder().status(302).header("location", location).body(empty()).unwrap())
        })
    };
    for (location, wanted) in [
        (
            "/api/v1/namespaces/a/services/web:80/proxy/login?next=/",
            Some("/clusters/east/api/v1/namespaces/a/services/web:80/proxy/login?next=/"),
        ),
        (
            "/api/v1/namespaces/a/services/web:80/proxy",
            Some("/clusters/east/api/v1/namespaces/a/services/web:80/proxy"),
        ),
        ("/api/v1/namespaces/a/services/web:80/proxying", None),
        ("/api/v1/namespaces/a/services/web:80/proxy/../../x", None),
        ("/api/v1/namespaces/a/services/web:80/proxy/%2E%2e/x", None),
        ("//evil/api/v1/namespaces/a/services/web:80/proxy/", None),
        ("https://evil/", None),
        ("/login", None),
    ] {
        let fake = Fake::http2(to(location)).await;
        let request = get(&format!("/clusters/east{own}/x//y%2Fz?q"));
        let response = pass_body(&fake.member(), &jane(), request, &format!("{own}/x//y%2Fz?q")).await;
        let told = response.headers().get("location").map(|value| value.to_str().unwrap());
        assert_eq!((told, response.status() == 302), (wanted, wanted.is_some()), "{location}");
    }
    // Elsewhere no redirect passes at all.
    let fake = Fake::http2(to("/api/v1/namespaces/a/pods/b/log")).await;
    let response = pass_body(&fake.member(), &jane(), get("/clusters/east/x"), "/api/v1/namespaces/a/pods/b/log").await;
    assert_eq!(response.status(), 502);
}

#[test]
fn a_proxied_path_is_split_behind_the_word() {
    for (path, split) in [
        ("/api/v1/namespaces/a/pods/b/proxy", Some(("/api/v1/namespaces/a/pods/b/proxy", ""))),
        ("/api/v1/namespaces/a/services/b:80/proxy/", Some(("/api/v1/namespaces/a/services/b:80/proxy", "/"))),
        ("/api/v1/nodes/n/proxy//x%2F/../y", Some(("/api/v1/nodes/n/proxy", "//x%2F/../y"))),
        ("/api/v1/namespaces/a/pods/b/proxy/proxy/x", Some(("/api/v1/namespaces/a/pods/b/proxy", "/proxy/x"))),
        ("/api/v1/namespaces/a/pods/b/proxyx", None),
        ("/api/v1/namespaces//pods/b/proxy/x", None),
        ("/api/v1/namespaces/a/pods/b/log", None),
        ("//api/v1/nodes/n/proxy/x", None),
        ("/apis/a/v1/nodes/n/proxy/x", None),
    ] {
        assert_eq!(proxied(path), split, "{path}");
    }
}
