//! Services, what stands behind them and before them.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Error;

use crate::{
    cells::Cells,
    kinds::{Annotated, Print, joined, with_more},
    object::{Count, List, Map, Object, Text},
    selector::{Selector, labels, selector},
};

pub(super) fn of(group: &str, kind: &str) -> Option<Print> {
    Some(match (group, kind) {
        ("", "Endpoints") => endpoints,
        ("", "Service") => service,
        ("discovery.k8s.io", "EndpointSlice") => endpoint_slice,
        ("networking.k8s.io", "IPAddress") => ip_address,
        ("networking.k8s.io", "Ingress") => ingress,
        ("networking.k8s.io", "IngressClass") => ingress_class,
        ("networking.k8s.io", "NetworkPolicy") => network_policy,
        ("networking.k8s.io", "ServiceCIDR") => service_cidr,
        _ => return None,
    })
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Service<'a> {
    spec: ServiceSpec<'a>,
    status: Balanced<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ServiceSpec<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Text<'a>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: List<Text<'a>>,
    #[serde(rename = "externalIPs")]
    external_ips: List<Text<'a>>,
    external_name: Text<'a>,
    ports: List<ServicePort<'a>>,
    selector: Map<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ServicePort<'a> {
    port: i64,
    node_port: i64,
    protocol: Text<'a>,
}

/// The status of what a load balancer stands before.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Balanced<'a> {
    load_balancer: LoadBalancer<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct LoadBalancer<'a> {
    ingress: List<Way<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Way<'a> {
    ip: Text<'a>,
    hostname: Text<'a>,
}

impl LoadBalancer<'_> {
    /// Each address once, sorted.
    fn addresses(&self) -> String {
        let ways: BTreeSet<&str> = self.ingress.iter().map(|way| way.ip.or(way.hostname.as_str())).collect();
        joined(ways.into_iter().filter(|way| !way.is_empty()), ",")
    }
}

/// `printService`
fn service(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Service { spec, status } = object.read()?;
    cells.name();
    cells.text(spec.type_.as_str());
    cells.text(spec.cluster_ips.first().map_or_else(|| spec.cluster_ip.or("<none>"), Text::as_str));
    let own = joined(spec.external_ips.iter().map(Text::as_str), ",");
    match (spec.type_.as_str(), status.load_balancer.addresses().as_str()) {
        ("ClusterIP" | "NodePort", _) if own.is_empty() => cells.text("<none>"),
        ("ClusterIP" | "NodePort", _) => cells.text(&own),
        ("LoadBalancer", "") if own.is_empty() => cells.text("<pending>"),
        ("LoadBalancer", "") => cells.text(&own),
        ("LoadBalancer", balanced) if own.is_empty() => cells.text(balanced),
        ("LoadBalancer", balanced) => cells.print(format_args!("{balanced},{own}")),
        ("ExternalName", _) => cells.text(spec.external_name.as_str()),
        _ => cells.text("<unknown>"),
    }
    let port = |port: &ServicePort<'_>| match port {
        ServicePort { port, node_port, protocol } if *node_port > 0 => format!("{port}:{node_port}/{}", protocol.0),
        ServicePort { port, protocol, .. } => format!("{port}/{}", protocol.0),
    };
    let ports: Vec<String> = spec.ports.iter().map(port).collect();
    cells.text(if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }.as_str());
    cells.age();
    cells.text(&labels(&spec.selector));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Endpoints<'a> {
    subsets: List<Subset<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Subset<'a> {
    addresses: List<Way<'a>>,
    ports: List<Port>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Port {
    port: i64,
}

/// `printEndpoints`
fn endpoints(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    const SHOWN_MAX: usize = 3;
    let Endpoints { subsets } = object.read()?;
    let mut all: Vec<String> = Vec::new();
    for subset in subsets.iter() {
        let ips = || subset.addresses.iter().map(|address| address.ip.as_str());
        if subset.ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in subset.ports.iter() {
            all.extend(ips().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{}", port.port),
                false => format!("{ip}:{}", port.port),
            }));
        }
    }
    cells.name();
    let shown = joined(all.iter().take(SHOWN_MAX).map(String::as_str), ",");
    match all.len() {
        _ if subsets.is_empty() => cells.text("<none>"),
        len if len > SHOWN_MAX => cells.print(format_args!("{shown} + {} more...", len - SHOWN_MAX)),
        _ => cells.text(&shown),
    }
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct EndpointSlice<'a> {
    address_type: Text<'a>,
    endpoints: List<Endpoint<'a>>,
    ports: List<SlicePort<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Endpoint<'a> {
    addresses: List<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct SlicePort<'a> {
    port: Option<i64>,
    name: Option<Text<'a>>,
}

