//! Freezing and thawing: a batch comes back equal in every respect, the same bytes come out of it again, and no damage
//! does more than fail.

use std::sync::Arc;

use batch::{
    Batch, BatchBuilder, Bitmap, Cell, Column, ColumnBuilder, Edit, Encoding, Failures, FieldPath,
    Frozen, HostInfo, JsonWriter, MsgPackWriter, Origin, Source, Span, Stream, Value, Window,
    WireError, msgpack,
};
use bytes::Bytes;
use proptest::prelude::*;

const KEYS: [&str; 5] = ["a", "b", "c", "a.b", "tags"];
const PATHS: [&[&str]; 16] = [
    &["a"],
    &["b"],
    &["c"],
    &["a", "b"],
    &["a", "c", "b"],
    &["a.b"],
    &["tags"],
    &["message"],
    &["error", "message"],
    &["host", "name"],
    &["log", "offset"],
    &["@timestamp"],
    &["@metadata", "id"],
    &["@metadata", "log", "file", "path"],
    &["@metadata", "log", "source", "address"],
    &["@metadata", "topic", "partition"],
];

/// One event of a batch.
#[derive(Clone, Debug)]
struct Row {
    text: String,
    object: serde_json::Value,
    /// In a batch of documents, this event is text all the same.
    is_text: bool,
    buffer: usize,
    /// Bytes that lie unused before it; where there are none, it lies where another event's text lies.
    before: Option<usize>,
    stream: usize,
    /// Where it starts after the row before, and its length there.
    place: (i64, u64),
    tag: Option<bool>,
    id: Option<Id>,
}

/// An id that does not follow from the row's place.
#[derive(Clone, Copy, Debug)]
enum Id {
    /// The row's text or document, as if its sender gave it.
    Sent,
    /// Of a part of the event at this place, which may be the row's own.
    Part(bool, u32),
    Window(i64),
}

#[derive(Clone, Debug)]
struct Recipe {
    encoding: Encoding,
    add_fields: bool,
    received: i64,
    rows: Vec<Row>,
    ops: Vec<Op>,
}

#[derive(Clone, Debug)]
enum Op {
    Set(FieldPath, Vec<Data>),
    Constant(FieldPath, Data),
    Merge(Option<FieldPath>, Vec<Option<String>>),
    Remove(FieldPath, u64),
    Drop(u64, bool),
    Seal(u64),
    Fail(u64),
    /// Writes a part of each message: spans into the documents' buffers.
    Capture(FieldPath, usize),
}

/// A cell of any kind.
#[derive(Clone, Debug)]
enum Data {
    Plain(Cell),
    Text(String),
    Number(String),
    Json(String),
    MsgPack(String),
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        Just(Data::Plain(Cell::Keep)),
        Just(Data::Plain(Cell::Missing)),
        Just(Data::Plain(Cell::Null)),
        any::<bool>().prop_map(|value| Data::Plain(Cell::Bool(value))),
        any::<i64>().prop_map(|n| Data::Plain(Cell::Int(n))),
        any::<u64>().prop_map(|n| Data::Plain(Cell::UInt(n))),
        any::<f64>().prop_map(|n| Data::Plain(Cell::Float(n))),
        any::<i64>().prop_map(|n| Data::Plain(Cell::Time(n))),
        "[a-zé\"\n]{0,6}".prop_map(Data::Text),
        "-?[1-9][0-9]{0,9}".prop_map(Data::Number),
        object().prop_map(|object| Data::Json(object.to_string())),
        Just(Data::Json("[1,{\"a\":null}]".into())),
        object().prop_map(|object| Data::MsgPack(object.to_string())),
    ]
}

fn object() -> impl Strategy<Value = serde_json::Value> {
    let scalar = prop_oneof![
        Just(serde_json::Value::Null),
        any::<i32>().prop_map(Into::into),
        "[a-zé\"\\\\]{0,8}".prop_map(Into::into),
    ];
    let value = scalar.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            members(inner).prop_map(Into::into),
        ]
    });
    members(value).prop_map(Into::into)
}

