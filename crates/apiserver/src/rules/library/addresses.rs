//! `ip`, `isIP`, `cidr` and `isCIDR`.
//!
//! Source: `pkg/cel/library/ip.go`, `pkg/cel/library/cidr.go`.

use std::net::{IpAddr, Ipv6Addr};

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::types::{CelBool, CelInt, CelString, Type},
};

use super::{Kind, Of, no};

static ADDRESS: Type = Type::new_unspecified_type("net.IP");
static BLOCK: Type = Type::new_unspecified_type("net.CIDR");

/// A block of addresses, and the address that it was written with.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Block {
    address: IpAddr,
    bits: u8,
}

type Ip = Of<IpAddr>;
type Cidr = Of<Block>;

impl Kind for IpAddr {
    fn of() -> &'static Type {
        &ADDRESS
    }
}

impl Kind for Block {
    fn of() -> &'static Type {
        &BLOCK
    }
}

impl Block {
    fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Self { address, bits: self.bits }
    }

    fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Self { address, ..self }.masked() == self.masked()
    }
}

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn ip: (CelString<'_>) -> Result<Ip>)?;
    add_overload!(env, fn is_ip: (CelString<'_>) -> CelBool, name = "isIP")?;
    add_overload!(env, fn is_canonical: (CelString<'_>) -> Result<CelBool>, name = "ip.isCanonical")?;
    add_overload!(env, fn ip_text: (Ip) -> CelString<'_>, name = "string")?;
    add_member_overload!(env, fn family: (Ip) -> CelInt)?;
    add_member_overload!(env, fn is_unspecified: (Ip) -> CelBool)?;
    add_member_overload!(env, fn is_loopback: (Ip) -> CelBool)?;
    add_member_overload!(env, fn is_link_local_multicast: (Ip) -> CelBool)?;
    add_member_overload!(env, fn is_link_local_unicast: (Ip) -> CelBool)?;
    add_member_overload!(env, fn is_global_unicast: (Ip) -> CelBool)?;
    add_overload!(env, fn cidr: (CelString<'_>) -> Result<Cidr>)?;
    add_overload!(env, fn is_cidr: (CelString<'_>) -> CelBool, name = "isCIDR")?;
    add_overload!(env, fn cidr_text: (Cidr) -> CelString<'_>, name = "string")?;
    add_member_overload!(env, fn contains_ip: (Cidr, Ip) -> CelBool, name = "containsIP")?;
    add_member_overload!(env, fn contains_ip_text: (Cidr, CelString<'_>) -> Result<CelBool>, name = "containsIP")?;
    add_member_overload!(env, fn contains_cidr: (Cidr, Cidr) -> CelBool, name = "containsCIDR")?;
    add_member_overload!(env, fn contains_cidr_text: (Cidr, CelString<'_>) -> Result<CelBool>, name = "containsCIDR")?;
    add_member_overload!(env, fn ip_of: (Cidr) -> Ip, name = "ip")?;
    add_member_overload!(env, fn masked: (Cidr) -> Cidr)?;
    add_member_overload!(env, fn prefix_length: (Cidr) -> CelInt)
}

/// An address. One of IPv4 in the form of IPv6 is none.
fn address(text: &str) -> Option<IpAddr> {
    let is_mapped = |address: Ipv6Addr| address.to_ipv4_mapped().is_some();
    text.parse().ok().filter(|address| !matches!(address, IpAddr::V6(address) if is_mapped(*address)))
}

fn block(text: &str) -> Option<Block> {
    let (of, bits) = text.split_once('/')?;
    let address = address(of)?;
    let is_plain = bits.bytes().all(|digit| digit.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    let bits = bits.parse().ok().filter(|bits| is_plain && *bits <= if address.is_ipv4() { 32 } else { 128 })?;
    Some(Block { address, bits })
}

fn read_ip(text: &str) -> Result<IpAddr, ExecutionError> {
    address(text).ok_or_else(|| {
        no(
            "ip",
            format!(
                "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
            ),
        )
    })
}

fn read_cidr(text: &str) -> Result<Block, ExecutionError> {
    block(text)
        .ok_or_else(|| no("cidr", format!("network address parse error during conversion from string: {text:?}")))
}

fn ip(text: &CelString<'_>) -> Result<Ip, ExecutionError> {
    read_ip(text.inner()).map(Of)
}

fn is_ip(text: &CelString<'_>) -> CelBool {
    CelBool::from(address(text.inner()).is_some())
}

fn is_canonical(text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    Ok(CelBool::from(read_ip(text.inner())?.to_string() == text.inner()))
}

fn ip_text(ip: &Ip) -> CelString<'static> {
    CelString::from(ip.0.to_string())
}

fn family(ip: &Ip) -> CelInt {
    CelInt::from(if ip.0.is_ipv4() { 4 } else { 6 })
}

fn is_unspecified(ip: &Ip) -> CelBool {
    CelBool::from(ip.0.is_unspecified())
}

fn is_loopback(ip: &Ip) -> CelBool {
    CelBool::from(ip.0.is_loopback())
}

fn is_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_link_local_multicast(ip: &Ip) -> CelBool {
    CelBool::from(is_local_multicast(ip.0))
}

fn is_link_local_unicast(ip: &Ip) -> CelBool {
    CelBool::from(is_local(ip.0))
}

fn is_global_unicast(ip: &Ip) -> CelBool {
    let is_broadcast = matches!(ip.0, IpAddr::V4(ip) if ip.is_broadcast());
    let is_other = ip.0.is_unspecified() || ip.0.is_loopback() || ip.0.is_multicast() || is_local(ip.0);
    CelBool::from(!is_broadcast && !is_other)
}

fn cidr(text: &CelString<'_>) -> Result<Cidr, ExecutionError> {
    read_cidr(text.inner()).map(Of)
}

fn is_cidr(text: &CelString<'_>) -> CelBool {
    CelBool::from(block(text.inner()).is_some())
}

fn cidr_text(cidr: &Cidr) -> CelString<'static> {
    CelString::from(format!("{}/{}", cidr.0.address, cidr.0.bits))
}

fn contains_ip(cidr: &Cidr, ip: &Ip) -> CelBool {
    CelBool::from(cidr.0.has(ip.0))
}

fn contains_ip_text(cidr: &Cidr, text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    Ok(CelBool::from(cidr.0.has(read_ip(text.inner())?)))
}

fn within(outer: Block, inner: Block) -> CelBool {
    CelBool::from(outer.bits <= inner.bits && outer.has(inner.address))
}

fn contains_cidr(cidr: &Cidr, other: &Cidr) -> CelBool {
    within(cidr.0, other.0)
}

fn contains_cidr_text(cidr: &Cidr, text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    Ok(within(cidr.0, read_cidr(text.inner())?))
}

fn ip_of(cidr: &Cidr) -> Ip {
    Of(cidr.0.address)
}

fn masked(cidr: &Cidr) -> Cidr {
    Of(cidr.0.masked())
}

fn prefix_length(cidr: &Cidr) -> CelInt {
    CelInt::from(i64::from(cidr.0.bits))
}
