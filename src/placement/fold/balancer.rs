//! The addresses by which an object is reached from outside: those of all its parts.
//!
//! Whoever publishes them (external-dns) publishes one object's addresses, and each member's load balancer has its own.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::placement::fold::hide::spliced;
use kubefold_wire::{
    locate::{Member, entries},
    splice::ObjectEdits,
};

const BALANCER: &str = "loadBalancer";
const INGRESS: &str = "ingress";

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Address {
    raw: Box<str>,
    key: Key,
}

/// What makes two entries one: whatever else they say is what their own load balancer says of it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
struct Key {
    ip: String,
    hostname: String,
}

impl Address {
    fn is(&self, other: &Self) -> bool {
        let has_none = self.key == Key::default();
        self.key == other.key && (!has_none || self.raw == other.raw)
    }
}

/// The addresses in a status, in their order.
pub(super) fn addresses(status: &[Member<'_>]) -> Vec<Address> {
    let raw = |object: &[Member<'_>], key: &str| {
        object.iter().find(|entry| entry.name == key).map(|entry| entry.raw.to_owned())
    };
    let balancer = raw(status, BALANCER);
    let ingress = balancer.and_then(|balancer| raw(&entries(&balancer).ok()?, INGRESS));
    let listed: Vec<&RawValue> =
        ingress.as_deref().and_then(|ingress| serde_json::from_str(ingress).ok()).unwrap_or_default();
    let read =
        |entry: &RawValue| Some(Address { raw: entry.get().into(), key: serde_json::from_str(entry.get()).ok()? });
    listed.into_iter().filter_map(read).collect()
}

/// Has the home's status name the addresses of all parts: the home's, then what each other part has that none before it has.
pub(super) fn unite<'a>(home: &mut ObjectEdits<'_>, parts: impl Iterator<Item = &'a [Address]>) {
    let mut united: Vec<&Address> = Vec::new();
    for part in parts {
        let before = united.len();
        let is_known = |address: &Address| united.iter().take(before).any(|known| known.is(address));
        let new: Vec<&Address> = part.iter().filter(|address| !is_known(address)).collect();
        united.extend(new);
    }
    let now = home.member(BALANCER).map_or("{}", |member| member.raw).to_owned();
    let Ok(mut balancer) = ObjectEdits::new(&now, 0) else { return };
    let held = balancer.member(INGRESS).and_then(|member| serde_json::from_str::<Vec<&RawValue>>(member.raw).ok());
    let held = held.unwrap_or_default();
    if held.len() == united.len() && held.iter().zip(&united).all(|(held, address)| held.get() == &*address.raw) {
        return;
    }
    let all: Vec<&str> = united.iter().map(|address| &*address.raw).collect();
    balancer.set(INGRESS, format!("[{}]", all.join(",")).into_bytes());
    home.set(BALANCER, spliced(&now, balancer));
}
