//! Asks name servers one question.
//!
//! The protocol is the business of `hickory-resolver`: questions over UDP, sent again after a third of a second and over TCP where the answer
//! is too long, and which of several servers is asked. It gives up after [`ATTEMPT`], twice. Its own cache is off, and so are its hosts file, its
//! search domains and its joint look-up of both kinds of addresses, which waits for the slower one in any case.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::{Duration, Instant};

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Resolver, TokioResolver};
use tokio::time::timeout;

use super::question::{Answer, Question};

/// How long an answer is waited for before the question is asked anew.
const ATTEMPT: Duration = Duration::from_secs(2);

/// How long the addresses of one kind wait for those of the other.
const OTHER_KIND_MAX: Duration = Duration::from_millis(250);

/// Which servers are asked, and how.
#[derive(Debug, Clone)]
pub(super) struct NameServers {
    config: ResolverConfig,
    options: ResolverOpts,
}

impl NameServers {
    /// Those of the system, by `/etc/resolv.conf`.
    ///
    /// # Errors
    /// The file cannot be read, or names no server.
    pub fn of_system() -> Result<Self, NetError> {
        let (config, options) = read_system_conf()?;
        Ok(Self { config, options })
    }

    /// Those at these addresses.
    pub fn at(addresses: &[SocketAddr]) -> Self {
        let server = |address: &SocketAddr| {
            let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
            for connection in &mut connections {
                connection.port = address.port();
            }
            NameServerConfig::new(address.ip(), true, connections)
        };
        let servers = addresses.iter().map(server).collect();
        Self {
            config: ResolverConfig::from_parts(None, Vec::new(), servers),
            options: ResolverOpts::default(),
        }
    }

    /// What asks them, up to so many questions at the same time.
    ///
    /// # Errors
    /// The library cannot use the servers.
    pub fn asker(self, most: usize) -> Result<Asker, NetError> {
        let Self {
            config,
            mut options,
        } = self;
        options.timeout = ATTEMPT;
        options.attempts = 1;
        options.cache_size = 0;
        options.max_active_requests = 2 * most;
        options.use_hosts_file = ResolveHosts::Never;
        let suffixes = config.domain().into_iter().chain(config.search());
        let (suffixes, ndots) = (suffixes.cloned().collect(), options.ndots);
        let builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        Ok(Asker {
            resolver: builder.with_options(options).build()?,
            suffixes,
            ndots,
        })
    }
}

/// Their addresses.
impl fmt::Display for NameServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, server) in self.config.name_servers().iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let port = server.connections.first().map_or(0, |it| it.port);
            write!(f, "{separator}{}", SocketAddr::from((server.ip, port)))?;
        }
        Ok(())
    }
}

/// What came of a question.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub answer: Answer,
    /// How long its records hold.
    pub ttl: Duration,
    /// A server answered.
    pub is_heard: bool,
}

impl Resolved {
    pub const UNANSWERED: Self = Self::unheard(Answer::Unanswered);

    /// What no server said.
    pub const fn unheard(answer: Answer) -> Self {
        Self {
            answer,
            ttl: Duration::ZERO,
            is_heard: false,
        }
    }

    fn found(answer: Answer, until: Instant) -> Self {
        Self {
            answer,
            ttl: until.saturating_duration_since(Instant::now()),
            is_heard: true,
        }
    }

    fn of_error(error: &NetError) -> Self {
        let answer = match error {
            NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
                ResponseCode::NXDomain | ResponseCode::NoError => Answer::NoRecord,
                _ => Answer::Failed,
            },
            NetError::Timeout | NetError::NoConnections | NetError::Busy | NetError::Io(_) => {
                Answer::Unanswered
            }
            _ => Answer::Failed,
        };
        Self {
            is_heard: matches!(error, NetError::Dns(_)),
            ..Self::unheard(answer)
        }
    }
}

