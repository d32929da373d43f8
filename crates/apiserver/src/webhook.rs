//! Calls of a webhook over HTTPS: of those that admit writes, and of those that convert objects.
//!
//! May name: `kinds`.
//!
//! Errors are told in the words of a kube-apiserver, which are those of Go's client where they say why nothing was answered.
//!
//! Source: kubernetes/apiserver `pkg/util/webhook/client.go`, `pkg/util/proxy/proxy.go` `ResolveCluster`; client-go
//! `rest/request.go`.

use std::{error::Error, io, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    CertificateError, ClientConfig as Tls, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::kinds::Services;
use kubefold_wire::{access::text, golang::Quoted, status::Status};

type Https = legacy::Client<hyper_rustls::HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Units: bytes. An object has 3 MiB at most, a patch of it more in base64.
const RESPONSE_MAX: usize = 8 * 1024 * 1024;
/// Characters of a failed answer that are told.
const TOLD_MAX: usize = 2048;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Connections that are kept open for the next call.
const IDLE_MAX: usize = 8;

/// `clientConfig` of a webhook.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClientConfig {
    url: Option<String>,
    service: Option<Service>,
    ca_bundle: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Service {
    namespace: String,
    name: String,
    path: Option<String>,
    port: Option<u16>,
}

/// Where a webhook is.
enum Place {
    Url,
    Service { namespace: String, name: String, port: u16 },
}

/// Calls one webhook. Connections are kept for later calls.
pub(crate) struct Client {
    place: Place,
    /// As messages name it: scheme, host, port.
    origin: String,
    path: String,
    /// `Err`: it can never be called.
    https: Result<Https, ClientError>,
}

/// Why a webhook gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Its configuration does not let it be called.
    #[error("{0}")]
    Configuration(String),
    /// Nothing came back.
    #[error("Post {}: {why}", Quoted(.url))]
    Post {
        /// What was asked.
        url: String,
        /// In Go's words.
        why: String,
    },
    /// It answered with a failure.
    #[error("{0}")]
    Failed(String),
}

/// Why nothing can be connected to.
#[derive(Debug, thiserror::Error)]
enum RouteError {
    /// There is no such service.
    #[error("service {} not found", Quoted(.0))]
    Missing(String),
    /// It has no address.
    #[error("cannot route to service with ClusterIP \"None\"")]
    Headless,
    /// It has not this port.
    #[error("no service port {port} found for service {}", Quoted(.name))]
    Port {
        /// As the webhook says it.
        port: u16,
        /// Of the service.
        name: String,
    },
    /// It has a cluster IP.
    #[error(
        "dial tcp {address}:{port}: nothing routes the cluster IPs of this server; name the webhook by clientConfig.url, or by a \
         service of type ExternalName"
    )]
    Unrouted {
        /// The cluster IP.
        address: String,
        /// Of the service.
        port: u16,
    },
    /// The storage does not answer.
    #[error("{}", .0.message)]
    Storage(Box<Status>),
}

