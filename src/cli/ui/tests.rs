//! The local server in front of a server that shows what reaches it.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, channel::mpsc};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::Config;
use parking_lot::Mutex;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    answer::Site,
    forward::Upstream,
    gate::{Gate, Secrets},
};
use kubefold_wire::body::{Body, full};

const OWN: &str = "127.0.0.1:4000";

/// A server in kubefold's place, and what it was asked.
struct Behind {
    site: Arc<Site>,
    asked: Arc<Mutex<Vec<String>>>,
    events: Mutex<Option<mpsc::Sender<&'static str>>>,
    token: String,
    _server: JoinSet<()>,
}

impl Behind {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/prefix", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (events, stream) = mpsc::channel(1);
        let stream = Arc::new(Mutex::new(Some(stream)));
        let mut server = JoinSet::new();
        let log = Arc::clone(&asked);
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (log, stream) = (Arc::clone(&log), Arc::clone(&stream));
                let service = service_fn(move |request: Request<Incoming>| {
                    let post = if request.method() == http::Method::POST { "POST " } else { "" };
                    log.lock().push(format!("{post}{} {:?}", request.uri(), request.headers()));
                    let stream = if request.uri().path().ends_with("/watched") { stream.lock().take() } else { None };
                    let body: Body = match stream {
                        Some(stream) => {
                            StreamBody::new(stream.map(|line: &'static str| Ok(Frame::data(Bytes::from(line)))))
                                .boxed_unsync()
                        }
                        None => full("{}"),
                    };
                    let answer = Response::builder()
                        .header(header::CONTENT_TYPE, "text/html")
                        .header(header::SET_COOKIE, "session=theirs")
                        .header(header::CONTENT_SECURITY_POLICY, "default-src *")
                        .header(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")
                        .header(header::WARNING, "299 - \"west is down\"")
                        .body(body);
                    async move { Ok::<_, Infallible>(answer.unwrap()) }
                });
                connections.spawn(async move {
                    http1::Builder::new().serve_connection(TokioIo::new(socket), service).await.ok();
                });
            }
        });
        let (site, token) = site(&url);
        Self { site, asked, events: Mutex::new(Some(events)), token, _server: server }
    }

    /// What a browser with the cookie is answered.
    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        get(&self.site, path, &[&[("cookie", &*self.cookie())], headers].concat()).await
    }

    fn cookie(&self) -> String {
        format!("kubefold-ui-4000={}", self.token)
    }
}

fn site(url: &str) -> (Arc<Site>, String) {
    let listens = OWN.parse().unwrap();
    let secrets = Secrets::random().unwrap();
    let token = secrets.address(listens).split_once("token=").unwrap().1.to_owned();
    let upstream = Upstream::new(Config::new(url.parse().unwrap())).unwrap();
    (Arc::new(Site { gate: Gate::new(listens, secrets), upstream }), token)
}

