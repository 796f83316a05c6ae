//! Waiting for the budget, as a thread or as a task.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use parking_lot::Mutex;

use super::Budget;

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
        let mut admission = self.slot.0.lock();
        match std::mem::replace(&mut *admission, Admission::In) {
            Admission::Waits(waker) => Some(waker),
            Admission::In => None,
        }
    }
}

/// Completes when its bytes are charged. Dropped before, it gives up.
pub(super) struct Claim<'b> {
    budget: &'b Budget,
    share: usize,
    bytes: usize,
    reservation: Option<u64>,
    held: usize,
    is_settled: bool,
    waits: Option<(u64, Arc<Slot>)>,
}

impl<'b> Claim<'b> {
    pub(super) fn new(budget: &'b Budget, share: usize, bytes: usize) -> Self {
        Self {
            budget,
            share,
            bytes,
            reservation: None,
            held: 0,
            is_settled: false,
            waits: None,
        }
    }

    /// For a reservation that may hold something already.
    pub(super) fn reserving(mut self, reservation: u64, held: usize, is_settled: bool) -> Self {
        self.reservation = Some(reservation);
        self.held = held;
        self.is_settled = is_settled;
        self
    }
}

impl Future for Claim<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.waits.is_none() {
            let budget = self.budget;
            let mut state = budget.lock();
            if budget.try_charge(&mut state, self.share, self.bytes) {
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
            let waiters = &mut state.shares[self.share].waiters;
            waiters.push(class, waiter);
            // It may go before others that wait.
            budget.admit(state);
            self.waits = Some((number, slot));
        }
        let Some((_, slot)) = &self.waits else {
            return Poll::Pending;
        };
        let mut admission = slot.0.lock();
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
        let (budget, share) = (self.budget, self.share);
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

/// Work in hand that exceeds the limit: the next one waits until this is dropped.
#[derive(Debug)]
pub(super) struct Excess {
    budget: Arc<Budget>,
    number: u64,
}

impl Excess {
    pub(super) fn new(budget: &Arc<Budget>, number: u64) -> Self {
        Self {
            budget: budget.clone(),
            number,
        }
    }
}

impl Drop for Excess {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        if state.exceeds == Some(self.number) {
            state.exceeds = None;
        }
        self.budget.admit(state);
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
