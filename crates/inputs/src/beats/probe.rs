//! Frames from memory, for the crate `fuzzkit`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use batch::json::DEPTH_MAX;
use batch::{Source, Stream};
use codec::lumberjack::Limits;
use tokio::sync::mpsc;

use super::connection::Receiver;
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
            limits: LIMITS,
            session: Arc::new(session),
            inbox: inbox.clone(),
            in_flight,
            version: b'2',
        };
        let ended = reason(bench.wait(receiver.run()));
        bench.decode(
            Decoding::new(LIMITS, INFLATED_BYTES_MAX, DEPTH_MAX, &bench.ctx),
            &inbox,
        );
        let mut refused = None;
        while let Ok(message) = messages.try_recv() {
            let mut outcome = message.outcome;
            if let (None, Ok(Outcome::Rejected(fault))) = (&refused, outcome.try_recv()) {
                refused = reason(fault.into());
            }
        }
        refused.or(ended)
    })
}
