//! What is known without a name server: `/etc/hosts`, and the names and addresses that are never asked of one.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::question::{Answer, Question};

const HOSTS_FILE: &str = "/etc/hosts";

/// The name of the machine itself, which has names below it (RFC 6761, section 6.3).
const LOCALHOST: &str = "localhost";

/// Below these, no name server has names (RFC 6761, section 6.4, and RFC 7686).
const NOWHERE: [&str; 2] = ["invalid", "onion"];

/// The answers of `/etc/hosts`, as it was when it was read.
#[derive(Debug, Default)]
pub(super) struct LocalAnswers {
    hosts: HashMap<Question, Answer, RandomState>,
}

impl LocalAnswers {
    /// Those of the system; none of a file that cannot be read.
    pub fn of_system() -> Self {
        let text = fs::read(HOSTS_FILE).unwrap_or_default();
        Self::of_hosts(&String::from_utf8_lossy(&text))
    }

    /// Those of a text with an address and its names in each line (hosts(5)).
    fn of_hosts(text: &str) -> Self {
        let mut names: HashMap<IpAddr, Vec<String>, RandomState> = HashMap::default();
        let mut addresses: HashMap<String, Vec<IpAddr>, RandomState> = HashMap::default();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(address) = words.next().and_then(|it| it.parse::<IpAddr>().ok()) else {
                continue;
            };
            let address = address.to_canonical();
            for name in words {
                let name = without_dot(name).to_lowercase();
                names.entry(address).or_default().push(name.clone());
                addresses.entry(name).or_default().push(address);
            }
        }
        let names = names.into_iter().map(|(address, names)| {
            let answer = Answer::of_names(names.into_iter());
            (Question::NameOf(address), answer)
        });
        let addresses = addresses.into_iter().map(|(name, addresses)| {
            let answer = Answer::of_addresses(addresses.into_iter());
            (Question::AddressesOf(name.into()), answer)
        });
        Self {
            hosts: names.chain(addresses).collect(),
        }
    }

    /// The answer to a question that is not for a name server.
    pub fn answer(&self, question: &Question) -> Option<Answer> {
        match question {
            Question::AddressesOf(name) => {
                let name = without_dot(name);
                if is_in(name, LOCALHOST) {
                    let addresses = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                    return Some(Answer::of_addresses(addresses.into_iter()));
                }
                let known = self.hosts.get(&Question::AddressesOf(name.into()));
                let is_nowhere = NOWHERE.iter().any(|zone| is_in(name, zone));
                let nowhere = is_nowhere.then_some(Answer::NoRecord);
                known.cloned().or(nowhere)
            }
            Question::NameOf(address) => {
                let itself = || Answer::of_names([LOCALHOST.to_owned()].into_iter());
                let known = self.hosts.get(question).cloned();
                known.or_else(|| address.is_loopback().then(itself))
            }
        }
    }
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether a name is this zone, or below it.
fn is_in(name: &str, zone: &str) -> bool {
    let above = name.strip_suffix(zone);
    above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_without_a_server() {
        let hosts = "\u{feff}10.0.0.1 Web.example web # the web\n# 10.0.0.2 db\nx y\n2001:db8::1\tweb\n10.0.0.3\n";
        let local = LocalAnswers::of_hosts(hosts);
        let found = |text: &str| Some(Answer::Found(text.as_bytes().into()));
        for (name, expected) in [
            ("web", found(r#"["10.0.0.1","2001:db8::1"]"#)),
            ("web.example.", found(r#"["10.0.0.1"]"#)),
            ("db", None),
            ("localhost", found(r#"["127.0.0.1","::1"]"#)),
            ("a.localhost.", found(r#"["127.0.0.1","::1"]"#)),
            ("notlocalhost", None),
            ("a.onion", Some(Answer::NoRecord)),
            ("invalid", Some(Answer::NoRecord)),
        ] {
            let answer = local.answer(&Question::AddressesOf(name.into()));
            assert_eq!(answer, expected, "{name}");
        }
        for (address, expected) in [
            ("10.0.0.1", found("web")),
            ("2001:db8::1", found("web")),
            ("10.0.0.3", None),
            ("127.1.2.3", found("localhost")),
            ("::1", found("localhost")),
        ] {
            let answer = local.answer(&Question::NameOf(address.parse().unwrap()));
            assert_eq!(answer, expected, "{address}");
        }
    }
}
