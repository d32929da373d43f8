//! What the local server answers: the page, what the page reads of kubefold, and its orders.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Limited};

use crate::{
    cli::ui::{
        assets,
        forward::Upstream,
        gate::{Gate, Proof},
        order::{ORDER_BYTES_MAX, command},
    },
    respond::UiRefused,
    write::moves::MOVES_PATH,
};
use kubefold_wire::{
    body::{Body, BodyError, full},
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
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data: Send, Error: Into<BodyError>> + Send,
    {
        let (asked, body) = request.into_parts();
        let mut response = match self.answered(&asked, body).await {
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

    async fn answered<B>(&self, asked: &Parts, body: B) -> Result<Response<Body>, UiRefused>
    where
        B: http_body::Body<Data: Send, Error: Into<BodyError>> + Send,
    {
        let proof = self.gate.admit(asked)?;
        if asked.headers.contains_key(header::UPGRADE) {
            return Err(UiRefused::Upgrade);
        }
        if asked.method == Method::POST && asked.uri.path().strip_prefix(FLEET) == Some(MOVES_PATH) {
            self.gate.admit_order(asked)?;
            return self.upstream.order(asked, &command(&read(asked, body).await?)?).await;
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

/// The body of an order. A form of another page cannot have this type.
async fn read<B>(asked: &Parts, body: B) -> Result<Bytes, UiRefused>
where
    B: http_body::Body<Error: Into<BodyError>>,
{
    let kind = asked.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind != Some(b"application/json") {
        return Err(UiRefused::Order("its content type is not application/json".to_owned()));
    }
    let broken = |_| UiRefused::Order(format!("it is longer than {ORDER_BYTES_MAX} bytes, or broke off"));
    let body = std::pin::pin!(body);
    let limited = Limited::new(body, ORDER_BYTES_MAX);
    Ok(limited.collect().await.map_err(broken)?.to_bytes())
}

fn html(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut page = Response::new(full(text));
    *page.status_mut() = status;
    page.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(HTML));
    page
}
