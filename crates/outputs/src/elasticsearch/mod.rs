//! `elasticsearch` sends events to Elasticsearch or OpenSearch, as bulk requests.
//!
//! [`target`] says into which index, [`action`] what a request holds, [`crate::hosts`] which server gets it, [`reply`] what the reply
//! means; [`setup`] makes an index template, [`cloud`] reads cloud ids. Requests are cut, joined, compressed, kept in flight
//! and repeated by the engine; TLS, proxies, time-outs and credentials are [`net::client`]'s.
//!
//! Delivery: a document is done when the server has stored it, or says that one of its id is there already. What the server
//! will never take is refused with the reason; everything else is sent again.
//!
//! Limits: HTTP/1.1; `create` and `index` only. Nothing that is said holds a path, a query or a header: they may be secret.

mod action;
mod cloud;
pub(crate) mod probe;
mod reply;
mod settings;
mod setup;
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
use http::Method;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use net::client::reqwest::Url;
use net::{Client, ClientSettings};

use self::action::Action;
use self::reply::{Asked, FILTER};
use self::settings::{Config, Settings};
use self::setup::Setup;
use self::target::Target;
use crate::answer::{body, wait, without_secrets};
use crate::failover::{Failed, Round};
use crate::hosts::{Hosts, Turn};
use crate::partition::encode_groups;
use crate::schema::with_client;

