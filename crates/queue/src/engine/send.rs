//! How batches come in.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use batch::Batch;
use component::{Delivery, Receipt, Sink, Stopped, receipt};
use parking_lot::MutexGuard;

use super::commit::{Pending, Wanted};
use super::front::{Kept, Waiting};
use super::line::Line;
use super::state::QueueState;
use super::{Disk, Queue};
use crate::WhenFull;
use crate::log::{BLOCK_HEADER, Block, Payload};
use crate::settings::Mode;
use crate::streams::{StreamParts, stream_parts};

/// How often the first input of a line looks again although nobody said that there is room: room on a disk comes unannounced.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Why a queue did not take a batch.
#[derive(Debug)]
pub enum Refused {
    /// There is no room for now. Here is the batch again.
    Full(Box<Offer>),
    /// It takes no more.
    Stopped,
}

/// A batch that an input wants to send. What was worked out for it is kept while it waits.
#[derive(Debug)]
pub struct Offer {
    batch: Batch,
    /// Its form in the log, made when it is first needed.
    payload: Option<Payload>,
    /// What the receipt says, where it is of more than the batch.
    delivery: Option<Delivery>,
}

impl Offer {
    /// What is left of a batch; the receipt is of all of it.
    pub(super) fn part(batch: Batch, delivery: Delivery) -> Self {
        Self {
            delivery: Some(delivery),
            ..batch.into()
        }
    }
}

impl From<Batch> for Offer {
    fn from(batch: Batch) -> Self {
        Self {
            batch,
            payload: None,
            delivery: None,
        }
    }
}

/// What a look at the state decided about an offer.
enum Decision {
    Taken(Receipt),
    Full,
    /// The log needs the payload, which is made without the lock.
    Prepare,
    Stopped,
}

impl Queue {
    /// Takes a batch if there is room. `can_wait` says that its source keeps what is not taken.
    ///
    /// # Errors
    /// There is no room, or the queue takes no more.
    pub fn try_send(&self, offer: impl Into<Offer>, can_wait: bool) -> Result<Receipt, Refused> {
        let mut offer = Some(offer.into());
        if let (Some(disk), Some(offer)) = (&self.disk, &mut offer)
            && disk.mode == Mode::Everything
        {
            disk.prepare(offer);
        }
        loop {
            match self.decide(&mut offer, can_wait) {
                Decision::Taken(receipt) => return Ok(receipt),
                Decision::Stopped => return Err(Refused::Stopped),
                Decision::Prepare => {
                    if let (Some(disk), Some(offer)) = (&self.disk, &mut offer) {
                        disk.prepare(offer);
                    }
                }
                Decision::Full => {
                    return Err(
                        offer.map_or(Refused::Stopped, |offer| Refused::Full(Box::new(offer)))
                    );
                }
            }
        }
    }

    fn decide(&self, offered: &mut Option<Offer>, can_wait: bool) -> Decision {
        let mut state = self.lock();
        let Some(offer) = offered.as_ref() else {
            return Decision::Stopped;
        };
        if !state.phase.accepts() {
            return Decision::Stopped;
        }
        let (size, events) = (offer.batch.size(), offer.batch.len());
        let fits = self.fits_in_memory(&state, size, events);
        let Some(disk) = &self.disk else {
            return match fits {
                true => self.keep_in_memory(state, offered),
                false => Decision::Full,
            };
        };
        if disk.mode == Mode::Overflow && fits && !state.lanes.is_somebody_alone() {
            return self.keep_in_memory(state, offered);
        }
        let is_last_call = state.phase.is_last_call();
        let waits = can_wait && !is_last_call;
        if !fits && waits && self.waits_for_outputs(&state, disk, size) {
            return Decision::Full;
        }
        if !self.fits_unsynced(&state, size) {
            return Decision::Full;
        }
        let stored = offer
            .payload
            .as_ref()
            .map_or(size, |payload| payload.stored_len() + BLOCK_HEADER)
            as u64;
        let wanted = Wanted { stored, events };
        if !is_last_call && disk.is_full(&state, wanted).is_some() {
            let drops = disk.settings.when_full == WhenFull::DropNewest;
            match drops {
                true => state.commit.lack(wanted),
                // Saving cursors may free segments, and so may dropping the oldest.
                false => state.commit.want(wanted),
            }
            let asks = state.is_snapshot_due_at_rest();
            drop(state);
            if asks {
                self.bell.ring();
            }
            if drops {
                return self.drop_newest(offered);
            }
            self.wake_writer();
            return Decision::Full;
        }
        if state.front_size() == 0 {
            // Nobody had anything to make progress with.
            state.lanes.excuse((self.steady)());
        }
        match offer.payload {
            Some(_) => self.store(state, offered, fits),
            None => Decision::Prepare,
        }
    }

    fn keep_in_memory(
        &self,
        mut state: MutexGuard<'_, QueueState>,
        offered: &mut Option<Offer>,
    ) -> Decision {
        let Some(Offer { batch, .. }) = offered.take() else {
            return Decision::Stopped;
        };
        let (issuer, receipt) = receipt();
        self.metrics.events(batch.len(), 0);
        let sequence = state.front.number();
        state.arrivals.note(sequence, (self.clock)());
        state.front.wait(Waiting {
            sequence,
            size: batch.size(),
            events: batch.len(),
            batch,
            kept: Kept::InMemory(issuer),
        });
        drop(state);
        self.bell.ring_once();
        Decision::Taken(receipt)
    }

