//! Moves positions when receipts resolve.
//!
//! One task polls the receipts of an input in the order in which chunks were sent, every 10 ms while there are any, so that
//! resolving a receipt wakes no thread. What was not delivered freezes its file: nothing behind it moves the position, so
//! that the next run begins there.

use std::sync::Arc;
use std::time::Duration;

use codec::Resume;
use component::{Delivery, Receipt};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::state::{File, FileState};

/// How often receipts are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Chunks on their way at most; the queue's own limits are reached earlier.
pub(crate) const SENT_MAX: usize = 4096;

/// A chunk that was sent.
pub(crate) struct Sent {
    pub(crate) file: Arc<File>,
    /// Of its batches; none where all of its events were filtered.
    pub(crate) receipts: Vec<Receipt>,
    /// Events that were sent.
    pub(crate) events: u64,
    /// Source bytes that it accounts for.
    pub(crate) bytes: u64,
    /// What was dropped before it was sent.
    pub(crate) filtered: Vec<codec::Dropped>,
    /// Where a later run goes on when all of it is safe.
    pub(crate) after: Resume,
    /// Whether all of it was sent. The pipeline may have stopped taking events half way.
    pub(crate) is_whole: bool,
}

/// Files whose state is to be written to the registry.
#[derive(Default)]
pub(crate) struct Dirty(Mutex<Vec<Arc<File>>>);

impl Dirty {
    /// Notes a file, whose state the caller holds.
    pub(crate) fn note(&self, file: &Arc<File>, state: &mut FileState) {
        if !std::mem::replace(&mut state.is_dirty, true) {
            self.lock().push(file.clone());
        }
    }

