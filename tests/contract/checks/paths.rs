//! Paths and methods: which there are, and what is said of those that are not.

use super::SHOP;
use crate::check::{Check, ask, get};

pub(super) fn checks() -> Vec<Check> {
    let mut all: Vec<Check> = PATHS.iter().map(|path| get(*path)).collect();
    for (method, path) in METHODS {
        all.push(ask(method, path));
    }
    all.push(get(format!("{SHOP}/{}", "x".repeat(3000))));
    // Whatever is asked for, and whether it is there: the parameter is read first, where a request has an end.
    for path in
        ["/version", "/apis/apps", "/openapi/v2", "/nope", "/api/v1/foos", "/api/v1/namespaces/shop/configmaps/a{@}"]
    {
        all.push(get(format!("{path}?timeout=abc")));
    }
    for path in ["/api/v1/namespaces/shop/pods/nope/log", "/api/v1/watch/namespaces/nope/configmaps"] {
        all.push(get(format!("{path}?timeout=abc&timeoutSeconds=1")));
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        all.push(ask(method, format!("{SHOP}/nope?timeout=abc")).body("{}"));
    }
    all
}

const PATHS: [&str; 66] = [
    "/nope",
    "/nope/",
    "/api/",
    "/apis/",
    "/api/v1/",
    "/api/v2",
    "/api/v2/pods",
    "/api/V1",
    "/API/v1",
    "/apis/nope.io",
    "/apis/nope.io/v1",
    "/apis/nope.io/v1/foos",
    "/apis/nope.io/v1/namespaces/shop/foos/x",
    "/apis/apps/v9",
    "/apis/apps/v9/deployments",
    "/apis/apps/v1/",
    "/apis/apps/",
    "/apis/apps/v1/foos",
    "/apis/e2e.kubefold.io/v9",
    "/apis/e2e.kubefold.io/v9/gadgets",
    "/apis/e2e.kubefold.io/v1alpha1",
    "/apis/e2e.kubefold.io/v1alpha1/gadgets",
    "/apis/e2e.kubefold.io/v1/foos",
    "/apis/e2e.kubefold.io/v1/namespaces/shop/foos",
    "/api/v1/foos",
    "/api/v1/foos/x",
    "/api/v1/Pods",
    "/api/v1/pod",
    "/api/v1/namespaces/shop/foos",
    "/api/v1/namespaces/shop/foos/x",
    "/api/v1/namespaces/shop/nodes",
    "/api/v1/namespaces/shop/nodes/node-x",
    "/api/v1/namespaces/shop/namespaces",
    "/apis/e2e.kubefold.io/v1/namespaces/shop/planets",
    "/apis/e2e.kubefold.io/v1/namespaces/shop/planets/mars",
    "/api/v1/pods/web-0",
    "/api/v1/configmaps/a",
    "/apis/e2e.kubefold.io/v1/gadgets/cog",
    "/apis/apps/v1/deployments/web",
    "/api/v1/namespaces/shop/pods/",
    "/api/v1/pods/",
    "/api/v1/namespaces/",
    "/api/v1/namespaces/shop/",
    "/apis/e2e.kubefold.io/v1/gadgets/",
    "/api/v1//pods",
    "//api/v1/pods",
    "/api//v1/pods",
    "/api/v1/namespaces//pods",
    "/api/v1/namespaces//configmaps/a",
    "/api/v1/./pods",
    "/api/v1/../v1/pods",
    "/api/v1/namespaces/../pods",
    "/api/v1/namespaces/shop/configmaps/..",
    "/api/v1/namespaces/%2e%2e/pods",
    "/api/v1/namespaces/a%2Fb/pods",
    "/api/v1/namespaces/shop%2Fconfigmaps/a",
    "/api/v1/%70ods",
    "/api/v1/namespaces/%73hop/configmaps/a{@}",
    "/api/v1/namespaces/shop/configmaps/a%00",
    "/api/v1/namespaces/shop/configmaps/%ff",
    "/api/v1/namespaces/shop/configmaps/a%20b",
    "/api/v1/proxy/namespaces/shop/pods/web-0",
    "/api/v1/watch",
    "/api/v1/watch/",
    "/api/v1/watch/foos",
    "/api/v1/namespaces/shop/configmaps/a{@}/",
];

/// What no server allows, whatever it can write.
const METHODS: [(&str, &str); 43] = [
    ("HEAD", "/api/v1/pods"),
    ("HEAD", "/api/v1/namespaces/shop/configmaps/a{@}"),
    ("HEAD", "/api/v1/namespaces/shop/configmaps/nope"),
    ("HEAD", "/apis/e2e.kubefold.io/v1/gadgets"),
    ("HEAD", "/api"),
    ("HEAD", "/apis"),
    ("HEAD", "/version"),
    ("HEAD", "/nope"),
    ("HEAD", "/api/v1/foos"),
    ("HEAD", "/openapi/v2"),
    ("HEAD", "/openapi/v3"),
    ("HEAD", "/readyz"),
    ("OPTIONS", "/api/v1/pods"),
    ("OPTIONS", "/api/v1/namespaces/shop/configmaps/a{@}"),
    ("OPTIONS", "/apis/e2e.kubefold.io/v1/gadgets"),
    ("OPTIONS", "/api"),
    ("OPTIONS", "/nope"),
    ("TRACE", "/api/v1/pods"),
    ("PROPFIND", "/api/v1/pods"),
    ("POST", "/api"),
    ("POST", "/api/v1"),
    ("POST", "/apis/apps"),
    ("PUT", "/version"),
    ("POST", "/openapi/v2"),
    ("POST", "/openapi/v3"),
    ("POST", "/api/v1/foos"),
    ("POST", "/apis/e2e.kubefold.io/v1/foos"),
    ("DELETE", "/apis/nope.io/v1/foos"),
    ("DELETE", "/api/v1/foos"),
    ("PUT", "/api/v1/namespaces/shop/configmaps"),
    ("PATCH", "/api/v1/namespaces/shop/configmaps"),
    ("POST", "/api/v1/namespaces/shop/configmaps/a{@}"),
    ("PUT", "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets"),
    ("POST", "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets/cog{@}"),
    ("POST", "/api/v1/configmaps"),
    ("PUT", "/api/v1/configmaps"),
    ("DELETE", "/api/v1/configmaps"),
    ("DELETE", "/api/v1/namespaces"),
    ("PATCH", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ("POST", "/api/v1/watch/pods"),
    ("POST", "/api/v1/namespaces/shop/pods/web-0{@}/status"),
    ("DELETE", "/api/v1/namespaces/shop/pods/web-0{@}/status"),
    ("POST", "/readyz"),
];
