//! A proxy before a real member that answers some requests for config maps, and access reviews, wrongly, and that keeps
//! writes on their way.
//!
//! It gives its member an identity of its own, so that several may stand before one cluster: each is a member that fails
//! in its own way.
//!
//! The faults of an embedded member are fewer: these lies are bytes that a test writes out, and endless bodies.

use std::{
    convert::Infallible,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Api, Member,
    objects::{CONFIG_MAPS, IN_DEFAULT},
};

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// What a request for config maps is, or one for a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    List,
    Watch,
    Get,
    /// Whether somebody may do something.
    Review,
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// What is answered in place of the truth.
#[derive(Clone, Copy, Debug)]
pub enum Lie {
    /// Status, headers and body.
    Answer(u16, &'static [(&'static str, &'static str)], &'static [u8]),
    /// 200 and this JSON, and then the connection breaks.
    Broken(&'static [u8]),
    /// The true answer, cut in its middle.
    Half,
    /// 200, and this again and again without end.
    Endless(&'static [u8]),
    /// The truth, but of the first the second.
    Replaced(&'static str, fn() -> String),
    /// What was asked, with this status.
    Says(&'static str),
    /// The truth, so much later.
    Late(Duration),
    /// Nothing, and the connection stays.
    Hangs,
}

/// A request for config maps, as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    pub kind: Kind,
    pub accept_encoding: Option<String>,
}

/// Where a write is kept on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The member does not have it yet.
    Before,
    /// The member has answered, and who asked does not know.
    After,
}

/// A write that is kept on its way, also when who sent it is gone.
#[derive(Clone, Debug)]
pub struct Kept {
    object: String,
    is_dry_run: bool,
    place: Place,
    reached: CancellationToken,
    released: CancellationToken,
    ended: CancellationToken,
}

impl Kept {
    /// Waits until it is there.
    pub async fn reached(&self) {
        self.reached.cancelled().await;
    }

    /// Lets it go on, and waits until the member has answered it.
    pub async fn release(&self) {
        self.released.cancel();
        self.ended.cancelled().await;
    }

    fn is(&self, request: &Request<Bytes>) -> bool {
        let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method());
        let says = |text: &str| memchr::memmem::find(request.body(), text.as_bytes()).is_some();
        let in_query = request.uri().query().is_some_and(|query| query.contains("dryRun="));
        let is_dry_run = in_query || says("\"dryRun\":[");
        let names = || {
            let is_in_path = request.uri().path().split('/').any(|part| part == self.object);
            is_in_path || says(&format!("\"name\":\"{}\"", self.object))
        };
        writes && is_dry_run == self.is_dry_run && names()
    }
}

/// A member's API server with a proxy before it.
pub struct Saboteur {
    name: String,
    address: std::net::SocketAddr,
    kubeconfig: PathBuf,
    inner: Arc<Inner>,
    end: CancellationToken,
}

struct Inner {
    name: String,
    api: Api,
    /// Nobody is impersonated any more.
    strips: AtomicBool,
    lie: Mutex<Option<(Option<Kind>, Lie)>>,
    /// The next watch is told that its history is gone.
    expired: Mutex<bool>,
    /// Ends the watches that are open.
    watches: Mutex<CancellationToken>,
    seen: Mutex<Vec<Seen>>,
    kept: Mutex<Vec<Kept>>,
    tasks: TaskTracker,
}

impl Saboteur {
    /// Stands before a member, truthful so far.
    pub async fn before(member: &Member, name: &str) -> Self {
        Self::with_api(member, name, member.api().await).await
    }

    /// The same, without a credential of its own: whoever comes through it needs a token.
    pub async fn for_tokens(member: &Member, name: &str) -> Self {
        let with = std::fs::read_to_string(member.kubeconfig()).unwrap();
        let without = |line: &str| {
            if line.trim_start().starts_with("user: {client") { "    user: {}".into() } else { line.to_owned() }
        };
        let path = member.dir().join(format!("{name}-nobody.kubeconfig"));
        std::fs::write(&path, with.lines().map(without).collect::<Vec<_>>().join("\n")).unwrap();
        Self::with_api(member, name, Api::from_kubeconfig(&path, None).await).await
    }

