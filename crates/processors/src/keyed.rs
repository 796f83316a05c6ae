//! Fields whose names come from the events themselves, as `kv` finds them.
//!
//! Each name gets a column when it first appears in a batch, so that a log with the same keys in every line costs a
//! cell a value and no copy. Which column a key has is guessed from the row before (the key after the one just seen)
//! and looked up by hash only where that fails.
//!
//! Limits: a batch gets at most [`COLUMNS_MAX`] columns this way. A row with further names is written as one JSON
//! object and merged, which is slower but bounded by the size of the text. A name that comes twice in a row has an
//! array of its values.
//!
//! Order: names that are not there yet are written in the order of their bytes, so that equal texts give equal objects,
//! whatever else is in the batch. With further names than columns this holds where nothing was written at or below the
//! target in this batch before; else the fields written before may stand in front of the row's own or behind them.

use std::borrow::Cow;

use batch::json::Kind;
use batch::{Cell, ColumnBuilder, Edit, FieldPath, Span, json};
use hashbrown::HashMap;

use crate::names::below;
use crate::text::{Texts, part};

/// How many columns a batch gets; each takes 16 bytes a row.
const COLUMNS_MAX: usize = 128;

/// Where the value of a pair stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueLocation {
    /// In the row's text, from one byte to another.
    Text(usize, usize),
    /// In [`Keyed::changed`], likewise.
    Changed(usize, usize),
    /// In [`Keyed::changed`], as JSON: a number, a truth value or an object.
    Json(usize, usize),
}

/// What happens with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    Column(usize),
    /// Beyond the limit: goes into the row's object.
    Object,
    /// Not wanted.
    Ignored,
}

#[derive(Clone, Copy)]
struct Pair {
    slot: Slot,
    key: (usize, usize),
    value: ValueLocation,
}

struct KeyedColumn {
    name: Box<str>,
    values: ColumnBuilder,
}

/// Gathers named values of the rows of a batch.
///
/// For each row: any number of [`Keyed::add`], then [`Keyed::end_row`].
pub(crate) struct Keyed<'n, N> {
    texts: &'n Texts,
    len: usize,
    /// The field name of a key, or nothing when it is not wanted.
    name: N,
    slots: HashMap<Box<[u8]>, usize, foldhash::fast::RandomState>,
    /// Keys in the order of their first appearance.
    order: Vec<(Box<[u8]>, Slot)>,
    /// The place in `order` where the next key is guessed.
    guess: usize,
    columns: Vec<KeyedColumn>,
    /// The values of columns in rows that have no other one.
    defaults: Vec<(usize, Cell)>,
    /// The rows with names that have no column: all that they have, in order.
    objects: Option<ColumnBuilder>,
    pairs: Vec<Pair>,
    /// Values of this row that do not stand in its text as they are.
    pub changed: Vec<u8>,
    /// Some key within a value holds a dot.
    pub dotted_keys: bool,
}

impl<'n, N: Fn(&[u8]) -> Option<String>> Keyed<'n, N> {
    /// For a batch of `len` rows with the given texts.
    pub fn new(len: usize, texts: &'n Texts, name: N) -> Self {
        Self {
            texts,
            len,
            name,
            slots: HashMap::default(),
            order: Vec::new(),
            guess: 0,
            columns: Vec::new(),
            defaults: Vec::new(),
            objects: None,
            pairs: Vec::new(),
            changed: Vec::new(),
            dotted_keys: false,
        }
    }

    /// Adds a value to the row at work. `key` is where its key stands in `text`.
    #[inline]
    pub fn add(&mut self, text: &[u8], key: (usize, usize), value: ValueLocation) {
        let slot = self.slot(&text[key.0..key.1]);
        if slot != Slot::Ignored {
            self.pairs.push(Pair { slot, key, value });
        }
    }

    /// Takes back what was added to the row at work.
    pub fn forget_row(&mut self) {
        self.pairs.clear();
        self.changed.clear();
        self.guess = 0;
    }

    #[inline]
    fn slot(&mut self, key: &[u8]) -> Slot {
        let guessed = self.order.get(self.guess);
        if let Some((_, slot)) = guessed.filter(|(known, _)| **known == *key) {
            self.guess += 1;
            return *slot;
        }
        self.look_up(key)
    }

