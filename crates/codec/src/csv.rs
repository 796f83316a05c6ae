//! Rows of CSV as events: RFC 4180, with any character between fields.
//!
//! The first record of a stream is its header: it names the fields and becomes no event. A record may hold line ends in quotes; which
//! lines belong together says [`Scan`], which the chunker asks. Rows come here as lines of text, and their fields become columns:
//! views into the line, or copies of values with quotes in their text ([`RowParser`]).
//!
//! # Rules
//! - Every value is text, as it stands: `00123` keeps its zeros, and an empty field is the empty text.
//! - A row that has more or fewer fields than the header, or a quote that is never closed, stays a line of text with the tag
//!   `_csvparsefailure` and the reason.
//! - A name of the header without a text is `column_N`; a second one of a name gets `_2`. Blanks around names do not count.
//! - A name with dots is one key, as in JSON documents.
//!
//! # Limits
//! A stream that goes on in its middle needs its header from elsewhere: [`HeaderSlot`].

mod row;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, Span};

pub use row::{OpenQuote, Quoting, RowField, RowParser, csv_delimiter};

const FAILURE_TAG: &str = "_csvparsefailure";

/// How rows are written.
#[derive(Clone, Debug)]
pub struct Csv {
    delimiter: u8,
    columns: Option<Arc<Header>>,
    tag: Arc<str>,
}

/// The names of a row's fields.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    paths: Vec<FieldPath>,
}

/// The header of a stream, which the first of its rows gives. Empty until it is known; none where it cannot be known.
pub(crate) type HeaderSlot = OnceLock<Option<Arc<Header>>>;

/// What was met in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub failures: u64,
    /// The offset in its stream of the first of them.
    pub first_failure: Option<u64>,
}

/// Why a row is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("the header of the stream cannot be read")]
    NoHeader,
    #[error(transparent)]
    OpenQuote(#[from] OpenQuote),
    #[error("the row has {count} fields and the header {wanted}")]
    Fields { count: usize, wanted: usize },
}

impl Csv {
    /// Rows with this character between fields. With `columns` they have no header.
    pub fn new(delimiter: u8, columns: &[String]) -> Self {
        let columns = (!columns.is_empty()).then(|| {
            let names = columns.iter().map(String::as_str);
            Arc::new(Header::new(names))
        });
        Self {
            delimiter,
            columns,
            tag: FAILURE_TAG.into(),
        }
    }

    /// What says which lines belong to one row.
    pub(crate) fn scan(&self) -> Scan {
        Scan {
            delimiter: self.delimiter,
        }
    }

    /// Whether streams have a header.
    pub fn has_header(&self) -> bool {
        self.columns.is_none()
    }

    /// The header in the first bytes of a stream of UTF-8; none where they do not hold all of it.
    pub fn header_of(&self, head: &[u8]) -> Option<Arc<Header>> {
        let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
        let mut start = None;
        let mut at = 0;
        let mut is_open = false;
        for end in memchr::memchr_iter(b'\n', head) {
            let line = &head[at..end];
            at = end + 1;
            if start.is_none() && line.trim_ascii().is_empty() {
                continue;
            }
            let start = *start.get_or_insert(at - line.len() - 1);
            is_open = self.scan().is_open_after(line, is_open);
            if !is_open {
                return self.header(&head[start..end]).map(Arc::new);
            }
        }
        None
    }

    /// Reads a row as the header.
    pub(crate) fn header(&self, row: &[u8]) -> Option<Header> {
        let parser = self.row_parser();
        let mut names = Vec::new();
        let put = |_, field: RowField| {
            let mut name = Vec::new();
            match field.quoting {
                Quoting::Mixed => parser.unquote(&row[field.start..field.end], &mut name),
                _ => name.extend_from_slice(&row[field.start..field.end]),
            }
            names.push(String::from_utf8_lossy(&name).into_owned());
        };
        parser.parse(row, put).ok()?;
        Some(Header::new(names.iter().map(String::as_str)))
    }

    fn row_parser(&self) -> RowParser {
        RowParser::new(self.delimiter, Some(b'"'), false)
    }

    /// Makes fields of the rows, which are lines of text. They lose what lines of text have of themselves, unless
    /// `add_fields` is set.
    pub(crate) fn apply(
        &self,
        batch: &mut Batch,
        header: Option<&Arc<Header>>,
        add_fields: bool,
    ) -> Counts {
        let header = self.columns.as_ref().or(header);
        let message = FieldPath::from_keys(["message"]);
        let lines = batch.column(&message);
        let mut failures = Failures::none();
        let mut read = Bitmap::none(batch.len());
        let paths = header.map_or(&[][..], |header| &header.paths);
        let mut rows = Rows::new(&lines, self.row_parser(), paths.len());
        // Broken rows tend to be broken in the same way: they share the text that says how.
        let mut last: Option<(Problem, Arc<str>)> = None;
        for row in batch.alive().iter() {
            let Cell::Text(line) = lines.cell(row) else {
                continue;
            };
            let outcome = match header {
                Some(_) => rows.put(row, line),
                None => Err(Problem::NoHeader),
            };
            let Err(problem) = outcome else {
                read.insert(row);
                continue;
            };
            if last.as_ref().is_none_or(|(known, _)| *known != problem) {
                last = Some((problem, problem.to_string().into()));
            }
            if let Some((_, reason)) = &last {
                failures.push(row, &self.tag, reason);
            }
        }
        let mut edit = Edit::new();
        if add_fields && !paths.contains(&message) {
            edit.remove(message, &read);
        }
        for (path, column) in paths.iter().zip(rows.columns) {
            edit.set(path.clone(), column.finish());
        }
        let refused = batch.apply(edit);
        debug_assert!(refused.is_empty(), "a field of the event itself");
        if !add_fields {
            batch.keep(paths, &read);
        }
        batch.mark_failed(&failures, false);
        let first = failures.rows().iter().map(|failure| failure.row).min();
        Counts {
            failures: failures.rows().len() as u64,
            first_failure: first.map(|row| batch.origin().start(row)),
        }
    }
}

