//! Waiting for the budget, as a thread or as a task.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use super::State;
use super::pool::{BufferPool, PoolInner, PooledBuffer};

/// Who waits in one share: a list for each class, each in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    lists: [VecDeque<Waiter>; 5],
}

/// What a waiter holds already. Earlier classes go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// The work in hand that exceeds the limit: others wait for its end.
    Exceeding,
    /// A frame that was read whole: work in hand.
    Settled,
    /// The half-read frame that overdraws: the others wait for its end.
    Overdrawing,
    /// A half-read frame.
    Growing,
    /// Nothing.
    Entering,
}

impl Class {
    pub(super) const ALL: [Self; 5] = [
        Self::Exceeding,
        Self::Settled,
        Self::Overdrawing,
        Self::Growing,
        Self::Entering,
    ];
}

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    number: u64,
    pub(super) bytes: usize,
    /// The reservation that it is for.
    pub(super) reservation: Option<u64>,
    /// What that holds already.
    pub(super) held: usize,
    /// Whether its frame was read whole.
    pub(super) is_settled: bool,
    since: Instant,
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
    pub(super) fn first(&self, class: Class) -> Option<&Waiter> {
        self.lists[class as usize].front()
    }

    pub(super) fn pop(&mut self, class: Class) -> Option<Waiter> {
        self.lists[class as usize].pop_front()
    }

    /// When the one came who has waited longest.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let firsts = self.lists.iter().filter_map(VecDeque::front);
        firsts.map(|waiter| waiter.since).min()
    }

    fn push(&mut self, class: Class, waiter: Waiter) {
        self.lists[class as usize].push_back(waiter);
    }

    /// Takes a waiter out that gives up; whether it still waited.
    fn remove(&mut self, number: u64) -> bool {
        self.lists.iter_mut().any(|list| {
            let found = list.binary_search_by_key(&number, |waiter| waiter.number);
            found.is_ok_and(|at| list.remove(at).is_some())
        })
    }
}

impl Waiter {
    /// By which waiters are in the order in which they came.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

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
    is_settled: bool,
    waits: Option<(u64, Arc<Slot>)>,
}

