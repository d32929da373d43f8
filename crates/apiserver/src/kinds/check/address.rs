//! Addresses and ranges of addresses.
//!
//! Source: kubernetes/apimachinery `pkg/util/validation/ip.go`.

use std::net::IpAddr;

use super::{Errors, Path};

/// An address of either family, as Go reads it: without leading zeros it is one.
pub(in crate::kinds) fn check(text: &str, at: &Path, errors: &mut Errors) {
    if text.parse::<IpAddr>().is_err() {
        errors.invalid(at, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
}

/// Says whether it is an address.
pub(in crate::kinds) fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// An address that an endpoint may have.
///
/// Source: kubernetes `pkg/apis/core/validation/validation.go` `ValidateEndpointIP`.
pub(in crate::kinds) fn check_endpoint(text: &str, at: &Path, errors: &mut Errors) {
    let Ok(address) = text.parse::<IpAddr>() else {
        return errors.invalid(at, text, "must be a valid IP address");
    };
    let local = |range: &str, what: &str| format!("may not be in the {what} range ({range})");
    if address.is_unspecified() {
        errors.invalid(at, text, &format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        errors.invalid(at, text, &local("127.0.0.0/8, ::1/128", "loopback"));
    }
    let (link, multicast) = match address {
        IpAddr::V4(four) => {
            (four.is_link_local(), four.octets().first() == Some(&224) && four.octets().get(1..3) == Some(&[0, 0]))
        }
        IpAddr::V6(six) => {
            (six.is_unicast_link_local(), six.segments().first().is_some_and(|first| first & 0xff0f == 0xff02))
        }
    };
    if link {
        errors.invalid(at, text, &local("169.254.0.0/16, fe80::/10", "link-local"));
    }
    if multicast {
        errors.invalid(at, text, &local("224.0.0.0/24, ff02::/10", "link-local multicast"));
    }
}

/// A range such as `10.0.0.0/8`: its address and the length of its prefix.
pub(in crate::kinds) fn range(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    let most = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= most).then_some((address, prefix))
}

/// A range.
pub(in crate::kinds) fn check_range(text: &str, at: &Path, errors: &mut Errors) {
    if range(text).is_none() {
        errors.invalid(at, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    }
}

/// Says whether a range lies in another, and is not the whole of it.
pub(in crate::kinds) fn is_part(inner: (IpAddr, u8), outer: (IpAddr, u8)) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(four) => (u128::from(four.to_bits()) << 96, true),
        IpAddr::V6(six) => (six.to_bits(), false),
    };
    let ((inner_bits, inner_four), (outer_bits, outer_four)) = (bits(inner.0), bits(outer.0));
    let shift = 128 - u32::from(outer.1);
    let same = outer.1 == 0 || inner_bits >> shift == outer_bits >> shift;
    inner_four == outer_four && same && outer.1 < inner.1
}
