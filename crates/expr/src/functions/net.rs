//! IP addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::Takes::{Any, Text};
use super::bind::{Refused, Run};
use super::{FunctionDoc, Kind, list_of, text_of};
use crate::fault::What;
use crate::value::{Type, Val};

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "ip.inCidr",
        &[Text, Any],
        Kind::Prepared(in_cidr),
        [
            "ip.inCidr(address, network) -> bool",
            "Whether an IP address lies in a network such as `10.0.0.0/8` or `2001:db8::/32`, or in one of a list of networks. IPv4 addresses within IPv6 (`::ffff:10.0.0.1`) count as IPv4. A text that is no address is an error.",
            "ip.inCidr(client.ip, '10.0.0.0/8') && !ip.inCidr(client.ip, ['192.168.0.0/16', '::1/128'])",
        ],
    ),
    FunctionDoc::new(
        "ip.isPrivate",
        &[Text],
        Kind::Call(|args| Ok(Val::Bool(is_private(address_of(&args[0])?)))),
        [
            "ip.isPrivate(address) -> bool",
            "Whether an IP address is not from the public internet: private (10/8, 172.16/12, 192.168/16, fc00::/7), loopback, link-local, shared by carriers (100.64/10) or unspecified. A text that is no address is an error.",
            "ip.isPrivate(client.ip) && !ip.isPrivate('8.8.8.8')",
        ],
    ),
];

fn address_of(value: &Val<'_>) -> Result<IpAddr, What> {
    let address: Result<IpAddr, _> = text_of(value)?.parse();
    address
        .map(|address| address.to_canonical())
        .map_err(|_| What::Unreadable("an IP address"))
}

/// A network, or an address as a network of one.
fn network(text: &str) -> Result<IpNet, What> {
    let network = text
        .parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| What::Unreadable("a network such as 10.0.0.0/8"))?;
    Ok(match network {
        // `::ffff:10.0.0.0/104`, whose addresses count as IPv4.
        IpNet::V6(six) if six.prefix_len() >= 96 => six
            .addr()
            .to_ipv4_mapped()
            .and_then(|four| ipnet::Ipv4Net::new(four, six.prefix_len() - 96).ok())
            .map_or(network, IpNet::V4),
        _ => network,
    })
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
        IpAddr::V4(four) => {
            let is_shared = four.octets()[0] == 100 && four.octets()[1] & 0xc0 == 64;
            four.is_private()
                || four.is_loopback()
                || four.is_link_local()
                || is_shared
                || four == Ipv4Addr::UNSPECIFIED
        }
        IpAddr::V6(six) => {
            six.is_loopback()
                || six.is_unique_local()
                || six.is_unicast_link_local()
                || six == Ipv6Addr::UNSPECIFIED
        }
    }
}
