//! Addresses, user agents and paths, made from the parts in `vocabulary.txt`.

use super::random::Bits;

/// All lists; the file says what they look like.
const LISTS: &str = include_str!("vocabulary.txt");

/// The list of this name, its most frequent entries first.
pub(super) fn list(name: &str) -> Vec<&'static str> {
    let mut lists = LISTS.split("\n\n");
    let entries = lists.find_map(|list| list.strip_prefix(name)?.strip_prefix(":\n"));
    debug_assert!(entries.is_some(), "there is a list `{name}`");
    entries.unwrap_or_default().lines().collect()
}

/// The ends of paths, the most frequent first. Not one of the lists, as one is empty.
const ENDINGS: [&str; 12] = [
    ".html", ".png", "", ".css", ".js", "/", ".ico", ".jpg", ".php", ".xml", ".pdf", ".svg",
];

/// The parts of addresses, user agents and paths.
pub(super) struct Vocabulary {
    /// The first two numbers of the networks that clients have addresses in. All belong to providers of different countries,
    /// so that a database of places has something to say about them.
    networks: Vec<&'static str>,
    /// What browsers call the systems that they run on.
    systems: Vec<&'static str>,
    /// Programs that say who they are; `-` is one that does not.
    programs: Vec<&'static str>,
    words: Vec<&'static str>,
    /// The names of hosts on the internet.
    pub(super) domains: Vec<&'static str>,
}

impl Vocabulary {
    pub(super) fn new() -> Self {
        Self {
            networks: list("networks"),
            systems: list("systems"),
            programs: list("programs"),
            words: list("words"),
            domains: list("domains"),
        }
    }

    /// So many different addresses of clients, one in fifty of version 6.
    pub(super) fn addresses(&self, bits: &mut Bits, count: usize) -> Vec<String> {
        let address = |at: usize| {
            if at % 50 == 49 {
                return format!("2001:db8:{:x}::{:x}", bits.next(), bits.next());
            }
            let network = bits.popular(&self.networks);
            format!("{network}.{}.{}", bits.below(256), 1 + bits.below(254))
        };
        (0..count).map(address).collect()
    }

    /// So many user agents, about every sixth a program that is no browser.
    pub(super) fn user_agents(&self, bits: &mut Bits, count: usize) -> Vec<String> {
        let mut programs = self.programs.iter();
        let agent = |at: usize| {
            let program = if at % 6 == 1 { programs.next() } else { None };
            program.map_or_else(|| self.browser(bits), |program| (*program).to_owned())
        };
        (0..count).map(agent).collect()
    }

    fn browser(&self, bits: &mut Bits) -> String {
        let system = bits.popular(&self.systems);
        match bits.below(10) {
            0..=4 => {
                let (major, build) = (28 + bits.below(94), 1000 + bits.below(5000));
                let mobile = if system.contains("Android") {
                    " Mobile"
                } else {
                    ""
                };
                format!(
                    "Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.{build}.{}{mobile} Safari/537.36",
                    bits.below(200)
                )
            }
            5..=7 => {
                let version = 10 + bits.below(112);
                format!("Mozilla/5.0 ({system}; rv:{version}.0) Gecko/20100101 Firefox/{version}.0")
            }
            8 => {
                let (major, minor) = (9 + bits.below(9), bits.below(6));
                format!(
                    "Mozilla/5.0 (iPhone; CPU iPhone OS {major}_{minor} like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/{major}.{minor} Mobile/15E148 Safari/604.1"
                )
            }
            _ => format!(
                "Mozilla/5.0 (compatible; MSIE {}.0; {system}; Trident/{}.0)",
                7 + bits.below(4),
                4 + bits.below(3)
            ),
        }
    }

    /// The path of a request, with a query in one of five cases.
    pub(super) fn path(&self, bits: &mut Bits) -> String {
        let mut path = String::new();
        for _ in 0..1 + bits.below(4) {
            path.push('/');
            path += *bits.popular(&self.words);
            if bits.percent(30) {
                path.push('-');
                path += *bits.any(&self.words);
            }
        }
        path += *bits.popular(&ENDINGS);
        if bits.percent(20) {
            path.push_str(&format!(
                "?{}={}&page={}",
                bits.any(&self.words),
                bits.next(),
                bits.below(40)
            ));
        }
        path
    }
}
