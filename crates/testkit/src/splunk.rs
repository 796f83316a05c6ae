//! A strict double of Splunk's HTTP Event Collector, after its documentation.
//!
//! It accepts what the collector accepts, answers what that would answer, and notes as a violation whatever a client must never send.
//! Events before an invalid one are kept, as Splunk keeps them. With acknowledgement, events are indexed a while after
//! they were received, and a restart forgets those that are not indexed yet, and all channels.
//! Source: <https://docs.splunk.com/Documentation/Splunk/latest/Data/TroubleshootHTTPEventCollector>,
//! <https://docs.splunk.com/Documentation/Splunk/latest/Data/AboutHECIDXAck>.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::http::{Answer, Taken};

/// The token that it knows.
pub const TOKEN: &str = "11111111-2222-3333-4444-555555555555";

/// A collector. Clones are the same one.
#[derive(Clone)]
pub struct Collector {
    indexer: Arc<Mutex<Indexer>>,
    acknowledges_after: Option<Duration>,
    indexes: &'static [&'static str],
}

#[derive(Default)]
struct Indexer {
    indexed: Vec<Value>,
    pending: Vec<Pending>,
    /// The next number of each channel.
    channels: HashMap<String, u64>,
    violations: Vec<String>,
}

/// A request that is not indexed yet, or not acknowledged.
struct Pending {
    channel: String,
    number: u64,
    since: Instant,
    events: Vec<Value>,
}

