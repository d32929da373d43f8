//! The way to another replica of this kubefold: the one that has the state.
//!
//! As on the way to a member, nothing is sent twice: a request that finds its connection closed before a byte of it left takes
//! another one, and whatever else goes wrong is the caller's to judge.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::upgrade::{self, Upgraded};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::upstream::{
    access::Credentials,
    client::{STALE_CONNECTIONS_MAX, address, broken},
    dial::{CALLER_WINDOW_BYTES, Dialer},
    error::Failure,
    pool::{Lease, Pool},
};
use kubefold_serving::{replica::SERVER_NAME, upgrade::UpgradeAsked};
use kubefold_wire::body::{Body, empty, holding};

/// For a connection to stand. Replicas are near one another.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Connections with many requests each: about what one replica takes from all of its clients.
const CONNECTIONS_MAX: usize = 64;

/// The connections to one replica, as long as it has the state.
pub struct ReplicaLink {
    base: Uri,
    requests: Arc<Pool>,
    /// For connections that are upgraded, and belong to no pool.
    dialer: Dialer,
    cancel: CancellationToken,
}

impl ReplicaLink {
    /// Makes it without connecting; `address` is `host:port`. All that goes through it ends with `cancel`.
    ///
    /// Errors: there can be no such address.
    pub fn new(
        address: &str,
        tls: &rustls::ClientConfig,
        tasks: &TaskTracker,
        cancel: CancellationToken,
    ) -> Result<Self, Failure> {
        let base: Result<Uri, _> = format!("https://{address}").parse();
        let base = base.map_err(|_| Failure::Request(format!("no address: {address}").into()))?;
        let credentials = Arc::new(Credentials::of_tls(base.clone(), tls, SERVER_NAME));
        let dialer = || Dialer {
            credentials: Arc::clone(&credentials),
            connect_max: CONNECT_MAX,
            stream_window_bytes: CALLER_WINDOW_BYTES,
            tasks: tasks.clone(),
            cancel: cancel.clone(),
        };
        let requests = Pool::new(dialer(), CONNECTIONS_MAX, "requests to the replica that has the state");
        Ok(Self { base, requests, dialer: dialer(), cancel })
    }

    /// Ends everything that goes through it.
    pub fn cut(&self) {
        self.cancel.cancel();
    }

    /// Sends one request, and waits for the head of the answer. Its URI is a path and query.
    ///
    /// Errors: say whether it may have arrived. Cancel: safe; a request under way is reset.
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, Failure> {
        let uri = self.target(&request)?;
        for _ in 0..STALE_CONNECTIONS_MAX {
            let mut lease = self.requests.lease().await?;
            address(&mut request, &uri, lease.is_http2());
            match lease.send(request).await {
                Ok(response) => return Ok(response.map(|body| holding(body, lease))),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(broken(error.into_error())),
                },
            }
        }
        Err(Failure::Closed(Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionAborted))))
    }

    /// Sends one request that asks for another protocol, by a connection of its own. With 101 comes the connection, which is to be
    /// closed with the link.
    ///
    /// Errors and cancel: as for [`Self::send`].
    pub async fn upgrade(&self, mut request: Request<Body>, asked: &UpgradeAsked) -> Result<ReplicaAnswer, Failure> {
        let uri = self.target(&request)?;
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(header::UPGRADE, asked.header().clone());
        address(&mut request, &uri, false);
        let mut sender = Box::pin(self.dialer.dial_once()).await?;
        let mut response = sender.send_request(request).await.map_err(broken)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            // A lease of no pool: the connection is closed, however the answer ends.
            let lease = Lease::Http1(sender, Weak::new());
            let answer = response.map(|body| holding(body, lease));
            return Ok(ReplicaAnswer { answer, connection: None, cut: self.cancel.clone() });
        }
        let connection = Some(Box::new(upgrade::on(&mut response).await.map_err(broken)?));
        Ok(ReplicaAnswer { answer: response.map(|_| empty()), connection, cut: self.cancel.clone() })
    }

    /// Says whether it answers within a time that it has the state.
    ///
    /// Errors: why it does not. Cancel: safe.
    pub async fn probe(&self, path: &'static str, within: Duration) -> Result<(), Failure> {
        let mut request = Request::new(empty());
        *request.uri_mut() = Uri::from_static(path);
        let answered = timeout(within, async {
            let response = self.send(request).await?;
            let status = response.status();
            // To its end, so that nothing is reset.
            let _text = response.into_body().collect().await;
            Ok(status)
        });
        match answered.await {
            Ok(Ok(StatusCode::OK)) => Ok(()),
            Ok(Ok(status)) => Err(Failure::Answer(format!("it answers {}", status.as_u16()).into())),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::HeadTimeout(within)),
        }
    }

    /// Where a request goes. The host is that which the client asked for: some answers name it.
    fn target(&self, request: &Request<Body>) -> Result<Uri, Failure> {
        let unfit = || Failure::Request(format!("no path: {}", request.uri()).into());
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let asked = request.uri().authority().cloned().or_else(|| host?.parse().ok());
        let mut parts = self.base.clone().into_parts();
        parts.authority = asked.or(parts.authority);
        parts.path_and_query = Some(request.uri().path_and_query().ok_or_else(unfit)?.clone());
        Uri::from_parts(parts).map_err(|_| unfit())
    }
}

/// What a replica answered to a request for another protocol.
pub struct ReplicaAnswer {
    /// The head, and the body unless it is 101.
    pub answer: Response<Body>,
    /// With 101, the connection.
    pub connection: Option<Box<Upgraded>>,
    /// Ends with the link.
    pub cut: CancellationToken,
}
