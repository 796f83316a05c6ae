//! Makes batches of chunks.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, MembersWanted, Stream};

use crate::charset;
use crate::chunk::Chunk;
use crate::csv::Csv;
use crate::error::CodecError;
use crate::filter::{Dropped, Drops, Filter};
use crate::rows::{Origins, Rows, StreamSpan};
use crate::settings::Settings;
use crate::syslog::Syslog;

/// What a decoder changed or could not read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that were cut, or of which lines were left out, tagged `_truncated`.
    pub truncated: u64,
    /// Lines in which something that is not UTF-8 was replaced by U+FFFD.
    pub invalid_utf8: u64,
    /// Lines that hold no JSON object, tagged `_jsonparsefailure` and kept as text.
    pub broken_documents: u64,
    /// Lines in a container log that are none of a container, tagged `_containerparsefailure` and kept as text.
    pub broken_containers: u64,
    /// Lines that are no syslog message, tagged `_syslogparsefailure` and kept as text.
    pub broken_syslog: u64,
    /// Rows that do not fit their header, tagged `_csvparsefailure` and kept as text.
    pub broken_rows: u64,
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
    /// The first line that is none of a container.
    pub broken_container: Option<u64>,
    /// The first line that is not a syslog message.
    pub broken_syslog: Option<u64>,
    /// The first row that does not fit its header.
    pub broken_row: Option<u64>,
}

/// The tags that a decoder gives.
#[derive(Debug)]
pub(crate) struct Tags {
    pub(crate) truncated: Arc<str>,
    pub(crate) broken_json: Arc<str>,
    pub(crate) broken_container: Arc<str>,
}