    async fn with_api(member: &Member, name: &str, api: Api) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            name: name.to_owned(),
            api,
            strips: AtomicBool::new(false),
            lie: Mutex::default(),
            expired: Mutex::default(),
            watches: Mutex::default(),
            seen: Mutex::default(),
            kept: Mutex::default(),
            tasks: TaskTracker::new(),
        });
        let kubeconfig = member.dir().join(format!("{name}.kubeconfig"));
        let text = std::fs::read_to_string(member.kubeconfig()).unwrap();
        std::fs::write(&kubeconfig, text.replace(&member.server_url(), &format!("http://{address}"))).unwrap();
        let end = CancellationToken::new();
        let (tasks, until, serving) = (TaskTracker::new(), end.clone(), Arc::clone(&inner));
        tasks.clone().spawn(end.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let inner = Arc::clone(&serving);
                let service = service_fn(move |request| answer(Arc::clone(&inner), request));
                let connection = async move {
                    // A lie may break it: that is the point.
                    let _broken = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                };
                tasks.spawn(until.clone().run_until_cancelled_owned(connection));
            }
        }));
        Self { name: name.to_owned(), address, kubeconfig, inner, end }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How kubefold reaches it.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    pub fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    /// Lies from now on about one kind of request, and has the reflector make one.
    pub fn lie(&self, kind: Kind, lie: Lie) {
        *self.inner.lie.lock() = Some((Some(kind), lie));
        *self.inner.expired.lock() = kind == Kind::List;
        if matches!(kind, Kind::List | Kind::Watch) {
            self.cut_watches();
        }
    }

    /// Lies from now on about every request for config maps.
    pub fn lie_always(&self, lie: Lie) {
        *self.inner.lie.lock() = Some((None, lie));
    }

    /// Takes off the headers that say for whom a request is made.
    pub fn strip_impersonation(&self) {
        self.inner.strips.store(true, Ordering::Relaxed);
    }

    /// Says the truth again.
    pub fn repent(&self) {
        *self.inner.lie.lock() = None;
    }

    /// Keeps the next write of an object on its way, dry runs or what is meant.
    pub fn keep(&self, object: &str, is_dry_run: bool, place: Place) -> Kept {
        let token = CancellationToken::new;
        let object = object.to_owned();
        let kept = Kept { object, is_dry_run, place, reached: token(), released: token(), ended: token() };
        self.inner.kept.lock().push(kept.clone());
        kept
    }

    /// Breaks the watches that are open.
    pub fn cut_watches(&self) {
        std::mem::take(&mut *self.inner.watches.lock()).cancel();
    }

    /// The requests for config maps since some moment.
    pub fn seen_since(&self, since: Instant) -> Vec<Seen> {
        self.inner.seen.lock().iter().filter(|seen| seen.at >= since).cloned().collect()
    }
}

