//! The rules of the embedded server, in the order of the page.

use super::Rule;

pub(super) const RULES: &[Rule] = &[
    rule(
        "kinds-not-served",
        &["/deviceclasses", "/servicecidrs", "/ipaddresses", "/flowschemas", "/componentstatuses"],
        &["status", "body", "format"],
    ),
    rule("kinds-not-served", &["GET /apis$", "GET /apis/$", "GET /apis?"], &["body.groups"]),
    rule("kinds-not-served", &["GET /api/v1$", "GET /api/v1/$"], &["body.resources"]),
    Rule {
        said: "storageVersionHash",
        ..rule("version-of-definitions", &["GET /apis/apiextensions.k8s.io/v1$"], &["body.resources"])
    },
    rule(
        "built-of-something-else",
        &["GET /version"],
        &["body.buildDate", "body.compiler", "body.gitCommit", "body.goVersion", "body.platform"],
    ),
    rule("openapi-documents", &["GET /openapi/v3/version"], &["status", "header etag", "format", "body"]),
    rule("zeros-of-conversions", &["/horizontalpodautoscalers?includeObject=Object"], &["body.rows"]),
    rule(
        "zeros-of-conversions",
        &["GET /apis/events.k8s.io/v1/namespaces/shop/events"],
        &["body.reporting", "body.items"],
    ),
    rule(
        "checks-of-health",
        &["GET /readyz/informer-sync", "GET /readyz/shutdown"],
        &["status", "header", "format", "body"],
    ),
    rule(
        "deprecation-warnings",
        &["/endpoints", "/componentstatuses", "/e2e.kubefold.io/v1beta1/"],
        &["header warning"],
    ),
    rule("managers-of-reviews", &["POST /apis/auth"], &["body.metadata"]),
    rule("heads", &["^HEAD /api$", "^HEAD /version"], &["status", "header", "format", "body"]),
    rule("logs-of-nothing", &["/log$"], &["status", "header content-type", "body"]),
    Rule { said: "(empty)", ..rule("refusals-of-watches", &["?watch=1"], &["body"]) },
];

const fn rule(id: &'static str, requests: &'static [&'static str], aspects: &'static [&'static str]) -> Rule {
    Rule { id, requests, aspects, said: "", told: "" }
}
