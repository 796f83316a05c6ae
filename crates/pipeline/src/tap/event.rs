//! An event that was picked at a point, and what became of it there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

use batch::{Batch, EventFormat, Failures, FieldPath, Json, JsonWriter, json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::settings::DEAD_LETTER;

/// An event that was picked.
#[derive(Debug, Clone)]
pub struct TapEvent {
    /// Its number among those of the tap, from 1.
    pub number: u64,
    /// When it passed.
    pub time: SystemTime,
    /// Its id.
    pub id: String,
    /// The event before the point, as JSON, where that is shown.
    pub before: Option<Vec<u8>>,
    /// The event behind the point, as JSON, where that is shown and it got there.
    pub after: Option<Vec<u8>>,
    /// What became of it, where both are shown.
    pub outcome: Option<TapOutcome>,
    /// The tag of a failure.
    pub tag: Option<Arc<str>>,
    /// The reason of a failure; of an event that was dropped, what dropped it.
    pub reason: Option<Arc<str>>,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TapOutcome {
    /// It went on with other fields.
    Changed,
    /// It went on as it was.
    Unchanged,
    /// A processor could not handle it, and it went on with a tag.
    Failed,
    /// It went no further.
    Dropped,
    /// A processor could not handle it, and it became a dead letter.
    DeadLetter,
}

impl TapEvent {
    /// An event that passes now.
    pub(super) fn new(id: String) -> Self {
        Self {
            number: 0,
            time: SystemTime::now(),
            id,
            before: None,
            after: None,
            outcome: None,
            tag: None,
            reason: None,
        }
    }

    /// Says what became of it: row `row` of a batch that has passed the point.
    pub(super) fn settle(&mut self, batch: &Batch, row: usize, failures: &Failures) {
        let failure = failures.rows().iter().find(|failure| failure.row == row);
        if let Some(failure) = failure {
            self.tag = Some(failure.tag.clone());
            self.reason = Some(failure.reason.clone());
        }
        let is_alive = batch.alive().contains(row);
        let mut drops = batch.drops().iter();
        let dropped = drops.find(|drops| !is_alive && drops.rows.contains(row));
        self.outcome = Some(match (is_alive, failure) {
            (true, Some(_)) => TapOutcome::Failed,
            (true, None) if self.before == self.after => TapOutcome::Unchanged,
            (true, None) => TapOutcome::Changed,
            (false, _) if dropped.is_some_and(|drops| *drops.reason == *DEAD_LETTER) => {
                TapOutcome::DeadLetter
            }
            (false, _) => TapOutcome::Dropped,
        });
        if self.reason.is_none() {
            self.reason = dropped.map(|drops| drops.reason.clone());
        }
    }

    /// The room that it takes.
    pub(super) fn size(&self) -> usize {
        let [before, after] = [&self.before, &self.after].map(|it| it.as_ref().map_or(0, Vec::len));
        size_of::<Self>() + self.id.len() + before + after
    }
}

/// These rows as JSON objects, in their order; none where the batch cannot be written, which must not end what it is on its way to.
pub(super) fn render(batch: &Batch, rows: &[usize], with_metadata: bool) -> Option<Vec<Vec<u8>>> {
    let render = || {
        // Some rows alone, so that nothing is done for the others.
        let picked = batch.pick(rows);
        let writer = JsonWriter::new(&picked);
        let event = |row| {
            let mut out = Vec::new();
            writer.write(row, &mut out);
            if with_metadata {
                add_metadata(&picked, row, &mut out);
            }
            out
        };
        (0..rows.len()).map(event).collect()
    };
    catch_unwind(AssertUnwindSafe(render)).ok()
}

const METADATA: &str = "@metadata";

/// What is readable under `@metadata` of events that nobody wrote anything to there.
const SYSTEM: [&[&str]; 9] = [
    &["id"],
    &["timestamp"],
    &["host", "name"],
    &["log", "offset"],
    &["log", "file", "path"],
    &["log", "source", "address"],
    &["log", "source", "listener"],
    &["topic", "name"],
    &["topic", "partition"],
];

/// Adds what is readable under `@metadata` to an event that does not show it anyway.
fn add_metadata(batch: &Batch, row: usize, out: &mut Vec<u8>) {
    if json::find(out, METADATA.as_bytes()).is_some() || out.pop_if(|it| *it == b'}').is_none() {
        return;
    }
    let mut metadata = Map::new();
    for keys in SYSTEM {
        if let Some(value) = value(batch, row, keys) {
            insert(&mut metadata, keys, value);
        }
    }
    if let Some(Value::Object(written)) = value(batch, row, &[]) {
        overlay(&mut metadata, written);
    }
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.extend_from_slice(format!("\"{METADATA}\":{}}}", Value::Object(metadata)).as_bytes());
}

/// What a row has at these keys below `@metadata`.
fn value(batch: &Batch, row: usize, keys: &[&str]) -> Option<Value> {
    let keys = [METADATA].into_iter().chain(keys.iter().copied());
    let column = batch.column(&FieldPath::from_keys(keys));
    let cell = column.cell(row);
    if cell.is_absent() {
        return None;
    }
    let mut text = Vec::new();
    Json::value(column.value_of(cell), &mut text);
    serde_json::from_slice(&text).ok()
}

fn insert(map: &mut Map<String, Value>, keys: &[&str], value: Value) {
    match keys {
        [] => {}
        [last] => drop(map.insert((*last).to_owned(), value)),
        [first, rest @ ..] => {
            let below = map.entry(*first).or_insert_with(|| Map::new().into());
            if let Value::Object(below) = below {
                insert(below, rest, value);
            }
        }
    }
}

fn overlay(map: &mut Map<String, Value>, written: Map<String, Value>) {
    for (key, value) in written {
        match (map.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(value)) => overlay(below, value),
            (_, value) => drop(map.insert(key, value)),
        }
    }
}
