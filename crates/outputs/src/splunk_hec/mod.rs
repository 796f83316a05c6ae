//! `splunk_hec` sends events to Splunk's HTTP Event Collector.
//!
//! [`envelope`] says what a request holds, [`target`] which events share one, [`reply`] what a reply means, [`acks`] how
//! acknowledgements of indexers are waited for. Hosts and fail-over are shared with the other outputs over HTTP; requests are
//! cut, joined, compressed, kept in flight and repeated by the engine.
//!
//! Limits: HTTP/1.1; no metrics. Nothing that is said holds a path, a query or a header: they may be secret.

mod acks;
mod envelope;
mod reply;
mod settings;
mod target;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use component::{
    Build, BuildContext, Compression, Encoded, Example, Framing, Output, Request, RequestLimits,
    RequestOrder, Requests, SendError, Sender, Sent, Spec, Warning,
};
use config::{ConfigError, Node, Positional};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use net::Client;
use net::client::reqwest::{RequestBuilder, Url};
use tokio::sync::OnceCell;

use self::acks::{Channel, Channels};
use self::reply::{Asked, Verdict};
use self::settings::{Acknowledge, Settings};
use crate::answer::{body, wait, without_secrets};
use crate::failover::{Failed, HostVerdict, Round};
use crate::hosts::{Turn, below};
use crate::partition::encode_groups;

/// The most bytes of a reply.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// The header that names a channel.
const CHANNEL: &str = "x-splunk-request-channel";

