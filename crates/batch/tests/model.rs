//! Random documents and random edits: what the writers give equals what a plain `serde_json::Value` gives under the same
//! edits (numbers compared as text), and a document that nobody changed is byte-identical.

use std::sync::Arc;

use batch::{
    Batch, BatchBuilder, Bitmap, Cell, ChangedTexts, ColumnBuilder, Edit, Encoding, FieldPath,
    HostInfo, JsonWriter, MsgPackWriter, Span, Stream, TextLimit, Value, json, msgpack,
};
use proptest::prelude::*;
use serde_json::{Map, Value as Json};

/// Few keys, so that edits meet what is there.
const KEYS: [&str; 5] = ["a", "b", "c", "a.b", "q\"x"];

fn key() -> impl Strategy<Value = String> {
    (0..KEYS.len()).prop_map(|index| KEYS[index].to_owned())
}

fn scalar() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        "[0-9]{1,25}".prop_map(|digits| number(digits.trim_start_matches('0'))),
        "-?[1-9][0-9]{0,3}\\.[0-9]{1,20}".prop_map(|text| number(&text)),
        "[a-zé\"\\\\\n]{0,8}".prop_map(Json::String),
    ]
}

fn number(text: &str) -> Json {
    let text = if text.is_empty() { "0" } else { text };
    serde_json::from_str(text).expect("a JSON number")
}

fn value() -> impl Strategy<Value = Json> {
    scalar().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Json::Array),
            object_of(inner),
        ]
    })
}

fn object_of(inner: impl Strategy<Value = Json>) -> impl Strategy<Value = Json> {
    prop::collection::vec((key(), inner), 0..4)
        .prop_map(|members| Json::Object(members.into_iter().collect()))
}

fn document() -> impl Strategy<Value = Json> {
    object_of(value())
}

fn path() -> impl Strategy<Value = FieldPath> {
    prop::collection::vec((0..3usize).prop_map(|index| KEYS[index]), 1..4)
        .prop_map(FieldPath::from_keys)
}

#[derive(Debug, Clone)]
enum Op {
    Set(FieldPath, Vec<Option<Json>>),
    Remove(FieldPath, Vec<bool>),
    Merge(Option<FieldPath>, Vec<Option<Json>>),
    Read(Vec<FieldPath>),
    Keep(Vec<FieldPath>, Vec<bool>),
    Shorten(usize, Vec<bool>),
    ShortenFields(Vec<FieldPath>, usize, Vec<bool>),
    Replace(Vec<Option<Json>>),
}

const ROWS: usize = 3;

fn op() -> impl Strategy<Value = Op> {
    let per_row = |inner: BoxedStrategy<Json>| prop::collection::vec(prop::option::of(inner), ROWS);
    prop_oneof![
        (path(), per_row(value().boxed())).prop_map(|(path, values)| Op::Set(path, values)),
        (path(), prop::collection::vec(any::<bool>(), ROWS))
            .prop_map(|(path, rows)| Op::Remove(path, rows)),
        (prop::option::of(path()), per_row(document().boxed()))
            .prop_map(|(path, values)| Op::Merge(path, values)),
        prop::collection::vec(path(), 1..4).prop_map(Op::Read),
        (
            prop::collection::vec(path(), 0..4),
            prop::collection::vec(any::<bool>(), ROWS)
        )
            .prop_map(|(paths, rows)| Op::Keep(paths, rows)),
        (0..6usize, prop::collection::vec(any::<bool>(), ROWS))
            .prop_map(|(bytes_max, rows)| Op::Shorten(bytes_max, rows)),
        (
            prop::collection::vec(path(), 0..3),
            0..6usize,
            prop::collection::vec(any::<bool>(), ROWS)
        )
            .prop_map(|(paths, bytes_max, rows)| Op::ShortenFields(paths, bytes_max, rows)),
        per_row(document().boxed()).prop_map(Op::Replace),
    ]
}

// The model: plain JSON values.

/// The keys under which `path` is found: nested first, dots in keys last.
fn locate(root: &Json, keys: &[String]) -> Option<Vec<String>> {
    for taken in 1..=keys.len() {
        let first = keys[..taken].join(".");
        let Some(value) = root.get(&first) else {
            continue;
        };
        if taken == keys.len() {
            return Some(vec![first]);
        }
        if let Some(rest) = locate(value, &keys[taken..]) {
            return Some(std::iter::once(first).chain(rest).collect());
        }
    }
    None
}

fn keys_of(path: &FieldPath) -> Vec<String> {
    path.keys().iter().map(ToString::to_string).collect()
}

fn read(root: &Json, path: &FieldPath) -> Option<Json> {
    let keys = locate(root, &keys_of(path))?;
    keys.iter()
        .try_fold(root, |value, key| value.get(key))
        .cloned()
}

