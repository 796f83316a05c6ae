//! Frames from memory, for the crate `fuzzkit`.

use std::net::SocketAddr;
use std::sync::Arc;

use batch::json::DEPTH_MAX;
use batch::{Source, Stream};
use codec::lumberjack::Limits;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::connection::{InFlight, Receiver};
use super::decode::{Decoding, Session};
use crate::connections::answer::Outcome;
use crate::connections::batcher::probe::{Bench, Decoded, PATIENCE, Pieces, inbox, reason};
use crate::connections::intake::Intake;

/// As the input accepts them, but smaller.
const LIMITS: Limits = Limits {
    frame_bytes_max: 64 << 10,
    window_events_max: 4096,
};
const INFLATED_BYTES_MAX: usize = 256 << 10;

/// The events of a connection on which these bytes come, at most `piece` of them at once.
pub fn beats(bytes: &[u8], piece: usize) -> Decoded {
    Bench::run(|bench| {
        let (messages, ended) = messages(bench, bytes, piece, LIMITS, INFLATED_BYTES_MAX);
        let refused = messages.into_iter().find_map(|mut message| {
            let outcome = message.outcome.try_recv();
            match outcome {
                Ok(Outcome::Rejected(fault)) => reason(fault.into()),
                _ => None,
            }
        });
        refused.or(ended)
    })
}

/// The messages of such a connection, when they are decoded, and why it is closed.
pub(super) fn messages(
    bench: &Bench,
    bytes: &[u8],
    piece: usize,
    limits: Limits,
    inflated_max: usize,
) -> (Vec<InFlight>, Option<String>) {
    let inbox = inbox::<Decoding>();
    let session = Session {
        peer: SocketAddr::from(([127, 0, 0, 1], 1)),
        stream: Arc::new(Stream::new(1, Source::Unnamed)),
        state: Mutex::default(),
        unanswered: Mutex::default(),
    };
    // No answers are waited for.
    let (in_flight, mut messages) = mpsc::channel(bytes.len() + 1);
    let receiver = Receiver {
        intake: Intake::new(
            Pieces::new(bytes, piece),
            bench.ctx.clone(),
            PATIENCE,
            PATIENCE,
        ),
        limits,
        session: Arc::new(session),
        inbox: inbox.clone(),
        in_flight,
        version: b'2',
    };
    let ended = reason(bench.wait(receiver.run()));
    let decoding = Decoding::new(limits, inflated_max, DEPTH_MAX, &bench.ctx);
    bench.decode(decoding, &inbox);
    let messages = std::iter::from_fn(|| messages.try_recv().ok());
    (messages.collect(), ended)
}
