//! Ends a wait from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Ends a wait from another thread: the one that runs, or the next one.
#[derive(Clone)]
pub(crate) struct Waker(Arc<Inner>);

struct Inner {
    is_awake: AtomicBool,
    /// Lacks when there is no file left to open; the wait then looks at the flag from time to time.
    bell: Option<OwnedFd>,
}

impl Waker {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            is_awake: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok(),
        }))
    }

    /// Ends the wait that runs, or the next one.
    pub(crate) fn wake(&self) {
        if !self.0.is_awake.swap(true, Ordering::AcqRel)
            && let Some(bell) = &self.0.bell
        {
            // Fails only if the counter is full; then it is readable already.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Readable once it was woken.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.0.bell.as_ref().map(AsFd::as_fd)
    }

    /// Whether it was woken since the last call.
    pub(super) fn take(&self) -> bool {
        if !self.0.is_awake.load(Ordering::Acquire) {
            return false;
        }
        if let Some(bell) = &self.0.bell {
            // The flag falls after the bell is silent: a wake between the two finds the flag up and need not ring,
            // because this wait ends anyway.
            let _ = rustix::io::read(bell, &mut [0_u8; 8]);
        }
        self.0.is_awake.swap(false, Ordering::AcqRel)
    }
}
