//! Lines of text are written by a plan made once a batch, JSON documents by walking each: whatever is edited, both must
//! give the same event, in every format.

use std::sync::Arc;

use batch::{
    Batch, BatchBuilder, Bitmap, Cell, Column, ColumnBuilder, Edit, Encoding, FieldPath, HostInfo,
    JsonWriter, MsgPackWriter, Span, Stream, msgpack,
};
use proptest::prelude::*;

const ROWS: usize = 3;

/// A batch whose events are `x`, as text or as JSON documents that say so.
fn batch(encoding: Encoding) -> Batch {
    let text = if encoding == Encoding::Text {
        "x"
    } else {
        r#"{"message":"x"}"#
    };
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(encoding, &host, 0, true);
    builder.stream(&Arc::new(Stream::file(1, "/p")));
    let buffer = builder.buffer(text.into());
    for row in 0..ROWS as u64 {
        builder.push(
            Span {
                buffer,
                start: 0,
                len: text.len() as u32,
            },
            row,
            row + 1,
        );
    }
    builder.finish()
}

fn cell() -> impl Strategy<Value = Cell> {
    let cells = vec![
        Cell::Keep,
        Cell::Keep,
        Cell::Missing,
        Cell::Null,
        Cell::Bool(true),
        Cell::Int(-7),
        Cell::Float(0.5),
        Cell::Time(1),
    ];
    prop::sample::select(cells)
}

/// A column that is constant, or has texts, objects and other values.
fn column() -> impl Strategy<Value = Column> {
    let mixed = prop::collection::vec((cell(), 0..5_u8), ROWS).prop_map(|cells| {
        let mut column = ColumnBuilder::new(ROWS);
        let shared = column.append(|out| out.extend_from_slice(br#"{"s":[1.5,"\u00fc"]}"#));
        for (row, (cell, kind)) in cells.into_iter().enumerate() {
            match kind {
                0 => column.set_text(row, b"te\"xt"),
                1 => {
                    let span =
                        column.append(|out| out.extend_from_slice(br#"{"b":1,"z":{"c":[]}}"#));
                    column.set(row, Cell::Json(span));
                }
                2 => column.set(row, Cell::Json(shared)),
                _ => column.set(row, cell),
            }
        }
        column.finish()
    });
    prop_oneof![
        mixed,
        cell().prop_map(|cell| Column::constant(cell, ROWS)),
        Just(Column::constant_text(b"same", ROWS))
    ]
}

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "message",
        "host.name",
        "host.ip",
        "log",
        "log.file",
        "a",
        "a.b",
        "a.b.c",
        "a.z",
        "a.z.c",
        "d.e.f",
        "d.g",
        "@metadata.m",
    ])
}

/// The events, which are the same in all formats.
fn events(batch: &Batch) -> Vec<serde_json::Value> {
    let (writer, packed_writer) = (JsonWriter::new(batch), MsgPackWriter::new(batch));
    let parsed = |text: &[u8]| -> serde_json::Value {
        serde_json::from_slice(text)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)))
    };
    let event = |row| {
        let (mut text, mut packed, mut unpacked) = (Vec::new(), Vec::new(), Vec::new());
        writer.write(row, &mut text);
        packed_writer.write(row, &mut packed);
        assert_eq!(msgpack::skip_value(&packed, 0), packed.len());
        msgpack::to_json(&packed, &mut unpacked);
        assert_eq!(parsed(&unpacked), parsed(&text));
        parsed(&text)
    };
    (0..batch.len()).map(event).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_plan_writes_what_the_walk_writes(edits in prop::collection::vec((path(), column(), any::<bool>()), 0..7)) {
        let mut text = batch(Encoding::Text);
        let mut json = batch(Encoding::Json);
        for (path, column, removes) in edits {
            let path = FieldPath::parse(path).expect("a path");
            let edit = || {
                let mut edit = Edit::new();
                if removes {
                    edit.remove(path.clone(), &Bitmap::from_fn(ROWS, |row| row > 0));
                } else {
                    edit.set(path.clone(), column.clone());
                }
                edit
            };
            prop_assert_eq!(text.apply(edit()), json.apply(edit()));
        }
        prop_assert_eq!(events(&text), events(&json));
    }
}