    fn look_up(&mut self, key: &[u8]) -> Slot {
        if let Some(&place) = self.slots.get(key) {
            self.guess = place + 1;
            return self.order[place].1;
        }
        let slot = match (self.name)(key) {
            None => Slot::Ignored,
            Some(name) => self.column(&name).map_or(Slot::Object, Slot::Column),
        };
        // Keys beyond the limit are not remembered: there may be as many as values.
        if slot != Slot::Object && self.order.len() < 8 * COLUMNS_MAX {
            self.slots.insert(key.into(), self.order.len());
            self.order.push((key.into(), slot));
            self.guess = self.order.len();
        }
        slot
    }

    /// Gives a field a value in all rows that end from now on and have no other one. `cell` makes it, of the field's column.
    pub fn add_default(&mut self, name: &str, cell: impl FnOnce(&mut ColumnBuilder) -> Cell) {
        if let Some(column) = self.column(name) {
            let cell = cell(&mut self.columns[column].values);
            self.defaults.push((column, cell));
        }
    }

    /// The column of a field; none when there are too many.
    fn column(&mut self, name: &str) -> Option<usize> {
        if let Some(index) = self.columns.iter().position(|column| &*column.name == name) {
            return Some(index);
        }
        if self.columns.len() == COLUMNS_MAX {
            return None;
        }
        self.columns.push(KeyedColumn {
            name: name.into(),
            values: self.texts.builder(self.len),
        });
        Some(self.columns.len() - 1)
    }

    /// Writes what was added, as the values of `row`, whose text stands at `span`. `distinct` leaves out values that a
    /// name has already.
    pub fn end_row(&mut self, row: usize, span: Span, text: &[u8], distinct: bool) {
        let mut plain = true;
        for index in 0..self.pairs.len() {
            let Pair { slot, value, .. } = self.pairs[index];
            match slot {
                Slot::Column(column) if self.columns[column].values.cell(row) == Cell::Keep => {
                    self.set_value(column, row, span, value);
                }
                _ => plain = false,
            }
        }
        if !plain {
            self.write_repeated(row, text, distinct);
            self.write_object(row, text, distinct);
        }
        for &(column, cell) in &self.defaults {
            let values = &mut self.columns[column].values;
            if values.cell(row) == Cell::Keep {
                values.set(row, cell);
            }
        }
        self.forget_row();
    }

    fn set_value(&mut self, column: usize, row: usize, span: Span, value: ValueLocation) {
        let values = &mut self.columns[column].values;
        let cell = match value {
            ValueLocation::Text(start, end) => Cell::Text(part(span, start, end)),
            ValueLocation::Changed(start, end) => {
                let changed = &self.changed[start..end];
                Cell::Text(values.append(|out| out.extend_from_slice(changed)))
            }
            ValueLocation::Json(start, end) => {
                let text = &self.changed[start..end];
                let mut append = || values.append(|out| out.extend_from_slice(text));
                match json::kind(text) {
                    Kind::Number => Cell::Number(append()),
                    Kind::Bool => Cell::Bool(text == b"true"),
                    _ => Cell::Json(append()),
                }
            }
        };
        values.set(row, cell);
    }

    /// Makes arrays of the values of columns that came more than once.
    fn write_repeated(&mut self, row: usize, text: &[u8], distinct: bool) {
        self.pairs.sort_by_key(|pair| pair.slot);
        for group in self.pairs.chunk_by(|a, b| a.slot == b.slot) {
            let Slot::Column(column) = group[0].slot else {
                continue;
            };
            if group.len() > 1 {
                let values = group
                    .iter()
                    .map(|pair| Value::of(pair.value, text, &self.changed));
                let values = distinct_if(distinct, values);
                if let [_, _, ..] = values.as_slice() {
                    let builder = &mut self.columns[column].values;
                    let span = builder.append(|out| write_values(&values, out));
                    builder.set(row, Cell::Json(span));
                }
            }
        }
    }