/// The description of `splunk_hec`.
pub const SPEC: Spec = Spec {
    name: "splunk_hec",
    aliases: &[],
    summary: "Sends events to Splunk's HTTP Event Collector (HEC).",
    description: concat!("\
`hosts` and `token` are required. With `endpoint: event` each event is sent in an envelope: its time is `@timestamp`, or the time at which it was received; the event itself \
is the whole event as a JSON object, or the text of `template`, such as `%{message}`. With `endpoint: raw` each event is a line of text, from which Splunk extracts the \
time; a newline within the text may end an event, as the source type says. `template`, `host`, `source`, `sourcetype`, `index` and the values of `fields` may contain fields and times: ", expr::template_syntax!(), " An absent field is an empty text. \
A part of the envelope whose text is empty is left out, so that Splunk uses that of the token. An event whose text is empty is rejected, because Splunk accepts no blank \
events.

A request is complete with 1 MB, 10,000 events, or a second after its first event, unless `batch` specifies other limits. Bodies are not compressed unless `compression: gzip` \
is set. Many requests are in flight at the same time (`concurrency`), so that they may arrive in a different order than the events. Events for different indices never share a request if `index` contains a field; with \
`endpoint: raw`, neither do events that differ in `host`, `source` or `sourcetype`.

**Responses.** The code in the response determines what happens to a request:

| code | what happens |
| --- | --- |
| 0 success; 24, 25 near the limit of a queue | its events are delivered (with `acknowledge`, when they are indexed) |
| 8 internal error | it is retried |
| 9 busy, 18 to 20 unhealthy, 23 shutting down, 26, 27 queue full | it is retried after the time in `Retry-After`, or after a delay |
| 1 to 4, 16, 21, 22 token; 10, 11 channel; 14 acknowledgement disabled | it is retried until the cause is fixed; a one-line pipeline ends at once |
| 7 incorrect index | its events are rejected if `index` contains a field; otherwise it is retried until the cause is fixed |
| 5 no data, 6 invalid data format, 12, 13 event missing or blank, 15 indexed fields | the event named by `invalid-event-number` is rejected, and the others are sent again; without such a number, the request is sent again in two halves, down to a single event, which is rejected |

Without a code, the status decides: 408 and 5xx are retried, 429 and 503 after the time in `Retry-After`, 400 and 413 are sent in two halves; anything else is retried until the cause is \
fixed. A response with status 200 that is not one of HEC is retried. An unreachable server, a timeout and a broken connection are retried as well.

**Acknowledgement.** Without `acknowledge`, an event is delivered when Splunk has received it, and Splunk may lose it if it crashes before it is written. With `acknowledge: true`, an event \
is delivered when Splunk says that it is indexed. Millpond asks for that every `acknowledge_interval` on a channel of its own for each host. A request that is not acknowledged within \
`acknowledge_timeout` is sent again; so is every request that was not acknowledged yet when the server is restarted or becomes unreachable. Behind a load balancer, all requests from one client must reach the \
same server (sticky sessions). Before the first event, Millpond checks that acknowledgement is enabled for the token. \
Without `acknowledge`, only requests to the endpoint for raw events name a channel, which it requires; Millpond's input `splunk_hec` answers a request with a channel at once, because it expects to be asked: set `acknowledgements: false` there for raw events.

**Repeats.** Splunk does not detect duplicates: an event that is sent twice is stored twice. Events are sent again if a response was lost or did not arrive in time, if an acknowledgement did not, and if \
Millpond was killed before a request was confirmed. If an event of a request is rejected, or the server becomes busy in the middle of a request, Splunk has already accepted the events before that one, \
and they are stored a second time. Not every server with this protocol accepts them, so Millpond sends them again rather than losing them. The id of an event stays the same: with `fields.id=%{@metadata.id}` a search \
can remove duplicates (`dedup id`).

**Hosts.** Requests are distributed over all hosts. If a host does not respond or responds with an error for a whole request, requests to it are paused for a second, then for twice as long each time, up to a \
minute, or as long as its `Retry-After` says; the others receive its requests. The URL of a host may have a path, for a proxy.

Certificates and the token are read at the start: one that cannot be used ends Millpond with exit code 2. A server that is unreachable or rejects the token causes a warning and is \
retried."),
    positional: Positional::list(&["hosts"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Whole events as JSON, with the token from the environment",
            stage: "splunk_hec https://splunk.example:8088 token='${HEC_TOKEN}' sourcetype=_json",
            input: "",
            output: "",
        },
        Example {
            title: "The text of events, into an index per environment, with an id against duplicates",
            stage: "splunk_hec https://splunk.example:8088 token='${HEC_TOKEN}' template='%{message}' index='logs_%{env}' fields.id='%{@metadata.id}'",
            input: "",
            output: "",
        },
        Example {
            title: "Two hosts, delivered when indexed, compressed",
            stage: "splunk_hec https://a.example:8088 https://b.example:8088 token='file:/etc/millpond/hec' acknowledge=true compression=gzip",
            input: "",
            output: "",
        },
        Example {
            title: "Raw lines, which Splunk takes apart as its source type says",
            stage: "splunk_hec https://splunk.example:8088 token='${HEC_TOKEN}' endpoint=raw sourcetype=access_combined",
            input: "",
            output: "",
        },
    ],
    schema: settings::schema,
    build: Build::Sender(build),
};

struct SplunkHec {
    settings: Settings,
    channels: Channels,
    /// Whether a host's token has acknowledgement, for each host.
    checked: Vec<OnceCell<()>>,
    /// The output's settings, for errors with their place.
    node: Node,
    /// Made when the output opens.
    client: OnceLock<Client>,
    /// Requests whose acknowledgement did not come.
    unacknowledged: AtomicU64,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let settings = Settings::read(node)?;
    let hosts = settings.hosts.len();
    Ok(Arc::new(SplunkHec {
        channels: Channels::new(hosts, settings.channel.as_deref()),
        checked: (0..hosts).map(|_| OnceCell::new()).collect(),
        settings,
        node: node.clone(),
        client: OnceLock::new(),
        unacknowledged: AtomicU64::new(0),
    }))
}

/// An answer, read whole.
struct Answered {
    status: StatusCode,
    after: Option<Duration>,
    body: Vec<u8>,
}

impl SplunkHec {
    /// A request with the headers that every request has.
    fn request(
        &self,
        url: Url,
        channel: Option<&Arc<Channel>>,
        origin: &str,
    ) -> Result<RequestBuilder, Failed> {
        let client = self.client.get().ok_or_else(Failed::not_open)?;
        let failed = |error| Failed::unanswered(origin, error);
        let token = self.settings.token.header().map_err(failed)?;
        let request = client.request(Method::POST, url).map_err(failed)?;
        let request = request.header(AUTHORIZATION, token);
        Ok(match channel {
            Some(channel) => request.header(CHANNEL, &*channel.id),
            None => request,
        })
    }

    async fn ask(&self, request: RequestBuilder, origin: &str) -> Result<Answered, Failed> {
        let client = self.client.get().ok_or_else(Failed::not_open)?;
        let failed = |error| Failed::unanswered(origin, error);
        let answer = client.send(request).await.map_err(failed)?;
        Ok(Answered {
            status: answer.status(),
            after: wait(answer.headers(), SystemTime::now()),
            body: body(answer, REPLY_BYTES_MAX).await.map_err(failed)?,
        })
    }

    /// Asks what of these numbers is indexed.
    async fn ask_for_acks(
        &self,
        turn: &Turn<'_, Url>,
        channel: &Arc<Channel>,
        question: String,
    ) -> Result<Answered, Failed> {
        let url = below(turn.endpoint(), &["services", "collector", "ack"]);
        let request = self.request(url, Some(channel), turn.name())?;
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.ask(request.body(question), turn.name()).await
    }

    /// Makes sure, before the first event is sent, that the token has acknowledgement: where it has none, events would be accepted and
    /// never acknowledged.
    async fn check_acks(&self, turn: &Turn<'_, Url>, channel: &Arc<Channel>) -> Result<(), Failed> {
        let check = async {
            let answered = self
                .ask_for_acks(turn, channel, "{\"acks\":[0]}".to_owned())
                .await?;
            if answered.status.is_success() {
                return Ok(());
            }
            let Answered {
                status,
                after,
                body,
            } = answered;
            let error = match reply::failed(status, &body, turn.name(), after) {
                // No event is wrong yet.
                SendError::Unfit(reason) | SendError::Refused(reason) => SendError::Blocked(reason),
                other => other,
            };
            Err(Failed::answered(status, error))
        };
        self.checked[turn.index()]
            .get_or_try_init(|| check)
            .await
            .copied()
    }

    /// Sends a request to one host.
    async fn send_to(&self, turn: &Turn<'_, Url>, request: &Request) -> Result<Sent, Failed> {
        let (host, origin) = (turn.index(), turn.name());
        let channel = self.channels.of(host);
        if self.settings.acknowledge.is_some() {
            self.check_acks(turn, &channel).await?;
        }
        let url = self
            .settings
            .target
            .url(turn.endpoint(), &request.destination);
        let content = match self.settings.rendering {
            envelope::Rendering::Envelope(_) => "application/json",
            envelope::Rendering::Raw(_) => "text/plain; charset=utf-8",
        };
        // A server that gets a channel may answer at once, because it expects to be asked for acknowledgements.
        let is_raw = matches!(self.settings.rendering, envelope::Rendering::Raw(_));
        let has_channel = is_raw || self.settings.acknowledge.is_some();
        let mut message = self.request(url, has_channel.then_some(&channel), origin)?;
        message = message.header(CONTENT_TYPE, HeaderValue::from_static(content));
        if self.settings.compression != Compression::None {
            message = message.header(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let message = message.body(net::client::body(request.body.clone()));
        let answered = self.ask(message, origin).await;
        if answered.is_err() {
            self.channels.give_up(host, &channel);
        }
        let Answered {
            status,
            after,
            body,
        } = answered?;
        let asked = Asked {
            rows: request.rows,
            index_by_event: self.settings.target.index_by_event(),
        };
        match reply::judge(status, &body, origin, after, asked) {
            Verdict::Accepted(number) => match self.settings.acknowledge {
                None => Ok(Sent::default()),
                Some(settings) => self.wait_for(turn, &channel, number, settings).await,
            },
            Verdict::Partly(sent) => Ok(sent),
            Verdict::Failed(error) => Err(failed(status, error)),
        }
    }

    /// Waits until a request is indexed.
    async fn wait_for(
        &self,
        turn: &Turn<'_, Url>,
        channel: &Arc<Channel>,
        number: Option<u64>,
        settings: Acknowledge,
    ) -> Result<Sent, Failed> {
        let (host, origin) = (turn.index(), turn.name());
        let again = |text: String| Failed {
            error: SendError::Retry(format!("{origin}: {text}")),
            goes_on: false,
            host: HostVerdict::Works,
        };
        let Some(number) = number else {
            return Err(again("the response contains no `ackId`".to_owned()));
        };
        if !channel.expect(number) {
            self.channels.give_up(host, channel);
            return Err(again(
                "the server was restarted before it indexed the events".to_owned(),
            ));
        }
        let ask = |question: String| async move {
            match self.ask_for_acks(turn, channel, question).await {
                Ok(answered) => Ok(answered.body),
                Err(failed) => Err(failed.error),
            }
        };
        let waiting = channel.wait(number, settings.interval, ask);
        let waited = tokio::time::timeout(settings.timeout, waiting).await;
        channel.forget(number);
        let problem = match waited {
            Ok(Ok(true)) => return Ok(Sent::default()),
            Ok(Ok(false)) => "the server was restarted before it indexed the events".to_owned(),
            Ok(Err(error)) => {
                self.channels.give_up(host, channel);
                format!("cannot ask for acknowledgements: {error}")
            }
            Err(_) => "the events were not indexed within `acknowledge_timeout`".to_owned(),
        };
        self.unacknowledged.fetch_add(1, Ordering::Relaxed);
        Err(again(problem))
    }

    /// An error without secrets, should the server have said them back.
    fn without_secrets(&self, error: SendError) -> SendError {
        let Some(client) = self.client.get() else {
            return error;
        };
        without_secrets(client, error, self.settings.token.reveal().as_deref())
    }
}

/// What a host said of a whole request.
fn failed(status: StatusCode, error: SendError) -> Failed {
    match error {
        // The events are wrong, and the host is not.
        SendError::Unfit(_) | SendError::Refused(_) => Failed {
            error,
            goes_on: false,
            host: HostVerdict::Works,
        },
        // A page in place of a reply may hide that the events were accepted.
        error if status.is_success() => Failed::unbelieved(error),
        error => Failed::answered(status, error),
    }
}

#[async_trait]
impl Output for SplunkHec {
    async fn open(&self) -> Result<(), ConfigError> {
        self.settings.token.check(&self.node)?;
        let https = self.settings.hosts.any_https();
        let client = Client::build(&self.settings.client, &self.node, https)?;
        // Called once.
        let _ = self.client.set(client);
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let mut reads = self.settings.target.reads();
        reads.extend(self.settings.rendering.reads());
        reads
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let rendering = &self.settings.rendering;
        match self.settings.target.groups(batch, rows) {
            None => rendering.write(batch, rows, encoded),
            Some(groups) => encode_groups(groups, encoded, |_, rows, encoded| {
                rendering.write(batch, rows, encoded);
            }),
        }
    }

    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        match self.unacknowledged.swap(0, Ordering::Relaxed) {
            0 => Vec::new(),
            count => vec![("unacknowledged", count)],
        }
    }

    fn take_warnings(&self) -> Vec<Warning> {
        let client = self.client.get().map(Client::take_warnings);
        let client = client.unwrap_or_default().into_iter().map(Warning::from);
        client.chain(self.settings.hosts.take_warnings()).collect()
    }
}

#[async_trait]
impl Sender for SplunkHec {
    fn requests(&self) -> Requests {
        Requests {
            framing: Framing::default(),
            compression: self.settings.compression,
            limits: RequestLimits {
                // What older versions of Splunk accept, and Splunk Cloud asks for.
                size_max: 1_000_000,
                rows_max: 10_000,
                age_max: Duration::from_secs(1),
                is_filled: false,
            },
            order: RequestOrder::Free,
        }
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        let mut round = Round::new(&self.settings.hosts);
        while let Some(turn) = round.next() {
            match self.send_to(&turn, request).await {
                Ok(sent) => {
                    turn.succeeded();
                    return Ok(sent);
                }
                Err(mut failed) => {
                    failed.error = self.without_secrets(failed.error);
                    round.failed(turn, failed)?;
                }
            }
        }
        Err(round.into_error())
    }
}