/// The object at `keys`, made where it is not there; none where something else is in the way.
fn object_at<'a>(root: &'a mut Json, keys: &[String]) -> Option<&'a mut Map<String, Json>> {
    let mut at = root;
    for key in keys {
        let members = at.as_object_mut()?;
        at = members
            .entry(key.clone())
            .or_insert_with(|| Json::Object(Map::new()));
    }
    at.as_object_mut()
}

fn set(root: &mut Json, path: &FieldPath, value: Json) -> bool {
    let keys = locate(root, &keys_of(path)).unwrap_or_else(|| keys_of(path));
    let (last, above) = keys.split_last().expect("a path has a key");
    let mut changed = root.clone();
    let Some(object) = object_at(&mut changed, above) else {
        return false;
    };
    object.insert(last.clone(), value);
    *root = changed;
    true
}

fn remove(root: &mut Json, path: &FieldPath) {
    let Some(keys) = locate(root, &keys_of(path)) else {
        return;
    };
    let (last, above) = keys.split_last().expect("a path has a key");
    if let Some(object) = object_at(root, above) {
        object.shift_remove(last);
    }
}

fn join(old: &mut Json, new: Json) {
    match (old, new) {
        (Json::Object(old), Json::Object(new)) => {
            for (key, value) in new {
                match old.get_mut(&key) {
                    Some(there) if there.is_object() && value.is_object() => join(there, value),
                    _ => drop(old.insert(key, value)),
                }
            }
        }
        (old, new) => *old = new,
    }
}

fn merge(root: &mut Json, path: Option<&FieldPath>, value: Json) -> bool {
    let keys = path
        .map(|path| locate(root, &keys_of(path)).unwrap_or_else(|| keys_of(path)))
        .unwrap_or_default();
    let mut changed = root.clone();
    let Some(object) = object_at(&mut changed, &keys) else {
        return false;
    };
    let mut joined = Json::Object(std::mem::take(object));
    join(&mut joined, value);
    *object = joined
        .as_object()
        .expect("joined objects are an object")
        .clone();
    *root = changed;
    true
}

