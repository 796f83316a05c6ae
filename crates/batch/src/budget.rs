//! The process-wide memory budget, and the buffers that are charged to it.
//!
//! A buffer is charged once, when an input takes it, and gives its bytes back when the last view into it is gone. Only
//! inputs wait on the budget, so work in hand can always finish. Each pipeline has a guaranteed share; what lies beyond
//! the shares is for whoever comes first. A buffer larger than a whole share is let in alone, never for ever refused.
//!
//! Requests on their way to a destination are charged too, without waiting, up to a limit of their own ([`Account`]), and so is
//! what the processors of a single output write ([`Charge`]).
//!
//! # Waiting
//! Inputs that read files block a thread of their own ([`BufferPool::take`]). Inputs with thousands of connections await a
//! [`Reservation`] for each frame before they read it ([`BufferPool::reserve`]). All of them wait in one order:
//! - Who came first goes first. Whoever comes later gets only what its own share guarantees while an earlier one waits,
//!   however little it wants, so that nobody starves.
//! - A reservation may grow, for a frame whose length is not known before. Those that grow go before those that hold
//!   nothing yet.
//! - Half-read frames can fill the budget together, and then none of them could go on. So one of them may *overdraw*: it
//!   grows beyond the limit. The next one may when the first is complete or gone and its bytes were given back.
//! - A frame that was read whole, and needs more to be decompressed, is work in hand ([`Reservation::settle`]): everybody may
//!   wait for what it holds. It goes before all others, and one at a time may exceed the limit until it is given back.
//!
//! What is used therefore exceeds the limit by two frames at most, beside buffers that were let in alone.

mod account;
mod pool;
mod reservation;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

pub use self::account::{Account, Charge};
pub use self::pool::{BufferPool, PooledBuffer};
pub use self::reservation::Reservation;
use self::waiting::{Class, Waiter, Waiters};

/// The memory budget of the process.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    shares: Vec<Share>,
    /// How many wait in all shares.
    waiting: usize,
    /// The number of the next waiter or reservation.
    next: u64,
    /// What reservations hold: bytes that nobody gives back before their frames are read.
    reserved: usize,
    /// The half-read reservation that may exceed the limit.
    overdraws: Option<u64>,
    /// The work in hand that exceeds the limit.
    exceeds: Option<u64>,
}

/// Why somebody waits for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// How long the one has waited who came first.
    pub longest: Duration,
    /// Bytes in use.
    pub used: usize,
    /// Those of them that belong to frames that are not read whole yet.
    pub half_read: usize,
}

impl Shortage {
    /// Whether it is mostly frames that are not read whole for which others wait.
    pub fn is_of_half_read(&self) -> bool {
        self.half_read > self.used / 2
    }
}

#[derive(Debug, Default)]
struct Share {
    guaranteed: usize,
    used: usize,
    waiters: Waiters,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            state: Mutex::default(),
        })
    }

    /// A pool of buffers of `buffer_size` bytes with a guaranteed share of `guaranteed` bytes.
    pub fn pool(self: &Arc<Self>, guaranteed: usize, buffer_size: usize) -> BufferPool {
        let mut state = self.lock();
        state.shares.push(Share {
            guaranteed,
            ..Share::default()
        });
        BufferPool::new(self.clone(), state.shares.len() - 1, buffer_size)
    }

    /// An account for what work in hand takes.
    pub fn account(self: &Arc<Self>) -> Account {
        let mut state = self.lock();
        state.shares.push(Share::default());
        Account::new(self.clone(), state.shares.len() - 1)
    }

    /// Bytes charged at this moment.
    pub fn used(&self) -> usize {
        self.lock().used()
    }

    /// Who waits at this moment, and for what; none where nobody does.
    pub fn shortage(&self) -> Option<Shortage> {
        let state = self.lock();
        let shares = state.shares.iter();
        let oldest = shares.filter_map(|share| share.waiters.oldest()).min()?;
        Some(Shortage {
            longest: oldest.elapsed(),
            used: state.used(),
            half_read: state.reserved,
        })
    }

    /// Charges bytes to a share if they fit and nobody waits.
    fn try_charge(&self, state: &mut BudgetState, share: usize, bytes: usize) -> bool {
        let is_free = state.waiting == 0 && state.fits(self.limit, share, bytes, true);
        if is_free {
            state.shares[share].used += bytes;
        }
        is_free
    }

    /// Takes bytes off a share and lets in who waits for them.
    fn give_back(&self, share: usize, bytes: usize) {
        let mut state = self.lock();
        state.shares[share].used -= bytes;
        self.admit(state);
    }

    /// Lets in who may come in, and wakes them.
    fn admit(&self, mut state: MutexGuard<'_, BudgetState>) {
        let mut admitted = Vec::new();
        while let Some((share, class)) = state.next_in(self.limit) {
            let Some(waiter) = state.shares[share].waiters.pop(class) else {
                break;
            };
            let before = state.taken();
            state.waiting -= 1;
            state.shares[share].used += waiter.bytes;
            let exceeds = state.taken() > self.limit.max(before);
            if waiter.is_settled {
                if exceeds && state.exceeds.is_none() {
                    state.exceeds = waiter.reservation;
                }
            } else if waiter.reservation.is_some() {
                state.reserved += waiter.bytes;
                if exceeds && state.overdraws.is_none() {
                    state.overdraws = waiter.reservation;
                }
            }
            // Before the lock is given up: who gives up waiting must find out that it was let in.
            admitted.extend(waiter.admit());
        }
        drop(state);
        for waker in admitted {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock()
    }
}

