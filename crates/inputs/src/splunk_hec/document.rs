//! From envelopes and lines to documents.
//!
//! | of the envelope | in the document |
//! | --- | --- |
//! | `event`, an object | its members |
//! | `event`, anything else | `message` |
//! | `time` | `@timestamp`; where the event has one of its own, `splunk.time` |
//! | `host` | `host.name`; where the event has a `host` of its own, `splunk.host` |
//! | other members | `splunk.NAME`; where the event has a `splunk` of its own, `@metadata.splunk.NAME` |

use batch::json::{self, Kind};
use datetime::rfc3339::write_rfc3339;

use super::envelope::{Envelope, is_known};
use crate::connections::rendered::{Rendered, Row, on_one_line};

/// What holds for the events of a request that say nothing else, from its query. Values are JSON.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    pub(super) time: Option<(Vec<u8>, i64)>,
    pub(super) host: Option<Vec<u8>>,
    pub(super) source: Option<Vec<u8>>,
    pub(super) sourcetype: Option<Vec<u8>>,
    pub(super) index: Option<Vec<u8>>,
}

/// How documents of a request are written.
pub(super) struct Writing<'a> {
    pub(super) defaults: &'a Defaults,
    /// When it came, in nanoseconds since 1970.
    pub(super) received: i64,
    /// The member of `fields` that is an event's id, as JSON writes a key.
    pub(super) id_key: Option<&'a [u8]>,
    /// Some key may have a dot.
    pub(super) has_dots: bool,
}

/// Which fields of an envelope an event has itself.
#[derive(Debug, Default)]
struct Own {
    timestamp: bool,
    host: bool,
    splunk: bool,
}

impl Own {
    fn of(event: &[u8], has_dots: bool) -> Self {
        let has = |key: &[u8]| json::find(event, key).is_some();
        let mut own = Self {
            timestamp: has(b"@timestamp"),
            host: has(b"host"),
            splunk: has(b"splunk"),
        };
        if has_dots {
            for member in json::members(event) {
                own.host |= member.key.starts_with(b"host.");
                own.splunk |= member.key.starts_with(b"splunk.");
            }
        }
        own
    }
}

impl Writing<'_> {
    /// Writes the event of an envelope.
    pub(super) fn envelope(&self, envelope: &Envelope<'_>, rendered: &mut Rendered) {
        let event = envelope.event;
        let (start, out) = (rendered.position(), rendered.out());
        let own = if json::kind(event) == Kind::Object {
            // Without its closing brace.
            out.extend_from_slice(event[..event.len() - 1].trim_ascii_end());
            Own::of(event, self.has_dots)
        } else {
            out.extend_from_slice(b"{\"message\":");
            out.extend_from_slice(event);
            Own::default()
        };
        self.finish(start, envelope, &own, rendered);
    }

    /// Writes a line as an event.
    pub(super) fn line(&self, line: &[u8], rendered: &mut Rendered) {
        let (start, out) = (rendered.position(), rendered.out());
        out.extend_from_slice(b"{\"message\":");
        json::write_string(out, line);
        self.finish(start, &Envelope::default(), &Own::default(), rendered);
    }

    /// Writes what an envelope says behind its event, of which the closing brace is missing.
    fn finish(&self, start: usize, envelope: &Envelope<'_>, own: &Own, rendered: &mut Rendered) {
        let defaults = self.defaults;
        let default_time = defaults.time.as_ref();
        let default_time = default_time.map(|(text, nanos)| (&text[..], *nanos));
        let time = envelope.time.or(default_time);
        let host = envelope.host.or(defaults.host.as_deref());
        let out = rendered.out();
        if !own.timestamp {
            separate(start, out);
            out.extend_from_slice(b"\"@timestamp\":\"");
            write_rfc3339(out, time.map_or(self.received, |(_, nanos)| nanos));
            out.push(b'"');
        }
        if let (Some(host), false) = (host, own.host) {
            separate(start, out);
            out.extend_from_slice(b"\"host\":{\"name\":");
            out.extend_from_slice(host);
            out.push(b'}');
        }
        let kept = [
            ("time", time.map(|(text, _)| text).filter(|_| own.timestamp)),
            ("host", host.filter(|_| own.host)),
            ("source", envelope.source.or(defaults.source.as_deref())),
            (
                "sourcetype",
                envelope.sourcetype.or(defaults.sourcetype.as_deref()),
            ),
            ("index", envelope.index.or(defaults.index.as_deref())),
            ("fields", envelope.fields),
        ];
        let has_kept = envelope.has_others || kept.iter().any(|(_, value)| value.is_some());
        let mut row = Row::default();
        if has_kept && !own.splunk {
            separate(start, out);
            out.extend_from_slice(b"\"splunk\":");
            write_kept(&kept, envelope, out);
        }
        out.push(b'}');
        row.document = start..out.len();
        if has_kept && own.splunk {
            let metadata = out.len();
            out.extend_from_slice(b"{\"splunk\":");
            write_kept(&kept, envelope, out);
            out.push(b'}');
            row.metadata = metadata..out.len();
        }
        on_one_line(&mut out[start..]);
        if let (Some(key), Some(fields)) = (self.id_key, envelope.fields) {
            row.write_id(fields, key, out);
        }
        rendered.push(row);
    }
}

