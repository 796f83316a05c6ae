//! `tail`: the last events of a run.
//!
//! Of each batch that may have some of them, these rows are kept in their stored form.

use std::collections::VecDeque;
use std::sync::Arc;

use batch::{Batch, Bitmap, Failures};
use bytes::Bytes;
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::derived::Derived;
use crate::remembered::{SENSELESS, SavedBytes, save_text};

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "tail",
    aliases: &[],
    summary: "Keeps the last events of a run and drops the rest.",
    description: "Nothing passes before the end of the run: then the last `count` events pass, in their order. So this is for inputs that end; in a service, the end is its stop. With a disk queue the events are kept \
                  over restarts and crashes, and a stop is no end. With a queue in memory, the events that `tail` holds are lost when the process is killed: their inputs count them as handled, and do not read them again. With `if`, only the events for which it is true are counted, kept or dropped, and the others pass at once.\n\n\
                  The last events are kept in memory as a disk queue would store them, with all that they have: an event of 30 bytes takes about 60.",
    positional: Positional::fields(&["count"]),
    one_line: &[],
    examples: &[Example {
        title: "The last two events",
        stage: "tail 2",
        input: "{\"a\":1}\n{\"a\":2}\n{\"a\":3}",
        output: "{\"a\":2}\n{\"a\":3}",
    }],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Ordered,
        sees_sealed: true,
        build,
    },
};

/// Settings of `tail`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// How many events pass, at most 1M.
    count: Count,
}

const COUNT_MAX: u64 = 1_000_000;

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let count = node.get("count").and_then(Node::as_str);
    let is_path = count.is_some_and(|text| text.parse::<Count>().is_err());
    let config: Config = parse(node).map_err(|error| match is_path {
        true => error.note("to read what is written to a file, write file PATH follow=true"),
        false => error,
    })?;
    if config.count.0 > COUNT_MAX {
        return Err(node
            .nearest("count")
            .error(format!("`count` must be at most {}", Count(COUNT_MAX))));
    }
    Ok(Box::new(Tail {
        count: config.count.0 as usize,
        kept: VecDeque::new(),
        events: 0,
        reason: SPEC.name.into(),
        derived: Derived::default(),
    }))
}

/// Rows of a batch.
#[derive(Clone)]
struct KeptRows {
    rows: usize,
    payload: Bytes,
}

#[derive(Clone)]
struct Tail {
    count: usize,
    kept: VecDeque<KeptRows>,
    /// Events in all of them.
    events: usize,
    reason: Arc<str>,
    derived: Derived,
}

impl Processor for Tail {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let all: Vec<usize> = rows.iter().collect();
        let last = &all[all.len().saturating_sub(self.count)..];
        if !last.is_empty() {
            let frozen = batch.pick(last).freeze();
            let mut payload = frozen.head;
            for document in &frozen.documents {
                payload.extend_from_slice(document);
            }
            self.keep(KeptRows {
                rows: last.len(),
                payload: payload.into(),
            });
        }
        batch.drop_rows(rows, &self.reason);
        Failures::none()
    }

    fn take_derived(&mut self) -> Vec<Batch> {
        self.derived.take()
    }

    fn makes_at_end(&self) -> bool {
        true
    }

    fn end(&mut self, _: &Batch) {
        let mut beyond = self.events.saturating_sub(self.count);
        for kept in std::mem::take(&mut self.kept) {
            // What was frozen here is right.
            let Ok(batch) = Batch::thaw(kept.payload) else {
                continue;
            };
            let skipped = beyond.min(batch.len());
            beyond -= skipped;
            let batch = match skipped {
                0 => batch,
                _ => batch.pick(&(skipped..batch.len()).collect::<Vec<_>>()),
            };
            if !batch.is_empty() {
                self.derived.push(batch);
            }
        }
        self.events = 0;
    }

    fn remembers(&self) -> bool {
        true
    }

    fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for kept in &self.kept {
            out.extend((kept.rows as u64).to_le_bytes());
            save_text(&kept.payload, &mut out);
        }
        out
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        let mut saved = SavedBytes(saved);
        let mut all = Vec::new();
        while !saved.0.is_empty() {
            let kept = saved.len().zip(saved.text());
            let (rows, payload) = kept.ok_or(SENSELESS)?;
            let payload = Bytes::copy_from_slice(payload);
            if !Batch::thaw(payload.clone()).is_ok_and(|batch| batch.len() == rows) {
                return Err(SENSELESS.to_owned());
            }
            all.push(KeptRows { rows, payload });
        }
        // All of it or nothing.
        all.into_iter().for_each(|kept| self.keep(kept));
        Ok(())
    }
}

impl Tail {
    fn keep(&mut self, kept: KeptRows) {
        self.events += kept.rows;
        self.kept.push_back(kept);
        while let Some(first) = self.kept.front()
            && self.events - first.rows >= self.count
        {
            self.events -= first.rows;
            self.kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check_errors, lines_of, process, text_batch};

    #[test]
    fn the_last_events_come_at_the_end_whatever_the_batches() {
        let lines: Vec<String> = (0..1_000).map(|n| format!("{{\"n\":{n}}}")).collect();
        for size in [1, 7, 300, 1_000] {
            for count in [0, 1, 10, 299, 2_000] {
                let stage = format!("tail {count}");
                let mut processor = build(&SPEC, &stage).expect("right");
                for lines in lines.chunks(size) {
                    let mut batch = batch_of(lines.iter().map(String::as_str));
                    process(processor.as_mut(), &mut batch);
                    assert!(batch.alive().is_empty());
                    let saved = processor.save();
                    processor = build(&SPEC, &stage).expect("right");
                    processor.restore(&saved).expect("it is right");
                }
                processor.end(&batch_of([]));
                let derived = processor.take_derived();
                let got: Vec<String> = derived.iter().flat_map(lines_of).collect();
                assert_eq!(got, lines[lines.len().saturating_sub(count)..]);
                processor.end(&batch_of([]));
                assert!(processor.take_derived().is_empty());
            }
        }
    }

    #[test]
    fn events_keep_their_ids() {
        let mut processor = build(&SPEC, "tail 2").expect("right");
        let mut batch = text_batch(["one", "two", "three"]);
        process(processor.as_mut(), &mut batch);
        processor.end(&batch_of([]));
        let derived = processor.take_derived();
        let ids = |batch: &Batch, rows: std::ops::Range<usize>| -> Vec<String> {
            rows.map(|row| batch.origin().shown_id(row)).collect()
        };
        assert_eq!(ids(&derived[0], 0..2), ids(&batch, 1..3));
        assert_eq!(
            lines_of(&derived[0]),
            ["{\"message\":\"two\"}", "{\"message\":\"three\"}"]
        );
    }

    #[test]
    fn too_many_are_refused() {
        check_errors(&SPEC, &[("tail 2M", "`count` must be at most 1M")]);
    }
}
