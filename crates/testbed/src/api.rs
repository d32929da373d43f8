//! Plain HTTPS to an API server, for what kubectl does not show: status codes, headers, watch streams.

use std::{fmt, path::Path, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::ConfigExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;

type Connector = hyper_rustls::HttpsConnector<HttpConnector>;

/// For an answer to be complete. Above the 34 s that a kube-apiserver may work on a write, so that its own verdict wins.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// One API server, as one user: those of a kubeconfig's context.
#[derive(Clone)]
pub struct Api {
    base: String,
    http: Client<Connector, Full<Bytes>>,
    /// Sent with every request.
    token: Option<header::HeaderValue>,
}

impl Api {
    /// Reads a kubeconfig; without a context, its current one. Client certificates are understood, tokens are not.
    pub async fn from_kubeconfig(path: &Path, context: Option<&str>) -> Self {
        let kubeconfig = Kubeconfig::read_from(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        Self::of_config(&Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a usable kubeconfig"))
    }

    /// A server by its URL and the PEM of the certificate that vouches for it.
    pub fn of_server(url: &str, certificate: &str) -> Self {
        let mut config = Config::new(url.parse().expect("a URL"));
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
        config.root_cert = Some(vec![certificate.to_vec()]);
        Self::of_config(&config)
    }

    /// A server of this machine without TLS, by its URL.
    pub fn of_plain_server(url: &str) -> Self {
        Self::of_config(&Config::new(url.parse().expect("a URL")))
    }

    fn of_config(config: &Config) -> Self {
        // Without it the second of two small segments waits for the first one's acknowledgement, up to 40 ms.
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let tls = config.rustls_https_connector_with_connector(tcp).expect("TLS");
        Self {
            base: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
            http: Client::builder(TokioExecutor::new()).build(tls),
            token: None,
        }
    }

    /// A kubeconfig's current context over one HTTP/2 connection, as Go's clients hold many watches.
    pub async fn over_http2(path: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.expect("a usable kubeconfig");
        let tls = config.rustls_client_config().expect("TLS");
        let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http2();
        let http = Client::builder(TokioExecutor::new()).http2_only(true).build(connector.build());
        Self { http, ..Self::of_config(&config) }
    }

    /// The same, as whoever a token is of.
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(format!("Bearer {token}").parse().expect("a token"));
        self
    }

    /// Sends a request and reads the whole answer; any body is sent as JSON.
    ///
    /// Panics when there is no answer; [`Self::try_request`] returns that as an error.
    pub async fn request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let label = format!("{method} {}{path}", self.base);
        self.try_request(method, path, body).await.unwrap_or_else(|error| panic!("{label}: {error}"))
    }

    /// Sends a request and reads the whole answer.
    pub async fn try_request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Answer, String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(body.into())
            .unwrap();
        self.send(request).await
    }

    /// Sends a request with headers of the caller's choice and reads the whole answer.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Answer, String> {
        let answer = async {
            let (parts, body) = self.open(request).await?.into_parts();
            let body = body.collect().await.map_err(|error| chain(&error))?.to_bytes();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(|_| Err("no whole answer in 60 s".into()))
    }

    /// Sends a request whose URI is a path, and returns as soon as the head of the answer is there.
    pub async fn open(&self, mut request: Request<Bytes>) -> Result<http::Response<Incoming>, String> {
        let uri = format!("{}{}", self.base, request.uri());
        *request.uri_mut() = uri.parse().map_err(|error| format!("{uri}: {error}"))?;
        request.headers_mut().extend(self.token.clone().map(|token| (header::AUTHORIZATION, token)));
        self.http.request(request.map(Full::new)).await.map_err(|error| chain(&error))
    }

    /// Reads an object or a list; panics unless the answer is a 200.
    pub async fn get(&self, path: &str) -> Value {
        self.request(Method::GET, path, "").await.ok()
    }

    /// Creates an object; panics unless the answer is a 201.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.request(Method::POST, path, object.to_string()).await.ok()
    }

    /// Starts a watch; `path` with `watch=true` and all else in its query.
    pub async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    /// The same, in a form of the caller's choice.
    pub async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        self.watch_by(Request::get(path).header(header::ACCEPT, accept).body(Bytes::new()).unwrap()).await
    }

    /// The same, by a request with headers of the caller's choice.
    pub async fn watch_by(&self, request: Request<Bytes>) -> Watch {
        let path = request.uri().clone();
        let opened = tokio::time::timeout(ANSWER_TIMEOUT, self.open(request)).await.expect("the head of a watch");
        let (parts, body) = opened.unwrap_or_else(|error| panic!("watch {path}: {error}")).into_parts();
        Watch { status: parts.status, headers: parts.headers, body, buffer: Vec::new() }
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in: {self}"))
    }

    /// The body as JSON; panics unless the answer is a success.
    pub fn ok(&self) -> Value {
        assert!(self.status.is_success(), "{self}");
        self.json()
    }

    /// The texts of the `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        self.headers.get_all(header::WARNING).iter().map(|text| text.to_str().unwrap().to_owned()).collect()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// A watch stream: one JSON event per line.
pub struct Watch {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next event, or `None` at the end of the stream, clean or not. Panics when there is neither within `deadline`.
    ///
    /// Cancel: safe; an event that has come in part is kept.
    pub async fn next(&mut self, deadline: Duration) -> Option<Value> {
        tokio::time::timeout(deadline, self.line())
            .await
            .unwrap_or_else(|_| panic!("no event and no end of the watch within {deadline:?}"))
            .map(|line| serde_json::from_slice(&line).unwrap_or_else(|error| panic!("{error} in a watch event")))
    }

    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                return Some(self.buffer.drain(..=end).collect());
            }
            if let Ok(data) = self.body.frame().await?.ok()?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

/// An error with its causes: hyper's own text is only the outermost.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
