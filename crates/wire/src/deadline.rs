//! `timeout` of a query: how long a client lets its request take.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/filters/request_deadline.go`.

use http::Method;

use crate::{
    duration,
    info::{RequestInfo, without_tail},
    options::query_value,
    status::Status,
};

/// Refuses a `timeout` that is no duration, as a kube-apiserver does before it looks at anything else. Zero, negative and very long ones are
/// none. Watches, streams and proxies have no deadline, and there the parameter means nothing.
///
/// Errors: 400.
pub fn check(method: &Method, path: &str, query: Option<&str>) -> Result<(), Status> {
    let text = query.and_then(|query| query_value(query, "timeout")).filter(|text| !text.is_empty());
    let Some(Err(error)) = text.map(|text| duration::parse(&text)) else { return Ok(()) };
    if RequestInfo::of(method, without_tail(path), query).is_ok_and(|info| runs_long(&info)) {
        return Ok(());
    }
    Err(Status::bad_request(format!("invalid timeout specified in the request URL - {error}")))
}

/// Source: kubernetes/kubernetes `pkg/controlplane/apiserver/config.go`, `BasicLongRunningRequestCheck`.
fn runs_long(info: &RequestInfo) -> bool {
    matches!(info.verb.as_str(), "watch" | "proxy")
        || matches!(info.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(target: &str) -> Result<(), Status> {
        let (path, query) = target.split_once('?').unwrap();
        check(&Method::GET, path, Some(query))
    }

    #[test]
    fn what_is_no_duration_is_refused_where_a_request_ends() {
        for query in ["timeout=", "timeout=0", "timeout=-5s", "timeout=100000h", "timeout=1s&timeout=x", "x=1"] {
            assert!(asked(&format!("/api/v1/pods?{query}")).is_ok(), "{query}");
        }
        let refused = "invalid timeout specified in the request URL - time: missing unit in duration \"5\"";
        for path in ["/api/v1/pods", "/version", "/nope", "/api/v1/namespaces/a/pods/b"] {
            assert_eq!(asked(&format!("{path}?timeout=5")).unwrap_err().message, refused, "{path}");
        }
        for target in ["pods?watch=1&timeout=5", "namespaces/a/pods/b/log?timeout=5", "watch/pods?timeout=5"] {
            assert!(asked(&format!("/api/v1/{target}")).is_ok(), "{target}");
        }
    }
}
