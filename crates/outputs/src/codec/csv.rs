//! The codec `csv`: declared columns as rows, quoted as RFC 4180 says (<https://www.rfc-editor.org/rfc/rfc4180>).
//!
//! Invariant: the codec `csv` of Millpond's inputs reads the same values back. It passes over rows of nothing but white space and a
//! byte order mark at the start of a file, so that such fields stand in quotes too.

use std::sync::Arc;

use batch::{Batch, Column, FieldPath, FieldRead, Value};

/// Which fields stand in a row, and how.
#[derive(Debug, Clone)]
pub struct Csv {
    delimiter: u8,
    columns: Vec<FieldPath>,
    /// The row that names the columns, where there is to be one.
    header: Option<Vec<u8>>,
}

impl Csv {
    /// Rows of these fields. In the header, each is called as its keys are, joined by dots.
    pub fn new(delimiter: u8, columns: Vec<FieldPath>, has_header: bool) -> Self {
        let header = has_header.then(|| {
            let mut header = Vec::new();
            for (index, path) in columns.iter().enumerate() {
                if index > 0 {
                    header.push(delimiter);
                }
                write_field(path.keys().join(".").as_bytes(), delimiter, &mut header);
            }
            header.push(b'\n');
            header
        });
        Self {
            delimiter,
            columns,
            header,
        }
    }

    /// The row that names the columns, with its newline.
    pub fn header(&self) -> Option<&[u8]> {
        self.header.as_deref()
    }

    /// The fields that stand in a row, to find out whether any event has them.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let paths = self.columns.iter();
        paths.map(|path| Arc::new(FieldRead::always(path.clone())))
    }

    /// The rows of one batch.
    pub fn bind(&self, batch: &Batch) -> BoundCsv {
        let columns = self.columns.iter();
        BoundCsv {
            delimiter: self.delimiter,
            columns: columns.map(|path| batch.column(path)).collect(),
            value: Vec::new(),
        }
    }
}

/// The rows of one batch.
#[derive(Debug)]
pub struct BoundCsv {
    delimiter: u8,
    columns: Vec<Arc<Column>>,
    /// Room for a value that is no text.
    value: Vec<u8>,
}

impl BoundCsv {
    /// Appends a row without its newline. A field that is absent or null is empty.
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        for (index, column) in self.columns.iter().enumerate() {
            if index > 0 {
                out.push(self.delimiter);
            }
            match column.value(row) {
                Value::Missing | Value::Null => {}
                Value::Text(text) => write_field(text, self.delimiter, out),
                value => {
                    self.value.clear();
                    value.write_text(&mut self.value);
                    write_field(&self.value, self.delimiter, out);
                }
            }
        }
        end_row(start, self.delimiter, out);
    }
}

/// Appends a field, in quotes where it needs them.
#[inline]
fn write_field(text: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
    let needs_quotes = memchr::memchr3(delimiter, b'"', b'\n', text).is_some()
        || memchr::memchr(b'\r', text).is_some()
        || text.starts_with(BYTE_ORDER_MARK);
    if !needs_quotes {
        return out.extend_from_slice(text);
    }
    out.push(b'"');
    let mut from = 0;
    for at in memchr::memchr_iter(b'"', text) {
        out.extend_from_slice(&text[from..=at]);
        out.push(b'"');
        from = at + 1;
    }
    out.extend_from_slice(&text[from..]);
    out.push(b'"');
}

/// Puts the first field of a row in quotes if the row would be read as a blank line.
fn end_row(start: usize, delimiter: u8, out: &mut Vec<u8>) {
    let row = &out[start..];
    if row.iter().all(u8::is_ascii_whitespace) {
        // No field of it is in quotes, so that none holds a delimiter.
        let first = memchr::memchr(delimiter, row).unwrap_or(row.len());
        out.insert(start + first, b'"');
        out.insert(start, b'"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn fields_are_quoted_where_a_reader_needs_it() {
        for (delimiter, columns, document, expected) in [
            (b',', "a b", r#"{"a":1.50,"b":"x"}"#, "1.50,x"),
            (b',', "b c a", r#"{"a":null,"b":true}"#, "true,,"),
            (b',', "a", "{}", "\"\""),
            (b',', "a", r#"{"a":" "}"#, "\" \""),
            (b'\t', "a b", "{}", "\"\"\t"),
            (b'\t', "a b", r#"{"a":" ","b":"\t"}"#, " \t\"\t\""),
            (b'\t', "a b", r#"{"b":" "}"#, "\"\"\t "),
            (b',', "a", r#"{"a":"x,\"y\"\n"}"#, "\"x,\"\"y\"\"\n\""),
            (b',', "a", r#"{"a":"x\r"}"#, "\"x\r\""),
            (b';', "a", r#"{"a":"x,y"}"#, "x,y"),
            (b',', "a", r#"{"a":[1,"x"]}"#, "\"[1,\"\"x\"\"]\""),
            (b',', "a", "{\"a\":\"\u{feff}x\"}", "\"\u{feff}x\""),
            (b',', "x.y", r#"{"x":{"y":"z"}}"#, "z"),
        ] {
            let batch = testing::documents(&[document]);
            let path = |name| FieldPath::parse(name).expect("a field");
            let csv = Csv::new(delimiter, columns.split(' ').map(path).collect(), true);
            let mut out = Vec::new();
            csv.bind(&batch).write(0, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{document}");
        }
    }

    #[test]
    fn a_header_names_the_columns() {
        let paths = || {
            vec![
                FieldPath::from_keys(["a", "b"]),
                FieldPath::from_keys(["c,d"]),
            ]
        };
        let csv = |header| Csv::new(b',', paths(), header);
        assert_eq!(csv(true).header(), Some(b"a.b,\"c,d\"\n".as_slice()));
        assert_eq!(csv(false).header(), None);
    }
}
