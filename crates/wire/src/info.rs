//! What a request is about: verb, resource and name as Kubernetes reads them.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/request/requestinfo.go`. Who forwards a request must read its path as the server does, so
//! every rule here is one of that file, and its oddities are kept.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::{options::query_value, selector::FieldSelector};

/// Path segments at most; Kubernetes' own paths have fewer than ten.
const SEGMENTS_MAX: usize = 64;

/// Why a path is no path: the answer is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
pub enum PathError {
    #[error("the path holds a \".\" or \"..\" segment; send the path without it")]
    Dots,
    #[error("the path holds an encoded slash (%2F or %5C); names in Kubernetes hold none")]
    EncodedSlash,
    #[error("the path holds a broken percent encoding, or bytes that are not UTF-8")]
    Encoding,
    #[error("the path holds an empty segment (\"//\"); send the path without it")]
    Empty,
    #[error("the path has too many segments")]
    TooLong,
}

/// Verb, resource and name of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// True for `/api/<version>/...` and `/apis/<group>/<version>/...` with more after it.
    pub is_resource_request: bool,
    /// The decoded path.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`; otherwise the
    /// method in lower case.
    pub verb: String,
    /// `api` or `apis`.
    pub api_prefix: String,
    /// API group; empty is core.
    pub api_group: String,
    /// API version.
    pub api_version: String,
    /// Namespace; empty for none or all.
    pub namespace: String,
    /// Plural resource.
    pub resource: String,
    /// Such as `status`, `scale`, `log`.
    pub subresource: String,
    /// Name, decoded; empty for a collection. On list, watch and deletecollection it comes from
    /// `fieldSelector=metadata.name=...`.
    pub name: String,
    /// Everything after the version, decoded, without the namespace.
    pub parts: Vec<String>,
}