impl Header {
    fn new<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let mut taken = BTreeSet::new();
        let mut paths = Vec::new();
        for (index, name) in names.enumerate() {
            let name = match name.trim() {
                "" => format!("column_{}", index + 1),
                name => name.to_owned(),
            };
            let again = (2..).map(|number| format!("{name}_{number}"));
            let free = std::iter::once(name.clone()).chain(again);
            let name = free.into_iter().find(|name| !taken.contains(name));
            let name = name.unwrap_or_default();
            taken.insert(name.clone());
            paths.push(FieldPath::from_keys([name]));
        }
        Self { paths }
    }
}

/// Says where quotes are open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    delimiter: u8,
}

impl Scan {
    /// Whether a quote is open at the end of a line, given whether one was at its beginning.
    pub(crate) fn is_open_after(self, line: &[u8], is_open: bool) -> bool {
        if !is_open && memchr::memchr(b'"', line).is_none() {
            return false;
        }
        let mut is_open = is_open;
        // A quote opens a field only where it is the field's first character.
        let mut is_start = !is_open;
        let mut rest = line.iter().copied().peekable();
        while let Some(byte) = rest.next() {
            if is_open {
                if byte == b'"' && rest.next_if_eq(&b'"').is_none() {
                    is_open = false;
                }
                continue;
            }
            is_open = is_start && byte == b'"';
            is_start = byte == self.delimiter;
        }
        is_open
    }
}

/// The rows of a batch on their way into columns.
struct Rows<'l> {
    lines: &'l Column,
    parser: RowParser,
    columns: Vec<ColumnBuilder>,
}

impl<'l> Rows<'l> {
    fn new(lines: &'l Column, parser: RowParser, count: usize) -> Self {
        let column = || ColumnBuilder::over(lines.len(), lines.buffers().clone());
        Self {
            lines,
            parser,
            columns: (0..count).map(|_| column()).collect(),
        }
    }

    /// Puts the fields of a row into the columns; none of them where it fails.
    fn put(&mut self, row: usize, line: Span) -> Result<(), Problem> {
        let text = self.lines.bytes(line);
        let wanted = self.columns.len();
        let columns = &mut self.columns;
        let count = self.parser.parse(text, |index, field| {
            let Some(column) = columns.get_mut(index) else {
                return;
            };
            let span = match field.quoting {
                Quoting::Mixed => {
                    column.append(|out| self.parser.unquote(&text[field.start..field.end], out))
                }
                Quoting::Plain | Quoting::Quoted => Span {
                    start: line.start + field.start as u32,
                    len: (field.end - field.start) as u32,
                    ..line
                },
            };
            column.set(row, Cell::Text(span));
        });
        match count {
            Ok(count) if count == wanted => return Ok(()),
            _ => columns
                .iter_mut()
                .for_each(|column| column.set(row, Cell::Keep)),
        }
        Err(match count {
            Ok(count) => Problem::Fields { count, wanted },
            Err(open) => open.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_opens_a_field_at_its_beginning_only() {
        for (line, was_open, expected) in [
            ("a,b", false, false),
            ("a,\"b", false, true),
            ("a,b\"", false, false),
            ("5\" disk,x", false, false),
            ("\"a\"\"b\",c", false, false),
            ("\"a\"\"", false, true),
            ("goes on", true, true),
            ("ends\",\"", true, true),
            ("ends\",x", true, false),
            ("\"\"still", true, true),
            ("", false, false),
            ("", true, true),
        ] {
            let scan = Csv::new(b',', &[]).scan();
            assert_eq!(
                scan.is_open_after(line.as_bytes(), was_open),
                expected,
                "{line}"
            );
        }
    }

    #[test]
    fn headers_name_every_field_once() {
        let csv = Csv::new(b';', &[]);
        let header = csv.header(b"a; b ;;a;a_2;\"x;y\";a.b").expect("it reads");
        let names = header.paths.iter().map(|path| path.keys()[0].to_string());
        let names: Vec<String> = names.collect();
        assert_eq!(names, ["a", "b", "column_3", "a_2", "a_2_2", "x;y", "a.b"]);
    }

    #[test]
    fn a_header_is_found_in_the_first_bytes_of_a_stream() {
        let csv = Csv::new(b',', &[]);
        let names = |head: &str| {
            let header = csv.header_of(head.as_bytes())?;
            let names = header.paths.iter().map(|path| path.keys()[0].to_string());
            Some(names.collect::<Vec<_>>().join("|"))
        };
        for (head, expected) in [
            ("a,b\n1,2\n", Some("a|b")),
            ("\u{feff}a,b\r\n1,2", Some("a|b")),
            ("\n \na,\"b\nc\"\n1", Some("a|b\nc")),
            ("a,b", None),
            ("a,\"b\n", None),
            ("", None),
        ] {
            assert_eq!(names(head).as_deref(), expected, "{head:?}");
        }
    }
}