impl Drop for Saboteur {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

fn kind_of(request: &Request<Bytes>) -> Option<Kind> {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    match path.strip_prefix(IN_DEFAULT) {
        Some(name) if name.starts_with('/') => Some(Kind::Get),
        _ if path == REVIEWS => Some(Kind::Review),
        _ if path != CONFIG_MAPS => None,
        _ if query.contains("watch=") => Some(Kind::Watch),
        // kubefold asks which revision it is.
        _ if query == "limit=1" => None,
        _ => Some(Kind::List),
    }
}

async fn answer(inner: Arc<Inner>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let request = Request::from_parts(parts, body);
    let keeps = {
        let mut all = inner.kept.lock();
        all.iter().position(|kept| kept.is(&request)).map(|at| all.swap_remove(at))
    };
    if let Some(kept) = keeps {
        return Ok(on_its_way(&inner, request, kept).await);
    }
    let kind = kind_of(&request);
    if let Some(kind) = kind {
        let accept_encoding = request.headers().get(header::ACCEPT_ENCODING).map(|text| format!("{text:?}"));
        inner.seen.lock().push(Seen { at: Instant::now(), kind, accept_encoding });
    }
    if request.uri().path() == "/api/v1/namespaces/kube-system" {
        let body = format!(r#"{{"kind":"PartialObjectMetadata","metadata":{{"uid":"{}"}}}}"#, inner.name);
        return Ok(Response::new(full(body)));
    }
    if kind == Some(Kind::Watch) && std::mem::take(&mut *inner.expired.lock()) {
        return Ok(told(410, &[], b"{}"));
    }
    let lie = inner.lie.lock().filter(|(of, _)| kind.is_some() && (of.is_none() || *of == kind)).map(|(_, lie)| lie);
    Ok(match lie {
        None => truth(&inner, request, kind).await,
        Some(Lie::Answer(code, headers, body)) => told(code, headers, body),
        Some(Lie::Broken(body)) => broken_after(Bytes::from_static(body)),
        Some(Lie::Half) => {
            let whole = truth(&inner, request, kind).await.into_body().collect().await.unwrap().to_bytes();
            broken_after(whole.slice(..whole.len() / 2))
        }
        Some(Lie::Endless(text)) => {
            let chunk = Bytes::from(text.repeat((256 << 10) / text.len()));
            json(futures::stream::repeat_with(move || Ok(chunk.clone())).boxed())
        }
        Some(Lie::Replaced(from, to)) => {
            let mut response = truth(&inner, request, kind).await;
            response.headers_mut().remove(header::CONTENT_LENGTH);
            response.map(|body| replaced(body, from, to()))
        }
        Some(Lie::Says(status)) => {
            let mut review: serde_json::Value = serde_json::from_slice(request.body()).unwrap_or_default();
            review["status"] = serde_json::from_str(status).expect("a status");
            Response::new(full(review.to_string()))
        }
        Some(Lie::Late(by)) => {
            tokio::time::sleep(by).await;
            truth(&inner, request, kind).await
        }
        Some(Lie::Hangs) => std::future::pending().await,
    })
}

/// Reaches the member whether or not somebody waits for the answer.
async fn on_its_way(inner: &Arc<Inner>, request: Request<Bytes>, kept: Kept) -> Response<Body> {
    let of_task = Arc::clone(inner);
    let task = inner.tasks.spawn(async move {
        if kept.place == Place::Before {
            kept.reached.cancel();
            kept.released.cancelled().await;
        }
        let (parts, body) = truth(&of_task, request, None).await.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        if kept.place == Place::After {
            kept.reached.cancel();
            kept.released.cancelled().await;
        }
        kept.ended.cancel();
        Response::from_parts(parts, full(body))
    });
    task.await.unwrap_or_else(|_| told(502, &[], b"{}"))
}

/// Line by line, as no line of a watch may be split in two.
fn replaced(mut body: Body, from: &'static str, to: String) -> Body {
    let (send, lines) = futures::channel::mpsc::channel(1);
    TaskTracker::new().spawn(async move {
        let (mut send, mut rest) = (send, String::new());
        loop {
            let frame = body.frame().await;
            let ended = !matches!(&frame, Some(Ok(_)));
            if let Some(Ok(frame)) = frame
                && let Ok(data) = frame.into_data()
            {
                rest += std::str::from_utf8(&data).expect("UTF-8, unless a character was split");
            }
            let whole = if ended { rest.len() } else { rest.rfind('\n').map_or(0, |at| at + 1) };
            let now: String = rest.drain(..whole).collect();
            let sent = futures::SinkExt::send(&mut send, Ok(Bytes::from(now.replace(from, &to)))).await;
            if ended || sent.is_err() {
                return;
            }
        }
    });
    StreamBody::new(lines.map(|data: Result<Bytes, std::io::Error>| data.map(Frame::data))).boxed_unsync()
}

async fn truth(inner: &Inner, request: Request<Bytes>, kind: Option<Kind>) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    for own in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(own);
    }
    if inner.strips.load(Ordering::Relaxed) {
        let named = parts.headers.keys().filter(|name| name.as_str().starts_with("impersonate-"));
        for name in named.cloned().collect::<Vec<_>>() {
            parts.headers.remove(name);
        }
    }
    parts.version = http::Version::HTTP_11;
    let Ok(response) = inner.api.open(Request::from_parts(parts, body)).await else {
        return told(502, &[], b"{}");
    };
    let (mut parts, body) = response.into_parts();
    for own in [header::CONNECTION, header::TRANSFER_ENCODING] {
        parts.headers.remove(own);
    }
    parts.version = http::Version::HTTP_11;
    let body = body.map_err(std::io::Error::other);
    if kind != Some(Kind::Watch) {
        return Response::from_parts(parts, body.boxed_unsync());
    }
    let cut = inner.watches.lock().clone();
    let frames = http_body_util::BodyStream::new(body).take_until(cut.cancelled_owned());
    let broken = futures::stream::iter([Err(std::io::Error::other("cut on purpose"))]);
    Response::from_parts(parts, StreamBody::new(frames.chain(broken)).boxed_unsync())
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

fn told(code: u16, headers: &[(&'static str, &'static str)], body: &'static [u8]) -> Response<Body> {
    let mut response = Response::builder().status(code);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        response = response.header(header::CONTENT_TYPE, "application/json");
    }
    response.body(full(body)).unwrap()
}

fn broken_after(bytes: Bytes) -> Response<Body> {
    let broken = futures::stream::once(async {
        // While a body is pending, hyper sends what it has of it.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("broken on purpose"))
    });
    json(futures::stream::iter([Ok(bytes)]).chain(broken).boxed())
}

fn json(stream: futures::stream::BoxStream<'static, Result<Bytes, std::io::Error>>) -> Response<Body> {
    let body = StreamBody::new(stream.map(|data| data.map(Frame::data))).boxed_unsync();
    Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}
