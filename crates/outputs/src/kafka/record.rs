//! An event as a record, and records in a request.
//!
//! Each row of a request is a record. All numbers are little-endian; lengths are in bytes:
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | length of the key; [`NONE`] where there is none |
//! | 4 | length of the headers |
//! | 4 | length of the value |
//! | 4 | partition; −1 where librdkafka chooses it |
//! | 8 | time in milliseconds since 1970; 0 for that of sending |
//! | | the key |
//! | | the headers, in the order of the names in the settings: 4 bytes length ([`NONE`] where an event has no such header) and the text of each |
//! | | the value |

use std::sync::Arc;

use batch::{Batch, Bitmap, Column, FieldPath, FieldRead, Value};
use component::{Encoded, RowAnswer};
use config::{ConfigError, Node};
use expr::{Absent, EventTimes, Template};

use super::settings::KafkaSettings;
use crate::codec::{Codec, CodecName, template};

/// The length of what is not there.
const NONE: u32 = u32::MAX;

/// The bytes of a record before its key.
const HEAD_BYTES: usize = 24;

/// The header with the id of an event.
const ID_HEADER: &str = "event_id";

/// How events are rendered.
#[derive(Debug)]
pub struct RecordFormat {
    codec: Codec,
    key: Option<Template>,
    partition: Option<FieldPath>,
    timestamp: Option<FieldPath>,
    headers: Vec<(String, Template)>,
    carries_ids: bool,
}

impl RecordFormat {
    /// What the settings of an output say. `node` holds all of them.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub fn new(settings: &KafkaSettings, node: &Node) -> Result<Self, ConfigError> {
        let own = &settings.own;
        let key = own.key.as_deref();
        let key = key.map(|text| template(node, node.nearest("key"), text));
        let field = |name: &str, text: &Option<String>| {
            let text = text.as_deref();
            let field = text.map(|text| component::field(node, name, text));
            field.transpose()
        };
        let at = node.nearest("headers");
        let header = |(name, text): (&String, &String)| {
            let at = at.get(name).unwrap_or(at);
            Ok((name.clone(), template(node, at, text)?))
        };
        Ok(Self {
            codec: settings.codec.codec(node, CodecName::Json)?,
            key: key.transpose()?,
            partition: field("partition", &own.partition)?,
            timestamp: field("timestamp", &own.timestamp)?,
            headers: own.headers.iter().map(header).collect::<Result<_, _>>()?,
            carries_ids: own.event_ids,
        })
    }

    /// The names of headers, in the order of their texts in a record.
    pub fn header_names(&self) -> Vec<String> {
        let names = self.headers.iter().map(|(name, _)| name.clone());
        let id = self.carries_ids.then(|| ID_HEADER.to_owned());
        names.chain(id).collect()
    }

    /// The fields that its templates name.
    pub fn reads(&self) -> Vec<Arc<FieldRead>> {
        let headers = self.headers.iter().map(|(_, text)| text);
        let templates = self.key.iter().chain(headers);
        let mut reads = self.codec.reads();
        reads.extend(templates.flat_map(Template::reads));
        reads
    }

    /// Appends rows, and says where each ends.
    pub fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        encoded.ends.reserve(rows.count());
        let mut codec = self.codec.bind(batch);
        let mut key = self.key.as_ref().map(|key| key.bind(batch, NOTHING));
        let partitions = self.partition.as_ref().map(|path| batch.column(path));
        let times = self.timestamp.as_ref();
        let times = times.map(|path| EventTimes::in_field(batch, path));
        let headers = self.headers.iter();
        let mut headers: Vec<_> = headers.map(|(_, text)| text.bind(batch, NOTHING)).collect();
        for row in rows.iter() {
            let partition = match partition(partitions.as_deref(), row) {
                Ok(partition) => partition,
                Err(reason) => {
                    let reason = reason.into();
                    encoded.refused.push(RowAnswer { row, reason });
                    continue;
                }
            };
            let nanos = times.as_ref().and_then(|times| times.own_nanos(row));
            let out = &mut encoded.bytes;
            let start = out.len();
            out.extend_from_slice(&[0; HEAD_BYTES]);
            let mut key_len = NONE;
            if let Some(key) = key.as_mut().filter(|key| key.is_given(row)) {
                key.write(row, out);
                key_len = (out.len() - start - HEAD_BYTES) as u32;
            }
            let headers_start = out.len();
            for header in &mut headers {
                write_header(out, |out| header.write(row, out));
            }
            if self.carries_ids {
                write_header(out, |out| batch.origin().write_id(row, out));
            }
            let value_start = out.len();
            codec.write(row, out);
            let head = Head {
                key_len,
                headers_len: (value_start - headers_start) as u32,
                value_len: (out.len() - value_start) as u32,
                partition,
                millis: nanos.map_or(0, |nanos| nanos / 1_000_000),
            };
            head.write(&mut out[start..start + HEAD_BYTES]);
            encoded.end_row(row);
        }
    }
}

