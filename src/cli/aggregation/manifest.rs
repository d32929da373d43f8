//! The objects of the manifest: values in, YAML out.

use std::{collections::BTreeMap, net::IpAddr, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::config::{GroupVersion, ServiceRef};
use kubefold_wire::names::is_dns_subdomain;

/// Where kubefold's Service listens, and where one in the host is taken to.
const HTTPS: u16 = 443;
/// Behind Kubernetes' own groups and custom resources.
///
/// Source: kubernetes/kubernetes `pkg/controlplane/apiserver/aggregator.go`, `DefaultGenericAPIServicePriorities`.
const GROUP_PRIORITY: u32 = 1000;
const VERSION_PRIORITY: u32 = 15;
/// By which an EndpointSlice says whose it is, and Endpoints that no slice is to be made of them.
///
/// Source: kubernetes/kubernetes `staging/src/k8s.io/api/discovery/v1/well_known_labels.go`.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const RBAC: &str = "rbac.authorization.k8s.io";
const ACCOUNT: &str = "system:serviceaccount:";

/// Where the host's API server reaches kubefold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
}

/// A text that is no address.
#[derive(Debug, thiserror::Error)]
#[error("write a name or an IP address, and a port, like kubefold.example.com:6443")]
pub(super) struct NoAddress;

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(NoAddress)?;
        let port = port.parse().map_err(|_| NoAddress)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let fits = host.parse::<IpAddr>().is_ok() || is_dns_subdomain(&host);
        if fits && port > 0 { Ok(Self { host, port }) } else { Err(NoAddress) }
    }
}

/// What the objects are made of.
pub(super) struct Manifest<'a> {
    /// The Service that APIServices name.
    pub(super) service: &'a ServiceRef,
    /// Where it leads; absent where it exists already.
    pub(super) address: Option<&'a Address>,
    /// What is registered.
    pub(super) groups: &'a [GroupVersion],
    /// The authority of kubefold's serving certificate (PEM).
    pub(super) authority: &'a str,
    /// Who kubefold is in the host.
    pub(super) user: &'a str,
}

impl Manifest<'_> {
    /// Documents of YAML, in the order in which they can be made.
    pub(super) fn text(&self) -> Result<String, serde_saphyr::ser::Error> {
        let services = self.address.map(|address| self.service(address)).unwrap_or_default();
        let all =
            services.into_iter().chain(self.rbac()).chain(self.groups.iter().map(|group| self.api_service(group)));
        let texts: Result<Vec<String>, _> = all.map(|object| serde_saphyr::to_string(&object)).collect();
        Ok(texts?.join("---\n"))
    }

    /// A Service for a name is a name for it. One for an address has an EndpointSlice, for which aggregators look since Kubernetes
    /// 1.33, and Endpoints, for which those before do. The latter are not to be mirrored: the slice is there already.
    fn service(&self, address: &Address) -> Vec<Value> {
        let ServiceRef { namespace, name } = self.service;
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels()});
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels()},
        });
        let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        let Address { host, port } = address;
        let Ok(ip) = host.parse::<IpAddr>() else {
            return vec![namespace, service(json!({"type": "ExternalName", "externalName": host}))];
        };
        let ports = json!([{"name": "https", "port": HTTPS, "targetPort": port}]);
        let subsets = json!([{"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port}]}]);
        let labelled = |key: &str, value: &str| {
            let mut metadata = metadata.clone();
            metadata["labels"][key] = value.into();
            metadata
        };
        let endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": labelled(SKIP_MIRROR, "true"), "subsets": subsets,
        });
        let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": labelled(SERVICE_NAME, name),
            "addressType": family, "endpoints": [{"addresses": [host], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        });
        vec![namespace, service(json!({"ports": ports})), endpoints, slice]
    }

    /// What kubefold has to be allowed: to ask whose a token is and what somebody may do, and to read whose requests count.
    fn rbac(&self) -> Vec<Value> {
        let subject = match self.user.strip_prefix(ACCOUNT).and_then(|account| account.split_once(':')) {
            Some((namespace, name)) => json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}),
            None => json!({"apiGroup": RBAC, "kind": "User", "name": self.user}),
        };
        let binding = |kind: &str, metadata: Value, role_kind: &str, role: &str| {
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": role}, "subjects": [subject],
            })
        };
        let delegator = json!({"name": "kubefold:auth-delegator", "labels": labels()});
        let reader = json!({
            "name": "kubefold:extension-apiserver-authentication-reader", "namespace": "kube-system", "labels": labels(),
        });
        vec![
            binding("ClusterRoleBinding", delegator, "ClusterRole", "system:auth-delegator"),
            binding("RoleBinding", reader, "Role", "extension-apiserver-authentication-reader"),
        ]
    }

    fn api_service(&self, group: &GroupVersion) -> Value {
        let ServiceRef { namespace, name } = self.service;
        let GroupVersion { group, version } = group;
        // A name is dialled at the port that the APIService says, and a Service at the one that it maps.
        let of_name = self.address.filter(|address| address.host.parse::<IpAddr>().is_err());
        let port = of_name.map_or(HTTPS, |address| address.port);
        json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}"), "labels": labels()},
            "spec": {
                "group": group,
                "version": version,
                "service": {"namespace": namespace, "name": name, "port": port},
                "caBundle": STANDARD.encode(self.authority),
                "groupPriorityMinimum": GROUP_PRIORITY,
                "versionPriority": VERSION_PRIORITY,
            },
        })
    }
}

