//! What a test sees of a run: which events were read, what processors did with them, and what came out.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use batch::{Batch, Bitmap, Failures, FieldRead, JsonWriter};
use component::processor::Fork;
use component::{
    Encoded, Input, InputContext, InputError, Output, Processor, Receipt, Sink, Stopped, Warning,
    WriteError, Writer, Written,
};
use parking_lot::Mutex;
use pipeline::graph::StageNode;
use pipeline::settings::OnFailure;

/// What was seen of a run. Clones share it.
#[derive(Clone, Default)]
pub struct Witness(Arc<Mutex<Seen>>);

/// What became of the events, by their ids.
#[derive(Default)]
pub struct Seen {
    /// Those that were read, in order.
    pub read: Vec<String>,
    /// Those that processors took away.
    pub fates: HashMap<String, Fate>,
    /// Those that came out, in order, as JSON.
    pub out: Vec<(String, String)>,
}

/// Why an event did not come out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// The processor that took it away.
    pub by: Arc<str>,
    /// Whether it becomes a dead letter.
    pub is_dead: bool,
    /// Why the processor could not handle it, where that is the reason.
    pub reason: Option<Arc<str>>,
}

impl Witness {
    /// What was seen so far, which is forgotten.
    pub fn take(&self) -> Seen {
        std::mem::take(&mut self.0.lock())
    }

    /// The input, whose events are seen.
    pub fn input(&self, input: Box<dyn Input>) -> Box<dyn Input> {
        let witness = self.clone();
        Box::new(WatchedInput { input, witness })
    }

    /// Sees what a processor drops. Those below an output have its name before their own.
    pub fn watch(&self, stage: StageNode, output: Option<&str>) -> StageNode {
        let name = match output {
            Some(output) => format!("{output}/{}", stage.name),
            None => stage.name.clone(),
        };
        let component = Box::new(WatchedProcessor {
            processor: stage.component,
            name: name.into(),
            drops_failed: stage.on_failure == OnFailure::Drop,
            would_bury: stage.would_bury,
            witness: self.clone(),
        });
        StageNode { component, ..stage }
    }

    /// An output that keeps the events that it gets. It needs them in order.
    pub fn output(&self) -> Arc<dyn Writer> {
        Arc::new(Collector(self.clone()))
    }
}

struct WatchedInput {
    input: Box<dyn Input>,
    witness: Witness,
}

#[async_trait]
impl Input for WatchedInput {
    async fn run(self: Box<Self>, mut ctx: InputContext) -> Result<(), InputError> {
        ctx.sink = Arc::new(WatchedSink {
            sink: ctx.sink,
            witness: self.witness,
        });
        self.input.run(ctx).await
    }
}

struct WatchedSink {
    sink: Arc<dyn Sink>,
    witness: Witness,
}

#[async_trait]
impl Sink for WatchedSink {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        let ids = batch.alive().iter().map(|row| batch.origin().shown_id(row));
        self.witness.0.lock().read.extend(ids);
        self.sink.send(batch).await
    }
}

struct WatchedProcessor {
    processor: Box<dyn Processor>,
    name: Arc<str>,
    drops_failed: bool,
    would_bury: bool,
    witness: Witness,
}

impl Fork for WatchedProcessor {
    fn fork(&self) -> Box<dyn Processor> {
        Box::new(Self {
            processor: self.processor.fork(),
            name: self.name.clone(),
            witness: self.witness.clone(),
            ..*self
        })
    }
}

impl Processor for WatchedProcessor {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let mut dropped = batch.alive().clone();
        let failures = self.processor.process(batch, rows);
        dropped.and_not(batch.alive());
        let mut seen = self.witness.0.lock();
        let mut note = |row: usize, is_dead: bool, reason: Option<&Arc<str>>| {
            let fate = Fate {
                by: self.name.clone(),
                is_dead,
                reason: reason.cloned(),
            };
            seen.fates.insert(batch.origin().shown_id(row), fate);
        };
        dropped.iter().for_each(|row| note(row, false, None));
        if self.drops_failed {
            let failed = failures.rows().iter();
            failed.for_each(|it| note(it.row, self.would_bury, Some(&it.reason)));
        }
        drop(seen);
        failures
    }

    fn take_derived(&mut self) -> Vec<Batch> {
        self.processor.take_derived()
    }

    fn makes_at_end(&self) -> bool {
        self.processor.makes_at_end()
    }

    fn end(&mut self, last: &Batch) {
        self.processor.end(last);
    }

    fn stand_at(&mut self, place: &str) {
        self.processor.stand_at(place);
    }

    fn place(&mut self, before: usize) {
        self.processor.place(before);
    }

    fn needs_condition(&self) -> bool {
        self.processor.needs_condition()
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.processor.reads()
    }

    fn is_finished(&self) -> bool {
        self.processor.is_finished()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        self.processor.take_counters()
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.processor.take_warnings()
    }
}

/// Keeps events. It renders each as two lines: its id, and the event as JSON.
struct Collector(Witness);

#[async_trait]
impl Output for Collector {
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let writer = JsonWriter::new(batch);
        for row in rows.iter() {
            let out = &mut encoded.bytes;
            out.extend(batch.origin().shown_id(row).bytes());
            out.push(b'\n');
            writer.write(row, out);
            out.push(b'\n');
            encoded.end_row(row);
        }
    }
}

#[async_trait]
impl Writer for Collector {
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        let text = String::from_utf8_lossy(&encoded.bytes);
        let mut lines = text.lines().map(str::to_owned);
        let mut seen = self.0.0.lock();
        while let (Some(id), Some(event)) = (lines.next(), lines.next()) {
            seen.out.push((id, event));
        }
        Ok(Written::default())
    }
}