/// Makes batches of chunks.
#[derive(Debug)]
pub struct Decoder {
    pub(crate) encoding: Encoding,
    pub(crate) record_max: usize,
    add_fields: bool,
    pub(crate) filter: Option<Filter>,
    syslog: Option<Syslog>,
    csv: Option<Csv>,
    host: Arc<HostInfo>,
    members: MembersWanted,
    pub(crate) tags: Tags,
    pub(crate) counts: Counts,
    pub(crate) firsts: Firsts,
    pub(crate) dropped: Drops,
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
            filter: Filter::new(
                settings.include_lines.as_ref(),
                settings.exclude_lines.as_ref(),
            ),
            syslog: settings.syslog.clone(),
            csv: settings.csv.clone(),
            host: host.clone(),
            members: settings.members.clone(),
            tags: Tags {
                truncated: "_truncated".into(),
                broken_json: "_jsonparsefailure".into(),
                broken_container: "_containerparsefailure".into(),
            },
            counts: Counts::default(),
            firsts: Firsts::default(),
            dropped: Drops::default(),
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
        if chunk.position == 0 && self.encoding != Encoding::MsgPack {
            self.begin(chunk);
        }
        while chunk.position < chunk.positions() {
            let mut builder =
                BatchBuilder::new(self.encoding, &self.host, received, self.add_fields);
            builder.reserve(self.rows_before + self.rows_before / 8);
            let origins = self.add_rows(stream, chunk, &mut builder)?;
            if !builder.is_empty() {
                let mut batch = builder.finish();
                origins.set(&mut batch);
                self.rows_before = batch.len();
                if let Some(syslog) = &self.syslog {
                    let counts = syslog.apply(&mut batch);
                    self.counts.broken_syslog += counts.failures;
                    self.firsts.broken_syslog = self.firsts.broken_syslog.or(counts.first_failure);
                }
                if let Some(csv) = &self.csv {
                    let header = chunk.header.as_ref().and_then(|slot| slot.get()?.as_ref());
                    let counts = csv.apply(&mut batch, header, self.add_fields);
                    self.counts.broken_rows += counts.failures;
                    self.firsts.broken_row = self.firsts.broken_row.or(counts.first_failure);
                }
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Adds the next events of a chunk of `stream` to a batch of the same encoding that is not full yet, as many as it takes;
    /// whether there are more. Where the streams have syslog messages, [`Self::completion`] is for the whole batch. Not for
    /// containers and CSV.
    ///
    /// # Errors
    /// The next document is broken in such a way that nothing behind it can be read.
    pub fn add(
        &mut self,
        stream: &Arc<Stream>,
        chunk: &mut Chunk,
        builder: &mut BatchBuilder,
    ) -> Result<bool, CodecError> {
        if chunk.position == 0 && self.encoding != Encoding::MsgPack {
            self.begin(chunk);
        }
        if chunk.position < chunk.positions() {
            let origins = self.add_rows(stream, chunk, builder)?;
            debug_assert!(origins.is_empty(), "no streams of containers");
        }
        Ok(chunk.position < chunk.positions())
    }

    /// How events are written in batches.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// What remains to be done to a batch whose events [`Self::add`] added.
    pub fn completion(&self) -> Option<Syslog> {
        self.syslog.clone()
    }

    /// Adds the next rows of a chunk to a batch.
    fn add_rows(
        &mut self,
        stream: &Arc<Stream>,
        chunk: &mut Chunk,
        builder: &mut BatchBuilder,
    ) -> Result<Origins, CodecError> {
        builder.stream(stream);
        builder.note_members(&self.members);
        let mut rows = Rows::new(builder, chunk);
        match self.add_records(chunk, &mut rows) {
            Ok(position) => chunk.position = position,
            Err(error) => {
                let left = (chunk.bytes.len() - chunk.position) as u64;
                self.dropped.add("unreadable", 0, left);
                chunk.position = chunk.positions();
                return Err(error);
            }
        }
        Ok(rows.finish())
    }

    /// Whether a record is no row of CSV, because it is blank or the header of its stream; drops it then.
    pub(crate) fn is_no_row(&mut self, chunk: &Chunk, text: &[u8], place: StreamSpan) -> bool {
        let Some(csv) = &self.csv else { return false };
        if text.trim_ascii().is_empty() {
            self.dropped.add("blank", 1, place.bytes());
            return true;
        }
        let Some(slot) = chunk.header.as_ref().filter(|slot| slot.get().is_none()) else {
            return false;
        };
        let header = csv.header(text).map(Arc::new);
        let is_header = header.is_some();
        // Whoever decodes the chunks of a stream does so in order.
        let _ = slot.set(header);
        if is_header {
            self.dropped.add("header", 1, place.bytes());
        }
        is_header
    }

    /// Passes over a byte order mark, and checks the whole chunk for UTF-8.
    fn begin(&mut self, chunk: &mut Chunk) {
        let side_is_utf8 = match &mut chunk.records {
            Some(records) => {
                let mark = std::mem::take(&mut records.blank);
                self.drop_mark(mark);
                simdutf8::basic::from_utf8(&records.side).is_ok()
            }
            None => {
                if chunk.start == 0 {
                    chunk.position = charset::mark_len(&chunk.bytes, chunk.format.charset);
                    self.drop_mark(chunk.position as u64);
                }
                true
            }
        };
        // What has to be decoded is UTF-8 afterwards.
        chunk.is_utf8 = Some(
            side_is_utf8
                && (chunk.records.is_none() && chunk.format.charset.is_some()
                    || simdutf8::basic::from_utf8(&chunk.bytes).is_ok()),
        );
    }

    fn drop_mark(&mut self, bytes: u64) {
        if bytes > 0 {
            self.dropped.add("blank", 0, bytes);
        }
    }

    /// Adds as many records as a batch takes; gives the position behind them.
    fn add_records(&mut self, chunk: &Chunk, rows: &mut Rows<'_>) -> Result<usize, CodecError> {
        let is_simple =
            self.filter.is_none() && chunk.records.is_none() && chunk.format.charset.is_none();
        let terminator = chunk.format.terminator.byte().filter(|_| is_simple);
        Ok(match (self.encoding, terminator) {
            (Encoding::MsgPack, _) => self.msgpack_documents(chunk, rows)?,
            (Encoding::Text, Some(terminator)) => self.text_lines(chunk, terminator, rows),
            (Encoding::Json, Some(terminator)) => self.json_lines(chunk, terminator, rows),
            (_, None) => self.records(chunk, rows),
        })
    }

    /// Where something was first changed or could not be read since the last call.
    pub fn take_firsts(&mut self) -> Firsts {
        std::mem::take(&mut self.firsts)
    }

    /// What was changed or could not be read since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// What became no event since the last call. For every chunk, the bytes of its rows and these are together
    /// [`Chunk::source_bytes`].
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        self.dropped.take()
    }
}
