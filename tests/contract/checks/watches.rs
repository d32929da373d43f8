//! Watches of what does not change, up to their deadline; `scripted` has those of what does.

use super::SHOP;
use crate::{
    check::{Check, get},
    world::objects,
};

const FUTURE: &str = "9007199254740991";

pub(super) fn checks() -> Vec<Check> {
    let mut all: Vec<Check> =
        objects().iter().map(|(path, _)| get(format!("{path}?watch=1&timeoutSeconds=1"))).collect();
    all.dedup_by_key(|check| check.path.clone());
    for path in [SHOP, "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets"] {
        all.extend(QUERIES.iter().map(|query| get(format!("{path}?watch=1&timeoutSeconds=1&{query}"))));
    }
    for path in [
        "/api/v1/watch/configmaps",
        "/api/v1/watch/namespaces/shop/configmaps",
        "/api/v1/watch/namespaces/shop/configmaps/a{@}",
        "/api/v1/watch/namespaces/shop/configmaps/nope",
        "/api/v1/watch/namespaces",
        "/api/v1/watch/namespaces/shop",
        "/api/v1/watch/nodes/node-x{@}",
        "/apis/apps/v1/watch/deployments",
        "/apis/e2e.kubefold.io/v1/watch/gadgets",
        "/apis/e2e.kubefold.io/v1/watch/namespaces/shop/gadgets",
        "/apis/e2e.kubefold.io/v1/watch/namespaces/shop/gadgets/cog{@}",
        "/apis/e2e.kubefold.io/v1/watch/planets",
    ] {
        all.push(get(format!("{path}?timeoutSeconds=1")));
        all.push(get(format!("{path}?watch=false&timeoutSeconds=1")));
    }
    all.push(get(format!("{SHOP}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da{{@}}")));
    all.push(get(format!("{SHOP}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dnope")));
    all.push(get("/api/v1/namespaces/nope/pods?watch=1&timeoutSeconds=1"));
    all.push(get("/api/v1/namespaces/empty/pods?watch=1&timeoutSeconds=1"));
    all.push(get("/api/v1/foos?watch=1&timeoutSeconds=1"));
    all.push(get("/api/v1/componentstatuses?watch=1&timeoutSeconds=1"));
    for accept in ACCEPTS {
        all.push(get(format!("{SHOP}?watch=1&timeoutSeconds=1")).accept(accept));
    }
    all.push(get(format!("{SHOP}?watch=1&timeoutSeconds=1")).header("user-agent", "curl/8"));
    all.push(get(format!("{SHOP}?watch=1&timeoutSeconds=1&pretty=true")));
    all.push(get(format!("{SHOP}?watch=1&timeoutSeconds=1&resourceVersion={FUTURE}")));
    all.push(get(format!("{SHOP}?watch=1&timeoutSeconds=1&resourceVersion=1")));
    all
}

/// Each with `watch=1&timeoutSeconds=1`.
const QUERIES: [&str; 29] = [
    "resourceVersion=0",
    "resourceVersion={rv}",
    "resourceVersion=abc",
    "resourceVersion=-1",
    "resourceVersion=00",
    "limit=1",
    "limit=abc",
    "continue=abc",
    "labelSelector=app%3Dweb",
    "labelSelector=a%3Db%3Dc",
    "fieldSelector=nope",
    "fieldSelector=metadata.namespace%3Dshop",
    "allowWatchBookmarks=true&resourceVersion={rv}",
    "allowWatchBookmarks=abc&resourceVersion={rv}",
    "resourceVersionMatch=NotOlderThan",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=Bla",
    "sendInitialEvents=true",
    "sendInitialEvents=false",
    "sendInitialEvents=true&resourceVersionMatch=Exact",
    "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion={rv}",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={rv}",
    "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={rv}",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={rv}",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=9007199254740991",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=abc",
];

const ACCEPTS: [&str; 14] = [
    "*/*",
    "application/json;stream=watch",
    "application/json;stream=nope",
    "application/yaml",
    "application/yaml, application/json",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;stream=watch, application/json",
    "application/cbor-seq",
    "text/html",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
];
