//! `logstash` sends events to Logstash, to Millpond's input `beats` and to other receivers of Lumberjack, version 2.
//!
//! A request is a window: `2W` and the number of its events, then a frame `2J` for each of them, all of which lie in one frame
//! `2C` if they are compressed. Numbers are big-endian:
//!
//! | frame | behind the two bytes |
//! | --- | --- |
//! | `2W` | u32: how many events follow |
//! | `2J` | u32 sequence, from 1 in each window; u32 length; a JSON document |
//! | `2C` | u32 length; a zlib stream of frames |
//! | `2A` | from the receiver, u32: all events up to this sequence are safe; 0 says that it is still at work |
//!
//! Rows are rendered as frames without a sequence, which they get when it is known which of them make a window.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use batch::json::{self, Kind};
use batch::{Batch, Bitmap, JsonWriter};
use bytes::Bytes;
use component::{
    Build, BuildContext, Compression, Encoded, Example, Framing, Output, Request, RequestLimits,
    RequestOrder, Requests, RowAnswer, Rows, SendError, Sender, Sent, Spec, Warning,
};
use config::{ConfigError, Node, Positional, Positive, Size};
use flate2::write::ZlibEncoder;
use net::Dialed;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::exchange::{Answer, ConnectionSettings, Exchange, GreetError, Protocol};
use crate::schema::with;

/// The port of Beats inputs.
const PORT: u16 = 5044;

/// What stands before a document: `2J`, the sequence, the length.
const HEAD_BYTES: usize = 10;

/// Where the sequence stands in it, and the length.
const SEQUENCE: Range<usize> = 2..6;
const LENGTH: Range<usize> = 6..10;

/// Higher levels take far more CPU time, and make logs little smaller.
const LEVEL: u32 = 1;

/// The description of `logstash`.
pub const SPEC: Spec = Spec {
    name: "logstash",
    aliases: &[],
    summary: "Sends events to Logstash or another Millpond, which acknowledge them (Lumberjack).",
    description: "\
The receiver is a `beats` input of Logstash, the input [beats](input-beats.md) of another Millpond, or any other receiver of version 2 of the \
Lumberjack protocol. An event is delivered when the receiver has acknowledged it. Logstash acknowledges events when they are in its queue, Millpond \
when they are safe: on disk with `queue: disk`, and otherwise delivered by its own outputs.

A window has at most 2,048 events or 2 MiB of JSON, or what has come within 200 ms, unless `batch` specifies other limits. It is compressed with zlib at \
level 1; `compression_level: 0` saves most of the CPU time if the network is fast.

**Hosts.** Windows are distributed over all hosts, over up to `connections` connections to each, with up to `pipelining` windows in flight on every one \
of them. They may arrive in a different order than the events. If a host cannot be reached, closes a connection or does not respond within `timeout`, requests to it are paused for a second, \
then for twice as long each time, up to a minute; the others receive its windows. When it works again, its share of the windows grows within 10 seconds. \
A receiver that is busy says so every few seconds; such a keep-alive restarts `timeout`, so that events wait for it as long as it needs.

**Ids, and what arrives twice.** Each event carries its id as `@metadata._id`, beside what else a document has in `@metadata`. The input `beats` of Millpond makes it the id of the event again; in Logstash, \
`document_id => \"%{[@metadata][_id]}\"` makes Elasticsearch store a repeated event once. If a connection breaks, the events of its windows that were not acknowledged are sent again, and so are those \
that were in flight when Millpond was killed: the receiver may get them twice, with the same id. Events that were acknowledged in part of a window are not sent again.

The protocol has no way to reject an event. A receiver that cannot read one closes the connection, and the window is sent again and again. An event \
that is larger than `max_event_bytes` as JSON is therefore rejected here: keep that setting below the limit of the receiver (`max_frame_bytes` of Millpond's input).

`tls` encrypts connections: `tls.ca` is the authority of the receiver's certificate, `tls.cert` and `tls.key` are for receivers that require a \
certificate of their clients. With `tls: {}` the authorities of the system are trusted.",
    positional: Positional::list(&["hosts"]),
    one_line: &[],
    examples: &[
        Example { title: "To Logstash or Millpond on another machine", stage: "logstash collector.example:5044", input: "", output: "" },
        Example {
            title: "Two receivers, with certificates of both sides",
            stage: "logstash a.example:5044 b.example:5044 tls.ca=ca.pem tls.cert=agent.pem tls.key=agent.key",
            input: "",
            output: "",
        },
        Example { title: "On a fast network, uncompressed", stage: "logstash 10.0.0.5:5044 compression_level=0", input: "", output: "" },
    ],
    schema: with::<Config, ConnectionSettings>,
    build: Build::Sender(build),
};

/// The settings of `logstash`, without those of connections.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The compression level of windows, 0 to 9; 0 for none.
    #[schemars(range(max = 9))]
    compression_level: u32,
    /// Whether events carry their ids, as `@metadata._id`.
    event_ids: bool,
    /// The maximum size of an event as JSON. Larger ones are rejected.
    max_event_bytes: Positive<Size>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            compression_level: LEVEL,
            event_ids: true,
            max_event_bytes: Positive::from_bytes(8 << 20),
        }
    }
}

