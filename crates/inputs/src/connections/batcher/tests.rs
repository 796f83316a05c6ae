use async_trait::async_trait;
use batch::{Budget, Span, Stream};
use bytes::Bytes;
use component::input::Issuer;
use component::{Diagnostics, Receipt, Sink, Stopped, receipt};
use tokio::time::{sleep, timeout};

use super::*;
use crate::connections::answer::{Awaited, Outcome, answer};
use crate::connections::testing;

/// A message is a text and how many events it makes.
struct Texts(Arc<Stream>);

impl Protocol for Texts {
    type Message = (Bytes, usize);
    type Mark = usize;
    type Reason = &'static str;

    fn add(
        &mut self,
        (text, count): (Bytes, usize),
        answer: Answer<&'static str>,
        joiner: &mut Joiner<usize, &'static str>,
    ) {
        match &text[..] {
            b"bad" => return answer.reject("bad"),
            b"panics" => panic!("injected"),
            _ => {}
        }
        let mut pushed = 0;
        while pushed < count {
            joiner.join((Encoding::Text, false), count, &answer, |builder| {
                builder.stream(&self.0);
                let buffer = builder.buffer(text.clone());
                let (start, len) = (0, text.len() as u32);
                while pushed < count && builder.len() < BATCH_EVENTS_MAX {
                    let place = pushed as u64;
                    builder.push(Span { buffer, start, len }, place, place + 1);
                    pushed += 1;
                    assert_ne!(&text[..], b"panics late", "injected");
                }
            });
        }
        answer.complete();
    }

    fn completion(&self) -> Completion<usize> {
        Box::new(|batch, marks| {
            let rows: usize = marks.iter().map(|(rows, _)| rows.len()).sum();
            assert_eq!(rows, batch.len(), "every row has the mark of its message");
        })
    }
}

/// Keeps batches and their receipts.
#[derive(Default)]
struct Kept(Mutex<Vec<(Batch, Issuer)>>);

#[async_trait]
impl Sink for Kept {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        let (issuer, receipt) = receipt();
        self.0.lock().push((batch, issuer));
        Ok(receipt)
    }
}

impl Kept {
    /// The events of each batch.
    fn events(&self) -> Vec<usize> {
        let kept = self.0.lock();
        kept.iter().map(|(batch, _)| batch.len()).collect()
    }