fn members(
    value: impl Strategy<Value = serde_json::Value>,
) -> impl Strategy<Value = serde_json::Map<String, serde_json::Value>> {
    let key = (0..KEYS.len()).prop_map(|index| KEYS[index].to_owned());
    prop::collection::vec((key, value), 0..4).prop_map(|members| members.into_iter().collect())
}

fn row() -> impl Strategy<Value = Row> {
    let place = prop_oneof![
        4 => (Just(0), 0..1000u64),
        1 => (any::<i64>(), any::<u64>()),
    ];
    (
        prop_oneof![3 => "[a-z ]{0,30}", 1 => "\\PC{0,10}", 1 => Just(String::new())],
        object(),
        prop::bool::weighted(0.2),
        prop_oneof![3 => Just(0), 1 => 0..3usize],
        prop::option::weighted(0.9, prop_oneof![3 => Just(1usize), 1 => 0..100usize]),
        prop_oneof![6 => Just(0), 1 => 0..3usize, 1 => 0..6usize],
        place,
        prop::option::weighted(0.1, any::<bool>()),
        prop::option::weighted(0.05, id()),
    )
        .prop_map(
            |(text, object, is_text, buffer, before, stream, place, tag, id)| Row {
                text,
                object,
                is_text,
                buffer,
                before,
                stream,
                place,
                tag,
                id,
            },
        )
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![
        2 => Just(Id::Sent),
        2 => (any::<bool>(), prop_oneof![0..3u32, Just(u32::MAX)])
            .prop_map(|(own, index)| Id::Part(own, index)),
        1 => any::<i64>().prop_map(Id::Window),
    ]
}

fn path() -> impl Strategy<Value = FieldPath> {
    (0..7usize).prop_map(|index| FieldPath::from_keys(PATHS[index].iter().copied()))
}

fn op(rows: usize) -> impl Strategy<Value = Op> {
    let json = object().prop_map(|object| object.to_string());
    prop_oneof![
        (path(), prop::collection::vec(data(), rows))
            .prop_map(|(path, cells)| Op::Set(path, cells)),
        (path(), data()).prop_map(|(path, cell)| Op::Constant(path, cell)),
        (
            prop::option::of(path()),
            prop::collection::vec(prop::option::of(json), rows)
        )
            .prop_map(|(path, objects)| Op::Merge(path, objects)),
        (path(), any::<u64>()).prop_map(|(path, rows)| Op::Remove(path, rows)),
        (any::<u64>(), any::<bool>()).prop_map(|(rows, reason)| Op::Drop(rows, reason)),
        any::<u64>().prop_map(Op::Seal),
        any::<u64>().prop_map(Op::Fail),
        (path(), 0..4usize).prop_map(|(path, from)| Op::Capture(path, from)),
    ]
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let encoding = prop_oneof![
        Just(Encoding::Text),
        Just(Encoding::Json),
        Just(Encoding::MsgPack)
    ];
    let rows = prop_oneof![
        1 => prop::collection::vec(row(), 0..3),
        4 => prop::collection::vec(row(), 3..70),
    ];
    (encoding, any::<bool>(), any::<i64>(), rows).prop_flat_map(
        |(encoding, add_fields, received, rows)| {
            prop::collection::vec(op(rows.len()), 0..5).prop_map(move |ops| Recipe {
                encoding,
                add_fields,
                received,
                rows: rows.clone(),
                ops,
            })
        },
    )
}

fn document(encoding: Encoding, row: &Row) -> Vec<u8> {
    let json = row.object.to_string();
    match encoding {
        _ if row.is_text => row.text.clone().into(),
        Encoding::Text => row.text.clone().into(),
        Encoding::Json => json.into(),
        Encoding::MsgPack => {
            let mut bytes = Vec::new();
            msgpack::from_json(json.as_bytes(), &mut bytes);
            bytes
        }
    }
}