/// Writes the comma before a member, unless it is the first one of the object that begins at `start`.
fn separate(start: usize, out: &mut Vec<u8>) {
    if out.len() > start + 1 {
        out.push(b',');
    }
}

/// Writes members of an envelope as an object.
fn write_kept(kept: &[(&str, Option<&[u8]>)], envelope: &Envelope<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(b'{');
    for (name, value) in kept {
        let Some(value) = value else { continue };
        separate(start, out);
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value);
    }
    if envelope.has_others {
        for member in json::members(envelope.text) {
            if !is_known(member.key) {
                separate(start, out);
                out.extend_from_slice(&envelope.text[member.start..member.value.end]);
            }
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::super::envelope::Envelopes;
    use super::*;

    /// The documents of a body, each with its metadata and its id.
    fn documents(body: &str, defaults: &Defaults) -> Vec<String> {
        let mut envelopes = Envelopes::default();
        let count = envelopes.check(body.as_bytes()).expect(body);
        let writing = Writing {
            defaults,
            received: 0,
            id_key: Some(b"event_id"),
            has_dots: envelopes.has_dots,
        };
        envelopes.restart(body.as_bytes());
        let mut documents = Vec::new();
        while let Some(envelope) = envelopes.next(body.as_bytes()) {
            let mut rendered = Rendered::default();
            writing.envelope(&envelope, &mut rendered);
            let text = String::from_utf8(rendered.written().to_vec()).expect("UTF-8");
            documents.push(text);
        }
        assert_eq!(documents.len(), count, "{body}");
        documents
    }

    #[test]
    fn what_an_envelope_says_is_laid_around_its_event() {
        const EPOCH: &str = "1970-01-01T00:00:00.000Z";
        for (body, expected) in [
            (
                r#"{"event":"a \"b\"","time":1.5}"#.to_owned(),
                r#"{"message":"a \"b\"","@timestamp":"1970-01-01T00:00:01.500Z"}"#.to_owned(),
            ),
            (
                r#"{"event":{"a":1.0 },"host":"h","source":"s","sourcetype":"t","index":"i"}"#.to_owned(),
                format!(r#"{{"a":1.0,"@timestamp":"{EPOCH}","host":{{"name":"h"}},"splunk":{{"source":"s","sourcetype":"t","index":"i"}}}}"#),
            ),
            (
                r#"{"event":{},"fields":{"x":[1,"2"]},"more":{"a":1},"time":"2"}"#.to_owned(),
                r#"{"@timestamp":"1970-01-01T00:00:02.000Z","splunk":{"fields":{"x":[1,"2"]},"more":{"a":1}}}"#.to_owned(),
            ),
            (
                "{\"event\":{\n\"a\" :\r\n 1}}".to_owned(),
                format!(r#"{{ "a" :   1,"@timestamp":"{EPOCH}"}}"#),
            ),
            (
                r#"{"event":[1,2]}"#.to_owned(),
                format!(r#"{{"message":[1,2],"@timestamp":"{EPOCH}"}}"#),
            ),
            (
                r#"{"event":{"@timestamp":"x","host":{"name":"own"}},"time":7,"host":"h"}"#.to_owned(),
                r#"{"@timestamp":"x","host":{"name":"own"},"splunk":{"time":7,"host":"h"}}"#.to_owned(),
            ),
            (
                r#"{"event":{"host.name":"own"},"host":"h"}"#.to_owned(),
                format!(r#"{{"host.name":"own","@timestamp":"{EPOCH}","splunk":{{"host":"h"}}}}"#),
            ),
            (
                r#"{"event":{"splunk":1},"source":"s"}"#.to_owned(),
                format!(r#"{{"splunk":1,"@timestamp":"{EPOCH}"}}{{"splunk":{{"source":"s"}}}}"#),
            ),
            (
                r#"{"event":"a","fields":{"event_id":"x-1"}}"#.to_owned(),
                format!(r#"{{"message":"a","@timestamp":"{EPOCH}","splunk":{{"fields":{{"event_id":"x-1"}}}}}}x-1"#),
            ),
            (
                r#"{"event":"a","event":"b","host":null}"#.to_owned(),
                format!(r#"{{"message":"b","@timestamp":"{EPOCH}"}}"#),
            ),
        ] {
            assert_eq!(documents(&body, &Defaults::default()), [expected], "{body}");
        }
    }

    #[test]
    fn the_query_says_what_envelopes_do_not() {
        let defaults = Defaults {
            time: Some((b"3".to_vec(), 3_000_000_000)),
            host: Some(b"\"q\"".to_vec()),
            ..Defaults::default()
        };
        let body = "{\"event\":\"a\"}{\"event\":\"b\",\"host\":\"h\",\"time\":4}\n\n {\"event\":1}";
        let expected = [
            r#"{"message":"a","@timestamp":"1970-01-01T00:00:03.000Z","host":{"name":"q"}}"#,
            r#"{"message":"b","@timestamp":"1970-01-01T00:00:04.000Z","host":{"name":"h"}}"#,
            r#"{"message":1,"@timestamp":"1970-01-01T00:00:03.000Z","host":{"name":"q"}}"#,
        ];
        assert_eq!(documents(body, &defaults), expected);
    }

    #[test]
    fn a_wrong_envelope_is_named() {
        for (body, expected) in [
            ("", r#"{"text":"No data","code":5}"#),
            (" \n", r#"{"text":"No data","code":5}"#),
            (
                r#"{"event":"a"}{"x":1}"#,
                r#"{"text":"Event field is required","code":12,"invalid-event-number":1}"#,
            ),
            (
                r#"{"event":null}"#,
                r#"{"text":"Event field is required","code":12,"invalid-event-number":0}"#,
            ),
            (
                r#"{"event":""}"#,
                r#"{"text":"Event field cannot be blank","code":13,"invalid-event-number":0}"#,
            ),
            (
                r#"{"event":"a"}{"event":"#,
                r#"{"text":"Invalid data format","code":6,"invalid-event-number":1,"reason":"unexpected end of JSON at byte 22"}"#,
            ),
            (
                r#"{"event":"a","time":"noon"}"#,
                r#"{"text":"Invalid data format","code":6,"invalid-event-number":0,"reason":"`time` is not a number of seconds since 1970: \"noon\""}"#,
            ),
            (
                r#"{"event":"a","host":{}}"#,
                r#"{"text":"Invalid data format","code":6,"invalid-event-number":0,"reason":"`host` is not text"}"#,
            ),
            (
                r#"{"event":"a","fields":1}"#,
                r#"{"text":"Error in handling indexed fields","code":15,"invalid-event-number":0,"reason":"`fields` is not an object"}"#,
            ),
        ] {
            let failure = Envelopes::default().check(body.as_bytes());
            let failure = failure.expect_err(body).body();
            assert_eq!(String::from_utf8_lossy(&failure), expected, "{body}");
        }
    }
}
