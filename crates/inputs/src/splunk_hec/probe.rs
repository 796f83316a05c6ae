//! Bodies from memory, for the crate `fuzzkit`.

use super::decode::{Decoding, Format, Message};
use super::document::Defaults;
use crate::connections::batcher::probe::Decoded;
use crate::connections::request::probe::body;

/// As the input accepts them, but less.
const BODY_BYTES_MAX: usize = 256 << 10;

/// The events of a request with this body.
pub fn splunk_hec(bytes: &[u8], is_gzip: bool, is_raw: bool) -> Decoded {
    let format = match is_raw {
        true => Format::Lines,
        false => Format::Envelopes,
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
            defaults: Defaults::default(),
            time: 0,
            session,
            checked: None,
        },
    )
}
