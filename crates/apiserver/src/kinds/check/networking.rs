//! Ingresses, network policies, endpoint slices.
//!
//! Source: kubernetes `pkg/apis/{networking,discovery}/validation/validation.go`.

use serde_json::Value;

use super::{
    Errors, Path, address,
    metadata::{self, immutable},
    pod, selector,
    words::PORT,
};
use crate::kinds::doc::Doc;
use kubefold_wire::names::{
    NameRule, dns_label, dns_subdomain, path_segment, port_name, qualified_name, wildcard_subdomain,
};

const CLASS: &str = "kubernetes.io/ingress.class";

pub(in crate::kinds) fn ingress(object: &Value, errors: &mut Errors) {
    ingress_spec(object, errors);
    let annotated = object.at("metadata.annotations").and_then(|all| all.get(CLASS)).and_then(Value::as_str);
    let class = object.at("spec.ingressClassName").and_then(Value::as_str);
    if let (Some(annotated), Some(class)) = (annotated, class)
        && annotated != class
    {
        let why = "must match `ingressClassName` when both are specified";
        errors.invalid(&Path::new("annotations").child(CLASS), annotated, why);
    }
}

fn ingress_spec(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let at = Path::new("spec");
    let rules = spec.items("rules");
    if rules.is_empty() && !spec.has("defaultBackend") {
        errors.invalid(&at, Value::Null, "either `defaultBackend` or `rules` must be specified");
    }
    if let Some(backend) = spec.at("defaultBackend") {
        check_backend(backend, &at.child("defaultBackend"), errors);
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = at.child("rules").index(index);
        host(rule.text("host"), &at.child("host"), true, errors);
        let Some(http) = rule.at("http") else { continue };
        let at = at.child("http.paths");
        if http.items("paths").is_empty() {
            errors.required(&at, "");
        }
        for (index, path) in http.items("paths").iter().enumerate() {
            check_path(path, &at.index(index), errors);
        }
    }
    for (index, tls) in spec.items("tls").iter().enumerate() {
        let at = at.child("tls").index(index);
        for (index, name) in tls.items("hosts").iter().filter_map(Value::as_str).enumerate() {
            let at = at.child("hosts").index(index);
            let wrong = if name.contains('*') { wildcard_subdomain(name) } else { dns_subdomain(name) };
            errors.all_invalid(&at, name, &wrong);
        }
        let secret = tls.text("secretName");
        if !secret.is_empty() {
            errors.all_invalid(&at.child("secretName"), secret, &dns_subdomain(secret));
        }
    }
    if let Some(class) = spec.at("ingressClassName").and_then(Value::as_str) {
        errors.all_invalid(&at.child("ingressClassName"), class, &dns_subdomain(class));
    }
}

fn host(name: &str, at: &Path, not_address: bool, errors: &mut Errors) {
    if name.is_empty() {
        return;
    }
    if not_address && name.parse::<std::net::IpAddr>().is_ok() {
        errors.invalid(at, name, "must be a DNS name, not an IP address");
    }
    let wrong = if name.contains('*') { wildcard_subdomain(name) } else { dns_subdomain(name) };
    errors.all_invalid(at, name, &wrong);
}

