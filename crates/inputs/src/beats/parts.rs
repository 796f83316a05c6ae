//! The parts of a message, which are acknowledged for themselves.
//!
//! A message has any number of parts, because it is spread over several batches and buffers. The connection hears of at most
//! [`PARTS_MAX`] that it has not answered: the threads of the batcher must not wait for it, since it may be waiting for a batch of
//! theirs or for its client. While only [`PARTS_RESERVED`] places are left, a part that ends no window is held back and joined
//! with those behind it: an acknowledgement covers what is before it in its window.

use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::connections::answer::{Answer, Awaited, answer};
use crate::connections::closing::Fault;

/// How many windows may begin in a message. Each is answered for itself, which takes memory that is not charged.
pub(super) const WINDOWS_MAX: usize = 64;

/// How many parts of a message may wait to be answered.
pub(super) const PARTS_MAX: usize = 2 * PARTS_RESERVED;

/// As many of them as cannot be held back: one for each window that begins in the message, and for the one before them.
pub(super) const PARTS_RESERVED: usize = WINDOWS_MAX + 1;

/// A part of a message, and what to tell the client when it is safe.
pub(super) struct WindowPart {
    /// None where there are no events.
    pub(super) awaited: Option<Awaited<Fault>>,
    pub(super) version: u8,
    pub(super) sequence: u32,
    /// Its last event is the last one of the window.
    pub(super) ends_window: bool,
}

/// A part that the connection has not heard of. The events behind it may become a part of it.
struct HeldPart {
    answer: Answer<Fault>,
    part: WindowPart,
    window: usize,
}

/// Where a connection hears of the parts of a message, in order.
pub(super) struct Parts<'a> {
    sender: &'a Sender<WindowPart>,
    held: Option<HeldPart>,
}

impl<'a> Parts<'a> {
    /// The parts of a message of which the connection has heard nothing.
    pub(super) fn new(sender: &'a Sender<WindowPart>) -> Self {
        Self { sender, held: None }
    }

    /// The answer of the part that events of a window belong to.
    pub(super) fn answer(&mut self, window: usize) -> (Answer<Fault>, Awaited<Fault>) {
        if let Some(held) = self.held.take_if(|held| held.window == window)
            && let Some(awaited) = held.part.awaited
        {
            return (held.answer, awaited);
        }
        self.tell_held();
        answer()
    }

    /// Tells the connection of a part, or holds it back where that can be and few places are left.
    pub(super) fn tell_or_hold(&mut self, answer: Answer<Fault>, part: WindowPart, window: usize) {
        let can_wait = !part.ends_window && self.sender.capacity() <= PARTS_RESERVED;
        self.held = Some(HeldPart {
            answer,
            part,
            window,
        });
        if !can_wait {
            self.tell_held();
        }
    }

    /// Tells the connection of the part that is held back.
    pub(super) fn tell_held(&mut self) {
        if let Some(held) = self.held.take() {
            held.answer.complete();
            self.tell(held.part);
        }
    }

    /// Tells the connection of a part.
    pub(super) fn tell(&self, part: WindowPart) {
        // A connection that is gone needs to hear nothing.
        let told = self.sender.try_send(part);
        debug_assert!(
            !matches!(told, Err(TrySendError::Full(_))),
            "there is a place for each window"
        );
    }
}
