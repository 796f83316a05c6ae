//! A strict double of Loki's push endpoint, after its documentation and its source.
//!
//! Entries are checked one by one: those that are fine are stored although the answer is 400 because of others. An entry that
//! is already there, with the same stream, time and line, is dropped. Whatever a client must never send is noted as a violation.
//! Source: <https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs>, `pkg/validation/validate.go` of
//! <https://github.com/grafana/loki>.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::http::{Answer, Taken};

/// An entry: nanoseconds, line, structured metadata.
pub type Entry = (i64, String, Value);

/// A Loki. Clones are the same one.
#[derive(Clone, Default)]
pub struct Loki {
    store: Arc<Mutex<Store>>,
    /// The longest line, in bytes.
    pub line_bytes_max: Option<usize>,
    /// The oldest time that it accepts, in nanoseconds.
    pub oldest: Option<i64>,
}

#[derive(Default)]
struct Store {
    /// By tenant and labels.
    streams: BTreeMap<String, Stream>,
    repeats: usize,
    violations: Vec<String>,
}

#[derive(Default)]
struct Stream {
    entries: Vec<Entry>,
    known: HashSet<(i64, String)>,
}

impl Loki {
    /// What it answers to a request.
    pub fn answer(&self, taken: &Taken) -> Answer {
        if taken.path != "/loki/api/v1/push" || taken.method != "POST" {
            return Answer::new(404).body("404 page not found");
        }
        if taken.header("content-type") != "application/json" {
            let what = format!("content type `{}`", taken.header("content-type"));
            self.store.lock().violations.push(what);
        }
        let Ok(request) = serde_json::from_str::<Value>(&taken.text()) else {
            return Answer::new(400)
                .body("Value looks like object, but can't find closing '}' symbol");
        };
        let mut rejected = Vec::new();
        for stream in request["streams"].as_array().into_iter().flatten() {
            let labels = match self.labels(&stream["stream"]) {
                Ok(labels) => labels,
                Err(problem) => {
                    rejected.push(problem);
                    continue;
                }
            };
            let name = format!("{}{labels}", taken.header("x-scope-orgid"));
            for value in stream["values"].as_array().into_iter().flatten() {
                if let Err(problem) = self.entry(&name, value) {
                    rejected.push(problem);
                }
            }
        }
        match rejected.first() {
            None => Answer::new(204),
            Some(first) => Answer::new(400).body(first.clone()),
        }
    }

    fn labels(&self, labels: &Value) -> Result<String, String> {
        let Some(members) = labels.as_object().filter(|members| !members.is_empty()) else {
            return Err("error at least one label pair is required per stream".to_owned());
        };
        let pairs = members.iter().map(|(name, value)| {
            let mut letters = name.chars();
            let is_first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
            let is_name = letters.next().is_some_and(is_first)
                && letters.all(|letter| is_first(letter) || letter.is_ascii_digit());
            let text = value.as_str().filter(|text| !text.is_empty() && is_name);
            text.map(|text| format!("{name}={text:?}")).ok_or_else(|| {
                let what = format!("Error parsing labels '{labels}'");
                self.store.lock().violations.push(what.clone());
                what
            })
        });
        let pairs: Vec<String> = pairs.collect::<Result<_, _>>()?;
        Ok(format!("{{{}}}", pairs.join(", ")))
    }

    fn entry(&self, stream: &str, value: &Value) -> Result<(), String> {
        let mut store = self.store.lock();
        let time = value[0].as_str().and_then(|text| text.parse::<i64>().ok());
        let metadata = value.get(2).cloned().unwrap_or_default();
        let is_text = |members: &serde_json::Map<String, Value>| {
            members.values().all(Value::is_string) && !members.is_empty()
        };
        let is_fine = metadata.is_null() || metadata.as_object().is_some_and(is_text);
        let (Some(time), Some(line), true) = (time, value[1].as_str(), is_fine) else {
            store.violations.push(format!("an entry {value}"));
            return Err("couldn't parse push request: an entry".to_owned());
        };
        if let Some(max) = self.line_bytes_max.filter(|max| line.len() > *max) {
            return Err(format!(
                "Max entry size '{max}' bytes exceeded for stream '{stream}' while adding an entry with length '{}' bytes",
                line.len()
            ));
        }
        if self.oldest.is_some_and(|oldest| time < oldest) {
            return Err(format!(
                "entry for stream '{stream}' has timestamp too old: {time}, oldest acceptable timestamp is: {:?}",
                self.oldest
            ));
        }
        let stream = store.streams.entry(stream.to_owned()).or_default();
        match stream.known.insert((time, line.to_owned())) {
            true => stream.entries.push((time, line.to_owned(), metadata)),
            false => store.repeats += 1,
        }
        Ok(())
    }

    /// The entries of each stream in the order in which they came first.
    pub fn streams(&self) -> BTreeMap<String, Vec<Entry>> {
        let store = self.store.lock();
        let streams = store.streams.iter();
        streams
            .map(|(name, stream)| (name.clone(), stream.entries.clone()))
            .collect()
    }

    /// How many entries it has.
    pub fn count(&self) -> usize {
        self.store
            .lock()
            .streams
            .values()
            .map(|stream| stream.entries.len())
            .sum()
    }

    /// How many entries were dropped because they were there already.
    pub fn repeats(&self) -> usize {
        self.store.lock().repeats
    }

    /// What a client must never do, and did.
    pub fn violations(&self) -> Vec<String> {
        self.store.lock().violations.clone()
    }
}
