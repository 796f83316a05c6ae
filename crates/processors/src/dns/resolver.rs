//! Asks name servers, on a thread of its own.
//!
//! The protocol is the business of `hickory-resolver`: questions over UDP, sent again after a third of a second and over TCP where the answer
//! is too long, search domains, the hosts file, and which of several servers is asked. It gives up after [`ATTEMPT`], twice. Its own cache is off.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
    ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Resolver, TokioResolver};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answers::{Answers, OPEN_MAX};
use super::question::{Answer, Question};

/// How many questions are with servers at the same time. Each takes a socket, or up to eight: for both kinds of addresses, and when sent again.
const IN_FLIGHT_MAX: usize = 128;

/// How long an answer is waited for before the question is asked anew.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The longest time for a question in all, with search domains.
const QUESTION_MAX: Duration = Duration::from_secs(10);

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

    fn resolver(self) -> Result<TokioResolver, NetError> {
        let Self {
            config,
            mut options,
        } = self;
        options.timeout = ATTEMPT;
        options.attempts = 1;
        options.cache_size = 0;
        options.max_active_requests = 2 * IN_FLIGHT_MAX;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Always;
        let builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.with_options(options).build()
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

/// Starts the thread that asks `servers` what it gets, until the sender is gone.
///
/// # Errors
/// The system gives no thread, or not what one needs to use the network.
pub(super) fn start(servers: NameServers, answers: Arc<Answers>) -> io::Result<Sender<Question>> {
    let (asker, questions) = channel(OPEN_MAX);
    let resolver = servers.resolver().map_err(io::Error::other)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    component::thread::start("dns", move || {
        runtime.block_on(ask_all(questions, resolver, answers));
    })?;
    Ok(asker)
}

async fn ask_all(
    mut questions: Receiver<Question>,
    resolver: TokioResolver,
    answers: Arc<Answers>,
) {
    let mut in_flight = JoinSet::new();
    loop {
        tokio::select! {
            question = questions.recv(), if in_flight.len() < IN_FLIGHT_MAX => match question {
                Some(question) if answers.is_to_be_sent(&question) => {
                    let asked = Asked { question: Some(question), answers: answers.clone() };
                    in_flight.spawn(asked.ask(resolver.clone()));
                }
                Some(_) => {}
                None => break,
            },
            Some(_) = in_flight.join_next() => {}
        }
    }
}

/// A question that gets an answer in any case: also one over which the library panics.
struct Asked {
    question: Option<Question>,
    answers: Arc<Answers>,
}

impl Asked {
    async fn ask(mut self, resolver: TokioResolver) {
        let Some(question) = &self.question else {
            return;
        };
        let asked = timeout(QUESTION_MAX, resolve(&resolver, question));
        let (answer, ttl) = asked.await.unwrap_or((Answer::Unanswered, Duration::ZERO));
        self.answer(answer, ttl);
    }

    fn answer(&mut self, answer: Answer, ttl: Duration) {
        if let Some(question) = self.question.take() {
            self.answers.put(question, answer, ttl);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.answer(Answer::Failed, Duration::ZERO);
    }
}

/// The answer, and how long its records hold.
async fn resolve(resolver: &TokioResolver, question: &Question) -> (Answer, Duration) {
    let resolved = match question {
        Question::NameOf(address) => resolver
            .reverse_lookup(*address)
            .await
            .map(|lookup| (Answer::of_names(names(&lookup)), lookup.valid_until())),
        Question::AddressesOf(name) => resolver.lookup_ip(&**name).await.map(|lookup| {
            let addresses = lookup.iter().collect::<Vec<IpAddr>>();
            let answer = Answer::of_addresses(addresses.into_iter());
            (answer, lookup.valid_until())
        }),
    };
    match resolved {
        Ok((answer, until)) => (answer, until.saturating_duration_since(Instant::now())),
        Err(error) => (answer_of(&error), Duration::ZERO),
    }
}

/// The names in an answer; of a delegated network (RFC 2317) also an alias is there.
fn names(lookup: &Lookup) -> impl Iterator<Item = String> {
    let records = lookup.answers().iter();
    records.filter_map(|record| match &record.data {
        RData::PTR(name) => Some(name.0.to_ascii()),
        _ => None,
    })
}

fn answer_of(error: &NetError) -> Answer {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain | ResponseCode::NoError => Answer::NoRecord,
            _ => Answer::Failed,
        },
        NetError::Timeout | NetError::NoConnections | NetError::Busy | NetError::Io(_) => {
            Answer::Unanswered
        }
        _ => Answer::Failed,
    }
}