/// Key order is not part of the promise for edited documents; everything else is, digits included.
fn sorted(value: &Json) -> Json {
    match value {
        Json::Object(members) => {
            let mut all: Vec<_> = members
                .iter()
                .map(|(key, value)| (key.clone(), sorted(value)))
                .collect();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            Json::Object(all.into_iter().collect())
        }
        Json::Array(items) => Json::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

fn keep(root: &mut Json, paths: &[FieldPath]) {
    let mut paths: Vec<_> = paths
        .iter()
        .filter_map(|path| locate(root, &keys_of(path)))
        .collect();
    paths.sort_by_key(Vec::len);
    let mut kept = Json::Object(Map::new());
    for keys in paths {
        let value = keys.iter().fold(&*root, |value, key| &value[key]).clone();
        let (last, above) = keys.split_last().expect("a path has a key");
        let object = object_at(&mut kept, above).expect("what stood above it is an object");
        object.insert(last.clone(), value);
    }
    *root = kept;
}

/// Cuts texts between characters, and gives their number.
fn shorten(value: &mut Json, bytes_max: usize) -> u64 {
    match value {
        Json::String(text) if text.len() > bytes_max => {
            text.truncate(text.floor_char_boundary(bytes_max));
            1
        }
        Json::Array(items) => items.iter_mut().map(|item| shorten(item, bytes_max)).sum(),
        Json::Object(members) => members
            .values_mut()
            .map(|member| shorten(member, bytes_max))
            .sum(),
        _ => 0,
    }
}

/// Shortens the texts of fields, each given by the keys that are left of its path, in all spellings with dots.
fn shorten_fields(value: &mut Json, fields: &[&[Box<str>]], bytes_max: usize) -> u64 {
    let Json::Object(members) = value else {
        return 0;
    };
    let mut texts = 0;
    for (key, member) in members.iter_mut() {
        let is_in = |field: &&[Box<str>]| {
            let name = field.join(".");
            *key == name || key.starts_with(&format!("{name}."))
        };
        if fields.iter().any(is_in) {
            texts += shorten(member, bytes_max);
            continue;
        }
        let mut further = Vec::new();
        for field in fields {
            let taken = (1..field.len()).filter(|taken| *key == field[..*taken].join("."));
            further.extend(taken.map(|taken| &field[taken..]));
        }
        texts += shorten_fields(member, &further, bytes_max);
    }
    texts
}

// The batch.

fn build(documents: &[Json], encoding: Encoding) -> (Batch, Vec<Vec<u8>>) {
    let host = Arc::new(HostInfo {
        name: "host".into(),
    });
    let mut builder = BatchBuilder::new(encoding, &host, 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    builder.dotted_keys();
    let mut all = Vec::new();
    for (row, document) in documents.iter().enumerate() {
        let text = serde_json::to_vec(document).expect("a document");
        let mut bytes = Vec::new();
        match encoding {
            Encoding::MsgPack => msgpack::from_json(&text, &mut bytes),
            _ => bytes = text,
        }
        let span = Span {
            buffer: row as u32,
            start: 0,
            len: bytes.len() as u32,
        };
        builder.buffer(bytes.clone().into());
        builder.push(span, row as u64, row as u64 + 1);
        all.push(bytes);
    }
    (builder.finish(), all)
}

fn column(values: &[Option<Json>], typed: bool) -> batch::Column {
    let mut column = ColumnBuilder::new(values.len());
    for (row, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        let text = serde_json::to_vec(value).expect("a value");
        match value {
            Json::Null => column.set(row, Cell::Null),
            Json::Bool(value) => column.set(row, Cell::Bool(*value)),
            Json::String(text) => column.set_text(row, text.as_bytes()),
            Json::Number(number) if typed && number.as_i64().is_some() => {
                column.set(row, Cell::Int(number.as_i64().expect("checked")));
            }
            Json::Number(_) => column.set_value(row, Value::Number(&text)),
            Json::Array(_) | Json::Object(_) => column.set_value(row, Value::Json(&text)),
        }
    }
    column.finish()
}

fn apply(batch: &mut Batch, models: &mut [Json], op: &Op) {
    match op {
        Op::Set(path, values) => {
            let mut edit = Edit::new();
            edit.set(path.clone(), column(values, true));
            let refused = batch.apply(edit);
            for (row, value) in values.iter().enumerate() {
                let done = value
                    .clone()
                    .is_none_or(|value| set(&mut models[row], path, value));
                assert_eq!(
                    !done,
                    refused.iter().any(|(at, _)| *at == row),
                    "row {row} of {op:?}"
                );
            }
        }
        Op::Remove(path, rows) => {
            let mut edit = Edit::new();
            edit.remove(path.clone(), &Bitmap::from_fn(ROWS, |row| rows[row]));
            assert!(batch.apply(edit).is_empty());
            (0..ROWS)
                .filter(|&row| rows[row])
                .for_each(|row| remove(&mut models[row], path));
        }
        Op::Merge(path, values) => {
            let mut edit = Edit::new();
            edit.merge(path.clone(), column(values, false), true);
            let refused = batch.apply(edit);
            for (row, value) in values.iter().enumerate() {
                let done = value
                    .clone()
                    .is_none_or(|value| merge(&mut models[row], path.as_ref(), value));
                assert_eq!(
                    !done,
                    refused.iter().any(|(at, _)| *at == row),
                    "row {row} of {op:?}"
                );
            }
        }
        Op::Keep(paths, rows) => {
            batch.keep(paths, &Bitmap::from_fn(ROWS, |row| rows[row]));
            (0..ROWS)
                .filter(|&row| rows[row])
                .for_each(|row| keep(&mut models[row], paths));
        }
        Op::Replace(values) => {
            batch.replace(column(values, false), true);
            for (model, value) in models.iter_mut().zip(values) {
                if let Some(value) = value {
                    *model = value.clone();
                }
            }
        }
        Op::Shorten(bytes_max, rows) => {
            let mut limit = TextLimit::new(*bytes_max, "").expect("no suffix always fits");
            let done = batch.change_texts(&mut limit, &Bitmap::from_fn(ROWS, |row| rows[row]));
            let model = |row: usize| match rows[row] {
                true => shorten(&mut models[row], *bytes_max),
                false => 0,
            };
            agree(&done, model, op);
        }
        Op::ShortenFields(paths, bytes_max, rows) => {
            let mut limit = TextLimit::new(*bytes_max, "").expect("no suffix always fits");
            let wanted = Bitmap::from_fn(ROWS, |row| rows[row]);
            let done = batch.change_fields(paths, &mut limit, &wanted);
            let fields: Vec<&[Box<str>]> = paths.iter().map(FieldPath::keys).collect();
            let model = |row: usize| match rows[row] {
                true => shorten_fields(&mut models[row], &fields, *bytes_max),
                false => 0,
            };
            agree(&done, model, op);
        }
        Op::Read(paths) => {
            for (path, column) in paths.iter().zip(batch.columns(paths)) {
                agree_on(path, &column, models);
            }
        }
    }
}

/// A field is read as it is in the models.
fn agree_on(path: &FieldPath, column: &batch::Column, models: &[Json]) {
    for (row, model) in models.iter().enumerate() {
        let mut text = Vec::new();
        column.value(row).write_json(&mut text);
        let got = (!column.value(row).is_missing())
            .then(|| serde_json::from_slice::<Json>(&text).expect("JSON"));
        assert_eq!(
            got.as_ref().map(sorted),
            read(model, path).as_ref().map(sorted),
            "{path} of row {row}"
        );
    }
}

/// What was changed is what changes in the models, whose rows are changed in turn.
fn agree(done: &ChangedTexts, mut model: impl FnMut(usize) -> u64, op: &Op) {
    let mut texts = 0;
    for row in 0..ROWS {
        let count = model(row);
        assert_eq!(done.rows.contains(row), count > 0, "row {row} of {op:?}");
        texts += count;
    }
    assert_eq!(done.texts, texts, "{op:?}");
}

fn written(batch: &Batch, row: usize) -> Json {
    let mut text = Vec::new();
    JsonWriter::new(batch).write(row, &mut text);
    json::validate_object(&text).expect("the writer gives one valid object");
    serde_json::from_slice(&text).expect("valid JSON")
}

fn written_msgpack(batch: &Batch, row: usize) -> Json {
    let mut bytes = Vec::new();
    MsgPackWriter::new(batch).write(row, &mut bytes);
    msgpack::validate_map(&bytes).expect("the writer gives one valid map");
    let mut text = Vec::new();
    msgpack::to_json(&bytes, &mut text);
    serde_json::from_slice(&text).expect("valid JSON")
}

/// MessagePack keeps no decimal digits: the model of a document that went through it.
fn through_msgpack(value: &Json) -> Json {
    let mut bytes = Vec::new();
    msgpack::from_json(&serde_json::to_vec(value).expect("a value"), &mut bytes);
    let mut text = Vec::new();
    msgpack::to_json(&bytes, &mut text);
    serde_json::from_slice(&text).expect("valid JSON")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_documents_and_edits_equal_the_model(
        documents in prop::collection::vec(document(), ROWS),
        ops in prop::collection::vec(op(), 0..8),
    ) {
        let (mut batch, _) = build(&documents, Encoding::Json);
        let mut models = documents;
        for op in &ops {
            apply(&mut batch, &mut models, op);
        }
        for (row, model) in models.iter().enumerate() {
            prop_assert_eq!(sorted(&written(&batch, row)), sorted(model));
            prop_assert_eq!(sorted(&written_msgpack(&batch, row)), sorted(&through_msgpack(model)));
        }
    }

    #[test]
    fn msgpack_documents_and_edits_equal_the_model(
        documents in prop::collection::vec(document(), ROWS),
        ops in prop::collection::vec(op(), 0..8),
    ) {
        let (mut batch, _) = build(&documents, Encoding::MsgPack);
        let mut models: Vec<Json> = documents.iter().map(through_msgpack).collect();
        for op in &ops {
            apply(&mut batch, &mut models, op);
        }
        for (row, model) in models.iter().enumerate() {
            prop_assert_eq!(sorted(&written(&batch, row)), sorted(model));
            prop_assert_eq!(sorted(&written_msgpack(&batch, row)), sorted(&through_msgpack(model)));
        }
    }

    #[test]
    fn untouched_documents_are_byte_identical(
        documents in prop::collection::vec(document(), ROWS),
        ops in prop::collection::vec(op(), 1..6),
    ) {
        for encoding in [Encoding::Json, Encoding::MsgPack] {
            let (mut batch, bytes) = build(&documents, encoding);
            // Edits of the other rows only, and removals of what is not there.
            let mut models = documents.clone();
            for op in &ops {
                let op = match op.clone() {
                    Op::Set(path, mut values) => { values[0] = None; Op::Set(path, values) }
                    Op::Merge(path, mut values) => { values[0] = None; Op::Merge(path, values) }
                    Op::Keep(paths, mut rows) => { rows[0] = false; Op::Keep(paths, rows) }
                    Op::Remove(path, mut rows) => { rows[0] = read(&models[0], &path).is_none(); Op::Remove(path, rows) }
                    Op::Shorten(bytes_max, mut rows) => { rows[0] = false; Op::Shorten(bytes_max, rows) }
                    Op::ShortenFields(paths, bytes_max, mut rows) => { rows[0] = false; Op::ShortenFields(paths, bytes_max, rows) }
                    Op::Replace(mut values) => { values[0] = None; Op::Replace(values) }
                    Op::Read(path) => Op::Read(path),
                };
                if encoding == Encoding::Json {
                    apply(&mut batch, &mut models, &op);
                } else if !matches!(op, Op::Read(_)) {
                    let mut models: Vec<Json> = (0..ROWS).map(|row| written(&batch, row)).collect();
                    apply(&mut batch, &mut models, &op);
                }
            }
            let mut out = Vec::new();
            match encoding {
                Encoding::MsgPack => MsgPackWriter::new(&batch).write(0, &mut out),
                _ => JsonWriter::new(&batch).write(0, &mut out),
            }
            prop_assert_eq!(&out, &bytes[0]);
        }
    }
}