async fn get(site: &Site, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let request = Request::get(path).header("host", OWN);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    site.answer(request.body(full("")).unwrap()).await
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn policy(response: &Response<Body>) -> &str {
    let policies: Vec<_> = response.headers().get_all(header::CONTENT_SECURITY_POLICY).iter().collect();
    assert_eq!(policies.len(), 1, "{policies:?}");
    policies[0].to_str().unwrap()
}

#[tokio::test]
async fn a_browser_without_the_token_is_told_what_to_do() {
    let behind = Behind::start().await;
    for path in ["/", "/?token=wrong"] {
        let page = get(&behind.site, path, &[]).await;
        assert_eq!(page.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(page.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        assert!(policy(&page).starts_with("default-src 'none'; sandbox"));
        let said = text(page).await;
        assert!(said.contains("Open the address that <code>kubefold ui</code> printed"), "{said}");
    }
    for path in ["/fleet/api/v1/pods", "/ui/app.js", "/nothing"] {
        let refused = get(&behind.site, path, &[]).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert!(text(refused).await.contains("kubefold ui does not know you: open the address"), "{path}");
    }
    assert_eq!(*behind.asked.lock(), Vec::<String>::new(), "nothing has reached kubefold");
}

#[tokio::test]
async fn the_address_sets_a_cookie_and_the_page_allows_its_own_files_alone() {
    let behind = Behind::start().await;
    let entry = get(&behind.site, &format!("/?token={}", behind.token), &[]).await;
    assert_eq!(entry.status(), StatusCode::OK);
    let cookie = entry.headers()[header::SET_COOKIE].to_str().unwrap();
    assert_eq!(cookie, format!("{}; Path=/; HttpOnly; SameSite=Strict", behind.cookie()));
    assert!(!policy(&entry).contains("sandbox"), "what a sandbox asks for has no cookie");
    assert!(text(entry).await.contains("content=\"0;url=/\""));
    for (path, media) in [
        ("/", "text/html; charset=utf-8"),
        ("/ui/app.js", "text/javascript; charset=utf-8"),
        ("/ui/style.css", "text/css; charset=utf-8"),
    ] {
        let page = behind.get(path, &[("sec-fetch-site", "same-origin")]).await;
        assert_eq!((page.status(), &page.headers()[header::CONTENT_TYPE]), (StatusCode::OK, &media.parse().unwrap()));
        let directives: Vec<&str> = policy(&page).split("; ").collect();
        assert_eq!(directives[0], "default-src 'none'");
        for needed in ["script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"] {
            assert!(directives.contains(&needed), "{needed}: {directives:?}");
        }
        assert!(!policy(&page).contains("unsafe"), "{directives:?}");
        for (name, value) in
            [("cache-control", "no-store"), ("referrer-policy", "no-referrer"), ("x-content-type-options", "nosniff")]
        {
            assert_eq!(page.headers()[name], value, "{path}");
        }
        assert!(page.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN).is_none());
    }
}

#[tokio::test]
async fn only_what_a_read_needs_goes_on_and_comes_back() {
    let behind = Behind::start().await;
    let own = [
        ("accept", "application/yaml"),
        ("authorization", "Bearer theirs"),
        ("impersonate-user", "ann"),
        ("x-remote-user", "ann"),
        ("origin", "http://127.0.0.1:4000"),
        ("referer", "http://127.0.0.1:4000/"),
    ];
    let answer = behind.get("/fleet/api/v1/pods?limit=5&fieldSelector=a%3Db", &own).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()[header::WARNING], "299 - \"west is down\"");
    assert!(policy(&answer).starts_with("default-src 'none'; sandbox"), "a page of a member runs nothing");
    for kept_back in [header::SET_COOKIE, header::ACCESS_CONTROL_ALLOW_ORIGIN] {
        assert!(answer.headers().get(&kept_back).is_none(), "{kept_back}");
    }
    let asked = behind.asked.lock().join("\n");
    assert!(asked.starts_with("/prefix/api/v1/pods?limit=5&fieldSelector=a%3Db "), "{asked}");
    assert!(asked.contains("application/yaml"), "{asked}");
    for left_out in [&*behind.token, "ann", "theirs", "cookie", "origin", "referer", "impersonate", "authorization"] {
        assert!(!asked.contains(left_out), "{left_out}: {asked}");
    }
}

#[tokio::test]
async fn everything_but_reads_of_the_api_is_refused() {
    let behind = Behind::start().await;
    for (path, headers, expected) in [
        ("/fleet/metrics", &[][..], 404_u16),
        ("/fleet/api/../metrics", &[], 400),
        ("/fleet/api/%2e%2e/metrics", &[], 400),
        ("/fleetapi/v1/pods", &[], 404),
        ("/fleet", &[], 404),
        ("/api/v1/pods", &[], 404),
        ("/fleet/api/v1/namespaces/a/pods/b/proxy/", &[], 403),
        (
            "/fleet/api/v1/namespaces/a/pods/b/exec?command=sh",
            &[("connection", "upgrade"), ("upgrade", "websocket")],
            403,
        ),
        ("/fleet/api/v1/pods", &[("upgrade", "SPDY/3.1")], 403),
        ("/fleet/api/v1/pods", &[("origin", "http://evil.example")], 403),
        ("/fleet/api/v1/pods", &[("sec-fetch-site", "cross-site")], 403),
    ] {
        let refused = behind.get(path, headers).await;
        assert_eq!(refused.status(), expected, "{path}");
        let said = text(refused).await;
        assert!(said.contains("\"kind\":\"Status\""), "{path}: {said}");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"] {
        let request = Request::builder().method(method).uri("/fleet/api/v1/pods").header("host", OWN);
        let refused = behind.site.answer(request.header("cookie", behind.cookie()).body(full("")).unwrap()).await;
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
    let elsewhere = Request::get("/").header("host", "evil.example:4000").header("cookie", behind.cookie());
    assert_eq!(behind.site.answer(elsewhere.body(full("")).unwrap()).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(*behind.asked.lock(), Vec::<String>::new(), "nothing has reached kubefold");
}

#[tokio::test]
async fn an_order_is_taken_of_the_page_alone() {
    let behind = Behind::start().await;
    let (cookie, bearer) = (behind.cookie(), format!("Bearer {}", behind.token));
    let post = async |path: &str, body: &str, headers: &[(&str, &str)]| {
        let request = Request::post(path).header("host", OWN).header("content-type", "application/json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        behind.site.answer(request.body(full(body.to_owned())).unwrap()).await.status().as_u16()
    };
    let (moves, plan) = ("/fleet/kubefold/v1/moves", r#"{"verb":"drain","member":"east","dryRun":true}"#);
    let own = [("cookie", &*cookie), ("origin", "http://127.0.0.1:4000")];
    for (path, body, headers, expected) in [
        (moves, plan, &own[..1], 403),
        (moves, plan, &[own[0], ("origin", "http://evil.example")], 403),
        (moves, plan, &[own[0], own[1], ("sec-fetch-site", "cross-site")], 403),
        (moves, plan, &own[1..], 401),
        (moves, plan, &own, 200),
        (moves, r#"{"verb":"drain","member":"east"}"#, &own, 400),
        (moves, r#"{"verb":"adopt","dryRun":true}"#, &own, 400),
        (moves, &" ".repeat(5000), &own, 400),
        ("/fleet/kubefold/v1/status", plan, &own, 405),
        ("/fleet/kubefold/v1/moves/", plan, &own, 405),
        ("/fleet/kubefold/v1/../v1/moves", plan, &own, 405),
    ] {
        assert_eq!(post(path, body, headers).await, expected, "{path} {body} {headers:?}");
    }
    let confirmed = r#"{"verb":"drain","member":"east","confirm":"east"}"#;
    assert_eq!(post(moves, confirmed, &[("authorization", &*bearer), ("impersonate-user", "ann")]).await, 200);
    let form = Request::post(moves).header("host", OWN).header("cookie", &cookie).header("origin", own[1].1);
    let form = form.header("content-type", "text/plain").body(full(plan)).unwrap();
    assert_eq!(behind.site.answer(form).await.status(), StatusCode::BAD_REQUEST);
    let asked = behind.asked.lock();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(
        asked.iter().all(|one| one.starts_with("POST /prefix/kubefold/v1/moves ") && !one.contains("ann")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_stream_comes_as_it_is_sent_and_ends_with_the_browser() {
    let behind = Behind::start().await;
    let mut events = behind.events.lock().take().unwrap();
    let mut body = behind.get("/fleet/api/v1/watched", &[]).await.into_body();
    for line in ["one\n", "two\n"] {
        events.try_send(line).unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), line);
    }
    drop(body);
    // Nobody takes events any more: the connection to kubefold has ended.
    let closed = tokio::time::timeout(std::time::Duration::from_secs(20), async {
        while !events.is_closed() {
            events.try_send("more\n").ok();
            tokio::task::yield_now().await;
        }
    });
    closed.await.unwrap();
}

#[tokio::test]
async fn it_says_where_kubefold_is_when_it_does_not_answer() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let (site, token) = site(&url);
    let bearer = format!("Bearer {token}");
    let answer = get(&site, "/fleet/version", &[("authorization", &bearer)]).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    let order = Request::post("/fleet/kubefold/v1/moves").header("host", OWN).header("authorization", &bearer);
    let order = order.header("content-type", "application/json");
    let order = order.body(full(r#"{"verb":"rebalance","confirm":"rebalance"}"#));
    let lost = text(site.answer(order.unwrap()).await).await;
    assert!(lost.contains("it may have been taken, so look at what moves first"), "{lost}");
    let said = text(answer).await;
    assert!(said.contains(&format!("cannot reach kubefold at {url}: ")), "{said}");
    assert!(said.contains("does kubefold serve run there"), "{said}");
}
