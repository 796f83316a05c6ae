//! Requests from memory, for the crate `fuzzkit`.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

use config::Positive;
use net::Peer;

use super::{Fault, Reading, Received, Requests};
use crate::connections::answer::{Outcome, answer};
use crate::connections::batcher::Protocol;
use crate::connections::batcher::probe::{Bench, Decoded, PATIENCE, inbox};
use crate::connections::inflate::Coding;
use crate::connections::pages::Cut;
use crate::connections::session::{Session, Sessions};

/// How much of a body comes at a time.
const PIECE_BYTES: usize = 1000;

/// The events of a request with this body, which is one value.
pub(crate) fn body<P: Protocol>(
    bytes: &[u8],
    is_gzip: bool,
    bytes_max: usize,
    protocol: P,
    message: impl FnOnce(Received, Arc<Session>) -> P::Message,
) -> Decoded
where
    P::Reason: Debug,
{
    Bench::run(|bench| {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let sessions = Sessions::new(&bench.ctx.host.name, "probe", address);
        let session = sessions.begin(Peer {
            address,
            connection: 0,
        });
        let requests = Requests {
            ctx: bench.ctx.clone(),
            max_bytes: Positive::from_bytes(bytes_max as u64),
            body_timeout: PATIENCE,
            ack_timeout: PATIENCE,
        };
        let coding = is_gzip.then_some(Coding::Gzip);
        let received = bench.wait(async {
            let reading = Reading::begin(&requests, &session, None, coding, Cut::Nowhere);
            let mut reading = reading.await?;
            for piece in bytes.chunks(PIECE_BYTES) {
                reading.add(piece).await?;
            }
            Ok::<_, Fault>(reading.end(&session))
        });
        let received = match received {
            Ok(received) => received,
            Err(fault) => return Some(fault.to_string()),
        };
        let inbox = inbox::<P>();
        let (answer, mut outcome) = answer();
        inbox.put(message(received, session), answer);
        bench.decode(protocol, &inbox);
        match outcome.try_recv() {
            Ok(Outcome::Rejected(reason)) => Some(format!("{reason:?}")),
            _ => None,
        }
    })
}
