//! Makes batches of chunks.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Stream};

use crate::chunk::{Chunk, Chunker, Framing};
use crate::error::CodecError;
use crate::rows::Rows;

/// How the events of a stream are written.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Lines of text, JSON documents a line each, or MessagePack documents one after the other.
    pub encoding: Encoding,
    /// Bytes of a line or document at most. A longer line is cut there.
    pub record_max: usize,
    /// Whether JSON and MessagePack events get the fields that lines of text always have.
    pub add_fields: bool,
}

impl Settings {
    /// A chunker for a stream that is written so.
    pub fn chunker(&self) -> Chunker {
        let framing = if self.encoding == Encoding::MsgPack {
            Framing::MsgPack
        } else {
            Framing::Lines
        };
        Chunker::new(framing, self.record_max)
    }
}

/// What a decoder changed or could not read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that were cut, tagged `_truncated`.
    pub truncated: u64,
    /// Lines in which something that is not UTF-8 was replaced by U+FFFD.
    pub invalid_utf8: u64,
    /// Lines that hold no JSON object, tagged `_jsonparsefailure` and kept as text.
    pub broken_documents: u64,
}

/// Where a decoder first met what it changed or could not read: offsets of lines in their streams, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Firsts {
    /// The first line that was cut.
    pub truncated: Option<u64>,
    /// The first line that was not UTF-8.
    pub invalid_utf8: Option<u64>,
    /// The first line that holds no JSON object.
    pub broken_document: Option<u64>,
}

/// What some editors put before UTF-8 text. It is no part of the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The tags that a decoder gives.
#[derive(Debug)]
pub(crate) struct Tags {
    pub(crate) truncated: Arc<str>,
    pub(crate) broken_json: Arc<str>,
}

/// Makes batches of chunks.
#[derive(Debug)]
pub struct Decoder {
    encoding: Encoding,
    pub(crate) record_max: usize,
    add_fields: bool,
    host: Arc<HostInfo>,
    pub(crate) tags: Tags,
    pub(crate) counts: Counts,
    pub(crate) firsts: Firsts,
    /// How many rows the last batch had: what room the next one gets.
    rows_before: usize,
}

impl Decoder {
    /// A decoder of streams that are written as the settings say.
    pub fn new(settings: &Settings, host: &Arc<HostInfo>) -> Self {
        Self {
            encoding: settings.encoding,
            record_max: settings.record_max,
            add_fields: settings.add_fields,
            host: host.clone(),
            tags: Tags {
                truncated: "_truncated".into(),
                broken_json: "_jsonparsefailure".into(),
            },
            counts: Counts::default(),
            firsts: Firsts::default(),
            rows_before: 0,
        }
    }

    /// The next events of a chunk of `stream`; none at its end. `received` is in nanoseconds since 1970.
    ///
    /// # Errors
    /// The next document is broken in such a way that nothing behind it can be read.
    pub fn next_batch(
        &mut self,
        stream: &Arc<Stream>,
        chunk: &mut Chunk,
        received: i64,
    ) -> Result<Option<Batch>, CodecError> {
        let at_start = chunk.start == 0 && chunk.position == 0;
        let is_lines = self.encoding != Encoding::MsgPack;
        if at_start && is_lines && chunk.bytes.starts_with(BYTE_ORDER_MARK) {
            chunk.position = BYTE_ORDER_MARK.len();
        }
        while chunk.position < chunk.bytes.len() {
            let mut builder =
                BatchBuilder::new(self.encoding, &self.host, received, self.add_fields);
            builder.reserve(self.rows_before + self.rows_before / 8);
            builder.stream(stream);
            let mut rows = Rows::new(builder, &chunk.bytes);
            chunk.position = match self.encoding {
                Encoding::MsgPack => self.msgpack_documents(chunk, &mut rows)?,
                lines => {
                    chunk
                        .is_utf8
                        .get_or_insert_with(|| simdutf8::basic::from_utf8(&chunk.bytes).is_ok());
                    if lines == Encoding::Text {
                        self.text_lines(chunk, &mut rows)
                    } else {
                        self.json_lines(chunk, &mut rows)
                    }
                }
            };
            if let Some(batch) = rows.finish() {
                self.rows_before = batch.len();
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Where something was first changed or could not be read, in whatever stream it was.
    pub fn firsts(&self) -> Firsts {
        self.firsts
    }

    /// What was changed or could not be read since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}
