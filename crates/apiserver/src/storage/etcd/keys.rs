//! Where keys lie in etcd: where a kube-apiserver has them.
//!
//! Objects of Kubernetes' own kinds lie under their plural alone, whatever their group: `/registry/deployments/default/web`.
//! Those of all other kinds lie under group and plural: `/registry/example.com/widgets/default/one`.
//!
//! Source: kubernetes `pkg/kubeapiserver/default_storage_factory_builder.go`; kubernetes/apiserver
//! `pkg/server/options/etcd.go`.

use std::{collections::HashMap, sync::LazyLock};

use bytes::Bytes;

use crate::kinds::built_in_resources;

/// Kinds whose place has another name than their plural. Source: `SpecialDefaultResourcePrefixes`.
const RENAMED: [(&str, &str); 5] = [
    ("replicationcontrollers", "controllers"),
    ("endpoints", "services/endpoints"),
    ("services", "services/specs"),
    ("nodes", "minions"),
    ("ingresses.networking.k8s.io", "ingress"),
];
/// Groups that are served by CRDs' and aggregated servers' own machinery, also in a kube-apiserver.
const GROUPED: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
/// What a kube-apiserver notes for itself beside objects: which servers there are, and which addresses and ports are taken.
const NO_OBJECTS: [&str; 3] = ["masterleases", "peerserverleases", "ranges"];

/// The places of resources, and the resources of places.
struct Layout {
    places: HashMap<String, String>,
    resources: HashMap<String, String>,
}

static LAYOUT: LazyLock<Layout> = LazyLock::new(|| {
    let mut places: HashMap<String, String> = built_in_resources()
        .filter(|(group, _)| !group.is_empty() && !GROUPED.contains(group) && *group != "events.k8s.io")
        .map(|(group, plural)| (format!("{plural}.{group}"), plural.to_owned()))
        .collect();
    places.extend(RENAMED.map(|(resource, place)| (resource.to_owned(), place.to_owned())));
    let resources = places.iter().map(|(resource, place)| (place.clone(), resource.clone())).collect();
    Layout { places, resources }
});

/// The place of one storage in etcd.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// Such as `/registry/`.
    root: String,
}

/// Keys from a first one to one that is not of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Bytes,
    pub(super) end: Bytes,
}

impl Keys {
    /// Below a prefix such as `/registry`.
    pub(super) fn below(prefix: &str) -> Self {
        Self { root: format!("/{}/", prefix.trim_matches('/')) }
    }

    /// All keys.
    pub(super) fn all(&self) -> Span {
        span(self.root.clone())
    }

    /// Where a key lies.
    pub(super) fn place_of(&self, key: &str) -> Bytes {
        self.placed(key).into()
    }

    /// Where the keys lie that begin with a prefix, in the same order. `None`: at several places, since it names no resource.
    pub(super) fn span_of(&self, prefix: &str) -> Option<Span> {
        prefix.contains('/').then(|| span(self.placed(prefix)))
    }

    fn placed(&self, key: &str) -> String {
        let (resource, rest) = key.split_at(key.find('/').unwrap_or(key.len()));
        let root = &self.root;
        match (LAYOUT.places.get(resource), resource.split_once('.')) {
            (Some(place), _) => format!("{root}{place}{rest}"),
            (None, None) => format!("{root}{resource}{rest}"),
            // Without a dot in it, a group would look like a plural of the core group.
            (None, Some((plural, group))) if !group.contains('.') => format!("{root}{group}./{plural}{rest}"),
            (None, Some((plural, group))) => format!("{root}{group}/{plural}{rest}"),
        }
    }

    /// Which key lies at a place. `None`: none of an object.
    pub(super) fn key_at(&self, place: &[u8]) -> Option<String> {
        let place = std::str::from_utf8(place).ok()?.strip_prefix(self.root.as_str())?;
        let (first, rest) = place.split_at(place.find('/').unwrap_or(place.len()));
        if NO_OBJECTS.contains(&first) {
            return None;
        }
        if let Some(resource) = LAYOUT.resources.get(first) {
            return Some(format!("{resource}{rest}"));
        }
        let second_end = rest.get(1..).map_or(rest.len(), |after| 1 + after.find('/').unwrap_or(after.len()));
        let (second, below) = rest.split_at(second_end);
        if let Some(resource) = LAYOUT.resources.get(&format!("{first}{second}")) {
            return Some(format!("{resource}{below}"));
        }
        match first.contains('.') {
            true => {
                let (plural, group) = (second.strip_prefix('/')?, first.strip_suffix('.').unwrap_or(first));
                Some(format!("{plural}.{group}{below}"))
            }
            false => Some(place.to_owned()),
        }
    }
}

/// All that begins with a prefix.
fn span(prefix: String) -> Span {
    let mut end = prefix.clone().into_bytes();
    // No prefix ends with the highest byte: it is UTF-8.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Span { from: prefix.into(), end: end.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_lies_where_a_kube_apiserver_has_it_and_is_found_there() {
        let keys = Keys::below("/registry");
        for (key, place) in [
            ("pods/default/web-0", "/registry/pods/default/web-0"),
            ("namespaces/default", "/registry/namespaces/default"),
            ("nodes/n1", "/registry/minions/n1"),
            ("services/default/kubernetes", "/registry/services/specs/default/kubernetes"),
            ("endpoints/default/kubernetes", "/registry/services/endpoints/default/kubernetes"),
            ("events/default/web.1", "/registry/events/default/web.1"),
            ("deployments.apps/default/web", "/registry/deployments/default/web"),
            ("ingresses.networking.k8s.io/default/web", "/registry/ingress/default/web"),
            ("leases.coordination.k8s.io/kube-system/x", "/registry/leases/kube-system/x"),
            ("clusterroles.rbac.authorization.k8s.io/system:node", "/registry/clusterroles/system:node"),
            (
                "customresourcedefinitions.apiextensions.k8s.io/a.b",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/a.b",
            ),
            ("widgets.example.com/default/one", "/registry/example.com/widgets/default/one"),
            ("widgets.lab/default/one", "/registry/lab./widgets/default/one"),
            ("things/ä", "/registry/things/ä"),
            ("count", "/registry/count"),
        ] {
            assert_eq!(keys.place_of(key), place, "{key}");
            assert_eq!(keys.key_at(place.as_bytes()).as_deref(), Some(key), "{place}");
        }
        for place in
            ["/registry/ranges/serviceips", "/registry/masterleases/10.0.0.1", "/other/pods/a/b", "/registry/a.b"]
        {
            assert_eq!(keys.key_at(place.as_bytes()), None, "{place}");
        }
        assert_eq!(keys.key_at(b"/registry/pods/\xff"), None);
    }

    #[test]
    fn a_resource_is_one_span_and_no_two_have_the_same_place() {
        let keys = Keys::below("a/b");
        let span = keys.span_of("deployments.apps/default/").unwrap();
        assert_eq!((&*span.from, &*span.end), (&b"/a/b/deployments/default/"[..], &b"/a/b/deployments/default0"[..]));
        assert_eq!(keys.span_of("dep"), None);
        assert_eq!(LAYOUT.places.len(), LAYOUT.resources.len());
    }
}
