//! Cluster addresses and node ports: what one object of a cluster has, no other gets.
//!
//! The lowest that is free is given out, so that the same requests in the same order have the same answers.

use std::{collections::BTreeSet, net::Ipv4Addr};

use parking_lot::Mutex;

/// The addresses and ports of one cluster.
#[derive(Debug)]
pub struct Allocator {
    network: u32,
    bits: u32,
    ports: std::ops::RangeInclusive<u16>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    addresses: BTreeSet<u32>,
    ports: BTreeSet<u16>,
}

/// Why what was asked for is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another has it.
    Taken,
    /// It is not of the range.
    Outside,
    /// All of the range are given out.
    Exhausted,
}

impl Default for Allocator {
    fn default() -> Self {
        Self::new(Ipv4Addr::new(10, 96, 0, 0), 16)
    }
}

impl Allocator {
    /// Gives out the addresses of a network, as `--service-cluster-ip-range` says it, and ports from 30000 to 32767.
    pub fn new(network: Ipv4Addr, prefix: u32) -> Self {
        let bits = 32 - prefix.min(30);
        let network = (network.to_bits() >> bits) << bits;
        Self { network, bits, ports: 30000..=32767, taken: Mutex::default() }
    }

    /// The range of addresses, such as `10.96.0.0/16`.
    pub fn network(&self) -> String {
        format!("{}/{}", Ipv4Addr::from_bits(self.network), 32 - self.bits)
    }

    /// The range of ports, such as `30000-32767`.
    pub fn ports(&self) -> String {
        format!("{}-{}", self.ports.start(), self.ports.end())
    }

    /// Takes one address.
    ///
    /// Errors: it is another's, or none of the range.
    pub fn take_address(&self, address: Ipv4Addr) -> Result<(), Refusal> {
        let bits = address.to_bits();
        let last = self.network + (1 << self.bits) - 1;
        if bits <= self.network || bits >= last {
            return Err(Refusal::Outside);
        }
        if self.taken.lock().addresses.insert(bits) { Ok(()) } else { Err(Refusal::Taken) }
    }

    /// Takes the lowest free address; the first of all, and a sixteenth of the range but 256 at most, are for those
    /// who ask for one by name.
    ///
    /// Errors: none is free.
    ///
    /// Source: KEP-3070.
    pub fn any_address(&self) -> Result<Ipv4Addr, Refusal> {
        let size = 1_u32 << self.bits;
        let reserved = (size / 16).clamp(16.min(size / 2), 256);
        let mut taken = self.taken.lock();
        let upper = self.network + reserved + 1..self.network + size - 1;
        let lower = self.network + 2..self.network + reserved + 1;
        let free = upper.chain(lower).find(|bits| !taken.addresses.contains(bits)).ok_or(Refusal::Exhausted)?;
        taken.addresses.insert(free);
        Ok(Ipv4Addr::from_bits(free))
    }

    /// Gives an address back.
    pub fn free_address(&self, address: Ipv4Addr) {
        self.taken.lock().addresses.remove(&address.to_bits());
    }

    /// Takes one port.
    ///
    /// Errors: it is another's, or none of the range.
    pub fn take_port(&self, port: u16) -> Result<(), Refusal> {
        if !self.ports.contains(&port) {
            return Err(Refusal::Outside);
        }
        if self.taken.lock().ports.insert(port) { Ok(()) } else { Err(Refusal::Taken) }
    }

    /// Takes the lowest free port.
    ///
    /// Errors: none is free.
    pub fn any_port(&self) -> Result<u16, Refusal> {
        let mut taken = self.taken.lock();
        let free = self.ports.clone().find(|port| !taken.ports.contains(port)).ok_or(Refusal::Exhausted)?;
        taken.ports.insert(free);
        Ok(free)
    }

    /// Gives a port back.
    pub fn free_port(&self, port: u16) {
        self.taken.lock().ports.remove(&port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_has_no_other_gets_until_it_is_free_again() {
        let allocator = Allocator::new(Ipv4Addr::new(10, 0, 0, 0), 29);
        let mut all: Vec<_> = std::iter::from_fn(|| allocator.any_address().ok()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5, "not the network's own, the broadcast's, and the first");
        assert_eq!(allocator.any_address(), Err(Refusal::Exhausted));
        assert_eq!(allocator.take_address(all[0]), Err(Refusal::Taken));
        allocator.free_address(all[0]);
        assert_eq!(allocator.take_address(all[0]), Ok(()));
        assert_eq!(allocator.take_address(Ipv4Addr::new(10, 0, 1, 1)), Err(Refusal::Outside));
    }

    #[test]
    fn ports_are_given_out_from_the_lowest() {
        let allocator = Allocator::default();
        assert_eq!(allocator.take_port(30000), Ok(()));
        assert_eq!(allocator.any_port(), Ok(30001));
        assert_eq!(allocator.take_port(30001), Err(Refusal::Taken));
        assert_eq!(allocator.take_port(80), Err(Refusal::Outside));
    }
}
