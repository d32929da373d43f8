//! Services: addresses and ports that are given out, and what an update may forget to say.
//!
//! Source: kubernetes `pkg/registry/core/service/strategy.go`, `storage/{storage,alloc}.go`.

use std::{collections::BTreeSet, net::Ipv4Addr};

use serde_json::{Value, json};

use super::{
    Allocator, Context, Refusal,
    check::{Errors, Path},
    doc::{Doc, inner, items_mut},
    put,
};
use kubefold_wire::status::Cause;

pub(super) fn create(object: &mut Value) {
    let Some(spec) = inner(object, "spec") else { return };
    let address = spec.text("clusterIP").to_owned();
    if !address.is_empty() && spec.items("clusterIPs").is_empty() {
        put(spec, "clusterIPs", Some(json!([address])));
    }
}

/// What the old one has and the new one does not say stays; what its type has no use for goes.
pub(super) fn update(new: &mut Value, old: &Value) {
    let empty = Value::Null;
    let old = old.get("spec").unwrap_or(&empty);
    let Some(spec) = inner(new, "spec") else { return };
    keep_allocated(spec, old);
    let address = (old.text("clusterIP").to_owned(), spec.text("clusterIP").to_owned());
    let same = spec.at("clusterIPs") == old.at("clusterIPs");
    match (&*address.0, &*address.1) {
        (before, now) if before == now => {
            let lost = spec.items("clusterIPs").is_empty() && !old.items("clusterIPs").is_empty();
            if lost {
                put(spec, "clusterIPs", old.get("clusterIPs").cloned());
            }
        }
        (_, "") if same => put(spec, "clusterIPs", None),
        (_, now) if same && !now.is_empty() => put(spec, "clusterIPs", Some(json!([now]))),
        _ => {}
    }
    if needs_address(spec) {
        for field in ["ipFamilyPolicy", "ipFamilies"] {
            if !spec.has(field) {
                put(spec, field, old.get(field).cloned());
            }
        }
    }
    drop_useless(spec, old);
    if spec.text("type") == "ExternalName" {
        put(spec, "internalTrafficPolicy", None);
    }
    if new.text("spec.type") != "LoadBalancer" {
        put(new, "status", Some(json!({"loadBalancer": {}})));
    }
}

fn keep_allocated(spec: &mut Value, old: &Value) {
    if needs_address(old) && needs_address(spec) {
        for field in ["clusterIP", "clusterIPs"] {
            if spec.text(field).is_empty() && spec.items(field).is_empty() {
                put(spec, field, old.get(field).cloned());
            }
        }
    }
    if needs_ports(old) && needs_ports(spec) {
        let numbers = |spec: &Value| -> Vec<i64> {
            spec.items("ports").iter().filter_map(|port| port.number("nodePort")).collect()
        };
        let now = numbers(spec);
        let used: Vec<i64> = numbers(old).into_iter().filter(|port| now.contains(port)).collect();
        for port in items_mut(spec, "ports").filter(|port| port.number("nodePort").unwrap_or(0) == 0) {
            let name = port.text("name").to_owned();
            let before = old.items("ports").iter().rev().find(|port| port.text("name") == name);
            let number = before.and_then(|port| port.number("nodePort")).filter(|number| !used.contains(number));
            put(port, "nodePort", number.map(Value::from));
        }
    }
    if needs_health_check(old) && needs_health_check(spec) && spec.number("healthCheckNodePort").unwrap_or(0) == 0 {
        put(spec, "healthCheckNodePort", old.get("healthCheckNodePort").cloned());
    }
}

fn drop_useless(spec: &mut Value, old: &Value) {
    let same = |spec: &Value, field: &str| spec.at(field) == old.at(field);
    if needs_address(old) && !needs_address(spec) {
        if same(spec, "clusterIPs") || spec.items("clusterIPs").is_empty() {
            put(spec, "clusterIP", None);
            put(spec, "clusterIPs", None);
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(spec, field) {
                put(spec, field, None);
            }
        }
    }
    if needs_ports(old) && !needs_ports(spec) {
        let numbers = |spec: &Value| -> Vec<i64> {
            spec.items("ports").iter().map(|port| port.number("nodePort").unwrap_or(0)).collect()
        };
        if numbers(spec) == numbers(old) {
            items_mut(spec, "ports").for_each(|port| put(port, "nodePort", None));
        }
    }
    if needs_health_check(old) && !needs_health_check(spec) && same(spec, "healthCheckNodePort") {
        put(spec, "healthCheckNodePort", None);
    }
    let (was, is) = (old.text("type") == "LoadBalancer", spec.text("type") == "LoadBalancer");
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if was && !is && same(spec, field) {
            put(spec, field, None);
        }
    }
    if is_exposed(old) && !is_exposed(spec) && same(spec, "externalTrafficPolicy") {
        put(spec, "externalTrafficPolicy", None);
    }
}

