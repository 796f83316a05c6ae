//! Waiting for the budget, as a thread or as a task.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::pool::{PoolInner, PooledBuffer};

/// Who waits in one share. Each list is in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// The one that overdraws: the others wait for the end of its frame.
    overdrawing: Option<Waiter>,
    /// Those that hold a part of their frame.
    growing: VecDeque<Waiter>,
    /// Those that hold nothing.
    entering: VecDeque<Waiter>,
}

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) bytes: usize,
    /// The reservation that it is for.
    pub(super) reservation: Option<u64>,
    /// What that holds already.
    pub(super) held: usize,
    slot: Arc<Slot>,
}

/// Where a waiter learns that it was let in.
#[derive(Debug)]
struct Slot(Mutex<Admission>);

#[derive(Debug)]
enum Admission {
    Waits(Waker),
    In,
}

impl Waiters {
    pub(super) fn first(&self) -> Option<&Waiter> {
        let growing = self.overdrawing.as_ref().or(self.growing.front());
        growing.or(self.entering.front())
    }

    pub(super) fn pop(&mut self) -> Option<Waiter> {
        let growing = self.overdrawing.take();
        growing
            .or_else(|| self.growing.pop_front())
            .or_else(|| self.entering.pop_front())
    }

    fn push(&mut self, waiter: Waiter, overdraws: bool) {
        if overdraws {
            self.overdrawing = Some(waiter);
            return;
        }
        self.list(waiter.held > 0).push_back(waiter);
    }

    /// Takes a waiter out that gives up; whether it still waited.
    fn remove(&mut self, number: u64, grows: bool) -> bool {
        let overdrawing = &mut self.overdrawing;
        if overdrawing
            .take_if(|waiter| waiter.number == number)
            .is_some()
        {
            return true;
        }
        let list = self.list(grows);
        let found = list.binary_search_by_key(&number, |waiter| waiter.number);
        found.is_ok_and(|at| list.remove(at).is_some())
    }

    fn list(&mut self, grows: bool) -> &mut VecDeque<Waiter> {
        if grows {
            &mut self.growing
        } else {
            &mut self.entering
        }
    }
}

impl Waiter {
    /// Says that it was let in; gives who is to be woken.
    pub(super) fn admit(self) -> Option<Waker> {
        let mut admission = self.slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *admission, Admission::In) {
            Admission::Waits(waker) => Some(waker),
            Admission::In => None,
        }
    }
}

/// Completes when its bytes are charged. Dropped before, it gives up.
pub(super) struct Claim<'p> {
    pool: &'p Arc<PoolInner>,
    bytes: usize,
    reservation: Option<u64>,
    held: usize,
    waits: Option<(u64, Arc<Slot>)>,
}

impl<'p> Claim<'p> {
    pub(super) fn new(pool: &'p Arc<PoolInner>, bytes: usize) -> Self {
        Self {
            pool,
            bytes,
            reservation: None,
            held: 0,
            waits: None,
        }
    }
}

impl Future for Claim<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.waits.is_none() {
            let budget = &self.pool.budget;
            let mut state = budget.lock();
            if budget.try_charge(&mut state, self.pool.share, self.bytes) {
                if self.reservation.is_some() {
                    state.reserved += self.bytes;
                }
                return Poll::Ready(());
            }
            let number = state.number();
            let slot = Arc::new(Slot(Mutex::new(Admission::Waits(cx.waker().clone()))));
            let waiter = Waiter {
                number,
                bytes: self.bytes,
                reservation: self.reservation,
                held: self.held,
                slot: slot.clone(),
            };
            let overdraws = self.reservation.is_some() && self.reservation == state.overdraws;
            state.waiting += 1;
            let waiters = &mut state.shares[self.pool.share].waiters;
            waiters.push(waiter, overdraws);
            // It may go before others that wait.
            budget.admit(state);
            self.waits = Some((number, slot));
        }
        let Some((_, slot)) = &self.waits else {
            return Poll::Pending;
        };
        let mut admission = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Admission::Waits(waker) = &mut *admission {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        drop(admission);
        self.waits = None;
        Poll::Ready(())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some((number, _)) = self.waits.take() else {
            return;
        };
        let (budget, share) = (&self.pool.budget, self.pool.share);
        let mut state = budget.lock();
        if state.shares[share].waiters.remove(number, self.held > 0) {
            state.waiting -= 1;
        } else {
            // It was let in and never knew.
            state.shares[share].used -= self.bytes;
            if self.reservation.is_some() {
                state.reserved -= self.bytes;
            }
            if state.overdraws.is_some() && state.overdraws == self.reservation {
                state.overdraws = None;
            }
        }
        // Others may have waited behind it.
        budget.admit(state);
    }
}

/// Bytes of the budget that are charged before they are needed: those of a frame that is about to be read. What is not
/// taken as buffers is given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<PoolInner>,
    number: u64,
    /// Charged, and not yet in a buffer.
    left: usize,
    /// Charged in all.
    held: usize,
}

impl Reservation {
    pub(super) async fn new(pool: &Arc<PoolInner>, bytes: usize) -> Self {
        let number = pool.budget.lock().number();
        let mut reservation = Self {
            pool: pool.clone(),
            number,
            left: 0,
            held: 0,
        };
        reservation.grow(bytes).await;
        reservation
    }

    /// Bytes that can be taken as buffers.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Reserves more, waiting until it fits. Safe to cancel: then nothing is added.
    pub async fn grow(&mut self, more: usize) {
        self.claim(more).await;
        self.left += more;
        self.held += more;
    }

    /// As [`Self::grow`], blocking the thread.
    pub fn grow_blocking(&mut self, more: usize) {
        block_on(self.claim(more));
        self.left += more;
        self.held += more;
    }

    fn claim(&self, bytes: usize) -> Claim<'_> {
        Claim {
            pool: &self.pool,
            bytes,
            reservation: Some(self.number),
            held: self.held,
            waits: None,
        }
    }

    /// A buffer of `size` bytes out of those reserved, or of what is left.
    pub fn take(&mut self, size: usize) -> PooledBuffer {
        let size = size.min(self.left);
        self.left -= size;
        PooledBuffer::charged(&self.pool, size)
    }

    /// Makes a buffer longer by `more` bytes out of those reserved, or by what is left. Its content stays.
    pub fn extend(&mut self, buffer: &mut PooledBuffer, more: usize) {
        let more = more.min(self.left);
        self.left -= more;
        buffer.lengthen(more);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.pool.budget.lock();
        state.shares[self.pool.share].used -= self.left;
        state.reserved -= self.held;
        if state.overdraws == Some(self.number) {
            state.overdraws = None;
        }
        self.pool.budget.admit(state);
    }
}

/// Blocks the thread until a claim is met.
pub(super) fn block_on(claim: Claim<'_>) {
    struct Parked(Thread);
    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut claim = pin!(claim);
    while claim.as_mut().poll(&mut cx).is_pending() {
        thread::park();
    }
}
