//! The queue in memory. What is on disk is held by the simulation (`tests/simulation`), the model (`tests/model.rs`),
//! real threads (`tests/threads.rs`) and the tests of cursors (`tests/cursors.rs`).

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use component::{Sink, Stopped};

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
    }
}

fn take(queue: &Arc<Queue>) -> Option<Entry> {
    match queue.try_take(&|_| true).expect("nothing is read") {
        Some(Taken::Batch(entry, _)) => Some(entry),
        Some(Taken::Lost(_)) => panic!("nothing in memory is lost"),
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