/// `printEndpointSlice`
fn endpoint_slice(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let slice: EndpointSlice<'_> = object.read()?;
    let port = |port: &SlicePort<'_>| match (port.port, &port.name) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.0.to_string(),
        (None, None) => "*".to_owned(),
    };
    let ports: Vec<String> = slice.ports.iter().map(port).collect();
    let addresses = slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.iter());
    let addresses: Vec<String> = addresses.map(|address| address.0.to_string()).collect();
    cells.name();
    cells.text(slice.address_type.as_str());
    cells.text(&with_more(&ports));
    cells.text(&with_more(&addresses));
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Ingress<'a> {
    spec: IngressSpec<'a>,
    status: Balanced<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct IngressSpec<'a> {
    ingress_class_name: Option<Text<'a>>,
    rules: List<Rule<'a>>,
    tls: Count,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Rule<'a> {
    host: Text<'a>,
}

/// `printIngress`
fn ingress(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Ingress { spec, status } = object.read()?;
    cells.name();
    cells.text(spec.ingress_class_name.as_ref().map_or("<none>", Text::as_str));
    cells.text(&hosts(&spec.rules));
    cells.text(&status.load_balancer.addresses());
    cells.text(if spec.tls.0 > 0 { "80, 443" } else { "80" });
    cells.age();
    Ok(())
}

/// `formatHosts`: rules without a host take no place, and a rule behind the third host makes it "more".
fn hosts(rules: &[Rule<'_>]) -> String {
    const SHOWN_MAX: usize = 3;
    let (mut shown, mut more) = (Vec::new(), false);
    for rule in rules {
        more |= shown.len() == SHOWN_MAX;
        if !more && !rule.host.is_empty() {
            shown.push(rule.host.as_str());
        }
    }
    let list = shown.join(",");
    match () {
        () if shown.is_empty() => "*".to_owned(),
        () if more => format!("{list} + {} more...", rules.len() - SHOWN_MAX),
        () => list,
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct IngressClass<'a> {
    spec: IngressClassSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct IngressClassSpec<'a> {
    controller: Text<'a>,
    parameters: Option<Parameters<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Parameters<'a> {
    api_group: Option<Text<'a>>,
    kind: Text<'a>,
    name: Text<'a>,
}

/// `printIngressClass`
fn ingress_class(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let IngressClass { spec } = object.read()?;
    let metadata: Annotated<'_> = object.read_metadata()?;
    let is_default = metadata.annotations.get("ingressclass.kubernetes.io/is-default-class") == Some("true");
    cells.print(format_args!("{}{}", object.name(), if is_default { " (default)" } else { "" }));
    cells.text(spec.controller.as_str());
    match &spec.parameters {
        None => cells.text("<none>"),
        Some(Parameters { api_group: Some(group), kind, name }) => {
            cells.print(format_args!("{}.{}/{}", kind.0, group.0, name.0));
        }
        Some(Parameters { api_group: None, kind, name }) => cells.print(format_args!("{}/{}", kind.0, name.0)),
    }
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct NetworkPolicy<'a> {
    spec: NetworkPolicySpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct NetworkPolicySpec<'a> {
    pod_selector: Selector<'a>,
}

/// `printNetworkPolicy`
fn network_policy(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let NetworkPolicy { spec } = object.read()?;
    cells.name();
    cells.text(&selector(Some(&spec.pod_selector)));
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ServiceCidr<'a> {
    spec: ServiceCidrSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ServiceCidrSpec<'a> {
    cidrs: List<Text<'a>>,
}

/// `printServiceCIDR`
fn service_cidr(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let ServiceCidr { spec } = object.read()?;
    cells.name();
    cells.text(&joined(spec.cidrs.iter().map(Text::as_str), ","));
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct IpAddress<'a> {
    spec: IpAddressSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct IpAddressSpec<'a> {
    parent_ref: Option<ParentRef<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ParentRef<'a> {
    group: Text<'a>,
    resource: Text<'a>,
    namespace: Text<'a>,
    name: Text<'a>,
}

/// `printIPAddress`
fn ip_address(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let IpAddress { spec } = object.read()?;
    cells.name();
    match &spec.parent_ref {
        None => cells.text("<none>"),
        Some(ParentRef { group, resource, namespace, name }) => {
            let dot = if group.is_empty() { "" } else { "." };
            let resource = format!("{}{dot}{}", resource.0, group.0).to_lowercase();
            let slash = if namespace.is_empty() { "" } else { "/" };
            cells.print(format_args!("{resource}{slash}{}/{}", namespace.0, name.0));
        }
    }
    cells.age();
    Ok(())
}