impl Collector {
    /// One whose token may write to these indexes, or to any where none is named. With `acknowledges_after` the token has indexer
    /// acknowledgement, and events are indexed so long after they were received.
    pub fn new(indexes: &'static [&'static str], acknowledges_after: Option<Duration>) -> Self {
        Self {
            indexer: Arc::default(),
            acknowledges_after,
            indexes,
        }
    }

    /// What it answers to a request.
    pub fn answer(&self, taken: &Taken) -> Answer {
        match taken.header("authorization") {
            "" => return reply(401, 2, "Token is required"),
            header if !header.starts_with("Splunk ") => {
                return reply(401, 3, "Invalid authorization");
            }
            header if header["Splunk ".len()..] != *TOKEN => {
                return reply(403, 4, "Invalid token");
            }
            _ => {}
        }
        let path = taken.path.split('?').next().unwrap_or_default();
        match path {
            "/services/collector/event" => self.events(taken),
            "/services/collector/raw" => self.raw(taken),
            "/services/collector/ack" => self.acks(taken),
            _ => Answer::new(404).body("The requested URL was not found on this server."),
        }
    }

    /// Loses what is not indexed, and every channel.
    pub fn restart(&self) {
        self.index_due();
        let mut indexer = self.indexer.lock();
        indexer.pending.clear();
        indexer.channels.clear();
    }

    /// Every envelope that is indexed; of raw lines `{"event":LINE,"query":…}`.
    pub fn indexed(&self) -> Vec<Value> {
        self.index_due();
        self.indexer.lock().indexed.clone()
    }

    /// What a client must never do, and did.
    pub fn violations(&self) -> Vec<String> {
        self.indexer.lock().violations.clone()
    }

    fn violated(&self, what: impl Into<String>) {
        self.indexer.lock().violations.push(what.into());
    }

    fn channel(&self, taken: &Taken, is_required: bool) -> Result<String, Answer> {
        let channel = taken.header("x-splunk-request-channel");
        let is_guid = channel.len() == 36 && channel.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        match channel {
            "" if is_required => Err(reply(400, 10, "Data channel is missing")),
            "" => Ok(String::new()),
            _ if !is_guid => Err(reply(400, 11, "Invalid data channel")),
            channel => Ok(channel.to_owned()),
        }
    }

    fn events(&self, taken: &Taken) -> Answer {
        let channel = match self.channel(taken, self.acknowledges_after.is_some()) {
            Ok(channel) => channel,
            Err(answer) => return answer,
        };
        if taken.header("content-type") != "application/json" {
            self.violated(format!("content type `{}`", taken.header("content-type")));
        }
        let text = taken.text();
        let mut events = Vec::new();
        let mut problem = None;
        for envelope in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            match envelope.map_err(|_| (6, "Invalid data format")) {
                Ok(envelope) => match self.check(&envelope) {
                    None => events.push(envelope),
                    found => problem = found,
                },
                Err(found) => problem = Some(found),
            }
            if problem.is_some() {
                break;
            }
        }
        let number = events.len();
        if number == 0 && problem.is_none() {
            return reply(400, 5, "No data");
        }
        match problem {
            None => self.accept(channel, events),
            Some((code, text)) => {
                self.indexer.lock().indexed.extend(events);
                let body = json!({"text": text, "code": code, "invalid-event-number": number});
                Answer::new(400).body(body.to_string())
            }
        }
    }

    /// What is wrong with an envelope.
    fn check(&self, envelope: &Value) -> Option<(u32, &'static str)> {
        let Some(members) = envelope.as_object() else {
            return Some((6, "Invalid data format"));
        };
        for (name, value) in members {
            let is_fine = match name.as_str() {
                "time" => value.is_number(),
                "host" | "source" | "sourcetype" | "index" => {
                    value.as_str().is_some_and(|text| !text.is_empty())
                }
                "event" | "fields" => true,
                _ => false,
            };
            if !is_fine {
                self.violated(format!("`{name}` is {value}"));
                return Some((6, "Invalid data format"));
            }
        }
        match members.get("event") {
            None | Some(Value::Null) => return Some((12, "Event field is required")),
            Some(Value::String(text)) if text.trim().is_empty() => {
                return Some((13, "Event field cannot be blank"));
            }
            Some(_) => {}
        }
        let fields = members.get("fields").map(Value::as_object);
        let is_flat = |fields: &serde_json::Map<String, Value>| {
            fields
                .values()
                .all(|value| !value.is_object() && !value.is_null())
        };
        if fields.is_some_and(|fields| !fields.is_some_and(is_flat)) {
            return Some((15, "Error in handling indexed fields"));
        }
        let index = members.get("index").and_then(Value::as_str);
        let is_known = |index: &str| self.indexes.is_empty() || self.indexes.contains(&index);
        (!index.is_none_or(is_known)).then_some((7, "Incorrect index"))
    }

    fn raw(&self, taken: &Taken) -> Answer {
        let channel = match self.channel(taken, true) {
            Ok(channel) => channel,
            Err(answer) => return answer,
        };
        let query = taken.path.split_once('?').map_or("", |(_, query)| query);
        let text = taken.text();
        let line = |line: &str| json!({"event": line, "query": query});
        let events: Vec<Value> = text.lines().map(line).collect();
        match events.is_empty() {
            true => reply(400, 5, "No data"),
            false => self.accept(channel, events),
        }
    }

    fn accept(&self, channel: String, events: Vec<Value>) -> Answer {
        let mut indexer = self.indexer.lock();
        if self.acknowledges_after.is_none() {
            indexer.indexed.extend(events);
            return Answer::new(200).body(r#"{"text":"Success","code":0}"#);
        }
        let next = indexer.channels.entry(channel.clone()).or_default();
        let number = *next;
        *next += 1;
        indexer.pending.push(Pending {
            channel,
            number,
            since: Instant::now(),
            events,
        });
        let body = json!({"text": "Success", "code": 0, "ackId": number});
        Answer::new(200).body(body.to_string())
    }

    /// Indexes what was received long enough ago.
    fn index_due(&self) {
        let after = self.acknowledges_after.unwrap_or_default();
        let mut indexer = self.indexer.lock();
        let Indexer {
            pending, indexed, ..
        } = &mut *indexer;
        for request in pending.iter_mut() {
            if request.since.elapsed() >= after {
                indexed.append(&mut request.events);
            }
        }
    }

    fn acks(&self, taken: &Taken) -> Answer {
        if self.acknowledges_after.is_none() {
            return reply(400, 14, "ACK is disabled");
        }
        let channel = match self.channel(taken, true) {
            Ok(channel) => channel,
            Err(answer) => return answer,
        };
        let question: Value = serde_json::from_str(&taken.text()).unwrap_or_default();
        let Some(numbers) = question["acks"].as_array() else {
            self.violated(format!("a question for acknowledgements: {question}"));
            return reply(400, 6, "Invalid data format");
        };
        self.index_due();
        let mut indexer = self.indexer.lock();
        let mut acks = serde_json::Map::new();
        for number in numbers.iter().filter_map(Value::as_u64) {
            let place = indexer.pending.iter().position(|request| {
                request.channel == channel && request.number == number && request.events.is_empty()
            });
            // It says so once.
            if let Some(place) = place {
                indexer.pending.swap_remove(place);
            }
            acks.insert(number.to_string(), place.is_some().into());
        }
        Answer::new(200).body(json!({ "acks": acks }).to_string())
    }
}

fn reply(status: u16, code: u32, text: &str) -> Answer {
    Answer::new(status).body(json!({"text": text, "code": code}).to_string())
}
