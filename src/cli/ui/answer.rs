//! What the local server answers: the page, and what the page reads of kubefold.

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};

use crate::{
    cli::ui::{
        assets,
        forward::Upstream,
        gate::{Gate, Proof},
    },
    respond::UiRefused,
};
use kubefold_wire::{
    body::{Body, full},
    status::Status,
};

/// Below this path is kubefold.
const FLEET: &str = "/fleet";
const HTML: &str = "text/html; charset=utf-8";
/// Of every answer. What kubefold passes on of a member can be any page: as one it has no origin, and runs nothing.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox; frame-ancestors 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
/// Of the page: its own files and requests, and nothing else.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                           base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
/// It goes on to the page by itself: a request that another site began would not have the cookie yet.
const ENTRY: &str = "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=\"0;url=/\">\
                     <title>kubefold</title><p>kubefold opens. <a href=\"/\">Go on</a></p></html>\n";
const UNKNOWN: &str = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
                       <title>kubefold</title><main><h1>kubefold does not know this browser</h1><p>Open the address that \
                       <code>kubefold ui</code> printed in the terminal. It ends with <code>?token=…</code>. \
                       When the command is started again, it prints a new one.</main></html>\n";

/// The page, and the way to what it shows.
pub(super) struct Site {
    pub(super) gate: Gate,
    pub(super) upstream: Upstream,
}

impl Site {
    /// Answers one request.
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Response<Body> {
        let (asked, _) = request.into_parts();
        let mut response = match self.answered(&asked).await {
            Ok(response) => response,
            Err(UiRefused::NoToken) if asked.uri.path() == "/" => html(StatusCode::UNAUTHORIZED, UNKNOWN),
            Err(refused) => Status::from(refused).into_response(),
        };
        for (name, value) in HEADERS {
            let of_page = name == header::CONTENT_SECURITY_POLICY && response.headers().contains_key(&name);
            if !of_page {
                response.headers_mut().insert(name, HeaderValue::from_static(value));
            }
        }
        response
    }

    async fn answered(&self, asked: &Parts) -> Result<Response<Body>, UiRefused> {
        let proof = self.gate.admit(asked)?;
        if asked.headers.contains_key(header::UPGRADE) {
            return Err(UiRefused::Upgrade);
        }
        if asked.method != Method::GET {
            return Err(UiRefused::Method);
        }
        if proof == Proof::Address {
            let mut entry = html(StatusCode::OK, ENTRY);
            // Not in a sandbox: what that asks for has another origin, and so no cookie.
            let policy = HeaderValue::from_static(PAGE_POLICY);
            entry.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
            let cookie = HeaderValue::from_str(&self.gate.cookie());
            entry.headers_mut().extend(cookie.ok().map(|cookie| (header::SET_COOKIE, cookie)));
            return Ok(entry);
        }
        let path = asked.uri.path();
        if let Some(asset) = assets::at(path) {
            let mut response = Response::new(full(asset.bytes));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media));
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
            return Ok(response);
        }
        let target = asked.uri.path_and_query().map(http::uri::PathAndQuery::as_str).unwrap_or_default();
        match target.strip_prefix(FLEET).filter(|target| target.starts_with('/')) {
            Some(target) => self.upstream.read(asked, target).await,
            None => Err(UiRefused::NoSuchPath),
        }
    }
}

fn html(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut page = Response::new(full(text));
    *page.status_mut() = status;
    page.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(HTML));
    page
}
