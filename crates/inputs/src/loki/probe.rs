//! Bodies from memory, for the crate `fuzzkit`.

use super::decode::{Decoding, Format, Message};
use crate::connections::batcher::probe::Decoded;
use crate::connections::request::probe::body;

/// As the input accepts them, but less.
const BODY_BYTES_MAX: usize = 256 << 10;

/// The events of a push request with this body.
pub fn loki(bytes: &[u8], is_gzip: bool, is_json: bool) -> Decoded {
    let format = match is_json {
        true => Format::Json,
        false => Format::Protobuf,
    };
    let decoding = Decoding::new(BODY_BYTES_MAX, Some("event_id"));
    body(
        bytes,
        is_gzip,
        BODY_BYTES_MAX,
        decoding,
        |received, session| Message {
            received,
            format,
            session,
            metadata: br#"{"loki":{"tenant":"t"}}"#.to_vec(),
        },
    )
}
