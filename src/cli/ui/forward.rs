//! Reads and orders of the page on their way to kubefold.

use std::time::Duration;

use anyhow::Context;
use http::{HeaderMap, HeaderName, Method, Request, Response, header, request::Parts};
use http_body_util::BodyExt as _;
use kube::{Client, Config, client::ClientBuilder};
use tokio::time::timeout;

use crate::{
    cli::client::{cause, what_to_do},
    respond::UiRefused,
    write::moves::{Command, MOVES_PATH},
};
use kubefold_wire::{body::Body, info::RequestInfo, path::may_lead_elsewhere};

/// What a server of the Kubernetes API, and kubefold, has at its root, as far as the page reads it.
const ROOTS: [&str; 6] = ["api", "apis", "clusters", "kubefold", "views", "version"];
/// Subresources that do something, or that show another server's pages, though they are asked for with GET.
const ACTING: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
/// What of a request goes on. Everything else, such as cookies and who somebody wants to be, stays here.
const ASKED: [HeaderName; 2] = [header::ACCEPT, header::ACCEPT_ENCODING];
/// What of an answer comes back. A cookie of a server behind it would be this page's.
const ANSWERED: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::WARNING,
    header::RETRY_AFTER,
    HeaderName::from_static("audit-id"),
];
const AGENT: &str = concat!("kubefold-ui/", env!("CARGO_PKG_VERSION"));
/// The head of every answer comes by then: a member that was never read holds a list for 10 s. Bodies have no end.
const HEAD_MAX: Duration = Duration::from_secs(60);

/// The way to kubefold, with the login of a kubeconfig.
pub(super) struct Upstream {
    client: Client,
    url: String,
}

impl Upstream {
    /// Makes it without connecting.
    ///
    /// Errors: the kubeconfig's login or certificates cannot be used.
    pub(super) fn new(config: Config) -> anyhow::Result<Self> {
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = ClientBuilder::try_from(config).with_context(|| format!("cannot connect to {url}"))?.build();
        Ok(Self { client, url })
    }

    /// Where kubefold is, by the kubeconfig.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a read, and gives the answer as it comes. `target` is the path at kubefold, with its query.
    ///
    /// Errors: it is no read that the page makes; kubefold does not answer. Cancel: safe; the request is reset.
    pub(super) async fn read(&self, asked: &Parts, target: &str) -> Result<Response<Body>, UiRefused> {
        allowed(target)?;
        let mut request = Request::new(kube::client::Body::empty());
        *request.uri_mut() = target.parse().map_err(|_| UiRefused::Path)?;
        let late = |_| UiRefused::Late { url: self.url.clone(), seconds: HEAD_MAX.as_secs() };
        let sent = timeout(HEAD_MAX, self.send(asked, request)).await.map_err(late)?;
        sent.map_err(|error| {
            let cause = cause(&error);
            UiRefused::Unreached { url: self.url.clone(), cause: format!("{cause}{}", what_to_do(&cause)) }
        })
    }

    /// Sends an order to move objects, and gives the answer.
    ///
    /// Errors: kubefold does not answer. Cancel: the order may have been taken.
    pub(super) async fn order(&self, asked: &Parts, command: &Command) -> Result<Response<Body>, UiRefused> {
        let lost = |cause: String| match command.dry_run {
            true => UiRefused::Unreached { url: self.url.clone(), cause },
            false => UiRefused::OrderLost { url: self.url.clone(), cause },
        };
        let body = serde_json::to_vec(command).map_err(|error| UiRefused::Order(error.to_string()))?;
        let mut request = Request::new(kube::client::Body::from(body));
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, http::Uri::from_static(MOVES_PATH));
        request.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        let sent = timeout(HEAD_MAX, self.send(asked, request)).await;
        sent.map_err(|_| lost(format!("no answer within {} s", HEAD_MAX.as_secs())))?
            .map_err(|error| lost(cause(&error)))
    }

    /// Errors: why nobody answered.
    async fn send(
        &self,
        asked: &Parts,
        mut request: Request<kube::client::Body>,
    ) -> Result<Response<Body>, kube::Error> {
        passed(&asked.headers, &ASKED, request.headers_mut());
        request.headers_mut().insert(header::USER_AGENT, http::HeaderValue::from_static(AGENT));
        let answer = self.client.send(request).await?;
        let (head, body) = answer.into_parts();
        let mut response = Response::new(body.map_err(Into::into).boxed_unsync());
        *response.status_mut() = head.status;
        passed(&head.headers, &ANSWERED, response.headers_mut());
        Ok(response)
    }
}

