//! Where a server is reached: an address with TLS and a token, that can be killed and revived like a cluster's.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use http::{HeaderMap, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Service, faults::Faults};
use kubefold_serving::{Answer, Closed, Limits, ListenError, Listener, Shutdown, caller::Caller, peer::Peer, tls::Tls};
use kubefold_wire::{
    body::{Body, BodyError},
    status::{Reason, Status},
};

/// Connections at once of one address.
const CONNECTIONS_MAX: usize = 1024;
/// Requests at once on one HTTP/2 connection: a kube-apiserver's own number.
const STREAMS_MAX: u32 = 100;
/// Time for a TLS handshake, and for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A client is known by its token, not by its connection: a connection without a certificate is like any other.
const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    handshake: HEAD_TIMEOUT,
    head: HEAD_TIMEOUT,
    anonymous_max: CONNECTIONS_MAX * 3 / 2,
    anonymous_life: Duration::MAX,
    anonymous_head_bytes_max: Limits::DEFAULT.head_bytes_max,
    streams_max: STREAMS_MAX,
    anonymous_streams_max: STREAMS_MAX,
    grace: Duration::ZERO,
    ..Limits::DEFAULT
};
/// How long a certificate holds.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Paths that answer whoever asks.
const OPEN: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address is taken, or not this machine's.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The address cannot be read back.
    #[error("cannot read the address that it listens on: {0}")]
    Address(#[from] std::io::Error),
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS does not take the certificate.
    #[error("cannot use the certificate: {0}")]
    Tls(#[from] rustls::Error),
}

/// A running server.
pub struct Endpoint {
    shared: Arc<Shared>,
    address: SocketAddr,
    key: KeyPair,
    certificate: String,
    /// With the certificate that clients know.
    good: Tls,
    tls: Arc<ArcSwap<Tls>>,
    tasks: TaskTracker,
    /// Ends the present life; `None`: it was killed.
    life: Mutex<Option<Shutdown>>,
    /// Says when the last life has let go of the address.
    closed: Mutex<CancellationToken>,
}

struct Shared {
    service: Arc<dyn Service>,
    faults: Faults,
    token: String,
}

impl Endpoint {
    /// Serves at an address; port 0 takes a free one. `token` is what clients log in with, as `system:masters`.
    ///
    /// Errors: the address is taken.
    pub async fn start(
        address: SocketAddr,
        token: String,
        service: Arc<dyn Service>,
        faults: Faults,
    ) -> Result<Self, EndpointError> {
        let key = KeyPair::generate()?;
        let now = SystemTime::now();
        let (certificate, good) = certified(&key, address, now, now + CERTIFICATE_LIFE)?;
        let tls = Arc::new(ArcSwap::from_pointee(good.clone()));
        let listener = Listener::bind(address, Arc::clone(&tls), LIMITS).await?;
        let address = listener.address()?;
        let shared = Arc::new(Shared { service, faults, token });
        let (tasks, life, closed) = (TaskTracker::new(), Mutex::new(None), Mutex::default());
        let endpoint = Self { shared, address, key, certificate, good, tls, tasks, life, closed };
        endpoint.serve(listener);
        Ok(endpoint)
    }

    fn serve(&self, listener: Listener) {
        let (shutdown, closed) = (Shutdown::default(), CancellationToken::new());
        let serving = listener.serve(Edge(Arc::clone(&self.shared)), shutdown.clone());
        *self.closed.lock() = closed.clone();
        self.tasks.spawn(async move {
            let _closes = closed.drop_guard();
            serving.await;
        });
        *self.life.lock() = Some(shutdown);
    }

    /// Where it listens, or listened before it was killed.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate that clients must trust (PEM).
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// What clients log in with.
    pub fn token(&self) -> &str {
        &self.shared.token
    }

    /// What goes wrong with its answers.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// True unless it was killed.
    pub fn is_alive(&self) -> bool {
        self.life.lock().is_some()
    }

    /// Cuts every connection and refuses new ones, as a process that was killed. What it holds stays.
    pub fn kill(&self) {
        if let Some(life) = self.life.lock().take() {
            life.cut.cancel();
        }
    }

    /// Listens again at the same address.
    ///
    /// Errors: somebody else listens there now.
    pub async fn revive(&self) -> Result<(), EndpointError> {
        if self.is_alive() {
            return Ok(());
        }
        let closed = self.closed.lock().clone();
        closed.cancelled().await;
        self.serve(Listener::bind(self.address, Arc::clone(&self.tls), LIMITS).await?);
        Ok(())
    }

    /// Shows new connections a certificate that ended an hour ago, or the good one again.
    pub fn expire(&self, expired: bool) -> Result<(), EndpointError> {
        const HOUR: Duration = Duration::from_secs(3600);
        let now = SystemTime::now();
        let tls = match expired {
            true => certified(&self.key, self.address, now - 2 * HOUR, now - HOUR)?.1,
            false => self.good.clone(),
        };
        self.tls.store(Arc::new(tls));
        Ok(())
    }

    /// Ends it, and waits until nothing of it runs.
    pub async fn end(&self) {
        self.kill();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// The service as a listener calls it: behind the faults, with the caller that the token says.
struct Edge(Arc<Shared>);

impl Answer for Edge {
    async fn answer(&self, request: Request<Incoming>, _: &Arc<Peer>) -> Result<Response<Body>, Closed> {
        self.0.answer(request).await
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Closed> {
        let mut request = request.map(|body| body.map_err(|error| -> BodyError { Box::new(error) }).boxed_unsync());
        let open = OPEN.iter().any(|path| request.uri().path().starts_with(path));
        match self.caller(request.headers()) {
            Some(caller) => drop(request.extensions_mut().insert(caller)),
            None if open => {}
            None => {
                let status = Status::new(http::StatusCode::UNAUTHORIZED, Reason::Unauthorized, "Unauthorized");
                return Ok(status.into_response());
            }
        }
        self.faults.pass(request, &*self.service).await
    }

    /// Who asks: the token's owner, or whoever it says it acts for.
    fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?;
        if given != self.token {
            return None;
        }
        let texts = |name: &str| {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut caller = match texts("impersonate-user").pop() {
            Some(user) => Caller { user, groups: texts("impersonate-group"), ..Caller::default() },
            None => Caller { user: "admin".into(), groups: vec!["system:masters".into()], ..Caller::default() },
        };
        caller.uid = texts("impersonate-uid").pop();
        if !caller.is_in("system:authenticated") {
            caller.groups.push("system:authenticated".into());
        }
        Some(caller)
    }
}

/// A certificate that is its own authority, for an address and `localhost`.
fn certified(
    key: &KeyPair,
    address: SocketAddr,
    from: SystemTime,
    until: SystemTime,
) -> Result<(String, Tls), EndpointError> {
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.subject_alt_names.push(SanType::IpAddress(address.ip()));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Clocks of one machine agree; a second is for rounding.
    (params.not_before, params.not_after) = (epoch + seconds(from - Duration::from_secs(1)), epoch + seconds(until));
    let made = params.self_signed(key)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.der().clone()], private)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((made.pem(), Tls::without_certificates(Arc::new(tls))))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::future::BoxFuture;
    use http_body_util::Full;
    use hyper_util::{client::legacy::Client, rt::TokioExecutor};
    use rustls::{
        RootCertStore,
        pki_types::{CertificateDer, pem::PemObject},
    };

    use super::*;
    use kubefold_wire::body::full;

    /// Answers with the caller; a watch never ends.
    struct Echo;

    impl Service for Echo {
        fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Response<Body>> {
            let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
            Box::pin(async move {
                let text = full(format!("{} {:?}", caller.user, caller.groups));
                if request.uri().query().is_none() {
                    return Response::new(text);
                }
                let never = http_body_util::StreamBody::new(futures::stream::pending());
                Response::new(never.boxed_unsync())
            })
        }
    }

    type Client1 =
        Client<hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>, Full<Bytes>>;

    async fn echo() -> (Endpoint, Client1) {
        let local = ([127, 0, 0, 1], 0).into();
        let endpoint = Endpoint::start(local, "secret".into(), Arc::new(Echo), Faults::default()).await.unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(endpoint.certificate().as_bytes()).unwrap()).unwrap();
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        (endpoint, Client::builder(TokioExecutor::new()).build(connector))
    }

    fn get(endpoint: &Endpoint, path: &str, token: &str) -> Request<Full<Bytes>> {
        let uri = format!("https://{}{path}", endpoint.address());
        Request::get(uri).header("authorization", format!("Bearer {token}")).body(Full::default()).unwrap()
    }

    async fn text(client: &Client1, request: Request<Full<Bytes>>) -> (u16, String) {
        let response = client.request(request).await.unwrap();
        let code = response.status().as_u16();
        (code, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap())
    }

    #[tokio::test]
    async fn who_asks_is_known_by_the_token_and_by_whom_it_acts_for() {
        let (endpoint, client) = echo().await;
        let mut request = get(&endpoint, "/api", "secret");
        assert_eq!(text(&client, request).await.1, r#"admin ["system:masters", "system:authenticated"]"#);
        request = get(&endpoint, "/api", "secret");
        for (name, value) in [("impersonate-user", "ann"), ("impersonate-group", "a"), ("impersonate-group", "b")] {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        assert_eq!(text(&client, request).await.1, r#"ann ["a", "b", "system:authenticated"]"#);
        assert_eq!(text(&client, get(&endpoint, "/api", "wrong")).await.0, 401);
        assert_eq!(text(&client, get(&endpoint, "/readyz", "wrong")).await.0, 200);
        endpoint.end().await;
    }

    #[tokio::test]
    async fn a_killed_server_cuts_refuses_and_comes_back_at_the_same_address() {
        let (endpoint, client) = echo().await;
        let watch = client.request(get(&endpoint, "/api?watch", "secret")).await.unwrap();
        endpoint.kill();
        assert!(watch.into_body().collect().await.is_err());
        let refused = client.request(get(&endpoint, "/api", "secret")).await.unwrap_err();
        assert!(refused.is_connect(), "{refused:?}");
        endpoint.revive().await.unwrap();
        endpoint.revive().await.unwrap();
        assert_eq!(text(&client, get(&endpoint, "/api", "secret")).await.0, 200);
        endpoint.end().await;
    }

    #[tokio::test]
    async fn a_taken_address_is_said() {
        let (endpoint, _) = echo().await;
        let second = Endpoint::start(endpoint.address(), String::new(), Arc::new(Echo), Faults::default()).await;
        let Err(error) = second else { panic!("two at one address") };
        assert!(error.to_string().contains("free the port"), "{error}");
    }

    #[tokio::test]
    async fn an_expired_certificate_is_shown_to_new_connections() {
        let (endpoint, client) = echo().await;
        endpoint.expire(true).unwrap();
        let refused = client.request(get(&endpoint, "/api", "secret")).await.unwrap_err();
        assert!(format!("{refused:?}").contains("Expired"), "{refused:?}");
        endpoint.expire(false).unwrap();
        assert_eq!(text(&client, get(&endpoint, "/api", "secret")).await.0, 200);
        endpoint.faults().add(serde_json::from_str(r#"{"fault":"close"}"#).unwrap()).unwrap();
        assert!(client.request(get(&endpoint, "/api", "secret")).await.is_err());
    }
}