fn labels() -> Value {
    json!({"app.kubernetes.io/managed-by": "kubefold"})
}

/// A group that the host serves from elsewhere, with the names of its APIServices: built-in groups and those of CRDs have one
/// without a Service, those of other API servers one with theirs.
pub(super) fn served_by_host(
    registered: &[Value],
    wanted: &[GroupVersion],
    own: &ServiceRef,
) -> Option<(String, Vec<String>)> {
    let mut elsewhere: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for api_service in registered {
        let (spec, name) = (&api_service["spec"], api_service["metadata"]["name"].as_str().unwrap_or_default());
        let service = &spec["service"];
        let is_own = service["namespace"] == own.namespace.as_str() && service["name"] == own.name.as_str();
        if !is_own {
            elsewhere.entry(spec["group"].as_str().unwrap_or_default()).or_default().push(name.to_owned());
        }
    }
    let taken = wanted.iter().find(|group| elsewhere.contains_key(group.group.as_str()))?;
    Some((taken.group.clone(), elsewhere.remove(taken.group.as_str())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> GroupVersion {
        GroupVersion::parse(text).unwrap()
    }

    fn documents(address: Option<&str>, user: &str) -> Vec<Value> {
        let service = ServiceRef { namespace: "kubefold".into(), name: "fold".into() };
        let address = address.map(|address| address.parse::<Address>().unwrap());
        let groups = [group("kubefold.io/v1alpha1"), group("apps.example.com/v1")];
        let manifest =
            Manifest { service: &service, address: address.as_ref(), groups: &groups, authority: "PEM\n", user };
        let text = manifest.text().unwrap();
        text.split("---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
    }

    fn kinds(documents: &[Value]) -> Vec<&str> {
        documents.iter().map(|one| one["kind"].as_str().unwrap()).collect()
    }

    #[test]
    fn an_address_is_a_name_of_a_service_or_its_endpoints() {
        let bindings = ["ClusterRoleBinding", "RoleBinding", "APIService", "APIService"];
        let named = documents(Some("fleet.example.com:6443"), "jane");
        assert_eq!(kinds(&named), [&["Namespace", "Service"][..], &bindings].concat());
        assert_eq!(named[1]["spec"], json!({"type": "ExternalName", "externalName": "fleet.example.com"}));
        assert_eq!(named[4]["spec"]["service"], json!({"namespace": "kubefold", "name": "fold", "port": 6443}));
        let at = documents(Some("[fd00::7]:6443"), "jane");
        assert_eq!(kinds(&at), [&["Namespace", "Service", "Endpoints", "EndpointSlice"][..], &bindings].concat());
        assert_eq!(at[2]["subsets"][0]["addresses"], json!([{"ip": "fd00::7"}]));
        assert_eq!(at[2]["subsets"][0]["ports"][0]["port"], 6443);
        assert_eq!(at[3]["metadata"]["labels"][SERVICE_NAME], "fold");
        assert_eq!((&at[3]["addressType"], &at[3]["ports"][0]["port"]), (&json!("IPv6"), &json!(6443)));
        assert_eq!(at[6]["spec"]["service"]["port"], 443);
        let there = documents(None, "jane");
        assert_eq!(kinds(&there), bindings);
        assert_eq!(there[2]["spec"]["caBundle"], "UEVNCg==");
        assert_eq!(there[3]["metadata"]["name"], "v1.apps.example.com");
        for refused in ["", "fleet.example.com", "fleet.example.com:x", "a_b:1", "fleet.example.com:0", ":6443"] {
            assert!(refused.parse::<Address>().is_err(), "{refused}");
        }
    }

    #[test]
    fn kubefold_is_a_user_or_a_service_account() {
        let subject = |user: &str| documents(None, user)[0]["subjects"][0].clone();
        assert_eq!(subject("jane"), json!({"apiGroup": RBAC, "kind": "User", "name": "jane"}));
        let account = json!({"kind": "ServiceAccount", "namespace": "kubefold", "name": "fold"});
        assert_eq!(subject("system:serviceaccount:kubefold:fold"), account);
    }

    #[test]
    fn a_group_that_the_host_serves_is_not_registered() {
        let own = ServiceRef { namespace: "kubefold".into(), name: "fold".into() };
        let service = |group: &str, version: &str, service: Value| {
            let metadata = json!({"name": format!("{version}.{group}")});
            json!({"metadata": metadata, "spec": {"group": group, "version": version, "service": service}})
        };
        let registered = [
            service("", "v1", Value::Null),
            service("apps", "v1", Value::Null),
            service("crd.example.com", "v1", Value::Null),
            service("crd.example.com", "v2", Value::Null),
            service("other.example.com", "v1", json!({"namespace": "kubefold", "name": "other"})),
            service("kubefold.io", "v1alpha1", json!({"namespace": "kubefold", "name": "fold", "port": 443})),
        ];
        let taken = |wanted: &str| served_by_host(&registered, &[group("kubefold.io/v1alpha1"), group(wanted)], &own);
        assert_eq!(taken("free.example.com/v1"), None);
        assert_eq!(taken("apps/v1").unwrap().1, ["v1.apps"]);
        // Another version of a group that it has is of the same group.
        assert_eq!(taken("crd.example.com/v3").unwrap().1, ["v1.crd.example.com", "v2.crd.example.com"]);
        assert_eq!(taken("other.example.com/v1").unwrap().0, "other.example.com");
    }
}
