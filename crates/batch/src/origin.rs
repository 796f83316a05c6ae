//! Where the rows of a batch came from.
//!
//! A *stream* is a file or a connection. Every row has a start and an end in its stream: byte offsets in a file
//! (terminators included, decompressed), sequence numbers on a connection. The event id is made of the three and never
//! changes afterwards.

use std::sync::Arc;

/// A file or a connection that events come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// 128 bits that name the stream for ever.
    pub id: u128,
    /// The path of a file; none for connections and generators.
    pub path: Option<Arc<str>>,
}

/// Stream, start and end of every row.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// Streams with the first row of each; ascending, the first starts at row 0.
    streams: Vec<(u32, Arc<Stream>)>,
    starts: Arc<Vec<u64>>,
    ends: Vec<u64>,
}

impl Origin {
    /// An origin of rows given by their starts and ends; `streams` holds each stream with its first row, ascending.
    pub fn new(streams: Vec<(u32, Arc<Stream>)>, starts: Vec<u64>, ends: Vec<u64>) -> Self {
        assert_eq!(starts.len(), ends.len(), "every row has a start and an end");
        assert!(
            starts.is_empty() || streams.first().is_some_and(|first| first.0 == 0),
            "row 0 has a stream"
        );
        Self {
            streams,
            starts: Arc::new(starts),
            ends,
        }
    }

    /// The streams with the rows of each, in order.
    pub fn streams(&self) -> impl Iterator<Item = (std::ops::Range<usize>, &Arc<Stream>)> {
        self.streams
            .iter()
            .enumerate()
            .map(|(index, (first, stream))| {
                let end = self
                    .streams
                    .get(index + 1)
                    .map_or(self.starts.len(), |next| next.0 as usize);
                (*first as usize..end, stream)
            })
    }

    /// The stream of a row.
    pub fn stream(&self, row: usize) -> &Arc<Stream> {
        let after = self
            .streams
            .partition_point(|(first, _)| *first as usize <= row);
        &self.streams[after - 1].1
    }

    /// Where a row starts in its stream.
    pub fn start(&self, row: usize) -> u64 {
        self.starts[row]
    }

    /// Where a row ends in its stream, its terminator included.
    pub fn end(&self, row: usize) -> u64 {
        self.ends[row]
    }

    pub(crate) fn starts(&self) -> &Arc<Vec<u64>> {
        &self.starts
    }

    pub(crate) fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// Appends the event id of a row: stream id, start and end, in hexadecimal, joined by `-`.
    pub fn write_id(&self, row: usize, out: &mut Vec<u8>) {
        use std::io::Write;
        let written = write!(
            out,
            "{:032x}-{:x}-{:x}",
            self.stream(row).id,
            self.starts[row],
            self.ends[row]
        );
        written.expect("writing to a vector does not fail");
    }

    /// A number made of the event id, evenly spread: the same for the same event in every run.
    pub fn hash(&self, row: usize) -> u64 {
        let id = self.stream(row).id;
        [
            id as u64,
            (id >> 64) as u64,
            self.starts[row],
            self.ends[row],
        ]
        .iter()
        .fold(0, |hash, part| mix(hash ^ part))
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit changes half of the output bits.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_from_stream_and_offsets() {
        let one = Arc::new(Stream { id: 7, path: None });
        let two = Arc::new(Stream {
            id: 8,
            path: Some("x.log".into()),
        });
        let origin = Origin::new(vec![(0, one), (2, two)], vec![0, 10, 0], vec![10, 20, 5]);
        let id = |row| {
            let mut out = Vec::new();
            origin.write_id(row, &mut out);
            String::from_utf8(out).expect("ids are ASCII")
        };
        assert_eq!(id(1), "00000000000000000000000000000007-a-14");
        assert_eq!(id(2), "00000000000000000000000000000008-0-5");
        assert_eq!(
            origin.streams().map(|(rows, _)| rows).collect::<Vec<_>>(),
            [0..2, 2..3]
        );
        assert_ne!(origin.hash(0), origin.hash(2));
    }
}