    /// The files noted since the last call. Whoever writes one clears its mark first.
    pub(crate) fn take(&self) -> Vec<Arc<File>> {
        std::mem::take(&mut *self.lock())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Puts back what could not be written.
    pub(crate) fn put_back(&self, files: Vec<Arc<File>>) {
        for file in files {
            let mut state = file.lock();
            self.note(&file, &mut state);
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<Arc<File>>> {
        self.0.lock()
    }
}

/// Acknowledges what was sent until the senders are gone and everything has resolved.
pub(crate) async fn acknowledge(mut sent: mpsc::Receiver<Sent>, dirty: Arc<Dirty>) {
    while let Some(first) = sent.recv().await {
        let mut next = Some(first);
        while let Some(one) = next {
            settle(one, &dirty).await;
            next = sent.try_recv().ok();
        }
    }
}

async fn settle(sent: Sent, dirty: &Dirty) {
    let mut deliveries = Vec::with_capacity(sent.receipts.len());
    let mut is_delivered = true;
    for mut receipt in sent.receipts {
        let outcome = loop {
            if let Some(outcome) = receipt.try_delivered() {
                break outcome;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        match outcome {
            Ok(delivery) if is_delivered => deliveries.push(delivery),
            Ok(_) => {}
            Err(_) => is_delivered = false,
        }
    }
    let mut state = sent.file.lock();
    if state.is_frozen {
        return;
    }
    let streams = deliveries.iter().flat_map(|delivery| &delivery.streams);
    let mut cut = streams.clone().filter_map(|stream| stream.cut).min();
    if !sent.is_whole {
        is_delivered = false;
        // The position moves behind what was delivered of it.
        cut = cut.or_else(|| streams.map(|stream| stream.end).max());
    }
    if let Some(cut) = cut {
        settle_cut(&mut state, &deliveries, cut);
    } else if is_delivered {
        count(
            &mut state,
            &deliveries,
            &sent.filtered,
            sent.events,
            sent.bytes,
        );
        state.position = sent.after;
        state.prune_checkpoints();
    }
    state.is_frozen = !is_delivered || cut.is_some();
    dirty.note(&sent.file, &mut state);
}

/// Moves the position to where nobody wanted more.
fn settle_cut(state: &mut FileState, deliveries: &[Delivery], cut: u64) {
    let bytes = cut.saturating_sub(state.position.offset);
    let streams = deliveries.iter().flat_map(|delivery| &delivery.streams);
    let dropped = streams.clone().flat_map(|stream| &stream.dropped);
    let events = streams.map(|stream| stream.kept).sum::<u64>()
        + dropped.map(|dropped| dropped.rows).sum::<u64>();
    count(state, deliveries, &[], events, bytes);
    state.position = Resume {
        offset: cut,
        big_endian: state.position.big_endian,
        ..Resume::default()
    };
    state.prune_checkpoints();
}

/// Counts what became of a chunk.
fn count(
    state: &mut FileState,
    deliveries: &[Delivery],
    filtered: &[codec::Dropped],
    events: u64,
    bytes: u64,
) {
    let counts = &mut state.counts;
    let (mut dropped_events, mut dropped_bytes) = (0, 0);
    for filtered in filtered {
        counts.drop_rows(filtered.reason, filtered.events, filtered.bytes);
        counts.in_flight_events -= filtered.events;
        dropped_bytes += filtered.bytes;
    }
    let streams = deliveries.iter().flat_map(|delivery| &delivery.streams);
    counts.dead_letters += streams.clone().map(|stream| stream.dead).sum::<u64>();
    for dropped in streams.flat_map(|stream| &stream.dropped) {
        counts.drop_rows(&dropped.reason, dropped.rows, dropped.bytes);
        dropped_events += dropped.rows;
        dropped_bytes += dropped.bytes;
    }
    counts.acknowledged_events += events - dropped_events;
    counts.acknowledged_bytes += bytes - dropped_bytes;
    counts.in_flight_events -= events;
    counts.in_flight_bytes -= bytes;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batch::Stream;
    use component::{DroppedRows, StreamDelivery, receipt};

    use super::*;

    fn sent(file: &Arc<File>, receipts: Vec<Receipt>, end: u64) -> Sent {
        let mut state = file.lock();
        state.counts.in_flight_bytes += 100;
        state.counts.in_flight_events += 10;
        Sent {
            file: file.clone(),
            receipts,
            events: 10,
            bytes: 100,
            filtered: vec![codec::Dropped {
                reason: "blank",
                events: 0,
                bytes: 5,
            }],
            after: Resume {
                offset: end,
                ..Resume::default()
            },
            is_whole: true,
        }
    }

    fn delivery() -> Delivery {
        let dropped = DroppedRows {
            reason: "where".into(),
            rows: 2,
            bytes: 20,
        };
        Delivery {
            streams: vec![StreamDelivery {
                dead: 0,
                stream: Arc::new(Stream::unnamed(1)),
                end: 100,
                kept: 8,
                dropped: vec![dropped],
                cut: None,
            }],
        }
    }

    #[tokio::test]
    async fn positions_move_in_order_and_stop_at_what_was_not_delivered() {
        let file = File::new(1, FileState::default());
        let dirty = Arc::new(Dirty::default());
        let (sender, receiver) = mpsc::channel(10);
        let task = tokio::spawn(acknowledge(receiver, dirty.clone()));
        let mut issuers = Vec::new();
        for end in [100, 200, 300] {
            let (issuer, receipt) = receipt();
            issuers.push(issuer);
            let sent = sent(&file, vec![receipt], end);
            assert!(sender.send(sent).await.is_ok());
        }
        drop(sender);
        let third = issuers.pop().expect("three were made");
        drop(issuers.pop());
        third.resolve(delivery());
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(file.lock().position.offset, 0, "the first is not resolved");
        issuers.remove(0).resolve(delivery());
        task.await.expect("no panic");
        let state = file.lock();
        assert_eq!(state.position.offset, 100, "the second was not delivered");
        let counts = &state.counts;
        assert_eq!(
            (counts.acknowledged_events, counts.acknowledged_bytes),
            (8, 75)
        );
        assert_eq!((counts.dropped_bytes(), counts.in_flight_bytes), (25, 200));
        drop(state);
        assert_eq!(dirty.take().len(), 1);
    }
    #[tokio::test]
    async fn what_was_sent_of_a_chunk_is_acknowledged() {
        for (cut, position) in [(None, 100), (Some(60), 60)] {
            let file = File::new(1, FileState::default());
            let dirty = Arc::new(Dirty::default());
            let (sender, receiver) = mpsc::channel(10);
            let task = tokio::spawn(acknowledge(receiver, dirty));
            let (issuer, of_part) = receipt();
            let part = Sent {
                is_whole: false,
                ..sent(&file, vec![of_part], 300)
            };
            assert!(sender.send(part).await.is_ok());
            let (late, of_next) = receipt();
            let next = sent(&file, vec![of_next], 500);
            assert!(sender.send(next).await.is_ok());
            drop(sender);
            late.resolve(delivery());
            let mut first = delivery();
            first.streams[0].cut = cut;
            issuer.resolve(first);
            task.await.expect("no panic");
            let state = file.lock();
            assert_eq!(state.position.offset, position);
            assert_eq!(state.counts.acknowledged_events, 8);
            assert!(state.is_frozen);
        }
    }
}