/// What an absent field gives.
const NOTHING: Absent = Absent::Text("");

/// The partition that a row asks for; −1 where it asks for none.
fn partition(column: Option<&Column>, row: usize) -> Result<i32, String> {
    let number = match column.map_or(Value::Missing, |column| column.value(row)) {
        Value::Missing | Value::Null => return Ok(-1),
        Value::Int(number) => i32::try_from(number).ok(),
        value => {
            let mut text = Vec::new();
            value.write_text(&mut text);
            let text = std::str::from_utf8(&text).ok();
            text.and_then(|text| text.parse::<i32>().ok())
        }
    };
    number.filter(|number| *number >= 0).ok_or_else(|| {
        "the field in `partition` does not hold the number of a partition".to_owned()
    })
}

/// Appends a header, whose text `write` gives.
fn write_header(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&NONE.to_le_bytes());
    write(out);
    let len = (out.len() - start - 4) as u32;
    if len > 0 {
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }
}

/// What stands before the texts of a record.
struct Head {
    key_len: u32,
    headers_len: u32,
    value_len: u32,
    partition: i32,
    millis: i64,
}

impl Head {
    fn write(&self, out: &mut [u8]) {
        out[0..4].copy_from_slice(&self.key_len.to_le_bytes());
        out[4..8].copy_from_slice(&self.headers_len.to_le_bytes());
        out[8..12].copy_from_slice(&self.value_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.partition.to_le_bytes());
        out[16..24].copy_from_slice(&self.millis.to_le_bytes());
    }
}

/// A record of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// None where librdkafka chooses it.
    pub partition: Option<i32>,
    /// In milliseconds since 1970; none for the time of sending.
    pub millis: Option<i64>,
    pub key: Option<&'a [u8]>,
    headers: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> Record<'a> {
    /// The texts of its headers, in the order of [`RecordFormat::header_names`].
    pub fn headers(&self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let mut rest = self.headers;
        std::iter::from_fn(move || {
            let (len, behind) = rest.split_first_chunk::<4>()?;
            let len = u32::from_le_bytes(*len);
            let Some((text, behind)) = behind.split_at_checked(len as usize) else {
                rest = behind;
                return Some(None);
            };
            rest = behind;
            Some(Some(text))
        })
    }
}

/// The records in the body of a request.
pub fn records(mut body: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let (head, rest) = body.split_first_chunk::<HEAD_BYTES>()?;
        let number = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_le_bytes(bytes)
        };
        let key_len = number(0);
        let (key, rest) = match key_len {
            NONE => (None, rest),
            len => {
                let (key, rest) = rest.split_at_checked(len as usize)?;
                (Some(key), rest)
            }
        };
        let (headers, rest) = rest.split_at_checked(number(4) as usize)?;
        let (value, rest) = rest.split_at_checked(number(8) as usize)?;
        body = rest;
        let partition = number(12).cast_signed();
        let millis = (u64::from(number(16)) | u64::from(number(20)) << 32).cast_signed();
        Some(Record {
            partition: (partition >= 0).then_some(partition),
            millis: (millis != 0).then_some(millis),
            key,
            headers,
            value,
        })
    })
}
