//! Which objects every cluster makes for itself, so that the fleet view shows one of each.

use crate::config::SharedRule;

/// Group, resource, namespace, name (a last `*` is a prefix); an empty namespace or name means any.
///
/// Each line is something that a kube-apiserver or kube-controller-manager makes in *every* cluster:
/// sources: kubernetes `pkg/registry/rbac/rest` and `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`,
/// `pkg/controlplane/reconcilers`, `pkg/controller/{serviceaccount,certificates/rootcacertpublisher}`,
/// `staging/src/k8s.io/apiserver/.../flowcontrol/bootstrap`, `pkg/apis/scheduling/helpers.go`.
const DEFAULTS: &[(&str, &str, &str, &str)] = &[
    ("", "namespaces", "", ""),
    ("apiextensions.k8s.io", "customresourcedefinitions", "", ""),
    ("apiregistration.k8s.io", "apiservices", "", ""),
    ("", "serviceaccounts", "", "default"),
    ("", "configmaps", "", "kube-root-ca.crt"),
    // The API server publishes itself here. Only in `default`: elsewhere `kubernetes` is anybody's name.
    ("", "services", "default", "kubernetes"),
    ("", "endpoints", "default", "kubernetes"),
    ("discovery.k8s.io", "endpointslices", "default", "kubernetes"),
    // Made of the server's own flags, as are the addresses of the service `kubernetes`.
    ("networking.k8s.io", "servicecidrs", "", "kubernetes"),
    ("rbac.authorization.k8s.io", "clusterroles", "", "system:*"),
    ("rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"),
    ("rbac.authorization.k8s.io", "clusterroles", "", "admin"),
    ("rbac.authorization.k8s.io", "clusterroles", "", "edit"),
    ("rbac.authorization.k8s.io", "clusterroles", "", "view"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "", "system:*"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "", "cluster-admin"),
    ("rbac.authorization.k8s.io", "roles", "kube-system", "system:*"),
    ("rbac.authorization.k8s.io", "roles", "kube-system", "extension-apiserver-authentication-reader"),
    ("rbac.authorization.k8s.io", "roles", "kube-public", "system:*"),
    ("rbac.authorization.k8s.io", "rolebindings", "kube-system", "system:*"),
    ("rbac.authorization.k8s.io", "rolebindings", "kube-public", "system:*"),
    ("scheduling.k8s.io", "priorityclasses", "", "system-*"),
    // Priority and fairness: kube-apiserver makes exactly these at start and repairs them; by name, because
    // an operator's own flow schemas have no reserved prefix.
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "system-*"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "exempt"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "probes"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "endpoint-controller"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "workload-leader-election"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "kube-controller-manager"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "kube-scheduler"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "kube-system-service-accounts"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "service-accounts"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "global-default"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "", "catch-all"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "exempt"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "system"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "node-high"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "leader-election"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "workload-high"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "workload-low"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "global-default"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "", "catch-all"),
];

/// The rules that hold where `clusters.yaml` gives none.
pub(super) fn defaults() -> Vec<SharedRule> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    DEFAULTS
        .iter()
        .map(|(group, resource, namespace, name)| SharedRule {
            group: (*group).to_owned(),
            resource: (*resource).to_owned(),
            namespace: given(namespace),
            name: given(name),
        })
        .collect()
}
