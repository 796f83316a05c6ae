//! Reads a table of CSV: RFC 4180, with any character between fields, and a header.

use std::io::BufRead;
use std::ops::Range;

use batch::Value;
use codec::{Quoting, RowField, RowParser};

use super::builder::TableBuilder;
use super::error::{RowError, TableError};
use super::lines::Lines;
use super::plan::Plan;

/// The longest row: a quote that is never closed is found there, at the latest.
const ROW_BYTES_MAX: usize = 1 << 20;

/// The rows of a file, with the lines at which they begin. Blank lines count for nothing.
struct CsvRows<R> {
    lines: Lines<R>,
    parser: RowParser,
    /// The row at hand, and behind it the values that do not stand in it as they are.
    text: Vec<u8>,
    fields: Vec<Range<usize>>,
}

impl<R: BufRead> CsvRows<R> {
    fn new(input: R, delimiter: u8) -> Self {
        Self {
            lines: Lines::new(input),
            parser: RowParser::new(delimiter, Some(b'"'), false),
            text: Vec::new(),
            fields: Vec::new(),
        }
    }

    /// Reads the next row, and gives the line at which it begins.
    fn next(&mut self) -> Result<Option<u32>, TableError> {
        if !self.lines.next()? {
            return Ok(None);
        }
        let line = self.lines.number;
        let wrong = |error| TableError::row(line, error);
        self.text.clear();
        self.text.extend_from_slice(&self.lines.line);
        while !self.split() {
            // The row goes on behind the line end, at least to the next quote.
            loop {
                if self.text.len() > ROW_BYTES_MAX || !self.lines.next_of_any()? {
                    return Err(wrong(RowError::OpenQuote));
                }
                self.text.extend_from_slice(&self.lines.line);
                if self.lines.line.contains(&b'"') {
                    break;
                }
            }
        }
        match std::str::from_utf8(&self.text) {
            Ok(_) => Ok(Some(line)),
            Err(_) => Err(wrong(RowError::NotUtf8)),
        }
    }

    /// Takes the row apart. `false` where a quote is open.
    fn split(&mut self) -> bool {
        let end = self.text.len() - line_end(&self.text);
        self.fields.clear();
        let mut mixed = Vec::new();
        let put = |index, field: RowField| {
            self.fields.push(field.start..field.end);
            if field.quoting == Quoting::Mixed {
                mixed.push(index);
            }
        };
        if self.parser.parse(&self.text[..end], put).is_err() {
            return false;
        }
        for index in mixed {
            let mut value = Vec::new();
            self.parser
                .unquote(&self.text[self.fields[index].clone()], &mut value);
            let start = self.text.len();
            self.text.extend_from_slice(&value);
            self.fields[index] = start..self.text.len();
        }
        true
    }

    fn field(&self, index: usize) -> &[u8] {
        &self.text[self.fields[index].clone()]
    }
}

/// The length of the line end behind a text.
fn line_end(text: &[u8]) -> usize {
    match text {
        [.., b'\r', b'\n'] => 2,
        [.., b'\n'] => 1,
        _ => 0,
    }
}

/// Which fields of a row are its key and its values.
struct Layout {
    /// The number of fields.
    width: usize,
    keys: Vec<usize>,
    values: Vec<usize>,
}

/// Reads a file into a table.
pub(super) fn read_csv(
    plan: &Plan,
    input: impl BufRead,
    delimiter: u8,
    builder: &mut TableBuilder<'_>,
) -> Result<(), TableError> {
    let mut rows = CsvRows::new(input, delimiter);
    if rows.next()?.is_none() {
        return Err(TableError::Empty);
    }
    let name = |index| String::from_utf8_lossy(rows.field(index).trim_ascii()).into_owned();
    let header: Vec<String> = (0..rows.fields.len()).map(name).collect();
    let layout = layout(plan, &header, builder)?;
    while let Some(line) = rows.next()? {
        if rows.fields.len() != layout.width {
            let (count, wanted) = (rows.fields.len(), layout.width);
            return Err(TableError::row(line, RowError::Fields { count, wanted }));
        }
        let value = |index: &usize| Value::Text(rows.field(*index));
        let key: Vec<Value<'_>> = layout.keys.iter().map(value).collect();
        builder.begin(line, &key)?;
        builder.count(layout.values.len());
        for (column, index) in layout.values.iter().enumerate() {
            builder.value(column, value(index));
        }
    }
    Ok(())
}

fn layout(
    plan: &Plan,
    header: &[String],
    builder: &mut TableBuilder<'_>,
) -> Result<Layout, TableError> {
    for (index, name) in header.iter().enumerate() {
        if header[..index].contains(name) && !name.is_empty() {
            return Err(TableError::SameColumn(name.clone()));
        }
    }
    let place = |setting: &'static str, name: &str| {
        let found = header.iter().position(|column| column == name);
        found.ok_or_else(|| TableError::NoColumn {
            setting,
            name: name.to_owned(),
            columns: header.to_vec(),
        })
    };
    let names = plan.key.names();
    let mut keys = Vec::new();
    for (index, name) in names.iter().enumerate() {
        keys.push(place(plan.key.setting(index), name)?);
    }
    let mut values = Vec::new();
    for column in plan.columns.iter().flatten() {
        values.push(place("columns", &column.name)?);
        builder.column(&column.name, column.path.as_ref())?;
    }
    for (index, name) in header.iter().enumerate() {
        if plan.takes(name) {
            if name.is_empty() {
                return Err(TableError::NoName(index + 1));
            }
            values.push(index);
            builder.column(name, None)?;
        }
    }
    for (name, _) in &plan.defaults {
        place("default", name)?;
    }
    Ok(Layout {
        width: header.len(),
        keys,
        values,
    })
}