/// Asks servers.
pub(super) struct Asker {
    resolver: TokioResolver,
    /// The search domains, in the order in which they are tried.
    suffixes: Vec<Name>,
    /// A name with as many dots is tried as it is before them.
    ndots: usize,
}

impl Asker {
    pub async fn resolve(&self, question: &Question) -> Resolved {
        match question {
            Question::NameOf(address) => match self.resolver.reverse_lookup(*address).await {
                Ok(lookup) => {
                    Resolved::found(Answer::of_names(names(&lookup)), lookup.valid_until())
                }
                Err(error) => Resolved::of_error(&error),
            },
            Question::AddressesOf(name) => {
                let Ok(name) = Name::from_utf8(&**name) else {
                    return Resolved::unheard(Answer::Failed);
                };
                let mut last = Resolved::UNANSWERED;
                for name in self.with_suffixes(name) {
                    last = self.addresses(name).await;
                    if matches!(last.answer, Answer::Found(_)) {
                        break;
                    }
                }
                last
            }
        }
    }

    /// The names to try one after the other.
    fn with_suffixes(&self, name: Name) -> Vec<Name> {
        if name.is_fqdn() {
            return vec![name];
        }
        let longer = self.suffixes.iter();
        let mut names: Vec<Name> = longer
            .filter_map(|suffix| name.clone().append_domain(suffix).ok())
            .collect();
        let is_first = usize::from(name.num_labels()) > self.ndots;
        let mut itself = name;
        itself.set_fqdn(true);
        names.insert(if is_first { 0 } else { names.len() }, itself);
        names
    }

    /// The addresses of exactly this name. If those of one kind do not come, those of the other are the answer.
    async fn addresses(&self, name: Name) -> Resolved {
        let mut four = pin!(self.resolver.lookup(name.clone(), RecordType::A));
        let mut six = pin!(self.resolver.lookup(name, RecordType::AAAA));
        let (is_four, one) = tokio::select! {
            one = &mut four => (true, one),
            one = &mut six => (false, one),
        };
        let rest = if is_four { six } else { four };
        let other = match &one {
            Ok(_) => timeout(OTHER_KIND_MAX, rest)
                .await
                .unwrap_or(Err(NetError::Timeout)),
            Err(_) => rest.await,
        };
        of_both(&one, &other)
    }
}

fn of_both(one: &Result<Lookup, NetError>, other: &Result<Lookup, NetError>) -> Resolved {
    match (one, other) {
        (Ok(one), Ok(other)) => {
            let until = one.valid_until().min(other.valid_until());
            let both = addresses_in(one).chain(addresses_in(other));
            Resolved::found(Answer::of_addresses(both), until)
        }
        (Ok(one), Err(error)) | (Err(error), Ok(one)) => {
            let answer = Answer::of_addresses(addresses_in(one));
            let is_whole = Resolved::of_error(error).answer == Answer::NoRecord;
            // What may be a part of the addresses is remembered for the shortest time.
            let until = if is_whole {
                one.valid_until()
            } else {
                Instant::now()
            };
            Resolved::found(answer, until)
        }
        (Err(one), Err(other)) => {
            let (one, other) = (Resolved::of_error(one), Resolved::of_error(other));
            let is_heard = one.is_heard || other.is_heard;
            let worse = if one.answer == Answer::NoRecord {
                other
            } else {
                one
            };
            Resolved { is_heard, ..worse }
        }
    }
}

fn addresses_in(lookup: &Lookup) -> impl Iterator<Item = IpAddr> {
    let records = lookup.answers().iter();
    records.filter_map(|record| record.data.ip_addr())
}

/// The names in an answer; of a delegated network (RFC 2317) also an alias is there.
fn names(lookup: &Lookup) -> impl Iterator<Item = String> {
    let records = lookup.answers().iter();
    records.filter_map(|record| match &record.data {
        RData::PTR(name) => Some(name.0.to_ascii()),
        _ => None,
    })
}