impl Client {
    pub(crate) fn new(config: ClientConfig) -> Self {
        let ClientConfig { url, service, ca_bundle } = config;
        let (place, origin, path) = match service {
            Some(Service { namespace, name, path, port }) => {
                let port = port.unwrap_or(443);
                let origin = format!("https://{name}.{namespace}.svc:{port}");
                (Place::Service { namespace, name, port }, origin, path.unwrap_or_default())
            }
            None => {
                let url = url.unwrap_or_default();
                let rest = url.strip_prefix("https://").unwrap_or(&url);
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Place::Url, format!("https://{host}"), path.to_owned())
            }
        };
        let https = https(&place, ca_bundle.as_deref());
        Self { place, origin, path: clean(&path), https }
    }

    /// Posts a body and answers what came back.
    ///
    /// Errors: why nothing did.
    ///
    /// Cancel: the webhook may have been asked.
    pub(crate) async fn post(
        &self,
        services: &dyn Services,
        body: Bytes,
        within: Duration,
    ) -> Result<Bytes, ClientError> {
        let https = self.https.as_ref().map_err(Clone::clone)?;
        let said = format!("{}{}?timeout={}s", self.origin, self.path, within.as_secs());
        let failed = |why: String| ClientError::Post { url: said.clone(), why };
        let called = async {
            let origin = self.dialed(services).await.map_err(|error| failed(error.to_string()))?;
            let uri = format!("{origin}{}?timeout={}s", self.path, within.as_secs());
            let uri: Uri = uri.parse().map_err(|error| failed(format!("{error}")))?;
            let host = HeaderValue::from_str(self.origin.trim_start_matches("https://"));
            let request = Request::post(uri)
                .header(header::HOST, host.map_err(|error| failed(error.to_string()))?)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json, */*")
                .header(header::USER_AGENT, "kube-apiserver-admission")
                .body(Full::new(body))
                .map_err(|error| failed(error.to_string()))?;
            let answer = https.request(request).await.map_err(|error| failed(why(&error, &origin)))?;
            read(answer, &origin).await
        };
        timeout(within, called).await.unwrap_or_else(|_| Err(failed("context deadline exceeded".to_owned())))
    }

    /// The origin that is connected to.
    ///
    /// Errors: there is no such service, or nothing routes to it.
    async fn dialed(&self, services: &dyn Services) -> Result<String, RouteError> {
        let Place::Service { namespace, name, port } = &self.place else { return Ok(self.origin.clone()) };
        let found = services.service(namespace, name).await.map_err(|status| RouteError::Storage(Box::new(status)))?;
        let service = found.ok_or_else(|| RouteError::Missing(name.clone()))?;
        let address = text(&service, "/spec/clusterIP");
        match text(&service, "/spec/type") {
            "ExternalName" => Ok(format!("https://{}:{port}", text(&service, "/spec/externalName"))),
            "ClusterIP" if address == "None" => Err(RouteError::Headless),
            _ if !has_port(&service, *port) => Err(RouteError::Port { port: *port, name: name.clone() }),
            _ => Err(RouteError::Unrouted { address: address.to_owned(), port: *port }),
        }
    }
}

fn has_port(service: &Value, port: u16) -> bool {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    ports.into_iter().any(|one| one.get("port").and_then(Value::as_u64) == Some(port.into()))
}

/// A path as Go's `path.Join` cleans it.
fn clean(path: &str) -> String {
    let mut steps = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(steps.pop()),
            step => steps.push(step),
        }
    }
    format!("/{}", steps.join("/"))
}

/// Errors: the certificates of its authority cannot be read.
fn https(place: &Place, ca_bundle: Option<&str>) -> Result<Https, ClientError> {
    let wrong = |why: String| ClientError::Configuration(why);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = Tls::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| wrong(error.to_string()))?;
    let builder =
        match ca_bundle.filter(|bundle| !bundle.is_empty()) {
            Some(bundle) => builder.with_root_certificates(roots(bundle).ok_or_else(|| {
                wrong("unable to load root certificates: unable to parse bytes as PEM block".to_owned())
            })?),
            None => builder.with_native_roots().map_err(|error| wrong(error.to_string()))?,
        };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new().with_tls_config(builder.with_no_client_auth()).https_only();
    let connector = match place {
        Place::Url => connector.enable_http1().wrap_connector(tcp),
        Place::Service { namespace, name, .. } => {
            let name = ServerName::try_from(format!("{name}.{namespace}.svc"));
            let name = name.map_err(|error| wrong(error.to_string()))?;
            let resolver = FixedServerNameResolver::new(name);
            connector.with_server_name_resolver(resolver).enable_http1().wrap_connector(tcp)
        }
    };
    Ok(legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_MAX)
        .build(connector))
}

/// Says whether certificates of an authority can be read of a `caBundle`.
pub(crate) fn is_authority(bundle: &str) -> bool {
    roots(bundle).is_some()
}

fn roots(bundle: &str) -> Option<RootCertStore> {
    let pem = STANDARD.decode(bundle).ok()?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.ok()?).ok()?;
    }
    (!roots.is_empty()).then_some(roots)
}

/// The body of an answer.
///
/// Errors: it tells of a failure, or breaks off.
async fn read(answer: Response<Incoming>, origin: &str) -> Result<Bytes, ClientError> {
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, RESPONSE_MAX).collect().await;
    let body = body.map_err(|error| ClientError::Failed(why(&*error, origin)))?.to_bytes();
    if parts.status.is_success() {
        return Ok(body);
    }
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_text = kind.is_empty() || kind.starts_with("text/");
    let said = if is_text { String::from_utf8_lossy(&body).trim().to_owned() } else { "unknown".to_owned() };
    Err(ClientError::Failed(failure(parts.status, &said.chars().take(TOLD_MAX).collect::<String>())))
}

/// Source: kubernetes/apimachinery `pkg/api/errors/errors.go` `NewGenericServerResponse`.
fn failure(code: StatusCode, said: &str) -> String {
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 => return said.to_owned(),
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 => "the server was unable to respond with a content type that the client supports",
        409 => "the server reported a conflict",
        413 => return format!("Request entity too large: {said}"),
        415 => "the body of the request was in an unknown format - accepted media types include:",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!("an error on the server ({}) has prevented the request from succeeding", Quoted(said));
        }
        code => return format!("the server responded with the status code {code} but did not return more information"),
    }
    .to_owned()
}

/// Why a request failed, in Go's words where they are known.
fn why(error: &(dyn Error + 'static), origin: &str) -> String {
    let is_connect = error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
    let mut last = error;
    while let Some(cause) = cause_of(last) {
        last = cause;
        if let Some(error) = last.downcast_ref::<rustls::Error>() {
            return of_tls(error);
        }
        if last.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message) {
            return "EOF".to_owned();
        }
    }
    let address = origin.trim_start_matches("https://");
    match last.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => format!("dial tcp {address}: connect: connection refused"),
        Some(io::ErrorKind::UnexpectedEof) => "EOF".to_owned(),
        _ if is_connect => format!("dial tcp {address}: {last}"),
        _ => last.to_string(),
    }
}

/// The cause of an error. An `io::Error` may hold another error, which it does not tell as its source.
fn cause_of<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(held) => Some(held),
        None => error.source(),
    }
}

fn of_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        rustls::Error::InvalidCertificate(other) => format!("tls: failed to verify certificate: x509: {other}"),
        other => format!("tls: {other}"),
    }
}