fn check_path(path: &Value, at: &Path, errors: &mut Errors) {
    let there = at.child("path");
    let given = path.text("path");
    match path.at("pathType").and_then(Value::as_str) {
        None => return errors.required(&at.child("pathType"), "pathType must be specified"),
        Some("Exact" | "Prefix") => {
            if !given.starts_with('/') {
                errors.invalid(&there, given, "must be an absolute path");
            }
            for odd in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|odd| given.contains(odd)) {
                errors.invalid(&there, given, &format!("must not contain '{odd}'"));
            }
            for odd in ["/..", "/."].into_iter().filter(|odd| given.ends_with(odd)) {
                errors.invalid(&there, given, &format!("cannot end with '{odd}'"));
            }
        }
        Some("ImplementationSpecific") => {
            if !given.is_empty() && !given.starts_with('/') {
                errors.invalid(&there, given, "must be an absolute path");
            }
        }
        Some(other) => {
            errors.unsupported(&at.child("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]);
        }
    }
    check_backend(path.get("backend").unwrap_or(&Value::Null), &at.child("backend"), errors);
}

fn check_backend(backend: &Value, at: &Path, errors: &mut Errors) {
    match (backend.at("resource"), backend.at("service")) {
        (Some(_), Some(_)) => errors.invalid(at, "", "cannot set both resource and service backends"),
        (Some(resource), None) => reference(resource, &at.child("resource"), errors),
        (None, Some(service)) => {
            let at_service = at.child("service");
            match service.text("name") {
                "" => errors.required(&at_service.child("name"), ""),
                name => errors.all_invalid(&at_service.child("name"), name, &dns_label(name)),
            }
            match (service.text("port.name"), service.number("port.number").unwrap_or(0)) {
                ("", 0) => errors.required(at, "port name or number is required"),
                ("", number) if (1..=65535).contains(&number) => {}
                ("", number) => errors.invalid(&at_service.child("port.number"), number, PORT),
                (name, 0) => errors.all_invalid(&at_service.child("port.name"), name, &port_name(name)),
                _ => errors.invalid(at, "", "cannot set both port name & port number"),
            }
        }
        (None, None) => errors.invalid(at, "", "resource or service backend is required"),
    }
}

/// Another object by group, kind and name.
fn reference(reference: &Value, at: &Path, errors: &mut Errors) {
    if let Some(group) = reference.at("apiGroup").and_then(Value::as_str) {
        errors.all_invalid(&at.child("apiGroup"), group, &dns_subdomain(group));
    }
    for field in ["kind", "name"] {
        match reference.text(field) {
            "" => errors.required(&at.child(field), ""),
            given => errors.all_invalid(&at.child(field), given, &path_segment(given)),
        }
    }
}

pub(in crate::kinds) fn ingress_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    metadata::check(new, true, NameRule::Subdomain, errors);
    ingress_spec(new, errors);
}

pub(in crate::kinds) fn ingress_class(object: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    let controller = object.text("spec.controller");
    let there = at.child("controller");
    if controller.len() > 250 {
        errors.too_long(&there, 250);
    }
    match controller.split_once('/') {
        _ if controller.is_empty() => errors.required(&there, ""),
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            errors.all_invalid(&there, domain, &dns_subdomain(domain));
        }
        _ => errors.invalid(&there, controller, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    let Some(parameters) = object.at("spec.parameters") else { return };
    let at = at.child("parameters");
    reference(parameters, &at, errors);
    let namespace = parameters.at("namespace").and_then(Value::as_str);
    match (parameters.text("scope"), namespace) {
        ("Namespace", None) => errors.required(&at.child("namespace"), "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", Some(name)) => errors.all_invalid(&at.child("namespace"), name, &dns_label(name)),
        ("Cluster", Some(_)) => errors.forbidden(&at.child("namespace"), "`parameters.scope` is set to 'Cluster'"),
        ("Cluster", None) => {}
        (other, _) => errors.unsupported(&at.child("scope"), other, &["Cluster", "Namespace"]),
    }
}

pub(in crate::kinds) fn ingress_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    immutable(new, old, "spec.controller", errors);
    metadata::check(new, false, NameRule::Subdomain, errors);
    ingress_class(new, errors);
}

pub(in crate::kinds) fn policy(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let at = Path::new("spec");
    selector::check(spec.at("podSelector"), &at.child("podSelector"), errors);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in spec.items(list).iter().enumerate() {
            let at = at.child(list).index(index);
            for (index, port) in rule.items("ports").iter().enumerate() {
                policy_port(port, &at.child("ports").index(index), errors);
            }
            for (index, peer) in rule.items(peers).iter().enumerate() {
                policy_peer(peer, &at.child(peers).index(index), errors);
            }
        }
    }
    let types = spec.items("policyTypes");
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        return errors.invalid(&at.child("policyTypes"), types.to_vec(), why);
    }
    for (index, of) in types.iter().filter_map(Value::as_str).enumerate() {
        if !matches!(of, "Ingress" | "Egress") {
            errors.unsupported(&at.child("policyTypes").index(index), of, &["Ingress", "Egress"]);
        }
    }
}