impl BudgetState {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn used(&self) -> usize {
        self.shares.iter().map(|share| share.used).sum()
    }

    /// What is used, or kept for a share that does not use it.
    fn taken(&self) -> usize {
        let of = |share: &Share| share.used.max(share.guaranteed);
        self.shares.iter().map(of).sum()
    }

    /// Whether a share may have `bytes` more; without `beyond`, only what is guaranteed to it.
    fn fits(&self, limit: usize, share: usize, bytes: usize, beyond: bool) -> bool {
        let mine = &self.shares[share];
        let used = mine.used + bytes;
        let more = used.saturating_sub(mine.guaranteed.max(mine.used));
        mine.used == 0 || used <= mine.guaranteed || beyond && self.taken() + more <= limit
    }

    /// The share and the class whose first waiter may come in.
    fn next_in(&self, limit: usize) -> Option<(usize, Class)> {
        if self.waiting == 0 {
            return None;
        }
        let mut firsts = Vec::new();
        for (index, share) in self.shares.iter().enumerate() {
            let of = |class: Class| Some((class, share.waiters.first(class)?.number(), index));
            firsts.extend(Class::ALL.into_iter().filter_map(of));
        }
        firsts.sort_unstable();
        for (place, &(class, _, share)) in firsts.iter().enumerate() {
            let waiter = self.shares[share].waiters.first(class)?;
            // Behind one that must wait, others get only what is theirs; in its own share, nothing.
            let is_behind = firsts[..place].iter().any(|first| first.2 == share);
            let fits = || self.fits(limit, share, waiter.bytes, place == 0);
            if self.may_exceed(limit, waiter) || !is_behind && fits() {
                return Some((share, class));
            }
        }
        None
    }

