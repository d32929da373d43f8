//! Services.
//!
//! Source: kubernetes `pkg/apis/core/validation/validation.go` `validateService`.

use serde_json::Value;

use super::{Errors, Path, address, metadata, pod, words::PORT};
use crate::kinds::{
    doc::Doc,
    service::{is_exposed, is_headless, needs_health_check},
};
use kubefold_wire::names::{dns_label, dns_subdomain, qualified_name};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(in crate::kinds) fn check(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let at = Path::new("spec");
    let of = spec.text("type");
    let headless = is_headless(spec);
    let list = spec.items("ports");
    if list.is_empty() && !headless && of != "ExternalName" {
        errors.required(&at.child("ports"), "");
    }
    match of {
        "LoadBalancer" | "NodePort" if headless => {
            let why = format!("may not be set to 'None' for {of} services");
            errors.invalid(&at.child("clusterIPs").index(0), "None", &why);
        }
        "ExternalName" => external(spec, &at, errors),
        _ => {}
    }
    ports(list, &at.child("ports"), errors);
    metadata::labels(spec.at("selector"), &at.child("selector"), errors);
    affinity(spec, &at, errors);
    cluster_addresses(spec, &at, errors);
    for (index, given) in spec.items("externalIPs").iter().filter_map(Value::as_str).enumerate() {
        let at = at.child("externalIPs").index(index);
        if address::is_address(given) {
            address::check_endpoint(given, &at, errors);
        } else {
            address::check(given, &at, errors);
        }
    }
    match of {
        "" => errors.required(&at.child("type"), ""),
        of if TYPES.contains(&of) => {}
        of => errors.unsupported(&at.child("type"), of, &TYPES),
    }
    twice(list, of, &at.child("ports"), errors);
    balancer(spec, of, &at, errors);
    policies(spec, of, &at, errors);
}

fn external(spec: &Value, at: &Path, errors: &mut Errors) {
    for field in ["clusterIPs", "ipFamilies"].into_iter().filter(|field| !spec.items(field).is_empty()) {
        errors.forbidden(&at.child(field), "may not be set for ExternalName services");
    }
    if spec.has("ipFamilyPolicy") {
        errors.forbidden(&at.child("ipFamilyPolicy"), "may not be set for ExternalName services");
    }
    let name = spec.text("externalName");
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.required(&at.child("externalName"), ""),
        name => errors.all_invalid(&at.child("externalName"), name, &dns_subdomain(name)),
    }
}

fn ports(list: &[Value], at: &Path, errors: &mut Errors) {
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in list.iter().enumerate() {
        let at = at.index(index);
        match port.text("name") {
            "" if list.len() > 1 => errors.required(&at.child("name"), ""),
            "" => {}
            name => {
                errors.all_invalid(&at.child("name"), name, &dns_label(name));
                if names.contains(&name) {
                    errors.duplicate(&at.child("name"), name);
                }
                names.push(name);
            }
        }
        let number = port.number("port").unwrap_or(0);
        if !(1..=65535).contains(&number) {
            errors.invalid(&at.child("port"), number, PORT);
        }
        pod::one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
        pod::port(port.at("targetPort"), &at.child("targetPort"), errors);
        if let Some(protocol) = port.at("appProtocol").and_then(Value::as_str) {
            errors.all_invalid(&at.child("appProtocol"), protocol, &qualified_name(protocol));
        }
    }
}

