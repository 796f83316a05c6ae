//! Makes batches of gathered records and sends them.

use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, BatchBuilder, Cell, Column, Encoding, Span};
use bytes::Bytes;
use codec::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Chunk, Decoder};
use component::{InputContext, Limit, Stopped};

use super::gather::{Gathered, Run};
use super::partitions::{BatchEnd, Partitions};
use crate::reading::emitter::{count, now};

/// What is said of a record that was truncated.
const CUT: &str = "is longer than `max_line_bytes` and was truncated";

/// Makes batches.
pub(super) struct Batches {
    decoder: Decoder,
    add_fields: bool,
    takes_ids: bool,
    ctx: InputContext,
    partitions: Arc<Partitions>,
}

/// A batch that is being made.
struct GrowingBatch {
    builder: BatchBuilder,
    ends: Vec<BatchEnd>,
    /// The records from which on rows are made of.
    from: usize,
}

impl Batches {
    pub(super) fn new(
        settings: &codec::Settings,
        takes_ids: bool,
        ctx: &InputContext,
        partitions: &Arc<Partitions>,
    ) -> Self {
        Self {
            decoder: Decoder::new(settings, &ctx.host),
            add_fields: settings.add_fields,
            takes_ids,
            ctx: ctx.clone(),
            partitions: partitions.clone(),
        }
    }

    /// Makes batches of records and sends them, waiting while there is no memory or the queue is full.
    ///
    /// # Errors
    /// The pipeline takes no more.
    pub(super) fn send(&mut self, mut gathered: Gathered) -> Result<(), Stopped> {
        self.ctx.metrics.bytes(gathered.values.len());
        let values = self.ctx.pool.adopt(take(&mut gathered.values));
        let metadata = self.ctx.pool.adopt(take(&mut gathered.metadata));
        let gathered = &gathered;
        let begin = std::time::Instant::now();
        let mut growing = self.begin(0);
        for run in &gathered.runs {
            if run.partition.is_revoked() {
                continue;
            }
            // An id belongs to the row added last.
            let step = match self.takes_ids {
                true => 1,
                false => run.records.len(),
            };
            let mut next = run.records.start;
            while next < run.records.end {
                let part = next..(next + step).min(run.records.end);
                next = part.end;
                self.add(gathered, run, part, (&values, &metadata), &mut growing)?;
            }
        }
        self.ctx.metrics.busy(begin.elapsed());
        self.leave(growing, gathered, &metadata)
    }

    fn begin(&self, from: usize) -> GrowingBatch {
        let encoding: Encoding = self.decoder.encoding();
        let host = &self.ctx.host;
        GrowingBatch {
            builder: BatchBuilder::new(encoding, host, now(), self.add_fields),
            ends: Vec::new(),
            from,
        }
    }

    /// Adds records of a run, which follow each other.
    fn add(
        &mut self,
        gathered: &Gathered,
        run: &Run,
        records: Range<usize>,
        (values, metadata): (&Bytes, &Bytes),
        growing: &mut GrowingBatch,
    ) -> Result<(), Stopped> {
        let part = &gathered.records[records.clone()];
        let (Some(first), Some(last)) = (part.first(), part.last()) else {
            return Ok(());
        };
        let start = first.value.start;
        let bytes = values.slice(start..last.value.end);
        let place = |range: &Range<usize>| range.start - start..range.end - start;
        let places: Vec<_> = part.iter().map(|record| place(&record.value)).collect();
        let mut chunk = Chunk::of_messages(bytes, &places, first.offset.cast_unsigned());
        let stream = &run.partition.stream;
        loop {
            let rows = growing.builder.len();
            // A record that is no document becomes text, so that nothing is unreadable.
            let has_more = self.decoder.add(stream, &mut chunk, &mut growing.builder);
            if !first.id.is_empty() && growing.builder.len() > rows {
                self.set_id(&first.id, metadata, &mut growing.builder);
            }
            let has_more = has_more.unwrap_or(false);
            if !has_more {
                growing.ends.push(BatchEnd {
                    partition: run.partition.clone(),
                    first: first.offset,
                    end: last.offset + 1,
                });
            }
            let builder = &growing.builder;
            if has_more || builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX {
                let from = if has_more { records.start } else { records.end };
                let full = std::mem::replace(growing, self.begin(from));
                self.leave(full, gathered, metadata)?;
            }
            if !has_more {
                break;
            }
        }
        self.count(stream);
        Ok(())
    }

    fn set_id(&self, id: &Range<usize>, metadata: &Bytes, builder: &mut BatchBuilder) {
        let span = Span {
            buffer: builder.shared_buffer(metadata),
            start: id.start as u32,
            len: id.len() as u32,
        };
        if builder.id_last(span).is_err() {
            self.ctx.metrics.count("refused_ids", 1);
            let text = || {
                "the header `event_id` of a record is longer than 512 bytes or not UTF-8, and its event got another id".to_owned()
            };
            let limit = Limit::events("refused_ids");
            self.ctx.diagnostics.warn_limited(limit, text);
        }
    }

    /// Counts what the decoder changed.
    fn count(&mut self, stream: &batch::Stream) {
        let dropped = self.decoder.take_dropped();
        let dropped: u64 = dropped.iter().map(|dropped| dropped.events).sum();
        if dropped > 0 {
            self.ctx.metrics.count("blank_messages", dropped);
        }
        count(&mut self.decoder, stream, &self.ctx, CUT);
    }

    /// Sends a batch.
    fn leave(
        &mut self,
        growing: GrowingBatch,
        gathered: &Gathered,
        metadata: &Bytes,
    ) -> Result<(), Stopped> {
        let GrowingBatch {
            builder,
            ends,
            from,
        } = growing;
        if builder.is_empty() && ends.is_empty() {
            return Ok(());
        }
        let mut batch = builder.finish();
        if let Some(syslog) = self.decoder.completion() {
            let counts = syslog.apply(&mut batch);
            if counts.failures > 0 {
                self.ctx
                    .metrics
                    .count("broken_syslog_lines", counts.failures);
                self.ctx.metrics.failures(counts.failures as usize);
            }
        }
        if !batch.is_empty() {
            let column = metadata_column(&batch, gathered, metadata, from);
            batch.set_metadata("kafka", column);
        }
        let receipt = self.ctx.send_blocking(batch)?;
        self.partitions.sent(receipt, ends);
        Ok(())
    }
}

/// What is told about the record of each row. Rows come in the order of the records, of which some have no row.
fn metadata_column(batch: &Batch, gathered: &Gathered, metadata: &Bytes, from: usize) -> Column {
    let origin = batch.origin();
    let mut cells = Vec::with_capacity(batch.len());
    let runs = gathered.runs.iter();
    let runs = runs.filter(|run| run.records.end > from);
    let mut records = runs.flat_map(|run| {
        let records = run.records.clone();
        records.map(move |number| (run.partition.stream.id, &gathered.records[number]))
    });
    for (rows, stream) in origin.streams() {
        for row in rows {
            let offset = origin.start(row);
            let is_it = |(id, record): &(u128, &super::gather::ReadRecord)| {
                *id == stream.id && record.offset.cast_unsigned() == offset
            };
            let found = records.find(is_it);
            cells.push(match found {
                Some((_, record)) => Cell::Json(Span {
                    buffer: 0,
                    start: record.metadata.start as u32,
                    len: record.metadata.len() as u32,
                }),
                None => Cell::Missing,
            });
        }
    }
    Column::new(cells, Arc::from([metadata.clone()]))
}