    /// Waits until so many events have come.
    async fn wait_for(&self, events: usize) {
        let come = async {
            while self.events().iter().sum::<usize>() < events {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(10), come)
            .await
            .expect("they come");
    }

    /// Takes the first batch.
    fn take(&self) -> (Batch, Issuer) {
        self.0.lock().remove(0)
    }
}

fn start(sink: &Arc<Kept>) -> Batcher<Texts> {
    start_saying(sink, Diagnostics::silent())
}

fn start_saying(sink: &Arc<Kept>, diagnostics: Diagnostics) -> Batcher<Texts> {
    let ctx = testing::context(
        sink.clone(),
        Budget::new(1 << 20).pool(0, 1024),
        diagnostics,
    );
    let stream = Arc::new(Stream::unnamed(1));
    Batcher::start(&ctx, || Texts(stream.clone())).expect("threads")
}

fn put(inbox: &Inbox<Texts>, text: &'static str, events: usize) -> Awaited<&'static str> {
    let (answer, awaited) = answer();
    inbox.put((Bytes::from_static(text.as_bytes()), events), answer);
    awaited
}

async fn outcome(awaited: Awaited<&'static str>) -> Outcome<&'static str> {
    let outcome = timeout(Duration::from_secs(10), awaited).await;
    outcome.expect("an answer in time").expect("an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_messages_leave_together_and_hear_of_it_each() {
    let sink = Arc::new(Kept::default());
    let batcher = start(&sink);
    let inbox = batcher.inbox();
    let mut awaited: Vec<_> = (0..1000).map(|_| put(&inbox, "x", 2)).collect();
    sink.wait_for(2000).await;
    let batches = sink.events();
    assert!(batches.len() <= 100, "{} batches", batches.len());
    assert!(
        awaited
            .iter_mut()
            .all(|awaited| awaited.try_recv().is_err())
    );
    for _ in 0..batches.len() {
        let (batch, issuer) = sink.take();
        issuer.resolve(Delivery::accepted(&batch));
    }
    for awaited in awaited {
        assert_eq!(outcome(awaited).await, Outcome::Delivered);
    }
    batcher.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_several_batches_waits_for_all() {
    let sink = Arc::new(Kept::default());
    let batcher = start(&sink);
    let mut large = put(&batcher.inbox(), "x", BATCH_EVENTS_MAX + 10);
    sink.wait_for(BATCH_EVENTS_MAX + 10).await;
    assert_eq!(sink.events(), [BATCH_EVENTS_MAX, 10]);
    let (batch, issuer) = sink.take();
    issuer.resolve(Delivery::accepted(&batch));
    sleep(Duration::from_millis(50)).await;
    assert!(large.try_recv().is_err());
    let (batch, issuer) = sink.take();
    issuer.resolve(Delivery::accepted(&batch));
    assert_eq!(outcome(large).await, Outcome::Delivered);

    let lost = put(&batcher.inbox(), "x", BATCH_EVENTS_MAX + 10);
    sink.wait_for(BATCH_EVENTS_MAX + 10).await;
    let (batch, issuer) = sink.take();
    issuer.resolve(Delivery::accepted(&batch));
    drop(sink.take());
    assert_eq!(outcome(lost).await, Outcome::NotDelivered);
    batcher.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_and_abandoned_messages_are_not_taken() {
    let sink = Arc::new(Kept::default());
    let batcher = start(&sink);
    let inbox = batcher.inbox();
    assert_eq!(
        outcome(put(&inbox, "bad", 1)).await,
        Outcome::Rejected("bad")
    );
    assert_eq!(outcome(put(&inbox, "x", 0)).await, Outcome::Delivered);
    drop(put(&inbox, "x", 0));
    let (late, gone) = answer();
    drop(gone);
    inbox.put((Bytes::from_static(b"x"), 7), late);
    let kept = put(&inbox, "x", 1);
    sink.wait_for(1).await;
    batcher.finish().await;
    assert_eq!(sink.events(), [1]);
    // Nobody takes messages any more.
    assert!(
        timeout(Duration::from_secs(1), put(&inbox, "x", 1))
            .await
            .expect("at once")
            .is_ok()
    );
    drop(sink.take());
    assert_eq!(outcome(kept).await, Outcome::NotDelivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_panics_fails_alone() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let keep = said.clone();
    let diagnostics = Diagnostics::new(move |message| {
        keep.lock().push(message.to_owned());
    });
    let sink = Arc::new(Kept::default());
    let batcher = start_saying(&sink, diagnostics);
    let inbox = batcher.inbox();
    // More of each than there are threads: every thread has to survive.
    for count in 1..=2 * THREADS_MAX {
        assert_eq!(
            outcome(put(&inbox, "panics late", 3)).await,
            Outcome::Failed
        );
        // What waits in a batch does not suffer from a message that panics before it joins.
        let good = put(&inbox, "x", 1);
        assert_eq!(outcome(put(&inbox, "panics", 1)).await, Outcome::Failed);
        sink.wait_for(1).await;
        assert_eq!(sink.events(), [1], "after {count} rounds");
        let (batch, issuer) = sink.take();
        issuer.resolve(Delivery::accepted(&batch));
        assert_eq!(outcome(good).await, Outcome::Delivered);
    }
    batcher.finish().await;
    let said = said.lock();
    assert!(
        said[0].contains("panicked") && said[0].contains("injected"),
        "{said:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_messages_of_a_connection_stay_in_order() {
    let sink = Arc::new(Kept::default());
    let ctx = testing::context(
        sink.clone(),
        Budget::new(1 << 20).pool(0, 1024),
        Diagnostics::silent(),
    );
    let streams = [1, 2, 3].map(|id| Arc::new(Stream::unnamed(id)));
    let batcher = Batcher::start_ordered(&ctx, || Numbers(streams.clone())).expect("threads");
    let inboxes = batcher.inboxes();
    let mut awaited = Vec::new();
    for number in 0..3000 {
        for connection in 0..3 {
            let (answer, outcome) = answer();
            inboxes(connection).put((connection as usize, number), answer);
            awaited.push(outcome);
        }
    }
    sink.wait_for(9000).await;
    let mut last = [None; 3];
    let kept = sink.0.lock();
    for (batch, _) in kept.iter() {
        for row in 0..batch.len() {
            let origin = batch.origin();
            let of = &mut last[origin.stream(row).id as usize - 1];
            assert_eq!(origin.start(row), of.map_or(0, |last: u64| last + 1));
            *of = Some(origin.start(row));
        }
    }
}

/// A message is a connection and a number.
struct Numbers([Arc<Stream>; 3]);

impl Protocol for Numbers {
    type Message = (usize, u64);
    type Mark = ();
    type Reason = ();

    fn add(
        &mut self,
        (connection, number): (usize, u64),
        answer: Answer<()>,
        joiner: &mut Joiner<(), ()>,
    ) {
        joiner.join((Encoding::Text, false), (), &answer, |builder| {
            builder.stream(&self.0[connection]);
            let buffer = builder.buffer(Bytes::from_static(b"x"));
            let (start, len) = (0, 1);
            builder.push(Span { buffer, start, len }, number, number + 1);
        });
        answer.complete();
    }

    fn completion(&self) -> Completion<()> {
        Box::new(|_, _| {})
    }
}