struct Logstash {
    config: Config,
    exchange: Exchange<Lumberjack>,
    /// The output's settings, for errors with their place.
    node: Node,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let (connections, config) = ConnectionSettings::read::<Config>(node)?;
    if config.compression_level > 9 {
        let setting = node.nearest("compression_level");
        return Err(setting.error("the level must be between 0 and 9"));
    }
    Ok(Arc::new(Logstash {
        config,
        exchange: Exchange::new(Lumberjack, connections, PORT),
        node: node.clone(),
    }))
}

impl Logstash {
    /// Appends the frame of a row, without its sequence. Its document may have `@metadata` of its own if `may_have_metadata` says so.
    fn write(
        &self,
        batch: &Batch,
        writer: &JsonWriter<'_>,
        (row, may_have_metadata): (usize, bool),
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.extend_from_slice(b"2J\0\0\0\0\0\0\0\0");
        if self.config.event_ids {
            out.extend_from_slice(b"{\"@metadata\":{\"_id\":");
            write_id(batch, row, out);
            let document = out.len() + 1;
            out.extend_from_slice(b"}");
            writer.write(row, out);
            if may_have_metadata && let Some(own) = json::find(&out[document..], b"@metadata") {
                join_metadata(document, own, out);
            } else if out[document + 1..].trim_ascii() == b"}" {
                out.truncate(document);
                out.push(b'}');
            } else {
                // Its members follow the metadata.
                out[document] = b',';
            }
        } else {
            writer.write(row, out);
        }
        let len = (out.len() - start - HEAD_BYTES) as u32;
        out[start..][LENGTH].copy_from_slice(&len.to_be_bytes());
    }
}

/// Makes one of the `@metadata` that was written and of the document's own, which lies at `own` in the document. The document begins at
/// `start`, behind the bracket of what was written. The id that was written counts.
fn join_metadata(start: usize, own: Range<usize>, out: &mut Vec<u8>) {
    let document = out.split_off(start);
    let member = |key: &[u8], value: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(key);
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value);
    };
    // The bracket.
    out.pop();
    let metadata = &document[own];
    if json::kind(metadata) == Kind::Object {
        for other in json::members(metadata).filter(|other| other.key != b"_id") {
            member(other.key, &metadata[other.value], out);
        }
    }
    out.push(b'}');
    for other in json::members(&document).filter(|other| other.key != b"@metadata") {
        member(other.key, &document[other.value], out);
    }
    out.push(b'}');
}

/// Appends the id of a row as a JSON string.
fn write_id(batch: &Batch, row: usize, out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    batch.origin().write_id(row, out);
    // Other ids are hexadecimal.
    if batch.origin().has_own_id(row) {
        crate::codec::escape_json(out, start);
    }
    out.push(b'"');
}

#[async_trait]
impl Output for Logstash {
    async fn open(&self) -> Result<(), ConfigError> {
        self.exchange.open(&self.node)
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let writer = JsonWriter::new(batch);
        let max = self.config.max_event_bytes.bytes();
        let may_have_metadata = batch.has_documents();
        encoded.ends.reserve(rows.count());
        for row in rows.iter() {
            let start = encoded.bytes.len();
            self.write(batch, &writer, (row, may_have_metadata), &mut encoded.bytes);
            let len = encoded.bytes.len() - start - HEAD_BYTES;
            if len > max {
                encoded.bytes.truncate(start);
                let reason = format!(
                    "the event has {len} bytes as JSON; at most {max} are allowed (`max_event_bytes`)"
                );
                encoded.refused.push(RowAnswer {
                    row,
                    reason: reason.into(),
                });
                continue;
            }
            encoded.end_row(row);
        }
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.exchange.take_warnings()
    }
}

