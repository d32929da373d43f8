//! Who asks: by a token, by a client certificate, or by being on this machine.

use std::sync::Arc;

use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustls::pki_types::UnixTime;
use sha2::{Digest, Sha256};

use crate::{rbac::MASTERS, serve::ApiServer};
use kubefold_serving::{Answer, Closed, caller::Caller, impersonation::Impersonation, peer::Peer};
use kubefold_wire::{
    body::{Body, BodyError},
    status::{Reason, Status},
};

/// Paths that answer whoever asks.
const OPEN: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
const AUTHENTICATED: &str = "system:authenticated";

/// Lets requests in, as whom they come.
#[derive(Clone)]
pub(super) struct Gate {
    server: ApiServer,
    /// By their digests: what an attacker learns of how long a comparison takes is of no use.
    tokens: Arc<[Token]>,
    has_tls: bool,
}

struct Token {
    digest: [u8; 32],
    caller: Caller,
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl Gate {
    pub(super) fn new(server: ApiServer, tokens: &[(String, Caller)], has_tls: bool) -> Self {
        let tokens = tokens.iter().map(|(token, caller)| {
            let mut caller = caller.clone();
            if !caller.is_in(AUTHENTICATED) {
                caller.groups.push(AUTHENTICATED.to_owned());
            }
            Token { digest: digest(token), caller }
        });
        Self { server, tokens: tokens.collect(), has_tls }
    }

    /// Answers a request; `known` is whom a certificate says.
    pub(super) async fn pass(&self, request: Request<Incoming>, known: Option<Caller>) -> Response<Body> {
        let mut request = request.map(|body| body.map_err(|error| -> BodyError { Box::new(error) }).boxed_unsync());
        let open = OPEN.contains(&request.uri().path());
        match self.caller(&request, known) {
            Ok(Some(caller)) => drop(request.extensions_mut().insert(caller)),
            Ok(None) if open => {}
            Ok(None) => {
                return Status::new(StatusCode::UNAUTHORIZED, Reason::Unauthorized, "Unauthorized").into_response();
            }
            Err(status) => return status.into_response(),
        }
        self.server.answer(request).await
    }

    /// Errors: 400, 403.
    fn caller(&self, request: &Request<Body>, known: Option<Caller>) -> Result<Option<Caller>, Status> {
        let headers = request.headers();
        let Some(caller) = self.authenticated(headers, known)? else { return Ok(None) };
        let wanted = Impersonation::by(headers).map_err(|error| Status::bad_request(error.to_string()))?;
        let Some(wanted) = wanted else { return Ok(Some(caller)) };
        self.server.impersonate(&caller, &wanted, request.method(), request.uri()).map(Some)
    }

    fn authenticated(&self, headers: &HeaderMap, known: Option<Caller>) -> Result<Option<Caller>, Status> {
        if known.is_some() {
            return Ok(known);
        }
        if self.tokens.is_empty() && !self.has_tls {
            on_this_machine(headers)?;
            let groups = [MASTERS, AUTHENTICATED].map(str::to_owned).to_vec();
            return Ok(Some(Caller { user: "admin".to_owned(), groups, ..Caller::default() }));
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = given.and_then(|given| given.strip_prefix("Bearer ")) else { return Ok(None) };
        let digest = digest(token.trim());
        Ok(self.tokens.iter().find(|token| token.digest == digest).map(|token| token.caller.clone()))
    }
}

/// Refuses what a page in a browser sends to this machine: from another origin, or under another name (DNS rebinding).
///
/// Errors: 403.
fn on_this_machine(headers: &HeaderMap) -> Result<(), Status> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_own = name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_own && !headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    Err(Status::forbidden(
        "this server answers programs of this machine, by its loopback address, and no pages in browsers; for others, give \
         it TLS and a token",
    ))
}

impl Answer for Gate {
    async fn answer(&self, request: Request<Incoming>, peer: &Arc<Peer>) -> Result<Response<Body>, Closed> {
        let known = peer.client().identity.caller_at(UnixTime::now()).cloned();
        Ok(self.pass(request, known).await)
    }
}
