//! The rules, in the order of the page.

use super::Rule;

/// What a refusal changes in an answer that is none.
const REFUSAL: &[&str] = &["status", "body", "format", "order", "header"];

pub(super) const RULES: &[Rule] = &[
    // By design.
    Rule {
        id: "flow-control-headers",
        requests: &[""],
        aspects: &["header x-kubernetes-pf-flowschema-uid", "header x-kubernetes-pf-prioritylevel-uid"],
        said: "",
        told: "",
    },
    Rule {
        id: "storage-version-hash",
        requests: &["^GET /api"],
        aspects: &["body.resources"],
        said: "",
        told: ".storageVersionHash = null",
    },
    Rule {
        id: "server-address",
        requests: &["^GET /api"],
        aspects: &["body.serverAddressByClientCIDRs"],
        said: "",
        told: "",
    },
    Rule {
        id: "refusals-are-statuses",
        requests: &[""],
        aspects: &["body"],
        said: "404 page not found",
        told: "{\"kind\":\"Status\"",
    },
    Rule {
        id: "refusals-are-statuses",
        requests: &[""],
        aspects: &["header content-type"],
        said: "text/plain",
        told: "application/json",
    },
    Rule {
        id: "refusals-are-statuses",
        requests: &[""],
        aspects: &["header x-content-type-options"],
        said: "nosniff",
        told: "",
    },
    Rule {
        id: "odd-paths",
        requests: &["//", "/./", "/../", "/..$", "%2F", "%2e%2e", "%00", "%ff"],
        aspects: REFUSAL,
        said: "",
        told: "",
    },
    Rule {
        id: "health-checks",
        requests: &["GET /healthz", "GET /livez", "GET /readyz", "POST /readyz"],
        aspects: REFUSAL,
        said: "",
        told: "",
    },
    Rule {
        id: "paths-of-one-server",
        requests: &["GET /$", "GET /metrics", "GET /.well-known/", "GET /openid/", "GET /logs", "GET /debug/"],
        aspects: REFUSAL,
        said: "",
        told: "",
    },
    Rule {
        id: "history",
        requests: &["resourceVersion=1$", "resourceVersion=1&"],
        aspects: REFUSAL,
        said: "",
        told: "",
    },
    Rule { id: "tokens", requests: &["continue="], aspects: REFUSAL, said: "", told: "" },
    Rule { id: "any-field", requests: &["fieldSelector="], aspects: REFUSAL, said: "", told: "" },
    Rule {
        id: "words-of-parsers",
        requests: &["labelSelector=", "fieldSelector=", "limit=", "timeoutSeconds=", "resourceVersion="],
        aspects: &["body.message"],
        said: "",
        told: "",
    },
    Rule {
        id: "custom-list-order",
        requests: &["e2e.kubefold.io"],
        aspects: &["order", "body.metadata"],
        said: "",
        told: "",
    },
    Rule { id: "protobuf", requests: &["application/vnd.kubernetes.protobuf"], aspects: REFUSAL, said: "", told: "" },
    Rule { id: "tables", requests: &["as=Table"], aspects: REFUSAL, said: "", told: "" },
    Rule {
        id: "subresources",
        requests: &["/scale", "/ephemeralcontainers", "/resize", "/log"],
        aspects: REFUSAL,
        said: "",
        told: "",
    },
];