impl RequestInfo {
    /// Says whether the verb only reads objects.
    pub fn is_read(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// Reads a request.
    ///
    /// Errors: a path that is no path.
    pub fn of(method: &Method, path: &str, query: Option<&str>) -> Result<Self, PathError> {
        let mut info = Self { verb: method.as_str().to_ascii_lowercase(), ..Self::default() };
        let parts = segments(path)?;
        // `namespaces//pods` is a namespace without a name to one reader and the namespace `pods` to another.
        if path.trim_matches('/').contains("//") {
            return Err(PathError::Empty);
        }
        info.path = if parts.is_empty() { "/".to_owned() } else { format!("/{}", parts.join("/")) };
        let mut rest = parts.into_iter().peekable();
        // Fewer than three parts are a discovery document or not ours at all.
        if rest.len() < 3 || !matches!(rest.peek().map(String::as_str), Some("api" | "apis")) {
            return Ok(info);
        }
        info.api_prefix = rest.next().unwrap_or_default();
        if info.api_prefix == "apis" {
            // `/apis/<group>/<version>` is discovery still.
            if rest.len() < 3 {
                return Ok(info);
            }
            info.api_group = rest.next().unwrap_or_default();
        }
        info.is_resource_request = true;
        info.api_version = rest.next().unwrap_or_default();
        let mut verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        // The verb in the path: `/api/v1/watch/pods`, and the long-gone `/api/v1/proxy/...`.
        let special = rest.next_if(|part| matches!(part.as_str(), "watch" | "proxy"));
        if let Some(special) = &special {
            if rest.peek().is_none() {
                return Ok(Self { verb: verb.to_owned(), ..info });
            }
            verb = if special == "watch" { "watch" } else { "proxy" };
        }
        info.verb = verb.to_owned();
        info.take_resource(rest.collect());
        if info.name.is_empty() {
            info.collection_verb(query.unwrap_or_default());
        }
        Ok(info)
    }

    /// The GVR and namespace part: `namespaces/<ns>/<resource>/<name>/<subresource>/...`.
    fn take_resource(&mut self, mut parts: Vec<String>) {
        if parts.first().is_some_and(|part| part == "namespaces") {
            if let Some(namespace) = parts.get(1) {
                self.namespace = namespace.clone();
                // `namespaces/x`, `namespaces/x/status` and `namespaces/x/finalize` are about the namespace itself.
                let subresource = parts.get(2).is_some_and(|part| matches!(part.as_str(), "status" | "finalize"));
                if parts.len() > 2 && !subresource {
                    parts.drain(..2);
                }
            }
        } else {
            self.namespace.clear();
        }
        let at = |index: usize| parts.get(index).cloned().unwrap_or_default();
        (self.resource, self.name) = (at(0), at(1));
        if self.verb != "proxy" {
            self.subresource = at(2);
        }
        self.parts = parts;
    }

    /// A get without a name is a list, or a watch; a delete without one deletes a collection.
    fn collection_verb(&mut self, query: &str) {
        if self.verb == "get" {
            let watch = query_value(query, "watch").is_some_and(|value| truth(&value));
            self.verb = if watch { "watch" } else { "list" }.to_owned();
        } else if self.verb == "delete" {
            self.verb = "deletecollection".to_owned();
        }
        if matches!(self.verb.as_str(), "list" | "watch" | "deletecollection")
            && self.name.is_empty()
            && let Some(selector) = query_value(query, "fieldSelector")
            && let Some(name) = exact_name(&selector)
        {
            self.name = name;
        }
    }
}

/// A path up to `proxy`: what follows is a proxied application's.
pub fn without_tail(path: &str) -> &str {
    proxied(path).map_or(path, |(head, _)| head)
}

/// The path of a proxied application, split behind `proxy`: what follows is the application's, raw, and may be empty.
pub fn proxied(path: &str) -> Option<(&str, &str)> {
    let segments: Vec<&str> = path.splitn(9, '/').collect();
    let named = match segments.as_slice() {
        ["", "api", "v1", "nodes", name, "proxy", ..] => (!name.is_empty()).then_some(6),
        ["", "api", "v1", "namespaces", namespace, "pods" | "services", name, "proxy", ..] => {
            (!namespace.is_empty() && !name.is_empty()).then_some(8)
        }
        _ => None,
    };
    let head: usize = segments.iter().take(named?).map(|segment| segment.len() + 1).sum();
    path.split_at_checked(head - 1)
}

/// The decoded segments of a path, empty ones left out.
///
/// Errors: a path that two readers could read in two ways.
pub fn segments(path: &str) -> Result<Vec<String>, PathError> {
    let mut parts = Vec::new();
    for raw in path.split('/').filter(|part| !part.is_empty()) {
        let part = decode_segment(raw)?;
        if part == "." || part == ".." {
            return Err(PathError::Dots);
        }
        if part.contains(['/', '\\']) {
            return Err(PathError::EncodedSlash);
        }
        parts.push(part);
        if parts.len() > SEGMENTS_MAX {
            return Err(PathError::TooLong);
        }
    }
    Ok(parts)
}

/// Percent-decodes strictly: a `%` without two hex digits is refused, as Go's `url.PathUnescape` refuses it.
///
/// Errors: a broken encoding, bytes that are not UTF-8, NUL.
pub fn decode_segment(raw: &str) -> Result<String, PathError> {
    let bytes = raw.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let good = bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || (hex(at + 1) && hex(at + 2)));
    let text = percent_decode_str(raw).decode_utf8().map_err(|_| PathError::Encoding)?;
    if !good || text.contains('\0') { Err(PathError::Encoding) } else { Ok(text.into_owned()) }
}

/// Kubernetes' booleans in queries: present is true, but for `false` and `0`.
///
/// Source: kubernetes/apimachinery `pkg/runtime/conversion.go`, `Convert_Slice_string_To_bool`.
fn truth(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false") && value != "0"
}

