//! Blocks that say what they hold, for tests of the log alone.

use bytes::Bytes;
use queue::log::{Block, Compression, Payload};

/// The content of a block: so many bytes that follow from its sequence, and that compress a little.
pub fn content(sequence: u64, length: u64) -> Vec<u8> {
    (0..length)
        .map(|at| (at / 5 + sequence * 3) as u8)
        .collect()
}

/// A block of ten events.
pub fn block(sequence: u64, content: Vec<u8>, compression: Compression) -> Block {
    Block {
        sequence,
        ordinal: sequence * 10,
        events: 10,
        time: sequence as i64,
        payload: Payload::new(vec![Bytes::from(content)], compression),
    }
}
