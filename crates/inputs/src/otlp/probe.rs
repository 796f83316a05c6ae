//! Requests from memory, for the crate `fuzzkit`.

use std::net::SocketAddr;

use bytes::Bytes;
use config::Positive;
use net::Peer;

use super::decode::{Decoding, Message};
use super::refusal::Form;
use super::service::unframed;
use crate::connections::answer::{Outcome, answer};
use crate::connections::batcher::probe::{Bench, Decoded, PATIENCE, inbox};
use crate::connections::inflate::Coding;
use crate::connections::pages::Cut;
use crate::connections::request::{Fault, Reading, Requests};
use crate::connections::session::Sessions;

/// As the input accepts them, but less.
const BODY_BYTES_MAX: usize = 64 << 10;
const DEPTH_MAX: usize = 64;

/// How much of a body comes at a time.
const PIECE_BYTES: usize = 1000;

/// How a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// In Protocol Buffers.
    Protobuf,
    /// The same, compressed.
    Gzip,
    /// In JSON.
    Json,
    /// As the message of a call, with what stands before it.
    Call,
}

/// The events of a request.
pub fn otlp(bytes: &[u8], sending: Sending) -> Decoded {
    Bench::run(|bench| {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let sessions = Sessions::new(&bench.ctx.host.name, "otlp", address);
        let session = sessions.begin(Peer {
            address,
            connection: 0,
        });
        let requests = Requests {
            ctx: bench.ctx.clone(),
            max_bytes: Positive::from_bytes(BODY_BYTES_MAX as u64),
            body_timeout: PATIENCE,
            ack_timeout: PATIENCE,
        };
        let coding = (sending == Sending::Gzip).then_some(Coding::Gzip);
        let received = bench.wait(async {
            let reading = Reading::begin(&requests, &session, None, coding, Cut::Nowhere);
            let mut reading = reading.await?;
            for piece in bytes.chunks(PIECE_BYTES) {
                reading.add(piece).await?;
            }
            Ok::<_, Fault>(reading.end(&session))
        });
        let mut received = match received {
            Ok(received) => received,
            Err(fault) => return Some(fault.to_string()),
        };
        if sending == Sending::Call {
            received = match unframed(received, Some(Coding::Gzip)) {
                Ok(received) => received,
                Err(refusal) => return Some(refusal.reason),
            };
        }
        let form = match sending {
            Sending::Json => Form::Json,
            _ => Form::Protobuf,
        };
        let inbox = inbox::<Decoding>();
        let (answer, mut outcome) = answer();
        inbox.put(
            Message {
                received,
                form,
                session,
            },
            answer,
        );
        bench.decode(Decoding::new(BODY_BYTES_MAX, DEPTH_MAX), &inbox);
        match outcome.try_recv() {
            Ok(Outcome::Rejected(refusal)) => Some(refusal.reason),
            _ => None,
        }
    })
}

/// A request in JSON as one in Protocol Buffers, if it is one.
pub fn otlp_json(bytes: &[u8]) -> Option<Bytes> {
    let mut message = Vec::new();
    codec::otlp::json::to_protobuf(bytes, &mut message).ok()?;
    Some(message.into())
}
