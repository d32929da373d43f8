//! Upgrades: each has a connection of its own over HTTP/1.1, which nobody else has before or after.
//!
//! So a member that answers anything but 101 leaves nothing behind on which a later request of somebody else could be
//! answered, or taken for a part of a stream (CVE-2018-1002105).

use std::{sync::Weak, time::Duration};

use http::{HeaderValue, Response, StatusCode, header};
use hyper::upgrade::{self, Upgraded};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::upstream::{
    answer::UpResponseBody,
    client::{CREDENTIALS_MAX, Upstream, address, broken, late_credential, target},
    error::{Failure, UpstreamError},
    outgoing::Outgoing,
    places::Class,
    pool::Lease,
};
use kubefold_serving::{audit, upgrade::UpgradeAsked};

/// For the answer to an upgrade: a kube-apiserver dials the kubelet first, and that its runtime.
const HEAD_MAX: Duration = Duration::from_secs(60);

/// What a member answered to an upgrade.
pub enum Upgrade {
    /// 101: the protocol is another one from here on.
    Opened {
        /// The head of the answer.
        head: Response<()>,
        /// The connection.
        connection: Box<Upgraded>,
        /// Ends when the member is removed from the configuration, or its address changes.
        cut: CancellationToken,
    },
    /// Anything else.
    Refused(Response<UpResponseBody>),
}

impl Upstream {
    /// Sends one request that asks for another protocol, and waits for the head of the answer.
    ///
    /// Errors: say how far the request came; also an answer 101 that names a protocol that was not asked for.
    /// Cancel: safe; the connection is closed.
    pub async fn upgrade(&self, request: Outgoing, asked: &UpgradeAsked) -> Result<Upgrade, UpstreamError> {
        let answered = match timeout(HEAD_MAX, self.ask_upgrade(request, asked)).await {
            Ok(answered) => answered,
            Err(_) => Err(Failure::HeadTimeout(HEAD_MAX)),
        };
        let upgrade = answered.map_err(|failure| self.fail(failure))?;
        self.probe_state.answered();
        Ok(upgrade)
    }

    async fn ask_upgrade(&self, request: Outgoing, asked: &UpgradeAsked) -> Result<Upgrade, Failure> {
        let session = self.session().await?;
        let (mut request, on) = request.into_parts();
        let authorization = timeout(CREDENTIALS_MAX, session.credentials.authorization(on)).await;
        if let Some(authorization) = authorization.map_err(|_| late_credential())?? {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        request.headers_mut().extend(audit::current().map(|id| (audit::AUDIT_ID, id)));
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(header::UPGRADE, asked.header().clone());
        let uri = target(&session.credentials.base, request.uri())?;
        address(&mut request, &uri, false);
        let mut sender = Box::pin(session.dialer.dial_once()).await?;
        let mut response = sender.send_request(request).await.map_err(broken)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            // A lease of no pool: the connection is closed, however the answer ends.
            let lease = Lease::Http1(sender, Weak::new());
            return Ok(Upgrade::Refused(self.answer(response, lease, Class::Stream, None)));
        }
        let named = response.headers().get(header::UPGRADE);
        if !named.is_some_and(|protocol| asked.names(protocol)) {
            return Err(Failure::Answer("it switched to a protocol that the client did not ask for".into()));
        }
        let connection = upgrade::on(&mut response).await.map_err(broken)?;
        let head = response.map(drop);
        Ok(Upgrade::Opened { head, connection: Box::new(connection), cut: session.cancel.clone() })
    }
}
