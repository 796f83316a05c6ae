//! MessagePack documents, one after the other.
//!
//! Maps carry no mark at their start, so after a broken one nothing can be found: the stream ends there with an error.

use batch::msgpack::{MsgPackError, MsgPackErrorKind, normalise, validate_map, value_len};

use crate::chunk::Chunk;
use crate::decoder::Decoder;
use crate::error::CodecError;
use crate::rows::{Rows, StreamSpan};
use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

impl Decoder {
    /// Adds the documents of the chunk, as many as a batch takes, up to the first one that is broken.
    ///
    /// # Errors
    /// The first document is broken.
    pub(crate) fn msgpack_documents(
        &mut self,
        chunk: &Chunk,
        rows: &mut Rows<'_>,
    ) -> Result<usize, CodecError> {
        let mut position = chunk.position;
        while position < chunk.bytes.len() {
            match self.msgpack_document(chunk, position, rows) {
                Ok(len) => position += len,
                Err(error) if position == chunk.position => return Err(error),
                Err(_) => break,
            }
            if rows.builder.len() == BATCH_EVENTS_MAX
                || position - chunk.position >= BATCH_BYTES_MAX
            {
                break;
            }
        }
        Ok(position)
    }

    /// Adds the document at `position`; gives its length.
    fn msgpack_document(
        &self,
        chunk: &Chunk,
        position: usize,
        rows: &mut Rows<'_>,
    ) -> Result<usize, CodecError> {
        let start = chunk.start + position as u64;
        let refused = |error: MsgPackError, base: u64| CodecError::MsgPack {
            offset: base + error.offset as u64,
            reason: error.kind.to_string(),
        };
        let left = chunk.bytes.len() - position;
        let len = match value_len(&chunk.bytes, position) {
            Ok(len) if len <= self.record_max => len,
            Err(error) if error.kind != MsgPackErrorKind::Truncated || left <= self.record_max => {
                return Err(refused(error, chunk.start));
            }
            _ => {
                return Err(CodecError::MsgPackTooLarge {
                    offset: start,
                    bytes_max: self.record_max,
                });
            }
        };
        let document = &chunk.bytes[position..position + len];
        let scan = validate_map(document).map_err(|error| refused(error, start))?;
        if scan.dotted_keys {
            rows.builder.dotted_keys();
        }
        let place = StreamSpan {
            start,
            end: start + len as u64,
        };
        if scan.rewrite {
            rows.push_written(place, |out| normalise(document, out));
        } else {
            rows.push(position, len, place);
        }
        Ok(len)
    }
}