fn policy_port(port: &Value, at: &Path, errors: &mut Errors) {
    let protocol = port.text("protocol");
    if !matches!(protocol, "" | "TCP" | "UDP" | "SCTP") {
        errors.unsupported(&at.child("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let end = port.number("endPort");
    let at_end = at.child("endPort");
    let in_range = |number: i64| (1..=65535).contains(&number);
    match (port.at("port"), end) {
        (Some(Value::String(name)), end) => {
            if let Some(end) = end {
                errors.invalid(&at_end, end, "may not be specified when `port` is non-numeric");
            }
            errors.all_invalid(&at.child("port"), name, &port_name(name));
        }
        (Some(number), end) => {
            let number = number.as_i64().unwrap_or(0);
            if !in_range(number) {
                errors.invalid(&at.child("port"), number, PORT);
            }
            if let Some(end) = end {
                if end < number {
                    errors.invalid(&at_end, number, "must be greater than or equal to `port`");
                }
                if !in_range(end) {
                    errors.invalid(&at_end, end, PORT);
                }
            }
        }
        (None, Some(end)) => errors.invalid(&at_end, end, "may not be specified when `port` is not specified"),
        (None, None) => {}
    }
}

fn policy_peer(peer: &Value, at: &Path, errors: &mut Errors) {
    let mut peers = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(given) = peer.at(field) {
            peers += 1;
            selector::check(Some(given), &at.child(field), errors);
        }
    }
    if let Some(block) = peer.at("ipBlock") {
        peers += 1;
        ip_block(block, &at.child("ipBlock"), errors);
        if peers > 1 {
            errors.forbidden(at, "may not specify both ipBlock and another peer");
        }
    }
    if peers == 0 {
        errors.required(at, "must specify a peer");
    }
}

fn ip_block(block: &Value, at: &Path, errors: &mut Errors) {
    let whole = block.text("cidr");
    if whole.is_empty() {
        return errors.required(&at.child("cidr"), "");
    }
    address::check_range(whole, &at.child("cidr"), errors);
    let Some(outer) = address::range(whole) else { return };
    for (index, except) in block.items("except").iter().filter_map(Value::as_str).enumerate() {
        let at = at.child("except").index(index);
        address::check_range(except, &at, errors);
        if address::range(except).is_some_and(|inner| !address::is_part(inner, outer)) {
            errors.invalid(&at, except, "must be a strict subset of `cidr`");
        }
    }
}

pub(in crate::kinds) fn policy_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    policy(new, errors);
}

pub(in crate::kinds) fn slice(object: &Value, errors: &mut Errors) {
    let of = object.text("addressType");
    match of {
        "" => errors.required(&Path::new("addressType"), ""),
        "IPv4" | "IPv6" | "FQDN" => {}
        other => errors.unsupported(&Path::new("addressType"), other, &["FQDN", "IPv4", "IPv6"]),
    }
    slice_ports(object, errors);
    let endpoints = object.items("endpoints");
    if endpoints.len() > 1000 {
        return errors.too_many(&Path::new("endpoints"), endpoints.len(), 1000);
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let at = Path::new("endpoints").index(index);
        let addresses = endpoint.items("addresses");
        let there = at.child("addresses");
        match addresses.len() {
            0 => errors.required(&there, "must contain at least 1 address"),
            1..=100 => {}
            many => errors.too_many(&there, many, 100),
        }
        for (index, given) in addresses.iter().filter_map(Value::as_str).enumerate() {
            slice_address(given, of, &there, index, errors);
        }
        if let Some(node) = endpoint.at("nodeName").and_then(Value::as_str) {
            errors.all_invalid(&at.child("nodeName"), node, &dns_subdomain(node));
        }
        if let Some(host) = endpoint.at("hostname").and_then(Value::as_str) {
            errors.all_invalid(&at.child("hostname"), host, &dns_label(host));
        }
    }
}

fn slice_address(given: &str, of: &str, at: &Path, index: usize, errors: &mut Errors) {
    let there = at.index(index);
    match (of, given.parse::<std::net::IpAddr>()) {
        ("IPv4" | "IPv6", Err(_)) => address::check(given, &there, errors),
        ("IPv4" | "IPv6", Ok(parsed)) => {
            if parsed.is_ipv4() != (of == "IPv4") {
                errors.invalid(at, given, &format!("must be an {of} address"));
            }
            address::check_endpoint(given, &there, errors);
        }
        _ => {}
    }
}

fn slice_ports(object: &Value, errors: &mut Errors) {
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in object.items("ports").iter().enumerate() {
        let at = Path::new("ports").index(index);
        let name = port.text("name");
        if !name.is_empty() {
            errors.all_invalid(&at.child("name"), name, &dns_label(name));
        }
        if names.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        }
        names.push(name);
        pod::one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
        if let Some(protocol) = port.at("appProtocol").and_then(Value::as_str) {
            errors.all_invalid(&at.child("appProtocol"), protocol, &qualified_name(protocol));
        }
    }
}

pub(in crate::kinds) fn slice_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check(new, true, NameRule::Subdomain, errors);
    slice(new, errors);
    immutable(new, old, "addressType", errors);
}
