//! The queue in memory. What is on disk is held by the simulation (`tests/simulation`), the model (`tests/model.rs`),
//! real threads (`tests/threads.rs`) and the tests of cursors (`tests/cursors.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use component::{Sink, Stopped};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::*;

fn batch(events: usize) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, 0, false);
    let buffer = builder.buffer(bytes::Bytes::from_static(b"0123456789"));
    builder.stream(&Arc::new(Stream::unnamed(1)));
    for row in 0..events as u64 {
        let span = Span {
            buffer,
            start: 0,
            len: 10,
        };
        builder.push(span, row, row + 1);
    }
    builder.finish()
}

fn queue(events_max: usize, outputs: usize) -> Arc<Queue> {
    let limits = Limits {
        size_max: 1 << 20,
        events_max,
    };
    Queue::memory(limits, outputs, Arc::default())
}

fn inlet(queue: &Arc<Queue>) -> Inlet {
    Inlet {
        queue: queue.clone(),
        can_wait: false,
        repeats_in_order: false,
    }
}

#[test]
fn a_batch_without_events_is_stored_and_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = DiskOptions::new(DiskSettings::default(), &["out"]);
    let queue = Queue::open(folder.path(), options).expect("it opens");
    let host = Arc::new(HostInfo { name: "h".into() });
    let empty = BatchBuilder::new(Encoding::Json, &host, 0, false).finish();
    let mut receipt = queue.try_send(empty, false).expect("there is room");
    let deadline = Instant::now() + Duration::from_secs(20);
    while receipt.try_delivered().is_none() {
        assert!(Instant::now() < deadline, "it is not stored");
        std::thread::sleep(Duration::from_millis(1));
    }
    let entry = take(&queue).expect("it is given");
    entry.ticket.pass(0);
    queue.shut();
}

fn take(queue: &Arc<Queue>) -> Option<Entry> {
    match queue.try_take(&|_| true).expect("nothing is read") {
        Some(Taken::Batch(entry, _)) => Some(entry),
        Some(other) => panic!("nothing in memory is lost: {other:?}"),
        None => None,
    }
}

async fn send(queue: &Arc<Queue>, events: usize) -> component::Receipt {
    inlet(queue).send(batch(events)).await.expect("it is open")
}

#[tokio::test]
async fn batches_leave_in_sequence_and_resolve_when_every_output_passed() {
    let queue = queue(100, 2);
    let receipt = send(&queue, 3).await;
    send(&queue, 1).await;
    let first = take(&queue).expect("a batch waits");
    let second = take(&queue).expect("a batch waits");
    assert_eq!((first.sequence, second.sequence), (0, 1));
    assert_eq!((first.turn, second.turn), (Some(0), Some(1)));
    assert_eq!(second.lanes, [0, 1].map(|lane| LaneTurn { lane, turn: 1 }));
    first.ticket.pass(0);
    assert_eq!(queue.held().unsafe_events, 4);
    first.ticket.pass(1);
    assert_eq!(queue.held().unsafe_events, 1);
    receipt.delivered().await.expect("both outputs passed");
}