fn needs_address(spec: &Value) -> bool {
    matches!(spec.text("type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn needs_ports(spec: &Value) -> bool {
    let told = spec.at("allocateLoadBalancerNodePorts").and_then(Value::as_bool);
    spec.text("type") == "NodePort" || (spec.text("type") == "LoadBalancer" && told.unwrap_or(true))
}

/// Says whether it needs a port at which a balancer asks for its health.
pub(super) fn needs_health_check(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

/// Says whether it is reached from outside.
pub(super) fn is_exposed(spec: &Value) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
        || (spec.text("type") == "ClusterIP" && !spec.items("externalIPs").is_empty())
}

/// Says whether it has no address by its own will.
pub(super) fn is_headless(spec: &Value) -> bool {
    spec.items("clusterIPs").first().is_some_and(|first| first == "None")
        || (spec.items("clusterIPs").is_empty() && spec.text("clusterIP") == "None")
}

/// Takes what a service has no value for yet, and what it asks for and does not hold.
pub(super) fn allocate(new: &mut Value, old: Option<&Value>, context: Context<'_>) -> Result<(), Vec<Cause>> {
    let empty = Value::Null;
    let old_spec = old.and_then(|old| old.get("spec")).unwrap_or(&empty);
    let Some(spec) = inner(new, "spec") else { return Ok(()) };
    let mut taken = Taken { allocator: context.allocator, addresses: Vec::new(), ports: Vec::new() };
    let made = families(spec, old_spec)
        .and_then(|()| addresses(spec, old_spec, &mut taken))
        .and_then(|()| ports(spec, old_spec, &mut taken));
    if made.is_err() {
        taken.give_back();
    }
    made.map_err(Errors::into_causes)
}

struct Taken<'a> {
    allocator: &'a Allocator,
    addresses: Vec<Ipv4Addr>,
    ports: Vec<u16>,
}

impl Taken<'_> {
    fn give_back(self) {
        self.addresses.iter().for_each(|address| self.allocator.free_address(*address));
        self.ports.iter().for_each(|port| self.allocator.free_port(*port));
    }
}

