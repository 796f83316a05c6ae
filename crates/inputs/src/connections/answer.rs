//! What became of a message: told to its connection once, when it is known of every part.
//!
//! A message may be spread over several batches. Whoever has a part of it holds a [`MessagePart`]; a part that is dropped without
//! [`MessagePart::delivered`], because the pipeline ended or a thread did, makes the whole message one that was not delivered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use net::AtWork;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome<R> {
    /// Every event is safe.
    Delivered,
    /// Some event is not; it may be sent again.
    NotDelivered,
    /// It cannot be taken, and nothing of it was.
    Rejected(R),
    /// Decoding it panicked. Some of its events may have been taken.
    Failed,
}

/// The side of the connection: what became of its message. An error means [`Outcome::NotDelivered`].
pub(crate) type Awaited<R> = oneshot::Receiver<Outcome<R>>;

/// The side of the batcher. Dropped without [`Answer::complete`], the message was not delivered.
pub(crate) struct Answer<R>(Arc<Shared<R>>);

/// Tells a connection that its message could not be handled, whatever became of its [`Answer`].
pub(crate) struct Fault<R>(Arc<Shared<R>>);

/// A part of a message that is in a batch.
pub(crate) struct MessagePart<R> {
    shared: Arc<Shared<R>>,
    is_delivered: bool,
}

struct Shared<R> {
    sender: Mutex<Option<oneshot::Sender<Outcome<R>>>>,
    /// Every event is in some part.
    is_complete: AtomicBool,
    /// A part was not delivered.
    is_lost: AtomicBool,
    /// The client waits for it.
    at_work: OnceLock<AtWork>,
}

/// An answer and where it arrives.
pub(crate) fn answer<R>() -> (Answer<R>, Awaited<R>) {
    let (sender, receiver) = oneshot::channel();
    let shared = Shared {
        sender: Mutex::new(Some(sender)),
        is_complete: AtomicBool::new(false),
        is_lost: AtomicBool::new(false),
        at_work: OnceLock::new(),
    };
    (Answer(Arc::new(shared)), receiver)
}

impl<R> Answer<R> {
    /// Whether nobody waits any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        let sender = self.0.lock();
        sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Says that the client of this task's connection waits for the answer.
    pub(crate) fn is_awaited(&self) {
        if let Some(at_work) = net::at_work() {
            // It waits only once.
            let _ = self.0.at_work.set(at_work);
        }
    }

    /// What is left to tell the connection when the answer was lost in a panic. While it is there, nothing else is told but a
    /// rejection.
    pub(crate) fn fault(&self) -> Fault<R> {
        Fault(self.0.clone())
    }

    /// A part of the message, which is in a batch now.
    pub(crate) fn part(&self) -> MessagePart<R> {
        MessagePart {
            shared: self.0.clone(),
            is_delivered: false,
        }
    }

    /// Says that there are no further parts.
    pub(crate) fn complete(self) {
        self.0.is_complete.store(true, Ordering::Release);
    }

    /// Refuses the message, of which there is no part yet.
    pub(crate) fn reject(self, reason: R) {
        self.0.send(Outcome::Rejected(reason));
    }
}

impl<R> Fault<R> {
    /// Says that decoding the message panicked.
    pub(crate) fn panicked(self) {
        self.0.send(Outcome::Failed);
    }
}

impl<R> MessagePart<R> {
    /// Whether it is a part of the message with this answer.
    pub(crate) fn is_of(&self, answer: &Answer<R>) -> bool {
        Arc::ptr_eq(&self.shared, &answer.0)
    }

    /// Says that the part is safe.
    pub(crate) fn delivered(mut self) {
        self.is_delivered = true;
    }
}

impl<R> Drop for MessagePart<R> {
    fn drop(&mut self) {
        if !self.is_delivered {
            self.shared.is_lost.store(true, Ordering::Release);
        }
    }
}

impl<R> Shared<R> {
    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<oneshot::Sender<Outcome<R>>>> {
        self.sender.lock()
    }

    fn send(&self, outcome: Outcome<R>) {
        if let Some(sender) = self.lock().take() {
            // A connection that does not wait any more has gone.
            let _ = sender.send(outcome);
        }
    }
}

impl<R> Drop for Shared<R> {
    fn drop(&mut self) {
        let is_safe = *self.is_complete.get_mut() && !*self.is_lost.get_mut();
        self.send(if is_safe {
            Outcome::Delivered
        } else {
            Outcome::NotDelivered
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known.
    fn known(awaited: &mut Awaited<u8>) -> Option<Outcome<u8>> {
        awaited.try_recv().ok()
    }

    #[test]
    fn it_is_told_when_every_part_is_safe() {
        let (answer, mut awaited) = answer::<u8>();
        let (first, second) = (answer.part(), answer.part());
        first.delivered();
        answer.complete();
        assert_eq!(known(&mut awaited), None);
        second.delivered();
        assert_eq!(known(&mut awaited), Some(Outcome::Delivered));
    }

    #[test]
    fn what_is_dropped_was_not_delivered() {
        let (whole, mut awaited) = answer::<u8>();
        drop(whole);
        assert_eq!(known(&mut awaited), Some(Outcome::NotDelivered));
        let (one, mut awaited) = answer::<u8>();
        let (kept, dropped) = (one.part(), one.part());
        one.complete();
        drop(dropped);
        kept.delivered();
        assert_eq!(known(&mut awaited), Some(Outcome::NotDelivered));
        let (unfinished, mut awaited) = answer::<u8>();
        unfinished.part().delivered();
        drop(unfinished);
        assert_eq!(known(&mut awaited), Some(Outcome::NotDelivered));
    }

    #[test]
    fn a_message_whose_answer_was_lost_in_a_panic_failed() {
        let (lost, mut awaited) = answer::<u8>();
        let (fault, part) = (lost.fault(), lost.part());
        drop(lost);
        assert_eq!(known(&mut awaited), None);
        fault.panicked();
        part.delivered();
        assert_eq!(known(&mut awaited), Some(Outcome::Failed));
        let (good, mut awaited) = answer::<u8>();
        let fault = good.fault();
        good.complete();
        drop(fault);
        assert_eq!(known(&mut awaited), Some(Outcome::Delivered));
    }

    #[test]
    fn an_empty_message_is_delivered_and_a_refused_one_is_not() {
        let (empty, mut awaited) = answer::<u8>();
        empty.complete();
        assert_eq!(known(&mut awaited), Some(Outcome::Delivered));
        let (bad, mut awaited) = answer();
        bad.reject(7);
        assert_eq!(known(&mut awaited), Some(Outcome::Rejected(7)));
        let (late, awaited) = answer::<u8>();
        assert!(!late.is_abandoned());
        drop(awaited);
        assert!(late.is_abandoned());
    }
}