    /// Whether a waiter may exceed the limit: one that is work in hand, and one whose frame is half read, at a time.
    fn may_exceed(&self, limit: usize, waiter: &Waiter) -> bool {
        if waiter.is_settled {
            return self.exceeds.is_none() || self.exceeds == waiter.reservation;
        }
        waiter.held > 0
            && match self.overdraws {
                Some(_) => self.overdraws == waiter.reservation,
                // What exceeds the limit already must be its own, or nobody is left who gives anything back.
                None => self.taken() <= limit + waiter.held || self.used() <= self.reserved,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_charged_until_its_last_view_is_gone() {
        let budget = Budget::new(1000);
        let pool = budget.pool(0, 100);
        let frozen = pool.take().freeze(50);
        let view = frozen.slice(10..20);
        drop(frozen);
        assert_eq!(budget.used(), 100);
        drop(view);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_was_written_elsewhere_is_charged_as_long() {
        let budget = Budget::new(1000);
        let pool = budget.pool(0, 100);
        assert!(pool.adopt(Vec::new()).is_empty());
        let mut bytes = Vec::with_capacity(900);
        bytes.extend_from_slice(b"abc");
        let adopted = pool.adopt(bytes);
        assert_eq!((&adopted[..], budget.used()), (&b"abc"[..], 3));
        drop(adopted);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn buffers_are_used_again_and_few_are_kept() {
        let budget = Budget::new(1 << 20);
        let pool = budget.pool(0, 100);
        let sizes = [0, 1, 100, 101, 1600, 1601].map(|bytes| pool.reused_size(bytes));
        assert_eq!(sizes, [100, 100, 100, 200, 1600, 1600]);
        let sizes = [0, 12, 13, 25, 26, 50, 51, 101, 1601].map(|bytes| pool.fitting(bytes));
        assert_eq!(sizes, [0, 12, 25, 25, 50, 50, 100, 200, 1600]);
        for size in [100, 200, 1600] {
            let mut buffer = pool.take_sized(size);
            buffer[0] = 7;
            drop(buffer);
            assert_eq!((pool.take_sized(size)[0], size), (7, size), "used again");
        }
        let mut reservation = pool.try_reserve(2 * 25 + 2 * 30).expect("it fits");
        for (size, is_kept) in [(25, true), (30, false)] {
            let mut buffer = reservation.take(size);
            buffer[0] = 7;
            drop(buffer);
            assert_eq!(reservation.take(size)[0] == 7, is_kept, "{size}");
        }
        drop(reservation);
        let mut odd = pool.take_sized(300);
        odd[0] = 7;
        drop(odd);
        assert_eq!(pool.take_sized(300)[0], 0, "no size that is kept");
        // More than are kept: those that were unused for longest are gone.
        let mut large: Vec<PooledBuffer> = (0..5).map(|_| pool.take_sized(1600)).collect();
        large.iter_mut().for_each(|buffer| buffer[0] = 9);
        drop(large);
        let small = pool.take_sized(100);
        let together: Vec<PooledBuffer> = (0..5).map(|_| pool.take_sized(1600)).collect();
        let content: Vec<u8> = together.iter().map(|buffer| buffer[0]).collect();
        assert_eq!((small[0], &content[..]), (0, &[9, 9, 9, 9, 0][..]));
        drop(small);
        drop(together);
        let frozen = [(100, 50), (100, 49), (90, 80)].map(|(size, len)| {
            let frozen = pool.take_small(size).freeze_fitting(len);
            (frozen.len(), budget.used())
        });
        assert_eq!(frozen, [(50, 100), (49, 49), (80, 80)]);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_share_is_there_whatever_the_others_took() {
        let budget = Budget::new(300);
        let (greedy, modest) = (budget.pool(100, 100), budget.pool(100, 100));
        let held = [greedy.take(), greedy.take()];
        assert!(
            !budget.lock().fits(budget.limit, 0, 100, true),
            "the rest is the other's share"
        );
        let other = modest.take();
        assert_eq!(budget.used(), 300);
        drop((held, other));
    }

    #[test]
    fn waiting_ends_when_bytes_come_back() {
        let budget = Budget::new(100);
        let pool = budget.pool(100, 100);
        let held = pool.take();
        let waiter = std::thread::spawn({
            let pool = pool.clone();
            move || pool.take().len()
        });
        drop(held);
        assert_eq!(waiter.join().expect("the waiter ends"), 100);
    }

    #[test]
    fn one_buffer_beyond_the_limit_is_let_in_alone() {
        let budget = Budget::new(100);
        let pool = budget.pool(100, 10);
        assert_eq!(pool.take_sized(5000).len(), 5000);
    }

    #[test]
    fn a_small_buffer_is_charged_with_what_it_holds() {
        let budget = Budget::new(1000);
        let pool = budget.pool(0, 100);
        let small = pool.take_small(10);
        assert_eq!((small.len(), budget.used()), (10, 10));
        assert_eq!(pool.take_small(200).len(), 200);
        drop(small);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_work_in_hand_takes_is_not_there_for_others() {
        let budget = Budget::new(1000);
        let (pool, account) = (budget.pool(500, 100), budget.account());
        account.grow(400);
        assert_eq!((budget.used(), account.used()), (400, 400));
        assert!(
            budget.lock().fits(1000, 0, 600, true),
            "nothing is used yet"
        );
        let held = pool.take_sized(500);
        assert!(!budget.lock().fits(1000, 0, 200, true), "1,100 bytes");
        account.shrink(100);
        assert!(budget.lock().fits(1000, 0, 200, true));
        drop(account);
        assert_eq!(budget.used(), 500);
        drop(held);
    }
}