/// The name that a field selector demands exactly, where it can be one object's.
fn exact_name(selector: &str) -> Option<String> {
    let fields = FieldSelector::parse(selector, "", "").ok()?;
    let name = fields.name()?;
    let sound = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%']);
    sound.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, target: &str) -> RequestInfo {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        RequestInfo::of(&method.parse().unwrap(), path, query).unwrap()
    }

    /// Method and target; verb, prefix, group, version, namespace, resource, subresource, name.
    const RESOURCES: &[(&str, &str, [&str; 8])] = &[
        ("GET", "/api/v1/namespaces", ["list", "api", "", "v1", "", "namespaces", "", ""]),
        ("GET", "/api/v1/namespaces/other", ["get", "api", "", "v1", "other", "namespaces", "", "other"]),
        (
            "PUT",
            "/api/v1/namespaces/other/status",
            ["update", "api", "", "v1", "other", "namespaces", "status", "other"],
        ),
        ("PUT", "/api/v1/namespaces/x/finalize", ["update", "api", "", "v1", "x", "namespaces", "finalize", "x"]),
        ("GET", "/api/v1/namespaces/other/pods", ["list", "api", "", "v1", "other", "pods", "", ""]),
        ("GET", "/api/v1/namespaces/other/pods/foo", ["get", "api", "", "v1", "other", "pods", "", "foo"]),
        ("HEAD", "/api/v1/namespaces/other/pods/foo", ["get", "api", "", "v1", "other", "pods", "", "foo"]),
        ("GET", "/api/v1/pods", ["list", "api", "", "v1", "", "pods", "", ""]),
        ("HEAD", "/api/v1/pods", ["list", "api", "", "v1", "", "pods", "", ""]),
        ("GET", "//api/v1/pods/", ["list", "api", "", "v1", "", "pods", "", ""]),
        ("GET", "/api/v1/namespaces/ns/pods/web-0%40east", ["get", "api", "", "v1", "ns", "pods", "", "web-0@east"]),
        (
            "GET",
            "/api/v1/namespaces/ns/pods/web-0@east/log",
            ["get", "api", "", "v1", "ns", "pods", "log", "web-0@east"],
        ),
        ("GET", "/api/v1/watch/pods", ["watch", "api", "", "v1", "", "pods", "", ""]),
        ("GET", "/api/v1/watch/namespaces/ns/pods/foo", ["watch", "api", "", "v1", "ns", "pods", "", "foo"]),
        ("GET", "/api/v1/watch/namespaces", ["watch", "api", "", "v1", "", "namespaces", "", ""]),
        ("GET", "/apis/apps/v1/watch/deployments", ["watch", "apis", "apps", "v1", "", "deployments", "", ""]),
        ("GET", "/api/v1/pods?watch=true", ["watch", "api", "", "v1", "", "pods", "", ""]),
        ("GET", "/api/v1/pods?watch", ["watch", "api", "", "v1", "", "pods", "", ""]),
        ("GET", "/api/v1/pods?watch=yes", ["watch", "api", "", "v1", "", "pods", "", ""]),
        ("GET", "/api/v1/pods?watch=false", ["list", "api", "", "v1", "", "pods", "", ""]),
        ("GET", "/api/v1/pods?watch=0", ["list", "api", "", "v1", "", "pods", "", ""]),
        ("GET", "/api/v1/pods?watch=False", ["list", "api", "", "v1", "", "pods", "", ""]),
        // A watch of one object by its path is a get: the parameter counts on collections only.
        ("GET", "/api/v1/namespaces/ns/pods/foo?watch=true", ["get", "api", "", "v1", "ns", "pods", "", "foo"]),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dfoo", ["list", "api", "", "v1", "", "pods", "", "foo"]),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name==a%40east&watch=1",
            ["watch", "api", "", "v1", "", "pods", "", "a@east"],
        ),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name!=foo", ["list", "api", "", "v1", "", "pods", "", ""]),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name=a/b", ["list", "api", "", "v1", "", "pods", "", ""]),
        (
            "DELETE",
            "/api/v1/namespaces/ns/pods?fieldSelector=metadata.name=foo",
            ["deletecollection", "api", "", "v1", "ns", "pods", "", "foo"],
        ),
        (
            "POST",
            "/api/v1/namespaces/ns/pods?fieldSelector=metadata.name=foo",
            ["create", "api", "", "v1", "ns", "pods", "", ""],
        ),
        ("DELETE", "/api/v1/nodes", ["deletecollection", "api", "", "v1", "", "nodes", "", ""]),
        ("DELETE", "/api/v1/namespaces/ns/pods/foo", ["delete", "api", "", "v1", "ns", "pods", "", "foo"]),
        (
            "POST",
            "/api/v1/namespaces/ns/pods/foo/eviction",
            ["create", "api", "", "v1", "ns", "pods", "eviction", "foo"],
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/ns/deployments/d/scale",
            ["patch", "apis", "apps", "v1", "ns", "deployments", "scale", "d"],
        ),
        (
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            ["create", "apis", "rbac.authorization.k8s.io", "v1", "", "clusterroles", "", ""],
        ),
        ("GET", "/api/v1/nodes/n1/proxy/logs/kubelet.log", ["get", "api", "", "v1", "", "nodes", "proxy", "n1"]),
        ("OPTIONS", "/api/v1/pods", ["", "api", "", "v1", "", "pods", "", ""]),
    ];

    #[test]
    fn resource_requests_are_read_as_kubernetes_reads_them() {
        for (method, target, [verb, prefix, group, version, namespace, resource, subresource, name]) in RESOURCES {
            let got = info(method, target);
            assert!(got.is_resource_request, "{method} {target}");
            let seen = [
                &*got.verb,
                &*got.api_prefix,
                &*got.api_group,
                &*got.api_version,
                &*got.namespace,
                &*got.resource,
                &*got.subresource,
                &*got.name,
            ];
            assert_eq!(
                seen,
                [*verb, *prefix, *group, *version, *namespace, *resource, *subresource, *name],
                "{method} {target}"
            );
        }
    }

    #[test]
    fn everything_else_is_a_path_with_a_method() {
        for target in [
            "/",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/version",
            "/readyz",
            "/openapi/v3/apis/apps/v1",
        ] {
            let got = info("GET", target);
            assert!(!got.is_resource_request, "{target}");
            assert_eq!((got.verb.as_str(), got.path.as_str()), ("get", target));
        }
        assert_eq!(info("POST", "/version").verb, "post");
    }

    #[test]
    fn the_parts_after_the_version_are_kept_without_the_namespace() {
        assert_eq!(info("GET", "/api/v1/nodes/n/proxy/a/b").parts, ["nodes", "n", "proxy", "a", "b"]);
        assert_eq!(info("GET", "/api/v1/namespaces/ns/pods/p/log").parts, ["pods", "p", "log"]);
    }

    #[test]
    fn paths_that_two_readers_could_read_in_two_ways_are_refused() {
        let cases = [
            ("/api/v1/namespaces/../secrets", PathError::Dots),
            ("/api/v1/./pods", PathError::Dots),
            ("/api/v1/%2e%2E/pods", PathError::Dots),
            ("/api/v1/namespaces/a%2Fb/pods", PathError::EncodedSlash),
            ("/api/v1/namespaces/a%5cb/pods", PathError::EncodedSlash),
            ("/api/v1/pods%", PathError::Encoding),
            ("/api/v1/pods%4", PathError::Encoding),
            ("/api/v1/pods%zz", PathError::Encoding),
            ("/api/v1/pods%ff", PathError::Encoding),
            ("/api/v1/pods%00", PathError::Encoding),
        ];
        for (path, expected) in cases {
            assert_eq!(RequestInfo::of(&Method::GET, path, None), Err(expected), "{path}");
        }
        let empty = RequestInfo::of(&Method::GET, "/api/v1/namespaces//pods", None);
        assert_eq!(empty, Err(PathError::Empty));
        assert_eq!(RequestInfo::of(&Method::GET, &"/a".repeat(65), None), Err(PathError::TooLong));
    }
}