/// Where each row's document lies, and the buffers.
fn lay(recipe: &Recipe) -> (Vec<Span>, Vec<Bytes>) {
    let mut buffers = vec![Vec::new(); 3];
    let mut spans: Vec<Span> = Vec::new();
    for (index, row) in recipe.rows.iter().enumerate() {
        let twin = recipe.rows[..index].iter().rposition(|other| {
            row.before.is_none()
                && document(recipe.encoding, other) == document(recipe.encoding, row)
        });
        if let Some(twin) = twin {
            spans.push(spans[twin]);
            continue;
        }
        let buffer: &mut Vec<u8> = &mut buffers[row.buffer];
        // What is not used need not be UTF-8.
        buffer.resize(buffer.len() + row.before.unwrap_or(0), 0xFF);
        let start = buffer.len() as u32;
        buffer.extend(document(recipe.encoding, row));
        spans.push(Span {
            buffer: row.buffer as u32,
            start,
            len: buffer.len() as u32 - start,
        });
    }
    (spans, buffers.into_iter().map(Bytes::from).collect())
}

/// The first three are known to version 1.
fn streams() -> [Arc<Stream>; 6] {
    let connection = Source::Connection {
        peer: "[2001:db8::1]:40312".into(),
        listener: "0.0.0.0:514".into(),
    };
    let topic = Source::Topic {
        name: "lögs".into(),
        partition: 3,
    };
    let streams = [
        Stream::file(7, "/var/log/x.log"),
        Stream::unnamed(8),
        Stream::file(u128::MAX, ""),
        Stream::new(9, connection),
        Stream::new(10, topic),
        Stream::new(11, Source::Generated),
    ];
    streams.map(Arc::new)
}

fn build(recipe: &Recipe) -> Batch {
    let host = Arc::new(HostInfo {
        name: "höst".into(),
    });
    let streams = streams();
    let mut builder = BatchBuilder::new(recipe.encoding, &host, recipe.received, recipe.add_fields);
    let (spans, buffers) = lay(recipe);
    for buffer in buffers {
        builder.buffer(buffer);
    }
    let mut end = 1 << 40;
    for (row, span) in recipe.rows.iter().zip(spans) {
        builder.stream(&streams[row.stream]);
        let start = row.place.0.wrapping_add(end) as u64;
        end = start.wrapping_add(row.place.1) as i64;
        if row.is_text {
            builder.push_text(span, start, end as u64);
        } else {
            builder.push(span, start, end as u64);
        }
        if let Some(id) = row.id {
            let stream = streams[row.stream].clone();
            set_id(&mut builder, id, span, (stream, start, end as u64));
        }
        if let Some(message) = row.tag {
            builder.tag_last(&"_tag".into(), message.then(|| "broken".into()));
        }
    }
    if recipe.encoding != Encoding::Text {
        builder.dotted_keys();
    }
    let mut batch = builder.finish();
    recipe.ops.iter().for_each(|op| perform(&mut batch, op));
    batch
}

type Place = (Arc<Stream>, u64, u64);

fn set_id(builder: &mut BatchBuilder, id: Id, document: Span, (stream, start, end): Place) {
    match id {
        // MessagePack is no text, and empty text no id.
        Id::Sent => drop(builder.id_last(document)),
        Id::Part(own, index) => {
            let start = if own { start } else { !start };
            let origin = Origin::new(vec![(0, stream)], vec![start], vec![end]);
            let parent = builder.parent(&origin, 0);
            builder.part_last(&parent, index);
        }
        Id::Window(start) => builder.window_last(&Window {
            operator: Window::operator("summarize"),
            key: b"key",
            start,
            end: start.wrapping_add(60),
        }),
    }
}

fn put(column: &mut ColumnBuilder, row: usize, data: &Data) {
    let append = |column: &mut ColumnBuilder, bytes: &[u8]| {
        column.append(|out| out.extend_from_slice(bytes))
    };
    let cell = match data {
        Data::Plain(cell) => *cell,
        Data::Text(text) => Cell::Text(append(column, text.as_bytes())),
        Data::Number(text) => Cell::Number(append(column, text.as_bytes())),
        Data::Json(text) => Cell::Json(append(column, text.as_bytes())),
        Data::MsgPack(text) => {
            let mut bytes = Vec::new();
            msgpack::from_json(text.as_bytes(), &mut bytes);
            Cell::MsgPack(append(column, &bytes))
        }
    };
    column.set(row, cell);
}