    /// Puts a batch on its way into the log, and where `keep` says so where workers find it as well.
    fn store(
        &self,
        mut state: MutexGuard<'_, QueueState>,
        offered: &mut Option<Offer>,
        keep: bool,
    ) -> Decision {
        let Some(Offer {
            batch,
            payload: Some(payload),
            delivery,
        }) = offered.take()
        else {
            return Decision::Stopped;
        };
        let (issuer, receipt) = receipt();
        // One without events, as at the end of a run, takes its place like any other.
        let (size, events) = (batch.size().max(1), batch.len());
        let block = Block {
            sequence: state.front.number(),
            ordinal: state.commit.next_ordinal(),
            events: events as u32,
            time: (self.clock)(),
            payload,
        };
        self.metrics.events(events, 0);
        let parts = match &state.streams {
            Some(_) => stream_parts(&batch),
            None => StreamParts::new(),
        };
        let delivery = delivery.unwrap_or_else(|| Delivery::accepted(&batch));
        state.arrivals.note(block.sequence, block.time);
        if keep {
            state.front.wait(Waiting {
                sequence: block.sequence,
                batch,
                size,
                events,
                kept: Kept::Stored(block.ordinal + events as u64),
            });
        } else {
            state.front.store_only();
        }
        let since = (self.steady)();
        let pending = Pending::new(block, size, since, parts, (issuer, delivery));
        let wakes = state.commit.push(pending);
        if let Some(disk) = &self.disk {
            disk.account(&state);
        }
        drop(state);
        if keep {
            self.bell.ring_once();
        }
        if wakes {
            self.wake_writer();
        }
        Decision::Taken(receipt)
    }

    fn drop_newest(&self, offered: &mut Option<Offer>) -> Decision {
        let Some(Offer { batch, .. }) = offered.take() else {
            return Decision::Stopped;
        };
        let (issuer, receipt) = receipt();
        self.metrics.events(batch.len(), 0);
        self.count_dropped("dropped_newest", batch.len() as u64);
        issuer.resolve(Delivery::dropped(&batch, &QUEUE_FULL.into()));
        Decision::Taken(receipt)
    }
}

/// Why a batch is dropped that comes to a full queue.
const QUEUE_FULL: &str = "queue full";

/// Whether the queue dropped a batch because it was full.
pub fn was_dropped(delivery: &Delivery) -> bool {
    let dropped = delivery.streams.iter().flat_map(|stream| &stream.dropped);
    let mut reasons = dropped.map(|dropped| &*dropped.reason);
    reasons.any(|reason| reason == QUEUE_FULL)
}

/// The end of a queue that an input sends to. A [`Sink::send`] that was begun is to be polled until it is done, or dropped: it
/// may be the first of the inputs that wait for room.
#[derive(Debug, Clone)]
pub struct Inlet {
    /// The queue.
    pub queue: Arc<Queue>,
    /// Whether the input's source keeps what was not read: it then waits for the outputs, while they make progress, rather than
    /// have everything written to disk first.
    pub can_wait: bool,
    /// Whether it sends the rows of a stream with ascending ends, and may send again what a queue on disk has stored already, which
    /// is then left out.
    pub repeats_in_order: bool,
}

impl Inlet {
    /// Whether the batch is let in; else it is given back, where it is worth waiting.
    fn look(&self, offer: Offer) -> Result<Receipt, Option<Box<Offer>>> {
        #[cfg(test)]
        self.line()
            .looks
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        match self.queue.try_send(offer, self.can_wait) {
            Ok(receipt) => Ok(receipt),
            Err(Refused::Full(offer)) if !self.queue.refuses() => Err(Some(offer)),
            Err(Refused::Full(_) | Refused::Stopped) => Err(None),
        }
    }

    fn line(&self) -> &Line {
        let waits_for_outputs = self.can_wait && self.queue.is_on_disk();
        &self.queue.lines[usize::from(waits_for_outputs)]
    }

    /// What is worked out for a batch is worked out before it stands in line, where others would wait for it.
    fn prepare(&self, offer: &mut Offer) {
        if let Some(disk) = &self.queue.disk
            && (disk.mode == Mode::Everything || !self.can_wait)
        {
            disk.prepare(offer);
        }
    }
}

#[async_trait]
impl Sink for Inlet {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        let mut offer = match self.repeats_in_order {
            false => Offer::from(batch),
            true => match self.queue.leave_out(batch) {
                Ok(receipt) => return Ok(receipt),
                Err(rest) => *rest,
            },
        };
        let line = self.line();
        if line.is_empty() {
            match self.look(offer) {
                Ok(receipt) => return Ok(receipt),
                Err(again) => offer = *again.ok_or(Stopped)?,
            }
        }
        self.prepare(&mut offer);
        let _first = line.wait().await;
        loop {
            let room = self.queue.room.notified();
            tokio::pin!(room);
            // Listening starts before looking, so that room made in between is not missed.
            room.as_mut().enable();
            match self.look(offer) {
                Ok(receipt) => return Ok(receipt),
                Err(again) => offer = *again.ok_or(Stopped)?,
            }
            match self.queue.is_on_disk() {
                false => room.await,
                true => drop(tokio::time::timeout(LOOK_AGAIN, room).await),
            }
        }
    }
}

impl Disk {
    fn prepare(&self, offer: &mut Offer) {
        if offer.payload.is_none() {
            let payload = Payload::of(offer.batch.freeze(), self.settings.compression);
            self.log.expect(payload.version());
            offer.payload = Some(payload);
        }
    }
}
