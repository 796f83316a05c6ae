//! Times, tags and metadata of events as their fields, laid over the records, which stay as they came.

use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath};
use bytes::Bytes;
use codec::BATCH_EVENTS_MAX;
use codec::forward::EventTime;

/// The tag of events that cannot have the fields.
const TAG: &str = "_fluenttagfailure";

/// The tag of events whose time is none.
const TIME_TAG: &str = "_fluenttimefailure";

/// What is known of the events of messages with the same tag, beside their records.
pub(super) struct Mark {
    tag: Bytes,
    add_fields: bool,
    /// Some record may have a key of the fields: one of [`keys`].
    has_key: bool,
    /// How many events may come.
    count: usize,
    /// Many clients send messages of one event, which take no list.
    first: EventTime,
    others: Vec<EventTime>,
    added: usize,
    /// The metadata of events that have some, by their number: views into their messages.
    metadata: Vec<(usize, Bytes)>,
}

impl Mark {
    /// For the events of a message, `count` at most, and of those behind it with the same tag.
    pub(super) fn new(tag: Bytes, add_fields: bool, count: usize) -> Self {
        Self {
            tag,
            add_fields,
            has_key: false,
            count,
            first: EventTime::Absent,
            others: Vec::new(),
            added: 0,
            metadata: Vec::new(),
        }
    }

    /// Whether it is one of messages with this tag.
    pub(super) fn is_of(&self, tag: &[u8]) -> bool {
        self.tag == tag
    }

    /// Says whether some record may have one of the keys of [`keys`].
    pub(super) fn may_have_key(&mut self, has_key: bool) {
        self.has_key |= has_key;
    }

    /// Adds an event.
    #[inline]
    pub(super) fn add(&mut self, time: EventTime, metadata: Option<Bytes>) {
        if let Some(metadata) = metadata {
            self.metadata.push((self.added, metadata));
        }
        match self.added {
            0 => self.first = time,
            1 => {
                self.others.reserve(self.count.min(BATCH_EVENTS_MAX));
                self.others.push(time);
            }
            _ => self.others.push(time),
        }
        self.added += 1;
    }

    fn times(&self) -> impl Iterator<Item = EventTime> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// The keys with which a record may have a field of this setting, or something in its place.
pub(super) fn keys(add_fields: bool) -> &'static [&'static str] {
    match add_fields {
        true => &["@timestamp", "fluent", "fluent.tag", "fluent.metadata"],
        false => &[
            "@metadata",
            "@metadata.fluent",
            "@metadata.fluent.time",
            "@metadata.fluent.tag",
            "@metadata.fluent.metadata",
        ],
    }
}

/// The fields of a setting.
struct Paths {
    time: FieldPath,
    tag: FieldPath,
    metadata: FieldPath,
}

impl Paths {
    fn new(add_fields: bool) -> Self {
        let hidden = |name: &str| FieldPath::from_keys(["@metadata", "fluent", name]);
        let shown = |name: &str| FieldPath::from_keys(["fluent", name]);
        match add_fields {
            true => Self {
                time: FieldPath::from_keys(["@timestamp"]),
                tag: shown("tag"),
                metadata: shown("metadata"),
            },
            false => Self {
                time: hidden("time"),
                tag: hidden("tag"),
                metadata: hidden("metadata"),
            },
        }
    }
}

/// Sets the fields of a batch whose rows come from these messages. A record keeps its own, but for hidden ones. Rows in which they have no place, because `fluent` is no
/// object there, are tagged, and so are rows whose time is none, which have the time of their receipt.
pub(super) fn set(batch: &mut Batch, messages: &[(Range<usize>, Mark)]) {
    let add_fields = messages.first().is_none_or(|(_, mark)| mark.add_fields);
    let paths = Paths::new(add_fields);
    let mut failures = Failures::none();
    let times = times(batch, messages, &mut failures);
    let tags = tags(batch.len(), messages);
    let mut edit = Edit::new();
    if messages.iter().any(|(_, mark)| mark.has_key) {
        let mut edit_time = Edit::new();
        let times = without_present(batch, times, &paths.time);
        edit_time.set(paths.time, times);
        // A record is an object: nothing is in the way.
        batch.apply(edit_time);
        let tags = match add_fields {
            true => without_present(batch, tags, &paths.tag),
            false => tags,
        };
        edit.set(paths.tag, tags);
    } else {
        batch.set_new(&paths.time, times);
        batch.set_new(&paths.tag, tags);
    }
    if let Some(mut metadata) = metadata(batch.len(), messages) {
        if add_fields {
            metadata = without_present(batch, metadata, &paths.metadata);
        }
        edit.set(paths.metadata, metadata).dotted_keys();
    }
    failures.extend_refused(batch.apply(edit), &TAG.into());
    batch.mark_failed(&failures, false);
}

