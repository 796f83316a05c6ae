//! Where the rows of a batch came from.
//!
//! A *stream* is a file, a connection, a partition of a topic, or whatever else events come from in a sequence. Every row has a
//! start and an end in its stream: byte offsets in a file (terminators included, decompressed), sequence numbers on a
//! connection, offsets in a topic. The event id is made of the three, unless the sender gave one or the event is derived from
//! others, and never changes afterwards.

use std::fmt;
use std::sync::Arc;

use crate::fnv::fnv128;
use crate::ids::{Ids, write_place};

/// Something that events come from in a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// 128 bits that name the stream for ever.
    pub id: u128,
    /// What it is.
    pub source: Source,
}

impl Stream {
    /// A stream of this id.
    pub fn new(id: u128, source: Source) -> Self {
        Self { id, source }
    }

    /// The stream of a file.
    pub fn file(id: u128, path: impl Into<Arc<str>>) -> Self {
        let path = path.into();
        Self::new(id, Source::File { path })
    }

    /// Appends the event id that follows from a place in the stream: stream id, start and end in hexadecimal, joined by `-`.
    pub fn write_id(&self, start: u64, end: u64, out: &mut Vec<u8>) {
        write_place((self.id, start, end), out);
    }

    /// A stream of which nothing but the id is known.
    pub fn unnamed(id: u128) -> Self {
        Self::new(id, Source::Unnamed)
    }
}

/// What a stream is. Shown as people call it: a path, or the peer of a connection and where it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file, or a named pipe. Rows lie between byte offsets.
    File {
        /// Its path.
        path: Arc<str>,
    },
    /// A connection, or datagrams of one sender. Rows are numbered as they came.
    Connection {
        /// The other side, as its kind of socket shows it: `192.0.2.1:40312`, `[2001:db8::1]:514`.
        peer: Arc<str>,
        /// What accepted it: the address that was listened on.
        listener: Arc<str>,
    },
    /// One partition of a topic. A row starts at its offset and ends at the next one.
    Topic {
        /// The topic's name.
        name: Arc<str>,
        /// The partition's number.
        partition: u32,
    },
    /// Events that Millpond makes itself.
    Generated,
    /// Something without a name: standard input, and in batches stored in version 1 everything that is no file.
    Unnamed,
}

impl Source {
    /// The path of a file.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::File { path } => Some(path),
            _ => None,
        }
    }

    /// The other side of a connection.
    pub fn peer(&self) -> Option<&str> {
        match self {
            Self::Connection { peer, .. } => Some(peer),
            _ => None,
        }
    }

    /// The name of a topic.
    pub fn topic(&self) -> Option<&str> {
        match self {
            Self::Topic { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Where a connection was accepted.
    pub fn listener(&self) -> Option<&str> {
        match self {
            Self::Connection { listener, .. } => Some(listener),
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path } => f.write_str(path),
            Self::Connection { peer, listener } => write!(f, "{peer} on {listener}"),
            Self::Topic { name, partition } => write!(f, "{name}, partition {partition}"),
            Self::Generated => f.write_str("generated events"),
            Self::Unnamed => f.write_str("a source without a name"),
        }
    }
}

/// Stream, start and end of every row.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// Streams with the first row of each; ascending, the first starts at row 0.
    streams: Vec<(u32, Arc<Stream>)>,
    starts: Arc<Vec<u64>>,
    ends: Vec<u64>,
    /// Where some id does not follow from its row's place.
    ids: Option<Arc<Ids>>,
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
            ids: None,
        }
    }

    /// The same rows with ids of their own, where they have any.
    pub(crate) fn with_ids(self, ids: Option<Ids>) -> Self {
        Self {
            ids: ids.map(Arc::new),
            ..self
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

    pub(crate) fn ids(&self) -> Option<&Ids> {
        self.ids.as_deref()
    }

    /// The id of a row's stream, its start and its end.
    pub(crate) fn place(&self, row: usize) -> (u128, u64, u64) {
        (self.stream(row).id, self.starts[row], self.ends[row])
    }

    /// Whether a row's id does not follow from its place.
    pub fn has_own_id(&self, row: usize) -> bool {
        let ids = self.ids();
        ids.is_some_and(|ids| ids.base(row).is_some() || ids.part(row).is_some())
    }

    /// Appends the event id of a row: what the sender gave; of a window a hash of operator and key in hexadecimal, start and
    /// end; otherwise stream id, start and end in hexadecimal, joined by `-`. A part has its parent's id, `-` and its index in
    /// hexadecimal. It is UTF-8, and may hold anything where the sender gave it.
    pub fn write_id(&self, row: usize, out: &mut Vec<u8>) {
        use std::io::Write;
        let Some(ids) = self.ids() else {
            return write_place(self.place(row), out);
        };
        match ids.base(row) {
            Some(base) => out.extend_from_slice(base),
            None => write_place(self.place(row), out),
        }
        if let Some(part) = ids.part(row) {
            let written = write!(out, "-{part:x}");
            written.expect("writing to a vector does not fail");
        }
    }

    /// The event id of a row for messages: control characters are escaped.
    pub fn shown_id(&self, row: usize) -> String {
        let mut id = Vec::new();
        self.write_id(row, &mut id);
        let mut shown = String::with_capacity(id.len());
        for c in String::from_utf8_lossy(&id).chars() {
            match c.is_control() {
                true => shown.extend(c.escape_default()),
                false => shown.push(c),
            }
        }
        shown
    }

    /// A number made of the event id, evenly spread: the same for the same event in every run.
    pub fn hash(&self, row: usize) -> u64 {
        let ids = self.ids();
        let base = match ids.and_then(|ids| ids.base(row)) {
            Some(text) => halves(fnv128(text)).iter().fold(0, fold),
            None => {
                let (id, start, end) = self.place(row);
                let id = halves(id);
                [id[0], id[1], start, end].iter().fold(0, fold)
            }
        };
        match ids.and_then(|ids| ids.part(row)) {
            Some(part) => fold(base, &part.into()),
            None => base,
        }
    }
}

/// The lower half and the upper one.
fn halves(id: u128) -> [u64; 2] {
    [id as u64, (id >> 64) as u64]
}

fn fold(hash: u64, part: &u64) -> u64 {
    mix(hash ^ part)
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
        let one = Arc::new(Stream::unnamed(7));
        let two = Arc::new(Stream::file(8, "x.log"));
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

    #[test]
    fn sources_are_shown_as_people_call_them() {
        let connection = Source::Connection {
            peer: "192.0.2.1:40312".into(),
            listener: "0.0.0.0:514".into(),
        };
        let topic = Source::Topic {
            name: "logs".into(),
            partition: 3,
        };
        let file = Stream::file(1, "/var/log/x").source;
        let cases = [
            (&file, "/var/log/x", Some("/var/log/x"), None, None),
            (
                &connection,
                "192.0.2.1:40312 on 0.0.0.0:514",
                None,
                Some("192.0.2.1:40312"),
                Some("0.0.0.0:514"),
            ),
            (&topic, "logs, partition 3", None, None, None),
            (&Source::Generated, "generated events", None, None, None),
            (
                &Source::Unnamed,
                "a source without a name",
                None,
                None,
                None,
            ),
        ];
        for (source, shown, path, peer, listener) in cases {
            assert_eq!(source.to_string(), shown);
            assert_eq!(
                (source.path(), source.peer(), source.listener()),
                (path, peer, listener),
                "{shown}"
            );
        }
    }
}
