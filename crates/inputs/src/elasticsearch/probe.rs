//! Bodies from memory, for the crate `fuzzkit`.

use std::net::SocketAddr;

use batch::json::DEPTH_MAX;
use config::Positive;
use http::Method;
use net::Peer;
use tokio::sync::oneshot;

use super::bulk::{Defaults, Items, Limits};
use super::decode::{Decoding, Message};
use super::filter::Filter;
use super::reply::Draft;
use super::route;
use crate::connections::answer::{Outcome, answer};
use crate::connections::batcher::probe::{Bench, Decoded, PATIENCE, inbox};
use crate::connections::inflate::Coding;
use crate::connections::request::{Fault, Reading, Requests};
use crate::connections::session::Sessions;

/// As the input accepts them, but less.
const BODY_BYTES_MAX: usize = 256 << 10;
const ITEMS_MAX: usize = 4096;

/// How much of a body comes at a time.
const PIECE_BYTES: usize = 1000;

/// The events of a bulk request with this body, and the whole reply where it is not refused.
pub fn bulk(bytes: &[u8], is_gzip: bool) -> (Decoded, Option<Vec<u8>>) {
    let mut replied = None;
    let decoded = Bench::run(|bench| {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let sessions = Sessions::new(&bench.ctx.host.name, "elasticsearch", address);
        let peer = Peer {
            address,
            connection: 0,
        };
        let requests = Requests {
            ctx: bench.ctx.clone(),
            max_bytes: Positive::from_bytes(BODY_BYTES_MAX as u64),
            body_timeout: PATIENCE,
            ack_timeout: PATIENCE,
        };
        let limits = Limits {
            items: ITEMS_MAX,
            depth: DEPTH_MAX,
        };
        let defaults = Defaults {
            index: Some("logs".to_owned()),
            ..Defaults::default()
        };
        let (session, cut) = (sessions.begin(peer), defaults.cut());
        let coding = is_gzip.then_some(Coding::Gzip);
        let received = bench.wait(async {
            let reading = Reading::begin(&requests, &session, None, coding, cut);
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
        let (reply, mut sent) = oneshot::channel();
        let message = Message {
            received,
            defaults,
            session,
            filter: Some(Filter::default()),
            reply,
        };
        let inbox = inbox::<Decoding>();
        let (answer, mut outcome) = answer();
        inbox.put(message, answer);
        let decoding = Decoding {
            body_max: BODY_BYTES_MAX,
            items: Items::new(limits),
            draft: Draft::default(),
        };
        bench.decode(decoding, &inbox);
        let reply = sent.try_recv().ok();
        replied = reply.map(|reply| reply.sent(7).1.to_vec());
        match outcome.try_recv() {
            Ok(Outcome::Rejected(failure)) => Some(failure.reason),
            _ => None,
        }
    });
    (decoded, replied)
}

/// Whether a request with this path is answered, and whether a client with this `filter_path` hears of errors.
pub fn route(path: &str, filter: &str) -> (bool, bool) {
    let is_answered = route::route(&Method::POST, path).is_ok();
    let wanted = ["items", "index", "error", "reason"];
    (is_answered, Filter::parse(filter).wants(&wanted))
}