    /// Makes an object of a row in which some value has no column. The other values are in it, too, for their places: those of
    /// the columns are laid over them.
    fn write_object(&mut self, row: usize, text: &[u8], distinct: bool) {
        if self.pairs.iter().all(|pair| pair.slot != Slot::Object) {
            return;
        }
        let name_of = |pair: &Pair| match pair.slot {
            Slot::Column(column) => Cow::Borrowed(&*self.columns[column].name),
            _ => Cow::Owned((self.name)(&text[pair.key.0..pair.key.1]).unwrap_or_default()),
        };
        let pairs = self.pairs.iter();
        let mut named: Vec<(Cow<'_, str>, Value<'_>)> = pairs
            .map(|pair| (name_of(pair), Value::of(pair.value, text, &self.changed)))
            .collect();
        for &(column, _) in &self.defaults {
            if self.columns[column].values.cell(row) == Cell::Keep {
                named.push((Cow::Borrowed(&*self.columns[column].name), Value::NULL));
            }
        }
        named.sort_by(|a, b| a.0.cmp(&b.0));
        let objects = self
            .objects
            .get_or_insert_with(|| ColumnBuilder::new(self.len));
        let span = objects.append(|out| {
            for (index, group) in named.chunk_by(|a, b| a.0 == b.0).enumerate() {
                out.push(if index == 0 { b'{' } else { b',' });
                json::write_string(out, group[0].0.as_bytes());
                out.push(b':');
                write_values(
                    &distinct_if(distinct, group.iter().map(|(_, value)| *value)),
                    out,
                );
            }
            out.push(b'}');
        });
        objects.set(row, Cell::Json(span));
    }

    /// Adds the writes of all rows to an edit, in the object `target` or in the event itself.
    pub fn finish(self, target: Option<&FieldPath>, edit: &mut Edit) {
        if self.dotted_keys {
            edit.dotted_keys();
        }
        if let Some(objects) = self.objects {
            // Whether a key holds a dot is not worth a look at each of them.
            edit.merge(target.cloned(), objects.finish(), true);
        }
        let mut columns = self.columns;
        columns.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for KeyedColumn { name, values } in columns {
            if values.is_untouched() {
                continue;
            }
            edit.set(below(target, [name]), values.finish());
        }
    }
}

/// A value's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Value<'a> {
    pub bytes: &'a [u8],
    /// It stands for itself, and is not the text of a JSON string.
    pub is_json: bool,
}

impl<'a> Value<'a> {
    const NULL: Self = Self {
        bytes: b"null",
        is_json: true,
    };

    fn of(value: ValueLocation, text: &'a [u8], changed: &'a [u8]) -> Self {
        let (bytes, is_json) = match value {
            ValueLocation::Text(start, end) => (&text[start..end], false),
            ValueLocation::Changed(start, end) => (&changed[start..end], false),
            ValueLocation::Json(start, end) => (&changed[start..end], true),
        };
        Self { bytes, is_json }
    }

    fn write(self, out: &mut Vec<u8>) {
        if self.is_json {
            out.extend_from_slice(self.bytes);
        } else {
            json::write_string(out, self.bytes);
        }
    }
}

/// The values in order, each once if asked for.
pub(crate) fn distinct_if<'a>(
    distinct: bool,
    values: impl Iterator<Item = Value<'a>>,
) -> Vec<Value<'a>> {
    let mut seen: HashMap<Value<'_>, (), foldhash::fast::RandomState> = HashMap::default();
    values
        .filter(|value| !distinct || seen.insert(*value, ()).is_none())
        .collect()
}