fn rows_of(bits: u64, len: usize) -> Bitmap {
    Bitmap::from_fn(len, |row| bits >> (row % 64) & 1 == 1)
}

fn perform(batch: &mut Batch, op: &Op) {
    let len = batch.len();
    let mut edit = Edit::new();
    match op {
        Op::Set(path, cells) => {
            let mut column = ColumnBuilder::new(len);
            for (row, data) in cells.iter().enumerate() {
                put(&mut column, row, data);
            }
            edit.set(path.clone(), column.finish());
        }
        Op::Constant(path, data) => {
            let column = match data {
                Data::Plain(cell) => Column::constant(*cell, len),
                Data::Json(text) => Column::constant_json(text.as_bytes(), len),
                Data::Text(text) | Data::Number(text) | Data::MsgPack(text) => {
                    Column::constant_text(text.as_bytes(), len)
                }
            };
            edit.set(path.clone(), column);
        }
        Op::Merge(path, objects) => {
            let mut column = ColumnBuilder::new(len);
            for (row, object) in objects.iter().enumerate() {
                if let Some(object) = object {
                    put(&mut column, row, &Data::Json(object.clone()));
                }
            }
            edit.merge(path.clone(), column.finish(), true);
        }
        Op::Remove(path, rows) => {
            edit.remove(path.clone(), &rows_of(*rows, len));
        }
        Op::Drop(rows, reason) => {
            let reason = if *reason { "filter" } else { "sample" };
            batch.drop_rows(&rows_of(*rows, len), &reason.into());
        }
        Op::Seal(rows) => batch.seal(&rows_of(*rows, len)),
        Op::Fail(rows) => {
            let mut failures = Failures::none();
            for row in rows_of(*rows, len).iter() {
                failures.push(row, &"_failure".into(), &"a reason".into());
            }
            batch.mark_failed(&failures, true);
        }
        Op::Capture(path, from) => {
            let messages = batch.column(&FieldPath::from_keys(["message"]));
            let mut column = ColumnBuilder::over(len, messages.buffers().clone());
            for row in batch.alive().iter() {
                if let (Cell::Text(span), Value::Text(text)) =
                    (messages.cell(row), messages.value(row))
                    && text.is_ascii()
                {
                    let skip = (*from as u32).min(span.len);
                    let (start, len) = (span.start + skip, (span.len - skip) / 2);
                    column.set(row, Cell::Text(Span { start, len, ..span }));
                }
            }
            edit.set(path.clone(), column.finish());
        }
    }
    batch.apply(edit);
}

fn payload(frozen: &Frozen) -> Bytes {
    let documents = frozen.documents.iter().flatten();
    frozen.head.iter().chain(documents).copied().collect()
}

/// Everything that shows of a batch, as text. Values of dropped rows depend on what was read before they were dropped.
fn shown(batch: &Batch) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let (origin, len) = (batch.origin(), batch.len());
    let general = (batch.encoding(), batch.received(), batch.size(), len);
    writeln!(out, "{general:?}").expect("text grows");
    writeln!(out, "{:?} {:?}", batch.alive(), batch.sealed()).expect("text grows");
    writeln!(out, "{:?}", batch.drops()).expect("text grows");
    writeln!(out, "{:?}", origin.streams().collect::<Vec<_>>()).expect("text grows");
    let (json, packed) = (JsonWriter::new(batch), MsgPackWriter::new(batch));
    for row in 0..len {
        let (mut line, mut bytes, mut id) = (Vec::new(), Vec::new(), Vec::new());
        json.write(row, &mut line);
        packed.write(row, &mut bytes);
        origin.write_id(row, &mut id);
        let (line, id) = (String::from_utf8_lossy(&line), String::from_utf8_lossy(&id));
        let place = (origin.start(row), origin.end(row), origin.hash(row));
        writeln!(out, "{line} {bytes:?} {id} {place:?}").expect("text grows");
    }
    for path in PATHS {
        let column = batch.column(&FieldPath::from_keys(path.iter().copied()));
        let values: Vec<_> = batch.alive().iter().map(|row| column.value(row)).collect();
        writeln!(out, "{path:?} {values:?}").expect("text grows");
    }
    out
}