/// The most bytes of a reply. One that is longer is not of this request.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// The description of `elasticsearch`.
pub const SPEC: Spec = Spec {
    name: "elasticsearch",
    aliases: &[],
    summary: "Sends events to Elasticsearch or OpenSearch.",
    description: concat!("\
Works with Elasticsearch 7, 8 and 9 and with OpenSearch; no setting is needed to distinguish them. `hosts` is the only required setting: events go to the data \
stream `logs-generic-default`.

**Target.** `data_stream` or `index` is the name of the data stream, index or alias, and may contain fields and times: ",
expr::template_syntax!(), " The values of fields are converted to lower case, and characters that are not allowed in a name are replaced by `_`; a field that is \
absent or null becomes `unknown`. The time is the `@timestamp` of the event. An event without one goes to the index of 1970-01-01, and never to one \
that depends on when it was read. An event for which the name is still invalid, such as `-x`, is rejected. Documents are stored with the action \
`create`, the only one that data streams accept; with `op_type: index`, a document replaces an existing one with the same id. A document for a data stream \
that has no `@timestamp` gets the time at which it was received, `@metadata.timestamp`.

A target is only created as a data stream if an index template says so before its first document. Elasticsearch has such a template for \
`logs-*-*`; OpenSearch has none, so that the first document creates an index. `template: default` creates a template `millpond-NAME` for the \
data stream or index if there is no template with that name: times are dates, `message` is full text, other texts are keywords. Alternatively, give the path of a \
file with the body of a template. An existing template is never changed.

**Responses.** The status of each document in the response determines what happens to it:

| status of the document | what happens |
| --- | --- |
| 2xx; 409 for `create` | it is delivered: 409 means that it already exists, which is counted as `already_there` |
| 429, 5xx | it is retried alone |
| 401, 403, 404 | it is retried until the cause is fixed: rejected credentials, a read-only index, a full disk, a missing index that may not be created |
| 400 not caused by the document: a closed index, an alias without a write index, too many shards, an unknown `pipeline`, `op_type: index` for a data stream | the same |
| any other 4xx, such as 400 for a field with a different type than in the index | it is rejected, with type and reason |

For a whole request: 429 and 503 are retried after the time in `Retry-After`, 408 and other 5xx after a delay; after 413, the request is sent in two \
halves, and a document that is too large alone is rejected; any other 4xx and 3xx are retried until the cause is fixed, as above, so that an outage \
never causes documents to be rejected. A one-line pipeline ends at once if the cause must be fixed from outside. If a response is truncated, is not JSON, or is about a different number of \
documents than were sent, the request is sent again. No event is ever lost: an event that is neither delivered nor rejected is sent until it is.

**Ids, and when an event is stored twice.** `document_id: event` makes the `_id` of the event's id: an event that is sent again, after a lost reply \
or a crash, has the same `_id`, and `create` stores it once *in one index*. It can be stored a second time only when the second attempt goes to another \
index: when a data stream or alias was rolled over between the two attempts; when `data_stream` or `index` holds a field or time that differs when \
the event is read again, such as the `@timestamp` of a line of text that no `date` processor has set, which is the time of reading; or when the \
document was deleted in between. With `document_id: none` the server makes ids, which is a little cheaper for it, and whatever is sent again is stored again. A \
text with fields, such as `%{order.id}`, makes ids of these: of events with the same id only the first is stored (with `op_type: index` the last). Where \
one of the fields is absent or null, or the whole text is empty, the event's id is used; an empty field in a longer text counts as it is. The `_id` of an event whose id is its place in a file or another \
stream is a short form of that id, which indices keep in fewer bytes: 120 bits of the stream's id, start and length, in base64. Other events' ids are \
used as they are. An id of more than 512 bytes is replaced by its SHA-256, as `sha256-…`.

**Hosts.** Requests are distributed over all hosts. If a host cannot be reached, does not respond in time, or responds with an error for a whole request (other than 413), requests to it are paused for a \
second, then for twice as long each time, up to a minute, or as long as its `Retry-After` says; the others receive its requests, at once if it took nothing of them. When it works again, its share of the \
requests grows within 10 seconds. The URL of a host may have a path, for a proxy. `cloud_id` replaces the URL of an Elastic Cloud \
deployment.

A request is complete with 2 MiB, 5,000 events, or a second after its first event, unless `batch` specifies other limits. Bodies are compressed with gzip at level \
1; `compression: none` saves most of the CPU time if the network is fast. Many requests are in flight at the same time (`concurrency`). Events for different \
indices never share a request.

`pipeline` and `routing` may contain fields as well; they are not set for an event for which the text is empty. `require: alias` prevents an index from being created instead of an alias \
(Elasticsearch 7.10, OpenSearch), and `require: data_stream` instead of a data stream (Elasticsearch 8.13); the events wait until the target exists.

Certificates, keys and secrets are read at the start: one that cannot be used ends Millpond with exit code 2. A server that is away, or refuses the \
credentials, is a warning and tried again."),
    positional: Positional::list(&["hosts"]).nested(&["auth.basic"]),
    one_line: &[],
    examples: &[
        Example { title: "To the data stream `logs-generic-default`", stage: "elasticsearch https://es.example:9200", input: "", output: "" },
        Example {
            title: "Two hosts, with a key from the environment, into a data stream per service",
            stage: "elasticsearch https://a.example:9200 https://b.example:9200 auth.api_key='${API_KEY}' data_stream='logs-%{service.name}-prod'",
            input: "",
            output: "",
        },
        Example {
            title: "A daily index, named after the time of the event, through an ingest pipeline",
            stage: "elasticsearch http://localhost:9200 index='web-%{+yyyy.MM.dd}' pipeline=enrich auth.basic.user=shipper auth.basic.password='file:/etc/millpond/password'",
            input: "",
            output: "",
        },
        Example {
            title: "OpenSearch, with a template that creates the data stream",
            stage: "elasticsearch https://search.example:9200 template=default tls.ca=/etc/millpond/ca.pem",
            input: "",
            output: "",
        },
        Example {
            title: "An Elastic Cloud deployment, with one document per order, the latest",
            stage: "elasticsearch cloud_id='prod:Y2xvdWQuZXhhbXBsZSRhYmMkZGVm' index=orders op_type=index document_id='%{order.id}' auth.api_key='${API_KEY}'",
            input: "",
            output: "",
        },
    ],
    schema: with_client::<Config>,
    build: Build::Sender(build),
};

struct Elasticsearch {
    hosts: Hosts<Url>,
    target: Target,
    action: Action,
    /// What stands behind the `?` of every address.
    query: String,
    compression: Compression,
    headers: HeaderMap,
    /// `none`, or the file with the body of a template.
    template: Option<Option<String>>,
    settings: ClientSettings,
    /// The output's settings, for errors with their place.
    node: Node,
    /// Made when the output opens.
    opened: OnceLock<Opened>,
    /// Documents that were there already.
    repeats: AtomicU64,
}

/// What is made when the output opens.
struct Opened {
    client: Client,
    setup: Option<Setup>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    Ok(Arc::new(Elasticsearch::new(Settings::read(node)?, node)))
}

impl Elasticsearch {
    fn new(settings: Settings, node: &Node) -> Self {
        let Settings {
            hosts,
            target,
            action,
            parameters,
            compression,
            template,
            client,
        } = settings;
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("filter_path", FILTER);
        query.extend_pairs(parameters);
        let header = HeaderValue::from_static;
        let mut headers = HeaderMap::from_iter([
            (CONTENT_TYPE, header("application/x-ndjson")),
            (ACCEPT, header("application/json")),
        ]);
        if compression != Compression::None {
            headers.insert(CONTENT_ENCODING, header("gzip"));
        }
        Self {
            hosts,
            target,
            action,
            query: query.finish(),
            compression,
            headers,
            template,
            settings: client,
            node: node.clone(),
            opened: OnceLock::new(),
            repeats: AtomicU64::new(0),
        }
    }

    /// Sends a request to one host.
    async fn send_to(&self, turn: &Turn<'_, Url>, request: &Request) -> Result<Sent, Failed> {
        let Some(opened) = self.opened.get() else {
            return Err(Failed::not_open());
        };
        let origin = turn.name();
        if let Some(setup) = &opened.setup {
            setup
                .ensure(&opened.client, turn.endpoint(), origin)
                .await?;
        }
        let mut url = self.target.url(turn.endpoint(), &request.destination);
        url.set_query(Some(&self.query));
        let failed = |error| Failed::unanswered(origin, error);
        let message = opened.client.request(Method::POST, url).map_err(failed)?;
        let message = message.headers(self.headers.clone());
        let message = message.body(net::client::body(request.body.clone()));
        let answer = opened.client.send(message).await.map_err(failed)?;
        let status = answer.status();
        let after = wait(answer.headers(), SystemTime::now());
        let reply = body(answer, REPLY_BYTES_MAX).await.map_err(failed)?;
        if !status.is_success() {
            let error = reply::failed(status, &reply, origin, after);
            let error = without_secrets(&opened.client, error, None);
            return Err(Failed::answered(status, error));
        }
        let asked = Asked {
            verb: self.action.verb,
            finds_repeats: self.action.finds_repeats(),
            is_fixed: self.target.is_fixed(),
            rows: request.rows,
        };
        let judged = reply::judge(&reply, origin, &asked);
        let judged = judged.map_err(Failed::unbelieved)?;
        self.repeats.fetch_add(judged.repeats, Ordering::Relaxed);
        Ok(judged.sent)
    }
}

#[async_trait]
impl Output for Elasticsearch {
    async fn open(&self) -> Result<(), ConfigError> {
        let client = Client::build(&self.settings, &self.node, self.hosts.any_https())?;
        let template = self.template.as_ref();
        let setup = template
            .map(|file| Setup::new(&self.target, file.as_deref(), self.node.nearest("template")));
        let setup = setup.transpose()?;
        // Called once.
        let _ = self.opened.set(Opened { client, setup });
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.target.reads().chain(self.action.reads()).collect()
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let Some(groups) = self.target.groups(batch, rows) else {
            return self.action.write(batch, rows, encoded);
        };
        encode_groups(groups, encoded, |_, rows, encoded| {
            self.action.write(batch, rows, encoded);
        });
    }

    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        match self.repeats.swap(0, Ordering::Relaxed) {
            0 => Vec::new(),
            repeats => vec![("already_there", repeats)],
        }
    }

    fn take_warnings(&self) -> Vec<Warning> {
        let opened = self.opened.get();
        let client = opened.map(|opened| opened.client.take_warnings());
        let client = client.unwrap_or_default().into_iter().map(Warning::from);
        client.chain(self.hosts.take_warnings()).collect()
    }
}

#[async_trait]
impl Sender for Elasticsearch {
    fn requests(&self) -> Requests {
        Requests {
            framing: Framing::default(),
            compression: self.compression,
            limits: RequestLimits {
                // Larger ones make no server quicker, and cost more: their memory is not kept for later ones.
                size_max: 2 << 20,
                rows_max: 5_000,
                age_max: Duration::from_secs(1),
                is_filled: false,
            },
            order: RequestOrder::Free,
        }
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        let mut round = Round::new(&self.hosts);
        while let Some(turn) = round.next() {
            match self.send_to(&turn, request).await {
                Ok(sent) => {
                    turn.succeeded();
                    return Ok(sent);
                }
                Err(failed) => round.failed(turn, failed)?,
            }
        }
        Err(round.into_error())
    }
}