fn families(spec: &mut Value, old: &Value) -> Result<(), Errors> {
    let mut errors = Errors::default();
    if spec.text("type") == "ExternalName" {
        return Ok(());
    }
    let loose = is_headless(spec) && spec.entries("selector").next().is_none();
    if !spec.has("ipFamilyPolicy") {
        let inherited = old.text("ipFamilyPolicy");
        let policy = match (inherited, loose) {
            ("", true) => "RequireDualStack",
            ("", false) => "SingleStack",
            (inherited, _) => inherited,
        };
        put(spec, "ipFamilyPolicy", Some(policy.into()));
    }
    let policy = spec.text("ipFamilyPolicy").to_owned();
    let at = Path::new("spec");
    let mut families = spec.items("ipFamilies").to_vec();
    if policy == "SingleStack" {
        let why = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
        if spec.items("clusterIPs").len() == 2 {
            errors.invalid(&at.child("ipFamilyPolicy"), &*policy, &format!("{why} cluster IPs are specified"));
        }
        if families.len() == 2 {
            errors.invalid(&at.child("ipFamilyPolicy"), &*policy, &format!("{why} IP families are specified"));
        }
    }
    if !is_headless(spec) {
        for (index, address) in spec.items("clusterIPs").iter().enumerate().skip(families.len()) {
            if address.as_str().is_some_and(|address| address.contains(':')) {
                let at = at.child("clusterIPs").index(index);
                errors.invalid(&at, spec.items("clusterIPs").to_vec(), "IPv6 is not configured on this cluster");
            } else {
                families.push("IPv4".into());
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if loose {
        if families.is_empty() {
            families.push("IPv4".into());
        }
        if families.len() < 2 && policy != "SingleStack" {
            let other = if families.first().is_some_and(|first| first == "IPv4") { "IPv6" } else { "IPv4" };
            families.push(other.into());
        }
    } else {
        if policy == "RequireDualStack" {
            let why = "this cluster is not configured for dual-stack services";
            errors.invalid(&at.child("ipFamilyPolicy"), &*policy, why);
        }
        for (index, family) in families.iter().enumerate().filter(|(_, family)| **family != "IPv4") {
            let at = at.child("ipFamilies").index(index);
            errors.invalid(&at, family.clone(), "not configured on this cluster");
        }
        if families.is_empty() {
            families.push("IPv4".into());
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    put(spec, "ipFamilies", Some(families.into()));
    Ok(())
}

fn addresses(spec: &mut Value, old: &Value, taken: &mut Taken<'_>) -> Result<(), Errors> {
    if !needs_address(spec) || is_headless(spec) {
        return Ok(());
    }
    let wanted = spec.text("clusterIP").to_owned();
    if !wanted.is_empty() && wanted == old.text("clusterIP") && needs_address(old) {
        return Ok(());
    }
    let mut errors = Errors::default();
    let at = Path::new("spec.clusterIPs");
    let given = match wanted.parse::<Ipv4Addr>() {
        Ok(address) => taken.allocator.take_address(address).map(|()| address),
        Err(_) => taken.allocator.any_address(),
    };
    match given {
        Ok(address) => {
            taken.addresses.push(address);
            put(spec, "clusterIP", Some(address.to_string().into()));
            put(spec, "clusterIPs", Some(json!([address.to_string()])));
            Ok(())
        }
        Err(refusal) => {
            let why = match refusal {
                Refusal::Taken => format!("failed to allocate IP {wanted}: provided IP is already allocated"),
                Refusal::Outside => {
                    format!("failed to allocate IP {wanted}: the provided network does not match the current range")
                }
                Refusal::Exhausted => "failed to allocate IP: range is full".to_owned(),
            };
            errors.invalid(&at, spec.items("clusterIPs").to_vec(), &why);
            Err(errors)
        }
    }
}

fn ports(spec: &mut Value, old: &Value, taken: &mut Taken<'_>) -> Result<(), Errors> {
    let any = needs_ports(spec);
    let open = matches!(spec.text("type"), "NodePort" | "LoadBalancer");
    let held: Vec<i64> = old.items("ports").iter().filter_map(|port| port.number("nodePort")).collect();
    // One port for several protocols has one node port.
    let mut of_port: Vec<(i64, i64)> = Vec::new();
    let mut mine: Vec<i64> = Vec::new();
    let wishes: Vec<(i64, i64)> = spec
        .items("ports")
        .iter()
        .map(|port| (port.number("port").unwrap_or(0), port.number("nodePort").unwrap_or(0)))
        .collect();
    for (index, port) in items_mut(spec, "ports").enumerate() {
        let (number, wish) = wishes.get(index).copied().unwrap_or((0, 0));
        if !open || (wish == 0 && !any) {
            continue;
        }
        let known = of_port.iter().find(|(port, _)| *port == number).map(|(_, node)| *node);
        let later = wishes.iter().find(|(port, wish)| *port == number && *wish != 0).map(|(_, wish)| *wish);
        let wish = if wish != 0 { wish } else { known.or(later).unwrap_or(0) };
        let node = if wish != 0 && (held.contains(&wish) || mine.contains(&wish)) {
            wish
        } else {
            take_port(wish, &Path::new("spec.ports").index(index).child("nodePort"), taken)?
        };
        mine.push(node);
        of_port.push((number, node));
        put(port, "nodePort", Some(node.into()));
    }
    if needs_health_check(spec) {
        let wish = spec.number("healthCheckNodePort").unwrap_or(0);
        if wish == 0 || old.number("healthCheckNodePort") != Some(wish) {
            let node = take_port(wish, &Path::new("spec.healthCheckNodePort"), taken)?;
            put(spec, "healthCheckNodePort", Some(node.into()));
        }
    }
    Ok(())
}

fn take_port(wish: i64, at: &Path, taken: &mut Taken<'_>) -> Result<i64, Errors> {
    let given = if wish == 0 {
        taken.allocator.any_port()
    } else {
        let port = u16::try_from(wish).map_err(|_| Refusal::Outside);
        port.and_then(|port| taken.allocator.take_port(port).map(|()| port))
    };
    given
        .map(|port| {
            taken.ports.push(port);
            i64::from(port)
        })
        .map_err(|refusal| {
            let why = match refusal {
                Refusal::Taken => "provided port is already allocated".to_owned(),
                Refusal::Outside => {
                    format!(
                        "provided port is not in the valid range. The range of valid ports is {}",
                        taken.allocator.ports()
                    )
                }
                Refusal::Exhausted => "range is full".to_owned(),
            };
            let mut errors = Errors::default();
            errors.invalid(at, wish, &why);
            errors
        })
}

/// Gives back what one version holds and the other does not.
pub(super) fn release(gone: &Value, stays: Option<&Value>, allocator: &Allocator) {
    let kept = stays.map(Held::of).unwrap_or_default();
    let gone = Held::of(gone);
    gone.addresses.difference(&kept.addresses).for_each(|address| allocator.free_address(*address));
    gone.ports.difference(&kept.ports).for_each(|port| allocator.free_port(*port));
}

/// Takes what a service has that was stored before this process.
pub(crate) fn hold(there: &Value, allocator: &Allocator) {
    let there = Held::of(there);
    for address in there.addresses {
        // Of another range: nobody is given it.
        let _outside = allocator.take_address(address);
    }
    for port in there.ports {
        let _outside = allocator.take_port(port);
    }
}

/// What a service has of the cluster's own.
#[derive(Default)]
struct Held {
    addresses: BTreeSet<Ipv4Addr>,
    ports: BTreeSet<u16>,
}

impl Held {
    fn of(service: &Value) -> Self {
        let empty = Value::Null;
        let spec = service.get("spec").unwrap_or(&empty);
        let addresses = spec.items("clusterIPs").iter().filter_map(|address| address.as_str()?.parse().ok());
        let ports = spec.items("ports").iter().filter_map(|port| port.number("nodePort"));
        let ports = ports.chain(spec.number("healthCheckNodePort")).filter(|port| *port != 0);
        Self { addresses: addresses.collect(), ports: ports.filter_map(|port| u16::try_from(port).ok()).collect() }
    }
}
