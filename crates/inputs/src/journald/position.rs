//! Up to which entry everything is safe, and that it is remembered.

use std::collections::VecDeque;
use std::sync::Arc;

use batch::fnv::fnv128;
use bytes::Bytes;
use component::{Delivery, InputContext, Limit, Receipt, Stopped};
use registry::{Change, Key, Registry, RegistryError};
use tokio::runtime::Handle;

/// The kind of keys under which cursors of journals are; those of files have 1 to 4.
const CURSOR: u8 = 5;

/// Entries that were sent and are not known to be safe.
pub(super) struct Sent {
    /// Where the first one of them starts in its stream, which counts entries.
    pub(super) first: u64,
    /// Their cursors, as places of the buffer.
    pub(super) cursors: Vec<(u32, u32)>,
    pub(super) buffer: Bytes,
}

impl Sent {
    /// The cursor of the last entry of those that are safe.
    fn last(&self, delivery: &Delivery) -> Option<&str> {
        let cut = delivery
            .streams
            .iter()
            .filter_map(|stream| stream.cut)
            .min();
        let count = match cut {
            Some(cut) => usize::try_from(cut.saturating_sub(self.first)).unwrap_or(usize::MAX),
            None => self.cursors.len(),
        };
        let last = count.min(self.cursors.len()).checked_sub(1)?;
        let (start, end) = self.cursors[last];
        std::str::from_utf8(&self.buffer[start as usize..end as usize]).ok()
    }
}

/// How far a journal was read, and what of that is safe.
pub(super) struct Position {
    registry: Option<Arc<Registry>>,
    key: Key,
    waiting: VecDeque<(Receipt, Sent)>,
    /// Nobody wants what follows, or nothing is known of what was sent.
    has_ended: bool,
}

impl Position {
    /// The position of an input, and the cursor of the last entry that was safe in earlier runs.
    pub(super) fn open(ctx: &InputContext) -> Result<(Self, Option<String>), RegistryError> {
        let position = Self {
            registry: ctx.registry.clone(),
            key: Key {
                kind: CURSOR,
                id: fnv128(ctx.scope.as_bytes()),
            },
            waiting: VecDeque::new(),
            has_ended: false,
        };
        let saved = match &position.registry {
            Some(registry) => registry.get(position.key)?,
            None => None,
        };
        let saved = saved.and_then(|saved| String::from_utf8(saved).ok());
        Ok((position, saved))
    }

    /// Notes what was sent.
    pub(super) fn sent(&mut self, receipt: Receipt, sent: Sent) {
        self.waiting.push_back((receipt, sent));
    }

    /// Whether there is nothing to be read any more.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Saves how far everything is safe now.
    pub(super) fn look(&mut self, ctx: &InputContext) {
        let mut last = None;
        while let Some((receipt, _)) = self.waiting.front_mut()
            && let Some(delivered) = receipt.try_delivered()
            && let Some((_, sent)) = self.waiting.pop_front()
        {
            self.settle(&sent, delivered, &mut last);
        }
        self.save(last, false, ctx);
    }

    /// Waits until everything is safe, and saves that durably.
    pub(super) fn finish(&mut self, ctx: &InputContext) {
        let mut last = None;
        while let Some((receipt, sent)) = self.waiting.pop_front() {
            let delivered = Handle::current().block_on(receipt.delivered());
            self.settle(&sent, delivered, &mut last);
        }
        self.save(last, true, ctx);
    }

    fn settle(
        &mut self,
        sent: &Sent,
        delivered: Result<Delivery, Stopped>,
        last: &mut Option<String>,
    ) {
        let Ok(delivery) = delivered else {
            self.has_ended = true;
            return self.waiting.clear();
        };
        if let Some(cursor) = sent.last(&delivery) {
            *last = Some(cursor.to_owned());
        }
        if delivery.streams.iter().any(|stream| stream.cut.is_some()) {
            self.has_ended = true;
            self.waiting.clear();
        }
    }

    fn save(&self, cursor: Option<String>, durable: bool, ctx: &InputContext) {
        let Some(registry) = &self.registry else {
            return;
        };
        let changes: Vec<Change> = cursor
            .into_iter()
            .map(|cursor| Change::Put(self.key, cursor.into_bytes()))
            .collect();
        if changes.is_empty() && !durable {
            return;
        }
        if let Err(error) = registry.commit(&changes, durable) {
            let text = || {
                format!(
                    "the position cannot be saved; if Millpond ends before it can be, entries are sent again: {error}"
                )
            };
            let limit = Limit::events("unsaved_positions");
            ctx.diagnostics.warn_limited(limit, text);
        }
    }
}
