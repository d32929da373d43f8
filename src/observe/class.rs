//! What a request is about, in words of closed sets: no label of a metric ever grows with what clients ask for.

use http::Method;

/// Verb and resource of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestClass {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `connect` or `other`.
    pub verb: &'static str,
    /// Of [`RESOURCES`], `custom` (a kind that is none of Kubernetes' own), `discovery`, `health` or `other`.
    pub resource: &'static str,
}

/// Kubernetes' own kinds, as `kubectl api-resources -o name` prints them.
pub const RESOURCES: &[&str] = &[
    "apiservices.apiregistration.k8s.io",
    "bindings",
    "certificatesigningrequests.certificates.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "clustertrustbundles.certificates.k8s.io",
    "componentstatuses",
    "configmaps",
    "controllerrevisions.apps",
    "cronjobs.batch",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "daemonsets.apps",
    "deployments.apps",
    "deviceclasses.resource.k8s.io",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "events",
    "events.events.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "horizontalpodautoscalers.autoscaling",
    "ingressclasses.networking.k8s.io",
    "ingresses.networking.k8s.io",
    "ipaddresses.networking.k8s.io",
    "jobs.batch",
    "leases.coordination.k8s.io",
    "limitranges",
    "localsubjectaccessreviews.authorization.k8s.io",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "namespaces",
    "networkpolicies.networking.k8s.io",
    "nodes",
    "nodes.metrics.k8s.io",
    "persistentvolumeclaims",
    "persistentvolumes",
    "poddisruptionbudgets.policy",
    "pods",
    "pods.metrics.k8s.io",
    "podtemplates",
    "priorityclasses.scheduling.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    "replicasets.apps",
    "replicationcontrollers",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourcequotas",
    "resourceslices.resource.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "runtimeclasses.node.k8s.io",
    "secrets",
    "selfsubjectaccessreviews.authorization.k8s.io",
    "selfsubjectreviews.authentication.k8s.io",
    "selfsubjectrulesreviews.authorization.k8s.io",
    "serviceaccounts",
    "servicecidrs.networking.k8s.io",
    "services",
    "statefulsets.apps",
    "storageclasses.storage.k8s.io",
    "subjectaccessreviews.authorization.k8s.io",
    "tokenreviews.authentication.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
];

/// Subresources that are streams, or another program behind the API server.
const CONNECTED: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

/// The class of a group's resource.
pub fn resource_class(group: &str, resource: &str) -> &'static str {
    let order = |known: &&'static str| {
        // `resource.group` without making it.
        let (name, of) = known.split_once('.').unwrap_or((known, ""));
        (name, of).cmp(&(resource, group))
    };
    // Sorted by the whole name, which is not the order of pairs: a dot sorts before letters, so that it is.
    match RESOURCES.binary_search_by(order) {
        Ok(at) => RESOURCES.get(at).copied().unwrap_or("other"),
        // Kubernetes' own groups of later versions.
        Err(_) if group.is_empty() || !group.contains('.') || group.ends_with(".k8s.io") => "other",
        Err(_) => "custom",
    }
}

impl RequestClass {
    /// Reads it off a request. `path` is that of a kube-apiserver: without the view that it came through.
    pub fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let group = match parts.next() {
            Some("api") => match parts.next() {
                Some(_) => "",
                None => return Self { verb: plain(method), resource: "discovery" },
            },
            Some("apis") => match (parts.next(), parts.next()) {
                (Some(group), Some(_)) => group,
                _ => return Self { verb: plain(method), resource: "discovery" },
            },
            Some("openapi" | "version") => return Self { verb: plain(method), resource: "discovery" },
            Some("healthz" | "livez" | "readyz") => return Self { verb: plain(method), resource: "health" },
            _ => return Self { verb: plain(method), resource: "other" },
        };
        let mut first = parts.next();
        let legacy_watch = first == Some("watch");
        if legacy_watch {
            first = parts.next();
        }
        let Some(first) = first else { return Self { verb: plain(method), resource: "discovery" } };
        let (mut name, mut rest) = (parts.next(), parts.next());
        let mut resource = first;
        // `namespaces/x/status` is about the namespace.
        if let ("namespaces", Some(_), Some(inner)) = (first, name, rest)
            && !matches!(inner, "status" | "finalize")
        {
            resource = inner;
            (name, rest) = (parts.next(), parts.next());
        }
        let watches = legacy_watch || asks_to_watch(query);
        let verb = match *method {
            _ if rest.is_some_and(|subresource| CONNECTED.contains(&subresource)) => "connect",
            Method::GET | Method::HEAD if watches => "watch",
            Method::GET | Method::HEAD if name.is_none() => "list",
            Method::DELETE if name.is_none() => "deletecollection",
            _ => plain(method),
        };
        Self { verb, resource: resource_class(group, resource) }
    }
}

fn plain(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

fn asks_to_watch(query: Option<&str>) -> bool {
    let pairs = query.unwrap_or_default().split('&');
    let mut values = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    values.any(|(key, value)| key == "watch" && !matches!(value, "0" | "false" | "False" | "FALSE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_kind_is_found_and_others_are_few() {
        for known in RESOURCES {
            let (resource, group) = known.split_once('.').unwrap_or((known, ""));
            assert_eq!(resource_class(group, resource), *known);
        }
        assert_eq!(resource_class("example.com", "widgets"), "custom");
        assert_eq!(resource_class("future.k8s.io", "things"), "other");
        assert_eq!(resource_class("", "web-0"), "other");
        assert_eq!(resource_class("apps", "pods"), "other");
    }

    #[test]
    fn requests_are_told_by_verb_and_resource() {
        let cases = [
            ("GET", "/api/v1/namespaces/a/pods/b", None, "get pods"),
            ("GET", "/api/v1/pods", Some("limit=5"), "list pods"),
            ("GET", "/api/v1/pods", Some("limit=5&watch=true"), "watch pods"),
            ("GET", "/api/v1/watch/namespaces/a/pods", None, "watch pods"),
            ("GET", "/api/v1/namespaces", None, "list namespaces"),
            ("GET", "/api/v1/namespaces/a", None, "get namespaces"),
            ("PUT", "/api/v1/namespaces/a/finalize", None, "update namespaces"),
            ("POST", "/apis/apps/v1/namespaces/a/deployments", None, "create deployments.apps"),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/scale", None, "patch deployments.apps"),
            ("DELETE", "/apis/example.com/v1/widgets", None, "deletecollection custom"),
            ("DELETE", "/apis/example.com/v1/widgets/secret-name", None, "delete custom"),
            ("POST", "/api/v1/namespaces/a/pods/b/exec", None, "connect pods"),
            ("GET", "/api/v1/namespaces/a/pods/b/log", Some("follow=true"), "get pods"),
            ("GET", "/apis", None, "get discovery"),
            ("GET", "/api/v1", None, "get discovery"),
            ("GET", "/openapi/v3/apis/apps/v1", None, "get discovery"),
            ("GET", "/readyz", None, "get health"),
            ("GET", "/secret-name", None, "get other"),
            ("TRACE", "/api/v1/pods/x", None, "other pods"),
        ];
        for (method, path, query, class) in cases {
            let RequestClass { verb, resource } = RequestClass::of(&method.parse().unwrap(), path, query);
            assert_eq!(format!("{verb} {resource}"), class, "{method} {path}");
        }
    }
}