impl<'p> Claim<'p> {
    pub(super) fn new(pool: &'p Arc<PoolInner>, bytes: usize) -> Self {
        Self {
            pool,
            bytes,
            reservation: None,
            held: 0,
            is_settled: false,
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
                if self.reservation.is_some() && !self.is_settled {
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
                is_settled: self.is_settled,
                since: Instant::now(),
                slot: slot.clone(),
            };
            let is_the_one = |one: Option<u64>| one.is_some() && one == self.reservation;
            let class = match (self.is_settled, self.held) {
                (true, _) if is_the_one(state.exceeds) => Class::Exceeding,
                (true, _) => Class::Settled,
                (false, _) if is_the_one(state.overdraws) => Class::Overdrawing,
                (false, 1..) => Class::Growing,
                (false, 0) => Class::Entering,
            };
            state.waiting += 1;
            let waiters = &mut state.shares[self.pool.share].waiters;
            waiters.push(class, waiter);
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
        if state.shares[share].waiters.remove(number) {
            state.waiting -= 1;
        } else {
            // It was let in and never knew.
            state.shares[share].used -= self.bytes;
            if self.reservation.is_some() && !self.is_settled {
                state.reserved -= self.bytes;
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
    /// Charged for what is no buffer.
    spent: usize,
    /// Charged in all.
    held: usize,
    is_settled: bool,
    /// Says that it exceeds the limit as work in hand, until its buffers are given back.
    excess: Option<Arc<Excess>>,
}

/// Work in hand that exceeds the limit: the next one waits until this is dropped.
#[derive(Debug)]
pub(super) struct Excess {
    pool: Arc<PoolInner>,
    number: u64,
}

impl Drop for Excess {
    fn drop(&mut self) {
        let mut state = self.pool.budget.lock();
        if state.exceeds == Some(self.number) {
            state.exceeds = None;
        }
        self.pool.budget.admit(state);
    }
}

impl Reservation {
    pub(super) fn empty(pool: &Arc<PoolInner>) -> Self {
        let number = pool.budget.lock().number();
        Self {
            pool: pool.clone(),
            number,
            left: 0,
            spent: 0,
            held: 0,
            is_settled: false,
            excess: None,
        }
    }

    pub(super) async fn new(pool: &Arc<PoolInner>, bytes: usize) -> Self {
        let mut reservation = Self::empty(pool);
        reservation.grow(bytes).await;
        reservation
    }

    /// Bytes that can be taken as buffers.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Says that the frame was read whole and is work in hand from now on, such as one that is only to be decompressed.
    /// Another half-read frame may overdraw then. What is in hand goes before everybody else, and one at a time may exceed
    /// the limit, until its buffers are given back: others may wait for what it holds.
    pub fn settle(&mut self) {
        if self.is_settled {
            return;
        }
        self.is_settled = true;
        let mut state = self.pool.budget.lock();
        self.end_reading(&mut state);
        self.pool.budget.admit(state);
    }

    fn end_reading(&self, state: &mut State) {
        state.reserved -= self.held;
        if state.overdraws == Some(self.number) {
            state.overdraws = None;
        }
    }

    /// Reserves more, waiting until it fits. Safe to cancel: then nothing is added.
    pub async fn grow(&mut self, more: usize) {
        self.claim(more).await;
        self.grown(more);
    }

    /// As [`Self::grow`], blocking the thread.
    pub fn grow_blocking(&mut self, more: usize) {
        block_on(self.claim(more));
        self.grown(more);
    }

    /// Reserves more if it fits now and nobody waits; whether it did.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let budget = &self.pool.budget;
        let mut state = budget.lock();
        let fits = budget.try_charge(&mut state, self.pool.share, more);
        if fits {
            if !self.is_settled {
                state.reserved += more;
            }
            self.left += more;
            self.held += more;
        }
        fits
    }

    fn grown(&mut self, more: usize) {
        self.left += more;
        self.held += more;
        let exceeds = || self.pool.budget.lock().exceeds == Some(self.number);
        if self.is_settled && self.excess.is_none() && exceeds() {
            self.excess = Some(Arc::new(Excess {
                pool: self.pool.clone(),
                number: self.number,
            }));
        }
    }

    fn claim(&self, bytes: usize) -> Claim<'_> {
        Claim {
            pool: &self.pool,
            bytes,
            reservation: Some(self.number),
            held: self.held,
            is_settled: self.is_settled,
            waits: None,
        }
    }

    /// Uses bytes out of those reserved, or what is left, for something that is no buffer of the pool and ends before the
    /// reservation.
    pub fn spend(&mut self, bytes: usize) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        self.spent += bytes;
    }

    /// The pool that it is of.
    pub fn pool(&self) -> BufferPool {
        BufferPool::of(&self.pool)
    }

    /// A buffer of `size` bytes out of those reserved, or of what is left. One of the pool's size may hold what is left over
    /// from earlier use.
    pub fn take(&mut self, size: usize) -> PooledBuffer {
        let size = size.min(self.left);
        self.left -= size;
        PooledBuffer::charged(&self.pool, size, self.excess.clone())
    }

    /// Bytes that were written elsewhere, as a buffer out of those reserved; more are reserved where they are too few.
    pub fn adopt(&mut self, mut bytes: Vec<u8>) -> PooledBuffer {
        bytes.shrink_to_fit();
        let missing = bytes.len().saturating_sub(self.left);
        if missing > 0 {
            self.grow_blocking(missing);
        }
        self.left -= bytes.len();
        PooledBuffer::adopted(&self.pool, bytes, self.excess.clone())
    }

    /// Makes a buffer longer by `more` bytes out of those reserved, or by what is left. Its content stays.
    pub fn extend(&mut self, buffer: &mut PooledBuffer, more: usize) {
        let more = more.min(self.left);
        self.left -= more;
        buffer.lengthen(more, self.excess.clone());
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.pool.budget.lock();
        state.shares[self.pool.share].used -= self.left + self.spent;
        if !self.is_settled {
            self.end_reading(&mut state);
        }
        if self.excess.is_none() && state.exceeds == Some(self.number) {
            // It was let in when nobody waited for that any more.
            state.exceeds = None;
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
