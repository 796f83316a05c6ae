//! Events as entries of a chunk: `[time, record]`.

use std::sync::Arc;

use batch::msgpack::{write_array_header, write_map_header, write_str};
use batch::{Batch, Bitmap, Column, FieldPath, FieldRead, MsgPackWriter, Value};
use component::Encoded;
use expr::{EventTimes, Template};

use crate::codec::ABSENT;
use crate::partition::{encode_groups, partition};

/// The tag of an event that came without one.
const TAG: &str = "millpond";

/// How events become entries.
#[derive(Debug)]
pub struct Entries {
    pub tag: Tag,
    /// Whether entries carry the ids of their events.
    pub carries_ids: bool,
}

/// The tag of events.
#[derive(Debug)]
pub enum Tag {
    /// The one that they came with.
    Kept,
    /// The text of a template.
    Text(Template),
}

/// The tags of a batch's events.
enum Tags {
    /// The same for all of them.
    Same(Arc<str>),
    /// The first of these columns that has one.
    Columns(Vec<Arc<Column>>),
}

impl Entries {
    /// The fields that the tag names.
    pub fn reads(&self) -> Vec<Arc<FieldRead>> {
        match &self.tag {
            Tag::Kept => Vec::new(),
            Tag::Text(template) => template.reads().collect(),
        }
    }

    /// Appends rows, those of each tag as a part of their own.
    pub fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let groups = match &self.tag {
            Tag::Text(template) => match template.constant() {
                Some(tag) => return self.write_tagged(tag.into(), batch, rows, encoded),
                None => {
                    let mut tag = template.bind(batch, ABSENT);
                    partition(batch, rows, |row, out| tag.write(row, out), named)
                }
            },
            Tag::Kept => match kept_tags(batch) {
                Tags::Same(tag) => return self.write_tagged(tag, batch, rows, encoded),
                Tags::Columns(columns) => {
                    let write = |row, out: &mut Vec<u8>| {
                        let value = columns.iter().map(|column| column.value(row));
                        match value.into_iter().find(is_tag) {
                            Some(tag) => tag.write_text(out),
                            None => out.extend_from_slice(TAG.as_bytes()),
                        }
                    };
                    partition(batch, rows, write, named)
                }
            },
        };
        let mut events = Events::new(batch, self.carries_ids);
        encode_groups(groups, encoded, |_, rows, encoded| {
            events.write(rows, encoded);
        });
    }

    fn write_tagged(&self, tag: Arc<str>, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        encoded.begin_part(tag);
        Events::new(batch, self.carries_ids).write(rows, encoded);
    }
}

fn named(tag: &[u8]) -> Result<Arc<str>, Arc<str>> {
    Ok(String::from_utf8_lossy(tag).into())
}

fn is_tag(value: &Value<'_>) -> bool {
    matches!(value, Value::Text(text) if !text.is_empty())
}

fn kept_tags(batch: &Batch) -> Tags {
    // Where the input `forward` leaves the tag of an event. The second field is looked for in the documents only if need be.
    let fields = [&["@metadata", "fluent", "tag"][..], &["fluent", "tag"]];
    let mut columns = Vec::new();
    for field in fields {
        let column = batch.column(&FieldPath::from_keys(field.iter().copied()));
        let cell = column.as_constant();
        match cell.map(|cell| column.value_of(cell)) {
            Some(Value::Text(tag)) if !tag.is_empty() && columns.is_empty() => {
                return Tags::Same(String::from_utf8_lossy(tag).into());
            }
            Some(Value::Missing | Value::Null) => {}
            _ => columns.push(column),
        }
    }
    match columns.is_empty() {
        true => Tags::Same(TAG.into()),
        false => Tags::Columns(columns),
    }
}

/// Writes the events of a batch.
struct Events<'a> {
    batch: &'a Batch,
    writer: MsgPackWriter<'a>,
    /// The times that the input `forward` left.
    given: EventTimes,
    /// Those of the events, which are looked for in the documents only if need be.
    times: Option<EventTimes>,
    carries_ids: bool,
    id: Vec<u8>,
}

impl<'a> Events<'a> {
    fn new(batch: &'a Batch, carries_ids: bool) -> Self {
        let given = FieldPath::from_keys(["@metadata", "fluent", "time"]);
        Self {
            batch,
            writer: MsgPackWriter::new(batch),
            given: EventTimes::in_field(batch, &given),
            times: None,
            carries_ids,
            id: Vec::new(),
        }
    }

    fn write(&mut self, rows: &Bitmap, encoded: &mut Encoded) {
        encoded.ends.reserve(rows.count());
        for row in rows.iter() {
            self.write_entry(row, &mut encoded.bytes);
            encoded.end_row(row);
        }
    }

    fn write_entry(&mut self, row: usize, out: &mut Vec<u8>) {
        write_array_header(out, 2);
        let given = self.given.own_nanos(row);
        let nanos = given.unwrap_or_else(|| {
            let times = self.times.get_or_insert_with(|| EventTimes::of(self.batch));
            times.nanos(row)
        });
        if self.carries_ids {
            write_array_header(out, 2);
            write_time(nanos, out);
            write_map_header(out, 1);
            write_str(out, b"_id");
            self.id.clear();
            self.batch.origin().write_id(row, &mut self.id);
            write_str(out, &self.id);
        } else {
            write_time(nanos, out);
        }
        self.writer.write(row, out);
    }
}

/// Appends an event time: extension 0 with seconds and nanoseconds. A time that these cannot hold, before 1970 or after 2106, is
/// written as whole seconds.
fn write_time(nanos: i64, out: &mut Vec<u8>) {
    let (seconds, rest) = (
        nanos.div_euclid(1_000_000_000),
        nanos.rem_euclid(1_000_000_000) as u32,
    );
    match u32::try_from(seconds) {
        Ok(seconds) => {
            let time = u64::from(seconds) << 32 | u64::from(rest);
            let mut extension = [0xD7, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            extension[2..].copy_from_slice(&time.to_be_bytes());
            out.extend_from_slice(&extension);
        }
        Err(_) => batch::msgpack::write_i64(out, seconds),
    }
}
