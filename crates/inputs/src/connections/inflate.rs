//! Decompressing what was received: a whole body into buffers of the pool ([`inflate`]), or piece by piece into those of the caller
//! ([`Inflater`]).

use batch::Reservation;
use codec::Decompressor;
use codec::compress::{Format, zstd_stated_bytes};
use flate2::{Decompress, FlushDecompress, Status};

use super::pages::{Cut, Pages, Take};

/// How data is compressed (RFC 9110, section 8.4; RFC 8878).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Zstd,
    /// Deflate in the format of zlib, or, as some clients send it, without that.
    Deflate,
}

/// Why data cannot be decompressed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InflateError {
    /// It holds more than is allowed.
    #[error("the decompressed data is larger than allowed")]
    TooLarge,
    /// It is damaged.
    #[error("the data cannot be decompressed: {0}")]
    Damaged(String),
}

impl Coding {
    /// The coding of a `Content-Encoding`: none for a body as it is.
    pub(crate) fn of(header: &[u8]) -> Result<Option<Self>, ()> {
        let name = header.trim_ascii().to_ascii_lowercase();
        Ok(match name.as_slice() {
            b"" | b"identity" => None,
            b"gzip" | b"x-gzip" => Some(Self::Gzip),
            b"zstd" => Some(Self::Zstd),
            b"deflate" => Some(Self::Deflate),
            _ => return Err(()),
        })
    }
}

/// Decompresses a body of `limit` bytes at most into buffers that `into` takes. `grow` reserves more memory.
pub(crate) fn inflate(
    coding: Coding,
    compressed: &[impl AsRef<[u8]>],
    (cut, limit): (Cut, usize),
    reservation: &mut Reservation,
    mut grow: impl FnMut(&mut Reservation, usize),
    into: &mut impl Take,
) -> Result<(), InflateError> {
    let mut inflater = Inflater::new(coding, compressed.first().map_or(&[], AsRef::as_ref));
    // One byte more than allowed, so that too large a body shows.
    let space_max = limit.saturating_add(1);
    let expected = expected(coding, compressed).clamp(4096, space_max.max(4096));
    let first = Pages::first_bytes(cut, &reservation.pool(), expected);
    grow(reservation, first);
    let mut pages = Pages::new(cut, (Some(expected), space_max), first, reservation);
    let mut inputs = compressed.iter().map(AsRef::as_ref);
    let mut input = inputs.next().unwrap_or_default();
    loop {
        if pages.len() > limit {
            return Err(InflateError::TooLarge);
        }
        if pages.room().is_empty() {
            let plan = pages.plan();
            grow(reservation, plan.bytes);
            if let Some(page) = pages.turn(plan, reservation) {
                into.take(page, reservation, &mut grow);
            }
        }
        let (consumed, produced) = inflater.step(input, pages.room())?;
        input = &input[consumed..];
        pages.fill(produced);
        if consumed == 0 && produced == 0 {
            match inputs.next() {
                Some(next) if input.is_empty() => input = next,
                _ => break,
            }
        }
    }
    inflater.finish(input)?;
    let last = pages.finish(reservation);
    into.take(last, reservation, &mut grow);
    Ok(())
}

/// How much a body seems to decompress to, and one byte more, so that its end shows without growing. A gzip member ends with the
/// length of its content (RFC 1952, section 2.3.1), and most frames of zstd begin with it. That is believed up to [`RATIO_MAX`]: a
/// buffer that grows is zeroed and often moved.
pub(crate) fn expected(coding: Coding, compressed: &[impl AsRef<[u8]>]) -> usize {
    let len: usize = compressed.iter().map(|piece| piece.as_ref().len()).sum();
    let first = compressed.first().map_or(&[][..], AsRef::as_ref);
    let last = compressed.last().map_or(&[][..], AsRef::as_ref);
    let said = match (coding, last.last_chunk()) {
        (Coding::Gzip, Some(length)) => Some(u32::from_le_bytes(*length).into()),
        (Coding::Zstd, _) => zstd_stated_bytes(first),
        _ => None,
    };
    let said = said.and_then(|said| usize::try_from(said).ok());
    let is_likely = |said: &usize| *said >= len / 2 && said / RATIO_MAX <= len;
    match said.filter(is_likely) {
        Some(said) => said + 1,
        None => len.saturating_mul(4),
    }
}

/// How much smaller than its content a body may be for the length that it states to be believed.
const RATIO_MAX: usize = 32;

/// Decompresses one stream, piece by piece.
pub(crate) enum Inflater {
    Codec(Box<Decompressor>),
    Deflate { state: Decompress, ended: bool },
}

impl Inflater {
    /// For a stream that begins with these bytes.
    pub(crate) fn new(coding: Coding, compressed: &[u8]) -> Self {
        let codec = |format| {
            // Nobody resumes a body.
            Self::Codec(Box::new(Decompressor::new(format).with_interval(u64::MAX)))
        };
        match coding {
            Coding::Gzip => codec(Format::Gzip),
            Coding::Zstd => codec(Format::Zstd),
            Coding::Deflate => Self::Deflate {
                state: Decompress::new(is_zlib(compressed)),
                ended: false,
            },
        }
    }

    /// Begins with another stream of zlib. Its memory is kept, which is worth more than the time for a short stream.
    pub(crate) fn restart_zlib(&mut self) {
        match self {
            Self::Deflate { state, ended } => {
                state.reset(true);
                *ended = false;
            }
            Self::Codec(_) => *self = Self::new(Coding::Deflate, &[]),
        }
    }

