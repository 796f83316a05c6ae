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

    /// What was changed or could not be read since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}
