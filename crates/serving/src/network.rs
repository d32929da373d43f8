//! Networks, as operators write them: `10.0.0.0/8`, `fd00::/8`, or one address.

use std::{net::IpAddr, str::FromStr};

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// It is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a network such as 10.0.0.0/8 or fd00::/8, or an address")]
pub struct NetworkError;

impl Network {
    /// Says whether an address is in it.
    pub fn has(&self, address: IpAddr) -> bool {
        let shared = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        shared >= self.bits
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| NetworkError)?;
        if bits > most { Err(NetworkError) } else { Ok(Self { address, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_networks_that_it_begins_with() {
        let cases = [
            ("10.0.0.0/8", "10.200.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
        ];
        for (network, address, is_in) in cases {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.has(address.parse().unwrap()), is_in, "{network:?} {address}");
        }
        for none in ["", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "10.0.0.0/-1", "east"] {
            assert_eq!(none.parse::<Network>(), Err(NetworkError), "{none}");
        }
    }
}
