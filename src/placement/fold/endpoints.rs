//! The subsets of several Endpoints objects as one: what the endpoints controller would make of all their addresses.
//!
//! Source: kubernetes `pkg/api/v1/endpoints/util.go` `RepackSubsets`. The order of ports and of subsets is a hash's there, and
//! that of their first appearance here.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subset<'a> {
    #[serde(borrow, default)]
    addresses: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    not_ready_addresses: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    ports: Option<Vec<&'a RawValue>>,
}

/// What makes two addresses one: pods of two members may have one IP.
#[derive(Clone, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "camelCase")]
struct Address {
    ip: String,
    #[serde(default)]
    target_ref: Option<Target>,
}

#[derive(Clone, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Target {
    #[serde(default)]
    uid: String,
}

/// Which addresses a port has, by their numbers, and which of those are ready.
type Reached = BTreeMap<usize, bool>;

#[derive(Default)]
struct Union<'a> {
    addresses: Vec<(Address, &'a str)>,
    numbers: HashMap<Address, usize>,
    /// In the order in which they were seen first. A subset without ports counts as one with the port "".
    ports: Vec<(&'a str, Reached)>,
    places: HashMap<&'a str, usize>,
}

/// The union of these `subsets`. Empty if no address is in them.
///
/// Shape: costs O(addresses x ports), and a sort.
pub fn united(parts: &[String]) -> Vec<u8> {
    let mut union = Union::default();
    for part in parts {
        let subsets: Vec<Subset<'_>> = serde_json::from_str(part).unwrap_or_default();
        subsets.into_iter().for_each(|subset| union.add(subset));
    }
    union.repacked()
}

impl<'a> Union<'a> {
    fn add(&mut self, subset: Subset<'a>) {
        let ports = subset.ports.unwrap_or_default();
        let ports: Vec<&str> = if ports.is_empty() { vec![""] } else { ports.iter().map(|port| port.get()).collect() };
        for (addresses, is_ready) in [(subset.addresses, true), (subset.not_ready_addresses, false)] {
            for raw in addresses.unwrap_or_default() {
                let Some(number) = self.number(raw.get()) else { continue };
                for port in &ports {
                    let place = self.place(port);
                    if let Some((_, reached)) = self.ports.get_mut(place) {
                        // Not ready anywhere is not ready.
                        *reached.entry(number).or_insert(is_ready) &= is_ready;
                    }
                }
            }
        }
    }

    fn number(&mut self, raw: &'a str) -> Option<usize> {
        let address: Address = serde_json::from_str(raw).ok()?;
        if let Some(number) = self.numbers.get(&address) {
            return Some(*number);
        }
        self.numbers.insert(address.clone(), self.addresses.len());
        self.addresses.push((address, raw));
        Some(self.addresses.len() - 1)
    }

    fn place(&mut self, port: &'a str) -> usize {
        *self.places.entry(port).or_insert_with(|| {
            self.ports.push((port, Reached::new()));
            self.ports.len() - 1
        })
    }

    /// Ports that have the same addresses make one subset.
    fn repacked(self) -> Vec<u8> {
        let mut subsets: Vec<(&Reached, Vec<&str>)> = Vec::new();
        let mut places: HashMap<&Reached, usize> = HashMap::new();
        for (port, reached) in &self.ports {
            let at = *places.entry(reached).or_insert_with(|| {
                subsets.push((reached, Vec::new()));
                subsets.len() - 1
            });
            if let Some((_, ports)) = subsets.get_mut(at).filter(|_| !port.is_empty()) {
                ports.push(port);
            }
        }
        let written: Vec<String> = subsets.iter().map(|(reached, ports)| self.written(reached, ports)).collect();
        if written.is_empty() { Vec::new() } else { format!("[{}]", written.join(",")).into_bytes() }
    }

    fn written(&self, reached: &Reached, ports: &[&str]) -> String {
        let listed = |is_ready: bool| {
            let mut all: Vec<&(Address, &str)> = reached
                .iter()
                .filter(|(_, ready)| **ready == is_ready)
                .filter_map(|(number, _)| self.addresses.get(*number))
                .collect();
            all.sort_by(|(one, _), (other, _)| one.cmp(other));
            all.into_iter().map(|(_, raw)| *raw).collect::<Vec<_>>()
        };
        let lists = [("addresses", listed(true)), ("notReadyAddresses", listed(false)), ("ports", ports.to_vec())];
        let lists = lists.iter().filter(|(_, items)| !items.is_empty());
        let lists: Vec<String> = lists.map(|(key, items)| format!("\"{key}\":[{}]", items.join(","))).collect();
        format!("{{{}}}", lists.join(","))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn address(ip: &str, uid: &str) -> Value {
        json!({"ip": ip, "nodeName": format!("n-{uid}"), "targetRef": {"kind": "Pod", "name": uid, "uid": uid}})
    }

    fn port(number: u16) -> Value {
        json!({"name": format!("p{number}"), "port": number, "protocol": "TCP"})
    }

    fn of(parts: &[Value]) -> Value {
        let parts: Vec<String> = parts.iter().map(Value::to_string).collect();
        let union = united(&parts);
        if union.is_empty() { Value::Null } else { serde_json::from_slice(&union).unwrap() }
    }

    #[test]
    fn subsets_of_the_same_ports_are_one_sorted_and_without_doubles() {
        let east = json!([{"addresses": [address("10.0.0.9", "e2"), address("10.0.0.1", "e1")], "ports": [port(80)]}]);
        // Another cluster's pods may have the same IP.
        let west = json!([{"addresses": [address("10.0.0.1", "a1"), {"ip": "10.0.0.1"}],
            "notReadyAddresses": [address("10.0.0.5", "w2")], "ports": [port(80)]}]);
        let one = json!([{
            "addresses": [{"ip": "10.0.0.1"}, address("10.0.0.1", "a1"), address("10.0.0.1", "e1"), address("10.0.0.9", "e2")],
            "notReadyAddresses": [address("10.0.0.5", "w2")], "ports": [port(80)],
        }]);
        assert_eq!(of(&[east.clone(), west.clone()]), one);
        assert_eq!(of(&[west.clone(), east.clone()]), one);
        assert_eq!(of(&[east.clone(), west, east]), one);
    }

    #[test]
    fn ports_with_other_addresses_are_subsets_of_their_own() {
        let east = json!([{"addresses": [address("1", "e")], "ports": [port(80)]}]);
        let west = json!([{"addresses": [address("2", "w")], "ports": [port(80), port(443)]}]);
        let both = json!([
            {"addresses": [address("1", "e"), address("2", "w")], "ports": [port(80)]},
            {"addresses": [address("2", "w")], "ports": [port(443)]},
        ]);
        assert_eq!(of(&[east.clone(), west]), both);
        let bare = json!([{"addresses": [address("3", "n")]}]);
        let with_bare = json!([{"addresses": [address("1", "e")], "ports": [port(80)]}, bare[0]]);
        assert_eq!(of(&[east, bare]), with_bare);
    }

    #[test]
    fn what_is_not_ready_at_a_port_in_one_is_not_ready_and_nothing_is_nothing() {
        let ready = json!([{"addresses": [address("1", "e")], "ports": [port(80)]}]);
        let not = json!([{"notReadyAddresses": [address("1", "e")], "ports": [port(80)]}]);
        assert_eq!(of(&[ready, not.clone()]), not);
        for nothing in
            [json!([]), json!(null), json!([{"ports": [port(80)]}]), json!([{"addresses": null, "ports": null}])]
        {
            assert_eq!(of(&[nothing.clone(), nothing]), Value::Null);
        }
    }
}
