//! One object by its name.

use super::SHOP;
use crate::{
    check::{Check, get},
    world::objects,
};

pub(super) fn checks() -> Vec<Check> {
    let mut all: Vec<Check> =
        objects().iter().map(|(path, name)| get(format!("{path}/{}{{@}}", name.replace('@', "%40")))).collect();
    // The same through another version.
    all.push(get("/apis/e2e.kubefold.io/v1beta1/namespaces/shop/gadgets/cog{@}"));
    all.push(get("/apis/events.k8s.io/v1/namespaces/shop/events/web-0.1{@}"));
    // Objects that every cluster has.
    for path in [
        "/api/v1/namespaces/shop",
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/default/services/kubernetes",
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.e2e.kubefold.io",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
    ] {
        all.push(get(path));
    }
    // Options: those of a get are few, those of a list mean nothing here.
    for query in [
        "resourceVersion=",
        "resourceVersion=0",
        "resourceVersion={rv}",
        "resourceVersion=1",
        "resourceVersion=00",
        "resourceVersion=01",
        "resourceVersion=-1",
        "resourceVersion=abc",
        "resourceVersion=1.5",
        "resourceVersion=99999999999999999999999",
        "resourceVersion=9007199254740991",
        "resourceVersion=0&resourceVersion=abc",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Bla",
        "limit=1",
        "limit=abc",
        "continue=abc",
        "labelSelector=app%3Dnope",
        "labelSelector=a%3Db%3Dc",
        "fieldSelector=metadata.name%3Dnope",
        "fieldSelector=nope",
        "watch=1",
        "watch=true&timeoutSeconds=1",
        "sendInitialEvents=true",
        "pretty=true",
        "pretty=false",
        "pretty",
        "unknown=1",
        "exact=true&export=true",
        "export",
        "export=false",
        "export=0",
        "export=abc&resourceVersion=abc",
    ] {
        all.push(get(format!("{SHOP}/a{{@}}?{query}")));
    }
    for path in ["configmaps/nope", "pods/web-0{@}", "pods/web-0{@}/status", "services/web{@}"] {
        all.push(get(format!("/api/v1/namespaces/shop/{path}?export=true")));
    }
    all.push(get("/apis/apps/v1/namespaces/shop/deployments/web{@}/scale?export=true"));
    all.push(get("/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets/cog{@}?export=1"));
    all.push(get(format!("{SHOP}/a{{@}}?export=true")).accept("text/html"));
    all.push(get(format!("{SHOP}/a{{@}}?export=true")).accept("application/cbor"));
    // Versions that are deprecated, by their definition and by Kubernetes.
    for below in ["endpoints", "endpoints/kubernetes", "endpoints/nope", "endpoints?watch=1&timeoutSeconds=1"] {
        all.push(get(format!("/api/v1/namespaces/default/{below}")));
    }
    for below in ["", "/nope", "/cog{@}", "?limit=abc", "?watch=1&timeoutSeconds=1&resourceVersion=0"] {
        all.push(get(format!("/apis/e2e.kubefold.io/v1beta1/namespaces/shop/gadgets{below}")));
    }
    all.extend(refusals());
    all
}

fn refusals() -> Vec<Check> {
    [
        &format!("{SHOP}/nope"),
        &format!("{SHOP}/nope?resourceVersion=0"),
        &format!("{SHOP}/nope?resourceVersion={{rv}}"),
        &format!("{SHOP}/nope?resourceVersion=9007199254740991"),
        &format!("{SHOP}/NOPE"),
        &format!("{SHOP}/no%20pe"),
        &format!("{SHOP}/%22"),
        &format!("{SHOP}/n%C3%B6pe"),
        &format!("{SHOP}/-"),
        &format!("{SHOP}/a%40nowhere"),
        "/api/v1/namespaces/nope/configmaps/a",
        "/api/v1/namespaces/NOPE/configmaps/a",
        "/api/v1/namespaces/nope",
        "/api/v1/nodes/nope",
        "/apis/apps/v1/namespaces/shop/deployments/nope",
        "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets/nope",
        "/apis/e2e.kubefold.io/v1/planets/nope",
        "/apis/e2e.kubefold.io/v1alpha1/namespaces/shop/gadgets/cog",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nope",
        "/apis/apiregistration.k8s.io/v1/apiservices/nope",
    ]
    .map(get)
    .into()
}
