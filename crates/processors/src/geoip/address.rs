//! Reading addresses.

use std::net::{IpAddr, Ipv4Addr};

/// The address that a text is; an IPv4 address in IPv6 clothes is an IPv4 address.
#[inline]
pub(super) fn parse(text: &[u8]) -> Option<IpAddr> {
    match ipv4(text) {
        Some(address) => Some(IpAddr::V4(address)),
        None => other(text),
    }
}

fn other(text: &[u8]) -> Option<IpAddr> {
    let address: IpAddr = std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    Some(address.to_canonical())
}

/// The number that stands for an address.
#[inline]
pub(super) fn key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) | 0xffff << 32,
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// Four numbers up to 255 without leading zeros, points between them.
#[inline]
fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    if text.len() > 15 {
        return None;
    }
    let (mut address, mut part, mut digits, mut points) = (0u32, 0u32, 0, 0);
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            part = part * 10 + u32::from(digit);
            digits += 1;
            if part > 255 || digits > 1 && part < 10 {
                return None;
            }
        } else {
            if *byte != b'.' || digits == 0 {
                return None;
            }
            address = address << 8 | part;
            (part, digits) = (0, 0);
            points += 1;
        }
    }
    (points == 3 && digits > 0).then(|| Ipv4Addr::from(address << 8 | part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_in_their_spellings() {
        for (text, expected) in [
            ("1.2.3.4", Some("1.2.3.4")),
            ("255.255.255.255", Some("255.255.255.255")),
            (" 1.2.3.4\t", Some("1.2.3.4")),
            ("::ffff:1.2.3.4", Some("1.2.3.4")),
            ("2001:DB8::1", Some("2001:db8::1")),
            ("", None),
            ("1.2.3", None),
            ("1.2.3.4.5", None),
            ("1..2.3", None),
            ("1.2.3.256", None),
            ("01.2.3.4", None),
            ("00.0.0.0", None),
            ("1.2.3.4:80", None),
            ("example.com", None),
            ("\u{ff11}.2.3.4", None),
        ] {
            assert_eq!(
                parse(text.as_bytes())
                    .map(|address| address.to_string())
                    .as_deref(),
                expected,
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_short_way_agrees_with_the_standard_library(text in "[0-9]{1,4}(\\.[0-9]{0,4}){1,4}|[0-9a-f:.]{0,20}") {
            let expected = text.parse::<IpAddr>().ok().map(|address| address.to_canonical());
            prop_assert_eq!(parse(text.as_bytes()), expected);
        }

        #[test]
        fn keys_tell_addresses_apart(a in any::<IpAddr>(), b in any::<IpAddr>()) {
            let (a, b) = (a.to_canonical(), b.to_canonical());
            prop_assert_eq!(key(a) == key(b), a == b);
        }
    }
}
