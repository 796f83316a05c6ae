//! Messages from memory, for the crate `fuzzkit`.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use batch::json::DEPTH_MAX;
use batch::msgpack::Extent;
use batch::{Source, Stream};
use net::Secret;

use super::decode::{Decoding, Reply, Session};
use super::handshake::Security;
use super::messages::Messages;
use super::speaker::leave;
use crate::connections::batcher::probe::{Bench, Decoded, PATIENCE, Pieces, inbox, reason};
use crate::connections::closing::Fault;
use crate::connections::intake::Intake;

/// As the input accepts them, but smaller.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// The events of a connection on which these bytes come, at most `piece` of them at once.
pub fn forward(bytes: &[u8], piece: usize, add_fields: bool) -> Decoded {
    Bench::run(|bench| {
        let pieces = Pieces::new(bytes, piece);
        let intake = Intake::new(pieces, bench.ctx.clone(), PATIENCE, PATIENCE);
        let mut messages = Messages::new(intake, MESSAGE_BYTES_MAX);
        let session = Arc::new(Session {
            stream: Arc::new(Stream::new(1, Source::Unnamed)),
            next: AtomicU64::new(0),
            source: Source::Unnamed,
        });
        let inbox = inbox::<Decoding>();
        let mut pending = Vec::new();
        let ended = bench.wait(async {
            loop {
                match messages.next().await {
                    Ok(Some(load)) => pending.push(leave(load, &session, &inbox)),
                    Ok(None) => return None,
                    Err(ending) => return reason(ending),
                }
            }
        });
        bench.decode(
            Decoding::new(MESSAGE_BYTES_MAX, DEPTH_MAX, add_fields),
            &inbox,
        );
        let fault = |(_, reply): &(_, Arc<OnceLock<Reply>>)| reply.get()?.fault.clone();
        let refused: Option<Fault> = pending.iter().find_map(fault);
        refused.map_or(ended, |fault| reason(fault.into()))
    })
}

/// The answer to a client whose side of the handshake begins with these bytes; none where no message does.
pub fn handshake(bytes: &[u8]) -> Option<Vec<u8>> {
    let len = Extent::default().advance(bytes).ok()??;
    let users = vec![("user".to_owned(), Secret::new("password"))];
    let security = Security::new(Secret::new("key"), users, "server".to_owned());
    let challenge = security.challenge()?;
    Some(security.judge(&challenge, &bytes[..len]).ok()?.pong)
}
