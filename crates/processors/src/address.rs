//! Addresses: how they are read, and the keys under which lookups are remembered.

use std::net::IpAddr;

/// The address that a text is, white space around it aside; an IPv4 address in IPv6 clothes is an IPv4 address.
pub(crate) fn parse(text: &[u8]) -> Option<IpAddr> {
    let address: IpAddr = std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    Some(address.to_canonical())
}

/// What a lookup is remembered by: the text itself where it is short, as every IPv4 address is, so that nothing has to be
/// parsed for what is known already; else the address. Different texts and addresses have different keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    first: u64,
    last: u64,
    /// Length of the text, or [`Key::ADDRESS`].
    length: u64,
}

impl Key {
    const ADDRESS: u64 = u64::MAX;

    /// The key of a text of 4 to 16 bytes: its first and last bytes, which overlap or meet, say all of it.
    #[inline]
    pub fn of_text(text: &[u8]) -> Option<Self> {
        let (first, last) = match text.len() {
            8..=16 => (
                u64::from_le_bytes(*text.first_chunk()?),
                u64::from_le_bytes(*text.last_chunk()?),
            ),
            4..8 => {
                let half = |chunk: &[u8; 4]| u64::from(u32::from_le_bytes(*chunk));
                (half(text.first_chunk()?), half(text.last_chunk()?))
            }
            _ => return None,
        };
        Some(Self {
            first,
            last,
            length: text.len() as u64,
        })
    }

    /// The key of an address whose text has none of its own.
    pub fn of_address(address: IpAddr) -> Self {
        let bits = match address {
            IpAddr::V4(v4) => u128::from(u32::from(v4)) | 0xffff << 32,
            IpAddr::V6(v6) => u128::from(v6),
        };
        Self {
            first: (bits >> 64) as u64,
            last: bits as u64,
            length: Self::ADDRESS,
        }
    }
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
            ("1.2.3.256", None),
            ("01.2.3.4", None),
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
        fn keys_tell_texts_and_addresses_apart(a in "[0-2.]{0,18}", b in "[0-2.]{0,18}", x in any::<IpAddr>(), y in any::<IpAddr>()) {
            let (one, two) = (Key::of_text(a.as_bytes()), Key::of_text(b.as_bytes()));
            prop_assert_eq!(one.is_some(), (4..=16).contains(&a.len()));
            if let (Some(one), Some(two)) = (one, two) {
                prop_assert_eq!(one == two, a == b);
                // One byte more, or another one, makes another key.
                for at in 0..a.len() {
                    let mut near = a.clone().into_bytes();
                    near[at] ^= 1;
                    prop_assert_ne!(Key::of_text(&near), Some(one));
                }
            }
            let (x, y) = (x.to_canonical(), y.to_canonical());
            prop_assert_eq!(Key::of_address(x) == Key::of_address(y), x == y);
            prop_assert_ne!(one, Some(Key::of_address(x)));
        }
    }
}