    /// Whether the stream has ended; what follows does not belong to it. Only known of zlib and deflate before
    /// [`Self::finish`].
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Self::Deflate { ended: true, .. })
    }

    /// Reads from `input` and writes to `output`; gives how many bytes it read and wrote. Neither means that it needs more of
    /// one of them, or has ended.
    pub(crate) fn step(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(usize, usize), InflateError> {
        match self {
            Self::Codec(decompressor) => {
                let step = decompressor.step(input, output);
                match step.failure {
                    Some(failure) => Err(InflateError::Damaged(failure.to_string())),
                    None => Ok((step.consumed, step.produced)),
                }
            }
            Self::Deflate { ended: true, .. } => Ok((0, 0)),
            Self::Deflate { state, ended } => {
                let before = (state.total_in(), state.total_out());
                let status = state
                    .decompress(input, output, FlushDecompress::None)
                    .map_err(|error| InflateError::Damaged(error.to_string()))?;
                *ended = status == Status::StreamEnd;
                let consumed = state.total_in() - before.0;
                let produced = state.total_out() - before.1;
                Ok((consumed as usize, produced as usize))
            }
        }
    }

    /// Checks that the data ends here, with nothing behind it.
    pub(crate) fn finish(&mut self, rest: &[u8]) -> Result<(), InflateError> {
        let damaged = |reason: &str| Err(InflateError::Damaged(reason.to_owned()));
        match self {
            Self::Codec(decompressor) => {
                if let Err(failure) = decompressor.finish() {
                    return damaged(&failure.to_string());
                }
                if decompressor.has_garbage() {
                    return damaged("there is other data after the compressed data");
                }
            }
            Self::Deflate { ended: false, .. } => return damaged("the data ends unexpectedly"),
            Self::Deflate { .. } if !rest.is_empty() => {
                return damaged("there is other data after the compressed data");
            }
            Self::Deflate { .. } => {}
        }
        Ok(())
    }
}

/// Whether data begins as zlib does (RFC 1950, section 2.2): a method, and a sum that 31 divides.
fn is_zlib(data: &[u8]) -> bool {
    match data {
        [method, flags, ..] => {
            method & 0x0F == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31)
        }
        _ => true,
    }
}

pub(crate) mod probe;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use batch::Budget;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::probe::inflate_whole;
    use super::*;

    async fn inflated(coding: Coding, data: &[u8], limit: usize) -> Result<Vec<u8>, InflateError> {
        let budget = Budget::new(1 << 20);
        let pool = budget.pool(0, 1024);
        let mut reservation = pool.reserve(10).await;
        let buffer = inflate_whole(
            coding,
            data,
            limit,
            &mut reservation,
            |reservation, more| {
                reservation.grow_blocking(more);
            },
        )?;
        drop(reservation);
        assert!(
            (buffer.len()..=2 * buffer.len()).contains(&budget.used()),
            "little but the content is charged"
        );
        Ok(buffer.to_vec())
    }

    fn compressed(text: &[u8]) -> [(Coding, Vec<u8>); 4] {
        let level = Compression::default();
        let mut gzip = GzEncoder::new(Vec::new(), level);
        let mut zlib = ZlibEncoder::new(Vec::new(), level);
        let mut raw = DeflateEncoder::new(Vec::new(), level);
        gzip.write_all(text).expect("written");
        zlib.write_all(text).expect("written");
        raw.write_all(text).expect("written");
        [
            (Coding::Gzip, gzip.finish().expect("finished")),
            (Coding::Deflate, zlib.finish().expect("finished")),
            (Coding::Deflate, raw.finish().expect("finished")),
            (Coding::Zstd, zstd::encode_all(text, 3).expect("finished")),
        ]
    }

    #[tokio::test]
    async fn every_coding_is_read_and_checked() {
        let text: Vec<u8> = (0..50_000_u32)
            .flat_map(|n| n.to_string().into_bytes())
            .collect();
        for (coding, data) in compressed(&text) {
            assert_eq!(
                inflated(coding, &data, text.len()).await.expect("good"),
                text
            );
            if matches!(coding, Coding::Gzip | Coding::Zstd) {
                // Several members or frames are one body.
                let twice = [&data[..], &data].concat();
                let both = inflated(coding, &twice, 2 * text.len())
                    .await
                    .expect("good");
                assert_eq!(both, [&text[..], &text].concat(), "{coding:?}");
            }
            let less = inflated(coding, &data, text.len() - 1).await;
            assert_eq!(less, Err(InflateError::TooLarge), "{coding:?}");
            let cut = inflated(coding, &data[..data.len() - 5], text.len()).await;
            assert!(matches!(cut, Err(InflateError::Damaged(_))), "{coding:?}");
            let more = [&data[..], b"garbage"].concat();
            let more = inflated(coding, &more, text.len()).await;
            assert!(matches!(more, Err(InflateError::Damaged(_))), "{coding:?}");
        }
    }

    #[test]
    fn codings_have_their_names() {
        for (header, coding) in [
            (&b"gzip"[..], Ok(Some(Coding::Gzip))),
            (b" X-GZIP ", Ok(Some(Coding::Gzip))),
            (b"deflate", Ok(Some(Coding::Deflate))),
            (b"zstd", Ok(Some(Coding::Zstd))),
            (b"identity", Ok(None)),
            (b"br", Err(())),
            (b"gzip, gzip", Err(())),
        ] {
            assert_eq!(Coding::of(header), coding);
        }
    }
}