/// Appends one value as JSON, or several as an array.
pub(crate) fn write_values(values: &[Value<'_>], out: &mut Vec<u8>) {
    if let [only] = values {
        return only.write(out);
    }
    for (index, value) in values.iter().enumerate() {
        out.push(if index == 0 { b'[' } else { b',' });
        value.write(out);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use component::Spec;

    use crate::testing::{batch_of, build, lines_of, process};

    /// What becomes of the text in the field `m` of the last of these events.
    fn last_of(spec: &'static Spec, stage: &str, events: &[String]) -> String {
        let mut batch = batch_of(events.iter().map(|event| &**event));
        let failures = process(build(spec, stage).expect(stage).as_mut(), &mut batch);
        assert!(failures.is_empty(), "{failures:?}");
        lines_of(&batch).pop().expect("an event")
    }

    /// Checks that the last event of a batch is the same whatever is before it, and gives it.
    fn check_order(spec: &'static Spec, stage: &str, last: &str, others: &[&str]) -> String {
        let alone = last_of(spec, stage, &[last.to_owned()]);
        for other in others {
            let events = [(*other).to_owned(), last.to_owned()];
            assert_eq!(last_of(spec, stage, &events), alone, "{stage}: {other}");
        }
        alone
    }

    #[test]
    fn the_order_of_fields_does_not_depend_on_other_events() {
        let last = r#"{"m":"a=1 b.c=2 B=3","z":{"y":0,"b.c":0}}"#;
        let expected = r#"{"m":"a=1 b.c=2 B=3","z":{"y":0,"b.c":"2","B":"3","a":"1"}}"#;
        let others = [
            r#"{"m":"b.c=2 a=1"}"#,
            r#"{"m":"B=1 q=1 b.c=2 b=1","z":{"a":1}}"#,
        ];
        for (spec, name) in [(&crate::logfmt::SPEC, "logfmt"), (&crate::kv::SPEC, "kv")] {
            let stage = format!("{name} m target=z");
            assert_eq!(check_order(spec, &stage, last, &others), expected);
            check_order(spec, &format!("{name} m"), last, &others);
        }
        let stage = "kv m target=z default_keys.c=7 default_keys.B=8";
        let defaults = check_order(&crate::kv::SPEC, stage, r#"{"m":"d=1 a=2"}"#, &others);
        assert_eq!(
            defaults,
            r#"{"m":"d=1 a=2","z":{"B":8,"a":"2","c":7,"d":"1"}}"#
        );
        check_order(
            &crate::cef::SPEC,
            "cef m",
            r#"{"m":"CEF:0|v|p|1|2|n|3|a=1 b=2"}"#,
            &[r#"{"m":"CEF:0|v|p|1|2|n|3|b=1 a=2"}"#],
        );
        check_order(
            &crate::leef::SPEC,
            "leef m",
            r#"{"m":"LEEF:1.0|v|p|1|2|a=1\tb=2"}"#,
            &[r#"{"m":"LEEF:1.0|v|p|1|2|b=1\ta=2"}"#],
        );
        check_order(
            &crate::url::SPEC,
            "url m parameters=url.parameters",
            r#"{"m":"/?a=1&b=2"}"#,
            &[r#"{"m":"/?b=2&a=1"}"#],
        );
    }

    #[test]
    fn the_order_of_fields_is_the_same_beyond_the_columns() {
        let keys =
            |from: usize| -> String { (from..from + 300).map(|n| format!(" k{n}=1")).collect() };
        let others = [
            format!(r#"{{"m":"{}"}}"#, keys(0)),
            format!(r#"{{"m":"z=1 b=2{}"}}"#, keys(0)),
            format!(r#"{{"m":"c=2{}"}}"#, keys(1000)),
        ];
        let others: Vec<&str> = others.iter().map(|event| &**event).collect();
        for last in [
            r#"{"m":"a=1 z=2 b=3 c=4 a=5"}"#,
            r#"{"m":"a=1 z=2 b=3 c=4 a=5","t":{"y":1,"c":1}}"#,
        ] {
            for stage in ["kv m target=t default_keys.d=7", "kv m target=t"] {
                let event = check_order(&crate::kv::SPEC, stage, last, &others);
                let default = if stage.contains("d=7") {
                    r#","d":7"#
                } else {
                    ""
                };
                let expected = match last.contains('y') {
                    false => format!(r#""t":{{"a":["1","5"],"b":"3","c":"4"{default},"z":"2"}}"#),
                    true => {
                        format!(r#""t":{{"y":1,"c":"4","a":["1","5"],"b":"3"{default},"z":"2"}}"#)
                    }
                };
                assert!(event.ends_with(&format!("{expected}}}")), "{event}");
            }
        }
    }
}