fn times(batch: &Batch, messages: &[(Range<usize>, Mark)], failures: &mut Failures) -> Column {
    let mut cells = Vec::with_capacity(batch.len());
    for (rows, mark) in messages {
        for (row, time) in rows.clone().zip(mark.times()) {
            let nanos = match time {
                EventTime::At(nanos) => nanos,
                EventTime::Absent => batch.received(),
                EventTime::BeyondRange(seconds) => {
                    let reason = format!(
                        "{seconds} seconds are no time between 1678 and 2262; the event has the time of its receipt"
                    );
                    failures.push(row, &TIME_TAG.into(), &reason.into());
                    batch.received()
                }
                EventTime::Invalid => {
                    let reason =
                        "the event came with an invalid time, and has the time of its receipt";
                    failures.push(row, &TIME_TAG.into(), &reason.into());
                    batch.received()
                }
            };
            cells.push(Cell::Time(nanos));
        }
    }
    Column::new(cells, Arc::new([]))
}

/// The same values without those of rows that have the field.
fn without_present(batch: &Batch, values: Column, path: &FieldPath) -> Column {
    let present = batch.column(path);
    let is_absent = |row: &usize| present.cell(*row).is_absent();
    if (0..values.len()).all(|row| is_absent(&row)) {
        return values;
    }
    let cell = |row| match is_absent(&row) {
        true => values.cell(row),
        false => Cell::Keep,
    };
    let cells = (0..values.len()).map(cell).collect();
    Column::new(cells, values.buffers().clone())
}

fn tags(len: usize, messages: &[(Range<usize>, Mark)]) -> Column {
    let first = messages.first().map_or(&b""[..], |(_, mark)| &mark.tag);
    if messages.iter().all(|(_, mark)| mark.tag == first) {
        let tag = String::from_utf8_lossy(first);
        return Column::constant_text(tag.as_bytes(), len);
    }
    let mut column = ColumnBuilder::new(len);
    let mut last: Option<(&Bytes, Cell)> = None;
    for (rows, mark) in messages {
        let cell = match last {
            Some((tag, cell)) if *tag == mark.tag => cell,
            _ => {
                let tag = String::from_utf8_lossy(&mark.tag);
                Cell::Text(column.append(|out| out.extend_from_slice(tag.as_bytes())))
            }
        };
        last = Some((&mark.tag, cell));
        rows.clone().for_each(|row| column.set(row, cell));
    }
    column.finish()
}

/// The metadata of events, if any has some.
fn metadata(len: usize, messages: &[(Range<usize>, Mark)]) -> Option<Column> {
    if messages.iter().all(|(_, mark)| mark.metadata.is_empty()) {
        return None;
    }
    let mut column = ColumnBuilder::new(len);
    for (rows, mark) in messages {
        for (number, metadata) in &mark.metadata {
            let span = column.append(|out| out.extend_from_slice(metadata));
            column.set(rows.start + number, Cell::MsgPack(span));
        }
    }
    Some(column.finish())
}

#[cfg(test)]
mod tests {
    use batch::json::DEPTH_MAX;
    use batch::msgpack::{Checks, from_json, normalise};
    use batch::{BatchBuilder, Encoding, HostInfo, JsonWriter, MsgPackWriter, Span, Stream, Value};

    use super::*;

    const RECEIVED: i64 = 1_431_857_103_000_000_000;

