//! What stands below an object.

use crate::check::{Check, get};

pub(super) fn checks() -> Vec<Check> {
    PATHS.iter().map(|path| get(*path)).collect()
}

const PATHS: [&str; 39] = [
    "/api/v1/namespaces/shop/pods/web-0{@}/status",
    "/api/v1/namespaces/shop/pods/alone{@}/status?resourceVersion=0",
    "/api/v1/namespaces/shop/pods/nope/status",
    "/api/v1/nodes/node-x{@}/status",
    "/api/v1/namespaces/shop/status",
    "/api/v1/namespaces/nope/status",
    "/api/v1/namespaces/shop/finalize",
    "/api/v1/persistentvolumes/disk{@}/status",
    "/api/v1/namespaces/shop/persistentvolumeclaims/disk{@}/status",
    "/api/v1/namespaces/shop/services/web{@}/status",
    "/apis/apps/v1/namespaces/shop/deployments/web{@}/status",
    "/apis/apps/v1/namespaces/shop/deployments/nope/status",
    "/apis/batch/v1/namespaces/shop/jobs/once{@}/status",
    "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets/cog{@}/status",
    "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets/nope/status",
    "/apis/e2e.kubefold.io/v1/planets/mars{@}/status",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.e2e.kubefold.io/status",
    "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps/status",
    "/apis/apps/v1/namespaces/shop/deployments/web{@}/scale",
    "/apis/apps/v1/namespaces/shop/deployments/nope/scale",
    "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets/cog{@}/scale",
    "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets/nope/scale",
    "/apis/e2e.kubefold.io/v1/planets/mars{@}/scale",
    "/api/v1/namespaces/shop/configmaps/a{@}/status",
    "/api/v1/namespaces/shop/configmaps/a{@}/scale",
    "/api/v1/namespaces/shop/configmaps/a{@}/nope",
    "/api/v1/namespaces/shop/pods/web-0{@}/nope",
    "/api/v1/namespaces/shop/pods/web-0{@}/scale",
    "/api/v1/namespaces/shop/pods/web-0{@}/status/x",
    "/api/v1/namespaces/shop/pods/web-0{@}/binding",
    "/api/v1/namespaces/shop/pods/web-0{@}/eviction",
    "/api/v1/namespaces/shop/pods/web-0{@}/ephemeralcontainers",
    "/api/v1/namespaces/shop/pods/web-0{@}/resize",
    "/api/v1/namespaces/shop/pods/web-0{@}/log",
    "/api/v1/namespaces/shop/pods/nope/log",
    "/api/v1/namespaces/shop/serviceaccounts/default/token",
    "/api/v1/namespaces/shop/bindings",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
];
