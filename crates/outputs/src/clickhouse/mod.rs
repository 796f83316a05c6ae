//! `clickhouse` inserts events into a table of ClickHouse, over its HTTP interface.
//!
//! [`target`] says into which table, [`reply`] what a response means. A request is one statement, `INSERT INTO … FORMAT JSONEachRow`,
//! with an event a line. The response is asked for as a whole (`wait_end_of_query`), so that its status is that of the insert; without
//! that, ClickHouse may respond with 200 and report an exception behind it.
//!
//! **Repeats.** Each request has a token (`insert_deduplication_token`), which is the same when it is sent again, and different for every other
//! request. A hash of the body would not do: two requests with the same events, which are different events for their senders, would
//! be stored once. The token is the id of the request.
//!
//! Limits: HTTP/1.1; the columns are those of the table.

mod reply;
mod target;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use component::{
    Build, BuildContext, Compression, Encoded, Example, Framing, Output, Request, RequestLimits,
    RequestOrder, Requests, RowEnd, SendError, Sender, Sent, Spec, Warning, parse,
};
use config::{ConfigError, Node, Positional, setting_names};
use http::Method;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use net::client::reqwest::Url;
use net::{Client, ClientSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::target::Target;
use crate::answer::{body, wait, without_secrets};
use crate::codec::Codec;
use crate::compression::CompressionName;
use crate::failover::{Failed, HostVerdict, Round};
use crate::hosts::{Hosts, Turn};
use crate::partition::encode_groups;
use crate::schema::with_client;

/// The most bytes of a response.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// Settings of the query that the output makes itself.
const OWN_PARAMETERS: [&str; 3] = ["query", "wait_end_of_query", "insert_deduplication_token"];

/// The description of `clickhouse`.
pub const SPEC: Spec = Spec {
    name: "clickhouse",
    aliases: &[],
    summary: "Inserts events into a table of ClickHouse.",
    description: concat!("\
Events are inserted over the HTTP interface as `INSERT INTO table FORMAT JSONEachRow`. The table must exist. A field goes into the column of its name; fields without a column are not stored, because \
`input_format_skip_unknown_fields` is on, and columns without a field get their default. Times such as `@timestamp` are read in any common format (`date_time_input_format=best_effort`). `settings` \
changes these and other settings of the query. For nested objects use a column of type `JSON` or `String`, or one column `a.b` for each field with a processor that renames them.

`table` may contain fields and times: ", expr::template_syntax!(), " Events for different tables never share a request. An event is rejected if a field in the name is absent, or if the name is invalid. The \
time is the `@timestamp` of the event, or 1970-01-01 if there is none. The password belongs in `auth.basic`.

A request is complete with 8 MiB, 50,000 events, or a second after its first event, unless `batch` specifies other limits; ClickHouse works best with few large inserts. For many small ones set `settings.async_insert=1`, and leave \
`wait_for_async_insert` on: without it, ClickHouse accepts events before they are stored. Many requests are in flight at the same time (`concurrency`).

**Responses.** The code of the exception determines what happens to a request:

| code | what happens |
| --- | --- |
| none, with status 2xx | its events are delivered |
| a value that cannot be parsed or does not fit its column, a violated constraint: 6, 25, 26, 27, 32, 33, 38, 41, 53, 69, 70, 72, 117, 130, 131, 321, 349, 376, 407, 441, 467, 469, 536, 675, 676, 691 | it is sent again in two halves, down to single events; an event that is not accepted alone is rejected |
| 201 quota, 202 too many queries, 203, 241 memory limit, 252 too many parts, 290, 364, 745 | it is retried after the time in `Retry-After`, or after a delay |
| 60 and 81 unknown table or database, 192 to 195 and 516 authentication, 497, 164 and 291 access, 115 unknown setting, 16, 46, 47, 48, 62, 73, 452 | it is retried until the cause is fixed; a one-line pipeline ends at once |
| any other | it is retried |

Without a code, the status decides: 408, 5xx and 2xx with a text are retried, 429 and 503 after the time in `Retry-After`, 413 is sent in two halves; anything else is retried until the cause is fixed. An unreachable server, a timeout and \
a broken connection are retried as well. An insert is stored as a whole or not at all, unless the table is partitioned and one of its parts fails.

**Repeats.** A request that is sent again, for example after a lost response, has the same `insert_deduplication_token`, and ClickHouse ignores it if it has stored the first one: in tables with replication, and in other `MergeTree` tables with \
`non_replicated_deduplication_window`. In tables without either, such events are stored twice. After a crash of Millpond, events that were not confirmed are sent in other requests, and may be stored twice in any table. The id \
of an event, `@metadata.id`, stays the same: with a column for it and the engine `ReplacingMergeTree`, ordered by it, ClickHouse removes such duplicates when it merges. `deduplicate: false` is required for versions before 22.2, which have no such token.

**Hosts.** Requests are distributed over all hosts, which must be replicas, or distribute rows themselves. If a host does not respond or responds with an error for a whole request, requests to it are paused for a second, then for twice as long each time, up to a \
minute, or as long as its `Retry-After` says; the others receive its requests. The URL of a host may have a path, for a proxy.

Certificates, keys and secrets are read at the start: one that cannot be used ends Millpond with exit code 2. A server that is unreachable or rejects the credentials causes a warning and is retried."),
    positional: Positional::list(&["hosts"]).nested(&["auth.basic"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Into a table, with a password from the environment",
            stage: "clickhouse http://clickhouse.example:8123 table=logs auth.basic.user=shipper auth.basic.password='${PASSWORD}'",
            input: "",
            output: "",
        },
        Example {
            title: "A table per service in a database, two replicas, compressed",
            stage: "clickhouse https://a.example:8443 https://b.example:8443 database=logs table='%{service.name}' compression=zstd",
            input: "",
            output: "",
        },
        Example {
            title: "Many small inserts, joined by the server; an unknown field is an error",
            stage: "clickhouse http://clickhouse.example:8123 table=logs settings.async_insert=1 settings.input_format_skip_unknown_fields=0",
            input: "",
            output: "",
        },
    ],
    schema: with_client::<Config>,
    build: Build::Sender(build),
};

/// The settings of `clickhouse`, without those of the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The URLs of the HTTP interface of one or more servers, such as `http://clickhouse.example:8123`.
    hosts: Vec<String>,
    /// The database. Default: that of the user.
    database: Option<String>,
    /// The table. May contain `%{field}` and `%{+time format}`.
    table: String,
    /// Settings of the query, such as `async_insert`.
    #[serde(default)]
    settings: BTreeMap<String, Parameter>,
    /// Whether requests have a token, so that one that is sent again is stored once.
    #[serde(default = "yes")]
    deduplicate: bool,
    /// The zone of times in `%{+time format}`: an IANA name such as `Europe/Berlin`, or an offset such as `+02:00`. Default: UTC.
    #[serde(default)]
    #[allow(dead_code, reason = "read from the tree, for its place")]
    timezone: Option<String>,
    /// How bodies are compressed.
    #[serde(default)]
    compression: CompressionName,
    /// The compression level: gzip 0 to 9, zstd 1 to 22. Default: 6 for gzip, 3 for zstd.
    compression_level: Option<i32>,
}

fn yes() -> bool {
    true
}

/// The value of a setting of the query.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Parameter {
    /// On or off.
    Bool(bool),
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl Parameter {
    fn text(&self) -> String {
        match self {
            Self::Bool(is_on) => i32::from(*is_on).to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

struct ClickHouse {
    hosts: Hosts<Url>,
    target: Target,
    /// What stands in every address, in order.
    parameters: Vec<(String, String)>,
    /// Whether requests have a token.
    deduplicate: bool,
    compression: Compression,
    settings: ClientSettings,
    /// The output's settings, for errors with their place.
    node: Node,
    /// Made when the output opens.
    client: OnceLock<Client>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let names = setting_names::<ClientSettings>();
    let (client, own) = node.divide(names);
    let client = client.map(|client| parse::<ClientSettings>(&client));
    let settings = client.transpose()?.unwrap_or_default();
    let config: Config = parse(&own).map_err(|error| error.accepted_beside(&own, names))?;
    if config.hosts.is_empty() {
        return Err(node.error("`hosts` is missing: the URLs of servers"));
    }
    let items = node.nearest("hosts").items();
    Ok(Arc::new(ClickHouse {
        hosts: Hosts::at_urls(items.iter().zip(config.hosts.iter().cloned()))?,
        target: Target::new(node, config.database.as_deref(), &config.table)?,
        parameters: parameters(&config, node)?,
        deduplicate: config.deduplicate,
        compression: config
            .compression
            .with_level(node, config.compression_level)?,
        settings,
        node: node.clone(),
        client: OnceLock::new(),
    }))
}

fn parameters(config: &Config, node: &Node) -> Result<Vec<(String, String)>, ConfigError> {
    let mut parameters = BTreeMap::from([
        (
            "date_time_input_format".to_owned(),
            "best_effort".to_owned(),
        ),
        (
            "input_format_skip_unknown_fields".to_owned(),
            "1".to_owned(),
        ),
        ("wait_end_of_query".to_owned(), "1".to_owned()),
    ]);
    let at = node.nearest("settings");
    for (name, value) in &config.settings {
        let value_at = at.get(name).unwrap_or(at);
        if OWN_PARAMETERS.contains(&name.as_str()) {
            return Err(value_at.error(format!("`{name}` is set by the output itself")));
        }
        if ["user", "password"].contains(&name.as_str()) {
            let error = value_at.error(format!(
                "`{name}` would appear in the logs of servers and proxies"
            ));
            return Err(error.note("use `auth.basic`").hiding_value());
        }
        parameters.insert(name.clone(), value.text());
    }
    Ok(parameters.into_iter().collect())
}

impl ClickHouse {
    fn url(&self, host: &Url, request: &Request) -> Url {
        let mut url = host.clone();
        let mut query = url.query_pairs_mut();
        query.append_pair("query", &self.target.statement(&request.destination));
        query.extend_pairs(&self.parameters);
        if self.deduplicate {
            query.append_pair(
                "insert_deduplication_token",
                &format!("{:032x}", request.id),
            );
        }
        drop(query);
        url
    }

    /// Sends a request to one host.
    async fn send_to(&self, turn: &Turn<'_, Url>, request: &Request) -> Result<Sent, Failed> {
        let client = self.client.get().ok_or_else(Failed::not_open)?;
        let origin = turn.name();
        let failed = |error| Failed::unanswered(origin, error);
        let url = self.url(turn.endpoint(), request);
        let message = client.request(Method::POST, url).map_err(failed)?;
        let content = HeaderValue::from_static("application/x-ndjson");
        let mut message = message.header(CONTENT_TYPE, content);
        let encoding = match self.compression {
            Compression::None => None,
            Compression::Gzip(_) => Some("gzip"),
            Compression::Zstd(_) => Some("zstd"),
        };
        if let Some(encoding) = encoding {
            message = message.header(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        let message = message.body(net::client::body(request.body.clone()));
        let answer = client.send(message).await.map_err(failed)?;
        let status = answer.status();
        let after = wait(answer.headers(), SystemTime::now());
        let headers = answer.headers().clone();
        let body = body(answer, REPLY_BYTES_MAX).await.map_err(failed)?;
        let judged = reply::judge(status, &headers, &body, origin, after);
        let Err(error) = judged else {
            return Ok(Sent::default());
        };
        let error = without_secrets(client, error, None);
        Err(match error {
            // The rows are wrong, or too many, and the host is not.
            SendError::Unfit(_) => Failed {
                error,
                goes_on: false,
                host: HostVerdict::Works,
            },
            // Whether the rows are stored is unknown: the same host knows the token best.
            SendError::Retry(_) => Failed::unbelieved(error),
            error => Failed::answered(status, error),
        })
    }
}

#[async_trait]
impl Output for ClickHouse {
    async fn open(&self) -> Result<(), ConfigError> {
        let client = Client::build(&self.settings, &self.node, self.hosts.any_https())?;
        // Called once.
        let _ = self.client.set(client);
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.target.reads().collect()
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        match self.target.groups(batch, rows) {
            None => write(batch, rows, encoded),
            Some(groups) => encode_groups(groups, encoded, |_, rows, encoded| {
                write(batch, rows, encoded);
            }),
        }
    }

    fn take_warnings(&self) -> Vec<Warning> {
        let client = self.client.get().map(Client::take_warnings);
        let client = client.unwrap_or_default().into_iter().map(Warning::from);
        client.chain(self.hosts.take_warnings()).collect()
    }
}

/// Appends rows as JSON, a line each, and says where each ends.
fn write(batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
    encoded.ends.reserve(rows.count());
    let Encoded { bytes, ends, .. } = encoded;
    Codec::Json.bind(batch).write_rows(rows, bytes, |row, end| {
        let row = row as u32;
        ends.push(RowEnd { row, end });
    });
    encoded.rows += rows.count();
}

#[async_trait]
impl Sender for ClickHouse {
    fn requests(&self) -> Requests {
        Requests {
            framing: Framing::default(),
            compression: self.compression,
            limits: RequestLimits {
                size_max: 8 << 20,
                rows_max: 50_000,
                age_max: Duration::from_secs(1),
                // Each insert becomes a part of the table, which the server has to merge.
                is_filled: true,
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
