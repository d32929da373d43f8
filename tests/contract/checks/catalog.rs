//! Discovery, OpenAPI, version and health.

use kubefold_wire::protobuf::{OPENAPI_V2, OPENAPI_V2_ASKED};

use crate::check::{Check, get};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

pub(super) fn checks() -> Vec<Check> {
    let mut all: Vec<Check> = PATHS.iter().map(|path| get(*path)).collect();
    for path in ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/nope", "/apis/nope.io"] {
        all.push(get(path).accept(AGGREGATED));
    }
    for accept in ACCEPTS {
        all.push(get("/api").accept(accept));
        all.push(get("/apis").accept(accept));
    }
    for path in ["/api/v1", "/apis/apps", "/version", "/openapi/v3", "/openapi/v2", "/openapi/v3/apis/apps/v1"] {
        for accept in ["*/*", "application/yaml", "text/html", "application/json;q=0.1, */*;q=0.1"] {
            all.push(get(path).accept(accept));
        }
    }
    for accept in [OPENAPI_V2, OPENAPI_V2_ASKED] {
        all.push(get("/openapi/v2").accept(accept));
    }
    for path in ["/api", "/apis"] {
        all.push(get(path).accept(AGGREGATED).header("if-none-match", "\"nope\""));
    }
    all
}

const PATHS: [&str; 58] = [
    "/",
    "/api",
    "/apis",
    "/api/v1",
    "/apis/apps",
    "/apis/apps/v1",
    "/apis/batch/v1",
    "/apis/autoscaling",
    "/apis/autoscaling/v1",
    "/apis/autoscaling/v2",
    "/apis/events.k8s.io/v1",
    "/apis/authorization.k8s.io/v1",
    "/apis/authentication.k8s.io/v1",
    "/apis/rbac.authorization.k8s.io/v1",
    "/apis/apiextensions.k8s.io/v1",
    "/apis/apiregistration.k8s.io/v1",
    "/apis/e2e.kubefold.io",
    "/apis/e2e.kubefold.io/v1",
    "/apis/e2e.kubefold.io/v1beta1",
    "/apis?pretty=true",
    "/version",
    "/version/",
    "/version?pretty=true",
    "/openapi",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openapi/v3/api/v1",
    "/openapi/v3/apis/apps/v1",
    "/openapi/v3/apis/e2e.kubefold.io/v1",
    "/openapi/v3/apis/e2e.kubefold.io/v1beta1",
    "/openapi/v3/apis/nope.io/v1",
    "/openapi/v3/version",
    "/swagger.json",
    "/healthz",
    "/livez",
    "/readyz",
    "/healthz/",
    "/livez?verbose",
    "/readyz?verbose",
    "/readyz?exclude=ping",
    "/readyz?exclude=ping&exclude=nope",
    "/readyz?exclude=informer-sync&verbose",
    "/livez?exclude=ping&exclude=nope",
    "/healthz?timeout=abc",
    "/readyz/ping",
    "/readyz/informer-sync",
    "/readyz/shutdown",
    "/healthz/ping",
    "/livez/ping",
    "/livez/shutdown",
    "/readyz/nope",
    "/healthz/etcd",
    "/metrics",
    "/logs",
    "/debug/pprof/",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
];

/// For the two documents that come in two forms.
const ACCEPTS: [&str; 11] = [
    "*/*",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
    "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io;profile=nopeer",
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;q=0.5",
    "text/html",
];
