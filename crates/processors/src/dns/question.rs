//! What is asked of name servers, and what comes back.

use std::net::IpAddr;
use std::sync::Arc;

use batch::json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address;

/// The longest name in text, without a dot at its end (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// The longest part of a name between dots.
const LABEL_BYTES_MAX: usize = 63;

/// How many addresses of a name are kept.
const ADDRESSES_MAX: usize = 64;

/// What is looked up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum LookupType {
    /// The name of an address (`PTR` records).
    #[default]
    Reverse,
    /// The addresses of a name (`A` and `AAAA` records).
    Forward,
}

/// Something to ask.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Question {
    /// Which name an address has.
    NameOf(IpAddr),
    /// Which addresses a name has, in small letters.
    AddressesOf(Box<str>),
}

/// What the text of a field asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Question(Question),
    /// The addresses of an address.
    Itself(IpAddr),
    /// It is no address, or no name.
    Invalid,
}

impl Wanted {
    pub fn of_text(text: &[u8], lookup_type: LookupType) -> Self {
        match (lookup_type, address::parse(text)) {
            (LookupType::Reverse, Some(address)) => Self::Question(Question::NameOf(address)),
            (LookupType::Reverse, None) => Self::Invalid,
            (LookupType::Forward, Some(address)) => Self::Itself(address),
            (LookupType::Forward, None) => match name(text) {
                Some(name) => Self::Question(Question::AddressesOf(name)),
                None => Self::Invalid,
            },
        }
    }
}

/// The name of a host that a text is, white space around it aside.
fn name(text: &[u8]) -> Option<Box<str>> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let labels = text.strip_suffix('.').unwrap_or(text);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | 0x80..);
    let is_label =
        |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_letter);
    let is_name = labels.len() <= NAME_BYTES_MAX && labels.split('.').all(is_label);
    is_name.then(|| text.to_lowercase().into())
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The text of a name, or the JSON of a list of addresses.
    Found(Arc<[u8]>),
    /// There is no such record.
    NoRecord,
    /// A server answered with an error.
    Failed,
    /// No server answered.
    Unanswered,
}

impl Answer {
    /// The first of these names in the order of the alphabet: servers give them in any order.
    pub fn of_names(names: impl Iterator<Item = String>) -> Self {
        let names = names.map(|mut name| {
            // Only the last dot: the one before it may belong to a label, with a backslash.
            if name.ends_with('.') {
                name.pop();
            }
            name
        });
        match names.filter(|name| !name.is_empty()).min() {
            Some(name) => Self::Found(name.into_bytes().into()),
            None => Self::NoRecord,
        }
    }

    /// These addresses, or the first [`ADDRESSES_MAX`], IPv4 before IPv6 and by number: servers give them in any order.
    pub fn of_addresses(addresses: impl Iterator<Item = IpAddr>) -> Self {
        let mut addresses: Vec<IpAddr> = addresses.collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(ADDRESSES_MAX);
        let mut out = Vec::new();
        for address in &addresses {
            out.push(if out.is_empty() { b'[' } else { b',' });
            json::write_string(&mut out, address.to_string().as_bytes());
        }
        out.push(b']');
        match addresses.is_empty() {
            true => Self::NoRecord,
            false => Self::Found(out.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_text_asks_for() {
        let long = "a".repeat(64);
        let longest = vec!["a".repeat(63); 3].join(".") + "." + &"a".repeat(61);
        for (text, expected) in [
            ("web-1.example", Some("web-1.example")),
            (" Web-1.Example.\n", Some("web-1.example.")),
            ("_x_.y", Some("_x_.y")),
            ("bücher.example", Some("bücher.example")),
            (&longest, Some(&*longest)),
            (&format!("{longest}a"), None),
            (&long, None),
            ("", None),
            (".", None),
            ("a..b", None),
            (".a", None),
            ("a b", None),
            ("web-1:80", None),
            ("http://a", None),
        ] {
            let expected = match expected {
                Some(name) => Wanted::Question(Question::AddressesOf(name.into())),
                None => Wanted::Invalid,
            };
            let wanted = Wanted::of_text(text.as_bytes(), LookupType::Forward);
            assert_eq!(wanted, expected, "{text}");
        }
        let address = IpAddr::from([192, 0, 2, 1]);
        for text in ["192.0.2.1", " ::ffff:192.0.2.1"] {
            let of = |lookup_type| Wanted::of_text(text.as_bytes(), lookup_type);
            let question = Wanted::Question(Question::NameOf(address));
            assert_eq!(of(LookupType::Reverse), question);
            assert_eq!(of(LookupType::Forward), Wanted::Itself(address));
        }
        let name = Wanted::of_text(b"example", LookupType::Reverse);
        assert_eq!(name, Wanted::Invalid);
    }

    #[test]
    fn answers_do_not_depend_on_the_order_of_records() {
        let found = |text: &str| Answer::Found(text.as_bytes().into());
        let names = |names: &[&str]| Answer::of_names(names.iter().map(|it| (*it).to_owned()));
        assert_eq!(names(&["b.example.", "a.example."]), found("a.example"));
        assert_eq!(names(&[r"a\.."]), found(r"a\."));
        assert_eq!(names(&["."]), Answer::NoRecord);
        assert_eq!(names(&[]), Answer::NoRecord);
        let addresses =
            |texts: &[&str]| Answer::of_addresses(texts.iter().map(|text| text.parse().unwrap()));
        assert_eq!(
            addresses(&["::1", "10.0.0.2", "9.0.0.1", "10.0.0.2"]),
            found(r#"["9.0.0.1","10.0.0.2","::1"]"#)
        );
        assert_eq!(addresses(&[]), Answer::NoRecord);
        let many = (0..u32::from(u16::MAX)).map(|n| IpAddr::V4(n.into()));
        let Answer::Found(kept) = Answer::of_addresses(many) else {
            panic!("there are addresses");
        };
        assert!(kept.ends_with(br#","0.0.0.63"]"#) && kept.len() < 4096);
    }
}
