//! Rows that need the rules for what meets in one field.
//!
//! The captures of all matches of the row are collected first, in order. Then each field gets its value: alone, in an array with
//! what else was captured and with what the event has, or instead of it.

use batch::{Cell, ColumnBuilder, Span, Value, json};
use grok::{CaptureType, Outcome};

use super::{Columns, Compiled, Field, Grok, Source, number, text_of};

/// What was captured in one row. Reused from row to row.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    captured: Vec<Captured>,
    /// The captured texts, one after the other.
    texts: Vec<u8>,
    /// The text of a source that is not a text.
    source: Vec<u8>,
}

/// One captured value.
#[derive(Clone, Debug)]
struct Captured {
    field: usize,
    /// The value; a text's span points into the shared buffers where the source lies there, else nowhere.
    cell: Option<Cell>,
    /// Where the text lies in [`Row::texts`].
    start: usize,
    end: usize,
}

impl Grok {
    /// Matches one row by all rules and writes its captures.
    pub(super) fn general_row(&mut self, row: usize, columns: &mut Columns) -> Outcome {
        self.row.captured.clear();
        self.row.texts.clear();
        let mut matched = false;
        for (index, source) in self.sources.iter_mut().enumerate() {
            let column = &columns.sources[index];
            let collect = Collect {
                break_on_match: self.break_on_match,
                keep_empty: self.keep_empty,
            };
            let cell = column.cell(row);
            let outcome = match column.value_of(cell) {
                Value::Json(array) if array.first() == Some(&b'[') => {
                    collect.array(array, source, &mut self.row)
                }
                value => {
                    let mut written = std::mem::take(&mut self.row.source);
                    let view = match cell {
                        Cell::Text(span) => Some(Span {
                            buffer: span.buffer + columns.bases[index],
                            ..span
                        }),
                        _ => None,
                    };
                    let text = text_of(value, &mut written);
                    let outcome = text.map_or(Outcome::NoMatch, |text| {
                        collect.text(text, view, source, &mut self.row)
                    });
                    self.row.source = written;
                    outcome
                }
            };
            match outcome {
                Outcome::LimitReached => return Outcome::LimitReached,
                Outcome::NoMatch => {}
                Outcome::Match => {
                    matched = true;
                    if self.break_on_match {
                        break;
                    }
                }
            }
        }
        if !matched {
            return Outcome::NoMatch;
        }
        for (index, field) in self.fields.iter().enumerate() {
            let present = columns.present[index]
                .as_ref()
                .map_or(Value::Missing, |column| column.value(row));
            self.row
                .write(index, field, present, row, &mut columns.written[index]);
        }
        Outcome::Match
    }
}

/// How captures are collected.
#[derive(Clone, Copy)]
struct Collect {
    break_on_match: bool,
    keep_empty: bool,
}

impl Collect {
    /// Matches the elements of an array, every one of them; any may match.
    fn array(self, array: &[u8], source: &mut Source, row: &mut Row) -> Outcome {
        let mut all = Outcome::NoMatch;
        for at in json::elements(array) {
            let element = &array[at];
            let mut plain = Vec::new();
            let text = match json::kind(element) {
                json::Kind::String => {
                    json::unescape(&element[1..element.len() - 1], &mut plain);
                    &plain
                }
                json::Kind::Null => continue,
                _ => element,
            };
            match self.text(text, None, source, row) {
                Outcome::NoMatch => {}
                Outcome::Match => all = Outcome::Match,
                Outcome::LimitReached => return Outcome::LimitReached,
            }
        }
        all
    }

    /// Matches a text; `view` says where it lies in the shared buffers.
    fn text(self, text: &[u8], view: Option<Span>, source: &mut Source, row: &mut Row) -> Outcome {
        let mut all = Outcome::NoMatch;
        for compiled in &mut source.patterns {
            match compiled.pattern.matches(text, &mut compiled.scratch) {
                Outcome::NoMatch => continue,
                Outcome::LimitReached => return Outcome::LimitReached,
                Outcome::Match => {}
            }
            all = Outcome::Match;
            row.collect(text, view, compiled, self.keep_empty);
            if self.break_on_match {
                break;
            }
        }
        all
    }
}

impl Row {
    fn collect(&mut self, text: &[u8], view: Option<Span>, compiled: &Compiled, keep_empty: bool) {
        for (span, &(field, kind)) in compiled.scratch.spans().iter().zip(&compiled.captures) {
            let Some(captured) = span.of(text) else {
                if keep_empty {
                    let at = self.texts.len();
                    self.captured.push(Captured {
                        field,
                        cell: Some(Cell::Null),
                        start: at,
                        end: at,
                    });
                }
                continue;
            };
            if captured.is_empty() && !keep_empty {
                continue;
            }
            let in_view = |whole: Span| Span {
                start: whole.start + span.start,
                len: captured.len() as u32,
                ..whole
            };
            let number = if kind == CaptureType::Text {
                None
            } else {
                number(captured, kind)
            };
            let start = self.texts.len();
            self.texts.extend_from_slice(captured);
            let cell = number.or_else(|| view.map(|whole| Cell::Text(in_view(whole))));
            self.captured.push(Captured {
                field,
                cell,
                start,
                end: self.texts.len(),
            });
        }
    }

    /// Writes what was captured for a field.
    fn write(
        &self,
        index: usize,
        field: &Field,
        present: Value<'_>,
        row: usize,
        written: &mut ColumnBuilder,
    ) {
        let mut captured = self
            .captured
            .iter()
            .filter(|captured| captured.field == index);
        let Some(first) = captured.next() else { return };
        let is_absent = matches!(present, Value::Missing | Value::Null);
        if field.overwrites {
            return self.write_one(captured.next_back().unwrap_or(first), row, written);
        }
        if is_absent && captured.clone().next().is_none() {
            return self.write_one(first, row, written);
        }
        let mut old = Vec::new();
        if !is_absent {
            present.write_json(&mut old);
        }
        if old.first() == Some(&b'{') {
            return;
        }
        let span = written.append(|out| {
            out.push(b'[');
            if old.first() == Some(&b'[') {
                // The elements of an array, without its end.
                out.extend_from_slice(old[1..old.len() - 1].trim_ascii());
            } else {
                out.extend_from_slice(&old);
            }
            for captured in std::iter::once(first).chain(captured) {
                if out.last() != Some(&b'[') {
                    out.push(b',');
                }
                self.value(captured).write_json(out);
            }
            out.push(b']');
        });
        written.set(row, Cell::Json(span));
    }

    fn write_one(&self, captured: &Captured, row: usize, written: &mut ColumnBuilder) {
        match captured.cell {
            Some(cell) => written.set(row, cell),
            None => written.set_text(row, &self.texts[captured.start..captured.end]),
        }
    }

    fn value(&self, captured: &Captured) -> Value<'_> {
        match captured.cell {
            Some(Cell::Int(number)) => Value::Int(number),
            Some(Cell::UInt(number)) => Value::UInt(number),
            Some(Cell::Float(number)) => Value::Float(number),
            Some(Cell::Null) => Value::Null,
            _ => Value::Text(&self.texts[captured.start..captured.end]),
        }
    }
}
