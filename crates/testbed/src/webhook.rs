//! A webhook: an HTTPS server with an authority of its own, whose answers are a test's.

use std::{convert::Infallible, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::pki::Authority;

/// What a webhook answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// 200 with an object.
    Json(Value),
    /// A code and a text.
    Text(u16, &'static str),
    /// Nothing, as long as the test runs.
    Silence,
}

/// Answers a request to a path, with this body.
type Answer = dyn Fn(String, Value) -> BoxFuture<'static, Reply> + Send + Sync;

/// A running webhook. Dropping it ends it.
pub struct Webhook {
    /// Without a path, such as `https://127.0.0.1:40000`.
    pub url: String,
    pub port: u16,
    authority: Authority,
    _end: DropGuard,
}

impl Webhook {
    /// Starts one that has a certificate for 127.0.0.1 and these names.
    pub async fn start(
        names: &[&str],
        answer: impl Fn(String, Value) -> BoxFuture<'static, Reply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let authority = Authority::new("admission");
        let port = listener.local_addr().unwrap().port();
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        let names: Vec<&str> = ["127.0.0.1"].into_iter().chain(names.iter().copied()).collect();
        let server = serve(listener, acceptor(&authority, &names), Arc::new(answer), tasks.clone(), end.clone());
        tasks.spawn(end.clone().run_until_cancelled_owned(server));
        Self { url: format!("https://127.0.0.1:{port}"), port, authority, _end: end.drop_guard() }
    }

    /// The certificate of its authority, as a `caBundle` has it.
    pub fn ca_bundle(&self) -> String {
        ca_bundle(&self.authority)
    }
}

/// The certificate of an authority, as a `caBundle` has it.
pub fn ca_bundle(authority: &Authority) -> String {
    STANDARD.encode(authority.cert_pem())
}

pub(crate) fn acceptor(authority: &Authority, names: &[&str]) -> TlsAcceptor {
    let identity = authority.server(names);
    let chain = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    answer: Arc<Answer>,
    tasks: TaskTracker,
    end: CancellationToken,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
        let connection = async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| respond(request, Arc::clone(&answer)));
            let _closed =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        };
        tasks.spawn(end.clone().run_until_cancelled_owned(connection));
    }
}

async fn respond(request: Request<Incoming>, answer: Arc<Answer>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let (code, media, text) = match answer(path, serde_json::from_slice(&body).unwrap_or_default()).await {
        Reply::Json(value) => (200, "application/json", value.to_string()),
        Reply::Text(code, text) => (code, "text/plain", text.to_owned()),
        Reply::Silence => std::future::pending().await,
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static(media));
    Ok(response)
}