#[async_trait]
impl Sender for Logstash {
    fn requests(&self) -> Requests {
        Requests {
            framing: Framing::default(),
            compression: Compression::None,
            limits: RequestLimits {
                size_max: 2 << 20,
                rows_max: 2048,
                age_max: Duration::from_millis(200),
                is_filled: false,
            },
            order: RequestOrder::Free,
        }
    }

    fn pack(&self, rows: &mut Rows<'_>) -> io::Result<Option<Bytes>> {
        pack(rows, self.config.compression_level)
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        self.exchange.send(request).await
    }
}

/// What follows the head of a window: its frames in one that is compressed; none where they are sent as they are.
fn pack(rows: &mut Rows<'_>, level: u32) -> io::Result<Option<Bytes>> {
    number(rows.text, rows.ends);
    if level == 0 {
        return Ok(None);
    }
    let mut message = Vec::with_capacity(6 + rows.text.len() / 4);
    message.extend_from_slice(b"2C\0\0\0\0");
    let start = message.len();
    let mut encoder = ZlibEncoder::new(message, flate2::Compression::new(level));
    encoder.write_all(rows.text)?;
    let mut message = encoder.finish()?;
    let len = ((message.len() - start) as u32).to_be_bytes();
    message[start - 4..start].copy_from_slice(&len);
    Ok(Some(message.into()))
}

