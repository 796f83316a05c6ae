//! A row of CSV, taken apart: RFC 4180, with any ASCII characters between fields and around them.
//!
//! A quote opens a field only as its first character, and two quotes in it stand for one. Text after the closing quote
//! belongs to the value, as the crate `csv-core` has it: `"a"b` is `ab`. Values are parts of the row; only those with quotes in
//! their text have to be copied. Unlike `csv-core`, which copies every field, a row without quotes takes one search for
//! its delimiters.

/// How rows are written.
#[derive(Clone, Debug)]
pub struct RowParser {
    delimiter: u8,
    quote: Option<u8>,
    trims: bool,
}

/// A field of a row: where its value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowField {
    /// The first byte of the value in the row.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
    /// Whether quotes are around it, and in it.
    pub quoting: Quoting,
}

/// How a field of a row is quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// Not at all.
    Plain,
    /// In quotes, which are not part of the value.
    Quoted,
    /// The value has quotes that do not belong to its text, the first as its first character: [`RowParser::unquote`] removes
    /// them.
    Mixed,
}

/// A quote in a row that is never closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a quote in the row is not closed")]
pub struct OpenQuote {
    /// Where it stands, in bytes from the start of the row.
    pub offset: usize,
}

/// The character between fields that a setting names: one ASCII character, or `tab`; none for anything else.
pub fn csv_delimiter(text: &str) -> Option<u8> {
    match text.as_bytes() {
        b"tab" => Some(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n') => Some(*byte),
        _ => None,
    }
}

impl RowParser {
    /// For rows with this ASCII character between fields. Without `quote` no character opens a field. `trims` says that
    /// blanks (spaces and tabs) around values, and around their quotes, are no part of them.
    pub fn new(delimiter: u8, quote: Option<u8>, trims: bool) -> Self {
        Self {
            delimiter,
            quote,
            trims,
        }
    }

    /// Calls `put` with the index of every field of a row, in order. Gives their number, at least one.
    ///
    /// # Errors
    /// A quote that is never closed; the fields before it have been put.
    #[inline]
    pub fn parse(
        &self,
        row: &[u8],
        mut put: impl FnMut(usize, RowField),
    ) -> Result<usize, OpenQuote> {
        let quotes = self.quote.and_then(|quote| memchr::memchr(quote, row));
        if quotes.is_some() || self.trims {
            return self.parse_quoted(row, put);
        }
        let mut start = 0;
        let mut count = 0;
        let ends = memchr::memchr_iter(self.delimiter, row).chain([row.len()]);
        for end in ends {
            let quoting = Quoting::Plain;
            put(
                count,
                RowField {
                    start,
                    end,
                    quoting,
                },
            );
            count += 1;
            start = end + 1;
        }
        Ok(count)
    }

    fn parse_quoted(
        &self,
        row: &[u8],
        mut put: impl FnMut(usize, RowField),
    ) -> Result<usize, OpenQuote> {
        let mut start = 0;
        let mut count = 0;
        loop {
            start = self.skip_blanks(row, start);
            let (field, next) = match (self.quote, row.get(start)) {
                (Some(quote), Some(first)) if *first == quote => self.quoted(row, start, quote)?,
                _ => {
                    let next = self.delimiter_after(row, start);
                    let end = start + self.trimmed_len(&row[start..next]);
                    let quoting = Quoting::Plain;
                    let field = RowField {
                        start,
                        end,
                        quoting,
                    };
                    (field, next)
                }
            };
            put(count, field);
            count += 1;
            if next >= row.len() {
                return Ok(count);
            }
            start = next + 1;
        }
    }

    /// The field whose opening quote stands at `start`, and where it ends.
    fn quoted(&self, row: &[u8], start: usize, quote: u8) -> Result<(RowField, usize), OpenQuote> {
        let open = OpenQuote { offset: start };
        let (closing, is_doubled) = closing_quote(&row[start..], quote).ok_or(open)?;
        let pos = start + closing;
        let quoting = match is_doubled {
            true => Quoting::Mixed,
            false => Quoting::Quoted,
        };
        let next = self.skip_blanks(row, pos + 1);
        if quoting == Quoting::Quoted && row.get(next).is_none_or(|byte| *byte == self.delimiter) {
            let (start, end) = (start + 1, pos);
            return Ok((
                RowField {
                    start,
                    end,
                    quoting,
                },
                next,
            ));
        }
        let next = self.delimiter_after(row, next);
        let end = start + self.trimmed_len(&row[start..next]);
        let quoting = Quoting::Mixed;
        Ok((
            RowField {
                start,
                end,
                quoting,
            },
            next,
        ))
    }

    /// Appends a value without the quotes that do not belong to its text; for [`Quoting::Mixed`].
    pub fn unquote(&self, value: &[u8], out: &mut Vec<u8>) {
        let (mut rest, mut open) = match value.split_first() {
            Some((first, rest)) if Some(*first) == self.quote => (rest, self.quote),
            _ => (value, None),
        };
        while let Some(quote) = open
            && let Some(at) = memchr::memchr(quote, rest)
        {
            // One of two quotes belongs to the text; a single one closes, and those behind it are text.
            let is_double = rest.get(at + 1) == Some(&quote);
            out.extend_from_slice(&rest[..at + usize::from(is_double)]);
            rest = &rest[at + 1 + usize::from(is_double)..];
            open = open.filter(|_| is_double);
        }
        out.extend_from_slice(rest);
    }

    /// How much of a value its quotes enclose, they included; for [`Quoting::Mixed`].
    pub fn enclosed_len(&self, value: &[u8]) -> usize {
        let closing = self.quote.and_then(|quote| closing_quote(value, quote));
        closing.map_or(0, |(at, _)| at + 1)
    }

    fn delimiter_after(&self, row: &[u8], pos: usize) -> usize {
        memchr::memchr(self.delimiter, &row[pos..]).map_or(row.len(), |found| pos + found)
    }

    fn skip_blanks(&self, row: &[u8], mut pos: usize) -> usize {
        while self.trims && row.get(pos).is_some_and(|byte| self.is_blank(*byte)) {
            pos += 1;
        }
        pos
    }

    fn trimmed_len(&self, value: &[u8]) -> usize {
        let blanks = value.iter().rev();
        let blanks = blanks.take_while(|byte| self.trims && self.is_blank(**byte));
        value.len() - blanks.count()
    }

    fn is_blank(&self, byte: u8) -> bool {
        matches!(byte, b' ' | b'\t') && byte != self.delimiter
    }
}

/// Where the quote stands that closes the one with which a text begins, and whether there are doubled ones between them.
#[inline]
fn closing_quote(text: &[u8], quote: u8) -> Option<(usize, bool)> {
    let (mut at, mut is_doubled) = (1, false);
    loop {
        at += memchr::memchr(quote, text.get(at..).unwrap_or_default())?;
        if text.get(at + 1) != Some(&quote) {
            return Some((at, is_doubled));
        }
        is_doubled = true;
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use csv_core::ReadRecordResult;
    use proptest::prelude::*;

    fn values(parser: &RowParser, row: &str) -> Result<Vec<String>, OpenQuote> {
        let mut found = Vec::new();
        let count = parser.parse(row.as_bytes(), |index, field| {
            assert_eq!(index, found.len());
            let value = &row.as_bytes()[field.start..field.end];
            let mut text = Vec::new();
            match field.quoting {
                Quoting::Mixed => parser.unquote(value, &mut text),
                Quoting::Plain | Quoting::Quoted => text.extend_from_slice(value),
            }
            found.push(String::from_utf8(text).expect("UTF-8"));
        })?;
        assert_eq!(count, found.len());
        Ok(found)
    }

    #[test]
    fn rows_are_taken_apart() {
        let plain = RowParser::new(b',', Some(b'"'), false);
        let trims = RowParser::new(b',', Some(b'"'), true);
        let single = RowParser::new(b'\t', Some(b'\''), true);
        let none = RowParser::new(b';', None, false);
        for (parser, row, expected) in [
            (&plain, "a,b", "a|b"),
            (&plain, "", ""),
            (&plain, ",", "|"),
            (&plain, "a,", "a|"),
            (&plain, r#""a,b",c"#, "a,b|c"),
            (&plain, r#""","x""#, "|x"),
            (&plain, r#""a ""b"" c",d"#, r#"a "b" c|d"#),
            (&plain, r#"5" disk,"x""#, r#"5" disk|x"#),
            (&plain, r#""a"b"c,d"#, r#"ab"c|d"#),
            (&plain, r#" "a",b"#, r#" "a"|b"#),
            (&plain, "\"a\nb\",c", "a\nb|c"),
            (&trims, r#" a , "b, c" ,d "#, "a|b, c|d"),
            (&trims, r#" "b""c" , "#, r#"b"c|"#),
            (&trims, " ", ""),
            (&single, "'a\tb'\t c \t\"", "a\tb|c|\""),
            (&none, r#""a;b""#, r#""a|b""#),
            (&plain, "é,ü", "é|ü"),
        ] {
            let found = values(parser, row).expect(row);
            assert_eq!(found.join("|"), expected, "{row}");
        }
        assert_eq!(values(&plain, "a,\"b"), Err(OpenQuote { offset: 2 }));
        assert_eq!(values(&plain, "\"a\"\""), Err(OpenQuote { offset: 0 }));
    }

    proptest! {
        #[test]
        fn it_agrees_with_csv_core(row in "[ab,\"é ]{0,24}") {
            let Ok(found) = values(&RowParser::new(b',', Some(b'"'), false), &row) else {
                return Ok(());
            };
            let (mut fields, mut ends) = (vec![0; 100], vec![0; 100]);
            let mut reader = csv_core::Reader::new();
            // Empty rows are none for the crate, so that one with a field more is read.
            let longer = format!("x,{row}");
            let (result, _, written, count) = reader.read_record(longer.as_bytes(), &mut fields, &mut ends);
            prop_assert_eq!(result, ReadRecordResult::InputEmpty);
            let (result, _, _, more) = reader.read_record(&[], &mut fields[written..], &mut ends[count..]);
            prop_assert_eq!(result, ReadRecordResult::Record);
            let ends = &ends[..count + more];
            let expected: Vec<String> = ends
                .windows(2)
                .map(|pair| String::from_utf8(fields[pair[0]..pair[1]].to_vec()).unwrap())
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