#[tokio::test]
async fn a_full_queue_makes_the_sender_wait() {
    let queue = queue(4, 1);
    send(&queue, 4).await;
    let sender = tokio::spawn({
        let inlet = inlet(&queue);
        async move { inlet.send(batch(1)).await }
    });
    tokio::task::yield_now().await;
    assert!(!sender.is_finished());
    take(&queue).expect("a batch waits").ticket.pass(0);
    assert!(sender.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn a_batch_beyond_the_limits_is_let_in_alone() {
    let queue = queue(4, 1);
    send(&queue, 9).await;
    assert_eq!(queue.held().memory_events, 9);
}

#[tokio::test]
async fn a_closed_queue_empties_and_takes_no_more() {
    let queue = queue(9, 1);
    send(&queue, 2).await;
    queue.close(QueuePhase::Draining);
    assert_eq!(inlet(&queue).send(batch(1)).await.err(), Some(Stopped));
    assert!(queue.take(&|_| true).is_some());
    assert!(queue.take(&|_| true).is_none());
}

#[tokio::test]
async fn batches_that_leave_undelivered_tell_their_senders() {
    for (forget, held) in [(true, 0), (false, 2)] {
        let queue = queue(9, 1);
        let receipt = send(&queue, 2).await;
        match forget {
            true => queue.stop_giving(),
            false => queue.close(QueuePhase::Aborted),
        }
        assert_eq!(receipt.delivered().await.err(), Some(Stopped));
        assert_eq!(queue.held().unsafe_events, held);
    }
}

#[tokio::test]
async fn nothing_is_taken_while_no_output_has_room() {
    let queue = queue(9, 2);
    send(&queue, 2).await;
    assert!(
        queue
            .try_take(&|_| false)
            .expect("nothing is read")
            .is_none()
    );
    let taken = queue.try_take(&|lane| lane == 1).expect("nothing is read");
    assert!(matches!(taken, Some(Taken::Batch(entry, _)) if entry.lanes.len() == 2));
}

type Senders = Vec<JoinHandle<Result<(), Stopped>>>;

/// Tasks that each send a batch of one event, one after the other; the order in which they were let in.
fn senders(queue: &Arc<Queue>, count: usize) -> (Senders, Arc<Mutex<Vec<usize>>>) {
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let tasks = (0..count).map(|number| {
        let (inlet, order) = (inlet(queue), order.clone());
        tokio::spawn(async move {
            inlet.send(batch(1)).await?;
            order.lock().push(number);
            Ok(())
        })
    });
    (tasks.collect(), order)
}

/// Lets some thousand tasks go on as far as they can: the runtime runs 61 before it comes back to the test.
async fn let_all_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn thousands_that_wait_get_in_in_order_and_one_looks_at_a_time() {
    const COUNT: usize = 5000;
    let queue = queue(4, 1);
    let (tasks, order) = senders(&queue, COUNT);
    let_all_run().await;
    for _ in 0..COUNT {
        let entry = loop {
            match take(&queue) {
                Some(entry) => break entry,
                None => tokio::task::yield_now().await,
            }
        };
        entry.ticket.pass(0);
    }
    for task in tasks {
        task.await.expect("no panic").expect("it is open");
    }
    let in_order: Vec<usize> = (0..COUNT).collect();
    assert_eq!(*order.lock(), in_order);
    let looks = queue.lines[0].looks.load(SeqCst);
    assert!(looks <= 3 * COUNT, "{looks} looks");
    assert!(queue.lines[0].is_empty());
}

#[tokio::test]
async fn who_stops_waiting_leaves_the_line() {
    let queue = queue(1, 1);
    let (tasks, order) = senders(&queue, 7);
    let_all_run().await;
    // The first of the line, one in its middle, and its last.
    for gone in [1, 3, 6] {
        tasks[gone].abort();
        let_all_run().await;
    }
    for _ in 0..4 {
        take(&queue).expect("a batch waits").ticket.pass(0);
        let_all_run().await;
    }
    assert_eq!(*order.lock(), [0, 2, 4, 5]);
    assert!(queue.lines[0].is_empty());
}

#[tokio::test]
async fn who_is_first_and_stops_waiting_as_there_is_room_leaves_it_to_the_next() {
    let queue = queue(1, 1);
    let (tasks, order) = senders(&queue, 3);
    let_all_run().await;
    // Told of the room, it is gone before it looks.
    take(&queue).expect("a batch waits").ticket.pass(0);
    tasks[1].abort();
    let_all_run().await;
    assert_eq!(*order.lock(), [0, 2]);
}

#[tokio::test]
async fn closing_tells_everybody_in_line() {
    const COUNT: usize = 5000;
    let queue = queue(4, 1);
    let (tasks, order) = senders(&queue, COUNT);
    let_all_run().await;
    queue.close(QueuePhase::Draining);
    let mut stopped = 0;
    for task in tasks {
        stopped += usize::from(task.await.expect("no panic").is_err());
    }
    assert_eq!((order.lock().len(), stopped), (4, COUNT - 4));
    assert!(queue.lines[0].is_empty());
}

/// Nobody is forgotten, whatever happens at the same time: a queue in memory does not look again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_in_line_is_forgotten() {
    const TASKS: usize = 300;
    const EACH: usize = 20;
    let queue = queue(3, 1);
    let worker = std::thread::spawn({
        let queue = queue.clone();
        move || {
            let mut taken = 0;
            while let Some(Taken::Batch(entry, _)) = queue.take(&|_| true) {
                taken += 1;
                entry.ticket.pass(0);
            }
            taken
        }
    });
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let inlet = inlet(&queue);
            tokio::spawn(async move {
                let mut sent = 0;
                for round in 0..EACH {
                    let sending = inlet.send(batch(1));
                    if (number + round) % 7 == 0 {
                        // It gives up soon, wherever it stands.
                        let soon = tokio::task::yield_now();
                        tokio::select! {
                            done = sending => sent += usize::from(done.is_ok()),
                            () = soon => {}
                        }
                    } else {
                        sending.await.expect("it is open");
                        sent += 1;
                    }
                }
                sent
            })
        })
        .collect();
    let mut sent = 0;
    for task in tasks {
        let ended = tokio::time::timeout(Duration::from_secs(60), task).await;
        sent += ended.expect("it is not forgotten").expect("no panic");
    }
    queue.close(QueuePhase::Draining);
    assert_eq!(worker.join().expect("no panic"), sent);
    assert!(sent >= TASKS * EACH * 6 / 7);
}
