//! IP addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::Takes::Any;
use super::run::{Refused, Run};
use super::{FunctionDoc, Kind, list_of, text_of};
use crate::fault::What;
use crate::types::Type;
use crate::value::Val;

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "ip.inCidr",
        &[Any, Any],
        Kind::Prepared(in_cidr),
        [
            "ip.inCidr(address, network) -> bool",
            "Whether an IP address lies in a network such as `10.0.0.0/8` or `2001:db8::/32`, which are written with all their numbers, or in one of a list of networks. IPv4 addresses within IPv6 (`::ffff:10.0.0.1`) count as IPv4. Of a list of addresses the first counts, as in `geoip`; blanks around an address do not. A text that is no address is an error, which `ip.isValid` tells beforehand.",
            "ip.inCidr(client.ip, '10.0.0.0/8') && !ip.inCidr(client.ip, ['192.168.0.0/16', '::1/128'])",
        ],
    ),
    FunctionDoc::new(
        "ip.isPrivate",
        &[Any],
        Kind::Call(|args| Ok(Val::Bool(is_private(address_of(&args[0])?)))),
        [
            "ip.isPrivate(address) -> bool",
            "Whether an IP address is not from the public internet: private (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7), loopback, link-local, shared by carriers (100.64.0.0/10), multicast, broadcast, reserved, or for documentation and benchmarks; all that is not globally reachable in IANA's registries of special-purpose addresses. Lists and blanks as in `ip.inCidr`.",
            "ip.isPrivate(client.ip) && ip.isPrivate('224.0.0.1') && !ip.isPrivate('8.8.8.8')",
        ],
    ),
    FunctionDoc::new(
        "ip.isValid",
        &[Any],
        Kind::Call(|args| Ok(Val::Bool(address_of(&args[0]).is_ok()))),
        [
            "ip.isValid(value) -> bool",
            "Whether the value is an IP address that the functions here take. False for what is absent or null.",
            "ip.isValid(client.ip) && !ip.isValid(method) && !ip.isValid(user.ip)",
        ],
    )
    .of_nothing(),
];

/// The address of a text, or of the first element of a list.
fn address_of(value: &Val<'_>) -> Result<IpAddr, What> {
    if let Some(elements) = value.elements() {
        let first = elements.first();
        let first = first.ok_or(What::Other("the list of addresses is empty"))?;
        return read_address(text_of(first)?);
    }
    read_address(text_of(value)?)
}

fn read_address(text: &str) -> Result<IpAddr, What> {
    let address: Result<IpAddr, _> = text.trim().parse();
    address
        .map(|address| address.to_canonical())
        .map_err(|_| What::Unreadable("an IP address"))
}

/// A network such as `10.0.0.0/8` or `2001:db8::/32`, or an address as a network of one. One of IPv4 addresses within IPv6
/// (`::ffff:10.0.0.0/104`) is a network of IPv4 addresses.
pub fn read_network(text: &str) -> Option<IpNet> {
    let network = text
        .parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .ok()?;
    Some(match network {
        IpNet::V6(six) if six.prefix_len() >= 96 => six
            .addr()
            .to_ipv4_mapped()
            .and_then(|four| ipnet::Ipv4Net::new(four, six.prefix_len() - 96).ok())
            .map_or(network, IpNet::V4),
        _ => network,
    })
}

fn network(text: &str) -> Result<IpNet, What> {
    read_network(text).ok_or(What::Unreadable("a network such as 10.0.0.0/8"))
}

fn networks(value: &Val<'_>) -> Result<Vec<IpNet>, What> {
    match value.kind() {
        Type::Text => Ok(vec![network(text_of(value)?)?]),
        Type::List => list_of(value)?
            .iter()
            .map(|element| network(text_of(element)?))
            .collect(),
        other => Err(What::Needs("a network or a list of networks", other)),
    }
}

fn in_cidr(args: &[Option<&Val<'static>>]) -> Result<Run, Refused> {
    let contains = |networks: &[IpNet], address: &Val<'_>| {
        let address = address_of(address)?;
        let is_in = networks.iter().any(|network| network.contains(&address));
        Ok(Val::Bool(is_in))
    };
    let Some(Some(constant)) = args.get(1) else {
        return Ok(Run::call(move |args| {
            contains(&networks(&args[1])?, &args[0])
        }));
    };
    let networks = networks(constant).map_err(|what| Refused::new(1, what.to_string()))?;
    Ok(Run::call(move |args| contains(&networks, &args[0])))
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            let is_in = |(network, len): &(Ipv4Addr, u32)| {
                (bits ^ network.to_bits()).leading_zeros() >= *len
            };
            SPECIAL_V4.iter().any(is_in) && !REACHABLE_V4.iter().any(is_in)
        }
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            let is_in = |(network, len): &(Ipv6Addr, u32)| {
                (bits ^ network.to_bits()).leading_zeros() >= *len
            };
            SPECIAL_V6.iter().any(is_in) && !REACHABLE_V6.iter().any(is_in)
        }
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, len: u32) -> (Ipv4Addr, u32) {
    (Ipv4Addr::new(a, b, c, d), len)
}

/// An IPv6 network by its first three groups; the others are zero.
const fn v6(a: u16, b: u16, c: u16, len: u32) -> (Ipv6Addr, u32) {
    (Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), len)
}

/// Networks that IANA's registry lists as not globally reachable, and multicast, which no host sends from.
const SPECIAL_V4: [(Ipv4Addr, u32); 14] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
];

/// Addresses within those that are globally reachable.
const REACHABLE_V4: [(Ipv4Addr, u32); 2] = [v4(192, 0, 0, 9, 32), v4(192, 0, 0, 10, 32)];

const SPECIAL_V6: [(Ipv6Addr, u32); 12] = [
    (Ipv6Addr::UNSPECIFIED, 128),
    (Ipv6Addr::LOCALHOST, 128),
    v6(0x64, 0xff9b, 1, 48),
    v6(0x100, 0, 0, 64),
    (Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 0), 64),
    v6(0x2001, 0, 0, 23),
    v6(0x2001, 0xdb8, 0, 32),
    v6(0x3fff, 0, 0, 20),
    v6(0x5f00, 0, 0, 16),
    v6(0xfc00, 0, 0, 7),
    v6(0xfe80, 0, 0, 10),
    v6(0xff00, 0, 0, 8),
];

const REACHABLE_V6: [(Ipv6Addr, u32); 7] = [
    (Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 1), 128),
    (Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 2), 128),
    (Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 3), 128),
    v6(0x2001, 3, 0, 32),
    v6(0x2001, 4, 0x112, 48),
    v6(0x2001, 0x20, 0, 28),
    v6(0x2001, 0x30, 0, 28),
];
