//! In what form an answer comes.

use super::SHOP;
use crate::check::{Check, ask, get};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

pub(super) fn checks() -> Vec<Check> {
    let mut all = Vec::new();
    let paths = [
        SHOP.to_owned(),
        format!("{SHOP}/a{{@}}"),
        format!("{SHOP}/nope"),
        "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets".to_owned(),
        "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets/cog{@}".to_owned(),
        "/api/v1/foos".to_owned(),
    ];
    for path in &paths {
        all.extend(ACCEPTS.iter().map(|accept| get(path).accept(accept)));
        for agent in ["curl/8.0", "Wget/1", "Mozilla/5.0 (X11)", "kubectl/v1.36", "Curl/8"] {
            all.push(get(path).header("user-agent", agent));
        }
        for query in ["pretty=0", "pretty=true"] {
            all.push(get(format!("{path}?{query}")).header("user-agent", "curl/8.0"));
        }
        all.push(get(path).accept("application/yaml").header("user-agent", "curl/8.0"));
    }
    // What a kube-apiserver keeps as fields and shows as annotations, and kinds without a printer, with no objects.
    for path in [
        "/apis/apps/v1/daemonsets",
        "/apis/autoscaling/v1/horizontalpodautoscalers",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        "/apis/events.k8s.io/v1/namespaces/nope/events",
        "/apis/discovery.k8s.io/v1/namespaces/nope/endpointslices",
        "/apis/resource.k8s.io/v1/deviceclasses",
        "/api/v1/persistentvolumes",
        "/api/v1/namespaces/nope/podtemplates",
        "/apis/node.k8s.io/v1/runtimeclasses",
        "/apis/networking.k8s.io/v1/servicecidrs",
    ] {
        for accept in [TABLE, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"] {
            all.push(get(path).accept(accept));
        }
        for query in ["includeObject=Object", "includeObject=None"] {
            all.push(get(format!("{path}?{query}")).accept(TABLE));
        }
    }
    all.extend(without_columns());
    for watch in ["", "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"] {
        all.push(get(format!("{SHOP}?watch=1&timeoutSeconds=1{watch}")).accept(TABLE));
    }
    for encoding in ["gzip", "identity", "gzip;q=0", "br", "*"] {
        all.push(get(SHOP).header("accept-encoding", encoding));
        all.push(get("/openapi/v2").header("accept-encoding", encoding));
    }
    // A body in a read means nothing, whatever it is.
    all.push(get(SHOP).header("content-type", "text/plain").body("x"));
    all.push(ask("POST", SHOP).header("content-type", "text/plain").body("x"));
    all.push(ask("POST", SHOP).header("content-type", "application/json").body("{"));
    all.push(ask("POST", SHOP).header("content-type", "application/json").body(""));
    all.push(ask("POST", SHOP).header("content-type", "nonsense").body("{}"));
    all.push(get(SHOP).header("if-none-match", "*"));
    all.push(get(SHOP).header("range", "bytes=0-10"));
    all.push(get(SHOP).header("audit-id", "mine"));
    all
}

/// What can only be posted has no columns, and some of what stands below an object has none.
fn without_columns() -> Vec<Check> {
    let mut all = Vec::new();
    for (path, body) in [
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}"#,
        ),
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"user":"jane","groups":["system:masters"],"resourceAttributes":{"verb":"get","resource":"pods"}}}"#,
        ),
    ] {
        let review = ask("POST", path).header("content-type", "application/json").body(body);
        all.extend(ACCEPTS.iter().map(|accept| review.clone().accept(accept)));
        all.push(review.clone().header("user-agent", "curl/8.0"));
        all.push(review.accept("application/yaml").header("user-agent", "curl/8.0"));
    }
    let review = r#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"x"}}"#;
    for accept in [TABLE, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"] {
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        all.push(ask("POST", path).header("content-type", "application/json").accept(accept).body(review));
        for below in ["status", "resize", "ephemeralcontainers"] {
            all.push(get(format!("/api/v1/namespaces/shop/pods/web-0{{@}}/{below}")).accept(accept));
        }
    }
    all
}

const ACCEPTS: [&str; 34] = [
    "",
    "*",
    "*/*",
    "*/json",
    "application/*",
    "text/*",
    "text/html",
    "application/xml, */*;q=0.1",
    "application/json",
    "application/json; charset=utf-8",
    "application/json;q=0.5, application/yaml",
    "application/json;q=0",
    "Application/JSON",
    "application/yaml",
    "application/yaml, application/json",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf, application/json",
    "application/cbor",
    "application/cbor, application/json",
    "application/json;stream=watch",
    "application/json;stream=nope",
    "application/json;pretty=1",
    "application/json;sv=v1",
    "application/json;v=v1",
    "application/json;unknown=x",
    TABLE,
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v2;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io,application/json",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Nope;v=v1;g=meta.k8s.io",
];