fn twice(list: &[Value], of: &str, at: &Path, errors: &mut Errors) {
    let node = |port: &Value| port.number("nodePort").filter(|port| *port != 0);
    if of == "ClusterIP" {
        for (index, _) in list.iter().enumerate().filter(|(_, port)| node(port).is_some()) {
            errors.forbidden(&at.index(index).child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let earlier = |index: usize| list.get(..index).into_iter().flatten();
    for (index, port) in list.iter().enumerate() {
        let Some(number) = node(port) else { continue };
        let same = |other: &Value| node(other) == Some(number) && other.text("protocol") == port.text("protocol");
        if earlier(index).any(same) {
            errors.duplicate(&at.index(index).child("nodePort"), number);
        }
    }
    for (index, port) in list.iter().enumerate() {
        let key = |port: &Value| (port.number("port"), port.text("protocol").to_owned());
        if earlier(index).any(|other| key(other) == key(port)) {
            // Go's own type of a port, which has no names for JSON.
            let shown = serde_json::json!({
                "Name": "", "Protocol": port.text("protocol"), "AppProtocol": null, "Port": port.number("port"),
                "TargetPort": 0, "NodePort": 0,
            });
            errors.duplicate(&at.index(index), shown);
        }
    }
}

fn affinity(spec: &Value, at: &Path, errors: &mut Errors) {
    pod::one_of(spec, "sessionAffinity", &["ClientIP", "None"], at, errors);
    if spec.text("sessionAffinity") == "ClientIP"
        && let Some(seconds) = spec.number("sessionAffinityConfig.clientIP.timeoutSeconds")
        && !(1..=86400).contains(&seconds)
    {
        let at = at.child("sessionAffinityConfig.clientIP.timeoutSeconds");
        errors.invalid(&at, seconds, "must be greater than 0 and less than 86400");
    }
}

fn cluster_addresses(spec: &Value, at: &Path, errors: &mut Errors) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let all = spec.items("clusterIPs");
    let shown = || Value::from(all.to_vec());
    let there = at.child("clusterIPs");
    match (spec.text("clusterIP"), all.first()) {
        ("", Some(_)) => errors.invalid(&there, shown(), "must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => errors.required(&there, ""),
        (one, Some(first)) if first != one => errors.invalid(&there, shown(), "first value must match `clusterIP`"),
        _ => {}
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, family) in spec.items("ipFamilies").iter().filter_map(Value::as_str).enumerate() {
        let at = at.child("ipFamilies").index(index);
        if !matches!(family, "IPv4" | "IPv6") {
            errors.unsupported(&at, family, &["IPv4", "IPv6"]);
        }
        if seen.contains(&family) {
            errors.duplicate(&at, family);
        }
        seen.push(family);
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    let policy = spec.text("ipFamilyPolicy");
    if !policy.is_empty() && !policies.contains(&policy) {
        errors.unsupported(&at.child("ipFamilyPolicy"), policy, &policies);
    }
    let mut broken = false;
    for (index, given) in all.iter().filter_map(Value::as_str).enumerate() {
        if index == 0 && given == "None" {
            if all.len() > 1 {
                broken = true;
                errors.invalid(&there, shown(), "'None' must be the first and only value");
            }
            continue;
        }
        let mut wrong = Errors::default();
        address::check(given, &there.index(index), &mut wrong);
        broken |= !wrong.is_empty();
        errors.append(wrong);
    }
    if all.len() > 2 {
        errors.invalid(&there, shown(), "may only hold up to 2 values");
    }
    if broken {
        return;
    }
    let six = |given: &Value| given.as_str().is_some_and(|given| given.contains(':'));
    if let [first, second, ..] = all
        && six(first) == six(second)
    {
        errors.invalid(&there, shown(), "may specify no more than one IP for each IP family");
    }
    if !is_headless(spec) {
        for (index, (given, family)) in all.iter().zip(spec.items("ipFamilies")).enumerate() {
            if six(given) != (family == "IPv6") {
                let why = format!(
                    "expected an {} value as indicated by `ipFamilies[{index}]`",
                    family.as_str().unwrap_or("")
                );
                errors.invalid(&there.index(index), given.clone(), &why);
            }
        }
    }
}

fn balancer(spec: &Value, of: &str, at: &Path, errors: &mut Errors) {
    let only = "may only be used when `type` is 'LoadBalancer'";
    let ranges = spec.items("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let at = at.child("LoadBalancerSourceRanges");
        if of != "LoadBalancer" {
            errors.forbidden(&at, only);
        }
        for (index, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
            address::check_range(range.trim(), &at.index(index), errors);
        }
    }
    if of != "LoadBalancer" && spec.has("allocateLoadBalancerNodePorts") {
        errors.forbidden(&at.child("allocateLoadBalancerNodePorts"), only);
    }
    if let Some(class) = spec.at("loadBalancerClass").and_then(Value::as_str) {
        let at = at.child("loadBalancerClass");
        errors.all_invalid(&at, class, &qualified_name(class));
        if of != "LoadBalancer" {
            errors.forbidden(&at, only);
        }
    }
}

fn policies(spec: &Value, of: &str, at: &Path, errors: &mut Errors) {
    let external = spec.text("externalTrafficPolicy");
    let there = at.child("externalTrafficPolicy");
    if is_exposed(spec) {
        pod::one_of(spec, "externalTrafficPolicy", &["Cluster", "Local"], at, errors);
    } else if !external.is_empty() {
        errors.invalid(&there, external, "may only be set for externally-accessible services");
    }
    let port = spec.number("healthCheckNodePort").unwrap_or(0);
    if !needs_health_check(spec) && port != 0 {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&at.child("healthCheckNodePort"), port, why);
    }
    let internal = spec.text("internalTrafficPolicy");
    let there = at.child("internalTrafficPolicy");
    match internal {
        "" if matches!(of, "ClusterIP" | "NodePort" | "LoadBalancer") => errors.required(&there, ""),
        "" | "Cluster" | "Local" => {}
        other => errors.unsupported(&there, other, &["Cluster", "Local"]),
    }
    let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(given) = spec.at("trafficDistribution").and_then(Value::as_str)
        && !distributions.contains(&given)
    {
        errors.unsupported(&at.child("trafficDistribution"), given, &distributions);
    }
}

pub(in crate::kinds) fn check_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    let empty = Value::Null;
    let (spec, before) = (new.get("spec").unwrap_or(&empty), old.get("spec").unwrap_or(&empty));
    let external = |spec: &Value| spec.text("type") == "ExternalName";
    let both_headless = is_headless(spec) && is_headless(before);
    if !external(spec) && !external(before) && !both_headless {
        let (now, was) = (spec.items("clusterIPs"), before.items("clusterIPs"));
        let at = Path::new("spec.clusterIPs");
        let shown = Value::from(now.to_vec());
        if now.is_empty() && !was.is_empty() {
            errors.invalid(&at.index(0), Value::Null, "primary clusterIP can not be unset");
        }
        for (index, _) in was.iter().zip(now).enumerate().filter(|(_, (was, now))| was != now) {
            errors.invalid(&at.index(index), shown.clone(), "may not change once set");
        }
    }
    check(new, errors);
}