/// Says whether the page may ask for this, by path and query.
fn allowed(target: &str) -> Result<(), UiRefused> {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    if !path.starts_with('/') || may_lead_elsewhere(path) || path.contains("//") || path.contains('\\') {
        return Err(UiRefused::Path);
    }
    let root = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if !ROOTS.contains(&root) {
        return Err(UiRefused::NoSuchPath);
    }
    let info = RequestInfo::of(&Method::GET, below_views(path), query).map_err(|_| UiRefused::Path)?;
    let acting = |part: &&String| ACTING.contains(&part.as_str());
    // The older form `/api/v1/proxy/...` has it for a verb.
    match Some(&info.subresource).filter(acting).or_else(|| Some(&info.verb).filter(acting)) {
        Some(subresource) => Err(UiRefused::Subresource(subresource.clone())),
        None => Ok(()),
    }
}

/// The path in the API that a view, or a member, has.
fn below_views(path: &str) -> &str {
    ["/views/", "/clusters/"].iter().fold(path, |rest, prefix| match rest.strip_prefix(prefix) {
        Some(tail) => tail.find('/').map_or("/", |at| &tail[at..]),
        None => rest,
    })
}

fn passed(from: &HeaderMap, names: &[HeaderName], to: &mut HeaderMap) {
    for name in names {
        for value in from.get_all(name) {
            to.append(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_the_api_go_on() {
        for target in [
            "/api/v1/pods?limit=500",
            "/apis/apps/v1/namespaces/shop/deployments/web",
            "/api/v1/namespaces/shop/configmaps/proxy",
            "/api/v1/namespaces/proxy/pods",
            "/api/v1/namespaces/shop/pods/web/log?follow=true",
            "/clusters/east/api/v1/nodes",
            "/views/lenient/api/v1/pods",
            "/kubefold/v1/status",
            "/version",
        ] {
            assert!(allowed(target).is_ok(), "{target}");
        }
        let refused = |target: &str| allowed(target).unwrap_err();
        for target in ["", "api", "/metrics", "/", "/debug/pprof", "/%61pi/v1/pods", "/logs"] {
            assert!(matches!(refused(target), UiRefused::NoSuchPath | UiRefused::Path), "{target}");
        }
        for target in [
            "/api/../metrics",
            "/api/%2e%2e/metrics",
            "/api/%252e%252e/metrics",
            "/api/..%2fmetrics",
            "/api//v1/pods",
            "/api/v1\\..\\metrics",
            "//evil.example/api",
            "/api/v1/%zz",
        ] {
            assert!(matches!(refused(target), UiRefused::Path), "{target}");
        }
        for target in [
            "/api/v1/namespaces/shop/pods/web/proxy/admin",
            "/api/v1/namespaces/shop/pods/web/exec?command=sh",
            "/api/v1/namespaces/shop/pods/web/attach",
            "/api/v1/namespaces/shop/pods/web/portforward",
            "/api/v1/namespaces/shop/pods/web/pr%6fxy",
            "/api/v1/nodes/n1/proxy/logs",
            "/api/v1/proxy/namespaces/shop/pods/web",
            "/clusters/east/api/v1/namespaces/shop/services/web/proxy",
            "/views/strict/api/v1/namespaces/shop/services/web/proxy",
            "/apis/kubefold.io/v1alpha1/fleets/main/proxy/api/v1/pods",
        ] {
            assert!(matches!(refused(target), UiRefused::Subresource(_)), "{target}");
        }
    }
}