    fn packed(json: &str) -> Vec<u8> {
        let mut out = Vec::new();
        from_json(json.as_bytes(), &mut out);
        out
    }

    /// The tag of a message, and the times and metadata of its events.
    type Sent<'m> = (&'static [u8], &'m [(EventTime, Option<&'m str>)]);

    /// A batch of these records, and of messages of these tags with these times and metadata.
    fn batch(records: &[&str], messages: &[Sent<'_>], add_fields: bool) -> Batch {
        batch_by(records, messages, add_fields, false)
    }

    /// As [`batch`]; with `looks`, fields are looked up whether records may have them or not.
    fn batch_by(records: &[&str], messages: &[Sent<'_>], add_fields: bool, looks: bool) -> Batch {
        let checks = Checks::new(DEPTH_MAX, keys(add_fields).iter().copied());
        let check = |record: &&str| checks.map_at(&packed(record), 0).expect("a map");
        let host = Arc::new(HostInfo { name: "h".into() });
        let mut builder = BatchBuilder::new(Encoding::MsgPack, &host, RECEIVED, false);
        builder.stream(&Arc::new(Stream::unnamed(1)));
        for (place, record) in (0..).zip(records) {
            if check(record).scan.dotted_keys {
                builder.dotted_keys();
            }
            let document = packed(record);
            let len = document.len() as u32;
            let buffer = builder.buffer(document.into());
            let start = 0;
            builder.push(Span { buffer, start, len }, place, place + 1);
        }
        let mut marks = Vec::new();
        let mut row = 0;
        for (tag, events) in messages {
            let tag = Bytes::from_static(tag);
            let mut mark = Mark::new(tag, add_fields, events.len());
            let mut mine = records[row..row + events.len()].iter();
            mark.may_have_key(looks || mine.any(|record| check(record).has_key));
            for (time, metadata) in *events {
                let metadata = metadata.map(|json| packed(json).into());
                mark.add(*time, metadata);
            }
            marks.push((row..row + events.len(), mark));
            row += events.len();
        }
        let mut batch = builder.finish();
        set(&mut batch, &marks);
        batch
    }

    fn json(batch: &Batch) -> Vec<String> {
        let row = |row| {
            let mut out = Vec::new();
            JsonWriter::new(batch).write(row, &mut out);
            String::from_utf8(out).expect("JSON is UTF-8")
        };
        (0..batch.len()).map(row).collect()
    }

    const AT: EventTime = EventTime::At(1_000_000_005);

    #[test]
    fn events_get_their_time_tag_and_metadata() {
        let batch = batch(
            &[
                r#"{"a":1}"#,
                r#"{"@timestamp":"own","b":2}"#,
                r#"{"c":3}"#,
                r#"{"fluent":5}"#,
                "{}",
            ],
            &[
                (b"one", &[(AT, None), (AT, Some(r#"{"k.l":1}"#))]),
                (b"two", &[(EventTime::BeyondRange(1 << 60), None)]),
                (
                    b"\xFFx",
                    &[(EventTime::Absent, None), (EventTime::Invalid, None)],
                ),
            ],
            true,
        );
        let expected = [
            r#"{"a":1,"@timestamp":"1970-01-01T00:00:01.000000005Z","fluent":{"tag":"one"}}"#,
            r#"{"@timestamp":"own","b":2,"fluent":{"tag":"one","metadata":{"k.l":1}}}"#,
            r#"{"c":3,"@timestamp":"2015-05-17T10:05:03.000Z","fluent":{"tag":"two"},"tags":["_fluenttimefailure"],"error":{"message":"1152921504606846976 seconds are no time between 1678 and 2262; the event has the time of its receipt"}}"#,
            r#"{"fluent":5,"@timestamp":"2015-05-17T10:05:03.000Z","tags":["_fluenttagfailure"],"error":{"message":"cannot write fluent.tag: there is a value above it that is not an object"}}"#,
            "{\"@timestamp\":\"2015-05-17T10:05:03.000Z\",\"fluent\":{\"tag\":\"\u{fffd}x\"},\"tags\":[\"_fluenttimefailure\"],\"error\":{\"message\":\"the event came with an invalid time, and has the time of its receipt\"}}",
        ];
        assert_eq!(json(&batch), expected);
        let key = batch.column(&FieldPath::parse("fluent.metadata.k.l").expect("a path"));
        assert_eq!(key.value(1), Value::Int(1), "keys with dots are found");
    }

    #[test]
    fn a_record_keeps_its_own_fields() {
        let metadata = Some(r#"{"k":1}"#);
        let records = [
            r#"{"fluent":{"tag":"own","metadata":2}}"#,
            r#"{"fluent.tag":"own"}"#,
            r#"{"fluent":{"a":1}}"#,
        ];
        let events = [(AT, metadata), (AT, metadata), (AT, None)];
        let batch = batch(&records, &[(b"one", &events)], true);
        let tag = batch.column(&FieldPath::from_keys(["fluent", "tag"]));
        let tags = [0, 1, 2].map(|row| {
            let mut out = Vec::new();
            tag.value(row).write_text(&mut out);
            String::from_utf8(out).expect("text")
        });
        assert_eq!(tags, ["own", "own", "one"]);
        let metadata = batch.column(&FieldPath::from_keys(["fluent", "metadata"]));
        assert_eq!(metadata.value(0), Value::Int(2));
        assert!(metadata.cell(2).is_absent());
    }

    #[test]
    fn records_that_have_none_of_the_keys_get_the_same_fields() {
        for record in [
            r#"{"a":{"fluent":1,"@timestamp":2},"b.c":{"d.e":3}}"#,
            r#"{"@timestamp":null,"fluent":{"tag":"own","a":1}}"#,
            r#"{"fluent.tag":"own","fluent":{}}"#,
            r#"{"fluent.metadata":7,"x":1}"#,
            r#"{"@metadata":3}"#,
            r#"{"@metadata.fluent":{"tag":1}}"#,
            r#"{"@metadata":{"fluent.tag":1,"other":2}}"#,
            r#"{"@metadata.fluent.time":1,"@metadata.fluent.tag":2,"@metadata.fluent.metadata":3}"#,
        ] {
            for add_fields in [true, false] {
                let metadata = Some(r#"{"k":{"l.m":1}}"#);
                let records = ["{}", record, record];
                let messages: [Sent<'_>; 2] = [
                    (b"one", &[(AT, None), (AT, None)]),
                    (b"two", &[(EventTime::Absent, metadata)]),
                ];
                let [quick, slow] = [false, true].map(|looks| {
                    let batch = batch_by(&records, &messages, add_fields, looks);
                    let hidden = batch.column(&FieldPath::from_keys(["@metadata", "fluent"]));
                    let mut fields = Vec::new();
                    (0..batch.len()).for_each(|row| hidden.value(row).write_json(&mut fields));
                    (json(&batch), String::from_utf8(fields).expect("UTF-8"))
                });
                assert_eq!(quick, slow, "{record}, {add_fields}");
            }
        }
    }

    #[test]
    fn without_fields_records_leave_as_they_came() {
        let (records, events) = (
            [r#"{"a":[1,{"b":null}]}"#, "{}"],
            [(AT, None), (AT, Some(r#"{"k":1}"#))],
        );
        let batch = batch(&records, &[(b"one", &events)], false);
        for (row, record) in records.iter().enumerate() {
            let mut out = Vec::new();
            MsgPackWriter::new(&batch).write(row, &mut out);
            assert_eq!(out, packed(record));
        }
        assert_eq!(json(&batch), records);
        let read = |name: &str| {
            let column = batch.column(&FieldPath::parse(name).expect("a path"));
            let mut out = Vec::new();
            column.value(1).write_text(&mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(read("@metadata.fluent.tag"), "one");
        assert_eq!(
            read("@metadata.fluent.time"),
            "1970-01-01T00:00:01.000000005Z"
        );
        assert_eq!(read("@metadata.fluent.metadata.k"), "1");
        let mut normal = Vec::new();
        normalise(&packed(records[0]), &mut normal);
        assert_eq!(normal, packed(records[0]), "the records are in normal form");
    }
}
