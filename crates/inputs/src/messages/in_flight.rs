//! What was sent, until it is known what became of it.
//!
//! Batches are delivered in about the order in which they were sent, and a receipt is looked at when all before it have resolved.

use std::collections::VecDeque;

use component::{Delivery, Receipt, Stopped};

/// A message that was sent in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentMessage<T> {
    /// The id of its stream.
    pub(crate) stream: u128,
    /// Its number in the stream.
    pub(crate) number: u64,
    /// What the server is told when it is safe.
    pub(crate) token: T,
}

/// Batches in the order in which they were sent.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    waiting: VecDeque<(Receipt, Vec<SentMessage<T>>)>,
    has_ended: bool,
}

impl<T> InFlight<T> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            has_ended: false,
        }
    }

    /// A batch was sent.
    pub(crate) fn push(&mut self, receipt: Receipt, messages: Vec<SentMessage<T>>) {
        self.waiting.push_back((receipt, messages));
    }

    /// Whether something was sent that is not known to be safe.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether nobody wants what follows, or nothing is known of what was sent.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Nobody takes what follows.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Forgets what was sent: the server knows nothing of it any more.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Messages that are not known to be safe.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &T> {
        let messages = self.waiting.iter().flat_map(|(_, messages)| messages);
        messages.map(|message| &message.token)
    }

    /// Messages that have become safe since the last call.
    pub(crate) fn take_safe(&mut self, safe: &mut Vec<T>) {
        while let Some((receipt, _)) = self.waiting.front_mut()
            && let Some(delivered) = receipt.try_delivered()
            && let Some((_, messages)) = self.waiting.pop_front()
        {
            if settle(messages, delivered, safe) {
                self.has_ended = true;
                self.waiting.clear();
            }
        }
    }
}

/// Notes what became of a batch; whether nobody wants what follows.
fn settle<T>(
    messages: Vec<SentMessage<T>>,
    delivered: Result<Delivery, Stopped>,
    safe: &mut Vec<T>,
) -> bool {
    let Ok(delivery) = delivered else {
        return true;
    };
    let cuts = delivery.streams.iter();
    let cuts = cuts.filter_map(|known| Some((known.stream.id, known.cut?)));
    let cuts: Vec<(u128, u64)> = cuts.collect();
    let is_wanted = |message: &SentMessage<T>| {
        let is_cut =
            |(stream, cut): &(u128, u64)| *stream == message.stream && message.number >= *cut;
        !cuts.iter().any(is_cut)
    };
    let wanted = messages.into_iter().take_while(is_wanted);
    safe.extend(wanted.map(|message| message.token));
    !cuts.is_empty()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batch::{Source, Stream};
    use component::StreamDelivery;
    use component::input::receipt;

    use super::*;

    fn messages(numbers: std::ops::Range<u64>) -> Vec<SentMessage<u64>> {
        let message = |number| SentMessage {
            stream: 7,
            number,
            token: number,
        };
        numbers.map(message).collect()
    }

    #[test]
    fn messages_are_safe_when_all_before_them_are() {
        let mut sent = InFlight::new();
        let (first, receipt_one) = receipt();
        let (second, receipt_two) = receipt();
        sent.push(receipt_one, messages(0..2));
        sent.push(receipt_two, messages(2..3));
        second.resolve(Delivery::default());
        let mut safe = Vec::new();
        sent.take_safe(&mut safe);
        assert_eq!(safe, [0; 0]);
        assert_eq!(sent.tokens().count(), 3);
        first.resolve(Delivery::default());
        sent.take_safe(&mut safe);
        assert_eq!(safe, [0, 1, 2]);
        assert!(!sent.is_waiting() && !sent.has_ended());
    }

    #[test]
    fn what_nobody_wanted_is_not_safe() {
        let mut sent = InFlight::new();
        let (first, receipt_one) = receipt();
        let (_second, receipt_two) = receipt();
        sent.push(receipt_one, messages(0..5));
        sent.push(receipt_two, messages(5..6));
        first.resolve(Delivery {
            streams: vec![StreamDelivery {
                stream: Arc::new(Stream::new(7, Source::Unnamed)),
                end: 3,
                kept: 3,
                dead: 0,
                dropped: Vec::new(),
                cut: Some(3),
            }],
        });
        let mut safe = Vec::new();
        sent.take_safe(&mut safe);
        assert_eq!(safe, [0, 1, 2]);
        assert!(sent.has_ended() && !sent.is_waiting());
    }

    #[test]
    fn a_receipt_that_is_given_up_says_nothing() {
        let mut sent = InFlight::new();
        let (issuer, receipt) = receipt();
        sent.push(receipt, messages(0..5));
        drop(issuer);
        let mut safe = Vec::new();
        sent.take_safe(&mut safe);
        assert_eq!(safe, [0; 0]);
        assert!(sent.has_ended());
    }
}
