//! What processors made of a batch, as its receipt says it.

use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, Bitmap};
use component::{Delivery, DroppedRows, StreamDelivery};

use crate::settings::DEAD_LETTER;

/// What the ledger says of events that no output takes.
const NO_OUTPUT: &str = "no output";

/// What processors made of a batch's rows, for each of its streams. What was dropped by one of the `finished` processors,
/// and everything behind it, is as if it had not come.
pub fn delivery(batch: &Batch, finished: &[&str], unclaimed: Option<&Bitmap>) -> Delivery {
    let origin = batch.origin();
    let no_output: Arc<str> = NO_OUTPUT.into();
    let cut = batch
        .drops()
        .iter()
        .filter(|drops| finished.contains(&&*drops.reason))
        .filter_map(|drops| drops.rows.iter().next())
        .min();
    let streams = origin
        .streams()
        .filter(|(rows, _)| !rows.is_empty())
        .map(|(rows, stream)| {
            let end = rows.end.min(cut.unwrap_or(rows.end)).max(rows.start);
            let taken = rows.start..end;
            let drops = batch.drops().iter();
            let drops = drops.map(|drops| (&drops.reason, &drops.rows));
            let dropped: Vec<DroppedRows> = drops
                .chain(unclaimed.map(|rows| (&no_output, rows)))
                .map(|(reason, rows)| dropped_rows(batch, reason, rows, taken.clone()))
                .filter(|dropped| dropped.rows > 0)
                .collect();
            let is_kept = |row: &usize| {
                let is_claimed = unclaimed.is_none_or(|rows| !rows.contains(*row));
                batch.alive().contains(*row) && is_claimed
            };
            let kept = match batch.drops().is_empty() && unclaimed.is_none() {
                true => taken.len(),
                false => taken.filter(is_kept).count(),
            };
            StreamDelivery {
                dead: dead_rows(batch, rows.clone()),
                stream: stream.clone(),
                end: origin.end(rows.end - 1),
                kept: kept as u64,
                dropped,
                cut: (end < rows.end).then(|| origin.start(end)),
            }
        });
    Delivery {
        streams: streams.collect(),
    }
}

/// How many rows of a stream became dead letters in processors.
fn dead_rows(batch: &Batch, mut rows: Range<usize>) -> u64 {
    let mut drops = batch.drops().iter();
    let buried = drops.find(|drops| &*drops.reason == DEAD_LETTER);
    buried.map_or(0, |buried| {
        rows.by_ref()
            .filter(|&row| buried.rows.contains(row))
            .count() as u64
    })
}

/// The rows of a stream that were dropped for one reason.
fn dropped_rows(
    batch: &Batch,
    reason: &Arc<str>,
    dropped: &Bitmap,
    rows: Range<usize>,
) -> DroppedRows {
    let origin = batch.origin();
    let dropped = rows.filter(|&row| dropped.contains(row));
    let (rows, bytes) = dropped.fold((0, 0), |(rows, bytes), row| {
        (rows + 1, bytes + (origin.end(row) - origin.start(row)))
    });
    DroppedRows {
        reason: reason.clone(),
        rows,
        bytes,
    }
}
