//! Reservations of the memory budget: fair, cancelled without loss, never stuck.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use batch::{Budget, Reservation};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// What a future that is ready at once gives.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn buffers_come_out_of_a_reservation() {
    let budget = Budget::new(1000);
    let pool = budget.pool(0, 100);
    let mut reservation = now(pool.reserve(300)).expect("it fits");
    assert_eq!((budget.used(), reservation.left()), (300, 300));
    let mut buffer = reservation.take(120);
    buffer[119] = 7;
    reservation.extend(&mut buffer, 80);
    assert_eq!(
        (buffer.len(), buffer[119], reservation.left()),
        (200, 7, 100)
    );
    drop(reservation);
    assert_eq!(budget.used(), 200);
    buffer.shorten(50);
    assert_eq!((buffer.len(), budget.used()), (50, 50));
    drop(buffer.freeze(10));
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn who_waits_first_goes_first() {
    let budget = Budget::new(100);
    let pool = budget.pool(0, 10);
    let held = pool.reserve(90).await;
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    // The first one wants everything; those behind it would fit now and wait all the same, until it is done.
    for (name, bytes) in [(0, 100), (1, 5), (2, 5)] {
        let (pool, order) = (pool.clone(), order.clone());
        waiters.spawn(async move {
            let reservation = pool.reserve(bytes).await;
            order.lock().push(name);
            sleep(Duration::from_millis(5)).await;
            drop(reservation);
        });
        sleep(Duration::from_millis(20)).await;
    }
    let thread = std::thread::spawn({
        let (pool, order) = (pool.clone(), order.clone());
        move || {
            let buffer = pool.take();
            order.lock().push(3);
            buffer.len()
        }
    });
    sleep(Duration::from_millis(50)).await;
    assert!(order.lock().is_empty());
    drop(held);
    while waiters.join_next().await.is_some() {}
    assert_eq!(thread.join().expect("no panic"), 10);
    assert_eq!(order.lock()[0], 0);
    assert_eq!(order.lock().len(), 4);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_share_does_not_wait_behind_another_one() {
    let budget = Budget::new(100);
    let (greedy, modest) = (budget.pool(0, 10), budget.pool(40, 10));
    let held = greedy.reserve(60).await;
    let mut waits = pin!(greedy.reserve(20));
    assert!(now(waits.as_mut()).is_none());
    let mine = now(modest.reserve(40)).expect("what is guaranteed is there");
    // Beyond its share it waits behind the other.
    let mut more = pin!(modest.reserve(1));
    assert!(now(more.as_mut()).is_none());
    drop(mine);
    assert!(now(more.as_mut()).is_some());
    drop(held);
    assert!(now(waits.as_mut()).is_some());
}

#[tokio::test]
async fn giving_up_lets_those_behind_go() {
    let budget = Budget::new(100);
    let pool = budget.pool(0, 10);
    let held = pool.reserve(90).await;
    let mut much = Box::pin(pool.reserve(60));
    let mut little = pin!(pool.reserve(10));
    assert!(now(much.as_mut()).is_none());
    assert!(now(little.as_mut()).is_none());
    drop(much);
    let little = now(little).expect("it fits");
    // Given up after it was let in.
    let mut again = Box::pin(pool.reserve(50));
    assert!(now(again.as_mut()).is_none());
    drop(held);
    assert_eq!(budget.used(), 60);
    drop(again);
    drop(little);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn half_read_frames_cannot_fill_the_budget_for_ever() {
    let budget = Budget::new(100);
    let pool = budget.pool(50, 10);
    let mut first = pool.reserve(50).await;
    let mut second = pool.reserve(50).await;
    let mut outside = Box::pin(pool.reserve(1));
    assert!(now(outside.as_mut()).is_none());
    now(first.grow(50)).expect("one may overdraw");
    {
        let mut waits = pin!(second.grow(50));
        assert!(now(waits.as_mut()).is_none(), "only one at a time");
        now(first.grow(50)).expect("and go on, whoever waits");
    }
    // The first frame is complete, and its bytes are still in use.
    let frame = first.take(150).freeze(150);
    drop(first);
    assert_eq!(budget.used(), 200);
    assert!(now(second.grow(1)).is_none(), "not before they came back");
    drop(frame);
    now(second.grow(50)).expect("they did");
    assert_eq!(budget.used(), 101);
    drop(second);
    drop(now(outside).expect("nobody else is there"));
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn frames_that_were_let_in_alone_may_grow() {
    let budget = Budget::new(100);
    let pools = [budget.pool(10, 10), budget.pool(10, 10)];
    let mut frames = [pools[0].reserve(500).await, pools[1].reserve(500).await];
    for frame in &mut frames {
        if now(frame.grow(100)).is_some() {
            return;
        }
    }
    panic!("one of them must be able to go on");
}

#[tokio::test]
async fn work_in_hand_goes_on_whatever_half_read_frames_hold() {
    let budget = Budget::new(100);
    let pool = budget.pool(0, 10);
    let mut half_read = pool.reserve(40).await;
    let mut whole = [pool.reserve(30).await, pool.reserve(30).await];
    now(half_read.grow(10)).expect("it overdraws");
    assert!(
        now(whole[0].grow(50)).is_none(),
        "another half-read one may not"
    );
    whole.iter_mut().for_each(Reservation::settle);
    now(whole[0].grow(50)).expect("work in hand may");
    now(whole[0].grow(50)).expect("and go on");
    now(half_read.grow(10)).expect("so may the half-read one");
    let mut outside = pin!(pool.reserve(1));
    assert!(now(outside.as_mut()).is_none());
    // The next one waits until the first is given back, not only decompressed, and does not stand in its way.
    let [mut first, mut second] = whole;
    {
        let mut waits = pin!(second.grow(50));
        assert!(now(waits.as_mut()).is_none());
        now(first.grow(50)).expect("the first one goes on");
        let frame = first.take(180).freeze(180);
        drop(first);
        assert!(now(waits.as_mut()).is_none());
        drop(frame);
        now(waits.as_mut()).expect("it was");
    }
    drop((second, half_read));
    drop(now(outside).expect("nobody else is there"));
    assert_eq!(budget.used(), 0);
}

/// A frame that arrives in pieces, its length not known before.
async fn read_frame(mut reservation: Reservation, pieces: usize, seed: u64) -> usize {
    let mut buffer = reservation.take(64);
    for piece in 0..pieces {
        if (seed + piece as u64).is_multiple_of(3) {
            tokio::task::yield_now().await;
        }
        reservation.grow(100).await;
        reservation.extend(&mut buffer, 100);
    }
    reservation.settle();
    if seed.is_multiple_of(5) {
        reservation.grow(200).await;
        reservation.extend(&mut buffer, 200);
    }
    drop(reservation);
    // Work in hand: a worker needs the frame for a while.
    let frame = buffer.freeze(64);
    tokio::task::yield_now().await;
    frame.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_frames_neither_starve_nor_lock_up() {
    const LIMIT: usize = 20_000;
    let budget = Budget::new(LIMIT);
    let pools = [budget.pool(LIMIT / 4, 1000), budget.pool(LIMIT / 4, 1000)];
    let (highest, longest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for number in 0..5000_u64 {
        let pool = pools[number as usize % 2].clone();
        let (budget, highest, longest) = (budget.clone(), highest.clone(), longest.clone());
        tasks.spawn(async move {
            for round in 0..5 {
                let begin = Instant::now();
                let entering = pool.reserve(64);
                let reservation = if (number + round).is_multiple_of(7) {
                    // Some give up and come again.
                    match timeout(Duration::from_millis(2), entering).await {
                        Ok(reservation) => reservation,
                        Err(_) => pool.reserve(64).await,
                    }
                } else {
                    entering.await
                };
                let waited = begin.elapsed().as_millis() as usize;
                longest.fetch_max(waited, Ordering::Relaxed);
                let pieces = 1 + (number + round) as usize % 30;
                assert_eq!(read_frame(reservation, pieces, number).await, 64);
                highest.fetch_max(budget.used(), Ordering::Relaxed);
            }
        });
    }
    let threads: Vec<_> = pools
        .iter()
        .map(|pool| {
            let pool = pool.clone();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    drop(pool.take().freeze(10));
                }
            })
        })
        .collect();
    let all = async { while tasks.join_next().await.is_some_and(|done| done.is_ok()) {} };
    timeout(Duration::from_secs(60), all)
        .await
        .expect("nobody is stuck");
    assert!(tasks.is_empty(), "no task failed");
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(budget.used(), 0);
    let highest = highest.load(Ordering::Relaxed);
    // Two frames of 64 bytes and 30 pieces may exceed the limit, one of them by 200 bytes more.
    assert!(highest <= LIMIT + 2 * (64 + 3000) + 200, "{highest}");
    assert!(longest.load(Ordering::Relaxed) < 30_000);
}
