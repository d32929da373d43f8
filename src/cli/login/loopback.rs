//! Logging in by a browser on this machine, which brings the answer to a port of it.
//!
//! Source: OpenID Connect Core 1.0, section 3.1; RFC 8252 (native apps); RFC 7636 (PKCE); RFC 9207 (issuer identification).

use std::{
    convert::Infallible,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{anyhow, bail};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use form_urlencoded::Serializer;
use futures::{StreamExt, stream::FuturesUnordered};
use http::{Method, Request, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};

use crate::cli::login::{
    cache::Kept,
    flags::{Listen, Login, Parameter},
    issuer::Issuer,
    machine::{say, secret},
};
use kubefold_wire::{
    body::{Body, full},
    golang::Quoted,
    options::query_value,
};

/// Where the browser brings the answer.
const PATH: &str = "/callback";
/// Browsers open connections ahead, without a request.
const CONNECTIONS_MAX: usize = 16;
/// A connection without a whole request ends then.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// One login, by the secrets that only its own answer has.
struct Attempt<'a> {
    issuer: &'a Issuer,
    redirect: String,
    state: String,
    nonce: String,
    /// Proves to the issuer that who brings the code is who began.
    verifier: String,
}

/// Sends the person to the issuer, and waits for the answer.
pub(super) async fn log_in(issuer: &Issuer, flags: &Login) -> anyhow::Result<Kept> {
    let (listener, redirect) = bind(&flags.listen).await?;
    let attempt = Attempt { issuer, redirect, state: secret()?, nonce: secret()?, verifier: secret()? };
    let url = attempt.url(&flags.auth_param);
    if !flags.no_browser && open(&url) {
        say(&format!("log in in the browser that opens, or at {url}"));
    } else {
        say(&format!("log in with a browser on this machine at {url}"));
    }
    let code = attempt.code(&listener).await?;
    drop(listener);
    let form = [
        ("grant_type", "authorization_code"),
        ("code", &*code),
        ("redirect_uri", &*attempt.redirect),
        ("code_verifier", &*attempt.verifier),
    ];
    match issuer.token(&form).await? {
        Ok(given) => issuer.kept(given, Some(&attempt.nonce), None),
        Err(refusal) => bail!("{} gave a code, but refuses the token: {refusal}", issuer.url()),
    }
}

/// The first address that is free.
async fn bind(listen: &[Listen]) -> anyhow::Result<(TcpListener, String)> {
    let mut taken = Vec::new();
    for Listen { host, address } in listen {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let port = listener.local_addr()?.port();
                return Ok((listener, format!("http://{host}:{port}{PATH}")));
            }
            Err(error) => taken.push(format!("{address}: {error}")),
        }
    }
    bail!("cannot listen for the browser's answer ({}); name other addresses with --listen", taken.join(", "))
}

/// Opens a browser where there is a screen to show it on: elsewhere xdg-open takes the terminal for one.
pub(in crate::cli) fn open(url: &str) -> bool {
    let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let opener = match std::env::consts::OS {
        "macos" => "open",
        _ if ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"].into_iter().any(has) => "xdg-open",
        _ => return false,
    };
    // Standard output is the program's that asked; it waits until all have closed it.
    let mut command = Command::new(opener);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

/// What came of one request of a browser.
enum Outcome {
    Code(String),
    Failed(anyhow::Error),
}

impl Attempt<'_> {
    fn url(&self, parameters: &[Parameter]) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier));
        let endpoint = &self.issuer.metadata.authorization_endpoint;
        let query = Serializer::new(String::new())
            .extend_pairs([
                ("response_type", "code"),
                ("client_id", &*self.issuer.client),
                ("redirect_uri", &*self.redirect),
                ("scope", &*self.issuer.scope),
                ("state", &*self.state),
                ("nonce", &*self.nonce),
                ("code_challenge", &*challenge),
                ("code_challenge_method", "S256"),
            ])
            .extend_pairs(parameters.iter().map(|Parameter { name, value }| (name, value)))
            .finish();
        format!("{endpoint}{}{query}", if endpoint.contains('?') { '&' } else { '?' })
    }

    /// Serves until a browser has brought the answer to this login, and has seen what came of it.
    async fn code(&self, listener: &TcpListener) -> anyhow::Result<String> {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => connections.push(self.serve(stream)),
                    Err(error) => bail!("cannot take the browser's answer: {error}"),
                },
                Some(outcome) = connections.next() => match outcome {
                    None => {}
                    Some(Outcome::Code(code)) => return Ok(code),
                    Some(Outcome::Failed(error)) => return Err(error),
                },
            }
        }
    }

    async fn serve(&self, stream: TcpStream) -> Option<Outcome> {
        let outcome = Mutex::new(None);
        let answer = service_fn(async |request: Request<Incoming>| {
            let (status, text, came) = self.answer(&request);
            if came.is_some() {
                *outcome.lock() = came;
            }
            Ok::<_, Infallible>(page(status, text))
        });
        let mut server = http1::Builder::new();
        server.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
        // A browser that goes away has brought its answer all the same.
        server.serve_connection(TokioIo::new(stream), answer).await.ok();
        outcome.into_inner()
    }

    /// What the browser shows, and what came of the login.
    fn answer(&self, request: &Request<Incoming>) -> (StatusCode, &'static str, Option<Outcome>) {
        if request.uri().path() != PATH {
            return (StatusCode::NOT_FOUND, "Nothing is here.", None);
        }
        if request.method() != Method::GET {
            return (StatusCode::METHOD_NOT_ALLOWED, "Nothing is here.", None);
        }
        match self.outcome(request.uri().query().unwrap_or_default()) {
            None => (StatusCode::BAD_REQUEST, "This is another login than the one that kubefold waits for.", None),
            Some(Ok(code)) => {
                (StatusCode::OK, "You are logged in. You can close this window.", Some(Outcome::Code(code)))
            }
            Some(Err(error)) => {
                (StatusCode::FORBIDDEN, "You are not logged in. The terminal says why.", Some(Outcome::Failed(error)))
            }
        }
    }

    /// The code of an answer; nothing, if it is of another login.
    fn outcome(&self, query: &str) -> Option<anyhow::Result<String>> {
        let of = |name: &str| query_value(query, name).filter(|value| !value.is_empty());
        if of("state").as_ref() != Some(&self.state) {
            return None;
        }
        let (url, named) = (self.issuer.url(), of("iss"));
        let names_itself = self.issuer.metadata.authorization_response_iss_parameter_supported;
        if named.as_deref().map_or(names_itself, |named| named != url) {
            let named = named.unwrap_or_default();
            return Some(Err(anyhow!(
                "the answer is of the issuer {}, and not of {url}; nothing was sent to it",
                Quoted(&named)
            )));
        }
        if let Some(error) = of("error") {
            let why = of("error_description").map(|why| format!(": {why}")).unwrap_or_default();
            return Some(Err(anyhow!("{url} refuses the login: {error}{why}")));
        }
        Some(of("code").ok_or_else(|| anyhow!("the answer of {url} has no code")))
    }
}

fn page(status: StatusCode, text: &str) -> Response<Body> {
    let html = format!(
        "<!doctype html><meta charset=utf-8><title>kubefold</title><body style=\"font-family: sans-serif\"><p>{text}</p>\n"
    );
    let mut page = Response::new(full(html));
    *page.status_mut() = status;
    let headers = page.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, header::HeaderValue::from_static(value));
    }
    page
}