/// Writes the sequences of frames, which end in these places.
fn number(frames: &mut [u8], ends: &[usize]) {
    let mut start = 0;
    for (sequence, end) in (1_u32..).zip(ends) {
        frames[start..][SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        start = *end;
    }
}

/// What is sent and received.
struct Lumberjack;

impl Protocol for Lumberjack {
    async fn greet(&self, _: &mut Dialed) -> Result<(), GreetError> {
        Ok(())
    }

    fn message(&self, request: &Request) -> [Bytes; 3] {
        let count = (request.rows as u32).to_be_bytes();
        let window = [b"2W".as_slice(), &count].concat();
        [window.into(), request.body.clone(), Bytes::new()]
    }

    fn answer(&self, received: &[u8]) -> Result<Option<(Answer, usize)>, String> {
        let head = &received[..received.len().min(2)];
        if !b"2A".starts_with(head) {
            return Err(format!(
                "expected an acknowledgement of Lumberjack version 2, and received {:?}",
                String::from_utf8_lossy(&received[..received.len().min(16)])
            ));
        }
        let Some(sequence) = received.get(2..6) else {
            return Ok(None);
        };
        let sequence = sequence
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let answer = match sequence {
            0 => Answer::KeepAlive,
            sequence => Answer::Rows(sequence),
        };
        Ok(Some((answer, 6)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;
    use crate::testing;

    fn rendered(yaml: &str, batch: &Batch) -> (Encoded, Vec<usize>) {
        let output = testing::build_sender(&SPEC, yaml).expect("settings");
        let encoded = testing::encode(&*output, batch);
        let ends = encoded.ends.iter().map(|row| row.end).collect();
        (encoded, ends)
    }

    /// The sequences and documents of frames.
    fn documents(mut frames: &[u8]) -> Vec<(u32, String)> {
        let mut documents = Vec::new();
        while let Some((head, rest)) = frames.split_at_checked(HEAD_BYTES) {
            assert_eq!(&head[..2], b"2J");
            let number = |range: Range<usize>| {
                u32::from_be_bytes(head[range].try_into().expect("four bytes"))
            };
            let (document, rest) = rest.split_at(number(LENGTH) as usize);
            let document = String::from_utf8(document.to_vec()).expect("text");
            documents.push((number(SEQUENCE), document));
            frames = rest;
        }
        assert!(frames.is_empty());
        documents
    }

    #[test]
    fn a_window_holds_its_events_in_sequence_with_their_ids() {
        let batch = testing::documents(&[r#"{"a":1}"#, "{ }", r#"{"b":{}}"#]);
        let (mut encoded, ends) = rendered("hosts: h", &batch);
        let id = |row| batch.origin().shown_id(row);
        let expected = vec![
            (1, format!(r#"{{"@metadata":{{"_id":"{}"}},"a":1}}"#, id(0))),
            (2, format!(r#"{{"@metadata":{{"_id":"{}"}}}}"#, id(1))),
            (
                3,
                format!(r#"{{"@metadata":{{"_id":"{}"}},"b":{{}}}}"#, id(2)),
            ),
        ];
        let mut window = |level| {
            let mut rows = Rows {
                destination: "",
                text: &mut encoded.bytes,
                ends: &ends,
            };
            let packed = pack(&mut rows, level).expect("memory");
            let body = packed.unwrap_or_else(|| encoded.bytes.clone().into());
            let request = Request {
                id: 0,
                destination: "".into(),
                body,
                rows: ends.len(),
                attempt: 0,
            };
            let mut message = Lumberjack.message(&request).concat();
            assert_eq!(&message[..6], b"2W\0\0\0\x03");
            message.split_off(6)
        };
        assert_eq!(documents(&window(0)), expected);
        let packed = window(1);
        assert_eq!(&packed[..2], b"2C");
        let len = u32::from_be_bytes(packed[2..6].try_into().expect("four bytes"));
        assert_eq!(packed.len() - 6, len as usize);
        let mut frames = Vec::new();
        ZlibDecoder::new(&packed[6..])
            .read_to_end(&mut frames)
            .expect("zlib");
        assert_eq!(documents(&frames), expected);
    }

    #[test]
    fn metadata_of_an_event_keeps_the_id_of_the_event() {
        let batch = testing::documents(&[
            r#"{"a":1,"@metadata":{"beat":"f","_id":"own","x":{}},"b":2}"#,
            r#"{"@metadata":{}}"#,
            r#"{ "@metadata" : 5 , "a" : 1 }"#,
            r#"{"a":{"@metadata":{"_id":"own"}}}"#,
        ]);
        let (encoded, _) = rendered("hosts: h", &batch);
        let id = |row| batch.origin().shown_id(row);
        let documents: Vec<String> = documents(&encoded.bytes)
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert_eq!(
            documents,
            [
                format!(
                    r#"{{"@metadata":{{"_id":"{}","beat":"f","x":{{}}}},"a":1,"b":2}}"#,
                    id(0)
                ),
                format!(r#"{{"@metadata":{{"_id":"{}"}}}}"#, id(1)),
                format!(r#"{{"@metadata":{{"_id":"{}"}},"a":1}}"#, id(2)),
                format!(
                    r#"{{"@metadata":{{"_id":"{}"}},"a":{{"@metadata":{{"_id":"own"}}}}}}"#,
                    id(3)
                ),
            ]
        );
    }

    #[test]
    fn without_ids_documents_leave_as_they_are() {
        let batch = testing::documents(&[r#"{ "a" : 1.50 }"#]);
        let (encoded, _) = rendered("{hosts: h, event_ids: false}", &batch);
        assert_eq!(
            documents(&encoded.bytes),
            [(0, r#"{ "a" : 1.50 }"#.to_owned())]
        );
    }

    #[test]
    fn an_event_that_is_too_large_is_refused_alone() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(100));
        let batch = testing::documents(&["{}", &long, "{}"]);
        let (encoded, ends) = rendered("{hosts: h, max_event_bytes: 100}", &batch);
        assert_eq!((ends.len(), encoded.rows), (2, 2));
        assert_eq!(encoded.refused.len(), 1);
        let RowAnswer { row, reason } = &encoded.refused[0];
        assert_eq!(*row, 1);
        assert!(reason.contains("`max_event_bytes`"), "{reason}");
    }

    #[test]
    fn acknowledgements_are_read() {
        let answer = |bytes: &[u8]| Lumberjack.answer(bytes);
        assert_eq!(answer(b""), Ok(None));
        assert_eq!(answer(b"2A\0\0\x08"), Ok(None));
        assert_eq!(answer(b"2A\0\0\x08\0x"), Ok(Some((Answer::Rows(2048), 6))));
        assert_eq!(answer(b"2A\0\0\0\0"), Ok(Some((Answer::KeepAlive, 6))));
        for wrong in [&b"1A\0\0\0\x01"[..], b"HTTP/1.1 400", b"2W\0\0\0\x01"] {
            let error = answer(wrong).expect_err("no acknowledgement");
            assert!(error.contains("Lumberjack version 2"), "{error}");
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused_at_their_place() {
        for (yaml, part) in [
            ("{}", "`hosts` is missing"),
            ("hosts: 'http://h:1'", "try `h:1`"),
            ("{hosts: h, compression_level: 10}", "between 0 and 9"),
            ("{hosts: h, pipelining: 0}", "from 1 to 1000"),
            ("{hosts: h, connections: 1001}", "from 1 to 1000"),
            ("{hosts: h, host: x}", "unknown setting `host`"),
            ("{hosts: h, tls: {cert: x}}", "requires `key`"),
        ] {
            let output = testing::build_sender(&SPEC, yaml);
            let error = match output {
                Ok(output) => testing::wait(output.open()).expect_err(yaml),
                Err(error) => error,
            };
            assert!(error.to_string().contains(part), "{yaml}: {error}");
        }
    }
}