/// Whether version 1 can say all of it.
fn is_old(recipe: &Recipe) -> bool {
    let encoding = recipe.encoding;
    recipe.rows.iter().all(|row| {
        let id = document(encoding, row);
        let has_id = match row.id {
            Some(Id::Sent) => (1..=512).contains(&id.len()) && std::str::from_utf8(&id).is_ok(),
            other => other.is_some(),
        };
        row.stream < 3 && !has_id
    })
}

/// For each pair of stream runs, whether they are the same stream in memory.
fn sharing(batch: &Batch) -> Vec<bool> {
    let streams: Vec<_> = batch.origin().streams().map(|(_, stream)| stream).collect();
    let pairs = streams
        .iter()
        .flat_map(|a| streams.iter().map(move |b| (a, b)));
    pairs.map(|(a, b)| Arc::ptr_eq(a, b)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_batch_comes_back_equal(recipe in recipe()) {
        let batch = build(&recipe);
        let frozen = batch.freeze();
        prop_assert_eq!(frozen.version, if is_old(&recipe) { 1 } else { 2 });
        let thawed = Batch::thaw(payload(&frozen)).expect("what was frozen thaws");
        prop_assert_eq!(shown(&batch), shown(&thawed));
        prop_assert_eq!(sharing(&batch), sharing(&thawed));
        let again = thawed.freeze();
        prop_assert_eq!(&frozen.head, &again.head);
        prop_assert_eq!(&frozen.documents, &again.documents);
        prop_assert!(frozen.documents.iter().all(|part| !part.is_empty()));
    }

    /// Later writes find the same batch.
    #[test]
    fn a_batch_that_came_back_takes_writes(mut recipe in recipe()) {
        let later = recipe.ops.split_off(recipe.ops.len() / 2);
        let mut batch = build(&recipe);
        let mut thawed = Batch::thaw(payload(&batch.freeze())).expect("what was frozen thaws");
        for op in &later {
            perform(&mut batch, op);
            perform(&mut thawed, op);
        }
        prop_assert_eq!(shown(&batch), shown(&thawed));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        version in 0..4u8,
        flags in any::<u8>(),
        head in any::<prop::sample::Index>(),
        rest in prop::collection::vec(prop_oneof![3 => 0..4u8, 1 => any::<u8>()], 0..300),
    ) {
        let len = (8 + head.index(rest.len() + 1)) as u8;
        let mut bytes = vec![version, 0, flags, 0, len, 0, 0, 0];
        bytes.extend(rest);
        use_whatever_comes(bytes);
    }

    #[test]
    fn damage_in_several_places_never_panics(
        recipe in recipe(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
    ) {
        let frozen = build(&recipe).freeze();
        let mut bytes = payload(&frozen).to_vec();
        for (at, byte, in_head) in damage {
            let len = if in_head { frozen.head.len() } else { bytes.len() };
            bytes[at.index(len)] = byte;
        }
        use_whatever_comes(bytes);
    }
}

/// Uses what a damaged payload gives, if it gives anything: it may be nonsense, but nothing panics.
fn use_whatever_comes(bytes: Vec<u8>) {
    if let Ok(batch) = Batch::thaw(bytes.into()) {
        let seen = shown(&batch);
        let again = Batch::thaw(payload(&batch.freeze())).expect("what was frozen thaws");
        assert_eq!(seen, shown(&again));
    }
}

/// A small batch with something of everything.
fn sample(encoding: Encoding) -> Batch {
    let row = |text: &str, stream, tag| Row {
        text: text.to_owned(),
        object: serde_json::json!({"a": {"b": [1, "é"]}, "tags": text}),
        is_text: stream == 1,
        buffer: stream,
        before: Some(1),
        stream,
        place: (0, text.len() as u64 + 1),
        tag,
        id: None,
    };
    let path = |text| FieldPath::parse(text).expect("a path");
    let cells = vec![
        Data::Plain(Cell::Float(1.5)),
        Data::Text("é".into()),
        Data::Number("12".into()),
        Data::MsgPack("{\"x\":1}".into()),
    ];
    build(&Recipe {
        encoding,
        add_fields: true,
        received: 1_709_210_096_000_000_000,
        rows: vec![
            row("first", 0, None),
            row("", 0, None),
            row("zweite Zeile", 1, Some(true)),
            row("last", 0, None),
        ],
        ops: vec![
            Op::Set(path("c.d"), cells),
            Op::Constant(path("k"), Data::Json("[true]".into())),
            Op::Drop(2, true),
            Op::Seal(8),
        ],
    })
}

/// A small batch with something of everything that version 1 has not.
fn sample_2(encoding: Encoding) -> Batch {
    let row = |text: &str, stream, id| Row {
        text: text.to_owned(),
        object: serde_json::json!({"text": text}),
        is_text: text.len() == 3,
        buffer: stream % 2,
        before: Some(1),
        stream,
        place: (0, 1),
        tag: None,
        id,
    };
    build(&Recipe {
        encoding,
        add_fields: true,
        received: 1_709_210_096_000_000_000,
        rows: vec![
            row("first", 3, None),
            row("élan", 3, Some(Id::Sent)),
            row("two", 3, Some(Id::Sent)),
            row("part of its place", 4, Some(Id::Part(true, 0))),
            row("part of another", 4, Some(Id::Part(false, 16))),
            row("sum", 5, Some(Id::Window(-60))),
            row("last", 0, None),
        ],
        ops: vec![Op::Drop(1, true)],
    })
}

type Sample = (Encoding, &'static [u8], &'static [u8]);

const SAMPLES: [Sample; 3] = [
    (
        Encoding::Text,
        include_bytes!("data/batch-1-text.bin"),
        include_bytes!("data/batch-2-text.bin"),
    ),
    (
        Encoding::Json,
        include_bytes!("data/batch-1-json.bin"),
        include_bytes!("data/batch-2-json.bin"),
    ),
    (
        Encoding::MsgPack,
        include_bytes!("data/batch-1-msgpack.bin"),
        include_bytes!("data/batch-2-msgpack.bin"),
    ),
];

/// The files are the payloads of [`sample`] and [`sample_2`] as these versions of the format wrote them first, and stay as they
/// are for ever.
#[test]
fn every_version_is_read_and_written_as_ever() {
    for (encoding, first, second) in SAMPLES {
        let samples = [
            (1, first, sample(encoding)),
            (2, second, sample_2(encoding)),
        ];
        for (version, known, expected) in samples {
            let batch = Batch::thaw(Bytes::from_static(known)).expect("the version is known");
            assert_eq!(shown(&batch), shown(&expected), "{encoding:?} {version}");
            let frozen = expected.freeze();
            assert_eq!((frozen.version, known[0]), (version, version));
            assert!(payload(&frozen) == known, "{encoding:?} {version}");
        }
    }
}

/// What version 1 does not have is damage in it, not read as something else.
#[test]
fn version_1_has_nothing_of_version_2() {
    for (encoding, _, second) in SAMPLES {
        let mut bytes = second.to_vec();
        bytes[0] = 1;
        let read = Batch::thaw(bytes.clone().into()).map(|_| ());
        assert_eq!(read, Err(WireError::Damaged("unknown flags")));
        // Without the flag of ids, the sources are left.
        bytes[2] &= !8;
        let read = Batch::thaw(bytes.into()).map(|_| ());
        let expected = WireError::Damaged("an unknown kind of stream");
        assert_eq!(read, Err(expected), "{encoding:?}");
    }
}

#[test]
fn no_changed_byte_and_no_cut_panics() {
    for (encoding, first, second) in SAMPLES {
        for whole in [first, second] {
            for at in 0..whole.len() {
                let cut = Batch::thaw(Bytes::from_static(&whole[..at]));
                assert!(cut.is_err(), "{encoding:?} cut at {at}");
                for flip in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                    let mut bytes = whole.to_vec();
                    bytes[at] ^= flip;
                    use_whatever_comes(bytes);
                }
            }
            let longer = [whole, b"x"].concat();
            assert!(Batch::thaw(longer.into()).is_err());
        }
    }
}
