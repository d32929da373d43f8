//! Collections, and the options of a list.

use std::collections::BTreeSet;

use super::SHOP;
use crate::{
    check::{Check, get},
    world::objects,
};

const GADGETS: &str = "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets";
/// Greater than any revision that there is.
const FUTURE: &str = "9007199254740991";

pub(super) fn checks() -> Vec<Check> {
    let mut all = Vec::new();
    let collections: BTreeSet<&str> = objects().iter().map(|(path, _)| *path).collect();
    for path in &collections {
        all.push(get(*path));
        let wide = path.replace("/namespaces/shop/", "/").replace("/namespaces/shop-2/", "/");
        if !collections.contains(wide.as_str()) {
            all.push(get(wide));
        }
    }
    // Kinds that every cluster has objects of, in a namespace with none, in one that is not, and other versions.
    for path in [
        "/api/v1/namespaces",
        "/api/v1/serviceaccounts",
        "/api/v1/namespaces/empty/configmaps",
        "/api/v1/namespaces/empty/pods",
        "/api/v1/namespaces/nope/pods",
        "/api/v1/namespaces/NOPE/pods",
        "/api/v1/podtemplates",
        "/api/v1/replicationcontrollers",
        "/api/v1/limitranges",
        "/api/v1/endpoints",
        "/apis/apps/v1/daemonsets",
        "/apis/apps/v1/controllerrevisions",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "/apis/storage.k8s.io/v1/storageclasses",
        "/apis/networking.k8s.io/v1/ipaddresses",
        "/apis/networking.k8s.io/v1/servicecidrs",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        "/apis/events.k8s.io/v1/namespaces/shop/events",
        "/apis/e2e.kubefold.io/v1beta1/namespaces/shop/gadgets",
        "/apis/e2e.kubefold.io/v1/namespaces/empty/gadgets",
    ] {
        all.push(get(path));
    }
    for path in [SHOP, GADGETS, "/api/v1/configmaps", "/api/v1/nodes", "/api/v1/namespaces/empty/configmaps"] {
        all.extend(PLAIN.iter().map(|query| get(format!("{path}?{query}"))));
    }
    all.extend(ODD.iter().map(|query| get(format!("{SHOP}?{query}"))));
    all.extend(revisions());
    all.extend(tokens());
    all
}

/// A token where it belongs, with other options, and where it does not belong.
fn tokens() -> Vec<Check> {
    let mut all: Vec<Check> = [
        "",
        "&limit=1",
        "&limit=100",
        "&labelSelector=app%3Dweb",
        "&limit=1&labelSelector=app%3Dweb",
        "&fieldSelector=metadata.name%3Da{@}",
        "&resourceVersion=0",
        "&resourceVersion={rv}",
        "&resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "&resourceVersionMatch=Exact",
        "x",
        "&continue=abc",
        "&watch=1&timeoutSeconds=1",
    ]
    .iter()
    .map(|more| get(format!("{SHOP}?continue={{token}}{more}")))
    .collect();
    for path in
        ["/api/v1/configmaps", "/api/v1/namespaces/shop-2/configmaps", "/api/v1/namespaces/shop/secrets", GADGETS]
    {
        all.push(get(format!("{path}?continue={{token}}")));
    }
    all
}

/// Options that mean something.
const PLAIN: [&str; 9] = [
    "limit=1",
    "limit=2",
    "limit=500&resourceVersion=0",
    "resourceVersion=0",
    "resourceVersion={rv}",
    "resourceVersion={rv}&resourceVersionMatch=NotOlderThan",
    "resourceVersion={rv}&resourceVersionMatch=Exact",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "labelSelector=app%3Dweb&limit=1",
];

/// Options that mean little or nothing, and some that nobody should send.
const ODD: [&str; 61] = [
    "",
    "&",
    "=",
    "%zz",
    "a;b",
    "limit=",
    "limit=0",
    "limit=00",
    "limit=-1",
    "limit=+1",
    "limit=%2B1",
    "limit=abc",
    "limit=1.5",
    "limit=0x10",
    "limit=1_0",
    "limit=%201",
    "limit=9223372036854775807",
    "limit=9223372036854775808",
    "limit=1&limit=2",
    "limit=1&limit=abc",
    "Limit=1",
    "timeoutSeconds=abc",
    "timeoutSeconds=5",
    "timeoutSeconds=-5",
    "timeout=1s",
    "timeout=abc",
    "timeout=",
    "timeout=0",
    "timeout=5",
    "timeout=-1s",
    "timeout=99999h",
    "timeout=9999999999h",
    "timeout=1d",
    "timeout=1s&timeout=abc",
    "timeout=abc&limit=abc",
    "timeout=abc&watch=1&timeoutSeconds=1",
    "export=true",
    "allowWatchBookmarks=true",
    "allowWatchBookmarks=abc",
    "watch=false",
    "watch=0",
    "watch=False",
    "watch=&timeoutSeconds=1",
    "pretty=true",
    "pretty=1",
    "pretty=0",
    "pretty=false",
    "pretty=abc",
    "pretty",
    "unknown=1",
    "dryRun=All",
    "fieldManager=x",
    "sendInitialEvents=true",
    "sendInitialEvents=false",
    "sendInitialEvents=",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "continue=",
    "continue=abc",
    "continue=%25",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0",
    "shardSelector=x",
];

/// Every revision, match, limit and token with every other.
fn revisions() -> Vec<Check> {
    let mut all = Vec::new();
    for version in ["", "0", "{rv}", "1", FUTURE, "00", "-1", "+1", "abc", "1.5", "%201", "99999999999999999999999"] {
        for matching in ["", "Exact", "NotOlderThan", "exact", "Bla"] {
            for more in ["", "&limit=1", "&continue=abc"] {
                // What was asked above.
                if version == "{rv}" && more.is_empty() {
                    continue;
                }
                all.push(get(format!("{SHOP}?resourceVersion={version}&resourceVersionMatch={matching}{more}")));
            }
        }
    }
    all
}
