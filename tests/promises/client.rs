//! A client of kubefold: one user on one HTTP/2 connection, made anew where it broke.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubefold_serving::caller::Caller;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::{
    RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject},
};
use serde_json::{Value, value::RawValue};
use tokio::{net::TcpStream, sync::Mutex};
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

/// For an answer to be complete, by the virtual clock. kubefold's own deadline of a write is 40 s, and it may ask twice.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(150);

/// kubefold's authority, which clients' certificates are of.
pub(crate) struct Authority {
    certificate: String,
    key: String,
}

impl Authority {
    /// Reads it from a state directory.
    pub(crate) fn read(state: &std::path::Path) -> Self {
        let read = |file: &str| std::fs::read_to_string(state.join(file)).expect("kubefold made an authority");
        Self { certificate: read("ca.crt"), key: read("ca.key") }
    }

    /// TLS as this user.
    fn tls(&self, caller: &Caller) -> rustls::ClientConfig {
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key).expect("a key"));
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, &caller.user);
        // A name holds one value of a type; by its number the organization is another type, and the same on the wire.
        let organization = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        let groups = caller.groups.iter().filter(|group| *group != "system:authenticated");
        for (kind, group) in organization.into_iter().zip(groups) {
            params.distinguished_name.push(kind, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let made = params.signed_by(&key, &issuer.expect("an authority")).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("PEM")).expect("a root");
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![made.der().clone()], private)
            .expect("a certificate with its key");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        tls
    }
}

/// A client.
pub(crate) struct Client {
    pub(crate) caller: Caller,
    address: SocketAddr,
    tls: TlsConnector,
    /// Bytes that it takes of a stream without having read them; `None`: as many as HTTP/2 clients do.
    window: Option<u32>,
    connection: Mutex<Option<http2::SendRequest<Full<Bytes>>>>,
    tasks: TaskTracker,
}

impl Client {
    pub(crate) fn new(caller: Caller, authority: &Authority, address: SocketAddr, tasks: &TaskTracker) -> Self {
        let tls = TlsConnector::from(Arc::new(authority.tls(&caller)));
        Self { caller, address, tls, window: None, connection: Mutex::default(), tasks: tasks.clone() }
    }

    /// The same user, who reads no more than so many bytes ahead.
    pub(crate) fn with_window(self, bytes: u32) -> Self {
        Self { window: Some(bytes), ..self }
    }

    async fn connect(&self) -> Result<http2::SendRequest<Full<Bytes>>, String> {
        let stream = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
        drop(stream.set_nodelay(true));
        let name = ServerName::IpAddress(self.address.ip().into());
        let stream = self.tls.connect(name, stream).await.map_err(|error| error.to_string())?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        if let Some(window) = self.window {
            builder.initial_stream_window_size(window).initial_connection_window_size(window.max(65_535));
        }
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        self.tasks.spawn(connection);
        Ok(sender)
    }

    /// Sends a request, and returns as soon as the head of the answer is there.
    pub(crate) async fn open(&self, request: Request<Bytes>) -> Result<Response<Incoming>, String> {
        let mut sender = {
            let mut connection = self.connection.lock().await;
            match &*connection {
                Some(sender) if !sender.is_closed() => sender.clone(),
                _ => connection.insert(self.connect().await?).clone(),
            }
        };
        let (mut parts, body) = request.into_parts();
        let uri = format!("https://{}{}", self.address, parts.uri);
        parts.uri = uri.parse().map_err(|error| format!("{uri}: {error}"))?;
        sender.ready().await.map_err(|error| error.to_string())?;
        let sent = sender.send_request(Request::from_parts(parts, Full::new(body)));
        sent.await.map_err(|error| error.to_string())
    }

    /// Sends a request, and reads the whole answer. Panics where there is none in [`ANSWER_MAX`]: nothing ever hangs.
    pub(crate) async fn ask(&self, method: Method, path: &str, content: &str, body: impl Into<Bytes>) -> Answer {
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, "application/json")
            .body(body.into())
            .expect("a request");
        let answer = async {
            let (parts, body) = self.open(request).await?.into_parts();
            let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok::<_, String>(Answer { code: parts.status.as_u16(), headers: parts.headers, body })
        };
        let answered = tokio::time::timeout(ANSWER_MAX, answer).await;
        match answered.unwrap_or_else(|_| panic!("promise 10: {method} {path} hangs for {ANSWER_MAX:?}")) {
            Ok(answer) => answer,
            Err(error) => Answer { code: 0, headers: HeaderMap::new(), body: error.into() },
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, "application/json", "").await
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// 0: there was none, and the body says why.
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// What it says of its failure.
    pub(crate) fn message(&self) -> String {
        if self.is_success() {
            return String::new();
        }
        let message = self.json().get("message").and_then(Value::as_str).map(str::to_owned);
        message.unwrap_or_else(|| self.text().chars().take(300).collect())
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        warnings(&self.headers)
    }
}

pub(crate) fn warnings(headers: &HeaderMap) -> Vec<String> {
    headers.get_all(header::WARNING).iter().filter_map(|text| text.to_str().ok()).map(str::to_owned).collect()
}

/// One line of a watch.
#[derive(serde::Deserialize)]
pub(crate) struct Line<'a> {
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

/// The lines of a body that arrives in pieces.
pub(crate) struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, buffer: Vec::new() }
    }

    /// The next line; `None` at the end, clean or not. Cancel: safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
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
