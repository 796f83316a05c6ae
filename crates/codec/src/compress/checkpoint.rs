//! Places where decompressing can go on without what lies before.
//!
//! Between two members or frames the offsets are enough. Within a member of gzip, at the boundary of two deflate blocks,
//! it takes the bits of the byte that both share, the window, and what the check at the member's end needs.
//!
//! # Layout
//! Numbers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 1 | format: 1 gzip, 2 zstd |
//! | 8 | offset in the compressed bytes |
//! | 8 | offset in the decompressed bytes |
//! | 1 | 0 between members or frames, 1 within a member |
//! | 1 | within a member: bits left over of the byte before the offset, 0 to 7 |
//! | 1 | within a member: their value |
//! | 4 | within a member: CRC-32 of its content up to here |
//! | 8 | within a member: length of its content up to here |
//! | 4 | within a member: length of the window, at most 32,768 |
//! | ... | within a member: the window, as one zstd frame |
//! | 4 | CRC-32 of everything before |

use super::Format;
use super::raw::WINDOW_BYTES;

const VERSION: u8 = 1;

/// Windows are compressed when a file has moved on by megabytes, so speed counts more than size.
const WINDOW_LEVEL: i32 = 1;

/// A place in compressed data where [`super::Decompressor::resume`] goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// How the data is compressed.
    pub format: Format,
    /// The first compressed byte to feed after a resume, in bytes from the start of the file.
    pub input: u64,
    /// The first decompressed byte that comes then, in bytes from the start of the content.
    pub output: u64,
    /// What is needed within a member of gzip.
    pub(super) inside: Option<Inside>,
}

/// What is needed to go on within a member of gzip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inside {
    /// Bits of the byte before `input` that are not used yet, fewer than 8.
    pub(super) bits: u8,
    /// Their value.
    pub(super) value: u8,
    /// CRC-32 of the member's content so far.
    pub(super) crc: u32,
    /// Length of the member's content so far.
    pub(super) length: u64,
    /// The last of the content, at most [`WINDOW_BYTES`].
    pub(super) window: Vec<u8>,
}

impl Checkpoint {
    /// The last decompressed bytes before `output` that are known, at most 32 KiB. None between members and for zstd.
    pub fn tail(&self) -> &[u8] {
        self.inside.as_ref().map_or(&[], |inside| &inside.window)
    }

    /// As bytes, in the layout above.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.format.number()];
        bytes.extend(self.input.to_le_bytes());
        bytes.extend(self.output.to_le_bytes());
        bytes.push(self.inside.is_some().into());
        if let Some(inside) = &self.inside {
            bytes.extend([inside.bits, inside.value]);
            bytes.extend(inside.crc.to_le_bytes());
            bytes.extend(inside.length.to_le_bytes());
            bytes.extend((inside.window.len() as u32).to_le_bytes());
            let window = zstd::bulk::compress(&inside.window, WINDOW_LEVEL);
            bytes.extend(window.expect("the buffer is as large as the result can be"));
        }
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Reads what [`Self::encode`] wrote; none for anything that is damaged or of another version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut bytes, sum) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(bytes) != u32::from_le_bytes(*sum) {
            return None;
        }
        let [version, format] = take(&mut bytes)?;
        if version != VERSION {
            return None;
        }
        let format = Format::ALL
            .into_iter()
            .find(|known| known.number() == format)?;
        let input = u64::from_le_bytes(take(&mut bytes)?);
        let output = u64::from_le_bytes(take(&mut bytes)?);
        let inside = match (take(&mut bytes)?, format) {
            ([0], _) if bytes.is_empty() => None,
            ([1], Format::Gzip) => Some(Inside::decode(bytes)?),
            _ => return None,
        };
        Some(Self {
            format,
            input,
            output,
            inside,
        })
    }
}

impl Inside {
    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let [bits, value] = take(&mut bytes)?;
        let crc = u32::from_le_bytes(take(&mut bytes)?);
        let length = u64::from_le_bytes(take(&mut bytes)?);
        let window_bytes = u32::from_le_bytes(take(&mut bytes)?) as usize;
        if bits > 7 || value >> bits != 0 || window_bytes > WINDOW_BYTES {
            return None;
        }
        let window = zstd::bulk::decompress(bytes, window_bytes).ok()?;
        (window.len() == window_bytes && length >= window_bytes as u64).then_some(Self {
            bits,
            value,
            crc,
            length,
            window,
        })
    }
}

/// Takes a number of bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Checkpoint> {
        let between = |format| Checkpoint {
            format,
            input: 1 << 40,
            output: u64::MAX,
            inside: None,
        };
        let inside = |window: Vec<u8>| Checkpoint {
            inside: Some(Inside {
                bits: 3,
                value: 0b101,
                crc: 0xDEAD_BEEF,
                length: 1 << 33,
                window,
            }),
            ..between(Format::Gzip)
        };
        let window: Vec<u8> = (0..WINDOW_BYTES).map(|n| ((n * n) >> 7) as u8).collect();
        vec![
            between(Format::Gzip),
            between(Format::Zstd),
            inside(Vec::new()),
            inside(window[..1000].to_vec()),
            inside(window),
        ]
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for checkpoint in samples() {
            let bytes = checkpoint.encode();
            assert_eq!(Checkpoint::decode(&bytes), Some(checkpoint));
        }
    }

    #[test]
    fn damage_is_noticed() {
        for checkpoint in samples() {
            let bytes = checkpoint.encode();
            let step = bytes.len() / 300 + 1;
            for place in (0..bytes.len()).step_by(step) {
                assert_eq!(Checkpoint::decode(&bytes[..place]), None, "{place}");
                let mut damaged = bytes.clone();
                damaged[place] ^= 1 << (place % 8);
                assert_eq!(Checkpoint::decode(&damaged), None, "{place}");
            }
            assert_eq!(Checkpoint::decode(&[bytes, vec![0]].concat()), None);
        }
    }

    #[test]
    fn a_sum_that_fits_does_not_make_values_possible() {
        let sealed = |mut bytes: Vec<u8>| {
            bytes.truncate(bytes.len() - 4);
            bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
            bytes
        };
        let good = samples()[3].encode();
        assert!(Checkpoint::decode(&sealed(good.clone())).is_some());
        // The version, the format, zstd within a member, the kind, the bits, their value, the length of the window.
        for (place, value) in [
            (0, 2),
            (1, 3),
            (1, 2),
            (18, 2),
            (18, 0),
            (19, 8),
            (20, 8),
            (35, 0xFF),
        ] {
            let mut bytes = good.clone();
            bytes[place] = value;
            assert_eq!(Checkpoint::decode(&sealed(bytes)), None, "{place} {value}");
        }
    }
}
