//! Compressed data, decompressed with a limit.

use codec::compress::Format;
use codec::{Checkpoint, Decompressor};
use inputs::probe;

use crate::choice;

const LIMIT_BYTES: usize = 64 << 10;

pub(crate) fn gzip(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    body(0, choice, bytes);
    resumed(Format::Gzip, choice, bytes);
}

pub(crate) fn zstd(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    body(1, choice, bytes);
    resumed(Format::Zstd, choice, bytes);
}

pub(crate) fn deflate(bytes: &[u8]) {
    if let Some((choice, bytes)) = choice(bytes) {
        body(2, choice, bytes);
    }
}

/// The body of a request: at once and in pieces it gives the same, within the limit of content and memory.
fn body(coding: usize, piece: usize, bytes: &[u8]) {
    // A piece may be less than a coder reads before it gives anything, never nothing.
    let (whole, pieces, peak) = probe::inflated(coding, bytes, LIMIT_BYTES, 64 + piece);
    assert_eq!(whole, pieces, "{}", probe::PROBED[coding]);
    assert!(whole.is_none_or(|content| content.len() <= LIMIT_BYTES));
    // While a buffer grows, the one before is there, too.
    assert!(peak <= 3 * LIMIT_BYTES + bytes.len(), "{peak} bytes");
}

/// A file that is read on from each checkpoint has the same content and the same end.
fn resumed(format: Format, choice: usize, bytes: &[u8]) {
    let start = Decompressor::new(format).with_interval(1 + choice as u64 * 16);
    let (content, end, checkpoints) = content(start, bytes, LIMIT_BYTES);
    for checkpoint in checkpoints {
        let from = Decompressor::resume(&checkpoint).expect("memory");
        let before = usize::try_from(checkpoint.output).expect("short");
        let (rest, rest_end, _) = self::content(from, bytes, LIMIT_BYTES - before.min(LIMIT_BYTES));
        let expected = &content[before.min(content.len())..];
        let both = rest.len().min(expected.len());
        assert_eq!(rest[..both], expected[..both]);
        if content.len() <= LIMIT_BYTES {
            assert_eq!((rest.len(), rest_end), (expected.len(), end));
        }
    }
}

/// The content, as soon as it is more than `limit` bytes or ends, whether its end was good, and a few checkpoints.
fn content(mut from: Decompressor, bytes: &[u8], limit: usize) -> (Vec<u8>, bool, Vec<Checkpoint>) {
    let (mut content, mut checkpoints, mut space) = (Vec::new(), Vec::new(), [0; 512]);
    loop {
        let at = usize::try_from(from.input_offset()).expect("short");
        let step = from.step(&bytes[at..], &mut space);
        content.extend_from_slice(&space[..step.produced]);
        if checkpoints.len() < 4 {
            checkpoints.extend(from.take_checkpoint());
        }
        let is_over = step.consumed == 0 && step.produced == 0;
        if step.failure.is_some() || is_over || content.len() > limit {
            let is_good = step.failure.is_none() && from.finish().is_ok();
            return (content, is_good, checkpoints);
        }
    }
}
