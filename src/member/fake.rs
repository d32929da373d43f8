//! A member for tests: a TLS server on a free port of this process, with a CA of its own.
//!
//! An embedded member cannot take its place: these tests choose the protocol and the streams of a connection, count
//! connections, and answer single requests with bytes of their own.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
};

use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use parking_lot::Mutex;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{Access, Deadlines, MemberConfig, MemberName, PemSource, ServerAccess, Weight},
    member::{Common, Member, MemberId},
};
use kubefold_wire::body::{Body, BodyError, full};

/// What a fake member answers to everything but its health and identity.
pub(crate) type Handler =
    Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Result<Response<Body>, BodyError>> + Send + Sync>;

/// A member of this process. Dropped, it cuts its connections.
pub(crate) struct Fake {
    pub(crate) state: Arc<State>,
    address: SocketAddr,
    ca: String,
    cut: CancellationToken,
}

/// What a test may change and see.
pub(crate) struct State {
    pub(crate) uid: Mutex<String>,
    /// The code that `/readyz` answers; 0 is silence.
    pub(super) ready: AtomicU16,
    /// Connections accepted so far.
    pub(super) accepted: AtomicUsize,
    /// How often it was asked which cluster it is.
    pub(super) identified: AtomicUsize,
    streams_max: u32,
    handler: Handler,
}

/// A handler from an async function.
pub(crate) fn handler<F, R>(answer: F) -> Handler
where
    F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Response<Body>, BodyError>> + Send + 'static,
{
    Arc::new(move |request| Box::pin(answer(request)))
}

impl Fake {
    /// One that speaks HTTP/2 with 100 streams per connection, as a kube-apiserver does.
    pub(crate) async fn http2(handler: Handler) -> Self {
        Self::start(handler, b"h2", 100).await
    }

    /// One that speaks HTTP/2 with that many streams per connection.
    pub(super) async fn with_streams(handler: Handler, streams_max: u32) -> Self {
        Self::start(handler, b"h2", streams_max).await
    }

    /// One that speaks HTTP/1.1 only.
    pub(super) async fn http1(handler: Handler) -> Self {
        Self::start(handler, b"http/1.1", 1).await
    }

    async fn start(handler: Handler, protocol: &[u8], streams_max: u32) -> Self {
        let (ca, tls) = identity(protocol);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            uid: Mutex::new(format!("uid-{}", address.port())),
            ready: AtomicU16::new(200),
            accepted: AtomicUsize::new(0),
            identified: AtomicUsize::new(0),
            streams_max,
            handler,
        });
        let cut = CancellationToken::new();
        TaskTracker::new().spawn(cut.clone().run_until_cancelled_owned(accept(
            listener,
            tls,
            state.clone(),
            cut.clone(),
        )));
        Self { state, address, ca, cut }
    }

    /// How to reach it.
    pub(crate) fn access(&self, prefix: &str) -> ServerAccess {
        ServerAccess {
            server: format!("https://{}{prefix}", self.address),
            certificate_authority: Some(PemSource { pem: self.ca.clone(), file: None }),
            token: Some("kubefold-own".into()),
            ..ServerAccess::default()
        }
    }

    /// A configuration that leads to it.
    pub(crate) fn config(&self, name: &str) -> MemberConfig {
        config(name, self.access(""))
    }

    /// A member that leads to it, without probes.
    pub(super) fn member(&self) -> Arc<Member> {
        member(&self.config("east"))
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.cut.cancel();
    }
}

pub(crate) fn config(name: &str, access: ServerAccess) -> MemberConfig {
    MemberConfig {
        name: MemberName::new(name).unwrap(),
        access: Access::Server(Box::new(access)),
        weight: Weight(1),
        labels: std::collections::BTreeMap::new(),
        taints: Vec::new(),
        impersonator: None,
        renew_tokens: false,
        absent: false,
        rebuilt: false,
        deadlines: Deadlines::default(),
        in_flight_max: 100,
    }
}

pub(super) fn member(config: &MemberConfig) -> Arc<Member> {
    member_among(config, &Common::default())
}

/// One that shares something with others.
pub(super) fn member_among(config: &MemberConfig, common: &Common) -> Arc<Member> {
    // As `main` does once.
    let _again = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Member::new(MemberId(0), config, common, TaskTracker::new(), CancellationToken::new())
}

/// A CA and a server identity of it, for 127.0.0.1.
fn identity(protocol: &[u8]) -> (String, Arc<rustls::ServerConfig>) {
    let _again = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = rustls::ServerConfig::builder().with_no_client_auth();
    let mut server = server.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    server.alpn_protocols = vec![protocol.to_vec()];
    (ca_certificate.pem(), Arc::new(server))
}

async fn accept(listener: TcpListener, tls: Arc<rustls::ServerConfig>, state: Arc<State>, cut: CancellationToken) {
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    let tasks = TaskTracker::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, state) = (acceptor.clone(), state.clone());
        let connection = async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            state.accepted.fetch_add(1, Ordering::Relaxed);
            let service = hyper::service::service_fn(|request| answer(state.clone(), request));
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http2().max_concurrent_streams(state.streams_max);
            // A handler's error cuts the connection: that is how a test breaks it.
            let _broken = builder.serve_connection(TokioIo::new(tls), service).await;
        };
        tasks.spawn(cut.clone().run_until_cancelled_owned(connection));
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, BodyError> {
    match request.uri().path() {
        "/readyz" if state.ready.load(Ordering::Relaxed) == 0 => futures::future::pending().await,
        "/readyz" => {
            let mut response = Response::new(full("[-]etcd failed: reason withheld\n"));
            *response.status_mut() = StatusCode::from_u16(state.ready.load(Ordering::Relaxed)).unwrap();
            Ok(response)
        }
        "/api/v1/namespaces/kube-system" => {
            state.identified.fetch_add(1, Ordering::Relaxed);
            let uid = state.uid.lock().clone();
            Ok(Response::new(full(format!(r#"{{"kind":"PartialObjectMetadata","metadata":{{"uid":"{uid}"}}}}"#))))
        }
        _ => (state.handler)(request).await,
    }
}
