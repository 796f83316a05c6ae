//! Decompressing from memory, for the crate `fuzzkit`.

use batch::Reservation;
use bytes::Bytes;

use super::{Coding, InflateError, Inflater, inflate};
use crate::connections::batcher::probe::Bench;
use crate::connections::pages::Cut;

/// The codings, as `inflated` numbers them.
pub const PROBED: [&str; 3] = ["gzip", "zstd", "deflate"];

/// Decompresses bytes to `limit` bytes at most, at once and in pieces: what both gave, and the most memory that was in use.
///
/// # Panics
/// There is no such coding.
pub fn inflated(
    coding: usize,
    bytes: &[u8],
    limit: usize,
    piece: usize,
) -> (Option<Vec<u8>>, Option<Vec<u8>>, usize) {
    let coding = [Coding::Gzip, Coding::Zstd, Coding::Deflate][coding];
    let (mut whole, mut peak) = (None, 0);
    Bench::run(|bench| {
        let mut reservation = bench.wait(bench.ctx.pool.reserve(1));
        let grow = |reservation: &mut Reservation, more| {
            reservation.grow_blocking(more);
            peak = peak.max(bench.used());
        };
        let buffer = inflate_whole(coding, bytes, limit, &mut reservation, grow).ok();
        whole = buffer.map(|buffer| buffer.to_vec());
        None
    });
    (whole, in_pieces(coding, bytes, limit, piece.max(1)), peak)
}

/// Decompresses one piece into one buffer.
pub(super) fn inflate_whole(
    coding: Coding,
    compressed: &[u8],
    limit: usize,
    reservation: &mut Reservation,
    grow: impl FnMut(&mut Reservation, usize),
) -> Result<Bytes, InflateError> {
    let (cut, mut pages) = ((Cut::Nowhere, limit), Vec::new());
    inflate(coding, &[compressed], cut, reservation, grow, &mut pages)?;
    Ok(pages.pop().unwrap_or_default())
}

fn in_pieces(coding: Coding, bytes: &[u8], limit: usize, piece: usize) -> Option<Vec<u8>> {
    let mut inflater = Inflater::new(coding, bytes);
    let (mut output, mut space, mut at) = (Vec::new(), vec![0; piece], 0);
    while output.len() <= limit {
        let end = (at + piece).min(bytes.len());
        let (consumed, produced) = inflater.step(&bytes[at..end], &mut space).ok()?;
        at += consumed;
        output.extend_from_slice(&space[..produced]);
        if consumed == 0 && produced == 0 {
            // More input than a piece never helps: each is read whole before another one is needed.
            inflater.finish(&bytes[at..]).ok()?;
            return Some(output);
        }
    }
    None
}
